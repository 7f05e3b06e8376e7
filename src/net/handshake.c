/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.c: the meeting of ranks: one poll loop over a listener, the peers dialed, and whoever calls.
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

#include "base/memory.h"
#include "base/runtime.h"
#include "net/talk.h"

#define TALK_LIMIT_NS (5 * TRI_NS_PER_S)
#define DIAL_PAUSE_NS (50 * TRI_NS_PER_MS)
#define STRANGERS     64 /* callers beyond the world that may talk at once */

typedef struct meeting {
    const tri_meeting *is;
    tri_met *met;
    net_talk *dials; /* [world] */
    net_talk *calls; /* [call_count] */
    size_t call_count, call_limit;
    struct pollfd *polls;
} meeting;

static bool is_expected(const tri_meeting *is, int peer)
{
    return peer != is->rank && is->addresses[peer];
}

static void dial_start(const meeting *all, net_talk *talk, int64_t now_ns)
{
    tri_meeting_place place;

    if (!all->is->find(all->is->arg, all->is->addresses[talk->peer], talk->attempt, &place)) {
        talk->attempt = 0;
        talk->limit_ns = now_ns + DIAL_PAUSE_NS;
        return;
    }
    talk->attempt++;
    talk->fd = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (talk->fd < 0 ||
        (connect(talk->fd, (const struct sockaddr *)&place.address, place.nbytes) != 0 && errno != EINPROGRESS)) {
        tri_talk_drop(talk, strerror(errno));
        return;
    }
    talk->stage = TALK_CONNECT;
    talk->limit_ns = now_ns + TALK_LIMIT_NS;
}

static void dial_connected(const meeting *all, net_talk *talk)
{
    int error = 0;
    socklen_t nbytes = sizeof error;

    if (getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0)
        error = errno;
    if (error != 0) {
        tri_talk_drop(talk, strerror(error));
        return;
    }
    if (all->is->trusts && !all->is->trusts(all->is->arg, talk->fd)) {
        tri_talk_drop(talk, "belongs to another user");
        return;
    }
    tri_entropy(talk->nonces[0], TRI_TALK_NONCE_NBYTES);
    tri_talk_send_start(all->is, talk, 1);
}

static void call_remove(meeting *all, size_t index)
{
    all->calls[index] = all->calls[--all->call_count];
}

static void calls_accept(meeting *all, int64_t now_ns)
{
    for (;;) {
        int fd = accept4(all->is->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        net_talk *talk;

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
        talk = &all->calls[all->call_count++];
        memset(talk, 0, sizeof *talk);
        talk->fd = fd;
        talk->memory_fd = -1;
        talk->peer = -1;
        talk->limit_ns = now_ns + TALK_LIMIT_NS;
        tri_entropy(talk->nonces[1], TRI_TALK_NONCE_NBYTES);
        tri_talk_receive_start(talk, 1);
    }
}

static void met_take(meeting *all, net_talk *talk)
{
    tri_met *met = &all->met[talk->peer];

    if (met->fd >= 0)
        close(met->fd);
    if (met->memory_fd >= 0)
        close(met->memory_fd);
    *met = (tri_met){.fd = talk->fd, .memory_fd = talk->memory_fd, .slot_kib = talk->slot_kib};
    talk->fd = talk->memory_fd = -1;
}

static void calls_advance(meeting *all, int64_t now_ns)
{
    for (size_t i = all->call_count; i-- > 0;) {
        net_talk *talk = &all->calls[i];

        tri_talk_advance(all->is, talk);
        if (talk->stage == TALK_DONE)
            met_take(all, talk);
        else if (talk->stage != TALK_IDLE && now_ns < talk->limit_ns)
            continue;
        tri_talk_drop(talk, "");
        call_remove(all, i);
    }
}

/* `writable`: what poll said of a socket that is being connected. */
static tri_status dial_advance(meeting *all, net_talk *talk, bool writable, int64_t now_ns)
{
    if (talk->stage == TALK_DONE)
        return TRI_OK;
    if (talk->stage == TALK_CONNECT && writable)
        dial_connected(all, talk);
    tri_talk_advance(all->is, talk);
    if (talk->stage == TALK_DONE) {
        met_take(all, talk);
        return TRI_OK;
    }
    if (talk->stage != TALK_IDLE && now_ns >= talk->limit_ns)
        tri_talk_drop(talk, "does not answer");
    while (talk->stage == TALK_IDLE && now_ns >= talk->limit_ns) {
        bool first = talk->attempt == 0;

        dial_start(all, talk, now_ns);
        if (!first && talk->attempt == 0 && talk->refused)
            return tri_fail(TRI_EPEER, "%s: rank %d does not know the token of this job", all->is->name, talk->peer);
    }
    return TRI_OK;
}

/* Waits until something can go on. */
static void meeting_wait(meeting *all, int64_t until_ns)
{
    nfds_t count = 0;
    int64_t now_ns;

    all->polls[count++] = (struct pollfd){.fd = all->is->listener, .events = POLLIN};
    for (size_t i = 0; i < (size_t)all->is->world + all->call_count; i++) {
        const net_talk *talk = i < (size_t)all->is->world ? &all->dials[i] : &all->calls[i - (size_t)all->is->world];
        bool reads = talk->stage == TALK_RECEIVE;

        if (talk->fd >= 0)
            all->polls[count++] = (struct pollfd){.fd = talk->fd, .events = reads ? POLLIN : POLLOUT};
        if (talk->limit_ns < until_ns && talk->stage != TALK_DONE && talk->peer != all->is->rank)
            until_ns = talk->limit_ns;
    }
    now_ns = tri_now_ns();
    if (until_ns > now_ns + TRI_NS_PER_S)
        until_ns = now_ns + TRI_NS_PER_S;
    poll(all->polls, count, until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / TRI_NS_PER_MS) + 1);
}

/* Did the last poll find this socket ready? */
static bool is_writable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};

    return fd >= 0 && poll(&one, 1, 0) > 0;
}

static tri_status meeting_late(const meeting *all)
{
    char text[512];
    size_t used = 0;

    text[0] = 0;
    for (int peer = 0; peer < all->is->world && used < sizeof text - 1; peer++) {
        const char *why = "has not called";

        if (!is_expected(all->is, peer) || all->met[peer].fd >= 0)
            continue;
        if (peer < all->is->rank)
            why = all->dials[peer].why[0] ? all->dials[peer].why : "does not answer";
        used += (size_t)snprintf(text + used, sizeof text - used, "%srank %d %s", used ? "; " : "", peer, why);
        if (used > sizeof text - 1)
            used = sizeof text - 1;
    }
    return tri_fail(TRI_ETIMEOUT, "%s: rank %d is not linked to all in time: %s", all->is->name, all->is->rank, text);
}

static tri_status meeting_run(meeting *all, int64_t deadline_ns)
{
    for (;;) {
        int64_t now_ns = tri_now_ns();
        bool complete = true;

        for (int peer = 0; peer < all->is->rank; peer++) {
            if (is_expected(all->is, peer))
                TRI_TRY(dial_advance(all, &all->dials[peer],
                                     all->dials[peer].stage == TALK_CONNECT && is_writable(all->dials[peer].fd),
                                     now_ns));
        }
        calls_accept(all, now_ns);
        calls_advance(all, now_ns);
        for (int peer = 0; peer < all->is->world; peer++)
            complete &= !is_expected(all->is, peer) || all->met[peer].fd >= 0;
        if (complete)
            return TRI_OK;
        if (now_ns >= deadline_ns)
            return meeting_late(all);
        meeting_wait(all, deadline_ns);
    }
}

tri_status tri_meeting_hold(const tri_meeting *is, int64_t deadline_ns, tri_met **out)
{
    size_t world = (size_t)is->world;
    tri_met *met = tri_alloc_zero(world, sizeof *met);
    meeting all = {.is = is, .met = met, .call_limit = world + STRANGERS};
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    for (size_t i = 0; met && i < world; i++)
        met[i] = (tri_met){.fd = -1, .memory_fd = -1};
    all.dials = tri_alloc_zero(world, sizeof *all.dials);
    all.calls = tri_alloc_zero(all.call_limit, sizeof *all.calls);
    all.polls = tri_alloc_zero(1 + world + all.call_limit, sizeof *all.polls);
    if (met && all.dials && all.calls && all.polls) {
        for (size_t i = 0; i < world; i++) {
            all.dials[i].fd = all.dials[i].memory_fd = -1;
            all.dials[i].dialed = true;
            all.dials[i].peer = (int)i;
            all.dials[i].limit_ns = (int)i < is->rank && is_expected(is, (int)i) ? 0 : TRI_FOREVER;
        }
        status = meeting_run(&all, deadline_ns);
        for (size_t i = 0; i < world; i++)
            tri_talk_drop(&all.dials[i], "");
        for (size_t i = 0; i < all.call_count; i++)
            tri_talk_drop(&all.calls[i], "");
    }
    for (size_t i = 0; met && status != TRI_OK && i < world; i++) {
        if (met[i].fd >= 0)
            close(met[i].fd);
        if (met[i].memory_fd >= 0)
            close(met[i].memory_fd);
    }
    tri_free(all.dials);
    tri_free(all.calls);
    tri_free(all.polls);
    if (status == TRI_OK)
        *out = met;
    else
        tri_free(met);
    return status;
}
