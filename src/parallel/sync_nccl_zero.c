/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_nccl_zero.c: sharded state on cards: zero1 to zero3 (sync_zero.c) with sums and gathers by NCCL.
 *
 * No kernel is queued before what NCCL brings it is there: the host waits for it, with an eye on the comm. So a rank
 * that is lost leaves no queue that waits for ever. While the host waits kernels that it has queued before run.
 */
#include "base/memory.h"
#include "base/runtime.h"
#include "kernel/array.h"
#include "parallel/sync_nccl_impl.h"

#define ROOMS 3 /* gradients of units: one is written, the sums of the others are formed */

bool tri_sync_nccl_zero_is_whole(const tri_sync_setup *setup, tri_spread spread)
{
    return spread < TRI_SPREAD_GRADIENTS || setup->whole_gradients;
}

/* --- making one --- */

/* Of a sum: what stands still has none. */
static int64_t share_count(const tri_unit *unit, int rank)
{
    return unit->frozen ? 0 : unit->counts[rank];
}

static tri_status shares_make(sync_nccl *nccl, int rank)
{
    nccl_zero *zero = &nccl->zero;
    int64_t count = 0;
    for (int u = 0; u < zero->units.count; u++)
        count += share_count(&zero->units.items[u], rank);
    zero->shares = tri_device_alloc(nccl->device, (size_t)(count > 0 ? count : 1) * sizeof(float));
    nccl->tail_memory = tri_device_alloc(nccl->device, (size_t)nccl->part_count * TRI_PARAMS_TAIL * sizeof(float));
    if (!zero->shares || !nccl->tail_memory)
        return TRI_ENOMEM;
    float *at = zero->shares;
    for (int u = 0; u < zero->units.count; at += share_count(&zero->units.items[u++], rank))
        zero->sums[u] = at;
    int64_t counts[ROOMS];
    tri_units_largest(&zero->units, TRI_UNITS_SUMMED, ROOMS, counts);
    return tri_pool_fill(&zero->rooms, nccl->device, counts);
}

static void pieces_make(sync_nccl *nccl, int rank)
{
    nccl_zero *zero = &nccl->zero;
    const bool own = nccl->base.ops->spread == TRI_SPREAD_WEIGHTS;
    for (int u = 0; u < zero->units.store_count; u++) {
        const tri_unit *unit = &zero->units.items[u];
        const int64_t first = unit->first + unit->firsts[rank];
        if (unit->counts[rank] > 0 && !unit->frozen)
            zero->pieces[nccl->base.piece_count++] =
                (tri_sync_piece){.slice = {first, unit->counts[rank]},
                                 .values = nccl->params->values + (own ? unit->at[rank] : first),
                                 .sums = zero->sums[u]};
    }
    nccl->base.pieces = zero->pieces;
}

static tri_status arrays_make(sync_nccl *nccl)
{
    nccl_zero *zero = &nccl->zero;
    const size_t count = (size_t)zero->units.count + 1;
    zero->missing = tri_alloc_zero(count, sizeof(int));
    zero->full = tri_alloc_zero(count, sizeof(int));
    zero->room = tri_alloc_zero(count, sizeof(int));
    zero->sums = tri_alloc_zero(count, sizeof(float *));
    zero->summed = tri_alloc_zero(count, sizeof(tri_device_event));
    zero->pieces = tri_alloc_zero(count, sizeof(tri_sync_piece));
    if (!zero->missing || !zero->full || !zero->room || !zero->sums || !zero->summed || !zero->pieces)
        return TRI_ENOMEM;
    for (int u = 0; u < zero->units.count; u++) {
        zero->room[u] = -1;
        TRI_TRY(tri_device_event_create(nccl->device, &zero->summed[u]));
    }
    return TRI_OK;
}

static tri_status fetch_open(sync_nccl *nccl);

/* After the arrays of gradients, where there are some. */
tri_status tri_sync_nccl_zero_open(sync_nccl *nccl, const tri_sync_setup *setup)
{
    nccl_zero *zero = &nccl->zero;
    const int rank = tri_group_rank(nccl->group);
    tri_pool_init(&zero->rooms, NULL, nccl->part_count, ROOMS, NULL);
    zero->buffers = (tri_vector){.each = sizeof(nccl_buffer)};
    TRI_TRY(arrays_make(nccl));
    zero->whole = tri_sync_nccl_zero_is_whole(setup, nccl->base.ops->spread);
    for (int u = 0; zero->whole && u < zero->units.count; u++)
        zero->sums[u] = nccl->base.grads[0] + zero->units.items[u].first + zero->units.items[u].firsts[rank];
    if (!zero->whole)
        TRI_TRY(shares_make(nccl, rank));
    pieces_make(nccl, rank);
    return nccl->base.ops->spread == TRI_SPREAD_WEIGHTS ? fetch_open(nccl) : TRI_OK;
}

static nccl_buffer *buffer_of(const nccl_zero *zero, int number)
{
    return tri_vector_at(&zero->buffers, (size_t)number);
}

/* NCCL uses nothing of it any more. */
void tri_sync_nccl_zero_close(sync_nccl *nccl)
{
    nccl_zero *zero = &nccl->zero;
    tri_fetch_fini(&zero->fetch);
    for (size_t b = 0; b < zero->buffers.count; b++) {
        tri_device_event_destroy(nccl->device, &buffer_of(zero, (int)b)->gathered);
        tri_device_event_destroy(nccl->device, &buffer_of(zero, (int)b)->left);
    }
    tri_vector_fini(&zero->buffers);
    for (int u = 0; zero->summed && u < zero->units.count; u++)
        tri_device_event_destroy(nccl->device, &zero->summed[u]);
    tri_pool_fini(&zero->rooms);
    tri_device_free(nccl->device, zero->shares);
    tri_units_fini(&zero->units);
    tri_free(zero->missing);
    tri_free(zero->full);
    tri_free(zero->room);
    tri_free(zero->sums);
    tri_free(zero->summed);
    tri_free(zero->pieces);
}

/* Elements of the largest units. */
static size_t largest_sum(const tri_units *units, tri_units_kind kind, int most)
{
    int64_t counts[TRI_FETCH_BUFFERS + ROOMS], sum = 0;
    tri_units_largest(units, kind, most, counts);
    for (int i = 0; i < most; i++)
        sum += counts[i];
    return (size_t)sum;
}

size_t tri_sync_nccl_zero_nbytes(const tri_sync_setup *setup, const tri_units *units, tri_spread spread, int rank)
{
    const size_t parts = (size_t)setup->part_count;
    size_t count = spread == TRI_SPREAD_WEIGHTS ? largest_sum(units, TRI_UNITS_READ, TRI_FETCH_BUFFERS) : 0;
    if (tri_sync_nccl_zero_is_whole(setup, spread))
        return (count + parts * (size_t)(tri_params_grad_count(setup->params) + TRI_PARAMS_TAIL)) * sizeof(float);
    for (int u = 0; u < units->count; u++)
        count += (size_t)share_count(&units->items[u], rank);
    return (count + parts * (TRI_PARAMS_TAIL + largest_sum(units, TRI_UNITS_SUMMED, ROOMS))) * sizeof(float);
}

/* --- gradients --- */

void tri_sync_nccl_zero_begin(sync_nccl *nccl)
{
    nccl_zero *zero = &nccl->zero;
    for (int u = 0; u < zero->units.count; u++)
        zero->missing[u] = zero->units.items[u].away ? 0 : zero->units.items[u].entry_count;
    zero->full_count = zero->released = zero->landed = 0;
}

static void room_give(nccl_zero *zero, int u)
{
    if (zero->room[u] >= 0)
        tri_pool_give(&zero->rooms, zero->room[u]);
    zero->room[u] = -1;
}

/* Waits until at most `most` sums are under way. */
static void land(sync_nccl *nccl, int most)
{
    nccl_zero *zero = &nccl->zero;
    const int64_t start_ns = tri_now_ns();
    for (; zero->released - zero->landed > most; zero->landed++) {
        const int u = zero->full[zero->landed];
        if (nccl->status == TRI_OK)
            tri_sync_nccl_keep_failure(nccl, tri_nccl_sums_wait(nccl->sums, &zero->summed[u]));
        room_give(zero, u);
    }
    zero->waited_ns += tri_now_ns() - start_ns;
}

void tri_sync_nccl_zero_finished(sync_nccl *nccl)
{
    nccl_zero *zero = &nccl->zero;
    for (; zero->landed < zero->released; zero->landed++)
        room_give(zero, zero->full[zero->landed]);
}

static void times_tell(sync_nccl *nccl)
{
    nccl->base.waited_ns = nccl->zero.waited_ns + nccl->zero.fetch.waited_ns;
}

static tri_status room_open(sync_nccl *nccl, int u)
{
    nccl_zero *zero = &nccl->zero;
    const int most = ROOMS - 1 - zero->open;
    land(nccl, most > 0 ? most : 0);
    while (zero->landed < zero->released && !tri_pool_has(&zero->rooms, zero->units.items[u].count))
        land(nccl, zero->released - zero->landed - 1);
    times_tell(nccl);
    if (nccl->status != TRI_OK)
        return tri_sync_nccl_explain(nccl);
    TRI_TRY(tri_pool_take(&zero->rooms, zero->units.items[u].count, &zero->room[u]));
    zero->open++;
    return TRI_OK;
}

static tri_status hook_place(void *arg, int number, float **parts)
{
    sync_nccl *nccl = arg;
    nccl_zero *zero = &nccl->zero;
    if (number == tri_params_tail(nccl->params)) {
        for (int p = 0; p < nccl->part_count; p++)
            parts[p] = tri_sync_nccl_tail(nccl, p);
        return TRI_OK;
    }
    const int u = zero->units.of[number];
    if (zero->room[u] < 0)
        TRI_TRY(room_open(nccl, u));
    const int64_t first = tri_params_grad_first(nccl->params, number) - zero->units.items[u].first;
    for (int p = 0; p < nccl->part_count; p++)
        parts[p] = tri_pool_array(&zero->rooms, zero->room[u], p) + first;
    return TRI_OK;
}

static void unit_sum(sync_nccl *nccl, int u)
{
    nccl_zero *zero = &nccl->zero;
    const tri_unit *unit = &zero->units.items[u];
    const tri_blocks blocks = {unit->counts, unit->firsts};
    float *parts[TRI_TREE_MAX_PARTS];
    zero->open -= zero->room[u] >= 0;
    if (unit->frozen) {
        room_give(zero, u);
        return;
    }
    for (int p = 0; p < nccl->part_count; p++)
        parts[p] = zero->whole ? nccl->base.grads[p] + unit->first : tri_pool_array(&zero->rooms, zero->room[u], p);
    tri_sync_nccl_follow(nccl);
    tri_sync_nccl_keep_failure(
        nccl, tri_nccl_sums_reduce_scatter(nccl->sums, nccl->leaves, parts, nccl->part_count, &blocks, zero->sums[u]));
    if (zero->whole)
        return;
    tri_device_event_record(&nccl->beside, zero->summed[u], TRI_QUEUE_KERNELS);
    if (!nccl->overlap)
        land(nccl, 0);
}

void tri_sync_nccl_zero_release(sync_nccl *nccl)
{
    nccl_zero *zero = &nccl->zero;
    while (nccl->status == TRI_OK && zero->released < zero->full_count)
        unit_sum(nccl, zero->full[zero->released++]);
}

void tri_sync_nccl_zero_ready(sync_nccl *nccl, int number)
{
    nccl_zero *zero = &nccl->zero;
    const int u = zero->units.of[number];
    if (--zero->missing[u] == 0)
        zero->full[zero->full_count++] = u;
    if (!zero->whole)
        tri_sync_nccl_zero_release(nccl);
}

/* A rank has the same share of a tie and of its entry. */
static void zero_fold(tri_sync *sync)
{
    const sync_nccl *nccl = nccl_of(sync);
    const nccl_zero *zero = &nccl->zero;
    const int rank = tri_group_rank(nccl->group);
    tri_sync_nccl_lent_return(nccl);
    for (int t = zero->units.store_count; t < zero->units.count; t++) {
        const tri_unit *tie = &zero->units.items[t];
        const int e = nccl->params->ties[tie->tie].entry, u = zero->units.of[e];
        const tri_unit *unit = &zero->units.items[u];
        float *sum =
            zero->sums[u] + (nccl->params->entries[e].first + tie->firsts[rank]) - (unit->first + unit->firsts[rank]);
        if (tie->counts[rank] > 0 && !tie->frozen)
            tri_array_add(nccl->device, 1, sum, sum, zero->sums[t], tie->counts[rank]);
    }
}

/* --- weights --- */

/* zero1 and zero2: until the weights of all are here: who reads them next need not ask. */
static tri_status zero_publish(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    const int64_t start_ns = tri_now_ns();
    tri_sync_nccl_follow(nccl);
    for (int u = 0; u < nccl->zero.units.store_count && nccl->status == TRI_OK; u++) {
        const tri_unit *unit = &nccl->zero.units.items[u];
        const tri_blocks blocks = {unit->counts, unit->firsts};
        float *values = nccl->params->values + unit->first;
        if (unit->frozen)
            continue;
        tri_device_written(nccl->device, values, (size_t)unit->count * sizeof(float));
        tri_sync_nccl_keep_failure(nccl, tri_nccl_sums_all_gather(nccl->sums, values, &blocks));
    }
    if (nccl->status == TRI_OK)
        tri_sync_nccl_keep_failure(nccl, tri_nccl_sums_wait(nccl->sums, NULL));
    sync->exposed_ns += tri_now_ns() - start_ns;
    return nccl->status == TRI_OK ? TRI_OK : tri_sync_nccl_explain(nccl);
}

/* The pool may have one more than before. */
static tri_status buffer_find(sync_nccl *nccl, int number)
{
    nccl_zero *zero = &nccl->zero;
    while ((int)zero->buffers.count <= number) {
        nccl_buffer made = {0};
        TRI_TRY(tri_device_event_create(nccl->device, &made.gathered));
        if (tri_device_event_create(nccl->device, &made.left) != TRI_OK || !tri_vector_push(&zero->buffers, &made)) {
            tri_device_event_destroy(nccl->device, &made.gathered);
            tri_device_event_destroy(nccl->device, &made.left);
            return TRI_ENOMEM;
        }
    }
    return TRI_OK;
}

/* zero3: weights that kernels read are gathered into a buffer behind the kernels that read what was in it before. */
static tri_status unit_gather(void *arg, int u)
{
    sync_nccl *nccl = arg;
    nccl_zero *zero = &nccl->zero;
    const tri_unit *unit = &zero->units.items[u];
    const int rank = tri_group_rank(nccl->group), buffer = zero->fetch.states[u].buffer;
    const tri_blocks blocks = {unit->counts, unit->firsts};
    float *values = tri_fetch_values(&zero->fetch, u);
    if (!nccl->sums)
        return tri_fail(TRI_EINVAL,
                        "the run has ended, and NCCL with it: weights that are spread over the ranks cannot "
                        "be read: want this before its end, or from a checkpoint");
    if (nccl->status != TRI_OK)
        return tri_sync_nccl_explain(nccl);
    TRI_TRY(buffer_find(nccl, buffer));
    tri_device_event_order(&nccl->beside, buffer_of(zero, buffer)->left, TRI_QUEUE_KERNELS);
    if (unit->counts[rank] > 0)
        tri_device_copy(&nccl->beside, values + unit->firsts[rank], nccl->params->values + unit->at[rank],
                        (size_t)unit->counts[rank] * sizeof(float));
    tri_sync_nccl_keep_failure(nccl, tri_nccl_sums_all_gather(nccl->sums, values, &blocks));
    tri_device_event_record(&nccl->beside, buffer_of(zero, buffer)->gathered, TRI_QUEUE_KERNELS);
    return nccl->status == TRI_OK ? TRI_OK : tri_sync_nccl_explain(nccl);
}

static tri_status unit_await(void *arg, int u)
{
    sync_nccl *nccl = arg;
    if (!nccl->sums) /* it is closed, and has waited for all */
        return TRI_OK;
    if (nccl->status == TRI_OK)
        tri_sync_nccl_keep_failure(
            nccl, tri_nccl_sums_wait(nccl->sums, &buffer_of(&nccl->zero, nccl->zero.fetch.states[u].buffer)->gathered));
    return nccl->status == TRI_OK ? TRI_OK : tri_sync_nccl_explain(nccl);
}

static void unit_left(void *arg, int u)
{
    const sync_nccl *nccl = arg;
    tri_device_event_record(nccl->device, buffer_of(&nccl->zero, nccl->zero.fetch.states[u].buffer)->left,
                            TRI_QUEUE_KERNELS);
}

static tri_status fetch_open(sync_nccl *nccl)
{
    nccl_zero *zero = &nccl->zero;
    const tri_fetch_source source = {
        .arg = nccl, .begin = unit_gather, .await = unit_await, .left = unit_left, .device = nccl->device};
    return tri_fetch_init(&zero->fetch, nccl->group, nccl->params, &zero->units, nccl->overlap, &source);
}

static tri_status zero_renew(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    tri_sync_nccl_follow(nccl);
    return tri_fetch_renew(&nccl->zero.fetch);
}

static void hook_begin(void *arg, bool down)
{
    sync_nccl *nccl = arg;
    tri_fetch_begin(&nccl->zero.fetch, down);
}

static tri_status hook_bring(void *arg, int entry, const float **values)
{
    sync_nccl *nccl = arg;
    TRI_TRY(tri_fetch_bring(&nccl->zero.fetch, entry, values));
    times_tell(nccl);
    return TRI_OK;
}

static void hook_done(void *arg, int entry)
{
    sync_nccl *nccl = arg;
    tri_fetch_done(&nccl->zero.fetch, entry);
}

static void zero_hooks(tri_sync *sync, tri_graph_hooks *hooks)
{
    sync_nccl *nccl = nccl_of(sync);
    *hooks = (tri_graph_hooks){.arg = nccl};
    if (sync->ops->spread == TRI_SPREAD_WEIGHTS)
        *hooks = (tri_graph_hooks){.arg = nccl, .begin = hook_begin, .bring = hook_bring, .done = hook_done};
    if (!nccl->zero.whole)
        hooks->place = hook_place;
}

/* --- the table --- */

const tri_sync_ops tri_sync_nccl_zero1 = {
    .name = "zero1",
    .does = "every rank has all weights, and the optimizer's state of its share of them; NCCL sums between cards",
    .spread = TRI_SPREAD_STATE,
    .fold = zero_fold,
    .publish = zero_publish,
    .hooks = zero_hooks,
    TRI_SYNC_NCCL_SLOTS,
};

const tri_sync_ops tri_sync_nccl_zero2 = {
    .name = "zero2",
    .does = "every rank has all weights, and sums and the optimizer's state of its share; NCCL sums between cards",
    .spread = TRI_SPREAD_GRADIENTS,
    .fold = zero_fold,
    .publish = zero_publish,
    .hooks = zero_hooks,
    TRI_SYNC_NCCL_SLOTS,
};

const tri_sync_ops tri_sync_nccl_zero3 = {
    .name = "zero3",
    .does = "every rank has its share of weights, sums and the optimizer's state; NCCL sums and gathers between cards",
    .spread = TRI_SPREAD_WEIGHTS,
    .fold = zero_fold,
    .publish = zero_renew,
    .hooks = zero_hooks,
    TRI_SYNC_NCCL_SLOTS,
};
