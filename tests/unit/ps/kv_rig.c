/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rig.c: servers and workers as threads.
 */
#include "unit/ps/kv_rig.h"

#include <stdlib.h>

#include "ps/key.h"

#define TOKEN        "a token of this test"
#define OPTIONS_MOST 8

static void options_make(const kv_rig *rig, const char *options[OPTIONS_MOST])
{
    int count = 0;
    options[count++] = "comm.interface=lo";
    options[count++] = "comm.timeout_s=60";
    for (int i = 0; rig->options && rig->options[i] && count < OPTIONS_MOST - 1; i++)
        options[count++] = rig->options[i];
    options[count] = NULL;
}

bool kv_rig_serve(kv_rig *rig)
{
    const char *options[OPTIONS_MOST];
    options_make(rig, options);
    atomic_store(&rig->failures, 0);
    for (int s = 0; s < rig->servers; s++) {
        tri_kv_server_setup setup = {.number = s,
                                     .servers = rig->servers,
                                     .workers = rig->workers,
                                     .token = TOKEN,
                                     .options = options,
                                     .merges = rig->merges};
        if (tri_kv_server_open(&setup, &rig->server[s]) != TRI_OK || tri_kv_server_start(rig->server[s]) != TRI_OK) {
            print_error("server %d: %s\n", s, tri_last_error());
            return false;
        }
        rig->addresses[s] = tri_kv_server_address(rig->server[s]);
    }
    return true;
}

bool kv_rig_close(kv_rig *rig)
{
    bool well = atomic_load(&rig->failures) == 0;
    for (int s = 0; s < rig->servers; s++) {
        if (!well && rig->server[s])
            tri_kv_server_stop(rig->server[s]);
        if (tri_kv_server_close(rig->server[s]) != TRI_OK) {
            print_error("server %d: %s\n", s, tri_last_error());
            well = false;
        }
        rig->server[s] = NULL;
    }
    return well;
}

tri_status kv_rig_join(kv_rig *rig, int worker, tri_kv **out)
{
    const char *options[OPTIONS_MOST];
    options_make(rig, options);
    tri_kv_setup setup = {.addresses = rig->addresses,
                          .servers = rig->servers,
                          .worker = worker,
                          .workers = rig->workers,
                          .token = TOKEN,
                          .options = options};
    return tri_kv_open(&setup, out);
}

static void seat_body(void *arg)
{
    kv_seat *seat = arg;
    tri_status status = kv_rig_join(seat->rig, seat->worker, &seat->kv);
    KV_OK(seat, status);
    if (status != TRI_OK)
        return;
    seat->rig->body(seat);
    KV_OK(seat, tri_kv_close(seat->kv));
}

bool kv_rig_run(kv_rig *rig)
{
    tri_thread *threads[KV_MAX] = {0};
    if (!kv_rig_serve(rig)) {
        atomic_fetch_add(&rig->failures, 1);
        kv_rig_close(rig);
        return false;
    }
    for (int w = 0; w < rig->workers; w++) {
        rig->seats[w] = (kv_seat){.rig = rig, .worker = w};
        if (tri_thread_start(&threads[w], "worker", seat_body, &rig->seats[w]) != TRI_OK)
            atomic_fetch_add(&rig->failures, 1);
    }
    for (int w = 0; w < rig->workers; w++)
        tri_thread_join(threads[w]);
    return kv_rig_close(rig);
}

/* --- steps --- */

#define SHARDS 8
#define BATCH  300
#define KEYS   5000

static uint64_t key_of(uint64_t number)
{
    return number * 7919;
}

/* A few keys are in all batches. */
static void shard_keys(int64_t step, int64_t shard, uint64_t *keys)
{
    rig_random random = {.rng = {(uint64_t)(step * SHARDS + shard), 10}};
    for (int i = 0; i < BATCH; i++)
        keys[i] = key_of(rig_below(&random, rig_below(&random, 2) ? 20 : KEYS));
}

static void shard_gradients(int64_t step, int64_t shard, const uint64_t *keys, const float *rows, float *grads)
{
    rig_random random = {.rng = {(uint64_t)(step * SHARDS + shard), 9}};
    for (int i = 0; i < BATCH * KV_DIM; i++)
        grads[i] = rig_normal(&random) * 0.1f + rows[i] * (float)(keys[i / KV_DIM] % 7) * 0.01f;
}

static void shard_run(kv_seat *seat, tri_kv_table *table, int64_t step, int64_t shard)
{
    uint64_t keys[BATCH];
    float *rows = malloc(BATCH * KV_DIM * sizeof(float)), *grads = malloc(BATCH * KV_DIM * sizeof(float));
    shard_keys(step, shard, keys);
    KV_OK(seat, tri_kv_pull(table, keys, BATCH, rows, NULL));
    shard_gradients(step, shard, keys, rows, grads);
    KV_OK(seat, tri_kv_push(table, shard, keys, grads, BATCH, NULL));
    free(rows);
    free(grads);
}

void kv_shards_run(kv_seat *seat, tri_kv_table *table)
{
    int64_t first, owned, step = tri_kv_step(table);
    tri_kv_shards(table, &first, &owned);
    for (int64_t shard = first; shard < first + owned; shard++)
        if ((step + shard) % 5 != 0) /* some shards have no rows */
            shard_run(seat, table, step, shard);
}

void kv_steps_run(kv_seat *seat, tri_kv_table *table, int64_t end)
{
    for (int64_t step = tri_kv_step(table); step < end; step++) {
        kv_shards_run(seat, table);
        KV_OK(seat, tri_kv_clock(seat->kv));
        KV_CHECK(seat, tri_kv_step(table) == step + 1);
    }
}

uint64_t kv_rows_hash(kv_seat *seat, tri_kv_table *table)
{
    uint64_t *keys = malloc(KEYS * sizeof(uint64_t));
    float *rows = malloc((size_t)KEYS * KV_DIM * sizeof(float));
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    KV_OK(seat, tri_kv_pull(table, keys, KEYS, rows, NULL));
    uint64_t hash = XXH3_64bits(rows, (size_t)KEYS * KV_DIM * sizeof(float));
    free(keys);
    free(rows);
    return hash;
}
