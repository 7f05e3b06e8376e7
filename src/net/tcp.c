/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.c: ranks of different machines: one or more TCP connections between each two.
 *
 * Sockets never block; poll() waits. How many connections a link has is decided by whoever dials, once it knows how
 * far the other is. Buffers of the kernel are left to its autotuning but on near links (tcp_rendezvous.c).
 */
#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "net/host.h"
#include "net/tcp_impl.h"
#include "net/tcp_rendezvous.h"

_Static_assert(TRI_TCP_PLACES_MAX <= TRI_LINK_SOCKETS_MAX, "each place is tried by a handshake of its own (dial.c)");

#define BACKOFFS       3 /* the same bytes lost four times: no bad luck */
#define CLOSE_LIMIT_NS (100 * TRI_NS_PER_MS)
#define CLOSE_STEP_NS  TRI_NS_PER_MS
#define FAR_US         10000 /* round trip from which a link has several connections */
#define FAR_SOCKETS    8
#define SPIN_NS        (500 * INT64_C(1000))

/* Gives what was sent the time to arrive: closing a socket that still has unread bytes would throw it away. */
static void links_drain(tcp_transport *tcp)
{
    int64_t until_ns = tri_deadline_after_ms(CLOSE_LIMIT_NS / TRI_NS_PER_MS);
    unsigned char waste[4096];

    for (int peer = 0; peer < tcp->base.world; peer++) {
        for (int socket = 0; socket < tcp->links[peer].sockets; socket++)
            shutdown(tcp->links[peer].fds[socket], SHUT_WR);
    }
    for (;;) {
        bool waits = false;

        for (int peer = 0; peer < tcp->base.world; peer++) {
            for (int socket = 0; socket < tcp->links[peer].sockets; socket++) {
                int fd = tcp->links[peer].fds[socket], left = 0;
                ssize_t got;

                do
                    got = recv(fd, waste, sizeof waste, MSG_DONTWAIT);
                while (got > 0);
                waits |= got < 0 && errno == EAGAIN && ioctl(fd, SIOCOUTQ, &left) == 0 && left > 0;
            }
        }
        if (!waits || tri_now_ns() >= until_ns)
            return;
        tri_sleep_ns(CLOSE_STEP_NS);
    }
}

static void listeners_close(tcp_transport *tcp)
{
    for (int i = 0; i < tcp->listener_count; i++)
        close(tcp->listeners[i]);
    tcp->listener_count = 0;
}

static void tcp_close(tri_transport *transport)
{
    tcp_transport *tcp = (tcp_transport *)transport;

    if (!tcp)
        return;
    if (tcp->links)
        links_drain(tcp);
    for (int peer = 0; tcp->links && peer < transport->world; peer++) {
        for (int socket = 0; socket < tcp->links[peer].sockets; socket++) {
            tri_tls_close(tcp->links[peer].tls[socket]);
            close(tcp->links[peer].fds[socket]);
        }
        tri_free(tcp->links[peer].buffer);
    }
    if (tcp->wake_fd >= 0)
        close(tcp->wake_fd);
    tri_tls_context_destroy(tcp->tls);
    listeners_close(tcp);
    tri_free(tcp->links);
    tri_free(tcp->polls);
    tri_free(tcp);
}

static tri_status tcp_open(const tri_transport_setup *setup, tri_transport **out)
{
    size_t world = (size_t)setup->world;
    tcp_transport *tcp = tri_alloc_zero(1, sizeof *tcp);
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (!tcp)
        return TRI_ENOMEM;
    tcp->base = (tri_transport){.ops = &tri_transport_tcp, .rank = setup->rank, .world = setup->world};
    tcp->token = setup->token;
    tcp->config = setup->config;
    tcp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->links = tri_alloc_zero(world, sizeof *tcp->links);
    tcp->polls = tri_alloc_zero(1 + world * TRI_LINK_SOCKETS_MAX, sizeof *tcp->polls);
    if (tcp->links && tcp->polls)
        status = tcp->wake_fd >= 0 ? TRI_OK : tri_fail(TRI_EIO, "tcp: eventfd: %s", strerror(errno));
    if (status == TRI_OK)
        status = tri_tcp_listen(setup->config->interface, setup->config->ports, tcp->listeners, &tcp->listener_count,
                                tcp->address);
    if (status != TRI_OK) {
        tcp_close(&tcp->base);
        return status;
    }
    *out = &tcp->base;
    return TRI_OK;
}

static const char *tcp_address(const tri_transport *transport)
{
    return ((const tcp_transport *)transport)->address;
}

static bool tcp_find(void *arg, const char *address, int attempt, tri_rendezvous_place *place)
{
    const tcp_transport *tcp = arg;
    tri_tcp_place found[TRI_TCP_PLACES_MAX];

    if (attempt >= tri_tcp_places(address, tcp->address, found))
        return false;
    place->nbytes = tri_tcp_place_nbytes(&found[attempt]);
    memcpy(&place->address, &found[attempt], place->nbytes);
    return true;
}

/* The nearest of its places. */
static void tcp_late(void *arg, int peer, const char *why)
{
    const tcp_transport *tcp = arg;
    tri_tcp_place found[TRI_TCP_PLACES_MAX];
    char where[TRI_TCP_WHERE_NBYTES], text[TRI_TCP_WHERE_NBYTES + 96];

    if (!tcp->config->unmet || tri_tcp_places(tcp->addresses[peer], tcp->address, found) == 0)
        return;
    tri_tcp_place_where(&found[0], where);
    snprintf(text, sizeof text, "%s (%.80s)", where, why);
    tcp->config->unmet(tcp->config->unmet_arg, peer, text);
}

/* Near, one connection moves as much as several. Far, each begins slowly and grows with every round trip, and does so
 * again after a pause: several start as many times faster. And each interface that the user named has one. */
static int tcp_sockets(void *arg, int fd)
{
    const tcp_transport *tcp = arg;
    int sockets = (int)tcp->config->tcp_connections;
    struct rlimit limit;

    if (sockets == 0) {
        sockets = tri_tcp_round_trip_us(fd) < FAR_US ? 1 : FAR_SOCKETS;
        for (const char *at = tcp->config->interface; sockets < TRI_LINK_SOCKETS_MAX && (at = strchr(at, ',')); at++)
            sockets++;
    }
    /* Half of the descriptors that this process may have are for other things. */
    while (sockets > 1 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           (uint64_t)sockets * (uint64_t)tcp->base.world > limit.rlim_cur / 2)
        sockets--;
    return sockets;
}

static tri_status link_take(const tcp_transport *tcp, tcp_link *link, const tri_connected_peer *connected)
{
    memcpy(link->fds, connected->fds, sizeof link->fds);
    link->sockets = connected->sockets;
    if (link->sockets == 0)
        return TRI_OK;
    link->buffer = tri_alloc(TRI_TCP_BUFFER_NBYTES);
    if (!link->buffer)
        return TRI_ENOMEM;
    for (int socket = 0; socket < link->sockets; socket++)
        TRI_TRY(tri_tcp_tune(link->fds[socket], tcp->config->timeout_s));
    return TRI_OK;
}

static tri_status tcp_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    tcp_transport *tcp = (tcp_transport *)transport;
    size_t world = (size_t)transport->world;
    tri_rendezvous rendezvous = {.name = "tcp",
                                 .rank = transport->rank,
                                 .world = transport->world,
                                 .token = tcp->token,
                                 .listeners = tcp->listeners,
                                 .listener_count = tcp->listener_count,
                                 .memory_fd = -1,
                                 .addresses = addresses,
                                 .find = tcp_find,
                                 .sockets = tcp_sockets,
                                 .marks = tcp->config->encrypt ? TRI_MARK_ENCRYPTED : 0,
                                 .spreads = strchr(tcp->config->interface, ',') != NULL,
                                 .broken = tcp->config->broken,
                                 .late = tcp_late,
                                 .arg = tcp};
    tri_connected_peer *connected;
    tcp->addresses = addresses;
    tri_status status = tri_rendezvous_run(&rendezvous, deadline_ns, &connected), taken;
    int local = 1;

    for (size_t i = 0; i < world; i++)
        local += (int)i != transport->rank && addresses[i] && tri_tcp_same_host(addresses[i], tcp->address);
    tcp->spin_ns = tri_host_cores() >= local ? SPIN_NS : 0;
    tcp->hot_ns = TRI_TCP_HOT_NS;
    for (size_t i = 0; connected && i < world; i++) {
        taken = link_take(tcp, &tcp->links[i], &connected[i]);
        status = status == TRI_OK ? taken : status;
    }
    if (status == TRI_OK && tcp->config->encrypt)
        status = tri_tcp_encrypt(tcp, connected, deadline_ns);
    listeners_close(tcp);
    tri_free(connected);
    return status;
}

/* "10.0.0.1 to 10.0.0.2" */
static void socket_print(int fd, char text[2 * INET6_ADDRSTRLEN + 4])
{
    tri_tcp_place ends[2] = {{.any = {.sa_family = AF_UNSPEC}}, {.any = {.sa_family = AF_UNSPEC}}};
    char names[2][INET6_ADDRSTRLEN];
    socklen_t nbytes[2] = {sizeof ends[0], sizeof ends[1]};

    if (getsockname(fd, &ends[0].any, &nbytes[0]) != 0 || getpeername(fd, &ends[1].any, &nbytes[1]) != 0) {
        snprintf(text, 2 * INET6_ADDRSTRLEN + 4, "closed");
        return;
    }
    tri_tcp_place_print(&ends[0], names[0]);
    tri_tcp_place_print(&ends[1], names[1]);
    snprintf(text, 2 * INET6_ADDRSTRLEN + 4, "%s to %s", names[0], names[1]);
}

/* "4 connections, 10.0.0.1 to 10.0.0.2, round trip 0.12 ms" */
static void tcp_describe(const tri_transport *transport, int peer, char *text, size_t capacity)
{
    const tcp_link *link = &((const tcp_transport *)transport)->links[peer];
    char known[TRI_LINK_SOCKETS_MAX][2 * INET6_ADDRSTRLEN + 4];
    size_t used = (size_t)snprintf(text, capacity, "%d connection%s", link->sockets, link->sockets == 1 ? "" : "s");
    unsigned least_us = UINT_MAX;
    int count = 0;

    for (int socket = 0; socket < link->sockets; socket++) {
        unsigned us = tri_tcp_round_trip_us(link->fds[socket]);
        int at = 0;

        least_us = us < least_us ? us : least_us;
        socket_print(link->fds[socket], known[count]);
        while (strcmp(known[at], known[count]) != 0)
            at++;
        if (at == count && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, ", %s", known[count]);
        count += at == count;
    }
    if (used < capacity)
        snprintf(text + used, capacity - used, ", round trip %.2f ms%s", least_us * 1e-3,
                 !link->tls[0]                     ? ""
                 : tri_tls_by_kernel(link->tls[0]) ? ", encrypted by the kernel"
                                                   : ", encrypted");
}

static int64_t tcp_round_trip_ns(const tri_transport *transport, int peer)
{
    const tcp_link *link = &((const tcp_transport *)transport)->links[peer];

    return link->sockets == 0 ? 0 : INT64_C(1000) * tri_tcp_round_trip_us(link->fds[0]);
}

/* Of several connections the busiest one's time: they are busy together. */
static void tcp_load(const tri_transport *transport, int peer, tri_link_load *load)
{
    const tcp_link *link = &((const tcp_transport *)transport)->links[peer];

    for (int socket = 0; socket < link->sockets; socket++) {
        struct tcp_info info = {.tcpi_rtt = 0};
        socklen_t nbytes = sizeof info;
        double busy_s, round_trip_s;

        if (getsockopt(link->fds[socket], IPPROTO_TCP, TCP_INFO, &info, &nbytes) != 0)
            continue;
        busy_s = info.tcpi_busy_time > info.tcpi_rwnd_limited
                     ? (double)(info.tcpi_busy_time - info.tcpi_rwnd_limited) / 1e6
                     : 0;
        round_trip_s = (double)info.tcpi_rtt / 1e6;
        load->busy_s = busy_s > load->busy_s ? busy_s : load->busy_s;
        load->round_trip_s = round_trip_s > load->round_trip_s ? round_trip_s : load->round_trip_s;
        load->acked_nbytes += (double)info.tcpi_bytes_acked;
        load->resent_segments += (double)info.tcpi_total_retrans;
    }
}

/* A peer that does not read is no such case: its kernel answers probes. */
static int64_t tcp_unanswered_ns(tri_transport *transport, int peer)
{
    const tcp_link *link = &((tcp_transport *)transport)->links[peer];
    int64_t silent_ns = 0;

    for (int socket = 0; socket < link->sockets; socket++) {
        struct tcp_info info;
        socklen_t nbytes = sizeof info;
        int64_t ns;

        if (getsockopt(link->fds[socket], IPPROTO_TCP, TCP_INFO, &info, &nbytes) != 0 || info.tcpi_unacked == 0 ||
            info.tcpi_backoff < BACKOFFS || info.tcpi_probes > 0)
            continue;
        ns = (int64_t)info.tcpi_last_ack_recv * TRI_NS_PER_MS;
        silent_ns = ns > silent_ns ? ns : silent_ns;
    }
    return silent_ns;
}

static void tcp_wake(tri_transport *transport)
{
    const uint64_t one = 1;

    /* Full: a wait will end. */
    (void)!write(((tcp_transport *)transport)->wake_fd, &one, sizeof one);
}

const tri_transport_ops tri_transport_tcp = {
    .name = "tcp",
    .does = "TCP connections between machines",
    .between_hosts = true,
    .open = tcp_open,
    .address = tcp_address,
    .connect = tcp_connect,
    .write_some = tri_tcp_write_some,
    .write_parts = tri_tcp_write_parts,
    .read_some = tri_tcp_read_some,
    .wait = tri_tcp_wait,
    .unanswered_ns = tcp_unanswered_ns,
    .wake = tcp_wake,
    .describe = tcp_describe,
    .round_trip_ns = tcp_round_trip_ns,
    .load = tcp_load,
    .close = tcp_close,
};
