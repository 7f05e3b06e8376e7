/* SPDX-License-Identifier: Apache-2.0
 *
 * span.c: cuts a decided graph down to its span, and knows where what crosses the ends is.
 */
#include "nn/span.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "nn/graph_impl.h"

bool tri_graph_may_begin(const tri_graph *graph, int o)
{
    if (graph->ops[o].block > 0 && graph->ops[o - 1].block == graph->ops[o].block)
        return false;
    for (int before = 0; before < o; before++)
        if (graph->ops[before].last_node > graph->ops[o].node)
            return false;
    return true;
}

static bool reads_from(const tri_graph *graph, int value, int o)
{
    for (; o < graph->op_count; o++)
        for (int i = 0; i < graph->ops[o].desc.input_count; i++)
            if (graph->ops[o].input[i] == value)
                return true;
    return false;
}

/* Is the value made before op `o` and read by it or behind it? */
static bool crosses(const tri_graph *graph, int value, int o)
{
    for (int before = 0; before < o; before++)
        if (graph->ops[before].output == value)
            return reads_from(graph, value, o);
    return false;
}

/* --- what crosses --- */

static tri_status crossings_find(const tri_graph *graph, int o, tri_crossing **out, int *count)
{
    *count = 0;
    for (int v = 0; o > 0 && o < graph->op_count && v < graph->value_count; v++)
        *count += crosses(graph, v, o);
    *out = tri_alloc_zero((size_t)*count, sizeof(**out));
    if (!*out && *count > 0)
        return TRI_ENOMEM;
    int next = 0;
    for (int v = 0; next < *count; v++) {
        const graph_value *value = &graph->values[v];
        if (!crosses(graph, v, o))
            continue;
        (*out)[next++] = (tri_crossing){.value = v,
                                        .dtype = value->dtype,
                                        .count = (int64_t)(value->nbytes / tri_dtype_nbytes(value->dtype)),
                                        .nbytes = value->nbytes,
                                        .grad = value->need_grad,
                                        .relay = -1};
    }
    return TRI_OK;
}

static void relays_find(tri_span *span)
{
    for (int o = 0; o < span->out_count; o++)
        for (int i = 0; i < span->in_count; i++)
            if (span->in[i].value == span->out[o].value)
                span->out[o].relay = i;
}

size_t tri_crossings_nbytes(const tri_crossing *crossings, int count, int shards, bool grads)
{
    size_t nbytes = 0;
    for (int i = 0; i < count; i++)
        if (crossings[i].grad || !grads)
            nbytes += (crossings[i].nbytes * (size_t)shards + 63) / 64 * 64;
    return nbytes;
}

static void place(char *base, const tri_crossing *crossings, int count, int shards, bool grads, void **to)
{
    for (int i = 0; i < count; i++)
        to[i] = base && (crossings[i].grad || !grads) ? base + tri_crossings_nbytes(crossings, i, shards, grads) : NULL;
}

/* Numbers of crossings, from 1: incoming values, their gradients, outgoing values, theirs. */
void tri_graph_crossings_place(tri_graph *graph, int shards)
{
    const tri_span *span = &graph->span;
    graph_slot *slot = &graph->slots[graph->slot];
    void **to = slot->crossing + 1;
    place(slot->base.in, span->in, span->in_count, shards, false, to);
    place(slot->base.din, span->in, span->in_count, shards, true, to + span->in_count);
    to += 2 * span->in_count;
    place(slot->base.out, span->out, span->out_count, shards, false, to);
    place(slot->base.dout, span->out, span->out_count, shards, true, to + span->out_count);
}

static int crossing_add(tri_graph *graph, int number)
{
    graph->buffers[graph->buffer_count] = (graph_buffer){.crossing = number, .last = graph->op_count};
    return graph->buffer_count++;
}

void tri_graph_plan_crossings(tri_graph *graph)
{
    const tri_span *span = &graph->span;
    int number = 1;
    for (int i = 0; i < span->in_count; i++, number++)
        graph->values[span->in[i].value].buffer = crossing_add(graph, number);
    for (int i = 0; i < span->in_count; i++, number++)
        if (span->in[i].grad)
            graph->values[span->in[i].value].din = crossing_add(graph, number);
    for (int i = 0; i < span->out_count; i++, number++)
        if (span->out[i].relay < 0)
            graph->values[span->out[i].value].buffer = crossing_add(graph, number);
    for (int i = 0; i < span->out_count; i++, number++) {
        graph_value *value = &graph->values[span->out[i].value];
        if (span->out[i].grad)
            value->grad = span->out[i].relay < 0 ? crossing_add(graph, number) : value->din;
    }
}

void tri_graph_relay(tri_graph *graph, bool down)
{
    const tri_span *span = &graph->span;
    void **in = graph->slots[graph->slot].crossing + 1 + (down ? span->in_count : 0);
    void **out = graph->slots[graph->slot].crossing + 1 + 2 * span->in_count + (down ? span->out_count : 0);
    for (int i = 0; i < span->out_count; i++) {
        const tri_crossing *crossing = &span->out[i];
        if (crossing->relay < 0 || (down && !crossing->grad))
            continue;
        size_t nbytes = crossing->nbytes * (size_t)graph->batch.shards;
        if (down)
            tri_device_copy(graph->params->device, in[crossing->relay], out[i], nbytes);
        else
            tri_device_copy(graph->params->device, out[i], in[crossing->relay], nbytes);
    }
}

/* --- cutting --- */

static tri_status check_held(const tri_graph *graph, const tri_model *model)
{
    const tri_param_spec *specs = model->params.items;
    for (int o = 0; o < graph->op_count; o++)
        for (int p = 0; p < graph->ops[o].desc.param_count; p++)
            if (graph->ops[o].param[p] < 0)
                return tri_fail(TRI_EINVAL, "graph: %s reads %s, which is not in the store",
                                tri_op_name(graph->ops[o].desc.op), specs[graph->ops[o].number[p]].name);
    return TRI_OK;
}

static bool makes(const tri_graph *graph, int value)
{
    for (int o = 0; o < graph->op_count; o++)
        if (graph->ops[o].output == value)
            return true;
    return false;
}

static tri_status slots_make(tri_graph *graph)
{
    graph->slot_count = graph->config.slots > 0 ? graph->config.slots : 1;
    graph->crossing_count = 2 * (graph->span.in_count + graph->span.out_count);
    graph->slots = tri_alloc_zero((size_t)graph->slot_count, sizeof(*graph->slots));
    if (!graph->slots)
        return TRI_ENOMEM;
    for (int s = 0; s < graph->slot_count; s++) {
        graph->slots[s].crossing = tri_alloc_zero((size_t)graph->crossing_count + 1, sizeof(void *));
        if (!graph->slots[s].crossing)
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

tri_status tri_graph_cut(tri_graph *graph, const tri_model *model)
{
    int node_count = (int)model->nodes.count, first_node = graph->config.first_node;
    int end_node = graph->config.end_node == 0 && first_node == 0 ? node_count : graph->config.end_node;
    int first = 0, end = 0;
    for (int o = 0; o < graph->op_count; o++) {
        first += graph->ops[o].node < first_node;
        end += graph->ops[o].node < end_node;
    }
    if (first_node < 0 || first_node >= end_node || end_node > node_count || first >= end)
        return tri_fail(TRI_EINVAL, "graph: want a span of the model's %d nodes with an operation, got %d to %d",
                        node_count, first_node, end_node);
    for (int side = 0; side < 2; side++) {
        int o = side ? end : first;
        if (o > 0 && o < graph->op_count && !tri_graph_may_begin(graph, o))
            return tri_fail(
                TRI_EINVAL,
                "graph: the model cannot be cut before node %d (%s): a fused relu or pool, or a block that is "
                "formed again would be torn",
                side ? end_node : first_node, tri_op_name(graph->ops[o].desc.op));
    }
    TRI_TRY(crossings_find(graph, first, &graph->span.in, &graph->span.in_count));
    TRI_TRY(crossings_find(graph, end, &graph->span.out, &graph->span.out_count));
    relays_find(&graph->span);
    graph->op_count = end - first;
    memmove(graph->ops, graph->ops + first, (size_t)graph->op_count * sizeof(*graph->ops));
    if (!graph->planned_only)
        TRI_TRY(check_held(graph, model));
    graph->span.has_input = reads_from(graph, graph->input, 0);
    graph->span.has_target = reads_from(graph, graph->target, 0);
    graph->span.has_loss = makes(graph, model->loss);
    if (!makes(graph, graph->logits))
        graph->logits = -1;
    return slots_make(graph);
}

void tri_graph_span_fini(tri_graph *graph)
{
    for (int s = 0; graph->slots && s < graph->slot_count; s++)
        tri_free(graph->slots[s].crossing);
    tri_free(graph->slots);
    tri_free(graph->span.in);
    tri_free(graph->span.out);
}

/* --- for whoever runs it --- */

const tri_span *tri_graph_span(const tri_graph *graph)
{
    return &graph->span;
}

void tri_graph_slot_enter(tri_graph *graph, int slot, const tri_span_places *places)
{
    TRI_ASSERT(slot >= 0 && slot < graph->slot_count);
    graph->slot = slot;
    graph->slots[slot].base = *places;
}

void tri_graph_batch_nbytes(const tri_graph *graph, size_t *input_nbytes, size_t *target_nbytes)
{
    *input_nbytes = graph->values[graph->input].nbytes;
    *target_nbytes = graph->values[graph->target].nbytes;
}

bool tri_graph_writes(const tri_graph *graph, int number)
{
    if (number == tri_params_tail(graph->params))
        return graph->span.has_loss;
    for (int o = 0; o < graph->op_count; o++)
        for (int p = 0; p < graph->ops[o].desc.param_count; p++)
            if (graph->ops[o].slot[p] == number)
                return true;
    return false;
}
