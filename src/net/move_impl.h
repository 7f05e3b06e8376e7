/* SPDX-License-Identifier: Apache-2.0
 *
 * move_impl.h: a run of the mover: move.c goes round over all peers, move_stream.c moves the frames of one.
 *
 * For these two files only.
 */
#ifndef TRI_NET_MOVE_IMPL_H
#define TRI_NET_MOVE_IMPL_H

#include "net/net_impl.h"

typedef struct move_run {
    tri_net *net;
    tri_move *moves;
    size_t count;
    size_t left; /* peers of whom something is still to be moved */
    bool tells;  /* the transport says after a wait who can continue */
    int64_t began_ns, deadline_ns;
    tri_frame *found;
    int *culprit;
} move_run;

/* Tells the caller who failed the call, with the frame that says so. */
void tri_move_blame(const move_run *mover, int peer, const tri_frame *frame);
/* One write to a peer of the frame under way, one read from it; *moved is set when anything went. */
tri_status tri_move_send(const move_run *mover, int peer, bool *moved);
tri_status tri_move_receive(const move_run *mover, int peer, bool *moved);
/* Reads until a head of data is in the link; an abort is the peer's blame. */
tri_status tri_move_listen(const move_run *mover, int peer, bool *moved);

#endif
