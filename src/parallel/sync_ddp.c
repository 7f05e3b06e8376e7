/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_ddp.c: data parallel: every rank has all weights, and each bucket of the gradient is all-reduced as soon as the
 * backward pass has filled it.
 *
 * The sum is the canonical one over shards (docs/bits.md), so its bits do not depend on the number of ranks. A rank
 * alone with one part has the sum already: nothing is sent. Where the next step begins before all sums are there, the
 * buckets that it needs first go first.
 */
#include <stdio.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "parallel/bucket.h"
#include "parallel/sync_impl.h"

typedef struct sync_ddp {
    tri_sync base;
    tri_group *group;
    const tri_params *params;
    int64_t leaves;
    int part_count;
    tri_kept *kept; /* NULL: its arrays go with it */
    bool alone;
    bool overlap;
    tri_buckets buckets;
    tri_work **works;   /* [buckets.count], NULL once waited for */
    float **part_slice; /* [buckets.count][part_count]: where each part of each bucket begins */
    tri_status status;  /* first failure of a release in this step */
    char message[TRI_ERROR_NBYTES];
} sync_ddp;

static void ddp_destroy(tri_sync *sync)
{
    sync_ddp *ddp = tri_container_of(sync, sync_ddp, base);
    for (int i = 0; ddp->works && i < ddp->buckets.count; i++)
        if (ddp->works[i])
            (void)tri_work_wait(ddp->works[i]);
    tri_free(ddp->works);
    tri_free(ddp->part_slice);
    tri_buckets_fini(&ddp->buckets);
    tri_sync_arrays_free(ddp->group, ddp->params, ddp->part_count, ddp->kept, ddp->base.grads);
    tri_free(ddp);
}

static tri_status ddp_allocate(sync_ddp *ddp)
{
    size_t parts = (size_t)ddp->part_count, count = (size_t)ddp->buckets.count;
    ddp->works = tri_alloc_zero(count, sizeof(tri_work *));
    ddp->part_slice = tri_alloc_zero(count * parts, sizeof(float *));
    if (!ddp->works || !ddp->part_slice)
        return TRI_ENOMEM;
    TRI_TRY(tri_sync_arrays_alloc(ddp->group, ddp->params, ddp->part_count, ddp->kept, &ddp->base.grads));
    ddp->base.whole = true;
    ddp->base.tail = ddp->base.grads[0] + tri_params_grad_count(ddp->params);
    for (size_t p = 0; p < parts; p++) {
        for (size_t b = 0; b < count; b++)
            ddp->part_slice[b * parts + p] = ddp->base.grads[p] + ddp->buckets.items[b].first;
    }
    return TRI_OK;
}

/* What begins the next step early needs something that is late: the sums of many buckets, on a slow way. */
static bool goes_ahead(const sync_ddp *ddp, const tri_sync_setup *setup)
{
    enum { FEW_BUCKETS = 2 };
    bool wanted =
        setup->config->ahead == TRI_AHEAD_ON || (setup->config->ahead == TRI_AHEAD_AUTO && setup->between_hosts);
    return wanted && ddp->overlap && !ddp->alone && ddp->buckets.count > FEW_BUCKETS;
}

static tri_status ddp_create(const tri_sync_setup *setup, tri_sync **out)
{
    sync_ddp *ddp = tri_alloc_zero(1, sizeof(*ddp));
    if (!ddp)
        return TRI_ENOMEM;
    ddp->base.ops = &tri_sync_ddp;
    ddp->group = setup->group;
    ddp->params = setup->params;
    ddp->kept = setup->kept;
    ddp->leaves = setup->leaves;
    ddp->part_count = setup->part_count;
    ddp->alone = tri_group_count(setup->group) == 1 && setup->part_count == 1;
    ddp->overlap = setup->config->overlap;
    tri_status status = tri_buckets_init(&ddp->buckets, setup->params, tri_bucket_nbytes(setup->config));
    if (status == TRI_OK)
        status = ddp_allocate(ddp);
    if (status != TRI_OK) {
        ddp_destroy(&ddp->base);
        return status;
    }
    ddp->base.ahead = goes_ahead(ddp, setup);
    *out = &ddp->base;
    return TRI_OK;
}

static tri_status ddp_begin(tri_sync *sync)
{
    sync_ddp *ddp = tri_container_of(sync, sync_ddp, base);
    tri_buckets_begin(&ddp->buckets);
    ddp->status = TRI_OK;
    return TRI_OK;
}

/* The first one has the tail, which says whether the step is one; the others are needed from the last to the second,
 * as the forward pass goes. */
static unsigned bucket_priority(const sync_ddp *ddp, int index)
{
    if (!ddp->base.ahead)
        return 0;
    return index == 0 ? 1 : 1 + (unsigned)(ddp->buckets.count - index);
}

/* Queues every bucket that is full. */
static void ddp_release(sync_ddp *ddp)
{
    tri_bucket *bucket;
    while (ddp->status == TRI_OK && (bucket = tri_buckets_release(&ddp->buckets))) {
        if (ddp->alone)
            continue;
        int index = (int)(bucket - ddp->buckets.items);
        tri_group_name_next(ddp->group, bucket->name);
        tri_group_priority_next(ddp->group, bucket_priority(ddp, index));
        ddp->status = tri_all_reduce_tree(ddp->group, ddp->leaves, ddp->part_slice + index * ddp->part_count,
                                          ddp->part_count, bucket->count, &ddp->works[index]);
        tri_group_priority_next(ddp->group, 0);
        if (ddp->status != TRI_OK)
            snprintf(ddp->message, sizeof(ddp->message), "%s", tri_last_error());
    }
}

static void ddp_ready(tri_sync *sync, int entry)
{
    sync_ddp *ddp = tri_container_of(sync, sync_ddp, base);
    tri_bucket_ready(&ddp->buckets, entry);
    if (ddp->overlap)
        ddp_release(ddp);
}

static tri_status ddp_wait(tri_sync *sync, int entry, tri_sync_slice *slice)
{
    sync_ddp *ddp = tri_container_of(sync, sync_ddp, base);
    int index = ddp->buckets.bucket_of[entry];
    *slice = (tri_sync_slice){0, 0};
    if (index < 0) /* frozen */
        return TRI_OK;
    const tri_bucket *bucket = &ddp->buckets.items[index];
    ddp_release(ddp);
    if (ddp->status != TRI_OK)
        return tri_fail_copy(ddp->status, ddp->message);
    if (!ddp->works[index])
        return TRI_OK;
    tri_status status = tri_work_wait(ddp->works[index]);
    ddp->works[index] = NULL;
    *slice = (tri_sync_slice){bucket->first, bucket->count - (index == 0 ? TRI_PARAMS_TAIL : 0)};
    return status;
}

static tri_status ddp_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_ddp *ddp = tri_container_of(sync, sync_ddp, base);
    int64_t start_ns = tri_now_ns();
    ddp_release(ddp);
    tri_status status = ddp->status;
    if (status != TRI_OK)
        (void)tri_fail_copy(status, ddp->message);
    for (int i = 0; i < ddp->buckets.count; i++) {
        if (!ddp->works[i])
            continue;
        tri_status ended = tri_work_wait(ddp->works[i]);
        ddp->works[i] = NULL;
        if (status == TRI_OK)
            status = ended; /* the first failure's message counts: later ones repeat it */
    }
    *slice = (tri_sync_slice){0, ddp->params->count};
    ddp->base.exposed_ns = tri_now_ns() - start_ns;
    return status;
}

const tri_sync_ops tri_sync_ddp = {
    .name = "allreduce",
    .does = "every rank has all weights and all gradients",
    .create = ddp_create,
    .begin = ddp_begin,
    .ready = ddp_ready,
    .finish = ddp_finish,
    .wait = ddp_wait,
    .destroy = ddp_destroy,
};
