/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: the loss over a vocabulary in four parts, joined by a tree, beside that of the whole.
 */
#ifndef TRI_TESTS_OPS_PARTS_H
#define TRI_TESTS_OPS_PARTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/status.h"
#include "ops/ops.h"

enum { PARTS = 4 };

typedef struct parts_run {
    op_run whole; /* data, and what vocab_loss makes of it */
    tri_kernel part[PARTS], join, sums;
    tri_op_call call[PARTS];
    float *state[PARTS], *down, *dinput[PARTS], *dweight[PARTS], *output;
    int64_t first[PARTS + 1];
} parts_run;

static inline void parts_plan(const char *kind, const tri_op_desc *desc, int64_t units, tri_kernel *kernel)
{
    tri_op_desc copy = *desc;
    copy.attr.units = units;
    if (tri_op_infer(&copy) != TRI_OK || tri_kernel_plan(kind, &copy, kernel) != TRI_OK)
        fail_msg("%s: %s", tri_op_name(desc->op), tri_last_error());
}

static inline tri_op_desc parts_states_desc(const parts_run *r, tri_op op)
{
    tri_op_desc desc = r->whole.kernel.desc;
    desc.op = op;
    desc.attr.words = r->whole.kernel.desc.param[0].dim[0];
    desc.input_count = 2;
    desc.input[0] = r->part[0].desc.output;
    desc.input_dtype[0] = TRI_F32;
    if (op == TRI_OP_VOCAB_JOIN) {
        desc.input[1] = desc.input[0];
        desc.input_dtype[1] = TRI_F32;
        desc.need_dinput[1] = true;
    }
    return desc;
}

static inline void parts_part_open(parts_run *r, const char *kind, int p)
{
    const tri_op_desc *whole = &r->whole.kernel.desc;
    const int64_t words = whole->param[0].dim[0], width = whole->param[0].dim[1];
    tri_op_desc desc = *whole;
    desc.op = TRI_OP_VOCAB_PART;
    r->first[p] = words * p / PARTS;
    r->first[p + 1] = words * (p + 1) / PARTS;
    desc.attr.first = r->first[p];
    desc.attr.words = words;
    parts_plan(kind, &desc, r->first[p + 1] - r->first[p], &r->part[p]);
    const size_t shards = (size_t)desc.max_shards;
    r->state[p] = tri_alloc_bulk((size_t)tri_shape_count(r->part[p].desc.output) * shards * 4);
    r->dinput[p] = tri_alloc_bulk((size_t)r->whole.input_count[0] * shards * 4);
    r->dweight[p] = tri_alloc_bulk((size_t)((r->first[p + 1] - r->first[p]) * width) * 4);
    r->call[p] = r->whole.call;
    r->call[p].param[0] = r->whole.param[0] + r->first[p] * width;
    r->call[p].output = r->state[p];
    r->call[p].saved = tri_alloc_bulk(r->part[p].saved_nbytes * shards);
    r->call[p].scratch = tri_alloc_bulk(r->part[p].scratch_nbytes);
    r->call[p].dinput[0] = r->dinput[p];
    r->call[p].dparam[0] = &r->dweight[p];
    tri_kernel_forward(&r->part[p], &r->call[p]);
}

static inline void parts_join(const parts_run *r, float *a, const float *b)
{
    tri_op_call call = r->whole.call;
    call.input[0] = a;
    call.input[1] = b;
    call.output = a;
    tri_kernel_forward(&r->join, &call);
}

/* device: NULL, or that of all calls, which sees the host's memory. */
static inline void parts_open(parts_run *r, const char *kind, const op_case *c, int threads, const tri_device *device)
{
    *r = (parts_run){0};
    if (op_open(&r->whole, kind, c, threads, true) != TRI_OK)
        fail_msg("%s", tri_last_error());
    r->whole.call.device = device;
    for (int p = 0; p < PARTS; p++)
        parts_part_open(r, kind, p);
    tri_op_desc desc = parts_states_desc(r, TRI_OP_VOCAB_JOIN);
    parts_plan(kind, &desc, 0, &r->join);
    desc = parts_states_desc(r, TRI_OP_VOCAB_SUMS);
    parts_plan(kind, &desc, 0, &r->sums);
    parts_join(r, r->state[0], r->state[1]);
    parts_join(r, r->state[2], r->state[3]);
    parts_join(r, r->state[0], r->state[2]);
    const size_t shards = (size_t)desc.max_shards;
    r->down = tri_alloc_bulk((size_t)tri_shape_count(desc.input[0]) * shards * 4);
    r->output = tri_alloc_bulk(shards * TRI_LOSS_COLUMNS * 4);
    tri_op_call call = r->whole.call;
    call.input[0] = r->state[0];
    call.output = r->output;
    call.saved = tri_alloc_bulk(r->sums.saved_nbytes * shards);
    call.scratch = tri_alloc_bulk(r->sums.scratch_nbytes);
    call.dinput[0] = r->down;
    tri_kernel_forward(&r->sums, &call);
    tri_kernel_backward(&r->sums, &call);
    tri_free(call.saved);
    tri_free(call.scratch);
    for (int p = 0; p < PARTS; p++) {
        r->call[p].doutput = r->down;
        tri_kernel_backward(&r->part[p], &r->call[p]);
    }
}

static inline void parts_close(parts_run *r)
{
    for (int p = 0; p < PARTS; p++) {
        tri_free(r->state[p]);
        tri_free(r->dinput[p]);
        tri_free(r->dweight[p]);
        tri_free(r->call[p].saved);
        tri_free(r->call[p].scratch);
        tri_kernel_release(&r->part[p]);
    }
    tri_free(r->down);
    tri_free(r->output);
    tri_kernel_release(&r->join);
    tri_kernel_release(&r->sums);
    op_close(&r->whole);
}

static inline void parts_near(const char *name, const char *what, const float *got, const float *want, int64_t count,
                              double part)
{
    double top = 1e-3;
    for (int64_t i = 0; i < count; i++)
        top = fmax(top, fabs((double)want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= part * top))
            fail_msg("%s: %s[%lld]: want %.9g, got %.9g", name, what, (long long)i, (double)want[i], (double)got[i]);
}

/* The gradient of x, added up over parts, in f32. */
static inline float *parts_dinput_sum(parts_run *r, int64_t count, tri_dtype half)
{
    for (int p = 0; p < PARTS; p++) {
        if (half)
            op_widen(r->dinput[p], count, half);
        if (p > 0)
            tri_vector_add(1, r->dinput[0], r->dinput[0], r->dinput[p], count);
    }
    return r->dinput[0];
}

/* Sums, gradients of x and of the weights are those of vocab_loss. */
static inline void parts_compare(const char *kind, const op_case *c, int threads, const tri_device *device)
{
    parts_run r;
    parts_open(&r, kind, c, threads, device);
    const int64_t count = r.whole.input_count[0] * r.whole.call.shards, width = r.part[0].desc.param[0].dim[1];
    tri_kernel_forward(&r.whole.kernel, &r.whole.call);
    tri_kernel_backward(&r.whole.kernel, &r.whole.call);
    if (c->half)
        op_widen(r.whole.dinput[0], count, c->half);
    const double near = c->half ? 1.2e-2 : 3e-5;
    parts_near(c->name, "sums", r.output, r.whole.output, r.whole.call.shards * TRI_LOSS_COLUMNS, 3e-5);
    for (int s = 0; s < r.whole.call.shards; s++) /* counts are exact */
        for (int column = 1; column < TRI_LOSS_COLUMNS; column++)
            assert_true(r.output[s * TRI_LOSS_COLUMNS + column] == r.whole.output[s * TRI_LOSS_COLUMNS + column]);
    parts_near(c->name, "dinput", parts_dinput_sum(&r, count, c->half), r.whole.dinput[0], count, near);
    for (int p = 0; p < PARTS; p++)
        parts_near(c->name, "dparam", r.dweight[p], r.whole.dparam[0][0] + r.first[p] * width,
                   (r.first[p + 1] - r.first[p]) * width, near);
    parts_close(&r);
}

#endif
