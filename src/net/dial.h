/* SPDX-License-Identifier: Apache-2.0
 *
 * dial.h: how a rank reaches a lower one: which of its places answers, and then all connections of the link.
 *
 * The places that a peer offers are tried side by side, a little after each other, and the first that proves to be that
 * very rank wins: an address that leads nowhere, to a host that is down on one interface, or to somebody else costs a
 * tenth of a second. Only then the link's other connections are made.
 */
#ifndef TRI_NET_DIAL_H
#define TRI_NET_DIAL_H

#include "net/handshake.h"

typedef struct net_dial {
    net_handshake handshakes[TRI_LINK_SOCKETS_MAX]; /* before a way is found: tries; then one per connection */
    bool found;
    int place;       /* the next to try, or the one that answered */
    int place_count; /* tried in this round, or once found: known to be there, 0: not counted yet */
    int64_t next_ns; /* when the next try begins */
    int rounds;      /* in which every place has failed */
    bool refused;    /* in this round somebody there did not know the token */
    char why[96];    /* the latest failure */
} net_dial;

/* peer: a rank that is to be dialed. */
void tri_dial_init(net_dial *dial, int peer);
/* Continues as far as it can without waiting; what is made is in *met. TRI_EPEER: does not know the token. */
tri_status tri_dial_advance(const tri_rendezvous *is, net_dial *dial, tri_connected_peer *connected, int64_t now_ns);
/* When it must be called again at the latest. */
int64_t tri_dial_next_ns(const net_dial *dial);
void tri_dial_fini(net_dial *dial);

/* Takes the connection of a handshake that is done; one that stood in its place is closed. TRI_ECONFIG: the two sides
 * do not agree on what must be alike. */
tri_status tri_connected_peer_take(const tri_rendezvous *is, net_handshake *handshake, tri_connected_peer *connected);
bool tri_connected_peer_is_complete(const tri_connected_peer *connected);
void tri_connected_peer_close(tri_connected_peer *connected);

#endif
