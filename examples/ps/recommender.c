/* SPDX-License-Identifier: Apache-2.0
 *
 * recommender.c: users, items, and what users think of items: a row of 16 values for each, 10 million rows and more. A
 * row exists on its server from the first time that somebody rates; rows of users and items that agree come to point
 * the same way. Pulls of the next batch are under way while this one is computed.
 *
 *     trireme launch -n 2 --servers 2 -- ./recommender 10000000
 */
#include "../example.h"
#include "click.h"

#include <time.h>

#define DIM    16
#define BATCH  4096
#define ITEM   (UINT64_C(1) << 60) /* of keys of items */
#define TASTES 8

typedef struct batch {
    uint64_t keys[2 * BATCH]; /* users, then items */
    float ratings[BATCH];
    float rows[2 * BATCH * DIM];
    tri_kv_work *work;
} batch;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Half of the ratings are of users and items that are often seen, half walk through all of them. */
static void batch_pull(tri_kv_table *table, batch *at, uint64_t number, uint64_t rows)
{
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t index = number * BATCH + i, half = rows / 2;
        uint64_t user = i % 2 ? click_power(2 * index, half / 50 + 1) : (number * (BATCH / 2) + i / 2) % half;
        uint64_t item = i % 2 ? click_power(2 * index + 1, half / 50 + 1) : half - 1 - user;
        at->keys[i] = user;
        at->keys[BATCH + i] = item | ITEM;
        at->ratings[i] = click_mix(user) % TASTES == click_mix(item) % TASTES ? 1.0f : 0.0f;
    }
    check(tri_kv_pull(table, at->keys, 2 * BATCH, at->rows, &at->work));
}

/* Mean squared error of the batch, of users and items that are often seen; rows become gradients. */
static double batch_compute(batch *at)
{
    double squares = 0;
    for (int i = 0; i < BATCH; i++) {
        float *user = at->rows + i * DIM, *item = at->rows + (BATCH + i) * DIM, rating = 0;
        for (int e = 0; e < DIM; e++)
            rating += user[e] * item[e];
        float error = rating - at->ratings[i];
        squares += i % 2 ? (double)(error * error) : 0;
        for (int e = 0; e < DIM; e++) {
            float kept = user[e];
            user[e] = error * item[e];
            item[e] = error * kept;
        }
    }
    return squares / (BATCH / 2);
}

int main(int argc, char **argv)
{
    static batch batches[2];
    tri_kv *kv;
    tri_kv_table *table;
    uint64_t rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    check(tri_kv_join(&(tri_kv_job){.timeout_s = 120}, &kv));
    if (!kv)
        return 0;
    check(tri_kv_table_open(kv, "rows", DIM,
                            "merge: optim, initial: uniform, scale: 0.5, optim: {name: adagrad, lr: 0.2}", &table));
    uint64_t workers = (uint64_t)tri_kv_worker_count(kv), own = (uint64_t)tri_kv_worker(kv);
    uint64_t count = 2 * rows / BATCH + 200;
    batch_pull(table, &batches[0], own, rows);
    check(tri_kv_wait(batches[0].work));
    double first = batch_compute(&batches[0]), last = first;
    check(tri_kv_barrier(kv)); /* no worker pushes before all workers have seen the untrained rows */
    double begin = seconds();
    batch_pull(table, &batches[0], own, rows);
    uint64_t b = own;
    for (int turn = 0; b < count; b += workers, turn = !turn) {
        batch *now = &batches[turn];
        if (b + workers < count)
            batch_pull(table, &batches[!turn], b + workers, rows);
        check(tri_kv_wait(now->work));
        last = 0.95 * last + 0.05 * batch_compute(now);
        check(tri_kv_push(table, -1, now->keys, now->rows, 2 * BATCH, NULL));
    }
    check(tri_kv_barrier(kv));
    double rate = (double)(count * 2 * BATCH) / (seconds() - begin);
    if (own == 0) {
        char text[1000];
        check(tri_kv_stats(kv, text, sizeof(text)));
        printf("%serror %.3f, at first %.3f; %.0f rows pulled and pushed a second\n", text, last, first, rate);
    }
    check(tri_kv_close(kv));
    if (last < 0.8 * first)
        return 0;
    fprintf(stderr, "worker %llu: error of its last batches: want below %.3f (0.8 of the first), got %.3f\n",
            (unsigned long long)own, 0.8 * first, last);
    return 1;
}
