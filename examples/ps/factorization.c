/* SPDX-License-Identifier: Apache-2.0
 *
 * factorization.c: a factorization machine (Rendle 2010) on a log of clicks: score = bias + sum of weights + products
 * of each two fields' vectors. A row is a weight and a vector.
 *
 *     trireme launch -n 3 --servers 2 -- ./factorization bsp|ssp|async
 *
 * With bsp the batch is cut into shards, and the rows have the same bits for any number of workers and servers; the
 * last line says which. With ssp a worker may be two steps ahead of the slowest one; async: nobody waits.
 */
#include "../example.h"
#include "click.h"

#include <string.h>

#define FACTORS 8
#define DIM     (1 + FACTORS)
#define SHARDS  8
#define SAMPLES 64 /* of a shard */
#define STEPS   120
#define VALUES  2000
#define KEYS    (SAMPLES * CLICK_FIELDS + 1)
#define BIAS    UINT64_MAX

static uint64_t keys[KEYS];
static float rows[KEYS * DIM], grads[KEYS * DIM];

/* The score of a sample, and with `slope` its gradient, times that. */
static double sample_score(const float *row, const float *bias, double slope, float *grad, float *bias_grad)
{
    double score = (double)bias[0], sums[FACTORS] = {0};
    for (int f = 0; f < CLICK_FIELDS; f++) {
        score += (double)row[f * DIM];
        for (int k = 0; k < FACTORS; k++)
            sums[k] += (double)row[f * DIM + 1 + k];
    }
    for (int k = 0; k < FACTORS; k++) {
        double squares = 0;
        for (int f = 0; f < CLICK_FIELDS; f++)
            squares += (double)row[f * DIM + 1 + k] * (double)row[f * DIM + 1 + k];
        score += (sums[k] * sums[k] - squares) / 2;
    }
    for (int f = 0; grad && f < CLICK_FIELDS; f++) {
        grad[f * DIM] = (float)slope;
        for (int k = 0; k < FACTORS; k++)
            grad[f * DIM + 1 + k] = (float)(slope * (sums[k] - (double)row[f * DIM + 1 + k]));
    }
    if (grad)
        bias_grad[0] += (float)slope;
    return score;
}

/* Mean loss of SAMPLES from `first` on; grads are those of the mean over a batch of SHARDS such. */
static double shard_compute(tri_kv_table *table, uint64_t first, bool steps)
{
    static click samples[SAMPLES];
    double loss = 0;
    for (int i = 0; i < SAMPLES; i++) {
        samples[i] = click_make(first + (uint64_t)i, VALUES);
        memcpy(keys + i * CLICK_FIELDS, samples[i].keys, sizeof(samples[i].keys));
    }
    keys[KEYS - 1] = BIAS;
    check(tri_kv_pull(table, keys, KEYS, rows, NULL));
    float *bias = rows + (KEYS - 1) * DIM, *bias_grad = grads + (KEYS - 1) * DIM;
    memset(bias_grad, 0, DIM * sizeof(float));
    for (int i = 0; i < SAMPLES; i++) {
        const float *row = rows + i * CLICK_FIELDS * DIM;
        double slope;
        loss += click_loss(sample_score(row, bias, 0, NULL, NULL), (double)samples[i].clicked, &slope);
        if (steps)
            sample_score(row, bias, slope / (SAMPLES * SHARDS), grads + i * CLICK_FIELDS * DIM, bias_grad);
    }
    return loss / SAMPLES;
}

static double test_loss(tri_kv_table *table)
{
    double loss = 0;
    for (uint64_t i = 0; i < 20; i++)
        loss += shard_compute(table, (UINT64_C(1) << 40) + i * SAMPLES, false) / 20;
    return loss;
}

/* Of all rows that there may be. */
static uint64_t rows_hash(tri_kv_table *table)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t f = 0; f < CLICK_FIELDS; f++)
        for (uint64_t first = 0; first < VALUES; first += 500) {
            for (uint64_t i = 0; i < 500; i++)
                keys[i] = f << 40 | (first + i);
            check(tri_kv_pull(table, keys, 500, rows, NULL));
            for (int i = 0; i < 500 * DIM; i++) {
                uint32_t bits;
                memcpy(&bits, rows + i, sizeof(bits));
                hash = (hash ^ bits) * UINT64_C(0x100000001b3);
            }
        }
    return hash;
}

int main(int argc, char **argv)
{
    tri_kv *kv;
    tri_kv_table *table;
    char options[200];
    const char *consistency = argc > 1 ? argv[1] : "bsp";
    bool bsp = strcmp(consistency, "bsp") == 0;
    check(tri_kv_join(&(tri_kv_job){.timeout_s = 60}, &kv));
    if (!kv)
        return 0;
    snprintf(options, sizeof(options),
             "consistency: %s, staleness: 2, shards: %d, merge: optim, initial: normal, scale: 0.05, "
             "optim: {name: adagrad, lr: 0.1}",
             consistency, SHARDS);
    check(tri_kv_table_open(kv, "machine", DIM, options, &table));
    double before = test_loss(table);
    int64_t first, count;
    tri_kv_shards(table, &first, &count); /* of a batch, this worker's, whatever the consistency */
    check(tri_kv_barrier(kv));
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int64_t shard = first; shard < first + count; shard++) {
            shard_compute(table, (step * SHARDS + (uint64_t)shard) * SAMPLES, true);
            check(tri_kv_push(table, bsp ? shard : -1, keys, grads, KEYS, NULL));
        }
        check(tri_kv_clock(kv));
    }
    check(tri_kv_barrier(kv));
    double after = test_loss(table);
    uint64_t hash = rows_hash(table);
    if (tri_kv_worker(kv) == 0) {
        printf("loss of clicks not seen before: %.4f, at first %.4f\n", after, before);
        if (bsp)
            printf("rows: %016llx\n", (unsigned long long)hash);
    }
    check(tri_kv_close(kv));
    if (after < 0.97 * before)
        return 0;
    fprintf(stderr, "loss of clicks not seen before: want below %.3f (0.97 of the first), got %.3f\n", 0.97 * before,
            after);
    return 1;
}
