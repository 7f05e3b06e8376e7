/* SPDX-License-Identifier: Apache-2.0
 *
 * talk.h: a conversation of two ranks over a fresh socket, step by step, for the meeting (handshake.c).
 */
#ifndef TRI_NET_TALK_H
#define TRI_NET_TALK_H

#include "net/handshake.h"

#define TRI_TALK_NONCE_NBYTES 32

/* What a conversation waits for. */
typedef enum talk_stage { TALK_IDLE, TALK_CONNECT, TALK_SEND, TALK_RECEIVE, TALK_DONE } talk_stage;

typedef struct net_talk {
    talk_stage stage;
    bool dialed; /* by us */
    int step;    /* 1 to 3: the hello under way */
    int fd, memory_fd;
    int peer;            /* -1: not known yet */
    int place;           /* of the peer's, that was dialed */
    int strand, strands; /* which connection of the link, of how many */
    uint32_t marks;      /* of the peer */
    bool refused;        /* the peer's proof was wrong */
    int64_t limit_ns;    /* gives up then; TALK_IDLE: dials then */
    size_t done_nbytes;
    uint32_t slot_kib;
    unsigned char hello[TRI_HELLO_NBYTES];
    unsigned char nonces[2][TRI_TALK_NONCE_NBYTES]; /* of the dialer, of the listener */
    unsigned char key[TRI_AUTH_NBYTES];             /* when it is done: of this connection */
    char why[96];                                   /* the latest failure */
} net_talk;

/* Begins to send or to receive the hello of a step. */
void tri_talk_send_start(const tri_meeting *is, net_talk *talk, int step);
void tri_talk_receive_start(net_talk *talk, int step);
/* Dials; the place is where the peer listens. Failures are in `why`, and the talk idle again. */
void tri_talk_dial(net_talk *talk, const tri_meeting_place *place, int64_t limit_ns);
/* A stranger who called. */
void tri_talk_answer(net_talk *talk, int fd, int64_t limit_ns);
/* Goes on as far as it can without waiting. */
void tri_talk_advance(const tri_meeting *is, net_talk *talk);
/* Closes what is open; `why` is kept for messages. */
void tri_talk_drop(net_talk *talk, const char *why);

#endif
