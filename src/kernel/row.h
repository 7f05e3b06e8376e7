/* SPDX-License-Identifier: Apache-2.0
 *
 * row.h: what the rows of the kernel table share: views of shards, the sum over shards, and the rows of ops.
 *
 * Included by files of kernel/ only.
 */
#ifndef TRI_KERNEL_ROW_H
#define TRI_KERNEL_ROW_H

#include <stdlib.h>
#include <string.h>

#include "base/clones.h"
#include "base/memory.h"
#include "kernel/kernel.h"

/* Asks for memory that is read soon: the processor's own guesses end with each page, and values come from memory. */
static inline void tri_ahead(const void *memory, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += 64) {
        __builtin_prefetch((const char *)memory + at, 0, 2);
    }
}

/* ceil(a / b) */
static inline int64_t tri_int64_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t tri_shape_last(const tri_shape *shape)
{
    return shape->dim[shape->ndim - 1];
}

/* Product of the dimensions [from, to). */
static inline int64_t tri_shape_product(const tri_shape *shape, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; i++) {
        product *= shape->dim[i];
    }
    return product;
}

/* f32 view of input i, output, gradients of one shard. */
static inline const float *tri_call_input(const tri_kernel *kernel, const tri_op_call *call, int i, int64_t shard)
{
    return (const float *)call->input[i] + shard * tri_shape_count(kernel->desc.input[i]);
}

static inline float *tri_call_output(const tri_kernel *kernel, const tri_op_call *call, int64_t shard)
{
    return (float *)call->output + shard * tri_shape_count(kernel->desc.output);
}

static inline float *tri_call_doutput(const tri_kernel *kernel, const tri_op_call *call, int64_t shard)
{
    return (float *)call->doutput + shard * tri_shape_count(kernel->desc.output);
}

/* NULL when the gradient of input i is not wanted. */
static inline float *tri_call_dinput(const tri_kernel *kernel, const tri_op_call *call, int i, int64_t shard)
{
    float *dx = call->dinput[i];
    return dx != NULL ? dx + shard * tri_shape_count(kernel->desc.input[i]) : NULL;
}

static inline const float *tri_call_param(const tri_op_call *call, int p)
{
    return call->param[p];
}

static inline bool tri_call_wants_dparam(const tri_op_call *call, int p)
{
    return call->part_count > 0 && call->dparam[p] != NULL;
}

/* Elements rounded up so that the next array begins on a cache line. */
static inline int64_t tri_align_count(int64_t count)
{
    return (count + 15) & ~INT64_C(15);
}

/* Window arithmetic of conv2d and pools, defaults filled in. Index 0 is H, 1 is W. out: before a fused pool. */
typedef struct tri_window {
    int64_t batch, in[2], channels, out[2], out_channels;
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t groups;
} tri_window;
tri_window tri_window_make(const tri_op_desc *desc);

/* Heads of rope and attention: a row of x is `queries` heads, then `keys` of keys, then `keys` of values, `width` each.
 */
typedef struct tri_heads {
    int64_t queries, keys, group; /* group: heads of queries to one of keys */
    int64_t width, stride;        /* of a head, of a row */
    int64_t samples, length;      /* of a shard, of a sample */
} tri_heads;
tri_heads tri_heads_make(const tri_op_desc *desc);

/* Angle of pair i of a head in one step along the sample. */
double tri_rope_frequency(const tri_op_desc *desc, int64_t i, int64_t width);
/* Plan and release of both rows; the state: cosines, then sines, of the angles, each [length][width / 2]. */
tri_status tri_rope_plan(const tri_op_desc *desc, tri_kernel *kernel);
void tri_rope_release(tri_kernel *kernel);

/* cpu/tokens.c: one row at a place of that table; sign -1 turns back. from and to may be the same. */
void tri_rope_row(const tri_heads *h, const float *table, int64_t place, const float *from, float *to, float sign);

/* References of linear and conv2d: y with the fused relu, dy where it did not cut, else zero; scratch for leaves of the
 * gradients of weights and bias. */
static inline double tri_relu_fused(const tri_kernel *kernel, double y)
{
    return kernel->desc.attr.relu && y < 0 ? 0.0 : y;
}
static inline double tri_relu_cut(const tri_kernel *kernel, float y, float dy)
{
    return kernel->desc.attr.relu && !(y > 0) ? 0.0 : (double)dy;
}
tri_status tri_weights_plan(const tri_op_desc *desc, tri_kernel *kernel);

/* What the references of cross_entropy and vocab_loss mean: loss, hit and (when dx is not NULL) gradient of one row. */
typedef struct tri_row_loss {
    double loss, right;
} tri_row_loss;
tri_row_loss tri_reference_loss_row(const float *x, int64_t classes, int32_t target, double smoothing, float *dx);

/* Sums leaves[shards][stride] over the shards of each part, in tree order, into dparam[p][part][0, count). Destroys
 * leaves. Does nothing when parameter p's gradient is not wanted. */
void tri_leaves_sum(const tri_kernel *kernel, const tri_op_call *call, int p, float *leaves, int64_t stride,
                    int64_t count);

/* The same, in place: leaves[first of a part] becomes its sum, [0, stride). */
void tri_leaves_fold(const tri_kernel *kernel, const tri_op_call *call, float *leaves, int64_t stride);

/* leaves[shards][count] of the run become, in [0, count), their sum over the whole batch: tri_op_batch. */
void tri_batch_sum(const tri_op_call *call, double *leaves, int64_t count);

/* batch_norm with attr.sync: figures of a shard that are summed over the batch, as doubles behind the floats of
 * scratch: samples, then two sums a channel. */
static inline int64_t tri_sync_count(int64_t channels)
{
    return 2 * channels + 1;
}
static inline double *tri_sync_leaves(const tri_op_call *call, int64_t channels)
{
    return (double *)(void *)((float *)call->scratch + tri_align_count(2 * channels * call->shards));
}
/* Saved figures of each shard and what scratch holds: plan of both rows. */
tri_status tri_batch_norm_plan(const tri_op_desc *desc, tri_kernel *kernel);
/* From the sums over the batch of x and x^2: figures of all shards, as each has them without attr.sync; zeros where a
 * shard has no samples. */
void tri_sync_figures(const tri_op_call *call, const double *sums, int64_t channels, double epsilon);
/* The batch's sums for the buffers, when they are wanted. */
void tri_batch_norm_buffers(const tri_kernel *kernel, const tri_op_call *call, int64_t channels);
static inline double tri_norm_epsilon(const tri_kernel *kernel)
{
    return kernel->desc.attr.epsilon == 0 ? 1e-5 : (double)kernel->desc.attr.epsilon;
}

/* Word of the table's part that index t of the input is, or -1: of none. */
static inline int64_t tri_part_word(const tri_op_desc *desc, int32_t index)
{
    const int64_t word = (int64_t)index - desc->attr.first;
    return index >= 0 && word >= 0 && word < desc->param[0].dim[0] ? word : -1;
}

/* What the ranks of the call exchange: tri_op_ranks. */
void tri_ranks_sum(const tri_op_call *call, void *data, int64_t count, tri_dtype dtype);
void tri_ranks_gather(const tri_op_call *call, const void *in, void *out, int64_t count, tri_dtype dtype);

/* Leaves of a parameter's gradient in one shard: one, or one for each part of each sample (attr.parts). */
static inline int64_t tri_leaf_blocks(const tri_op_desc *desc)
{
    return desc->attr.parts > 0 ? desc->input[0].dim[0] * desc->attr.parts : 1;
}

/* leaves[shards * tri_leaf_blocks()][width] become leaves[shards][width], those of all ranks in them. */
void tri_blocks_fold(const tri_kernel *kernel, const tri_op_call *call, float *leaves, int64_t width);

/* Gradient of positions: leaves[shards][sample], the tokens here, summed into their rows; those of other ranks come
 * from them, the rest is zero. */
void tri_places_sum(const tri_kernel *kernel, const tri_op_call *call, float *leaves, int64_t sample);

/* Target r of a loss over words counts: its sample is there, and it is one of `words`. */
bool tri_vocab_row_counts(const tri_kernel *kernel, const tri_op_call *call, int64_t r, int64_t words);

/* Number of the thread that computes the current tile, below the `threads` of tri_tiles_run. */
int tri_tile_worker(void);

/* Keep probability of dropout's element: true when it stays. */
typedef struct tri_dropout_rule {
    uint64_t seed, stream;
    float rate, scale; /* scale = 1 / (1 - rate) */
} tri_dropout_rule;
/* Number of the first element here of a sample of the global batch. */
static inline uint64_t tri_dropout_number(const tri_op_desc *desc, uint64_t sample, int64_t per_sample)
{
    const int64_t whole = desc->attr.whole > 0 ? desc->attr.whole : per_sample;
    return sample * (uint64_t)whole + (uint64_t)desc->attr.first;
}
tri_dropout_rule tri_dropout_rule_make(const tri_kernel *kernel, const tri_op_call *call);

/* Dropout of attention's weights: those that stay are multiplied by the rule's scale, behind the softmax. */
typedef struct tri_attention_drop {
    bool on;
    tri_dropout_rule rule;
    const int64_t *first_sample;
    int64_t samples, length;   /* samples of a shard, places of one */
    int64_t first_head, heads; /* of a whole layer, of which there may be a part here */
} tri_attention_drop;
tri_attention_drop tri_attention_drop_make(const tri_kernel *kernel, const tri_op_call *call);
/* keep[i] = the scale, or 0, of the weight of place first + i for place `query` of a head, in sample b of the call. */
void tri_attention_drop_row(const tri_attention_drop *drop, int64_t b, int64_t head, int64_t query, int64_t first,
                            int64_t count, float *keep);

/* The call as kernels of the CPU find it: itself, or, where the device maps its memory elsewhere for them, a copy. */
typedef struct tri_mapped_call {
    tri_op_call call;
    float *dparam[TRI_OP_MAX_PARAMS][TRI_TREE_MAX_PARTS];
} tri_mapped_call;
const tri_op_call *tri_call_mapped(const tri_kernel *kernel, const tri_op_call *call, tri_mapped_call *room);

#define TRI_OP_DECLARE(id, name) extern const tri_op_ops tri_op_##name;
TRI_OP_LIST(TRI_OP_DECLARE)

#define TRI_ROW_DECLARE(row) extern const tri_kernel_ops row;

#endif
