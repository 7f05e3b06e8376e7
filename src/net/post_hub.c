/* SPDX-License-Identifier: Apache-2.0
 *
 * post_hub.c: the post between threads of a process or fibers of a simulation, over the transports of a hub.
 *
 * A pair of ranks has one stream each way for all its lines, one after the other. A stream is a row of pieces: OPEN,
 * DATA..., END, OPEN, ...; the n-th OPEN of either side belongs to the pair's n-th line, so what still comes for a line
 * that this end has left is known and thrown away. The last byte of a DATA piece counts only with the seal behind it:
 * who ends a line in the middle of a piece fills it up and breaks the seal, and no letter becomes whole by that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/auth.h"
#include "net/bytes.h"
#include "net/hub.h"
#include "net/post_impl.h"

#define HEAD_NBYTES  ((size_t)8)
#define SEAL_NBYTES  ((size_t)1)
#define PIECE_NBYTES ((size_t)64 << 10) /* at most, with head and seal: one message of a simulation */
/* A thousand endpoints are one process. */
#define SCRATCH_NBYTES ((size_t)8 << 10)
#define DATA_NBYTES    (PIECE_NBYTES - HEAD_NBYTES - SEAL_NBYTES)

typedef enum piece_kind { PIECE_OPEN = 1, PIECE_DATA, PIECE_END } piece_kind;

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
    unsigned char head[HEAD_NBYTES];
    size_t head_nbytes;
    size_t left; /* data of the piece that is being read */
    unsigned char tail[1 + SEAL_NBYTES];
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

static hub_post *hub_of(tri_post *post)
{
    return (hub_post *)post;
}

static hub_line *hub_line_of(tri_line *line)
{
    return (hub_line *)line;
}

/* ---- opening and closing */

static void hub_close(tri_post *post)
{
    hub_post *hub = hub_of(post);

    if (hub->transport)
        hub->transport->ops->close(hub->transport);
    for (int i = 0; i < hub->known_count; i++)
        tri_free(hub->peers[hub->known[i]]);
    tri_free(hub->peers);
    tri_free(hub->known);
    tri_free(hub->want);
    tri_free(hub->piece);
}

static tri_status piece_reserve(hub_post *hub, size_t nbytes)
{
    size_t capacity = PIECE_NBYTES >> 4;
    unsigned char *grown;

    if (nbytes <= hub->piece_nbytes)
        return TRI_OK;
    while (capacity < nbytes)
        capacity *= 2;
    grown = tri_realloc(hub->piece, capacity);
    if (!grown)
        return TRI_ENOMEM;
    hub->piece = grown;
    hub->piece_nbytes = capacity;
    return TRI_OK;
}

static tri_status hub_open(tri_post *post)
{
    hub_post *hub = hub_of(post);
    const tri_post_setup *setup = &post->setup;
    const tri_transport_ops *ops = tri_sim_active() ? &tri_transport_sim : &tri_transport_inproc;
    size_t world = (size_t)setup->world;
    tri_status status = ops->open(&(tri_transport_setup){.config = &post->config,
                                                         .rank = setup->rank,
                                                         .world = setup->world,
                                                         .token = post->token,
                                                         .hub = setup->hub},
                                  &hub->transport);

    if (status != TRI_OK)
        return status;
    hub->peers = tri_alloc_zero(world, sizeof *hub->peers);
    hub->known = tri_alloc_zero(world, sizeof *hub->known);
    hub->want = tri_alloc_zero(world, sizeof *hub->want);
    status = hub->peers && hub->known && hub->want ? piece_reserve(hub, HEAD_NBYTES) : TRI_ENOMEM;
    if (status == TRI_OK && setup->listens) {
        memset(hub->want, TRI_WANT_READ, world);
        hub->want[setup->rank] = 0;
        status = tri_hub_listen(setup->hub, setup->rank, post->token);
    }
    if (status != TRI_OK)
        hub_close(post);
    return status;
}

static const char *hub_address(const tri_post *post)
{
    const tri_transport *transport = ((const hub_post *)post)->transport;

    return transport->ops->address(transport);
}

/* NULL: out of memory. */
static hub_peer *peer_of(hub_post *hub, int rank)
{
    hub_peer *peer = hub->peers[rank];

    if (peer)
        return peer;
    peer = tri_alloc_zero(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->rank = rank;
    hub->peers[rank] = peer;
    hub->known[hub->known_count++] = rank;
    return peer;
}

/* ---- out */

static tri_status bytes_write(hub_post *hub, const hub_peer *peer, const void *bytes, size_t nbytes, size_t *taken)
{
    return hub->transport->ops->write_some(hub->transport, peer->rank, bytes, nbytes, taken);
}

static void head_write(unsigned char *bytes, piece_kind kind, size_t nbytes)
{
    tri_bytes_write_u32(bytes, (uint32_t)kind);
    tri_bytes_write_u32(bytes + 4, (uint32_t)nbytes);
}

/* The piece of a line that has ended, and the pieces without data. *done: all is written. TRI_EPEER. */
static tri_status rest_write(hub_post *hub, hub_peer *peer, bool *done)
{
    size_t taken;

    *done = false;
    while (peer->is_cut || peer->due > 0) {
        size_t nbytes = peer->is_cut ? HEAD_NBYTES + peer->out_nbytes + SEAL_NBYTES : HEAD_NBYTES;

        memset(hub->piece, 0, nbytes);
        head_write(hub->piece, peer->is_cut ? PIECE_DATA : peer->is_open ? PIECE_END : PIECE_OPEN, peer->out_nbytes);
        TRI_TRY(bytes_write(hub, peer, hub->piece + peer->out_done, nbytes - peer->out_done, &taken));
        peer->out_done += taken;
        if (peer->out_done < nbytes)
            return TRI_OK;
        peer->out_done = peer->out_nbytes = 0;
        if (peer->is_cut) {
            peer->is_cut = false;
            continue;
        }
        peer->is_open = !peer->is_open;
        peer->due--;
    }
    *done = true;
    return TRI_OK;
}

/* The bytes [first, first + nbytes) of the parts. */
static void parts_gather(const tri_part *parts, size_t count, size_t first, size_t nbytes, unsigned char *out)
{
    for (size_t i = 0; i < count && nbytes > 0; i++) {
        size_t left = parts[i].nbytes;

        if (first >= left) {
            first -= left;
            continue;
        }
        left = left - first < nbytes ? left - first : nbytes;
        memcpy(out, (const unsigned char *)parts[i].bytes + first, left);
        out += left;
        nbytes -= left;
        first = 0;
    }
}

/* Goes on with the piece under way, or with a new one. *taken: of its data, all of it only when it is sealed. */
static tri_status piece_write(hub_post *hub, hub_peer *peer, const tri_part *parts, size_t count, size_t first,
                              size_t left, size_t *taken)
{
    size_t before, after, nbytes, took;

    if (peer->out_nbytes == 0) {
        left = left < DATA_NBYTES ? left : DATA_NBYTES;
        TRI_TRY(piece_reserve(hub, HEAD_NBYTES + left + SEAL_NBYTES));
        peer->out_nbytes = left;
    }
    /* Data of this piece that the caller knows to be taken. */
    before = peer->out_done < HEAD_NBYTES ? 0 : peer->out_done - HEAD_NBYTES;
    before = before < peer->out_nbytes ? before : peer->out_nbytes - 1;
    nbytes = HEAD_NBYTES + peer->out_nbytes + SEAL_NBYTES;
    head_write(hub->piece, PIECE_DATA, peer->out_nbytes);
    parts_gather(parts, count, first, peer->out_nbytes - before, hub->piece + HEAD_NBYTES + before);
    hub->piece[nbytes - 1] = 1;
    TRI_TRY(bytes_write(hub, peer, hub->piece + peer->out_done, nbytes - peer->out_done, &took));
    peer->out_done += took;
    after = peer->out_done < HEAD_NBYTES ? 0 : peer->out_done - HEAD_NBYTES;
    if (peer->out_done < nbytes)
        after = after < peer->out_nbytes ? after : peer->out_nbytes - 1;
    else
        after = peer->out_nbytes, peer->out_done = peer->out_nbytes = 0;
    *taken = after - before;
    return TRI_OK;
}

static tri_status hub_write(tri_line *base, const tri_part *parts, size_t count, size_t *taken, size_t *promised)
{
    hub_post *hub = hub_of(base->post);
    hub_peer *peer = hub_line_of(base)->peer;
    size_t total = 0, took = 1;
    bool free_way;

    *taken = *promised = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].nbytes;
    TRI_TRY(rest_write(hub, peer, &free_way));
    while (free_way && *taken < total && !base->full) {
        TRI_TRY(piece_write(hub, peer, parts, count, *taken, total - *taken, &took));
        *taken += took;
        base->full = peer->out_nbytes > 0;
    }
    base->full |= !free_way;
    if (peer->out_nbytes > 0) {
        size_t done = peer->out_done < HEAD_NBYTES ? 0 : peer->out_done - HEAD_NBYTES;

        *promised = peer->out_nbytes - (done < peer->out_nbytes ? done : peer->out_nbytes - 1);
    }
    return TRI_OK;
}

static void hub_line_end(tri_line *base)
{
    hub_post *hub = hub_of(base->post);
    hub_peer *peer = hub_line_of(base)->peer;
    bool done;

    if (!peer)
        return;
    peer->line = NULL;
    peer->is_cut = peer->out_nbytes > 0 && peer->due == 0;
    peer->due++;
    peer->is_gone |= rest_write(hub, peer, &done) == TRI_EPEER;
}

/* ---- lines */

/* A line to a peer that has none. */
static tri_status line_make(hub_post *hub, hub_peer *peer, tri_line **out)
{
    TRI_TRY(tri_post_line_create(&hub->base, sizeof(hub_line), out));
    peer->line = hub_line_of(*out);
    peer->line->peer = peer;
    peer->lines++;
    peer->due++;
    peer->is_over = false;
    snprintf((*out)->from, sizeof(*out)->from, "rank %d", peer->rank);
    return TRI_OK;
}

/* The peer has dialed. */
static void call_take(hub_post *hub, hub_peer *peer)
{
    tri_line *line;

    if (hub->base.setup.listens && line_make(hub, peer, &line) == TRI_OK) {
        tri_post_line_called(line);
        return;
    }
    /* Refused: a line that has ended. */
    tri_post_note(&hub->base, "rank %d was refused: %s", peer->rank,
                  hub->base.setup.listens ? tri_last_error() : "this end does not listen");
    peer->lines++;
    peer->due += 2;
}

static tri_status hub_dial(tri_post *post, const char *address, int64_t deadline_ns, tri_line **out)
{
    hub_post *hub = hub_of(post);
    char *end;
    long rank = strtol(address, &end, 10);
    const char *token;
    hub_peer *peer;
    bool done;

    if (*end || end == address || rank < 0 || rank >= post->setup.world || rank == post->setup.rank)
        return tri_fail(TRI_EPEER, "want another rank of a world of %d, got %.100s", post->setup.world, address);
    while (!(token = tri_hub_listener(post->setup.hub, (int)rank))) {
        if (tri_now_ns() >= deadline_ns)
            return tri_fail(TRI_EPEER, "rank %ld does not listen", rank);
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    if (strcmp(token, post->token) != 0)
        return tri_fail(TRI_EPEER, "rank %ld does not know the token of this job", rank);
    peer = peer_of(hub, (int)rank);
    if (!peer)
        return TRI_ENOMEM;
    if (peer->line)
        return tri_fail(TRI_EINVAL, "want one line to rank %ld of a hub, got a second", rank);
    TRI_TRY(line_make(hub, peer, out));
    (*out)->dialed = true;
    if (rest_write(hub, peer, &done) == TRI_OK)
        return TRI_OK;
    tri_post_line_end(*out, TRI_EPEER);
    return tri_fail(TRI_EPEER, "rank %ld is gone", rank);
}

/* ---- in */

static tri_status bytes_read(hub_post *hub, const hub_peer *peer, void *bytes, size_t nbytes, size_t *given)
{
    return hub->transport->ops->read_some(hub->transport, peer->rank, bytes, nbytes, given);
}

static bool is_of_line(const hub_peer *peer)
{
    return peer->line && peer->heard == peer->lines;
}

/* Reads on to the data of a piece, or until nothing more is there. What is said there besides is heard. */
static tri_status head_read(hub_post *hub, hub_peer *peer)
{
    /* What comes behind the end of a line waits until its owner knows of the end. */
    while (peer->left == 0 && !(peer->line && peer->is_over)) {
        size_t given;

        TRI_TRY(bytes_read(hub, peer, peer->head + peer->head_nbytes, HEAD_NBYTES - peer->head_nbytes, &given));
        peer->head_nbytes += given;
        if (peer->head_nbytes < HEAD_NBYTES)
            return TRI_OK;
        peer->head_nbytes = 0;
        switch ((piece_kind)tri_bytes_read_u32(peer->head)) {
        case PIECE_OPEN:
            if (++peer->heard > peer->lines)
                call_take(hub, peer);
            break;
        case PIECE_END:
            if (!is_of_line(peer))
                break;
            peer->is_over = true;
            return TRI_OK;
        case PIECE_DATA:
            peer->left = tri_bytes_read_u32(peer->head + 4);
            peer->tail_nbytes = 0;
            break;
        }
    }
    return TRI_OK;
}

/* Up to nbytes of the data of the piece; *given may be 0. */
static tri_status data_read(hub_post *hub, hub_peer *peer, unsigned char *bytes, size_t nbytes, size_t *given)
{
    size_t got;

    *given = 0;
    if (nbytes == 0)
        return TRI_OK;
    if (peer->left > 1) {
        nbytes = nbytes < peer->left - 1 ? nbytes : peer->left - 1;
        TRI_TRY(bytes_read(hub, peer, bytes, nbytes, given));
        peer->left -= *given;
        return TRI_OK;
    }
    TRI_TRY(bytes_read(hub, peer, peer->tail + peer->tail_nbytes, sizeof peer->tail - peer->tail_nbytes, &got));
    peer->tail_nbytes += got;
    if (peer->tail_nbytes < sizeof peer->tail)
        return TRI_OK;
    peer->left = 0;
    *given = peer->tail[1]; /* whole or not */
    bytes[0] = peer->tail[0];
    return TRI_OK;
}

/* Reads what is not for a line. */
static tri_status others_read(hub_post *hub, hub_peer *peer)
{
    unsigned char waste[4096];
    size_t given;

    TRI_TRY(head_read(hub, peer));
    while (!is_of_line(peer) && peer->left > 0) {
        size_t left = peer->left;

        TRI_TRY(data_read(hub, peer, waste, sizeof waste, &given));
        if (peer->left == left)
            return TRI_OK;
        TRI_TRY(head_read(hub, peer));
    }
    return TRI_OK;
}

static tri_status hub_read(tri_line *base, const post_room rooms[2], size_t *given)
{
    hub_post *hub = hub_of(base->post);
    hub_peer *peer = hub_line_of(base)->peer;
    size_t room = 0, done = 0;

    *given = 0;
    while (room < 2) {
        size_t left, tail_nbytes, got = 0;
        tri_status status = others_read(hub, peer);

        if (status == TRI_OK && peer->is_over)
            status = tri_fail(TRI_EPEER, "connection closed");
        left = peer->left;
        tail_nbytes = peer->tail_nbytes;
        if (status == TRI_OK && left > 0 && is_of_line(peer))
            status = data_read(hub, peer, rooms[room].bytes + done, rooms[room].nbytes - done, &got);
        if (status != TRI_OK)
            return *given > 0 ? TRI_OK : status;
        *given += got;
        done += got;
        if (done == rooms[room].nbytes) {
            room++;
            done = 0;
        } else if (left == peer->left && tail_nbytes == peer->tail_nbytes) {
            base->readable = false;
            return TRI_OK;
        }
    }
    return TRI_OK;
}

/* ---- polling */

/* Something may have come from it, or there may be room for what goes to it. */
static void peer_look(hub_post *hub, int rank)
{
    hub_peer *peer = hub->peers[rank];
    const void *bytes;
    size_t nbytes;
    bool done;

    if (!peer) {
        if (hub->transport->ops->peek(hub->transport, rank, &bytes, &nbytes) != TRI_OK)
            hub->want[rank] = 0; /* it has left without a word */
        else if (nbytes > 0)
            peer = peer_of(hub, rank);
        if (!peer)
            return;
    }
    if (rest_write(hub, peer, &done) == TRI_EPEER || (!peer->line && others_read(hub, peer) == TRI_EPEER)) {
        peer->is_gone = !peer->line; /* a line finds out for itself, after what is still to be read */
        peer->due = 0;
        peer->is_cut = false;
    }
    if (!peer->line)
        return;
    tri_post_line_readable(&peer->line->base);
    tri_post_line_writable(&peer->line->base);
}

static unsigned char peer_want(const hub_peer *peer)
{
    const tri_line *line = peer->line ? &peer->line->base : NULL;
    unsigned char want = 0;

    if (peer->is_gone)
        return 0;
    if (!line || (line->state == LINE_OPEN && !line->paused && !line->readable))
        want |= TRI_WANT_READ;
    if (peer->due > 0 || peer->is_cut ||
        (line && line->state == LINE_OPEN && line->full && !tri_post_queue_is_empty(&line->queue)))
        want |= TRI_WANT_WRITE;
    return want;
}

static tri_status hub_poll(tri_post *post, int64_t deadline_ns)
{
    hub_post *hub = hub_of(post);
    const tri_transport_ops *ops = hub->transport->ops;
    const int *woken;

    for (int i = 0; i < hub->known_count; i++)
        hub->want[hub->known[i]] = peer_want(hub->peers[hub->known[i]]);
    if (ops->woken || deadline_ns > 0)
        TRI_TRY(ops->wait(hub->transport, hub->want, deadline_ns));
    if (ops->woken) {
        size_t count = ops->woken(hub->transport, &woken);

        for (size_t i = 0; i < count; i++)
            peer_look(hub, woken[i]);
    } else {
        for (int rank = 0; rank < post->setup.world; rank++) {
            if (hub->want[rank])
                peer_look(hub, rank);
        }
    }
    if (atomic_exchange(&hub->rung, false))
        post->is_woken = true;
    return TRI_OK;
}

static void hub_wake(tri_post *post)
{
    hub_post *hub = hub_of(post);

    atomic_store(&hub->rung, true);
    hub->transport->ops->wake(hub->transport);
}

const tri_post_ops tri_post_hub = {
    .name = "hub",
    .nbytes = sizeof(hub_post),
    .scratch_nbytes = SCRATCH_NBYTES,
    .open = hub_open,
    .address = hub_address,
    .dial = hub_dial,
    .poll = hub_poll,
    .read = hub_read,
    .write = hub_write,
    .wake = hub_wake,
    .line_end = hub_line_end,
    .close = hub_close,
};
