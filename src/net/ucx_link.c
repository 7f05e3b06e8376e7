/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_link.c: how ranks that use UCX come to be linked.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wait.h"
#include "net/host.h"
#include "net/tcp_rendezvous.h"
#include "net/ucx_impl.h"

#define ADDRESS_LIMIT_NBYTES ((size_t)32 << 10)
#define KEEPALIVE            "1s"

/* What each tells the other over the authenticated socket; the worker's address follows. */
typedef struct ucx_ticket {
    uint64_t tag; /* of messages to the one who says it */
    uint32_t address_nbytes, slot_nbytes;
} ucx_ticket;

/* ---- opening */

static tri_status failed(const ucx_transport *ucx, const char *what, ucs_status_t status)
{
    return tri_fail(TRI_EIO, "comm.transport ucx: %s: %s", what, ucx->calls.ucs_status_string(status));
}

static tri_status worker_open(ucx_transport *ucx)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                                 .estimated_num_eps = (size_t)ucx->base.world};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_config_t *config;
    ucs_status_t status = ucx->calls.ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return failed(ucx, "its settings (UCX_...)", status);
    /* Its shared memory takes part in the handling of errors only on request; a UCX that does not know it, never. */
    (void)ucx->calls.ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
    status = ucx->calls.ucp_config_modify(config, "KEEPALIVE_INTERVAL", KEEPALIVE);
    if (status == UCS_OK)
        status = ucx->calls.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &ucx->context);
    ucx->calls.ucp_config_release(config);
    if (status != UCS_OK)
        return failed(ucx, "cannot start", status);
    status = ucx->calls.ucp_worker_create(ucx->context, &worker, &ucx->worker);
    if (status == UCS_OK)
        status = ucx->calls.ucp_worker_get_efd(ucx->worker, &ucx->wakeup_fd);
    return status == UCS_OK ? TRI_OK : failed(ucx, "cannot make a worker (is UCX_TLS right?)", status);
}

tri_status tri_ucx_open(const tri_transport_setup *setup, tri_transport **out)
{
    size_t world = (size_t)setup->world;
    ucx_transport *ucx = tri_alloc_zero(1, sizeof *ucx);
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (!ucx)
        return TRI_ENOMEM;
    ucx->base = (tri_transport){.ops = &tri_transport_ucx, .rank = setup->rank, .world = setup->world};
    ucx->token = setup->token;
    ucx->timeout_s = setup->config->timeout_s;
    ucx->slot_nbytes = ((size_t)setup->config->slot_kib << 10) / TRI_UCX_SLOT_PART;
    ucx->wakeup_fd = -1;
    tri_mutex_init(&ucx->mutex);
    tri_cond_init(&ucx->woken);
    ucx->links = tri_alloc_zero(world, sizeof *ucx->links);
    ucx->polls = tri_alloc_zero(world + 1, sizeof *ucx->polls);
    for (size_t i = 0; ucx->links && i < world; i++)
        ucx->links[i].fd = -1;
    if (ucx->links && ucx->polls)
        status = tri_ucx_load(&ucx->calls);
    if (status == TRI_OK)
        status = worker_open(ucx);
    if (status == TRI_OK)
        status = tri_tcp_door_open(setup->config->interface, setup->config->ports, &ucx->door);
    ucx->door.broken = setup->config->broken;
    if (status != TRI_OK) {
        tri_ucx_close(&ucx->base);
        return status;
    }
    *out = &ucx->base;
    return TRI_OK;
}

const char *tri_ucx_address(const tri_transport *transport)
{
    return ((const ucx_transport *)transport)->door.address;
}

/* ---- connecting */

/* Sockets of the rendezvous do not block. */
static tri_status socket_move(const ucx_transport *ucx, int peer, bool sends, void *bytes, size_t nbytes,
                              int64_t deadline_ns)
{
    const int fd = ucx->links[peer].fd;
    size_t done = 0;

    while (done < nbytes) {
        ssize_t moved = sends ? send(fd, (char *)bytes + done, nbytes - done, MSG_NOSIGNAL)
                              : recv(fd, (char *)bytes + done, nbytes - done, 0);
        struct pollfd one = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
        int64_t left_ns = deadline_ns - tri_now_ns();

        if (moved > 0) {
            done += (size_t)moved;
            continue;
        }
        if (moved == 0 || (errno != EAGAIN && errno != EINTR))
            return tri_fail(TRI_EPEER, "rank %d is gone (%s)", peer,
                            moved == 0 ? "connection closed" : strerror(errno));
        if (left_ns <= 0)
            return tri_fail(TRI_ETIMEOUT, "ucx: rank %d has not sent its address in time", peer);
        if (!ucx->door.broken) /* else the membership decides what a stop signal does */
            TRI_TRY(tri_wait_check("connecting to the other ranks"));
        left_ns = left_ns > TRI_WAIT_SLICE_NS ? TRI_WAIT_SLICE_NS : left_ns;
        poll(&one, 1, (int)(left_ns / TRI_NS_PER_MS) + 1);
    }
    return TRI_OK;
}

/* UCX's own word that a peer is lost; the link must not be freed here. */
static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ((ucx_link *)arg)->broken = true;
}

static tri_status ticket_tell(const ucx_transport *ucx, int peer, ucp_address_t *address, size_t nbytes,
                              int64_t deadline_ns)
{
    ucx_link *link = &ucx->links[peer];
    ucx_ticket ticket = {.address_nbytes = (uint32_t)nbytes, .slot_nbytes = (uint32_t)ucx->slot_nbytes};

    /* The lowest bit tells counts from data. */
    tri_entropy(&link->in_tag, sizeof link->in_tag);
    link->in_tag &= ~TRI_UCX_COUNT_TAG;
    ticket.tag = link->in_tag;
    TRI_TRY(socket_move(ucx, peer, true, &ticket, sizeof ticket, deadline_ns));
    return socket_move(ucx, peer, true, address, nbytes, deadline_ns);
}

static tri_status link_open(ucx_transport *ucx, int peer, int64_t deadline_ns)
{
    ucx_link *link = &ucx->links[peer];
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = link}};
    ucx_ticket ticket;
    ucs_status_t made;
    tri_status status;
    void *address;

    TRI_TRY(socket_move(ucx, peer, false, &ticket, sizeof ticket, deadline_ns));
    if (ticket.address_nbytes == 0 || ticket.address_nbytes > ADDRESS_LIMIT_NBYTES ||
        ticket.slot_nbytes != ucx->slot_nbytes)
        return tri_fail(TRI_EFORMAT,
                        "ucx: rank %d: want slots of %zu bytes (comm.slot_kib) and an address up to %zu, got %u and %u",
                        peer, ucx->slot_nbytes, ADDRESS_LIMIT_NBYTES, ticket.slot_nbytes, ticket.address_nbytes);
    link->out_tag = ticket.tag & ~TRI_UCX_COUNT_TAG;
    link->in = tri_alloc_bulk(TRI_UCX_SLOTS * ucx->slot_nbytes);
    link->out = tri_alloc_bulk(TRI_UCX_SLOTS * ucx->slot_nbytes);
    address = tri_alloc(ticket.address_nbytes);
    status = link->in && link->out && address ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = socket_move(ucx, peer, false, address, ticket.address_nbytes, deadline_ns);
    if (status == TRI_OK) {
        params.address = address;
        made = ucx->calls.ucp_ep_create(ucx->worker, &params, &link->ep);
        if (made != UCS_OK) {
            link->ep = NULL;
            status =
                tri_fail(TRI_EPEER, "ucx: rank %d cannot be reached: %s", peer, ucx->calls.ucs_status_string(made));
        }
    }
    for (size_t slot = 0; status == TRI_OK && slot < TRI_UCX_SLOTS; slot++)
        tri_ucx_slot_post(ucx, link, slot);
    if (status == TRI_OK)
        tri_ucx_count_post(ucx, link);
    tri_free(address);
    return status;
}

/* Over UCX each greets each: a link is up when it was heard. */
static tri_status links_greet(ucx_transport *ucx, unsigned char *want, int64_t deadline_ns)
{
    const uint64_t own = (uint64_t)ucx->base.rank << 32 | (uint32_t)ucx->base.world;
    int waiting = 0;
    size_t moved;

    for (int peer = 0; peer < ucx->base.world; peer++) {
        if (!ucx->links[peer].ep)
            continue;
        TRI_TRY(tri_transport_ucx.write_some(&ucx->base, peer, &own, sizeof own, &moved));
        want[peer] = TRI_WANT_READ;
        waiting++;
    }
    while (waiting > 0) {
        for (int peer = 0; peer < ucx->base.world; peer++) {
            uint64_t heard = 0;

            if (!want[peer])
                continue;
            TRI_TRY(tri_transport_ucx.read_some(&ucx->base, peer, &heard, sizeof heard, &moved));
            if (moved == 0 && tri_now_ns() >= deadline_ns)
                return tri_fail(TRI_ETIMEOUT, "ucx: rank %d was not heard of in time", peer);
            if (moved == 0)
                continue;
            if (moved != sizeof heard || heard != ((uint64_t)peer << 32 | (uint32_t)ucx->base.world))
                return tri_fail(TRI_EFORMAT, "ucx: rank %d: want its greeting, got %zu bytes, %016llx", peer, moved,
                                (unsigned long long)heard);
            want[peer] = 0;
            waiting--;
        }
        if (waiting > 0)
            TRI_TRY(tri_transport_ucx.wait(&ucx->base, want, deadline_ns));
    }
    return TRI_OK;
}

static tri_status links_open(ucx_transport *ucx, int64_t deadline_ns)
{
    int world = ucx->base.world;
    ucp_address_t *address;
    size_t nbytes;
    ucs_status_t known = ucx->calls.ucp_worker_get_address(ucx->worker, &address, &nbytes);
    unsigned char *want = tri_alloc_zero((size_t)world, 1);
    tri_status status = want ? TRI_OK : TRI_ENOMEM;

    if (known != UCS_OK) {
        tri_free(want);
        return failed(ucx, "has no address", known);
    }
    /* All tell before any listens; what they say fits into a socket's buffer. */
    for (int peer = 0; status == TRI_OK && peer < world; peer++) {
        if (ucx->links[peer].fd >= 0)
            status = ticket_tell(ucx, peer, address, nbytes, deadline_ns);
    }
    ucx->calls.ucp_worker_release_address(ucx->worker, address);
    for (int peer = 0; status == TRI_OK && peer < world; peer++) {
        if (ucx->links[peer].fd >= 0)
            status = link_open(ucx, peer, deadline_ns);
    }
    if (status == TRI_OK)
        status = links_greet(ucx, want, deadline_ns);
    tri_free(want);
    return status;
}

tri_status tri_ucx_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    ucx_transport *ucx = (ucx_transport *)transport;
    tri_connected_peer *connected = NULL;
    tri_status status = tri_tcp_rendezvous("ucx", transport->rank, transport->world, ucx->token, &ucx->door, 0,
                                           addresses, deadline_ns, &connected);
    int local = 1;

    for (int peer = 0; peer < transport->world; peer++)
        local += peer != transport->rank && addresses[peer] && tri_tcp_same_host(addresses[peer], ucx->door.address);
    ucx->spins = tri_host_cores() >= local;
    tri_tcp_door_close(&ucx->door);
    for (int peer = 0; status == TRI_OK && peer < transport->world; peer++)
        ucx->links[peer].fd = connected[peer].fds[0];
    tri_free(connected);
    for (int peer = 0; status == TRI_OK && peer < transport->world; peer++) {
        if (ucx->links[peer].fd >= 0)
            status = tri_tcp_tune(ucx->links[peer].fd, ucx->timeout_s);
    }
    if (status == TRI_OK)
        status = links_open(ucx, deadline_ns);
    return status == TRI_OK ? tri_thread_start(&ucx->pusher, "ucx", tri_ucx_push, ucx) : status;
}

/* ---- closing */

void tri_ucx_close(tri_transport *transport)
{
    ucx_transport *ucx = (ucx_transport *)transport;

    if (!ucx)
        return;
    tri_mutex_lock(&ucx->mutex);
    ucx->closing = true;
    tri_cond_signal(&ucx->woken);
    tri_mutex_unlock(&ucx->mutex);
    tri_thread_join(ucx->pusher);
    tri_mutex_lock(&ucx->mutex);
    if (ucx->worker)
        tri_ucx_part(ucx);
    tri_mutex_unlock(&ucx->mutex);
    if (ucx->context)
        ucx->calls.ucp_cleanup(ucx->context);
    for (int peer = 0; ucx->links && peer < transport->world; peer++) {
        if (ucx->links[peer].fd >= 0)
            close(ucx->links[peer].fd);
        tri_free(ucx->links[peer].in);
        tri_free(ucx->links[peer].out);
    }
    tri_tcp_door_close(&ucx->door);
    tri_cond_fini(&ucx->woken);
    tri_mutex_fini(&ucx->mutex);
    tri_free(ucx->links);
    tri_free(ucx->polls);
    tri_free(ucx);
}
