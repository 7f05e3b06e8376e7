/* SPDX-License-Identifier: Apache-2.0
 *
 * notes.c: what workers of parameter servers tell each other, who have no group: what each did since its last look (for
 * slow_ranks.c), and which steps all trace, by notes at a server (ps/note.h), each as often as it looks.
 *
 * The first worker announces a window, so far ahead that all should have looked before it begins. Steps may be faster
 * by then, or a look late: who hears of it too late says so with its trace, and the window is tried again, further
 * ahead. A wish of another worker is in its note until it hears of a window.
 */
#include <math.h>
#include <string.h>

#include "base/ask.h"
#include "ps/client/client.h"
#include "train/core/job.h"
#include "train/features/observers.h"

#define LOOKS_AHEAD 1.5 /* until all have looked once more */
#define MARGIN_S    0.2
#define STEPS_AHEAD 2
#define MOVED_MOST  3
#define FURTHER     4 /* times as far, each time */

typedef struct look_note {
    tri_slow_row row;
    int64_t wish, from, to; /* as in tri_requests */
} look_note;

/* Steps that all will trace, if none are awaited already. */
static tri_status window_choose(tri_job *job, int steps, double step_s)
{
    tri_requests *requests = tri_requests_of(job);
    const double ahead_s = LOOKS_AHEAD * job->config.monitor.watch_every_s + MARGIN_S;
    int64_t *ahead = &requests->ahead;
    *ahead = STEPS_AHEAD + (step_s > 0 ? (int64_t)ceil(ahead_s / step_s) : 0);
    for (int i = 0; i < requests->moved; i++)
        *ahead *= FURTHER;
    requests->wish = 0;
    if (tri_job_trace_is_due(job) || job->step >= job->progress.steps)
        return tri_job_trace_ask(job, steps); /* which says so */
    requests->from = job->step + *ahead < job->progress.steps ? job->step + *ahead : job->progress.steps - 1;
    requests->to = requests->from + steps - 1;
    return tri_job_trace_ask_at(job, requests->from, requests->to);
}

bool tri_job_notes_move(tri_job *job, bool late)
{
    tri_requests *requests = tri_requests_of(job);
    int64_t count = requests->to - requests->from + 1;
    if (!late || requests->ahead == 0 || requests->moved == MOVED_MOST ||
        job->step + FURTHER * requests->ahead + count > job->progress.steps) {
        requests->moved = 0;
        return false;
    }
    requests->moved++;
    requests->wish = (int)count;
    return true;
}

/* Of the first worker. */
static tri_status window_hear(tri_job *job, const look_note *note)
{
    tri_requests *requests = tri_requests_of(job);
    if (note->to == 0 || (note->from == requests->from && note->to == requests->to))
        return TRI_OK;
    requests->from = note->from;
    requests->to = note->to;
    requests->wish = 0;
    if (tri_job_trace_is_due(job) || note->from < 0 || note->to < note->from)
        return TRI_OK;
    return tri_job_trace_ask_at(job, note->from, note->to);
}

static tri_status note_leave(tri_job *job, const tri_slow_row *own, tri_string *all)
{
    const tri_requests *requests = tri_requests_of(job);
    const look_note note = {*own, requests->wish, requests->from, requests->to};
    int count;
    return tri_ps_client_note(job->servers.client, PS_SUBJECT_LOOK, 0, &note, sizeof(note), all, &count);
}

static tri_status notes_read(tri_job *job, const tri_string *all, tri_slow_row *rows)
{
    tri_requests *requests = tri_requests_of(job);
    ps_note_head head;
    size_t at = 0;
    for (const void *text; (text = tri_ps_note_next(all, &at, &head));) {
        look_note note;
        if (head.worker >= (uint32_t)job->servers.workers || head.nbytes != sizeof(note))
            continue;
        memcpy(&note, text, sizeof(note));
        rows[head.worker] = note.row;
        if (head.worker == 0 && tri_job_follows(job))
            TRI_TRY(window_hear(job, &note));
        else if (head.worker > 0 && !tri_job_follows(job) && requests->wish == 0 && note.wish > 0 &&
                 !tri_job_trace_is_due(job))
            requests->wish = note.wish < TRI_ASK_MOST ? (int)note.wish : TRI_ASK_MOST;
    }
    return TRI_OK;
}

tri_status tri_job_notes_meet(tri_job *job, const tri_slow_row *own, double step_s, tri_slow_row *rows)
{
    const tri_requests *requests = tri_requests_of(job);
    tri_string all = {0};
    memset(rows, 0, (size_t)job->servers.workers * sizeof(*rows));
    tri_status status = note_leave(job, own, &all);
    if (status == TRI_OK)
        status = notes_read(job, &all, rows);
    tri_string_fini(&all);
    if (status != TRI_OK || tri_job_follows(job) || requests->wish == 0)
        return status;
    TRI_TRY(window_choose(job, requests->wish, step_s));
    return note_leave(job, own, NULL);
}
