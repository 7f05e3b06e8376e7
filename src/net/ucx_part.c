/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_part.c: how ranks that use UCX part: a goodbye on the socket over which they met, or its hang-up.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/ucx_impl.h"

#define CLOSE_LIMIT_NS (100 * TRI_NS_PER_MS)
#define CLOSE_STEP_NS  TRI_NS_PER_MS

/* A socket says goodbye or hangs up; what it sent before is in UCX and is taken in first. */
static void link_ask(const ucx_transport *ucx, ucx_link *link)
{
    uint64_t count;
    ssize_t got = recv(link->fd, &count, sizeof count, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got == (ssize_t)sizeof count) {
        link->has_left = true;
        link->left_after = count;
        return;
    }
    while (ucx->calls.ucp_worker_progress(ucx->worker))
        ;
    /* After a goodbye the rest may still be on its way; UCX itself tells if it was lost. */
    link->dead = !link->has_left;
    close(link->fd);
    link->fd = -1;
}

void tri_ucx_listen(ucx_transport *ucx, int64_t until_ns)
{
    int world = ucx->base.world;
    int64_t left_ns = until_ns - tri_now_ns();
    struct timespec limit = {.tv_sec = left_ns > 0 ? left_ns / TRI_NS_PER_S : 0,
                             .tv_nsec = left_ns > 0 ? left_ns % TRI_NS_PER_S : 0};

    ucx->alive_ns = tri_now_ns();
    for (int peer = 0; peer < world; peer++)
        ucx->polls[peer] = (struct pollfd){.fd = ucx->links[peer].fd, .events = POLLIN};
    ucx->polls[world] = (struct pollfd){.fd = ucx->wakeup_fd, .events = POLLIN};
    tri_mutex_unlock(&ucx->mutex);
    int ready = ppoll(ucx->polls, (nfds_t)world + 1, &limit, NULL);
    tri_mutex_lock(&ucx->mutex);
    if (ready <= 0)
        return;
    for (int peer = 0; peer < world; peer++) {
        if (ucx->polls[peer].fd >= 0 && ucx->polls[peer].revents)
            link_ask(ucx, &ucx->links[peer]);
    }
}

static bool is_alive(const ucx_link *link)
{
    return link->ep && !link->broken && !link->dead;
}

/* One request per link; true when all have ended in time. */
static void requests_end(ucx_transport *ucx, void **requests, int64_t until_ns)
{
    bool left = true;

    while (left && tri_now_ns() < until_ns) {
        left = false;
        ucx->calls.ucp_worker_progress(ucx->worker);
        for (int peer = 0; peer < ucx->base.world; peer++)
            left |= !tri_ucx_is_sent(ucx, &ucx->links[peer], &requests[peer]);
    }
}

/* What was sent gets the time to arrive, then each says how much it was, and hears it of the others. */
static void links_leave(ucx_transport *ucx, void **requests)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    int64_t until_ns = tri_now_ns() + CLOSE_LIMIT_NS;
    bool waits = true;

    for (int peer = 0; peer < ucx->base.world; peer++) {
        ucs_status_ptr_t started =
            is_alive(&ucx->links[peer]) ? ucx->calls.ucp_ep_flush_nbx(ucx->links[peer].ep, &param) : NULL;

        requests[peer] = UCS_PTR_IS_PTR(started) ? started : NULL;
        ucx->links[peer].broken |= UCS_PTR_IS_ERR(started);
    }
    requests_end(ucx, requests, until_ns);
    for (int peer = 0; peer < ucx->base.world; peer++) {
        ucx_link *link = &ucx->links[peer];

        if (is_alive(link) && !requests[peer] && link->fd >= 0)
            (void)send(link->fd, &link->sent, sizeof link->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    while (waits && tri_now_ns() < until_ns) {
        waits = false;
        ucx->calls.ucp_worker_progress(ucx->worker);
        tri_ucx_listen(ucx, tri_now_ns() + CLOSE_STEP_NS);
        for (int peer = 0; peer < ucx->base.world; peer++)
            waits |= is_alive(&ucx->links[peer]) && !ucx->links[peer].has_left;
    }
}

/* Cancels what is posted and closes the endpoint by force; *request ends when it is closed. */
static void link_close(ucx_transport *ucx, ucx_link *link, void **request)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t started;

    for (size_t slot = 0; slot < TRI_UCX_SLOTS; slot++) {
        if (link->receives[slot].request)
            ucx->calls.ucp_request_cancel(ucx->worker, link->receives[slot].request);
    }
    if (link->count_receive.request)
        ucx->calls.ucp_request_cancel(ucx->worker, link->count_receive.request);
    started = ucx->calls.ucp_ep_close_nbx(link->ep, &param);
    *request = UCS_PTR_IS_PTR(started) ? started : NULL;
}

void tri_ucx_part(ucx_transport *ucx)
{
    void **requests = tri_alloc_zero((size_t)ucx->base.world, sizeof *requests);

    /* Without memory no goodbye is sent; the sockets say it. */
    if (requests) {
        links_leave(ucx, requests);
        for (int peer = 0; peer < ucx->base.world; peer++) {
            if (requests[peer])
                ucx->calls.ucp_request_free(requests[peer]);
            requests[peer] = NULL;
            if (ucx->links[peer].ep)
                link_close(ucx, &ucx->links[peer], &requests[peer]);
        }
        requests_end(ucx, requests, tri_now_ns() + CLOSE_LIMIT_NS);
    }
    for (int peer = 0; peer < ucx->base.world; peer++) {
        ucx_link *link = &ucx->links[peer];

        for (size_t slot = 0; slot < TRI_UCX_SLOTS; slot++) {
            if (link->receives[slot].request)
                ucx->calls.ucp_request_free(link->receives[slot].request);
            if (link->sends[slot])
                ucx->calls.ucp_request_free(link->sends[slot]);
        }
        if (link->count_receive.request)
            ucx->calls.ucp_request_free(link->count_receive.request);
        if (link->count_send)
            ucx->calls.ucp_request_free(link->count_send);
    }
    tri_free(requests);
    ucx->calls.ucp_worker_destroy(ucx->worker);
}
