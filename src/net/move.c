/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c: the mover: all frames of a call, over all links, in one loop that never waits for one peer alone.
 *
 * A pass gives each peer one write and one read; when a pass moves nothing, it waits. While it waits long, it also
 * listens to the peers of no move, so that the death or the abort of any rank ends the wait. Allocates nothing.
 */
#include <stdio.h>
#include <string.h>

#include "net/move_impl.h"

#define PATROL_AFTER_NS (20 * TRI_NS_PER_MS)
#define WAIT_LIMIT_NS   (100 * TRI_NS_PER_MS)
#define FINISH_LIMIT_NS (2 * TRI_NS_PER_S) /* in which a peer takes nothing: on a busy machine it reads late */

static tri_status moves_check(const move_run *mover)
{
    const tri_net *net = mover->net;

    for (size_t i = 0; i < mover->count; i++) {
        const tri_move *move = &mover->moves[i];

        if (move->peer < 0 || move->peer >= net->world || move->peer == net->rank)
            return tri_fail(TRI_EINVAL, "net: move %zu of rank %d: want another rank of %d, got %d", i, net->rank,
                            net->world, move->peer);
        if (!net->routes[move->peer])
            return tri_fail(TRI_EINVAL, "net: rank %d is not linked to rank %d", net->rank, move->peer);
        if (move->send && net->links[move->peer] && net->links[move->peer]->partial)
            return tri_fail(TRI_EINVAL, "net: the link to rank %d broke off inside a frame", move->peer);
        if (move->frame.kind != TRI_FRAME_DATA || move->frame.nbytes > TRI_FRAME_LIMIT_NBYTES ||
            (move->frame.nbytes > 0 && !move->bytes && (move->send || !move->consumer)))
            return tri_fail(TRI_EINVAL,
                            "net: move %zu of rank %d: want data and where it lies, got kind %d, %llu bytes", i,
                            net->rank, move->frame.kind, (unsigned long long)move->frame.nbytes);
    }
    return TRI_OK;
}

/* Starts to count for another call. */
static void moved_begin(tri_net_link *link, const tri_frame *frame)
{
    if (atomic_load_explicit(&link->moved_sequence, memory_order_relaxed) == frame->sequence &&
        atomic_load_explicit(&link->moved_group, memory_order_relaxed) == frame->group)
        return;
    atomic_store_explicit(&link->sent_nbytes, 0, memory_order_relaxed);
    atomic_store_explicit(&link->received_nbytes, 0, memory_order_relaxed);
    atomic_store_explicit(&link->moved_group, frame->group, memory_order_relaxed);
    atomic_store_explicit(&link->moved_sequence, frame->sequence, memory_order_relaxed);
}

static void moves_end(const move_run *mover)
{
    tri_net *net = mover->net;

    for (size_t i = 0; i < net->active_count; i++) {
        tri_net_link *link = net->links[net->active[i]];

        if (link->sending != SIZE_MAX && mover->moves[link->sending].done_nbytes > 0)
            link->partial = true;
        link->sending = link->receiving = SIZE_MAX;
    }
}

/* From the last to the first, so that each link ends with its first one, and those are chained. */
static tri_status moves_start(move_run *mover)
{
    tri_net *net = mover->net;

    net->active_count = 0;
    for (size_t i = mover->count; i-- > 0;) {
        tri_move *move = &mover->moves[i];
        tri_net_link *link = net->links[move->peer];
        size_t *first;

        if (!link && !(link = tri_net_link_make(net, move->peer))) {
            moves_end(mover);
            return TRI_ENOMEM;
        }
        first = move->send ? &link->sending : &link->receiving;
        if (link->sending == SIZE_MAX && link->receiving == SIZE_MAX)
            net->active[net->active_count++] = move->peer;
        move->done_nbytes = 0;
        moved_begin(link, &move->frame);
        move->next = *first;
        *first = i;
    }
    for (size_t i = 0; i < net->active_count; i++)
        net->turn[i] = net->active[net->active_count - 1 - i];
    net->turn_count = mover->left = net->active_count;
    net->traffic.moves++;
    return TRI_OK;
}

/* ---- the loop */

static tri_status moves_late(const move_run *mover)
{
    const tri_net *net = mover->net;
    char text[512];
    size_t used = 0, late = 0, named = 0;

    text[0] = 0;
    for (size_t i = 0; i < net->active_count; i++) {
        const tri_net_link *link = net->links[net->active[i]];
        const size_t indexes[2] = {link->receiving, link->sending};

        for (int side = 0; side < 2; side++) {
            const tri_move *move = &mover->moves[indexes[side]];

            if (indexes[side] == SIZE_MAX)
                continue;
            late++;
            if (used > sizeof text - 96)
                continue;
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s rank %d: %llu of %llu bytes", named ? "; " : "",
                                 side == 0 ? "from" : "to", net->active[i], (unsigned long long)move->done_nbytes,
                                 (unsigned long long)(TRI_FRAME_NBYTES + move->frame.nbytes));
            named++;
        }
    }
    return tri_fail(TRI_ETIMEOUT, "rank %d waited %.3f s: %s%s", net->rank,
                    (double)(tri_now_ns() - mover->began_ns) * 1e-9, text, late > named ? "; and others" : "");
}

static unsigned char link_wants(const tri_net_link *link)
{
    return (unsigned char)((link->receiving != SIZE_MAX ? TRI_WANT_READ : 0) |
                           (link->sending != SIZE_MAX ? TRI_WANT_WRITE : 0));
}

/* One write and one read for each peer whose turn it is. It stays its turn while anything goes, or, where nobody tells
 * whose turn it is, until all has gone. */
static tri_status pass(move_run *mover, bool *moved)
{
    tri_net *net = mover->net;
    size_t count = net->turn_count, kept = 0;

    *moved = false;
    for (size_t i = 0; i < count; i++) {
        int peer = net->turn[i];
        const tri_net_link *link = net->links[peer];
        bool went = false;

        if (!link || !link_wants(link))
            continue;
        if (link->sending != SIZE_MAX)
            TRI_TRY(tri_move_send(mover, peer, &went));
        if (link->receiving != SIZE_MAX)
            TRI_TRY(tri_move_receive(mover, peer, &went));
        *moved |= went;
        net->want[peer] = link_wants(link);
        if (!net->want[peer])
            mover->left--;
        else if (went || !mover->tells)
            net->turn[kept++] = peer;
    }
    net->turn_count = kept;
    return TRI_OK;
}

/* The data of a link are lost on the way though the peer lives: its watch may go another way. */
static tri_status peer_unanswered(const move_run *mover, int peer)
{
    tri_transport *transport = mover->net->links[peer]->transport;
    int64_t silent_ns = transport->ops->unanswered_ns ? transport->ops->unanswered_ns(transport, peer) : 0;

    if (silent_ns == 0)
        return TRI_OK;
    return tri_fail(TRI_EPEER, "rank %d is unreachable (its host has acknowledged no data for %.2f s)", peer,
                    (double)silent_ns * 1e-9);
}

static tri_status peer_listen(const move_run *mover, int peer, bool *moved)
{
    const tri_net_link *link = tri_net_link_heard(mover->net, peer);

    return link && !link->gone && link->receiving == SIZE_MAX ? tri_move_listen(mover, peer, moved) : TRI_OK;
}

/* A peer that takes nothing may itself be sending the same call to this rank, as another root. */
static tri_status peer_disagrees(const move_run *mover, int peer)
{
    const tri_net_link *link = mover->net->links[peer];
    if (link->sending == SIZE_MAX || link->receiving != SIZE_MAX || !link->decoded)
        return TRI_OK;
    const tri_move *move = &mover->moves[link->sending];
    tri_frame theirs = link->frame;
    if (!move->collective || theirs.kind != TRI_FRAME_DATA || theirs.group != move->frame.group ||
        theirs.sequence != move->frame.sequence)
        return TRI_OK;
    theirs.part = move->frame.part;
    if (tri_frame_agrees(&move->frame, &theirs))
        return TRI_OK;
    tri_move_blame(mover, peer, &link->frame);
    return tri_fail(TRI_EMISMATCH, "rank %d sends another call", peer);
}

/* Listens to the peers from whom nothing is expected, and asks about those who take nothing. */
static tri_status patrol(const move_run *mover, bool *moved)
{
    tri_net *net = mover->net;

    for (int peer = 0; peer < net->world; peer++) {
        TRI_TRY(peer_listen(mover, peer, moved));
        const tri_net_link *link = net->links[peer];
        if (link && link->transport && !link->gone) {
            TRI_TRY(peer_unanswered(mover, peer));
            TRI_TRY(peer_disagrees(mover, peer));
        }
    }
    return TRI_OK;
}

/* The same after a wait for everybody, where the transport says who has something: of a thousand peers one, mostly. */
static tri_status woken_listen(const move_run *mover, bool *moved)
{
    const int *woken;
    size_t count = mover->net->transports[0]->ops->woken(mover->net->transports[0], &woken);

    for (size_t i = 0; i < count; i++)
        TRI_TRY(peer_listen(mover, woken[i], moved));
    return TRI_OK;
}

/* pass() keeps what the peers of the call want; this is for the others. */
static void wants_widen(const move_run *mover, bool everybody)
{
    tri_net *net = mover->net;

    for (int peer = 0; peer < net->world; peer++) {
        const tri_net_link *link = net->links[peer];

        if (link && link_wants(link))
            continue;
        net->want[peer] =
            everybody && net->routes[peer] && (!link || (!link->gone && !link->decoded)) ? TRI_WANT_READ : 0;
    }
}

/* As if the rank where it began had said so on its link. */
static tri_status trouble_blame(const move_run *mover)
{
    int origin = -1;
    tri_status cause = TRI_EABORT, status = tri_net_trouble_status(mover->net);
    tri_frame frame = {.kind = TRI_FRAME_ABORT};

    tri_net_blame(mover->net, &origin, &cause);
    frame.op = (uint8_t)cause;
    frame.count = (uint64_t)origin;
    tri_move_blame(mover, origin, &frame);
    return status == TRI_EMISMATCH ? TRI_EABORT : status;
}

/* Somebody may know why. */
static tri_status peer_lost(const move_run *mover, tri_status status)
{
    tri_net *net = mover->net;

    status = tri_net_first_cause(net, status);
    if (tri_net_trouble(net))
        return trouble_blame(mover);
    if (status == TRI_EABORT)
        tri_move_blame(mover, net->abort_peer, &net->links[net->abort_peer]->frame);
    return status;
}

/* Whose turn it is after a wait. */
static void turn_take(const move_run *mover)
{
    tri_net *net = mover->net;
    const int *woken;

    if (!mover->tells)
        return;
    net->turn_count = net->transports[0]->ops->woken(net->transports[0], &woken);
    memcpy(net->turn, woken, net->turn_count * sizeof *net->turn);
}

static tri_status moves_run(move_run *mover)
{
    int64_t quiet_ns = -1, patrol_ns = 0; /* since when; of the last look at all */
    bool wide = false;

    for (;;) {
        bool moved, patrols;
        int64_t now_ns, until_ns;

        TRI_TRY(pass(mover, &moved));
        if (mover->left == 0) {
            if (wide) /* else nobody is wanted any more */
                memset(mover->net->want, 0, (size_t)mover->net->world);
            return TRI_OK;
        }
        if (tri_net_trouble(mover->net))
            return trouble_blame(mover);
        if (moved) {
            quiet_ns = -1;
            mover->net->slice_ns = 0;
            continue;
        }
        now_ns = tri_now_ns();
        if (quiet_ns < 0)
            quiet_ns = now_ns;
        patrols = now_ns - quiet_ns >= PATROL_AFTER_NS;
        if (patrols && wide && mover->tells && now_ns < patrol_ns + WAIT_LIMIT_NS)
            TRI_TRY(woken_listen(mover, &moved));
        else if (patrols) {
            TRI_TRY(patrol(mover, &moved));
            patrol_ns = now_ns;
        }
        if (now_ns >= mover->deadline_ns)
            return moves_late(mover);
        if (patrols || wide)
            wants_widen(mover, patrols);
        wide = patrols;
        until_ns = now_ns + (patrols ? WAIT_LIMIT_NS : PATROL_AFTER_NS);
        TRI_TRY(tri_net_wait(mover->net, until_ns < mover->deadline_ns ? until_ns : mover->deadline_ns));
        turn_take(mover);
    }
}

/* After a failure: ends the frames that are under way, with their true bytes, so that a peer who reads them can hear
 * the abort that follows. */
static void frames_finish(const move_run *mover)
{
    tri_net *net = mover->net;
    int64_t until_ns = tri_deadline_after_ms(FINISH_LIMIT_NS / TRI_NS_PER_MS);
    bool left = true;

    while (left) {
        left = false;
        memset(net->want, 0, (size_t)net->world);
        for (size_t i = 0; i < net->active_count; i++) {
            int peer = net->active[i];
            tri_net_link *link = net->links[peer];
            size_t index = link->sending;
            bool moved = false;

            if (index == SIZE_MAX || (link->gone && !link->deaf) || mover->moves[index].done_nbytes == 0)
                continue;
            if (tri_move_send(mover, peer, &moved) != TRI_OK) {
                link->gone = true;
                link->deaf = false;
            } else if (link->sending == index) {
                net->want[peer] = TRI_WANT_WRITE;
                left = true;
            } else
                link->sending = SIZE_MAX;
            if (moved)
                until_ns = tri_deadline_after_ms(FINISH_LIMIT_NS / TRI_NS_PER_MS);
        }
        if (left && (tri_now_ns() >= until_ns || tri_net_wait(net, until_ns) != TRI_OK))
            return;
    }
}

tri_status tri_net_move(tri_net *net, tri_move *moves, size_t count, int64_t deadline_ns, tri_frame *found,
                        int *culprit)
{
    move_run mover = {.net = net,
                      .moves = moves,
                      .count = count,
                      .began_ns = tri_now_ns(),
                      .deadline_ns = deadline_ns,
                      .found = found,
                      .culprit = culprit,
                      .tells = net->transport_count == 1 && net->transports[0]->ops->woken};
    char message[TRI_ERROR_NBYTES];
    tri_status status;

    TRI_TRY(moves_check(&mover));
    TRI_TRY(moves_start(&mover));
    status = moves_run(&mover);
    if (status == TRI_EPEER)
        status = peer_lost(&mover, status);
    if (status != TRI_OK && status != TRI_EABORT) {
        snprintf(message, sizeof message, "%s", tri_last_error());
        /* Where the watch tells everybody nothing need be read to hear it. */
        if (!net->all_watched)
            frames_finish(&mover);
        tri_fail_copy(status, message);
    }
    if (status != TRI_OK)
        memset(net->want, 0, (size_t)net->world);
    moves_end(&mover);
    return status;
}

tri_status tri_net_patrol(tri_net *net, tri_frame *found, int *culprit)
{
    move_run mover = {.net = net, .found = found, .culprit = culprit};
    tri_status status = TRI_OK;
    bool moved;

    if (tri_net_trouble(net))
        return trouble_blame(&mover);
    wants_widen(&mover, true);
    status = tri_net_wait(net, tri_now_ns()); /* transports look after the living only while they wait */
    memset(net->want, 0, (size_t)net->world);
    if (status == TRI_OK)
        status = patrol(&mover, &moved);
    return status == TRI_EPEER ? peer_lost(&mover, status) : status;
}

tri_status tri_net_lost(tri_net *net, int peer, tri_frame *found, int *culprit)
{
    move_run mover = {.net = net, .found = found, .culprit = culprit};

    return peer_lost(&mover,
                     tri_fail(TRI_EPEER, "rank %d is gone (it left in good order, but data is expected of it)", peer));
}

bool tri_net_has_gone(const tri_net *net, int peer)
{
    const tri_net_link *link = net->links[peer];

    return link && (link->bye || link->gone);
}

bool tri_net_pending(const tri_net *net, int peer, tri_frame *frame)
{
    const tri_net_link *link = net->links[peer];

    if (!link || !link->decoded || link->frame.kind != TRI_FRAME_DATA)
        return false;
    *frame = link->frame;
    return true;
}
