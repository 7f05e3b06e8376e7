/* SPDX-License-Identifier: Apache-2.0
 *
 * gradient_accumulation.c: how many of a rank's shards are computed together: as many as train.shards_at_once says, or
 * as prove fastest in the first steps.
 *
 * What is computed together should fit the caches; what is computed apart reads the weights once more each time, and
 * adds one gradient more. Which weighs more is a matter of the model, the machine and its other ranks, and changes no
 * bit: so the first steps try all shards, half of them, a quarter, until that is slower. Each rank finds its own
 * number.
 */

#include "base/log.h"
#include "base/memory.h"
#include "train/core/job.h"
#include "train/core/step.h"

#define TRIES   3    /* steps that count for each number, after one that warms it up; the least is taken */
#define BETTER  0.98 /* of the time so far is worth a change */
#define SLOWER  1.05 /* and fewer shards will not be faster again */
#define SCRATCH 4    /* the gradients that a search takes are at most this part of the activations */

static int64_t largest_part(const tri_job_shards *own)
{
    int64_t largest = 0;
    for (int p = 0; p < own->part_count; p++)
        if (own->parts[p].count > largest)
            largest = own->parts[p].count;
    return largest;
}

/* Levels of the largest part's tree above `shards` that are computed at once: a gradient each. */
static int levels_above(const tri_job_shards *own, int64_t shards)
{
    const int64_t largest = shards < own->count ? largest_part(own) : 0;
    int levels = 0;
    for (int64_t count = shards; count < largest; count *= 2)
        levels++;
    return levels;
}

void tri_accumulation_split(tri_job *job)
{
    tri_accumulation *accumulation = &job->shards.accumulation;
    accumulation->at_once = job->config.train.shards_at_once;
    if (accumulation->at_once == 0 || accumulation->at_once > job->shards.count)
        accumulation->at_once = job->mesh.pipeline > 1 ? 1 : job->shards.count;
    if (job->mesh.pipeline == 1) /* else micro-batches, which the pipeline adds up */
        accumulation->levels = levels_above(&job->shards, accumulation->at_once);
}

static size_t level_nbytes(const tri_job *job)
{
    return (size_t)(tri_params_grad_count(job->params) + TRI_PARAMS_TAIL) * sizeof(float);
}

/* A rank's runs are its own affair: others wait for none of them, and all gradients are whole. */
static bool is_free(const tri_job *job)
{
    const tri_config *config = &job->config;
    return config->train.shards_at_once == 0 && job->model.graph && !job->model.forward_only && job->mesh.tensor == 1 &&
           !job->servers.client && config->parallel.sync == TRI_SYNC_ALLREDUCE &&
           config->parallel.compress == TRI_COMPRESS_NONE && job->shards.batch_sums.count == 0 &&
           !job->params->ties_joined;
}

void tri_accumulation_plan(tri_job *job)
{
    tri_accumulation *accumulation = &job->shards.accumulation;
    size_t planned, plain;
    if (!is_free(job) || job->shards.count == 1)
        return;
    tri_graph_memory(job->model.graph, &planned, &plain);
    const int levels = levels_above(&job->shards, 1);
    planned -= tri_graph_rounded_nbytes(job->model.graph);
    accumulation->searching = (size_t)levels * level_nbytes(job) <= planned / SCRATCH;
    if (accumulation->searching)
        accumulation->levels = levels;
}

static void scratch_free(tri_job *job)
{
    tri_accumulation *accumulation = &job->shards.accumulation;
    for (int level = 0; accumulation->scratch && level < accumulation->levels; level++)
        tri_device_free(job->params->device, accumulation->scratch[level]);
    tri_free(accumulation->scratch);
    accumulation->scratch = NULL;
}

tri_status tri_accumulation_open(tri_job *job)
{
    tri_accumulation *accumulation = &job->shards.accumulation;
    if (job->update.ahead && accumulation->searching) {
        accumulation->searching = false;
        accumulation->levels = 0;
    }
    if (job->model.pipeline || (accumulation->at_once == job->shards.count && !accumulation->searching))
        return TRI_OK;
    accumulation->scratch = tri_alloc_zero((size_t)accumulation->levels + 1, sizeof(float *));
    for (int level = 0; accumulation->scratch && level < accumulation->levels; level++) {
        accumulation->scratch[level] = tri_device_alloc(job->params->device, level_nbytes(job));
        if (!accumulation->scratch[level])
            return TRI_ENOMEM;
    }
    return accumulation->scratch ? TRI_OK : TRI_ENOMEM;
}

void tri_accumulation_close(tri_job *job)
{
    scratch_free(job);
    job->shards.accumulation = (tri_accumulation){0};
}

static void search_end(tri_job *job)
{
    tri_accumulation *accumulation = &job->shards.accumulation;
    accumulation->searching = false;
    accumulation->at_once = accumulation->best;
    if (accumulation->at_once == job->shards.count) {
        scratch_free(job);
        accumulation->levels = 0;
        return;
    }
    tri_log(job->output.console ? TRI_LOG_INFO : TRI_LOG_DEBUG,
            "%lld of this rank's %lld shards at once are fastest: %.2f ms forward and backward, %.2f with all "
            "(train.shards_at_once=%lld begins so; no bit depends on it)",
            (long long)accumulation->at_once, (long long)job->shards.count, accumulation->best_s * 1e3,
            accumulation->all_s * 1e3, (long long)accumulation->at_once);
}

/* The next smaller number to try; 0: there is none. */
static int64_t next_smaller(const tri_job_shards *own)
{
    const int64_t largest = largest_part(own), now = own->accumulation.at_once;
    return now > largest ? largest : now / 2;
}

void tri_accumulation_step(tri_job *job)
{
    tri_accumulation *accumulation = &job->shards.accumulation;
    const double seconds = job->record.forward + job->record.backward;
    if (!accumulation->searching || accumulation->steps++ == 0)
        return;
    if (accumulation->steps == 2 || seconds < accumulation->least_s)
        accumulation->least_s = seconds;
    if (accumulation->steps <= TRIES)
        return;
    if (accumulation->at_once == job->shards.count)
        accumulation->all_s = accumulation->least_s;
    if (accumulation->best == 0 || accumulation->least_s < BETTER * accumulation->best_s) {
        accumulation->best = accumulation->at_once;
        accumulation->best_s = accumulation->least_s;
    }
    const int64_t next = next_smaller(&job->shards);
    if (next == 0 || accumulation->least_s > SLOWER * accumulation->best_s) {
        search_end(job);
        return;
    }
    accumulation->at_once = next;
    accumulation->steps = 0;
}
