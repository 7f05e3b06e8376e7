/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_impl.h: what the files of this folder know of a tokenizer: all kinds are one machine with other tables.
 *
 * A text is cut at the added tokens, rewritten, cut at the added tokens that want rewritten text, cut into words, and
 * each word is looked up or merged: the order of Hugging Face's library.
 */
#ifndef TRI_TEXT_TOKENIZER_IMPL_H
#define TRI_TEXT_TOKENIZER_IMPL_H

#include "base/arena.h"
#include "text/bpe.h"
#include "text/scan.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

#define TRI_GAP          "\xe2\x96\x81" /* U+2581, SentencePiece's space */
#define TRI_END_OF_TEXT  "<|endoftext|>"
#define TRI_REWRITES_MAX 8
#define TRI_AROUND_MAX   8
#define TRI_IDS_SPREAD   16 /* a vocabulary of n tokens has ids below this many times n, and 64 Ki more */

/* One step of rewriting a text. */
typedef struct tri_rewrite {
    bool compose; /* the text in normalization form C; nothing else is set */
    char *from;   /* NULL: `to` is put in front */
    char *to;
    size_t from_nbytes, to_nbytes;
    bool unless_there; /* in front only where it is not yet */
    bool text_begin;   /* in front only at the begin of the whole text */
} tri_rewrite;

typedef struct tri_added {
    const char *text;
    size_t nbytes;
    int32_t id;
    bool special, normalized, lstrip, rstrip;
} tri_added;

/* Added tokens of one kind, by first byte, longer ones first. */
typedef struct tri_added_set {
    tri_added *items;
    size_t count;
    uint32_t first[257]; /* items of a first byte: first[byte] to first[byte + 1] */
} tri_added_set;

typedef struct tri_rewrites {
    tri_rewrite steps[TRI_REWRITES_MAX];
    int count;
} tri_rewrites;

typedef enum tri_leading {
    TRI_LEADING_KEPT,
    TRI_LEADING_STRIPPED, /* decoding takes `strip_count` times strip_text from the begin */
    TRI_LEADING_GAPS      /* decoding takes all U+2581 out of the first token */
} tri_leading;

struct tri_tokenizer {
    const tri_tokenizer_ops *ops;
    tri_arena arena;
    char *origin; /* for messages */
    char *source; /* hf: the text of tokenizer.json; else NULL */
    size_t source_nbytes;
    tri_vocabulary names; /* as the file writes them */
    tri_vocabulary plain; /* as they are decoded, not indexed */
    tri_bpe bpe;
    bool byte_level;    /* GPT-2's letters for bytes */
    bool ignore_merges; /* a word that is a token is not merged */
    bool fuse_unknown;
    bool byte_fallback;
    int32_t unknown;      /* -1: none */
    int32_t end;          /* separates documents; -1: none */
    tri_ids ends;         /* all that end a text */
    bool ends_stated;     /* by files beside the tokenizer, not by their names */
    char *folder;         /* that it was opened from; NULL: none */
    int32_t bytes[256];   /* of a lone byte; -1: none */
    int32_t **characters; /* not byte_level: pages of 256 by character / 256, NULL: none there; else NULL */
    tri_scan_kind scan;
    tri_rewrites normalizer, before_words;
    tri_rewrites decoder; /* of each token */
    bool decode_bytes;    /* <0x41> is the byte 0x41 */
    tri_vector added;     /* tri_added, in the order of the file */
    tri_added_set raw, normalized;
    tri_ids around[2];  /* before and after a whole text */
    bool cuts_anywhere; /* each character is its own token */
    bool cuts_never;    /* an added token may reach over a gap */
    tri_leading leading;
    char *strip_text;
    size_t strip_nbytes;
    int64_t strip_count;
};

extern const tri_tokenizer_ops tri_tokenizer_byte, tri_tokenizer_char, tri_tokenizer_gpt, tri_tokenizer_hf;

/* --- building: any order, then tri_tokenizer_finish --- */
tri_status tri_tokenizer_create(const tri_tokenizer_ops *ops, const char *origin, tri_tokenizer **out);
/* A token of the vocabulary proper. */
tri_status tri_tokenizer_add(tri_tokenizer *tokenizer, int32_t id, const char *text, size_t nbytes);
/* Merge number `rank`, after all tokens. */
tri_status tri_tokenizer_merge(tri_tokenizer *tokenizer, size_t rank, const char *left, size_t left_nbytes,
                               const char *right, size_t right_nbytes);
/* A token that is found in the text itself; `added.text` is copied. */
tri_status tri_tokenizer_add_added(tri_tokenizer *tokenizer, tri_added added);
/* Appends a step that composes. */
tri_status tri_rewrites_add_compose(tri_tokenizer *tokenizer, tri_rewrites *rewrites);
tri_status tri_rewrites_add(tri_tokenizer *tokenizer, tri_rewrites *rewrites, const char *from, size_t from_nbytes,
                            const char *to, size_t to_nbytes);
/* Works out what follows from the rest. */
tri_status tri_tokenizer_finish(tri_tokenizer *tokenizer);

/* A tokenizer.json of the tables. */
tri_status tri_tokenizer_print(const tri_tokenizer *tokenizer, tri_string *out);

/* The rewritten text; `begin`: it is the begin of the whole. *out is one of the two buffers, or `text` itself where
 * nothing changes. */
tri_status tri_rewrites_apply(const tri_rewrites *rewrites, bool begin, bool resume, tri_string buffers[2],
                              const char *text, size_t nbytes, const char **out, size_t *out_nbytes);

/* The next added token from `from` on: its place (with the spaces that it takes) and id. `taken`: where the text is
 * still free. False when there is none. */
typedef struct tri_added_match {
    size_t first, end;
    int32_t id;
    size_t from; /* where to search on */
} tri_added_match;
bool tri_added_find(const tri_added_set *set, const char *text, size_t nbytes, size_t from, size_t taken,
                    tri_added_match *match);
/* Whether an added token ends at `at`. */
bool tri_added_ends(const tri_added_set *set, const char *text, size_t at);
/* Whether an added token begins before `at` and ends after it. */
bool tri_added_reaches(const tri_added_set *set, const char *text, size_t nbytes, size_t at);

#endif
