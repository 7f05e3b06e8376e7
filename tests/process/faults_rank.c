/* SPDX-License-Identifier: Apache-2.0
 *
 * faults_rank.c: one rank under faults: sums without end, checks the sums, tells how it failed.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "process/faults.h"

static tri_status sum_once(tri_comm *comm, tri_rng rng, uint64_t call, float *data, report *mine)
{
    int64_t count = all.kib * 256 >> tri_rng_below(rng, call, 15);
    int world = tri_group_count(tri_comm_world(comm));

    for (int64_t i = 0; i < count; i += 64)
        data[i] = 1;
    TRI_TRY(tri_all_reduce(tri_comm_world(comm), data, data, count, TRI_F32, TRI_REDUCE_SUM, NULL));
    for (int64_t i = 0; i < count; i += 64)
        mine->wrong |= data[i] != (float)world;
    return TRI_OK;
}

static tri_status rank_open(int rank, tri_cluster *cluster, tri_comm **comm)
{
    char url[128];
    int64_t deadline_ns = tri_deadline_after_ms(20000);
    tri_comm_config config;
    tri_net_config net;

    *cluster = (tri_cluster){.started_by = "faults",
                             .rank = rank,
                             .world = (int)all.ranks,
                             .local_rank = rank,
                             .local_world = (int)all.ranks};
    snprintf(cluster->token, sizeof cluster->token, TOKEN);
    snprintf(url, sizeof url, "file://%s", all.folder);
    TRI_TRY(tri_store_open(url, TOKEN, deadline_ns, &cluster->store));
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    net.timeout_s = 60;
    net.heartbeat_ms = all.beat_ms;
    (void)tri_options_set(&tri_net_options, &net, "transport", all.transport);
    return tri_comm_open(cluster, &config, &net, deadline_ns, comm);
}

bool faults_shell(const char *format, ...)
{
    char command[512];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

/* What goes out on connections that carry data is routed to nowhere. Those of the watch have a limit of their own. */
static void data_lose(void *arg)
{
    const report *mine = arg;

    while (!atomic_load(&mine->loses))
        tri_sleep_ns(TRI_NS_PER_MS);
    (void)faults_shell("ip link add nowhere type veth peer name wall && ip link set wall arp off up && "
                       "ip link set nowhere arp off up && ip route add default dev nowhere table 77");
    for (int file = 3; file < 256; file++) {
        struct sockaddr_in6 own, peer; /* an IPv4 connection may look like one, with its port at the same place */
        socklen_t own_nbytes = sizeof own, peer_nbytes = sizeof peer, nbytes = sizeof(int);
        int limit_ms = 0;

        if (getsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &nbytes) == 0 && limit_ms > 10000 &&
            getsockname(file, (struct sockaddr *)&own, &own_nbytes) == 0 &&
            getpeername(file, (struct sockaddr *)&peer, &peer_nbytes) == 0)
            (void)faults_shell("ip rule add ipproto tcp sport %d dport %d table 77 priority 7", ntohs(own.sin6_port),
                               ntohs(peer.sin6_port));
    }
}

void faults_rank_main(int rank, uint64_t round, bool in_group, bool may_lose)
{
    tri_thread *loser;
    report *mine = &all.reports[rank];
    tri_rng rng = {(uint64_t)all.seed, 1000 + round};
    tri_cluster cluster;
    tri_comm *comm = NULL;
    void *memory = NULL;
    tri_status status = rank_open(rank, &cluster, &comm);

    if (status == TRI_OK && may_lose)
        status = tri_thread_start(&loser, "loser", data_lose, mine);
    if (status == TRI_OK && in_group)
        status = tri_group_alloc(tri_comm_world(comm), (size_t)all.kib << 10, &memory);
    else if (status == TRI_OK)
        memory = tri_alloc_zero((size_t)all.kib << 8, sizeof(float));
    for (uint64_t call = 0; status == TRI_OK; call++) {
        status = sum_once(comm, rng, call, memory, mine);
        atomic_fetch_add(&mine->calls, status == TRI_OK);
    }
    mine->failed_ns = tri_now_ns();
    mine->status = status;
    snprintf(mine->text, sizeof mine->text, "%s", tri_last_error());
    if (comm)
        (void)tri_comm_cause(comm, &mine->origin);
    atomic_store(&mine->failed, 1);
    tri_comm_leave(comm);
    _exit(0);
}

void faults_host_enter(pid_t driver_pid, int rank)
{
    char path[64];
    int file;

    if (all.hosts[0])
        snprintf(path, sizeof path, "/run/netns/%s%d", all.hosts, rank);
    else
        snprintf(path, sizeof path, "/run/netns/tf%d-%d", (int)driver_pid, rank);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, CLONE_NEWNET) != 0)
        _exit(9);
    close(file);
}
