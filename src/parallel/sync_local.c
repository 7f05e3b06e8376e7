/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_local.c: every rank moves weights of its own by the gradients of its own shards, and now and then they meet.
 *
 * local: every parallel.local_steps steps the weights become their mean over ranks. diloco: they take an outer step
 * (outer.h). In between nothing is sent. A wish to stop, or for other ranks, travels with the weights: all ranks hear
 * of it at an exchange and act upon it after the step that follows. Source of local: Stich, "Local SGD converges fast
 * and communicates little", ICLR 2019.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "kernel/kernel.h"
#include "parallel/outer.h"
#include "parallel/sync_impl.h"

#define WISH 256.0f /* a part of one that a wish is a multiple of */

typedef struct sync_local {
    tri_sync base;
    tri_group *group;
    const tri_params *params;
    int part_count, threads;
    int64_t every;
    tri_outer *outer; /* NULL: the weights are averaged */
    /* To stop, and what is in TRI_TAIL_CALL: of this rank; of all at the last exchange; of this one there. */
    float wishes[TRI_OUTER_WISHES], agreed[TRI_OUTER_WISHES], called;
} sync_local;

static void local_destroy(tri_sync *sync)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    tri_outer_destroy(local->outer);
    for (int p = 0; local->base.grads && p < local->part_count; p++)
        tri_free(local->base.grads[p]);
    tri_free(local->base.grads);
    tri_free(local);
}

static tri_status allocate(sync_local *local, const tri_sync_setup *setup)
{
    const tri_params *params = setup->params;
    size_t nbytes = (size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * sizeof(float);
    local->base.grads = tri_alloc_zero((size_t)local->part_count, sizeof(float *));
    if (!local->base.grads)
        return TRI_ENOMEM;
    for (int p = 0; p < local->part_count; p++)
        if (!(local->base.grads[p] = tri_alloc_bulk(nbytes)))
            return TRI_ENOMEM;
    local->base.whole = true;
    local->base.tail = local->base.grads[0] + tri_params_grad_count(params);
    local->base.own = local->base.grads[0];
    return local->base.ops == &tri_sync_diloco ? tri_outer_create(setup, params->values, &local->outer) : TRI_OK;
}

static tri_status create(const tri_sync_setup *setup, const tri_sync_ops *ops, tri_sync **out)
{
    sync_local *local = tri_alloc_zero(1, sizeof(*local));
    if (!local)
        return TRI_ENOMEM;
    local->base.ops = ops;
    local->group = setup->group;
    local->params = setup->params;
    local->part_count = setup->part_count;
    local->threads = setup->threads;
    local->every = setup->config->local_steps;
    tri_status status = allocate(local, setup);
    if (status != TRI_OK) {
        local_destroy(&local->base);
        return status;
    }
    *out = &local->base;
    return TRI_OK;
}

static tri_status local_create(const tri_sync_setup *setup, tri_sync **out)
{
    return create(setup, &tri_sync_local, out);
}

static tri_status diloco_create(const tri_sync_setup *setup, tri_sync **out)
{
    return create(setup, &tri_sync_diloco, out);
}

static tri_status local_begin(tri_sync *sync)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    if (!sync->begun && local->outer)
        tri_outer_begin(local->outer);
    sync->begun = true;
    return TRI_OK;
}

static void local_ready(tri_sync *sync, int entry)
{
    (void)sync;
    (void)entry;
}

/* The sum over this rank's shards, and a tail that says of wishes what all ranks know. */
static tri_status local_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    int64_t count = tri_params_grad_count(local->params) + TRI_PARAMS_TAIL;
    float *sum = local->base.grads[0], *tail = sum + count - TRI_PARAMS_TAIL;
    for (int p = 1; p < local->part_count; p++)
        tri_vector_add(local->threads, sum, sum, local->base.grads[p], count);
    if (tail[TRI_TAIL_STOP] > 0)
        local->wishes[0] = 1;
    local->wishes[1] = tail[TRI_TAIL_CALL];
    tail[TRI_TAIL_STOP] = local->agreed[0];
    tail[TRI_TAIL_CALL] = local->agreed[1];
    sync->called = local->called;
    *slice = (tri_sync_slice){0, local->params->count};
    local->base.exposed_ns = 0;
    return TRI_OK;
}

/* values: the store's elements, then the tail's. The mean of equal numbers may be another one, by rounding: what is
 * frozen stays this rank's. */
static tri_status average(sync_local *local, float *values)
{
    const tri_params *params = local->params;
    const float *own = params->values;
    tri_group_name_next(local->group, "mean of the weights");
    TRI_TRY(tri_all_reduce(local->group, values, values, params->count + TRI_PARAMS_TAIL, TRI_F32, TRI_REDUCE_AVERAGE,
                           NULL));
    for (const tri_param *entry = params->entries; entry < params->entries + params->entry_count; entry++)
        if (entry->frozen)
            memcpy(values + entry->first, own + entry->first, (size_t)entry->count * sizeof(float));
    return TRI_OK;
}

/* The gradients have done their work: their array is large enough for the store and a tail. */
static tri_status average_weights(sync_local *local)
{
    float *values = local->params->values, *sums = local->base.grads[0];
    int64_t count = local->params->count;
    memcpy(sums, values, (size_t)count * sizeof(float));
    memset(sums + count, 0, TRI_PARAMS_TAIL * sizeof(float));
    memcpy(sums + count, local->wishes, sizeof(local->wishes));
    TRI_TRY(average(local, sums));
    memcpy(values, sums, (size_t)count * sizeof(float));
    for (int i = 0; i < TRI_OUTER_WISHES; i++) /* sums of few bits, of which the mean has lost some */
        local->agreed[i] = rintf(sums[count + i] * (float)tri_group_count(local->group) * WISH) / WISH;
    local->called = local->wishes[1];
    return TRI_OK;
}

static tri_status local_publish(tri_sync *sync)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    int64_t start_ns = tri_now_ns(), steps = sync->step + 1;
    tri_status status = TRI_OK;
    bool met = false;
    if (local->outer)
        status = tri_outer_step(local->outer, steps, local->wishes, local->agreed, &met);
    else if (steps % local->every == 0)
        status = average_weights(local);
    if (met)
        local->called = local->wishes[1];
    local->base.exposed_ns = tri_now_ns() - start_ns;
    return status;
}

static tri_status local_meet(tri_sync *sync)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    float *values = local->params->values, *own = local->base.grads[0];
    int64_t count = local->params->count;
    if (local->outer)
        TRI_TRY(tri_outer_settle(local->outer));
    memcpy(own, values, (size_t)count * sizeof(float));
    memset(own + count, 0, TRI_PARAMS_TAIL * sizeof(float));
    TRI_TRY(average(local, own));
    for (int64_t i = 0; i < count; i++) {
        float value = own[i];
        own[i] = values[i];
        values[i] = value;
    }
    return TRI_OK;
}

static void local_part(tri_sync *sync)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    memcpy(local->params->values, local->base.grads[0], (size_t)local->params->count * sizeof(float));
}

static const char *local_state_name(const tri_sync *sync, int index)
{
    const sync_local *local = tri_container_of(sync, sync_local, base);
    return local->outer ? tri_outer_state_name(index) : NULL;
}

static float *local_state(tri_sync *sync, int index, int entry)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    return tri_outer_state(local->outer, index, entry);
}

static tri_status local_loaded(tri_sync *sync)
{
    sync_local *local = tri_container_of(sync, sync_local, base);
    sync->begun = true;
    return local->outer ? tri_outer_loaded(local->outer) : TRI_OK;
}

#define LOCAL_SLOTS                                                                                                    \
    .begin = local_begin, .ready = local_ready, .finish = local_finish, .publish = local_publish, .meet = local_meet,  \
    .part = local_part, .state_name = local_state_name, .state = local_state, .loaded = local_loaded,                  \
    .destroy = local_destroy

const tri_sync_ops tri_sync_local = {
    .name = "local",
    .does = "every rank has weights of its own, which are averaged now and then",
    .create = local_create,
    LOCAL_SLOTS,
};

const tri_sync_ops tri_sync_diloco = {
    .name = "diloco",
    .does = "every rank has weights of its own, which take an outer step together now and then",
    .create = diloco_create,
    LOCAL_SLOTS,
};
