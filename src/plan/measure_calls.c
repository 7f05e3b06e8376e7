/* SPDX-License-Identifier: Apache-2.0
 *
 * measure_calls.c: times calls of two lengths in all groups of a length at once, as a step makes them, and draws a line
 * through both. Memory is the group's, where gradients are, but for sums of values that a rank has for itself.
 */
#include "plan/measure_calls.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"

enum { LITTLE = 1 << 12, MUCH = 1 << 20, TURNS = 9, WARM = 2 };

typedef struct trial {
    tri_group *group;
    int rank, count;
    float *values, *whole; /* MUCH bytes each; values: the group's memory */
    tri_plan_call call;
    int64_t nbytes;
} trial;

static tri_status pass_on(const trial *t, int64_t count)
{
    int peer = t->rank ^ 1;
    if (peer >= t->count)
        return TRI_OK;
    if (t->rank & 1) {
        TRI_TRY(tri_receive(t->group, t->whole, count, TRI_F32, peer, NULL));
        return tri_send(t->group, t->values, count, TRI_F32, peer, NULL);
    }
    TRI_TRY(tri_send(t->group, t->values, count, TRI_F32, peer, NULL));
    return tri_receive(t->group, t->whole, count, TRI_F32, peer, NULL);
}

static tri_status trial_call(const trial *t)
{
    int64_t count = t->nbytes / (int64_t)sizeof(float), share = count / t->count > 0 ? count / t->count : 1;
    switch (t->call) {
    case TRI_PLAN_SUM:
        return tri_all_reduce(t->group, t->values, t->values, count, TRI_F32, TRI_REDUCE_SUM, NULL);
    case TRI_PLAN_OWN_SUM:
        return tri_all_reduce(t->group, t->whole, t->whole, count, TRI_F32, TRI_REDUCE_SUM, NULL);
    case TRI_PLAN_SCATTER:
        return tri_reduce_scatter(t->group, t->values, t->whole, share, TRI_F32, TRI_REDUCE_SUM, NULL);
    case TRI_PLAN_GATHER:
        return tri_all_gather(t->group, t->whole + t->rank * share, t->whole, share, TRI_F32, NULL);
    default:
        return pass_on(t, count);
    }
}

static int by_length(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle of some turns. */
static tri_status trial_s(const trial *t, double *seconds)
{
    double each[TURNS];
    for (int turn = -WARM; turn < TURNS; turn++) {
        TRI_TRY(tri_barrier(t->group, NULL));
        int64_t start_ns = tri_now_ns();
        TRI_TRY(trial_call(t));
        if (turn >= 0)
            each[turn] = (double)(tri_now_ns() - start_ns) / 1e9 / (t->call == TRI_PLAN_MESSAGE ? 2 : 1);
    }
    qsort(each, TURNS, sizeof(each[0]), by_length);
    *seconds = each[TURNS / 2];
    return TRI_OK;
}

static tri_status rates_measure(const tri_plan_crew *crew, trial *t, tri_plan_rate *rates)
{
    double figures[2 * TRI_PLAN_CALL_COUNT];
    for (int call = 0; call < TRI_PLAN_CALL_COUNT; call++) {
        for (int much = 0; much < 2; much++) {
            t->call = (tri_plan_call)call;
            t->nbytes = much ? MUCH : LITTLE;
            TRI_TRY(trial_s(t, &figures[2 * call + much]));
        }
    }
    TRI_TRY(tri_plan_crew_agree(crew, figures, 2 * TRI_PLAN_CALL_COUNT));
    for (int call = 0; call < TRI_PLAN_CALL_COUNT; call++) {
        double slope = fmax(0, (figures[2 * call + 1] - figures[2 * call]) / (MUCH - LITTLE));
        rates[call] = (tri_plan_rate){fmax(0, figures[2 * call] - slope * LITTLE), slope};
    }
    return TRI_OK;
}

/* far: members are as far apart as they can be. */
static tri_status group_measure(const tri_plan_crew *crew, int count, bool far, tri_plan_rate *rates)
{
    tri_group *world = tri_comm_world(crew->comm);
    int rank = tri_group_rank(world), others = tri_group_count(world) / count;
    void *memory = NULL;
    trial t = {.count = count};
    TRI_TRY(tri_group_split(world, far ? rank % others : rank / count, rank, &t.group));
    t.rank = tri_group_rank(t.group);
    t.whole = tri_alloc_bulk(MUCH);
    tri_status status = t.whole ? tri_group_alloc(t.group, MUCH, &memory) : TRI_ENOMEM;
    t.values = memory;
    if (status == TRI_OK)
        status = rates_measure(crew, &t, rates);
    tri_group_free(t.group, memory);
    tri_free(t.whole);
    tri_group_destroy(t.group);
    return status;
}

tri_status tri_plan_calls_measure(const tri_plan_crew *crew, tri_plan_cluster *cluster)
{
    int world = tri_plan_crew_count(crew);
    for (int count = 2; count <= world && cluster->group_count < TRI_PLAN_GROUPS_MAX; count++) {
        if (world % count != 0)
            continue;
        tri_plan_group *group = &cluster->groups[cluster->group_count++];
        group->count = count;
        TRI_TRY(group_measure(crew, count, false, group->rate[0]));
        if (cluster->host_count > 1)
            TRI_TRY(group_measure(crew, count, true, group->rate[1]));
    }
    return TRI_OK;
}
