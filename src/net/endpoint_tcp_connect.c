/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_tcp_connect.c: how two ends of a connection prove to each other that they know the token: who calls, and who
 * is called.
 *
 * The hellos of the rendezvous of ranks (handshake.h), between the caller as rank 1 and the listener as rank 0 of a
 * crowd that nobody has counted. A stranger costs a fixed number of bytes and its time is limited; of too many the
 * oldest go.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/dial.h"
#include "net/endpoint_tcp_impl.h"
#include "net/tcp_rendezvous.h"

#define STRANGER_NS     (5 * TRI_NS_PER_S)
#define STRANGER_LIMIT  256
#define ACCEPT_LIMIT    256 /* at a time: those who are proven get their turn too */
#define ACCEPT_AGAIN_NS (100 * TRI_NS_PER_MS)

_Static_assert(sizeof(tcp_stranger) <= 1024, "docs/formats/wire.md says so");

#define LISTENER 0
#define CALLER   1

static tri_rendezvous rendezvous_of(const tcp_endpoint *tcp, int rank)
{
    return (tri_rendezvous){.name = tcp->base.name,
                            .rank = rank,
                            .world = TRI_RENDEZVOUS_CROWD,
                            .token = tcp->base.token,
                            .memory_fd = -1,
                            .marks = tcp->tls ? TRI_MARK_ENCRYPTED : 0};
}

static void place_print(const tri_tcp_place *place, char text[TRI_ENDPOINT_FROM_NBYTES])
{
    char address[INET6_ADDRSTRLEN];

    tri_tcp_place_print(place, address);
    snprintf(text, TRI_ENDPOINT_FROM_NBYTES, "%s/%u", address,
             (unsigned)ntohs(place->any.sa_family == AF_INET ? place->four.sin_port : place->six.sin6_port));
}

/* ---- who calls */

static void stranger_destroy(tcp_endpoint *tcp, tcp_stranger *stranger)
{
    tri_tls_close(stranger->tls);
    if (stranger->handshake.fd >= 0)
        tri_endpoint_tcp_close(tcp, stranger->handshake.fd);
    stranger->handshake.fd = -1;
    tri_handshake_drop(&stranger->handshake, "");
    if (stranger->fd >= 0)
        tri_endpoint_tcp_close(tcp, stranger->fd);
    tri_endpoint_node_remove(&stranger->all);
    tri_crowd_remove(&tcp->crowd, &stranger->caller);
    tri_free(stranger);
}

static void stranger_refuse(tcp_endpoint *tcp, tcp_stranger *stranger, const char *why)
{
    tri_endpoint_warn(&tcp->base, "%s was refused: %s", stranger->from, why);
    stranger_destroy(tcp, stranger);
}

/* Its last hello was right. False: the stranger is gone. */
static bool stranger_proven(tcp_endpoint *tcp, tcp_stranger *stranger)
{
    bool encrypts = stranger->handshake.marks & TRI_MARK_ENCRYPTED;

    stranger->fd = stranger->handshake.fd;
    stranger->handshake.fd = -1;
    if (encrypts != (tcp->tls != NULL)) {
        stranger_refuse(tcp, stranger, encrypts ? "it has comm.encrypt = on" : "it has comm.encrypt = off");
        return false;
    }
    if (tri_tcp_tune(stranger->fd, tcp->base.config.timeout_s) != TRI_OK ||
        (encrypts && tri_tls_open(tcp->tls, stranger->fd, false, stranger->handshake.key, &stranger->tls) != TRI_OK)) {
        stranger_refuse(tcp, stranger, tri_last_error());
        return false;
    }
    return true;
}

void tri_endpoint_tcp_stranger_advance(tcp_endpoint *tcp, tcp_stranger *stranger)
{
    tri_rendezvous is = rendezvous_of(tcp, LISTENER);
    short events;

    if (stranger->fd < 0) {
        tri_handshake_advance(&is, &stranger->handshake);
        stranger->caller.has_spoken = stranger->handshake.step > 1;
        if (stranger->handshake.stage == HANDSHAKE_IDLE) {
            /* Who leaves before a hello is whole was looking for an open port, or has found a nearer place. */
            if (stranger->handshake.done_nbytes == TRI_HELLO_NBYTES)
                stranger_refuse(tcp, stranger, stranger->handshake.why);
            else
                stranger_destroy(tcp, stranger);
            return;
        }
        if (stranger->handshake.stage != HANDSHAKE_DONE || !stranger_proven(tcp, stranger))
            return;
    }
    if (stranger->tls) {
        if (tri_tls_shake(stranger->tls, &events) != TRI_OK) {
            stranger_refuse(tcp, stranger, tri_last_error());
            return;
        }
        if (events != 0)
            return;
    }
    /* It knows the token, and all is encrypted that shall be. */
    tcp_connection *connection;
    tri_status status =
        tri_endpoint_tcp_connection(tcp, stranger->fd, stranger->tls, EPOLL_CTL_MOD, stranger->from, &connection);

    stranger->fd = -1;
    stranger->tls = NULL;
    if (status == TRI_OK)
        tri_connection_accepted(&connection->base);
    else
        tri_endpoint_warn(&tcp->base, "%s was refused: %s", stranger->from, tri_last_error());
    stranger_destroy(tcp, stranger);
}

static void stranger_create(tcp_endpoint *tcp, int fd, const tri_tcp_place *from)
{
    tcp_stranger *stranger = tri_alloc_zero(1, sizeof *stranger);

    if (!stranger) {
        close(fd);
        return;
    }
    stranger->source = SOURCE_STRANGER;
    stranger->fd = -1;
    stranger->limit_ns = tri_now_ns() + STRANGER_NS;
    place_print(from, stranger->from);
    tri_handshake_answer(&stranger->handshake, fd, stranger->limit_ns);
    tri_endpoint_node_append(&tcp->strangers, &stranger->all);
    tri_crowd_add(&tcp->crowd, &stranger->caller, tri_caller_address(&from->any), tri_now_ns());
    if (!tri_endpoint_tcp_watch(tcp, EPOLL_CTL_ADD, fd, TRI_ENDPOINT_TCP_EVENTS, &stranger->source))
        stranger_destroy(tcp, stranger);
}

/* Out of descriptors: not now. */
static void listeners_watch(tcp_endpoint *tcp, uint32_t events)
{
    for (int i = 0; i < tcp->door.count; i++)
        tri_endpoint_tcp_watch(tcp, EPOLL_CTL_MOD, tcp->door.listeners[i], events, &tcp->listener_source);
}

static void accept_later(tcp_endpoint *tcp)
{
    tcp->accept_after_ns = tri_now_ns() + ACCEPT_AGAIN_NS;
    listeners_watch(tcp, 0);
}

/* Makes room for one more stranger. False: it has to call again. */
static bool stranger_fits(tcp_endpoint *tcp, const tri_tcp_place *from)
{
    tri_caller *leaves;

    if (tcp->crowd.limit == 0)
        tri_crowd_init(&tcp->crowd, STRANGER_LIMIT);
    if (!tri_crowd_admits(&tcp->crowd, tri_caller_address(&from->any), tri_now_ns(), &leaves))
        return false;
    if (leaves)
        stranger_refuse(tcp, tri_container_of(leaves, tcp_stranger, caller),
                        "too many call, and it did not prove that it knows the token");
    return true;
}

void tri_endpoint_tcp_accept(tcp_endpoint *tcp)
{
    int left = ACCEPT_LIMIT;

    for (int i = 0; i < tcp->door.count; i++) {
        for (; left > 0; left--) {
            tri_tcp_place from = {.any = {.sa_family = AF_UNSPEC}};
            socklen_t nbytes = sizeof from;
            int fd;

            fd = accept4(tcp->door.listeners[i], &from.any, &nbytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
                tri_endpoint_warn(&tcp->base, "somebody who calls has to wait: %s", strerror(errno));
                accept_later(tcp);
                return;
            }
            if (fd < 0)
                break;
            if (stranger_fits(tcp, &from))
                stranger_create(tcp, fd, &from);
            else
                close(fd);
        }
    }
}

int64_t tri_endpoint_tcp_sweep(tcp_endpoint *tcp, int64_t now_ns)
{
    if (tcp->accept_after_ns > 0 && now_ns >= tcp->accept_after_ns) {
        tcp->accept_after_ns = 0;
        listeners_watch(tcp, EPOLLIN);
    }
    tri_caller *silent;
    int64_t next_ns;

    while ((silent = tri_crowd_silent(&tcp->crowd, now_ns, &next_ns)) != NULL)
        stranger_refuse(tcp, tri_container_of(silent, tcp_stranger, caller), "too many call, and it sent no hello");
    while (!tri_endpoint_is_empty(&tcp->strangers)) {
        tcp_stranger *oldest = tri_container_of(tcp->strangers.next, tcp_stranger, all);

        if (now_ns < oldest->limit_ns) {
            next_ns = oldest->limit_ns < next_ns ? oldest->limit_ns : next_ns;
            break;
        }
        stranger_refuse(tcp, oldest, "it did not prove in time that it knows the token");
    }
    return tcp->accept_after_ns > 0 && tcp->accept_after_ns < next_ns ? tcp->accept_after_ns : next_ns;
}

void tri_endpoint_tcp_strangers_close(tcp_endpoint *tcp)
{
    while (!tri_endpoint_is_empty(&tcp->strangers))
        stranger_destroy(tcp, tri_container_of(tcp->strangers.next, tcp_stranger, all));
}

/* ---- who is called */

static bool place_find(void *arg, const char *address, int attempt, tri_rendezvous_place *place)
{
    const tcp_endpoint *tcp = arg;
    tri_tcp_place found[TRI_TCP_PLACES_MAX];

    if (attempt >= tri_tcp_places(address, tcp->door.address, found))
        return false;
    place->nbytes = tri_tcp_place_nbytes(&found[attempt]);
    memcpy(&place->address, &found[attempt], place->nbytes);
    return true;
}

/* Waits for one of the sockets of a dial. Whoever calls this end meanwhile is answered: it may be the one that is
 * being dialed, who waits as well. */
static tri_status dial_wait(tcp_endpoint *tcp, struct pollfd *polls, nfds_t count, int64_t until_ns)
{
    int64_t now_ns = tri_now_ns(), next_ns = tri_endpoint_tcp_sweep(tcp, now_ns);

    until_ns = next_ns < until_ns ? next_ns : until_ns;
    polls[count] = (struct pollfd){.fd = tcp->epoll, .events = POLLIN};
    poll(polls, count + 1, until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / TRI_NS_PER_MS) + 1);
    return polls[count].revents ? tri_endpoint_tcp_poll(&tcp->base, 0) : TRI_OK;
}

static tri_status place_reach(tcp_endpoint *tcp, const tri_rendezvous *is, net_dial *dial,
                              tri_connected_peer *connected, bool once, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd polls[TRI_LINK_SOCKETS_MAX + 1];
        int64_t now_ns = tri_now_ns(), until_ns;
        nfds_t count = 0;

        TRI_TRY(tri_dial_advance(is, dial, connected, now_ns));
        if (tri_connected_peer_is_complete(connected))
            return TRI_OK;
        if (now_ns >= deadline_ns || (once && dial->rounds > 0))
            return tri_fail(TRI_EPEER, "%s", dial->why[0] ? dial->why : "nobody answers");
        for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
            if (dial->handshakes[i].fd >= 0)
                polls[count++] =
                    (struct pollfd){.fd = dial->handshakes[i].fd,
                                    .events = dial->handshakes[i].stage == HANDSHAKE_RECEIVE ? POLLIN : POLLOUT};
        }
        until_ns = tri_dial_next_ns(dial);
        TRI_TRY(dial_wait(tcp, polls, count, until_ns < deadline_ns ? until_ns : deadline_ns));
    }
}

static tri_status encryption_begin(tcp_endpoint *tcp, int fd, const unsigned char *key, int64_t deadline_ns,
                                   tri_tls **tls)
{
    tri_status status = tri_tls_open(tcp->tls, fd, true, key, tls);
    short events = 0;

    while (status == TRI_OK && (status = tri_tls_shake(*tls, &events)) == TRI_OK && events != 0) {
        struct pollfd polls[2] = {{.fd = fd, .events = events}};

        if (tri_now_ns() >= deadline_ns)
            status = tri_fail(TRI_EPEER, "does not encrypt in time");
        else
            status = dial_wait(tcp, polls, 1, deadline_ns);
    }
    if (status == TRI_OK)
        return TRI_OK;
    tri_tls_close(*tls);
    *tls = NULL;
    return status;
}

/* What is known of it, without the ranks of the rendezvous. */
static tri_status dial_fail(const net_dial *dial, const char *address, tri_status status)
{
    int host_nbytes = (int)strcspn(address, ",");
    const char *rest = address + host_nbytes + (address[host_nbytes] == ',');

    if (dial->refused && status == TRI_EPEER)
        return tri_fail(TRI_EPEER, "%s does not know the token of this job", rest);
    if (status == TRI_ECONFIG)
        return tri_fail(TRI_ECONFIG, "comm.encrypt is not the same here and at %s", rest);
    return tri_fail_context(status, "%s cannot be reached", rest);
}

/* Is the other end's place one of this machine's? A connection to such a place begins there. */
static bool is_near(int fd, const tri_tcp_place *peer)
{
    tri_tcp_place own = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t nbytes = sizeof own;

    if (getsockname(fd, &own.any, &nbytes) != 0 || own.any.sa_family != peer->any.sa_family)
        return false;
    if (own.any.sa_family == AF_INET6)
        return memcmp(&own.six.sin6_addr, &peer->six.sin6_addr, sizeof own.six.sin6_addr) == 0;
    return own.any.sa_family == AF_INET && own.four.sin_addr.s_addr == peer->four.sin_addr.s_addr;
}

tri_status tri_endpoint_tcp_dial(tri_endpoint *endpoint, const char *address, bool once, int64_t deadline_ns,
                                 tri_connection **out)
{
    tcp_endpoint *tcp = (tcp_endpoint *)endpoint;
    tri_rendezvous is = rendezvous_of(tcp, CALLER);
    tri_connected_peer connected = {.memory_fd = -1};
    tri_tcp_place places[TRI_TCP_PLACES_MAX], place = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t nbytes = sizeof place;
    char from[TRI_ENDPOINT_FROM_NBYTES];
    tri_status status;
    tri_tls *tls = NULL;
    net_dial dial;
    tcp_connection *connection;

    if (tri_tcp_places(address, tcp->door.address, places) == 0)
        return tri_fail(TRI_EPEER, "want an address of this network, got %.100s", address);
    is.addresses = &address;
    is.find = place_find;
    is.arg = tcp;
    memset(connected.fds, -1, sizeof connected.fds);
    tri_dial_init(&dial, LISTENER);
    status = place_reach(tcp, &is, &dial, &connected, once, deadline_ns);
    tri_dial_fini(&dial);
    if (status == TRI_OK)
        status = tri_tcp_tune(connected.fds[0], endpoint->config.timeout_s);
    if (status == TRI_OK && tcp->tls)
        status = encryption_begin(tcp, connected.fds[0], connected.keys[0], deadline_ns, &tls);
    if (status != TRI_OK) {
        tri_connected_peer_close(&connected);
        return dial_fail(&dial, address, status);
    }
    if (getpeername(connected.fds[0], &place.any, &nbytes) == 0)
        place_print(&place, from);
    else
        snprintf(from, sizeof from, "somebody");
    TRI_TRY(tri_endpoint_tcp_connection(tcp, connected.fds[0], tls, EPOLL_CTL_ADD, from, &connection));
    connection->base.is_near = is_near(connection->fd, &place);
    *out = &connection->base;
    return TRI_OK;
}
