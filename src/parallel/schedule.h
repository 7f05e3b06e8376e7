/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h: in which order the ranks of a pipeline run which micro-batch through which chunk, as tables.
 *
 * A model in C = ranks x each chunks; chunk c is rank c % ranks's. A table has one row of actions a rank. Messages
 * between chunks have one order for all ranks, that of a run in which forward takes 1 and backward 2: whoever sends and
 * receives in this order, one after the other, waits for nobody who waits for him (docs/design/training.md).
 * Sources: Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019 (1F1B); Narayanan et al.,
 * "Efficient large-scale language model training on GPU clusters", SC 2021 (interleaved).
 */
#ifndef TRI_PARALLEL_SCHEDULE_H
#define TRI_PARALLEL_SCHEDULE_H

#include "base/containers.h"
#include "base/options.h"

#define tri_pipe_kind_words(W)                                                                                         \
    W(TRI_PIPE_GPIPE, "gpipe") W(TRI_PIPE_1F1B, "1f1b") W(TRI_PIPE_INTERLEAVED, "interleaved")
TRI_ENUM(tri_pipe_kind)

typedef struct tri_pipe_action {
    bool backward;
    int chunk, micro;
} tri_pipe_action;

/* What a chunk needs of its neighbour: values of the chunk before, or, backward, gradients of the one behind. */
typedef struct tri_pipe_message {
    bool backward;
    int chunk, micro; /* which it goes to */
    int from, to;     /* ranks */
    double time;      /* in the run that orders them */
} tri_pipe_message;

typedef struct tri_pipe_schedule {
    tri_pipe_kind kind;
    int ranks, each, micros;
    bool training;               /* false: forward only */
    int action_count;            /* of each rank */
    tri_pipe_action **actions;   /* [ranks][action_count] */
    int *slots;                  /* [chunks]: micro-batches at most between their forward and their backward pass */
    tri_pipe_message **messages; /* [ranks]: those of the rank, in the order of all */
    int *message_count;          /* [ranks] */
    int *buffers[2];             /* [chunks]: incoming values, and gradients, that must have room at once */
} tri_pipe_schedule;

/* each: chunks a rank: 1, and for interleaved 2 or more. TRI_ECONFIG says what does not fit. */
tri_status tri_pipe_schedule_make(tri_pipe_kind kind, int ranks, int each, int micros, bool training,
                                  tri_pipe_schedule *out);
void tri_pipe_schedule_fini(tri_pipe_schedule *schedule);
/* Each action once, on the rank of its chunk, micro-batches in order, and a run of it ends; fills in slots. A failure
 * is ours: TRI_EINVAL with the actions that wait. */
tri_status tri_pipe_schedule_check(tri_pipe_schedule *schedule);

/* A run in which the actions of a chunk take so long, and a message so much longer. */
typedef struct tri_pipe_schedule_costs {
    const double *forward, *backward; /* [chunks] */
    const double *late;               /* [chunks] of backward, after what it sends has left; NULL: nothing */
    double message;
} tri_pipe_schedule_costs;
/* ends[rank * action_count + action], or NULL; returns the end of the last. The schedule was checked. */
double tri_pipe_schedule_play(const tri_pipe_schedule *schedule, const tri_pipe_schedule_costs *costs, double *ends);
/* Share of the ranks' time in that run in which they compute nothing. */
double tri_pipe_schedule_bubble(const tri_pipe_schedule *schedule, const tri_pipe_schedule_costs *costs);

/* Of chunk `chunk`'s rank: where its forward, or backward, of a micro-batch is among the rank's messages as a
 * receive; -1: nothing is received. */
int tri_pipe_schedule_receive_of(const tri_pipe_schedule *schedule, tri_pipe_action action);

#endif
