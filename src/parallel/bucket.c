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

static bool is_frozen(const tri_params *params, int number)
{
    if (number >= params->entry_count && number < tri_params_tail(params))
        number = params->ties[number - params->entry_count].entry;
    return number < params->entry_count && params->entries[number].frozen;
}

/* Made by another rank of the pipeline. */
static bool is_away(const tri_params *params, int number)
{
    if (number < params->entry_count)
        return params->entries[number].away;
    return number < tri_params_tail(params) && params->ties[number - params->entry_count].away;
}

/* Gradients from `number` downwards that do not travel: those made elsewhere, and frozen ones if they would fill a
 * bucket; or 0. */
static int resting_run(const tri_params *params, int number, int64_t nbytes_each)
{
    int run = 0;
    while (number >= run && is_away(params, number - run))
        run++;
    if (run > 0)
        return run;
    while (number >= run && is_frozen(params, number - run))
        run++;
    if (run == 0)
        return 0;
    int64_t count = tri_params_grad_first(params, number + 1) - tri_params_grad_first(params, number - run + 1);
    return count * (int64_t)sizeof(float) >= nbytes_each ? run : 0;
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
        int resting = resting_run(params, entry, nbytes_each);
        if (resting > 0) {
            if (entry < last)
                bucket_close(buckets, params, entry + 1, last, end);
            for (int i = 0; i < resting; i++)
                buckets->bucket_of[entry - i] = -1;
            entry -= resting - 1;
            end = tri_params_grad_first(params, entry);
            last = entry - 1;
            continue;
        }
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
    if (buckets->bucket_of[entry] < 0)
        return;
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
