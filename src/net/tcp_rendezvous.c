/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_rendezvous.c: the rendezvous of ranks over TCP, and which options the kernel gets for such a connection.
 */
#include "net/tcp_rendezvous.h"

#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "net/tcp_address.h"

#define KEEP_IDLE_S  15
#define KEEP_EVERY_S 5
#define KEEP_COUNT   4
/* On a link whose round trip is this short this many bytes that wait to be sent are enough for 40 Gbit/s (the kernel
 * takes twice the number). By itself it would let megabytes wait, which leave the caches before they are read: between
 * two namespaces that halves the rate. */
#define NEAR_US     50
#define NEAR_NBYTES (128 << 10)

static bool place_find(void *arg, const char *address, int attempt, tri_rendezvous_place *place)
{
    const tri_tcp_door *own = arg;
    tri_tcp_place found[TRI_TCP_PLACES_MAX];

    if (attempt >= tri_tcp_places(address, own->address, found))
        return false;
    place->nbytes = tri_tcp_place_nbytes(&found[attempt]);
    memcpy(&place->address, &found[attempt], place->nbytes);
    return true;
}

tri_status tri_tcp_rendezvous(const char *name, int rank, int world, const char *token, const tri_tcp_door *door,
                              uint32_t slot_kib, const char *const *addresses, int64_t deadline_ns,
                              tri_connected_peer **connected)
{
    tri_rendezvous rendezvous = {.name = name,
                                 .rank = rank,
                                 .world = world,
                                 .token = token,
                                 .listeners = door->listeners,
                                 .listener_count = door->count,
                                 .memory_fd = -1,
                                 .slot_kib = slot_kib,
                                 .addresses = addresses,
                                 .find = place_find,
                                 .broken = door->broken,
                                 .arg = (void *)(uintptr_t)door};

    return tri_rendezvous_run(&rendezvous, deadline_ns, connected);
}

unsigned tri_tcp_round_trip_us(int fd)
{
    struct tcp_info info = {.tcpi_min_rtt = 0};
    socklen_t nbytes = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &nbytes) == 0 && info.tcpi_min_rtt != UINT_MAX
               ? info.tcpi_min_rtt
               : 0;
}

tri_status tri_tcp_tune(int fd, double timeout_s)
{
    const int near_nbytes = NEAR_NBYTES;
    const unsigned round_trip_us = tri_tcp_round_trip_us(fd);
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_s < 1e5 ? (int)(timeout_s * 1000) + 1000 : 100000000},
    };

    for (size_t i = 0; i < TRI_COUNT_OF(options); i++) {
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)) != 0)
            return tri_fail(TRI_EIO, "tcp: cannot set option %d of a socket: %s", options[i].name, strerror(errno));
    }
    /* Where it is refused the link is slower, not wrong. */
    if (round_trip_us > 0 && round_trip_us <= NEAR_US)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &near_nbytes, sizeof(int));
    return TRI_OK;
}
