/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: a parameter server: its clients, the way of a message, and the loop.
 *
 * A client that sends something impossible gets the reason and loses its connection; what it had under way is taken
 * back, and nobody else notices. What concerns all (no memory, no number) ends the server.
 */

#include "base/log.h"
#include "base/memory.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/server/kv.h"

/* How much one who is refused may still speak. */
#define HEAR_LIMIT_NBYTES (UINT64_C(1) << 20)

/* --- clients --- */

/* The connection is going: nothing may refer to it any more. */
static void client_forget(tri_ps_server *server, const ps_client_connection *client)
{
    tri_ps_kv_forget(server->kv, client);
    tri_ps_chain_forget(server, client);
}

static bool on_opened(void *arg, tri_connection *connection)
{
    tri_ps_server *server = arg;
    ps_client_connection *client = tri_alloc_zero(1, sizeof(*client));
    if (!client)
        return false;
    *client = (ps_client_connection){.of = server,
                                     .connection = connection,
                                     .number = -1,
                                     .server = -1,
                                     .opens = -1,
                                     .asked = {.each = sizeof(int64_t)},
                                     .next = server->clients};
    server->clients = client;
    tri_connection_data_set(connection, client);
    return true;
}

static void on_closed(void *arg, tri_connection *connection, const char *why)
{
    tri_ps_server *server = arg;
    ps_client_connection *client = tri_connection_data(connection);
    bool is_backup = connection == server->chain.connection;
    int neighbour = is_backup ? server->chain.backup : client ? client->server : -1;
    if (is_backup)
        tri_ps_chain_lost(server);
    if (client && client->server < 0 && client->number >= 0 && !server->left[client->number])
        tri_log(TRI_LOG_WARN, "lost worker %d (%s): %s", client->number, tri_connection_peer(connection), why);
    if (client)
        tri_ps_connection_remove(server, client);
    if (neighbour < 0)
        return;
    if (!(server->ended >> neighbour & 1))
        server->suspects |= UINT64_C(1) << neighbour; /* looked at between turns: that takes time */
    else if (is_backup)
        tri_ps_chain_alone(server);
}

/* --- messages --- */

static void refused_sweep(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    for (ps_client_connection *client = server->refused > 0 ? server->clients : NULL, *next; client; client = next) {
        next = client->next;
        if (client->closes_ns > 0 && client->closes_ns <= now_ns)
            tri_ps_connection_close(server, client);
    }
}

/* A forwarded message: whose it is, and which table of this server it means. */
static bool forwarded_read(ps_client_connection *client, ps_head *head)
{
    uint32_t table = head->table & PS_TABLE_MASK;
    if (client->server < 0 || head->kind == PS_HELLO || head->kind == PS_OPEN || head->kind == PS_LOOK ||
        head->kind == PS_LEAVE || head->kind == PS_BEAT)
        return true;
    if (ps_kind_is_kv(head->kind)) {
        client->number = head->request < (uint64_t)client->of->setup.workers ? (int)head->request : -1;
        return client->number >= 0;
    }
    client->number = (int)(head->table >> PS_TABLE_BITS);
    if (client->number >= client->of->setup.workers || table >= (uint32_t)client->table_count)
        return false;
    head->table = (uint32_t)client->tables[table];
    return true;
}

/* The block that a message names is another server's: a worker gets an answer, a forwarded message came too late or too
 * early. */
static bool is_elsewhere(tri_ps_server *server, const ps_client_connection *client, const ps_head *head)
{
    const ps_table *table = head->table < (uint32_t)server->table_count ? server->tables[head->table] : NULL;
    if (!(tri_ps_message_is(head->kind, PS_OF_BLOCK)) || !table || head->block >= (uint32_t)table->spec.cut_count)
        return false;
    bool primary = tri_ps_is_primary(server, table, (int)head->block);
    if (client->server >= 0)
        return !tri_ps_backs(server, client, table->slots[head->block]) ||
               (!table->blocks[head->block].held && head->kind != PS_INIT);
    return !primary;
}

static void *on_place(void *arg, tri_connection *connection, const tri_message *message, bool *refused)
{
    tri_ps_server *server = arg;
    ps_client_connection *client = tri_connection_data(connection);
    ps_head head = ps_head_read(message);
    ps_table *table = NULL;
    ps_block *block;
    if (connection == server->chain.connection)
        return NULL;
    if (!client || client->closes_ns > 0) {
        *refused = !client || head.nbytes > HEAR_LIMIT_NBYTES;
        return NULL;
    }
    tri_status status = tri_ps_message_check(client, &head);
    if (status == TRI_OK && (!forwarded_read(client, &head) || is_elsewhere(server, client, &head)))
        return NULL;
    if (status == TRI_OK && head.kind == PS_PUSH)
        status = tri_ps_block_find(server, &head, &table, &block);
    if (status == TRI_OK && table && table->consistency == PS_BSP)
        status = tri_ps_bsp_place(client, table, block, &head);
    if (status != TRI_OK && client->server >= 0 && !tri_ps_concerns_all(server, status)) {
        tri_log(TRI_LOG_WARN, "the copy of what server %d has is out of step (%s): it is copied again", client->server,
                tri_last_error());
        *refused = true;
    } else if (status != TRI_OK) {
        tri_ps_refuse(server, client, status);
        *refused = head.nbytes > HEAR_LIMIT_NBYTES;
    }
    return client->sum ? client->room : NULL;
}

/* What changes the state goes to the backup before it is handled, since its body may be used up then. A push that has
 * come before is known there too. */
static void forward(tri_ps_server *server, const ps_client_connection *client, const ps_head *head,
                    const tri_message *message, const void *body)
{
    const ps_table *table = head->table < (uint32_t)server->table_count ? server->tables[head->table] : NULL;
    bool known = head->kind == PS_PUSH && table && table->consistency == PS_BSP && !client->sum;
    server->rows_came = server->rows_came || (tri_ps_message_is(head->kind, PS_CHANGES) && ps_kind_is_kv(head->kind));
    if ((tri_ps_message_is(head->kind, PS_CHANGES)) && !known)
        tri_ps_chain_forward(server, client->number, message, body);
}

/* A backup follows; what it cannot do was meant for a state that it has not been given yet. */
static void follow(tri_ps_server *server, tri_connection *connection, ps_head *head, void *body)
{
    ps_client_connection *client = tri_connection_data(connection);
    tri_status status = TRI_OK;
    if (forwarded_read(client, head) && !is_elsewhere(server, client, head))
        status = tri_ps_message_handle(server, client, head, body);
    if (tri_connection_data(connection) != client) /* it has heard that this client is none any more */
        return;
    if (status != TRI_OK && head->kind == PS_HELLO && !tri_ps_concerns_all(server, status)) {
        tri_log(TRI_LOG_WARN, "closed the connection of %s: %s", tri_connection_peer(connection), tri_last_error());
        tri_ps_connection_close(server, client);
        return;
    }
    if (status != TRI_OK && !tri_ps_concerns_all(server, status))
        tri_log(TRI_LOG_WARN, "a message of kind %d that server %d has forwarded: %s", (int)head->kind, client->server,
                tri_last_error());
    tri_ps_room_leave(client);
    ps_head answer = {.kind = PS_ACK, .request = ++client->heard};
    tri_message message = ps_head_write(&answer);
    tri_ps_answer_send(client, 0, &message, NULL, false);
}

/* Its keys have to be said, before anything that comes behind. */
static void keys_ask(const tri_ps_server *server, ps_client_connection *client, const ps_head *head)
{
    ps_head moved = {.kind = PS_MOVED,
                     .flags = PS_FLAG_LISTED,
                     .request = head->request,
                     .table = head->table,
                     .clock = (int64_t)server->view.version};
    client->awaits_keys = true;
    tri_ps_answer(client, &moved, NULL, false);
}

static bool on_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    tri_ps_server *server = arg;
    ps_client_connection *client = tri_connection_data(connection);
    ps_head head = ps_head_read(message);
    if (connection == server->chain.connection) {
        if (head.kind == PS_ACK)
            tri_ps_chain_acknowledged(server, head.request);
        else if (head.kind == PS_LEAVE && head.clock >= 0 && head.clock < 64)
            server->ended |= UINT64_C(1) << head.clock;
        else if (head.kind == PS_BEAT)
            tri_ps_beat_excused(server, &server->chain.quiet, connection, head.extra);
        return true;
    }
    if (!client)
        return false;
    if (client->closes_ns > 0)
        return true;
    tri_status status = tri_ps_message_check(client, &head);
    if (status == TRI_OK && head.kind == PS_BEAT && head.extra > 0) {
        tri_ps_beat_excused(server, &client->quiet, connection, head.extra);
        return true;
    }
    if (status == TRI_OK && (client->server >= 0 || (head.kind == PS_HELLO && (head.flags & PS_FLAG_SERVER)))) {
        follow(server, connection, &head, body);
        return true;
    }
    bool elsewhere = status == TRI_OK && is_elsewhere(server, client, &head);
    if (status == TRI_OK && client->awaits_keys && tri_ps_message_is(head.kind, PS_OF_SLOTS))
        return true;
    if (status == TRI_OK && tri_ps_message_is(head.kind, PS_OF_SLOTS)) {
        elsewhere = client->is_stalled || tri_ps_kv_is_elsewhere(server, &head, body);
        client->is_stalled = elsewhere; /* nothing that comes behind may overtake it */
    }
    if (elsewhere) {
        tri_ps_room_leave(client);
        ps_head moved = {.kind = PS_MOVED,
                         .flags = PS_FLAG_REFUSED,
                         .request = head.request,
                         .table = head.table,
                         .clock = (int64_t)server->view.version};
        tri_ps_answer(client, &moved, NULL, false);
        return true;
    }
    if (status == TRI_OK && tri_ps_kv_is_unknown(server, client, &head, body)) {
        keys_ask(server, client, &head);
        return true;
    }
    if (status == TRI_OK) {
        forward(server, client, &head, message, body);
        status = tri_ps_message_handle(server, client, &head, body);
    }
    if (status != TRI_OK)
        tri_ps_refuse(server, client, status);
    return true; /* the client may be gone */
}

/* --- the server --- */

tri_status tri_ps_server_open(const tri_ps_server_setup *setup, tri_ps_server **out)
{
    tri_ps_server *server = tri_alloc_zero(1, sizeof(*server));
    if (!server)
        return TRI_ENOMEM;
    server->setup = *setup;
    server->forget = client_forget;
    tri_ps_chain_init(server);
    server->workers = tri_alloc_zero((size_t)setup->workers, sizeof(ps_client_connection *));
    server->left = tri_alloc_zero((size_t)setup->workers, sizeof(bool));
    server->joined = tri_alloc_zero((size_t)setup->workers, sizeof(bool));
    tri_endpoint_setup endpoint = {
        .name = "parameter server",
        .config = setup->net,
        .token = setup->token,
        .listens = true,
        .body_limit = PS_BODY_LIMIT_NBYTES,
        .hub = setup->hub,
        .rank = setup->rank,
        .world = setup->world,
        .handlers = {.arg = server, .opened = on_opened, .place = on_place, .message = on_message, .closed = on_closed},
    };
    bool placed = server->workers && server->left && server->joined;
    tri_status status = placed ? ps_view_first(setup->servers, &server->view) : TRI_ENOMEM;
    if (status == TRI_OK && setup->hosts)
        ps_view_spread(&server->view, setup->hosts);
    if (status == TRI_OK)
        status = tri_ps_kv_create(setup->workers, &server->kv);
    if (status == TRI_OK)
        status = tri_endpoint_open(&endpoint, &server->endpoint);
    if (status != TRI_OK) {
        tri_ps_server_close(server);
        return status;
    }
    *out = server;
    return TRI_OK;
}

const char *tri_ps_server_address(const tri_ps_server *server)
{
    return tri_endpoint_address(server->endpoint);
}

static bool is_busy(const tri_ps_server *server)
{
    return tri_ps_chain_is_busy(server) || tri_ps_kv_is_busy(server->kv) || tri_ps_save_is_busy(server);
}

/* A server that gets a signal continues until its workers, which get it too, have saved their state. */
static bool is_asked_to_stop(tri_ps_server *server)
{
    if (!tri_stop_signal())
        return false;
    for (int w = 0; w < server->setup.workers; w++)
        if (server->workers[w] && !server->left[w]) {
            if (!server->signal_reported)
                tri_log(TRI_LOG_INFO, "asked to stop: this server ends when the workers have left");
            server->signal_reported = true;
            return false;
        }
    return true;
}

tri_status tri_ps_server_run(tri_ps_server *server)
{
    enum { LOOK_MS = 200, COPY_MS = 1 }; /* at signals; while a backup is given blocks, or a file rows */
    while (!atomic_load(&server->stop) && server->left_count < server->setup.workers && !is_asked_to_stop(server)) {
        int64_t wait_ms = is_busy(server) ? COPY_MS : tri_ps_beat_ms(server, LOOK_MS);
        TRI_TRY(tri_endpoint_poll(server->endpoint, tri_deadline_after_ms(wait_ms)));
        TRI_TRY(tri_ps_kv_go_on(server));
        tri_ps_save_go_on(server);
        refused_sweep(server);
        TRI_TRY(tri_ps_neighbour_look(server));
        TRI_TRY(tri_ps_idle_look(server));
        TRI_TRY(tri_ps_restored_look(server));
        TRI_TRY(tri_ps_beat(server));
        TRI_TRY(tri_ps_chain_go_on(server));
        if (server->status != TRI_OK)
            return tri_fail_copy(server->status, server->message);
    }
    tri_ps_leave_tell(server);
    return TRI_OK;
}

void tri_ps_server_close(tri_ps_server *server)
{
    if (!server)
        return;
    tri_endpoint_close(server->endpoint);
    tri_ps_save_destroy(server->save);
    tri_ps_chain_fini(server);
    while (server->clients)
        tri_ps_connection_remove(server, server->clients);
    for (int t = 0; t < server->table_count; t++)
        tri_ps_table_destroy(server->tables[t]);
    tri_ps_kv_destroy(server->kv);
    for (int i = 0; i < PS_SPARES; i++)
        if (server->spares[i].nbytes > 0)
            tri_free(server->spares[i].memory);
    tri_ps_notes_free(server);
    tri_free(server->workers);
    tri_free(server->left);
    tri_free(server->joined);
    tri_free(server);
}
