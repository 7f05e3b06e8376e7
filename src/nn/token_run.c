/* SPDX-License-Identifier: Apache-2.0
 *
 * token_run.c: loads a token graph's weights and walks it: many tokens of prompts at once, then one a sequence.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "nn/token_graph_impl.h"

/* --- weights --- */

static tri_status matrix_load(tri_token_graph *graph, token_param *param, const tri_weights_source *source)
{
    const int64_t units = param->shape.dim[0], channels = param->shape.dim[1];
    float *rows = tri_alloc((size_t)(TRI_MATRIX_ROWS * channels) * sizeof(float));
    tri_status status = rows ? TRI_OK : TRI_ENOMEM;
    for (int64_t first = 0; first < units && status == TRI_OK; first += TRI_MATRIX_ROWS) {
        int64_t count = units - first < TRI_MATRIX_ROWS ? units - first : TRI_MATRIX_ROWS;
        status = source->read(source->arg, param->name, first * channels, count * channels, rows);
        if (status == TRI_OK)
            tri_matrix_fill(param->matrix, graph->config.threads, first, count, rows);
    }
    tri_free(rows);
    return status;
}

tri_status tri_token_graph_load(tri_token_graph *graph, const tri_weights_source *source)
{
    for (int p = 0; p < graph->param_count; p++) {
        token_param *param = &graph->params[p];
        TRI_TRY(param->matrix
                    ? matrix_load(graph, param, source)
                    : source->read(source->arg, param->name, 0, tri_shape_count(param->shape), param->values));
    }
    return TRI_OK;
}

int64_t tri_token_graph_words(const tri_token_graph *graph)
{
    return graph->words;
}

void tri_token_graph_memory(const tri_token_graph *graph, size_t *weights_nbytes, size_t *kept_nbytes)
{
    *weights_nbytes = 0;
    for (int p = 0; p < graph->param_count; p++)
        *weights_nbytes += graph->params[p].matrix ? tri_matrix_nbytes(graph->params[p].matrix)
                                                   : (size_t)tri_shape_count(graph->params[p].shape) * sizeof(float);
    *kept_nbytes = (size_t)graph->kept_each * (size_t)graph->config.sequences * sizeof(float);
}

/* --- a walk --- */

static float *value_at(const tri_token_graph *graph, int value)
{
    return (float *)(void *)(graph->memory + graph->buffers[graph->values[value].buffer].offset);
}

typedef struct walk {
    tri_token_graph *graph;
    int span_count;
    int64_t rows;
    int sequence[TRI_TOKEN_ROWS]; /* of each span */
} walk;

static void embed(const walk *w, const token_op *op)
{
    const tri_token_graph *graph = w->graph;
    float *y = value_at(graph, op->output);
    for (int64_t r = 0; r < w->rows; r++)
        tri_matrix_row(graph->params[op->param[0]].matrix, graph->tokens[r], y + r * graph->values[op->output].width);
}

static void positions_add(const walk *w, const token_op *op)
{
    const tri_token_graph *graph = w->graph;
    const int64_t width = graph->values[op->output].width;
    const float *x = value_at(graph, op->input[0]), *table = graph->params[op->param[0]].values;
    float *y = value_at(graph, op->output);
    for (int s = 0; s < w->span_count; s++) {
        const tri_place_span *span = &graph->spans[s];
        tri_vector_add(1, y + span->row * width, x + span->row * width, table + span->place * width,
                       span->count * width);
    }
}

static void product(const walk *w, const token_op *op)
{
    const tri_token_graph *graph = w->graph;
    const tri_op_attr *attr = &op->kernel.desc.attr;
    tri_matrix_apply(graph->params[op->param[0]].matrix,
                     &(tri_matrix_call){.x = value_at(graph, op->input[0]),
                                        .bias = attr->bias ? graph->params[op->param[1]].values : NULL,
                                        .y = value_at(graph, op->output),
                                        .scratch = graph->scratch,
                                        .rows = w->rows,
                                        .threads = graph->config.threads,
                                        .relu = attr->relu});
}

static void attend(const walk *w, const token_op *op)
{
    tri_token_graph *graph = w->graph;
    for (int s = 0; s < w->span_count; s++)
        graph->spans[s].kept = graph->kept + w->sequence[s] * graph->kept_each + op->kept_first;
    tri_places_attention(&op->kernel.desc, graph->spans, w->span_count, value_at(graph, op->input[0]),
                         value_at(graph, op->output), graph->scratch);
}

static void rows_run(const walk *w, const token_op *op)
{
    tri_token_graph *graph = w->graph;
    tri_op_call call = {.shards = (int)w->rows,
                        .rows = graph->ones,
                        .output = value_at(graph, op->output),
                        .saved = graph->saved,
                        .scratch = graph->scratch,
                        .first_sample = graph->zeros};
    for (int i = 0; i < op->kernel.desc.input_count; i++)
        call.input[i] = value_at(graph, op->input[i]);
    for (int p = 0; p < op->kernel.desc.param_count; p++)
        call.param[p] = graph->params[op->param[p]].values;
    tri_kernel_forward(&op->kernel, &call);
}

static void walk_run(const walk *w)
{
    const tri_token_graph *graph = w->graph;
    for (int o = 0; o < graph->op_count; o++) {
        const token_op *op = &graph->ops[o];
        switch (op->op) {
        case TRI_OP_EMBEDDING:
            embed(w, op);
            break;
        case TRI_OP_POSITIONS:
            positions_add(w, op);
            break;
        case TRI_OP_LINEAR:
            product(w, op);
            break;
        case TRI_OP_ATTENTION:
            attend(w, op);
            break;
        case TRI_OP_ROPE:
            tri_places_rope(&op->kernel, graph->spans, w->span_count, value_at(graph, op->input[0]),
                            value_at(graph, op->output));
            break;
        default:
            rows_run(w, op);
        }
    }
}

/* --- a run: as many walks as its tokens need --- */

static tri_status check_spans(const tri_token_graph *graph, const tri_token_span *spans, int count)
{
    if (count < 1 || count > graph->config.sequences)
        return tri_fail(TRI_EINVAL, "token graph: want 1 to %d sequences a run, got %d", graph->config.sequences,
                        count);
    for (int s = 0; s < count; s++) {
        const tri_token_span *span = &spans[s];
        if (span->sequence < 0 || span->sequence >= graph->config.sequences || span->count < 1 || span->place < 0 ||
            span->place > graph->config.places - span->count)
            return tri_fail(
                TRI_EINVAL, "token graph: sequence %d: want places below %lld, got %lld tokens from %lld on",
                span->sequence, (long long)graph->config.places, (long long)span->count, (long long)span->place);
        for (int64_t i = 0; i < span->count; i++)
            if (span->tokens[i] < 0 || span->tokens[i] >= graph->words)
                return tri_fail(TRI_EINVAL, "token %d is none of the %lld of the model's vocabulary", span->tokens[i],
                                (long long)graph->words);
    }
    return TRI_OK;
}

/* The next tokens of the spans from (*span, *done) on; which rows are the last of their spans is told in ends. */
static void walk_fill(walk *w, const tri_token_span *spans, int count, int *span, int64_t *done, int *ends)
{
    tri_token_graph *graph = w->graph;
    w->rows = w->span_count = 0;
    while (*span < count && w->rows < TRI_TOKEN_ROWS) {
        const tri_token_span *from = &spans[*span];
        int64_t left = from->count - *done, room = TRI_TOKEN_ROWS - w->rows, taken = left < room ? left : room;
        memcpy(graph->tokens + w->rows, from->tokens + *done, (size_t)taken * sizeof(*graph->tokens));
        graph->spans[w->span_count] = (tri_place_span){.row = w->rows, .count = taken, .place = from->place + *done};
        w->sequence[w->span_count] = from->sequence;
        ends[w->span_count++] = taken == left ? *span : -1;
        w->rows += taken;
        *done = taken == left ? 0 : *done + taken;
        *span += taken == left;
    }
}

tri_status tri_token_graph_run(tri_token_graph *graph, const tri_token_span *spans, int count, const float **logits)
{
    const int64_t width = graph->values[graph->last].width;
    walk w = {.graph = graph};
    int span = 0, ends[TRI_TOKEN_ROWS];
    int64_t done = 0;
    TRI_TRY(check_spans(graph, spans, count));
    while (span < count) {
        walk_fill(&w, spans, count, &span, &done, ends);
        walk_run(&w);
        for (int s = 0; s < w.span_count; s++)
            if (ends[s] >= 0)
                memcpy(graph->ends + ends[s] * width,
                       value_at(graph, graph->last) + (graph->spans[s].row + graph->spans[s].count - 1) * width,
                       (size_t)width * sizeof(float));
    }
    tri_matrix_apply(graph->params[graph->head].matrix, &(tri_matrix_call){.x = graph->ends,
                                                                           .y = graph->logits,
                                                                           .scratch = graph->scratch,
                                                                           .rows = count,
                                                                           .threads = graph->config.threads});
    *logits = graph->logits;
    return TRI_OK;
}
