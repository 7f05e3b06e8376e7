/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kv.c: arrays and rows on parameter servers, as a program of a user sees them. Built with the tests, run by
 * hand, beside what the same bytes take over a plain socket (bench_post):
 *
 *     trireme launch -n 1 --servers 1 -- bench_kv [rounds]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <trireme/ps.h>

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

static void arrays_run(tri_kv *kv, int rounds)
{
    static double push[MAX_ROUNDS], pull[MAX_ROUNDS], both[MAX_ROUNDS];
    float *values = malloc((size_t)ELEMENTS * sizeof(float)), *to = malloc((size_t)ELEMENTS * sizeof(float));
    tri_kv_array *array;
    if (!values || !to)
        exit(1);
    for (int64_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i % 1000);
    memset(to, 0, (size_t)ELEMENTS * sizeof(float));
    OK(tri_kv_array_open(kv, "array", ELEMENTS, "merge: add", &array));
    OK(tri_kv_array_push(array, -1, values, NULL));
    for (int r = 0; r < rounds; r++) {
        double start = now();
        OK(tri_kv_array_push(array, -1, values, NULL));
        push[r] = now() - start;
        start = now();
        OK(tri_kv_array_pull(array, to, NULL));
        pull[r] = now() - start;
        start = now();
        OK(tri_kv_array_push_pull(array, values, to, NULL));
        both[r] = now() - start;
    }
    double bytes = (double)ELEMENTS * sizeof(float) / 1e9;
    row_print("push 64 MiB", push, rounds, bytes, "GB/s");
    row_print("pull 64 MiB", pull, rounds, bytes, "GB/s");
    row_print("push and pull at once", both, rounds, 2 * bytes, "GB/s");
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

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    tri_kv *kv = NULL;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    OK(tri_kv_join(&(tri_kv_job){.timeout_s = 60}, &kv));
    if (!kv)
        return 0; /* a server, whose workers have left */
    arrays_run(kv, rounds);
    rows_run(kv, rounds);
    OK(tri_kv_close(kv));
    return 0;
}
