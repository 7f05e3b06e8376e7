/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_wait.c: waiting for the sockets of any links, and finding out that one of them is cut.
 *
 * Where ranks have cores of their own it looks for a while before it sleeps: waking up takes longer than a message.
 * After the first microseconds it yields between two looks; when a look takes long somebody else needs the core, and
 * for a while it sleeps after the first microseconds, or at once where these have not paid of late.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/runtime.h"
#include "net/tcp_impl.h"

#define CROWDED_TURN_NS  (250 * INT64_C(1000))
#define CROWDED_LIMIT_NS (10 * TRI_NS_PER_MS)
#define HOT_LEAST_NS     INT64_C(100)
#define SPIN_READS       4 /* links that are read while spinning; more are polled */

/* What to ask of a socket; 0: nothing. Every socket of a wanted link is asked whether it is still there. */
static short events_of(const tcp_link *link, unsigned char want, int socket)
{
    bool reads = (want & TRI_WANT_READ) && socket == tri_tcp_socket(link, link->read);
    bool writes = (want & TRI_WANT_WRITE) && socket == tri_tcp_socket(link, link->written);
    /* What is known to be cut would wake at once, again and again; the end of what is read is read. */
    bool stands = !reads && !link->hung[socket];

    return (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0) | (stands ? POLLRDHUP : 0));
}

static nfds_t polls_fill(tcp_transport *tcp, const unsigned char *want)
{
    nfds_t count = 0;

    tcp->polls[count++] = (struct pollfd){.fd = tcp->wake_fd, .events = POLLIN};
    for (int peer = 0; peer < tcp->base.world; peer++) {
        const tcp_link *link = &tcp->links[peer];

        for (int socket = 0; want[peer] && socket < link->sockets; socket++) {
            short events = events_of(link, want[peer], socket);

            if (events != 0)
                tcp->polls[count++] = (struct pollfd){.fd = link->fds[socket], .events = events};
        }
    }
    return count;
}

/* After a poll: notes the sockets that were closed, in the order in which they were asked. */
static void hung_note(tcp_transport *tcp, const unsigned char *want)
{
    nfds_t index = 1;

    for (int peer = 0; peer < tcp->base.world; peer++) {
        tcp_link *link = &tcp->links[peer];

        for (int socket = 0; want[peer] && socket < link->sockets; socket++) {
            if (events_of(link, want[peer], socket) == 0)
                continue;
            if (tcp->polls[index++].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
                link->hung[socket] = true;
                if (link->hung_ns == 0)
                    link->hung_ns = tri_now_ns();
            }
        }
    }
}

static tri_status sockets_poll(tcp_transport *tcp, const unsigned char *want, int64_t limit_ns, bool *ready)
{
    nfds_t count = polls_fill(tcp, want);
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / TRI_NS_PER_S), .tv_nsec = (long)(limit_ns % TRI_NS_PER_S)};
    int found = ppoll(tcp->polls, count, &limit, NULL);

    if (found > 0 && tcp->polls[0].revents) {
        uint64_t rung;

        (void)!read(tcp->wake_fd, &rung, sizeof rung);
    }
    *ready = found > 0;
    if (found < 0 && errno != EINTR)
        return tri_fail(TRI_EIO, "tcp: cannot wait: %s", strerror(errno));
    if (found > 0)
        hung_note(tcp, want);
    return TRI_OK;
}

static bool tls_has_bytes(const tcp_link *link)
{
    const tri_tls *tls = link->tls[tri_tcp_socket(link, link->read)];

    return tls && tri_tls_has_bytes(tls);
}

/* Is something there already? `reads`: how many links are only to be read, -1: one is to be written. */
static bool is_buffered(const tcp_transport *tcp, const unsigned char *want, int *reads)
{
    *reads = 0;
    for (int peer = 0; peer < tcp->base.world; peer++) {
        const tcp_link *link = &tcp->links[peer];

        if (!want[peer] || link->sockets == 0)
            continue;
        if ((want[peer] & TRI_WANT_READ) && (link->count > 0 || tls_has_bytes(link)))
            return true;
        if (want[peer] & TRI_WANT_WRITE)
            *reads = -1;
        else if (*reads >= 0)
            ++*reads;
    }
    return false;
}

/* Takes what has come into the buffers; true also when a link turns out to be gone, which the reader will find. */
static bool links_look(tcp_transport *tcp, const unsigned char *want)
{
    for (int peer = 0; peer < tcp->base.world; peer++) {
        tcp_link *link = &tcp->links[peer];
        size_t given;

        if (want[peer] && link->sockets > 0 && (tri_tcp_buffer_fill(link, peer, &given) != TRI_OK || given > 0))
            return true;
    }
    return false;
}

/* The first part without yielding pays only where the answer comes soon: it grows when it does and shrinks when not. */
static void hot_learn(tcp_transport *tcp, int64_t took_ns, bool ready)
{
    int64_t next_ns = ready && took_ns < 2 * tcp->hot_ns ? 2 * tcp->hot_ns : tcp->hot_ns / 2;

    tcp->hot_ns = next_ns < HOT_LEAST_NS ? HOT_LEAST_NS : next_ns > TRI_TCP_HOT_NS ? TRI_TCP_HOT_NS : next_ns;
}

static tri_status spin(tcp_transport *tcp, const unsigned char *want, int reads, int64_t deadline_ns, bool *ready)
{
    int64_t began_ns = tri_now_ns(), now_ns = began_ns;
    bool crowded = now_ns < tcp->crowded_ns;
    int64_t until_ns = began_ns + (crowded ? tcp->hot_ns : tcp->spin_ns);

    *ready = false;
    if (tcp->spin_ns == 0 || (crowded && tcp->hot_ns == HOT_LEAST_NS))
        return TRI_OK;
    until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
    while (now_ns < until_ns) {
        int64_t before_ns = now_ns;

        if (reads < 0 || reads > SPIN_READS)
            TRI_TRY(sockets_poll(tcp, want, 0, ready));
        else
            *ready = links_look(tcp, want);
        if (*ready)
            break;
        if (now_ns - began_ns >= tcp->hot_ns)
            tri_yield();
        now_ns = tri_now_ns();
        if (now_ns - before_ns > CROWDED_TURN_NS) { /* others ran */
            tcp->crowded_ns = now_ns + CROWDED_LIMIT_NS;
            break;
        }
    }
    hot_learn(tcp, now_ns - began_ns, *ready);
    return TRI_OK;
}

tri_status tri_tcp_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    tcp_transport *tcp = (tcp_transport *)transport;
    int64_t left_ns;
    int reads;
    bool ready;

    if (is_buffered(tcp, want, &reads))
        return TRI_OK;
    TRI_TRY(spin(tcp, want, reads, deadline_ns, &ready));
    if (ready)
        return TRI_OK;
    for (int peer = 0; peer < transport->world; peer++) {
        int64_t hung_ns = tcp->links[peer].hung_ns;

        if (want[peer] && hung_ns != 0 && hung_ns + TRI_TCP_HUNG_LIMIT_NS < deadline_ns)
            deadline_ns = hung_ns + TRI_TCP_HUNG_LIMIT_NS;
    }
    left_ns = deadline_ns - tri_now_ns();
    return sockets_poll(tcp, want, left_ns > 0 ? left_ns : 0, &ready);
}
