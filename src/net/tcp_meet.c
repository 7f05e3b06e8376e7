/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_meet.c: the meeting of ranks over TCP, and what the kernel is told about such a connection.
 */
#include "net/tcp_meet.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/memory.h"
#include "net/host.h"
#include "net/tcp_address.h"

#define KEEP_IDLE_S  15
#define KEEP_EVERY_S 5
#define KEEP_COUNT   4

static bool place_find(void *arg, const char *address, int attempt, tri_meeting_place *place)
{
    const tri_tcp_door *own = arg;
    tri_tcp_place found[TRI_TCP_PLACES_MAX];

    if (attempt >= tri_tcp_places(address, own->address, found))
        return false;
    place->nbytes = tri_tcp_place_nbytes(&found[attempt]);
    memcpy(&place->address, &found[attempt], place->nbytes);
    return true;
}

tri_status tri_tcp_meet(const char *name, int rank, int world, const char *token, const tri_tcp_door *door,
                        uint32_t slot_kib, const char *const *addresses, int64_t deadline_ns, tri_met **met)
{
    tri_meeting meeting = {.name = name,
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

    return tri_meeting_hold(&meeting, deadline_ns, met);
}

tri_status tri_tcp_tune(int fd, double timeout_s)
{
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
    return TRI_OK;
}
