/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx.c: bytes over UCX: RDMA and whatever other fabrics it drives, its shared memory, its tcp.
 *
 * Ranks first meet over TCP, authenticated as everywhere; there they hand over what UCX calls a worker address and a
 * random tag by which they know each other's messages, and the socket stays open: its hang-up says that the peer died,
 * a number that comes before it says with how many messages the peer left in good order. A link is a ring of slots on
 * either side: a write fills a slot and sends it as one tagged message, receives are posted for all slots, and a count
 * of slots that were read goes back, so that nobody sends more than the other has room for. UCX sends only while it is
 * called: a thread calls it when the rank that sent something computes.
 */
#include <string.h>

#include "net/ucx_impl.h"

#define PUSH_EVERY_NS       INT64_C(300000)
#define SPIN_NS             INT64_C(20000)
#define SLEEP_LIMIT_NS      (50 * TRI_NS_PER_MS)
#define ALIVE_EVERY_NS      (50 * TRI_NS_PER_MS)
#define YIELDS_BEFORE_SLEEP 8

static tri_status peer_gone(int peer)
{
    return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
}

/* ---- one slot at a time */

bool tri_ucx_is_sent(const ucx_transport *ucx, ucx_link *link, void **request)
{
    ucs_status_t status;

    if (!*request)
        return true;
    status = ucx->calls.ucp_request_check_status(*request);
    if (status == UCS_INPROGRESS)
        return false;
    ucx->calls.ucp_request_free(*request);
    *request = NULL;
    link->broken |= status != UCS_OK;
    return true;
}

/* Starts to send; the bytes stay until tri_ucx_is_sent. */
static void send_start(ucx_transport *ucx, ucx_link *link, const void *bytes, size_t nbytes, uint64_t tag,
                       void **request)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t started = ucx->calls.ucp_tag_send_nbx(link->ep, bytes, nbytes, tag, &param);

    link->broken |= UCS_PTR_IS_ERR(started);
    *request = UCS_PTR_IS_PTR(started) ? started : NULL;
    if (*request && !ucx->unsent) {
        ucx->unsent = true;
        tri_cond_signal(&ucx->woken);
    }
}

static bool is_unsent(const ucx_transport *ucx)
{
    bool unsent = false;

    for (int peer = 0; peer < ucx->base.world; peer++) {
        ucx_link *link = &ucx->links[peer];

        for (size_t slot = 0; link->ep && slot < TRI_UCX_SLOTS; slot++)
            unsent |= !tri_ucx_is_sent(ucx, link, &link->sends[slot]);
        unsent |= link->ep && !tri_ucx_is_sent(ucx, link, &link->count_send);
    }
    return unsent;
}

void tri_ucx_push(void *transport)
{
    ucx_transport *ucx = transport;

    tri_mutex_lock(&ucx->mutex);
    while (!ucx->closing) {
        if (!ucx->unsent) {
            (void)tri_cond_wait(&ucx->woken, &ucx->mutex, TRI_FOREVER);
            continue;
        }
        ucx->calls.ucp_worker_progress(ucx->worker);
        ucx->unsent = is_unsent(ucx);
        tri_mutex_unlock(&ucx->mutex);
        tri_sleep_ns(PUSH_EVERY_NS);
        tri_mutex_lock(&ucx->mutex);
    }
    tri_mutex_unlock(&ucx->mutex);
}

/* Posts a receive. */
static void receive_start(const ucx_transport *ucx, ucx_link *link, void *bytes, size_t nbytes, uint64_t tag,
                          ucx_receive *receive)
{
    ucp_tag_recv_info_t info = {0};
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO, .recv_info.tag_info = &info};
    ucs_status_ptr_t started = ucx->calls.ucp_tag_recv_nbx(ucx->worker, bytes, nbytes, tag, UINT64_MAX, &param);

    link->broken |= UCS_PTR_IS_ERR(started);
    *receive = (ucx_receive){
        .request = UCS_PTR_IS_PTR(started) ? started : NULL, .done = started == NULL, .nbytes = info.length};
}

static bool has_come(const ucx_transport *ucx, ucx_link *link, ucx_receive *receive)
{
    ucp_tag_recv_info_t info;
    ucs_status_t status;

    if (receive->done || !receive->request)
        return receive->done;
    status = ucx->calls.ucp_tag_recv_request_test(receive->request, &info);
    if (status == UCS_INPROGRESS)
        return false;
    ucx->calls.ucp_request_free(receive->request);
    *receive = (ucx_receive){.done = status == UCS_OK, .nbytes = info.length};
    link->broken |= status != UCS_OK;
    return receive->done;
}

void tri_ucx_slot_post(const ucx_transport *ucx, ucx_link *link, size_t slot)
{
    receive_start(ucx, link, link->in + slot * ucx->slot_nbytes, ucx->slot_nbytes, link->in_tag, &link->receives[slot]);
}

void tri_ucx_count_post(const ucx_transport *ucx, ucx_link *link)
{
    receive_start(ucx, link, &link->count_in, sizeof link->count_in, link->in_tag ^ TRI_UCX_COUNT_TAG,
                  &link->count_receive);
}

/* Says how many slots were read here, not for each. */
static void count_tell(ucx_transport *ucx, ucx_link *link)
{
    if (link->broken || link->read - link->reported < TRI_UCX_SLOTS / 2 ||
        !tri_ucx_is_sent(ucx, link, &link->count_send))
        return;
    link->reported = link->count_out = link->read;
    send_start(ucx, link, &link->count_out, sizeof link->count_out, link->out_tag ^ TRI_UCX_COUNT_TAG,
               &link->count_send);
}

static bool can_write(const ucx_transport *ucx, ucx_link *link)
{
    /* How many slots the peer has read. */
    while (!link->broken && has_come(ucx, link, &link->count_receive)) {
        link->read_by_peer = link->count_in;
        tri_ucx_count_post(ucx, link);
    }
    return link->sent - link->read_by_peer < TRI_UCX_SLOTS &&
           tri_ucx_is_sent(ucx, link, &link->sends[link->sent % TRI_UCX_SLOTS]);
}

static bool can_read(const ucx_transport *ucx, ucx_link *link)
{
    return has_come(ucx, link, &link->receives[link->read % TRI_UCX_SLOTS]);
}

/* Nothing more will come: it died, or all it ever sent was read. */
static bool is_over(const ucx_link *link)
{
    return link->broken || link->dead || (link->has_left && link->read >= link->left_after);
}

/* ---- the table's calls */

static void slots_write(ucx_transport *ucx, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    ucx_link *link = &ucx->links[peer];

    if (!can_write(ucx, link))
        ucx->calls.ucp_worker_progress(ucx->worker);
    while (!link->broken && !link->dead && !link->has_left && *taken < nbytes && can_write(ucx, link)) {
        size_t slot = link->sent % TRI_UCX_SLOTS;
        size_t part = nbytes - *taken < ucx->slot_nbytes ? nbytes - *taken : ucx->slot_nbytes;
        char *at = link->out + slot * ucx->slot_nbytes;

        memcpy(at, (const char *)bytes + *taken, part);
        send_start(ucx, link, at, part, link->out_tag, &link->sends[slot]);
        link->sent++;
        *taken += part;
    }
}

static tri_status ucx_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    ucx_transport *ucx = (ucx_transport *)transport;
    const ucx_link *link = &ucx->links[peer];
    bool gone;

    *taken = 0;
    tri_mutex_lock(&ucx->mutex);
    slots_write(ucx, peer, bytes, nbytes, taken);
    gone = *taken == 0 && (link->broken || link->dead || link->has_left);
    tri_mutex_unlock(&ucx->mutex);
    return gone ? peer_gone(peer) : TRI_OK;
}

static tri_status slot_peek(ucx_transport *ucx, int peer, const void **bytes, size_t *nbytes)
{
    ucx_link *link = &ucx->links[peer];
    size_t slot = link->read % TRI_UCX_SLOTS;

    *bytes = link->in + slot * ucx->slot_nbytes + link->first;
    *nbytes = 0;
    if (!can_read(ucx, link)) {
        ucx->calls.ucp_worker_progress(ucx->worker);
        count_tell(ucx, link);
    }
    if (can_read(ucx, link))
        *nbytes = link->receives[slot].nbytes - link->first;
    else if (is_over(link))
        return peer_gone(peer);
    return TRI_OK;
}

static tri_status ucx_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes)
{
    ucx_transport *ucx = (ucx_transport *)transport;

    tri_mutex_lock(&ucx->mutex);
    tri_status status = slot_peek(ucx, peer, bytes, nbytes);
    tri_mutex_unlock(&ucx->mutex);
    return status;
}

static void slot_consume(ucx_transport *ucx, int peer, size_t nbytes)
{
    ucx_link *link = &ucx->links[peer];
    size_t slot = link->read % TRI_UCX_SLOTS;

    link->first += nbytes;
    if (link->first < link->receives[slot].nbytes)
        return;
    link->first = 0;
    link->read++;
    tri_ucx_slot_post(ucx, link, slot);
    count_tell(ucx, link);
}

static void ucx_consume(tri_transport *transport, int peer, size_t nbytes)
{
    ucx_transport *ucx = (ucx_transport *)transport;

    tri_mutex_lock(&ucx->mutex);
    slot_consume(ucx, peer, nbytes);
    tri_mutex_unlock(&ucx->mutex);
}

static tri_status ucx_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    *given = 0;
    while (*given < nbytes) {
        const void *from;
        size_t there;
        tri_status status = ucx_peek(transport, peer, &from, &there);

        if (*given > 0 && status != TRI_OK)
            return TRI_OK;
        TRI_TRY(status);
        if (there == 0)
            return TRI_OK;
        there = there < nbytes - *given ? there : nbytes - *given;
        memcpy((char *)bytes + *given, from, there);
        ucx_consume(transport, peer, there);
        *given += there;
    }
    return TRI_OK;
}

static bool progress(ucx_transport *ucx, const unsigned char *want)
{
    while (ucx->calls.ucp_worker_progress(ucx->worker))
        ;
    for (int peer = 0; peer < ucx->base.world; peer++) {
        if (ucx->links[peer].ep)
            count_tell(ucx, &ucx->links[peer]);
    }
    for (int peer = 0; peer < ucx->base.world; peer++) {
        ucx_link *link = &ucx->links[peer];

        if (!want[peer] || !link->ep)
            continue;
        if (link->broken || link->dead || ((want[peer] & TRI_WANT_READ) && (can_read(ucx, link) || is_over(link))) ||
            ((want[peer] & TRI_WANT_WRITE) && (can_write(ucx, link) || link->has_left)))
            return true;
    }
    return false;
}

/* Ranks that share a core hand it over instead. */
static bool spin(ucx_transport *ucx, const unsigned char *want)
{
    int64_t until_ns = tri_now_ns() + SPIN_NS;

    for (int turn = 0; ucx->spins ? tri_now_ns() < until_ns : turn < YIELDS_BEFORE_SLEEP; turn++) {
        if (progress(ucx, want))
            return true;
        if (!ucx->spins)
            tri_yield();
    }
    return false;
}

/* Under the mutex. */
static void wait_ready(ucx_transport *ucx, const unsigned char *want, int64_t deadline_ns)
{
    if (spin(ucx, want))
        return;
    for (;;) {
        int64_t now_ns = tri_now_ns();
        /* That a full queue of UCX has room again wakes nobody. */
        int64_t until_ns = now_ns + (ucx->unsent ? PUSH_EVERY_NS : SLEEP_LIMIT_NS);

        if (now_ns - ucx->alive_ns >= ALIVE_EVERY_NS)
            tri_ucx_listen(ucx, now_ns);
        if (progress(ucx, want) || now_ns >= deadline_ns)
            return;
        /* Not armed: something has come meanwhile. */
        if (ucx->calls.ucp_worker_arm(ucx->worker) == UCS_OK)
            tri_ucx_listen(ucx, deadline_ns < until_ns ? deadline_ns : until_ns);
        if (progress(ucx, want))
            return;
    }
}

static tri_status ucx_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    ucx_transport *ucx = (ucx_transport *)transport;

    tri_mutex_lock(&ucx->mutex);
    wait_ready(ucx, want, deadline_ns);
    tri_mutex_unlock(&ucx->mutex);
    return TRI_OK;
}

const tri_transport_ops tri_transport_ucx = {
    .name = "ucx",
    .does = "RDMA and other fabrics, by UCX",
    .between_hosts = true,
    .open = tri_ucx_open,
    .address = tri_ucx_address,
    .connect = tri_ucx_connect,
    .write_some = ucx_write_some,
    .read_some = ucx_read_some,
    .peek = ucx_peek,
    .consume = ucx_consume,
    .wait = ucx_wait,
    .close = tri_ucx_close,
};
