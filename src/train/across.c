/* SPDX-License-Identifier: Apache-2.0
 *
 * across.c: what the ranks that share one model out (tensor ranks, stages) tell each other between the sums over the
 * data and the moving of the weights: the tail, and the norm of a gradient of which each has a part.
 */
#include <math.h>
#include <string.h>

#include "train/job.h"

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
    return sum_over_model(job, "operations", &job->figures.flops, 1, TRI_F64);
}

/* Stages have their gradients of tied weights from each other, and the tail from the last one. Tensor ranks have all of
 * these alike, but for a wish to stop. */
tri_status tri_job_sums_meet(tri_job *job, float *sums)
{
    const tri_mesh *mesh = &job->mesh;
    float *stop = sums + tri_params_grad_count(job->params) + TRI_TAIL_STOP;
    if (mesh->tensor > 1)
        TRI_TRY(tri_all_reduce(mesh->tensor_group, stop, stop, 1, TRI_F32, TRI_REDUCE_SUM, NULL));
    return job->pipeline ? tri_pipeline_share(job->pipeline, sums) : TRI_OK;
}

bool tri_job_counts_entry(const tri_job *job, const tri_param *entry)
{
    return (job->mesh.tensor_rank == 0 || entry->piece.parts > 0) && !entry->copy;
}

/* Blocks of entries that others count too stay zero here: a sum with zeros has no rounding. */
tri_status tri_job_gradient_norm(tri_job *job, const float *sums, double *norm)
{
    const tri_params *params = job->params;
    memset(job->norm_blocks, 0, (size_t)params->block_count * sizeof(double));
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        if (tri_job_counts_entry(job, entry))
            tri_clip_squares(params, sums, entry->first, entry->count, job->norm_blocks, job->threads);
    }
    TRI_TRY(sum_over_model(job, "gradient norm", job->norm_blocks, params->block_count, TRI_F64));
    *norm = tri_clip_norm(job->norm_blocks, params->block_count, (double)job->moves.grad_scale);
    return TRI_OK;
}
