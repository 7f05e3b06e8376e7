/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_plan.c: which buffer each value, gradient and scratch has, how long it lives, and where it is.
 *
 * A value lives until its last reader, in the backward pass where a kernel's flags say that backward reads it. In
 * place: where the kernel allows it and nobody reads the old content later. Offsets: largest first, each at the lowest
 * place that is free in all of its time (first fit). With several slots, what lives from the forward into the backward
 * pass is once for each behind what all of them share.
 */

#include <limits.h>

#include "base/memory.h"
#include "base/status.h"
#include "nn/graph_impl.h"

static int time_down(const tri_graph *graph, int op)
{
    return graph->ops[op].down_at;
}

/* When backward reads its op's values for the last time. */
static int time_late(const tri_graph *graph, int op)
{
    return graph->ops[op].late_at;
}

static int later(int a, int b)
{
    return a > b ? a : b;
}

/* --- buffers and their times --- */

/* Returns the number of a new buffer, or -1 when nothing is to be held. The capacity was reserved. */
static int buffer_add(tri_graph *graph, size_t nbytes, int first, int last)
{
    if (nbytes == 0)
        return -1;
    TRI_ASSERT(graph->buffer_count < graph->buffer_capacity);
    size_t rounded = (nbytes + 63) / 64 * 64;
    graph->buffers[graph->buffer_count] = (graph_buffer){.nbytes = rounded, .first = first, .last = last};
    return graph->buffer_count++;
}

static size_t run_nbytes(const tri_graph *graph, size_t shard_nbytes)
{
    return shard_nbytes * (size_t)graph->config.shards;
}

/* Last time at which the content of a value is read; of a value that is formed again, before that. */
static int value_last(const tri_graph *graph, int value, int producer)
{
    const graph_op *made = &graph->ops[producer];
    int last = producer;
    if (made->backward && made->kernel.ops->backward_output && !made->again)
        last = later(last, time_late(graph, producer));
    if (value == graph->logits)
        last = later(last, graph->op_count - 1);
    for (int o = producer + 1; o < graph->op_count; o++) {
        const graph_op *op = &graph->ops[o];
        for (int i = 0; i < op->desc.input_count; i++) {
            if (op->input[i] != value)
                continue;
            last = later(last, op->made_by_next ? o + 1 : o);
            if (made->again && op->block == made->block)
                continue;
            if (op->again)
                last = later(last, op->again_at);
            if (tri_graph_op_reads_down(op))
                last = later(last, time_late(graph, o));
        }
    }
    return last;
}

/* Last time at which the second life of a value is read. */
static int again_last(const tri_graph *graph, int producer)
{
    const graph_op *made = &graph->ops[producer];
    int last = made->again_at;
    if (made->backward && made->kernel.ops->backward_output)
        last = later(last, time_down(graph, producer));
    for (int o = producer + 1; o < graph->op_count && graph->ops[o].block == made->block; o++) {
        const graph_op *op = &graph->ops[o];
        for (int i = 0; i < op->desc.input_count; i++) {
            if (op->input[i] != made->output)
                continue;
            if (op->again)
                last = later(last, op->again_at);
            if (tri_graph_op_reads_down(op))
                last = later(last, time_down(graph, o));
        }
    }
    return last;
}

/* Output in the memory of input 0, which is in `buffer`: nobody reads that after `now`, when this op runs. */
static bool can_share_output(const tri_graph *graph, int o, int buffer, int now)
{
    const graph_op *op = &graph->ops[o];
    const graph_value *in = &graph->values[op->input[0]], *out = &graph->values[op->output];
    if (!graph->share || !op->kernel.ops->output_may_alias || buffer < 0 || in->nbytes != out->nbytes ||
        in->dtype != out->dtype)
        return false;
    for (int i = 1; i < op->desc.input_count; i++)
        if (op->input[i] == op->input[0])
            return false;
    return graph->buffers[buffer].crossing == 0 && graph->buffers[buffer].last == now;
}

/* Output that is input 0 itself, which is in `buffer`: both continue being read. */
static bool can_view(const tri_graph *graph, int o, int buffer)
{
    const graph_op *op = &graph->ops[o];
    return graph->share && op->kernel.ops->view && buffer >= 0 &&
           graph->values[op->input[0]].dtype == graph->values[op->output].dtype;
}

static void plan_up(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        graph_value *out = &graph->values[op->output];
        if (out->source == GRAPH_COMPUTED && out->buffer < 0) {
            int last = value_last(graph, op->output, o);
            size_t nbytes = run_nbytes(graph, out->nbytes);
            graph->plain_nbytes += nbytes;
            int buffer = graph->values[op->input[0]].buffer;
            if (can_view(graph, o, buffer) || can_share_output(graph, o, buffer, o)) {
                out->buffer = buffer;
                graph->buffers[buffer].last = later(graph->buffers[buffer].last, last);
            } else {
                out->buffer = buffer_add(graph, nbytes, o, last);
            }
        }
        int saved_last = op->backward && !op->again ? time_late(graph, o) : o;
        op->saved = buffer_add(graph, run_nbytes(graph, op->kernel.saved_nbytes), o, saved_last);
        op->scratch = buffer_add(graph, op->kernel.scratch_nbytes, o, o);
        graph->plain_nbytes += run_nbytes(graph, op->kernel.saved_nbytes) + op->kernel.scratch_nbytes;
    }
}

/* Copies of parameters in 16 bits last as long as the graph. */
static void plan_rounded(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count && graph->config.keeps_rounded; o++) {
        graph_op *op = &graph->ops[o];
        for (int p = 0; p < op->desc.param_count; p++) {
            const tri_dtype dtype = op->kernel.rounds[p];
            if (dtype == TRI_F32)
                continue;
            const size_t nbytes = (size_t)tri_shape_count(op->desc.param[p]) * tri_dtype_nbytes(dtype);
            op->rounded[p] = buffer_add(graph, nbytes, 0, INT_MAX);
            graph->buffers[op->rounded[p]].lasts = true;
            graph->plain_nbytes += nbytes;
        }
    }
}

/* Second lives. */
static void plan_again(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        graph_value *out = &graph->values[op->output], *in = &graph->values[op->input[0]];
        if (!op->again)
            continue;
        int last = again_last(graph, o), now = op->again_at;
        if (in->block == op->block && (can_view(graph, o, in->again) || can_share_output(graph, o, in->again, now))) {
            out->again = in->again;
            graph->buffers[out->again].last = later(graph->buffers[out->again].last, last);
        } else {
            out->again = buffer_add(graph, run_nbytes(graph, out->nbytes), now, last);
        }
        op->saved_again = buffer_add(graph, run_nbytes(graph, op->kernel.saved_nbytes), now,
                                     op->backward ? time_down(graph, o) : now);
        op->scratch_again = buffer_add(graph, op->kernel.scratch_nbytes, now, now);
    }
}

static int producer_of(const tri_graph *graph, int value)
{
    for (int o = 0; o < graph->op_count; o++)
        if (graph->ops[o].output == value)
            return o;
    return -1;
}

/* Gradient of input i: the first op that has one writes it (in the place of its output's gradient where it may); later
 * ones write aside and are added, in the order of the backward pass. */
static void plan_dinput(tri_graph *graph, int o, int i)
{
    graph_op *op = &graph->ops[o];
    graph_value *in = &graph->values[op->input[i]];
    int now = time_down(graph, o);
    size_t nbytes = run_nbytes(graph, in->nbytes);
    graph->plain_nbytes += nbytes;
    int outer = graph->values[op->output].grad;
    if (in->grad >= 0 && i == 0 && op->kernel.ops->adds_dinput) {
        op->dinput[i] = in->grad;
        op->adds_dinput = true;
        return;
    }
    if (in->grad >= 0) {
        op->dinput[i] = can_view(graph, o, outer) ? outer : buffer_add(graph, nbytes, now, now);
        op->add_into[i] = in->grad;
        return;
    }
    if (in->din >= 0) {
        op->dinput[i] = in->grad = in->din;
        return;
    }
    int last = time_late(graph, producer_of(graph, op->input[i]));
    bool in_place = graph->share && i == 0 && op->kernel.ops->dinput_may_alias && outer >= 0 &&
                    graph->buffers[outer].crossing == 0 && in->nbytes == graph->values[op->output].nbytes &&
                    in->dtype == graph->values[op->output].dtype;
    if (in_place) {
        in->grad = outer;
        graph->buffers[outer].last = last;
    } else {
        in->grad = buffer_add(graph, nbytes, now, last);
    }
    op->dinput[i] = in->grad;
}

static void plan_down(tri_graph *graph)
{
    for (int o = graph->op_count - 1; o >= 0; o--) {
        graph_op *op = &graph->ops[o];
        if (!op->backward)
            continue;
        int now = time_down(graph, o);
        for (int i = 0; i < op->desc.input_count; i++)
            if (op->desc.need_dinput[i])
                plan_dinput(graph, o, i);
        op->scratch_down = buffer_add(graph, op->kernel.scratch_nbytes, now, now);
        op->scratch_late = op->late ? buffer_add(graph, op->kernel.scratch_nbytes, op->late_at, op->late_at) : -1;
        graph->plain_nbytes += op->kernel.scratch_nbytes;
    }
}

/* --- offsets --- */

static bool times_meet(const graph_buffer *a, const graph_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Lowest offset at which the buffer meets none of the placed ones; order[0 .. placed) is by offset. */
static size_t lowest_free(const graph_buffer *buffers, const graph_buffer *wanted, const int *order, int placed)
{
    size_t offset = 0;
    for (int k = 0; k < placed; k++) {
        const graph_buffer *other = &buffers[order[k]];
        if (!times_meet(wanted, other))
            continue;
        if (other->offset >= offset + wanted->nbytes)
            break;
        if (other->offset + other->nbytes > offset)
            offset = other->offset + other->nbytes;
    }
    return offset;
}

size_t tri_graph_pack(graph_buffer *buffers, int count, int *order)
{
    size_t total = 0;
    for (int b = 0; b < count; b++)
        buffers[b].offset = SIZE_MAX; /* not placed yet */
    for (int placed = 0; placed < count; placed++) {
        int best = -1;
        for (int b = 0; b < count; b++)
            if (buffers[b].offset == SIZE_MAX && (best < 0 || buffers[b].nbytes > buffers[best].nbytes))
                best = b;
        size_t offset = lowest_free(buffers, &buffers[best], order, placed);
        buffers[best].offset = offset;
        int at = placed;
        for (; at > 0 && buffers[order[at - 1]].offset > offset; at--)
            order[at] = order[at - 1];
        order[at] = best;
        if (offset + buffers[best].nbytes > total)
            total = offset + buffers[best].nbytes;
    }
    return total;
}

/* Without sharing: one after the other. */
static size_t pack_apart(graph_buffer *buffers, int count)
{
    size_t total = 0;
    for (int b = 0; b < count; b++) {
        buffers[b].offset = total;
        total += buffers[b].nbytes;
    }
    return total;
}

static size_t place(const tri_graph *graph, graph_buffer *buffers, int count, int *order)
{
    return graph->share ? tri_graph_pack(buffers, count, order) : pack_apart(buffers, count);
}

/* Places the buffers that last, or are held, or do neither, behind `offset`. */
static size_t place_some(tri_graph *graph, bool lasts, bool held, size_t offset, graph_buffer *some, int *order)
{
    int count = 0;
    for (int b = 0; b < graph->buffer_count; b++)
        if (graph->buffers[b].lasts == lasts && graph->buffers[b].held == held)
            some[count++] = graph->buffers[b];
    size_t nbytes = place(graph, some, count, order);
    count = 0;
    for (int b = 0; b < graph->buffer_count; b++)
        if (graph->buffers[b].lasts == lasts && graph->buffers[b].held == held)
            graph->buffers[b].offset = offset + some[count++].offset;
    return nbytes;
}

/* What lasts comes first, then what all slots share, then what each has. */
static tri_status place_all(tri_graph *graph, int *order)
{
    graph_buffer *some = tri_alloc_zero((size_t)graph->buffer_capacity, sizeof(*some));
    if (!some)
        return TRI_ENOMEM;
    for (int b = 0; b < graph->buffer_count; b++) {
        graph_buffer *buffer = &graph->buffers[b];
        buffer->held = graph->slot_count > 1 && !buffer->lasts && buffer->first < graph->op_count &&
                       buffer->last >= graph->op_count;
    }
    graph->rounded_nbytes = place_some(graph, true, false, 0, some, order);
    size_t once_nbytes = graph->rounded_nbytes;
    once_nbytes += place_some(graph, false, false, once_nbytes, some, order);
    graph->slot_nbytes = place_some(graph, false, true, once_nbytes, some, order);
    graph->planned_nbytes = once_nbytes + (size_t)graph->slot_count * graph->slot_nbytes;
    tri_free(some);
    return TRI_OK;
}

/* --- memory --- */

/* The store knows its copies; where another graph has one of an entry, this one's is not used. */
static void rounded_give(const tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++)
        for (int p = 0; p < graph->ops[o].desc.param_count; p++)
            if (graph->ops[o].rounded[p] >= 0)
                tri_params_copy_add(graph->params, graph->ops[o].param[p],
                                    tri_graph_buffer(graph, graph->ops[o].rounded[p]), graph->ops[o].kernel.rounds[p]);
}

static void rounded_take(const tri_graph *graph)
{
    for (int o = 0; o < graph->op_count && graph->memory; o++)
        for (int p = 0; p < graph->ops[o].desc.param_count; p++)
            if (graph->ops[o].rounded[p] >= 0)
                tri_params_copy_drop(graph->params, graph->ops[o].param[p],
                                     tri_graph_buffer(graph, graph->ops[o].rounded[p]));
}

static tri_status allocate(tri_graph *graph)
{
    const tri_device *device = graph->params->device;
    const size_t slots = (size_t)graph->slot_count;
    size_t sums_nbytes = slots * (size_t)graph->config.shards * sizeof(*graph->sums);
    graph->memory = tri_device_alloc(device, graph->planned_nbytes);
    graph->sums = tri_device_alloc(device, sums_nbytes);
    if (!graph->memory || !graph->sums)
        return TRI_ENOMEM;
    size_t host_nbytes = 0;
    for (int o = 0; o < graph->op_count; o++)
        if (graph->ops[o].kernel.host_nbytes > host_nbytes)
            host_nbytes = graph->ops[o].kernel.host_nbytes;
    if (host_nbytes > 0 && !(graph->host = tri_alloc_bulk(host_nbytes)))
        return TRI_ENOMEM;
    rounded_give(graph);
    return tri_device_view_open(&graph->sums_view, device, graph->sums, sums_nbytes);
}

void tri_graph_free_memory(tri_graph *graph)
{
    const tri_device *device = graph->params->device;
    rounded_take(graph);
    tri_device_view_close(&graph->sums_view);
    tri_free(graph->host);
    tri_device_free(device, graph->staged_target);
    tri_device_free(device, graph->staged_input);
    tri_device_free(device, graph->sums);
    tri_device_free(device, graph->memory);
}

tri_status tri_graph_plan_memory(tri_graph *graph)
{
    graph->buffer_capacity = graph->op_count * (8 + TRI_OP_MAX_INPUTS + TRI_OP_MAX_PARAMS) + graph->crossing_count;
    graph->buffers = tri_alloc_zero((size_t)graph->buffer_capacity, sizeof(*graph->buffers));
    int *order = tri_alloc_zero((size_t)graph->buffer_capacity, sizeof(*order));
    if (!graph->buffers || !order) {
        tri_free(order);
        return TRI_ENOMEM;
    }
    tri_graph_plan_crossings(graph);
    plan_up(graph);
    plan_rounded(graph);
    plan_again(graph);
    plan_down(graph);
    tri_status status = place_all(graph, order);
    tri_free(order);
    return status == TRI_OK && !graph->planned_only ? allocate(graph) : status;
}

void tri_graph_memory(const tri_graph *graph, size_t *planned_nbytes, size_t *plain_nbytes)
{
    *planned_nbytes = graph->planned_nbytes;
    *plain_nbytes = graph->plain_nbytes;
}

size_t tri_graph_rounded_nbytes(const tri_graph *graph)
{
    return graph->rounded_nbytes;
}
