/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_zero.c: sharded state: each rank keeps its shares of the optimizer's state (zero1), of gradients (zero2) and of
 * weights (zero3), and moves these.
 *
 * An optimizer is elementwise, so a share has the same bits whoever moves it (docs/design/training.md). Up to
 * zero2 the moved weights are gathered unit by unit while the next forward pass continues.
 * Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion parameter models", SC
 * 2020.
 */
#include "base/memory.h"
#include "base/runtime.h"
#include "parallel/fetch.h"
#include "parallel/grads.h"
#include "parallel/sync_impl.h"

typedef struct sync_zero {
    tri_sync base;
    tri_group *group; /* whose ranks share the state out */
    const tri_params *params;
    int rank;
    bool overlap;
    tri_units units;
    tri_grads grads;
    tri_sync_piece *pieces;
    tri_fetch fetch;   /* zero3 */
    tri_work **works;  /* [units.store_count] gathers under way */
    int64_t waited_ns; /* for these */
} sync_zero;

static bool is_spread(const sync_zero *zero)
{
    return zero->base.ops->spread == TRI_SPREAD_WEIGHTS;
}

static void zero_destroy(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    for (int u = 0; zero->works && u < zero->units.store_count; u++)
        if (zero->works[u])
            (void)tri_work_wait(zero->works[u]);
    tri_grads_fini(&zero->grads);
    tri_fetch_fini(&zero->fetch);
    tri_units_fini(&zero->units);
    tri_free(zero->works);
    tri_free(zero->pieces);
    tri_free(zero);
}

static tri_status pieces_make(sync_zero *zero)
{
    zero->pieces = tri_alloc_zero((size_t)zero->units.store_count + 1, sizeof(tri_sync_piece));
    if (!zero->pieces)
        return TRI_ENOMEM;
    for (int u = 0; u < zero->units.store_count; u++) {
        const tri_unit *unit = &zero->units.items[u];
        int64_t first = unit->first + unit->firsts[zero->rank], count = unit->counts[zero->rank];
        if (count == 0 || unit->frozen)
            continue;
        zero->pieces[zero->base.piece_count++] =
            (tri_sync_piece){.slice = {first, count},
                             .values = zero->params->values + (is_spread(zero) ? unit->at[zero->rank] : first),
                             .sums = zero->grads.states[u].sums[0]};
    }
    zero->base.pieces = zero->pieces;
    return TRI_OK;
}

static tri_status zero_plan(sync_zero *zero, const tri_sync_setup *setup)
{
    const tri_params *params = setup->params;
    bool whole = setup->whole_gradients || zero->base.ops->spread == TRI_SPREAD_STATE;
    TRI_TRY(tri_units_init(&zero->units, params, tri_bucket_nbytes(setup->config), tri_group_count(setup->zero)));
    TRI_TRY(tri_grads_init(&zero->grads, setup, &zero->units, whole));
    zero->base.grads = zero->grads.arrays;
    zero->base.tail = zero->grads.tails[0];
    if (is_spread(zero))
        TRI_TRY(tri_fetch_init(&zero->fetch, setup->zero, params, &zero->units, zero->overlap, NULL));
    zero->works = tri_alloc_zero((size_t)zero->units.store_count + 1, sizeof(tri_work *));
    return zero->works ? pieces_make(zero) : TRI_ENOMEM;
}

static tri_status zero_create(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync **out)
{
    sync_zero *zero = tri_alloc_zero(1, sizeof(*zero));
    if (!zero)
        return TRI_ENOMEM;
    zero->base.ops = ops;
    zero->group = setup->zero;
    zero->params = setup->params;
    zero->rank = tri_group_rank(setup->zero);
    zero->overlap = setup->config->overlap;
    tri_status status = zero_plan(zero, setup);
    if (status != TRI_OK) {
        zero_destroy(&zero->base);
        return status;
    }
    *out = &zero->base;
    return TRI_OK;
}

static tri_status zero_begin(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    tri_grads_begin(&zero->grads);
    return TRI_OK;
}

static void zero_ready(tri_sync *sync, int entry)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    tri_grads_ready(&zero->grads, entry);
}

static void count_waits(sync_zero *zero)
{
    zero->base.waited_ns = zero->waited_ns + zero->fetch.waited_ns + zero->grads.waited_ns;
}

static tri_status zero_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    int64_t start_ns = tri_now_ns();
    *slice = (tri_sync_slice){0, 0};
    tri_status status = tri_grads_finish(&zero->grads);
    count_waits(zero);
    zero->base.exposed_ns = tri_now_ns() - start_ns;
    return status;
}

static void zero_fold(tri_sync *sync)
{
    tri_grads_fold(&tri_container_of(sync, sync_zero, base)->grads);
}

static float *zero_sum(tri_sync *sync, int number, int64_t *count)
{
    return tri_grads_sum(&tri_container_of(sync, sync_zero, base)->grads, number, count);
}

/* --- weights that every rank has --- */

static tri_status unit_gather(sync_zero *zero, int u)
{
    const tri_unit *unit = &zero->units.items[u];
    float *values = zero->params->values + unit->first;
    tri_blocks blocks = {unit->counts, unit->firsts};
    tri_group_name_next(zero->group, unit->name);
    tri_status status =
        tri_all_gather_v(zero->group, values + unit->firsts[zero->rank], values, &blocks, TRI_F32, &zero->works[u]);
    tri_group_name_next(zero->group, "");
    return status;
}

static tri_status unit_await(sync_zero *zero, int u)
{
    if (!zero->works[u])
        return TRI_OK;
    int64_t start_ns = tri_now_ns();
    tri_status status = tri_work_wait(zero->works[u]);
    zero->works[u] = NULL;
    zero->waited_ns += tri_now_ns() - start_ns;
    count_waits(zero);
    return status;
}

static tri_status zero_settle(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    for (int u = 0; u < zero->units.store_count; u++)
        TRI_TRY(unit_await(zero, u));
    return TRI_OK;
}

static tri_status zero_publish(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    int64_t start_ns = tri_now_ns();
    for (int u = 0; u < zero->units.store_count; u++)
        if (!zero->units.items[u].frozen)
            TRI_TRY(unit_gather(zero, u));
    if (!zero->overlap)
        TRI_TRY(zero_settle(sync));
    zero->base.exposed_ns += tri_now_ns() - start_ns;
    return TRI_OK;
}

static tri_status zero_renew(tri_sync *sync)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    return tri_fetch_renew(&zero->fetch);
}

/* --- hooks --- */

static tri_status hook_wait(void *arg, int entry, const float **values)
{
    sync_zero *zero = arg;
    *values = zero->params->values + zero->params->entries[entry].first;
    return unit_await(zero, zero->units.of[entry]);
}

static void hook_begin(void *arg, bool down)
{
    sync_zero *zero = arg;
    tri_fetch_begin(&zero->fetch, down);
}

static tri_status hook_bring(void *arg, int entry, const float **values)
{
    sync_zero *zero = arg;
    TRI_TRY(tri_fetch_bring(&zero->fetch, entry, values));
    count_waits(zero);
    return TRI_OK;
}

static void hook_done(void *arg, int entry)
{
    sync_zero *zero = arg;
    tri_fetch_done(&zero->fetch, entry);
}

static tri_status hook_place(void *arg, int number, float **parts)
{
    sync_zero *zero = arg;
    TRI_TRY(tri_grads_place(&zero->grads, number, parts));
    count_waits(zero);
    return TRI_OK;
}

static void zero_hooks(tri_sync *sync, tri_graph_hooks *hooks)
{
    sync_zero *zero = tri_container_of(sync, sync_zero, base);
    *hooks = is_spread(zero)
                 ? (tri_graph_hooks){.arg = zero, .begin = hook_begin, .bring = hook_bring, .done = hook_done}
                 : (tri_graph_hooks){.arg = zero, .bring = hook_wait};
    if (!zero->grads.whole)
        hooks->place = hook_place;
}

/* --- the table --- */

static tri_status zero1_create(const tri_sync_setup *setup, tri_sync **out)
{
    return zero_create(&tri_sync_zero1, setup, out);
}

static tri_status zero2_create(const tri_sync_setup *setup, tri_sync **out)
{
    return zero_create(&tri_sync_zero2, setup, out);
}

static tri_status zero3_create(const tri_sync_setup *setup, tri_sync **out)
{
    return zero_create(&tri_sync_zero3, setup, out);
}

#define COMMON                                                                                                         \
    .begin = zero_begin, .ready = zero_ready, .finish = zero_finish, .fold = zero_fold, .sum = zero_sum,               \
    .hooks = zero_hooks, .destroy = zero_destroy

const tri_sync_ops tri_sync_zero1 = {
    .name = "zero1",
    .does = "every rank has all weights and all gradients, and the optimizer's state of its share of them",
    .create = zero1_create,
    .publish = zero_publish,
    .settle = zero_settle,
    .spread = TRI_SPREAD_STATE,
    COMMON,
};

const tri_sync_ops tri_sync_zero2 = {
    .name = "zero2",
    .does = "every rank has all weights, and gradients and the optimizer's state of its share of them",
    .create = zero2_create,
    .publish = zero_publish,
    .settle = zero_settle,
    .spread = TRI_SPREAD_GRADIENTS,
    COMMON,
};

const tri_sync_ops tri_sync_zero3 = {
    .name = "zero3",
    .does = "every rank has its share of weights, gradients and the optimizer's state",
    .create = zero3_create,
    .publish = zero_renew,
    .spread = TRI_SPREAD_WEIGHTS,
    COMMON,
};
