/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_mpi.c: all_reduce of an MPI library, measured as `trireme bench` measures: f32 sum in place, medians of samples,
 * each as long as on the rank where it took longest. usage: peer_mpi BYTES,BYTES,...; one JSON object a size.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES  101
#define BUDGET_S 0.4

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double calls_time(float *data, int count, int calls)
{
    double start = MPI_Wtime();

    for (int i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / calls;
}

static long count_wrong(float *data, int count)
{
    int ranks;
    long wrong = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < count; i++)
        data[i] = 1;
    calls_time(data, count, 1);
    for (int i = 0; i < count; i++)
        wrong += data[i] != (float)ranks;
    return wrong;
}

static void measure(long nbytes)
{
    double times[SAMPLES], one, first;
    int count = (int)(nbytes / 4), calls, samples = SAMPLES, rank;
    float *data = aligned_alloc(64, ((size_t)nbytes + 127) / 64 * 64);
    long wrong;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(data, 0, (size_t)nbytes);
    one = calls_time(data, count, 3);
    calls = (int)(BUDGET_S / SAMPLES / one);
    calls = calls < 1 ? 1 : calls > 1000 ? 1000 : calls;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    first = MPI_Wtime();
    for (int s = 0; s < samples; s++) {
        int enough = s >= 10 && MPI_Wtime() - first > 3 * BUDGET_S;

        MPI_Barrier(MPI_COMM_WORLD);
        times[s] = calls_time(data, count, calls);
        if (s % 10 == 9) {
            MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
            samples = enough ? s + 1 : samples;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, times, samples, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(times, (size_t)samples, sizeof times[0], by_value);
    wrong = count_wrong(data, count);
    if (rank == 0)
        printf("{\"op\":\"all_reduce\",\"bytes\":%ld,\"time_us\":%.2f,\"wrong\":%ld}\n", nbytes,
               times[samples / 2] * 1e6, wrong);
    fflush(stdout);
    free(data);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (char *text = argc > 1 ? strtok(argv[1], ",") : NULL; text; text = strtok(NULL, ","))
        measure(atol(text));
    return MPI_Finalize();
}
