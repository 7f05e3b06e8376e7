/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c: the sum of what all ranks say with a step.
 *
 * It is made behind the sums of the gradients, or started before them where the next step may begin before all of these
 * are there. Ranks apart and workers of parameter servers share no call in each step: their wishes to stop and to
 * change the ranks travel in two columns of the gradient's tail, with what their strategies exchange, and features know
 * their own ways.
 */
#include <signal.h>

#include "train/core/features.h"
#include "train/core/step.h"

#define JOIN 0x1p-8f /* in the column of the ranks that leave, which are counted */

bool tri_job_control_travels(const tri_job *job)
{
    return !job->servers.client && !tri_job_has_own_weights(job);
}

/* The end of the run, where none would be left. */
static void wishes_read(tri_job *job, const tri_control *sum)
{
    tri_job_elastic *elastic = &job->elastic;
    job->progress.stop_wanted = sum->stop > 0 || (elastic->on && sum->leaves == job->world);
    elastic->ends = elastic->on && sum->leaves + sum->joins > 0;
    elastic->leavers = (int)sum->leaves;
}

static void columns_put(tri_job *job)
{
    const tri_control *own = &job->control.own;
    job->sync->tail[TRI_TAIL_STOP] = (float)own->stop;
    job->sync->tail[TRI_TAIL_CALL] = own->leaves ? 1 : own->joins ? JOIN : 0;
}

static void columns_read(tri_job *job)
{
    float stop = job->sync->tail[TRI_TAIL_STOP], call = job->sync->tail[TRI_TAIL_CALL];
    job->control.sum.stop = stop > 0;
    job->control.sum.leaves = (int64_t)call;
    job->control.sum.joins = call > (float)(int64_t)call;
}

static tri_status own_put(tri_job *job, bool waits)
{
    tri_job_control *control = &job->control;
    control->own = (tri_control){0};
    /* Every stop signal but SIGINT is the end of one rank where ranks come and go. */
    tri_job_elastic *elastic = &job->elastic;
    int number = tri_stop_signal();
    elastic->wished = elastic->on && ((number && number != SIGINT) || elastic->leave_reason);
    if (elastic->wished)
        control->own.leaves = 1;
    else {
        control->own.stop = number;
        control->own.joins = elastic->called && elastic->called(elastic->called_arg);
    }
    TRI_TRY(tri_features_control_put(job, &control->own));
    if (!tri_job_control_travels(job)) {
        columns_put(job);
        return TRI_OK;
    }
    control->sum = control->own;
    if (job->world == 1)
        return TRI_OK;
    tri_group_name_next(job->group, "control");
    tri_status status = tri_all_reduce(job->group, (const int64_t *)&control->own, (int64_t *)&control->sum,
                                       TRI_CONTROL_COUNT, TRI_I64, TRI_REDUCE_SUM, waits ? NULL : &control->work);
    tri_group_name_next(job->group, "");
    return status;
}

void tri_job_control_send(tri_job *job)
{
    job->control.status = own_put(job, false);
}

tri_status tri_job_control_sum(tri_job *job)
{
    return own_put(job, true);
}

tri_status tri_job_control_wait(tri_job *job)
{
    tri_work *work = job->control.work;
    job->control.work = NULL;
    TRI_TRY(job->control.status);
    return work ? tri_work_wait(work) : TRI_OK;
}

void tri_job_control_read(tri_job *job)
{
    if (!tri_job_control_travels(job))
        columns_read(job);
    wishes_read(job, &job->control.sum);
    tri_features_control_read(job, &job->control.sum);
}

void tri_job_control_close(tri_job *job)
{
    if (job->control.work)
        (void)tri_work_wait(job->control.work);
    job->control.work = NULL;
}
