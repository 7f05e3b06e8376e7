/* SPDX-License-Identifier: Apache-2.0
 *
 * view_changes.c: how a server takes part in the row of views: what a new one means for it, and how it comes back.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/server/kv.h"
#include "ps/views.h"

tri_status tri_ps_reach(tri_ps_server *server, int number, int64_t limit_ms, tri_connection **connection)
{
    char key[TRI_PS_ADDRESS_KEY_NBYTES], *address;
    size_t nbytes;
    int64_t deadline_ns = tri_deadline_after_ms(limit_ms);
    tri_ps_beat_excuse(server, limit_ms);
    tri_ps_address_key(number, key);
    TRI_TRY(tri_store_wait(server->setup.store, key, &address, &nbytes, deadline_ns));
    tri_status status = tri_endpoint_redial(server->endpoint, address, deadline_ns, connection);
    tri_free(address);
    return status;
}

/* --- one view after the other --- */

/* Workers wait for nothing of this slot here; one that is pushing into it begins again, where it is now. */
static void slot_yield(tri_ps_server *server, int slot)
{
    for (int t = 0; t < server->table_count; t++) {
        const ps_table *table = server->tables[t];
        for (int b = 0; b < table->spec.cut_count; b++) {
            if (table->slots[b] != slot || !table->blocks[b].held)
                continue;
            tri_ps_rooms_leave(server, &table->blocks[b]);
            memset(table->blocks[b].waits, 0, (size_t)table->spec.workers);
            for (int w = 0; w < table->spec.workers; w++)
                if (table->pulls[w])
                    table->pulls[w][b].how = 0;
        }
    }
}

void tri_ps_slot_leave(tri_ps_server *server, int slot)
{
    slot_yield(server, slot);
    for (int t = 0; t < server->table_count; t++)
        for (int b = 0; b < server->tables[t]->spec.cut_count; b++)
            if (server->tables[t]->slots[b] == slot)
                tri_ps_block_drop(server->tables[t], b);
    tri_ps_kv_slot_drop(server, slot);
    server->shared[slot] = 0;
}

static void slot_share(tri_ps_server *server, int slot, uint64_t version)
{
    slot_yield(server, slot);
    server->shared[slot] = version;
}

bool tri_ps_slot_lacks(const tri_ps_server *server, int slot)
{
    bool lacks = tri_ps_kv_slot_lacks(server, slot);
    for (int t = 0; t < server->table_count; t++) {
        const ps_table *table = server->tables[t];
        for (int b = 0; b < table->spec.cut_count; b++)
            lacks = lacks || (table->slots[b] == slot && table->ready && !table->blocks[b].filled);
    }
    return lacks;
}

/* Who comes back when the others are leaving finds nobody, and is not missed. */
static tri_status lost_unless_left(tri_ps_server *server)
{
    int64_t until_ns = tri_now_ns() + TRI_NS_PER_S;
    for (bool all_left = false; tri_now_ns() < until_ns; tri_sleep_ns(20 * TRI_NS_PER_MS)) {
        TRI_TRY(tri_ps_views_all_left(server->setup.store, server->setup.workers, &all_left));
        if (!all_left)
            continue;
        tri_ps_server_stop(server);
        return TRI_OK;
    }
    return tri_fail(TRI_EPEER, "a server is gone, and its backup had not been given all that it held: the newest rows "
                               "are lost; begin again with the newest tri_kv_save()");
}

/* More servers died than hold each block. Where there are checkpoints all go back to the newest one. */
static tri_status lost(tri_ps_server *server)
{
    if (!server->setup.trains)
        return lost_unless_left(server);
    TRI_TRY(tri_ps_server_restore(server, true));
    if (!atomic_load(&server->stop))
        tri_ps_era_begin(server, NULL, server->era);
    for (int s = 0; s < PS_SLOTS; s++) /* a new era begins with nothing */
        tri_ps_kv_reported(server, server->view.slots[s]);
    return TRI_OK;
}

/* Of a slot that becomes this server's. A table without values is given them by the workers. */
static tri_status slot_gain(tri_ps_server *server, int slot)
{
    if (tri_ps_slot_lacks(server, slot) && !atomic_load(&server->stop))
        TRI_TRY(lost(server));
    for (int t = 0; t < server->table_count; t++) {
        ps_table *table = server->tables[t];
        for (int b = 0; b < table->spec.cut_count; b++) {
            if (table->slots[b] == slot)
                TRI_TRY(tri_ps_block_hold(server, table, b));
        }
    }
    return TRI_OK;
}

/* Slots that go from this server to the one whose backup it is stay as they are: nothing has changed since. */
static tri_status view_step(tri_ps_server *server, const ps_view *next)
{
    int number = server->setup.number;
    tri_ps_save_fail(server, "who serves what has changed");
    tri_ps_chain_step(server, next);
    for (int s = 0; s < PS_SLOTS; s++) {
        ps_role before = ps_view_role(&server->view, number, s), after = ps_view_role(next, number, s);
        bool stays = before == PS_PRIMARY || (before == PS_BACKUP && server->view.slots[s] == next->slots[s]);
        server->yielded = server->yielded || (before == PS_PRIMARY && after != PS_PRIMARY);
        if ((after == PS_NOTHING && before != PS_NOTHING) || (after == PS_BACKUP && !stays))
            tri_ps_slot_leave(server, s);
        else if (after == PS_BACKUP && before == PS_PRIMARY)
            slot_share(server, s, next->version);
        else if (after == PS_PRIMARY && before != PS_PRIMARY && ps_view_has(next, number))
            TRI_TRY(slot_gain(server, s));
    }
    server->view = *next;
    return TRI_OK;
}

/* This server comes back, with nothing. */
static tri_status rejoin(tri_ps_server *server)
{
    ps_view next = server->view;
    int number = server->setup.number;
    bool joined = false;
    while (!joined) {
        TRI_TRY(tri_ps_views_look(server->setup.store, TRI_PS_VIEWS_MS, &next));
        bool is_dead_one = ps_view_has(&next, number); /* nobody has noticed yet */
        if (is_dead_one && next.server_count == 1) {
            server->view = next;
            return lost(server);
        }
        ps_change change = {is_dead_one ? PS_WITHOUT : PS_JOIN, number};
        TRI_TRY(tri_ps_views_claim(server->setup.store, &change, &next));
        joined = !is_dead_one && ps_view_has(&next, number);
    }
    server->view = next;
    for (int s = 0; s < PS_SLOTS; s++)
        tri_ps_slot_leave(server, s);
    return TRI_OK;
}

/* What the view means for others. */
static tri_status view_settle(tri_ps_server *server)
{
    const ps_view *view = &server->view;
    if (!ps_view_has(view, server->setup.number)) { /* it was taken for dead */
        tri_log(TRI_LOG_WARN, "view %llu excludes this server: it rejoins without its state",
                (unsigned long long)view->version);
        tri_ps_chain_drop(server);
        TRI_TRY(rejoin(server));
        for (int w = 0; w < server->setup.workers; w++) /* its answers went with the rest */
            if (server->workers[w])
                tri_ps_connection_close(server, server->workers[w]);
    }
    /* Servers that are not in the view must not continue as if their backup was with them. */
    for (ps_client_connection *client = server->clients, *next; client; client = next) {
        next = client->next;
        if (client->server >= 0 && !ps_view_has(&server->view, client->server))
            tri_ps_connection_close(server, client);
    }
    tri_log(TRI_LOG_INFO, "view %llu: %d servers, %d of %d slots here", (unsigned long long)view->version,
            view->server_count, ps_view_slots(view, server->setup.number), PS_SLOTS);
    tri_ps_kv_view(server);
    ps_head moved = {.kind = PS_MOVED, .flags = server->yielded ? PS_FLAG_REFUSED : 0, .clock = (int64_t)view->version};
    server->yielded = false;
    for (int w = 0; w < server->setup.workers; w++)
        if (server->workers[w])
            tri_ps_answer(server->workers[w], &moved, NULL, false);
    TRI_TRY(tri_ps_chain_renew(server));
    tri_ps_chain_tell(server);
    return TRI_OK;
}

tri_status tri_ps_view_look(tri_ps_server *server)
{
    ps_view next = server->view;
    bool found = server->setup.store != NULL;
    uint64_t version = next.version;
    while (found) {
        TRI_TRY(tri_ps_views_next(server->setup.store, TRI_PS_VIEWS_MS, &next, &found));
        if (found)
            TRI_TRY(view_step(server, &next));
    }
    return server->view.version > version ? view_settle(server) : TRI_OK;
}

tri_status tri_ps_view_make(tri_ps_server *server, const ps_change *change)
{
    ps_view next = server->view;
    TRI_TRY(tri_ps_views_claim(server->setup.store, change, &next));
    TRI_TRY(view_step(server, &next));
    return view_settle(server);
}

tri_status tri_ps_server_return(tri_ps_server *server)
{
    TRI_TRY(tri_ps_views_era(server->setup.store, 0, &server->era));
    TRI_TRY(rejoin(server));
    return view_settle(server);
}

/* --- neighbours --- */

/* Connections of neighbours have ended. */
tri_status tri_ps_neighbour_look(tri_ps_server *server)
{
    while (server->suspects != 0) {
        int number = __builtin_ctzll(server->suspects);
        server->suspects &= server->suspects - 1;
        TRI_TRY(tri_ps_chain_suspect(server, number));
    }
    return TRI_OK;
}

/* A server that nobody talks to finds out by itself when it was taken for dead, or came back too late. */
tri_status tri_ps_idle_look(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    bool all_left;
    if (server->setup.replicas < 2 || server->clients || now_ns < server->look_ns)
        return TRI_OK;
    server->look_ns = now_ns + TRI_NS_PER_S;
    TRI_TRY(tri_ps_view_look(server));
    TRI_TRY(tri_ps_views_all_left(server->setup.store, server->setup.workers, &all_left));
    if (all_left)
        tri_ps_server_stop(server);
    return TRI_OK;
}

/* Neighbours need not wonder. */
void tri_ps_leave_tell(tri_ps_server *server)
{
    ps_head head = {.kind = PS_LEAVE, .clock = server->setup.number};
    tri_message message = ps_head_write(&head);
    if (server->chain.connection)
        (void)tri_connection_send(server->chain.connection, 0, &message, NULL, NULL, NULL);
    for (ps_client_connection *client = server->clients; client; client = client->next)
        if (client->server >= 0)
            tri_ps_answer_send(client, 0, &message, NULL, false);
}
