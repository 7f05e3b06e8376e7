/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_impl.h: what ucx.c (bytes), ucx_link.c (opening, connecting) and ucx_part.c (parting) share.
 *
 * Invariant of a link: slots [read, read + TRI_UCX_SLOTS) have a receive posted, in this order, or hold what came; the
 * peer has sent at most TRI_UCX_SLOTS beyond what was reported as read.
 */
#ifndef TRI_NET_UCX_IMPL_H
#define TRI_NET_UCX_IMPL_H

#include <poll.h>

#include "base/memory.h"
#include "net/tcp_rendezvous.h"
#include "net/transport.h"
#include "net/ucx_library.h"

/* A link has four times comm.slot_kib in flight: what the kernel buffers beside a socket of tcp has its place here.
 * With a quarter of it a sum of 16 MiB over UCX's tcp took twice as long. */
#define TRI_UCX_SLOTS     16
#define TRI_UCX_SLOT_PART 4           /* a slot is this part of comm.slot_kib */
#define TRI_UCX_COUNT_TAG UINT64_C(1) /* differs from the link's tag: counts of slots that were read */

typedef struct ucx_receive {
    void *request; /* NULL: done, or not posted */
    bool done;
    size_t nbytes;
} ucx_receive;

typedef struct ucx_link {
    int fd;      /* of the rendezvous, -1: not linked or closed */
    ucp_ep_h ep; /* NULL: not linked */
    bool broken; /* UCX says so */
    bool dead;   /* the socket hung up without a goodbye */
    bool has_left;
    uint64_t left_after; /* messages that a peer had sent when it left */
    uint64_t in_tag, out_tag;
    char *in, *out; /* [TRI_UCX_SLOTS] slots */
    ucx_receive receives[TRI_UCX_SLOTS];
    void *sends[TRI_UCX_SLOTS]; /* requests, NULL: done */
    uint64_t sent, read_by_peer;
    uint64_t read, reported; /* slots of `in` */
    size_t first;            /* in the oldest slot, not yet read */
    uint64_t count_in, count_out;
    ucx_receive count_receive;
    void *count_send;
} ucx_link;

typedef struct ucx_transport {
    tri_transport base;
    tri_ucx_calls calls;
    const char *token;
    double timeout_s;
    tri_tcp_door door;
    ucp_context_h context;
    ucp_worker_h worker;
    int wakeup_fd; /* the worker's */
    size_t slot_nbytes;
    ucx_link *links;      /* [world] */
    struct pollfd *polls; /* [world + 1] */
    bool spins;           /* no more ranks than cores here */
    int64_t alive_ns;     /* when the sockets were last looked at */
    tri_mutex mutex;      /* guards all of it while the pusher runs */
    tri_cond woken;
    tri_thread *pusher;
    bool unsent; /* some request of a send was pending when last looked at */
    bool closing;
} ucx_transport;

/* ucx.c */
/* Has what was started ended? Then *request is NULL. */
bool tri_ucx_is_sent(const ucx_transport *ucx, ucx_link *link, void **request);
void tri_ucx_slot_post(const ucx_transport *ucx, ucx_link *link, size_t slot);
void tri_ucx_count_post(const ucx_transport *ucx, ucx_link *link);
/* The body of a thread: what was taken to be sent goes out also while no call is made here. */
void tri_ucx_push(void *transport);

/* ucx_part.c */
/* Sleeps until a socket says something, UCX wakes us (armed), or the time, with the mutex released. Notes goodbyes and
 * hang-ups. */
void tri_ucx_listen(ucx_transport *ucx, int64_t until_ns);
/* Gives what was sent the time to arrive, says goodbye, and ends UCX's worker. */
void tri_ucx_part(ucx_transport *ucx);

/* ucx_link.c */
tri_status tri_ucx_open(const tri_transport_setup *setup, tri_transport **out);
const char *tri_ucx_address(const tri_transport *transport);
tri_status tri_ucx_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns);
void tri_ucx_close(tri_transport *transport);

#endif
