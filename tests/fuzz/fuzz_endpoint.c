/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_endpoint.c: what a partner of a connection says: messages, or what only looks like them, in reads of any length,
 * to an owner who places some bodies, refuses some and pauses now and then. The first byte chooses these, the second
 * how much a read gives; bit 0 of the first: magics and checks are made right. Whatever comes, a body is never longer
 * than the limit, and the bytes of a message are those that were said.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "fuzz/fuzz.h"
#include "net/bytes.h"
#include "net/endpoint_impl.h"

#define LIMIT_NBYTES   1500
#define MESSAGE_NBYTES (TRI_MESSAGE_NBYTES - 8)

size_t tri_fuzz_accepted;

/* What is said, and how far it has been read and understood. */
static struct said {
    unsigned char bytes[4096];
    size_t nbytes, read, heard, step;
    unsigned char choice;
    int turns;
    unsigned char place[LIMIT_NBYTES];
} said;

static tri_status said_read(tri_connection *connection, const endpoint_room rooms[2], size_t *given)
{
    size_t left = said.nbytes - said.read, step = left < said.step ? left : said.step;

    *given = 0;
    if (left == 0)
        return tri_fail(TRI_EPEER, "the end");
    for (int i = 0; i < 2; i++) {
        size_t part = step < rooms[i].nbytes ? step : rooms[i].nbytes;

        if (part > 0)
            memcpy(rooms[i].bytes, said.bytes + said.read, part);
        said.read += part;
        *given += part;
        step -= part;
    }
    connection->readable = true;
    return TRI_OK;
}

static void said_end(tri_connection *connection)
{
    (void)connection;
}

static void *owner_place(void *arg, tri_connection *connection, const tri_message *message, bool *refused)
{
    (void)arg;
    TRI_ASSERT(message->nbytes > 0 && message->nbytes <= LIMIT_NBYTES);
    *refused = (said.choice & 2) && message->kind == 7;
    if ((said.choice & 4) && message->kind % 4 == 0)
        tri_connection_pause(connection, true);
    return (said.choice & 8) && message->kind % 2 == 0 ? said.place : NULL;
}

static bool owner_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    (void)arg;
    TRI_ASSERT((body == NULL) == (message->nbytes == 0));
    said.heard += TRI_MESSAGE_NBYTES;
    TRI_ASSERT(said.heard + message->nbytes <= said.read);
    TRI_ASSERT(!body || memcmp(body, said.bytes + said.heard, (size_t)message->nbytes) == 0);
    said.heard += (size_t)message->nbytes;
    if ((said.choice & 16) && message->kind % 3 == 0)
        tri_connection_pause(connection, true);
    tri_fuzz_accepted++;
    return !(said.choice & 32) || message->kind != 9;
}

static void owner_closed(void *arg, tri_connection *connection, const char *why)
{
    (void)arg;
    (void)connection;
    TRI_ASSERT(why[0]);
}

/* Messages as a partner who knows the form would write them. */
static void messages_mend(void)
{
    for (size_t at = 0; at + TRI_MESSAGE_NBYTES <= said.nbytes;) {
        unsigned char *head = said.bytes + at;

        tri_bytes_write_u32(head, TRI_MESSAGE_MAGIC);
        memset(head + 10, 0, 6);
        tri_bytes_write_u64(head + MESSAGE_NBYTES, XXH3_64bits(head, MESSAGE_NBYTES));
        at += TRI_MESSAGE_NBYTES + (size_t)tri_bytes_read_u64(head + 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static const tri_endpoint_ops ops = {
        .name = "said", .scratch_nbytes = 256, .read = said_read, .connection_end = said_end};
    tri_endpoint endpoint = {
        .ops = &ops,
        .name = (char *)(uintptr_t) "fuzz",
        .setup = {.body_limit = LIMIT_NBYTES,
                  .handlers = {.place = owner_place, .message = owner_message, .closed = owner_closed}},
        .noted_ns = INT64_MAX / 2}; /* nothing is said */
    endpoint_node *const heads[] = {&endpoint.connections, &endpoint.ready,  &endpoint.owing,
                                    &endpoint.fresh,       &endpoint.broken, &endpoint.ended};
    tri_connection *connection;

    if (nbytes < 2)
        return 0;
    memset(&said, 0, sizeof said);
    said.choice = bytes[0];
    said.step = 1 + (size_t)bytes[1] * 4;
    said.nbytes = nbytes - 2 < sizeof said.bytes ? nbytes - 2 : sizeof said.bytes;
    memcpy(said.bytes, bytes + 2, said.nbytes);
    if (said.choice & 1)
        messages_mend();
    for (size_t i = 0; i < TRI_COUNT_OF(heads); i++)
        tri_endpoint_node_head(heads[i]);
    endpoint.scratch = tri_alloc_bulk(ops.scratch_nbytes);
    TRI_ASSERT(endpoint.scratch && tri_connection_create(&endpoint, sizeof *connection, &connection) == TRI_OK);
    tri_connection_readable(connection);
    while (connection->state == CONNECTION_OPEN && said.turns++ < 10000) {
        tri_connection_receive(connection);
        if (connection->state == CONNECTION_OPEN)
            tri_connection_pause(connection, false);
    }
    TRI_ASSERT(connection->state != CONNECTION_OPEN);
    if (connection->state == CONNECTION_BROKEN)
        tri_connection_end(connection, TRI_EPEER);
    tri_connection_destroy(connection);
    tri_free(endpoint.scratch);
    tri_free(endpoint.spare);
    return 0;
}

#define WORDS "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwcccccccc"

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1\40TRIP\1\0\0\0\0\0\0\0\0\0\0\0" WORDS),
    TRI_FUZZ_SEED("\15\3TRIP\2\0\0\0\5\0\0\0\0\0\0\0" WORDS "hello"
                  "TRIP\4\0\0\0\3\0\0\0\0\0\0\0" WORDS "yes"),
    TRI_FUZZ_SEED("\77\100TRIP\3\0\0\0\0\0\0\0\0\0\0\0" WORDS "TRIP\1\0\0\0\10\0\0\0\0\0\0\0" WORDS "12345678"
                  "TRIP\14\0\0\0\0\0\0\0\0\0\0\0" WORDS),
    TRI_FUZZ_REFUSED("\1\40TRIP\1\0\0\0\xff\xff\0\0\0\0\0\0" WORDS),
    TRI_FUZZ_REFUSED("\3\40TRIP\7\0\0\0\1\0\0\0\0\0\0\0" WORDS "x"),
    TRI_FUZZ_REFUSED("\0\40TRIP\1\0\0\0\0\0\0\0\0\0\0\0" WORDS),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRIP", "TRIP\1"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
