/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.c: what clients and other servers may say to a parameter server: one row for each kind of message.
 */
#include "base/events.h"
#include "base/log.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/rpc/annotation.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/server/kv.h"

typedef tri_status (*message_fn)(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body);

/* Another server has this one as its backup: what was here for others than workers comes again. */
static tri_status neighbour_hello(tri_ps_server *server, ps_client_connection *client, const ps_head *head)
{
    if (head->clock < 0 || head->clock >= PS_MAX_SERVERS || client->number >= 0)
        return tri_fail(TRI_EFORMAT, "it says that it is server %lld", (long long)head->clock);
    if (head->extra > (double)server->view.version)
        tri_ps_end_with(server, tri_ps_view_look(server));
    if (!ps_view_has(&server->view, (int)head->clock)) /* it was stopped, and does not know yet what it has missed */
        return tri_fail(TRI_EPEER, "view %llu does without server %d", (unsigned long long)server->view.version,
                        (int)head->clock);
    for (ps_client_connection *other = server->clients, *next; other; other = next) {
        next = other->next;
        if (other == client || other->server < 0)
            continue;
        tri_ps_connection_close(server, other);
    }
    client->server = (int)head->clock;
    for (int s = 0; s < PS_SLOTS; s++)
        if (server->view.slots[s] != server->setup.number && (double)server->shared[s] <= head->extra)
            tri_ps_slot_leave(server, s); /* what was shared since it said this it takes for given */
    if ((head->flags & PS_FLAG_STARTS) && server->view.version == 1) /* then what is not here is not there either */
        tri_ps_kv_begin(server, client->server);
    return TRI_OK;
}

static tri_status on_hello(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    (void)body;
    if (head->request != PS_VERSION)
        return tri_fail(TRI_EFORMAT, "it speaks version %llu of the protocol, want %d",
                        (unsigned long long)head->request, PS_VERSION);
    if (head->flags & PS_FLAG_SERVER)
        return neighbour_hello(server, client, head);
    if (head->clock < 0 || head->clock >= server->setup.workers || client->number >= 0)
        return tri_fail(TRI_EFORMAT, "it says that it is worker %lld of %d", (long long)head->clock,
                        server->setup.workers);
    int number = (int)head->clock;
    ps_client_connection *before = server->workers[number];
    if (before) { /* its connection is dead, or it was started again: the latest counts */
        tri_log(TRI_LOG_WARN, "worker %d is here again, from %s", number, tri_connection_peer(client->connection));
        tri_ps_connection_close(server, before);
    }
    client->number = number;
    server->workers[number] = client;
    tri_ps_answer_plain(client, PS_HELLO, PS_VERSION, 0, number);
    return TRI_OK;
}

static void open_answer(ps_client_connection *client, const ps_table *table)
{
    ps_head head = {.kind = PS_OPEN,
                    .request = client->request,
                    .clock = table->ready      ? tri_ps_table_clock(client->of, table, client->number)
                             : table->restored ? PS_CLOCK_LOST
                                               : -1,
                    .table = (uint32_t)table->number,
                    .extra = (double)table->tail_clock};
    tri_ps_answer(client, &head, NULL, false);
    client->opens = -1;
}

static tri_status on_open(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    int before = server->table_count;
    TRI_TRY(tri_ps_table_make(server, client, body, head->nbytes, &table));
    if (client->server >= 0 && client->table_count < PS_TABLES_MAX)
        client->tables[client->table_count++] = table->number;
    if (server->table_count > before && server->chain.connection) {
        tri_message message = ps_head_write(head);
        message.flags |= PS_FLAG_STARTS;
        tri_ps_chain_forward(server, 0, &message, body);
    } else if (server->table_count > before && client->server < 0)
        TRI_TRY(tri_ps_chain_renew(server));
    if (client->server >= 0)
        return TRI_OK;
    server->joined[client->number] = true;
    client->opens = table->number;
    client->request = head->request;
    if (table->restored && head->extra >= 0 && head->extra < (double)PS_CLOCK_MAX &&
        (int64_t)head->extra + 1 > table->next_deal)
        table->next_deal = (int64_t)head->extra + 1;
    if (table->ready || (head->flags & PS_FLAG_STARTS))
        open_answer(client, table);
    return TRI_OK;
}

static tri_status on_init(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)client;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (client->server >= 0 && head->block < (uint32_t)table->spec.cut_count)
        TRI_TRY(tri_ps_block_hold(server, table, (int)head->block));
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    return tri_ps_block_fill(table, block, head, body);
}

/* A worker that does not know yet whose place this server has taken gives it the rest once it does. */
static void given_not(const tri_ps_server *server, ps_client_connection *client)
{
    ps_head moved = {.kind = PS_MOVED, .flags = PS_FLAG_REFUSED, .clock = (int64_t)server->view.version};
    tri_ps_answer(client, &moved, NULL, false);
}

static tri_status on_ready(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    bool asks = head->flags & PS_FLAG_STARTS;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (asks && client->server >= 0)
        return TRI_OK;
    tri_status status = tri_ps_table_given(server, table);
    if (status != TRI_OK && client->server < 0 && server->view.version > 1) {
        given_not(server, client);
        return TRI_OK;
    }
    TRI_TRY(status);
    if (!asks)
        tri_ps_table_ready(server, table, head);
    tri_ps_answer_plain(client, PS_READY, head->request, head->table, head->clock);
    for (ps_client_connection *other = server->clients; other && !asks; other = other->next)
        if (other->opens == table->number)
            open_answer(other, table);
    return TRI_OK;
}

static tri_status on_push(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    TRI_TRY(tri_ps_block_serves(client, table, block));
    return table->consistency == PS_BSP ? tri_ps_bsp_push(server, client, table, block, head)
                                        : tri_ps_ssp_push(client, table, block, head, body);
}

static tri_status on_tail(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return tri_ps_bsp_tail(server, client, table, head, body);
}

static tri_status on_move(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    (void)client;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return head->nbytes > 0 ? tri_ps_bsp_choice(server, table, head, body) : tri_ps_bsp_move(server, table, head);
}

static tri_status on_clock(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return table->consistency == PS_BSP ? tri_ps_bsp_clock(server, client, table, head)
                                        : tri_ps_ssp_clock(server, client, table, head);
}

static tri_status on_pull(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    TRI_TRY(tri_ps_block_serves(client, table, block));
    return table->consistency == PS_BSP ? tri_ps_bsp_pull(client, table, block, head)
                                        : tri_ps_ssp_pull(client, table, block, head);
}

static tri_status on_pull_state(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    int index = head->extra >= 0 && head->extra < TRI_OPTIM_MAX_STATE ? (int)head->extra : -1;
    if (index < 0 || !tri_optim_state_name(block->optim, index))
        return tri_fail(TRI_EFORMAT, "array %g of the optimizer", head->extra);
    ps_head answer = *head;
    answer.kind = PS_STATE;
    answer.clock = block->clock;
    answer.nbytes = (uint64_t)table->spec.cuts[head->block].count * sizeof(float);
    tri_ps_answer(client, &answer, tri_optim_state(block->optim, index), false);
    return TRI_OK;
}

static tri_status on_save(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    return tri_ps_save_ask(server, client, head, body);
}

static tri_status on_stats(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    tri_string text = {0};
    (void)body;
    if (head->flags & (PS_FLAG_TIME | PS_FLAG_EVENTS))
        return tri_ps_trace_tell(server, client, head);
    tri_status status = tri_ps_stats(server, &text);
    ps_head answer = {.kind = PS_STATS, .request = head->request, .nbytes = text.nbytes};
    if (status == TRI_OK)
        tri_ps_answer(client, &answer, tri_string_text(&text), false);
    tri_string_fini(&text);
    return status;
}

static tri_status on_note(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    return tri_ps_note_take(server, client, head, body);
}

/* A worker that leaves tells each server itself that it need not continue for it. */
static tri_status on_bye(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    (void)body;
    if (client->server < 0) {
        server->left_count += !server->left[client->number];
        server->left[client->number] = true;
    }
    for (int t = 0; t < server->table_count; t++)
        if (server->tables[t]->consistency != PS_BSP)
            TRI_TRY(tri_ps_ssp_left(server, server->tables[t], client->number));
    TRI_TRY(tri_ps_kv_left(server, client->number));
    tri_ps_answer_plain(client, PS_BYE, head->request, 0, 0);
    return TRI_OK;
}

static tri_status on_look(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    int from = client->server;
    (void)body;
    client->awaits_keys = client->awaits_keys && !(head->flags & PS_FLAG_LISTED);
    client->is_stalled = false; /* what it says from now on it says from the beginning */
    if (head->clock > (int64_t)server->view.version)
        tri_ps_end_with(server, tri_ps_view_look(server)); /* the client may be gone */
    if (from >= 0)
        tri_ps_kv_reported(server, from);
    return TRI_OK;
}

static tri_status on_copy_table(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    (void)client;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    int64_t before = table->tail_clock;
    TRI_TRY(tri_ps_table_read(table, body, head->nbytes));
    if (table->consistency == PS_BSP)
        tri_ps_bsp_tail_copied(server, table, before);
    return TRI_OK;
}

static tri_status on_copy(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    ps_table *table;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (head->block >= (uint32_t)table->spec.cut_count || !tri_ps_backs(server, client, table->slots[head->block]))
        return TRI_OK;
    TRI_TRY(tri_ps_block_hold(server, table, (int)head->block));
    TRI_TRY(tri_ps_block_read(table, &table->blocks[head->block], body, head->nbytes));
    tri_ps_bsp_copied(server, table, &table->blocks[head->block]);
    return TRI_OK;
}

static tri_status on_leave(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    (void)head;
    (void)body;
    server->ended |= UINT64_C(1) << client->server;
    return TRI_OK;
}

/* That it was said is all. */
static tri_status on_beat(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    (void)server, (void)client, (void)head, (void)body;
    return TRI_OK;
}

/* What clients may say, and how long its body may be; a body longer than nothing is checked against its table. */
static const struct {
    message_fn fn;
    size_t body_limit;
    unsigned is; /* PS_CHANGES: goes to the backup too. PS_OF_BLOCK: needs the server that has the block. PS_OF_SERVER:
                    not for workers */
} messages[PS_KIND_COUNT] = {
    [PS_HELLO] = {on_hello, 0, 0},
    [PS_OPEN] = {on_open, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_INIT] = {on_init, PS_BODY_LIMIT_NBYTES, PS_CHANGES | PS_OF_BLOCK},
    [PS_READY] = {on_ready, 0, PS_CHANGES},
    [PS_PUSH] = {on_push, PS_BODY_LIMIT_NBYTES, PS_CHANGES | PS_OF_BLOCK | PS_IS_PUSH},
    [PS_TAIL] = {on_tail, TRI_PARAMS_TAIL * sizeof(float), PS_CHANGES},
    [PS_MOVE] = {on_move, PS_CHOICE_LIMIT_NBYTES, PS_CHANGES},
    [PS_CLOCK] = {on_clock, 0, PS_CHANGES},
    [PS_PULL] = {on_pull, 0, PS_OF_BLOCK | PS_IS_PULL},
    [PS_PULL_STATE] = {on_pull_state, 0, PS_OF_BLOCK},
    [PS_STATS] = {on_stats, 0, 0},
    [PS_NOTE] = {on_note, PS_NOTE_LIMIT_NBYTES, 0},
    [PS_SAVE] = {on_save, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_BYE] = {on_bye, 0, PS_CHANGES},
    [PS_KV_JOIN] = {tri_ps_kv_message, 0, 0},
    [PS_KV_OPEN] = {tri_ps_kv_message, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_KV_PULL] = {tri_ps_kv_message, PS_BODY_LIMIT_NBYTES, PS_OF_SLOTS | PS_IS_PULL},
    [PS_KV_PUSH] = {tri_ps_kv_message, PS_BODY_LIMIT_NBYTES, PS_CHANGES | PS_OF_SLOTS | PS_IS_PUSH},
    [PS_KV_CLOCK] = {tri_ps_kv_message, sizeof(ps_slots), PS_CHANGES | PS_OF_SLOTS},
    [PS_KV_BARRIER] = {tri_ps_kv_message, sizeof(ps_slots), PS_CHANGES | PS_OF_SLOTS},
    [PS_KV_STATS] = {tri_ps_kv_message, 0, 0},
    [PS_KV_SAVE] = {tri_ps_kv_message, PS_PATH_LIMIT_NBYTES, 0},
    [PS_KV_LOAD] = {tri_ps_kv_message, PS_PATH_LIMIT_NBYTES, PS_CHANGES},
    [PS_KV_COPY] = {tri_ps_kv_message, PS_BODY_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_KV_STOPS] = {tri_ps_kv_message, PS_STOPS_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_LOOK] = {on_look, 0, 0},
    [PS_COPY_TABLE] = {on_copy_table, PS_BODY_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_COPY] = {on_copy, PS_BODY_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_LEAVE] = {on_leave, 0, PS_OF_SERVER},
    [PS_BEAT] = {on_beat, 0, PS_OF_SERVER},
};

/* Before the body of a message is read. */
tri_status tri_ps_message_check(const ps_client_connection *client, const ps_head *head)
{
    if ((unsigned)head->kind >= PS_KIND_COUNT || !messages[head->kind].fn)
        return tri_fail(TRI_EFORMAT, "it sent a message of kind %d", (int)head->kind);
    if ((messages[head->kind].is & PS_OF_SERVER) && client->server < 0)
        return tri_fail(TRI_EFORMAT, "it sent a message of kind %d, as only servers do", (int)head->kind);
    if (client->server < 0 && client->number < 0 && head->kind != PS_HELLO)
        return tri_fail(TRI_EFORMAT, "it has not said who it is");
    if (head->clock > PS_CLOCK_MAX || head->clock < -PS_CLOCK_MAX)
        return tri_fail(TRI_EFORMAT, "it speaks of step %lld", (long long)head->clock);
    if (head->nbytes > messages[head->kind].body_limit)
        return tri_fail(TRI_EFORMAT, "a message of kind %d has %llu bytes, want at most %zu", (int)head->kind,
                        (unsigned long long)head->nbytes, messages[head->kind].body_limit);
    return TRI_OK;
}

tri_status tri_ps_message_handle(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    const int64_t start_ns = tri_now_ns();
    const int worker = client->server < 0 ? client->number : -1;
    if (client->server < 0) {
        tri_ps_trace_asked(client, head, start_ns);
        tri_counter_add(TRI_COUNT_TAKEN_NBYTES, head->nbytes);
        tri_counter_add(TRI_COUNT_PUSHES, tri_ps_message_is(head->kind, PS_IS_PUSH));
        tri_counter_add(TRI_COUNT_PULLS, tri_ps_message_is(head->kind, PS_IS_PULL));
    }
    const tri_status status = messages[head->kind].fn(server, client, head, body); /* the client may be gone */
    tri_ps_trace_pushed(server, worker, head, start_ns);
    return status;
}

bool tri_ps_message_is(ps_kind kind, unsigned what)
{
    return messages[kind].is & what;
}
