/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.c: an endpoint for messages: opening, dialing, turns, and its end.
 *
 * Invariant of a turn: a connection gives up its memory only when no turn is under way, so handlers may hang up on any
 * connection at any time. Messages go at the beginning of a turn and when all connections have been heard, many with
 * one call.
 */
#include "net/endpoint.h"

#include "base/memory.h"
#include "net/endpoint_impl.h"

#define CLOSE_NS TRI_NS_PER_S

static tri_connection *connection_of(endpoint_node *node, size_t offset)
{
    return (tri_connection *)(void *)((char *)node - offset);
}

#define CONNECTION_OF(node, member) connection_of((node), offsetof(tri_connection, member))

/* ---- opening */

static void endpoint_free(tri_endpoint *endpoint)
{
    tri_free(endpoint->scratch);
    tri_free(endpoint->spare);
    tri_free(endpoint->name);
    tri_free(endpoint->token);
    tri_free(endpoint);
}

/* What both ways have. */
static tri_status endpoint_init(tri_endpoint *endpoint, const tri_endpoint_ops *ops, const tri_endpoint_setup *setup)
{
    endpoint->ops = ops;
    endpoint->setup = *setup;
    endpoint->config = *setup->config;
    endpoint->name = tri_strdup(setup->name);
    endpoint->token = tri_strdup(setup->token);
    endpoint->setup.name = endpoint->name;
    endpoint->setup.token = endpoint->token;
    endpoint->setup.config = &endpoint->config;
    tri_endpoint_node_head(&endpoint->connections);
    tri_endpoint_node_head(&endpoint->ready);
    tri_endpoint_node_head(&endpoint->owing);
    tri_endpoint_node_head(&endpoint->fresh);
    tri_endpoint_node_head(&endpoint->broken);
    tri_endpoint_node_head(&endpoint->ended);
    endpoint->scratch = tri_alloc_bulk(ops->scratch_nbytes);
    return endpoint->name && endpoint->token && endpoint->scratch ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_endpoint_open(const tri_endpoint_setup *setup, tri_endpoint **out)
{
    const tri_endpoint_ops *ops = setup->hub ? &tri_endpoint_hub : &tri_endpoint_tcp;
    tri_endpoint *endpoint = tri_alloc_zero(1, ops->nbytes);
    tri_status status;

    *out = NULL;
    TRI_ASSERT(setup->handlers.message && setup->handlers.closed);
    if (!endpoint)
        return TRI_ENOMEM;
    status = endpoint_init(endpoint, ops, setup);
    if (status == TRI_OK)
        status = ops->open(endpoint);
    if (status != TRI_OK) {
        endpoint_free(endpoint);
        return tri_fail_context(status, "%s", setup->name);
    }
    *out = endpoint;
    return TRI_OK;
}

const char *tri_endpoint_address(const tri_endpoint *endpoint)
{
    return endpoint->setup.listens ? endpoint->ops->address(endpoint) : "";
}

/* ---- connections */

/* Frees those that nobody can be using any more. */
static void ended_reap(tri_endpoint *endpoint)
{
    while (!endpoint->is_polling && !tri_endpoint_is_empty(&endpoint->ended))
        tri_connection_destroy(CONNECTION_OF(endpoint->ended.next, all));
}

static tri_status dial(tri_endpoint *endpoint, const char *address, bool once, int64_t deadline_ns,
                       tri_connection **out)
{
    *out = NULL;
    ended_reap(endpoint);
    TRI_TRY_IN(endpoint->ops->dial(endpoint, address, once, deadline_ns, out), "%s", endpoint->name);
    (*out)->dialed = true;
    return TRI_OK;
}

tri_status tri_endpoint_dial(tri_endpoint *endpoint, const char *address, int64_t deadline_ns, tri_connection **out)
{
    return dial(endpoint, address, false, deadline_ns, out);
}

tri_status tri_endpoint_redial(tri_endpoint *endpoint, const char *address, int64_t deadline_ns, tri_connection **out)
{
    return dial(endpoint, address, true, deadline_ns, out);
}

tri_status tri_connection_send(tri_connection *connection, unsigned priority, const tri_message *message,
                               const void *body, tri_message_sent sent, void *arg)
{
    const tri_part whole[TRI_MESSAGE_PARTS] = {{body, (size_t)message->nbytes}};

    return tri_connection_send_parts(connection, priority, message, whole, sent, arg);
}

tri_status tri_connection_send_parts(tri_connection *connection, unsigned priority, const tri_message *message,
                                     const tri_part body[TRI_MESSAGE_PARTS], tri_message_sent sent, void *arg)
{
    size_t nbytes = 0;

    for (int i = 0; i < TRI_MESSAGE_PARTS; i++)
        nbytes += body[i].nbytes;
    TRI_ASSERT(nbytes == message->nbytes);
    TRI_TRY(tri_endpoint_queue_push(&connection->queue, priority, message, body, sent, arg));
    tri_connection_arm(connection);
    return TRI_OK;
}

size_t tri_connection_queued(const tri_connection *connection)
{
    return connection->queue.nbytes;
}

void tri_connection_flush(tri_connection *connection)
{
    tri_connection_send_queued(connection);
}

uint64_t tri_connection_received(const tri_connection *connection)
{
    return connection->heard;
}

void tri_connection_data_set(tri_connection *connection, void *note)
{
    connection->note = note;
}

void *tri_connection_data(const tri_connection *connection)
{
    return connection->note;
}

const char *tri_connection_peer(const tri_connection *connection)
{
    return connection->from;
}

bool tri_connection_is_local(const tri_connection *connection)
{
    return connection->is_near;
}

void tri_connection_close(tri_connection *connection)
{
    if (connection->state != CONNECTION_ENDED)
        tri_connection_end(connection, TRI_ECANCELED);
}

/* ---- turns */

/* Callers: the owner may not want them. */
static void fresh_tell(tri_endpoint *endpoint)
{
    const tri_endpoint_handlers *handlers = &endpoint->setup.handlers;

    while (!tri_endpoint_is_empty(&endpoint->fresh)) {
        tri_connection *connection = CONNECTION_OF(endpoint->fresh.next, news);

        tri_endpoint_node_remove(&connection->news);
        if (endpoint->setup.connection_limit > 0 && endpoint->called_count > endpoint->setup.connection_limit) {
            tri_endpoint_warn(endpoint, "%s was refused: want at most %d connections", connection->from,
                              endpoint->setup.connection_limit);
            tri_connection_close(connection);
            continue;
        }
        endpoint->handled += handlers->opened != NULL;
        if (handlers->opened && !handlers->opened(handlers->arg, connection))
            tri_connection_close(connection);
        else
            tri_connection_arm(connection);
    }
}

/* The owner hears that a connection has ended, first about its messages. */
static void broken_tell(tri_endpoint *endpoint)
{
    const tri_endpoint_handlers *handlers = &endpoint->setup.handlers;

    while (!tri_endpoint_is_empty(&endpoint->broken)) {
        tri_connection *connection = CONNECTION_OF(endpoint->broken.next, news);

        tri_endpoint_node_remove(&connection->news);
        connection->mute = true;
        tri_connection_send_queued(connection);
        if (connection->state == CONNECTION_ENDED)
            continue;
        endpoint->handled++;
        handlers->closed(handlers->arg, connection, connection->why);
        if (connection->state != CONNECTION_ENDED)
            tri_connection_end(connection, TRI_EPEER);
    }
}

/* Each connection of a list once; it may come again at the end. */
static void each_once(endpoint_node *head, size_t offset, void (*call)(tri_connection *connection))
{
    endpoint_node mark;

    tri_endpoint_node_append(head, &mark);
    while (head->next != &mark) {
        endpoint_node *node = head->next;

        tri_endpoint_node_remove(node);
        call(connection_of(node, offset));
    }
    tri_endpoint_node_remove(&mark);
}

static bool can_go_on(const tri_endpoint *endpoint)
{
    return endpoint->is_woken || !tri_endpoint_is_empty(&endpoint->ready) || !tri_endpoint_is_empty(&endpoint->owing) ||
           !tri_endpoint_is_empty(&endpoint->fresh) || !tri_endpoint_is_empty(&endpoint->broken);
}

tri_status tri_endpoint_poll(tri_endpoint *endpoint, int64_t deadline_ns)
{
    uint64_t before = endpoint->handled;
    tri_status status;

    TRI_ASSERT(!endpoint->is_polling);
    ended_reap(endpoint);
    endpoint->is_polling = true;
    each_once(&endpoint->owing, offsetof(tri_connection, owing), tri_connection_send_queued);
    do {
        broken_tell(endpoint);
        status = endpoint->ops->poll(endpoint, endpoint->handled != before || can_go_on(endpoint) ? 0 : deadline_ns);
        fresh_tell(endpoint);
        each_once(&endpoint->ready, offsetof(tri_connection, ready), tri_connection_receive);
        broken_tell(endpoint);
        each_once(&endpoint->owing, offsetof(tri_connection, owing), tri_connection_send_queued);
    } while (status == TRI_OK && endpoint->handled == before && !endpoint->is_woken && tri_now_ns() < deadline_ns);
    endpoint->is_woken = false;
    endpoint->is_polling = false;
    ended_reap(endpoint);
    return status;
}

void tri_endpoint_wake(tri_endpoint *endpoint)
{
    endpoint->ops->wake(endpoint);
}

/* ---- the end */

static bool has_queued(const tri_endpoint *endpoint)
{
    for (const endpoint_node *node = endpoint->connections.next; node != &endpoint->connections; node = node->next) {
        const tri_connection *connection = CONNECTION_OF((endpoint_node *)(uintptr_t)node, all);

        if (connection->state == CONNECTION_OPEN && !connection->mute &&
            !tri_endpoint_queue_is_empty(&connection->queue))
            return true;
    }
    return false;
}

void tri_endpoint_close(tri_endpoint *endpoint)
{
    int64_t until_ns = tri_now_ns() + CLOSE_NS;

    if (!endpoint)
        return;
    TRI_ASSERT(!endpoint->is_polling);
    endpoint->is_polling = true;
    for (;;) {
        each_once(&endpoint->owing, offsetof(tri_connection, owing), tri_connection_send_queued);
        if (!has_queued(endpoint) || tri_now_ns() >= until_ns)
            break;
        if (endpoint->ops->poll(endpoint, tri_endpoint_is_empty(&endpoint->owing) ? until_ns : 0) != TRI_OK)
            break;
    }
    if (endpoint->ops->drain)
        endpoint->ops->drain(endpoint, until_ns);
    while (!tri_endpoint_is_empty(&endpoint->connections)) {
        tri_connection *connection = CONNECTION_OF(endpoint->connections.next, all);

        tri_connection_break(connection, "this end closes");
        broken_tell(endpoint);
    }
    endpoint->is_polling = false;
    ended_reap(endpoint);
    endpoint->ops->close(endpoint);
    endpoint_free(endpoint);
}
