/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.h: text to numbers and back: bytes, characters, byte pair encoding as GPT-2 and Llama use it.
 *
 * A tokenizer is read once and never written again: threads share it, each with an encoder of its own, which holds what
 * encoding needs to remember. Text is bytes; what is no UTF-8 is kept byte by byte where the vocabulary has bytes, and
 * is an error elsewhere. docs/formats/data.md has the forms that are understood.
 */
#ifndef TRI_TEXT_TOKENIZER_H
#define TRI_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers.h"

typedef struct tri_tokenizer tri_tokenizer;

/* One row per kind. */
typedef struct tri_tokenizer_ops {
    const char *name; /* byte, char, gpt2, hf */
    const char *does;
    bool (*can)(const char *path); /* looks at names only */
    tri_status (*open)(const char *path, tri_tokenizer **out);
} tri_tokenizer_ops;

/* `name`: "byte"; or the path of tokenizer.json, of encoder.json or vocab.json (with vocab.bpe or merges.txt beside),
 * or of a folder with such files. "char" is TRI_ECONFIG: its vocabulary comes from a text (tri_tokenizer_chars). */
tri_status tri_tokenizer_open(const char *name, tri_tokenizer **out);
/* A tokenizer.json in memory; origin is for messages. */
tri_status tri_tokenizer_parse(const char *json, size_t nbytes, const char *origin, tri_tokenizer **out);
/* The characters of the given texts (UTF-8, else TRI_EFORMAT with the place), ascending; with `ends` also an
 * end-of-text token. */
tri_status tri_tokenizer_chars(const void *const *texts, const size_t *nbytes, int count, bool ends,
                               tri_tokenizer **out);
/* NULL does nothing. */
void tri_tokenizer_close(tri_tokenizer *tokenizer);
/* Writes a tokenizer.json that opens to the same tokenizer, here and in Hugging Face's library; all or nothing. Files
 * beside it that state its ends are written too. */
tri_status tri_tokenizer_save(const tri_tokenizer *tokenizer, const char *path);

const char *tri_tokenizer_kind(const tri_tokenizer *tokenizer);
/* One more than the greatest id. */
int64_t tri_tokenizer_count(const tri_tokenizer *tokenizer);
/* Whether each id is the same token in both. */
bool tri_tokenizer_same(const tri_tokenizer *left, const tri_tokenizer *right);
/* The token that separates documents: the first one that the files beside the tokenizer state as an end of a text
 * (ends.c); where they state none, <|endoftext|>, <|end_of_text|>, </s> or <eos>, the first that is there; -1: none. */
int32_t tri_tokenizer_end(const tri_tokenizer *tokenizer);
/* Whether the token ends a text; there may be several. */
bool tri_tokenizer_is_end(const tri_tokenizer *tokenizer, int32_t id);
/* Adds the ends that the files of another folder state: those of the model. Before the tokenizer is shared. */
tri_status tri_tokenizer_read_ends(tri_tokenizer *tokenizer, const char *folder);
/* Puts beside a saved tokenizer.json, of the same tokens, what states the same ends. */
tri_status tri_tokenizer_save_ends(const tri_tokenizer *tokenizer, const char *path);
/* The id of a token by its text as the vocabulary writes it; -1: none. */
int32_t tri_tokenizer_find(const tri_tokenizer *tokenizer, const char *text);
/* How the vocabulary writes a token; NULL where the id has none. The tokenizer's. */
const char *tri_tokenizer_token(const tri_tokenizer *tokenizer, int32_t id, size_t *nbytes);
/* Whether it stands for no text, such as the end-of-text token. */
bool tri_tokenizer_is_special(const tri_tokenizer *tokenizer, int32_t id);

typedef struct tri_ids {
    int32_t *items;
    size_t count, capacity;
} tri_ids;
tri_status tri_ids_push(tri_ids *ids, int32_t id);
void tri_ids_fini(tri_ids *ids);

enum {
    TRI_ENCODE_BEGIN = 1, /* with the tokens that belong before a text, such as <s> */
    TRI_ENCODE_END = 2,   /* and behind it */
    TRI_ENCODE_WHOLE = TRI_ENCODE_BEGIN | TRI_ENCODE_END,
    TRI_ENCODE_RESUME = 4 /* the text continues another piece: nothing is put in front of it */
};

typedef struct tri_encoder tri_encoder;
/* For one thread at a time; the tokenizer must outlive it. */
tri_status tri_encoder_create(const tri_tokenizer *tokenizer, tri_encoder **out);
void tri_encoder_destroy(tri_encoder *encoder);
/* Appends the tokens of a text of at most 1 GiB. A character that the vocabulary cannot write is TRI_EFORMAT. */
tri_status tri_encode(tri_encoder *encoder, const void *text, size_t nbytes, unsigned flags, tri_ids *ids);

/* The first place not before `from` where the text may be cut: the tokens of both parts, the second one encoded with
 * TRI_ENCODE_RESUME, are those of the whole. nbytes when there is none. */
size_t tri_tokenizer_cut(const tri_tokenizer *tokenizer, const void *text, size_t nbytes, size_t from);

/* Tokens back to text, as they come: a character that is spread over several tokens leaves with the last of them. A
 * plain value; nothing to free. */
typedef struct tri_decoder {
    const tri_tokenizer *tokenizer;
    bool special;          /* special tokens are written too */
    bool began;            /* a token was written */
    int64_t strip;         /* leading characters still to be taken away */
    unsigned char held[4]; /* the begin of a character */
    int held_count;
} tri_decoder;
tri_decoder tri_decoder_make(const tri_tokenizer *tokenizer, bool special);
/* Appends what is whole. TRI_EINVAL when there is no such token. */
tri_status tri_decoder_push(tri_decoder *decoder, int32_t id, tri_string *out);
/* Appends what was held back, though it is no whole character. */
tri_status tri_decoder_end(tri_decoder *decoder, tri_string *out);
/* All at once. */
tri_status tri_decode(const tri_tokenizer *tokenizer, const int32_t *ids, size_t count, bool special, tri_string *out);

#endif
