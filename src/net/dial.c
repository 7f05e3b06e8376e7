/* SPDX-License-Identifier: Apache-2.0
 *
 * dial.c: the dialing side of a meeting, for one peer.
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

#define TALK_LIMIT_NS (5 * TRI_NS_PER_S)
#define LANE_LIMIT_NS (2 * TRI_NS_PER_S) /* of a further connection: the peer is known to answer */
#define TRY_EVERY_NS  (100 * TRI_NS_PER_MS)
#define PAUSE_NS      (50 * TRI_NS_PER_MS)

void tri_dial_init(net_dial *dial, int peer)
{
    memset(dial, 0, sizeof *dial);
    for (int i = 0; i < TRI_STRANDS_MAX; i++) {
        dial->talks[i].fd = dial->talks[i].memory_fd = -1;
        dial->talks[i].dialed = true;
        dial->talks[i].peer = peer;
        dial->talks[i].strands = 1;
    }
}

void tri_dial_fini(net_dial *dial)
{
    for (int i = 0; i < TRI_STRANDS_MAX; i++)
        tri_talk_drop(&dial->talks[i], "");
}

void tri_met_close(tri_met *met)
{
    for (int i = 0; i < TRI_STRANDS_MAX; i++) {
        if (met->fds[i] >= 0)
            close(met->fds[i]);
        met->fds[i] = -1;
    }
    if (met->memory_fd >= 0)
        close(met->memory_fd);
    met->memory_fd = -1;
    met->strands = 0;
}

bool tri_met_is_complete(const tri_met *met)
{
    for (int i = 0; i < met->strands; i++) {
        if (met->fds[i] < 0)
            return false;
    }
    return met->strands > 0;
}

tri_status tri_met_take(const tri_meeting *is, net_talk *talk, tri_met *met)
{
    if (is->memory_fd < 0 && talk->marks != is->marks)
        return tri_fail(TRI_ECONFIG, "%s: rank %d has comm.encrypt = %s, rank %d has %s", is->name, is->rank,
                        is->marks & TRI_MARK_ENCRYPTED ? "on" : "off", talk->peer,
                        talk->marks & TRI_MARK_ENCRYPTED ? "on" : "off");
    if (met->strands != talk->strands)
        tri_met_close(met);
    if (met->fds[talk->strand] >= 0)
        close(met->fds[talk->strand]);
    if (met->memory_fd >= 0)
        close(met->memory_fd);
    met->strands = talk->strands;
    met->fds[talk->strand] = talk->fd;
    memcpy(met->keys[talk->strand], talk->key, TRI_AUTH_NBYTES);
    met->memory_fd = talk->memory_fd;
    met->slot_kib = talk->slot_kib;
    talk->fd = talk->memory_fd = -1;
    return TRI_OK;
}

/* Did connect() end? */
static bool is_connected(const net_talk *talk)
{
    struct pollfd one = {.fd = talk->fd, .events = POLLOUT};

    return talk->stage == TALK_CONNECT && poll(&one, 1, 0) > 0;
}

static void talk_connected(const tri_meeting *is, net_talk *talk)
{
    int error = 0;
    socklen_t nbytes = sizeof error;

    if (getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0)
        error = errno;
    if (error != 0) {
        tri_talk_drop(talk, strerror(error));
        return;
    }
    if (is->trusts && !is->trusts(is->arg, talk->fd)) {
        tri_talk_drop(talk, "belongs to another user");
        return;
    }
    if (talk->strand == 0)
        talk->strands = is->strands ? is->strands(is->arg, talk->fd) : 1;
    tri_entropy(talk->nonces[0], TRI_TALK_NONCE_NBYTES);
    tri_talk_send_start(is, talk, 1);
}

/* Goes on with one talk; one that fails is idle then. */
static void talk_continue(const tri_meeting *is, net_talk *talk, int64_t now_ns)
{
    if (is_connected(talk))
        talk_connected(is, talk);
    tri_talk_advance(is, talk);
    if (talk->stage != TALK_IDLE && talk->stage != TALK_DONE && now_ns >= talk->limit_ns)
        tri_talk_drop(talk, "does not answer");
}

/* ---- the first connection */

static void try_failed(net_dial *dial, const net_talk *talk, int64_t now_ns)
{
    dial->refused |= talk->refused;
    snprintf(dial->why, sizeof dial->why, "%s", talk->why);
    dial->next_ns = now_ns;
}

/* The next place, in a free talk. False: the peer offers no more. */
static bool try_start(const tri_meeting *is, net_dial *dial, int64_t now_ns)
{
    tri_meeting_place place;

    if (dial->place >= TRI_STRANDS_MAX || !is->find(is->arg, is->addresses[dial->talks[0].peer], dial->place, &place))
        return false;
    /* As many talks as places, and each has one try a round: this one is idle. */
    net_talk *talk = &dial->talks[dial->place];

    talk->place = dial->place++;
    dial->next_ns = now_ns + TRY_EVERY_NS;
    tri_talk_dial(talk, &place, now_ns + TALK_LIMIT_NS);
    if (talk->stage == TALK_IDLE)
        try_failed(dial, talk, now_ns);
    return true;
}

static tri_status round_end(const tri_meeting *is, net_dial *dial, int64_t now_ns)
{
    if (dial->refused)
        return tri_fail(TRI_EPEER, "%s: rank %d does not know the token of this job", is->name, dial->talks[0].peer);
    dial->place = 0;
    dial->rounds++;
    dial->next_ns = now_ns + PAUSE_NS;
    return TRI_OK;
}

/* A way is found: its talk becomes that of connection 0, the others begin at once. */
static void way_found(net_dial *dial, const net_talk *talk, const tri_met *met)
{
    dial->found = true;
    dial->place_count = dial->place;
    dial->place = talk->place;
    for (int i = 0; i < TRI_STRANDS_MAX; i++) {
        tri_talk_drop(&dial->talks[i], "");
        dial->talks[i].strand = i;
        dial->talks[i].strands = met->strands;
        dial->talks[i].place = -1;
        dial->talks[i].stage = i == 0 || i >= met->strands ? TALK_DONE : TALK_IDLE;
    }
}

static tri_status tries_advance(const tri_meeting *is, net_dial *dial, tri_met *met, int64_t now_ns)
{
    for (int i = 0; i < TRI_STRANDS_MAX; i++) {
        net_talk *talk = &dial->talks[i];

        if (talk->stage == TALK_IDLE)
            continue;
        talk_continue(is, talk, now_ns);
        if (talk->stage == TALK_IDLE)
            try_failed(dial, talk, now_ns);
        if (talk->step < 3)
            continue;
        for (int j = 0; j < TRI_STRANDS_MAX; j++) {
            if (j != i)
                tri_talk_drop(&dial->talks[j], "");
        }
        if (talk->stage != TALK_DONE)
            return TRI_OK;
        TRI_TRY(tri_met_take(is, talk, met));
        way_found(dial, talk, met);
        return TRI_OK;
    }
    while (now_ns >= dial->next_ns) {
        if (try_start(is, dial, now_ns))
            continue;
        for (int i = 0; i < TRI_STRANDS_MAX; i++) {
            if (dial->talks[i].stage != TALK_IDLE) {
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
static void strand_start(const tri_meeting *is, net_dial *dial, net_talk *talk, int64_t now_ns)
{
    const char *address = is->addresses[talk->peer];
    tri_meeting_place place;

    while (dial->place_count < TRI_STRANDS_MAX && is->find(is->arg, address, dial->place_count, &place))
        dial->place_count++;
    if (!is->spreads)
        talk->place = dial->place;
    else if (talk->place < 0)
        talk->place = (dial->place + talk->strand) % dial->place_count;
    else
        talk->place = (talk->place + 1) % dial->place_count;
    if (!is->find(is->arg, address, talk->place, &place))
        return;
    tri_talk_dial(talk, &place, now_ns + LANE_LIMIT_NS);
}

static tri_status strands_advance(const tri_meeting *is, net_dial *dial, tri_met *met, int64_t now_ns)
{
    for (int i = 1; i < TRI_STRANDS_MAX; i++) {
        net_talk *talk = &dial->talks[i];

        if (talk->stage == TALK_DONE)
            continue;
        if (talk->stage == TALK_IDLE && now_ns >= talk->limit_ns)
            strand_start(is, dial, talk, now_ns);
        talk_continue(is, talk, now_ns);
        if (talk->stage == TALK_DONE)
            TRI_TRY(tri_met_take(is, talk, met));
        else if (talk->stage == TALK_IDLE && now_ns >= talk->limit_ns) {
            snprintf(dial->why, sizeof dial->why, "%s", talk->why);
            talk->limit_ns = now_ns + PAUSE_NS;
        }
    }
    return TRI_OK;
}

tri_status tri_dial_advance(const tri_meeting *is, net_dial *dial, tri_met *met, int64_t now_ns)
{
    return dial->found ? strands_advance(is, dial, met, now_ns) : tries_advance(is, dial, met, now_ns);
}

int64_t tri_dial_next_ns(const net_dial *dial)
{
    int64_t next_ns = dial->found ? TRI_FOREVER : dial->next_ns;

    for (int i = 0; i < TRI_STRANDS_MAX; i++) {
        const net_talk *talk = &dial->talks[i];

        if (talk->stage != TALK_DONE && (dial->found || talk->stage != TALK_IDLE) && talk->limit_ns < next_ns)
            next_ns = talk->limit_ns;
    }
    return next_ns;
}
