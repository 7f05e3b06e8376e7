/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_hub_stream.c: the pieces of the streams of a hub's connections, written and read.
 *
 * The last byte of a DATA piece counts only with the seal behind it: who ends a connection in the middle of a piece
 * fills it up and breaks the seal, and no message becomes whole by that.
 */
#include <string.h>

#include "base/memory.h"
#include "net/bytes.h"
#include "net/endpoint_hub_impl.h"

#define HEAD_NBYTES  TRI_HUB_HEAD_NBYTES
#define SEAL_NBYTES  TRI_HUB_SEAL_NBYTES
#define PIECE_NBYTES ((size_t)64 << 10) /* at most, with head and seal: one message of a simulation */
#define DATA_NBYTES  (PIECE_NBYTES - HEAD_NBYTES - SEAL_NBYTES)

typedef enum piece_kind { PIECE_OPEN = 1, PIECE_DATA, PIECE_END } piece_kind;

/* ---- out */

static tri_status piece_reserve(hub_endpoint *hub, size_t nbytes)
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

static tri_status bytes_write(hub_endpoint *hub, const hub_peer *peer, const void *bytes, size_t nbytes, size_t *taken)
{
    return hub->transport->ops->write_some(hub->transport, peer->rank, bytes, nbytes, taken);
}

static void head_write(unsigned char *bytes, piece_kind kind, size_t nbytes)
{
    tri_bytes_write_u32(bytes, (uint32_t)kind);
    tri_bytes_write_u32(bytes + 4, (uint32_t)nbytes);
}

tri_status tri_endpoint_hub_write_rest(hub_endpoint *hub, hub_peer *peer, bool *done)
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

/* Continues the piece under way, or with a new one. *taken: of its data, all of it only when it is sealed. */
static tri_status piece_write(hub_endpoint *hub, hub_peer *peer, const tri_part *parts, size_t count, size_t first,
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

tri_status tri_endpoint_hub_write(tri_connection *base, const tri_part *parts, size_t count, size_t *taken,
                                  size_t *promised)
{
    hub_endpoint *hub = hub_of(base->endpoint);
    hub_peer *peer = hub_connection_of(base)->peer;
    size_t total = 0, took = 1;
    bool free_way;

    *taken = *promised = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].nbytes;
    TRI_TRY(tri_endpoint_hub_write_rest(hub, peer, &free_way));
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

/* ---- in */

static tri_status bytes_read(hub_endpoint *hub, const hub_peer *peer, void *bytes, size_t nbytes, size_t *given)
{
    return hub->transport->ops->read_some(hub->transport, peer->rank, bytes, nbytes, given);
}

static bool is_of_connection(const hub_peer *peer)
{
    return peer->connection && peer->heard == peer->connections;
}

/* Reads on to the data of a piece, or until nothing more is there. What is said there besides is heard. */
static tri_status head_read(hub_endpoint *hub, hub_peer *peer)
{
    /* What comes behind the end of a connection waits until its owner knows of the end. */
    while (peer->left == 0 && !(peer->connection && peer->is_over)) {
        size_t given;

        TRI_TRY(bytes_read(hub, peer, peer->head + peer->head_nbytes, HEAD_NBYTES - peer->head_nbytes, &given));
        peer->head_nbytes += given;
        if (peer->head_nbytes < HEAD_NBYTES)
            return TRI_OK;
        peer->head_nbytes = 0;
        switch ((piece_kind)tri_bytes_read_u32(peer->head)) {
        case PIECE_OPEN:
            if (++peer->heard > peer->connections)
                tri_endpoint_hub_called(hub, peer);
            break;
        case PIECE_END:
            if (!is_of_connection(peer))
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
static tri_status data_read(hub_endpoint *hub, hub_peer *peer, unsigned char *bytes, size_t nbytes, size_t *given)
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

tri_status tri_endpoint_hub_read_others(hub_endpoint *hub, hub_peer *peer)
{
    unsigned char waste[4096];
    size_t given;

    TRI_TRY(head_read(hub, peer));
    while (!is_of_connection(peer) && peer->left > 0) {
        size_t left = peer->left;

        TRI_TRY(data_read(hub, peer, waste, sizeof waste, &given));
        if (peer->left == left)
            return TRI_OK;
        TRI_TRY(head_read(hub, peer));
    }
    return TRI_OK;
}

tri_status tri_endpoint_hub_read(tri_connection *base, const endpoint_room rooms[2], size_t *given)
{
    hub_endpoint *hub = hub_of(base->endpoint);
    hub_peer *peer = hub_connection_of(base)->peer;
    size_t room = 0, done = 0;

    *given = 0;
    while (room < 2) {
        size_t left, tail_nbytes, got = 0;
        tri_status status = tri_endpoint_hub_read_others(hub, peer);

        if (status == TRI_OK && peer->is_over)
            status = tri_fail(TRI_EPEER, "connection closed");
        left = peer->left;
        tail_nbytes = peer->tail_nbytes;
        if (status == TRI_OK && left > 0 && is_of_connection(peer))
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
