/* SPDX-License-Identifier: Apache-2.0
 *
 * token_graph.c: a graph whose shards are tokens, the weights that it reads, packed, and what sequences keep.
 *
 * A run is as many walks through the graph as its tokens need: many tokens of prompts at once, then one a sequence.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/matrix.h"
#include "nn/span.h"
#include "nn/token_graph.h"

#define ROWS 256 /* tokens of one walk, at most */

/* Of an entry: packed, where ops want it so, else plain; of the device. */
typedef struct token_weights {
    tri_matrix *matrix;
    float *values;
} token_weights;

struct tri_token_graph {
    tri_token_graph_config config;
    tri_params *params; /* the table alone */
    token_weights *weights;
    tri_graph *graph;
    int head; /* entry of the vocabulary */
    int64_t words, width;
    /* of the device: */
    float *kept; /* [sequences][tri_graph_kept_count()] */
    float *last; /* [ROWS][width]: what comes out of the graph */
    float *ends; /* [sequences][width] */
    void *scratch;
    tri_device_view logits; /* [sequences][words] */
    tri_place_span *spans;  /* of a walk, and its tokens */
    int32_t tokens[ROWS], ones[ROWS];
    int64_t zeros[ROWS];
};

/* --- weights --- */

static tri_status params_make(tri_token_graph *graph, const tri_model *model)
{
    const tri_node *nodes = model->nodes.items;
    const tri_device *device = graph->config.device;
    TRI_TRY(tri_params_lay(model, NULL, device, &graph->params));
    const tri_params *params = graph->params;
    graph->weights = tri_alloc_zero((size_t)params->entry_count, sizeof(*graph->weights));
    if (!graph->weights)
        return TRI_ENOMEM;
    for (size_t n = 0; n < model->nodes.count; n++) {
        if (!tri_op_row(nodes[n].op)->packs)
            continue;
        const int entry = params->of_model[nodes[n].param[0]];
        const tri_shape shape = params->entries[entry].shape;
        if (!graph->weights[entry].matrix)
            TRI_TRY(tri_matrix_create(device, shape.dim[0], shape.dim[1], graph->config.dtype,
                                      &graph->weights[entry].matrix));
        graph->head = entry; /* the loss is the last one */
        graph->words = shape.dim[0];
        graph->width = shape.dim[1];
    }
    for (int e = 0; e < params->entry_count; e++) {
        if (graph->weights[e].matrix)
            continue;
        graph->weights[e].values = tri_device_alloc(device, (size_t)params->entries[e].count * sizeof(float));
        if (!graph->weights[e].values)
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

static tri_status weights_bring(void *arg, int entry, const float **values)
{
    const token_weights *weights = &((const tri_token_graph *)arg)->weights[entry];
    *values = weights->matrix ? (const float *)(const void *)weights->matrix : weights->values;
    return TRI_OK;
}

static tri_status matrix_load(tri_token_graph *graph, int entry, const tri_weights_source *source)
{
    const tri_param *param = &graph->params->entries[entry];
    const int64_t units = param->shape.dim[0], channels = param->shape.dim[1];
    float *rows = tri_alloc((size_t)(TRI_MATRIX_ROWS * channels) * sizeof(float));
    tri_status status = rows ? TRI_OK : TRI_ENOMEM;
    for (int64_t first = 0; first < units && status == TRI_OK; first += TRI_MATRIX_ROWS) {
        int64_t count = units - first < TRI_MATRIX_ROWS ? units - first : TRI_MATRIX_ROWS;
        status = source->read(source->arg, param->name, first * channels, count * channels, rows);
        if (status == TRI_OK)
            status = tri_matrix_fill(graph->weights[entry].matrix, graph->config.threads, first, count, rows);
    }
    tri_free(rows);
    return status;
}

static tri_status values_load(tri_token_graph *graph, int entry, const tri_weights_source *source)
{
    const tri_param *param = &graph->params->entries[entry];
    tri_device_view view;
    tri_status status = tri_device_view_open(&view, graph->config.device, graph->weights[entry].values,
                                             (size_t)param->count * sizeof(float));
    if (status == TRI_OK)
        status = source->read(source->arg, param->name, 0, param->count, view.host);
    if (status == TRI_OK)
        tri_device_view_write(&view);
    tri_device_view_close(&view);
    return status;
}

tri_status tri_token_graph_load(tri_token_graph *graph, const tri_weights_source *source)
{
    for (int e = 0; e < graph->params->entry_count; e++)
        TRI_TRY(graph->weights[e].matrix ? matrix_load(graph, e, source) : values_load(graph, e, source));
    return TRI_OK;
}

/* --- compiling --- */

/* Kernels of the CPU that know the place of a token are of a kind of their own. */
static const char *kernels_of(const tri_device *device)
{
    return strcmp(device->ops->kernels, "cpu") == 0 ? "tokens" : device->ops->kernels;
}

static tri_status memory_make(tri_token_graph *graph)
{
    const tri_device *device = graph->config.device;
    const size_t sequences = (size_t)graph->config.sequences;
    const size_t logits_nbytes = (size_t)graph->words * sequences * sizeof(float);
    graph->kept = tri_device_alloc(device, (size_t)tri_graph_kept_count(graph->graph) * sequences * sizeof(float));
    graph->last = tri_device_alloc(device, (size_t)graph->width * ROWS * sizeof(float));
    graph->ends = tri_device_alloc(device, (size_t)graph->width * sequences * sizeof(float));
    graph->scratch = tri_device_alloc(device, tri_matrix_scratch(graph->width, graph->config.sequences));
    graph->spans = tri_alloc_zero(sequences, sizeof(*graph->spans));
    float *logits = tri_device_alloc(device, logits_nbytes);
    graph->logits = (tri_device_view){.device = device, .memory = logits};
    if (!graph->kept || !graph->last || !graph->ends || !graph->scratch || !graph->spans || !logits)
        return TRI_ENOMEM;
    return tri_device_view_open(&graph->logits, device, logits, logits_nbytes);
}

static tri_status graph_make(tri_token_graph *graph, const tri_model *model)
{
    const tri_graph_config config = {.kind = kernels_of(graph->config.device),
                                     .rows = 1,
                                     .shards = ROWS,
                                     .threads = graph->config.threads,
                                     .places = graph->config.places,
                                     .end_node = (int)model->nodes.count - 1};
    TRI_TRY(params_make(graph, model));
    TRI_TRY(tri_graph_compile(model, graph->params, &config, &graph->graph));
    TRI_TRY(memory_make(graph));
    for (int r = 0; r < ROWS; r++)
        graph->ones[r] = 1;
    tri_graph_hooks_set(graph->graph, &(tri_graph_hooks){.arg = graph, .bring = weights_bring});
    tri_graph_slot_enter(graph->graph, 0, &(tri_span_places){.out = graph->last});
    return TRI_OK;
}

tri_status tri_token_graph_compile(const tri_model *model, const tri_token_graph_config *config, tri_token_graph **out)
{
    const tri_node *nodes = model->nodes.items;
    TRI_TRY(tri_model_check(model));
    if (config->threads < 1 || config->sequences < 1 || config->places < 1)
        return tri_fail(TRI_EINVAL, "token graph: want threads, sequences and places of at least 1, got %d, %d, %lld",
                        config->threads, config->sequences, (long long)config->places);
    for (size_t n = 0; n < model->nodes.count; n++)
        if (!tri_op_row(nodes[n].op)->per_token)
            return tri_fail(TRI_EUNSUPPORTED,
                            "model %s has %s in it: text is generated by causal transformers (gpt2, llama) alone",
                            model->name, tri_op_name(nodes[n].op));
    tri_token_graph *graph = tri_alloc_zero(1, sizeof(*graph));
    if (!graph)
        return TRI_ENOMEM;
    graph->config = *config;
    graph->config.device = config->device ? config->device : tri_device_host();
    tri_status status = graph_make(graph, model);
    if (status != TRI_OK) {
        tri_token_graph_destroy(graph);
        return status;
    }
    *out = graph;
    return TRI_OK;
}

void tri_token_graph_destroy(tri_token_graph *graph)
{
    if (!graph)
        return;
    const tri_device *device = graph->config.device;
    void *logits = graph->logits.memory;
    tri_graph_destroy(graph->graph);
    for (int e = 0; graph->weights && e < graph->params->entry_count; e++) {
        tri_matrix_destroy(graph->weights[e].matrix);
        tri_device_free(device, graph->weights[e].values);
    }
    tri_params_destroy(graph->params);
    tri_device_view_close(&graph->logits);
    void *all[] = {graph->kept, graph->last, graph->ends, graph->scratch, logits};
    for (size_t i = 0; i < TRI_COUNT_OF(all); i++)
        tri_device_free(device, all[i]);
    tri_free(graph->weights);
    tri_free(graph->spans);
    tri_free(graph);
}

int64_t tri_token_graph_words(const tri_token_graph *graph)
{
    return graph->words;
}

/* --- a run --- */

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

/* The spans of one walk. */
typedef struct walk {
    int span_count;
    int64_t rows;
    int ends[ROWS]; /* number of the run's span that ends with each, or -1 */
} walk;

/* The next tokens of the spans from (*span, *done) on. */
static void walk_fill(tri_token_graph *graph, const tri_token_span *spans, int count, int *span, int64_t *done, walk *w)
{
    w->rows = w->span_count = 0;
    while (*span < count && w->rows < ROWS) {
        const tri_token_span *from = &spans[*span];
        int64_t left = from->count - *done, room = ROWS - w->rows, taken = left < room ? left : room;
        memcpy(graph->tokens + w->rows, from->tokens + *done, (size_t)taken * sizeof(*graph->tokens));
        graph->spans[w->span_count] =
            (tri_place_span){.row = w->rows, .count = taken, .place = from->place + *done, .sequence = from->sequence};
        w->ends[w->span_count++] = taken == left ? *span : -1;
        w->rows += taken;
        *done = taken == left ? 0 : *done + taken;
        *span += taken == left;
    }
}

static tri_status walk_run(tri_token_graph *graph, const walk *w)
{
    const tri_batch batch = {
        .shards = (int)w->rows, .rows = graph->ones, .first_sample = graph->zeros, .input = graph->tokens};
    tri_graph_spans_set(graph->graph, graph->spans, w->span_count, graph->kept);
    TRI_TRY(tri_graph_forward(graph->graph, &batch, 0, false, NULL));
    for (int s = 0; s < w->span_count; s++)
        if (w->ends[s] >= 0)
            tri_device_copy(graph->config.device, graph->ends + w->ends[s] * graph->width,
                            graph->last + (graph->spans[s].row + graph->spans[s].count - 1) * graph->width,
                            (size_t)graph->width * sizeof(float));
    return TRI_OK;
}

tri_status tri_token_graph_run(tri_token_graph *graph, const tri_token_span *spans, int count, const float **logits)
{
    walk w;
    int span = 0;
    int64_t done = 0;
    TRI_TRY(check_spans(graph, spans, count));
    while (span < count) {
        walk_fill(graph, spans, count, &span, &done, &w);
        TRI_TRY(walk_run(graph, &w));
    }
    tri_matrix_apply(graph->weights[graph->head].matrix, &(tri_matrix_call){.x = graph->ends,
                                                                            .y = graph->logits.memory,
                                                                            .scratch = graph->scratch,
                                                                            .rows = count,
                                                                            .threads = graph->config.threads});
    tri_device_view_read(&graph->logits);
    *logits = graph->logits.host;
    return TRI_OK;
}
