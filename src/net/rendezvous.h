/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.h: how two ranks find out over a fresh socket that they are who they say, for tcp and shm.
 *
 * The higher rank dials, the lower listens. Three hellos of 96 bytes: "I am" with a nonce, "so am I" with a nonce and a
 * proof, and a proof back; a proof is an HMAC under the job's token over both nonces (docs/formats/wire.md). One loop
 * holds all handshakes at once, so nobody who is slow, silent or a stranger holds up the others. A link over tcp has
 * one or more sockets, each of which goes through this.
 */
#ifndef TRI_NET_RENDEZVOUS_H
#define TRI_NET_RENDEZVOUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "net/auth.h"

#define TRI_HELLO_NBYTES  96
#define TRI_HELLO_MAGIC   UINT32_C(0x48495254) /* "TRIH" */
#define TRI_HELLO_VERSION 3
/* Connections of one link at most. */
#define TRI_LINK_SOCKETS_MAX 8

/* What a finished handshake gives. */
typedef struct tri_connected_peer {
    int fds[TRI_LINK_SOCKETS_MAX];                             /* the sockets of the link, nonblocking; -1: none */
    int sockets;                                               /* how many it has, 0: not known yet */
    unsigned char keys[TRI_LINK_SOCKETS_MAX][TRI_AUTH_NBYTES]; /* that both ends of a socket know, and nobody else */
    int memory_fd;                                             /* the peer's memory (shm), else -1 */
    uint32_t slot_kib;
} tri_connected_peer;

/* Where somebody listens. */
typedef struct tri_rendezvous_place {
    struct sockaddr_storage address;
    socklen_t nbytes;
} tri_rendezvous_place;

typedef struct tri_rendezvous {
    const char *name; /* of the transport, for messages */
    int rank, world;  /* world TRI_RENDEZVOUS_CROWD: nobody is counted (endpoints) */
    const char *token;
    const int *listeners; /* nonblocking */
    int listener_count;
    int memory_fd;     /* to hand out (shm), else -1 */
    uint32_t slot_kib; /* of that memory, else 0 */
    /* [world] of the peers to link to, NULL: not this one. As a whole NULL: any higher rank may call. */
    const char *const *addresses;
    /* The attempt-th place that an address names; false: it has no more. */
    bool (*find)(void *arg, const char *address, int attempt, tri_rendezvous_place *place);
    /* How many connections a link shall have, asked by the dialer on its first one. NULL: one. */
    int (*sockets)(void *arg, int fd);
    bool spreads;              /* the connections of a link go to different places where there are several */
    uint32_t marks;            /* TRI_MARK_...: what both sides must have alike (tcp) */
    const atomic_bool *broken; /* set: somebody will not come; NULL: never */
    /* Is the other end of this socket allowed to talk at all? NULL: yes. */
    bool (*trusts)(void *arg, int fd);
    /* At the deadline, for each peer without a link. NULL: nobody asks. */
    void (*late)(void *arg, int peer, const char *why);
    void *arg;
} tri_rendezvous;

/* A world that no job has. */
#define TRI_RENDEZVOUS_CROWD INT32_MAX

/* Frames are encrypted (comm.encrypt). */
#define TRI_MARK_ENCRYPTED UINT32_C(1)

/* Links to all peers that have an address; met[world] is the caller's (tri_free), as are the descriptors in it. On
 * failure nothing stays open and *met is NULL. */
tri_status tri_rendezvous_run(const tri_rendezvous *rendezvous, int64_t deadline_ns, tri_connected_peer **connected);

#endif
