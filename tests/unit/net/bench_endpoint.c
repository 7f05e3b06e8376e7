/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_endpoint.c: messages over TCP on this host beside the same bytes through a plain socket, in turns, so that what
 * else the machine does meets both: bodies pushed one way, small messages one way, and round trips. Two threads, one at
 * each end. Built with the tests, run by hand:
 *
 *   bench_endpoint [encrypt] [rounds] [part of a row's name]
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "net/endpoint.h"
#include "unit/net/plain_socket.h"

#define MOST_NBYTES   ((size_t)64 << 20)
#define SAMPLE_NBYTES ((size_t)256 << 20)
#define MAX_ROUNDS    101

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK) {                                                                                        \
            fprintf(stderr, "bench_endpoint: %s\n", tri_last_error());                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static unsigned char *from_bytes, *to_bytes; /* [MOST_NBYTES] */

/* ---- a plain socket */

static plain_socket plain;

static void socket_run(const bench_task *task)
{
    plain_run(&plain, from_bytes, task);
}

/* ---- the endpoint */

typedef struct bench_end {
    tri_endpoint *endpoint;
    int messages, sent;
} bench_end;

static bench_end server, client;
static tri_connection *client_connection;
static atomic_bool stop;

static void *end_place(void *arg, tri_connection *connection, const tri_message *message, bool *refused)
{
    (void)arg;
    (void)connection;
    (void)message;
    (void)refused;
    return to_bytes;
}

static bool server_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    (void)arg;
    (void)body;
    server.messages++;
    if ((uint64_t)server.messages % message->words[0] == 0)
        OK(tri_connection_send(connection, 0, &(tri_message){.kind = 1}, NULL, NULL, NULL));
    return true;
}

static bool client_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    (void)arg;
    (void)connection;
    (void)message;
    (void)body;
    client.messages++;
    return true;
}

static void end_closed(void *arg, tri_connection *connection, const char *why)
{
    (void)arg;
    (void)connection;
    if (!atomic_load(&stop))
        fprintf(stderr, "bench_endpoint: %s\n", why);
}

static void client_sent(void *arg, tri_status status)
{
    (void)arg;
    OK(status);
    client.sent++;
}

static void server_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        OK(tri_endpoint_poll(server.endpoint, TRI_FOREVER));
}

static void endpoint_run(const bench_task *task)
{
    tri_message message = {.kind = 1, .nbytes = task->nbytes, .words = {(uint64_t)task->every}};

    client.messages = client.sent = server.messages = 0;
    for (int i = 1; i <= task->count; i++) {
        OK(tri_connection_send(client_connection, 0, &message, from_bytes, client_sent, NULL));
        /* Somebody who has more to push than the way takes, not all at once. */
        while (i - client.sent > (task->nbytes > 4096 ? 4 : 64))
            OK(tri_endpoint_poll(client.endpoint, TRI_FOREVER));
        while (i % task->every == 0 && client.messages < i / task->every)
            OK(tri_endpoint_poll(client.endpoint, TRI_FOREVER));
    }
}

static void endpoint_open(tri_net_config *config)
{
    tri_endpoint_setup setup = {.name = "bench_endpoint",
                                .config = config,
                                .token = "token",
                                .listens = true,
                                .body_limit = MOST_NBYTES,
                                .handlers = {.place = end_place, .message = server_message, .closed = end_closed}};

    OK(tri_endpoint_open(&setup, &server.endpoint));
    setup.listens = false;
    setup.handlers = (tri_endpoint_handlers){.message = client_message, .closed = end_closed};
    OK(tri_endpoint_open(&setup, &client.endpoint));
}

/* ---- measuring */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Seconds that have passed, and that the cores have worked for both ends. */
typedef struct bench_time {
    double wall, work;
} bench_time;

static double work_now(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static bench_time time_of(void (*run)(const bench_task *task), const bench_task *task)
{
    int64_t before_ns = tri_now_ns();
    double before = work_now();

    run(task);
    return (bench_time){(double)(tri_now_ns() - before_ns) * 1e-9, work_now() - before};
}

static double median_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void row_measure(const char *name, const bench_task *task, int rounds)
{
    double endpoint[MAX_ROUNDS], socket[MAX_ROUNDS], speeds[MAX_ROUNDS], works[MAX_ROUNDS], work[MAX_ROUNDS], speed;
    double us = 1e6 / task->count;

    for (int i = 0; i < rounds; i++) {
        bench_time of_endpoint = time_of(endpoint_run, task), of_socket = time_of(socket_run, task);

        endpoint[i] = of_endpoint.wall;
        socket[i] = of_socket.wall;
        work[i] = of_endpoint.work;
        speeds[i] = of_socket.wall / of_endpoint.wall;
        works[i] = of_endpoint.work / of_socket.work;
    }
    speed = median_of(speeds, rounds);
    printf("%-18s %9.2f us each, %6.2f GB/s, %9.2f us of work; socket %9.2f us, of its speed %.2f (%.2f to %.2f), of "
           "its work %.2f\n",
           name, median_of(endpoint, rounds) * us, (double)task->nbytes / (median_of(endpoint, rounds) * us) * 1e-3,
           median_of(work, rounds) * us, median_of(socket, rounds) * us, speed, speeds[0], speeds[rounds - 1],
           median_of(works, rounds));
}

static void rows_measure(int rounds, const char *only)
{
    static const struct {
        const char *name;
        size_t nbytes;
        bool trips;
    } rows[] = {
        {"push 64 KiB", (size_t)64 << 10, false}, {"push 256 KiB", (size_t)256 << 10, false},
        {"push 1 MiB", (size_t)1 << 20, false},   {"push 8 MiB", (size_t)8 << 20, false},
        {"push 64 MiB", MOST_NBYTES, false},      {"push 100 bytes", 100, false},
        {"push 4000 bytes", 4000, false},         {"round trip 8 bytes", 8, true},
        {"round trip 64 KiB", 65536, true},
    };

    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        size_t count = SAMPLE_NBYTES / (rows[i].nbytes + 1);
        bench_task task = {.nbytes = rows[i].nbytes};

        if (only && !strstr(rows[i].name, only))
            continue;
        task.count = count > 200000 ? 200000 : (int)count;
        if (rows[i].trips)
            task.count = 5000;
        task.every = rows[i].trips ? 1 : task.count;
        row_measure(rows[i].name, &task, rounds);
    }
}

int main(int argc, char **argv)
{
    tri_thread *threads[2];
    tri_net_config config;
    const char *only = NULL;
    int rounds = 7;

    tri_options_defaults(&tri_net_options, &config);
    snprintf(config.interface, sizeof config.interface, "lo");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "encrypt") == 0)
            config.encrypt = true;
        else if (atoi(argv[i]) > 0)
            rounds = atoi(argv[i]) < MAX_ROUNDS ? atoi(argv[i]) : MAX_ROUNDS;
        else
            only = argv[i];
    }
    from_bytes = tri_alloc_bulk(MOST_NBYTES);
    to_bytes = tri_alloc_bulk(MOST_NBYTES);
    CHECK(from_bytes && to_bytes);
    memset(from_bytes, 1, MOST_NBYTES);
    memset(to_bytes, 1, MOST_NBYTES);
    plain_open(&plain, to_bytes);
    endpoint_open(&config);
    OK(tri_thread_start(&threads[0], "plain", plain_main, &plain));
    OK(tri_thread_start(&threads[1], "server", server_main, NULL));
    OK(tri_endpoint_dial(client.endpoint, tri_endpoint_address(server.endpoint), tri_deadline_after_ms(5000),
                         &client_connection));
    rows_measure(rounds, only);
    atomic_store(&stop, true);
    shutdown(plain.fds[0], SHUT_RDWR);
    tri_endpoint_wake(server.endpoint);
    for (int i = 0; i < 2; i++)
        tri_thread_join(threads[i]);
    tri_endpoint_close(client.endpoint);
    tri_endpoint_close(server.endpoint);
    close(plain.fds[0]);
    close(plain.fds[1]);
    tri_free(from_bytes);
    tri_free(to_bytes);
    return 0;
}
