/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.h: one row per op and shape, and a runner that gives a planned kernel its memory: shared by test and benchmark.
 */
#ifndef TRI_TESTS_OPS_H
#define TRI_TESTS_OPS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "tensor/label.h"
#include "tensor/reduce.h"

/* Shapes of one shard, rows (samples) first; 0 ends them. */
typedef struct op_case {
    const char *name;
    tri_op op;
    int64_t x[TRI_MAX_DIMS], other[TRI_MAX_DIMS]; /* other: second input; third and later are like it */
    int64_t units, width;
    tri_op_attr attr;
    int inputs;               /* 0: one, or two when `other` is set */
    int shards;               /* 0: 8 */
    int64_t to[TRI_MAX_DIMS]; /* of one sample */
    tri_dtype half;           /* BF16, F16: what is f32 otherwise is of this type: inputs, output and their gradients */
} op_case;

/* Everything of one planned op with its memory. Arrays hold max_shards shards. */
typedef struct op_run {
    tri_kernel kernel;
    tri_op_call call;
    void *input[TRI_OP_MAX_INPUTS];
    float *param[TRI_OP_MAX_PARAMS], *output, *doutput, *dinput[TRI_OP_MAX_INPUTS];
    float *dparam[TRI_OP_MAX_PARAMS][TRI_TREE_MAX_PARTS];
    int32_t *rows;
    int64_t *first_sample;
    int64_t input_count[TRI_OP_MAX_INPUTS], param_count[TRI_OP_MAX_PARAMS], output_count; /* of one shard */
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
} op_run;

static inline tri_shape op_shape(const int64_t *dim)
{
    tri_shape shape = {0};
    while (shape.ndim < TRI_MAX_DIMS && dim[shape.ndim] > 0) {
        shape.dim[shape.ndim] = dim[shape.ndim];
        shape.ndim++;
    }
    return shape;
}

static inline bool op_is_loss(tri_op op)
{
    return tri_op_row(op)->loss;
}

/* Ints: input 1 of losses over classes, input 0 of embedding. */
static inline tri_dtype op_dtype(tri_op op, int i)
{
    const bool classes =
        op == TRI_OP_CROSS_ENTROPY || op == TRI_OP_VOCAB_LOSS || op == TRI_OP_VOCAB_PART || op == TRI_OP_VOCAB_SUMS;
    return (classes && i == 1) || (op == TRI_OP_EMBEDDING && i == 0) ? TRI_I32 : TRI_F32;
}

static inline tri_status op_describe(const op_case *c, int threads, tri_op_desc *desc)
{
    *desc = (tri_op_desc){.op = c->op, .attr = c->attr, .threads = threads};
    desc->max_shards = c->shards > 0 ? c->shards : 8;
    desc->input_count = c->inputs > 0 ? c->inputs : c->other[0] > 0 ? 2 : 1;
    for (int i = 0; i < desc->input_count; i++) {
        desc->input[i] = op_shape(i == 0 ? c->x : c->other);
        desc->need_dinput[i] = op_dtype(c->op, i) == TRI_F32;
        desc->input_dtype[i] = desc->need_dinput[i] ? c->half : op_dtype(c->op, i);
    }
    desc->attr.units = c->units;
    desc->attr.width = c->width;
    desc->attr.to = op_shape(c->to);
    TRI_TRY(tri_op_infer(desc));
    if (!op_is_loss(c->op)) {
        desc->output_dtype = c->half;
    }
    return TRI_OK;
}

/* Normal numbers of a stream. They are computed once: tests fill the same memory thousands of times. */
static inline void op_fill(float *x, int64_t count, uint64_t stream)
{
    static float *drawn[64];
    static int64_t drawn_count[64];
    if (count > drawn_count[stream]) {
        drawn[stream] = tri_realloc(drawn[stream], (size_t)count * sizeof(float));
        for (int64_t i = drawn_count[stream]; i < count; i++) {
            drawn[stream][i] = tri_rng_normal((tri_rng){77, stream}, (uint64_t)i);
        }
        drawn_count[stream] = count;
    }
    memcpy(x, drawn[stream], (size_t)count * sizeof(float));
}

/* Values of 16 bits lie in the first half of their memory. In place: f32 to bf16 or f16, and back. */
static inline void op_halve(void *x, int64_t count, tri_dtype dtype)
{
    for (int64_t i = 0; i < count; i++) {
        float wide;
        memcpy(&wide, (char *)x + 4 * i, 4);
        const uint16_t half = dtype == TRI_BF16 ? tri_f32_to_bf16(wide) : tri_f32_to_f16(wide);
        memcpy((char *)x + 2 * i, &half, 2);
    }
}

static inline void op_widen(void *x, int64_t count, tri_dtype dtype)
{
    for (int64_t i = count - 1; i >= 0; i--) {
        uint16_t half;
        memcpy(&half, (char *)x + 2 * i, 2);
        const float wide = dtype == TRI_BF16 ? tri_bf16_to_f32(half) : tri_f16_to_f32(half);
        memcpy((char *)x + 4 * i, &wide, 4);
    }
}

/* Plans and allocates; ragged: the last two shards have fewer samples (none in the last but one of many samples). */
static inline tri_status op_open(op_run *r, const char *kind, const op_case *c, int threads, bool ragged)
{
    tri_op_desc desc;
    *r = (op_run){0};
    TRI_TRY(op_describe(c, threads, &desc));
    TRI_TRY(tri_kernel_plan(kind, &desc, &r->kernel));
    const int shards = desc.max_shards;
    r->rows = tri_alloc_zero((size_t)shards, sizeof(int32_t));
    r->first_sample = tri_alloc_zero((size_t)shards, sizeof(int64_t));
    for (int s = 0; s < shards; s++) {
        const int32_t full = (int32_t)desc.input[0].dim[0];
        r->rows[s] = ragged && s == shards - 1 ? 0 : ragged && s == shards - 2 ? (full + 1) / 2 : full;
        r->first_sample[s] = s * full;
    }
    for (int i = 0; i < desc.input_count; i++) {
        r->input_count[i] = tri_shape_count(desc.input[i]);
        const int64_t count = r->input_count[i] * shards;
        float *x = tri_alloc_bulk((size_t)count * 4);
        op_fill(x, count, (uint64_t)(10 + i));
        if (desc.input_dtype[i] == TRI_I32) { /* from -1 to one too high */
            const int64_t bound = (c->units > 0 ? c->units : desc.input[0].dim[desc.input[0].ndim - 1]) + 2;
            for (int64_t j = 0; j < count; j++) {
                ((int32_t *)(void *)x)[j] = (int32_t)tri_rng_below((tri_rng){5, 5}, (uint64_t)j, (uint64_t)bound) - 1;
                if (c->op == TRI_OP_CROSS_ENTROPY && j % 3 == 1) /* two classes, the second may be one too high */
                    ((int32_t *)(void *)x)[j] = tri_label_mix(
                        (int32_t)(j % (bound - 2)), (int32_t)((j * 7 + 1) % (bound - 1)), (int32_t)(j * 300 % 1025));
            }
        }
        if (desc.need_dinput[i] && c->half) {
            op_halve(x, count, c->half);
        }
        r->input[i] = x;
        r->dinput[i] = tri_alloc_bulk((size_t)count * 4);
        r->call.input[i] = x;
        r->call.dinput[i] = desc.need_dinput[i] ? r->dinput[i] : NULL;
    }
    for (int p = 0; p < desc.param_count; p++) {
        r->param_count[p] = tri_shape_count(desc.param[p]);
        r->param[p] = tri_alloc_bulk((size_t)r->param_count[p] * 4);
        op_fill(r->param[p], r->param_count[p], (uint64_t)(20 + p));
        for (int64_t j = 0; p == 3 && j < r->param_count[p]; j++) { /* a variance */
            r->param[p][j] = 0.5f + fabsf(r->param[p][j]);
        }
        r->call.param[p] = r->param[p];
        for (int part = 0; part < shards && part < TRI_TREE_MAX_PARTS; part++) {
            r->dparam[p][part] = tri_alloc_bulk((size_t)r->param_count[p] * 4);
        }
        r->call.dparam[p] = r->dparam[p];
    }
    r->output_count = tri_shape_count(desc.output);
    r->output = tri_alloc_bulk((size_t)(r->output_count * shards) * 4);
    r->doutput = tri_alloc_bulk((size_t)(r->output_count * shards) * 4);
    op_fill(r->doutput, r->output_count * shards, 30);
    for (int s = 0; s < shards && !op_is_loss(c->op); s++) { /* samples behind the valid ones have no gradient */
        const int64_t sample = r->output_count / desc.input[0].dim[0];
        memset(r->doutput + s * r->output_count + r->rows[s] * sample, 0,
               (size_t)((desc.input[0].dim[0] - r->rows[s]) * sample) * 4);
    }
    if (c->half && !op_is_loss(c->op)) {
        op_halve(r->doutput, r->output_count * shards, c->half);
    }
    r->parts[0] = (tri_tree_part){0, shards};
    r->call.shards = shards;
    r->call.rows = r->rows;
    r->call.first_sample = r->first_sample;
    r->call.output = r->output;
    r->call.doutput = r->doutput;
    r->call.saved = tri_alloc_bulk(r->kernel.saved_nbytes * (size_t)shards);
    r->call.scratch = tri_alloc_bulk(r->kernel.scratch_nbytes);
    r->call.host = tri_alloc_bulk(r->kernel.host_nbytes);
    r->call.training = true;
    r->call.seed = 3;
    r->call.step = 9;
    r->call.part_count = 1;
    r->call.parts = r->parts;
    return TRI_OK;
}

static inline void op_close(op_run *r)
{
    for (int i = 0; i < TRI_OP_MAX_INPUTS; i++) {
        tri_free(r->input[i]);
        tri_free(r->dinput[i]);
    }
    for (int p = 0; p < TRI_OP_MAX_PARAMS; p++) {
        tri_free(r->param[p]);
        for (int part = 0; part < TRI_TREE_MAX_PARTS; part++) {
            tri_free(r->dparam[p][part]);
        }
    }
    tri_free(r->output);
    tri_free(r->doutput);
    tri_free(r->rows);
    tri_free(r->first_sample);
    tri_free(r->call.saved);
    tri_free(r->call.scratch);
    tri_free(r->call.host);
    tri_kernel_release(&r->kernel);
    *r = (op_run){0};
}

#endif
