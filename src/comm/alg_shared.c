/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_shared.c: all-reduce in memory that all ranks reach: nothing is sent but three barriers.
 *
 * Every chunk has an owner, who reads it from all ranks in place, adds in plan order and writes the sum into its own
 * memory; then everybody fetches the other chunks from their owners. Nobody returns before all have fetched, since the
 * caller may then write again. A chunk is added in pieces that stay in the cache. A spread call fetches nothing: its
 * caller reads the chunks where they are, so that no line is written that another core holds (docs/design/005).
 */
#include <string.h>

#include "comm/shared.h"

enum { PIECE_NBYTES = 16 << 10 };

typedef struct shared_run {
    tri_call *call;
    const tri_shared *shared;
    const tri_plan *plan;
    size_t offset; /* of the call's data in everybody's memory */
    int64_t chunk; /* elements of one owner */
} shared_run;

/* All ranks have come this far. The frames name the place of the data, so that ranks that differ find out. */
static tri_status meet(tri_call *call, uint32_t phase)
{
    int rank = call->group->rank, ranks = call->group->count;
    for (int distance = 1; distance < ranks; distance *= 2)
        TRI_TRY(tri_verb_exchange(call, (rank + distance) % ranks, NULL, 0, (rank + ranks - distance) % ranks, NULL, 0,
                                  phase << 16 | (uint32_t)distance));
    return TRI_OK;
}

static int64_t chunk_count(const shared_run *run, int owner)
{
    int64_t left = run->call->count - owner * run->chunk;
    return left < 0 ? 0 : left < run->chunk ? left : run->chunk;
}

static char *chunk_at(const shared_run *run, int rank, int owner)
{
    return run->shared->base[rank] + run->offset + tri_call_nbytes(run->call, owner * run->chunk);
}

/* The elements [first, first + count) of this rank's chunk; slots: a piece of scratch for each rank. */
static void add_piece(const shared_run *run, int64_t first, int64_t count, char *slots, const char **from)
{
    tri_call *call = run->call;
    int rank = call->group->rank;
    size_t at = tri_call_nbytes(call, first);
    tri_reduce_fn combine = tri_reduce_find(call->reduce, call->dtype);
    for (int r = 0; r < call->group->count; r++)
        from[r] = chunk_at(run, r, rank) + at;
    for (int i = 0; i < run->plan->step_count; i++) {
        tri_tree_step step = run->plan->steps[i];
        bool last = i == run->plan->step_count - 1;
        char *sum = last ? chunk_at(run, rank, rank) + at : slots + (size_t)step.into * PIECE_NBYTES;
        combine(sum, from[step.into], from[step.from], count);
        from[step.into] = sum;
    }
}

static tri_status add_chunk(const shared_run *run)
{
    tri_call *call = run->call;
    size_t ranks = (size_t)call->group->count;
    char *slots = tri_call_scratch(call, ranks * (PIECE_NBYTES + sizeof(char *)));
    if (!slots)
        return TRI_ENOMEM;
    const char **from = (const char **)(void *)(slots + ranks * PIECE_NBYTES);
    int64_t count = chunk_count(run, call->group->rank);
    int64_t piece = PIECE_NBYTES / (int64_t)tri_dtype_nbytes(call->dtype);
    for (int64_t first = 0; first < count; first += piece)
        add_piece(run, first, count - first < piece ? count - first : piece, slots, from);
    return tri_call_finish(call, call->dtype, chunk_at(run, call->group->rank, call->group->rank), count);
}

/* Elements of one owner's chunk. */
static int64_t chunk_of(const tri_call *call)
{
    int64_t ranks = call->group->count, align = 64 / (int64_t)tri_dtype_nbytes(call->dtype);
    return ((call->count + ranks - 1) / ranks + align - 1) / align * align;
}

/* What the call itself would choose, asked before it is made. */
bool tri_sum_pieces(const tri_group *group, int64_t leaves, const float *data, int64_t count, tri_piece *pieces,
                    int *piece_count)
{
    tri_call call = {.group = (tri_group *)(uintptr_t)group,
                     .op = TRI_COMM_ALL_REDUCE_TREE,
                     .dtype = TRI_F32,
                     .canonical = true,
                     .count = count,
                     .leaves = leaves,
                     .in = data,
                     .out = (void *)(uintptr_t)data};
    tri_call over_ranks = tri_call_over_ranks(&call);
    shared_run run = {.call = &call, .chunk = chunk_of(&call)};
    if (group->count > 1 && tri_algorithm_select(&call) == &tri_tree_by_subtree &&
        tri_algorithm_select(&over_ranks) == &tri_all_reduce_by_sharing)
        run.shared = tri_shared_find(group, data, tri_call_nbytes(&call, count));
    pieces[0] = (tri_piece){data, 0, count};
    *piece_count = 1;
    if (!run.shared)
        return false;
    *piece_count = 0;
    run.offset = (size_t)((const char *)data - run.shared->base[group->rank]);
    for (int r = 0; r < group->count; r++) {
        int64_t own = chunk_count(&run, r);
        if (own > 0)
            pieces[(*piece_count)++] = (tri_piece){(const float *)(void *)chunk_at(&run, r, r), r * run.chunk, own};
    }
    return true;
}

static tri_status all_reduce_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    shared_run run = {.call = call,
                      .shared = tri_shared_find(call->group, call->out, tri_call_nbytes(call, call->count))};
    run.offset = (size_t)((char *)call->out - run.shared->base[rank]);
    run.chunk = chunk_of(call);
    call->frame.name ^= (uint64_t)run.shared->number << 48 ^ run.offset;
    TRI_TRY(tri_plan_find(call->group, 0, &run.plan));
    tri_call_place(call);
    TRI_TRY(meet(call, 1));
    TRI_TRY(add_chunk(&run));
    TRI_TRY(meet(call, 2));
    if (call->spread)
        return TRI_OK;
    for (int i = 1; i < ranks; i++) {
        int owner = (rank + i) % ranks;
        memcpy(chunk_at(&run, rank, owner), chunk_at(&run, owner, owner),
               tri_call_nbytes(call, chunk_count(&run, owner)));
    }
    return meet(call, 3);
}

static const char *cannot(const tri_call *call)
{
    if (tri_call_adds_in(call) != call->dtype)
        return "would round halves at every step";
    if (!tri_shared_find(call->group, call->out, tri_call_nbytes(call, call->count)))
        return "the data is not in memory of tri_group_alloc on one host";
    return NULL;
}

static double cost_us(const tri_price *price, int ranks, double nbytes)
{
    return 3 * tri_log_ceil(ranks) * price->latency_us + nbytes * (price->us_per_byte_reduced + price->us_per_byte / 2);
}

const tri_algorithm tri_all_reduce_by_sharing = {
    .name = "shared",
    .does = "each owner adds its chunk in the memory of all ranks",
    .op = TRI_COMM_ALL_REDUCE,
    .cannot = cannot,
    .cost_us = cost_us,
    .run = all_reduce_run,
};
