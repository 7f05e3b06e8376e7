/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_reassign.c: calls when slots go to other servers: each goes to whoever has its slots now, cut where they are
 * several, and keeps the number of its push, by which servers know what they have had.
 */
#include "base/memory.h"
#include "net/bytes.h"
#include "ps/client/kv.h"

bool tri_ps_kv_fits(const tri_ps_client *client, const ps_call *call)
{
    for (int s = 0; s < PS_SLOTS && call->of_slots; s++)
        if (ps_slots_has(&call->slots, s) && client->view.slots[s] != call->server)
            return false;
    return ps_view_has(&client->view, call->server);
}

void tri_ps_kv_insert(ps_kv_connections *connections, ps_call *call)
{
    ps_kv_link *link = &connections->links[call->server];
    ps_call **at = &link->calls;
    while (*at && (*at)->order <= call->order)
        at = &(*at)->next;
    call->next = *at;
    *at = call;
    link->under_way += call->weight;
}

/* Keys of a body that are in the slots of `call`, and their values. */
static int64_t keys_cut(const ps_rows_body *body, const ps_call *call, size_t dim, uint64_t *keys, float *values)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < body->count; i++) {
        if (!ps_slots_has(&call->slots, ps_key_slot(body->keys[i])))
            continue;
        keys[kept] = body->keys[i];
        if (body->values)
            memcpy(values + (size_t)kept * dim, body->values + (size_t)i * dim, dim * sizeof(float));
        kept++;
    }
    return kept;
}

/* The rows of a call, whose whole body this is, that are in some of its slots. */
static tri_status rows_cut(const ps_call *from, const unsigned char *whole, ps_call *call, ps_rows_room *room)
{
    int dim = (int)from->spec->table.dim, wire = from->spec->table.values;
    bool pushes = from->head.kind == PS_KV_PUSH;
    ps_rows_body body;
    TRI_TRY(ps_rows_body_read(whole, (size_t)from->head.nbytes, from->head.block, dim, wire, pushes, room, &body));
    uint64_t *keys = tri_alloc((size_t)(body.count + 1) * sizeof(uint64_t));
    float *values = tri_alloc((size_t)(body.count + 1) * (size_t)dim * sizeof(float));
    call->at = from->pulls ? tri_alloc((size_t)(from->count + 1) * sizeof(uint32_t)) : NULL;
    call->body = tri_alloc(ps_rows_body_limit(body.count, dim, wire, pushes));
    tri_status status = keys && values && call->body && (!from->pulls || call->at) ? TRI_OK : TRI_ENOMEM;
    for (int64_t i = 0, row = -1; status == TRI_OK && from->pulls && i < from->count; i++) {
        row += !(ps_call_at(from, i) & KV_SAME_KEY);
        if (ps_slots_has(&call->slots, ps_key_slot(body.keys[row])))
            call->at[call->count++] = ps_call_at(from, i);
    }
    if (status == TRI_OK) {
        int64_t kept = keys_cut(&body, call, (size_t)dim, keys, values);
        ps_rows_body out = {.slots = call->slots, .keys = keys, .values = pushes ? values : NULL, .count = kept};
        call->head.block = (uint32_t)kept;
        call->head.nbytes = ps_rows_body_write(&out, dim, wire, false, call->body);
    }
    tri_free(keys);
    tri_free(values);
    return status;
}

static tri_status clock_cut(ps_call *call)
{
    call->body = tri_alloc(sizeof(ps_slots));
    if (!call->body)
        return TRI_ENOMEM;
    for (int i = 0; i < PS_SLOTS / 64; i++)
        tri_bytes_write_u64(call->body + 8 * i, call->slots.bits[i]);
    return TRI_OK;
}

/* The part of a call that is of slots of `server` now; NULL: *status, or there is none. */
static ps_call *call_cut(tri_ps_client *client, const ps_call *from, const unsigned char *whole, int server,
                         ps_rows_room *room, tri_status *status)
{
    ps_slots slots = from->slots;
    bool any = false;
    for (int i = 0; i < PS_SLOTS / 64; i++) {
        slots.bits[i] &= client->kv->slots[server].bits[i];
        any = any || slots.bits[i] != 0;
    }
    if (!any)
        return NULL;
    ps_call *call = tri_alloc_zero(1, sizeof(*call));
    *status = call ? TRI_OK : TRI_ENOMEM;
    if (!call)
        return NULL;
    *call = (ps_call){.server = server,
                      .head = from->head,
                      .weight = from->weight,
                      .work = from->work,
                      .order = from->order,
                      .pulls = from->pulls,
                      .of_slots = true,
                      .slots = slots,
                      .spec = from->spec};
    call->head.request = ++client->kv->last;
    *status = from->spec ? rows_cut(from, whole, call, room) : clock_cut(call);
    if (*status == TRI_OK)
        return call;
    tri_ps_kv_call_free(call);
    return NULL;
}

/* A server that is gone owes no answer, but a file. */
static void call_drop(tri_ps_client *client, ps_call *call)
{
    tri_kv_work *work = call->work;
    bool files = call->head.kind == PS_KV_SAVE || call->head.kind == PS_KV_LOAD;
    if (work && files && work->status == TRI_OK) {
        work->status = tri_fail(TRI_EPEER, "parameter server %d was lost while it saved or loaded", call->server);
        work->message = tri_strdup(tri_last_error());
    }
    if (work)
        work->missing--;
    call->work = NULL;
    if (call->filling) { /* it must not overtake what the new one says */
        client->links[call->server].cut = true;
        tri_ps_kv_give_back(client, call);
    }
    if (call->posted > 0)
        call->answered = true; /* it is freed when the endpoint gives its body back */
    else
        tri_ps_kv_call_free(call);
}

/* Calls whose server has not all of their slots, or is gone. */
static ps_call *loose_take(tri_ps_client *client)
{
    ps_call *loose = NULL, **end = &loose;
    for (int s = 0; s < client->setup.servers; s++) {
        ps_kv_link *link = &client->kv->links[s];
        for (ps_call **at = &link->calls; *at;) {
            ps_call *call = *at;
            if (tri_ps_kv_fits(client, call)) {
                at = &call->next;
                continue;
            }
            *at = call->next;
            link->under_way -= call->weight;
            call->next = NULL;
            *end = call;
            end = &call->next;
        }
    }
    return loose;
}

static tri_status call_spread(tri_ps_client *client, const ps_call *from, ps_rows_room *room)
{
    unsigned char *joined = ps_call_lent_nbytes(from) > 0 ? tri_ps_kv_call_join(from) : NULL;
    tri_status status = joined || ps_call_lent_nbytes(from) == 0 ? TRI_OK : TRI_ENOMEM;
    for (int s = 0; from->of_slots && s < client->setup.servers && status == TRI_OK; s++) {
        ps_call *call = call_cut(client, from, joined ? joined : from->body, s, room, &status);
        if (!call)
            continue;
        if (call->work)
            call->work->missing++;
        tri_ps_kv_insert(client->kv, call);
    }
    tri_free(joined);
    return status;
}

/* The server may know less than this client; what was sent since it refused something is sent again. */
static void link_begin_again(tri_ps_client *client, int server)
{
    ps_kv_link *link = &client->kv->links[server];
    ps_head head = {.kind = PS_LOOK, .clock = (int64_t)client->view.version};
    if (!link->is_stalled)
        return;
    tri_ps_queue(client, server, (unsigned)INT32_MAX, &head, NULL);
    link->is_stalled = false;
    for (ps_call *call = link->calls; call; call = call->next)
        call->said = false;
}

void tri_ps_kv_reown(tri_ps_client *client)
{
    ps_rows_room room = {0};
    tri_status status = TRI_OK;
    if (!client->kv)
        return;
    memset(client->kv->slots, 0, sizeof(client->kv->slots));
    for (int slot = 0; slot < PS_SLOTS; slot++)
        ps_slots_add(&client->kv->slots[client->view.slots[slot]], slot);
    for (ps_call *call = loose_take(client), *next; call; call = next) {
        next = call->next;
        if (status == TRI_OK)
            status = call_spread(client, call, &room);
        call_drop(client, call);
    }
    ps_rows_room_fini(&room);
    if (status != TRI_OK)
        tri_ps_client_fail(client, status);
    for (int s = 0; s < client->setup.servers; s++)
        link_begin_again(client, s);
    tri_cond_broadcast(&client->moved);
}
