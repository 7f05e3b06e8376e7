/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_blocks.c: operations that move each block to one rank: gather, scatter, all-to-all.
 *
 * The direct ones send every block from where it is to where it goes. The trees are for many ranks and small blocks
 * of one length: a subtree's blocks travel together, in the order of the ranks counted from the root.
 */
#include <string.h>

#include "comm/call.h"

static size_t in_nbytes(const tri_call *call, int rank)
{
    return tri_call_nbytes(call, tri_call_in_count(call, rank));
}

static size_t out_nbytes(const tri_call *call, int rank)
{
    return tri_call_nbytes(call, tri_call_out_count(call, rank));
}

static void place(void *out, const void *in, size_t nbytes)
{
    if (out != in)
        memmove(out, in, nbytes);
}

static tri_status gather_direct_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count, root = call->root;
    if (rank != root)
        return tri_verb_send(call, root, 0, call->in, out_nbytes(call, rank));
    place(tri_call_out_block(call, rank), call->in, out_nbytes(call, rank));
    tri_moves_begin(call);
    for (int i = 1; i < ranks; i++) {
        int from = (rank + i) % ranks;
        tri_moves_receive(call, from, 0, tri_call_out_block(call, from), out_nbytes(call, from));
    }
    return tri_moves_run(call);
}

static tri_status scatter_direct_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count, root = call->root;
    if (rank != root)
        return tri_verb_receive(call, root, 0, call->out, in_nbytes(call, rank));
    place(call->out, tri_call_in_block(call, rank), in_nbytes(call, rank));
    tri_moves_begin(call);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks;
        tri_moves_send(call, to, 0, tri_call_in_block(call, to), in_nbytes(call, to));
    }
    return tri_moves_run(call);
}

/* Ranks below place `at` in the binomial tree over places counted from the root, itself included. */
static int subtree_count(int at, int ranks)
{
    int below = at ? at & -at : ranks;
    return below < ranks - at ? below : ranks - at;
}

/* Blocks in the order of places to the root's buffer, where they are in the order of ranks, and back. */
static void blocks_to_ranks(const tri_call *call, char *to, const char *blocks)
{
    size_t nbytes = tri_call_nbytes(call, call->count), first = (size_t)call->root * nbytes;
    size_t whole = (size_t)call->group->count * nbytes;
    memcpy(to + first, blocks, whole - first);
    memcpy(to, blocks + (whole - first), first);
}

static void blocks_to_places(const tri_call *call, char *blocks, const char *from)
{
    size_t nbytes = tri_call_nbytes(call, call->count), first = (size_t)call->root * nbytes;
    size_t whole = (size_t)call->group->count * nbytes;
    memcpy(blocks, from + first, whole - first);
    memcpy(blocks + (whole - first), from, first);
}

static tri_status gather_tree_run(tri_call *call)
{
    int ranks = call->group->count, root = call->root, at = (call->group->rank - root + ranks) % ranks;
    size_t nbytes = tri_call_nbytes(call, call->count);
    char *blocks = tri_call_scratch(call, (size_t)subtree_count(at, ranks) * nbytes + 1);
    if (!blocks)
        return TRI_ENOMEM;
    memcpy(blocks, call->in, nbytes);
    for (int distance = 1; distance < ranks && !(at & distance); distance *= 2) {
        int child = at + distance;
        if (child < ranks)
            TRI_TRY(tri_verb_receive(call, (child + root) % ranks, (uint32_t)distance,
                                     blocks + (size_t)distance * nbytes, (size_t)subtree_count(child, ranks) * nbytes));
    }
    if (at == 0) {
        blocks_to_ranks(call, call->out, blocks);
        return TRI_OK;
    }
    int up = at & -at;
    return tri_verb_send(call, (at - up + root) % ranks, (uint32_t)up, blocks,
                         (size_t)subtree_count(at, ranks) * nbytes);
}

static tri_status scatter_tree_run(tri_call *call)
{
    int ranks = call->group->count, root = call->root, at = (call->group->rank - root + ranks) % ranks;
    size_t nbytes = tri_call_nbytes(call, call->count);
    char *blocks = tri_call_scratch(call, (size_t)subtree_count(at, ranks) * nbytes + 1);
    if (!blocks)
        return TRI_ENOMEM;
    int up = at & -at;
    if (at == 0)
        blocks_to_places(call, blocks, call->in);
    else
        TRI_TRY(tri_verb_receive(call, (at - up + root) % ranks, (uint32_t)up, blocks,
                                 (size_t)subtree_count(at, ranks) * nbytes));
    memcpy(call->out, blocks, nbytes);
    int distance = 1;
    while (distance < ranks && !(at & distance))
        distance *= 2;
    tri_moves_begin(call);
    for (distance /= 2; distance >= 1; distance /= 2) {
        int child = at + distance;
        if (child < ranks)
            tri_moves_send(call, (child + root) % ranks, (uint32_t)distance, blocks + (size_t)distance * nbytes,
                           (size_t)subtree_count(child, ranks) * nbytes);
    }
    return tri_moves_run(call);
}

static tri_status all_to_all_place(tri_call *call)
{
    int rank = call->group->rank;
    int64_t gives = tri_call_in_count(call, rank), wants = tri_call_out_count(call, rank);
    if (gives != wants)
        return tri_fail(TRI_EMISMATCH, "all_to_all: rank %d sends itself %lld elements and expects %lld", rank,
                        (long long)gives, (long long)wants);
    place(tri_call_out_block(call, rank), tri_call_in_block(call, rank), in_nbytes(call, rank));
    return TRI_OK;
}

static void add_exchange(tri_call *call, int to, int from)
{
    tri_moves_send(call, to, 0, tri_call_in_block(call, to), in_nbytes(call, to));
    tri_moves_receive(call, from, 0, tri_call_out_block(call, from), out_nbytes(call, from));
}

static tri_status all_to_all_direct_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    TRI_TRY(all_to_all_place(call));
    tri_moves_begin(call);
    for (int i = 1; i < ranks; i++)
        add_exchange(call, (rank + i) % ranks, (rank + ranks - i) % ranks);
    return tri_moves_run(call);
}

/* One partner at a time: no rank is sent to by many at once. */
static tri_status all_to_all_pairs_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    TRI_TRY(all_to_all_place(call));
    for (int i = 1; i < ranks; i++) {
        tri_moves_begin(call);
        add_exchange(call, (rank + i) % ranks, (rank + ranks - i) % ranks);
        TRI_TRY(tri_moves_run(call));
    }
    return TRI_OK;
}

static const char *tree_cannot(const tri_call *call)
{
    return call->in_blocks.counts || call->out_blocks.counts ? "the blocks are of different lengths" : NULL;
}

/* nbytes: of one block. */
static double direct_us(const tri_price *price, int ranks, double nbytes)
{
    return price->latency_us + (ranks - 1) * (price->message_us + nbytes * price->us_per_byte);
}

/* At each of the log2 steps the root moves half of what is left. */
static double tree_us(const tri_price *price, int ranks, double nbytes)
{
    return tri_log_ceil(ranks) * (price->latency_us + price->message_us) +
           (2 * ranks - 1) * nbytes * price->us_per_byte;
}

static double pairs_us(const tri_price *price, int ranks, double nbytes)
{
    return (ranks - 1) * (price->latency_us + price->message_us + nbytes * price->us_per_byte);
}

const tri_algorithm tri_gather_by_direct = {
    .name = "direct",
    .does = "every rank sends its block to the root",
    .op = TRI_COMM_GATHER,
    .cost_us = direct_us,
    .run = gather_direct_run,
};

const tri_algorithm tri_gather_by_tree = {
    .name = "tree",
    .does = "blocks go up a binomial tree together",
    .op = TRI_COMM_GATHER,
    .cannot = tree_cannot,
    .cost_us = tree_us,
    .run = gather_tree_run,
};

const tri_algorithm tri_scatter_by_direct = {
    .name = "direct",
    .does = "the root sends each rank its block",
    .op = TRI_COMM_SCATTER,
    .cost_us = direct_us,
    .run = scatter_direct_run,
};

const tri_algorithm tri_scatter_by_tree = {
    .name = "tree",
    .does = "blocks go down a binomial tree together",
    .op = TRI_COMM_SCATTER,
    .cannot = tree_cannot,
    .cost_us = tree_us,
    .run = scatter_tree_run,
};

const tri_algorithm tri_all_to_all_by_direct = {
    .name = "direct",
    .does = "every rank sends to every other at once",
    .op = TRI_COMM_ALL_TO_ALL,
    .cost_us = direct_us,
    .run = all_to_all_direct_run,
};

const tri_algorithm tri_all_to_all_by_pairs = {
    .name = "pairs",
    .does = "one partner after the other",
    .op = TRI_COMM_ALL_TO_ALL,
    .cost_us = pairs_us,
    .run = all_to_all_pairs_run,
};
