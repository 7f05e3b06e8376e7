/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kv.c: arrays and rows on parameter servers, as a program of a user sees them. Built with the tests, run by
 * hand. Arrays stand beside the same bytes over a plain socket, in turns, so that what else the machine does meets
 * both:
 *
 *     trireme launch -n 1 --servers 1 -- bench_kv [rounds] [keys]
 *
 * keys: instead, what ps-lite's own benchmark does: 10 million keys of one value each, pushed and pulled at once
 * (bench/peers/pslite).
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <trireme/ps.h>

#include "unit/net/plain_socket.h"

#define ELEMENTS   (INT64_C(16) << 20) /* 64 MiB */
#define ROWS       INT64_C(1000000)
#define DIM        16
#define BATCH      INT64_C(16384)
#define MAX_ROUNDS 101

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK) {                                                                                        \
            fprintf(stderr, "bench_kv: %s\n", tri_last_error());                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Median, least and most of the seconds of all rounds, as a rate of `each` things. */
static void row_print(const char *name, double *seconds, int rounds, double each, const char *unit)
{
    qsort(seconds, (size_t)rounds, sizeof(*seconds), compare);
    printf("%-24s %9.2f ms  %8.3f %s (%.3f to %.3f)\n", name, 1e3 * seconds[rounds / 2], each / seconds[rounds / 2],
           unit, each / seconds[rounds - 1], each / seconds[0]);
}

/* The rate of a socket's, round by round: median, least and most. */
static void beside_print(const char *name, double *seconds, const double *socket, double times, int rounds)
{
    for (int r = 0; r < rounds; r++)
        seconds[r] = times * socket[r] / seconds[r];
    qsort(seconds, (size_t)rounds, sizeof(*seconds), compare);
    printf("%-24s of a socket's rate %.2f (%.2f to %.2f)\n", name, seconds[rounds / 2], seconds[0],
           seconds[rounds - 1]);
}

static void array_print(const char *name, const double *seconds, const double *socket, double times, int rounds)
{
    static double sorted[MAX_ROUNDS];
    memcpy(sorted, seconds, sizeof(sorted));
    row_print(name, sorted, rounds, times * (double)ELEMENTS * sizeof(float) / 1e9, "GB/s");
    memcpy(sorted, seconds, sizeof(sorted));
    beside_print(name, sorted, socket, times, rounds);
}

static void *plain_thread(void *arg)
{
    plain_main(arg);
    return NULL;
}

static float *floats_make(void)
{
    float *values = malloc((size_t)ELEMENTS * sizeof(float));
    if (!values)
        exit(1);
    for (int64_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i % 1000);
    return values;
}

static void arrays_run(tri_kv *kv, int rounds)
{
    static double push[MAX_ROUNDS], pull[MAX_ROUNDS], both[MAX_ROUNDS], socket[MAX_ROUNDS], after[MAX_ROUNDS];
    float *values = floats_make(), *to = floats_make();
    const bench_task task = {.nbytes = (size_t)ELEMENTS * sizeof(float), .count = 1, .every = 1};
    plain_socket plain;
    pthread_t thread;
    tri_kv_array *array;
    plain_open(&plain, to);
    CHECK(pthread_create(&thread, NULL, plain_thread, &plain) == 0);
    plain_run(&plain, values, &task);
    OK(tri_kv_array_open(kv, "array", ELEMENTS, "merge: add", &array));
    OK(tri_kv_array_push(array, -1, values, NULL));
    for (int r = 0; r < rounds; r++) {
        double start = now();
        plain_run(&plain, values, &task);
        socket[r] = now() - start;
        start = now();
        OK(tri_kv_array_push(array, -1, values, NULL));
        push[r] = now() - start;
        start = now();
        OK(tri_kv_array_pull(array, to, NULL));
        pull[r] = now() - start;
        start = now();
        OK(tri_kv_array_push_pull(array, values, to, NULL));
        both[r] = now() - start;
        after[r] = push[r] + pull[r];
    }
    array_print("push 64 MiB", push, socket, 1, rounds);
    array_print("pull 64 MiB", pull, socket, 1, rounds);
    array_print("push, then pull", after, socket, 2, rounds);
    array_print("push and pull at once", both, socket, 2, rounds);
    shutdown(plain.fds[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    free(values);
    free(to);
}

static void rows_run(tri_kv *kv, int rounds)
{
    static double pull[MAX_ROUNDS], both[MAX_ROUNDS];
    static float rows[BATCH * DIM];
    static uint64_t keys[BATCH];
    tri_kv_table *table;
    OK(tri_kv_table_open(kv, "rows", DIM, "merge: optim, optim: {name: adagrad, lr: 0.1}", &table));
    for (int r = 0; r < rounds; r++) {
        pull[r] = both[r] = 0;
        for (int64_t first = 0; first < ROWS; first += BATCH) {
            for (int64_t i = 0; i < BATCH; i++)
                keys[i] = (uint64_t)((first + i) * 7919 % ROWS);
            double start = now();
            OK(tri_kv_pull(table, keys, BATCH, rows, NULL));
            pull[r] += now() - start;
            OK(tri_kv_push(table, -1, keys, rows, BATCH, NULL));
            both[r] += now() - start;
        }
    }
    row_print("pull of rows", pull, rounds, (double)ROWS / 1e6, "M rows/s");
    row_print("pull and push of rows", both, rounds, (double)ROWS / 1e6, "M rows/s");
}

/* The seconds of one push and one pull of all, in one connection for bench/peers/pslite. */
static void keys_print(const char *name, double push, double pull)
{
    printf("%s: push %.1f ms, pull %.1f ms\n", name, 1e3 * push, 1e3 * pull);
}

static void keys_run(tri_kv *kv, int rounds)
{
    enum { COUNT = 10000000 };
    uint64_t *keys = malloc(COUNT * sizeof(*keys));
    float *values = malloc(COUNT * sizeof(*values)), *to = malloc(COUNT * sizeof(*to));
    tri_kv_table *table;
    tri_kv_array *array;
    CHECK(keys && values && to);
    for (int i = 0; i < COUNT; i++) {
        keys[i] = UINT64_MAX / COUNT * (uint64_t)i;
        values[i] = (float)(i % 1000);
        to[i] = 0;
    }
    OK(tri_kv_table_open(kv, "keys", 1, "merge: add", &table));
    OK(tri_kv_array_open(kv, "values", COUNT, "merge: add", &array));
    for (int r = 0; r <= rounds; r++) {
        double start = now();
        OK(tri_kv_push(table, -1, keys, values, COUNT, NULL));
        double pushed = now();
        OK(tri_kv_pull(table, keys, COUNT, to, NULL));
        keys_print(r == 0 ? "rows, made" : "rows", pushed - start, now() - pushed);
        start = now();
        OK(tri_kv_array_push(array, -1, values, NULL));
        pushed = now();
        OK(tri_kv_array_pull(array, to, NULL));
        keys_print(r == 0 ? "array, made" : "array", pushed - start, now() - pushed);
    }
    double start = now(); /* the same rows, in lists that never came before */
    OK(tri_kv_push(table, -1, keys + 1, values, COUNT - 1, NULL));
    double pushed = now();
    OK(tri_kv_pull(table, keys + 2, COUNT - 2, to, NULL));
    keys_print("other lists", pushed - start, now() - pushed);
    free(keys);
    free(values);
    free(to);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    tri_kv *kv = NULL;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    OK(tri_kv_join(&(tri_kv_job){.timeout_s = 60}, &kv));
    if (!kv)
        return 0; /* a server, whose workers have left */
    if (argc > 2 && strcmp(argv[2], "keys") == 0)
        keys_run(kv, rounds);
    else {
        arrays_run(kv, rounds);
        rows_run(kv, rounds);
    }
    OK(tri_kv_close(kv));
    return 0;
}
