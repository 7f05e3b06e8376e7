/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h: all links of one rank: frames sent and received over whatever transport reaches each peer.
 *
 * One call moves any number of frames at once (tri_net_move): that is what makes exchanges free of deadlock and lets an
 * algorithm overlap its sends, receives and reductions as straight-line text. One thread at a time uses a tri_net.
 */
#ifndef TRI_NET_NET_H
#define TRI_NET_NET_H

#include "net/frame.h"
#include "net/transport.h"

typedef struct tri_net tri_net;

/* Listens on every transport that the configuration allows. token: of the job. hub: for inproc and sim, else NULL. */
tri_status tri_net_open(const tri_net_config *config, int rank, int world, const char *token, tri_hub *hub,
                        tri_net **out);
/* What the others need: "host=<id>;shm=...;tcp=..."; at most TRI_NET_ADDRESS_NBYTES with its 0. */
#define TRI_NET_ADDRESS_NBYTES 640
const char *tri_net_address(const tri_net *net);
/* Links to all; addresses[r] is what rank r's tri_net_address() said. shm where the host id is the same, else tcp. With
 * a hub addresses may be NULL: it knows everybody, and this call waits until all have opened. */
tri_status tri_net_connect(tri_net *net, const char *const *addresses, int64_t deadline_ns);
/* Says goodbye to all and closes; NULL does nothing. */
void tri_net_close(tri_net *net);

int tri_net_rank(const tri_net *net);
int tri_net_world(const tri_net *net);
/* The name of the transport that reaches a peer: "shm". */
const char *tri_net_transport_name(const tri_net *net, int peer);
/* How long a byte and its answer take to the farthest peer, when the links were made; 0: no transport measures it. */
int64_t tri_net_round_trip_ns(const tri_net *net);
/* How a peer is reached: "tcp, 4 connections, 10.0.0.1 to 10.0.0.2, round trip 60.21 ms". */
#define TRI_NET_DESCRIBE_NBYTES 256
void tri_net_describe_peer(const tri_net *net, int peer, char text[TRI_NET_DESCRIBE_NBYTES]);

/* Gets the bytes [first, first + nbytes) of a payload, in order; pieces begin at multiples of 64 bytes. */
typedef void (*tri_net_consumer)(void *arg, size_t first, const void *bytes, size_t nbytes);

/* One frame to send or to receive. Frames of one direction to or from one peer travel in the order of the array. */
typedef struct tri_move {
    int peer;
    bool send;
    tri_frame frame;           /* to send, or what is expected to come; nbytes is the payload's */
    void *bytes;               /* payload: read when sending, written when receiving (unless consumer) */
    tri_net_consumer consumer; /* receiving: NULL copies to bytes; else called piece by piece, bytes unused */
    void *consumer_arg;
    /* The mover's own: zero before the call. */
    uint64_t done_nbytes; /* of head and payload */
    unsigned char head[TRI_FRAME_NBYTES];
} tri_move;

/* Moves all frames, or fails: TRI_EPEER (names the peer), TRI_ETIMEOUT (names the peers that are late and what was
 * moved), TRI_EABORT (a peer's first cause, as text; *found is its abort: op the tri_status, count the rank it began
 * at), TRI_EMISMATCH
 * (*found is what the peer sent and *culprit its rank; both may be NULL), TRI_EFORMAT. After a failure the links are in
 * an unknown state: abort and close. */
tri_status tri_net_move(tri_net *net, tri_move *moves, size_t count, int64_t deadline_ns, tri_frame *found,
                        int *culprit);
/* Tells everybody why this rank stops, without waiting for anyone for more than 100 ms in all. */
void tri_net_abort(tri_net *net, tri_status cause, int origin_rank, const char *message);

#endif
