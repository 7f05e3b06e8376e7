/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.h: a handshake of two ranks over a fresh socket, step by step, for the rendezvous (rendezvous.c).
 */
#ifndef TRI_NET_HANDSHAKE_H
#define TRI_NET_HANDSHAKE_H

#include "net/rendezvous.h"

#define TRI_HANDSHAKE_NONCE_NBYTES 32

/* What a handshake waits for. */
typedef enum handshake_stage {
    HANDSHAKE_IDLE,
    HANDSHAKE_CONNECT,
    HANDSHAKE_SEND,
    HANDSHAKE_RECEIVE,
    HANDSHAKE_DONE
} handshake_stage;

typedef struct net_handshake {
    handshake_stage stage;
    bool dialed; /* by us */
    int step;    /* 1 to 3: the hello under way */
    int fd, memory_fd;
    int peer;            /* -1: not known yet */
    int place;           /* of the peer's, that was dialed */
    int socket, sockets; /* which connection of the link, of how many */
    uint32_t marks;      /* of the peer */
    bool refused;        /* the peer's proof was wrong */
    int64_t limit_ns;    /* gives up then; HANDSHAKE_IDLE: dials then */
    size_t done_nbytes;
    uint32_t slot_kib;
    unsigned char hello[TRI_HELLO_NBYTES];
    unsigned char nonces[2][TRI_HANDSHAKE_NONCE_NBYTES]; /* of the dialer, of the listener */
    unsigned char key[TRI_AUTH_NBYTES];                  /* when it is done: of this connection */
    char why[96];                                        /* the latest failure */
} net_handshake;

/* Begins to send the hello of a step. */
void tri_handshake_send_start(const tri_rendezvous *is, net_handshake *handshake, int step);
/* Dials; the place is where the peer listens. Failures are in `why`, and the handshake idle again. */
void tri_handshake_dial(net_handshake *handshake, const tri_rendezvous_place *place, int64_t limit_ns);
/* A stranger who called. */
void tri_handshake_answer(net_handshake *handshake, int fd, int64_t limit_ns);
/* Continues as far as it can without waiting. */
void tri_handshake_advance(const tri_rendezvous *is, net_handshake *handshake);
/* Closes what is open; `why` is kept for messages. */
void tri_handshake_drop(net_handshake *handshake, const char *why);

#endif
