/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline_impl.h: what a pipeline is made of: chunks with their graphs and rings of buffers, micro-batches, messages.
 */
#ifndef TRI_PARALLEL_PIPELINE_IMPL_H
#define TRI_PARALLEL_PIPELINE_IMPL_H

#include "nn/span.h"
#include "parallel/pipeline.h"

/* Room for what crosses in one micro-batch. */
typedef struct pipe_buffer {
    tri_device_view view;
    int leaving; /* message that sends it, -1: none is under way */
} pipe_buffer;

/* Micro-batch m is in item m % count. */
typedef struct pipe_ring {
    pipe_buffer *items;
    int count;
} pipe_ring;

/* Neighbouring elements of gradient arrays that a chunk writes. */
typedef struct pipe_range {
    int64_t first, count;
} pipe_range;

typedef struct pipe_chunk {
    int number;
    tri_graph *graph;
    pipe_ring in, out, din, dout;
    pipe_range *ranges;
    int range_count;
    int slots;
    int done[2];  /* of this step: micro-batches that went up, down */
    int freed[2]; /* whose room for incoming values, gradients is free again */
} pipe_chunk;

/* A whole subtree, at most `shards` of the graphs' configuration. */
typedef struct pipe_micro {
    int64_t first, count; /* shards of the rank's batch */
    int part, leaf;       /* which part's, and its number there */
} pipe_micro;

/* A schedule with what each action receives and makes: messages of the rank, -1: none. */
typedef struct pipe_table {
    tri_pipe_schedule schedule;
    int *receives, *makes; /* [action_count] */
} pipe_table;

/* A gradient of a tied weight on its way. */
typedef struct pipe_tied {
    int number; /* of the gradient */
    int peer;
    bool sends;
} pipe_tied;

struct tri_pipeline {
    tri_group *group;
    const tri_params *params;
    int rank, ranks, each, threads;
    int named;          /* in events */
    pipe_chunk *chunks; /* [each] */
    pipe_micro *micros;
    int micro_count;
    int64_t shards; /* of a batch */
    pipe_table train, evaluate;
    float **partial; /* [levels]: sums that wait for the other half of their subtree */
    int levels;
    float (*sums)[4]; /* [shards] */
    bool overlap, even;
    int *makers; /* [tail + 1]: local number of the chunk that makes a gradient, -1: another rank's */
    pipe_tied *tied;
    int tied_count;
    tri_pipeline_times times;
    tri_graph_hooks hooks;

    /* of the run: */
    const pipe_table *table;
    tri_work **works; /* [messages of the rank]; NULL: not made, or over */
    int posted;
};

/* pipeline_share.c: which gradients of tied weights travel. */
tri_status tri_pipe_tied_plan(tri_pipeline *pipeline, const tri_pipeline_setup *setup);

#endif
