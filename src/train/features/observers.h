/* SPDX-License-Identifier: Apache-2.0
 *
 * observers.h: what can be seen of a running job: traces of its steps, wishes for one, and the looks that
 * ranks take at each other. All does nothing where it is off.
 */
#ifndef TRI_TRAIN_OBSERVERS_H
#define TRI_TRAIN_OBSERVERS_H

#include "train/core/features.h"

/* control_requests.c: what some rank has asked of all. */
typedef struct tri_requests {
    int own;   /* steps that this rank shall have traced, and no other rank knows yet */
    int steps; /* that all trace from the next one on; 0: none */
    bool look;
    int64_t looked_ns; /* for a request from another host */
    /* With parameter servers (notes.c): */
    int wish;         /* steps that somebody has asked this worker to have traced */
    int64_t from, to; /* the latest window that the first worker has announced; both 0: none */
    int64_t ahead;    /* how many steps before it begins that was announced */
    int moved;        /* how often it was announced again, because some worker had read of it too late */
} tri_requests;
static inline tri_requests *tri_requests_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_REQUESTS];
}

/* trace.c: a timeline of some steps. */
/* The next steps, of all ranks; the same call on all. RUN/traces/steps-FROM-TO.json. Or steps that come later. */
tri_status tri_job_trace_ask(tri_job *job, int steps);
tri_status tri_job_trace_ask_at(tri_job *job, int64_t from, int64_t to);
bool tri_job_trace_is_due(const tri_job *job);

/* trace_servers.c: what this worker did, for the first one; there, after the window: rows of `count` workers, but the
 * first, and of the servers; `late`: of those that heard of it when it had begun. Workers that do not tell in time have
 * no rows (NULL). */
tri_status tri_job_trace_give(tri_job *job, int64_t tag, const tri_trace_rank *own, bool late);
tri_status tri_job_trace_servers(tri_job *job, int64_t tag, int64_t since_ns, int count, tri_trace_rank *workers,
                                 tri_trace_servers *servers, bool *late);
void tri_job_trace_servers_free(tri_trace_servers *servers);

/* notes.c: workers of parameter servers tell each other what they did since the last look, and which steps all trace:
 * rows[workers], those that have not reported so far with wall_s 0. step_s: what a step takes now. */
tri_status tri_job_notes_meet(tri_job *job, const tri_slow_row *own, double step_s, tri_slow_row *rows);
/* The first worker, after a window of which some have heard too late: is it tried again, further ahead? */
bool tri_job_notes_move(tri_job *job, bool late);

/* slow_ranks.c: the ranks look at each other; the same on all. */
bool tri_job_watch_is_on(const tri_job *job);
/* Rank 0: it is time; after a step, collective where `look`. */
bool tri_job_watch_is_due(const tri_job *job);
tri_status tri_job_watch_step(tri_job *job, bool look);
/* Work of this rank that no step has counted: a simulated step's time. */
void tri_job_watch_add(tri_job *job, double seconds);
/* For a report that a rank is slow: why, by the last look, which then counts as reported. "": nothing is known. */
void tri_job_watch_why(tri_job *job, int rank, char *text, int capacity);

/* stragglers.c, called by slow_ranks.c: rows of all ranks, of this many steps; collective. */
tri_status tri_job_stragglers_judge(tri_job *job, const tri_slow_row *rows, int64_t steps);
/* live.c: figures of this rank, where somebody needs them. */
/* What holds this rank up, and why the others wait for it (NULL: they do not). */
void tri_job_live_strain(tri_job *job, const tri_strain *strain, const char *cause);

#endif
