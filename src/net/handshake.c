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
#include "net/crowd.h"
#include "net/dial.h"
#include "net/tcp_address.h"

#define CALL_LIMIT_NS (5 * TRI_NS_PER_S)
#define BROKEN_NS     (5 * TRI_NS_PER_MS)   /* between two looks at whether it is in vain */
#define STRANGERS     64                    /* callers beyond the world that may talk at once */
#define ACCEPT_LIMIT  256                   /* at a time: those that have called get their turn, too */
#define ACCEPT_NS     (100 * TRI_NS_PER_MS) /* until the next accept() where there are no descriptors */

typedef struct meeting_call {
    tri_caller caller;
    net_talk talk;
    struct meeting_call *next_free;
} meeting_call;

typedef struct meeting {
    const tri_meeting *is;
    tri_met *met;
    net_dial *dials;                  /* [rank]: the lower ones */
    meeting_call *calls, *free_calls; /* [crowd.limit], and those that are not in the crowd */
    tri_crowd crowd;
    int64_t accept_after_ns;
    struct pollfd *polls;
} meeting;

static bool is_expected(const tri_meeting *is, int peer)
{
    return peer != is->rank && is->addresses[peer];
}

static void call_end(meeting *all, meeting_call *call)
{
    tri_talk_drop(&call->talk, "");
    tri_crowd_remove(&all->crowd, &call->caller);
    call->next_free = all->free_calls;
    all->free_calls = call;
}

static meeting_call *call_of(tri_caller *caller)
{
    return tri_container_of(caller, meeting_call, caller);
}

/* Takes the socket. */
static void call_begin(meeting *all, int fd, uint64_t from, int64_t now_ns)
{
    meeting_call *call;
    tri_caller *leaves;

    if ((all->is->trusts && !all->is->trusts(all->is->arg, fd)) ||
        !tri_crowd_admits(&all->crowd, from, now_ns, &leaves)) {
        close(fd);
        return;
    }
    if (leaves)
        call_end(all, call_of(leaves));
    call = all->free_calls;
    all->free_calls = call->next_free;
    tri_talk_answer(&call->talk, fd, now_ns + CALL_LIMIT_NS);
    tri_crowd_add(&all->crowd, &call->caller, from, now_ns);
}

static void calls_accept(meeting *all, int listener, int64_t now_ns)
{
    for (int left = ACCEPT_LIMIT; left > 0; left--) {
        tri_tcp_place from = {.any = {.sa_family = AF_UNSPEC}};
        socklen_t nbytes = sizeof from;
        int fd = accept4(listener, &from.any, &nbytes, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            all->accept_after_ns = now_ns + ACCEPT_NS;
        if (fd < 0)
            return;
        call_begin(all, fd, tri_caller_address(&from.any), now_ns);
    }
}

static tri_status calls_advance(meeting *all, int64_t now_ns)
{
    tri_caller *next;
    int64_t next_ns;

    for (tri_caller *caller = all->crowd.all.first; caller; caller = next) {
        net_talk *talk = &call_of(caller)->talk;
        tri_status status = TRI_OK;

        next = caller->next[TRI_IN_CROWD];
        tri_talk_advance(all->is, talk);
        caller->has_spoken = talk->step > 1;
        if (talk->stage == TALK_DONE)
            status = tri_met_take(all->is, talk, &all->met[talk->peer]);
        else if (talk->stage != TALK_IDLE && now_ns < talk->limit_ns)
            continue;
        call_end(all, call_of(caller));
        TRI_TRY(status);
    }
    while ((next = tri_crowd_silent(&all->crowd, now_ns, &next_ns)) != NULL)
        call_end(all, call_of(next));
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
    int64_t now_ns = tri_now_ns(), next_ns;

    (void)tri_crowd_silent(&all->crowd, now_ns, &next_ns);
    until_ns = next_ns < until_ns ? next_ns : until_ns;
    if (all->accept_after_ns > now_ns)
        until_ns = all->accept_after_ns < until_ns ? all->accept_after_ns : until_ns;
    for (int i = 0; i < all->is->listener_count && all->accept_after_ns <= now_ns; i++)
        all->polls[count++] = (struct pollfd){.fd = all->is->listeners[i], .events = POLLIN};
    for (int peer = 0; peer < all->is->rank; peer++) {
        if (!is_expected(all->is, peer))
            continue;
        for (int i = 0; i < TRI_STRANDS_MAX; i++)
            poll_add(all, &count, &all->dials[peer].talks[i]);
        if (tri_dial_next_ns(&all->dials[peer]) < until_ns)
            until_ns = tri_dial_next_ns(&all->dials[peer]);
    }
    for (tri_caller *caller = all->crowd.all.first; caller; caller = caller->next[TRI_IN_CROWD]) {
        const net_talk *talk = &call_of(caller)->talk;

        poll_add(all, &count, talk);
        until_ns = talk->limit_ns < until_ns ? talk->limit_ns : until_ns;
    }
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
        for (int i = 0; i < all->is->listener_count && now_ns >= all->accept_after_ns; i++)
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

static bool meeting_init(meeting *all, const tri_meeting *is)
{
    size_t world = (size_t)is->world, rank = (size_t)is->rank;

    *all = (meeting){.is = is};
    /* A single host may have all ranks but this one: their connections are an address's share. */
    tri_crowd_init(&all->crowd, 2 * TRI_STRANDS_MAX * is->world + STRANGERS);
    all->met = tri_alloc_zero(world, sizeof *all->met);
    all->dials = tri_alloc_zero(rank + 1, sizeof *all->dials);
    all->calls = tri_alloc_zero((size_t)all->crowd.limit, sizeof *all->calls);
    all->polls = tri_alloc_zero((size_t)is->listener_count + TRI_STRANDS_MAX * rank + (size_t)all->crowd.limit,
                                sizeof *all->polls);
    if (!all->met || !all->dials || !all->calls || !all->polls)
        return false;
    for (size_t i = 0; i < world; i++) {
        all->met[i].memory_fd = -1;
        for (int strand = 0; strand < TRI_STRANDS_MAX; strand++)
            all->met[i].fds[strand] = -1;
    }
    for (size_t i = 0; i < rank; i++)
        tri_dial_init(&all->dials[i], (int)i);
    for (int i = all->crowd.limit; i-- > 0;) {
        all->calls[i].next_free = all->free_calls;
        all->free_calls = &all->calls[i];
    }
    return true;
}

tri_status tri_meeting_hold(const tri_meeting *is, int64_t deadline_ns, tri_met **out)
{
    meeting all;
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (meeting_init(&all, is)) {
        status = meeting_run(&all, deadline_ns);
        for (int i = 0; i < is->rank; i++)
            tri_dial_fini(&all.dials[i]);
        while (all.crowd.all.first)
            call_end(&all, call_of(all.crowd.all.first));
        for (int i = 0; status != TRI_OK && i < is->world; i++)
            tri_met_close(&all.met[i]);
    }
    tri_free(all.dials);
    tri_free(all.calls);
    tri_free(all.polls);
    if (status == TRI_OK)
        *out = all.met;
    else
        tri_free(all.met);
    return status;
}
