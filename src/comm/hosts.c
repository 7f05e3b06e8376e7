/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts.c: finds out how a group is placed on hosts, from what every rank knows of all: nothing is sent.
 */
#include "comm/hosts.h"

#include <stdlib.h>
#include <string.h>

void tri_hosts_destroy(tri_hosts *hosts)
{
    if (!hosts)
        return;
    tri_group_destroy(hosts->local);
    tri_group_destroy(hosts->across);
    tri_free(hosts);
}

int tri_group_host_first(const tri_group *group, int rank)
{
    const tri_net *net = group->comm->net;
    int first = 0;
    while (tri_net_host_of(net, group->world_rank[first]) != tri_net_host_of(net, group->world_rank[rank]))
        first++;
    return first;
}

typedef struct host_rank {
    uint64_t host;
    int rank;
} host_rank;

static int host_rank_order(const void *a, const void *b)
{
    const host_rank *left = a, *right = b;
    if (left->host != right->host)
        return left->host < right->host ? -1 : 1;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

tri_status tri_group_hosts_first(const tri_group *group, int *first)
{
    const tri_net *net = group->comm->net;
    host_rank *all = tri_alloc((size_t)group->count * sizeof(*all));
    if (!all)
        return TRI_ENOMEM;
    for (int r = 0; r < group->count; r++)
        all[r] = (host_rank){tri_net_host_of(net, group->world_rank[r]), r};
    qsort(all, (size_t)group->count, sizeof(*all), host_rank_order);
    for (int i = 0; i < group->count; i++)
        first[all[i].rank] = i > 0 && all[i].host == all[i - 1].host ? first[all[i - 1].rank] : all[i].rank;
    tri_free(all);
    return TRI_OK;
}

bool tri_group_is_between_hosts(const tri_group *group)
{
    for (int r = 1; r < group->count; r++)
        if (tri_group_host_first(group, r) != 0)
            return true;
    return false;
}

/* host[r]: of each rank; the ranks of this rank's host, and those of its place on all hosts. */
static tri_status groups_make(tri_hosts *hosts, const tri_group *group, const int *host, int *world_ranks)
{
    enum { LOCAL = 0x10ca1, ACROSS = 0xac055 };
    int count = 0, place = 0, own = host[group->rank];
    for (int r = 0; r < group->count; r++) {
        if (host[r] != own)
            continue;
        if (r == group->rank)
            place = count;
        world_ranks[count++] = group->world_rank[r];
    }
    TRI_TRY(tri_group_create(group->comm, tri_group_inner_id(group, LOCAL, own), world_ranks, count, &hosts->local));
    count = 0;
    for (int h = 0; h < hosts->count; h++) {
        int before = 0;
        for (int r = 0; r < group->count; r++)
            if (host[r] == h && before++ == place)
                world_ranks[count++] = group->world_rank[r];
    }
    return tri_group_create(group->comm, tri_group_inner_id(group, ACROSS, place), world_ranks, count, &hosts->across);
}

static bool is_even(tri_hosts *hosts, const tri_group *group, const int *host, int *members)
{
    hosts->locals = group->count / hosts->count;
    hosts->ordered = true;
    memset(members, 0, (size_t)hosts->count * sizeof(*members));
    for (int r = 0; r < group->count; r++) {
        members[host[r]]++;
        hosts->ordered = hosts->ordered && host[r] == r / hosts->locals;
    }
    for (int h = 0; h < hosts->count; h++)
        if (members[h] != hosts->locals)
            return false;
    return true;
}

tri_status tri_hosts_make(tri_group *group, tri_hosts **out)
{
    size_t ranks = (size_t)group->count;
    int *host = tri_alloc_zero(ranks, sizeof(*host)), *work = tri_alloc_zero(ranks, sizeof(*work));
    tri_hosts *hosts = tri_alloc_zero(1, sizeof(*hosts));
    tri_status status = host && work && hosts ? tri_group_hosts_first(group, work) : TRI_ENOMEM;
    bool useful = false;
    if (status == TRI_OK) {
        for (int r = 0; r < group->count; r++) /* hosts in the order of their first ranks */
            host[r] = work[r] == r ? hosts->count++ : host[work[r]];
        useful = hosts->count > 1 && hosts->count < group->count && is_even(hosts, group, host, work);
    }
    if (useful)
        status = groups_make(hosts, group, host, work);
    tri_free(host);
    tri_free(work);
    if (!useful || status != TRI_OK) {
        tri_hosts_destroy(hosts);
        hosts = NULL;
    }
    *out = hosts;
    return status;
}
