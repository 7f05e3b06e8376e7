/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rows.c: messages that pull and push rows, and those of them that have to wait.
 *
 * A message that comes before its step does waits in its table until the slots that it names have come so far; waits
 * are looked at in the order in which they came.
 */
#include "base/memory.h"
#include "ps/server/connection.h"
#include "ps/server/kv.h"

/* --- whose slots --- */

/* Of a forwarded message: those that this server has as a backup, and was given. False: all that it names. */
bool tri_ps_kv_own_slots(const tri_ps_server *server, const ps_client_connection *client, const kv_table *table,
                         ps_slots *slots)
{
    bool fewer = false;
    for (int s = 0; s < PS_SLOTS && client->server >= 0; s++)
        if (ps_slots_has(slots, s) && (server->view.slots[s] == server->setup.number || !table->slots[s].held)) {
            slots->bits[s / 64] &= ~(UINT64_C(1) << (s % 64));
            fewer = true;
        }
    return fewer;
}

static bool are_elsewhere(const tri_ps_server *server, const void *body, size_t nbytes)
{
    ps_slots slots;
    if (ps_rows_slots_read(body, nbytes, &slots) != TRI_OK)
        return false; /* that is said later */
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(&slots, s) && server->view.slots[s] != server->setup.number)
            return true;
    return false;
}

bool tri_ps_kv_is_elsewhere(const tri_ps_server *server, const ps_head *head, const void *body)
{
    return are_elsewhere(server, body, head->nbytes);
}

/* --- keys that are known by their hash --- */

/* Messages about this table need not say keys that came before: none of them waits, or goes to a backup. */
static bool may_be_named(const tri_ps_server *server, const kv_table *table)
{
    return table->spec.table.consistency == PS_ASYNC && !server->chain.connection;
}

static bool is_new_to_all(const kv_table *table, int worker, const ps_head *head, const ps_slots *slots)
{
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(slots, s) && table->slots[s].last[worker] >= (uint64_t)head->extra)
            return false;
    return true;
}

bool tri_ps_kv_is_unknown(const tri_ps_server *server, const ps_client_connection *client, const ps_head *head,
                          const void *body)
{
    ps_slots named, slots;
    ps_look look;
    XXH128_hash_t hash;
    if ((head->kind != PS_KV_PUSH && head->kind != PS_KV_PULL) || !ps_rows_name_read(body, head->nbytes, &hash))
        return false;
    kv_table *table = tri_ps_kv_table_of(server->kv, head);
    if (!table || !(head->extra >= 0 && head->extra < 0x1p53) ||
        ps_rows_slots_read(body, head->nbytes, &named) != TRI_OK)
        return false; /* that is said later */
    bool is_known = may_be_named(server, table) && ps_sparse_known(table->rows, &hash, head->block, &slots, &look) &&
                    (head->kind == PS_KV_PULL || is_new_to_all(table, client->number, head, &named));
    table->named += is_known;
    table->asked += !is_known;
    return !is_known;
}

/* --- what a message waits for --- */

static bool is_gathered(const kv_table *table, const ps_head *head)
{
    return table->spec.table.consistency == PS_BSP && head->kind == PS_KV_PUSH && !(head->flags & PS_FLAG_ASSIGN);
}

/* The fewest steps that one of these slots has finished. */
static int64_t slots_clock(const kv_table *table, const ps_slots *slots)
{
    int64_t least = INT64_MAX;
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(slots, s) && table->slots[s].clock < least)
            least = table->slots[s].clock;
    return least;
}

static bool is_due(const kv_table *table, const ps_head *head, const ps_slots *slots)
{
    switch (table->spec.table.consistency) {
    case PS_BSP:
        return slots_clock(table, slots) >= head->clock;
    case PS_SSP:
        return slots_clock(table, slots) >= head->clock - table->spec.table.staleness;
    default:
        return true;
    }
}

static tri_status wait_add(kv_table *table, ps_client_connection *client, int worker, const ps_head *head,
                           const void *body)
{
    kv_wait *wait = tri_alloc_zero(1, sizeof(*wait));
    unsigned char *copy = tri_alloc(head->nbytes);
    if (!wait || !copy) {
        tri_free(wait);
        tri_free(copy);
        return TRI_ENOMEM;
    }
    memcpy(copy, body, head->nbytes);
    *wait = (kv_wait){.client = client, .worker = worker, .head = *head, .body = copy};
    *table->waits_end = wait;
    table->waits_end = &wait->next;
    tri_ps_connection_bytes_add(client, head->nbytes);
    return TRI_OK;
}

static void wait_free(kv_table *table, kv_wait **at)
{
    kv_wait *wait = *at;
    *at = wait->next;
    if (table->waits_end == &wait->next)
        table->waits_end = at;
    tri_free(wait->body);
    tri_free(wait);
}

/* --- pull and push --- */

/* What an answer says of the keys. */
static uint16_t listed_flag(const ps_client_connection *client, const kv_table *table, const ps_rows_body *body)
{
    bool is_kept = may_be_named(client->of, table) && ps_sparse_is_kept(table->rows, body->look);
    return is_kept ? PS_FLAG_LISTED : 0;
}

static tri_status rows_answer(ps_client_connection *client, kv_table *table, const ps_head *head,
                              const ps_rows_body *body)
{
    const ps_wire *wire = &ps_wires[table->spec.table.values];
    int64_t dim = table->spec.table.dim, count = body->count * dim;
    size_t nbytes = wire->nbytes(count, dim);
    unsigned char *values = tri_ps_answer_room(client->of, nbytes);
    if (!values)
        return TRI_ENOMEM;
    tri_status status;
    table->pulled += (uint64_t)body->count;
    if (table->spec.table.values == PS_WIRE_F32)
        status = tri_ps_kv_pull(table, head->clock, body, (float *)(void *)values);
    else {
        float *plain = tri_alloc((size_t)count * sizeof(float));
        status = plain ? tri_ps_kv_pull(table, head->clock, body, plain) : TRI_ENOMEM;
        if (status == TRI_OK)
            wire->write(plain, count, dim, values, NULL);
        tri_free(plain);
    }
    if (status != TRI_OK) {
        tri_free(values);
        return status;
    }
    ps_head answer = {.kind = PS_KV_DONE,
                      .flags = listed_flag(client, table, body),
                      .request = head->request,
                      .table = table->id,
                      .clock = head->clock,
                      .nbytes = nbytes};
    return tri_ps_answer_take(client, &answer, values);
}

static void ahead_count(kv_table *table, const ps_head *head, const ps_slots *slots)
{
    int64_t least = slots_clock(table, slots), most = (int64_t)TRI_COUNT_OF(table->ahead) - 1;
    int64_t ahead = least < head->clock ? head->clock - least : 0;
    table->ahead[ahead < most ? ahead : most]++;
}

/* What no sound client says. */
static tri_status rows_check(const kv_table *table, const ps_head *head, ps_rows_body *body)
{
    ps_slots slots;
    bool bsp = table->spec.table.consistency == PS_BSP, pulls = head->kind == PS_KV_PULL || head->flags & PS_FLAG_PULL;
    size_t nbytes =
        ps_wires[table->spec.table.values].nbytes(body->count * table->spec.table.dim, table->spec.table.dim);
    if (!(head->extra >= 0 && head->extra < 0x1p53))
        return tri_fail(TRI_EFORMAT, "push %g of table '%s'", head->extra, table->spec.name);
    if (head->clock < 0 || head->clock > UINT32_MAX)
        return tri_fail(TRI_EFORMAT, "step %lld of table '%s'", (long long)head->clock, table->spec.name);
    if (pulls && nbytes > PS_BODY_LIMIT_NBYTES)
        return tri_fail(TRI_EFORMAT, "%lld rows of table '%s' would be %zu bytes", (long long)body->count,
                        table->spec.name, nbytes);
    if (pulls && is_gathered(table, head))
        return tri_fail(TRI_EFORMAT, "table '%s' is bsp: what comes of a push is there after its step",
                        table->spec.name);
    for (int s = 0; bsp && pulls && s < PS_SLOTS; s++)
        if (ps_slots_has(&body->slots, s) && table->slots[s].clock > head->clock + 1)
            return tri_fail(TRI_EFORMAT, "rows of step %lld of table '%s', which is at step %lld",
                            (long long)head->clock, table->spec.name, (long long)table->slots[s].clock);
    if (!body->keys && (bsp || !ps_sparse_known(table->rows, &body->hash, body->count, &slots, &body->look)))
        return tri_fail(TRI_EFORMAT, "table '%s': keys that are not known by their hash", table->spec.name);
    if (body->keys && is_gathered(table, head)) /* the rows are not wanted yet */
        slots = ps_keys_slots(body->keys, body->count);
    else if (body->keys)
        TRI_TRY(ps_sparse_slots(table->rows, body->keys, body->count, &slots, &body->look));
    for (int i = 0; i < PS_SLOTS / 64; i++)
        if (slots.bits[i] & ~body->slots.bits[i])
            return tri_fail(TRI_EFORMAT, "table '%s': a key is in none of the slots that are named", table->spec.name);
    return TRI_OK;
}

static tri_status rows_take(tri_ps_server *server, ps_client_connection *client, int worker, kv_table *table,
                            const ps_head *head, void *bytes)
{
    ps_kv *kv = server->kv;
    ps_rows_body body;
    bool pushes = head->kind == PS_KV_PUSH;
    TRI_TRY(ps_rows_body_read(bytes, head->nbytes, head->block, (int)table->spec.table.dim, table->spec.table.values,
                              pushes, &kv->room, &body));
    if (!body.keys && client->server >= 0)
        return tri_fail(TRI_EFORMAT, "table '%s': a forwarded message without its keys", table->spec.name);
    TRI_TRY(rows_check(table, head, &body));
    body.is_part = tri_ps_kv_own_slots(server, client, table, &body.slots);
    if (is_gathered(table, head) && !is_due(table, head, &body.slots))
        return wait_add(table, client, worker, head, bytes);
    if (pushes)
        TRI_TRY(tri_ps_kv_push(table, worker, head, &body));
    if (pushes && !(head->flags & PS_FLAG_PULL)) {
        tri_ps_answer(client,
                      &(ps_head){.kind = PS_KV_DONE,
                                 .flags = listed_flag(client, table, &body),
                                 .request = head->request,
                                 .table = table->id,
                                 .clock = head->clock},
                      NULL, false);
        return TRI_OK;
    }
    if (!is_due(table, head, &body.slots))
        return wait_add(table, client, worker, head, bytes);
    if (table->spec.table.consistency != PS_BSP)
        ahead_count(table, head, &body.slots);
    return rows_answer(client, table, head, &body);
}

/* Who waited and need not any more. What is wrong with a message is its own sender's concern. */
tri_status tri_ps_kv_waits_run(tri_ps_server *server, kv_table *table)
{
    kv_wait **at = &table->waits;
    while (table->moved && *at) {
        kv_wait wait = **at;
        ps_slots slots;
        TRI_TRY(ps_rows_slots_read(wait.body, wait.head.nbytes, &slots));
        (void)tri_ps_kv_own_slots(server, wait.client, table, &slots);
        if (!is_due(table, &wait.head, &slots)) {
            at = &(*at)->next;
            continue;
        }
        (*at)->body = NULL;
        wait_free(table, at);
        tri_ps_connection_bytes_sub(wait.client, wait.head.nbytes);
        tri_status status = rows_take(server, wait.client, wait.worker, table, &wait.head, wait.body);
        tri_free(wait.body);
        if (status != TRI_OK && wait.client->server < 0)
            tri_ps_refuse(server, wait.client, status);
        at = &table->waits; /* it may have moved slots, and taken messages of its sender out */
    }
    table->moved = false;
    return TRI_OK;
}

tri_status tri_ps_kv_rows(tri_ps_server *server, ps_client_connection *client, kv_table *table, const ps_head *head,
                          void *body)
{
    TRI_TRY(rows_take(server, client, client->number, table, head, body));
    return tri_ps_kv_waits_run(server, table);
}

/* --- waits for slots that have moved --- */

void tri_ps_kv_waits_forget(ps_kv *kv, const ps_client_connection *client)
{
    for (int t = 0; t < kv->table_count; t++)
        for (kv_wait **at = &kv->tables[t]->waits; *at;)
            if ((*at)->client == client)
                wait_free(kv->tables[t], at);
            else
                at = &(*at)->next;
}

void tri_ps_kv_view(tri_ps_server *server)
{
    if (server->view.slots[PS_BARRIER_SLOT] != server->setup.number)
        tri_ps_kv_stops_yield(server);
    for (int t = 0; t < server->kv->table_count; t++)
        for (kv_wait **at = &server->kv->tables[t]->waits; *at;) {
            const kv_wait *wait = *at;
            if (wait->client->server >= 0 || !are_elsewhere(server, wait->body, wait->head.nbytes)) {
                at = &(*at)->next;
                continue;
            }
            ps_head head = {.kind = PS_MOVED, .request = wait->head.request, .clock = (int64_t)server->view.version};
            tri_ps_answer(wait->client, &head, NULL, false);
            tri_ps_connection_bytes_sub(wait->client, wait->head.nbytes);
            wait_free(server->kv->tables[t], at);
        }
}
