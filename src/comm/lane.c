/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.c: opening the lane of a group; posting, waiting, and what a wait looks at when it takes long.
 */
#include "comm/lane.h"

#include <string.h>

#include "base/cache.h"
#include "net/hand_over.h"
#include "net/host.h"

#define SPINS          2000 /* some tens of microseconds */
#define SPIN_NS        INT64_C(50000)
#define BESIDE_NBYTES  128
#define YIELDS         50
#define SLEEP_LIMIT_NS (5 * TRI_NS_PER_MS)

/* ---- opening */

typedef struct lane_ticket {
    tri_region_ticket region;
    int64_t usable;
    tri_core_set cores; /* that the rank may use */
} lane_ticket;

static bool is_local(const tri_group *group)
{
    return group->count > 1 && group->count <= TRI_LANE_RANKS_MAX && !tri_sim_active() && group->price.shares_memory;
}

static void lane_list(tri_lane *lane, bool open)
{
    tri_comm *comm = lane->group->comm;
    tri_mutex_lock(&comm->lane_mutex);
    tri_lane **at = &comm->lanes;
    while (*at && *at != lane)
        at = &(*at)->next;
    if (open) {
        lane->next = comm->lanes;
        comm->lanes = lane;
    } else if (*at) {
        *at = lane->next;
    }
    lane->listed = open;
    tri_mutex_unlock(&comm->lane_mutex);
}

void tri_lanes_forget(tri_comm *comm)
{
    for (tri_lane *lane = comm->lanes; lane; lane = lane->next)
        lane->listed = false;
    comm->lanes = NULL;
}

void tri_lanes_wake(void *arg)
{
    tri_comm *comm = arg;
    tri_mutex_lock(&comm->lane_mutex);
    for (tri_lane *lane = comm->lanes; lane; lane = lane->next)
        tri_doorbell_wake(&lane->pages[lane->group->rank]->doorbell);
    tri_mutex_unlock(&comm->lane_mutex);
}

void tri_lane_close(tri_lane *lane)
{
    if (!lane)
        return;
    if (lane->listed)
        lane_list(lane, false);
    for (int r = 0; lane->peers && r < lane->group->count; r++)
        tri_region_close(&lane->peers[r]);
    tri_region_close(&lane->own);
    tri_free(lane->peers);
    tri_free(lane->pages);
    tri_free(lane->seen_done);
    tri_free(lane);
}

static tri_status lane_create(tri_group *group, tri_lane **out)
{
    size_t count = (size_t)group->count;
    tri_lane *lane = tri_alloc_zero(1, sizeof(*lane));
    if (!lane)
        return TRI_ENOMEM;
    lane->group = group;
    lane->peers = tri_alloc_zero(count, sizeof(*lane->peers));
    lane->pages = tri_alloc_zero(count, sizeof(*lane->pages));
    lane->seen_done = tri_alloc_zero(count, sizeof(*lane->seen_done));
    if (!lane->peers || !lane->pages || !lane->seen_done) {
        tri_lane_close(lane);
        return TRI_ENOMEM;
    }
    tri_doorbell_prepare();
    (void)tri_region_create(sizeof(tri_lane_page), &lane->own); /* a rank that has none says so to all */
    *out = lane;
    return TRI_OK;
}

/* An operation inside the call that opens the lane. */
static tri_status run_inside(tri_group *group, const tri_algorithm *algorithm, const void *in, void *out, int64_t count)
{
    tri_call call = {.group = group,
                     .op = algorithm->op,
                     .dtype = TRI_I64,
                     .reduce = TRI_REDUCE_MIN,
                     .canonical = true,
                     .count = count,
                     .in = in,
                     .out = out};
    tri_call_fill_frame(&call);
    return algorithm->run(&call);
}

/* Do the ranks that may use this one's cores leave it one? Else waiting is for whoever has the core. */
static bool has_core(const tri_group *group, const lane_ticket *tickets)
{
    const tri_core_set *own = &tickets[group->rank].cores;
    int sharing = 0;
    for (int r = 0; r < group->count; r++)
        sharing += tri_core_sets_meet(own, &tickets[r].cores);
    return sharing <= tri_core_set_count(own);
}

static bool reach_all(tri_lane *lane, const lane_ticket *tickets)
{
    const tri_group *group = lane->group;
    bool reached = true;
    for (int r = 0; r < group->count && reached; r++) {
        reached =
            tickets[r].usable && (r == group->rank || tri_region_open(&tickets[r].region, &lane->peers[r]) == TRI_OK);
        lane->pages[r] = r == group->rank ? lane->own.bytes : lane->peers[r].bytes;
    }
    return reached;
}

tri_status tri_lane_open(tri_group *group)
{
    group->lane_asked = true;
    if (!is_local(group))
        return TRI_OK;
    tri_lane *lane = NULL;
    lane_ticket *tickets = tri_alloc_zero((size_t)group->count, sizeof(*tickets));
    tri_status status = tickets ? lane_create(group, &lane) : TRI_ENOMEM;
    if (status == TRI_OK) {
        lane_ticket own = {.region = lane->own.ticket, .usable = lane->own.bytes != NULL};
        tri_host_core_set(&own.cores);
        status = run_inside(group, &tri_all_gather_by_direct, &own, tickets, sizeof(own) / sizeof(int64_t));
    }
    int64_t reached = 0;
    if (status == TRI_OK) {
        reached = reach_all(lane, tickets);
        lane->spins = has_core(group, tickets);
        status = run_inside(group, &tri_all_reduce_by_tree, &reached, &reached, 1);
    }
    tri_free(tickets);
    if (status == TRI_OK && reached) {
        group->lane = lane;
        lane_list(lane, true);
        return TRI_OK;
    }
    tri_lane_close(lane);
    return status;
}

/* ---- waiting */

/* Has a rank called something else? It then never comes to where this one waits. */
static tri_status check_frames(tri_call *call)
{
    const tri_group *group = call->group;
    tri_lane_note theirs;
    for (int r = 0; r < group->count; r++) {
        if (r == group->rank || !tri_lane_latest_read(&group->lane->pages[r]->notes, &theirs) ||
            theirs.frame.group != call->frame.group || theirs.frame.sequence != call->frame.sequence ||
            tri_frame_agrees(&call->frame, &theirs.frame))
            continue;
        return tri_call_mismatch(call, &theirs.frame, theirs.name, group->world_rank[r]);
    }
    return TRI_OK;
}

/* A long wait: yields, then sleeps, and looks around for whoever has died, stopped, or called something else. */
static tri_status wait_long(tri_call *call, int peer, const _Atomic uint64_t *word, uint64_t value)
{
    tri_lane *lane = call->group->lane;
    tri_comm *comm = call->group->comm;
    int64_t began_ns = tri_now_ns(), deadline_ns = tri_deadline_after_ms(call->group->timeout_ms);
    for (int turn = 0;; turn++) {
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            return TRI_OK;
        if (turn < YIELDS && !tri_net_trouble(comm->net)) {
            if (!tri_hand_over())
                turn = YIELDS;
            continue;
        }
        if (lane->spins && tri_now_ns() - began_ns < SPIN_NS) {
            for (int i = 0; i < 64 && atomic_load_explicit(word, memory_order_acquire) < value; i++)
                tri_pause();
            continue;
        }
        tri_doorbell_sleep(&lane->pages[call->group->rank]->doorbell, word, value, SLEEP_LIMIT_NS);
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            return TRI_OK;
        tri_status status = tri_call_look_around(call);
        bool gone = status == TRI_EPEER || tri_net_has_gone(comm->net, call->group->world_rank[peer]);
        /* A rank may leave, or die, after it has posted. */
        if (gone && atomic_load_explicit(word, memory_order_acquire) >= value)
            return TRI_OK;
        TRI_TRY(status);
        if (gone)
            return tri_call_lost(call, peer);
        TRI_TRY(check_frames(call));
        if (tri_now_ns() >= deadline_ns)
            return tri_fail(TRI_ETIMEOUT, "rank %d waited %.3f s for rank %d", comm->rank,
                            (double)(tri_now_ns() - began_ns) * 1e-9, call->group->world_rank[peer]);
    }
}

/* Lines that are wanted as soon as a number is there, and are asked for with it. */
typedef struct lines_beside {
    const unsigned char *first;
    size_t nbytes;
} lines_beside;

static inline tri_status wait_for(tri_call *call, int peer, const _Atomic uint64_t *word, uint64_t value,
                                  lines_beside beside)
{
    int spins = call->group->lane->spins ? SPINS : 1;
    for (int i = 0; i < spins; i++) {
        for (size_t at = 0; at < beside.nbytes; at += TRI_LINE_NBYTES)
            __builtin_prefetch(beside.first + at);
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            return TRI_OK;
        tri_pause();
    }
    return wait_long(call, peer, word, value);
}

/* ---- a call on the lane */

static uint64_t signature_of(const tri_call *call)
{
    const tri_frame *frame = &call->frame;
    uint64_t what = (uint64_t)frame->op | (uint64_t)frame->dtype << 8 | (uint64_t)frame->reduce << 16;
    what ^= (uint64_t)frame->roots << 48;
    uint64_t mixed = (what ^ frame->sequence << 40) * UINT64_C(0x9e3779b97f4a7c15);
    mixed ^= (frame->count + 1) * UINT64_C(0xd1b54a32d192ed03);
    return mixed ^ frame->name ^ (uint64_t)frame->group << 32;
}

static inline tri_lane_slot *slot_of(const tri_lane *lane, int rank)
{
    return &lane->pages[rank]->slots[lane->number % TRI_LANE_SLOTS];
}

static inline const tri_lane_note *posted_of(const tri_lane *lane, int rank)
{
    return &lane->pages[rank]->notes.posted[lane->number % TRI_LANE_SLOTS];
}

tri_status tri_lane_check_root(const tri_call *call)
{
    const tri_lane *lane = call->group->lane;
    int rank = call->group->rank, first = 0, end = call->group->count;
    const tri_lane_slot *own = slot_of(lane, rank);
    const tri_frame *frame = &posted_of(lane, rank)->frame;
    if (frame->op == TRI_COMM_REDUCE || frame->op == TRI_COMM_GATHER) { /* all but the root post */
        first = (int)(frame->reduce >> 8);
        end = first + 1;
    }
    for (int r = first; r < end; r++) {
        const tri_lane_slot *slot = slot_of(lane, r);
        if (r == rank || atomic_load_explicit(&slot->number, memory_order_acquire) != lane->number ||
            slot->signature == own->signature)
            continue;
        const tri_lane_note *theirs = posted_of(lane, r);
        tri_call mine = {.group = call->group, .frame = *frame};
        return tri_call_mismatch(&mine, &theirs->frame, theirs->name, call->group->world_rank[r]);
    }
    return TRI_OK;
}

tri_status tri_lane_begin(tri_call *call)
{
    tri_lane *lane = call->group->lane;
    if (lane->unchecked)
        TRI_TRY(tri_lane_check_root(call));
    lane->unchecked = false;
    uint64_t number = ++lane->number;
    if (tri_net_trouble(call->group->comm->net))
        TRI_TRY(tri_call_look_around(call));
    if (number <= TRI_LANE_SLOTS)
        return TRI_OK;
    for (int r = 0; r < call->group->count; r++) {
        if (lane->seen_done[r] >= number - TRI_LANE_SLOTS || r == call->group->rank)
            continue;
        const _Atomic uint64_t *done = &lane->pages[r]->done;
        TRI_TRY(wait_for(call, r, done, number - TRI_LANE_SLOTS, (lines_beside){0}));
        lane->seen_done[r] = atomic_load_explicit(done, memory_order_acquire);
    }
    return TRI_OK;
}

static inline const tri_lane_slot *next_slot_of(const tri_lane *lane, int rank)
{
    return &lane->pages[rank]->slots[(lane->number + 1) % TRI_LANE_SLOTS];
}

void *tri_lane_message(const tri_lane *lane, size_t nbytes)
{
    tri_lane_slot *slot = slot_of(lane, lane->group->rank);
    return nbytes <= TRI_LANE_INLINE_NBYTES ? slot->few : slot->many;
}

void tri_lane_post(const tri_lane *lane, const tri_call *call)
{
    const tri_group *group = lane->group;
    tri_lane_slot *slot = slot_of(lane, group->rank);
    slot->signature = signature_of(call);
    tri_lane_note_write(&lane->pages[group->rank]->notes.posted[lane->number % TRI_LANE_SLOTS], call);
    atomic_store_explicit(&slot->number, lane->number, memory_order_release);
    for (int r = 0; r < group->count; r++) {
        if (r != group->rank)
            tri_doorbell_ring(&lane->pages[r]->doorbell);
    }
}

tri_status tri_lane_await(tri_call *call, int peer, size_t nbytes, const void **message)
{
    tri_lane *lane = call->group->lane;
    tri_lane_slot *slot = slot_of(lane, peer);
    /* More of them would come and go while the message is written. */
    bool asks = nbytes > TRI_LANE_INLINE_NBYTES && nbytes <= BESIDE_NBYTES;
    lines_beside beside = {slot->many, asks ? nbytes : 0};
    TRI_TRY(wait_for(call, peer, &slot->number, lane->number, beside));
    if (slot->signature != signature_of(call)) {
        const tri_lane_note *theirs = posted_of(lane, peer);
        return tri_call_mismatch(call, &theirs->frame, theirs->name, call->group->world_rank[peer]);
    }
    /* Whoever posts a call has finished those before it. */
    lane->seen_done[peer] = lane->number - 1;
    *message = nbytes <= TRI_LANE_INLINE_NBYTES ? slot->few : slot->many;
    return TRI_OK;
}

void tri_lane_end(const tri_lane *lane)
{
    tri_lane_page *own = lane->pages[lane->group->rank];
    atomic_store_explicit(&own->done, lane->number, memory_order_release);
}

/* Are all that have not been seen to be through with the slot of the next message through with it? */
static bool next_is_free(const tri_lane *lane)
{
    for (int r = 0; r < lane->group->count; r++) {
        if (r == lane->group->rank || lane->seen_done[r] + TRI_LANE_SLOTS > lane->number)
            continue;
        lane->seen_done[r] = atomic_load_explicit(&lane->pages[r]->done, memory_order_acquire);
        if (lane->seen_done[r] + TRI_LANE_SLOTS <= lane->number)
            return false;
    }
    return true;
}

void tri_lane_expect(const tri_lane *lane, size_t nbytes)
{
    const tri_lane_slot *next = next_slot_of(lane, lane->group->rank);
    if (!next_is_free(lane))
        return;
    tri_prefetch_write(next);
    for (size_t at = 0; nbytes > TRI_LANE_INLINE_NBYTES && at < nbytes; at += TRI_LINE_NBYTES)
        tri_prefetch_write(next->many + at);
}

void tri_lane_glance(const tri_lane *lane, int peer)
{
    __builtin_prefetch(next_slot_of(lane, peer));
}

void tri_lane_fetch_ahead(const tri_lane *lane, int peer, size_t nbytes)
{
    const tri_lane_slot *next = next_slot_of(lane, peer);
    if (nbytes <= TRI_LANE_INLINE_NBYTES || atomic_load_explicit(&next->number, memory_order_relaxed) <= lane->number)
        return;
    for (size_t at = 0; at < nbytes; at += TRI_LINE_NBYTES)
        __builtin_prefetch(next->many + at);
}

tri_status tri_lane_meet(tri_call *call, const void *word, size_t nbytes, void *words)
{
    tri_lane *lane = call->group->lane;
    TRI_TRY(tri_lane_begin(call));
    if (nbytes > 0)
        memcpy(tri_lane_message(lane, nbytes), word, nbytes);
    tri_lane_post(lane, call);
    for (int r = 0; r < call->group->count; r++) {
        const void *theirs = word;
        if (r != call->group->rank)
            TRI_TRY(tri_lane_await(call, r, nbytes, &theirs));
        if (words)
            memcpy((char *)words + (size_t)r * nbytes, theirs, nbytes);
    }
    tri_lane_end(lane);
    tri_lane_expect(lane, nbytes);
    return TRI_OK;
}
