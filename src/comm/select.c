/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c: which algorithm a call takes: the user's rule where there is one, else the cheapest by price.
 *
 * Every rank of a group must choose the same, so the choice depends only on what all know: the call, the number of
 * ranks, the slowest transport in the group (if one rank has a peer on another host, every rank of the group has one),
 * and what they measured together (measure.c).
 */

#include "comm/engine.h"

const tri_algorithm *const tri_algorithms[] = {
    &tri_all_reduce_by_tree,
    &tri_all_reduce_by_halving,
    &tri_all_reduce_by_sharing,
    &tri_all_reduce_by_direct,
    &tri_all_reduce_by_exchange,
    &tri_all_reduce_by_doubling,
    &tri_all_reduce_by_ring,
    &tri_reduce_by_tree,
    &tri_reduce_by_direct,
    &tri_broadcast_by_tree,
    &tri_broadcast_by_direct,
    &tri_broadcast_by_scatter,
    &tri_all_gather_by_direct,
    &tri_all_gather_by_doubling,
    &tri_all_gather_by_dissemination,
    &tri_all_gather_by_ring,
    &tri_reduce_scatter_by_direct,
    &tri_reduce_scatter_by_ring,
    &tri_barrier_by_dissemination,
    &tri_pair_by_link,
    &tri_tree_by_subtree,
    &tri_tree_by_parts,
    &tri_scatter_tree_by_subtree,
    &tri_scatter_tree_by_parts,
    &tri_gather_by_direct,
    &tri_gather_by_tree,
    &tri_scatter_by_direct,
    &tri_scatter_by_tree,
    &tri_all_to_all_by_direct,
    &tri_all_to_all_by_pairs,
    &tri_all_reduce_by_lane,
    &tri_reduce_by_lane,
    &tri_broadcast_by_lane,
    &tri_all_gather_by_lane,
    &tri_reduce_scatter_by_lane,
    &tri_gather_by_lane,
    &tri_scatter_by_lane,
    &tri_all_to_all_by_lane,
    &tri_barrier_by_lane,
    &tri_reduce_by_sharing,
    &tri_reduce_scatter_by_sharing,
    &tri_all_gather_by_sharing,
    &tri_all_to_all_by_sharing,
    &tri_broadcast_by_sharing,
    &tri_gather_by_sharing,
    &tri_scatter_by_sharing,
    &tri_all_reduce_by_hosts,
    &tri_reduce_scatter_by_hosts,
    &tri_all_gather_by_hosts,
    &tri_broadcast_by_hosts,
    &tri_barrier_by_hosts,
    NULL,
};

static const char *why_not(const tri_algorithm *algorithm, const tri_call *call)
{
    return algorithm->cannot ? algorithm->cannot(call) : NULL;
}

static const tri_algorithm *cheapest(const tri_call *call)
{
    const tri_group *group = call->group;
    int64_t nbytes = (int64_t)tri_call_nbytes(call, call->count);
    const tri_algorithm *chosen = NULL;
    double least_us = 0;
    for (int i = 0; tri_algorithms[i]; i++) {
        const tri_algorithm *algorithm = tri_algorithms[i];
        if (algorithm->op != call->op || why_not(algorithm, call))
            continue;
        double us = algorithm->cost_us(&group->price, group->count, (double)nbytes);
        if (!chosen || us < least_us) {
            chosen = algorithm;
            least_us = us;
        }
    }
    TRI_ASSERT(chosen); /* of each operation one row can always */
    return chosen;
}

const tri_algorithm *tri_algorithm_select(const tri_call *call)
{
    const tri_algorithm *rule =
        tri_rules_find(call->group->comm, call->op, (int64_t)tri_call_nbytes(call, call->count));
    return rule && !why_not(rule, call) ? rule : cheapest(call);
}

static bool is_chosen_for(tri_comm_op op)
{
    return op > 0 && op < TRI_COMM_OP_COUNT && op != TRI_COMM_BATCH;
}

/* A call of nbytes bytes, as f32 would make it. */
static tri_call call_of(const tri_group *group, tri_comm_op op, int64_t nbytes, const void *data)
{
    return (tri_call){.group = (tri_group *)(uintptr_t)group,
                      .op = op,
                      .dtype = nbytes % 4 ? TRI_U8 : TRI_F32,
                      .canonical = !group->comm->any_order || tri_comm_is_tree(op),
                      .count = nbytes % 4 ? nbytes : nbytes / 4,
                      .place = {group->count, 0, group->count},
                      .in = data,
                      .out = (void *)(uintptr_t)data};
}

const char *tri_comm_choice(const tri_group *group, tri_comm_op op, int64_t nbytes, const void *data)
{
    if (!is_chosen_for(op) || nbytes < 0)
        return "?";
    tri_call call = call_of(group, op, nbytes, data);
    return group->comm->engine ? tri_comm_engine(group->comm) : tri_algorithm_select(&call)->name;
}

tri_status tri_comm_explain(const tri_group *group, tri_comm_op op, int64_t nbytes, const void *data, tri_string *out)
{
    if (!is_chosen_for(op) || nbytes < 0)
        return tri_fail(TRI_EINVAL, "explain: want an operation and at least 0 bytes, got %d and %lld", (int)op,
                        (long long)nbytes);
    tri_call call = call_of(group, op, nbytes, data);
    const tri_algorithm *chosen = tri_algorithm_select(&call), *rule = tri_rules_find(group->comm, op, nbytes);
    TRI_TRY(tri_string_appendf(out, "%s of %lld bytes, %d ranks over %s\n", tri_comm_op_name(op), (long long)nbytes,
                               group->count, group->price.transport));
    if (group->comm->engine)
        return tri_string_appendf(out, "* %-14s %s\n", tri_comm_engine(group->comm), group->comm->engine->ops->does);
    for (int i = 0; tri_algorithms[i]; i++) {
        const tri_algorithm *algorithm = tri_algorithms[i];
        if (algorithm->op != op)
            continue;
        const char *reason = why_not(algorithm, &call);
        if (reason)
            TRI_TRY(tri_string_appendf(out, "  %-14s      cannot  %s%s\n", algorithm->name, reason,
                                       algorithm == rule ? " (though comm.algorithm asks for it)" : ""));
        else
            TRI_TRY(tri_string_appendf(out, "%c %-14s %9.1f us  %s%s\n", algorithm == chosen ? '*' : ' ',
                                       algorithm->name, algorithm->cost_us(&group->price, group->count, (double)nbytes),
                                       algorithm->does, algorithm == rule ? " (by comm.algorithm)" : ""));
    }
    return TRI_OK;
}
