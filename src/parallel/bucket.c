/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket.c: cuts the flat gradient into buckets from the end, and keeps count of what is ready.
 */
#include "parallel/bucket.h"

#include <stdio.h>

/* Entries first to last (inclusive) with everything up to `end` make one bucket. */
static void bucket_close(tri_buckets *buckets, const tri_params *params, int first, int last, int64_t end)
{
    tri_bucket *bucket = &buckets->items[buckets->count];
    bucket->first = tri_params_grad_first(params, first);
    if (first == 0)
        bucket->first = 0;
    bucket->count = end - bucket->first;
    bucket->entry_count = last - first + 1;
    for (int entry = first; entry <= last; entry++)
        buckets->bucket_of[entry] = buckets->count;
    const char *name = first < params->entry_count       ? params->entries[first].name
                       : first < tri_params_tail(params) ? "ties"
                                                         : "tail";
    snprintf(bucket->name, sizeof(bucket->name), "bucket %d (from %.24s)", buckets->count, name);
    buckets->count++;
}

tri_status tri_buckets_init(tri_buckets *buckets, const tri_params *params, int64_t nbytes_each)
{
    int entries = tri_params_tail(params) + 1; /* the tail is the last one */
    *buckets = (tri_buckets){0};
    buckets->items = tri_alloc_zero((size_t)entries, sizeof(tri_bucket));
    buckets->bucket_of = tri_alloc_zero((size_t)entries, sizeof(int));
    if (!buckets->items || !buckets->bucket_of) {
        tri_buckets_fini(buckets);
        return TRI_ENOMEM;
    }
    int64_t end = tri_params_grad_count(params) + TRI_PARAMS_TAIL;
    int last = entries - 1;
    for (int entry = last; entry >= 0; entry--) {
        int64_t first = tri_params_grad_first(params, entry);
        if ((end - first) * (int64_t)sizeof(float) >= nbytes_each || entry == 0) {
            bucket_close(buckets, params, entry, last, end);
            end = first;
            last = entry - 1;
        }
    }
    return TRI_OK;
}

void tri_buckets_fini(tri_buckets *buckets)
{
    tri_free(buckets->items);
    tri_free(buckets->bucket_of);
    *buckets = (tri_buckets){0};
}

void tri_buckets_begin(tri_buckets *buckets)
{
    for (int i = 0; i < buckets->count; i++)
        buckets->items[i].missing = buckets->items[i].entry_count;
    buckets->released = 0;
}

void tri_bucket_ready(tri_buckets *buckets, int entry)
{
    tri_bucket *bucket = &buckets->items[buckets->bucket_of[entry]];
    TRI_ASSERT(bucket->missing > 0);
    bucket->missing--;
}

tri_bucket *tri_buckets_release(tri_buckets *buckets)
{
    if (buckets->released == buckets->count || buckets->items[buckets->released].missing > 0)
        return NULL;
    return &buckets->items[buckets->released++];
}
