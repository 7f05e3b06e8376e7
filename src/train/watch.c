/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c: monitor.watch_every_s: who is slow, and why (monitor/slow.h).
 *
 * Rank 0 has the clock: when it is time, it says so in the tail of the gradient, so all ranks look after the same step.
 * They gather a row each. Who is slow three times in a row is told, once a minute.
 */
#include <stdio.h>

#include "base/log.h"
#include "monitor/slow.h"
#include "train/job.h"

#define IN_A_ROW 3
#define AGAIN_NS (60 * TRI_NS_PER_S)

struct tri_job_watch {
    tri_slow_row sum;   /* since the last look; its strain is that of the last look */
    tri_slow_row *rows; /* [world] */
    int world;          /* that rows are for */
    int64_t looked_ns;  /* 0: never */
    tri_slow_verdict last, told;
    int in_a_row;
    int64_t told_ns; /* 0: nothing was */
};

static bool is_on(const tri_job *job)
{
    return job->world > 1 && job->config.monitor.watch_every_s > 0;
}

void tri_job_watch_close(tri_job *job)
{
    if (job->watch)
        tri_free(job->watch->rows);
    tri_free(job->watch);
    job->watch = NULL;
}

/* Ranks may be others than before. */
tri_status tri_job_watch_open(tri_job *job)
{
    if (job->watch && job->watch->world == job->world)
        return TRI_OK;
    tri_job_watch_close(job);
    if (!is_on(job))
        return TRI_OK;
    job->watch = tri_alloc_zero(1, sizeof(*job->watch));
    if (!job->watch)
        return TRI_ENOMEM;
    job->watch->rows = tri_alloc_zero((size_t)job->world, sizeof(tri_slow_row));
    job->watch->world = job->world;
    job->watch->last.rank = job->watch->told.rank = -1;
    job->watch->looked_ns = tri_now_ns();
    tri_strain_read(&job->watch->sum.strain);
    return job->watch->rows ? TRI_OK : TRI_ENOMEM;
}

bool tri_job_watch_is_due(const tri_job *job)
{
    return job->watch && job->rank == 0 &&
           (double)(tri_now_ns() - job->watch->looked_ns) / 1e9 >= job->config.monitor.watch_every_s;
}

static void step_add(tri_slow_row *sum, const tri_step_record *record)
{
#define PHASE_ADD(name) sum->name += record->name;
    TRI_PHASE_LIST(PHASE_ADD)
#undef PHASE_ADD
}

/* Rank 0, for people. */
static tri_status tell(tri_job *job, const tri_slow_verdict *now)
{
    tri_job_watch *watch = job->watch;
    char text[400];
    bool same = now->rank == watch->last.rank;
    watch->in_a_row = same ? watch->in_a_row + 1 : 1;
    watch->last = *now;
    if (job->rank != 0 || watch->in_a_row < IN_A_ROW)
        return TRI_OK;
    if (now->rank == watch->told.rank && (now->rank < 0 || tri_now_ns() - watch->told_ns < AGAIN_NS))
        return TRI_OK;
    if (now->rank < 0)
        tri_log(TRI_LOG_INFO, "rank %d is not slow any more", watch->told.rank);
    watch->told = *now;
    watch->told_ns = tri_now_ns();
    if (now->rank < 0)
        return TRI_OK;
    tri_slow_print(now, text, sizeof(text));
    tri_log(TRI_LOG_WARN, "%s", text);
    return job->metrics ? tri_metrics_write_slow(job->metrics, job->step - 1, now->rank, tri_slow_name(now->cause),
                                                 now->share, text)
                        : TRI_OK;
}

void tri_job_watch_why(tri_job *job, int rank, char *text, int capacity)
{
    tri_job_watch *watch = job->watch;
    text[0] = 0;
    if (!watch || watch->last.rank != rank)
        return;
    tri_slow_why(&watch->last, text, capacity);
    watch->told = watch->last;
    watch->told_ns = tri_now_ns();
}

tri_status tri_job_watch_step(tri_job *job, bool look)
{
    tri_job_watch *watch = job->watch;
    if (!watch)
        return TRI_OK;
    step_add(&watch->sum, &job->record);
    if (!look)
        return TRI_OK;
    tri_strain now;
    tri_strain_read(&now);
    tri_slow_row own = watch->sum;
    own.strain = tri_strain_since(&now, &watch->sum.strain);
    watch->sum = (tri_slow_row){.strain = now};
    int64_t now_ns = tri_now_ns();
    own.wall_s = (double)(now_ns - watch->looked_ns) / 1e9;
    watch->looked_ns = now_ns;
    tri_group_name_next(job->group, "who is slow");
    tri_status status = tri_all_gather(job->group, &own, watch->rows, sizeof(own) / sizeof(double), TRI_F64, NULL);
    tri_group_name_next(job->group, "");
    TRI_TRY_IN(status, "while looking who is slow");
    tri_slow_verdict verdict = tri_slow_find(watch->rows, job->world);
    tri_job_live_strain(job, &now, verdict.rank == job->rank ? tri_slow_name(verdict.cause) : NULL);
    return tell(job, &verdict);
}
