/* SPDX-License-Identifier: Apache-2.0
 *
 * control_requests.c: what some rank needs of all after a step: a trace of the next ones (SIGUSR2, base/ask.h; from
 * another host a file, at which rank 0 looks once a second), a look at who is slow (slow_ranks.c).
 *
 * Wishes travel with the control data of a step, and are the same on all ranks then. Ranks with weights of their own
 * ask each other where their weights meet; workers of parameter servers, by notes (notes.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/ask.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/core/features.h"
#include "train/core/step.h"
#include "train/features/observers.h"

/* A whole number; anything else is as good as the usual one. */
static int file_take(tri_job *job)
{
    tri_requests *requests = tri_requests_of(job);
    char path[1300], *text = NULL;
    size_t nbytes;
    const int64_t now_ns = tri_now_ns();
    if (job->rank != 0 || !job->output.folder || now_ns - requests->looked_ns < TRI_NS_PER_S)
        return 0;
    requests->looked_ns = now_ns;
    snprintf(path, sizeof(path), "%.1200s/" TRI_ASK_FILE, job->output.folder);
    if (!tri_fs_exists(path))
        return 0;
    const bool read = tri_fs_read(path, 64, &text, &nbytes) == TRI_OK;
    const int steps = read ? atoi(text) : 0;
    tri_free(text);
    if (tri_fs_remove(path) != TRI_OK) { /* it would be taken again and again */
        tri_log(TRI_LOG_WARN, "a trace was asked for, but: %s", tri_last_error());
        return 0;
    }
    return steps < 1 ? TRI_ASK_STEPS : steps < TRI_ASK_MOST ? steps : TRI_ASK_MOST;
}

static int wish_take(tri_job *job)
{
    const int steps = tri_ask_take();
    return steps > 0 ? steps : file_take(job);
}

static tri_status control_put(tri_job *job, tri_control *own)
{
    tri_requests *requests = tri_requests_of(job);
    if (!tri_job_control_travels(job))
        return TRI_OK;
    int steps = wish_take(job);
    requests->own = steps > 0 ? steps : requests->own; /* kept until the sums are there: they may be made again */
    own->trace = requests->own;
    own->look = tri_job_watch_is_due(job);
    return TRI_OK;
}

static void control_read(tri_job *job, const tri_control *sum)
{
    tri_requests *requests = tri_requests_of(job);
    if (!tri_job_control_travels(job))
        return;
    requests->steps = (int)(sum->trace < TRI_ASK_MOST ? sum->trace : TRI_ASK_MOST);
    requests->look = sum->look > 0;
    requests->own = 0;
}

/* Workers of parameter servers tell each other at their looks; where there are none, the first one traces itself. */
static void wish_note(tri_job *job)
{
    tri_requests *requests = tri_requests_of(job);
    const int steps = wish_take(job);
    if (!tri_job_watch_is_on(job)) {
        requests->steps = tri_job_follows(job) ? 0 : steps;
        return;
    }
    requests->wish = steps > 0 ? steps : requests->wish;
    requests->look = tri_job_watch_is_due(job) || (requests->wish > 0 && !tri_job_follows(job));
}

/* Where control data do not travel with each step. */
static tri_status asks_meet(tri_job *job)
{
    tri_requests *requests = tri_requests_of(job);
    int64_t words[2] = {0};
    if (job->servers.client) {
        wish_note(job);
        return TRI_OK;
    }
    if (job->step % job->config.parallel.local_steps != 0)
        return TRI_OK;
    words[0] = wish_take(job);
    words[1] = tri_job_watch_is_due(job);
    if (job->world > 1) {
        tri_group_name_next(job->group, "wishes");
        tri_status status = tri_all_reduce(job->group, words, words, 2, TRI_I64, TRI_REDUCE_SUM, NULL);
        tri_group_name_next(job->group, "");
        TRI_TRY(status);
    }
    requests->steps = words[0] > TRI_ASK_MOST ? TRI_ASK_MOST : (int)words[0];
    requests->look = words[1] > 0;
    return TRI_OK;
}

/* A request that no other rank knows yet is kept. */
static void part(tri_job *job)
{
    tri_requests *requests = tri_requests_of(job);
    *requests = (tri_requests){.own = requests->own};
}

static tri_status step_end(tri_job *job)
{
    tri_requests *requests = tri_requests_of(job);
    if (!tri_job_control_travels(job))
        TRI_TRY(asks_meet(job));
    int steps = requests->steps;
    bool look = requests->look;
    requests->steps = 0;
    requests->look = false;
    TRI_TRY(tri_job_watch_step(job, look));
    return steps > 0 ? tri_job_trace_ask(job, steps) : TRI_OK;
}

const tri_feature tri_feature_requests = {.state_nbytes = sizeof(tri_requests),
                                          .part = part,
                                          .control_put = control_put,
                                          .control_read = control_read,
                                          .step_end = step_end};
