/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_hub_impl.h: what endpoint_hub.c (endpoints, who calls whom) and endpoint_hub_stream.c (pieces) share.
 *
 * A pair of ranks has one stream each way for all its connections, one after the other. A stream is a row of pieces:
 * OPEN, DATA..., END, OPEN, ...; the n-th OPEN of either side belongs to the pair's n-th connection, so what still
 * comes for a connection that this end has left is known and thrown away.
 */
#ifndef TRI_NET_ENDPOINT_HUB_IMPL_H
#define TRI_NET_ENDPOINT_HUB_IMPL_H

#include "net/endpoint_impl.h"

#define TRI_HUB_HEAD_NBYTES ((size_t)8)
#define TRI_HUB_SEAL_NBYTES ((size_t)1)

typedef struct hub_connection {
    tri_connection base;
    struct hub_peer *peer;
} hub_connection;

typedef struct hub_peer {
    int rank;
    hub_connection *connection; /* NULL: none now */
    /* out */
    uint64_t connections; /* OPENs so far, also those that are due */
    unsigned due;         /* pieces without data to be written: OPEN and END in turn */
    bool is_open;         /* the latest of these that was written is OPEN */
    bool is_cut;          /* the piece under way is of a connection that has ended */
    size_t out_nbytes;    /* data of the piece under way; 0: none */
    size_t out_done;      /* of head, data and seal */
    /* in */
    uint64_t heard; /* OPENs that came */
    unsigned char head[TRI_HUB_HEAD_NBYTES];
    size_t head_nbytes;
    size_t left; /* data of the piece that is being read */
    unsigned char tail[1 + TRI_HUB_SEAL_NBYTES];
    size_t tail_nbytes;
    bool is_over; /* the other side's END of the present connection has come */
    bool is_gone; /* the other endpoint has closed */
} hub_peer;

typedef struct hub_endpoint {
    tri_endpoint base;
    tri_transport *transport;
    hub_peer **peers; /* [world]; NULL: nothing was said yet */
    int *known;       /* [world]: those that are not NULL */
    int known_count;
    unsigned char *want;  /* [world] */
    unsigned char *piece; /* [piece_nbytes]: what is written with one call */
    size_t piece_nbytes;  /* as much as the longest so far */
    atomic_bool rung;
} hub_endpoint;

static inline hub_endpoint *hub_of(tri_endpoint *endpoint)
{
    return (hub_endpoint *)endpoint;
}

static inline hub_connection *hub_connection_of(tri_connection *connection)
{
    return (hub_connection *)connection;
}

/* ---- endpoint_hub.c: the peer has dialed. */
void tri_endpoint_hub_called(hub_endpoint *hub, hub_peer *peer);

/* ---- endpoint_hub_stream.c */
/* Slots of the table. */
tri_status tri_endpoint_hub_write(tri_connection *connection, const tri_part *parts, size_t count, size_t *taken,
                                  size_t *promised);
tri_status tri_endpoint_hub_read(tri_connection *connection, const endpoint_room rooms[2], size_t *given);
/* Writes the piece of a connection that has ended, and the pieces without data. *done: all is written. TRI_EPEER. */
tri_status tri_endpoint_hub_write_rest(hub_endpoint *hub, hub_peer *peer, bool *done);
/* Reads what is not for a connection. TRI_EPEER. */
tri_status tri_endpoint_hub_read_others(hub_endpoint *hub, hub_peer *peer);

#endif
