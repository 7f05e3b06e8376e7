/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_post.c: letters over TCP on this host beside the same bytes through a plain socket, in turns, so that what else
 * the machine does meets both: bodies pushed one way, small letters one way, and round trips. Two threads, one at each
 * end. Built with the tests, run by hand:
 *
 *   bench_post [encrypt] [rounds] [part of a row's name]
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "net/post.h"
#include "unit/net/plain_socket.h"

#define MOST_NBYTES   ((size_t)64 << 20)
#define SAMPLE_NBYTES ((size_t)256 << 20)
#define MAX_ROUNDS    101

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK) {                                                                                        \
            fprintf(stderr, "bench_post: %s\n", tri_last_error());                                                     \
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

/* ---- the post */

typedef struct bench_end {
    tri_post *post;
    int letters, sent;
} bench_end;

static bench_end server, client;
static tri_line *client_line;
static atomic_bool stop;

static void *end_place(void *arg, tri_line *line, const tri_letter *letter, bool *refused)
{
    (void)arg;
    (void)line;
    (void)letter;
    (void)refused;
    return to_bytes;
}

static bool server_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    (void)arg;
    (void)body;
    server.letters++;
    if ((uint64_t)server.letters % letter->words[0] == 0)
        OK(tri_post_send(line, 0, &(tri_letter){.kind = 1}, NULL, NULL, NULL));
    return true;
}

static bool client_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    (void)arg;
    (void)line;
    (void)letter;
    (void)body;
    client.letters++;
    return true;
}

static void end_closed(void *arg, tri_line *line, const char *why)
{
    (void)arg;
    (void)line;
    if (!atomic_load(&stop))
        fprintf(stderr, "bench_post: %s\n", why);
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
        OK(tri_post_turn(server.post, TRI_FOREVER));
}

static void post_run(const bench_task *task)
{
    tri_letter letter = {.kind = 1, .nbytes = task->nbytes, .words = {(uint64_t)task->every}};

    client.letters = client.sent = server.letters = 0;
    for (int i = 1; i <= task->count; i++) {
        OK(tri_post_send(client_line, 0, &letter, from_bytes, client_sent, NULL));
        /* Somebody who has more to push than the way takes, not all at once. */
        while (i - client.sent > (task->nbytes > 4096 ? 4 : 64))
            OK(tri_post_turn(client.post, TRI_FOREVER));
        while (i % task->every == 0 && client.letters < i / task->every)
            OK(tri_post_turn(client.post, TRI_FOREVER));
    }
}

static void post_open(tri_net_config *config)
{
    tri_post_setup setup = {.name = "bench_post",
                            .config = config,
                            .token = "token",
                            .listens = true,
                            .body_limit = MOST_NBYTES,
                            .handlers = {.place = end_place, .letter = server_letter, .closed = end_closed}};

    OK(tri_post_open(&setup, &server.post));
    setup.listens = false;
    setup.handlers = (tri_post_handlers){.letter = client_letter, .closed = end_closed};
    OK(tri_post_open(&setup, &client.post));
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
    double post[MAX_ROUNDS], socket[MAX_ROUNDS], speeds[MAX_ROUNDS], works[MAX_ROUNDS], work[MAX_ROUNDS], speed;
    double us = 1e6 / task->count;

    for (int i = 0; i < rounds; i++) {
        bench_time of_post = time_of(post_run, task), of_socket = time_of(socket_run, task);

        post[i] = of_post.wall;
        socket[i] = of_socket.wall;
        work[i] = of_post.work;
        speeds[i] = of_socket.wall / of_post.wall;
        works[i] = of_post.work / of_socket.work;
    }
    speed = median_of(speeds, rounds);
    printf("%-18s %9.2f us each, %6.2f GB/s, %9.2f us of work; socket %9.2f us, of its speed %.2f (%.2f to %.2f), of "
           "its work %.2f\n",
           name, median_of(post, rounds) * us, (double)task->nbytes / (median_of(post, rounds) * us) * 1e-3,
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
    post_open(&config);
    OK(tri_thread_start(&threads[0], "plain", plain_main, &plain));
    OK(tri_thread_start(&threads[1], "server", server_main, NULL));
    OK(tri_post_dial(client.post, tri_post_address(server.post), tri_deadline_after_ms(5000), &client_line));
    rows_measure(rounds, only);
    atomic_store(&stop, true);
    shutdown(plain.fds[0], SHUT_RDWR);
    tri_post_wake(server.post);
    for (int i = 0; i < 2; i++)
        tri_thread_join(threads[i]);
    tri_post_close(client.post);
    tri_post_close(server.post);
    close(plain.fds[0]);
    close(plain.fds[1]);
    tri_free(from_bytes);
    tri_free(to_bytes);
    return 0;
}
