/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.c: the rendezvous of ranks: one poll loop over the listeners, the peers dialed, and whoever calls.
 *
 * Invariant: a listener takes a link as made only when the third hello has come, so a caller that gave up in between
 * and dials again replaces its earlier try.
 */
#include "net/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/wait.h"
#include "net/crowd.h"
#include "net/dial.h"
#include "net/tcp_address.h"

#define CALL_LIMIT_NS (5 * TRI_NS_PER_S)
#define BROKEN_NS     (5 * TRI_NS_PER_MS)   /* between two looks at whether it cannot succeed */
#define STRANGERS     64                    /* callers beyond the world that may talk at once */
#define ACCEPT_LIMIT  256                   /* at a time: those that have called get their turn, too */
#define ACCEPT_NS     (100 * TRI_NS_PER_MS) /* until the next accept() where there are no descriptors */

typedef struct rendezvous_call {
    tri_caller caller;
    net_handshake handshake;
    struct rendezvous_call *next_free;
} rendezvous_call;

typedef struct rendezvous {
    const tri_rendezvous *is;
    tri_connected_peer *connected;
    net_dial *dials;                     /* [rank]: the lower ones */
    rendezvous_call *calls, *free_calls; /* [crowd.limit], and those that are not in the crowd */
    tri_crowd crowd;
    int64_t accept_after_ns;
    struct pollfd *polls;
} rendezvous;

static bool is_expected(const tri_rendezvous *is, int peer)
{
    return peer != is->rank && is->addresses[peer];
}

static void call_end(rendezvous *all, rendezvous_call *call)
{
    tri_handshake_drop(&call->handshake, "");
    tri_crowd_remove(&all->crowd, &call->caller);
    call->next_free = all->free_calls;
    all->free_calls = call;
}

static rendezvous_call *call_of(tri_caller *caller)
{
    return tri_container_of(caller, rendezvous_call, caller);
}

/* Takes the socket. */
static void call_begin(rendezvous *all, int fd, uint64_t from, int64_t now_ns)
{
    rendezvous_call *call;
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
    tri_handshake_answer(&call->handshake, fd, now_ns + CALL_LIMIT_NS);
    tri_crowd_add(&all->crowd, &call->caller, from, now_ns);
}

static void calls_accept(rendezvous *all, int listener, int64_t now_ns)
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

static tri_status calls_advance(rendezvous *all, int64_t now_ns)
{
    tri_caller *next;
    int64_t next_ns;

    for (tri_caller *caller = all->crowd.all.first; caller; caller = next) {
        net_handshake *handshake = &call_of(caller)->handshake;
        tri_status status = TRI_OK;

        next = caller->next[TRI_IN_CROWD];
        tri_handshake_advance(all->is, handshake);
        caller->has_spoken = handshake->step > 1;
        if (handshake->stage == HANDSHAKE_DONE)
            status = tri_connected_peer_take(all->is, handshake, &all->connected[handshake->peer]);
        else if (handshake->stage != HANDSHAKE_IDLE && now_ns < handshake->limit_ns)
            continue;
        call_end(all, call_of(caller));
        TRI_TRY(status);
    }
    while ((next = tri_crowd_silent(&all->crowd, now_ns, &next_ns)) != NULL)
        call_end(all, call_of(next));
    return TRI_OK;
}

static void poll_add(rendezvous *all, nfds_t *count, const net_handshake *handshake)
{
    if (handshake->fd >= 0)
        all->polls[(*count)++] =
            (struct pollfd){.fd = handshake->fd, .events = handshake->stage == HANDSHAKE_RECEIVE ? POLLIN : POLLOUT};
}

/* Waits until something can continue. */
static void rendezvous_wait(rendezvous *all, int64_t until_ns)
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
        for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++)
            poll_add(all, &count, &all->dials[peer].handshakes[i]);
        if (tri_dial_next_ns(&all->dials[peer]) < until_ns)
            until_ns = tri_dial_next_ns(&all->dials[peer]);
    }
    for (tri_caller *caller = all->crowd.all.first; caller; caller = caller->next[TRI_IN_CROWD]) {
        const net_handshake *handshake = &call_of(caller)->handshake;

        poll_add(all, &count, handshake);
        until_ns = handshake->limit_ns < until_ns ? handshake->limit_ns : until_ns;
    }
    if (until_ns > now_ns + (all->is->broken ? BROKEN_NS : TRI_WAIT_SLICE_NS))
        until_ns = now_ns + (all->is->broken ? BROKEN_NS : TRI_WAIT_SLICE_NS);
    poll(all->polls, count, until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / TRI_NS_PER_MS) + 1);
}

#define LATE_NBYTES 512

/* Why a peer has no link yet; NULL: it has one, or needs none. */
static const char *late_why(const rendezvous *all, int peer)
{
    if (!is_expected(all->is, peer) || tri_connected_peer_is_complete(&all->connected[peer]))
        return NULL;
    if (peer >= all->is->rank)
        return "has not called";
    return all->dials[peer].why[0] ? all->dials[peer].why : "does not answer";
}

/* "rank 1 does not answer; rank 2 has not called" */
static void late_write(const rendezvous *all, char text[LATE_NBYTES])
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
static tri_status rendezvous_check(rendezvous *all, tri_wait *wait, int64_t now_ns, int64_t deadline_ns)
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

static tri_status rendezvous_run(rendezvous *all, int64_t deadline_ns)
{
    tri_wait wait;

    tri_wait_begin(&wait);
    for (;;) {
        int64_t now_ns = tri_now_ns();
        bool complete = true;

        for (int peer = 0; peer < all->is->rank; peer++) {
            if (is_expected(all->is, peer))
                TRI_TRY(tri_dial_advance(all->is, &all->dials[peer], &all->connected[peer], now_ns));
        }
        for (int i = 0; i < all->is->listener_count && now_ns >= all->accept_after_ns; i++)
            calls_accept(all, all->is->listeners[i], now_ns);
        TRI_TRY(calls_advance(all, now_ns));
        for (int peer = 0; peer < all->is->world; peer++)
            complete &= !is_expected(all->is, peer) || tri_connected_peer_is_complete(&all->connected[peer]);
        if (complete)
            return TRI_OK;
        TRI_TRY(rendezvous_check(all, &wait, now_ns, deadline_ns));
        rendezvous_wait(all, deadline_ns);
    }
}

static bool rendezvous_init(rendezvous *all, const tri_rendezvous *is)
{
    size_t world = (size_t)is->world, rank = (size_t)is->rank;

    *all = (rendezvous){.is = is};
    /* A single host may have all ranks but this one: their connections are an address's share. */
    tri_crowd_init(&all->crowd, 2 * TRI_LINK_SOCKETS_MAX * is->world + STRANGERS);
    all->connected = tri_alloc_zero(world, sizeof *all->connected);
    all->dials = tri_alloc_zero(rank + 1, sizeof *all->dials);
    all->calls = tri_alloc_zero((size_t)all->crowd.limit, sizeof *all->calls);
    all->polls = tri_alloc_zero((size_t)is->listener_count + TRI_LINK_SOCKETS_MAX * rank + (size_t)all->crowd.limit,
                                sizeof *all->polls);
    if (!all->connected || !all->dials || !all->calls || !all->polls)
        return false;
    for (size_t i = 0; i < world; i++) {
        all->connected[i].memory_fd = -1;
        for (int socket = 0; socket < TRI_LINK_SOCKETS_MAX; socket++)
            all->connected[i].fds[socket] = -1;
    }
    for (size_t i = 0; i < rank; i++)
        tri_dial_init(&all->dials[i], (int)i);
    for (int i = all->crowd.limit; i-- > 0;) {
        all->calls[i].next_free = all->free_calls;
        all->free_calls = &all->calls[i];
    }
    return true;
}

tri_status tri_rendezvous_run(const tri_rendezvous *is, int64_t deadline_ns, tri_connected_peer **out)
{
    rendezvous all;
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (rendezvous_init(&all, is)) {
        status = rendezvous_run(&all, deadline_ns);
        for (int i = 0; i < is->rank; i++)
            tri_dial_fini(&all.dials[i]);
        while (all.crowd.all.first)
            call_end(&all, call_of(all.crowd.all.first));
        for (int i = 0; status != TRI_OK && i < is->world; i++)
            tri_connected_peer_close(&all.connected[i]);
    }
    tri_free(all.dials);
    tri_free(all.calls);
    tri_free(all.polls);
    if (status == TRI_OK)
        *out = all.connected;
    else
        tri_free(all.connected);
    return status;
}
