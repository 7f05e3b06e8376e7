/* SPDX-License-Identifier: Apache-2.0
 *
 * stages.c: a run's model in stages: where it is cut, what of it this rank holds, and the pipeline that runs it.
 */
#include <string.h>

#include "base/memory.h"
#include "base/yaml.h"
#include "train/core/job.h"
#include "train/core/stages.h"

#define MEASURE_S 1.0 /* for the costs of all sections */

/* --- where to cut --- */

/* parallel.cut_at: names of layers; count 0: none are given. */
static tri_status names_read(const char *text, tri_arena *arena, const char **names, int *count)
{
    tri_yaml *list = NULL;
    *count = 0;
    TRI_TRY(tri_yaml_parse(arena, text, strlen(text), "parallel.cut_at", &list));
    if (!list || list->kind != TRI_YAML_LIST)
        return tri_fail(TRI_ECONFIG, "parallel.cut_at: want a list of layers, such as [h.2, h.4], got '%.100s'", text);
    for (const tri_yaml *node = list->child; node; node = node->next) {
        if (node->kind != TRI_YAML_SCALAR || *count == TRI_STAGES_MAX)
            return tri_fail(TRI_ECONFIG, "parallel.cut_at: want at most %d names of layers", TRI_STAGES_MAX);
        names[(*count)++] = node->text;
    }
    return TRI_OK;
}

static tri_status cut_by_hand(const tri_job *job, const tri_model *model, const tri_sections *sections, bool *given,
                              tri_stages *stages)
{
    const tri_parallel_config *parallel = &job->config.parallel;
    int wanted = job->mesh.pipeline * (int)parallel->chunks, count = 0;
    tri_arena arena = {0};
    const char **names = tri_alloc_zero(TRI_STAGES_MAX, sizeof(*names));
    tri_status status = names ? names_read(parallel->cut_at, &arena, names, &count) : TRI_ENOMEM;
    *given = count > 0;
    if (status == TRI_OK && count > 0 && count + 1 != wanted)
        status = tri_fail(TRI_ECONFIG,
                          "parallel.cut_at: %d cuts make %d stages, but parallel.pipeline %d with %d a rank needs %d",
                          count, count + 1, job->mesh.pipeline, (int)parallel->chunks, wanted);
    if (status == TRI_OK && count > 0)
        status = tri_stages_by_hand(model, sections, names, count, stages);
    tri_free(names);
    tri_arena_fini(&arena);
    return status;
}

/* By costs; measured ones are those of rank 0, so that all ranks cut alike. */
static tri_status cut_by_cost(tri_job *job, const tri_model *model, const tri_graph_config *graph,
                              tri_sections *sections, tri_stages *stages)
{
    int count = job->mesh.pipeline * (int)job->config.parallel.chunks;
    bool measured = job->config.parallel.cut == TRI_CUT_MEASURED;
    tri_graph_config host = *graph; /* sections are measured there, whatever the device is */
    host.kind = tri_kernels_of_host(&job->config.train);
    if (measured && job->rank == 0)
        TRI_TRY(tri_sections_measure(model, &host, MEASURE_S, sections));
    TRI_TRY(tri_stages_choose(sections, job->mesh.pipeline, (int)job->config.parallel.chunks, stages));
    /* Costs differ where a tensor rank has more words of the vocabulary than another. */
    if (!job->comm || (!measured && job->mesh.tensor == 1))
        return TRI_OK;
    return tri_broadcast(job->group, stages->first_node, count + 1, TRI_I32, 0, NULL);
}

tri_status tri_job_cut(tri_job *job, const tri_model *model, const tri_graph_config *graph)
{
    tri_sections sections = {0};
    bool given = false;
    tri_status status = tri_sections_find(model, graph, &sections);
    if (status == TRI_OK)
        status = cut_by_hand(job, model, &sections, &given, &job->model.stages);
    if (status == TRI_OK && !given)
        status = cut_by_cost(job, model, graph, &sections, &job->model.stages);
    tri_sections_fini(&sections);
    return status;
}

/* --- what this rank holds, and runs --- */

tri_status tri_job_stage_store(tri_job *job, const tri_model *model)
{
    bool *wanted = tri_alloc_zero(model->params.count, sizeof(bool));
    if (!wanted)
        return TRI_ENOMEM;
    tri_stages_wanted(model, &job->model.stages, job->mesh.pipeline, job->mesh.stage, wanted);
    tri_status status = tri_params_lay(model, wanted, job->device, &job->params);
    tri_free(wanted);
    if (status == TRI_OK)
        tri_stages_mark(model, &job->model.stages, job->mesh.pipeline, job->mesh.stage, job->params);
    return status;
}

tri_status tri_job_pipeline_make(tri_job *job, const tri_model *model, const tri_graph_config *graph)
{
    tri_pipeline_setup setup = {.group = job->mesh.pipeline_group,
                                .rank = job->rank,
                                .model = model,
                                .stages = &job->model.stages,
                                .params = job->params,
                                .graph = graph,
                                .schedule = job->config.parallel.schedule,
                                .parts = job->shards.parts,
                                .part_count = job->shards.part_count,
                                .overlap = job->config.parallel.overlap,
                                .even = job->config.train.shards % job->mesh.data == 0};
    TRI_TRY(tri_pipeline_create(&setup, &job->model.pipeline));
    job->throughput.sample_flops = tri_pipeline_flops(job->model.pipeline);
    return TRI_OK;
}

/* One chunk's graph, made and let go again. */
static tri_status chunk_memory(const tri_job *job, const tri_model *model, tri_graph_config config, int chunk,
                               const tri_pipe_schedule schedules[2], tri_job_memory *memory)
{
    tri_graph *graph;
    size_t planned, apart, crossing, before = memory->card ? tri_device_live(job->device) : 0;
    config.first_node = job->model.stages.first_node[chunk];
    config.end_node = job->model.stages.first_node[chunk + 1];
    config.slots = schedules[1].slots[chunk];
    TRI_TRY(tri_graph_compile(model, job->params, &config, &graph));
    tri_graph_memory(graph, &planned, &apart);
    if (memory->card) /* with sums */
        planned = tri_device_live(job->device) - before;
    crossing = tri_pipeline_crossing_nbytes(graph, &schedules[1], &schedules[0], chunk, config.shards);
    memory->host += memory->card ? crossing : 0;
    memory->activations += planned + crossing;
    memory->activations_apart += apart + crossing;
    tri_graph_destroy(graph);
    return TRI_OK;
}

/* Micro-batches are whole subtrees: of a part that is smaller than `shards`, all of it. */
static int micro_count(const tri_job_shards *own, int64_t shards)
{
    int64_t count = 0;
    for (int p = 0; p < own->part_count; p++)
        count += own->parts[p].count > shards ? own->parts[p].count / shards : 1;
    return (int)count;
}

tri_status tri_job_stage_memory(const tri_job *job, const tri_model *model, const tri_graph_config *graph,
                                tri_job_memory *memory)
{
    const tri_parallel_config *parallel = &job->config.parallel;
    tri_pipe_schedule schedules[2] = {{0}}; /* of evaluations, of steps */
    size_t level = ((size_t)tri_params_grad_count(job->params) + TRI_PARAMS_TAIL) * sizeof(float);
    tri_status status = TRI_OK;
    for (int training = 0; training < 2 && status == TRI_OK; training++)
        status = tri_pipe_schedule_make(parallel->schedule, job->mesh.pipeline, (int)parallel->chunks,
                                        micro_count(&job->shards, graph->shards), training, &schedules[training]);
    for (int c = job->mesh.stage; status == TRI_OK && c < job->model.stages.count; c += job->mesh.pipeline)
        status = chunk_memory(job, model, *graph, c, schedules, memory);
    memory->gradients += (size_t)tri_pipeline_levels(job->shards.parts, job->shards.part_count, graph->shards) * level;
    tri_pipe_schedule_fini(&schedules[0]);
    tri_pipe_schedule_fini(&schedules[1]);
    return status;
}

/* --- what people read --- */

tri_status tri_job_stages_print(tri_job *job)
{
    if (!job->model.pipeline || job->step == job->progress.first_step)
        return TRI_OK;
    double bubble;
    tri_pipeline_times *times = tri_alloc_zero((size_t)job->mesh.pipeline, sizeof(*times));
    tri_status status = times ? tri_pipeline_gather_times(job->model.pipeline, times, &bubble) : TRI_ENOMEM;
    bool tells = job->output.console && !job->output.result_printed;
    for (int s = 0; status == TRI_OK && tells && s < job->mesh.pipeline; s++)
        tri_console_line(job->output.console,
                         "stage %d: forward %.1f ms, backward %.1f, adding gradients %.1f, idle %.1f", s,
                         times[s].forward * 1e3, times[s].backward * 1e3, times[s].adding * 1e3, times[s].idle * 1e3);
    if (status == TRI_OK && tells)
        tri_console_line(job->output.console, "bubble %.1f %% of the last step, schedule %s", bubble * 100,
                         tri_pipe_kind_word(job->config.parallel.schedule));
    tri_free(times);
    return status;
}
