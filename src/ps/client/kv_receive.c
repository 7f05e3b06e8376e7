/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_receive.c: answers to calls about rows: where they shall be, and what they mean to the works that wait.
 *
 * Rows that are one piece of the caller's memory come straight there; others are put in their places when all of an
 * answer is here.
 */
#include "base/memory.h"
#include "net/bytes.h"
#include "ps/client/kv.h"

static ps_call **call_find(ps_kv_connections *connections, int server, uint64_t request)
{
    ps_call **at = &connections->links[server].calls;
    while (*at && (*at)->head.request != request)
        at = &(*at)->next;
    return at;
}

ps_call *tri_ps_kv_call_take(tri_ps_client *client, int server, uint64_t request)
{
    ps_call **at = call_find(client->kv, server, request), *call = *at;
    if (!call)
        return NULL;
    *at = call->next;
    client->kv->links[server].under_way -= call->weight;
    return call;
}

static void work_fail(tri_kv_work *work, tri_status status, const char *message)
{
    if (work->status != TRI_OK)
        return;
    work->status = status;
    work->message = tri_strdup(message);
}

/* The rows of the answer are one piece of the caller's memory, as they are. */
static bool is_straight(const ps_call *call, const ps_head *head)
{
    const ps_kv_spec *spec = call->spec;
    if (!call->work || !call->pulls || call->count == 0 || call->lender || spec->table.values != PS_WIRE_F32)
        return false;
    uint32_t first = ps_call_at(call, 0), dim = (uint32_t)spec->table.dim;
    for (int64_t i = 1; call->at && i < call->count; i++)
        if (call->at[i] != first + i)
            return false;
    int64_t total = call->work->table->total, end = ((int64_t)first + call->count) * dim;
    return head->kind == PS_KV_DONE && head->nbytes == (uint64_t)call->count * dim * sizeof(float) &&
           (total == 0 || end <= total);
}

void *tri_ps_kv_place(tri_ps_client *client, int server, const ps_head *head)
{
    ps_call *call = client->kv ? *call_find(client->kv, server, head->request) : NULL;
    if (!call || !is_straight(call, head))
        return NULL;
    call->filling = true;
    call->lender = call->work;
    call->lender->borrowed++;
    return call->work->rows + (size_t)ps_call_at(call, 0) * (size_t)call->spec->table.dim;
}

void tri_ps_kv_lost(tri_ps_client *client, int server)
{
    for (ps_call *call = client->kv ? client->kv->links[server].calls : NULL; call; call = call->next)
        if (call->filling)
            tri_ps_kv_give_back(client, call);
}

static void work_note(tri_kv_work *work, const ps_call *call, const ps_head *head, const void *body)
{
    work->clock = head->clock < work->clock ? head->clock : work->clock;
    if (call->head.kind == PS_KV_JOIN && head->nbytes == 16) {
        uint64_t last = tri_bytes_read_u64(body), stops = tri_bytes_read_u64((const unsigned char *)body + 8);
        work->last = last > work->last ? last : work->last;
        work->stops = stops > work->stops ? stops : work->stops;
        return;
    }
    if (!call->pulls && head->nbytes > 0 && tri_string_append_bytes(&work->text, body, head->nbytes) != TRI_OK)
        work_fail(work, TRI_ENOMEM, tri_last_error());
}

static void failed_note(tri_kv_work *work, int server, const ps_head *head, const void *body)
{
    tri_status status = head->extra > 0 && head->extra < TRI_STATUS_COUNT ? (tri_status)head->extra : TRI_EPEER;
    status = tri_fail(status, "parameter server %d: %.*s", server, (int)(head->nbytes < 900 ? head->nbytes : 900),
                      head->nbytes > 0 ? (const char *)body : "");
    work_fail(work, status, tri_last_error());
}

static void rows_note(tri_ps_client *client, const ps_call *call, const void *body, size_t nbytes)
{
    tri_kv_work *work = call->work;
    work->borrowed++;
    tri_mutex_unlock(&client->mutex);
    tri_status status = tri_ps_kv_scatter(call, work, body, nbytes);
    tri_mutex_lock(&client->mutex);
    work->borrowed--;
    if (status != TRI_OK)
        work_fail(work, status, tri_last_error());
}

void tri_ps_kv_take(tri_ps_client *client, int server, const ps_head *head, const void *body)
{
    tri_mutex_lock(&client->mutex);
    ps_call *call = client->kv ? tri_ps_kv_call_take(client, server, head->request) : NULL;
    tri_kv_work *work = call ? call->work : NULL;
    if (call)
        tri_ps_kv_known_note(&client->kv->links[server], call, head);
    if (call && call->filling)
        tri_ps_kv_give_back(client, call);
    else if (work && head->kind == PS_KV_FAILED)
        failed_note(work, server, head, body);
    else if (work && call->pulls)
        rows_note(client, call, body, head->nbytes);
    else if (work)
        work_note(work, call, head, body);
    if (work)
        work->missing--;
    tri_cond_broadcast(&client->moved);
    tri_mutex_unlock(&client->mutex);
    if (call && call->posted == 0)
        tri_ps_kv_call_free(call);
    else if (call)
        call->answered = true;
}
