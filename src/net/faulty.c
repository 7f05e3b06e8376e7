/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty.c: a transport whose links fail as a text says, to see what the floors above make of it.
 *
 * "peer:after_bytes:what;...": once after_bytes bytes were written to the peer ("*": to each), the link is cut (gone
 * both ways, here), stalls (nothing passes any more), goes slow (4 KiB a millisecond), or one bit of the next byte is
 * flipped. Depends on counts of bytes alone, so that it happens again at the same place. And links are late while
 * `trireme chaos` says so (base/chaos.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chaos.h"
#include "base/memory.h"
#include "net/transport.h"

#define SLOW_NBYTES   ((size_t)4096)
#define SLOW_EVERY_NS TRI_NS_PER_MS

typedef enum fault_kind { FAULT_CUT, FAULT_STALL, FAULT_SLOW, FAULT_FLIP, FAULT_KIND_COUNT } fault_kind;

static const char *const fault_names[FAULT_KIND_COUNT] = {
    [FAULT_CUT] = "cut", [FAULT_STALL] = "stall", [FAULT_SLOW] = "slow", [FAULT_FLIP] = "flip"};

typedef struct link_fault {
    int peer; /* -1: all */
    uint64_t after_nbytes;
    fault_kind kind;
} link_fault;

typedef struct faulty_link {
    uint64_t written_nbytes;
    int64_t slow_until_ns;
} faulty_link;

typedef struct faulty_transport {
    tri_transport base;
    tri_transport *inner;
    link_fault *faults;
    size_t count;
    faulty_link *links;  /* [world] */
    unsigned char *want; /* [world] */
} faulty_transport;

/* The fault of this kind that is in force, or NULL. */
static const link_fault *fault_find(const faulty_transport *faulty, int peer, fault_kind kind)
{
    for (size_t i = 0; i < faulty->count; i++) {
        const link_fault *fault = &faulty->faults[i];

        if (fault->kind == kind && (fault->peer < 0 || fault->peer == peer) &&
            faulty->links[peer].written_nbytes >= fault->after_nbytes)
            return fault;
    }
    return NULL;
}

/* Bytes that may be written before the next fault begins. */
static uint64_t before_next(const faulty_transport *faulty, int peer)
{
    uint64_t written = faulty->links[peer].written_nbytes, least = UINT64_MAX;

    for (size_t i = 0; i < faulty->count; i++) {
        const link_fault *fault = &faulty->faults[i];

        if ((fault->peer < 0 || fault->peer == peer) && fault->after_nbytes > written &&
            fault->after_nbytes - written < least)
            least = fault->after_nbytes - written;
    }
    return least;
}

static bool flips_here(const faulty_transport *faulty, int peer)
{
    for (size_t i = 0; i < faulty->count; i++) {
        const link_fault *fault = &faulty->faults[i];

        if (fault->kind == FAULT_FLIP && (fault->peer < 0 || fault->peer == peer) &&
            fault->after_nbytes == faulty->links[peer].written_nbytes)
            return true;
    }
    return false;
}

/* How often a link takes bytes, and how many; 0: at any time. */
static int64_t pace_find(const faulty_transport *faulty, int peer, size_t *nbytes)
{
    int64_t late_ns = tri_chaos_delay_ns();

    if (late_ns > 0 || !fault_find(faulty, peer, FAULT_SLOW))
        return late_ns;
    *nbytes = *nbytes > SLOW_NBYTES ? SLOW_NBYTES : *nbytes;
    return SLOW_EVERY_NS;
}

static tri_status peer_cut(int peer)
{
    return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
}

static const char *faulty_address(const tri_transport *transport)
{
    const tri_transport *inner = ((const faulty_transport *)transport)->inner;

    return inner->ops->address(inner);
}

static tri_status faulty_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    tri_transport *inner = ((faulty_transport *)transport)->inner;

    return inner->ops->connect(inner, addresses, deadline_ns);
}

static tri_status faulty_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    faulty_transport *faulty = (faulty_transport *)transport;
    faulty_link *link = &faulty->links[peer];
    uint64_t limit = before_next(faulty, peer);
    unsigned char flipped;
    int64_t every_ns;

    *taken = 0;
    if (fault_find(faulty, peer, FAULT_CUT))
        return peer_cut(peer);
    if (fault_find(faulty, peer, FAULT_STALL) || nbytes == 0)
        return TRI_OK;
    every_ns = pace_find(faulty, peer, &nbytes);
    if (every_ns > 0) {
        int64_t now_ns = tri_now_ns();

        if (now_ns < link->slow_until_ns)
            return TRI_OK;
        link->slow_until_ns = now_ns + every_ns;
    }
    if (nbytes > limit)
        nbytes = (size_t)limit;
    if (flips_here(faulty, peer)) {
        flipped = *(const unsigned char *)bytes ^ 1;
        bytes = &flipped;
        nbytes = 1;
    }
    TRI_TRY(faulty->inner->ops->write_some(faulty->inner, peer, bytes, nbytes, taken));
    link->written_nbytes += *taken;
    return TRI_OK;
}

static tri_status faulty_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    faulty_transport *faulty = (faulty_transport *)transport;

    *given = 0;
    if (fault_find(faulty, peer, FAULT_CUT))
        return peer_cut(peer);
    if (fault_find(faulty, peer, FAULT_STALL))
        return TRI_OK;
    return faulty->inner->ops->read_some(faulty->inner, peer, bytes, nbytes, given);
}

static tri_status faulty_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    faulty_transport *faulty = (faulty_transport *)transport;

    for (int peer = 0; peer < transport->world; peer++) {
        const faulty_link *link = &faulty->links[peer];

        faulty->want[peer] = want[peer];
        if (!want[peer])
            continue;
        if (fault_find(faulty, peer, FAULT_CUT))
            return TRI_OK;
        if (fault_find(faulty, peer, FAULT_STALL))
            faulty->want[peer] = 0;
        if ((want[peer] & TRI_WANT_WRITE) && pace_find(faulty, peer, &(size_t){0}) > 0) {
            faulty->want[peer] &= (unsigned char)~TRI_WANT_WRITE;
            if (link->slow_until_ns < deadline_ns)
                deadline_ns = link->slow_until_ns;
        }
    }
    return faulty->inner->ops->wait(faulty->inner, faulty->want, deadline_ns);
}

static void faulty_wake(tri_transport *transport)
{
    tri_transport *inner = ((faulty_transport *)transport)->inner;

    if (inner->ops->wake)
        inner->ops->wake(inner);
}

static void faulty_describe(const tri_transport *transport, int peer, char *text, size_t capacity)
{
    const tri_transport *inner = ((const faulty_transport *)transport)->inner;

    if (inner->ops->describe)
        inner->ops->describe(inner, peer, text, capacity);
    else
        snprintf(text, capacity, "with faults");
}

static void faulty_load(const tri_transport *transport, int peer, tri_link_load *load)
{
    const tri_transport *inner = ((const faulty_transport *)transport)->inner;

    if (inner->ops->load)
        inner->ops->load(inner, peer, load);
}

static void faulty_close(tri_transport *transport)
{
    faulty_transport *faulty = (faulty_transport *)transport;

    if (!faulty)
        return;
    faulty->inner->ops->close(faulty->inner);
    tri_free(faulty->faults);
    tri_free(faulty->links);
    tri_free(faulty->want);
    tri_free(faulty);
}

/* Without peek: what a fault does to reading is decided in one place. */
static const tri_transport_ops faulty_ops = {
    .name = "faulty",
    .does = "breaks the links of another transport, for tests",
    .address = faulty_address,
    .connect = faulty_connect,
    .write_some = faulty_write_some,
    .read_some = faulty_read_some,
    .wait = faulty_wait,
    .wake = faulty_wake,
    .describe = faulty_describe,
    .load = faulty_load,
    .close = faulty_close,
};

/* "2:1000:cut" of nbytes bytes. */
static bool fault_parse(const char *text, size_t nbytes, int world, link_fault *fault)
{
    char one[64], *end, *number = one;
    long peer = -1;

    if (nbytes >= sizeof one)
        return false;
    memcpy(one, text, nbytes);
    one[nbytes] = 0;
    if (one[0] == '*') {
        end = one + 1;
    } else {
        peer = strtol(one, &end, 10);
        if (end == one || peer < 0 || peer >= world)
            return false;
    }
    if (*end != ':')
        return false;
    number = end + 1;
    if (*number < '0' || *number > '9')
        return false;
    fault->peer = (int)peer;
    fault->after_nbytes = strtoull(number, &end, 10);
    if (*end != ':')
        return false;
    for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
        if (strcmp(end + 1, fault_names[kind]) == 0) {
            fault->kind = (fault_kind)kind;
            return true;
        }
    }
    return false;
}

static tri_status faults_parse(faulty_transport *faulty, const char *text)
{
    size_t capacity = 1;

    for (const char *at = text; *at; at++)
        capacity += *at == ';';
    faulty->faults = tri_alloc_zero(capacity, sizeof *faulty->faults);
    if (!faulty->faults)
        return TRI_ENOMEM;
    while (*text) {
        size_t nbytes = strcspn(text, ";");

        if (!fault_parse(text, nbytes, faulty->base.world, &faulty->faults[faulty->count]))
            return tri_fail(
                TRI_ECONFIG,
                "comm.faults: want peer:after_bytes:what;... with a peer below %d or * and cut, stall, slow or "
                "flip, got %.*s",
                faulty->base.world, (int)nbytes, text);
        faulty->count++;
        text += nbytes + (text[nbytes] == ';');
    }
    return TRI_OK;
}

tri_status tri_transport_faulty(tri_transport *inner, const char *faults, tri_transport **out)
{
    faulty_transport *faulty = tri_alloc_zero(1, sizeof *faulty);
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (!faulty) {
        inner->ops->close(inner);
        return TRI_ENOMEM;
    }
    faulty->base = (tri_transport){.ops = &faulty_ops, .rank = inner->rank, .world = inner->world};
    faulty->inner = inner;
    faulty->links = tri_alloc_zero((size_t)inner->world, sizeof *faulty->links);
    faulty->want = tri_alloc_zero((size_t)inner->world, 1);
    if (faulty->links && faulty->want)
        status = faults_parse(faulty, faults);
    if (status != TRI_OK) {
        faulty_close(&faulty->base);
        return status;
    }
    *out = &faulty->base;
    return TRI_OK;
}
