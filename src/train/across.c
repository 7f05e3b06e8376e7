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

/* The loss is counted on the last stage; of tensor ranks, which all have it, once. Everybody may wish to stop. */
tri_status tri_job_tail_meet(tri_job *job, float tail[TRI_PARAMS_TAIL])
{
    const tri_mesh *mesh = &job->mesh;
    for (int i = 0; i < TRI_PARAMS_TAIL; i++)
        if (i != TRI_TAIL_STOP && (mesh->tensor_rank > 0 || mesh->stage < mesh->pipeline - 1))
            tail[i] = 0;
    return sum_over_model(job, "tail", tail, TRI_PARAMS_TAIL, TRI_F32);
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
