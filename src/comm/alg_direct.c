/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_direct.c: every chunk has an owner, who receives it from all ranks, adds in plan order, and hands out the result.
 *
 * Any number of ranks, and of parts per rank (the canonical tree over shards), with the bits of the plan. It goes in
 * rounds: in round s all ranks send segment s of each chunk to its owner, while the results of segment s - 1 are handed
 * out, so memory is bounded and what is added is still in the cache. Halves travel as they are, are added in f32,
 * rounded once.
 */
#include <string.h>

#include "comm/run.h"

typedef struct direct {
    tri_call *call;
    const tri_plan *plan;
    tri_dtype adds_in;
    int64_t chunk;     /* elements of one owner at most */
    int64_t segment;   /* elements of one round */
    char *slots;       /* [slot_count][segment] of adds_in */
    const char **from; /* [slot_count]: where the value of a slot is in this round */
    char *results;     /* [2][segment] of dtype: results that are not for this rank's own buffer */
} direct;

enum { STAGING_NBYTES = 1 << 20, SEGMENT_MIN_NBYTES = 4 << 10, SEGMENT_MAX_NBYTES = 128 << 10 };

/* Over far links what a round waits for counts more than what stays in the cache. */
enum { FAR_ROUND_US = 100, FAR_TIMES = 32 };

static int64_t far_times(const tri_price *price)
{
    return price->round_us < FAR_ROUND_US ? 1 : FAR_TIMES;
}

/* Every rank keeps the sum of its own block. */
static bool is_scattered(const tri_call *call)
{
    return call->op == TRI_COMM_REDUCE_SCATTER || call->op == TRI_COMM_REDUCE_SCATTER_TREE;
}

/* Elements of the chunk of `owner`; of an all-reduce the last ones may have fewer than the others, or none. */
static int64_t chunk_of(const direct *d, int owner)
{
    const tri_call *call = d->call;
    if (is_scattered(call))
        return tri_call_in_count(call, owner);
    int64_t left = call->count - owner * d->chunk;
    return left < 0 ? 0 : tri_int64_min(left, d->chunk);
}

/* Elements of the chunk of `owner` in round s. */
static int64_t segment_of(const direct *d, int owner, int64_t s)
{
    int64_t left = chunk_of(d, owner) - s * d->segment;
    return left < 0 ? 0 : tri_int64_min(left, d->segment);
}

static size_t offset_of(const direct *d, int owner, int64_t s)
{
    return tri_call_nbytes(d->call, owner * d->chunk + s * d->segment);
}

static const char *own_part(const direct *d, int part, int owner, int64_t s)
{
    const tri_call *call = d->call;
    const char *base = call->parts ? (const char *)call->parts[part] : call->in;
    if (is_scattered(call)) {
        size_t block = (size_t)(tri_call_in_block(call, owner) - (const char *)call->in);
        return base + block + tri_call_nbytes(call, s * d->segment);
    }
    return base + offset_of(d, owner, s);
}

/* Where the owner's result of round s goes, of subtree k. */
static char *result_of(const direct *d, int64_t s, int k)
{
    const tri_call *call = d->call;
    if (is_scattered(call))
        return (char *)(call->outs ? call->outs[k] : call->out) + tri_call_nbytes(call, s * d->segment);
    if (call->op == TRI_COMM_REDUCE && call->group->rank != call->root)
        return d->results + (size_t)(s & 1) * tri_call_nbytes(call, d->segment);
    return (char *)call->out + offset_of(d, call->group->rank, s);
}

static char *slot_at(const direct *d, int slot)
{
    return d->slots + (size_t)slot * (size_t)d->segment * tri_dtype_nbytes(d->adds_in);
}

static tri_status direct_init(direct *d, tri_call *call)
{
    int ranks = call->group->count;
    *d = (direct){.call = call, .adds_in = tri_call_adds_in(call)};
    TRI_TRY(tri_plan_find(call->group, tri_comm_is_tree(call->op) ? call->place : TRI_TREE_OF_RANKS, &d->plan));
    int64_t align = 64 / (int64_t)tri_dtype_nbytes(call->dtype);
    d->chunk = ((call->count + ranks - 1) / ranks + align - 1) / align * align;
    for (int r = 0; is_scattered(call) && r < ranks; r++) {
        int64_t count = tri_call_in_count(call, r);
        d->chunk = r == 0 || count > d->chunk ? count : d->chunk;
    }
    size_t slot_count = (size_t)d->plan->slot_count, each = tri_dtype_nbytes(d->adds_in);
    int64_t times = far_times(&call->group->price), nbytes = times * STAGING_NBYTES / (int64_t)slot_count;
    nbytes = nbytes < SEGMENT_MIN_NBYTES ? SEGMENT_MIN_NBYTES : tri_int64_min(nbytes, times * SEGMENT_MAX_NBYTES);
    d->segment = nbytes / (int64_t)each / align * align;
    if (d->segment > d->chunk) /* a thousand ranks with little each: slots of a line, not of a page */
        d->segment = d->chunk > align ? (d->chunk + align - 1) / align * align : align;
    size_t slots_nbytes = slot_count * (size_t)d->segment * each;
    size_t results_nbytes = 2 * tri_call_nbytes(call, d->segment);
    char *scratch = tri_call_scratch(call, slots_nbytes + results_nbytes + slot_count * sizeof(*d->from));
    if (!scratch)
        return TRI_ENOMEM;
    d->slots = scratch;
    d->results = scratch + slots_nbytes;
    d->from = (const char **)(void *)(d->results + results_nbytes);
    return TRI_OK;
}

/* The number of a message: both sides count rounds, parts and phases alike. */
static uint32_t message_of(int64_t s, int part, bool result)
{
    return (uint32_t)(s << 8) | (uint32_t)(part << 1 & 0xfe) | (result ? 1u : 0u);
}

static void add_contributions(direct *d, int64_t s)
{
    tri_call *call = d->call;
    int rank = call->group->rank, ranks = call->group->count;
    const int *first_slot = d->plan->first_slot;
    int64_t mine = segment_of(d, rank, s);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        int64_t theirs = segment_of(d, to, s);
        for (int p = 0; theirs > 0 && p < first_slot[rank + 1] - first_slot[rank]; p++)
            tri_moves_send(call, to, message_of(s, p, false), own_part(d, p, to, s), tri_call_nbytes(call, theirs));
        for (int slot = first_slot[from]; mine > 0 && slot < first_slot[from + 1]; slot++) {
            uint32_t message = message_of(s, slot - first_slot[from], false);
            tri_sink sink = {.from = call->dtype, .to = d->adds_in, .out = slot_at(d, slot)};
            if (d->adds_in == call->dtype)
                tri_moves_receive(call, from, message, sink.out, tri_call_nbytes(call, mine));
            else
                tri_moves_receive_into(call, from, message, tri_call_nbytes(call, mine), &sink);
        }
    }
}

static void add_results(direct *d, int64_t s)
{
    tri_call *call = d->call;
    int rank = call->group->rank, ranks = call->group->count;
    int64_t mine = segment_of(d, rank, s);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        bool to_gets = call->op != TRI_COMM_REDUCE || to == call->root;
        bool gets = call->op != TRI_COMM_REDUCE || rank == call->root;
        int64_t theirs = segment_of(d, from, s);
        if (to_gets && mine > 0)
            tri_moves_send(call, to, message_of(s, 0, true), result_of(d, s, 0), tri_call_nbytes(call, mine));
        if (gets && theirs > 0)
            tri_moves_receive(call, from, message_of(s, 0, true), (char *)call->out + offset_of(d, from, s),
                              tri_call_nbytes(call, theirs));
    }
}

/* The sum of subtree k of the group's shards: d->from says where the values of slots are. */
static tri_status sum_root(direct *d, int64_t s, int k, int64_t count)
{
    tri_call *call = d->call;
    const tri_plan_root *at = &d->plan->roots[k];
    tri_reduce_fn combine = tri_reduce_find(call->reduce, d->adds_in);
    char *result = result_of(d, s, k), *root = d->adds_in == call->dtype ? result : slot_at(d, at->slot);
    for (int i = at->first; i < at->end; i++) {
        tri_tree_step step = d->plan->steps[i];
        char *sum = i == at->end - 1 ? root : slot_at(d, step.into);
        combine(sum, d->from[step.into], d->from[step.from], count);
        d->from[step.into] = sum;
    }
    tri_added((size_t)(at->end - at->first) * (size_t)count * tri_dtype_nbytes(d->adds_in));
    if (at->end == at->first)
        memmove(root, d->from[at->slot], (size_t)count * tri_dtype_nbytes(d->adds_in));
    TRI_TRY(tri_call_finish(call, d->adds_in, root, count));
    return root == result ? TRI_OK : tri_convert(result, call->dtype, root, d->adds_in, count);
}

/* All slots of round s have come: adds them as the plan says. */
static tri_status sum_slots(direct *d, int64_t s)
{
    tri_call *call = d->call;
    const tri_plan *plan = d->plan;
    int rank = call->group->rank;
    int64_t count = segment_of(d, rank, s);
    if (count == 0)
        return TRI_OK;
    for (int slot = 0; slot < plan->slot_count; slot++)
        d->from[slot] = slot_at(d, slot);
    for (int p = 0; p < plan->first_slot[rank + 1] - plan->first_slot[rank]; p++) {
        int slot = plan->first_slot[rank] + p;
        const char *part = own_part(d, p, rank, s);
        if (d->adds_in == call->dtype)
            d->from[slot] = part; /* read where it is; sums go to the slots */
        else
            TRI_TRY(tri_convert(slot_at(d, slot), d->adds_in, part, call->dtype, count));
    }
    for (int k = plan->root_count - 1; k >= 0; k--) /* the first result may be where another sum's part is */
        TRI_TRY(sum_root(d, s, k, count));
    return TRI_OK;
}

static tri_status direct_run(tri_call *call)
{
    direct d;
    TRI_TRY(direct_init(&d, call));
    bool hands_out = !is_scattered(call);
    int64_t rounds = (d.chunk + d.segment - 1) / d.segment;
    for (int64_t s = 0; s < rounds + (hands_out ? 1 : 0); s++) {
        tri_moves_begin(call);
        if (s < rounds)
            add_contributions(&d, s);
        if (hands_out && s > 0)
            add_results(&d, s - 1);
        TRI_TRY(tri_moves_run(call));
        if (s < rounds)
            TRI_TRY(sum_slots(&d, s));
    }
    return TRI_OK;
}

/* nbytes: of one owner. */
static double rounds_us(const tri_price *price, double nbytes)
{
    return price->round_us * (double)(int64_t)(nbytes / (double)(far_times(price) * SEGMENT_MAX_NBYTES));
}

static double scatter_us(const tri_price *price, int ranks, double nbytes)
{
    return price->latency_us + rounds_us(price, nbytes) +
           (ranks - 1) * (price->message_us + nbytes * (price->us_per_byte + price->us_per_byte_reduced));
}

static double both_us(const tri_price *price, int ranks, double nbytes)
{
    double out = price->latency_us + (ranks - 1) * (price->message_us + nbytes / ranks * price->us_per_byte);
    return scatter_us(price, ranks, nbytes / ranks) + out;
}

/* One worker's shards are one whole subtree on every rank: the rest of the tree is the canonical sum over ranks. */
static const char *subtree_cannot(const tri_call *call)
{
    int64_t ranks = call->group->count;
    if (call->outs)
        return "the group's shards may be several subtrees";
    if (call->place.leaves % ranks)
        return "the number of ranks does not divide the number of shards";
    return NULL;
}

/* The sum over ranks that a canonical sum of whole subtrees comes to. */
static tri_call call_over_ranks(const tri_call *call)
{
    tri_call ranks_call = *call;
    ranks_call.op = is_scattered(call) ? TRI_COMM_REDUCE_SCATTER : TRI_COMM_ALL_REDUCE;
    ranks_call.parts = NULL;
    ranks_call.in = call->parts[0];
    ranks_call.algorithm = NULL;
    return ranks_call;
}

static tri_status subtree_run(tri_call *call)
{
    tri_call ranks_call = call_over_ranks(call);
    ranks_call.algorithm = tri_algorithm_select(&ranks_call);
    return ranks_call.algorithm->run(&ranks_call);
}

const tri_algorithm tri_all_reduce_by_direct = {
    .name = "direct",
    .does = "each owner adds its chunk of all ranks, then hands it out",
    .op = TRI_COMM_ALL_REDUCE,
    .cost_us = both_us,
    .run = direct_run,
};

const tri_algorithm tri_reduce_by_direct = {
    .name = "direct",
    .does = "each owner adds its chunk of all ranks, then sends it to the root",
    .op = TRI_COMM_REDUCE,
    .cost_us = both_us,
    .run = direct_run,
};

const tri_algorithm tri_reduce_scatter_by_direct = {
    .name = "direct",
    .does = "each rank adds its chunk of all ranks",
    .op = TRI_COMM_REDUCE_SCATTER,
    .cost_us = scatter_us,
    .run = direct_run,
};

const tri_algorithm tri_tree_by_subtree = {
    .name = "subtree",
    .does = "the cheapest canonical all_reduce over the ranks' whole subtrees",
    .op = TRI_COMM_ALL_REDUCE_TREE,
    .cannot = subtree_cannot,
    .cost_us = both_us,
    .run = subtree_run,
};

/* Half of the ranks or more hold at least two parts: the sum over all is taken as twice the ranks. */
static double parts_us(const tri_price *price, int ranks, double nbytes)
{
    return both_us(price, ranks, nbytes) + scatter_us(price, ranks, nbytes / ranks);
}

const tri_algorithm tri_tree_by_parts = {
    .name = "parts",
    .does = "each owner finishes the tree of its chunk from the parts of all ranks, then hands it out",
    .op = TRI_COMM_ALL_REDUCE_TREE,
    .cost_us = parts_us,
    .run = direct_run,
};

const tri_algorithm tri_scatter_tree_by_subtree = {
    .name = "subtree",
    .does = "the cheapest canonical reduce_scatter over the ranks' whole subtrees",
    .op = TRI_COMM_REDUCE_SCATTER_TREE,
    .cannot = subtree_cannot,
    .cost_us = scatter_us,
    .run = subtree_run,
};

/* As with parts_us, each rank's parts are taken as two. */
static double scatter_parts_us(const tri_price *price, int ranks, double nbytes)
{
    return 2 * scatter_us(price, ranks, nbytes);
}

const tri_algorithm tri_scatter_tree_by_parts = {
    .name = "parts",
    .does = "each rank finishes the tree of its block from the parts of all ranks",
    .op = TRI_COMM_REDUCE_SCATTER_TREE,
    .cost_us = scatter_parts_us,
    .run = direct_run,
};
