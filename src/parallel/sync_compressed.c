/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_compressed.c: data parallel whose gradients cross between hosts compressed.
 *
 * The ranks of a host add theirs up in its memory; its first rank, the leader, sums with the other leaders bucket by
 * bucket (compress.h), and gives its host the result. Vectors, running statistics and the tail are packed together and
 * added exactly by all ranks. First legs leave while the backward pass continues, where a host has one rank; second
 * legs follow in the order of the buckets, the same on all ranks.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "comm/comm.h"
#include "kernel/kernel.h"
#include "parallel/bucket.h"
#include "parallel/compress_impl.h"
#include "parallel/sync_impl.h"

typedef struct sync_compressed {
    tri_sync base;
    tri_group *group;
    tri_group *host, *leaders; /* host NULL: every rank is a leader, and leaders is group; leaders NULL: it is none */
    const tri_params *params;
    int part_count, threads;
    bool overlap;
    int64_t after; /* steps in which leaders sum exactly */
    tri_buckets buckets;
    tri_compress **sums; /* [buckets.count], of leaders; NULL: a bucket without matrices */
    tri_work **works;    /* [buckets.count]: within the host, or of an exact sum of leaders */
    tri_compress_span *exacts;
    int *exact_first;    /* [buckets.count + 1]: of the spans of a bucket */
    float **exact_slice; /* [buckets.count + 1]: where their elements are packed */
    tri_work *exact_work;
    tri_status status; /* first failure of a release in this step */
    char message[TRI_ERROR_NBYTES];
} sync_compressed;

static void compressed_destroy(tri_sync *sync)
{
    sync_compressed *small = tri_container_of(sync, sync_compressed, base);
    for (int b = 0; b < small->buckets.count; b++) {
        if (small->works && small->works[b])
            (void)tri_work_wait(small->works[b]);
        if (small->sums)
            tri_compress_destroy(small->sums[b]);
    }
    if (small->exact_work)
        (void)tri_work_wait(small->exact_work);
    for (int p = 0; small->base.grads && p < small->part_count; p++) {
        if (p == 0)
            tri_group_free(small->host ? small->host : small->group, small->base.grads[0]);
        else
            tri_free(small->base.grads[p]);
    }
    tri_free(small->base.grads);
    tri_free(small->sums);
    tri_free(small->works);
    tri_free(small->exacts);
    tri_free(small->exact_first);
    if (small->exact_slice)
        tri_free(small->exact_slice[0]);
    tri_free(small->exact_slice);
    tri_buckets_fini(&small->buckets);
    if (small->leaders != small->group)
        tri_group_destroy(small->leaders);
    tri_group_destroy(small->host);
    tri_free(small);
}

/* Who sums with whom: the same decision on all ranks. */
static tri_status find_leaders(sync_compressed *small, const tri_parallel_config *config)
{
    int rank = tri_group_rank(small->group);
    bool shared = false;
    for (int r = 0; r < tri_group_count(small->group); r++)
        shared = shared || tri_group_host_first(small->group, r) != r;
    if (!shared || config->compress_between == TRI_COMPRESS_RANKS) {
        small->leaders = small->group;
        return TRI_OK;
    }
    int leader = tri_group_host_first(small->group, rank);
    TRI_TRY(tri_group_split(small->group, leader, rank, &small->host));
    return tri_group_split(small->group, leader == rank ? 0 : -1, rank, &small->leaders);
}

static tri_status allocate(sync_compressed *small)
{
    size_t parts = (size_t)small->part_count, entries = (size_t)tri_params_tail(small->params) + 1;
    size_t nbytes = (size_t)(tri_params_grad_count(small->params) + TRI_PARAMS_TAIL) * sizeof(float);
    small->works = tri_alloc_zero((size_t)small->buckets.count, sizeof(tri_work *));
    small->sums = tri_alloc_zero((size_t)small->buckets.count, sizeof(tri_compress *));
    small->exacts = tri_alloc_zero(entries, sizeof(tri_compress_span));
    small->exact_first = tri_alloc_zero((size_t)small->buckets.count + 1, sizeof(int));
    small->exact_slice = tri_alloc_zero((size_t)small->buckets.count + 1, sizeof(float *));
    small->base.grads = tri_alloc_zero(parts, sizeof(float *));
    if (!small->exact_first || !small->exact_slice || !small->works || !small->sums || !small->exacts ||
        !small->base.grads)
        return TRI_ENOMEM;
    void *first;
    TRI_TRY(tri_group_alloc(small->host ? small->host : small->group, nbytes, &first));
    small->base.grads[0] = first;
    small->base.whole = true;
    small->base.tail = small->base.grads[0] + tri_params_grad_count(small->params);
    for (size_t p = 1; p < parts; p++)
        if (!(small->base.grads[p] = tri_alloc_bulk(nbytes)))
            return TRI_ENOMEM;
    return TRI_OK;
}

/* The entries of a bucket: bucket_of rises from the end of the store to its beginning. */
static void bucket_entries(const tri_buckets *buckets, int entries, int bucket, int *first, int *end)
{
    *first = 0;
    *end = entries;
    while (*first < entries && buckets->bucket_of[*first] != bucket)
        ++*first;
    while (*end > *first && buckets->bucket_of[*end - 1] != bucket)
        --*end;
}

/* One array, a slice for each bucket. */
static tri_status allocate_exact(sync_compressed *small)
{
    int64_t count = tri_compress_count(small->exacts, small->exact_first[small->buckets.count]);
    small->exact_slice[0] = tri_alloc_zero((size_t)count, sizeof(float));
    if (!small->exact_slice[0])
        return TRI_ENOMEM;
    for (int b = 0; b < small->buckets.count; b++) {
        int first = small->exact_first[b], spans = small->exact_first[b + 1] - first;
        small->exact_slice[b + 1] = small->exact_slice[b] + tri_compress_count(small->exacts + first, spans);
    }
    return TRI_OK;
}

/* What of each bucket is rounded, and what of it is not. */
static tri_status plan_sums(sync_compressed *small, const tri_sync_setup *setup)
{
    int entries = tri_params_tail(small->params) + 1;
    tri_compress_span *spans = tri_alloc_zero((size_t)entries, sizeof(*spans));
    tri_status status = spans ? TRI_OK : TRI_ENOMEM;
    for (int b = 0; b < small->buckets.count && status == TRI_OK; b++) {
        int first, end;
        bucket_entries(&small->buckets, entries, b, &first, &end);
        small->exact_first[b + 1] =
            small->exact_first[b] +
            tri_compress_spans(setup->config, small->params, first, end, true, small->exacts + small->exact_first[b]);
        tri_compress_setup of_bucket = {.config = setup->config,
                                        .group = small->leaders,
                                        .name = small->buckets.items[b].name,
                                        .spans = spans,
                                        .threads = setup->threads,
                                        .undoes = setup->undoes};
        of_bucket.span_count = tri_compress_spans(setup->config, small->params, first, end, false, spans);
        if (of_bucket.span_count > 0 && small->leaders)
            status = tri_compress_find(setup->config)->create(&of_bucket, &small->sums[b]);
    }
    tri_free(spans);
    return status == TRI_OK ? allocate_exact(small) : status;
}

tri_status tri_sync_compressed_nbytes(const tri_sync_setup *setup, int ranks, size_t *nbytes)
{
    const tri_parallel_config *config = setup->config;
    const tri_params *params = setup->params;
    int entries = tri_params_tail(params) + 1;
    tri_buckets buckets;
    tri_compress_setup of_bucket = {.config = config, .undoes = setup->undoes};
    tri_status status = tri_buckets_init(&buckets, params, tri_bucket_nbytes(config));
    *nbytes = 0;
    for (int b = 0; b < buckets.count && status == TRI_OK; b++) {
        int first, end;
        size_t each;
        bucket_entries(&buckets, entries, b, &first, &end);
        status = tri_compress_memory(&of_bucket, params, first, end, ranks, &each);
        *nbytes += status == TRI_OK ? each : 0;
    }
    tri_buckets_fini(&buckets);
    return status;
}

static tri_status compressed_create(const tri_sync_setup *setup, tri_sync **out)
{
    sync_compressed *small = tri_alloc_zero(1, sizeof(*small));
    if (!small)
        return TRI_ENOMEM;
    small->base.ops = &tri_sync_compressed;
    small->group = setup->group;
    small->params = setup->params;
    small->part_count = setup->part_count;
    small->threads = setup->threads;
    small->overlap = setup->config->overlap;
    small->after = setup->config->compress_after;
    tri_status status = tri_buckets_init(&small->buckets, setup->params, tri_bucket_nbytes(setup->config));
    if (status == TRI_OK)
        status = find_leaders(small, setup->config);
    if (status == TRI_OK)
        status = allocate(small);
    if (status == TRI_OK)
        status = plan_sums(small, setup);
    if (status != TRI_OK) {
        compressed_destroy(&small->base);
        return status;
    }
    *out = &small->base;
    return TRI_OK;
}

static tri_status compressed_begin(tri_sync *sync)
{
    sync_compressed *small = tri_container_of(sync, sync_compressed, base);
    tri_buckets_begin(&small->buckets);
    small->status = TRI_OK;
    return TRI_OK;
}

/* What of a bucket is added exactly waits for that of the others; then all ranks add it up. */
static tri_status pack_exact(sync_compressed *small, int bucket)
{
    int first = small->exact_first[bucket], last = small->buckets.count;
    float *packed = small->exact_slice[bucket];
    memset(packed, 0, (size_t)(small->exact_slice[bucket + 1] - packed) * sizeof(float));
    tri_spans_add(small->exacts + first, small->exact_first[bucket + 1] - first, small->base.grads[0], packed);
    if (bucket < last - 1)
        return TRI_OK;
    packed = small->exact_slice[0];
    tri_group_name_next(small->group, "vectors and tail");
    return tri_all_reduce(small->group, packed, packed, small->exact_slice[last] - packed, TRI_F32, TRI_REDUCE_SUM,
                          &small->exact_work);
}

/* The leaders' sum of a bucket begins. */
static tri_status lead(sync_compressed *small, int index)
{
    const tri_bucket *bucket = &small->buckets.items[index];
    float *grads = small->base.grads[0], *values = grads + bucket->first;
    if (!small->sums[index])
        return TRI_OK;
    if (small->base.step >= small->after)
        return small->sums[index]->ops->send(small->sums[index], grads);
    tri_group_name_next(small->leaders, bucket->name);
    return tri_all_reduce(small->leaders, values, values, bucket->count, TRI_F32, TRI_REDUCE_SUM, &small->works[index]);
}

/* A bucket is full: its parts become one, which leaves. */
static tri_status send_bucket(sync_compressed *small, const tri_bucket *bucket)
{
    int index = (int)(bucket - small->buckets.items);
    float *sum = small->base.grads[0] + bucket->first;
    for (int p = 1; p < small->part_count; p++)
        tri_vector_add(small->threads, sum, sum, small->base.grads[p] + bucket->first, bucket->count);
    TRI_TRY(pack_exact(small, index)); /* before the host's sum overwrites it */
    if (!small->host)
        return lead(small, index);
    tri_group_name_next(small->host, bucket->name);
    return tri_all_reduce(small->host, sum, sum, bucket->count, TRI_F32, TRI_REDUCE_SUM, &small->works[index]);
}

static void release(sync_compressed *small)
{
    tri_bucket *bucket;
    while (small->status == TRI_OK && (bucket = tri_buckets_release(&small->buckets))) {
        small->status = send_bucket(small, bucket);
        if (small->status != TRI_OK)
            snprintf(small->message, sizeof(small->message), "%s", tri_last_error());
    }
}

static void compressed_ready(tri_sync *sync, int entry)
{
    sync_compressed *small = tri_container_of(sync, sync_compressed, base);
    tri_bucket_ready(&small->buckets, entry);
    if (small->overlap)
        release(small);
}

static tri_status wait_bucket(sync_compressed *small, int bucket)
{
    tri_work *work = small->works[bucket];
    small->works[bucket] = NULL;
    return work ? tri_work_wait(work) : TRI_OK;
}

static tri_status finish_leaders(sync_compressed *small)
{
    float *grads = small->base.grads[0];
    for (int b = 0; small->host && b < small->buckets.count; b++) {
        TRI_TRY(wait_bucket(small, b));
        TRI_TRY(lead(small, b));
    }
    for (int b = 0; small->base.step < small->after && b < small->buckets.count; b++)
        TRI_TRY(wait_bucket(small, b));
    for (int b = 0; small->base.step >= small->after && b < small->buckets.count; b++)
        if (small->sums[b])
            TRI_TRY(small->sums[b]->ops->turn(small->sums[b]));
    for (int b = 0; small->base.step >= small->after && b < small->buckets.count; b++)
        if (small->sums[b] && small->sums[b]->ops->turn_again)
            TRI_TRY(small->sums[b]->ops->turn_again(small->sums[b]));
    for (int b = 0; small->base.step >= small->after && b < small->buckets.count; b++)
        if (small->sums[b])
            TRI_TRY(small->sums[b]->ops->take(small->sums[b], grads));
    return TRI_OK;
}

/* The leader's sums to its host. */
static tri_status finish_host(sync_compressed *small)
{
    for (int b = 0; b < small->buckets.count; b++) {
        const tri_bucket *bucket = &small->buckets.items[b];
        TRI_TRY(wait_bucket(small, b));
        tri_group_name_next(small->host, bucket->name);
        TRI_TRY(tri_broadcast(small->host, small->base.grads[0] + bucket->first, bucket->count, TRI_F32, 0,
                              &small->works[b]));
    }
    for (int b = 0; b < small->buckets.count; b++)
        TRI_TRY(wait_bucket(small, b));
    return TRI_OK;
}

static tri_status finish_sums(sync_compressed *small)
{
    release(small);
    if (small->status != TRI_OK)
        return tri_fail_copy(small->status, small->message);
    if (small->leaders)
        TRI_TRY(finish_leaders(small));
    if (small->host)
        TRI_TRY(finish_host(small));
    tri_work *work = small->exact_work;
    small->exact_work = NULL;
    TRI_TRY(tri_work_wait(work));
    tri_spans_put(small->exacts, small->exact_first[small->buckets.count], small->exact_slice[0], small->base.grads[0]);
    return TRI_OK;
}

static tri_status compressed_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_compressed *small = tri_container_of(sync, sync_compressed, base);
    int64_t start_ns = tri_now_ns();
    tri_status status = finish_sums(small);
    *slice = (tri_sync_slice){0, small->params->count};
    small->base.exposed_ns = tri_now_ns() - start_ns;
    return status;
}

static void compressed_undo(tri_sync *sync)
{
    sync_compressed *small = tri_container_of(sync, sync_compressed, base);
    for (int b = 0; small->base.step >= small->after && b < small->buckets.count; b++)
        if (small->sums[b])
            small->sums[b]->ops->undo(small->sums[b]);
}

const tri_sync_ops tri_sync_compressed = {
    .name = "compressed",
    .does = "every rank has all weights and all gradients, which cross between hosts compressed",
    .create = compressed_create,
    .begin = compressed_begin,
    .ready = compressed_ready,
    .finish = compressed_finish,
    .undo = compressed_undo,
    .destroy = compressed_destroy,
};
