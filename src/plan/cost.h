/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.h: one layout of a job on a cluster, to figures: memory, bytes on the wire, seconds. Arithmetic alone: nothing
 * here runs or asks anything. docs/parallel.md, "Planning", has the formulas in words.
 */
#ifndef TRI_PLAN_COST_H
#define TRI_PLAN_COST_H

#include "parallel/sync.h"
#include "plan/cluster.h"

typedef struct tri_layout {
    int data, tensor, pipeline;
    tri_sync_kind sync;     /* TRI_SYNC_ALLREDUCE to TRI_SYNC_ZERO3 */
    tri_pipe_kind schedule; /* of a pipeline */
    int chunks;             /* of a stage: 1, interleaved: more */
    int zero;               /* data ranks that share one copy of the state (parallel.zero_ranks), 0: all */
} tri_layout;

/* A part of the model that one worker runs: all of it, or a chunk of its stage. */
typedef struct tri_plan_chunk {
    double up_s, down_s;                 /* of one sample, alone on its cores */
    double late_s;                       /* of down_s, behind what goes to the chunk before */
    double values, tie_values;           /* elements of parameters, and of gradients of tied ones besides */
    double largest;                      /* elements of its largest parameter */
    double sum_count;                    /* sums over tensor ranks of a run, both ways */
    double sum_nbytes;                   /* of a sample in all of them */
    double in_up_nbytes, in_down_nbytes; /* of a sample, across its beginning */
    double activations;                  /* bytes of one run alone: */
    double activations_shared;           /* of several that are at the same time what all have together, */
    double activations_slot;             /* and what each has of its own */
    double rounded;                      /* bytes of copies of its weights in 16 bits, where it has the whole ones */
} tri_plan_chunk;

typedef struct tri_plan_job {
    int64_t batch, shards, shards_at_once;
    int64_t tokens; /* of a sample; 0: samples are no sequences */
    int64_t steps;  /* of an epoch */
    int states;     /* arrays of the optimizer */
    bool clips;     /* the norm of the gradient is wanted in each step */
    bool half;      /* values are bf16 or f16 */
    bool overlap;
    double bucket_nbytes;
    double compress_nbytes; /* that compressed sums keep of a value (allreduce); 0: none */
} tri_plan_job;

/* The parts of a step's time add up to it. */
typedef struct tri_plan_cost {
    double weights, gradients, optimizer, activations; /* bytes of the worker that needs most */
    double memory;                                     /* their sum */
    double host;                                       /* with cards: bytes of the host besides */
    double wire;                                       /* bytes that a worker sends in a step */
    double compute_s, tensor_s, bubble_s, sum_s, gather_s, optimizer_s;
    double step_s;
    double samples_per_s, tokens_per_s, epoch_s;
    double epoch_price; /* 0: none */
} tri_plan_cost;

/* chunks[pipeline x chunks]; chunk c is stage c % pipeline's. Fails for a schedule that cannot be made alone. */
tri_status tri_plan_cost_find(const tri_plan_job *job, const tri_plan_cluster *cluster, const tri_layout *layout,
                              const tri_plan_chunk *chunks, tri_plan_cost *cost);
/* Shards of the worker that has most. */
int64_t tri_plan_shards_of(const tri_plan_job *job, int data);
/* Of them, how many a run takes. */
int64_t tri_plan_run_shards(const tri_plan_job *job, const tri_layout *layout);
/* Samples of a shard. */
int64_t tri_plan_rows(const tri_plan_job *job);
/* "data 2 x tensor 2, zero1", "data 8, zero3 over 4"; text holds 96 bytes. */
const char *tri_layout_print(const tri_layout *layout, char text[96]);

#endif
