/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h: a call as algorithms see it: its buffers and signature (call.c), and the words in which algorithms are
 * written (verbs.c).
 */
#ifndef TRI_COMM_CALL_H
#define TRI_COMM_CALL_H

#include "comm/comm_impl.h"

/* From one rank to all, or from all to one. In the others each rank gives something to all. */
static inline bool tri_comm_has_root(tri_comm_op op)
{
    return op == TRI_COMM_REDUCE || op == TRI_COMM_BROADCAST || op == TRI_COMM_GATHER || op == TRI_COMM_SCATTER;
}

/* Does this rank only give something away? Then nothing that it receives shows it that another rank has another root.
 */
static inline bool tri_call_only_gives(const tri_call *call)
{
    bool from_root = call->op == TRI_COMM_BROADCAST || call->op == TRI_COMM_SCATTER;
    return tri_comm_has_root(call->op) && from_root == (call->group->rank == call->root);
}

/* Sums over shards: canonical whatever comm.order says. */
static inline bool tri_comm_is_tree(tri_comm_op op)
{
    return op == TRI_COMM_ALL_REDUCE_TREE || op == TRI_COMM_REDUCE_SCATTER_TREE;
}

/* --- call.c --- */

/* At least nbytes of memory, 64-byte aligned, kept for the next call; contents are lost when it grows. NULL: out of
 * memory. */
void *tri_call_keep(const tri_call *call, tri_keep what, size_t nbytes);
void *tri_call_scratch(const tri_call *call, size_t nbytes);
/* The type in which the call's elements are added: f32 for halves. */
tri_dtype tri_call_adds_in(const tri_call *call);
size_t tri_call_nbytes(const tri_call *call, int64_t count);
/* Blocks of the ranks in `in` and `out`. */
int64_t tri_call_in_count(const tri_call *call, int rank);
int64_t tri_call_out_count(const tri_call *call, int rank);
const char *tri_call_in_block(const tri_call *call, int rank);
char *tri_call_out_block(const tri_call *call, int rank);
/* For algorithms that work in place: what is in `in` is copied to `out` where they differ. */
void tri_call_place(const tri_call *call);
/* Sum to result: divides for AVERAGE. */
tri_status tri_call_finish(const tri_call *call, tri_dtype dtype, void *data, int64_t count);
/* Numbers the call within its group, or between the two ranks. By the thread that makes calls of the group. */
void tri_call_number(tri_call *call);
/* What every frame of the call says; its sequence is there already. */
void tri_call_fill_frame(tri_call *call);
/* The name of a call with this hash, if it is among the latest ones of this rank; else NULL. */
const char *tri_known_name_find(const tri_comm *comm, uint64_t hash);
/* "all_reduce #12 f32 x 100 sum 'bucket 3'" */
void tri_call_describe(const tri_comm *comm, const tri_frame *frame, char text[192]);
/* The same with a name that is known: "" or NULL: it is not. Any thread. */
void tri_call_describe_as(const tri_frame *frame, const char *name, char text[192]);
/* The least n with 2^n >= ranks. */
int tri_log_ceil(int ranks);

/* --- verbs.c --- */

/* Starts a batch of moves; they happen all at once in tri_moves_run. `part` numbers the messages of a call. */
void tri_moves_begin(tri_call *call);
void tri_moves_send(tri_call *call, int to, uint32_t part, const void *bytes, size_t nbytes);
void tri_moves_receive(tri_call *call, int from, uint32_t part, void *bytes, size_t nbytes);
/* The payload goes through the sink; nbytes as it travels. */
void tri_moves_receive_into(tri_call *call, int from, uint32_t part, size_t nbytes, const tri_sink *sink);
tri_status tri_moves_run(tri_call *call);

tri_status tri_verb_send(tri_call *call, int to, uint32_t part, const void *bytes, size_t nbytes);
tri_status tri_verb_receive(tri_call *call, int from, uint32_t part, void *bytes, size_t nbytes);
tri_status tri_verb_exchange(tri_call *call, int to, const void *sent, size_t sent_nbytes, int from, void *received,
                             size_t received_nbytes, uint32_t part);
/* out = left op (what comes), count elements. */
tri_status tri_verb_receive_reduce(tri_call *call, int from, uint32_t part, tri_dtype dtype, const void *left,
                                   void *out, int64_t count);
tri_status tri_verb_exchange_reduce(tri_call *call, int to, const void *sent, int64_t send_count, int from,
                                    const void *left, void *out, int64_t count, uint32_t part);
/* How a look at the links ended: notes where an abort came from, and passes the status on. */
tri_status tri_call_heard(tri_comm *comm, tri_status status, const tri_frame *found);
/* The failure of a call that meets another one: prints both. name: of the other, NULL: look among those known here. */
tri_status tri_call_mismatch(const tri_call *call, const tri_frame *found, const char *name, int culprit);
/* In a long wait outside the net: has anybody died, stopped, or called something else? */
tri_status tri_call_look_around(tri_call *call);
/* tri_probe_sender: *call->sender is the rank whose message waits. */
tri_status tri_call_probe(tri_call *call);
/* The failure of a call that waits for a rank whose link has ended: says why, if anybody knows. */
tri_status tri_call_lost(tri_call *call, int peer);

/* plan.c */
/* Kept in the group. */
#define TRI_TREE_OF_RANKS ((tri_tree_place){0}) /* one leaf per rank */
tri_status tri_plan_find(tri_group *group, tri_tree_place place, const tri_plan **out);
void tri_plan_fini(tri_plan *plan);

/* alg_lane.c */
bool tri_lane_takes(const tri_call *call);
tri_status tri_lane_run(tri_call *call);

/* alg_*.c */
extern const tri_algorithm tri_all_reduce_by_tree, tri_reduce_by_tree, tri_broadcast_by_tree;
extern const tri_algorithm tri_all_reduce_by_halving;
extern const tri_algorithm tri_all_reduce_by_sharing, tri_reduce_by_sharing, tri_reduce_scatter_by_sharing;
extern const tri_algorithm tri_all_gather_by_sharing, tri_all_to_all_by_sharing, tri_broadcast_by_sharing;
extern const tri_algorithm tri_gather_by_sharing, tri_scatter_by_sharing;
extern const tri_algorithm tri_all_reduce_by_direct, tri_reduce_by_direct, tri_reduce_scatter_by_direct;
extern const tri_algorithm tri_all_reduce_by_exchange;
extern const tri_algorithm tri_all_reduce_by_doubling;
extern const tri_algorithm tri_tree_by_subtree, tri_tree_by_parts;
extern const tri_algorithm tri_scatter_tree_by_subtree, tri_scatter_tree_by_parts;
extern const tri_algorithm tri_all_reduce_by_ring, tri_reduce_scatter_by_ring;
extern const tri_algorithm tri_all_gather_by_direct, tri_all_gather_by_doubling, tri_all_gather_by_ring,
    tri_all_gather_by_dissemination;
extern const tri_algorithm tri_broadcast_by_direct, tri_broadcast_by_scatter;
extern const tri_algorithm tri_barrier_by_dissemination, tri_pair_by_link;
extern const tri_algorithm tri_all_reduce_by_hosts, tri_reduce_scatter_by_hosts, tri_all_gather_by_hosts;
extern const tri_algorithm tri_broadcast_by_hosts, tri_barrier_by_hosts;
extern const tri_algorithm tri_all_reduce_by_lane, tri_reduce_by_lane, tri_broadcast_by_lane, tri_all_gather_by_lane;
extern const tri_algorithm tri_reduce_scatter_by_lane, tri_gather_by_lane, tri_scatter_by_lane;
extern const tri_algorithm tri_all_to_all_by_lane, tri_barrier_by_lane;
extern const tri_algorithm tri_gather_by_direct, tri_gather_by_tree, tri_scatter_by_direct, tri_scatter_by_tree;
extern const tri_algorithm tri_all_to_all_by_direct, tri_all_to_all_by_pairs;

#endif
