/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.c: the connection to the backup, and the answers that wait for it.
 */

#include <string.h>

#include "base/events.h"
#include "base/memory.h"
#include "ps/replication/chain.h"
#include "ps/server/connection.h"

/* --- answers that wait --- */

void tri_ps_chain_init(tri_ps_server *server)
{
    server->chain = (ps_chain){.backup = -1};
    server->chain.kept_end = &server->chain.kept;
}

bool tri_ps_chain_keep(tri_ps_server *server, ps_client_connection *client, unsigned priority,
                       const tri_message *message, const void *body, bool lasting)
{
    ps_chain *chain = &server->chain;
    bool alone = !chain->lost && !chain->connection;
    if (alone || (!chain->lost && tri_ps_beat_is_leased(server) && chain->sent == chain->acknowledged))
        return false;
    size_t nbytes = lasting ? 0 : (size_t)message->nbytes;
    ps_kept *kept = tri_alloc(sizeof(*kept) + nbytes);
    if (!kept) { /* not to be sent: the backup does not have it */
        (void)tri_ps_concerns_all(server, tri_fail(TRI_ENOMEM, "no memory for an answer that waits for the backup"));
        return true;
    }
    *kept = (ps_kept){.client = client,
                      .after = chain->sent,
                      .priority = priority,
                      .message = *message,
                      .body = lasting ? body : kept + 1,
                      .lasting = lasting};
    if (nbytes > 0)
        memcpy(kept + 1, body, nbytes);
    *chain->kept_end = kept;
    chain->kept_end = &kept->next;
    return true;
}

void tri_ps_chain_forget(tri_ps_server *server, const ps_client_connection *client)
{
    for (ps_kept *kept = server->chain.kept; kept; kept = kept->next)
        if (kept->client == client)
            kept->client = NULL;
}

void tri_ps_chain_release(ps_chain *chain, uint64_t acknowledged)
{
    while (chain->kept && chain->kept->after <= acknowledged) {
        ps_kept *kept = chain->kept;
        chain->kept = kept->next;
        if (!chain->kept)
            chain->kept_end = &chain->kept;
        if (kept->client)
            tri_ps_answer_send(kept->client, kept->priority, &kept->message, kept->body, kept->lasting);
        tri_free(kept);
    }
}

void tri_ps_chain_acknowledged(tri_ps_server *server, uint64_t messages)
{
    server->chain.acknowledged = messages <= server->chain.sent ? messages : server->chain.sent;
    tri_ps_beat_acknowledged(&server->chain);
    tri_ps_chain_release(&server->chain, server->chain.acknowledged);
}

void tri_ps_chain_alone(tri_ps_server *server)
{
    server->chain.lost = false;
    tri_ps_chain_release(&server->chain, UINT64_MAX);
}

void tri_ps_chain_drop(tri_ps_server *server)
{
    for (ps_kept *kept = server->chain.kept; kept; kept = kept->next)
        kept->client = NULL;
    tri_ps_chain_release(&server->chain, UINT64_MAX);
    if (server->chain.connection)
        tri_connection_close(server->chain.connection);
    server->chain.connection = NULL;
    server->chain.lost = false;
    server->chain.backup = -1;
}

void tri_ps_chain_fini(tri_ps_server *server)
{
    server->chain.connection = NULL; /* the endpoint is closed */
    tri_ps_chain_drop(server);
}

/* --- messages to the backup --- */

/* A backup that lacks a message is none. */
void tri_ps_chain_say(tri_ps_server *server, const tri_message *message, const void *body)
{
    tri_counter_add(TRI_COUNT_SERVED_NBYTES, message->nbytes);
    (void)tri_ps_concerns_all(server, tri_connection_send(server->chain.connection, 0, message, body, NULL, NULL));
    server->chain.sent++;
}

void tri_ps_chain_forward(tri_ps_server *server, int worker, const tri_message *message, const void *body)
{
    if (!server->chain.connection)
        return;
    ps_head head = ps_head_read(message);
    head.flags &= (uint16_t)~PS_FLAG_PULL; /* nobody over there waits */
    if (ps_kind_is_kv(head.kind))
        head.request = (uint64_t)worker;
    else
        head.table |= (uint32_t)worker << PS_TABLE_BITS;
    tri_message copy = ps_head_write(&head);
    tri_ps_chain_say(server, &copy, body);
}

bool tri_ps_chain_is_busy(const tri_ps_server *server)
{
    return server->chain.connection && server->chain.is_giving;
}

/* Before it is given what it lacks the backup must know what it is the backup of; and it tells its own. */
void tri_ps_chain_tell(tri_ps_server *server)
{
    tri_message message = ps_head_write(&(ps_head){.kind = PS_LOOK, .clock = (int64_t)server->view.version});
    if (server->chain.connection)
        tri_ps_chain_say(server, &message, NULL);
}

void tri_ps_chain_lost(tri_ps_server *server)
{
    server->chain.connection = NULL;
    server->chain.lost = true;
}
