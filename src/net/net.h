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
#include "net/watch.h"

typedef struct tri_net tri_net;

/* Listens on every transport that the configuration allows. token: of the job. hub: for inproc and sim, else NULL. */
tri_status tri_net_open(const tri_net_config *config, int rank, int world, const char *token, tri_hub *hub,
                        tri_net **out);
/* What the others need: "host=<id>;shm=...;tcp=..."; at most TRI_NET_ADDRESS_NBYTES with its 0. */
#define TRI_NET_ADDRESS_NBYTES 1280
const char *tri_net_address(const tri_net *net);
/* Links to all; addresses[r] is what rank r's tri_net_address() said. shm where the host id is the same, else tcp. With
 * a hub addresses may be NULL: it knows everybody, and this call waits until all have opened. */
tri_status tri_net_connect(tri_net *net, const char *const *addresses, int64_t deadline_ns);
/* Says goodbye to all and closes; NULL does nothing. */
void tri_net_close(tri_net *net);

int tri_net_rank(const tri_net *net);
int tri_net_world(const tri_net *net);
/* Are all ranks in this process (a hub)? */
bool tri_net_is_local(const tri_net *net);
/* A number of the job, the same on all ranks, from which its token cannot be found out. */
uint32_t tri_net_job(const tri_net *net);
/* Bytes of frames sent to and received from a peer in the latest call of which frames went between the two, when that
 * is this one; else 0. Any thread. */
void tri_net_moved(const tri_net *net, int peer, uint32_t group, uint64_t sequence, uint64_t *sent, uint64_t *received);
/* Equal for ranks of one host (comm.host). */
uint64_t tri_net_host_of(const tri_net *net, int rank);
/* The name of the transport that reaches a peer: "shm". */
const char *tri_net_transport_name(const tri_net *net, int peer);
/* How long a byte and its answer take to the farthest peer, when the links were made; 0: no transport measures it. */
int64_t tri_net_round_trip_ns(const tri_net *net);
/* What the kernel knows of the link to a peer; all 0: nothing, or there is none. Any thread. */
tri_link_load tri_net_load(const tri_net *net, int peer);
/* How a peer is reached: "tcp, 4 connections, 10.0.0.1 to 10.0.0.2, round trip 60.21 ms". */
#define TRI_NET_DESCRIBE_NBYTES 256
void tri_net_describe_peer(const tri_net *net, int peer, char text[TRI_NET_DESCRIBE_NBYTES]);

/* Gets the bytes [first, first + nbytes) of a payload, in order; pieces begin at multiples of 64 bytes. */
typedef void (*tri_net_consumer)(void *arg, size_t first, const void *bytes, size_t nbytes);

/* One frame to send or to receive. Frames of one direction to or from one peer travel in the order of the array. */
typedef struct tri_move {
    int peer;
    bool send;
    bool collective;           /* both ends make the same call: what the peer sends under its number agrees with it */
    tri_frame frame;           /* to send, or what is expected to come; nbytes is the payload's */
    void *bytes;               /* payload: read when sending, written when receiving (unless consumer) */
    tri_net_consumer consumer; /* receiving: NULL copies to bytes; else called piece by piece, bytes unused */
    void *consumer_arg;
    /* The mover's own: zero before the call. */
    uint64_t done_nbytes; /* of head and payload */
    size_t next;          /* index of the next one of the same peer and direction, SIZE_MAX: none */
    unsigned char head[TRI_FRAME_NBYTES];
} tri_move;

/* Moves all frames, or fails: TRI_EPEER (names the peer), TRI_ETIMEOUT (names the peers that are late and what was
 * moved), TRI_EABORT (a peer's first cause, as text; *found is its abort: op the tri_status, count the rank it began
 * at), TRI_EMISMATCH
 * (*found is what the peer sent and *culprit its rank; both may be NULL), TRI_EFORMAT. After a failure the links are in
 * an unknown state: abort and close. */
tri_status tri_net_move(tri_net *net, tri_move *moves, size_t count, int64_t deadline_ns, tri_frame *found,
                        int *culprit);
/* Between moves: listens to all peers without waiting. TRI_EPEER, TRI_EABORT, TRI_EFORMAT as tri_net_move. */
tri_status tri_net_patrol(tri_net *net, tri_frame *found, int *culprit);
/* Has a peer's link ended, with a goodbye or without? */
bool tri_net_has_gone(const tri_net *net, int peer);
/* For who waits for such a peer: TRI_EPEER, or what is heard within a moment of why (TRI_EABORT). */
tri_status tri_net_lost(tri_net *net, int peer, tri_frame *found, int *culprit);
/* Has a peer's frame come whose move has not? */
bool tri_net_pending(const tri_net *net, int peer, tri_frame *frame);
/* Something ended the work of this rank, whatever it waits for: a rank was found dead, stopped or unreachable, or
 * failed and said so. One relaxed load, for every loop that waits. Without a watch (hub, comm.heartbeat_ms = 0): false.
 */
bool tri_net_trouble(const tri_net *net);
/* That failure with its message: TRI_EPEER (names the lost rank), TRI_EABORT, TRI_EMISMATCH; TRI_OK without trouble.
 * Any thread. */
tri_status tri_net_trouble_status(const tri_net *net);
/* The rank where it began, and what it was there; untouched without trouble. */
void tri_net_blame(const tri_net *net, int *origin, tri_status *cause);
/* The peer said goodbye: a wait for something it has not given cannot succeed. One relaxed load. */
bool tri_net_has_left(const tri_net *net, int peer);
/* The watch of this rank, NULL: none. It is the net's. */
/* Is a peer known to be lost, or to have left? Nobody is where nobody watches. */
bool tri_net_has_lost(const tri_net *net, int peer);
/* It is lost, and may live all the same: its connection ended, or nothing of its host is heard. */
bool tri_net_is_cut(const tri_net *net, int peer);
tri_watch *tri_net_watch(const tri_net *net);
/* As tri_net_abort, from any thread and without the links: by the watch alone. False: there is none. */
bool tri_net_tell(tri_net *net, tri_status cause, int origin_rank, const char *message);
/* Tells everybody why this rank stops: at once where all peers are watched, else without waiting for a peer that takes
 * nothing for more than 2 s. */
/* What tri_net_move() has moved so far on this rank. */
typedef struct tri_net_traffic {
    uint64_t moves;       /* calls, one after the other */
    uint64_t sent_frames; /* messages */
    uint64_t sent_nbytes; /* their payload */
    uint64_t far_nbytes;  /* of it, to other hosts */
} tri_net_traffic;
tri_net_traffic tri_net_traffic_now(const tri_net *net);
/* The network that is simulated; NULL: a real one. */
const tri_fabric *tri_net_fabric(const tri_net *net);
/* Tells everybody why this rank stops, without waiting for anyone for more than 100 ms in all. */
void tri_net_abort(tri_net *net, tri_status cause, int origin_rank, const char *message);

#endif
