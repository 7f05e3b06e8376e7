/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c: x[B..,C] w[D,C] -> y[B..,D]. All shards are rows of one product, since each element is one chain over C
 * whatever the cut. The weights' gradient is a sum over samples: gemm_tree.c.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"

/* Where things are in scratch, in elements. */
typedef struct layout {
    int64_t units, channels, rows; /* rows of one shard */
    int64_t tree, leaves, total;   /* packed weights are at 0 */
} layout;

static layout layout_make(const tri_op_desc *desc)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    layout l = {.units = desc->param[0].dim[0], .channels = desc->param[0].dim[1]};
    l.rows = tri_shape_count(desc->output) / l.units;
    const int64_t up = tri_gemm_packed_count(ops, l.channels, l.units);
    const int64_t down = tri_gemm_packed_count(ops, l.units, l.channels);
    l.tree = tri_align_count(tri_int64_max(up, down));
    l.leaves = l.tree + tri_align_count(tri_gemm_tree_count(ops, l.rows, desc->max_shards, desc->threads));
    l.total = l.leaves + tri_align_count(l.units * desc->max_shards);
    return l;
}

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)layout_make(desc).total * sizeof(float);
    return TRI_OK;
}

/* c[rows][n] = act(a[rows][k] w + bias), w[k * k_step + n * n_step]: the smaller of the two factors is
 * packed, or the weights where the rows are many. */
static void product(const tri_kernel *kernel, const tri_op_call *call, const tri_gemm_call *p, int64_t k_step,
                    int64_t n_step)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    const int threads = kernel->desc.threads;
    const float *w = call->param[0];
    tri_gemm_call run = *p;
    run.packed = call->scratch;
    if (p->m >= tri_int64_min(p->n, TRI_GEMM_MANY)) {
        tri_gemm_pack_all(ops, threads, call->scratch, w, p->k, p->n, k_step, n_step);
        tri_gemm_run(ops, threads, &run);
        return;
    }
    tri_gemm_pack_all(ops, threads, call->scratch, p->a, p->k, p->m, 1, p->lda);
    tri_gemm_turn_run(ops, threads,
                      &(tri_gemm_turn){.a = w,
                                       .packed = call->scratch,
                                       .bias = p->bias,
                                       .c = p->c,
                                       .m = p->n,
                                       .n = p->m,
                                       .k = p->k,
                                       .row_step = n_step,
                                       .k_step = k_step,
                                       .ldc = p->ldc,
                                       .relu = p->relu});
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const layout l = layout_make(&kernel->desc);
    product(kernel, call,
            &(tri_gemm_call){.a = call->input[0],
                             .bias = kernel->desc.attr.bias ? call->param[1] : NULL,
                             .c = call->output,
                             .m = l.rows * call->shards,
                             .n = l.units,
                             .k = l.channels,
                             .lda = l.channels,
                             .ldc = l.units,
                             .relu = kernel->desc.attr.relu},
            1, l.channels);
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const layout l = layout_make(&kernel->desc);
    float *scratch = call->scratch, *leaves = scratch + l.leaves;
    const bool bias = kernel->desc.attr.bias && tri_call_wants_dparam(call, 1), relu = kernel->desc.attr.relu;
    tri_gemm_tree tree = {.a = call->doutput,
                          .b = call->input[0],
                          .m = l.units,
                          .n = l.channels,
                          .k = l.rows,
                          .scratch = scratch + l.tree};
    const bool weights = tri_call_wants_dparam(call, 0);
    tri_cpu_columns columns = {.dy = (float *)call->doutput,
                               .y = relu ? call->output : NULL,
                               .leaves = bias ? leaves : NULL,
                               .rows = l.rows,
                               .columns = l.units,
                               .shards = call->shards};
    if (weights && bias && !relu && !tri_gemm_tree_is_short(tri_gemm_find(), &tree)) {
        tree.sums = leaves;
    } else if (weights && tri_gemm_tree_packs(tri_gemm_find(), kernel->desc.threads, call->shards, &tree)) {
        tree.ready = tri_cpu_columns_ready;
        tree.arg = &columns;
    } else {
        tri_cpu_mask_columns(kernel, call, l.rows, l.units, relu, bias ? leaves : NULL);
    }
    tri_gemm_tree_run(tri_gemm_find(), kernel, call, 0, &tree);
    if (bias) {
        tri_leaves_sum(kernel, call, 1, leaves, l.units, l.units);
    }
    if (call->dinput[0] != NULL) {
        product(kernel, call,
                &(tri_gemm_call){.a = call->doutput,
                                 .c = call->dinput[0],
                                 .m = l.rows * call->shards,
                                 .n = l.channels,
                                 .k = l.units,
                                 .lda = l.units,
                                 .ldc = l.channels},
                l.channels, 1);
    }
}

static bool has_relu(const tri_op_desc *desc)
{
    return desc->attr.relu;
}

const tri_kernel_ops tri_cpu_linear_relu = {
    .op = TRI_OP_LINEAR,
    .name = "tiles",
    .can = has_relu,
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

const tri_kernel_ops tri_cpu_linear = {
    .op = TRI_OP_LINEAR,
    .name = "tiles",
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
};
