/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c: which of the queued calls runs next, where calls have priorities.
 *
 * Ranks make the calls of a group in one order but not at one time, so what a rank has is a beginning of that order,
 * and what all ranks have is the shortest of these beginnings: its end is one number, agreed by a minimum over the
 * group. Among the calls up to there every rank chooses alike. A call without a priority stays in its place: nothing
 * passes it.
 */
#include "comm/run.h"

/* A new agreement pays when the calls run since the last one took this many times what it takes. */
#define WORTH 8

static double agreement_us(const tri_group *group)
{
    return group->price.latency_us * tri_log_ceil(group->count);
}

bool tri_order_is_open(const tri_comm *comm)
{
    const tri_work *first = comm->first;
    const tri_group *group = first->call.group;
    if (first->call.priority == 0)
        return false;
    return first->made > group->agreed || group->ordered_us >= WORTH * agreement_us(group);
}

uint64_t tri_order_reach(const tri_comm *comm)
{
    const tri_work *last = comm->first;
    while (last->next && last->next->call.priority != 0 && last->next->call.group == last->call.group)
        last = last->next;
    return last->made;
}

/* A group of its own numbers, or an agreement would be taken for a call of the group. */
static tri_status agreement_group(tri_group *group)
{
    enum { ORDER = 0x0de5 };
    if (group->order)
        return TRI_OK;
    return tri_group_create(group->comm, tri_group_inner_id(group, ORDER, 0), group->world_rank, group->count,
                            &group->order);
}

tri_status tri_order_call(tri_group *group, int64_t *reach, tri_call *call)
{
    TRI_TRY(agreement_group(group));
    atomic_store(&group->order->timeout_ms, atomic_load(&group->timeout_ms));
    *call = (tri_call){.group = group->order,
                       .op = TRI_COMM_ALL_REDUCE,
                       .dtype = TRI_I64,
                       .reduce = TRI_REDUCE_MIN,
                       .canonical = true,
                       .count = 1,
                       .in = reach,
                       .out = reach,
                       .scale = 1,
                       .name = "which call is next"};
    tri_call_number(call);
    return TRI_OK;
}

void tri_order_agreed(tri_group *group, int64_t reach)
{
    group->agreed = (uint64_t)reach;
    group->ordered_us = 0;
}

/* Numbers of calls go up in the order in which they run, here as everywhere: the one that goes first takes the lowest
 * of those that wait. */
static void numbers_exchange(tri_work *one, tri_work *lowest)
{
    uint64_t sequence = one->call.frame.sequence;
    one->call.frame.sequence = lowest->call.frame.sequence;
    lowest->call.frame.sequence = sequence;
}

tri_work *tri_order_take(tri_comm *comm)
{
    tri_work *best = comm->first, *before = NULL, *lowest = best;
    tri_group *group = best->call.group;
    for (tri_work *at = best; best->call.priority != 0 && at->next; at = at->next) {
        tri_work *next = at->next;
        if (next->call.priority == 0 || next->call.group != group || next->made > group->agreed)
            break;
        if (next->call.frame.sequence < lowest->call.frame.sequence)
            lowest = next;
        if (next->call.priority < best->call.priority) {
            best = next;
            before = at;
        }
    }
    numbers_exchange(best, lowest);
    if (before)
        before->next = best->next;
    else
        comm->first = best->next;
    if (comm->last == best)
        comm->last = before;
    if (best->call.priority != 0)
        group->ordered_us += group->price.us_per_byte * (double)tri_call_nbytes(&best->call, best->call.count);
    return best;
}
