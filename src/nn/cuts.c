/* SPDX-License-Identifier: Apache-2.0
 *
 * cuts.c: finds the sections of a model with what they cost and what crosses their ends.
 */
#include "nn/cuts.h"

#include "base/memory.h"
#include "base/status.h"
#include "nn/graph_impl.h"

static tri_status decide(const tri_model *model, tri_graph *graph, tri_params *none)
{
    TRI_TRY(tri_graph_store_none(model, none));
    graph->params = none;
    return tri_graph_decide(graph, model);
}

/* What op `maker` makes crosses the beginnings of all sections behind it up to the last one that reads it. */
static void crossing_add(const tri_graph *graph, int maker, tri_sections *sections)
{
    const graph_value *value = &graph->values[graph->ops[maker].output];
    int64_t nbytes = (int64_t)value->nbytes / graph->config.rows;
    int last = maker;
    for (int o = maker + 1; o < graph->op_count; o++)
        for (int i = 0; i < graph->ops[o].desc.input_count; i++)
            if (graph->ops[o].input[i] == graph->ops[maker].output)
                last = o;
    for (int s = 1; s < sections->count; s++) {
        tri_section *section = &sections->items[s];
        if (section->first_node <= graph->ops[maker].node || section->first_node > graph->ops[last].node)
            continue;
        section->nbytes_up += nbytes;
        section->nbytes_down += value->need_grad ? nbytes : 0;
    }
}

static void section_add_op(const tri_model *model, const tri_graph *graph, int o, tri_section *section)
{
    const graph_op *op = &graph->ops[o];
    const tri_param_spec *specs = model->params.items;
    bool named = section->count > 0;
    section->flops += tri_graph_op_flops(graph, op, true);
    section->late_flops += tri_graph_op_late_flops(graph, op);
    for (int p = 0; p < op->desc.param_count; p++)
        section->count += tri_shape_count(specs[op->number[p]].shape);
    if (!named)
        section->layer = op->desc.param_count > 0 ? specs[op->number[0]].name : tri_op_name(op->desc.op);
}

static tri_status sections_fill(const tri_model *model, const tri_graph *graph, tri_sections *out)
{
    out->items = tri_alloc_zero((size_t)graph->op_count, sizeof(*out->items));
    if (!out->items)
        return TRI_ENOMEM;
    for (int o = 0; o < graph->op_count; o++) {
        if (o == 0 || tri_graph_may_begin(graph, o)) {
            tri_section *section = &out->items[out->count++];
            section->first_node = o == 0 ? 0 : graph->ops[o].node;
            section->end_node = (int)model->nodes.count;
            if (o > 0)
                section[-1].end_node = section->first_node;
        }
        section_add_op(model, graph, o, &out->items[out->count - 1]);
    }
    for (int o = 0; o < graph->op_count; o++)
        crossing_add(graph, o, out);
    return TRI_OK;
}

tri_status tri_sections_find(const tri_model *model, const tri_graph_config *config, tri_sections *out)
{
    *out = (tri_sections){0};
    TRI_TRY(tri_model_check(model));
    tri_graph *graph = tri_alloc_zero(1, sizeof(*graph));
    tri_params none = {0};
    if (!graph)
        return TRI_ENOMEM;
    graph->config = *config;
    tri_status status = decide(model, graph, &none);
    if (status == TRI_OK)
        status = sections_fill(model, graph, out);
    tri_free(graph->ops);
    tri_free(graph->values);
    tri_free(graph);
    tri_free(none.of_model);
    if (status != TRI_OK)
        tri_sections_fini(out);
    return status;
}

void tri_sections_fini(tri_sections *sections)
{
    tri_free(sections->items);
    *sections = (tri_sections){0};
}
