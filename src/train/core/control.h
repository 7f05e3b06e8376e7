/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h: what each rank says to all ranks with a step, beside the gradient: whole numbers in host memory, of which
 * all get the sum before anything moves. Features put their part and read the sum (features.h).
 */
#ifndef TRI_TRAIN_CONTROL_H
#define TRI_TRAIN_CONTROL_H

#include "comm/comm.h"
#include "data/data.h"

typedef struct tri_control {
    int64_t stop;                    /* numbers of the signals that ask for it */
    int64_t joins;                   /* ranks that know of a worker that wants to join */
    int64_t leaves;                  /* ranks that want to leave */
    int64_t trace;                   /* steps that somebody wants to have traced */
    int64_t look;                    /* ranks that want to know who is slow */
    int64_t weights[2];              /* zeros: all replicas have the same (verify.c) */
    int64_t samples[TRI_MARK_LANES]; /* marks of those that were used (sample_audit.c) */
} tri_control;

#define TRI_CONTROL_COUNT ((int64_t)(sizeof(tri_control) / sizeof(int64_t)))

typedef struct tri_job_control {
    tri_control own, sum;
    tri_work *work;    /* the sum is under way */
    tri_status status; /* of send() */
} tri_job_control;

#endif
