/* SPDX-License-Identifier: Apache-2.0
 *
 * show_counts.c: distributions of weights and of mean gradients, as counts of elements by their bits.
 *
 * Each rank counts what it has of the model, as the norm of the gradient does (model_parallel_reduce.c), and counts are
 * added up. They are whole numbers: any order gives the same ones, so every layout shows the same distributions.
 */
#include <stdio.h>
#include <string.h>

#include "kernel/row.h"
#include "train/core/step.h"
#include "train/features/show.h"

#define TILE_COUNT (INT64_C(1) << 15)

static size_t counts_nbytes(const tri_tensors *tensors)
{
    return (size_t)tensors->count * TRI_HISTOGRAM_BINS * sizeof(int64_t);
}

tri_status tri_show_counts_open(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    show->gradients_step = -1;
    if (job->config.monitor.histogram_every == 0)
        return TRI_OK;
    show->thread_count = job->threads;
    show->gradients = tri_alloc_zero(1, counts_nbytes(&job->model.tensors));
    show->weights = tri_alloc_zero(1, counts_nbytes(&job->model.tensors));
    show->threads = tri_alloc_zero((size_t)show->thread_count * TRI_HISTOGRAM_BINS, sizeof(int64_t));
    return show->gradients && show->weights && show->threads ? TRI_OK : TRI_ENOMEM;
}

/* --- counting --- */

typedef struct count_arg {
    int64_t *threads;
    const float *values;
    int64_t count;
    float scale;
} count_arg;

static void tile_count(void *arg, int64_t tile)
{
    const count_arg *all = arg;
    int64_t first = tile * TILE_COUNT, left = all->count - first;
    tri_histogram_count(all->threads + (int64_t)tri_tile_worker() * TRI_HISTOGRAM_BINS, all->values + first,
                        left < TILE_COUNT ? left : TILE_COUNT, all->scale);
}

/* values: the device's. */
static tri_status values_count(tri_job *job, int64_t *counts, const float *values, int64_t count, float scale)
{
    tri_job_show *show = tri_show_of(job);
    int threads = job->threads < show->thread_count ? job->threads : show->thread_count;
    tri_device_view view;
    TRI_TRY(tri_device_view_open(&view, job->device, (float *)(uintptr_t)values, (size_t)count * sizeof(float)));
    count_arg arg = {show->threads, view.host, count, scale};
    memset(show->threads, 0, (size_t)threads * TRI_HISTOGRAM_BINS * sizeof(int64_t));
    tri_tiles_run(threads, (count + TILE_COUNT - 1) / TILE_COUNT, tile_count, &arg);
    for (int64_t i = 0; i < (int64_t)threads * TRI_HISTOGRAM_BINS; i++)
        counts[i % TRI_HISTOGRAM_BINS] += show->threads[i];
    tri_device_view_close(&view);
    return TRI_OK;
}

/* Of a slice of the store, whose first element is values[0]. What nobody trains has no gradient. */
static tri_status slice_count(tri_job *job, int64_t *counts, tri_slice slice, const float *values, float scale,
                              bool trained)
{
    const tri_params *params = job->params;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_slice here = tri_param_within(entry, slice);
        if (here.count > 0 && tri_job_counts_entry(job, entry) && !(trained && (entry->buffer || entry->frozen)))
            TRI_TRY(values_count(job, counts + (int64_t)job->model.tensors.of_param[entry->number] * TRI_HISTOGRAM_BINS,
                                 values + (here.first - slice.first), here.count, scale));
    }
    return TRI_OK;
}

/* From all that have something else of the model. whole: every rank of the batch has all of its stage. */
static tri_status counts_meet(tri_job *job, int64_t *counts, bool whole, const char *name)
{
    tri_group *const groups[] = {whole ? NULL : job->mesh.zero_group, job->mesh.model_group};
    int64_t count = (int64_t)job->model.tensors.count * TRI_HISTOGRAM_BINS;
    for (size_t i = 0; i < TRI_COUNT_OF(groups); i++) {
        if (!groups[i])
            continue;
        tri_group_name_next(groups[i], name);
        TRI_TRY(tri_all_reduce(groups[i], counts, counts, count, TRI_I64, TRI_REDUCE_SUM, NULL));
        tri_group_name_next(groups[i], "");
    }
    return TRI_OK;
}

/* --- gradients --- */

/* Those of parameter servers are there. */
bool tri_show_wants_gradients(const tri_job *job)
{
    const tri_job_show *show = tri_show_of(job);
    int64_t every = job->config.monitor.histogram_every;
    return show && show->gradients && !job->sync->ops->squares &&
           ((job->step + 1) % every == 0 || job->step + 1 == job->progress.steps);
}

tri_status tri_show_gradients(tri_job *job, float scale)
{
    const tri_sync *sync = job->sync;
    tri_job_show *show = tri_show_of(job);
    if (sync->whole && job->mesh.data_rank > 0)
        return TRI_OK;
    memset(show->gradients, 0, counts_nbytes(&job->model.tensors));
    if (sync->whole)
        TRI_TRY(slice_count(job, show->gradients, (tri_slice){0, job->params->count}, sync->grads[0], scale, true));
    for (int i = 0; !sync->whole && i < sync->piece_count; i++)
        TRI_TRY(slice_count(job, show->gradients, sync->pieces[i].slice, sync->pieces[i].sums, scale, true));
    show->gradients_step = job->step;
    return counts_meet(job, show->gradients, sync->whole, "distributions of gradients");
}

/* --- weights --- */

static tri_status weights_count(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    const tri_params *params = job->params;
    memset(show->weights, 0, counts_nbytes(&job->model.tensors));
    if (!params->share && job->mesh.data_rank > 0)
        return TRI_OK;
    if (!params->share)
        TRI_TRY(slice_count(job, show->weights, (tri_slice){0, params->count}, params->values, 1, false));
    const float *values = params->values;
    for (int i = 0; params->share && i < params->share_count; values += params->share[i++].count)
        TRI_TRY(slice_count(job, show->weights, params->share[i], values, 1, false));
    return counts_meet(job, show->weights, !params->share, "distributions of weights");
}

static void counts_put(tri_job *job, const char *group, const int64_t *counts)
{
    char tag[256];
    for (int t = 0; t < job->model.tensors.count; t++) {
        snprintf(tag, sizeof(tag), "%s/%.200s", group, job->model.tensors.items[t].name);
        tri_summary_histogram(&tri_show_of(job)->body, tag, counts + (int64_t)t * TRI_HISTOGRAM_BINS);
    }
}

tri_status tri_show_counts_write(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    TRI_TRY(weights_count(job));
    if (!show->file)
        return TRI_OK;
    counts_put(job, "weights", show->weights);
    if (show->gradients_step == job->step - 1)
        counts_put(job, "gradients", show->gradients);
    return show->body.status;
}
