/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_shared.c: operations on memory that all ranks of a host reach (tri_group_alloc): nothing is sent but two
 * meetings.
 *
 * Where everybody's data is is said at the first meeting; where somebody's is elsewhere, all go another way. Sums:
 * every chunk has an owner, who reads it from all ranks in place, adds in plan order and writes the sum into the memory
 * of all of them, so that each line goes over once and comes back whole (base/cache.h). Blocks are fetched from where
 * they are. The second meeting lets the caller write again.
 */
#include <string.h>

#include "comm/lane.h"
#include "comm/shared.h"
#include "comm/sharing.h"

/* What is added at once; less where it then goes to others, so that the lines asked for are still there. */
enum { PIECE_NBYTES = 16 << 10, HANDED_NBYTES = 2 << 10 };

/* Where a rank's data is: its region (0: none, 1: nothing is read or written there) and the offset. */
typedef struct shared_place {
    uint32_t in_region, out_region;
    uint64_t in_offset, out_offset;
} shared_place;

enum { NOWHERE = 0, UNUSED = 1, REGIONS = 2 };

/* Does a rank's `in` (`out`) have to be in reach of the others? */
static bool needs_in(const tri_call *call, int rank)
{
    if (call->op == TRI_COMM_GATHER)
        return false;
    return (call->op != TRI_COMM_SCATTER && call->op != TRI_COMM_BROADCAST) || rank == call->root;
}

static bool needs_out(const tri_call *call, int rank)
{
    if (call->op == TRI_COMM_ALL_REDUCE || call->op == TRI_COMM_BROADCAST)
        return true;
    return (call->op == TRI_COMM_REDUCE || call->op == TRI_COMM_GATHER) && rank == call->root;
}

/* Elements up to the end of the last block. */
static int64_t blocks_end(const tri_call *call)
{
    size_t end = 0;
    for (int r = 0; r < call->group->count; r++) {
        size_t first = (size_t)(tri_call_in_block(call, r) - (const char *)call->in);
        size_t last = first + tri_call_nbytes(call, tri_call_in_count(call, r));
        end = last > end ? last : end;
    }
    return (int64_t)(end / tri_dtype_nbytes(call->dtype));
}

/* Elements of the whole of a buffer that others look into. */
static int64_t reach_of(const tri_call *call)
{
    if (call->in_blocks.counts)
        return blocks_end(call);
    bool blocks = call->op == TRI_COMM_REDUCE_SCATTER || call->op == TRI_COMM_ALL_TO_ALL ||
                  call->op == TRI_COMM_SCATTER || call->op == TRI_COMM_GATHER;
    return blocks ? call->count * call->group->count : call->count;
}

static void place_find(const tri_call *call, bool needed, const void *data, uint32_t *region, uint64_t *offset)
{
    *region = UNUSED;
    if (!needed)
        return;
    const tri_shared *shared = tri_shared_find(call->group, data, tri_call_nbytes(call, reach_of(call)));
    *region = shared ? shared->number + REGIONS : NOWHERE;
    *offset = shared ? (uint64_t)((const char *)data - shared->base[call->group->rank]) : 0;
}

/* Meets all ranks; *all: everybody's data is in reach, and run says where. */
static tri_status places_meet(tri_sharing *run, bool *all)
{
    tri_call *call = run->call;
    tri_group *group = call->group;
    shared_place own = {0}, places[TRI_LANE_RANKS_MAX];
    place_find(call, needs_in(call, group->rank), call->in, &own.in_region, &own.in_offset);
    place_find(call, needs_out(call, group->rank), call->out, &own.out_region, &own.out_offset);
    TRI_TRY(tri_lane_meet(call, &own, sizeof(own), places));
    *all = true;
    for (int r = 0; r < group->count; r++) {
        const shared_place *place = &places[r];
        *all = *all && place->in_region != NOWHERE && place->out_region != NOWHERE;
        if (place->in_region >= REGIONS)
            run->in[r] = tri_shared_at(group, place->in_region - REGIONS, r, place->in_offset);
        if (place->out_region >= REGIONS)
            run->out[r] = tri_shared_at(group, place->out_region - REGIONS, r, place->out_offset);
    }
    return TRI_OK;
}

/* ---- sums */

/* Adds `count` elements at byte `at` of all ranks; the sum is in `result` (of the call's type). */
static tri_status add_piece(const tri_sharing *run, size_t at, int64_t count, char *slots, char *result)
{
    const tri_call *call = run->call;
    tri_dtype adds_in = tri_call_adds_in(call);
    tri_reduce_fn combine = tri_reduce_find(call->reduce, adds_in);
    const char *from[TRI_LANE_RANKS_MAX];
    for (int r = 0; r < call->group->count; r++) {
        from[r] = run->in[r] + at;
        if (adds_in == call->dtype)
            continue;
        char *slot = slots + (size_t)r * PIECE_NBYTES;
        TRI_TRY(tri_convert(slot, adds_in, from[r], call->dtype, count));
        from[r] = slot;
    }
    for (int i = 0; i < run->plan->step_count; i++) {
        tri_tree_step step = run->plan->steps[i];
        bool last = i == run->plan->step_count - 1 && adds_in == call->dtype;
        char *sum = last ? result : slots + (size_t)step.into * PIECE_NBYTES;
        combine(sum, from[step.into], from[step.from], count);
        from[step.into] = sum;
    }
    TRI_TRY(tri_call_finish(call, adds_in, (void *)(uintptr_t)from[0], count));
    return adds_in == call->dtype ? TRI_OK : tri_convert(result, call->dtype, from[0], adds_in, count);
}

static bool is_handed(const tri_sharing *run, int rank)
{
    return rank != run->call->group->rank && run->out[rank];
}

/* Bytes of a piece. */
static size_t piece_of(const tri_sharing *run)
{
    for (int r = 0; r < run->call->group->count; r++)
        if (is_handed(run, r))
            return HANDED_NBYTES;
    return PIECE_NBYTES;
}

/* The sum's places in the memory of the others come as lines to write to before they are read: one way, not two. */
static inline void ask_ahead(const tri_sharing *run, size_t at, size_t nbytes)
{
    for (int r = 0; r < run->call->group->count; r++)
        for (size_t line = 0; is_handed(run, r) && line < nbytes; line += TRI_LINE_NBYTES)
            tri_prefetch_write(run->out[r] + at + line);
}

/* Two ranks, each with the sum where its input was: every line is read and written once. */
static bool add_both(const tri_sharing *run, int64_t first, int64_t count, char *own)
{
    const tri_call *call = run->call;
    int rank = call->group->rank, peer = 1 - rank;
    if (call->group->count != 2 || tri_call_adds_in(call) != call->dtype)
        return false;
    size_t at = tri_call_nbytes(call, first);
    tri_reduce_both_fn both = tri_reduce_both_find(call->reduce, call->dtype);
    if (!both || !own || own != run->in[rank] + at || run->out[peer] != run->in[peer])
        return false;
    both(own, run->out[peer] + at, count);
    return true;
}

tri_status tri_sharing_add(const tri_sharing *run, int64_t first, int64_t count, char *own)
{
    const tri_call *call = run->call;
    int ranks = call->group->count;
    if (add_both(run, first, count, own))
        return TRI_OK;
    char *slots = tri_call_scratch(call, (size_t)(ranks + 1) * PIECE_NBYTES);
    if (!slots)
        return TRI_ENOMEM;
    int64_t piece = (int64_t)(piece_of(run) / tri_dtype_nbytes(tri_call_adds_in(call)));
    for (int64_t done = 0; done < count; done += piece) {
        int64_t some = count - done < piece ? count - done : piece;
        size_t at = tri_call_nbytes(call, first + done), nbytes = tri_call_nbytes(call, some);
        char *result = own ? own + tri_call_nbytes(call, done) : slots + (size_t)ranks * PIECE_NBYTES;
        ask_ahead(run, at, nbytes);
        TRI_TRY(add_piece(run, at, some, slots, result));
        for (int r = 0; r < ranks; r++)
            if (is_handed(run, r))
                memcpy(run->out[r] + at, result, nbytes);
    }
    return TRI_OK;
}

/* The elements of this rank's chunk of the whole. */
static tri_status add_chunk(const tri_sharing *run)
{
    const tri_call *call = run->call;
    int64_t rank = call->group->rank, ranks = call->group->count, align = 64 / (int64_t)tri_dtype_nbytes(call->dtype);
    int64_t chunk = ((call->count + ranks - 1) / ranks + align - 1) / align * align;
    int64_t left = call->count - rank * chunk, count = left < 0 ? 0 : left < chunk ? left : chunk;
    bool keeps = call->op == TRI_COMM_ALL_REDUCE || rank == call->root;
    return tri_sharing_add(run, rank * chunk, count,
                           keeps ? (char *)call->out + tri_call_nbytes(call, rank * chunk) : NULL);
}

/* ---- blocks */

static void fetch(char *to, const char *from, size_t nbytes)
{
    if (to != from)
        tri_copy_large(to, from, nbytes);
}

/* Into another rank's memory. */
static void hand_out(char *to, const char *from, size_t nbytes)
{
    if (nbytes >= TRI_COPY_LARGE_NBYTES)
        tri_copy_large(to, from, nbytes);
    else
        tri_copy_out(to, from, nbytes);
}

/* Block `first` of every rank's input (all-gather: the only one), to the blocks of the output. */
static void fetch_blocks(const tri_sharing *run, int64_t first)
{
    const tri_call *call = run->call;
    size_t nbytes = tri_call_nbytes(call, call->count);
    int rank = call->group->rank, ranks = call->group->count;
    for (int i = 0; i < ranks; i++) {
        int from = (rank + i) % ranks;
        const char *in = from == rank ? call->in : run->in[from];
        fetch(tri_call_out_block(call, from), in + (size_t)first * nbytes, nbytes);
    }
}

/* Of what a receiver gets, the root hands out one part in `ranks`; the receiver fetches the others meanwhile. */
static void spread(const tri_sharing *run)
{
    const tri_call *call = run->call;
    int rank = call->group->rank, ranks = call->group->count, root = call->root;
    size_t nbytes = tri_call_nbytes(call, call->count), fetched = nbytes / (size_t)ranks * (size_t)(ranks - 1) & ~63ul;
    if (rank != root) {
        tri_copy_large(call->out, run->in[root], fetched);
        return;
    }
    for (int i = 1; i < ranks; i++)
        hand_out(run->out[(rank + i) % ranks] + fetched, (const char *)call->in + fetched, nbytes - fetched);
}

/* The sum of this rank's block. */
static tri_status add_block(const tri_sharing *run)
{
    const tri_call *call = run->call;
    int rank = call->group->rank;
    size_t first = (size_t)(tri_call_in_block(call, rank) - (const char *)call->in);
    return tri_sharing_add(run, (int64_t)(first / tri_dtype_nbytes(call->dtype)), tri_call_in_count(call, rank),
                           call->out);
}

static tri_status run_shared(const tri_sharing *run)
{
    tri_call *call = run->call;
    int rank = call->group->rank, root = call->root;
    size_t nbytes = tri_call_nbytes(call, call->count);
    switch (call->op) {
    case TRI_COMM_ALL_REDUCE:
    case TRI_COMM_REDUCE:
        return add_chunk(run);
    case TRI_COMM_REDUCE_SCATTER:
        return add_block(run);
    case TRI_COMM_ALL_GATHER:
        fetch_blocks(run, 0);
        return TRI_OK;
    case TRI_COMM_ALL_TO_ALL:
        fetch_blocks(run, rank);
        return TRI_OK;
    case TRI_COMM_BROADCAST:
        spread(run);
        return TRI_OK;
    case TRI_COMM_GATHER:
        if (rank != root)
            hand_out(run->out[root] + nbytes * (size_t)rank, call->in, nbytes);
        else
            fetch(tri_call_out_block(call, rank), call->in, nbytes);
        return TRI_OK;
    default: /* scatter */
        fetch(call->out, (rank == root ? (const char *)call->in : run->in[root]) + nbytes * (size_t)rank, nbytes);
        return TRI_OK;
    }
}

static tri_status sharing_run_call(tri_call *call)
{
    tri_sharing run = {.call = call};
    bool all = false;
    TRI_TRY(tri_plan_find(call->group, TRI_TREE_OF_RANKS, &run.plan));
    TRI_TRY(places_meet(&run, &all));
    if (!all)
        return call->in_blocks.counts ? tri_reduce_scatter_by_direct.run(call) : tri_staged_run(&run);
    TRI_TRY(run_shared(&run));
    return tri_lane_meet(call, NULL, 0, NULL);
}

static const char *cannot(const tri_call *call)
{
    if (!call->group->lane)
        return "the group has no lane: not all of its ranks share memory";
    bool apart = call->in_blocks.counts && call->op != TRI_COMM_REDUCE_SCATTER;
    return apart || call->out_blocks.counts ? "the blocks are of different lengths" : NULL;
}

static double sum_us(const tri_price *price, int ranks, double nbytes)
{
    (void)ranks;
    return 1 + nbytes * (price->us_per_byte_reduced + price->us_per_byte / 4);
}

static double copy_us(const tri_price *price, int ranks, double nbytes)
{
    return 1 + nbytes * (ranks - 1) * price->us_per_byte / 2;
}

#define ROW(id, op_id, price, text)                                                                                    \
    const tri_algorithm id = {                                                                                         \
        .name = "shared", .does = text, .op = op_id, .cannot = cannot, .cost_us = price, .run = sharing_run_call}

ROW(tri_all_reduce_by_sharing, TRI_COMM_ALL_REDUCE, sum_us, "each owner adds its chunk in the memory of all ranks");
ROW(tri_reduce_by_sharing, TRI_COMM_REDUCE, sum_us, "each owner adds its chunk into the root's memory");
ROW(tri_reduce_scatter_by_sharing, TRI_COMM_REDUCE_SCATTER, sum_us, "each rank adds its chunk where all have it");
ROW(tri_all_gather_by_sharing, TRI_COMM_ALL_GATHER, copy_us, "each rank fetches the others' blocks");
ROW(tri_all_to_all_by_sharing, TRI_COMM_ALL_TO_ALL, copy_us, "each rank fetches its blocks");
ROW(tri_broadcast_by_sharing, TRI_COMM_BROADCAST, copy_us, "the root hands out a part, all fetch the rest");
ROW(tri_gather_by_sharing, TRI_COMM_GATHER, copy_us, "each rank writes into the root's memory");
ROW(tri_scatter_by_sharing, TRI_COMM_SCATTER, copy_us, "each rank fetches its block from the root's memory");
