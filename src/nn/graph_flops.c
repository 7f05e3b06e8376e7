/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_flops.c: counts the multiplications and additions of products: the work that makes up a step.
 */
#include "nn/graph_impl.h"

/* One pass over one sample. */
static double one_pass(const tri_graph *graph, const graph_op *op)
{
    const tri_op_ops *row = tri_op_row(op->desc.op);
    return row->products ? 2.0 * row->products(&op->desc) / (double)graph->config.rows : 0;
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
    if (tri_op_row(op->desc.op)->squares && passes > 1)
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
