/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.c: ranks of one machine: rings in memory that both processes map.
 *
 * Each rank owns one memory file without a name (memfd), handed to its peers over an abstract unix socket: a page with
 * its doorbell, then a ring for the bytes of each sender. A rank sleeps on its doorbell alone; peers ring it, only if
 * it sleeps, after they wrote to its rings or read from theirs. The socket stays open: its hang-up says that the peer
 * died.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/hand_over.h"
#include "net/host.h"
#include "net/local.h"
#include "net/rendezvous.h"
#include "net/ring.h"
#include "net/transport.h"

#define PAGE_NBYTES         ((size_t)4096)
#define SPIN_NS             INT64_C(20000)
#define SPINS_PER_CLOCK     64
#define YIELDS_BEFORE_SLEEP 8
#define SLEEP_LIMIT_NS      (50 * TRI_NS_PER_MS)
#define ALIVE_EVERY_NS      (50 * TRI_NS_PER_MS)

/* At the start of each rank's memory. */
typedef struct shm_door {
    _Alignas(64) atomic_uint doorbell; /* futex: changes at each ring */
    atomic_uint sleeping;              /* its rank sleeps, or is about to */
} shm_door;

typedef struct shm_link {
    int fd; /* -1: not linked */
    bool dead;
    tri_ring in, out;
    shm_door *door; /* the peer's */
    void *map;
    size_t map_nbytes;
} shm_link;

typedef struct shm_transport {
    tri_transport base;
    const char *token;
    char name[TRI_LOCAL_NAME_NBYTES];
    int listener, memory_fd;
    uint32_t slot_kib;
    const atomic_bool *broken;
    unsigned char *map; /* own memory */
    size_t map_nbytes;
    shm_link *links; /* [world] */
    struct pollfd *polls;
    bool spins;
    atomic_bool woken; /* by another thread: the wait under way or the next one ends */
    int64_t alive_ns;  /* when the peers were last seen alive */
} shm_transport;

static size_t memory_nbytes(int world, uint32_t slot_kib)
{
    return PAGE_NBYTES + (size_t)world * (PAGE_NBYTES + ((size_t)slot_kib << 10));
}

/* The ring of a sender in somebody's memory. */
static tri_ring ring_at(unsigned char *map, int sender, uint32_t slot_kib)
{
    size_t slot_nbytes = (size_t)slot_kib << 10;
    unsigned char *at = map + PAGE_NBYTES + (size_t)sender * (PAGE_NBYTES + slot_nbytes);

    return (tri_ring){.ends = (tri_ring_ends *)at, .bytes = at + PAGE_NBYTES, .capacity = slot_nbytes};
}

static tri_status memory_open(shm_transport *shm)
{
    void *map;
    tri_status status;

    shm->map_nbytes = memory_nbytes(shm->base.world, shm->slot_kib);
    status = tri_local_memory("shm", shm->map_nbytes, &shm->memory_fd, &map);
    shm->map = map;
    return status;
}

static void door_ring(shm_door *door)
{
    if (!atomic_load(&door->sleeping))
        return;
    atomic_fetch_add(&door->doorbell, 1);
    syscall(SYS_futex, &door->doorbell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void shm_close(tri_transport *transport)
{
    shm_transport *shm = (shm_transport *)transport;

    if (!shm)
        return;
    for (int peer = 0; shm->links && peer < transport->world; peer++) {
        shm_link *link = &shm->links[peer];

        /* First the socket, then the doorbell: who wakes sees the hang-up. */
        if (link->fd >= 0)
            close(link->fd);
        if (link->map) {
            door_ring(link->door);
            munmap(link->map, link->map_nbytes);
        }
    }
    if (shm->map)
        munmap(shm->map, shm->map_nbytes);
    if (shm->memory_fd >= 0)
        close(shm->memory_fd);
    if (shm->listener >= 0)
        close(shm->listener);
    tri_free(shm->links);
    tri_free(shm->polls);
    tri_free(shm);
}

static tri_status shm_open_ranks(const tri_transport_setup *setup, tri_transport **out)
{
    size_t world = (size_t)setup->world;
    shm_transport *shm = tri_alloc_zero(1, sizeof *shm);
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (!shm)
        return TRI_ENOMEM;
    shm->base = (tri_transport){.ops = &tri_transport_shm, .rank = setup->rank, .world = setup->world};
    shm->token = setup->token;
    shm->listener = shm->memory_fd = -1;
    shm->slot_kib = (uint32_t)setup->config->slot_kib;
    shm->broken = setup->config->broken;
    shm->links = tri_alloc_zero(world, sizeof *shm->links);
    shm->polls = tri_alloc_zero(world, sizeof *shm->polls);
    for (size_t i = 0; shm->links && i < world; i++)
        shm->links[i].fd = -1;
    if (shm->links && shm->polls)
        status = memory_open(shm);
    if (status == TRI_OK)
        status = tri_local_listen("shm", &shm->listener, shm->name);
    if (status != TRI_OK) {
        shm_close(&shm->base);
        return status;
    }
    *out = &shm->base;
    return TRI_OK;
}

static const char *shm_address(const tri_transport *transport)
{
    return ((const shm_transport *)transport)->name;
}

static tri_status link_open(shm_transport *shm, int peer, const tri_connected_peer *connected)
{
    shm_link *link = &shm->links[peer];

    link->map_nbytes = memory_nbytes(shm->base.world, connected->slot_kib);
    /* Sealed: nobody can cut it short under us. */
    if (connected->slot_kib < 4 || connected->slot_kib > 65536 ||
        !tri_local_is_sealed(connected->memory_fd, link->map_nbytes))
        return tri_fail(TRI_EFORMAT,
                        "shm: rank %d: want sealed memory with slots of 4 to 65536 KiB, got slots of %u KiB", peer,
                        connected->slot_kib);
    link->map =
        mmap(NULL, link->map_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, connected->memory_fd, 0);
    if (link->map == MAP_FAILED) {
        link->map = NULL;
        return tri_fail(TRI_ENOMEM, "shm: rank %d: cannot map %zu bytes: %s", peer, link->map_nbytes, strerror(errno));
    }
    link->door = link->map;
    link->in = ring_at(shm->map, peer, shm->slot_kib);
    link->out = ring_at(link->map, shm->base.rank, connected->slot_kib);
    return TRI_OK;
}

static tri_status shm_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    shm_transport *shm = (shm_transport *)transport;
    size_t world = (size_t)transport->world;
    tri_rendezvous rendezvous = {.name = "shm",
                                 .rank = transport->rank,
                                 .world = transport->world,
                                 .token = shm->token,
                                 .listeners = &shm->listener,
                                 .listener_count = 1,
                                 .memory_fd = shm->memory_fd,
                                 .slot_kib = shm->slot_kib,
                                 .addresses = addresses,
                                 .find = tri_local_find,
                                 .trusts = tri_local_trusts,
                                 .broken = shm->broken,
                                 .arg = shm};
    tri_connected_peer *connected;
    tri_status status = tri_rendezvous_run(&rendezvous, deadline_ns, &connected);
    int local = 1;

    for (int i = 0; i < transport->world; i++)
        local += i != transport->rank && addresses[i];
    shm->spins = tri_host_cores() >= local;
    for (size_t i = 0; status == TRI_OK && i < world; i++)
        shm->links[i].fd = connected[i].fds[0];
    for (size_t i = 0; status == TRI_OK && i < world; i++) {
        if (connected[i].fds[0] >= 0)
            status = link_open(shm, (int)i, &connected[i]);
    }
    for (size_t i = 0; connected && i < world; i++) {
        if (connected[i].memory_fd >= 0)
            close(connected[i].memory_fd);
    }
    /* What travels from now on needs neither. */
    close(shm->listener);
    shm->listener = -1;
    tri_free(connected);
    return status;
}

static tri_status peer_gone(int peer)
{
    return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
}

static tri_status shm_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    shm_link *link = &((shm_transport *)transport)->links[peer];

    *taken = 0;
    if (link->dead)
        return peer_gone(peer);
    *taken = tri_ring_write(&link->out, bytes, nbytes);
    if (*taken > 0)
        door_ring(link->door);
    return TRI_OK;
}

static tri_status shm_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    shm_link *link = &((shm_transport *)transport)->links[peer];

    *given = tri_ring_read(&link->in, UINT64_MAX, bytes, nbytes);
    if (*given > 0)
        door_ring(link->door);
    else if (link->dead && nbytes > 0 && tri_ring_used(&link->in) == 0)
        return peer_gone(peer);
    return TRI_OK;
}

static tri_status shm_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes)
{
    shm_link *link = &((shm_transport *)transport)->links[peer];

    *nbytes = tri_ring_peek(&link->in, UINT64_MAX, bytes);
    if (*nbytes == 0 && link->dead && tri_ring_used(&link->in) == 0)
        return peer_gone(peer);
    return TRI_OK;
}

static void shm_consume(tri_transport *transport, int peer, size_t nbytes)
{
    shm_link *link = &((shm_transport *)transport)->links[peer];

    tri_ring_consume(&link->in, nbytes);
    door_ring(link->door);
}

static bool is_ready(const shm_transport *shm, const unsigned char *want)
{
    for (int peer = 0; peer < shm->base.world; peer++) {
        const shm_link *link = &shm->links[peer];

        if (!want[peer] || link->fd < 0)
            continue;
        if (link->dead || ((want[peer] & TRI_WANT_READ) && tri_ring_used(&link->in) > 0) ||
            ((want[peer] & TRI_WANT_WRITE) && tri_ring_free(&link->out) > 0))
            return true;
    }
    return false;
}

/* Asks the sockets who has hung up. Nothing is ever sent on them after the handshake. */
static void peers_check(shm_transport *shm, int64_t now_ns)
{
    int world = shm->base.world;

    shm->alive_ns = now_ns;
    for (int peer = 0; peer < world; peer++)
        shm->polls[peer] = (struct pollfd){.fd = shm->links[peer].dead ? -1 : shm->links[peer].fd, .events = POLLIN};
    if (poll(shm->polls, (nfds_t)world, 0) <= 0)
        return;
    for (int peer = 0; peer < world; peer++) {
        if (shm->polls[peer].fd >= 0 && shm->polls[peer].revents)
            shm->links[peer].dead = true;
    }
}

static bool spin(const shm_transport *shm, const unsigned char *want)
{
    int64_t until_ns;

    if (!shm->spins) {
        for (int i = 0; i < YIELDS_BEFORE_SLEEP && !atomic_load(&shm->woken); i++) {
            if (is_ready(shm, want))
                return true;
            if (!tri_hand_over())
                break;
        }
        return is_ready(shm, want);
    }
    until_ns = tri_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (is_ready(shm, want))
                return true;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
        }
    } while (tri_now_ns() < until_ns);
    return false;
}

static tri_status shm_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    shm_transport *shm = (shm_transport *)transport;
    shm_door *door = (shm_door *)shm->map;

    if (spin(shm, want))
        return TRI_OK;
    for (;;) {
        int64_t now_ns = tri_now_ns();
        int64_t left_ns = deadline_ns - now_ns < SLEEP_LIMIT_NS ? deadline_ns - now_ns : SLEEP_LIMIT_NS;
        struct timespec limit = {.tv_nsec = (long)left_ns};
        unsigned doorbell = atomic_load(&door->doorbell);

        if (now_ns - shm->alive_ns >= ALIVE_EVERY_NS)
            peers_check(shm, now_ns);
        if (left_ns <= 0)
            return TRI_OK;
        atomic_store(&door->sleeping, 1);
        if (!is_ready(shm, want) && !atomic_load(&shm->woken))
            syscall(SYS_futex, &door->doorbell, FUTEX_WAIT, doorbell, &limit, NULL, 0);
        atomic_store(&door->sleeping, 0);
        if (is_ready(shm, want) || atomic_exchange(&shm->woken, false))
            return TRI_OK;
        /* Rung, but not by bytes: somebody closed. */
        if (atomic_load(&door->doorbell) != doorbell)
            peers_check(shm, tri_now_ns());
        if (is_ready(shm, want))
            return TRI_OK;
    }
}

static void shm_wake(tri_transport *transport)
{
    shm_transport *shm = (shm_transport *)transport;

    atomic_store(&shm->woken, true);
    door_ring((shm_door *)shm->map);
}

const tri_transport_ops tri_transport_shm = {
    .name = "shm",
    .does = "shared memory between the processes of one machine",
    .open = shm_open_ranks,
    .address = shm_address,
    .connect = shm_connect,
    .write_some = shm_write_some,
    .read_some = shm_read_some,
    .peek = shm_peek,
    .consume = shm_consume,
    .wait = shm_wait,
    .wake = shm_wake,
    .close = shm_close,
};
