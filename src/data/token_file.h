/* SPDX-License-Identifier: Apache-2.0
 *
 * token_file.h: a file of tokens, one after the other, 16 or 32 bits each: our own, llm.c's and nanoGPT's .bin.
 *
 * docs/formats/data.md has the layouts. Tokens are read where they are; whether each is below the vocabulary's size
 * is checked by who reads them.
 */
#ifndef TRI_DATA_TOKEN_FILE_H
#define TRI_DATA_TOKEN_FILE_H

#include "data/stream.h"

#define TRI_TOKEN_MAGIC       "TRITOKEN"
#define TRI_TOKEN_VERSION     1u
#define TRI_TOKEN_HEAD_NBYTES 64
#define TRI_TOKEN_LIMIT       (INT64_C(1) << 31) /* of a vocabulary */

typedef struct tri_token_file {
    tri_source source;
    const unsigned char *tokens; /* little endian */
    int each;                    /* bytes of a token, 2 or 4 */
    int64_t count;
    int64_t vocabulary; /* 0: the file does not say */
    int64_t end;        /* end of a text, -1: none or unknown */
} tri_token_file;

/* Takes over the source (also on failure). `bare`: what has no known head is nanoGPT's, tokens of 16 bits alone. */
tri_status tri_token_file_parse(tri_source *source, bool bare, tri_token_file *file);
void tri_token_file_close(tri_token_file *file);
/* Our head for that many tokens. */
void tri_token_head_write(unsigned char head[TRI_TOKEN_HEAD_NBYTES], int each, int64_t count, int64_t vocabulary,
                          int64_t end);

static inline uint32_t tri_token_at(const tri_token_file *file, int64_t index)
{
    const unsigned char *at = file->tokens + (size_t)index * (size_t)file->each;
    const uint32_t low = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    return file->each == 2 ? low : low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
/* The greatest token of the file, -1: it has none. */
int64_t tri_token_greatest(const tri_token_file *file);

#endif
