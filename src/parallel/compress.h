/* SPDX-License-Identifier: Apache-2.0
 *
 * compress.h: sums over ranks whose elements cross the wire in fewer bytes: one table, one row a way to save them.
 *
 * A sum takes two legs, so that no rank sends more than twice what it has however many there are: send begins the
 * first, turn ends it and begins the second, take ends that. A row may have a third, between turn_again and take. A
 * leg is one queued call, or a few, in the same order on all ranks, and all ranks have the same result. What the first
 * leg loses stays with its rank and is added to its next sum (error feedback), where the row says so. The result
 * depends on the number of ranks, and for that number on nothing else.
 */
#ifndef TRI_PARALLEL_COMPRESS_H
#define TRI_PARALLEL_COMPRESS_H

#include "parallel/sync.h"

/* Elements that are sent together, seen as a matrix. */
typedef struct tri_compress_span {
    int64_t first, count; /* elements of the array of values */
    int64_t rows, columns;
} tri_compress_span;

typedef struct tri_compress_setup {
    const tri_parallel_config *config; /* borrowed, like the group */
    tri_group *group;
    const char *name; /* what messages call it; copied */
    const tri_compress_span *spans;
    int span_count;
    int threads;
    bool forgets; /* what is lost is lost: nothing is kept from one sum to the next */
    bool undoes;  /* undo may be called: what is kept is held twice */
} tri_compress_setup;

typedef struct tri_compress tri_compress;

typedef struct tri_compress_ops {
    const char *name;
    const char *does;
    bool keeps; /* what a sum loses is kept for the next one, unless setup->forgets */
    /* Is the span smaller so? Those that are not are not given to it. NULL: all are. */
    bool (*takes)(const tri_parallel_config *config, const tri_compress_span *span);
    tri_status (*create)(const tri_compress_setup *setup, tri_compress **out);
    /* Bytes that a sum takes for as long as it is there, on the rank that takes most; of the setup no group is read. */
    size_t (*nbytes)(const tri_compress_setup *setup, int ranks);
    /* Begins the sum of the spans of `values`, which is read before it returns. */
    tri_status (*send)(tri_compress *compress, const float *values);
    tri_status (*turn)(tri_compress *compress);
    tri_status (*turn_again)(tri_compress *compress); /* NULL: two legs are all */
    /* The spans of `values` are the sum. */
    tri_status (*take)(tri_compress *compress, float *values);
    /* The sum that was taken last counts for nothing: what is kept is what it was before that. On all ranks, once;
     * with setup->undoes. */
    void (*undo)(tri_compress *compress);
    /* Waits for what is under way. */
    void (*destroy)(tri_compress *compress);
} tri_compress_ops;

/* First member of each implementation's struct. */
struct tri_compress {
    const tri_compress_ops *ops;
};

/* All rows, NULL at the end. */
extern const tri_compress_ops *const tri_compress_table[];
/* The row of parallel.compress, or NULL. */
const tri_compress_ops *tri_compress_find(const tri_parallel_config *config);
/* Are sums of these ranks compressed? */
bool tri_compress_is_used(const tri_parallel_config *config, int ranks, bool between_hosts);

/* The spans of entries [first, end) as gradients are numbered (tri_params_tail): `out` is given those that the row
 * takes, or (exact) all others that carry something: vectors, running statistics, the tail. Returns how many, at most
 * end - first. */
int tri_compress_spans(const tri_parallel_config *config, const tri_params *params, int first, int end, bool exact,
                       tri_compress_span *out);
/* Bytes of the sum of entries [first, end), with the packed copy of what is exact. */
tri_status tri_compress_memory(const tri_compress_setup *setup, const tri_params *params, int first, int end, int ranks,
                               size_t *nbytes);
/* Bytes of an element of a large matrix; 0: nothing is compressed. */
double tri_compress_value_nbytes(const tri_parallel_config *config, bool undoes);
int64_t tri_compress_count(const tri_compress_span *spans, int span_count);

void tri_compress_destroy(tri_compress *compress);

#endif
