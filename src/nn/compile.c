/* SPDX-License-Identifier: Apache-2.0
 *
 * compile.c: from a model's nodes to planned kernels: drops reshapes, fuses relus and pools, decides which gradients
 * are wanted.
 *
 * Gradients of the input and the target are never wanted, nor those of anything computed from them alone. What is
 * compiled depends on the model and the configuration only, so that every rank runs the same kernels.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/row.h"
#include "nn/build.h"
#include "nn/graph_impl.h"

static tri_status check_config(const tri_graph_config *config)
{
    if (config->rows < 1 || config->rows > INT32_MAX || config->shards < 1 || config->threads < 1)
        return tri_fail(TRI_EINVAL, "graph: want rows, shards and threads of at least 1, got %lld, %d, %d",
                        (long long)config->rows, config->shards, config->threads);
    if (config->slots < 0 || config->slots > 1 << 20)
        return tri_fail(TRI_EINVAL, "graph: want 0 to %d slots, got %d", 1 << 20, config->slots);
    if (config->precision != TRI_F32 && config->precision != TRI_BF16 && config->precision != TRI_F16)
        return tri_fail(TRI_EINVAL, "graph: want a precision of f32, bf16 or f16, got %s",
                        tri_dtype_name(config->precision));
    return TRI_OK;
}

static tri_status check_params(const tri_model *model, const tri_params *params)
{
    const tri_param_spec *specs = model->params.items;
    if ((size_t)params->model_count != model->params.count)
        return tri_fail(TRI_EINVAL, "graph: the model has %zu parameters, that of the store %d", model->params.count,
                        params->model_count);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        const tri_param_spec *spec = &specs[entry->number];
        if (strcmp(spec->name, entry->name) != 0 || !tri_shape_equal(spec->shape, entry->shape) ||
            !tri_piece_equal(spec->piece, entry->piece))
            return tri_fail(TRI_EINVAL,
                            "graph: the model's parameter %d is %s, the store has %s of another name or shape",
                            entry->number, spec->name, entry->name);
    }
    return TRI_OK;
}

static tri_status values_make(tri_graph *graph, const tri_model *model)
{
    const tri_value_spec *specs = model->values.items;
    for (int v = 0; v < graph->value_count; v++) {
        size_t nbytes;
        tri_shape sample = specs[v].sample;
        if (graph->config.places > 0 && sample.ndim > 0)
            sample.dim[0] = 1; /* one token */
        int64_t count = tri_shape_count(sample);
        if (__builtin_mul_overflow((size_t)count * tri_dtype_nbytes(specs[v].dtype), (size_t)graph->config.rows,
                                   &nbytes) ||
            __builtin_mul_overflow(nbytes, (size_t)graph->config.shards, &(size_t){0}) || nbytes > (size_t)1 << 50)
            return tri_fail(TRI_ENOMEM,
                            "graph: value %d of %lld elements a sample is too large for %d shards of %lld rows", v,
                            (long long)count, graph->config.shards, (long long)graph->config.rows);
        graph->values[v] = (graph_value){.root = v,
                                         .dtype = specs[v].dtype,
                                         .sample = sample,
                                         .source = v == model->input    ? GRAPH_INPUT
                                                   : v == model->target ? GRAPH_TARGET
                                                   : v == model->loss   ? GRAPH_SUMS
                                                                        : GRAPH_COMPUTED,
                                         .nbytes = nbytes,
                                         .buffer = -1,
                                         .grad = -1,
                                         .din = -1,
                                         .again = -1};
    }
    return TRI_OK;
}

/* The output is the input by another name. */
static bool renames(const tri_graph *graph, const tri_node *node)
{
    const tri_op_ops *row = tri_op_row(node->op);
    return row->renames || (graph->config.places > 0 && row->trains_only);
}

/* Reshapes become names for other values. */
static void reshapes_drop(tri_graph *graph, const tri_model *model)
{
    const tri_node *nodes = model->nodes.items;
    graph_value *values = graph->values;
    for (size_t n = 0; n < model->nodes.count; n++) {
        if (renames(graph, &nodes[n]))
            values[nodes[n].output].root = values[nodes[n].input[0]].root;
        else
            for (int i = 0; i < nodes[n].input_count; i++)
                values[values[nodes[n].input[i]].root].use_count++;
    }
}

/* A relu that alone uses the output of an op that can do it becomes part of that op. Returns whether this one did. */
static bool relu_fuse(tri_graph *graph, const tri_node *node, int node_number, const int *op_of_value)
{
    graph_value *values = graph->values;
    int root = values[node->input[0]].root;
    if (node->op != TRI_OP_RELU || op_of_value[root] < 0 || values[root].use_count != 1)
        return false;
    graph_op *op = &graph->ops[op_of_value[root]];
    if (!tri_op_row(op->desc.op)->fuses_relu)
        return false;
    op->desc.attr.relu = true;
    op->last_node = node_number;
    values[root].use_count = values[node->output].use_count;
    return true;
}

/* Values that stood for `from` stand for `to`. */
static void roots_rename(tri_graph *graph, int from, int to)
{
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].root == from)
            graph->values[v].root = to;
}

static void op_make(tri_graph *graph, const tri_node *node, int node_number, graph_op *op)
{
    *op = (graph_op){.node = node_number,
                     .last_node = node_number,
                     .saved = -1,
                     .scratch = -1,
                     .scratch_down = -1,
                     .saved_again = -1,
                     .scratch_again = -1,
                     .output = graph->values[node->output].root};
    op->block = graph->values[op->output].source == GRAPH_SUMS ? 0 : node->block;
    graph->values[op->output].block = op->block;
    op->desc = (tri_op_desc){.op = node->op,
                             .attr = node->attr,
                             .input_count = node->input_count,
                             .max_shards = graph->config.shards,
                             .places = graph->config.places,
                             .threads = graph->config.threads};
    for (int i = 0; i < node->input_count; i++) {
        const graph_value *given = &graph->values[node->input[i]]; /* the shape is that of the name, not of the root */
        op->input[i] = given->root;
        op->desc.input[i] = tri_shape_batched(given->sample, graph->config.rows);
        op->desc.input_dtype[i] = given->dtype;
        op->dinput[i] = op->add_into[i] = -1;
    }
    op->desc.param_count = node->param_count;
    for (int p = 0; p < TRI_OP_MAX_PARAMS; p++)
        op->rounded[p] = -1;
    for (int p = 0; p < node->param_count; p++) {
        op->number[p] = node->param[p];
        op->param[p] = op->slot[p] = graph->params->of_model[node->param[p]];
    }
    for (int t = 0; node->tie >= 0 && t < graph->params->tie_count; t++)
        if (graph->params->ties[t].number == node->tie)
            op->slot[0] = graph->params->entry_count + t;
    op->open = node->tie >= 0 && graph->params->ties_joined;
}

/* Ties that are joined: the backward pass meets the other reader first, and the table's own op adds. */
static void ties_join(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++)
        for (int made = 0; graph->ops[o].open && made < o; made++)
            if (graph->ops[made].desc.param_count > 0 && graph->ops[made].slot[0] == graph->ops[o].slot[0])
                graph->ops[made].desc.adds = true;
}

static tri_status ops_make(tri_graph *graph, const tri_model *model)
{
    const tri_node *nodes = model->nodes.items;
    int *op_of_value = tri_alloc((size_t)graph->value_count * sizeof(int));
    if (!op_of_value)
        return TRI_ENOMEM;
    for (int v = 0; v < graph->value_count; v++)
        op_of_value[v] = -1;
    for (size_t n = 0; n < model->nodes.count; n++) {
        if (renames(graph, &nodes[n]))
            continue;
        if (relu_fuse(graph, &nodes[n], (int)n, op_of_value)) {
            roots_rename(graph, nodes[n].output, graph->values[nodes[n].input[0]].root);
            continue;
        }
        op_make(graph, &nodes[n], (int)n, &graph->ops[graph->op_count]);
        op_of_value[nodes[n].output] = graph->op_count++;
    }
    tri_free(op_of_value);
    ties_join(graph);
    return TRI_OK;
}

/* Which parameters of an op move; whether any does. */
static bool moves_find(const tri_graph *graph, graph_op *op)
{
    bool any = false;
    for (int p = 0; p < op->desc.param_count; p++) {
        const bool *elsewhere = graph->config.frozen;
        bool frozen =
            op->param[p] >= 0 ? graph->params->entries[op->param[p]].frozen : elsewhere && elsewhere[op->number[p]];
        op->moves[p] = graph->config.training && !frozen;
        any = any || op->moves[p];
    }
    return any;
}

/* What an op computes is bf16 (or f16) where bf16 is wanted and the op multiplies in it or takes values from weights;
 * elsewhere it is of the type of what goes in. So bf16 begins at linear layers, embeddings and, on a GPU, convolutions,
 * and continues from there. On the CPU convolutions of f32 are as fast, and stay f32. */
static bool gives_half(const tri_graph *graph, const graph_op *op)
{
    const tri_op_ops *row = tri_op_row(op->desc.op);
    bool half = row->gives_half || (row->gives_half_gpu && strcmp(graph->config.kind, "cuda") == 0);
    for (int i = 0; i < op->desc.input_count; i++)
        half = half ||
               (graph->config.precision != TRI_F32 && graph->values[op->input[i]].dtype == graph->config.precision);
    return half && graph->config.precision != TRI_F32 && !row->gives_f32;
}

/* Types of computed values, but for what the loss judges; then of all names they have. */
static void types_decide(tri_graph *graph)
{
    const bool words = tri_op_row(graph->ops[graph->op_count - 1].desc.op)->makes_logits;
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        graph_value *out = &graph->values[op->output];
        for (int i = 0; i < op->desc.input_count; i++)
            op->desc.input_dtype[i] = graph->values[op->input[i]].dtype;
        if (out->source == GRAPH_COMPUTED && out->dtype == TRI_F32 && (op->output != graph->logits || words) &&
            gives_half(graph, op)) {
            out->nbytes = out->nbytes / tri_dtype_nbytes(out->dtype) * tri_dtype_nbytes(graph->config.precision);
            out->dtype = graph->config.precision;
        }
    }
    for (int v = 0; v < graph->value_count; v++) {
        graph_value *value = &graph->values[v];
        value->nbytes = graph->values[value->root].nbytes;
        value->dtype = graph->values[value->root].dtype;
    }
}

bool tri_graph_has_halves(const tri_graph *graph)
{
    bool has = false;
    for (int o = 0; o < graph->op_count; o++)
        has = has || graph->values[graph->ops[o].output].dtype == graph->config.precision;
    return has && graph->config.precision != TRI_F32;
}

/* The gradient of a value is wanted when a parameter that moves is somewhere above it, that of a parameter when it
 * moves. */
static void grads_decide(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        bool need = moves_find(graph, op);
        for (int i = 0; i < op->desc.input_count; i++) {
            op->desc.need_dinput[i] = graph->values[op->input[i]].need_grad;
            need = need || op->desc.need_dinput[i];
        }
        op->backward = need;
        graph->values[op->output].need_grad = need;
    }
}

/* Shapes of parameters and outputs. */
static tri_status descs_infer(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        TRI_TRY(tri_op_infer(&op->desc));
        op->desc.output_dtype = graph->values[op->output].dtype;
    }
    return TRI_OK;
}

/* The op that writes a value, -1: none. */
static int writer_of(const tri_graph *graph, int value)
{
    for (int o = 0; o < graph->op_count; o++)
        if (graph->ops[o].output == value)
            return o;
    return -1;
}

/* A max pool of 2x2 that alone uses the output of a convolution whose kernel is faster with it becomes part of that
 * one. Returns whether this one did; the bits are the same. */
static bool pool_fuse(tri_graph *graph, const graph_op *pool)
{
    if (pool->desc.op != TRI_OP_MAX_POOL)
        return false;
    const tri_window w = tri_window_make(&pool->desc);
    bool fits = graph->values[pool->input[0]].use_count == 1;
    for (int i = 0; i < 2; i++)
        fits = fits && w.kernel[i] == 2 && w.stride[i] == 2 && w.dilation[i] == 1 && w.pad[i] == 0;
    const int writer = fits ? writer_of(graph, pool->input[0]) : -1;
    if (writer < 0 || graph->ops[writer].desc.op != TRI_OP_CONV || graph->ops[writer].block != pool->block)
        return false;
    graph_op *conv = &graph->ops[writer];
    tri_op_desc fused = conv->desc;
    fused.attr.pool = true;
    fused.output = pool->desc.output;
    const tri_kernel_ops *ops = fused.attr.relu ? tri_kernel_choose(graph->config.kind, &fused) : NULL;
    if (!ops || !ops->pools || fused.output_dtype != pool->desc.output_dtype)
        return false;
    conv->desc = fused;
    conv->output = pool->output;
    conv->last_node = pool->last_node;
    return true;
}

static void pools_fuse(tri_graph *graph)
{
    for (int o = 1; o < graph->op_count; o++)
        if (pool_fuse(graph, &graph->ops[o])) {
            memmove(&graph->ops[o], &graph->ops[o + 1], (size_t)(graph->op_count - o - 1) * sizeof(*graph->ops));
            graph->op_count--;
            o--;
        }
}

static tri_status kernels_plan(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        op->desc.device = graph->params->device;
        tri_status status = tri_kernel_plan(graph->config.kind, &op->desc, &op->kernel);
        if (status != TRI_OK) {
            op->kernel.ops = NULL; /* a failed plan has released itself */
            return tri_fail_context(status, "op %d (%s)", o, tri_op_name(op->desc.op));
        }
        op->kept_first = graph->kept_count;
        graph->kept_count += (op->kernel.kept_count + TRI_PARAMS_ALIGN - 1) / TRI_PARAMS_ALIGN * TRI_PARAMS_ALIGN;
        if (op->backward && !op->kernel.ops->backward)
            return tri_fail(TRI_EUNSUPPORTED, "op %d (%s) has no gradient", o, tri_op_name(op->desc.op));
    }
    return TRI_OK;
}

/* An add whose sum the next op reads, where that one's kernel computes both in one pass; the bits are the same. */
static void adds_fuse(tri_graph *graph)
{
    for (int o = 0; o + 1 < graph->op_count; o++) {
        graph_op *op = &graph->ops[o];
        const graph_op *next = &graph->ops[o + 1];
        const tri_op_desc *add = &op->desc;
        op->made_by_next = add->op == TRI_OP_ADD && !add->attr.relu && next->kernel.ops->takes_add &&
                           next->input[0] == op->output && tri_shape_equal(add->input[0], add->input[1]) &&
                           add->input_dtype[0] == add->output_dtype && add->input_dtype[1] == add->output_dtype;
    }
}

tri_status tri_graph_decide(tri_graph *graph, const tri_model *model)
{
    graph->value_count = (int)model->values.count;
    graph->values = tri_alloc_zero(model->values.count, sizeof(*graph->values));
    graph->ops = tri_alloc_zero(model->nodes.count, sizeof(*graph->ops));
    if (!graph->values || !graph->ops)
        return TRI_ENOMEM;
    TRI_TRY(values_make(graph, model));
    reshapes_drop(graph, model);
    TRI_TRY(ops_make(graph, model));
    graph->input = model->input;
    graph->target = model->target;
    graph->ranks = model->split.ranks;
    graph->logits = graph->values[model->logits].root;
    types_decide(graph);
    grads_decide(graph);
    TRI_TRY(descs_infer(graph));
    pools_fuse(graph);
    return TRI_OK;
}

static tri_status graph_fill(tri_graph *graph, const tri_model *model)
{
    int parts = graph->config.shards < TRI_TREE_MAX_PARTS ? graph->config.shards : TRI_TREE_MAX_PARTS;
    graph->part_capacity = parts;
    graph->dparam = tri_alloc_zero((size_t)tri_params_tail(graph->params) * (size_t)parts, sizeof(*graph->dparam));
    if (!graph->dparam)
        return TRI_ENOMEM;
    TRI_TRY(tri_graph_decide(graph, model));
    TRI_TRY(tri_graph_cut(graph, model));
    TRI_TRY(kernels_plan(graph));
    adds_fuse(graph);
    tri_graph_plan_times(graph);
    TRI_TRY(tri_graph_plan_memory(graph));
    graph->flops = tri_graph_count_flops(graph);
    graph->config.frozen = NULL;
    return TRI_OK;
}

static tri_status compile(const tri_model *model, const tri_params *params, const tri_graph_config *config,
                          const tri_graph *flags, tri_graph **out)
{
    TRI_TRY(tri_model_check(model));
    TRI_TRY(check_config(config));
    TRI_TRY(check_params(model, params));
    tri_graph *graph = tri_alloc_zero(1, sizeof(*graph));
    if (!graph)
        return TRI_ENOMEM;
    graph->config = *config;
    graph->params = params;
    graph->share = flags->share;
    graph->planned_only = flags->planned_only;
    tri_status status = graph_fill(graph, model);
    if (status != TRI_OK) {
        tri_graph_destroy(graph);
        return tri_fail_context(status, "while compiling model %s", model->name);
    }
    *out = graph;
    return TRI_OK;
}

tri_status tri_graph_compile_as(const tri_model *model, const tri_params *params, const tri_graph_config *config,
                                bool share, tri_graph **out)
{
    return compile(model, params, config, &(tri_graph){.share = share}, out);
}

tri_status tri_graph_store_none(const tri_model *model, tri_params *none)
{
    *none = (tri_params){.device = tri_device_host(), .model_count = (int)model->params.count};
    none->of_model = tri_alloc_zero(model->params.count, sizeof(int));
    if (!none->of_model)
        return TRI_ENOMEM;
    for (int p = 0; p < none->model_count; p++)
        none->of_model[p] = -1;
    return TRI_OK;
}

tri_status tri_graph_memory_find(const tri_model *model, const tri_graph_config *config, tri_graph_bytes *bytes)
{
    tri_params none;
    tri_graph *graph = NULL;
    TRI_TRY(tri_graph_store_none(model, &none));
    tri_status status = compile(model, &none, config, &(tri_graph){.share = true, .planned_only = true}, &graph);
    *bytes = (tri_graph_bytes){0};
    if (graph)
        *bytes = (tri_graph_bytes){graph->planned_nbytes, graph->slot_nbytes, graph->rounded_nbytes};
    tri_graph_destroy(graph);
    tri_free(none.of_model);
    return status;
}

tri_status tri_graph_compile(const tri_model *model, const tri_params *params, const tri_graph_config *config,
                             tri_graph **out)
{
    return tri_graph_compile_as(model, params, config, true, out);
}

void tri_graph_destroy(tri_graph *graph)
{
    if (!graph)
        return;
    for (int o = 0; o < graph->op_count; o++)
        if (graph->ops[o].kernel.ops)
            tri_kernel_release(&graph->ops[o].kernel);
    tri_graph_free_memory(graph);
    tri_graph_span_fini(graph);
    tri_free(graph->buffers);
    tri_free(graph->dparam);
    tri_free(graph->ops);
    tri_free(graph->values);
    tri_free(graph);
}
