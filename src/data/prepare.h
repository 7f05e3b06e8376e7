/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.h: text files to shards of tokens, in parallel; the same bytes for any number of threads.
 *
 * Each file is a document, and each line of a .jsonl file. Documents follow each other in the order given, each with
 * the tokens that the tokenizer puts around a text and with its end-of-text token; the last part of the text is for
 * validation.
 */
#ifndef TRI_DATA_PREPARE_H
#define TRI_DATA_PREPARE_H

#include "data/tokens.h"

typedef struct tri_prepare_counts {
    int64_t nbytes, nbytes_all; /* of text, read so far and to be read */
    int64_t tokens[2];          /* training, validation */
    int shards[2];
    bool separated; /* an end-of-text token is behind each text */
    int64_t vocabulary;
    int each; /* bytes of a token */
} tri_prepare_counts;

typedef struct tri_prepare_setup {
    const char *const *files;
    int file_count;
    const char *tokenizer; /* as for tri_tokenizer_open, or "char" */
    const char *folder;    /* made; holds no shards yet */
    bool as_text;          /* files are tokenized as they are, JSON and UTF-16 too */
    const char *field;     /* of .jsonl files, whose lines are documents: the field of the text; NULL: text */
    double validation;     /* part of the text, 0 to 0.9 */
    int threads;
    int64_t shard_tokens; /* at most in one file */
    /* Called by the caller's thread now and then; may be NULL. False stops with TRI_ECANCELED. */
    bool (*progress)(void *arg, const tri_prepare_counts *counts);
    void *arg;
} tri_prepare_setup;

/* All or nothing: shards appear in the folder when all are written. */
tri_status tri_prepare(const tri_prepare_setup *setup, tri_prepare_counts *counts);

/* --- of prepare_write.c: a row of tokens in files of at most shard_tokens --- */

typedef struct tri_shard_writer {
    const char *folder; /* where they are written */
    const char *name;   /* train or validation */
    int each;
    int64_t shard_tokens, vocabulary, end;
    unsigned char *bytes;    /* head and tokens of the shard that is filled */
    int64_t count, capacity; /* tokens in it */
    int64_t total;
    int shards;
} tri_shard_writer;

tri_status tri_shard_write(tri_shard_writer *writer, const int32_t *ids, size_t count);
/* Writes what is left. */
tri_status tri_shard_flush(tri_shard_writer *writer);

#endif
