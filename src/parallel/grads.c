/* SPDX-License-Identifier: Apache-2.0
 *
 * grads.c: the sum of a unit leaves as soon as the backward pass has completed it, and with it its place in the pool.
 *
 * All ranks complete the same units in the same order, so they take and give back the same buffers. Where there are
 * several copies of the state the sum is formed in two levels, the canonical tree's lower part inside a copy's ranks
 * and the upper one between those who have the same share.
 */
#include "parallel/grads.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "comm/comm.h"
#include "kernel/kernel.h"
#include "parallel/sync_impl.h"

/* The second call adds to what the first leaves: a comm runs them in the order in which they were made. */
static tri_status unit_wait(grads_unit *state)
{
    tri_status status = state->work ? tri_work_wait(state->work) : TRI_OK;
    tri_status rest = state->rest ? tri_work_wait(state->rest) : TRI_OK;
    state->work = state->rest = NULL;
    return status == TRI_OK ? rest : status;
}

void tri_grads_fini(tri_grads *grads)
{
    for (int u = 0; grads->states && u < grads->units->count; u++)
        (void)unit_wait(&grads->states[u]);
    if (grads->tail_work)
        (void)tri_work_wait(grads->tail_work);
    tri_pool_fini(&grads->pool);
    tri_sync_arrays_free(grads->zero, grads->params, grads->part_count, grads->kept, grads->arrays);
    tri_free(grads->states);
    tri_free(grads->parts);
    tri_free(grads->sum_places);
    tri_free(grads->sums);
    tri_free(grads->scratch);
    tri_free(grads->tails);
    tri_free(grads->tail_memory);
    tri_free(grads->flying);
}

static tri_status whole_alloc(tri_grads *grads)
{
    TRI_TRY(tri_sync_arrays_alloc(grads->zero, grads->params, grads->part_count, grads->kept, &grads->arrays));
    for (int u = 0; u < grads->units->count; u++) {
        const tri_unit *unit = &grads->units->items[u];
        for (int p = 0; p < grads->part_count; p++)
            grads->states[u].parts[p] = grads->arrays[p] + unit->first;
        grads->states[u].sums[0] = grads->states[u].parts[0] + unit->firsts[grads->rank];
    }
    for (int p = 0; p < grads->part_count; p++)
        grads->tails[p] = grads->arrays[p] + tri_params_grad_count(grads->params);
    return TRI_OK;
}

/* As a step takes and gives them, so that steps find the buffers there. */
static tri_status pool_warm(tri_grads *grads)
{
    int held[TRI_GRADS_BUFFERS], count = 0;
    /* Of another model, or of another stage of it. */
    size_t *nbytes = tri_alloc((size_t)(grads->units->count + 1) * sizeof(*nbytes));
    if (!nbytes)
        return TRI_ENOMEM;
    for (int u = 0; u < grads->units->count; u++)
        nbytes[u] = tri_pool_nbytes(grads->units->items[u].count);
    tri_kept_drop_others(grads->kept, nbytes, grads->units->count);
    tri_free(nbytes);
    for (int u = grads->units->count - 1; u >= 0; u--) {
        if (count == TRI_GRADS_BUFFERS) {
            tri_pool_give(&grads->pool, held[0]);
            memmove(held, held + 1, (size_t)--count * sizeof(int));
        }
        TRI_TRY(tri_pool_take(&grads->pool, grads->units->items[u].count, &held[count++]));
    }
    while (count > 0)
        tri_pool_give(&grads->pool, held[--count]);
    return TRI_OK;
}

static tri_status passing_alloc(tri_grads *grads)
{
    const tri_units *units = grads->units;
    int64_t count = tri_units_owned(units, grads->rank);
    for (int u = units->store_count; u < units->count; u++)
        count += units->items[u].counts[grads->rank];
    grads->sums = tri_alloc_bulk((size_t)(count > 0 ? count : 1) * sizeof(float));
    grads->tail_memory = tri_alloc_zero((size_t)grads->part_count * TRI_PARAMS_TAIL, sizeof(float));
    if (!grads->sums || !grads->tail_memory)
        return TRI_ENOMEM;
    int64_t at = 0;
    for (int u = 0; u < units->count; at += units->items[u++].counts[grads->rank])
        grads->states[u].sums[0] = grads->sums + at;
    for (int p = 0; p < grads->part_count; p++)
        grads->tails[p] = grads->tail_memory + (size_t)p * TRI_PARAMS_TAIL;
    return pool_warm(grads);
}

static int64_t largest_share(const tri_units *units, int rank)
{
    int64_t most = 0;
    for (int u = 0; u < units->count; u++)
        most = units->items[u].counts[rank] > most ? units->items[u].counts[rank] : most;
    return most;
}

size_t tri_grads_scratch(const tri_units *units, int rank, int sum_count)
{
    return (size_t)(sum_count - 1) * (size_t)largest_share(units, rank);
}

static tri_status scratch_alloc(tri_grads *grads)
{
    const tri_units *units = grads->units;
    size_t each = (size_t)largest_share(units, grads->rank),
           all = tri_grads_scratch(units, grads->rank, grads->sum_count);
    if (all > 0 && !(grads->scratch = tri_alloc_bulk(all * sizeof(float))))
        return TRI_ENOMEM;
    for (int u = 0; u < units->count; u++)
        for (int k = 1; k < grads->sum_count; k++)
            grads->states[u].sums[k] = grads->scratch + (size_t)(k - 1) * each;
    return TRI_OK;
}

static void groups_set(tri_grads *grads, const tri_sync_setup *setup)
{
    int zero = tri_group_count(setup->zero), ranks = tri_group_count(setup->group), rank = tri_group_rank(setup->group);
    grads->group = setup->group;
    grads->zero = setup->zero;
    grads->replicas = setup->replicas;
    grads->rank = tri_group_rank(setup->zero);
    grads->place = (tri_tree_place){setup->leaves, rank - grads->rank, ranks};
    grads->sum_count = tri_sync_subtrees(setup, (tri_sync_place){rank, ranks, zero});
}

tri_status tri_grads_init(tri_grads *grads, const tri_sync_setup *setup, const tri_units *units, bool whole)
{
    size_t count = (size_t)units->count + 1, parts = (size_t)setup->part_count;
    *grads = (tri_grads){.params = setup->params,
                         .units = units,
                         .part_count = setup->part_count,
                         .threads = setup->threads,
                         .whole = whole,
                         .kept = setup->kept,
                         .overlap = setup->config->overlap};
    groups_set(grads, setup);
    size_t sums = (size_t)grads->sum_count;
    tri_pool_init(&grads->pool, setup->zero, setup->part_count, TRI_GRADS_BUFFERS, setup->kept);
    grads->states = tri_alloc_zero(count, sizeof(grads_unit));
    grads->parts = tri_alloc_zero(count * parts, sizeof(float *));
    grads->sum_places = tri_alloc_zero(count * sums, sizeof(float *));
    grads->tails = tri_alloc_zero(parts, sizeof(float *));
    grads->flying = tri_alloc_zero(count, sizeof(int));
    if (!grads->states || !grads->parts || !grads->sum_places || !grads->tails || !grads->flying)
        return TRI_ENOMEM;
    for (int u = 0; u < units->count; u++)
        grads->states[u] = (grads_unit){
            .parts = grads->parts + (size_t)u * parts, .sums = grads->sum_places + (size_t)u * sums, .buffer = -1};
    TRI_TRY(scratch_alloc(grads));
    return whole ? whole_alloc(grads) : passing_alloc(grads);
}

void tri_grads_begin(tri_grads *grads)
{
    for (int u = 0; u < grads->units->count; u++)
        grads->states[u].missing = grads->units->items[u].away ? 0 : grads->units->items[u].entry_count;
    grads->status = TRI_OK;
}

static void keep_failure(tri_grads *grads, tri_status status)
{
    if (grads->status != TRI_OK || status == TRI_OK)
        return;
    grads->status = status;
    snprintf(grads->message, sizeof(grads->message), "%s", tri_last_error());
}

static void buffer_give(tri_grads *grads, grads_unit *state)
{
    if (state->buffer >= 0)
        tri_pool_give(&grads->pool, state->buffer);
    state->buffer = -1;
}

/* Waits until at most `most` sums are under way. */
static void land(tri_grads *grads, int most)
{
    int landed = 0;
    int64_t start_ns = tri_now_ns();
    for (; grads->flying_count - landed > most; landed++) {
        grads_unit *state = &grads->states[grads->flying[landed]];
        keep_failure(grads, unit_wait(state));
        buffer_give(grads, state);
    }
    if (landed == 0)
        return;
    grads->flying_count -= landed;
    memmove(grads->flying, grads->flying + landed, (size_t)grads->flying_count * sizeof(int));
    grads->waited_ns += tri_now_ns() - start_ns;
}

static tri_status unit_open(tri_grads *grads, int u)
{
    grads_unit *state = &grads->states[u];
    int most = TRI_GRADS_BUFFERS - 1 - grads->open;
    land(grads, most > 0 ? most : 0);
    TRI_TRY(tri_pool_take(&grads->pool, grads->units->items[u].count, &state->buffer));
    for (int p = 0; p < grads->part_count; p++)
        state->parts[p] = tri_pool_array(&grads->pool, state->buffer, p);
    grads->open++;
    return TRI_OK;
}

tri_status tri_grads_place(tri_grads *grads, int number, float **parts)
{
    if (number == tri_params_tail(grads->params)) {
        memcpy(parts, grads->tails, (size_t)grads->part_count * sizeof(*parts));
        return TRI_OK;
    }
    int u = grads->units->of[number];
    if (grads->states[u].buffer < 0)
        TRI_TRY(unit_open(grads, u));
    if (grads->status != TRI_OK)
        return tri_fail_copy(grads->status, grads->message);
    int64_t first = tri_params_grad_first(grads->params, number) - grads->units->items[u].first;
    for (int p = 0; p < grads->part_count; p++)
        parts[p] = grads->states[u].parts[p] + first;
    return TRI_OK;
}

static void tail_release(tri_grads *grads)
{
    tri_group_name_next(grads->group, "tail");
    keep_failure(grads, tri_all_reduce_tree(grads->group, grads->place.leaves, grads->tails, grads->part_count,
                                            TRI_PARAMS_TAIL, &grads->tail_work));
    tri_group_name_next(grads->group, "");
}

static void unit_sum(tri_grads *grads, const tri_unit *unit, grads_unit *state)
{
    int64_t count = unit->counts[grads->rank];
    tri_blocks blocks = {unit->counts, unit->firsts};
    tri_group_name_next(grads->zero, unit->name);
    keep_failure(grads, tri_reduce_scatter_subtrees(grads->zero, grads->place, state->parts, grads->part_count, &blocks,
                                                    state->sums, &state->work));
    tri_group_name_next(grads->zero, "");
    if (!grads->replicas || count == 0 || grads->status != TRI_OK)
        return;
    tri_group_name_next(grads->replicas, unit->name);
    keep_failure(grads, tri_all_reduce_tree(grads->replicas, grads->place.leaves, state->sums, grads->sum_count, count,
                                            &state->rest));
    tri_group_name_next(grads->replicas, "");
}

static void unit_release(tri_grads *grads, int u)
{
    const tri_unit *unit = &grads->units->items[u];
    grads_unit *state = &grads->states[u];
    if (state->buffer >= 0)
        grads->open--;
    if (unit->frozen) {
        buffer_give(grads, state);
        return;
    }
    TRI_ASSERT(grads->whole || state->buffer >= 0);
    unit_sum(grads, unit, state);
    if (state->work)
        grads->flying[grads->flying_count++] = u;
    if (!grads->overlap)
        land(grads, 0);
}

void tri_grads_ready(tri_grads *grads, int number)
{
    if (grads->status != TRI_OK)
        return;
    if (number == tri_params_tail(grads->params)) {
        tail_release(grads);
        return;
    }
    int u = grads->units->of[number];
    TRI_ASSERT(grads->states[u].missing > 0);
    if (--grads->states[u].missing == 0)
        unit_release(grads, u);
}

/* Both sums are there, and a rank has the same share of both. */
void tri_grads_fold(const tri_grads *grads)
{
    const tri_units *units = grads->units;
    for (int u = units->store_count; u < units->count; u++) {
        int e = grads->params->ties[units->items[u].tie].entry, whole = units->of[e];
        int64_t count = units->items[u].counts[grads->rank];
        if (count == 0 || units->items[u].frozen)
            continue;
        int64_t first = grads->params->entries[e].first + units->items[u].firsts[grads->rank];
        first -= units->items[whole].first + units->items[whole].firsts[grads->rank];
        float *sum = grads->states[whole].sums[0] + first;
        tri_vector_add(grads->threads, sum, sum, grads->states[u].sums[0], count);
    }
}

tri_status tri_grads_finish(tri_grads *grads)
{
    land(grads, 0);
    if (grads->tail_work)
        keep_failure(grads, tri_work_wait(grads->tail_work));
    grads->tail_work = NULL;
    if (grads->status != TRI_OK)
        return tri_fail_copy(grads->status, grads->message);
    return TRI_OK;
}

float *tri_grads_sum(const tri_grads *grads, int number, int64_t *count)
{
    const tri_params *params = grads->params;
    int u = grads->units->of[number];
    const tri_unit *unit = &grads->units->items[u];
    int64_t all = params->entries[unit->tie < 0 ? number : params->ties[unit->tie].entry].count;
    int64_t first = unit->firsts[grads->rank], end = first + unit->counts[grads->rank];
    TRI_ASSERT(unit->entry_count == 1);
    end = end < all ? end : all; /* without the gap behind the entry */
    *count = end > first ? end - first : 0;
    return grads->states[u].sums[0];
}
