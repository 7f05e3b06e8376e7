/* SPDX-License-Identifier: Apache-2.0
 *
 * cuts_measure.c: seconds of each section, by running it. What tensor ranks exchange is left out: there is one rank.
 */
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "nn/cuts.h"
#include "nn/graph_impl.h"

#define FILLING 0x3c /* each float of it, f32 or bf16, is about 0.011 */

typedef struct trial {
    tri_params *params;
    tri_graph *graph;
    tri_span_places places;
    float *grads;
    void *input, *target;
    int32_t *rows;
    int64_t *first_sample;
} trial;

static void trial_close(trial *t)
{
    tri_free(t->places.in);
    tri_free(t->places.out);
    tri_free(t->places.din);
    tri_free(t->places.dout);
    tri_free(t->grads);
    tri_free(t->input);
    tri_free(t->target);
    tri_free(t->rows);
    tri_free(t->first_sample);
    tri_graph_destroy(t->graph);
    tri_params_destroy(t->params);
}

static void *filled(size_t nbytes)
{
    void *memory = tri_alloc_bulk(nbytes);
    if (memory)
        memset(memory, FILLING, nbytes);
    return memory;
}

static tri_status trial_allocate(const tri_graph_config *config, trial *t)
{
    const tri_span *span = tri_graph_span(t->graph);
    const size_t shards = (size_t)config->shards;
    t->places.in = filled(tri_crossings_nbytes(span->in, span->in_count, config->shards, false));
    t->places.out = filled(tri_crossings_nbytes(span->out, span->out_count, config->shards, false));
    t->places.din = filled(tri_crossings_nbytes(span->in, span->in_count, config->shards, true));
    t->places.dout = filled(tri_crossings_nbytes(span->out, span->out_count, config->shards, true));
    t->grads = tri_alloc_bulk((size_t)(tri_params_grad_count(t->params) + TRI_PARAMS_TAIL) * sizeof(float));
    t->input = tri_alloc_bulk(shards * t->graph->values[t->graph->input].nbytes);
    t->target = tri_alloc_bulk(shards * t->graph->values[t->graph->target].nbytes);
    t->rows = tri_alloc_zero(shards, sizeof(*t->rows));
    t->first_sample = tri_alloc_zero(shards, sizeof(*t->first_sample));
    if (!t->places.in || !t->places.out || !t->places.din || !t->places.dout || !t->grads || !t->input || !t->target ||
        !t->rows || !t->first_sample)
        return TRI_ENOMEM;
    for (int s = 0; s < config->shards; s++) {
        t->rows[s] = (int32_t)config->rows;
        t->first_sample[s] = s * config->rows;
    }
    return TRI_OK;
}

/* Whoever has the other parts is not here. */
static tri_status no_sum(void *arg, void *data, int64_t count, tri_dtype dtype)
{
    (void)arg;
    (void)data;
    (void)count;
    (void)dtype;
    return TRI_OK;
}

static tri_status no_gather(void *arg, const void *in, void *out, int64_t count, tri_dtype dtype)
{
    (void)arg;
    (void)in;
    (void)out;
    (void)count;
    (void)dtype;
    return TRI_OK;
}

static int slot_count(const tri_graph_config *config)
{
    return config->slots > 1 ? config->slots : 1;
}

static tri_status trial_open(const tri_model *model, const tri_graph_config *config, const tri_section *section,
                             trial *t)
{
    tri_stages alone = {.count = 3, .first_node = {0, section->first_node, section->end_node, (int)model->nodes.count}};
    bool *wanted = tri_alloc_zero(model->params.count, sizeof(*wanted));
    if (!wanted)
        return TRI_ENOMEM;
    tri_stages_wanted(model, &alone, 3, 1, wanted);
    tri_status status = tri_params_create_some(model, wanted, tri_device_host(), 1, &t->params);
    tri_free(wanted);
    TRI_TRY(status);
    for (int e = 0; config->frozen && e < t->params->entry_count; e++)
        t->params->entries[e].frozen = config->frozen[t->params->entries[e].number];
    tri_graph_config own = *config;
    own.first_node = section->first_node;
    own.end_node = section->end_node;
    own.slots = slot_count(config);
    TRI_TRY(tri_graph_compile(model, t->params, &own, &t->graph));
    tri_graph_across_set(t->graph, &(tri_op_ranks){.sum = no_sum, .gather = no_gather});
    return trial_allocate(config, t);
}

static tri_status trial_run(const tri_graph_config *config, trial *t, double *seconds)
{
    tri_batch batch = {.shards = config->shards,
                       .rows = t->rows,
                       .first_sample = t->first_sample,
                       .input = t->input,
                       .target = t->target};
    const float(*sums)[TRI_LOSS_COLUMNS];
    int64_t start_ns = tri_now_ns();
    for (int slot = 0; slot < slot_count(config); slot++) {
        tri_graph_slot_enter(t->graph, slot, &t->places);
        TRI_TRY(tri_graph_forward(t->graph, &batch, 0, config->training, &sums));
    }
    for (int slot = 0; config->training && slot < slot_count(config); slot++) {
        tri_graph_slot_enter(t->graph, slot, &t->places);
        TRI_TRY(tri_graph_backward(t->graph, NULL, NULL));
    }
    *seconds = (double)(tri_now_ns() - start_ns) / 1e9 / slot_count(config);
    return TRI_OK;
}

static tri_status section_measure(const tri_model *model, const tri_graph_config *config, double seconds,
                                  tri_section *section)
{
    enum { LEAST = 3, MOST = 20 };
    trial t = {0};
    tri_status status = trial_open(model, config, section, &t);
    if (status == TRI_OK && config->training) {
        /* Several shards need not make one subtree; their sums are of no use here. */
        tri_tree_part parts[TRI_TREE_MAX_PARTS];
        float *grads[TRI_TREE_MAX_PARTS];
        int64_t leaves = 1;
        while (leaves < config->shards)
            leaves *= 2;
        int count = tri_tree_parts(leaves, 0, config->shards, parts);
        for (int p = 0; p < count; p++)
            grads[p] = t.grads;
        status = tri_graph_grads_set(t.graph, count, parts, grads);
    }
    double best = 0, spent = 0, once = 0;
    for (int run = 0; status == TRI_OK && run < MOST && (run < LEAST || spent < seconds); run++) {
        status = trial_run(config, &t, &once);
        spent += once * slot_count(config);
        best = run == 0 || once < best ? once : best;
    }
    if (status == TRI_OK)
        section->seconds = best / (double)(config->rows * config->shards);
    trial_close(&t);
    return status;
}

tri_status tri_section_measure(const tri_model *model, const tri_graph_config *config, double seconds,
                               tri_section *section)
{
    TRI_TRY_IN(section_measure(model, config, seconds, section), "while measuring the section of %s", section->layer);
    return TRI_OK;
}

tri_status tri_sections_measure(const tri_model *model, const tri_graph_config *config, double seconds,
                                tri_sections *sections)
{
    for (int s = 0; s < sections->count; s++)
        TRI_TRY(tri_section_measure(model, config, seconds / sections->count, &sections->items[s]));
    return TRI_OK;
}
