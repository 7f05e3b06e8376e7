/* SPDX-License-Identifier: Apache-2.0
 *
 * model_parallel_reduce.c: what the ranks that share one model out (tensor ranks, stages) tell each other between the
 * sums over the data and the moving of the weights: the tail, and the norm of a gradient of which each has a part.
 */
#include <string.h>

#include "train/core/job.h"
#include "train/core/step.h"

static tri_status sum_over_model(tri_job *job, const char *name, void *data, int64_t count, tri_dtype dtype)
{
    if (!job->mesh.model_group)
        return TRI_OK;
    tri_group_name_next(job->mesh.model_group, name);
    tri_status status = tri_all_reduce(job->mesh.model_group, data, data, count, dtype, TRI_REDUCE_SUM, NULL);
    tri_group_name_next(job->mesh.model_group, "");
    return status;
}

tri_status tri_job_flops_meet(tri_job *job)
{
    return sum_over_model(job, "operations", &job->throughput.sample_flops, 1, TRI_F64);
}

/* The sum of a gradient, or this rank's share of it. */
static float *sum_find(void *arg, int number, int64_t *count)
{
    const tri_job *job = arg;
    const tri_params *params = job->params;
    if (job->sync->ops->sum)
        return job->sync->ops->sum(job->sync, number, count);
    *count =
        params->entries[number < params->entry_count ? number : params->ties[number - params->entry_count].entry].count;
    return job->sync->grads[0] + tri_params_grad_first(params, number);
}

/* Stages have their gradients of tied weights from each other, and the tail from the last one; tensor ranks have all of
 * these alike. */
tri_status tri_job_sums_meet(tri_job *job)
{
    tri_pipeline_sums sums = {.tail = job->sync->tail, .find = sum_find, .arg = job};
    return job->model.pipeline ? tri_pipeline_share(job->model.pipeline, &sums) : TRI_OK;
}

bool tri_job_counts_entry(const tri_job *job, const tri_param *entry)
{
    return (job->mesh.tensor_rank == 0 || !tri_param_is_replicated(entry)) && !entry->copy;
}

/* Blocks of the gradients of a slice of the store, which begin at `sums`. What others count too stays zero: a sum with
 * zeros has no rounding. */
static void slice_squares(tri_job *job, tri_slice slice, const float *sums)
{
    const tri_params *params = job->params;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_slice here = tri_param_within(entry, slice);
        if (here.count > 0 && tri_job_counts_entry(job, entry))
            tri_clip_squares(params, sums + (here.first - slice.first), here.first, here.count,
                             job->update.norm_blocks.memory, job->threads);
    }
}

tri_status tri_job_gradient_norm(tri_job *job, double *norm)
{
    const tri_sync *sync = job->sync;
    int64_t count = job->params->block_count;
    double *blocks = job->update.norm_blocks.host;
    if (sync->ops->squares) {
        memset(blocks, 0, (size_t)count * sizeof(double));
        TRI_TRY(sync->ops->squares(job->sync, blocks));
        *norm = tri_clip_norm(blocks, count, (double)job->update.scalars.grad_scale);
        return TRI_OK;
    }
    tri_device_fill(job->device, job->update.norm_blocks.memory, 0, (size_t)count * sizeof(double));
    if (sync->whole)
        slice_squares(job, (tri_slice){0, job->params->count}, sync->grads[0]);
    for (int i = 0; !sync->whole && i < sync->piece_count; i++)
        slice_squares(job, sync->pieces[i].slice, sync->pieces[i].sums);
    tri_device_view_read(&job->update.norm_blocks);
    if (!sync->whole) {
        tri_group_name_next(job->mesh.zero_group, "gradient norm");
        TRI_TRY(tri_all_reduce(job->mesh.zero_group, blocks, blocks, count, TRI_F64, TRI_REDUCE_SUM, NULL));
        tri_group_name_next(job->mesh.zero_group, "");
    }
    TRI_TRY(sum_over_model(job, "gradient norm", blocks, count, TRI_F64));
    *norm = tri_clip_norm(blocks, count, (double)job->update.scalars.grad_scale);
    return TRI_OK;
}
