/* SPDX-License-Identifier: Apache-2.0
 *
 * events.h: instruments: whatever must be observed writes here, readers are in monitor/.
 *
 * A fixed ring of the last spans (what, when, how long, how much) and a list of counters. Lock-free, always on, no
 * allocation; writing costs some tens of nanoseconds.
 */
#ifndef TRI_BASE_EVENTS_H
#define TRI_BASE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

/* counter, name in metrics, help */
#define TRI_COUNTER_LIST(X)                                                                                            \
    X(TRI_COUNT_STEPS, "steps_total", "training steps finished")                                                       \
    X(TRI_COUNT_SAMPLES, "samples_total", "samples trained on by this process")                                        \
    X(TRI_COUNT_SKIPPED, "skipped_steps_total", "steps that moved nothing")                                            \
    X(TRI_COUNT_REPAIRS, "repairs_total", "times that replicas were repaired")                                         \
    X(TRI_COUNT_SPOILT_PARTS, "spoilt_parts_total", "parts of a sharded state that had changed in its memory")         \
    X(TRI_COUNT_COLLECTIVES, "collectives_total", "collective calls finished")                                         \
    X(TRI_COUNT_SENT_NBYTES, "sent_bytes_total", "payload bytes sent to peers")                                        \
    X(TRI_COUNT_RECEIVED_NBYTES, "received_bytes_total", "payload bytes received")                                     \
    X(TRI_COUNT_PUSHES, "pushes_total", "pushes that this parameter server has taken")                                 \
    X(TRI_COUNT_PULLS, "pulls_total", "pulls that this parameter server was asked for")                                \
    X(TRI_COUNT_TAKEN_NBYTES, "taken_bytes_total", "bytes of pushes, and of what else workers sent to this server")    \
    X(TRI_COUNT_SERVED_NBYTES, "served_bytes_total", "bytes that this parameter server has sent")                      \
    X(TRI_COUNT_READ_NBYTES, "data_read_bytes_total", "bytes read from data sets")                                     \
    X(TRI_COUNT_SAVES, "checkpoints_total", "checkpoints saved")                                                       \
    X(TRI_COUNT_SAVE_FAILURES, "checkpoint_failures_total", "checkpoints that could not be saved")                     \
    X(TRI_COUNT_SAVED_NBYTES, "checkpoint_bytes_total", "bytes of saved checkpoints")

typedef enum tri_counter {
#define TRI_COUNTER_ENUM(id, name, help) id,
    TRI_COUNTER_LIST(TRI_COUNTER_ENUM)
#undef TRI_COUNTER_ENUM
        TRI_COUNTER_COUNT
} tri_counter;

void tri_counter_add(tri_counter counter, uint64_t amount);
uint64_t tri_counter_now(tri_counter counter);
const char *tri_counter_name(tri_counter counter);

typedef struct tri_event {
    int64_t start_ns;    /* tri_now_ns() */
    int64_t duration_ns; /* 0 for a point in time */
    const char *what;    /* a string literal: "forward", "all_reduce" */
    int32_t rank;
    uint32_t sequence;
    uint64_t nbytes;
} tri_event;

/* A micro-batch goes through a stage: nbytes is the stage, times TRI_EVENT_MICROS, and the micro-batch. */
#define TRI_EVENT_STAGE_UP      "stage forward"
#define TRI_EVENT_STAGE_DOWN    "stage backward" /* what the stage below waits for, or all of it */
#define TRI_EVENT_STAGE_WEIGHTS "stage weights"  /* gradients of parameters, for which nobody waits */
#define TRI_EVENT_MICROS        (UINT64_C(1) << 32)

/* Of a parameter server: a push that it took in; values that it gave, from when they were asked for. nbytes: bytes, and
 * in its upper half the worker. */
#define TRI_EVENT_SERVER_PUSH "server push"
#define TRI_EVENT_SERVER_PULL "server pull"

void tri_event_write(const tri_event *event);
/* Copies up to `limit` of the newest events, oldest first; returns how many. Events being overwritten are skipped. */
uint64_t tri_event_read(tri_event *out, uint64_t limit);

#endif
