/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c: runs a compiled graph forward: an array of kernels, walked once. Nothing is allocated here,
 * but for a batch that the host alone has (array_bring()).
 */
#include <string.h>

#include "base/status.h"
#include "nn/graph_impl.h"

void *tri_graph_buffer(const tri_graph *graph, int buffer)
{
    if (buffer < 0)
        return NULL;
    const graph_buffer *spec = &graph->buffers[buffer];
    const size_t slot = (size_t)graph->slot;
    if (spec->crossing > 0)
        return graph->slots[slot].crossing[spec->crossing];
    return graph->memory + spec->offset + (spec->held ? slot * graph->slot_nbytes : 0);
}

void *tri_graph_value(const tri_graph *graph, int value)
{
    const graph_value *spec = &graph->values[value];
    switch (spec->source) {
    case GRAPH_INPUT:
        return (void *)(uintptr_t)graph->batch.input;
    case GRAPH_TARGET:
        return (void *)(uintptr_t)graph->batch.target;
    case GRAPH_SUMS:
        return tri_graph_sums(graph);
    case GRAPH_COMPUTED:
        break;
    }
    return tri_graph_buffer(graph, spec->buffer);
}

void *tri_graph_value_down(const tri_graph *graph, int value, int block)
{
    const graph_value *spec = &graph->values[value];
    bool again = block > 0 && spec->again >= 0 && spec->block == block;
    return again ? tri_graph_buffer(graph, spec->again) : tri_graph_value(graph, value);
}

/* --- where gradients go --- */

tri_status tri_graph_grads_set(tri_graph *graph, int part_count, const tri_tree_part *parts, float *const *grads)
{
    if (part_count < 1 || part_count > graph->part_capacity)
        return tri_fail(TRI_EINVAL, "graph: want 1 to %d parts, got %d", graph->part_capacity, part_count);
    int64_t next = 0;
    for (int p = 0; p < part_count; p++) {
        if (parts[p].first != next || parts[p].count < 1 || (parts[p].count & (parts[p].count - 1)) != 0 ||
            (grads ? !grads[p] : !graph->hooks.place))
            return tri_fail(TRI_EINVAL,
                            "graph: part %d: want %lld as first shard and a power of two of them, got %lld, %lld", p,
                            (long long)next, (long long)parts[p].first, (long long)parts[p].count);
        next += parts[p].count;
    }
    graph->part_count = part_count;
    memcpy(graph->parts, parts, (size_t)part_count * sizeof(*parts));
    graph->placed = !grads;
    if (!grads)
        return TRI_OK;
    memcpy(graph->grads, grads, (size_t)part_count * sizeof(*grads));
    for (int e = 0; e < tri_params_tail(graph->params); e++)
        for (int p = 0; p < part_count; p++)
            graph->dparam[e * graph->part_capacity + p] = grads[p] + tri_params_grad_first(graph->params, e);
    return TRI_OK;
}

/* --- forward --- */

const float (*tri_graph_sums_host(const tri_graph *graph))[TRI_LOSS_COLUMNS]
{
    size_t first = (size_t)graph->slot * (size_t)graph->config.shards;
    return graph->span.has_loss ? (const float(*)[TRI_LOSS_COLUMNS])graph->sums_view.host + first : NULL;
}

tri_status tri_graph_check_parts(const tri_graph *graph, int shards)
{
    int64_t covered = 0;
    for (int p = 0; p < graph->part_count; p++)
        covered += graph->parts[p].count;
    if (covered != shards)
        return tri_fail(TRI_EINVAL, "graph: want gradients set for %d shards, got %lld", shards, (long long)covered);
    return TRI_OK;
}

static tri_status check_batch(const tri_graph *graph, const tri_batch *batch, bool training)
{
    if (batch->shards < 1 || batch->shards > graph->config.shards)
        return tri_fail(TRI_EINVAL, "graph: want 1 to %d shards a run, got %d", graph->config.shards, batch->shards);
    for (int s = 0; s < batch->shards; s++)
        if (batch->rows[s] < 0 || batch->rows[s] > graph->config.rows)
            return tri_fail(TRI_EINVAL, "graph: shard %d: want 0 to %lld rows, got %d", s,
                            (long long)graph->config.rows, batch->rows[s]);
    if (!training)
        return TRI_OK;
    if (!graph->config.training)
        return tri_fail(TRI_EINVAL, "graph: compiled for forward only, cannot train");
    return graph->config.slots > 0 ? TRI_OK : tri_graph_check_parts(graph, batch->shards);
}

static const void *shifted(const void *array, size_t nbytes)
{
    return array ? (const char *)array + nbytes : NULL;
}

tri_batch tri_batch_part(const tri_batch *all, int64_t first, int64_t count, size_t input_nbytes, size_t target_nbytes)
{
    const size_t input = (size_t)first * input_nbytes, target = (size_t)first * target_nbytes;
    return (tri_batch){.shards = (int)count,
                       .rows = all->rows + first,
                       .first_sample = all->first_sample + first,
                       .input = shifted(all->input, input),
                       .target = shifted(all->target, target),
                       .input_there = shifted(all->input_there, input),
                       .target_there = shifted(all->target_there, target)};
}

/* Copies one array of the batch to the slot's place in memory of the device, which is allocated when it is first
 * needed. */
static tri_status array_bring(const tri_graph *graph, const tri_batch *batch, int value, void **staged,
                              const void **array)
{
    const tri_device *device = graph->params->device;
    const size_t nbytes = graph->values[value].nbytes, each = (size_t)graph->config.shards * nbytes;
    if (!*staged && !(*staged = tri_device_alloc(device, (size_t)graph->slot_count * each)))
        return TRI_ENOMEM;
    char *to = (char *)*staged + (size_t)graph->slot * each;
    tri_device_from_host(device, to, *array, (size_t)batch->shards * nbytes);
    *array = to;
    return TRI_OK;
}

/* The batch is read where it is if kernels see the host's memory, or it is on the device already. */
static tri_status batch_bring(tri_graph *graph, const tri_batch *batch)
{
    tri_batch *own = &graph->batch;
    *own = *batch;
    if (!tri_device_shares_host(graph->params->device)) {
        if (batch->input_there)
            own->input = batch->input_there;
        else if (graph->span.has_input)
            TRI_TRY(array_bring(graph, batch, graph->input, &graph->staged_input, &own->input));
        if (batch->target_there)
            own->target = batch->target_there;
        else if (graph->span.has_target)
            TRI_TRY(array_bring(graph, batch, graph->target, &graph->staged_target, &own->target));
    }
    graph->slots[graph->slot].batch = *own;
    return TRI_OK;
}

void tri_graph_call_fill(tri_graph *graph, graph_op *op, uint64_t step, bool training, bool grads)
{
    tri_op_call *call = &op->call;
    *call = (tri_op_call){.device = graph->params->device,
                          .shards = graph->batch.shards,
                          .rows = graph->batch.rows,
                          .first_sample = graph->batch.first_sample,
                          .across = &graph->across,
                          .batch = &graph->batch_sums,
                          .output = tri_graph_value(graph, op->output),
                          .saved = tri_graph_buffer(graph, op->saved),
                          .scratch = tri_graph_buffer(graph, op->scratch),
                          .host = graph->host,
                          .spans = graph->spans,
                          .span_count = graph->span_count,
                          .kept = graph->kept,
                          .kept_each = graph->kept_count,
                          .kept_first = op->kept_first,
                          .training = training,
                          .loss_scale = graph->loss_scale,
                          .seed = graph->config.seed,
                          .step = step};
    for (int i = 0; i < op->desc.input_count; i++)
        call->input[i] = tri_graph_value(graph, op->input[i]);
    if (!grads || graph->placed)
        return;
    tri_graph_op_parts(graph, op);
}

void tri_graph_op_parts(tri_graph *graph, graph_op *op)
{
    tri_op_call *call = &op->call;
    call->part_count = graph->part_count;
    call->parts = graph->parts;
    for (int p = 0; p < op->desc.param_count; p++)
        call->dparam[p] = op->moves[p] ? graph->dparam + (size_t)op->slot[p] * (size_t)graph->part_capacity : NULL;
}

void tri_graph_across_set(tri_graph *graph, const tri_op_ranks *across)
{
    graph->across = *across;
}

void tri_graph_batch_set(tri_graph *graph, const tri_op_batch *batch)
{
    graph->batch_sums = *batch;
}

void tri_graph_spans_set(tri_graph *graph, const tri_place_span *spans, int count, float *kept)
{
    graph->spans = spans;
    graph->span_count = count;
    graph->kept = kept;
}

int64_t tri_graph_kept_count(const tri_graph *graph)
{
    return graph->kept_count;
}

void tri_graph_loss_scale(tri_graph *graph, float scale)
{
    graph->loss_scale = scale;
}

tri_status tri_graph_others(const tri_graph *graph)
{
    return graph->across.status != TRI_OK ? graph->across.status : graph->batch_sums.status;
}

/* --- parameters --- */

void tri_graph_hooks_set(tri_graph *graph, const tri_graph_hooks *hooks)
{
    graph->hooks = *hooks;
}

tri_status tri_graph_op_bring(tri_graph *graph, graph_op *op)
{
    const tri_graph_hooks *hooks = &graph->hooks;
    const tri_params *params = graph->params;
    TRI_ASSERT(hooks->bring || !params->share);
    for (int p = 0; p < op->desc.param_count; p++) {
        const float *values = NULL;
        if (hooks->bring)
            TRI_TRY(hooks->bring(hooks->arg, op->param[p], &values));
        else
            values = params->values + params->entries[op->param[p]].first;
        op->call.param[p] = values;
        if (op->rounded[p] >= 0)
            op->call.rounded[p] = tri_params_copy_bring(params, op->param[p], tri_graph_buffer(graph, op->rounded[p]));
    }
    return TRI_OK;
}

void tri_graph_op_done(const tri_graph *graph, const graph_op *op)
{
    for (int p = 0; graph->hooks.done && p < op->desc.param_count; p++)
        graph->hooks.done(graph->hooks.arg, op->param[p]);
}

tri_status tri_graph_forward(tri_graph *graph, const tri_batch *batch, uint64_t step, bool training,
                             const float (**sums)[4])
{
    graph_slot *slot = &graph->slots[graph->slot];
    slot->can_run_backward = false;
    TRI_TRY(check_batch(graph, batch, training));
    if (graph->ranks > 1 && !graph->across.sum)
        return tri_fail(TRI_EINVAL, "graph: want tri_graph_across_set() before a run, %d ranks share out the model",
                        graph->ranks);
    graph->across.status = graph->batch_sums.status = TRI_OK;
    TRI_TRY(batch_bring(graph, batch));
    slot->step = step;
    tri_graph_crossings_place(graph, batch->shards);
    tri_graph_relay(graph, false);
    if (graph->hooks.begin)
        graph->hooks.begin(graph->hooks.arg, false);
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        tri_graph_call_fill(graph, op, step, training, training && graph->config.slots == 0);
        TRI_TRY(tri_graph_op_bring(graph, op));
        op->call.add = o > 0 && graph->ops[o - 1].made_by_next ? &graph->ops[o - 1].call : NULL;
        if (!op->made_by_next)
            tri_kernel_forward(&op->kernel, &op->call);
        op->call.add = NULL;
        TRI_TRY(tri_graph_others(graph));
        tri_graph_op_done(graph, op);
    }
    slot->can_run_backward = training;
    if (!sums)
        return TRI_OK;
    if (graph->span.has_loss)
        tri_device_view_read(&graph->sums_view);
    *sums = tri_graph_sums_host(graph);
    return TRI_OK;
}

const float *tri_graph_logits(const tri_graph *graph)
{
    if (graph->logits < 0 || graph->values[graph->logits].dtype != TRI_F32)
        return NULL;
    return tri_graph_value(graph, graph->logits);
}
