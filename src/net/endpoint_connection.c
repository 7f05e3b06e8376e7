/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_connection.c: what a connection can do next, what it sends, and how it ends; which way the bytes go is the
 * table's affair.
 *
 * Invariant: a connection is in `ready` exactly when a read may give something that the owner needs, and in `owing`
 * when something waits that the way may take; whatever changes one of these calls tri_connection_arm().
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "net/endpoint_impl.h"

#define NOTE_NS TRI_NS_PER_S
/* Sent in one turn before it is another connection's turn. */
#define FLUSH_NBYTES (4 * TRI_ENDPOINT_POLL_NBYTES)

/* ---- lists */

void tri_endpoint_node_head(endpoint_node *head)
{
    head->next = head->before = head;
}

void tri_endpoint_node_append(endpoint_node *head, endpoint_node *node)
{
    node->before = head->before;
    node->next = head;
    head->before->next = node;
    head->before = node;
}

void tri_endpoint_node_remove(endpoint_node *node)
{
    if (!node->next)
        return;
    node->before->next = node->next;
    node->next->before = node->before;
    node->next = node->before = NULL;
}

/* Puts a node in or takes it out, as it shall be. */
static void node_set(endpoint_node *head, endpoint_node *node, bool in)
{
    if (!in)
        tri_endpoint_node_remove(node);
    else if (!node->next)
        tri_endpoint_node_append(head, node);
}

/* ---- what a connection can do */

void tri_connection_arm(tri_connection *connection)
{
    tri_endpoint *endpoint = connection->endpoint;

    /* The owner hears of a caller before it hears from it. */
    node_set(&endpoint->ready, &connection->ready,
             tri_connection_reads(connection) && !connection->news.next &&
                 (connection->readable || connection->inbox.rest));
    node_set(&endpoint->owing, &connection->owing,
             connection->state == CONNECTION_OPEN && !connection->full &&
                 !tri_endpoint_queue_is_empty(&connection->queue));
}

void tri_connection_readable(tri_connection *connection)
{
    connection->readable = true;
    tri_connection_arm(connection);
}

void tri_connection_writable(tri_connection *connection)
{
    connection->full = false;
    tri_connection_arm(connection);
}

tri_status tri_connection_create(tri_endpoint *endpoint, size_t nbytes, tri_connection **out)
{
    tri_connection *connection = tri_alloc_zero(1, nbytes);

    *out = connection;
    if (!connection)
        return TRI_ENOMEM;
    connection->endpoint = endpoint;
    tri_endpoint_node_append(&endpoint->connections, &connection->all);
    return TRI_OK;
}

void tri_connection_accepted(tri_connection *connection)
{
    connection->endpoint->called_count++;
    tri_endpoint_node_append(&connection->endpoint->fresh, &connection->news);
}

void tri_connection_pause(tri_connection *connection, bool paused)
{
    connection->paused = paused;
    /* Whether anything has come meanwhile nobody has looked. */
    connection->readable |= !paused;
    tri_connection_arm(connection);
}

/* ---- the end of it */

void tri_connection_break(tri_connection *connection, const char *why)
{
    if (connection->state != CONNECTION_OPEN)
        return;
    connection->state = CONNECTION_BROKEN;
    snprintf(connection->why, sizeof connection->why, "%s", why);
    tri_endpoint_node_remove(&connection->news);
    tri_endpoint_node_append(&connection->endpoint->broken, &connection->news);
    tri_connection_arm(connection);
}

/* None of the messages that wait will be sent. */
static void queue_drop(tri_connection *connection, tri_status status)
{
    queued_message *message;

    while ((message = tri_endpoint_queue_pop(&connection->queue)) != NULL) {
        connection->endpoint->handled += message->sent != NULL;
        if (message->sent)
            message->sent(message->arg, status);
        tri_free(message);
    }
}

void tri_connection_end(tri_connection *connection, tri_status status)
{
    tri_endpoint *endpoint = connection->endpoint;

    TRI_ASSERT(connection->state != CONNECTION_ENDED);
    connection->state = CONNECTION_ENDED;
    endpoint->called_count -= !connection->dialed;
    tri_connection_arm(connection);
    tri_endpoint_node_remove(&connection->news);
    tri_endpoint_node_remove(&connection->all);
    tri_endpoint_node_append(&endpoint->ended, &connection->all);
    endpoint->ops->connection_end(connection);
    queue_drop(connection, status);
}

void tri_connection_destroy(tri_connection *connection)
{
    tri_endpoint_node_remove(&connection->all);
    tri_free(connection->queue.waiting);
    tri_free(connection->inbox.own);
    tri_free(connection->inbox.rest);
    tri_free(connection);
}

void tri_endpoint_warn(tri_endpoint *endpoint, const char *format, ...)
{
    int64_t now_ns = tri_now_ns();
    char text[TRI_ENDPOINT_WHY_NBYTES], others[64] = "";
    va_list args;

    if (endpoint->noted_ns > 0 && now_ns - endpoint->noted_ns < NOTE_NS) {
        endpoint->unnoted++;
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (endpoint->unnoted > 0)
        snprintf(others, sizeof others, "; so were %llu since the last one named",
                 (unsigned long long)endpoint->unnoted);
    tri_log(TRI_LOG_WARN, "%s: %s%s", endpoint->name, text, others);
    endpoint->noted_ns = now_ns;
    endpoint->unnoted = 0;
}

/* ---- out */

/* Tells who wants to know of the messages that have gone. False: the connection has ended meanwhile. */
static bool sent_tell(tri_connection *connection)
{
    queued_message *message;

    while ((message = tri_endpoint_queue_sent(&connection->queue)) != NULL) {
        connection->endpoint->handled += message->sent != NULL;
        if (message->sent)
            message->sent(message->arg, TRI_OK);
        tri_free(message);
        if (connection->state != CONNECTION_OPEN)
            return false;
    }
    return true;
}

void tri_connection_send_queued(tri_connection *connection)
{
    size_t count, offered, taken = 0, promised, all = 0;
    tri_part parts[TRI_ENDPOINT_PARTS];

    if (connection->flushing)
        return;
    connection->flushing = true;
    while (connection->state == CONNECTION_OPEN && !connection->mute && !connection->full && all < FLUSH_NBYTES &&
           (count = tri_endpoint_queue_offer(&connection->queue, parts, &offered)) > 0) {
        tri_status status = connection->endpoint->ops->write(connection, parts, count, &taken, &promised);

        if (status != TRI_OK) {
            tri_endpoint_queue_taken(&connection->queue, 0, 0);
            /* What the other end said before it left is still heard; then reading tells that it has. */
            connection->mute = connection->readable = true;
            if (status != TRI_EPEER)
                tri_connection_break(connection, tri_last_error());
            break;
        }
        all += taken;
        tri_endpoint_queue_taken(&connection->queue, taken, promised);
        if (!sent_tell(connection))
            break;
    }
    if (connection->mute && connection->state != CONNECTION_ENDED)
        queue_drop(connection, TRI_EPEER);
    connection->flushing = false;
    tri_connection_arm(connection);
}
