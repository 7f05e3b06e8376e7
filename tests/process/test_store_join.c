/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_join.c: many ranks meet in one store over real sockets: threads of a few processes, each with a connection
 * of its own, all of whom exchange their addresses. `test_store_join RANKS PROCESSES` prints how long it took.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "cluster/cluster.h"

#define TOKEN    "0123456789abcdef0123456789abcdef"
#define LIMIT_NS (60 * TRI_NS_PER_S)

typedef struct join_rank {
    tri_cluster cluster;
    char url[64];
    int64_t deadline_ns;
    tri_status status;
} join_rank;

/* As long as an address of a rank with several ways to it. */
static void address_of(int rank, char text[128])
{
    snprintf(text, 128, "host=%032d;shm=/proc/%d/fd/7;tcp=10.%d.%d.%d:40000", rank, rank, rank >> 16 & 255,
             rank >> 8 & 255, rank & 255);
}

static tri_status rank_join(join_rank *self)
{
    tri_cluster *cluster = &self->cluster;
    char **texts = tri_alloc_zero((size_t)cluster->world, sizeof(*texts));
    char text[128];
    tri_status status = texts ? TRI_OK : TRI_ENOMEM;

    address_of(cluster->rank, text);
    if (status == TRI_OK)
        status = tri_store_open(self->url, TOKEN, self->deadline_ns, &cluster->store);
    if (status == TRI_OK)
        status = tri_cluster_exchange(cluster, "address", text, texts, self->deadline_ns);
    for (int r = 0; status == TRI_OK && r < cluster->world; r++) {
        address_of(r, text);
        if (strcmp(text, texts[r]) != 0)
            status = tri_fail(TRI_EINTERNAL, "rank %d: want %s of rank %d, got %s", cluster->rank, text, r, texts[r]);
    }
    for (int r = 0; texts && r < cluster->world; r++)
        tri_free(texts[r]);
    tri_free(texts);
    if (cluster->store)
        tri_store_close(cluster->store);
    return status;
}

static void rank_main(void *arg)
{
    join_rank *self = arg;

    self->status = rank_join(self);
    if (self->status != TRI_OK)
        fprintf(stderr, "rank %d: %s\n", self->cluster.rank, tri_last_error());
}

/* Ranks [first, end) as threads. */
static int process_run(const int ports[2], int world, int first, int end)
{
    int count = end - first, failed = 0, port = 0;
    join_rank *ranks = tri_alloc_zero((size_t)count, sizeof *ranks);
    tri_thread **threads = tri_alloc_zero((size_t)count, sizeof *threads);

    close(ports[1]);
    if (read(ports[0], &port, sizeof port) != (ssize_t)sizeof port)
        return 1;
    for (int i = 0; i < count; i++) {
        ranks[i] = (join_rank){.cluster = {.rank = first + i, .world = world}, .deadline_ns = tri_now_ns() + LIMIT_NS};
        snprintf(ranks[i].url, sizeof ranks[i].url, "tcp://127.0.0.1:%d", port);
        TRI_ASSERT(tri_thread_start(&threads[i], "rank", rank_main, &ranks[i]) == TRI_OK);
    }
    for (int i = 0; i < count; i++) {
        tri_thread_join(threads[i]);
        failed += ranks[i].status != TRI_OK;
    }
    tri_free(ranks);
    tri_free(threads);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    int world = argc > 1 ? atoi(argv[1]) : 512, processes = argc > 2 ? atoi(argv[2]) : 3, failed = 0, status, port,
        ports[2];
    struct rlimit files;
    tri_store_server *server;
    int64_t start_ns;
    struct rusage own, others;

    if (world < 2 || processes < 1 || processes > world) {
        fprintf(stderr, "usage: test_store_join RANKS PROCESSES\n");
        return 2;
    }
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    TRI_ASSERT(pipe(ports) == 0);
    for (int p = 0; p < processes; p++) { /* before there are threads */
        if (fork() == 0)
            _exit(process_run(ports, world, world * p / processes, world * (p + 1) / processes));
    }
    if (tri_store_server_start("127.0.0.1", 0, TOKEN, &server) != TRI_OK) {
        fprintf(stderr, "%s\n", tri_last_error());
        return 1;
    }
    start_ns = tri_now_ns();
    port = tri_store_server_port(server);
    for (int p = 0; p < processes; p++)
        TRI_ASSERT(write(ports[1], &port, sizeof port) == (ssize_t)sizeof port);
    close(ports[1]);
    while (wait(&status) > 0)
        failed += status != 0;
    printf("%d ranks of %d processes joined in %.3f s\n", world, processes, (double)(tri_now_ns() - start_ns) * 1e-9);
    tri_store_server_stop(server);
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &others);
    printf("processor time: server %.2f s, ranks %.2f s\n",
           (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
               (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-6,
           (double)(others.ru_utime.tv_sec + others.ru_stime.tv_sec) +
               (double)(others.ru_utime.tv_usec + others.ru_stime.tv_usec) * 1e-6);
    return failed ? 1 : 0;
}
