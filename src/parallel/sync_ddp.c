/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_ddp.c: data parallel: every rank has all weights, and each bucket of the gradient is all-reduced as soon as the
 * backward pass has filled it.
 *
 * The sum is the canonical one over shards (docs/bits.md), so its bits do not depend on the number of ranks. A rank
 * alone with one part has the sum already: nothing is sent.
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
    for (int p = 1; ddp->base.grads && p < ddp->part_count; p++)
        tri_free(ddp->base.grads[p]);
    if (ddp->base.grads)
        tri_group_free(ddp->group, ddp->base.grads[0]);
    tri_free(ddp->base.grads);
    tri_free(ddp);
}

static tri_status ddp_allocate(sync_ddp *ddp)
{
    size_t parts = (size_t)ddp->part_count, count = (size_t)ddp->buckets.count;
    size_t nbytes = (size_t)(tri_params_grad_count(ddp->params) + TRI_PARAMS_TAIL) * sizeof(float);
    ddp->works = tri_alloc_zero(count, sizeof(tri_work *));
    ddp->part_slice = tri_alloc_zero(count * parts, sizeof(float *));
    ddp->base.grads = tri_alloc_zero(parts, sizeof(float *));
    if (!ddp->works || !ddp->part_slice || !ddp->base.grads)
        return TRI_ENOMEM;
    /* The first part is reduced in place by all ranks of a host. */
    void *first;
    TRI_TRY(tri_group_alloc(ddp->group, nbytes, &first));
    ddp->base.grads[0] = first;
    for (size_t p = 0; p < parts; p++) {
        if (p > 0 && !(ddp->base.grads[p] = tri_alloc_bulk(nbytes)))
            return TRI_ENOMEM;
        for (size_t b = 0; b < count; b++)
            ddp->part_slice[b * parts + p] = ddp->base.grads[p] + ddp->buckets.items[b].first;
    }
    return TRI_OK;
}

static tri_status ddp_create(const tri_sync_setup *setup, tri_sync **out)
{
    sync_ddp *ddp = tri_alloc_zero(1, sizeof(*ddp));
    if (!ddp)
        return TRI_ENOMEM;
    ddp->base.ops = &tri_sync_ddp;
    ddp->group = setup->group;
    ddp->params = setup->params;
    ddp->leaves = setup->leaves;
    ddp->part_count = setup->part_count;
    ddp->alone = tri_group_count(setup->group) == 1 && setup->part_count == 1;
    ddp->overlap = setup->config->overlap;
    tri_status status = tri_buckets_init(&ddp->buckets, setup->params, setup->config->bucket_kib * 1024);
    if (status == TRI_OK)
        status = ddp_allocate(ddp);
    if (status != TRI_OK) {
        ddp_destroy(&ddp->base);
        return status;
    }
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

/* Queues every bucket that is full. */
static void ddp_release(sync_ddp *ddp)
{
    tri_bucket *bucket;
    while (ddp->status == TRI_OK && (bucket = tri_buckets_release(&ddp->buckets))) {
        if (ddp->alone)
            continue;
        int index = (int)(bucket - ddp->buckets.items);
        tri_group_name_next(ddp->group, bucket->name);
        ddp->status = tri_all_reduce_tree(ddp->group, ddp->leaves, ddp->part_slice + index * ddp->part_count,
                                          ddp->part_count, bucket->count, &ddp->works[index]);
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
            status = ended; /* the first failure's message stands: later ones repeat it */
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
    .destroy = ddp_destroy,
};
