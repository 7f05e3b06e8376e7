/* SPDX-License-Identifier: Apache-2.0
 *
 * catch_up.c: how a backup comes to have all that a server has: it is reached, given what it lacks, and given slots of
 * its own then; and what happens when it dies.
 */
#include "base/log.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/kv.h"

/* Bytes of blocks under way to a new backup. */
#define COPY_AHEAD_NBYTES ((size_t)8 << 20)
/* For a neighbour to answer: a loaded host may be slow. That nobody listens any more is known at once. */
#define REACH_MS 1000
/* After a loss, before slots are shared out: about as far apart as servers of one host are missed. */
#define CALM_NS (300 * TRI_NS_PER_MS)

static void table_send(tri_ps_server *server, const ps_table *table)
{
    tri_string state = {0};
    if (!tri_ps_concerns_all(server, tri_ps_table_write(table, &state))) {
        ps_head head = {.kind = PS_COPY_TABLE, .nbytes = state.nbytes, .table = (uint32_t)table->number};
        tri_message message = ps_head_write(&head);
        tri_ps_chain_say(server, &message, tri_string_text(&state));
    }
    tri_string_fini(&state);
}

static void block_send(tri_ps_server *server, const ps_table *table, int b)
{
    tri_string state = {0};
    if (!tri_ps_concerns_all(server, tri_ps_block_write(table, &table->blocks[b], &state))) {
        ps_head head = {
            .kind = PS_COPY, .nbytes = state.nbytes, .table = (uint32_t)table->number, .block = (uint32_t)b};
        tri_message message = ps_head_write(&head);
        tri_ps_chain_say(server, &message, tri_string_text(&state));
    }
    tri_string_fini(&state);
}

/* The next slot of the tables of rows. */
static void slot_send(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    const kv_table *table = server->kv->tables[chain->copy_rows];
    int slot = chain->copy_slot++;
    tri_string state = {0};
    if (chain->copy_slot == PS_SLOTS) {
        chain->copy_slot = 0;
        chain->copy_rows++;
    }
    if (ps_slots_has(&chain->giving, slot) &&
        !tri_ps_concerns_all(server, tri_ps_kv_slot_write(table, slot, true, &state))) {
        ps_head head = {.kind = PS_KV_COPY, .nbytes = state.nbytes, .table = table->id, .block = (uint32_t)slot};
        tri_message message = ps_head_write(&head);
        tri_ps_chain_say(server, &message, tri_string_text(&state));
    }
    tri_string_fini(&state);
}

/* Slots of this server that the backup has not been given. */
static bool lacks_find(const tri_ps_server *server, ps_slots *lacks)
{
    bool any = false;
    *lacks = (ps_slots){0};
    for (int s = 0; s < PS_SLOTS; s++)
        if (server->view.slots[s] == server->setup.number && !ps_slots_has(&server->chain.given, s)) {
            ps_slots_add(lacks, s);
            any = true;
        }
    return any;
}

static void give_begin(tri_ps_server *server, const ps_slots *lacks)
{
    ps_chain *chain = &server->chain;
    chain->giving = *lacks;
    chain->is_giving = true;
    chain->copy_table = chain->copy_block = chain->copy_rows = chain->copy_slot = 0;
    for (int t = 0; t < server->table_count; t++)
        table_send(server, server->tables[t]);
    if (ps_slots_has(lacks, PS_BARRIER_SLOT))
        tri_ps_kv_stops_send(server);
}

static void give_next(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    if (chain->copy_table == server->table_count) {
        slot_send(server);
        return;
    }
    const ps_table *table = server->tables[chain->copy_table];
    int b = chain->copy_block++;
    if (b == table->spec.cut_count) {
        chain->copy_table++;
        chain->copy_block = 0;
    } else if (ps_slots_has(&chain->giving, table->slots[b]))
        block_send(server, table, b);
}

static void give_end(ps_chain *chain)
{
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(&chain->giving, s))
            ps_slots_add(&chain->given, s);
    chain->is_giving = false;
}

/* This server has a copy of what goes there, if it was the backup's before: then neither needs anything, since a
 * slot is shared out when all messages are acknowledged. */
void tri_ps_chain_step(tri_ps_server *server, const ps_view *next)
{
    ps_chain *chain = &server->chain;
    int number = server->setup.number, backup = ps_view_backup(next, number);
    for (int s = 0; s < PS_SLOTS; s++)
        if (next->slots[s] != number) {
            ps_slots_remove(&chain->given, s);
            ps_slots_remove(&chain->giving, s);
        } else if (server->view.slots[s] == backup && backup == chain->backup)
            ps_slots_add(&chain->given, s);
    for (int i = 0; i < server->view.server_count; i++)
        if (!ps_view_has(next, server->view.servers[i]))
            chain->shares_ns = tri_now_ns() + CALM_NS;
}

/* The backup learns of a table made later by a forwarded message: only earlier tables are copied. */
static void chain_begin(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    chain->lost = false;
    tri_ps_chain_release(chain, UINT64_MAX);
    chain->sent = chain->acknowledged = chain->beat = 0;
    chain->leased_ns = chain->beat_ns = tri_now_ns();
    chain->quiet = (ps_quiet){0};
    chain->given = (ps_slots){0};
    chain->is_giving = false;
    bool starts = server->view.version == 1 && !server->rows_came;
    ps_head head = {.kind = PS_HELLO,
                    .flags = PS_FLAG_SERVER | (starts ? PS_FLAG_STARTS : 0),
                    .request = PS_VERSION,
                    .clock = server->setup.number,
                    .extra = (double)server->view.version};
    tri_message message = ps_head_write(&head);
    tri_ps_chain_say(server, &message, NULL);
    for (int t = 0; t < server->table_count; t++) {
        const tri_string *text = &server->tables[t]->text;
        message = ps_head_write(&(ps_head){.kind = PS_OPEN, .flags = PS_FLAG_STARTS, .nbytes = text->nbytes});
        tri_ps_chain_say(server, &message, tri_string_text(text));
    }
    for (int t = 0; t < server->kv->table_count; t++) {
        const tri_string *text = &server->kv->tables[t]->text;
        message =
            ps_head_write(&(ps_head){.kind = PS_KV_OPEN, .flags = starts ? 0 : PS_FLAG_COPY, .nbytes = text->nbytes});
        tri_ps_chain_say(server, &message, tri_string_text(text));
    }
    tri_ps_chain_tell(server); /* these are all tables */
}

tri_status tri_ps_chain_renew(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    int backup = server->setup.replicas > 1 ? ps_view_backup(&server->view, server->setup.number) : -1;
    if (backup == chain->backup && (chain->connection || backup < 0))
        return TRI_OK;
    if (chain->connection)
        tri_connection_close(chain->connection);
    chain->connection = NULL;
    chain->backup = backup;
    if (backup < 0) {
        chain->lost = false;
        tri_ps_chain_release(chain, UINT64_MAX);
        if (server->setup.replicas > 1)
            tri_log(TRI_LOG_WARN, "there is no other server: what is here has no backup");
        return TRI_OK;
    }
    tri_connection *connection;
    if (tri_ps_reach(server, backup, REACH_MS, &connection) != TRI_OK)
        return tri_ps_chain_suspect(server, backup);
    tri_connection_data_set(connection, NULL);
    chain->connection = connection;
    chain_begin(server);
    return TRI_OK;
}

/* The backup has all. If it has fewer slots than this server, it takes some over; not just after a loss: when a host
 * fails its servers are lost one after the other, and what the next one has taken over has no copy yet. */
static tri_status all_given(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    int own = ps_view_slots(&server->view, server->setup.number), other = ps_view_slots(&server->view, chain->backup);
    ps_change change = {PS_SHARE, server->setup.number};
    if (own - other >= 2)
        return tri_now_ns() < chain->shares_ns ? TRI_OK : tri_ps_view_make(server, &change);
    if (chain->reported != server->view.version)
        tri_log(TRI_LOG_INFO, "view %llu: server %d has a copy of all that is here",
                (unsigned long long)server->view.version, chain->backup);
    chain->reported = server->view.version;
    return TRI_OK;
}

tri_status tri_ps_chain_go_on(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    ps_slots lacks;
    if (server->table_count + server->kv->table_count == 0)
        return TRI_OK;
    if (!chain->connection && chain->backup < 0) /* a table of which another server was the first to tell */
        TRI_TRY(tri_ps_chain_renew(server));
    if (!chain->connection)
        return TRI_OK;
    if (!chain->is_giving && lacks_find(server, &lacks))
        give_begin(server, &lacks);
    while (chain->is_giving && tri_connection_queued(chain->connection) < COPY_AHEAD_NBYTES) {
        give_next(server);
        if (chain->copy_table == server->table_count && chain->copy_rows == server->kv->table_count)
            give_end(chain);
    }
    return !chain->is_giving && chain->acknowledged == chain->sent && !lacks_find(server, &lacks) ? all_given(server)
                                                                                                  : TRI_OK;
}

tri_status tri_ps_chain_suspect(tri_ps_server *server, int number)
{
    tri_connection *connection;
    ps_change change = {PS_WITHOUT, number};
    if (!server->setup.store || server->setup.replicas < 2)
        return TRI_OK;
    if (!ps_view_has(&server->view, number))
        return tri_ps_chain_renew(server);
    uint64_t version = server->view.version;
    TRI_TRY(tri_ps_view_look(server));
    if (server->view.version > version) /* somebody else has noticed */
        return TRI_OK;
    if (tri_ps_reach(server, number, REACH_MS, &connection) == TRI_OK) {
        tri_connection_close(connection);
        return tri_ps_chain_renew(server);
    }
    tri_log(TRI_LOG_WARN, "server %d is gone: its backup takes over", number);
    while (ps_view_has(&server->view, number))
        TRI_TRY(tri_ps_view_make(server, &change));
    return TRI_OK;
}
