/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline.h: a model in stages on the ranks of a group: each rank holds the parameters of its stages alone, and
 * micro-batches go through all of them, up and down, as a schedule says.
 *
 * A micro-batch is a whole subtree of the rank's shards; its gradients are those of one process, and they are added as
 * the canonical tree says, so no bit depends on stages, schedule, or micro-batches. A step: tri_pipeline_train(), the
 * sums over whoever else shares the batch (sync.h), tri_pipeline_share(), adding those of ties, moving the weights.
 * What is called here is called by all ranks of the group, in the same order.
 */
#ifndef TRI_PARALLEL_PIPELINE_H
#define TRI_PARALLEL_PIPELINE_H

#include <trireme/comm.h>

#include "nn/cuts.h"
#include "parallel/schedule.h"
#include "tensor/tree.h"

typedef struct tri_pipeline tri_pipeline;

typedef struct tri_pipeline_setup {
    tri_group *group; /* borrowed; the ranks in the order of the stages */
    const tri_model *model;
    const tri_stages *stages;      /* as many as ranks, or each rank several; the same on all ranks */
    const tri_params *params;      /* borrowed; of tri_stages_wanted(), marked by tri_stages_mark() */
    const tri_graph_config *graph; /* of all graphs; shards: of a micro-batch, a power of two; span and slots are set */
    tri_pipe_kind schedule;
    const tri_tree_part *parts; /* the shards as whole subtrees in order, the same on all ranks */
    int part_count;
    int rank;     /* that events of this one name */
    bool overlap; /* gradients may be ready while others are computed */
    bool even;    /* all who share the batch have as many parts and shards: theirs come ready at the same places */
} tri_pipeline_setup;

/* Levels of the tree of a part above its micro-batches, of the part that has most: an array of gradients each. */
int tri_pipeline_levels(const tri_tree_part *parts, int part_count, int64_t micro_shards);
/* Bytes of what crosses the edges of a chunk, in and out, on its way: of a graph of it, with these schedules (train
 * NULL: none). */
size_t tri_pipeline_crossing_nbytes(const tri_graph *graph, const tri_pipe_schedule *train,
                                    const tri_pipe_schedule *evaluate, int chunk, int shards);

/* The group is agreed with on nothing: a wrong setup is refused on each rank alone, with the same words. TRI_ECONFIG:
 * stages and ranks that do not fit. */
tri_status tri_pipeline_create(const tri_pipeline_setup *setup, tri_pipeline **out);
void tri_pipeline_destroy(tri_pipeline *pipeline);

/* Is the batch's input read here, its target? Where not, the pointer in tri_batch may be NULL. */
bool tri_pipeline_reads_input(const tri_pipeline *pipeline);
bool tri_pipeline_reads_target(const tri_pipeline *pipeline);
/* Of all graphs (tri_graph_hooks_set()), but begin: that is called once a run of all of them, down: of a step. */
void tri_pipeline_hooks_set(tri_pipeline *pipeline, const tri_graph_hooks *hooks);
/* Of all graphs (tri_graph_across_set()): tensor ranks of one stage run the same actions in the same order. */
void tri_pipeline_across_set(tri_pipeline *pipeline, const tri_op_ranks *across);

/* Of all graphs (tri_graph_loss_scale()). */
void tri_pipeline_loss_scale(tri_pipeline *pipeline, float scale);

/* Up and down over all shards of the batch. grads[p] gets the sum over parts[p] of what this rank's stages make; the
 * tail too, which is zero where the loss is not. Calls ready (NULL: nobody) for the tail and for each gradient that
 * this rank makes, as tri_graph_backward() numbers them: at the end; or, where it may (`overlap`), for those of a chunk
 * that is complete between the actions of others, and on the first rank as its last action completes them. */
tri_status tri_pipeline_train(tri_pipeline *pipeline, const tri_batch *batch, uint64_t step, float *const *grads,
                              tri_graph_ready ready, void *arg);
/* Up only, as in evaluation: (*sums)[shard], on all ranks, valid until the next call. */
tri_status tri_pipeline_evaluate(tri_pipeline *pipeline, const tri_batch *batch, uint64_t step,
                                 const float (**sums)[4]);

/* The sums over all shards, or a share of them, which is the same for all stages. */
typedef struct tri_pipeline_sums {
    float *tail;
    float *(*find)(void *arg, int number, int64_t *count); /* of a gradient of a tied weight */
    void *arg;
} tri_pipeline_sums;
/* Gives every rank the tail of the last one (a wish to stop of any), and whoever holds a tied weight all gradients of
 * it. */
tri_status tri_pipeline_share(tri_pipeline *pipeline, const tri_pipeline_sums *sums);

/* Where the last step's time went on a rank, seconds. */
typedef struct tri_pipeline_times {
    double forward, backward, adding; /* adding: of gradients of micro-batches */
    double idle;                      /* all else: waiting for others, and making messages */
} tri_pipeline_times;
tri_pipeline_times tri_pipeline_last_times(const tri_pipeline *pipeline);
/* times[rank]; the share of all ranks' time in which they computed nothing is the bubble. */
tri_status tri_pipeline_gather_times(tri_pipeline *pipeline, tri_pipeline_times *times, double *bubble);

/* Floating point operations of one sample in this rank's stages (tri_graph_flops()). */
double tri_pipeline_flops(const tri_pipeline *pipeline);

#endif
