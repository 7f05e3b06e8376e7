/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.h: a model compiled for shards of fixed shape: an array of planned kernels, run forward and backward.
 *
 * Compiled once for one shard of `rows` samples and up to `shards` shards a run; all memory is planned here (buffers of
 * values whose lives do not overlap share memory), a run allocates nothing. The same graph serves training and
 * evaluation.
 */
#ifndef TRI_NN_GRAPH_H
#define TRI_NN_GRAPH_H

#include "nn/params.h"

typedef struct tri_graph tri_graph;

typedef struct tri_graph_config {
    const char *kind; /* of kernels: "cpu", "cuda" or "reference"; "tokens": token_graph.h */
    int64_t rows;     /* samples of one shard, at most */
    int shards;       /* of one run, at most */
    int threads;
    bool training;       /* false: forward only, less memory */
    uint64_t seed;       /* of dropout */
    tri_dtype precision; /* TRI_F32, or TRI_BF16: linear layers multiply in bf16, values from there on are bf16; the
                            batch, convolutions before them, logits, parameters, their gradients and all sums are f32.
                            TRI_F16: likewise, and gradients want tri_graph_loss_scale() */
    int first_node, end_node; /* span.h: the part of the model that is compiled; 0, 0: all of it */
    int64_t places;           /* kind "tokens": of a sequence, at most; 0: shards are of samples */
    int slots;          /* span.h: runs that may be between their forward and their backward pass at once; 0: one */
    bool keeps_rounded; /* weights that kernels read in 16 bits stay in memory of the graph, until they change; not of
                           a store that is spread */
    const bool *frozen; /* [parameters of the model] those that nobody moves, where the store does not hold all;
                           NULL: it does. Read while compiling */
} tri_graph_config;

/* The params must come from the same model, hold all that the span reads, and outlive the graph, whose memory is in
 * their device. The model may be destroyed afterwards. */
tri_status tri_graph_compile(const tri_model *model, const tri_params *params, const tri_graph_config *config,
                             tri_graph **out);
void tri_graph_destroy(tri_graph *graph);

/* What a run reads: the samples of `shards` shards, each padded to `rows` samples with zeros. */
typedef struct tri_batch {
    int shards;
    const int32_t *rows;                    /* [shards] valid samples */
    const int64_t *first_sample;            /* [shards] number of the shard's first sample in the global batch */
    const void *input;                      /* [shards * graph rows, sample...] of the model's input dtype */
    const void *target;                     /* likewise */
    const void *input_there, *target_there; /* the same in memory of the store's device; NULL: the host's is copied */
} tri_batch;

/* Shards [first, first + count) of a batch; bytes of a shard: tri_graph_batch_nbytes(). */
tri_batch tri_batch_part(const tri_batch *all, int64_t first, int64_t count, size_t input_nbytes, size_t target_nbytes);

/* Where the gradients of the next runs go: grads[p] is a flat array (tri_params_grad_count() and the tail) for part p
 * of their shards. The parts are in order, without gaps, first counted from the run's first shard. Both arrays are
 * copied, the gradients' memory is borrowed until the next call. Needed before a forward with training = true (batch
 * norm writes its statistics there in the forward pass); of a graph with slots before its backward only. grads NULL:
 * the hooks' place says where each gradient goes. */
tri_status tri_graph_grads_set(tri_graph *graph, int part_count, const tri_tree_part *parts, float *const *grads);

/* For entries that are on their way, or are elsewhere than in the store, and gradients that have no place for ever.
 * Each may be NULL; a failure ends the run. */
typedef struct tri_graph_hooks {
    void *arg;
    /* A run forward or backward begins. */
    void (*begin)(void *arg, bool down);
    /* The next kernel reads an entry: brings it and says where it is until `done`. Kind "tokens": of one that the op
     * packs, its tri_matrix. */
    tri_status (*bring)(void *arg, int entry, const float **values);
    void (*done)(void *arg, int entry);
    /* The next kernel writes the gradient of this number (tri_params_tail()): where that of each part goes. Only on the
     * backward pass. */
    tri_status (*place)(void *arg, int number, float **parts);
} tri_graph_hooks;
/* Of the next runs. A store that is spread needs bring. */
void tri_graph_hooks_set(tri_graph *graph, const tri_graph_hooks *hooks);

/* Of a model that several tensor ranks share out, wanted before its first run: what they exchange inside of runs, all
 * in the same order. A failure ends the run. */
void tri_graph_across_set(tri_graph *graph, const tri_op_ranks *across);

/* How batch norms of the whole batch sum over it inside of runs (tri_model_sync_batch_norm()); never set: a run has all
 * shards of its batch. A failure ends the run. */
void tri_graph_batch_set(tri_graph *graph, const tri_op_batch *batch);

/* Kind "tokens", before each run: which sequences its shards, one token each, continue, and what these keep, in memory
 * of the device: [sequences][tri_graph_kept_count()]. Borrowed until the run is over. */
void tri_graph_spans_set(tri_graph *graph, const tri_place_span *spans, int count, float *kept);
/* Floats that a sequence keeps from run to run. */
int64_t tri_graph_kept_count(const tri_graph *graph);

/* All gradients of the next backwards, so also those of parameters, are those of the loss times this; 1 at first. */
void tri_graph_loss_scale(tri_graph *graph, float scale);

/* Runs all kernels up to the loss. sums[shard] = {loss, weight, right, 0} per shard, NULL without a loss; sums NULL:
 * nobody reads them, and the host does not wait for the device. The batch is borrowed until backward is over.
 * TRI_EINVAL when training without gradients set, or with parts that do not cover the shards. */
tri_status tri_graph_forward(tri_graph *graph, const tri_batch *batch, uint64_t step, bool training,
                             const float (**sums)[4]);
/* Values of the logits after forward, in the device's memory: [shards * rows, ...]; gone after backward. Of a model
 * that ends in tri_vocab_loss(): what its last linear layer reads. NULL where they are not f32 (with bf16 such a model
 * multiplies in bf16) or not here. */
const float *tri_graph_logits(const tri_graph *graph);

/* Called when the gradient of an entry is complete in all parts; entries may come in any order but are called once
 * each. */
typedef void (*tri_graph_ready)(void *arg, int entry);
/* Runs the kernels backward, once after each forward with training = true. Every entry of every part is overwritten
 * (frozen ones are left alone), the tail too (loss, weight, right, number of shards with rows, each in tree order);
 * gaps between entries are left alone. Gradients of ties are behind the entries: tri_params_fold(). ready may be NULL;
 * ties have the numbers behind the entries, the tail the last one, tri_params_tail(), and comes first. Buffers are sums
 * over shards (mean, variance). */
tri_status tri_graph_backward(tri_graph *graph, tri_graph_ready ready, void *arg);

/* Bytes planned for activations, scratch and copies of weights, and what they would be without reuse. */
void tri_graph_memory(const tri_graph *graph, size_t *planned_nbytes, size_t *plain_nbytes);
/* Of the planned ones, copies of weights. */
size_t tri_graph_rounded_nbytes(const tri_graph *graph);
typedef struct tri_graph_bytes {
    size_t planned; /* all of it */
    size_t slot;    /* of those, for each slot; 0: there is but one */
    size_t rounded; /* of those, copies of weights (config->keeps_rounded) */
} tri_graph_bytes;
/* Bytes planned for them where there is no store yet: nothing of that length is allocated. Of a model all of whose
 * parameters move but those that config->frozen marks. */
tri_status tri_graph_memory_find(const tri_model *model, const tri_graph_config *config, tri_graph_bytes *bytes);
/* Whether it computes any value in config->precision where that is not f32. */
bool tri_graph_has_halves(const tri_graph *graph);
/* Floating point operations of one sample, forward and backward (matmul-like ops only). */
double tri_graph_flops(const tri_graph *graph);

#endif
