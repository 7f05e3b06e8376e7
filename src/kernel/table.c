/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: names of ops, the lists of rows per kind, and the dispatch to a planned kernel.
 *
 * A kind is a list in order of preference; the first row of the op that can do the description is taken.
 */
#include "kernel/kernel.h"

#include <stdio.h>

#include "base/rng.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_half.h"
#ifdef TRI_HAVE_DNNL
#include "kernel/cpu/dnnl.h"
#endif
#include "kernel/gpu/rows.h"
#include "kernel/half.h"

static const struct {
    const char *name;
    const tri_op_ops *row;
} rows_of_ops[] = {
#define OP_ENTRY(id, name) [id] = {#name, &tri_op_##name},
    TRI_OP_LIST(OP_ENTRY)
#undef OP_ENTRY
};

#define ROW_ADDRESS(row) &row,
static const tri_kernel_ops *const reference_rows[] = {NULL};
static const tri_kernel_ops *const tiles_rows[] = {TRI_CPU_ROWS(ROW_ADDRESS) NULL};
static const tri_kernel_ops *const dnnl_rows[] = {TRI_DNNL_ROWS(ROW_ADDRESS) TRI_CPU_ROWS(ROW_ADDRESS) NULL};
static const tri_kernel_ops *const cpu_rows[] = {TRI_WINO_ROWS(ROW_ADDRESS) TRI_DNNL_ROWS(ROW_ADDRESS)
                                                     TRI_CPU_ROWS(ROW_ADDRESS) NULL};

static const tri_kernel_ops *const gpu_rows[] = {TRI_GPU_TOKEN_ROWS(ROW_ADDRESS) TRI_GPU_ROWS(ROW_ADDRESS) NULL};
static const tri_kernel_ops *const token_rows[] = {TRI_TOKEN_ROWS(ROW_ADDRESS) TRI_CPU_ROWS(ROW_ADDRESS) NULL};

/* Each but that of a GPU ends in the op's own reference. */
static const struct {
    const char *kind;
    const tri_kernel_ops *const *rows;
    bool gpu;
} kinds[] = {{"cpu", cpu_rows, false},      {"dnnl", dnnl_rows, false}, {"tiles", tiles_rows, false},
             {"tokens", token_rows, false}, {"cuda", gpu_rows, true},   {"reference", reference_rows, false}};

const char *tri_op_name(tri_op op)
{
    return (unsigned)op < TRI_OP_COUNT ? rows_of_ops[op].name : "?";
}

const tri_op_ops *tri_op_row(tri_op op)
{
    return (unsigned)op < TRI_OP_COUNT ? rows_of_ops[op].row : NULL;
}

bool tri_op_find(const char *name, tri_op *op)
{
    for (int i = 0; i < TRI_OP_COUNT; i++) {
        if (strcmp(rows_of_ops[i].name, name) == 0) {
            *op = (tri_op)i;
            return true;
        }
    }
    return false;
}

static bool row_can(const tri_kernel_ops *row, const tri_op_desc *desc)
{
    return (row->half || !tri_op_desc_has(desc, TRI_BF16)) && (row->f16 || !tri_op_desc_has(desc, TRI_F16)) &&
           (row->can == NULL || row->can(desc));
}

/* The first row that can, after `last` (NULL: of all). */
static const tri_kernel_ops *choose_after(const char *kind, const tri_op_desc *desc, const tri_kernel_ops *last)
{
    const tri_op_ops *op = tri_op_row(desc->op);
    for (size_t i = 0; op != NULL && i < TRI_COUNT_OF(kinds); i++) {
        if (strcmp(kinds[i].kind, kind) != 0) {
            continue;
        }
        for (const tri_kernel_ops *const *row = kinds[i].rows; *row != NULL; row++) {
            if (last != NULL) {
                last = *row == last ? NULL : last;
            } else if ((*row)->op == desc->op && row_can(*row, desc)) {
                return *row;
            }
        }
        return last == NULL && !kinds[i].gpu && row_can(&op->reference, desc) ? &op->reference : NULL;
    }
    return NULL;
}

const tri_kernel_ops *tri_kernel_choose(const char *kind, const tri_op_desc *desc)
{
    const tri_kernel_ops *ops = choose_after(kind, desc, NULL);
    if (ops == NULL && strcmp(kind, "cuda") != 0 && tri_op_desc_is_half(desc)) { /* the host's loops, of the adapter */
        const tri_op_desc wide = tri_half_desc_widen(desc);
        ops = choose_after(kind, &wide, NULL);
        return ops != NULL ? tri_half_adapter(ops) : NULL;
    }
    return ops;
}

tri_status tri_kernel_plan(const char *kind, const tri_op_desc *desc, tri_kernel *kernel)
{
    *kernel = (tri_kernel){.desc = *desc};
    const tri_kernel_ops *ops = tri_kernel_choose(kind, desc);
    if (ops == NULL && strcmp(kind, "cuda") == 0) {
        return tri_gpu_refuse(desc);
    }
    if (ops == NULL) {
        return tri_fail(TRI_EINVAL, "kernel: want a kind of cpu, cuda or reference that knows the op, got %s for %s",
                        kind, tri_op_name(desc->op));
    }
    if (desc->max_shards < 1 || desc->threads < 1) {
        return tri_fail(TRI_EINVAL, "%s: want at least 1 shard and 1 thread, got %d and %d", tri_op_name(desc->op),
                        desc->max_shards, desc->threads);
    }
    if (tri_op_desc_is_half(desc) && choose_after(kind, desc, NULL) == NULL) {
        return tri_half_plan(kind, desc, kernel);
    }
    tri_status status = TRI_OK;
    do {
        *kernel = (tri_kernel){.desc = *desc, .ops = ops};
        status = ops->plan != NULL ? ops->plan(desc, kernel) : TRI_OK;
        if (status == TRI_OK) {
            return TRI_OK;
        }
        tri_kernel_release(kernel);
        ops = choose_after(kind, desc, ops);
    } while (status == TRI_EUNSUPPORTED && ops != NULL);
    return status;
}

void tri_kernel_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    TRI_DASSERT(call->shards >= 1 && call->shards <= kernel->desc.max_shards);
    tri_mapped_call room;
    kernel->ops->forward(kernel, tri_call_mapped(kernel, call, &room));
}

#define SCALE_TILE INT64_C(16384) /* elements */

typedef struct scale_arg {
    float *x;
    float factor;
    int64_t count;
} scale_arg;

static void scale_tile(void *arg, int64_t tile)
{
    const scale_arg *v = arg;
    const int64_t end = tri_int64_min((tile + 1) * SCALE_TILE, v->count);
    for (int64_t i = tile * SCALE_TILE; i < end; i++) {
        v->x[i] *= v->factor;
    }
}

static void scale_all(int threads, float *x, float factor, int64_t count)
{
    scale_arg arg = {x, factor, count};
    tri_tiles_run(threads, tri_int64_ceil(count, SCALE_TILE), scale_tile, &arg);
}

/* What begins the gradients of all others, times loss_scale. Values of 16 bits run through the adapter, whose row for
 * f32 comes here before they are rounded. Rows of a GPU scale on their own. */
static void loss_scale(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    if (kernel->ops->gpu || !tri_op_row(desc->op)->begins_gradient || call->loss_scale == 0 || call->loss_scale == 1 ||
        tri_op_desc_is_half(desc)) {
        return;
    }
    if (call->dinput[0] != NULL) {
        scale_all(desc->threads, call->dinput[0], call->loss_scale, tri_shape_count(desc->input[0]) * call->shards);
    }
    for (int p = 0; p < desc->param_count; p++) {
        for (int part = 0; part < call->part_count && tri_call_wants_dparam(call, p); part++) {
            scale_all(desc->threads, call->dparam[p][part], call->loss_scale, tri_shape_count(desc->param[p]));
        }
    }
}

void tri_kernel_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    TRI_DASSERT(call->shards >= 1 && call->shards <= kernel->desc.max_shards);
    tri_mapped_call room;
    if (kernel->ops->backward != NULL) {
        const tri_op_call *seen = tri_call_mapped(kernel, call, &room);
        kernel->ops->backward(kernel, seen);
        loss_scale(kernel, seen);
    }
}

void tri_kernel_release(tri_kernel *kernel)
{
    if (kernel->ops != NULL && kernel->ops->release != NULL) {
        kernel->ops->release(kernel);
    }
    *kernel = (tri_kernel){0};
}

tri_dropout_rule tri_dropout_rule_make(const tri_kernel *kernel, const tri_op_call *call)
{
    const float rate = kernel->desc.attr.rate;
    return (tri_dropout_rule){call->seed,
                              tri_rng_stream(tri_op_name(kernel->desc.op), kernel->desc.attr.key, call->step), rate,
                              1.0f / (1.0f - rate)};
}

tri_attention_drop tri_attention_drop_make(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    return (tri_attention_drop){.on = call->training && kernel->desc.attr.rate > 0,
                                .rule = tri_dropout_rule_make(kernel, call),
                                .first_sample = call->first_sample,
                                .samples = h.samples,
                                .first_head = kernel->desc.attr.first,
                                .heads = kernel->desc.attr.whole > 0 ? kernel->desc.attr.whole : h.queries,
                                .length = h.length};
}

void tri_attention_drop_row(const tri_attention_drop *drop, int64_t b, int64_t head, int64_t query, int64_t first,
                            int64_t count, float *keep)
{
    const int64_t sample = drop->first_sample[b / drop->samples] + b % drop->samples;
    const int64_t row = (sample * drop->heads + drop->first_head + head) * drop->length + query;
    tri_rng_fill_uniform((tri_rng){drop->rule.seed, drop->rule.stream}, (uint64_t)(row * drop->length + first),
                         (uint64_t)count, keep);
    for (int64_t i = 0; i < count; i++) {
        keep[i] = keep[i] >= drop->rule.rate ? drop->rule.scale : 0.0f;
    }
}

const char *tri_kernel_library(void)
{
#ifdef TRI_HAVE_DNNL
    static _Thread_local char text[48];
    int version[3];
    tri_dnnl_version(version);
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", version[0], version[1], version[2]);
    return text;
#else
    return "none";
#endif
}

const char *tri_kernel_arithmetic_of(tri_isa isa)
{
    static _Thread_local char text[128];
#ifdef TRI_HAVE_DNNL
    snprintf(text, sizeof text, "%s, own tiles for %s, bf16 by %s", tri_kernel_library(), tri_gemm_of(isa)->name,
             tri_gemm_half_of(isa)->name);
#else
    snprintf(text, sizeof text, "own tiles for %s, bf16 by %s", tri_gemm_of(isa)->name, tri_gemm_half_of(isa)->name);
#endif
    return text;
}

const char *tri_kernel_arithmetic(void)
{
    return tri_kernel_arithmetic_of(tri_isa_now());
}

const char *tri_kernel_about(void)
{
    static _Thread_local char text[160];
#ifdef _OPENMP
    snprintf(text, sizeof text, "%s, OpenMP", tri_kernel_arithmetic());
#else
    snprintf(text, sizeof text, "%s, one thread", tri_kernel_arithmetic());
#endif
    return text;
}
