/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_messages.c: messages about tables of rows, by kind. Rows are pulled and pushed in kv_rows.c, steps counted in
 * kv_clock.c.
 */
#include "base/memory.h"
#include "ps/pack.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/kv.h"

/* The step that a worker begins with: the earliest that something here has yet to hear from it. */
static int64_t clock_of(const tri_ps_server *server, const kv_table *table, int worker)
{
    int64_t least = INT64_MAX;
    for (int s = 0; s < PS_SLOTS; s++) {
        const kv_slot *slot = &table->slots[s];
        int64_t clock = slot->clocks ? slot->clocks[worker] : slot->clock;
        if (server->view.slots[s] == server->setup.number && clock < least)
            least = clock;
    }
    return least;
}

/* Copies of all that the other server has will come, but for what this one gave it: that is taken for given, also where
 * the message was said before. */
static void slots_await(const tri_ps_server *server, kv_table *table)
{
    for (int s = 0; s < PS_SLOTS; s++) {
        bool stays = server->view.slots[s] == server->setup.number || server->shared[s] > 0;
        table->slots[s].held = table->slots[s].held && stays;
    }
}

/* The backup hears of each table that is made. */
static tri_status made_tell(tri_ps_server *server, const ps_client_connection *client, const ps_head *head,
                            const char *text)
{
    tri_message message = ps_head_write(head);
    if (!server->chain.connection)
        return client->server < 0 ? tri_ps_chain_renew(server) : TRI_OK;
    tri_ps_chain_forward(server, 0, &message, text);
    return TRI_OK;
}

static tri_status on_open(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const char *text)
{
    kv_table *table;
    int before = server->kv->table_count;
    tri_status status = tri_ps_kv_table_make(server->kv, text, head->nbytes, &table);
    if (status != TRI_OK)
        return status == TRI_ENOMEM ? status : tri_ps_kv_failed(client, head, status);
    if (client->server >= 0 && (head->flags & PS_FLAG_COPY))
        slots_await(server, table);
    else if (client->server >= 0)
        tri_ps_kv_slots_begin(server, table, client->server);
    if (server->kv->table_count > before)
        TRI_TRY(made_tell(server, client, head, text));
    if (client->server >= 0)
        return TRI_OK;
    tri_ps_kv_done(client, head->request, table->id, clock_of(server, table, client->number));
    return TRI_OK;
}

/* Where a client that takes a worker's place continues: pushes and barriers that were heard of it. It has reached
 * all servers, so the backup is there, and has all from the first message on that changes something. */
static tri_status on_join(tri_ps_server *server, ps_client_connection *client, const ps_head *head)
{
    const ps_kv *kv = server->kv;
    uint64_t last = 0;
    if (!server->chain.connection && server->chain.backup < 0)
        TRI_TRY(tri_ps_chain_renew(server));
    for (int t = 0; t < kv->table_count; t++)
        for (int s = 0; s < PS_SLOTS; s++)
            if (kv->tables[t]->slots[s].last[client->number] > last)
                last = kv->tables[t]->slots[s].last[client->number];
    unsigned char body[16];
    tri_bytes_write_u64(body, last);
    tri_bytes_write_u64(body + 8, (uint64_t)kv->stops[client->number].passed);
    ps_head answer = {.kind = PS_KV_DONE, .request = head->request, .nbytes = sizeof(body)};
    tri_ps_answer(client, &answer, body, false);
    return TRI_OK;
}

static tri_status stats_print(const ps_kv *kv, int number, tri_string *out)
{
    for (int t = 0; t < kv->table_count; t++) {
        const kv_table *table = kv->tables[t];
        TRI_TRY(tri_string_appendf(
            out,
            "server %d, table '%s': %lld rows, %zu bytes, %llu pulled, %llu pushed, %llu pushes came twice, "
            "%lld rows evicted, %llu lists came as their hash, %llu were asked for\n",
            number, table->spec.name, (long long)ps_sparse_count(table->rows), ps_sparse_nbytes(table->rows),
            (unsigned long long)table->pulled, (unsigned long long)table->pushed, (unsigned long long)table->twice,
            (long long)table->evicted, (unsigned long long)table->named, (unsigned long long)table->asked));
        if (table->spec.table.consistency == PS_BSP)
            continue;
        TRI_TRY(tri_string_appendf(out, "server %d, table '%s': pulls by steps ahead of the slowest worker:", number,
                                   table->spec.name));
        for (size_t i = 0; i < TRI_COUNT_OF(table->ahead); i++)
            if (table->ahead[i] > 0)
                TRI_TRY(tri_string_appendf(out, " %zu%s: %llu", i, i + 1 == TRI_COUNT_OF(table->ahead) ? "+" : "",
                                           (unsigned long long)table->ahead[i]));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    return TRI_OK;
}

static tri_status on_stats(const tri_ps_server *server, ps_client_connection *client, const ps_head *head)
{
    tri_string text = {0};
    tri_status status = stats_print(server->kv, server->setup.number, &text);
    ps_head answer = {.kind = PS_KV_DONE, .request = head->request, .nbytes = text.nbytes};
    if (status == TRI_OK)
        tri_ps_answer(client, &answer, tri_string_text(&text), false);
    tri_string_fini(&text);
    return status;
}

static tri_status table_find(const ps_kv *kv, const ps_head *head, kv_table **out)
{
    *out = tri_ps_kv_table_of(kv, head);
    return *out ? TRI_OK : tri_fail(TRI_EFORMAT, "there is no table %u of rows", head->table);
}

/* A slot of the server whose backup this is. */
static tri_status on_copy(tri_ps_server *server, const ps_client_connection *client, kv_table *table,
                          const ps_head *head, const void *body)
{
    if (head->block >= PS_SLOTS || !tri_ps_backs(server, client, (int)head->block))
        return TRI_OK;
    TRI_TRY(tri_ps_kv_slot_read(table, (int)head->block, body, head->nbytes));
    table->slots[head->block].held = true;
    table->moved = true;
    return tri_ps_kv_waits_run(server, table);
}

tri_status tri_ps_kv_message(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body)
{
    kv_table *table;
    switch (head->kind) {
    case PS_KV_JOIN:
        return client->server >= 0 ? TRI_OK : on_join(server, client, head);
    case PS_KV_OPEN:
        return on_open(server, client, head, body);
    case PS_KV_BARRIER:
        return tri_ps_kv_barrier(server->kv, client, head, body);
    case PS_KV_STOPS:
        return tri_ps_kv_stops_take(server->kv, body, head->nbytes);
    case PS_KV_STATS:
        return on_stats(server, client, head);
    case PS_KV_COPY:
        TRI_TRY(table_find(server->kv, head, &table));
        return on_copy(server, client, table, head, body);
    case PS_KV_SAVE:
        return tri_ps_kv_save(server, client, head, body);
    case PS_KV_LOAD:
        return tri_ps_kv_load(server, client, head, body);
    case PS_KV_CLOCK:
        TRI_TRY(table_find(server->kv, head, &table));
        return tri_ps_kv_clock(server, client, table, head, body);
    default:
        TRI_TRY(table_find(server->kv, head, &table));
        return tri_ps_kv_rows(server, client, table, head, body);
    }
}
