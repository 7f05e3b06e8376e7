/* SPDX-License-Identifier: Apache-2.0
 *
 * stragglers.c: workers that take far longer for their part of a step than the others: named and, if asked, gone.
 *
 * A step takes as long as its slowest worker. What its own part takes each (samples, forward, backward: not what it
 * waits for others) is in the rows of slow_ranks.c's looks, which are added up here. What is decided follows from these
 * figures alone, so all decide alike. Nothing is judged before some worker has half a second of work to show: less is
 * the noise of a machine that does other things too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/host.h"
#include "train/core/features.h"
#include "train/features/observers.h"

#define JUDGE_S 0.5

/* Seconds of each rank's own work, where there are several. */
typedef struct straggler_state {
    double *busy;         /* [world]: since it was judged last; NULL: nobody looks */
    double *sorted;       /* [world] */
    bool *named;          /* [world]: slow when it was judged last */
    int64_t judged_steps; /* in busy */
} straggler_state;

static void part(tri_job *job)
{
    straggler_state *all = job->states[TRI_FEATURE_STRAGGLERS];
    tri_free(all->busy);
    tri_free(all->named);
    *all = (straggler_state){0};
}

static tri_status form(tri_job *job)
{
    straggler_state *all = job->states[TRI_FEATURE_STRAGGLERS];
    part(job);
    if (job->config.train.on_straggler == TRI_STRAGGLER_OFF || job->servers.client || !tri_job_watch_is_on(job))
        return TRI_OK;
    all->busy = tri_alloc_zero(2 * (size_t)job->world, sizeof(double));
    all->named = tri_alloc_zero((size_t)job->world, sizeof(bool));
    if (!all->busy || !all->named)
        return TRI_ENOMEM;
    all->sorted = all->busy + job->world;
    return TRI_OK;
}

static int number_order(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* Of two in the middle the faster one: of two workers one may be slow. */
static double median_of(straggler_state *all, int count)
{
    memcpy(all->sorted, all->busy, (size_t)count * sizeof(double));
    qsort(all->sorted, (size_t)count, sizeof(double), number_order);
    return all->sorted[(count - 1) / 2];
}

/* This rank is asked to leave. */
static void leave_try(tri_job *job)
{
    tri_job_elastic *elastic = &job->elastic;
    if (elastic->may_go && elastic->may_go(elastic->called_arg))
        elastic->leave_reason = "it is much slower than the others";
    else
        tri_log(TRI_LOG_WARN, "stays, although it is slow: too few would be left (--elastic), and no spare waits");
}

/* By all ranks, in the same step: the one that is meant says where it is. */
static tri_status straggler_tell(tri_job *job, int rank, double median)
{
    straggler_state *all = job->states[TRI_FEATURE_STRAGGLERS];
    char host[TRI_HOST_NAME_NBYTES] = "", why[320], text[800];
    const char *then = "";
    double steps = (double)all->judged_steps;
    if (rank == job->rank)
        tri_host_name(host);
    tri_group_name_next(job->group, "stragglers");
    tri_status status = tri_broadcast(job->group, host, sizeof(host), TRI_U8, rank, NULL);
    tri_group_name_next(job->group, "");
    TRI_TRY(status);
    host[sizeof(host) - 1] = 0;
    if (job->config.train.on_straggler == TRI_STRAGGLER_REPLACE)
        then = "; it is asked to leave";
    tri_job_watch_why(job, rank, why, sizeof(why));
    snprintf(
        text, sizeof(text),
        "rank %d (%s) is %.1f times slower than the median of %d workers: %.3g ms of its own work a step, not %.3g, "
        "over %d steps up to step %lld%s%s%s",
        rank, host, all->busy[rank] / median, job->world, all->busy[rank] / steps * 1e3, median / steps * 1e3,
        (int)steps, (long long)job->step, why[0] ? ": " : "", why, then);
    if (rank == job->rank && then[0])
        leave_try(job);
    return tri_job_event_tell(job, "straggler", text);
}

static tri_status judge(tri_job *job)
{
    straggler_state *all = job->states[TRI_FEATURE_STRAGGLERS];
    double median = median_of(all, job->world);
    for (int r = 0; r < job->world; r++) {
        bool slow = all->busy[r] > job->config.train.straggler_factor * median;
        if (slow && !all->named[r])
            TRI_TRY(straggler_tell(job, r, median));
        all->named[r] = slow;
    }
    memset(all->busy, 0, (size_t)job->world * sizeof(double));
    all->judged_steps = 0;
    return TRI_OK;
}

tri_status tri_job_stragglers_judge(tri_job *job, const tri_slow_row *rows, int64_t steps)
{
    straggler_state *all = job->states[TRI_FEATURE_STRAGGLERS];
    double most = 0;
    if (!all->busy)
        return TRI_OK;
    all->judged_steps += steps;
    for (int r = 0; r < job->world; r++) {
        all->busy[r] += rows[r].data + rows[r].forward + rows[r].backward;
        most = all->busy[r] > most ? all->busy[r] : most;
    }
    return most >= JUDGE_S && all->judged_steps >= job->config.train.straggler_steps ? judge(job) : TRI_OK;
}

const tri_feature tri_feature_stragglers = {.state_nbytes = sizeof(straggler_state), .form = form, .part = part};
