/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.c: a client connection of a server: what is here for it, and its end. Nothing here knows tables or
 * backups.
 */
#include <stdio.h>

#include "base/events.h"
#include "base/memory.h"
#include "ps/server/connection.h"

/* What is here for one client before it is not read from any more. */
#define OWED_LIMIT_NBYTES ((size_t)32 << 20)
/* And of answers that have to be sent: so few that their memory, which is used again and again, stays in the cache.
 * What waits for other workers is not among them: who is not read from then might be the one that is waited for. */
#define UNSENT_LIMIT_NBYTES ((size_t)1 << 20)

/* Values that stay as they are until the client says more need no copy. */
static void sent_nothing(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
}

void tri_ps_end_with(tri_ps_server *server, tri_status status)
{
    if (status == TRI_OK || server->status != TRI_OK)
        return;
    server->status = status;
    snprintf(server->message, sizeof(server->message), "%s", tri_last_error());
}

bool tri_ps_concerns_all(tri_ps_server *server, tri_status status)
{
    bool does = status == TRI_ENOMEM || status == TRI_ENUMERIC || status == TRI_EINTERNAL;
    if (does)
        tri_ps_end_with(server, status);
    return does;
}

void tri_ps_server_stop(tri_ps_server *server)
{
    atomic_store(&server->stop, true);
    tri_endpoint_wake(server->endpoint);
}

bool tri_ps_backs(const tri_ps_server *server, const ps_client_connection *client, int slot)
{
    return server->view.slots[slot] == client->server &&
           ps_view_role(&server->view, server->setup.number, slot) == PS_BACKUP;
}

/* One that cannot be sent would be waited for without end. */
void tri_ps_answer_send(ps_client_connection *client, unsigned priority, const tri_message *message, const void *body,
                        bool lasting)
{
    tri_counter_add(TRI_COUNT_SERVED_NBYTES, message->nbytes);
    (void)tri_ps_concerns_all(client->of, tri_connection_send(client->connection, priority, message, body,
                                                              lasting ? sent_nothing : NULL, NULL));
}

/* As soon as too much is here for it, until half of that is gone. */
static void connection_pause(ps_client_connection *client)
{
    size_t part = client->is_paused ? 2 : 1;
    bool paused = client->owed > OWED_LIMIT_NBYTES / part || client->unsent > UNSENT_LIMIT_NBYTES / part;
    if (paused != client->is_paused)
        tri_connection_pause(client->connection, paused);
    client->is_paused = paused;
}

void tri_ps_connection_bytes_add(ps_client_connection *client, size_t nbytes)
{
    if (client->server >= 0) /* its messages are the backup's to keep up with */
        return;
    client->owed += nbytes;
    connection_pause(client);
}

void tri_ps_connection_bytes_sub(ps_client_connection *client, size_t nbytes)
{
    if (client->server >= 0)
        return;
    client->owed -= nbytes;
    connection_pause(client);
}

/* Answers of this length are many when there are any: their memory is not given back to the system in between. */
#define SPARE_LEAST_NBYTES ((size_t)64 << 10)
#define SPARE_MOST_NBYTES  ((size_t)1 << 20)

void *tri_ps_answer_room(tri_ps_server *server, size_t nbytes)
{
    for (int i = 0; i < PS_SPARES && nbytes >= SPARE_LEAST_NBYTES; i++) {
        ps_spare *spare = &server->spares[i];
        if (spare->nbytes != nbytes)
            continue;
        spare->nbytes = 0;
        return spare->memory;
    }
    return tri_alloc(nbytes);
}

/* In place of a smaller one, or of none. */
void tri_ps_answer_room_give_back(tri_ps_server *server, void *memory, size_t nbytes)
{
    ps_spare *least = &server->spares[0];
    for (int i = 1; i < PS_SPARES; i++)
        if (server->spares[i].nbytes < least->nbytes)
            least = &server->spares[i];
    if (nbytes < SPARE_LEAST_NBYTES || nbytes > SPARE_MOST_NBYTES || least->nbytes >= nbytes) {
        tri_free(memory);
        return;
    }
    if (least->nbytes > 0)
        tri_free(least->memory);
    *least = (ps_spare){memory, nbytes};
}

void tri_ps_room_leave(ps_client_connection *client)
{
    if (client->sum)
        (void)ps_sum_leave(client->sum, client->part, client->room);
    client->sum = NULL;
}

void tri_ps_connection_remove(tri_ps_server *server, ps_client_connection *client)
{
    tri_ps_room_leave(client);
    server->refused -= client->closes_ns > 0;
    server->forget(server, client);
    if (client->server < 0 && client->number >= 0 && server->workers[client->number] == client)
        server->workers[client->number] = NULL;
    for (ps_client_connection **at = &server->clients; *at; at = &(*at)->next)
        if (*at == client) {
            *at = client->next;
            break;
        }
    tri_vector_fini(&client->asked);
    tri_free(client);
}

void tri_ps_connection_close(tri_ps_server *server, ps_client_connection *client)
{
    tri_connection *connection = client->connection;
    tri_ps_connection_remove(server, client);
    tri_connection_data_set(connection, NULL);
    tri_connection_close(connection);
}

void tri_ps_rooms_leave(tri_ps_server *server, const ps_block *block)
{
    for (ps_client_connection *client = server->clients, *next; client; client = next) {
        next = client->next;
        if (client->sum == &block->sum)
            tri_ps_connection_close(server, client);
    }
}
