/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: which parts each rank holds and in which order they are added; worked out once and kept in the group.
 */
#include <string.h>

#include "comm/comm_impl.h"

void tri_plan_fini(tri_plan *plan)
{
    tri_free(plan->first_slot);
    tri_free(plan->steps);
    *plan = (tri_plan){0};
}

/* Parts of all ranks, in leaf order. */
static tri_status tree_plan(int ranks, int64_t leaves, tri_plan *plan)
{
    size_t slot_count = 0;
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    for (int r = 0; r < ranks; r++) {
        plan->first_slot[r] = (int)slot_count;
        slot_count +=
            (size_t)tri_tree_parts(leaves, tri_tree_first(leaves, r, ranks), tri_tree_count(leaves, r, ranks), own);
    }
    plan->first_slot[ranks] = (int)slot_count;
    plan->slot_count = (int)slot_count;
    plan->steps = tri_alloc_zero(slot_count, sizeof(*plan->steps));
    tri_tree_part *parts = tri_alloc_zero(slot_count, sizeof(*parts));
    if (!plan->steps || !parts) {
        tri_free(parts);
        return TRI_ENOMEM;
    }
    for (int r = 0; r < ranks; r++) {
        int count = tri_tree_parts(leaves, tri_tree_first(leaves, r, ranks), tri_tree_count(leaves, r, ranks), own);
        memcpy(parts + plan->first_slot[r], own, (size_t)count * sizeof(own[0]));
    }
    plan->step_count = tri_tree_plan(parts, plan->slot_count, plan->steps);
    tri_free(parts);
    return TRI_OK;
}

static tri_status rank_plan(int ranks, tri_plan *plan)
{
    for (int r = 0; r <= ranks; r++)
        plan->first_slot[r] = r;
    plan->slot_count = ranks;
    plan->steps = tri_alloc_zero((size_t)ranks, sizeof(*plan->steps));
    if (!plan->steps)
        return TRI_ENOMEM;
    plan->step_count = tri_tree_plan_leaves(ranks, plan->steps);
    return TRI_OK;
}

tri_status tri_plan_find(tri_group *group, int64_t leaves, const tri_plan **out)
{
    tri_plan *plan = leaves ? &group->tree_plan : &group->rank_plan;
    *out = plan;
    if (plan->first_slot && plan->leaves == leaves)
        return TRI_OK;
    tri_plan_fini(plan);
    plan->leaves = leaves;
    plan->first_slot = tri_alloc_zero((size_t)group->count + 1, sizeof(int));
    tri_status status = TRI_ENOMEM;
    if (plan->first_slot)
        status = leaves ? tree_plan(group->count, leaves, plan) : rank_plan(group->count, plan);
    if (status != TRI_OK)
        tri_plan_fini(plan);
    return status;
}
