/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule_play.c: runs of a schedule on paper: when each action ends, the order of messages that follows and how
 * many of them need room at once.
 */
#include <stdlib.h>

#include "base/status.h"
#include "parallel/schedule_impl.h"

/* --- a run --- */

/* Ends by (chunk, way, micro-batch); negative: not yet. */
static double *end_of(const tri_pipe_schedule *s, double *ends, int chunk, bool backward, int micro)
{
    return &ends[((size_t)chunk * 2 + backward) * (size_t)s->micros + (size_t)micro];
}

/* When what the action reads is there; negative: not yet. */
static double begin_of(const tri_pipe_schedule *s, double *ends, const tri_pipe_schedule_costs *costs,
                       tri_pipe_action a)
{
    int last = s->ranks * s->each - 1;
    double message = s->ranks > 1 ? costs->message : 0;
    if (!a.backward && a.chunk == 0)
        return 0;
    if (a.backward && a.chunk == last)
        return *end_of(s, ends, a.chunk, false, a.micro);
    double end = *end_of(s, ends, a.backward ? a.chunk + 1 : a.chunk - 1, a.backward, a.micro);
    double late = a.backward && costs->late ? costs->late[a.chunk + 1] : 0;
    return end < 0 ? end : end - late + message;
}

/* Fills `ends` ([chunks][2][micros]). */
static double play(const tri_pipe_schedule *s, const tri_pipe_schedule_costs *costs, double *ends, int *at, double *now)
{
    size_t cells = (size_t)s->ranks * (size_t)s->each * 2 * (size_t)s->micros;
    for (size_t i = 0; i < cells; i++)
        ends[i] = -1;
    double total = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->ranks; r++) {
            for (; at[r] < s->action_count; at[r]++, moved = true) {
                tri_pipe_action a = s->actions[r][at[r]];
                double begin = begin_of(s, ends, costs, a);
                if (begin < 0)
                    break;
                now[r] = (begin > now[r] ? begin : now[r]) + (a.backward ? costs->backward : costs->forward)[a.chunk];
                *end_of(s, ends, a.chunk, a.backward, a.micro) = now[r];
                total = now[r] > total ? now[r] : total;
            }
        }
    }
    return total;
}

static double play_alone(const tri_pipe_schedule *s, const tri_pipe_schedule_costs *costs, double **out)
{
    size_t cells = (size_t)s->ranks * (size_t)s->each * 2 * (size_t)s->micros;
    double *ends = tri_alloc_zero(cells, sizeof(double)), *now = tri_alloc_zero((size_t)s->ranks, sizeof(double));
    int *at = tri_alloc_zero((size_t)s->ranks, sizeof(int));
    double total = ends && now && at ? play(s, costs, ends, at, now) : -1;
    tri_free(now);
    tri_free(at);
    if (total < 0) {
        tri_free(ends);
        ends = NULL;
    }
    *out = ends;
    return total;
}

double tri_pipe_schedule_play(const tri_pipe_schedule *schedule, const tri_pipe_schedule_costs *costs, double *ends)
{
    double *all, total = play_alone(schedule, costs, &all);
    for (int r = 0; all && ends && r < schedule->ranks; r++)
        for (int i = 0; i < schedule->action_count; i++) {
            tri_pipe_action a = schedule->actions[r][i];
            ends[r * schedule->action_count + i] = *end_of(schedule, all, a.chunk, a.backward, a.micro);
        }
    tri_free(all);
    return total;
}

double tri_pipe_schedule_bubble(const tri_pipe_schedule *schedule, const tri_pipe_schedule_costs *costs)
{
    double total = tri_pipe_schedule_play(schedule, costs, NULL), busy = 0;
    for (int c = 0; c < schedule->ranks * schedule->each; c++)
        busy += schedule->micros * (costs->forward[c] + (schedule->training ? costs->backward[c] : 0));
    return total > 0 ? 1 - busy / (total * schedule->ranks) : 0;
}

/* Forward 1, backward 2. */
static tri_status even_ends(const tri_pipe_schedule *s, double **ends, double *total)
{
    int chunks = s->ranks * s->each;
    double *costs = tri_alloc_zero(2 * (size_t)chunks, sizeof(double));
    if (!costs)
        return TRI_ENOMEM;
    for (int c = 0; c < 2 * chunks; c++)
        costs[c] = c < chunks ? 1 : 2;
    *total = play_alone(s, &(tri_pipe_schedule_costs){.forward = costs, .backward = costs + chunks}, ends);
    tri_free(costs);
    return *ends ? TRI_OK : TRI_ENOMEM;
}

/* --- messages --- */

static int message_order(const void *a, const void *b)
{
    const tri_pipe_message *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->backward != y->backward)
        return x->backward ? -1 : 1;
    if (x->chunk != y->chunk)
        return x->chunk < y->chunk ? -1 : 1;
    return x->micro - y->micro;
}

static void messages_fill(const tri_pipe_schedule *s, double *ends, tri_pipe_message *all, int *count)
{
    int chunks = s->ranks * s->each;
    *count = 0;
    for (int backward = 0; backward < 1 + s->training; backward++)
        for (int c = backward ? 0 : 1; c < chunks - backward; c++)
            for (int m = 0; m < s->micros; m++) {
                int maker = backward ? c + 1 : c - 1;
                all[(*count)++] = (tri_pipe_message){.backward = backward,
                                                     .chunk = c,
                                                     .micro = m,
                                                     .from = maker % s->ranks,
                                                     .to = c % s->ranks,
                                                     .time = *end_of(s, ends, maker, backward, m)};
            }
    qsort(all, (size_t)*count, sizeof(*all), message_order);
}

static tri_status messages_share_out(tri_pipe_schedule *s, const tri_pipe_message *all, int count)
{
    for (int r = 0; r < s->ranks; r++) {
        int own = 0;
        for (int i = 0; i < count; i++)
            own += all[i].from == r || all[i].to == r;
        s->messages[r] = tri_alloc_zero((size_t)own, sizeof(tri_pipe_message));
        if (!s->messages[r])
            return TRI_ENOMEM;
        for (int i = 0; i < count; i++)
            if (all[i].from == r || all[i].to == r)
                s->messages[r][s->message_count[r]++] = all[i];
    }
    return TRI_OK;
}

int tri_pipe_schedule_receive_of(const tri_pipe_schedule *schedule, tri_pipe_action action)
{
    int rank = action.chunk % schedule->ranks;
    for (int i = 0; i < schedule->message_count[rank]; i++) {
        const tri_pipe_message *m = &schedule->messages[rank][i];
        if (m->to == rank && m->backward == action.backward && m->chunk == action.chunk && m->micro == action.micro)
            return i;
    }
    return -1;
}

/* A receive must have been made when the rank needs it or one behind it; its memory is free once the micro-batch has
 * gone down (forward only: up). */
static tri_status buffers_count(tri_pipe_schedule *s, int rank)
{
    int posted = 0;
    size_t chunks = (size_t)s->ranks * (size_t)s->each;
    int *held = tri_alloc_zero(2 * chunks, sizeof(int));
    if (!held)
        return TRI_ENOMEM;
    for (int i = 0; i < s->action_count; i++) {
        tri_pipe_action a = s->actions[rank][i];
        for (int needed = tri_pipe_schedule_receive_of(s, a); posted <= needed; posted++) {
            const tri_pipe_message *m = &s->messages[rank][posted];
            if (m->to != rank)
                continue;
            int now = ++held[2 * m->chunk + m->backward], *most = &s->buffers[m->backward][m->chunk];
            *most = now > *most ? now : *most;
        }
        if (a.backward || !s->training)
            held[2 * a.chunk]--;
        if (a.backward)
            held[2 * a.chunk + 1]--;
    }
    tri_free(held);
    return TRI_OK;
}

tri_status tri_pipe_schedule_messages_make(tri_pipe_schedule *schedule)
{
    double *ends, total;
    int count = 0;
    TRI_TRY(even_ends(schedule, &ends, &total));
    size_t most = (size_t)schedule->ranks * (size_t)schedule->each * 2 * (size_t)schedule->micros;
    tri_pipe_message *all = tri_alloc_zero(most, sizeof(*all));
    tri_status status = all ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK) {
        if (schedule->ranks > 1)
            messages_fill(schedule, ends, all, &count);
        status = messages_share_out(schedule, all, count);
    }
    for (int r = 0; status == TRI_OK && r < schedule->ranks; r++)
        status = buffers_count(schedule, r);
    tri_free(ends);
    tri_free(all);
    return status;
}
