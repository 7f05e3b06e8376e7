/* SPDX-License-Identifier: Apache-2.0
 *
 * backward.c: runs a compiled graph backward and says which gradients are complete.
 *
 * The order of additions is fixed by the plan: per parameter the canonical tree over shards (inside the kernels), per
 * value with several readers the order of the backward pass.
 */
#include "base/status.h"
#include "kernel/array.h"
#include "nn/graph_impl.h"

/* Shards of a part that have rows. */
static float shards_count(const tri_graph *graph, const tri_tree_part *part)
{
    int64_t count = 0;
    for (int64_t s = part->first; s < part->first + part->count; s++)
        count += graph->batch.rows[s] > 0;
    return (float)count;
}

/* On the device, which may not have computed the sums yet. */
static tri_status tails_write(tri_graph *graph)
{
    const tri_params *params = graph->params;
    const tri_device *device = params->device;
    float *tails[TRI_TREE_MAX_PARTS];
    for (int p = 0; p < graph->part_count && !graph->placed; p++)
        tails[p] = graph->grads[p] + tri_params_grad_count(params);
    if (graph->placed)
        TRI_TRY(graph->hooks.place(graph->hooks.arg, tri_params_tail(params), tails));
    tri_array_fold(device, &tri_graph_sums(graph)[0][0], TRI_LOSS_COLUMNS, TRI_TAIL_SHARDS, graph->parts,
                   graph->part_count, tails);
    for (int p = 0; p < graph->part_count; p++) {
        tri_array_fill(device, tails[p] + TRI_TAIL_SHARDS, shards_count(graph, &graph->parts[p]), 1);
        tri_array_fill(device, tails[p] + TRI_TAIL_SHARDS + 1, 0, TRI_PARAMS_TAIL - TRI_TAIL_SHARDS - 1);
    }
    return TRI_OK;
}

/* From here on the op finds what the second run of its block left. */
static void op_enter_block(tri_graph *graph, graph_op *op)
{
    tri_op_call *call = &op->call;
    for (int i = 0; i < op->desc.input_count; i++)
        call->input[i] = tri_graph_value_down(graph, op->input[i], op->block);
    if (!op->again)
        return;
    call->output = tri_graph_value_down(graph, op->output, op->block);
    call->saved = tri_graph_buffer(graph, op->saved_again);
}

static tri_status block_again(tri_graph *graph, int last)
{
    for (int o = tri_graph_block_first(graph, last); o <= last; o++) {
        graph_op *op = &graph->ops[o];
        op_enter_block(graph, op);
        if (!op->again)
            continue;
        op->call.scratch = tri_graph_buffer(graph, op->scratch_again);
        TRI_TRY(tri_graph_op_bring(graph, op));
        tri_kernel_forward(&op->kernel, &op->call);
        TRI_TRY(tri_graph_others(graph));
        tri_graph_op_done(graph, op);
    }
    return TRI_OK;
}

/* late: its parameters' gradients are left for op_weights(). */
static tri_status op_down(tri_graph *graph, graph_op *op, bool late)
{
    const tri_device *device = graph->params->device;
    tri_op_call *call = &op->call;
    /* What the op reads and writes of the store is at hand. */
    TRI_TRY(tri_graph_op_bring(graph, op));
    for (int p = 0; graph->placed && p < op->desc.param_count; p++) {
        if (!op->moves[p])
            continue;
        float **parts = graph->dparam + (size_t)op->slot[p] * (size_t)graph->part_capacity;
        TRI_TRY(graph->hooks.place(graph->hooks.arg, op->slot[p], parts));
    }
    tri_graph_op_parts(graph, op);
    for (int p = 0; late && p < op->desc.param_count; p++)
        call->dparam[p] = NULL;
    call->scratch = tri_graph_buffer(graph, op->scratch_down);
    call->doutput = tri_graph_buffer(graph, graph->values[op->output].grad);
    call->adds_dinput = op->adds_dinput;
    for (int i = 0; i < op->desc.input_count; i++)
        call->dinput[i] = tri_graph_buffer(graph, op->dinput[i]);
    tri_kernel_backward(&op->kernel, call);
    tri_graph_op_done(graph, op);
    for (int i = 0; i < op->desc.input_count; i++) {
        void *sum = tri_graph_buffer(graph, op->add_into[i]);
        if (!sum)
            continue;
        const graph_value *value = &graph->values[op->input[i]];
        int64_t count = (int64_t)(value->nbytes / tri_dtype_nbytes(value->dtype)) * graph->batch.shards;
        if (value->dtype != TRI_F32)
            tri_array_add_half(device, graph->config.threads, value->dtype, sum, sum, call->dinput[i], count);
        else
            tri_array_add(device, graph->config.threads, sum, sum, call->dinput[i], count);
    }
    return TRI_OK;
}

/* The kernel reads no parameter for this. */
static void op_weights(tri_graph *graph, graph_op *op)
{
    tri_op_call *call = &op->call;
    tri_graph_op_parts(graph, op);
    call->scratch = tri_graph_buffer(graph, op->scratch_late);
    for (int i = 0; i < op->desc.input_count; i++)
        call->dinput[i] = NULL;
    tri_kernel_backward(&op->kernel, call);
}

static tri_status backward_run(tri_graph *graph, tri_graph_ready ready, void *arg, bool late)
{
    graph_slot *slot = &graph->slots[graph->slot];
    if (!slot->can_run_backward)
        return tri_fail(TRI_EINVAL, "graph: backward needs a forward with training = true before it");
    /* What the runs of other slots have left in the calls is made this one's again. */
    graph->batch = slot->batch;
    TRI_TRY(tri_graph_check_parts(graph, slot->batch.shards));
    tri_graph_crossings_place(graph, slot->batch.shards);
    for (int o = 0; graph->config.slots > 0 && o < graph->op_count; o++)
        tri_graph_call_fill(graph, &graph->ops[o], slot->step, true, true);
    tri_graph_relay(graph, true);
    slot->can_run_backward = false;
    if (graph->hooks.begin)
        graph->hooks.begin(graph->hooks.arg, true);
    if (graph->span.has_loss)
        TRI_TRY(tails_write(graph));
    if (ready && graph->span.has_loss)
        ready(arg, tri_params_tail(graph->params));
    for (int o = graph->op_count - 1; o >= 0; o--) {
        graph_op *op = &graph->ops[o];
        if (tri_graph_ends_block(graph, o))
            TRI_TRY(block_again(graph, o));
        if (op->backward)
            TRI_TRY(op_down(graph, op, late && op->late));
        TRI_TRY(tri_graph_others(graph));
        for (int p = op->desc.param_count - 1; ready && p >= 0; p--)
            if (p > 0 || !op->open)
                ready(arg, op->slot[p]);
    }
    return TRI_OK;
}

tri_status tri_graph_backward(tri_graph *graph, tri_graph_ready ready, void *arg)
{
    return backward_run(graph, ready, arg, false);
}

tri_status tri_graph_backward_values(tri_graph *graph)
{
    return backward_run(graph, NULL, NULL, true);
}

tri_status tri_graph_backward_weights(tri_graph *graph)
{
    for (int o = graph->op_count - 1; o >= 0; o--)
        if (graph->ops[o].late)
            op_weights(graph, &graph->ops[o]);
    return tri_graph_others(graph);
}
