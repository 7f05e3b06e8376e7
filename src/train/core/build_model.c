/* SPDX-License-Identifier: Apache-2.0
 *
 * build_model.c: configuration to model, store and graph.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/core/build.h"
#include "train/core/initial.h"
#include "train/core/job.h"
#include "train/core/stages.h"
#include "train/core/step.h"

static tri_status check_samples(const tri_value_spec *input, const tri_dataset_info *info)
{
    char wanted[96], found[96];
    if (tri_shape_count(input->sample) != tri_shape_count(info->sample))
        return tri_fail(TRI_ECONFIG, "the model needs samples of shape %s, the data has %s",
                        tri_shape_print(input->sample, wanted), tri_shape_print(info->sample, found));
    if (tri_is_whole(input->dtype) && !tri_is_whole(info->dtype))
        return tri_fail(TRI_ECONFIG, "the model begins with an embedding and needs i32 or i64, the samples are %s",
                        tri_dtype_name(info->dtype));
    if (!tri_is_whole(input->dtype) && tri_is_whole(info->dtype))
        return tri_fail(TRI_ECONFIG,
                        "the model needs real numbers or bytes, the samples are %s, as an embedding reads them: want "
                        "them stored as f32, or a model that begins with an embedding",
                        tri_dtype_name(info->dtype));
    return TRI_OK;
}

static tri_status check_targets(const tri_value_spec *target, const tri_dataset_info *info)
{
    char wanted[96], found[96];
    if (tri_shape_count(target->sample) == tri_shape_count(info->target) && target->dtype == info->target_dtype)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "the model needs targets of shape %s (%s) for a sample, the data has %s (%s)",
                    tri_shape_print(target->sample, wanted), tri_dtype_name(target->dtype),
                    tri_shape_print(info->target, found), tri_dtype_name(info->target_dtype));
}

static tri_status check_data(const tri_model *model, const tri_dataset_info *info)
{
    TRI_TRY(check_samples(tri_vector_at(&model->values, (size_t)model->input), info));
    return check_targets(tri_vector_at(&model->values, (size_t)model->target), info);
}

/* --- batch norms --- */

#define FEW_VALUES 16 /* of a channel: fewer give a mean and variance that are mostly noise */

/* "bn1" of its parameter "bn1.weight". */
static int norm_name(const tri_model *model, const tri_node *node, const char **name)
{
    *name = ((const tri_param_spec *)tri_vector_at(&model->params, (size_t)node->param[0]))->name;
    const char *dot = strrchr(*name, '.');
    return dot ? (int)(dot - *name) : (int)strlen(*name);
}

/* Values of a channel from which a batch norm computes mean and variance, given the number of samples. */
static int64_t norm_values(const tri_model *model, const tri_node *node, int64_t samples)
{
    const tri_shape shape = ((const tri_value_spec *)tri_vector_at(&model->values, (size_t)node->input[0]))->sample;
    return samples * tri_shape_count(shape) / shape.dim[shape.ndim - 1];
}

/* Of one value the variance is 0 and the output a constant: nothing is learned, and evaluation is off. */
static tri_status norm_check(const tri_job *job, const tri_model *model, const tri_node *node)
{
    const int64_t shards = job->config.train.shards, count = job->data.sampler.count;
    const int64_t batch = count > 0 && count < job->config.train.batch ? count : job->config.train.batch;
    const int64_t values = norm_values(model, node, node->attr.sync ? batch : batch / shards);
    const char *name;
    const int length = norm_name(model, node, &name);
    if (values < 2 && node->attr.sync)
        return tri_fail(
            TRI_ECONFIG,
            "train.batch: the batch norm '%.*s' needs more than one value of each channel, got %lld: want a "
            "larger batch than %lld",
            length, name, (long long)values, (long long)batch);
    if (values < 2)
        return tri_fail(TRI_ECONFIG,
                        "train.shards: the batch norm '%.*s' needs more than one value of each channel in every shard, "
                        "got %lld (%lld samples in %lld shards): want fewer shards, a larger train.batch, or "
                        "model.sync_batch_norm=true",
                        length, name, (long long)values, (long long)batch, (long long)shards);
    if (node->attr.sync && job->rank == 0 && !job->output.quiet && job->elastic.number <= 1)
        tri_log(
            TRI_LOG_INFO,
            "batch norms: mean and variance over the whole batch of %lld samples (model.sync_batch_norm=false: over "
            "each shard)",
            (long long)batch);
    if (values < FEW_VALUES && job->rank == 0 && !job->output.quiet && !node->attr.sync)
        tri_log(
            TRI_LOG_WARN,
            "the batch norm '%.*s' takes mean and variance over %lld values in each of %lld shards, which is noisy: "
            "want %d or more (fewer train.shards, a larger train.batch, or model.sync_batch_norm=true)",
            length, name, (long long)values, (long long)shards, FEW_VALUES);
    return TRI_OK;
}

/* The one with the fewest values: the others have no more to say. */
static tri_status norms_check(const tri_job *job, const tri_model *model)
{
    const tri_node *least = NULL;
    for (size_t n = 0; n < model->nodes.count; n++) {
        const tri_node *node = tri_vector_at(&model->nodes, n);
        if (node->op == TRI_OP_BATCH_NORM && (!least || norm_values(model, node, 1) < norm_values(model, least, 1)))
            least = node;
    }
    return least && !job->model.forward_only ? norm_check(job, model, least) : TRI_OK;
}

/* Rows of the embedding that reads the samples; 0: none does, or other ranks have some of them. */
static int64_t find_rows(const tri_model *model)
{
    int64_t rows = 0;
    for (size_t n = 0; n < model->nodes.count && model->split.parts <= 1; n++) {
        const tri_node *node = tri_vector_at(&model->nodes, n);
        if (tri_op_row(node->op)->reads_table && node->input[0] == model->input)
            rows = ((const tri_param_spec *)tri_vector_at(&model->params, (size_t)node->param[0]))->shape.dim[0];
    }
    return rows;
}

static tri_status graph_config(const tri_job *job, tri_graph_config *config)
{
    *config = (tri_graph_config){.kind = tri_job_kernels(job),
                                 .rows = job->shards.rows,
                                 .shards = (int)job->shards.accumulation.at_once,
                                 .threads = job->threads,
                                 .training = !job->model.forward_only,
                                 .seed = (uint64_t)job->config.train.seed,
                                 .precision = tri_precision_dtype(job->config.train.precision),
                                 .keeps_rounded = job->placement.spread != TRI_SPREAD_WEIGHTS,
                                 .frozen = job->model.frozen};
    return TRI_OK;
}

/* One run of one graph has all shards of a step, now and later. */
static bool runs_alone(const tri_job *job)
{
    return job->mesh.data == 1 && job->mesh.tensor == 1 && job->mesh.pipeline == 1 && !job->elastic.on &&
           !job->servers.client && job->config.parallel.sync == TRI_SYNC_ALLREDUCE &&
           job->shards.accumulation.at_once == job->config.train.shards;
}

/* The table of what of the model's tensors is in this rank's store. */
static tri_status store_lay(tri_job *job, const tri_model *model)
{
    TRI_TRY(job->mesh.pipeline > 1 ? tri_job_stage_store(job, model)
                                   : tri_params_lay(model, NULL, job->device, &job->params));
    for (int e = 0; e < job->params->entry_count; e++)
        job->params->entries[e].frozen = job->model.frozen[job->params->entries[e].number];
    if (runs_alone(job))
        tri_params_join_ties(job->params, model);
    return TRI_OK;
}

/* Its values, too; those that other ranks have are not made up here, and a plan (which has no others) needs none. */
static tri_status store_make(tri_job *job, const tri_model *model)
{
    tri_slice *own;
    int count;
    TRI_TRY(store_lay(job, model));
    TRI_TRY(tri_job_share_out(job, &own, &count));
    tri_status status = job->assignment.state.generation > 0 || !job->comm
                            ? tri_params_room(job->params, own, count)
                            : tri_params_fill(job->params, model, (uint64_t)job->config.train.seed, own, count);
    tri_free(own);
    return status;
}

static tri_status graph_make(tri_job *job, const tri_model *model, const tri_graph_config *config)
{
    if (job->mesh.pipeline > 1 && !job->comm)
        return tri_job_stage_memory(job, model, config, &job->model.stage_memory);
    if (job->mesh.pipeline > 1)
        TRI_TRY(tri_job_pipeline_make(job, model, config));
    else
        TRI_TRY(tri_graph_compile(model, job->params, config, &job->model.graph));
    if (job->model.graph)
        job->throughput.sample_flops = tri_graph_flops(job->model.graph);
    if (job->mesh.tensor == 1 || !job->comm)
        return TRI_OK;
    if (job->rank == 0 && tri_group_is_between_hosts(job->mesh.tensor_group))
        tri_log(TRI_LOG_WARN,
                "tensor ranks are on several hosts and talk in every layer: want a number of ranks on each "
                "host that parallel.tensor (%d) divides",
                job->mesh.tensor);
    TRI_TRY(tri_tensor_ranks_create(job->mesh.tensor_group, &job->model.tensor));
    const tri_op_ranks across = tri_tensor_ranks_across(job->model.tensor);
    if (job->model.graph)
        tri_graph_across_set(job->model.graph, &across);
    else
        tri_pipeline_across_set(job->model.pipeline, &across);
    return TRI_OK;
}

/* Bytes of what the loader gives. */
static void batch_size(tri_job *job, const tri_model *model)
{
    const tri_value_spec *input = tri_vector_at(&model->values, (size_t)model->input);
    const tri_value_spec *target = tri_vector_at(&model->values, (size_t)model->target);
    job->shards.input_nbytes =
        (size_t)(job->shards.rows * tri_shape_count(input->sample)) * tri_dtype_nbytes(input->dtype);
    job->shards.target_nbytes =
        (size_t)(job->shards.rows * tri_shape_count(target->sample)) * tri_dtype_nbytes(target->dtype);
    bool sequence = input->dtype == TRI_I32 && input->sample.ndim == 1;
    job->throughput.sample_tokens = sequence ? input->sample.dim[0] : 0;
    job->test.tokens = job->data.info.classes > 0 && target->sample.ndim > 0;
}

/* What stays as long as the job: sizes, tensors, the store. */
static tri_status store_build(tri_job *job, const tri_model *model)
{
    TRI_TRY(tri_model_check(model));
    TRI_TRY(check_data(model, &job->data.info));
    TRI_TRY(norms_check(job, model));
    job->model.sample_rows = find_rows(model);
    job->model.unordered = model->unordered;
    batch_size(job, model);
    TRI_TRY(tri_tensors_init(model, &job->model.tensors));
    job->model.frozen = tri_alloc_zero(model->params.count, sizeof(bool));
    if (!job->model.frozen && model->params.count > 0)
        return TRI_ENOMEM;
    TRI_TRY(tri_job_freeze(job, model));
    if (job->mesh.pipeline > 1) {
        tri_graph_config config;
        TRI_TRY(graph_config(job, &config));
        TRI_TRY(tri_job_cut(job, model, &config));
    }
    return store_make(job, model);
}

/* An option that changes nothing is reported. */
static void precision_check(const tri_job *job, const tri_graph_config *config)
{
    if (job->model.graph && config->training && config->precision != TRI_F32 && job->rank == 0 && !job->output.quiet &&
        !tri_graph_has_halves(job->model.graph))
        tri_log(TRI_LOG_WARN,
                "train.precision %s changes nothing in this model: want a linear layer before the last one, or an "
                "embedding; convolutions compute in f32 on the CPU",
                tri_dtype_name(config->precision));
}

/* What is made for these ranks. */
static tri_status graph_build(tri_job *job, const tri_model *model)
{
    tri_graph_config config;
    TRI_TRY(graph_config(job, &config));
    TRI_TRY(graph_make(job, model, &config));
    precision_check(job, &config);
    TRI_TRY(tri_job_batch_sums_make(job, model));
    return job->comm ? tri_job_flops_meet(job) : TRI_OK;
}

static tri_status all_build(tri_job *job, const tri_model *model)
{
    TRI_TRY(store_build(job, model));
    return graph_build(job, model);
}

/* given: a program's model, NULL: the configuration's. */
static tri_status with_model(tri_job *job, const tri_model *given,
                             tri_status (*build)(tri_job *job, const tri_model *model))
{
    tri_model *built = NULL;
    const tri_parallel_config *parallel = &job->config.parallel;
    tri_model_split split = {(int)parallel->tensor_parts, job->mesh.tensor, job->mesh.tensor_rank, parallel->sequence};
    if (given && split.parts > 1)
        return tri_fail(TRI_ECONFIG, "parallel.tensor_parts: a model that a program built cannot be cut into parts");
    if (given)
        return build(job, given);
    const int64_t outputs =
        job->data.info.classes > 0 ? job->data.info.classes : -tri_shape_count(job->data.info.target);
    TRI_TRY_IN(tri_model_build_split(job->config.model, split, job->data.info.sample, outputs, &built),
               "while building the model");
    tri_status status = build(job, built);
    tri_model_destroy(built);
    return status;
}

tri_status tri_job_build_model(tri_job *job, const tri_model *given, const tri_dataset_info *info)
{
    job->data.info = *info;
    return with_model(job, given, all_build);
}

tri_status tri_job_build_store(tri_job *job, const tri_dataset_info *info)
{
    job->data.info = *info;
    return with_model(job, NULL, store_build);
}

static tri_status mirror_build(tri_job *job, const tri_model *model)
{
    tri_slice *share = NULL;
    int count;
    TRI_TRY(store_lay(job, model));
    TRI_TRY(tri_shares_init(&job->placement.shares, &job->config.parallel, job->params, job->mesh.zero));
    TRI_TRY(tri_shares_of(&job->placement.shares, tri_mesh_zero_rank(&job->mesh), &share, &count));
    tri_status status = tri_params_room(job->params, share, count);
    tri_free(share);
    return status == TRI_OK ? tri_job_open_optim(job) : status;
}

/* As if this were that rank, for a while. */
tri_status tri_job_build_mirror(tri_job *job, int rank, tri_state_shard *shard)
{
    const tri_mesh mesh = job->mesh;
    const tri_shares shares = job->placement.shares;
    tri_params *params = job->params;
    tri_optim *optim = job->optim;
    tri_slice *share = NULL;
    int count = 0;
    job->params = NULL;
    job->optim = NULL;
    job->placement.shares = (tri_shares){0};
    tri_mesh_place(&job->mesh, rank);
    tri_status status = with_model(job, NULL, mirror_build);
    if (status == TRI_OK)
        status = tri_shares_of(&job->placement.shares, tri_mesh_zero_rank(&job->mesh), &share, &count);
    if (status == TRI_OK)
        status = tri_state_shard_make(&job->model.tensors, job->params, job->optim, share, count, false, shard);
    else {
        tri_optim_destroy(job->optim);
        tri_params_destroy(job->params);
    }
    tri_shares_fini(&job->placement.shares);
    job->mesh = mesh;
    job->placement.shares = shares;
    job->params = params;
    job->optim = optim;
    return status;
}

tri_status tri_job_build_graph(tri_job *job)
{
    return with_model(job, NULL, graph_build);
}
