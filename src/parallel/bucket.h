/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket.h: which gradients travel together: slices of the flat gradient from its end to its start, the order in which
 * the backward pass completes them.
 *
 * Runs of frozen entries that would fill a bucket do not travel; shorter ones are within a bucket, as zeros. Gradients
 * that another rank of a pipeline makes never travel.
 *
 * A bucket is full when all its entries are ready; buckets are released strictly in their order, the same on every
 * rank.
 */
#ifndef TRI_PARALLEL_BUCKET_H
#define TRI_PARALLEL_BUCKET_H

#include "nn/params.h"

typedef struct tri_bucket {
    int64_t first, count; /* elements of the flat gradient; the first bucket holds the tail */
    int entry_count;      /* entries in it, the tail counted as one */
    int missing;          /* entries not ready in this step */
    char name[48];        /* "bucket 0 of 3 (fc3.bias ...)": what messages call it */
} tri_bucket;

typedef struct tri_buckets {
    tri_bucket *items;
    int count;
    int *bucket_of; /* [tri_params_tail() + 1]: number of a gradient -> bucket, -1: it does not travel */
    int released;   /* buckets released in this step */
} tri_buckets;

tri_status tri_buckets_init(tri_buckets *buckets, const tri_params *params, int64_t nbytes_each);
void tri_buckets_fini(tri_buckets *buckets);
void tri_buckets_begin(tri_buckets *buckets);
/* Marks an entry as ready. */
void tri_bucket_ready(tri_buckets *buckets, int entry);
/* The next bucket to release, or NULL when it is not full. */
tri_bucket *tri_buckets_release(tri_buckets *buckets);

#endif
