/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: makes the tables of actions, and checks them.
 */
#include "parallel/schedule.h"

#include <string.h>

#include "base/status.h"
#include "parallel/schedule_impl.h"

/* --- rows --- */

/* Micro-batches go through the chunks of a rank in groups, of as many as there are ranks or a few more where their
 * number is no multiple of it; wider groups first. */
static int group_width(const tri_pipe_schedule *s, int group)
{
    int groups = s->micros / s->ranks > 0 ? s->micros / s->ranks : 1;
    return s->micros / groups + (group < s->micros % groups);
}

/* The i-th forward of a rank: each group through all of its chunks. The i-th backward: likewise, through the chunks
 * from the last to the first. */
static tri_pipe_action nth(const tri_pipe_schedule *s, int rank, int i, bool backward)
{
    int group = 0, first = 0;
    for (; i >= (first + group_width(s, group)) * s->each; group++)
        first += group_width(s, group);
    int width = group_width(s, group), at = i - first * s->each, local = at / width;
    if (backward)
        local = s->each - 1 - local;
    return (tri_pipe_action){backward, local * s->ranks + rank, first + at % width};
}

/* `ahead` forwards first, then one of each in turn, then the backwards that are left. */
static void row_fill(const tri_pipe_schedule *s, int rank, int ahead)
{
    int count = s->micros * s->each, up = 0, down = 0;
    ahead = ahead < count ? ahead : count;
    for (int i = 0; i < s->action_count; i++) {
        bool forward = up < count && (up < ahead || up - down <= ahead || !s->training);
        s->actions[rank][i] = forward ? nth(s, rank, up++, false) : nth(s, rank, down++, true);
    }
}

static int ahead_of(const tri_pipe_schedule *s, int rank)
{
    if (!s->training || s->kind == TRI_PIPE_GPIPE)
        return s->micros * s->each;
    if (s->each == 1)
        return s->ranks - 1 - rank;
    return 2 * (s->ranks - 1 - rank) + (s->each - 1) * group_width(s, 0);
}

/* --- making --- */

static tri_status allocate(tri_pipe_schedule *s)
{
    size_t ranks = (size_t)s->ranks, chunks = ranks * (size_t)s->each;
    s->actions = tri_alloc_zero(ranks, sizeof(*s->actions));
    s->messages = tri_alloc_zero(ranks, sizeof(*s->messages));
    s->message_count = tri_alloc_zero(ranks, sizeof(int));
    s->slots = tri_alloc_zero(chunks, sizeof(int));
    s->buffers[0] = tri_alloc_zero(chunks, sizeof(int));
    s->buffers[1] = tri_alloc_zero(chunks, sizeof(int));
    if (!s->actions || !s->messages || !s->message_count || !s->slots || !s->buffers[0] || !s->buffers[1])
        return TRI_ENOMEM;
    for (size_t r = 0; r < ranks; r++)
        if (!(s->actions[r] = tri_alloc_zero((size_t)s->action_count, sizeof(tri_pipe_action))))
            return TRI_ENOMEM;
    return TRI_OK;
}

tri_status tri_pipe_schedule_make(tri_pipe_kind kind, int ranks, int each, int micros, bool training,
                                  tri_pipe_schedule *out)
{
    *out = (tri_pipe_schedule){0};
    tri_pipe_schedule s = {.kind = kind, .ranks = ranks, .each = each, .micros = micros, .training = training};
    if (ranks < 1 || micros < 1)
        return tri_fail(TRI_ECONFIG, "pipeline: want at least 1 rank and 1 micro-batch, got %d and %d", ranks, micros);
    bool interleaved = kind == TRI_PIPE_INTERLEAVED;
    if (interleaved ? each < 2 || ranks < 2 : each != 1)
        return tri_fail(TRI_ECONFIG, "parallel.schedule %s needs %s, got %d and %d", tri_pipe_kind_word(kind),
                        interleaved ? "2 or more ranks with 2 or more chunks each" : "ranks with 1 chunk each", ranks,
                        each);
    if ((int64_t)ranks * each > 1 << 16 || (int64_t)micros * each > 1 << 24)
        return tri_fail(TRI_ECONFIG, "pipeline: %d ranks, %d chunks each, %d micro-batches are too many", ranks, each,
                        micros);
    s.action_count = micros * each * (training ? 2 : 1);
    tri_status status = allocate(&s);
    for (int r = 0; status == TRI_OK && r < ranks; r++)
        row_fill(&s, r, ahead_of(&s, r));
    if (status == TRI_OK)
        status = tri_pipe_schedule_check(&s);
    if (status == TRI_OK)
        status = tri_pipe_schedule_messages_make(&s);
    if (status != TRI_OK) {
        tri_pipe_schedule_fini(&s);
        return status;
    }
    *out = s;
    return TRI_OK;
}

void tri_pipe_schedule_fini(tri_pipe_schedule *schedule)
{
    for (int r = 0; r < schedule->ranks; r++) {
        if (schedule->actions)
            tri_free(schedule->actions[r]);
        if (schedule->messages)
            tri_free(schedule->messages[r]);
    }
    tri_free(schedule->actions);
    tri_free(schedule->messages);
    tri_free(schedule->message_count);
    tri_free(schedule->slots);
    tri_free(schedule->buffers[0]);
    tri_free(schedule->buffers[1]);
    *schedule = (tri_pipe_schedule){0};
}

/* --- checking --- */

/* done[2 * chunk + backward]: micro-batches that are through; they come in order. */
static bool can_run(const tri_pipe_schedule *s, const int *done, tri_pipe_action a)
{
    int last = s->ranks * s->each - 1;
    if (!a.backward)
        return a.chunk == 0 || done[2 * (a.chunk - 1)] > a.micro;
    return done[2 * a.chunk] > a.micro && (a.chunk == last || done[2 * (a.chunk + 1) + 1] > a.micro);
}

static tri_status run_next(tri_pipe_schedule *s, int rank, int *done, int at)
{
    tri_pipe_action a = s->actions[rank][at];
    if (a.chunk < 0 || a.chunk >= s->ranks * s->each || a.chunk % s->ranks != rank ||
        a.micro != done[2 * a.chunk + a.backward])
        return tri_fail(TRI_EINVAL,
                        "schedule %s: action %d of rank %d: want the next micro-batch of one of its chunks, got %s of "
                        "micro-batch %d through chunk %d",
                        tri_pipe_kind_word(s->kind), at, rank, a.backward ? "backward" : "forward", a.micro, a.chunk);
    done[2 * a.chunk + a.backward]++;
    int held = done[2 * a.chunk] - done[2 * a.chunk + 1];
    if (held > s->slots[a.chunk])
        s->slots[a.chunk] = held;
    return TRI_OK;
}

/* All that can run, rank by rank, until all is done or nothing can. */
static tri_status run_all(tri_pipe_schedule *s, int *done, int *at)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->ranks; r++)
            for (; at[r] < s->action_count && can_run(s, done, s->actions[r][at[r]]); at[r]++, moved = true)
                TRI_TRY(run_next(s, r, done, at[r]));
    }
    for (int r = 0; r < s->ranks; r++) {
        if (at[r] == s->action_count)
            continue;
        tri_pipe_action a = s->actions[r][at[r]];
        return tri_fail(TRI_EINVAL, "schedule %s: rank %d waits for ever before %s of micro-batch %d through chunk %d",
                        tri_pipe_kind_word(s->kind), r, a.backward ? "backward" : "forward", a.micro, a.chunk);
    }
    return TRI_OK;
}

tri_status tri_pipe_schedule_check(tri_pipe_schedule *schedule)
{
    size_t chunks = (size_t)schedule->ranks * (size_t)schedule->each;
    int *done = tri_alloc_zero(2 * chunks, sizeof(int)), *at = tri_alloc_zero((size_t)schedule->ranks, sizeof(int));
    tri_status status = done && at ? TRI_OK : TRI_ENOMEM;
    memset(schedule->slots, 0, chunks * sizeof(int));
    if (status == TRI_OK)
        status = run_all(schedule, done, at);
    for (size_t c = 0; status == TRI_OK && c < chunks; c++) {
        if (done[2 * c] != schedule->micros || (schedule->training && done[2 * c + 1] != schedule->micros))
            status = tri_fail(TRI_EINVAL, "schedule %s: want %d micro-batches through chunk %zu, got %d up and %d down",
                              tri_pipe_kind_word(schedule->kind), schedule->micros, c, done[2 * c], done[2 * c + 1]);
        if (!schedule->training)
            schedule->slots[c] = 1;
    }
    tri_free(done);
    tri_free(at);
    return status;
}
