/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_messages.c: what watches say to each other: a head of 24 bytes and up to 3 KiB (docs/formats/wire.md).
 *
 * Sending never waits: what a peer does not take stays in a small buffer, and a beat that finds no room is left out.
 * Who sends what is no message is cut off.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "net/bytes.h"
#include "net/watch_impl.h"

#define WATCH_MAGIC UINT32_C(0x57495254) /* "TRIW" */

void tri_watch_head_encode(const watch_head *head, unsigned char bytes[TRI_WATCH_HEAD_NBYTES])
{
    tri_bytes_write_u32(bytes, WATCH_MAGIC);
    tri_bytes_write_u16(bytes + 4, head->kind);
    bytes[6] = head->verdict;
    bytes[7] = head->status;
    tri_bytes_write_u32(bytes + 8, (uint32_t)head->origin);
    tri_bytes_write_u32(bytes + 12, (uint32_t)head->subject);
    tri_bytes_write_u32(bytes + 16, head->nbytes);
    tri_bytes_write_u32(bytes + 20, (uint32_t)XXH3_64bits(bytes, 20));
}

static size_t payload_limit(uint16_t kind)
{
    switch (kind) {
    case WATCH_BEAT:
        return TRI_WATCH_NOTE_NBYTES;
    case WATCH_CAUSE:
        return TRI_WATCH_CAUSE_NBYTES - 1;
    case WATCH_ANSWER:
        return TRI_WATCH_TEXT_NBYTES - 1;
    default:
        return 0;
    }
}

bool tri_watch_head_decode(const unsigned char bytes[TRI_WATCH_HEAD_NBYTES], watch_head *head)
{
    *head = (watch_head){.kind = tri_bytes_read_u16(bytes + 4),
                         .verdict = bytes[6],
                         .status = bytes[7],
                         .origin = (int32_t)tri_bytes_read_u32(bytes + 8),
                         .subject = (int32_t)tri_bytes_read_u32(bytes + 12),
                         .nbytes = tri_bytes_read_u32(bytes + 16)};
    return tri_bytes_read_u32(bytes) == WATCH_MAGIC &&
           tri_bytes_read_u32(bytes + 20) == (uint32_t)XXH3_64bits(bytes, 20) && head->kind > 0 &&
           head->kind < WATCH_KIND_COUNT && head->nbytes <= payload_limit(head->kind) &&
           head->verdict < TRI_VERDICT_COUNT && head->status < TRI_STATUS_COUNT;
}

/* Bytes that the connection took now. What is wrong with it is found by reading it. */
static size_t peer_send(watch_peer *peer)
{
    size_t taken = 0;

    if (peer->tls) {
        (void)tri_tls_write(peer->tls, peer->out, peer->out_nbytes, &taken);
        return taken;
    }
    ssize_t sent = send(peer->fd, peer->out, peer->out_nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? (size_t)sent : 0;
}

/* As recv: bytes, 0: the connection is closed, -1: errno. */
static ssize_t peer_receive(watch_peer *peer, void *bytes, size_t nbytes)
{
    size_t given = 0;

    if (!peer->tls)
        return recv(peer->fd, bytes, nbytes, MSG_DONTWAIT);
    if (tri_tls_read(peer->tls, bytes, nbytes, &given) != TRI_OK)
        return errno ? -1 : 0;
    if (given > 0)
        return (ssize_t)given;
    errno = EAGAIN;
    return -1;
}

void tri_watch_flush(watch_peer *peer)
{
    while (peer->fd >= 0 && peer->out_nbytes > 0) {
        size_t sent = peer_send(peer);

        if (sent == 0)
            return;
        peer->out_nbytes -= sent;
        memmove(peer->out, peer->out + sent, peer->out_nbytes);
    }
}

void tri_watch_say(watch_peer *peer, const watch_head *head, const void *payload)
{
    size_t nbytes = TRI_WATCH_HEAD_NBYTES + head->nbytes;

    /* To a lost one too: it may wake up. */
    if (peer->fd < 0 || peer->closed || tri_watch_is(peer, TRI_WATCH_LEFT) ||
        nbytes > TRI_WATCH_OUT_NBYTES - peer->out_nbytes)
        return;
    tri_watch_head_encode(head, peer->out + peer->out_nbytes);
    if (head->nbytes > 0)
        memcpy(peer->out + peer->out_nbytes + TRI_WATCH_HEAD_NBYTES, payload, head->nbytes);
    peer->out_nbytes += nbytes;
    tri_watch_flush(peer);
}

void tri_watch_spread(tri_watch *watch)
{
    watch_head head = {.kind = WATCH_CAUSE,
                       .verdict = (uint8_t)watch->verdict,
                       .status = (uint8_t)watch->cause,
                       .origin = watch->origin,
                       .subject = watch->subject,
                       .nbytes = (uint32_t)strlen(watch->text)};

    if (watch->reported)
        return;
    watch->reported = true;
    for (int peer = 0; peer < watch->world; peer++)
        tri_watch_say(&watch->peers[peer], &head, watch->text);
}

/* ---- hearing */

static void cause_heard(tri_watch *watch, int from, const watch_head *head, const unsigned char *payload)
{
    char text[TRI_WATCH_CAUSE_NBYTES];
    bool about_us = head->subject == watch->rank;

    if (head->subject >= watch->world || head->origin >= watch->world)
        return;
    if (about_us)
        snprintf(text, sizeof text, "rank %d gave this rank up: %.*s", from, (int)head->nbytes, (const char *)payload);
    else
        snprintf(text, sizeof text, "%.*s", (int)head->nbytes, (const char *)payload);
    if (head->subject >= 0 && !about_us && tri_watch_is(&watch->peers[head->subject], TRI_WATCH_ALIVE)) {
        atomic_store(&watch->peers[head->subject].verdict, head->verdict);
        /* It may still have something to say: its connection stays. */
    }
    if (tri_watch_trouble_set(watch, (tri_status)head->status, head->origin, head->subject, (tri_verdict)head->verdict,
                              text))
        tri_watch_spread(watch);
}

static void message_heard(tri_watch *watch, int from, const watch_head *head, const unsigned char *payload,
                          int64_t now_ns)
{
    watch_peer *peer = &watch->peers[from];

    switch ((watch_kind)head->kind) {
    case WATCH_BEAT:
        memcpy(peer->note, payload, head->nbytes);
        peer->note_nbytes = head->nbytes;
        tri_watch_beat_heard(peer, now_ns);
        break;
    case WATCH_CAUSE:
        cause_heard(watch, from, head, payload);
        break;
    case WATCH_BYE:
        atomic_store(&peer->state, TRI_WATCH_LEFT);
        tri_watch_wake_all(watch);
        break;
    case WATCH_ASK:
        peer->asks = true;
        break;
    case WATCH_ANSWER:
        memcpy(peer->answer, payload, head->nbytes);
        peer->answer[head->nbytes] = 0;
        peer->answer_nbytes = head->nbytes;
        break;
    case WATCH_EXCUSE:
        if (head->subject >= 0 && head->subject < watch->world && head->subject != from)
            watch->peers[head->subject].excused_ns = now_ns;
        break;
    case WATCH_KIND_COUNT:
        break;
    }
}

/* Takes whole messages out of what has come; false: that is no message. */
static bool messages_take(tri_watch *watch, int from, int64_t now_ns)
{
    watch_peer *peer = &watch->peers[from];
    size_t at = 0;

    while (peer->in_nbytes - at >= TRI_WATCH_HEAD_NBYTES) {
        watch_head head;

        if (!tri_watch_head_decode(peer->in + at, &head))
            return false;
        if (peer->in_nbytes - at < TRI_WATCH_HEAD_NBYTES + head.nbytes)
            break;
        message_heard(watch, from, &head, peer->in + at + TRI_WATCH_HEAD_NBYTES, now_ns);
        at += TRI_WATCH_HEAD_NBYTES + head.nbytes;
    }
    peer->in_nbytes -= at;
    memmove(peer->in, peer->in + at, peer->in_nbytes);
    return true;
}

void tri_watch_hear(tri_watch *watch, int from, int64_t now_ns)
{
    watch_peer *peer = &watch->peers[from];

    while (peer->fd >= 0 && !peer->closed) {
        ssize_t got = peer_receive(peer, peer->in + peer->in_nbytes, sizeof peer->in - peer->in_nbytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            peer->closed = true;
            peer->error = got < 0 ? errno : 0;
            return;
        }
        peer->in_nbytes += (size_t)got;
        if (!messages_take(watch, from, now_ns)) {
            peer->closed = true;
            peer->error = EPROTO;
        }
    }
}
