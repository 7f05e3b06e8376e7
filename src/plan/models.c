/* SPDX-License-Identifier: Apache-2.0
 *
 * models.c: builds the model for tensor ranks, times its sections, and adds them up to the chunks of a layout.
 */
#include "plan/models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "parallel/schedule.h"

#define RATE_S       0.03 /* of measuring the peak */
#define RATE_SHARE   0.6  /* of the peak that products reach, where none was measured */
#define RUN_S        0.3  /* a run of a section that is longer is made of fewer samples */
#define SECTION_S    0.15 /* of measuring a section, at least three runs */
#define WHOLE_S      0.5  /* a run of the whole model that is longer is made of fewer shards */
#define MEMORY_SHARE 0.5  /* of what is free, that measuring a section may take */
#define SAMPLE_SLOTS 6    /* batches on a card: of the loaders of training and of evaluation */

tri_status tri_plan_models_open(const tri_plan_setup *setup, const tri_plan_crew *crew, const tri_plan_cluster *cluster,
                                tri_plan_models *models)
{
    *models = (tri_plan_models){.setup = setup, .crew = crew, .cluster = cluster};
    double slowness = 1e-15, gflops = 0;
    for (int h = 0; h < cluster->kind_count; h++)
        if (cluster->hosts[h].gflops > 0)
            gflops = gflops > 0 ? fmin(gflops, cluster->hosts[h].gflops) : cluster->hosts[h].gflops;
    if (gflops > 0) {
        models->rate = gflops * 1e9;
        return TRI_OK;
    }
    if (crew->computes)
        slowness = 1 / tri_kernel_peak(TRI_F32, crew->threads, RATE_S);
    TRI_TRY(tri_plan_crew_agree(crew, &slowness, 1));
    models->rate = RATE_SHARE / slowness;
    return TRI_OK;
}

static void variant_close(const tri_plan_setup *setup, tri_plan_variant *variant)
{
    for (size_t i = 0; i < variant->timings.count; i++)
        tri_free(((tri_plan_timing *)tri_vector_at(&variant->timings, i))->seconds);
    tri_vector_fini(&variant->timings);
    tri_sections_fini(&variant->sections);
    if (variant->model != setup->given)
        tri_model_destroy(variant->model);
}

void tri_plan_models_close(tri_plan_models *models)
{
    for (int v = 0; v < TRI_PLAN_TENSOR_MAX && models->setup; v++)
        variant_close(models->setup, &models->variants[v]);
    *models = (tri_plan_models){0};
}

static tri_graph_config graph_config(const tri_plan_models *models, int64_t rows, int64_t shards)
{
    return (tri_graph_config){.kind = models->setup->kernels,
                              .rows = rows,
                              .shards = (int)shards,
                              .threads = models->crew->threads,
                              .training = true,
                              .precision = models->setup->precision};
}

/* --- variants --- */

static tri_status variant_build(const tri_plan_setup *setup, int tensor, tri_plan_variant *variant)
{
    int parts = setup->tensor_parts > 0 ? setup->tensor_parts : tensor;
    tri_model_split split = {parts, tensor, 0, setup->sequence && parts > 1};
    if (tensor > parts)
        return tri_fail(TRI_ECONFIG, "tensor %d: the layers are cut into parallel.tensor_parts %d", tensor, parts);
    if (setup->given && parts > 1)
        return tri_fail(TRI_ECONFIG, "tensor %d: a model that a program built cannot be cut into parts", tensor);
    if (setup->given) {
        variant->model = (tri_model *)(uintptr_t)setup->given; /* only read */
        return TRI_OK;
    }
    return tri_model_build_split(setup->model, split, setup->sample, setup->classes, &variant->model);
}

/* Number in models->variants, -1: not a power of two, or too many. */
static int variant_number(int tensor)
{
    for (int v = 0; v < TRI_PLAN_TENSOR_MAX; v++)
        if (tensor == 1 << v)
            return v;
    return -1;
}

static tri_status variant_find(tri_plan_models *models, int tensor, tri_plan_variant **out)
{
    int number = variant_number(tensor);
    if (number < 0)
        return tri_fail(TRI_ECONFIG, "tensor %d: want a power of two", tensor);
    tri_plan_variant *variant = *out = &models->variants[number];
    if (!variant->found) {
        variant->found = true;
        variant->timings = (tri_vector){.each = sizeof(tri_plan_timing)};
        tri_status status = variant_build(models->setup, tensor, variant);
        tri_graph_config config = graph_config(models, tri_plan_rows(&models->setup->job), 1);
        if (status == TRI_OK)
            status = tri_sections_find(variant->model, &config, &variant->sections);
        if (status == TRI_ECONFIG || status == TRI_EUNSUPPORTED)
            snprintf(variant->refusal, sizeof(variant->refusal), "%s", tri_last_error());
        else
            TRI_TRY(status);
    }
    return variant->refusal[0] ? tri_fail(TRI_ECONFIG, "%s", variant->refusal) : TRI_OK;
}

/* --- timings --- */

/* What decides how long a section takes, but for its kernels. */
static bool sections_alike(const tri_section *a, const tri_section *b)
{
    return a->flops == b->flops && a->count == b->count && a->nbytes_up == b->nbytes_up &&
           a->nbytes_down == b->nbytes_down && a->end_node - a->first_node == b->end_node - b->first_node;
}

/* The first section like it. */
static int section_like(const tri_sections *sections, int number)
{
    for (int s = 0; s < number; s++)
        if (sections_alike(&sections->items[s], &sections->items[number]))
            return s;
    return number;
}

/* Samples of a run that is not too long, as rows and shards; false: even one sample takes too long, or the section does
 * not fit. */
static bool run_fits(const tri_plan_models *models, const tri_section *section, double free_nbytes, int64_t *rows,
                     int64_t *shards)
{
    double flops_most = models->rate * RUN_S;
    while (*shards > 1 && section->flops * (double)(*rows * *shards) > flops_most)
        *shards = (*shards + 1) / 2;
    while (*rows > 1 && section->flops * (double)(*rows * *shards) > flops_most)
        *rows = (*rows + 1) / 2;
    double samples = (double)(*rows * *shards), crossing = (double)(section->nbytes_up + section->nbytes_down);
    double nbytes = 8.0 * (double)section->count + 16 * samples * crossing;
    return section->flops * samples <= 10 * flops_most && nbytes < MEMORY_SHARE * free_nbytes;
}

static tri_status section_time(tri_plan_models *models, const tri_plan_variant *variant, int number, int64_t shards,
                               double free_nbytes, double *seconds)
{
    tri_section section = variant->sections.items[number];
    int64_t rows = tri_plan_rows(&models->setup->job);
    char what[200];
    snprintf(what, sizeof(what), "measuring %s", section.layer);
    if (models->setup->progress)
        models->setup->progress(models->setup->progress_arg, what);
    *seconds = 0;
    if (!run_fits(models, &section, free_nbytes, &rows, &shards)) {
        models->estimated = true;
        return TRI_OK;
    }
    tri_graph_config config = graph_config(models, rows, shards);
    if (models->crew->computes)
        TRI_TRY(tri_section_measure(variant->model, &config, SECTION_S, &section));
    *seconds = section.seconds;
    return TRI_OK;
}

static double slowest_speed(const tri_plan_models *models)
{
    double speed = INFINITY;
    for (int h = 0; h < models->cluster->kind_count; h++)
        speed = fmin(speed, models->cluster->hosts[h].speed);
    return speed;
}

/* The largest of all ranks; what was not measured follows from its operations, at the rate of what was. */
static tri_status timing_finish(const tri_plan_models *models, const tri_sections *sections, double *seconds)
{
    double flops = 0, spent = 0, speed = slowest_speed(models);
    TRI_TRY(tri_plan_crew_agree(models->crew, seconds, sections->count));
    for (int s = 0; s < sections->count; s++) {
        seconds[s] = seconds[section_like(sections, s)];
        flops += seconds[s] > 0 ? sections->items[s].flops : 0;
        spent += seconds[s];
    }
    double rate = flops > 0 && spent > 0 ? flops / spent : models->rate;
    for (int s = 0; s < sections->count; s++)
        seconds[s] = (seconds[s] > 0 ? seconds[s] : sections->items[s].flops / rate) / speed;
    return TRI_OK;
}

static bool is_measured(const tri_plan_models *models)
{
    bool gflops = false;
    for (int h = 0; h < models->cluster->kind_count; h++)
        gflops = gflops || models->cluster->hosts[h].gflops > 0;
    return !gflops;
}

/* What a run of the whole model takes by the sum of its sections, where it fits and is short, else 1. Sections find
 * more in caches, the more so the shorter the run and the more runs are at a time; but each by itself has ends of its
 * own, which count where many of them do little. */
static tri_status whole_measure(const tri_plan_models *models, const tri_plan_variant *variant,
                                const tri_plan_timing *timing, double free_nbytes, double *factor)
{
    const double *seconds = timing->seconds;
    int64_t shards = timing->shards;
    const tri_sections *sections = &variant->sections;
    tri_section whole = {.end_node = (int)variant->model->nodes.count, .layer = "the whole model"};
    int64_t rows = tri_plan_rows(&models->setup->job);
    double sum = 0, figure = 0;
    for (int s = 0; s < sections->count; s++) {
        sum += seconds[s];
        whole.flops += sections->items[s].flops;
        whole.count += sections->items[s].count;
        whole.nbytes_up += sections->items[s].nbytes_up;
        whole.nbytes_down += sections->items[s].nbytes_down;
    }
    *factor = 1;
    while (shards > 1 && sum * (double)(rows * shards) > WHOLE_S)
        shards /= 2;
    if (models->estimated || sum * (double)(rows * shards) > 4 * WHOLE_S ||
        !run_fits(models, &whole, free_nbytes / timing->standing, &rows, &shards))
        return TRI_OK;
    tri_graph_config config = graph_config(models, rows, shards);
    for (config.slots = timing->standing; config.slots > 1; config.slots--)
        if (sum * (double)(rows * shards * config.slots) <= WHOLE_S)
            break;
    tri_status status = TRI_OK;
    if (models->crew->computes)
        status = tri_section_measure(variant->model, &config, SECTION_S, &whole);
    figure = whole.seconds / slowest_speed(models);
    TRI_TRY(tri_plan_crew_status(models->crew, status));
    TRI_TRY(tri_plan_crew_agree(models->crew, &figure, 1));
    *factor = figure / sum;
    return TRI_OK;
}

/* Each section alone. */
static tri_status sections_time(tri_plan_models *models, const tri_plan_variant *variant, double free_nbytes,
                                tri_plan_timing *timing)
{
    tri_status status = TRI_OK;
    for (int s = 0; is_measured(models) && s < variant->sections.count && status == TRI_OK; s++)
        if (section_like(&variant->sections, s) == s)
            status = section_time(models, variant, s, timing->shards, free_nbytes, &timing->seconds[s]);
    TRI_TRY(tri_plan_crew_status(models->crew, status));
    return timing_finish(models, &variant->sections, timing->seconds);
}

/* other: one of runs of the same length, whose sections are the same; NULL: there is none. */
static tri_status timing_make(tri_plan_models *models, const tri_plan_variant *variant, const tri_plan_timing *other,
                              tri_plan_timing *timing)
{
    double free_nbytes = -tri_plan_host_memory(1);
    TRI_TRY(tri_plan_crew_agree(models->crew, &free_nbytes, 1)); /* the least */
    free_nbytes = -free_nbytes / tri_plan_crew_count(models->crew);
    timing->factor = 1;
    for (int s = 0; other && s < variant->sections.count; s++)
        timing->seconds[s] = other->seconds[s] / other->factor;
    if (!other)
        TRI_TRY(sections_time(models, variant, free_nbytes, timing));
    if (is_measured(models))
        TRI_TRY(whole_measure(models, variant, timing, free_nbytes, &timing->factor));
    for (int s = 0; s < variant->sections.count; s++)
        timing->seconds[s] *= timing->factor;
    return TRI_OK;
}

/* Of a pipeline's rank, in whole models: of a half model four micro-batches are two. */
static tri_status standing_find(const tri_plan_models *models, const tri_layout *layout, int *standing)
{
    *standing = 1;
    if (layout->pipeline == 1)
        return TRI_OK;
    int64_t each = tri_plan_run_shards(&models->setup->job, layout);
    int64_t runs = (tri_plan_shards_of(&models->setup->job, layout->data) + each - 1) / each;
    int most = 0, chunks = layout->pipeline * layout->chunks;
    tri_pipe_schedule schedule;
    tri_status status =
        tri_pipe_schedule_make(layout->schedule, layout->pipeline, layout->chunks, (int)runs, true, &schedule);
    if (status != TRI_OK)
        return status == TRI_ECONFIG ? TRI_OK : status; /* its cost says why */
    status = tri_pipe_schedule_check(&schedule);
    for (int rank = 0; rank < layout->pipeline && status == TRI_OK; rank++) {
        int here = 0;
        for (int c = rank; c < chunks; c += layout->pipeline)
            here += schedule.slots[c];
        most = here > most ? here : most;
    }
    tri_pipe_schedule_fini(&schedule);
    *standing = most > chunks ? (most + chunks / 2) / chunks : 1;
    return status;
}

static tri_status timing_find(tri_plan_models *models, tri_plan_variant *variant, const tri_layout *layout,
                              const double **seconds)
{
    const tri_plan_timing *other = NULL;
    tri_plan_timing timing = {.shards = tri_plan_run_shards(&models->setup->job, layout)};
    TRI_TRY(standing_find(models, layout, &timing.standing));
    for (size_t i = 0; i < variant->timings.count; i++) {
        const tri_plan_timing *found = tri_vector_at(&variant->timings, i);
        *seconds = found->seconds;
        if (found->shards == timing.shards && found->standing == timing.standing)
            return TRI_OK;
        other = found->shards == timing.shards ? found : other;
    }
    timing.seconds = tri_alloc_zero((size_t)variant->sections.count, sizeof(double));
    tri_status status = timing.seconds ? timing_make(models, variant, other, &timing) : TRI_ENOMEM;
    *seconds = timing.seconds;
    if (status == TRI_OK && !tri_vector_push(&variant->timings, &timing))
        status = TRI_ENOMEM;
    if (status != TRI_OK)
        tri_free(timing.seconds);
    return status;
}

/* --- chunks --- */

/* What tensor ranks exchange around a node, as sums: both ways of a sample. */
static void node_sums(const tri_plan_models *models, const tri_model *model, const tri_node *node,
                      tri_plan_chunk *chunk)
{
    const tri_value_spec *values = model->values.items;
    const tri_op_ops *row = tri_op_row(node->op);
    tri_op_desc desc = {.op = node->op,
                        .attr = node->attr,
                        .output = values[node->output].sample,
                        .output_dtype = models->setup->precision};
    if (node->attr.ranks < 2)
        return;
    for (int i = 0; i < node->input_count; i++)
        desc.input[i] = values[node->input[i]].sample;
    chunk->sum_count += row->exchanges > 0 ? row->exchanges : 1;
    chunk->sum_nbytes += row->exchange ? row->exchange(&desc) : 0;
}

static double aligned(int64_t count)
{
    return (double)((count + TRI_PARAMS_ALIGN - 1) / TRI_PARAMS_ALIGN * TRI_PARAMS_ALIGN);
}

/* Parameters that the nodes read, each once, and what tied ones need besides. */
static void chunk_count(const tri_plan_models *models, const tri_model *model, int first_node, int end_node, bool *seen,
                        tri_plan_chunk *chunk)
{
    const tri_node *nodes = model->nodes.items;
    const tri_param_spec *specs = model->params.items;
    memset(seen, 0, model->params.count * sizeof(*seen));
    for (int n = first_node; n < end_node; n++) {
        node_sums(models, model, &nodes[n], chunk);
        for (int p = 0; p < nodes[n].param_count; p++) {
            double count = aligned(tri_shape_count(specs[nodes[n].param[p]].shape));
            bool tie = p == 0 && nodes[n].tie >= 0;
            chunk->tie_values += tie ? count : 0;
            chunk->values += seen[nodes[n].param[p]] ? 0 : count;
            chunk->largest = fmax(chunk->largest, count);
            seen[nodes[n].param[p]] = true;
        }
    }
}

/* Bytes of a worker's batches on a card. */
static double samples_nbytes(const tri_plan_models *models, const tri_model *model, int64_t shards)
{
    const tri_value_spec *values = model->values.items, *of[] = {&values[model->input], &values[model->target]};
    double nbytes = 0;
    for (size_t i = 0; models->cluster->cards && i < TRI_COUNT_OF(of); i++)
        nbytes += (double)(tri_shape_count(of[i]->sample) * tri_plan_rows(&models->setup->job) * shards) *
                  (double)tri_dtype_nbytes(of[i]->dtype) * SAMPLE_SLOTS;
    return nbytes;
}

static tri_status chunk_activations(const tri_plan_models *models, const tri_model *model, const tri_layout *layout,
                                    int first_node, int end_node, tri_plan_chunk *chunk)
{
    int64_t shards = tri_plan_run_shards(&models->setup->job, layout);
    const double samples =
        samples_nbytes(models, model, tri_plan_shards_of(&models->setup->job, layout->data)) / layout->chunks;
    tri_graph_config config = graph_config(models, tri_plan_rows(&models->setup->job), shards);
    tri_graph_bytes bytes;
    config.keeps_rounded = true;
    if (layout->pipeline > 1) {
        config.first_node = first_node;
        config.end_node = end_node;
        config.slots = 2;
        TRI_TRY(tri_graph_memory_find(model, &config, &bytes));
        chunk->activations_shared = (double)(bytes.planned - bytes.rounded - 2 * bytes.slot) + samples;
        chunk->activations_slot = (double)bytes.slot;
    }
    config.slots = 1;
    TRI_TRY(tri_graph_memory_find(model, &config, &bytes));
    chunk->activations = (double)(bytes.planned - bytes.rounded) + samples;
    chunk->rounded = (double)bytes.rounded;
    return TRI_OK;
}

/* A forward pass is a third of both. */
static void chunk_sections(const tri_sections *sections, const double *seconds, int first_node, int end_node,
                           tri_plan_chunk *chunk)
{
    for (int s = 0; s < sections->count; s++) {
        const tri_section *section = &sections->items[s];
        if (section->first_node < first_node || section->first_node >= end_node)
            continue;
        if (section->first_node == first_node) {
            chunk->in_up_nbytes = (double)section->nbytes_up;
            chunk->in_down_nbytes = (double)section->nbytes_down;
        }
        chunk->up_s += seconds[s] / 3;
        chunk->down_s += seconds[s] * 2 / 3;
        chunk->late_s += section->flops > 0 ? seconds[s] * section->late_flops / section->flops : 0;
    }
}

static tri_status stages_find(const tri_plan_models *models, const tri_plan_variant *variant, const tri_layout *layout,
                              const double *seconds, tri_stages *stages)
{
    for (int s = 0; s < variant->sections.count; s++)
        variant->sections.items[s].seconds = models->setup->cut_measured ? seconds[s] : 0;
    return tri_stages_choose(&variant->sections, layout->pipeline, layout->chunks, stages);
}

tri_status tri_plan_models_chunks(tri_plan_models *models, const tri_layout *layout, tri_plan_chunk *chunks)
{
    tri_plan_variant *variant;
    const double *seconds;
    TRI_TRY(variant_find(models, layout->tensor, &variant));
    if (layout->pipeline > 1 && tri_model_sync_channels(variant->model) > 0)
        return tri_fail(TRI_ECONFIG, "pipeline %d: batch norm over the whole batch needs it in one piece",
                        layout->pipeline);
    if (layout->pipeline * layout->chunks > variant->sections.count)
        return tri_fail(TRI_ECONFIG, "pipeline %d%s: the model has %d sections between places where it may be cut",
                        layout->pipeline, layout->chunks > 1 ? " in chunks" : "", variant->sections.count);
    TRI_TRY(timing_find(models, variant, layout, &seconds));
    tri_stages *stages = tri_alloc_zero(1, sizeof(*stages));
    bool *seen = tri_alloc_zero(variant->model->params.count + 1, sizeof(bool));
    tri_status status = stages && seen ? stages_find(models, variant, layout, seconds, stages) : TRI_ENOMEM;
    for (int c = 0; c < layout->pipeline * layout->chunks && status == TRI_OK; c++) {
        int first = stages->first_node[c], end = stages->first_node[c + 1];
        chunks[c] = (tri_plan_chunk){0};
        chunk_count(models, variant->model, first, end, seen, &chunks[c]);
        chunk_sections(&variant->sections, seconds, first, end, &chunks[c]);
        status = chunk_activations(models, variant->model, layout, first, end, &chunks[c]);
    }
    tri_free(seen);
    tri_free(stages);
    return status;
}

/* --- the whole model --- */

static const tri_model *any_model(const tri_plan_models *models)
{
    for (int v = 0; v < TRI_PLAN_TENSOR_MAX; v++)
        if (models->variants[v].model)
            return models->variants[v].model;
    return NULL;
}

int64_t tri_plan_models_values(const tri_plan_models *models)
{
    const tri_model *model = any_model(models);
    return model ? tri_model_param_count(model) : 0;
}

int64_t tri_plan_models_tokens(const tri_plan_models *models)
{
    const tri_model *model = any_model(models);
    const tri_value_spec *input = model ? tri_vector_at(&model->values, (size_t)model->input) : NULL;
    return input && input->dtype == TRI_I32 && input->sample.ndim == 1 ? input->sample.dim[0] : 0;
}
