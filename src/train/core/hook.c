/* SPDX-License-Identifier: Apache-2.0
 *
 * hook.c: gradients on their way to the optimizer, shown to the program whose run this is.
 */
#include "train/core/job.h"
#include "train/core/step.h"

void tri_job_gradient_hook(tri_job *job, tri_gradient_hook hook, void *arg)
{
    job->hook = hook;
    job->hook_arg = arg;
    job->ahead = job->ahead && !hook; /* all gradients of a step before any weight of it moves */
}

/* The entries that a slice of the store meets; sums begins with the slice. */
static tri_status slice_show(const tri_job *job, tri_slice slice, float *sums)
{
    const tri_params *params = job->params;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_slice here = tri_param_within(entry, slice);
        if (here.count == 0 || entry->buffer || entry->frozen)
            continue;
        tri_gradient gradient = {.name = entry->name,
                                 .step = job->step,
                                 .first = here.first - entry->first,
                                 .count = here.count,
                                 .values = sums + (here.first - slice.first),
                                 .scale = job->update.grad_scale};
        TRI_TRY_IN(job->hook(job->hook_arg, &gradient), "the hook for the gradient of %s", entry->name);
    }
    return TRI_OK;
}

tri_status tri_job_hook_run(tri_job *job)
{
    const tri_sync *sync = job->sync;
    if (!job->hook)
        return TRI_OK;
    if (sync->whole)
        return slice_show(job, (tri_slice){0, job->params->count}, sync->grads[0]);
    for (int i = 0; i < sync->piece_count; i++)
        TRI_TRY(slice_show(job, sync->pieces[i].slice, sync->pieces[i].sums));
    return TRI_OK;
}
