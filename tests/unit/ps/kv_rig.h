/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rig.h: servers and workers of one process, as threads over TCP on the loopback interface.
 *
 * cmocka's asserts belong to the main thread only; bodies use KV_CHECK and KV_OK, and kv_rig_run() says whether all
 * held.
 */
#ifndef TRI_TESTS_KV_RIG_H
#define TRI_TESTS_KV_RIG_H

#include <stdatomic.h>

#include <trireme/ps.h>

#include "base/runtime.h"
#include "unit/ps/ps_rig.h"

#define KV_MAX 8

typedef struct kv_rig kv_rig;
typedef struct kv_seat {
    kv_rig *rig;
    tri_kv *kv;
    int worker;
} kv_seat;

struct kv_rig {
    int servers, workers;
    const char *const *options; /* beside comm.interface=lo */
    const tri_kv_merge_row *merges;
    void (*body)(kv_seat *seat);
    void *arg;
    /* while it runs: */
    tri_kv_server *server[KV_MAX];
    const char *addresses[KV_MAX];
    kv_seat seats[KV_MAX];
    atomic_int failures;
};

#define KV_CHECK(seat, condition)                                                                                      \
    ((condition) ? (void)0                                                                                             \
                 : (void)(atomic_fetch_add(&(seat)->rig->failures, 1),                                                 \
                          print_error("%s:%d: worker %d: %s\n", __FILE__, __LINE__, (seat)->worker, #condition)))
#define KV_OK(seat, call)                                                                                              \
    do {                                                                                                               \
        if ((call) != TRI_OK) {                                                                                        \
            atomic_fetch_add(&(seat)->rig->failures, 1);                                                               \
            print_error("%s:%d: worker %d: %s: %s\n", __FILE__, __LINE__, (seat)->worker, #call, tri_last_error());    \
        }                                                                                                              \
    } while (0)
#define KV_FAILS(seat, code, text, call)                                                                               \
    do {                                                                                                               \
        tri_status got_ = (call);                                                                                      \
        if (got_ != (code) || !strstr(tri_last_error(), text)) {                                                       \
            atomic_fetch_add(&(seat)->rig->failures, 1);                                                               \
            print_error("%s:%d: worker %d: %s: want %s with '%s', got %s: %s\n", __FILE__, __LINE__, (seat)->worker,   \
                        #call, tri_status_name(code), text, tri_status_name(got_), tri_last_error());                  \
        }                                                                                                              \
    } while (0)

/* Opens servers, runs the body as each worker, closes. True: every check held, and everything ended well. */
bool kv_rig_run(kv_rig *rig);
/* The parts of it. */
bool kv_rig_serve(kv_rig *rig);
bool kv_rig_close(kv_rig *rig);
tri_status kv_rig_join(kv_rig *rig, int worker, tri_kv **out);

/* --- steps of bsp: 8 shards a batch, rows of KV_DIM; what is pushed depends on what is pulled --- */
#define KV_DIM 24
/* This worker's shards of the step at which the table is. */
void kv_shards_run(kv_seat *seat, tri_kv_table *table);
/* From the step at which the table is up to step `end`, this worker's shards of each. */
void kv_steps_run(kv_seat *seat, tri_kv_table *table, int64_t end);
/* Of all rows that steps may have touched. */
uint64_t kv_rows_hash(kv_seat *seat, tri_kv_table *table);

#endif
