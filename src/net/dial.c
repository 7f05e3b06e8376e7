/* SPDX-License-Identifier: Apache-2.0
 *
 * dial.c: the dialing side of a rendezvous, for one peer.
 *
 * Invariant: hello 3, which makes a link, is sent on one try only: the first whose hello 2 is right ends the others.
 */
#include "net/dial.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/runtime.h"

#define HANDSHAKE_LIMIT_NS (5 * TRI_NS_PER_S)
#define LANE_LIMIT_NS      (2 * TRI_NS_PER_S) /* of a further connection: the peer is known to answer */
#define TRY_EVERY_NS       (100 * TRI_NS_PER_MS)
#define PAUSE_NS           (50 * TRI_NS_PER_MS)

void tri_dial_init(net_dial *dial, int peer)
{
    memset(dial, 0, sizeof *dial);
    for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
        dial->handshakes[i].fd = dial->handshakes[i].memory_fd = -1;
        dial->handshakes[i].dialed = true;
        dial->handshakes[i].peer = peer;
        dial->handshakes[i].sockets = 1;
    }
}

void tri_dial_fini(net_dial *dial)
{
    for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++)
        tri_handshake_drop(&dial->handshakes[i], "");
}

void tri_connected_peer_close(tri_connected_peer *connected)
{
    for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
        if (connected->fds[i] >= 0)
            close(connected->fds[i]);
        connected->fds[i] = -1;
    }
    if (connected->memory_fd >= 0)
        close(connected->memory_fd);
    connected->memory_fd = -1;
    connected->sockets = 0;
}

bool tri_connected_peer_is_complete(const tri_connected_peer *connected)
{
    for (int i = 0; i < connected->sockets; i++) {
        if (connected->fds[i] < 0)
            return false;
    }
    return connected->sockets > 0;
}

tri_status tri_connected_peer_take(const tri_rendezvous *is, net_handshake *handshake, tri_connected_peer *connected)
{
    if (is->memory_fd < 0 && handshake->marks != is->marks)
        return tri_fail(TRI_ECONFIG, "%s: rank %d has comm.encrypt = %s, rank %d has %s", is->name, is->rank,
                        is->marks & TRI_MARK_ENCRYPTED ? "on" : "off", handshake->peer,
                        handshake->marks & TRI_MARK_ENCRYPTED ? "on" : "off");
    if (connected->sockets != handshake->sockets)
        tri_connected_peer_close(connected);
    if (connected->fds[handshake->socket] >= 0)
        close(connected->fds[handshake->socket]);
    if (connected->memory_fd >= 0)
        close(connected->memory_fd);
    connected->sockets = handshake->sockets;
    connected->fds[handshake->socket] = handshake->fd;
    memcpy(connected->keys[handshake->socket], handshake->key, TRI_AUTH_NBYTES);
    connected->memory_fd = handshake->memory_fd;
    connected->slot_kib = handshake->slot_kib;
    handshake->fd = handshake->memory_fd = -1;
    return TRI_OK;
}

/* Did connect() end? */
static bool is_connected(const net_handshake *handshake)
{
    struct pollfd one = {.fd = handshake->fd, .events = POLLOUT};

    return handshake->stage == HANDSHAKE_CONNECT && poll(&one, 1, 0) > 0;
}

static void handshake_connected(const tri_rendezvous *is, net_handshake *handshake)
{
    int error = 0;
    socklen_t nbytes = sizeof error;

    if (getsockopt(handshake->fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0)
        error = errno;
    if (error != 0) {
        tri_handshake_drop(handshake, strerror(error));
        return;
    }
    if (is->trusts && !is->trusts(is->arg, handshake->fd)) {
        tri_handshake_drop(handshake, "belongs to another user");
        return;
    }
    if (handshake->socket == 0)
        handshake->sockets = is->sockets ? is->sockets(is->arg, handshake->fd) : 1;
    tri_entropy(handshake->nonces[0], TRI_HANDSHAKE_NONCE_NBYTES);
    tri_handshake_send_start(is, handshake, 1);
}

/* Continues one handshake; one that fails is idle then. */
static void handshake_continue(const tri_rendezvous *is, net_handshake *handshake, int64_t now_ns)
{
    if (is_connected(handshake))
        handshake_connected(is, handshake);
    tri_handshake_advance(is, handshake);
    if (handshake->stage != HANDSHAKE_IDLE && handshake->stage != HANDSHAKE_DONE && now_ns >= handshake->limit_ns)
        tri_handshake_drop(handshake, "does not answer");
}

/* ---- the first connection */

static void try_failed(net_dial *dial, const net_handshake *handshake, int64_t now_ns)
{
    dial->refused |= handshake->refused;
    snprintf(dial->why, sizeof dial->why, "%s", handshake->why);
    dial->next_ns = now_ns;
}

/* The next place, in a free talk. False: the peer offers no more. */
static bool try_start(const tri_rendezvous *is, net_dial *dial, int64_t now_ns)
{
    tri_rendezvous_place place;

    if (dial->place >= TRI_LINK_SOCKETS_MAX ||
        !is->find(is->arg, is->addresses[dial->handshakes[0].peer], dial->place, &place))
        return false;
    /* As many handshakes as places, and each has one try a round: this one is idle. */
    net_handshake *handshake = &dial->handshakes[dial->place];

    handshake->place = dial->place++;
    dial->next_ns = now_ns + TRY_EVERY_NS;
    tri_handshake_dial(handshake, &place, now_ns + HANDSHAKE_LIMIT_NS);
    if (handshake->stage == HANDSHAKE_IDLE)
        try_failed(dial, handshake, now_ns);
    return true;
}

static tri_status round_end(const tri_rendezvous *is, net_dial *dial, int64_t now_ns)
{
    if (dial->refused)
        return tri_fail(TRI_EPEER, "%s: rank %d does not know the token of this job", is->name,
                        dial->handshakes[0].peer);
    dial->place = 0;
    dial->rounds++;
    dial->next_ns = now_ns + PAUSE_NS;
    return TRI_OK;
}

/* A way is found: its talk becomes that of connection 0, the others begin at once. */
static void way_found(net_dial *dial, const net_handshake *handshake, const tri_connected_peer *connected)
{
    dial->found = true;
    dial->place_count = dial->place;
    dial->place = handshake->place;
    for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
        tri_handshake_drop(&dial->handshakes[i], "");
        dial->handshakes[i].socket = i;
        dial->handshakes[i].sockets = connected->sockets;
        dial->handshakes[i].place = -1;
        dial->handshakes[i].stage = i == 0 || i >= connected->sockets ? HANDSHAKE_DONE : HANDSHAKE_IDLE;
    }
}

static tri_status tries_advance(const tri_rendezvous *is, net_dial *dial, tri_connected_peer *connected, int64_t now_ns)
{
    for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
        net_handshake *handshake = &dial->handshakes[i];

        if (handshake->stage == HANDSHAKE_IDLE)
            continue;
        handshake_continue(is, handshake, now_ns);
        if (handshake->stage == HANDSHAKE_IDLE)
            try_failed(dial, handshake, now_ns);
        if (handshake->step < 3)
            continue;
        for (int j = 0; j < TRI_LINK_SOCKETS_MAX; j++) {
            if (j != i)
                tri_handshake_drop(&dial->handshakes[j], "");
        }
        if (handshake->stage != HANDSHAKE_DONE)
            return TRI_OK;
        TRI_TRY(tri_connected_peer_take(is, handshake, connected));
        way_found(dial, handshake, connected);
        return TRI_OK;
    }
    while (now_ns >= dial->next_ns) {
        if (try_start(is, dial, now_ns))
            continue;
        for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
            if (dial->handshakes[i].stage != HANDSHAKE_IDLE) {
                dial->next_ns = now_ns + TRY_EVERY_NS;
                return TRI_OK;
            }
        }
        TRI_TRY(round_end(is, dial, now_ns));
    }
    return TRI_OK;
}

/* ---- the others */

/* Where a further connection goes: with `spreads` round the places, beginning at the one that answered. */
static void socket_start(const tri_rendezvous *is, net_dial *dial, net_handshake *handshake, int64_t now_ns)
{
    const char *address = is->addresses[handshake->peer];
    tri_rendezvous_place place;

    while (dial->place_count < TRI_LINK_SOCKETS_MAX && is->find(is->arg, address, dial->place_count, &place))
        dial->place_count++;
    if (!is->spreads)
        handshake->place = dial->place;
    else if (handshake->place < 0)
        handshake->place = (dial->place + handshake->socket) % dial->place_count;
    else
        handshake->place = (handshake->place + 1) % dial->place_count;
    if (!is->find(is->arg, address, handshake->place, &place))
        return;
    tri_handshake_dial(handshake, &place, now_ns + LANE_LIMIT_NS);
}

static tri_status sockets_advance(const tri_rendezvous *is, net_dial *dial, tri_connected_peer *connected,
                                  int64_t now_ns)
{
    for (int i = 1; i < TRI_LINK_SOCKETS_MAX; i++) {
        net_handshake *handshake = &dial->handshakes[i];

        if (handshake->stage == HANDSHAKE_DONE)
            continue;
        if (handshake->stage == HANDSHAKE_IDLE && now_ns >= handshake->limit_ns)
            socket_start(is, dial, handshake, now_ns);
        handshake_continue(is, handshake, now_ns);
        if (handshake->stage == HANDSHAKE_DONE)
            TRI_TRY(tri_connected_peer_take(is, handshake, connected));
        else if (handshake->stage == HANDSHAKE_IDLE && now_ns >= handshake->limit_ns) {
            snprintf(dial->why, sizeof dial->why, "%s", handshake->why);
            handshake->limit_ns = now_ns + PAUSE_NS;
        }
    }
    return TRI_OK;
}

tri_status tri_dial_advance(const tri_rendezvous *is, net_dial *dial, tri_connected_peer *connected, int64_t now_ns)
{
    return dial->found ? sockets_advance(is, dial, connected, now_ns) : tries_advance(is, dial, connected, now_ns);
}

int64_t tri_dial_next_ns(const net_dial *dial)
{
    int64_t next_ns = dial->found ? TRI_FOREVER : dial->next_ns;

    for (int i = 0; i < TRI_LINK_SOCKETS_MAX; i++) {
        const net_handshake *handshake = &dial->handshakes[i];

        if (handshake->stage != HANDSHAKE_DONE && (dial->found || handshake->stage != HANDSHAKE_IDLE) &&
            handshake->limit_ns < next_ns)
            next_ns = handshake->limit_ns;
    }
    return next_ns;
}
