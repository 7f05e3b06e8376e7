/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: some of the ranks, in an order of their own.
 *
 * A group's id is worked out by every member alone from what all know: the parent's id, how often the parent was split,
 * and the color; or a tag and the ranks. It is in every frame, so that calls of different groups are never taken for
 * one another.
 */
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "comm/hosts.h"
#include "comm/lane.h"

uint32_t tri_group_inner_id(const tri_group *group, uint32_t kind, int index)
{
    const uint32_t origin[3] = {group->id, kind, (uint32_t)index};
    return (uint32_t)XXH3_64bits(origin, sizeof(origin));
}

tri_status tri_group_create(tri_comm *comm, uint32_t id, const int *world_ranks, int count, tri_group **out)
{
    tri_group *group = tri_alloc_zero(1, sizeof(*group));
    if (!group)
        return TRI_ENOMEM;
    *group =
        (tri_group){.comm = comm, .id = id, .rank = -1, .count = count, .scale = 1, .timeout_ms = comm->timeout_ms};
    group->world_rank = tri_alloc_zero((size_t)count, sizeof(int));
    group->sent = tri_alloc_zero((size_t)count, sizeof(uint64_t));
    group->received = tri_alloc_zero((size_t)count, sizeof(uint64_t));
    if (!group->world_rank || !group->sent || !group->received) {
        tri_group_destroy(group);
        return TRI_ENOMEM;
    }
    for (int r = 0; r < count; r++) {
        group->world_rank[r] = world_ranks ? world_ranks[r] : r;
        if (group->world_rank[r] == comm->rank)
            group->rank = r;
    }
    TRI_ASSERT(group->rank >= 0);
    group->members = tri_board_members(group->world_rank, count);
    group->price = tri_price_of_group(group);
    tri_status status = tri_hosts_make(group, &group->hosts);
    if (status != TRI_OK) {
        tri_group_destroy(group);
        return status;
    }
    *out = group;
    return TRI_OK;
}

/* Works after its comm is gone. */
void tri_group_destroy(tri_group *group)
{
    if (!group)
        return;
    tri_batch_destroy(group->collecting);
    tri_lane_close(group->lane);
    tri_hosts_destroy(group->hosts);
    tri_group_destroy(group->order);
    tri_plan_fini(&group->rank_plan);
    tri_plan_fini(&group->tree_plan);
    tri_free(group->world_rank);
    tri_free(group->sent);
    tri_free(group->received);
    tri_free(group);
}

static tri_status check_members(const tri_comm *comm, const int *ranks, int count)
{
    if (!ranks || count < 1 || count > comm->world)
        return tri_fail(TRI_EINVAL, "group: want 1 to %d ranks, got %d", comm->world, ranks ? count : 0);
    bool *seen = tri_alloc_zero((size_t)comm->world, sizeof(*seen));
    if (!seen)
        return TRI_ENOMEM;
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->world)
            status = tri_fail(TRI_EINVAL, "group: want ranks from 0 to %d, got %d", comm->world - 1, ranks[i]);
        else if (seen[ranks[i]])
            status = tri_fail(TRI_EINVAL, "group: want different ranks, got %d twice", ranks[i]);
        else
            seen[ranks[i]] = true;
    }
    if (status == TRI_OK && !seen[comm->rank])
        status = tri_fail(TRI_EINVAL, "group: want this rank (%d) among the members", comm->rank);
    tri_free(seen);
    return status;
}

tri_status tri_group_create_of(tri_comm *comm, const int *ranks, int count, const char *tag, tri_group **out)
{
    *out = NULL;
    TRI_TRY(check_members(comm, ranks, count));
    const char *text = tag ? tag : "";
    uint64_t hash = XXH3_64bits_withSeed(ranks, (size_t)count * sizeof(*ranks), XXH3_64bits(text, strlen(text)));
    return tri_group_create(comm, (uint32_t)hash, ranks, count, out);
}

tri_status tri_group_limit(tri_group *group, double timeout_s)
{
    if (!(timeout_s > 0 && timeout_s <= 1e6))
        return tri_fail(TRI_EINVAL, "group: want a time limit above 0 and at most 1e6 seconds, got %g", timeout_s);
    int64_t ms = (int64_t)(timeout_s * 1000 + 0.5);
    atomic_store(&group->timeout_ms, ms > 0 ? ms : 1);
    return TRI_OK;
}

double tri_group_limit_now(const tri_group *group)
{
    return (double)atomic_load(&group->timeout_ms) / 1000;
}

int tri_group_rank(const tri_group *group)
{
    return group->rank;
}

int tri_group_count(const tri_group *group)
{
    return group->count;
}

void tri_group_scale_next(tri_group *group, double factor)
{
    group->scale = factor;
}

void tri_group_priority_next(tri_group *group, unsigned priority)
{
    group->priority = priority;
}

void tri_group_name_next(tri_group *group, const char *name)
{
    tri_mutex_lock(&group->comm->mutex);
    snprintf(group->name, sizeof(group->name), "%s", name ? name : "");
    tri_mutex_unlock(&group->comm->mutex);
}
