/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_zero.c: zero1: gradients meet as with allreduce; each rank keeps the optimizer's state of one slice of the store
 * alone, moves that slice, and the ranks gather what they have moved.
 *
 * An optimizer is elementwise, so a slice has the same bits whoever moves it (docs/design/013-sharded-state.md).
 * Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion parameter models", SC
 * 2020: stage 1.
 */
#include "base/memory.h"
#include "base/runtime.h"
#include "parallel/sync_impl.h"

typedef struct sync_zero {
    tri_sync base;
    tri_sync *sums; /* allreduce: gradients meet as there; its arrays are ours */
    tri_group *group;
    const tri_params *params;
    int rank, ranks;
    int64_t *counts, *firsts; /* [ranks]: what each rank owns */
    tri_device_view weights;  /* as the host sees them */
} sync_zero;

/* Shares of whole lines of the store, as even as they come: they differ by one line at most. */
static tri_sync_slice zero_owned(const tri_params *params, int rank, int ranks)
{
    int64_t lines = (params->count + TRI_PARAMS_ALIGN - 1) / TRI_PARAMS_ALIGN;
    int64_t first = lines * rank / ranks * TRI_PARAMS_ALIGN, end = lines * (rank + 1) / ranks * TRI_PARAMS_ALIGN;
    if (end > params->count)
        end = params->count;
    return (tri_sync_slice){first, end - first};
}

static void zero_destroy(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    tri_sync_destroy(zero->sums);
    tri_device_view_close(&zero->weights);
    tri_free(zero->counts);
    tri_free(zero->firsts);
    tri_free(zero);
}

static tri_status zero_plan(sync_zero *zero, const tri_sync_setup *setup)
{
    const tri_params *params = setup->params;
    zero->counts = tri_alloc_zero((size_t)zero->ranks, sizeof(int64_t));
    zero->firsts = tri_alloc_zero((size_t)zero->ranks, sizeof(int64_t));
    if (!zero->counts || !zero->firsts)
        return TRI_ENOMEM;
    for (int r = 0; r < zero->ranks; r++) {
        tri_sync_slice slice = zero_owned(params, r, zero->ranks);
        zero->firsts[r] = slice.first;
        zero->counts[r] = slice.count;
    }
    TRI_TRY(
        tri_device_view_open(&zero->weights, params->device, params->values, (size_t)params->count * sizeof(float)));
    return tri_sync_ddp.create(setup, &zero->sums);
}

static tri_status zero_create(const tri_sync_setup *setup, tri_sync **out)
{
    sync_zero *zero = tri_alloc_zero(1, sizeof(*zero));
    if (!zero)
        return TRI_ENOMEM;
    zero->base.ops = &tri_sync_zero1;
    zero->group = setup->group;
    zero->params = setup->params;
    zero->rank = tri_group_rank(setup->group);
    zero->ranks = tri_group_count(setup->group);
    tri_status status = zero_plan(zero, setup);
    if (status != TRI_OK) {
        zero_destroy(&zero->base);
        return status;
    }
    zero->base.grads = zero->sums->grads;
    *out = &zero->base;
    return TRI_OK;
}

static tri_status zero_begin(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    return zero->sums->ops->begin(zero->sums);
}

static void zero_ready(tri_sync *sync, int entry)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    zero->sums->ops->ready(zero->sums, entry);
}

static tri_status zero_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    TRI_TRY(zero->sums->ops->finish(zero->sums, slice));
    *slice = (tri_sync_slice){zero->firsts[zero->rank], zero->counts[zero->rank]};
    zero->base.exposed_ns = zero->sums->exposed_ns;
    return TRI_OK;
}

static tri_status zero_publish(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    if (zero->ranks == 1)
        return TRI_OK;
    int64_t start_ns = tri_now_ns();
    float *values = zero->weights.host;
    tri_blocks blocks = {zero->counts, zero->firsts};
    tri_device_view_read(&zero->weights);
    tri_group_name_next(zero->group, "weights");
    tri_status status =
        tri_all_gather_v(zero->group, values + zero->firsts[zero->rank], values, &blocks, TRI_F32, NULL);
    tri_group_name_next(zero->group, "");
    if (status == TRI_OK)
        tri_device_view_write(&zero->weights);
    zero->base.exposed_ns += tri_now_ns() - start_ns;
    return status;
}

const tri_sync_ops tri_sync_zero1 = {
    .name = "zero1",
    .does = "every rank has all weights and all gradients, and the optimizer's state of its part of them",
    .create = zero_create,
    .begin = zero_begin,
    .ready = zero_ready,
    .finish = zero_finish,
    .publish = zero_publish,
    .owned = zero_owned,
    .destroy = zero_destroy,
};
