/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.c: what ranks of a cluster pay for what they do together, and what they have.
 *
 * Described links: a call of ranks on several hosts goes through each host first, then between the hosts, whose
 * interface all groups of a host share. Measured groups: what was measured, nearest in length.
 */
#include "plan/cluster.h"

#include <math.h>

#include "base/status.h"

void tri_plan_cluster_fini(tri_plan_cluster *cluster)
{
    tri_arena_fini(&cluster->arena);
    *cluster = (tri_plan_cluster){0};
}

tri_status tri_plan_cluster_cut(tri_plan_cluster *cluster, int workers)
{
    if (workers < 1 || workers > cluster->workers)
        return tri_fail(TRI_ECONFIG, "-n: want 1 to %d workers, as many as the cluster has, got %d", cluster->workers,
                        workers);
    tri_plan_place at = {0};
    int hosts = tri_plan_host_next(cluster, &at, workers - 1) + 1;
    tri_plan_host *last = &cluster->hosts[at.kind];
    int full = (workers - at.rank) / last->workers, rest = (workers - at.rank) % last->workers;
    if (full > 0 && rest > 0) { /* the last host is of a kind of its own */
        last->count = full;
        last[1] = last[0];
        last++;
    }
    last->count = rest > 0 ? 1 : full;
    last->workers = rest > 0 ? rest : last->workers;
    cluster->kind_count = (int)(last - cluster->hosts) + 1;
    cluster->host_count = hosts;
    cluster->workers = workers;
    return TRI_OK;
}

int tri_plan_host_next(const tri_plan_cluster *cluster, tri_plan_place *at, int rank)
{
    const tri_plan_host *kind = &cluster->hosts[at->kind];
    for (; at->kind + 1 < cluster->kind_count && rank - at->rank >= kind->count * kind->workers; kind++) {
        at->kind++;
        at->host += kind->count;
        at->rank += kind->count * kind->workers;
    }
    return at->host + (rank - at->rank) / kind->workers;
}

/* Bytes of a value are read, its gradient and its states too; value and states are written. */
double tri_plan_optim_s(const tri_plan_cluster *cluster, int states)
{
    double slowest = cluster->optim_s_per_value;
    for (int h = 0; h < cluster->kind_count; h++)
        if (cluster->hosts[h].memory_rate > 0)
            slowest = fmax(slowest, 4.0 * (3 + 2 * states) / cluster->hosts[h].memory_rate);
    return slowest;
}

double tri_plan_norm_s(const tri_plan_cluster *cluster)
{
    double slowest = cluster->norm_s_per_value;
    for (int h = 0; h < cluster->kind_count; h++)
        if (cluster->hosts[h].memory_rate > 0)
            slowest = fmax(slowest, 4.0 / cluster->hosts[h].memory_rate);
    return slowest;
}

double tri_plan_worker_memory(const tri_plan_cluster *cluster)
{
    double least = INFINITY;
    for (int h = 0; h < cluster->kind_count; h++)
        least = fmin(least, cluster->hosts[h].memory_nbytes / cluster->hosts[h].workers);
    return least;
}

double tri_plan_price(const tri_plan_cluster *cluster)
{
    double price = 0;
    for (int h = 0; h < cluster->kind_count; h++)
        price += cluster->hosts[h].count * cluster->hosts[h].price_per_hour;
    return price;
}

/* --- calls --- */

static int log_ceil(int count)
{
    int log = 0;
    while ((INT64_C(1) << log) < count)
        log++;
    return log;
}

/* Where the members of the group of `rank` are: on how many hosts, most of them on one, with that number of workers. */
typedef struct spread {
    int hosts, most, workers;
} spread;

static spread spread_of(const tri_plan_cluster *cluster, tri_plan_edge edge, int rank)
{
    spread v = {0};
    tri_plan_place at = {0};
    int last = -1, here = 0;
    for (int i = 0; i < edge.count; i++) {
        int host = tri_plan_host_next(cluster, &at, rank + i * edge.stride);
        here = host == last ? here + 1 : 1;
        v.hosts += host != last;
        if (here > v.most) {
            v.most = here;
            v.workers = cluster->hosts[at.kind].workers;
        }
        last = host;
    }
    return v;
}

static double link_s(tri_plan_link link, double messages, double nbytes)
{
    return messages * link.latency_s + nbytes / link.bytes_per_s;
}

static double ways_of(tri_plan_call call)
{
    return call == TRI_PLAN_SUM || call == TRI_PLAN_OWN_SUM ? 2 : 1;
}

static double group_s(const tri_plan_cluster *cluster, tri_plan_edge edge, int rank, tri_plan_call call, double nbytes)
{
    spread at = spread_of(cluster, edge, rank);
    double ways = ways_of(call), groups = (double)at.workers / at.most;
    if (call == TRI_PLAN_MESSAGE)
        return at.hosts > 1 ? link_s(cluster->network, 1, nbytes * at.workers) : link_s(cluster->local, 1, nbytes);
    /* Shares are blocks of different lengths, which every rank sends to their owners itself (comm/alg_direct.c). */
    if (call == TRI_PLAN_SCATTER)
        groups *= at.most;
    double seconds = link_s(cluster->local, ways * log_ceil(at.most), ways * nbytes * (at.most - 1) / at.most);
    if (at.hosts > 1)
        seconds +=
            link_s(cluster->network, ways * log_ceil(at.hosts), ways * nbytes * (at.hosts - 1) / at.hosts * groups);
    return seconds;
}

/* The measured group of that many ranks, or the next larger one, or the largest. */
static const tri_plan_group *measured_group(const tri_plan_cluster *cluster, int count)
{
    const tri_plan_group *found = NULL;
    for (int i = 0; i < cluster->group_count; i++) {
        const tri_plan_group *at = &cluster->groups[i];
        if (!found || (at->count >= count && (found->count < count || at->count < found->count)) ||
            (found->count < count && at->count > found->count))
            found = at;
    }
    return found;
}

static int last_rank_of_first(const tri_plan_cluster *cluster, tri_plan_edge edge)
{
    int first = cluster->workers - 1 - (edge.count - 1) * edge.stride;
    return first > 0 ? first : 0;
}

/* Sums over the batch, and gathers of weights, of cards of one host. */
static bool is_between_cards(const tri_plan_cluster *cluster, tri_plan_edge edge, tri_plan_call call)
{
    const bool of_batch = call == TRI_PLAN_SUM || call == TRI_PLAN_SCATTER || call == TRI_PLAN_GATHER;
    return cluster->card_rate > 0 && of_batch && spread_of(cluster, edge, 0).hosts == 1 &&
           spread_of(cluster, edge, last_rank_of_first(cluster, edge)).hosts == 1;
}

double tri_plan_call_s(const tri_plan_cluster *cluster, tri_plan_edge edge, tri_plan_call call, double nbytes)
{
    if (edge.count <= 1)
        return 0;
    if (is_between_cards(cluster, edge, call))
        return ways_of(call) * TRI_PLAN_CARD_LATENCY_S + tri_plan_call_nbytes(edge, call, nbytes) / cluster->card_rate;
    const tri_plan_group *group = measured_group(cluster, call == TRI_PLAN_MESSAGE ? 2 : edge.count);
    if (group) {
        spread at = spread_of(cluster, edge, 0);
        const tri_plan_rate *rate = &group->rate[at.hosts > 1][call];
        return rate->latency_s + nbytes * rate->s_per_byte;
    }
    return fmax(group_s(cluster, edge, 0, call, nbytes),
                group_s(cluster, edge, last_rank_of_first(cluster, edge), call, nbytes));
}

double tri_plan_call_nbytes(tri_plan_edge edge, tri_plan_call call, double nbytes)
{
    if (edge.count <= 1)
        return 0;
    if (call == TRI_PLAN_MESSAGE)
        return nbytes;
    return ways_of(call) * nbytes * (edge.count - 1) / edge.count;
}

bool tri_plan_call_hides(const tri_plan_cluster *cluster, tri_plan_edge edge)
{
    return is_between_cards(cluster, edge, TRI_PLAN_SUM) ? true
           : spread_of(cluster, edge, 0).hosts > 1       ? cluster->hides_network
                                                         : cluster->hides_local;
}
