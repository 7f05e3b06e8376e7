/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_staged.c: operations of one host on ordinary memory: what others need goes, a piece at a time, through the stage
 * of each rank's page, which all reach.
 *
 * A stage has one slot for each rank that is to read or fill it, or a single one that all read. While the others fetch
 * one piece the next is put beside it. A sum's chunk is added by its owner from the stages of all, and goes back
 * through them: the lines of a slot go over to one rank and return, whole (base/cache.h).
 */
#include <string.h>

#include "base/cache.h"
#include "comm/sharing.h"

typedef struct staged {
    tri_call *call;
    tri_lane *lane;
    const tri_plan *plan;
    bool own_slots; /* a slot for each reader; else one for all */
    int64_t unit;   /* elements of a slot */
    bool past;      /* blocks go past the cache into the output */
} staged;

/* Elements of one of `slots` slots of 1 / `parts` of a stage. */
static int64_t unit_of(const tri_call *call, int slots, int parts)
{
    size_t nbytes = TRI_LANE_STAGE_NBYTES / (size_t)parts / (size_t)slots & ~(size_t)(TRI_LINES_APART - 1);
    return (int64_t)(nbytes / tri_dtype_nbytes(call->dtype));
}

/* The slot of `reader` in somebody's stage, of the piece of step s. */
static char *slot_at(const staged *at, int owner, int reader, int64_t s)
{
    size_t nbytes = tri_call_nbytes(at->call, at->unit);
    char *half = (char *)at->lane->pages[owner]->stage + (size_t)(s & 1) * (TRI_LANE_STAGE_NBYTES / 2);
    return half + (at->own_slots ? (size_t)reader * nbytes : 0);
}

/* ---- blocks */

/* Does rank `from` have something for rank `to`? */
static bool gives(const tri_call *call, int from, int to)
{
    switch (call->op) {
    case TRI_COMM_BROADCAST:
    case TRI_COMM_SCATTER:
        return from == call->root;
    case TRI_COMM_GATHER:
        return to == call->root;
    default:
        return true;
    }
}

static const char *given_to(const tri_call *call, int to)
{
    bool is_apart =
        call->op == TRI_COMM_ALL_TO_ALL || call->op == TRI_COMM_SCATTER || call->op == TRI_COMM_REDUCE_SCATTER;
    return is_apart ? tri_call_in_block(call, to) : call->in;
}

static char *taken_from(const tri_call *call, int from)
{
    bool is_apart = call->op == TRI_COMM_ALL_TO_ALL || call->op == TRI_COMM_ALL_GATHER || call->op == TRI_COMM_GATHER;
    return is_apart ? tri_call_out_block(call, from) : call->out;
}

static void into_output(const staged *at, char *to, const char *from, size_t nbytes)
{
    if (at->past)
        tri_copy_past(to, from, nbytes);
    else
        memcpy(to, from, nbytes);
}

/* All-gather: a piece that goes to the others goes to its place here too, while it is near. */
static void place_piece(const staged *at, size_t first, size_t nbytes)
{
    const tri_call *call = at->call;
    char *own = tri_call_out_block(call, call->group->rank);
    if (own != call->in)
        into_output(at, own + first, (const char *)call->in + first, nbytes);
}

static void put(const staged *at, int64_t s)
{
    const tri_call *call = at->call;
    int rank = call->group->rank, ranks = call->group->count;
    size_t first = tri_call_nbytes(call, s * at->unit);
    size_t nbytes = tri_call_nbytes(call, tri_int64_min(call->count - s * at->unit, at->unit));
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks;
        if (!gives(call, rank, to))
            continue;
        tri_copy_out(slot_at(at, rank, to, s), given_to(call, to) + first, nbytes);
        if (!at->own_slots)
            break;
    }
    if (call->op == TRI_COMM_ALL_GATHER)
        place_piece(at, first, nbytes);
}

/* The sum of this rank's block. */
static tri_status add_block(const staged *at, int64_t s)
{
    tri_call *call = at->call;
    int rank = call->group->rank;
    size_t first = tri_call_nbytes(call, s * at->unit);
    int64_t count = tri_int64_min(call->count - s * at->unit, at->unit);
    tri_sharing run = {.call = call, .plan = at->plan};
    for (int r = 0; r < call->group->count; r++)
        run.in[r] = r == rank ? given_to(call, rank) + first : slot_at(at, r, rank, s);
    return tri_sharing_add(&run, 0, count, (char *)call->out + first);
}

/* Slots that nobody else reads are given back whole. */
static tri_status fetch(const staged *at, int64_t s)
{
    const tri_call *call = at->call;
    int rank = call->group->rank, ranks = call->group->count;
    size_t first = tri_call_nbytes(call, s * at->unit);
    size_t nbytes = tri_call_nbytes(call, tri_int64_min(call->count - s * at->unit, at->unit));
    bool sole = at->own_slots || ranks == 2 || call->op == TRI_COMM_GATHER;
    if (call->op == TRI_COMM_REDUCE_SCATTER)
        TRI_TRY(add_block(at, s));
    for (int i = 1; i < ranks; i++) {
        int from = (rank + i) % ranks;
        char *slot = slot_at(at, from, rank, s);
        if (!gives(call, from, rank))
            continue;
        if (call->op != TRI_COMM_REDUCE_SCATTER)
            into_output(at, taken_from(call, from) + first, slot, nbytes);
        if (sole)
            tri_take_lines(slot, nbytes);
    }
    return TRI_OK;
}

/* The block of a rank for itself. */
static void place_own(const tri_call *call)
{
    int rank = call->group->rank;
    bool has = call->op == TRI_COMM_ALL_TO_ALL || call->op == TRI_COMM_SCATTER || call->op == TRI_COMM_GATHER;
    if (!has || !gives(call, rank, rank))
        return;
    char *own = taken_from(call, rank);
    if (own != given_to(call, rank))
        tri_copy_large(own, given_to(call, rank), tri_call_nbytes(call, call->count));
}

/* Step s puts piece s and fetches piece s - 1; whoever meets has done both. */
static tri_status move_blocks(staged *at)
{
    tri_call *call = at->call;
    at->own_slots =
        call->op == TRI_COMM_ALL_TO_ALL || call->op == TRI_COMM_SCATTER || call->op == TRI_COMM_REDUCE_SCATTER;
    at->unit = unit_of(call, at->own_slots ? call->group->count : 1, 2);
    at->past = tri_call_nbytes(call, call->count) >= 2 * TRI_COPY_LARGE_NBYTES;
    int64_t steps = (call->count + at->unit - 1) / at->unit;
    place_own(call);
    for (int64_t s = 0; s <= steps; s++) {
        if (s < steps)
            put(at, s);
        if (s > 0)
            TRI_TRY(fetch(at, s - 1));
        if (s < steps)
            TRI_TRY(tri_lane_meet(call, NULL, 0, NULL));
    }
    return TRI_OK;
}

/* ---- sums that belong to all, or to a root */

typedef struct chunk {
    size_t first; /* bytes */
    int64_t count;
} chunk;

/* The part of the window at `first` that a rank adds. */
static chunk chunk_of(const staged *at, int64_t first, int owner)
{
    int64_t begin = first + owner * at->unit, left = at->call->count - begin;
    return (chunk){tri_call_nbytes(at->call, begin), left < 0 ? 0 : tri_int64_min(left, at->unit)};
}

static bool gets_sum(const tri_call *call, int rank)
{
    return call->op == TRI_COMM_ALL_REDUCE || rank == call->root;
}

static tri_status add_window(const staged *at, int64_t first)
{
    tri_call *call = at->call;
    int rank = call->group->rank;
    chunk own = chunk_of(at, first, rank);
    tri_sharing run = {.call = call, .plan = at->plan};
    for (int r = 0; r < call->group->count; r++) {
        char *slot = slot_at(at, r, rank, 0);
        run.in[r] = r == rank ? (const char *)call->in + own.first : slot;
        run.out[r] = r != rank && gets_sum(call, r) ? slot : NULL;
    }
    return tri_sharing_add(&run, 0, own.count, gets_sum(call, rank) ? (char *)call->out + own.first : NULL);
}

static tri_status sum_windows(staged *at)
{
    tri_call *call = at->call;
    int rank = call->group->rank, ranks = call->group->count;
    at->own_slots = true;
    at->unit = unit_of(call, ranks, 2);
    for (int64_t first = 0; first < call->count; first += at->unit * ranks) {
        for (int r = 0; r < ranks; r++) {
            chunk theirs = chunk_of(at, first, r);
            if (r != rank)
                tri_copy_out(slot_at(at, rank, r, 0), (const char *)call->in + theirs.first,
                             tri_call_nbytes(call, theirs.count));
        }
        TRI_TRY(tri_lane_meet(call, NULL, 0, NULL));
        TRI_TRY(add_window(at, first));
        TRI_TRY(tri_lane_meet(call, NULL, 0, NULL));
        for (int r = 0; r < ranks && gets_sum(call, rank); r++) {
            chunk theirs = chunk_of(at, first, r);
            if (r != rank)
                memcpy((char *)call->out + theirs.first, slot_at(at, rank, r, 0), tri_call_nbytes(call, theirs.count));
        }
    }
    return TRI_OK;
}

tri_status tri_staged_run(const tri_sharing *run)
{
    staged at = {.call = run->call, .lane = run->call->group->lane, .plan = run->plan};
    bool sums = run->call->op == TRI_COMM_ALL_REDUCE || run->call->op == TRI_COMM_REDUCE;
    return sums ? sum_windows(&at) : move_blocks(&at);
}
