/* SPDX-License-Identifier: Apache-2.0
 *
 * post_hub_impl.h: what post_hub.c (endpoints, who calls whom) and post_hub_stream.c (pieces) share.
 *
 * A pair of ranks has one stream each way for all its lines, one after the other. A stream is a row of pieces: OPEN,
 * DATA..., END, OPEN, ...; the n-th OPEN of either side belongs to the pair's n-th line, so what still comes for a line
 * that this end has left is known and thrown away.
 */
#ifndef TRI_NET_POST_HUB_IMPL_H
#define TRI_NET_POST_HUB_IMPL_H

#include "net/post_impl.h"

#define TRI_HUB_HEAD_NBYTES ((size_t)8)
#define TRI_HUB_SEAL_NBYTES ((size_t)1)

typedef struct hub_line {
    tri_line base;
    struct hub_peer *peer;
} hub_line;

typedef struct hub_peer {
    int rank;
    hub_line *line; /* NULL: none now */
    /* out */
    uint64_t lines;    /* OPENs so far, also those that are due */
    unsigned due;      /* pieces without data to be written: OPEN and END in turn */
    bool is_open;      /* the latest of these that was written is OPEN */
    bool is_cut;       /* the piece under way is of a line that has ended */
    size_t out_nbytes; /* data of the piece under way; 0: none */
    size_t out_done;   /* of head, data and seal */
    /* in */
    uint64_t heard; /* OPENs that came */
    unsigned char head[TRI_HUB_HEAD_NBYTES];
    size_t head_nbytes;
    size_t left; /* data of the piece that is being read */
    unsigned char tail[1 + TRI_HUB_SEAL_NBYTES];
    size_t tail_nbytes;
    bool is_over; /* the other side's END of the present line has come */
    bool is_gone; /* the other endpoint has closed */
} hub_peer;

typedef struct hub_post {
    tri_post base;
    tri_transport *transport;
    hub_peer **peers; /* [world]; NULL: nothing was said yet */
    int *known;       /* [world]: those that are not NULL */
    int known_count;
    unsigned char *want;  /* [world] */
    unsigned char *piece; /* [piece_nbytes]: what is written with one call */
    size_t piece_nbytes;  /* as much as the longest so far */
    atomic_bool rung;
} hub_post;

static inline hub_post *hub_of(tri_post *post)
{
    return (hub_post *)post;
}

static inline hub_line *hub_line_of(tri_line *line)
{
    return (hub_line *)line;
}

/* ---- post_hub.c: the peer has dialed. */
void tri_post_hub_called(hub_post *hub, hub_peer *peer);

/* ---- post_hub_stream.c */
/* Slots of the table. */
tri_status tri_post_hub_write(tri_line *line, const tri_part *parts, size_t count, size_t *taken, size_t *promised);
tri_status tri_post_hub_read(tri_line *line, const post_room rooms[2], size_t *given);
/* Writes the piece of a line that has ended, and the pieces without data. *done: all is written. TRI_EPEER. */
tri_status tri_post_hub_write_rest(hub_post *hub, hub_peer *peer, bool *done);
/* Reads what is not for a line. TRI_EPEER. */
tri_status tri_post_hub_read_others(hub_post *hub, hub_peer *peer);

#endif
