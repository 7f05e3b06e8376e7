/* SPDX-License-Identifier: Apache-2.0
 *
 * net_impl.h: what net.c, move*.c and abort.c share: the links of a rank and how far each stream has been read.
 *
 * Invariant of a link's reading side: the stream is at `head_nbytes` of a head, or (decoded) at `payload_nbytes` of the
 * padded payload of `frame`. It outlives the call that read it: a head that came early waits there for its call.
 */
#ifndef TRI_NET_NET_IMPL_H
#define TRI_NET_NET_IMPL_H

#include <stdatomic.h>

#include "net/net.h"

#define TRI_NET_TRANSPORTS     2
#define TRI_NET_SCRATCH_NBYTES ((size_t)256 << 10)
#define TRI_NET_BLOCK_NBYTES   ((uint64_t)64)

typedef struct tri_net_link {
    tri_transport *transport;
    /* reading */
    unsigned char head[TRI_FRAME_NBYTES];
    size_t head_nbytes;
    tri_frame frame; /* when decoded */
    bool decoded;
    bool claimed; /* the frame agrees with what the running call expects */
    bool bye;     /* the peer said goodbye: nothing more will come */
    bool gone;    /* the connection is closed */
    bool deaf;    /* gone, as what came is damaged: the peer still hears */
    uint64_t payload_nbytes;
    unsigned char carry[TRI_NET_BLOCK_NBYTES]; /* part of a block that was read but not yet consumed */
    size_t carry_nbytes;
    /* writing */
    bool written;          /* anything was, or tried */
    bool partial;          /* a frame was left unfinished: nothing else can be said on this link */
    size_t control_nbytes; /* of the abort or goodbye that is being sent */
    /* For whoever looks on (tri_net_moved): of which call, and bytes of its frames so far. */
    _Atomic uint32_t moved_group;
    _Atomic uint64_t moved_sequence, sent_nbytes, received_nbytes;
    /* of the running call: index of the move under way, SIZE_MAX: none */
    size_t sending, receiving;
} tri_net_link;

struct tri_net {
    int rank, world;
    char *token;
    tri_net_config config;
    tri_transport *transports[TRI_NET_TRANSPORTS];
    const char *names[TRI_NET_TRANSPORTS];
    size_t transport_count;
    bool over_hub;
    uint32_t job;
    tri_watch *watch;         /* NULL: nobody watches */
    bool all_watched;         /* every peer */
    const tri_fabric *fabric; /* of the hub, where it is simulated */
    char address[TRI_NET_ADDRESS_NBYTES];
    unsigned char *routes; /* [world]: 1 + index of the transport that reaches a peer, 0: not linked (oneself) */
    uint64_t *hosts;       /* [world]: hash of each rank's host id; NULL: all on one (hub) */
    tri_net_link **links;  /* [world]: NULL until the peer is first needed: thousands of ranks in one process use few */
    int *active;           /* [world]: peers of the running call */
    size_t active_count;
    int *turn; /* [world]: those of them to look at in the next pass */
    size_t turn_count;
    unsigned char *want; /* [world]: zeros between calls */
    unsigned char *scratch;
    size_t scratch_nbytes;
    int64_t slice_ns; /* of a wait on one of several transports */
    tri_net_traffic traffic;
    int abort_peer; /* whose abort is being read, -1: none */
    char abort_text[TRI_FRAME_ABORT_LIMIT_NBYTES + 1];
};

static inline uint64_t tri_net_padded(uint64_t nbytes)
{
    return (nbytes + TRI_NET_BLOCK_NBYTES - 1) & ~(TRI_NET_BLOCK_NBYTES - 1);
}

/* The transport that reaches a peer; NULL: not linked. */
static inline tri_transport *tri_net_transport(const tri_net *net, int peer)
{
    return net->routes[peer] ? net->transports[net->routes[peer] - 1] : NULL;
}

/* The state of the link to a linked peer; NULL: out of memory, which a call in real life is not: all are made when they
 * are linked. */
tri_net_link *tri_net_link_make(tri_net *net, int peer);
/* NULL also where nothing has come from the peer nor gone to it, so that there is nothing to look at. */
tri_net_link *tri_net_link_heard(tri_net *net, int peer);
/* The value of "name=" in "a=1;b=2", up to the semicolon. False: there is none that fits. */
bool tri_net_address_value(const char *address, const char *name, char *value, size_t capacity);
/* Reads on until the head of a DATA frame is in the link or nothing more has come; *moved when anything came. Notes a
 * goodbye. TRI_EABORT with the peer's text, TRI_EPEER (closed without goodbye), TRI_EFORMAT. */
tri_status tri_net_link_listen(tri_net *net, int peer, bool *moved);
/* The frame of the link has been read. */
void tri_net_link_next(tri_net_link *link);
/* Waits for what net->want says, on all transports. */
tri_status tri_net_wait(tri_net *net, int64_t deadline_ns);
/* After a peer was lost: waits a little for a peer that says why, throwing data away. Returns TRI_EABORT with its text,
 * or `status` with the message that stood. */
tri_status tri_net_first_cause(tri_net *net, tri_status status);
/* The same bytes to all who can still be reached; ends when nobody takes any of them for limit_ns. */
void tri_net_tell_all(tri_net *net, const unsigned char *bytes, size_t nbytes, int64_t limit_ns);

/* files.c: lets the process open as many files as its links take; TRI_EIO when it may not. */
tri_status tri_net_files_reserve(int world);

#endif
