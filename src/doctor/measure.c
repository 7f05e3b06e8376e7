/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: latency, bandwidth and clock skew between ranks, over the links that training uses.
 *
 * Two ranks play ping-pong; the lower one decides how long, and says so in what it sends, so that a slow link costs a
 * few round trips and a fast one gets enough of them. Pairs meet in the rounds of a tournament.
 */
#include <stdlib.h>

#include "doctor/doctor.h"

#define LATENCY_ROUNDS    1001
#define LATENCY_LEAST     3
#define LATENCY_NS        (5 * TRI_NS_PER_MS)
#define BANDWIDTH_NS      (5 * TRI_NS_PER_MS)
#define BANDWIDTH_LONG_NS (500 * TRI_NS_PER_MS)
#define BANDWIDTH_ROUNDS  4
#define FIRST_NBYTES      (INT64_C(64) << 10)
#define LAST_NBYTES       (INT64_C(4) << 20)
#define SKEW_ROUNDS       8
#define ALONE_RANKS       32
#define ALL_RANKS         64

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static tri_status ping(tri_group *group, int peer, void *bytes, int64_t count)
{
    TRI_TRY(tri_send(group, bytes, count, TRI_U8, peer, NULL));
    return tri_receive(group, bytes, count, TRI_U8, peer, NULL);
}

static tri_status pong(tri_group *group, int peer, void *bytes, int64_t count)
{
    TRI_TRY(tri_receive(group, bytes, count, TRI_U8, peer, NULL));
    return tri_send(group, bytes, count, TRI_U8, peer, NULL);
}

/* The lower rank's side. The word that travels says whether another one comes. */
static tri_status lead_latency(tri_group *group, int peer, double *latency_us)
{
    double times_us[LATENCY_ROUNDS];
    int64_t first_ns = tri_now_ns(), more = 1;
    size_t count = 0;

    while (more) {
        int64_t start_ns = tri_now_ns();

        more = count + 1 < LATENCY_ROUNDS && (count + 1 < LATENCY_LEAST || start_ns - first_ns < LATENCY_NS);
        TRI_TRY(ping(group, peer, &more, sizeof more));
        times_us[count++] = (double)(tri_now_ns() - start_ns) / 2e3;
    }
    qsort(times_us, count, sizeof times_us[0], compare);
    *latency_us = times_us[count / 4]; /* what others of the machine did in between is not the link's */
    return TRI_OK;
}

static tri_status follow_latency(tri_group *group, int peer)
{
    int64_t more = 1;

    while (more)
        TRI_TRY(pong(group, peer, &more, sizeof more));
    return TRI_OK;
}

/* Some rounds of each length, longer ones as long as they are short. Each is announced by its bytes; 0 ends. */
static tri_status lead_bandwidth(tri_group *group, int peer, void *bytes, double *bytes_per_second)
{
    int64_t none = 0, best_ns = 0;

    *bytes_per_second = 0;
    for (int64_t nbytes = FIRST_NBYTES; nbytes <= LAST_NBYTES && best_ns < BANDWIDTH_NS; nbytes *= 4) {
        int64_t first_ns = tri_now_ns();

        best_ns = INT64_MAX;
        for (int i = 0; i < BANDWIDTH_ROUNDS && tri_now_ns() - first_ns < BANDWIDTH_LONG_NS; i++) {
            int64_t start_ns, took_ns;

            TRI_TRY(tri_send(group, &nbytes, sizeof nbytes, TRI_U8, peer, NULL));
            start_ns = tri_now_ns();
            TRI_TRY(ping(group, peer, bytes, nbytes));
            took_ns = tri_now_ns() - start_ns + 1;
            best_ns = took_ns < best_ns ? took_ns : best_ns;
        }
        if (2e9 * (double)nbytes / (double)best_ns > *bytes_per_second)
            *bytes_per_second = 2e9 * (double)nbytes / (double)best_ns;
    }
    return tri_send(group, &none, sizeof none, TRI_U8, peer, NULL);
}

static tri_status follow_bandwidth(tri_group *group, int peer, void *bytes)
{
    for (;;) {
        int64_t nbytes;

        TRI_TRY(tri_receive(group, &nbytes, sizeof nbytes, TRI_U8, peer, NULL));
        if (nbytes <= 0 || nbytes > LAST_NBYTES)
            return TRI_OK;
        TRI_TRY(pong(group, peer, bytes, nbytes));
    }
}

static tri_status measure_pair(tri_comm *comm, int a, int b, void *bytes, tri_vector *pairs)
{
    tri_group *world = tri_comm_world(comm);
    tri_pair pair = {.a = a, .b = b};

    if (tri_group_rank(world) == b) {
        TRI_TRY(follow_latency(world, a));
        return follow_bandwidth(world, a, bytes);
    }
    TRI_TRY(lead_latency(world, b, &pair.latency_us));
    TRI_TRY(lead_bandwidth(world, b, bytes, &pair.bytes_per_second));
    TRI_FINDING_SET(pair.transport, "%s", tri_comm_transport(comm, b));
    return tri_vector_push(pairs, &pair) ? TRI_OK : TRI_ENOMEM;
}

static bool is_wanted(int world, int a, int b)
{
    int apart = b - a;

    return b < world && (world <= ALL_RANKS || (apart & (apart - 1)) == 0);
}

/* Who meets in a round of `players` (even): the last stands still, the others turn. */
static void meet(int players, int round, int place, int *a, int *b)
{
    int turning = players - 1;
    int one = place == 0 ? turning : (round + place) % turning;
    int other = place == 0 ? round % turning : (round + turning - place) % turning;

    *a = one < other ? one : other;
    *b = one < other ? other : one;
}

static tri_status measure_pairs(tri_comm *comm, void *bytes, tri_vector *pairs)
{
    tri_group *group = tri_comm_world(comm);
    int rank = tri_group_rank(group), world = tri_group_count(group), players = world + world % 2;
    bool alone = world <= ALONE_RANKS;

    for (int round = 0; round < players - 1; round++) {
        for (int place = 0; place < players / 2; place++) {
            int a, b;

            meet(players, round, place, &a, &b);
            if (is_wanted(world, a, b) && (rank == a || rank == b))
                TRI_TRY(measure_pair(comm, a, b, bytes, pairs));
            if (alone)
                TRI_TRY(tri_barrier(group, NULL));
        }
        if (!alone)
            TRI_TRY(tri_barrier(group, NULL));
    }
    return TRI_OK;
}

/* The round trip that took the shortest says most about what is between the clocks. */
static tri_status measure_skew(tri_group *group, tri_job_facts *job)
{
    int rank = tri_group_rank(group), world = tri_group_count(group);

    for (int i = 0; rank > 0 && i < SKEW_ROUNDS; i++) {
        int64_t wall_ns;

        TRI_TRY(tri_receive(group, &wall_ns, 1, TRI_I64, 0, NULL));
        wall_ns = tri_wall_ns();
        TRI_TRY(tri_send(group, &wall_ns, 1, TRI_I64, 0, NULL));
    }
    for (int peer = 1; rank == 0 && peer < world; peer++) {
        int64_t best_ns = INT64_MAX;

        for (int i = 0; i < SKEW_ROUNDS; i++) {
            int64_t before_ns = tri_wall_ns(), start_ns = tri_now_ns(), wall_ns = 0, took_ns;

            TRI_TRY(tri_send(group, &wall_ns, 1, TRI_I64, peer, NULL));
            TRI_TRY(tri_receive(group, &wall_ns, 1, TRI_I64, peer, NULL));
            took_ns = tri_now_ns() - start_ns;
            if (took_ns >= best_ns)
                continue;
            best_ns = took_ns;
            job->skew_s[peer] = ((double)(wall_ns - before_ns) - (double)took_ns / 2) / 1e9;
            job->skew_error_s[peer] = (double)took_ns / 2e9;
        }
    }
    return TRI_OK;
}

tri_status tri_job_measure(tri_comm *comm, tri_job_facts *job)
{
    void *bytes = tri_alloc_bulk((size_t)LAST_NBYTES);
    tri_status status = bytes ? TRI_OK : TRI_ENOMEM;

    if (status == TRI_OK)
        status = measure_pairs(comm, bytes, &job->pairs);
    if (status == TRI_OK)
        status = measure_skew(tri_comm_world(comm), job);
    tri_free(bytes);
    job->measured = status == TRI_OK;
    return status;
}
