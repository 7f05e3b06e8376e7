/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_clock.c: the steps of workers in tables of rows that are not bsp, barriers, and workers that leave.
 */
#include "ps/pack.h"
#include "ps/replication/chain.h"
#include "ps/server/connection.h"
#include "ps/server/kv.h"

tri_status tri_ps_kv_clock(tri_ps_server *server, ps_client_connection *client, kv_table *table, const ps_head *head,
                           void *body)
{
    ps_slots slots;
    TRI_TRY(ps_rows_slots_read(body, head->nbytes, &slots));
    (void)tri_ps_kv_own_slots(server, client, table, &slots);
    if (table->spec.table.consistency == PS_BSP)
        return tri_fail(TRI_EFORMAT, "table '%s' is bsp: its steps end with their pushes", table->spec.name);
    for (int s = 0; s < PS_SLOTS; s++) {
        int64_t *clock = &table->slots[s].clocks[client->number];
        if (!ps_slots_has(&slots, s) || head->clock <= *clock)
            continue;
        if (head->clock != *clock + 1)
            return tri_fail(TRI_EFORMAT, "table '%s': step %lld is over, after step %lld", table->spec.name,
                            (long long)head->clock, (long long)*clock);
        bool was_slowest = *clock == table->slots[s].clock;
        *clock = head->clock;
        if (was_slowest)
            TRI_TRY(tri_ps_kv_clock_find(table, s));
    }
    tri_ps_kv_done(client, head->request, table->id, head->clock);
    return tri_ps_kv_waits_run(server, table);
}

static tri_status stops_look(ps_kv *kv)
{
    int64_t least = INT64_MAX;
    for (int w = 0; w < kv->workers; w++)
        if (!kv->left[w] && kv->stops[w].passed < least)
            least = kv->stops[w].passed;
    for (int w = 0; w < kv->workers; w++) {
        kv_stop *stop = &kv->stops[w];
        if (!stop->client || stop->passed > least)
            continue;
        tri_ps_kv_done(stop->client, stop->request, 0, stop->passed);
        stop->client = NULL;
    }
    return TRI_OK;
}

/* Numbers of barriers only grow: what a backup has heard before it was given the others' stays. */
tri_status tri_ps_kv_barrier(ps_kv *kv, ps_client_connection *client, const ps_head *head, const void *body)
{
    kv_stop *stop = &kv->stops[client->number];
    ps_slots slots;
    TRI_TRY(ps_rows_slots_read(body, head->nbytes, &slots));
    if (client->server >= 0) {
        stop->passed = head->clock > stop->passed ? head->clock : stop->passed;
        return TRI_OK;
    }
    if (head->clock < 1 || head->clock > stop->passed + 1 || !ps_slots_has(&slots, PS_BARRIER_SLOT))
        return tri_fail(TRI_EFORMAT, "barrier %lld, after %lld", (long long)head->clock, (long long)stop->passed);
    if (head->clock <= stop->passed - 1) { /* said again: the others have passed it */
        tri_ps_kv_done(client, head->request, 0, head->clock);
        return TRI_OK;
    }
    stop->passed = head->clock;
    stop->client = client;
    stop->request = head->request;
    return stops_look(kv);
}

void tri_ps_kv_stops_yield(tri_ps_server *server)
{
    for (int w = 0; w < server->kv->workers; w++) {
        kv_stop *stop = &server->kv->stops[w];
        ps_head head = {.kind = PS_MOVED, .request = stop->request, .clock = (int64_t)server->view.version};
        if (stop->client)
            tri_ps_answer(stop->client, &head, NULL, false);
        stop->client = NULL;
    }
}

void tri_ps_kv_stops_send(tri_ps_server *server)
{
    const ps_kv *kv = server->kv;
    tri_string body = {0};
    tri_status status = TRI_OK;
    for (int w = 0; w < kv->workers && status == TRI_OK; w++)
        status = ps_put_u64(&body, kv->left[w] ? INT64_MAX : (uint64_t)kv->stops[w].passed);
    tri_message message = ps_head_write(&(ps_head){.kind = PS_KV_STOPS, .nbytes = body.nbytes});
    if (!tri_ps_concerns_all(server, status))
        tri_ps_chain_say(server, &message, tri_string_text(&body));
    tri_string_fini(&body);
}

tri_status tri_ps_kv_stops_take(ps_kv *kv, const void *body, size_t nbytes)
{
    ps_reader reader = ps_reader_make(body, nbytes);
    if (nbytes != (size_t)kv->workers * sizeof(uint64_t))
        return tri_fail(TRI_EFORMAT, "barriers of %zu bytes, for %d workers", nbytes, kv->workers);
    for (int w = 0; w < kv->workers; w++) {
        int64_t passed = (int64_t)ps_read_u64(&reader);
        if (passed == INT64_MAX)
            kv->left[w] = true;
        else if (passed > kv->stops[w].passed)
            kv->stops[w].passed = passed;
    }
    return TRI_OK;
}

tri_status tri_ps_kv_left(tri_ps_server *server, int worker)
{
    ps_kv *kv = server->kv;
    kv->left[worker] = true;
    for (int t = 0; t < kv->table_count; t++) {
        kv_table *table = kv->tables[t];
        for (int s = 0; s < PS_SLOTS && table->spec.table.consistency != PS_BSP; s++) {
            table->slots[s].clocks[worker] = INT64_MAX;
            TRI_TRY(tri_ps_kv_clock_find(table, s));
        }
        TRI_TRY(tri_ps_kv_waits_run(server, table));
    }
    return stops_look(kv);
}
