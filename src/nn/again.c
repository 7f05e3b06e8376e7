/* SPDX-License-Identifier: Apache-2.0
 *
 * again.c: when each op runs: blocks whose values are not kept for the backward pass, of whose ops some run again
 * there, and gradients of parameters that let those of values go first.
 *
 * An op of a block runs again when its backward needs what it saved or its output, or when an op of the block that runs
 * again, or the backward of one, reads its output, unless that is kept for readers outside anyway. The same kernels on
 * the same inputs: the same bits. Without blocks op i goes down at time 2n - 1 - i.
 */
#include "nn/graph_impl.h"

static bool reads(const graph_op *op, int value)
{
    for (int i = 0; i < op->desc.input_count; i++)
        if (op->input[i] == value)
            return true;
    return false;
}

/* The output of op `producer` lives on after the forward pass of its block. */
static bool is_kept(const tri_graph *graph, int producer)
{
    const graph_op *made = &graph->ops[producer];
    if (made->block == 0 || made->output == graph->logits)
        return true;
    for (int i = 0; i < graph->span.out_count; i++)
        if (graph->span.out[i].value == made->output)
            return true;
    for (int o = producer + 1; o < graph->op_count; o++)
        if (graph->ops[o].block != made->block && reads(&graph->ops[o], made->output))
            return true;
    return false;
}

static bool wanted_again(const tri_graph *graph, int o)
{
    const graph_op *op = &graph->ops[o];
    if (op->backward && (op->kernel.saved_nbytes > 0 || op->kernel.ops->backward_output))
        return true;
    if (is_kept(graph, o))
        return false;
    for (int reader = o + 1; reader < graph->op_count; reader++) {
        const graph_op *later = &graph->ops[reader];
        if (reads(later, op->output) && (later->again || tri_graph_op_reads_down(later)))
            return true;
    }
    return false;
}

bool tri_graph_ends_block(const tri_graph *graph, int o)
{
    int block = graph->ops[o].block;
    return block > 0 && (o + 1 == graph->op_count || graph->ops[o + 1].block != block);
}

int tri_graph_block_first(const tri_graph *graph, int o)
{
    while (o > 0 && graph->ops[o - 1].block == graph->ops[o].block)
        o--;
    return o;
}

static bool sends_down(const tri_graph *graph)
{
    for (int i = 0; i < graph->span.in_count; i++)
        if (graph->span.in[i].grad)
            return true;
    return false;
}

bool tri_graph_op_can_wait(const graph_op *op)
{
    return tri_op_row(op->desc.op)->weights_wait && op->backward && op->desc.need_dinput[0] && op->moves[0] &&
           op->block == 0;
}

void tri_graph_plan_times(tri_graph *graph)
{
    int time = graph->op_count;
    for (int o = graph->op_count - 1; o >= 0; o--)
        graph->ops[o].again = graph->config.training && graph->ops[o].block > 0 && wanted_again(graph, o);
    for (int o = graph->op_count - 1; o >= 0; o--) {
        if (tri_graph_ends_block(graph, o))
            for (int i = tri_graph_block_first(graph, o); i <= o; i++)
                if (graph->ops[i].again)
                    graph->ops[i].again_at = time++;
        graph->ops[o].down_at = graph->ops[o].late_at = time++;
    }
    bool waited_for = graph->config.training && graph->config.slots > 0 && sends_down(graph);
    for (int o = graph->op_count - 1; o >= 0 && waited_for; o--) {
        graph->ops[o].late = tri_graph_op_can_wait(&graph->ops[o]);
        if (graph->ops[o].late)
            graph->ops[o].late_at = time++;
    }
}
