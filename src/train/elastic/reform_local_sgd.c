/* SPDX-License-Identifier: Apache-2.0
 *
 * reform_local_sgd.c: ranks that have weights of their own (parallel.sync local, diloco) where ranks come and go.
 *
 * Nobody needs the others between two exchanges, so that is where a loss is noticed: those that are left leave that
 * exchange out (what it would have brought together is still apart, and in the next one), and share out the shards. Who
 * is behind, because others had done the exchange before it failed, and who is new becomes a copy of one of those that
 * have made the most steps. What is alike on all ranks outlives the sync, which is made again for each generation.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "parallel/outer.h"
#include "train/checkpointing/arrays.h"
#include "train/core/features.h"
#include "train/core/job.h"
#include "train/core/step.h"
#include "train/elastic/reform.h"

enum { COMMON = 2 }; /* anchor and momentum: nothing is on its way (tri_elastic_check) */

/* Between the sync and what is kept. */
static void common_copy(tri_job *job, bool keeps)
{
    const tri_params *params = job->params;
    for (int i = 0; i < COMMON; i++)
        for (int e = 0; e < params->entry_count; e++) {
            const tri_param *entry = &params->entries[e];
            float *kept = job->elastic.common + i * params->count + entry->first;
            float *state = job->sync->ops->state(job->sync, i, e);
            memcpy(keeps ? kept : state, keeps ? state : kept, (size_t)entry->count * sizeof(float));
        }
}

static void part(tri_job *job)
{
    if (!job->elastic.on || !tri_job_has_own_weights(job))
        return;
    if (job->met > 0) /* what failed had asked for the mean */
        job->sync->ops->part(job->sync);
    job->met = 0;
    if (job->elastic.common && job->sync->begun) {
        common_copy(job, true);
        job->elastic.kept = true;
    }
}

/* How far a rank is, where the exchange behind a step counts too; -1: it has nothing. */
static int64_t place_of(const tri_job *job)
{
    return job->elastic.has_state ? 2 * job->step + !job->elastic.exchange_pending : -1;
}

/* What one has goes to those that take; who has something keeps it until all of the other is there. */
static tri_status copies_make(tri_job *job, tri_group *some, bool takes, float **rooms)
{
    tri_job_arrays arrays;
    tri_scalar_state scalars = tri_scalar_state_of(job);
    bool stages = takes && job->elastic.has_state, kept = job->elastic.kept;
    size_t common = job->elastic.common ? COMMON * (size_t)job->params->count : 0;
    float **last = &rooms[TRI_OPTIM_MAX_STATE + 1];
    tri_status status = tri_job_arrays_open(job, true, &arrays);
    if (takes && !stages)
        job->elastic.touched = true;
    if (status == TRI_OK)
        status = tri_broadcast(some, &scalars, sizeof(scalars), TRI_U8, 0, NULL);
    if (status == TRI_OK)
        status = tri_broadcast(some, &kept, sizeof(kept), TRI_U8, 0, NULL);
    for (int i = 0; status == TRI_OK && i < arrays.count; i++) {
        int64_t count = i == 0 ? job->params->count : tri_optim_count(job->optim);
        if (stages && !(rooms[i] = tri_alloc_bulk((size_t)count * sizeof(float))))
            status = TRI_ENOMEM;
        else
            status = tri_broadcast(some, stages ? rooms[i] : arrays.views[i].host, count, TRI_F32, 0, NULL);
    }
    if (status == TRI_OK && takes && common > 0 && !(*last = tri_alloc_bulk(common * sizeof(float))))
        status = TRI_ENOMEM;
    if (status == TRI_OK && common > 0)
        status = tri_broadcast(some, takes ? *last : job->elastic.common, (int64_t)common, TRI_F32, 0, NULL);
    for (int i = 0; status == TRI_OK && stages && i < arrays.count; i++)
        memcpy(arrays.views[i].host, rooms[i],
               (size_t)(i == 0 ? job->params->count : tri_optim_count(job->optim)) * sizeof(float));
    if (status == TRI_OK && takes) {
        tri_job_arrays_written(&arrays);
        if (common > 0)
            memcpy(job->elastic.common, *last, common * sizeof(float));
        job->elastic.kept = kept;
        if (stages) /* others have logged steps that it did not see */
            tri_job_lost_touch(job);
        status = tri_scalar_state_take(job, &scalars, false);
    }
    tri_job_arrays_close(&arrays);
    return status;
}

static tri_status copies_of(tri_job *job, int first, bool takes)
{
    float *rooms[TRI_OPTIM_MAX_STATE + 2] = {NULL};
    tri_group *some = NULL;
    bool gives = job->rank == first;
    tri_status status = tri_group_split(job->group, gives || takes ? 0 : -1, gives ? 0 : job->rank + 1, &some);
    if (status == TRI_OK && some) {
        tri_group_name_next(some, "state");
        status = copies_make(job, some, takes, rooms);
    }
    tri_group_destroy(some);
    for (size_t i = 0; i < TRI_COUNT_OF(rooms); i++)
        tri_free(rooms[i]);
    return status;
}

static tri_status places_take(tri_job *job, const int64_t *all)
{
    int64_t newest = -1, own = all[2 * job->rank];
    int first = 0, takers = 0;
    bool acted = true;
    for (int r = job->world - 1; r >= 0; r--)
        if (all[2 * r] >= newest) {
            newest = all[2 * r];
            first = r;
        }
    for (int r = 0; r < job->world; r++) {
        takers += all[2 * r] < newest;
        acted = acted && (all[2 * r] < newest || all[2 * r + 1] != 0);
        if (job->rank == 0 && all[2 * r] >= 0 && all[2 * r] < newest)
            tri_log(TRI_LOG_WARN, "rank %d is behind the others: it continues as a copy of rank %d", r, first);
    }
    if (takers > 0 && job->rank == first)
        TRI_TRY(tri_job_lines_settle(job));
    if (takers > 0)
        TRI_TRY(copies_of(job, first, own < newest));
    job->elastic.exchange_pending = newest % 2 == 0;
    job->progress.acted = acted;
    if (!acted)
        job->progress.saved_step = -1;
    if (!job->elastic.common || !job->elastic.kept)
        return TRI_OK;
    common_copy(job, false);
    job->sync->begun = true;
    return TRI_OK;
}

/* Nobody has anything. */
static tri_status begin(tri_job *job, int64_t generation)
{
    bool found;
    job->elastic.kept = job->elastic.exchange_pending = false;
    job->progress.acted = true;
    TRI_TRY(tri_job_state_begin(job, generation, &found));
    tri_job_begin_tell(job, generation, found);
    return TRI_OK;
}

tri_status tri_local_state_find(tri_job *job, int64_t generation)
{
    int64_t mine[2] = {place_of(job), job->progress.acted}, *all = tri_alloc((size_t)job->world * sizeof(mine));
    const char *common = job->sync->ops->state_name(job->sync, 0);
    size_t nbytes = COMMON * (size_t)job->params->count * sizeof(float);
    tri_status status = all ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && common && !job->elastic.common && !(job->elastic.common = tri_alloc_bulk(nbytes)))
        status = TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_all_gather(job->group, mine, all, 2, TRI_I64, NULL);
    int64_t newest = -1;
    bool behind = false;
    for (int r = 0; status == TRI_OK && r < job->world; r++)
        newest = all[2 * r] > newest ? all[2 * r] : newest;
    if (status == TRI_OK && newest >= 0)
        status = tri_job_is_behind(job, generation, newest / 2, &behind);
    if (status == TRI_OK)
        status = newest < 0 || behind ? begin(job, generation) : places_take(job, all);
    tri_free(all);
    return status;
}

const tri_feature tri_feature_local_sgd = {.part = part};
