/* SPDX-License-Identifier: Apache-2.0
 *
 * abort.c: what ranks say to each other besides data: why they stop, and goodbye; and how the others come to hear it.
 *
 * First cause wins: a rank that loses a peer waits a little for somebody who knows why before it reports the loss.
 */
#include <stdio.h>
#include <string.h>

#include "net/net_impl.h"

#define ABORT_LIMIT_NS  (2 * TRI_NS_PER_S) /* in which a peer takes nothing */
#define CAUSE_LIMIT_NS  (200 * TRI_NS_PER_MS)
#define VERDICT_STEP_NS (TRI_NS_PER_MS / 5)

void tri_net_link_next(tri_net_link *link)
{
    link->head_nbytes = 0;
    link->decoded = link->claimed = false;
    link->payload_nbytes = 0;
    link->carry_nbytes = 0;
}

static tri_status link_read(tri_net *net, int peer, void *bytes, size_t nbytes, size_t *given)
{
    tri_net_link *link = net->links[peer];
    tri_status status = link->transport->ops->read_some(link->transport, peer, bytes, nbytes, given);

    if (status != TRI_EPEER)
        return status;
    link->gone = true;
    return link->bye ? TRI_OK : status;
}

static tri_status abort_said(const tri_net *net, int peer)
{
    const tri_frame *frame = &net->links[peer]->frame;

    if (net->abort_text[0])
        return tri_fail_copy(TRI_EABORT, net->abort_text);
    return tri_fail(TRI_EABORT, "rank %llu failed: %s", (unsigned long long)frame->count,
                    tri_status_text((tri_status)frame->op));
}

/* The text of the first abort that came is kept, those of others are thrown away. */
static tri_status abort_read(tri_net *net, int peer, bool *moved)
{
    tri_net_link *link = net->links[peer];
    uint64_t total = tri_net_padded(link->frame.nbytes);
    unsigned char waste[TRI_FRAME_ABORT_LIMIT_NBYTES];
    size_t given;

    if (net->abort_peer < 0)
        net->abort_peer = peer;
    while (link->payload_nbytes < total) {
        tri_status status = link_read(net, peer, waste, (size_t)(total - link->payload_nbytes), &given);

        /* A peer that dies while it explains has explained. */
        if (status == TRI_EPEER || link->gone)
            break;
        TRI_TRY(status);
        if (given == 0)
            return TRI_OK;
        *moved = true;
        if (net->abort_peer == peer)
            memcpy(net->abort_text + link->payload_nbytes, waste, given);
        link->payload_nbytes += given;
    }
    if (net->abort_peer == peer)
        net->abort_text[link->frame.nbytes < link->payload_nbytes ? link->frame.nbytes : link->payload_nbytes] = 0;
    return abort_said(net, net->abort_peer);
}

/* Where the next head would be after a damaged one, nobody knows: the link is lost, and with it the peer, as if it had
 * been cut. Those who can continue over new links do. */
static tri_status head_decode(tri_net *net, int peer)
{
    tri_net_link *link = net->links[peer];
    char why[TRI_ERROR_NBYTES];

    if (tri_frame_decode(link->head, &link->frame) == TRI_OK)
        return TRI_OK;
    snprintf(why, sizeof why, "%s", tri_last_error());
    link->gone = link->deaf = true;
    return tri_fail(TRI_EPEER, "from rank %d: %s (damaged on its way: this link is lost)", peer, why);
}

tri_status tri_net_link_listen(tri_net *net, int peer, bool *moved)
{
    tri_net_link *link = net->links[peer];
    size_t given;

    while (!link->gone) {
        if (link->decoded) {
            if (link->frame.kind != TRI_FRAME_ABORT)
                return TRI_OK;
            return abort_read(net, peer, moved);
        }
        TRI_TRY(link_read(net, peer, link->head + link->head_nbytes, sizeof link->head - link->head_nbytes, &given));
        if (given == 0)
            return TRI_OK;
        *moved = true;
        link->head_nbytes += given;
        if (link->head_nbytes < sizeof link->head)
            continue;
        TRI_TRY(head_decode(net, peer));
        link->decoded = true;
        if (link->frame.kind == TRI_FRAME_BYE) {
            link->bye = true;
            tri_net_link_next(link);
        }
    }
    return TRI_OK;
}

/* Reads all there is, in search of an abort. */
static tri_status link_search(tri_net *net, int peer, bool *moved)
{
    tri_net_link *link = net->links[peer];

    for (;;) {
        bool came = false;
        uint64_t left;
        size_t given;

        TRI_TRY(tri_net_link_listen(net, peer, &came));
        if (link->decoded && link->frame.kind == TRI_FRAME_DATA) {
            left = tri_net_padded(link->frame.nbytes) - link->payload_nbytes;
            TRI_TRY(link_read(net, peer, net->scratch, left < net->scratch_nbytes ? (size_t)left : net->scratch_nbytes,
                              &given));
            link->payload_nbytes += given;
            came |= given > 0 || left == 0;
            if (given == left)
                tri_net_link_next(link);
        }
        if (!came || link->gone)
            return TRI_OK;
        *moved = true;
    }
}

static bool is_watching(const tri_net *net)
{
    for (int peer = 0; net->watch && peer < net->world; peer++) {
        if (tri_watch_state_of(net->watch, peer) == TRI_WATCH_ALIVE)
            return true;
    }
    return false;
}

/* A rank that says goodbye on its link then says it to the watches, after the reason why it failed, if it did. However
 * late the watch thread of this rank gets a core, it hears both, or finds that rank lost. */
static bool is_last_word_due(const tri_net *net)
{
    for (int peer = 0; net->watch && peer < net->world; peer++) {
        if (net->links[peer] && net->links[peer]->bye && tri_watch_state_of(net->watch, peer) == TRI_WATCH_ALIVE)
            return true;
    }
    return false;
}

tri_status tri_net_first_cause(tri_net *net, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    int64_t until_ns = tri_deadline_after_ms(CAUSE_LIMIT_NS / TRI_NS_PER_MS);

    snprintf(message, sizeof message, "%s", tri_last_error());
    for (;;) {
        bool moved = false, anybody = false;

        if (tri_net_trouble(net))
            return tri_net_trouble_status(net);

        for (int peer = 0; peer < net->world; peer++) {
            tri_net_link *link = tri_net_link_heard(net, peer);

            net->want[peer] = 0;
            if (!link && net->routes[peer]) {
                net->want[peer] = TRI_WANT_READ;
                anybody = true;
            }
            if (!link || link->gone)
                continue;
            switch (link_search(net, peer, &moved)) {
            case TRI_OK:
                break;
            case TRI_EABORT:
                return TRI_EABORT;
            default:
                /* Garbage, or gone too: nothing more can be learned here. */
                link->gone = true;
                break;
            }
            if (!link->gone) {
                net->want[peer] = TRI_WANT_READ;
                anybody = true;
            }
        }
        if (is_last_word_due(net) && tri_now_ns() >= until_ns)
            until_ns = tri_now_ns() + VERDICT_STEP_NS;
        else if (tri_now_ns() >= until_ns && !moved)
            return tri_fail_copy(status, message);
        if (anybody && !moved && tri_net_wait(net, until_ns) != TRI_OK)
            return tri_fail_copy(status, message);
        /* No link can tell any more; a watch may know in a moment whether the process died. */
        if (!anybody && !is_watching(net))
            return tri_fail_copy(status, message);
        if (!anybody)
            tri_sleep_ns(VERDICT_STEP_NS);
    }
}

/* Links on which something can be sent; the others have heard it already, or never will. */
static tri_net_link *link_to_tell(const tri_net *net, int peer)
{
    tri_net_link *link = net->links[peer];

    return link && (!link->gone || link->deaf) && !link->partial && (link->written || !link->transport->ops->write_rest)
               ? link
               : NULL;
}

void tri_net_tell_all(tri_net *net, const unsigned char *bytes, size_t nbytes, int64_t limit_ns)
{
    int64_t until_ns = tri_deadline_after_ms(limit_ns / TRI_NS_PER_MS);
    bool left = true;

    for (size_t i = 0; i < net->transport_count; i++) {
        if (net->transports[i]->ops->write_rest)
            net->transports[i]->ops->write_rest(net->transports[i], bytes, nbytes);
    }
    for (int peer = 0; peer < net->world; peer++) {
        if (net->links[peer])
            net->links[peer]->control_nbytes = 0;
    }
    while (left) {
        left = false;
        for (int peer = 0; peer < net->world; peer++) {
            tri_net_link *link = link_to_tell(net, peer);
            size_t taken = 0;

            net->want[peer] = 0;
            if (!link || link->control_nbytes == nbytes)
                continue;
            if (link->transport->ops->write_some(link->transport, peer, bytes + link->control_nbytes,
                                                 nbytes - link->control_nbytes, &taken) != TRI_OK) {
                link->control_nbytes = nbytes;
                continue;
            }
            link->control_nbytes += taken;
            if (taken > 0)
                until_ns = tri_deadline_after_ms(limit_ns / TRI_NS_PER_MS);
            if (link->control_nbytes < nbytes) {
                net->want[peer] = TRI_WANT_WRITE;
                left = true;
            }
        }
        if (left && (tri_now_ns() >= until_ns || tri_net_wait(net, until_ns) != TRI_OK))
            break;
    }
    for (int peer = 0; peer < net->world; peer++) {
        tri_net_link *link = net->links[peer];

        net->want[peer] = 0;
        if (link)
            link->partial |= link->control_nbytes > 0 && link->control_nbytes < nbytes;
    }
}

void tri_net_abort(tri_net *net, tri_status cause, int origin_rank, const char *message)
{
    unsigned char bytes[TRI_FRAME_NBYTES + TRI_FRAME_ABORT_LIMIT_NBYTES] = {0};
    size_t nbytes = strnlen(message, TRI_FRAME_ABORT_LIMIT_NBYTES - 1);
    tri_frame frame = {.kind = TRI_FRAME_ABORT,
                       .op = (uint8_t)cause,
                       .count = origin_rank < 0 ? 0 : (uint64_t)origin_rank,
                       .nbytes = nbytes};

    tri_frame_encode(&frame, bytes);
    memcpy(bytes + TRI_FRAME_NBYTES, message, nbytes);
    (void)tri_net_tell(net, cause, origin_rank, message);
    if (!net->all_watched)
        tri_net_tell_all(net, bytes, TRI_FRAME_NBYTES + (size_t)tri_net_padded(nbytes), ABORT_LIMIT_NS);
}
