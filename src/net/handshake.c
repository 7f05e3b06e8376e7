/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.c: the meeting of ranks: one poll loop over the listeners, the peers dialed, and whoever calls.
 *
 * Invariant: a listener takes a link as made only when the third hello has come, so a caller that gave up in between
 * and dials again replaces its earlier try.
 */
#include "net/handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/wait.h"
#include "net/dial.h"

#define CALL_LIMIT_NS (5 * TRI_NS_PER_S)
#define BROKEN_NS     (5 * TRI_NS_PER_MS) /* between two looks at whether it is in vain */
#define STRANGERS     64                  /* callers beyond the world that may talk at once */

typedef struct meeting {
    const tri_meeting *is;
    tri_met *met;
    net_dial *dials; /* [rank]: the lower ones */
    net_talk *calls; /* [call_count] */
    size_t call_count, call_limit;
    struct pollfd *polls;
} meeting;

static bool is_expected(const tri_meeting *is, int peer)
{
    return peer != is->rank && is->addresses[peer];
}

static void call_remove(meeting *all, size_t index)
{
    all->calls[index] = all->calls[--all->call_count];
}

static void calls_accept(meeting *all, int listener, int64_t now_ns)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            return;
        if (all->is->trusts && !all->is->trusts(all->is->arg, fd)) {
            close(fd);
            continue;
        }
        if (all->call_count == all->call_limit) {
            size_t oldest = 0;

            for (size_t i = 1; i < all->call_count; i++) {
                if (all->calls[i].limit_ns < all->calls[oldest].limit_ns)
                    oldest = i;
            }
            tri_talk_drop(&all->calls[oldest], "");
            call_remove(all, oldest);
        }
        tri_talk_answer(&all->calls[all->call_count++], fd, now_ns + CALL_LIMIT_NS);
    }
}

static tri_status calls_advance(meeting *all, int64_t now_ns)
{
    for (size_t i = all->call_count; i-- > 0;) {
        net_talk *talk = &all->calls[i];
        tri_status status = TRI_OK;

        tri_talk_advance(all->is, talk);
        if (talk->stage == TALK_DONE)
            status = tri_met_take(all->is, talk, &all->met[talk->peer]);
        else if (talk->stage != TALK_IDLE && now_ns < talk->limit_ns)
            continue;
        tri_talk_drop(talk, "");
        call_remove(all, i);
        TRI_TRY(status);
    }
    return TRI_OK;
}

static void poll_add(meeting *all, nfds_t *count, const net_talk *talk)
{
    if (talk->fd >= 0)
        all->polls[(*count)++] =
            (struct pollfd){.fd = talk->fd, .events = talk->stage == TALK_RECEIVE ? POLLIN : POLLOUT};
}

/* Waits until something can go on. */
static void meeting_wait(meeting *all, int64_t until_ns)
{
    nfds_t count = 0;
    int64_t now_ns;

    for (int i = 0; i < all->is->listener_count; i++)
        all->polls[count++] = (struct pollfd){.fd = all->is->listeners[i], .events = POLLIN};
    for (int peer = 0; peer < all->is->rank; peer++) {
        if (!is_expected(all->is, peer))
            continue;
        for (int i = 0; i < TRI_STRANDS_MAX; i++)
            poll_add(all, &count, &all->dials[peer].talks[i]);
        if (tri_dial_next_ns(&all->dials[peer]) < until_ns)
            until_ns = tri_dial_next_ns(&all->dials[peer]);
    }
    for (size_t i = 0; i < all->call_count; i++) {
        poll_add(all, &count, &all->calls[i]);
        if (all->calls[i].limit_ns < until_ns)
            until_ns = all->calls[i].limit_ns;
    }
    now_ns = tri_now_ns();
    if (until_ns > now_ns + (all->is->broken ? BROKEN_NS : TRI_WAIT_SLICE_NS))
        until_ns = now_ns + (all->is->broken ? BROKEN_NS : TRI_WAIT_SLICE_NS);
    poll(all->polls, count, until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / TRI_NS_PER_MS) + 1);
}

#define LATE_NBYTES 512

/* Why a peer has no link yet; NULL: it has one, or needs none. */
static const char *late_why(const meeting *all, int peer)
{
    if (!is_expected(all->is, peer) || tri_met_is_complete(&all->met[peer]))
        return NULL;
    if (peer >= all->is->rank)
        return "has not called";
    return all->dials[peer].why[0] ? all->dials[peer].why : "does not answer";
}

/* "rank 1 does not answer; rank 2 has not called" */
static void late_write(const meeting *all, char text[LATE_NBYTES])
{
    size_t used = 0;

    text[0] = 0;
    for (int peer = 0; peer < all->is->world && used < LATE_NBYTES - 1; peer++) {
        const char *why = late_why(all, peer);

        if (why == NULL)
            continue;
        used += (size_t)snprintf(text + used, LATE_NBYTES - used, "%srank %d %s", used ? "; " : "", peer, why);
        if (used > LATE_NBYTES - 1)
            used = LATE_NBYTES - 1;
    }
}

/* Where ranks come and go, the membership decides what a stop signal does. */
static tri_status meeting_check(meeting *all, tri_wait *wait, int64_t now_ns, int64_t deadline_ns)
{
    char late[LATE_NBYTES];

    if (all->is->broken && atomic_load(all->is->broken))
        return tri_fail(TRI_EPEER, "%s: a rank has ended before rank %d was linked to all", all->is->name,
                        all->is->rank);
    if (!all->is->broken)
        TRI_TRY(tri_wait_check("connecting to the other ranks"));
    if (now_ns >= deadline_ns) {
        for (int peer = 0; all->is->late && peer < all->is->world; peer++)
            if (late_why(all, peer))
                all->is->late(all->is->arg, peer, late_why(all, peer));
        late_write(all, late);
        return tri_fail(TRI_ETIMEOUT, "%s: rank %d is not linked to all within %lld s: %s", all->is->name,
                        all->is->rank, tri_wait_limit_s(wait, deadline_ns), late);
    }
    if (tri_wait_is_long(wait)) {
        late_write(all, late);
        tri_log(TRI_LOG_WARN, "%s: rank %d of %d waits for connections: %s", all->is->name, all->is->rank,
                all->is->world, late);
    }
    return TRI_OK;
}

static tri_status meeting_run(meeting *all, int64_t deadline_ns)
{
    tri_wait wait;

    tri_wait_begin(&wait);
    for (;;) {
        int64_t now_ns = tri_now_ns();
        bool complete = true;

        for (int peer = 0; peer < all->is->rank; peer++) {
            if (is_expected(all->is, peer))
                TRI_TRY(tri_dial_advance(all->is, &all->dials[peer], &all->met[peer], now_ns));
        }
        for (int i = 0; i < all->is->listener_count; i++)
            calls_accept(all, all->is->listeners[i], now_ns);
        TRI_TRY(calls_advance(all, now_ns));
        for (int peer = 0; peer < all->is->world; peer++)
            complete &= !is_expected(all->is, peer) || tri_met_is_complete(&all->met[peer]);
        if (complete)
            return TRI_OK;
        TRI_TRY(meeting_check(all, &wait, now_ns, deadline_ns));
        meeting_wait(all, deadline_ns);
    }
}

tri_status tri_meeting_hold(const tri_meeting *is, int64_t deadline_ns, tri_met **out)
{
    size_t world = (size_t)is->world, rank = (size_t)is->rank;
    tri_met *met = tri_alloc_zero(world, sizeof *met);
    meeting all = {.is = is, .met = met, .call_limit = TRI_STRANDS_MAX * world + STRANGERS};
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    for (size_t i = 0; met && i < world; i++) {
        met[i].memory_fd = -1;
        for (int strand = 0; strand < TRI_STRANDS_MAX; strand++)
            met[i].fds[strand] = -1;
    }
    all.dials = tri_alloc_zero(rank + 1, sizeof *all.dials);
    all.calls = tri_alloc_zero(all.call_limit, sizeof *all.calls);
    all.polls = tri_alloc_zero((size_t)is->listener_count + TRI_STRANDS_MAX * rank + all.call_limit, sizeof *all.polls);
    if (met && all.dials && all.calls && all.polls) {
        for (size_t i = 0; i < rank; i++)
            tri_dial_init(&all.dials[i], (int)i);
        status = meeting_run(&all, deadline_ns);
        for (size_t i = 0; i < rank; i++)
            tri_dial_fini(&all.dials[i]);
        for (size_t i = 0; i < all.call_count; i++)
            tri_talk_drop(&all.calls[i], "");
    }
    for (size_t i = 0; met && status != TRI_OK && i < world; i++)
        tri_met_close(&met[i]);
    tri_free(all.dials);
    tri_free(all.calls);
    tri_free(all.polls);
    if (status == TRI_OK)
        *out = met;
    else
        tri_free(met);
    return status;
}
