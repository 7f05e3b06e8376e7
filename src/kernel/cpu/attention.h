/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: what the two passes of attention share: blocks of queries and keys, and their softmax.
 */
#ifndef TRI_KERNEL_CPU_ATTENTION_H
#define TRI_KERNEL_CPU_ATTENTION_H

#include "kernel/cpu/gemm.h"

#define TRI_ATTENTION_QUERIES 36  /* of a block: whole register tiles of rows */
#define TRI_ATTENTION_KEYS    288 /* of a block: whole register tiles of rows and of columns in every instruction set */

/* One call: sizes and where the scratch of a thread is. */
typedef struct tri_attention_run {
    const tri_gemm_ops *ops;
    const tri_kernel *kernel;
    const tri_op_call *call;
    tri_heads h;
    tri_attention_drop drop;
    float scale;    /* of scores: 1 / sqrt(D) */
    int64_t each;   /* elements of scratch of one thread */
    int64_t keys;   /* packed keys, at 0, are followed by: */
    int64_t values; /* packed values */
    int64_t block;  /* a block of scores, two of them backward */
    int64_t sums;   /* backward: gradients of keys, then of values, in register tiles */
    int64_t sums_count;
    int64_t rows;   /* backward: a block of queries, then of dy, padded to whole panels */
    int64_t padded; /* D rounded up to whole panels */
} tri_attention_run;

void tri_attention_make(const tri_op_desc *desc, tri_attention_run *a);
/* Packs the first `count` keys of a head for products over D: columns are places. */
void tri_attention_pack_places(const tri_attention_run *a, const float *from, int64_t count, float *packed);
/* The same for products over places: columns are elements of a head; panels are [count][nr]. */
void tri_attention_pack_elements(const tri_attention_run *a, const float *from, int64_t count, float *packed);
/* Asks for places [first, last) of the heads that come after those of `key`: of a row they are a few lines. */
void tri_attention_ahead(const tri_heads *h, const void *sample, size_t element_nbytes, int64_t key, int64_t first,
                         int64_t last);
/* s[rows][count] = from[rows][D] times the packed places [first, first + count), as far as rows see them. */
void tri_attention_scores(const tri_attention_run *a, const float *from, int64_t stride, int64_t query, int64_t rows,
                          const float *packed, int64_t first, int64_t count, float *s);
/* to[rows][D] (+)= s[rows][count] times the packed elements of places [first, first + count) of `all`. Row r sees the
 * places up to query + r: the zeros behind are left out where whole register tiles have them. */
void tri_attention_mix(const tri_attention_run *a, const float *s, int64_t query, int64_t rows, const float *packed,
                       int64_t all, int64_t first, int64_t count, float *to, int64_t stride);

/* A block of queries of one head: forward. */
typedef struct tri_attention_queries {
    const float *q;             /* rows a->h.stride apart */
    int64_t first, count;       /* place of the first, and how many: at most TRI_ATTENTION_QUERIES */
    int64_t sample, head;       /* of dropout */
    const float *keys, *values; /* packed */
    int64_t places;             /* that the packed values have room for */
    float *scores;              /* room for a block */
    float *y;                   /* rows H D apart */
    float *saved;               /* logarithms of the sums, H apart; NULL: not wanted */
} tri_attention_queries;
void tri_attention_block(const tri_attention_run *a, const tri_attention_queries *b);

void tri_attention_backward(const tri_kernel *kernel, const tri_op_call *call);

#endif
