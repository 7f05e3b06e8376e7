/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_read.c: the messages that come on a connection, out of reads of any length.
 *
 * One call reads what is left of a body to its place and what follows to the endpoint's scratch memory: much while
 * messages are small, one head while they are large. All of the scratch memory is used up before the next connection's
 * turn, so nothing of it is kept, unless the owner pauses the connection in between.
 */
#include <string.h>

#include "base/memory.h"
#include "net/endpoint_impl.h"

#define SMALL_NBYTES ((size_t)8 << 10)
#define ALIGN        ((size_t)64) /* of bodies without a place */
/* The longest body whose memory is kept for the next one. */
#define SPARE_NBYTES ((size_t)1 << 20)

/* A body without a place gets one: the memory of the one before where that is enough, which is in the cache and needs
 * no zeros. False: out of memory, the connection ends. */
static bool own_make(tri_connection *connection)
{
    endpoint_inbox *in = &connection->inbox;
    tri_endpoint *endpoint = connection->endpoint;

    in->own_nbytes = endpoint->spare_nbytes;
    if (endpoint->spare && in->message.nbytes <= endpoint->spare_nbytes) {
        in->own = endpoint->spare;
        endpoint->spare = NULL;
    } else {
        in->own_nbytes = (size_t)in->message.nbytes;
        in->own = tri_alloc_bulk(in->own_nbytes);
    }
    if (!in->own)
        tri_connection_break(connection, tri_last_error());
    in->body = in->own;
    return in->own != NULL;
}

/* The larger one is kept. */
static void own_leave(tri_endpoint *endpoint, unsigned char *own, size_t nbytes)
{
    if (own && nbytes <= SPARE_NBYTES && (!endpoint->spare || nbytes > endpoint->spare_nbytes)) {
        tri_free(endpoint->spare);
        endpoint->spare = own;
        endpoint->spare_nbytes = nbytes;
        return;
    }
    tri_free(own);
}

static void message_deliver(tri_connection *connection, void *body)
{
    endpoint_inbox *in = &connection->inbox;
    const tri_endpoint_handlers *handlers = &connection->endpoint->setup.handlers;
    tri_message message = in->message;
    unsigned char *own = in->own;
    size_t own_nbytes = in->own_nbytes;

    in->has_message = false;
    in->head_nbytes = 0;
    in->body = in->own = NULL;
    in->body_nbytes = 0;
    connection->endpoint->handled++;
    if (!handlers->message(handlers->arg, connection, &message, body)) {
        if (connection->state != CONNECTION_ENDED)
            tri_endpoint_warn(connection->endpoint, "closed the connection of %s: %s", connection->from,
                              tri_last_error());
        tri_connection_close(connection);
    }
    own_leave(connection->endpoint, own, own_nbytes);
}

/* The head is whole. */
static void message_begin(tri_connection *connection, const unsigned char head[TRI_MESSAGE_NBYTES])
{
    endpoint_inbox *in = &connection->inbox;
    const tri_endpoint_handlers *handlers = &connection->endpoint->setup.handlers;
    bool refused = false;

    if (tri_message_decode(head, connection->endpoint->setup.body_limit, &in->message) != TRI_OK) {
        tri_endpoint_warn(connection->endpoint, "%s was cut off: %s", connection->from, tri_last_error());
        tri_connection_break(connection, tri_last_error());
        return;
    }
    in->has_message = true;
    in->reads_wide = in->message.nbytes < SMALL_NBYTES;
    if (in->message.nbytes == 0) {
        message_deliver(connection, NULL);
        return;
    }
    if (handlers->place)
        in->body = handlers->place(handlers->arg, connection, &in->message, &refused);
    if (refused && connection->state != CONNECTION_ENDED) {
        tri_endpoint_warn(connection->endpoint, "closed the connection of %s: a message of kind %d that was not wanted",
                          connection->from, in->message.kind);
        tri_connection_close(connection);
    }
}

/* The next bytes of a head. Returns how many were used. */
static size_t head_take(tri_connection *connection, const unsigned char *bytes, size_t nbytes)
{
    endpoint_inbox *in = &connection->inbox;
    size_t part = TRI_MESSAGE_NBYTES - in->head_nbytes;

    part = nbytes < part ? nbytes : part;
    if (part == TRI_MESSAGE_NBYTES) {
        message_begin(connection, bytes);
        return part;
    }
    memcpy(in->head + in->head_nbytes, bytes, part);
    in->head_nbytes += part;
    if (in->head_nbytes == TRI_MESSAGE_NBYTES)
        message_begin(connection, in->head);
    return part;
}

/* The next bytes of a body, at `first` of an aligned buffer of which all before is not needed any more. Returns how
 * many were used. */
static size_t body_take(tri_connection *connection, unsigned char *buffer, size_t first, size_t nbytes)
{
    endpoint_inbox *in = &connection->inbox;
    size_t left = (size_t)in->message.nbytes - in->body_nbytes, part = nbytes < left ? nbytes : left;

    if (!in->body && part == left) {
        unsigned char *aligned = buffer + first / ALIGN * ALIGN;

        /* The whole of it is here. */
        if (first % ALIGN > 0)
            memmove(aligned, buffer + first, part);
        message_deliver(connection, aligned);
        return part;
    }
    if (!in->body && !own_make(connection))
        return 0;
    memcpy(in->body + in->body_nbytes, buffer + first, part);
    in->body_nbytes += part;
    if (part == left)
        message_deliver(connection, in->body);
    return part;
}

/* Handles the bytes [first, upto) that were read, until the owner needs no more. Returns the first that was not used.
 */
static size_t bytes_take(tri_connection *connection, unsigned char *buffer, size_t first, size_t upto)
{
    while (first < upto && tri_connection_reads(connection)) {
        if (connection->inbox.has_message)
            first += body_take(connection, buffer, first, upto - first);
        else
            first += head_take(connection, buffer + first, upto - first);
    }
    return first;
}

/* The connection was paused: what was read beyond that is kept. */
static void rest_keep(tri_connection *connection, const unsigned char *bytes, size_t nbytes)
{
    endpoint_inbox *in = &connection->inbox;

    if (nbytes == 0 || connection->state != CONNECTION_OPEN)
        return;
    /* Of the length of a whole read and as well aligned, so that bodies can be lent where they are. */
    in->rest = tri_alloc_bulk(connection->endpoint->ops->scratch_nbytes);
    if (!in->rest) {
        tri_connection_break(connection, tri_last_error());
        return;
    }
    memcpy(in->rest, bytes, nbytes);
    in->rest_first = 0;
    in->rest_upto = nbytes;
}

static void rest_take(tri_connection *connection)
{
    endpoint_inbox *in = &connection->inbox;

    in->rest_first = bytes_take(connection, in->rest, in->rest_first, in->rest_upto);
    if (in->rest_first < in->rest_upto)
        return;
    tri_free(in->rest);
    in->rest = NULL;
}

/* What of a read went straight to its place; the other bytes are handled. */
static void read_take(tri_connection *connection, size_t straight, size_t given)
{
    endpoint_inbox *in = &connection->inbox;
    unsigned char *scratch = connection->endpoint->scratch;
    size_t used;

    straight = straight < given ? straight : given;
    given -= straight;
    if (straight > 0) {
        in->body_nbytes += straight;
        if (in->body_nbytes == in->message.nbytes)
            message_deliver(connection, in->body);
    }
    used = bytes_take(connection, scratch, 0, given);
    rest_keep(connection, scratch + used, given - used);
}

void tri_connection_receive(tri_connection *connection)
{
    endpoint_inbox *in = &connection->inbox;
    size_t left = TRI_ENDPOINT_POLL_NBYTES, given;

    if (in->rest)
        rest_take(connection);
    while (tri_connection_reads(connection) && connection->readable && left > 0) {
        endpoint_room rooms[2] = {{NULL, 0}, {connection->endpoint->scratch, TRI_MESSAGE_NBYTES}};

        if (in->has_message && !in->body && !own_make(connection))
            break;
        if (in->has_message)
            rooms[0] = (endpoint_room){in->body + in->body_nbytes, (size_t)in->message.nbytes - in->body_nbytes};
        else if (in->head_nbytes > 0)
            rooms[1].nbytes -= in->head_nbytes;
        if (rooms[0].nbytes > left)
            rooms[0].nbytes = left, rooms[1].nbytes = 0;
        else if (in->reads_wide)
            rooms[1].nbytes = connection->endpoint->ops->scratch_nbytes;
        if (connection->endpoint->ops->read(connection, rooms, &given) != TRI_OK) {
            tri_connection_break(connection, tri_last_error());
            break;
        }
        connection->heard += given;
        left -= given < left ? given : left;
        read_take(connection, rooms[0].nbytes, given);
    }
    tri_connection_arm(connection);
}
