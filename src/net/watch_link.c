/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_link.c: the connections of a watch: listens, meets the peers as the transports do, looks up their processes.
 *
 * "watch=<name>,<user>" in a rank's address: a unix socket for ranks of the same host and user; "watch_tcp=" as "tcp=":
 * places of its own for all others. In these handshakes slot_kib is 1, which no transport has.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/net_impl.h"
#include "net/watch_impl.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define WATCH_SLOT_KIB  1
#define USER_TIMEOUT_MS 1000

static void file_close(int *file)
{
    if (*file >= 0)
        close(*file);
    *file = -1;
}

tri_status tri_watch_listen(tri_watch *watch, const tri_transport_setup *setup, bool over_tcp)
{
    char name[TRI_LOCAL_NAME_NBYTES];
    void *map;

    TRI_TRY(tri_local_listen("watch", &watch->local_listener, name));
    TRI_TRY(tri_local_memory("watch", TRI_WATCH_PAGE_NBYTES, &watch->memory_fd, &map));
    watch->page = map;
    if (over_tcp)
        TRI_TRY(tri_tcp_door_open(setup->config->interface, setup->config->ports, &watch->door));
    snprintf(watch->address, sizeof watch->address, "%s,%u%s%s", name, (unsigned)geteuid(),
             over_tcp ? ";watch_tcp=" : "", watch->door.address);
    return TRI_OK;
}

/* ---- whom to meet, and where */

typedef struct watch_place {
    char name[TRI_LOCAL_NAME_NBYTES];
    unsigned user;
    char tcp[TRI_TCP_ADDRESS_NBYTES];
} watch_place;

/* False: that rank has no watch. */
static bool place_parse(const char *address, watch_place *place)
{
    char value[TRI_LOCAL_NAME_NBYTES + 16];

    *place = (watch_place){.user = 0};
    if (!tri_net_address_value(address, "watch", value, sizeof value) ||
        sscanf(value, "%32[0-9a-f],%10u", place->name, &place->user) != 2)
        return false;
    if (!tri_net_address_value(address, "watch_tcp", place->tcp, sizeof place->tcp))
        place->tcp[0] = 0;
    return true;
}

static bool is_same(const char *own, const char *other, const char *name)
{
    char mine[TRI_NET_ADDRESS_NBYTES], theirs[TRI_NET_ADDRESS_NBYTES];

    return tri_net_address_value(own, name, mine, sizeof mine) &&
           tri_net_address_value(other, name, theirs, sizeof theirs) && strcmp(mine, theirs) == 0;
}

/* Which peers are met over the unix socket, and which over TCP: both sides find the same. */
static void places_find(const tri_watch *watch, const char *own, const char *const *addresses, watch_place *places,
                        const char **local, const char **remote)
{
    watch_place self;

    (void)place_parse(own, &self);
    for (int peer = 0; peer < watch->world; peer++) {
        watch_place *place = &places[peer];

        if (peer == watch->rank || !addresses[peer] || !place_parse(addresses[peer], place))
            continue;
        if (is_same(own, addresses[peer], "host") && place->user == self.user)
            local[peer] = place->name;
        else if (place->tcp[0] && self.tcp[0])
            remote[peer] = place->tcp;
    }
}

/* ---- a peer that was met */

/* Not inherited by a child that the peer forks, as the socket is: it says that the process itself has died. */
static void process_find(watch_peer *peer)
{
    struct ucred who;
    socklen_t nbytes = sizeof who;
    int file = -1;

    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &who, &nbytes) != 0)
        return;
    peer->process = who.pid;
    if (who.pid == getpid()) /* a thread of this process: it can be asked for, and will not die alone */
        return;
    nbytes = sizeof file;
    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERPIDFD, &file, &nbytes) != 0)
        file = who.pid > 0 ? (int)syscall(SYS_pidfd_open, who.pid, 0) : -1;
    peer->process_fd = file;
}

static tri_status local_take(watch_peer *peer, int rank, int memory_fd)
{
    void *map;

    if (!tri_local_is_sealed(memory_fd, TRI_WATCH_PAGE_NBYTES))
        return tri_fail(TRI_EFORMAT, "watch: rank %d: want a sealed page, got another file", rank);
    map = mmap(NULL, TRI_WATCH_PAGE_NBYTES, PROT_READ, MAP_SHARED, memory_fd, 0);
    if (map == MAP_FAILED)
        return tri_fail(TRI_ENOMEM, "watch: rank %d: cannot map a page: %s", rank, strerror(errno));
    peer->page = map;
    process_find(peer);
    return TRI_OK;
}

static tri_status remote_take(tri_watch *watch, int rank, const unsigned char key[TRI_AUTH_NBYTES])
{
    const int on = 1, limit_ms = USER_TIMEOUT_MS;
    watch_peer *peer = &watch->peers[rank];

    if (setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(peer->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms) != 0)
        return tri_fail(TRI_EIO, "watch: cannot set an option of a socket: %s", strerror(errno));
    return watch->tls ? tri_tls_open(watch->tls, peer->fd, rank < watch->rank, key, &peer->tls) : TRI_OK;
}

/* Those that were met are the watch's. */
static tri_status peers_take(tri_watch *watch, tri_connected_peer *connected, tri_status status)
{
    int64_t now_ns = tri_now_ns();

    for (int rank = 0; status == TRI_OK && rank < watch->world; rank++) {
        watch_peer *peer = &watch->peers[rank];

        if (connected[rank].fds[0] < 0)
            continue;
        peer->fd = connected[rank].fds[0];
        connected[rank].fds[0] = -1;
        peer->heard_ns = now_ns;
        atomic_store(&peer->state, TRI_WATCH_ALIVE);
        watch->remote_count += connected[rank].memory_fd < 0;
        status = connected[rank].memory_fd >= 0 ? local_take(peer, rank, connected[rank].memory_fd)
                                                : remote_take(watch, rank, connected[rank].keys[0]);
    }
    for (int rank = 0; connected && rank < watch->world; rank++) {
        file_close(&connected[rank].fds[0]);
        file_close(&connected[rank].memory_fd);
    }
    tri_free(connected);
    return status;
}

static tri_status remote_encrypt(const tri_watch *watch, int64_t deadline_ns)
{
    tri_tls_end *ends = tri_alloc_zero((size_t)watch->world, sizeof *ends);
    size_t count = 0;

    if (!ends)
        return TRI_ENOMEM;
    for (int rank = 0; rank < watch->world; rank++) {
        if (watch->peers[rank].tls)
            ends[count++] = (tri_tls_end){watch->peers[rank].tls, watch->peers[rank].fd, rank};
    }
    tri_status status = tri_tls_shake_all("watch", ends, count, watch->broken, deadline_ns);
    tri_free(ends);
    return status;
}

static tri_status local_meet(tri_watch *watch, const char *const *addresses, int64_t deadline_ns)
{
    tri_rendezvous rendezvous = {.name = "watch",
                                 .rank = watch->rank,
                                 .world = watch->world,
                                 .token = watch->token,
                                 .listeners = &watch->local_listener,
                                 .listener_count = 1,
                                 .memory_fd = watch->memory_fd,
                                 .slot_kib = WATCH_SLOT_KIB,
                                 .addresses = addresses,
                                 .find = tri_local_find,
                                 .trusts = tri_local_trusts,
                                 .broken = watch->broken,
                                 .arg = watch};
    tri_connected_peer *connected = NULL;
    tri_status status = tri_rendezvous_run(&rendezvous, deadline_ns, &connected);

    return peers_take(watch, connected, status);
}

static tri_status remote_meet(tri_watch *watch, const char *const *addresses, int64_t deadline_ns)
{
    tri_connected_peer *connected = NULL;
    watch->door.broken = watch->broken;
    if (watch->encrypts)
        TRI_TRY(tri_tls_context_create(false, &watch->tls));
    tri_status status = tri_tcp_rendezvous("watch", watch->rank, watch->world, watch->token, &watch->door,
                                           WATCH_SLOT_KIB, addresses, deadline_ns, &connected);

    status = peers_take(watch, connected, status);
    return status == TRI_OK && watch->tls ? remote_encrypt(watch, deadline_ns) : status;
}

tri_status tri_watch_meet(tri_watch *watch, const char *own, const char *const *addresses, int64_t deadline_ns)
{
    size_t world = (size_t)watch->world;
    watch_place *places = tri_alloc_zero(world, sizeof *places);
    const char **local = tri_alloc_zero(2 * world, sizeof *local);
    tri_status status = TRI_ENOMEM;

    if (places && local) {
        places_find(watch, own, addresses, places, local, local + world);
        status = local_meet(watch, local, deadline_ns);
    }
    if (status == TRI_OK && watch->door.count > 0)
        status = remote_meet(watch, local + world, deadline_ns);
    tri_free(places);
    tri_free(local);
    /* Nobody else is to come. */
    file_close(&watch->local_listener);
    tri_tcp_door_close(&watch->door);
    return status;
}

void tri_watch_unlink(tri_watch *watch)
{
    for (int rank = 0; watch->peers && rank < watch->world; rank++) {
        watch_peer *peer = &watch->peers[rank];

        tri_tls_close(peer->tls);
        peer->tls = NULL;
        file_close(&peer->fd);
        file_close(&peer->process_fd);
        if (peer->page)
            munmap((void *)(uintptr_t)peer->page, TRI_WATCH_PAGE_NBYTES);
        peer->page = NULL;
    }
    tri_tls_context_destroy(watch->tls);
    watch->tls = NULL;
    if (watch->page)
        munmap(watch->page, TRI_WATCH_PAGE_NBYTES);
    watch->page = NULL;
    file_close(&watch->local_listener);
    tri_tcp_door_close(&watch->door);
    file_close(&watch->memory_fd);
    file_close(&watch->event_fd);
}
