/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_flops.c: counts the multiplications and additions of products: the work that makes up a step.
 */
#include "kernel/row.h"
#include "nn/graph_impl.h"

/* Terms of one element of the output. */
static int64_t terms_of(const tri_op_desc *desc)
{
    const tri_shape *weight = &desc->param[0], *a = &desc->input[0];
    /* Scores, then the mix of values; on average half of the places are looked at. */
    if (desc->op == TRI_OP_ATTENTION)
        return a->dim[1];
    switch (desc->op) {
    case TRI_OP_LINEAR:
        return weight->dim[1];
    case TRI_OP_CONV:
        return weight->dim[1] * weight->dim[2] * weight->dim[3];
    case TRI_OP_MATMUL:
        return a->dim[a->ndim - 1];
    default:
        return 0;
    }
}

/* Elements of which each is a sum of terms: before a fused pool. */
static int64_t outputs_of(const tri_op_desc *desc)
{
    if (!desc->attr.pool)
        return tri_shape_count(desc->output);
    const tri_window w = tri_window_make(desc);
    return w.batch * w.out[0] * w.out[1] * w.out_channels;
}

static double one_pass(const tri_graph *graph, const graph_op *op)
{
    double outputs = (double)outputs_of(&op->desc), terms = (double)terms_of(&op->desc);
    if (op->desc.op == TRI_OP_VOCAB_LOSS || op->desc.op == TRI_OP_VOCAB_PART) {
        outputs = (double)tri_shape_count(op->desc.input[1]) * (double)op->desc.param[0].dim[0];
        terms = (double)op->desc.param[0].dim[1];
    }
    return 2.0 * terms * outputs / (double)graph->config.rows;
}

double tri_graph_op_late_flops(const tri_graph *graph, const graph_op *op)
{
    return tri_graph_op_can_wait(op) ? one_pass(graph, op) : 0;
}

double tri_graph_op_flops(const tri_graph *graph, const graph_op *op, bool again)
{
    int passes = 1 + (op->backward && op->desc.param_count > 0 && op->moves[0]);
    for (int i = 0; i < op->desc.input_count; i++)
        passes += op->backward && op->desc.need_dinput[i];
    if (op->desc.op == TRI_OP_ATTENTION && passes > 1)
        passes++; /* each of its two products has two factors with gradients */
    if (again && op->backward && (op->block > 0 || op->desc.attr.forget))
        passes++;
    return passes * one_pass(graph, op);
}

double tri_graph_count_flops(const tri_graph *graph)
{
    double flops = 0;
    for (int o = 0; o < graph->op_count; o++)
        flops += tri_graph_op_flops(graph, &graph->ops[o], false);
    return flops;
}

double tri_graph_flops(const tri_graph *graph)
{
    return graph->flops;
}
