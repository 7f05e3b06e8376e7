/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: which parts each rank holds and in which order they are added; worked out once and kept in the group.
 */
#include <string.h>

#include "comm/run.h"

void tri_plan_fini(tri_plan *plan)
{
    tri_free(plan->first_slot);
    tri_free(plan->steps);
    *plan = (tri_plan){0};
}

/* Parts of all ranks, in leaf order; NULL: counted. */
static int parts_list(const tri_group *group, tri_tree_place place, int *first_slot, tri_tree_part *parts)
{
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    int slot_count = 0;
    for (int r = 0; r < group->count; r++) {
        int rank = place.first + r;
        int count = tri_tree_parts(place.leaves, tri_tree_first(place.leaves, rank, place.ranks),
                                   tri_tree_count(place.leaves, rank, place.ranks), own);
        first_slot[r] = slot_count;
        if (parts)
            memcpy(parts + slot_count, own, (size_t)count * sizeof(own[0]));
        slot_count += count;
    }
    first_slot[group->count] = slot_count;
    return slot_count;
}

/* Whole subtrees of the group's leaves, one after the other. */
static void roots_plan(tri_plan *plan, const tri_tree_part *parts, int64_t end)
{
    tri_tree_part roots[TRI_TREE_MAX_PARTS];
    int64_t first = plan->slot_count > 0 ? parts[0].first : end;
    plan->root_count = tri_tree_parts(plan->place.leaves, first, end - first, roots);
    for (int k = 0, low = 0; k < plan->root_count; k++) {
        int high = low, begun = plan->step_count;
        while (high < plan->slot_count && parts[high].first < roots[k].first + roots[k].count)
            high++;
        plan->step_count += tri_tree_plan(parts + low, high - low, plan->steps + begun);
        for (int i = begun; i < plan->step_count; i++)
            plan->steps[i] = (tri_tree_step){.into = plan->steps[i].into + low, .from = plan->steps[i].from + low};
        plan->roots[k] = (tri_plan_root){low, begun, plan->step_count};
        low = high;
    }
}

static tri_status tree_plan(const tri_group *group, tri_plan *plan)
{
    tri_tree_place place = plan->place;
    plan->slot_count = parts_list(group, place, plan->first_slot, NULL);
    plan->steps = tri_alloc_zero((size_t)plan->slot_count + 1, sizeof(*plan->steps));
    tri_tree_part *parts = tri_alloc_zero((size_t)plan->slot_count + 1, sizeof(*parts));
    if (!plan->steps || !parts) {
        tri_free(parts);
        return TRI_ENOMEM;
    }
    parts_list(group, place, plan->first_slot, parts);
    roots_plan(plan, parts, tri_tree_first(place.leaves, place.first + group->count, place.ranks));
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
    plan->root_count = 1;
    plan->roots[0] = (tri_plan_root){0, 0, plan->step_count};
    return TRI_OK;
}

static bool is_same(tri_tree_place a, tri_tree_place b)
{
    return a.leaves == b.leaves && a.first == b.first && a.ranks == b.ranks;
}

tri_status tri_plan_find(tri_group *group, tri_tree_place place, const tri_plan **out)
{
    tri_plan *plan = place.leaves ? &group->tree_plan : &group->rank_plan;
    *out = plan;
    if (plan->first_slot && is_same(plan->place, place))
        return TRI_OK;
    tri_plan_fini(plan);
    plan->place = place;
    plan->first_slot = tri_alloc_zero((size_t)group->count + 1, sizeof(int));
    tri_status status = TRI_ENOMEM;
    if (plan->first_slot)
        status = place.leaves ? tree_plan(group, plan) : rank_plan(group->count, plan);
    if (status != TRI_OK)
        tri_plan_fini(plan);
    return status;
}
