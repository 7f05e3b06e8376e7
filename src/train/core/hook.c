/* SPDX-License-Identifier: Apache-2.0
 *
 * hook.c: gradients on their way to the optimizer, shown to the program whose run this is.
 */
#include "train/core/job.h"
#include "train/core/step.h"

void tri_job_gradient_hook(tri_job *job, tri_gradient_hook hook, void *arg)
{
    job->update.hook = hook;
    job->update.hook_arg = arg;
    job->update.ahead = job->update.ahead && !hook; /* all gradients of a step before any weight of it moves */
}

/* The program may change the values; sums: the device's, of these elements of the entry. */
static tri_status entry_show(const tri_job *job, const tri_param *entry, tri_slice here, float *sums)
{
    tri_device_view view;
    TRI_TRY(tri_device_view_open(&view, job->device, sums, (size_t)here.count * sizeof(float)));
    tri_gradient gradient = {.name = entry->name,
                             .step = job->step,
                             .first = here.first - entry->first,
                             .count = here.count,
                             .values = view.host,
                             .scale = job->update.scalars.grad_scale};
    tri_status status = job->update.hook(job->update.hook_arg, &gradient);
    if (status == TRI_OK)
        tri_device_view_write(&view);
    tri_device_view_close(&view);
    TRI_TRY_IN(status, "the hook for the gradient of %s", entry->name);
    return TRI_OK;
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
        TRI_TRY(entry_show(job, entry, here, sums + (here.first - slice.first)));
    }
    return TRI_OK;
}

tri_status tri_job_hook_run(tri_job *job)
{
    const tri_sync *sync = job->sync;
    if (!job->update.hook)
        return TRI_OK;
    if (sync->whole)
        return slice_show(job, (tri_slice){0, job->params->count}, sync->grads[0]);
    for (int i = 0; i < sync->piece_count; i++)
        TRI_TRY(slice_show(job, sync->pieces[i].slice, sync->pieces[i].sums));
    return TRI_OK;
}
