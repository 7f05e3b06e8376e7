/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.c: calls under way to servers: numbered, sent, said again; and works that wait for their answers
 * (client/kv_receive.c).
 */
#include "ps/client/kv.h"

#include "base/memory.h"
#include "net/bytes.h"

/* --- works --- */

tri_kv_work *tri_ps_kv_work(tri_ps_client *client)
{
    tri_kv_work *work = tri_alloc_zero(1, sizeof(*work));
    if (!work)
        return NULL;
    work->client = client;
    work->clock = INT64_MAX;
    return work;
}

static bool is_done(void *arg)
{
    const tri_kv_work *work = arg;
    return work->missing == 0 && work->borrowed == 0;
}

unsigned char *tri_ps_kv_call_join(const ps_call *call)
{
    size_t at = (size_t)call->head.nbytes - ps_call_lent_nbytes(call);
    unsigned char *body = tri_alloc((size_t)call->head.nbytes);
    if (!body)
        return NULL;
    memcpy(body, call->body, at);
    for (int i = 0; i < 2; at += call->lent[i++].nbytes)
        if (call->lent[i].nbytes > 0)
            memcpy(body + at, call->lent[i].bytes, call->lent[i].nbytes);
    return body;
}

/* What was lent becomes the call's own. */
static tri_status lent_copy(ps_call *call)
{
    unsigned char *body = tri_ps_kv_call_join(call);
    if (!body)
        return TRI_ENOMEM;
    tri_free(call->body);
    call->body = body;
    memset(call->lent, 0, sizeof(call->lent));
    return TRI_OK;
}

/* Answers that still come find nobody, and the caller's memory is its own again: a connection that is in the middle of
 * it is cut. What was not answered is still said. */
static void work_forget(tri_kv_work *work)
{
    tri_ps_client *client = work->client;
    for (int s = 0; client->kv && s < client->setup.servers && work->borrowed > 0; s++)
        client->links[s].cut = true;
    if (work->borrowed > 0)
        tri_endpoint_wake(client->endpoint);
    while (work->borrowed > 0)
        (void)tri_cond_wait(&client->moved, &client->mutex, TRI_FOREVER);
    for (int s = 0; client->kv && s < client->setup.servers; s++)
        for (ps_call *call = client->kv->links[s].calls, *next; call; call = next) {
            next = call->next;
            if (call->work != work)
                continue;
            call->work = NULL;
            if (ps_call_lent_nbytes(call) == 0 || lent_copy(call) == TRI_OK)
                continue;
            tri_ps_client_fail(client, TRI_ENOMEM);
            tri_ps_kv_call_free(tri_ps_kv_call_take(client, s, call->head.request));
        }
}

static tri_status work_await(tri_kv_work *work, const char *what)
{
    tri_ps_client *client = work->client;
    tri_mutex_lock(&client->mutex);
    tri_status status = tri_ps_await(client, is_done, work, what);
    work_forget(work);
    tri_mutex_unlock(&client->mutex);
    if (status == TRI_OK && work->status != TRI_OK)
        status = tri_fail_copy(work->status, work->message ? work->message : "out of memory");
    return status == TRI_OK && work->then ? work->then(work) : status;
}

static void work_free(tri_kv_work *work)
{
    tri_string_fini(&work->text);
    tri_free(work->message);
    tri_free(work->folder);
    tri_free(work);
}

tri_status tri_kv_wait(tri_kv_work *work)
{
    if (!work)
        return TRI_OK;
    tri_status status = work_await(work, "rows of parameter servers");
    work_free(work);
    return status;
}

tri_status tri_ps_kv_opened(tri_kv_work *work, int64_t *step)
{
    tri_status status = work_await(work, "opening a table");
    if (status == TRI_OK)
        *step = work->clock;
    work_free(work);
    return status;
}

tri_status tri_ps_kv_end(tri_kv_work *made, tri_status status, const char *what, tri_kv_work **work)
{
    if (status == TRI_OK && work) {
        *work = made;
        return TRI_OK;
    }
    if (status == TRI_OK)
        status = work_await(made, what);
    else {
        tri_mutex_lock(&made->client->mutex);
        work_forget(made);
        tri_mutex_unlock(&made->client->mutex);
    }
    work_free(made);
    return status;
}

/* --- calls --- */

void tri_ps_kv_call_free(ps_call *call)
{
    if (!call)
        return;
    tri_free(call->body);
    tri_free(call->at);
    tri_free(call);
}

typedef struct room {
    const ps_kv_connections *connections;
    const ps_call *call;
} room;

static bool has_room(void *arg)
{
    const room *at = arg;
    size_t under_way = at->connections->links[at->call->server].under_way;
    return under_way == 0 || under_way + at->call->weight <= at->connections->window;
}

tri_status tri_ps_kv_call(tri_ps_client *client, ps_call *call)
{
    ps_kv_connections *connections = client->kv;
    room at = {connections, call};
    tri_mutex_lock(&client->mutex);
    tri_status status = tri_ps_await(client, has_room, &at, "room for another request (ps.window_kib)");
    if (status == TRI_OK) {
        call->head.request = call->order = ++connections->last;
        if (call->head.kind == PS_KV_PUSH)
            call->head.extra = (double)call->order;
        if (call->work)
            call->work->missing++;
        tri_ps_kv_insert(connections, call);
        if (!tri_ps_kv_fits(client, call)) /* the view has changed meanwhile: the client's thread finds it a place */
            client->look = true;
        tri_endpoint_wake(client->endpoint);
    }
    tri_mutex_unlock(&client->mutex);
    if (status != TRI_OK)
        tri_ps_kv_call_free(call);
    return status;
}

void tri_ps_kv_give_back(tri_ps_client *client, ps_call *call)
{
    call->filling = false;
    call->lender->borrowed--;
    call->lender = NULL;
    tri_cond_broadcast(&client->moved);
}

static void call_sent(void *arg, tri_status status)
{
    ps_call *call = arg;
    (void)status;
    call->posted--;
    if (call->lender && !call->filling && call->posted == 0) {
        tri_ps_client *client = call->lender->client;
        tri_mutex_lock(&client->mutex);
        tri_ps_kv_give_back(client, call);
        tri_mutex_unlock(&client->mutex);
    }
    if (call->answered && call->posted == 0)
        tri_ps_kv_call_free(call);
}

static tri_status call_endpoint(const ps_kv_link *link, tri_connection *connection, ps_call *call)
{
    ps_head head;
    tri_part body[TRI_MESSAGE_PARTS];
    tri_ps_kv_parts(link, call, &head, body);
    tri_message message = ps_head_write(&head);
    TRI_TRY(tri_connection_send_parts(connection, (unsigned)INT32_MAX, &message, body, call_sent, call));
    call->posted++;
    call->said = true;
    if (ps_call_lent_nbytes(call) > 0 && !call->lender) {
        call->lender = call->work;
        call->lender->borrowed++;
    }
    return TRI_OK;
}

void tri_ps_kv_send(tri_ps_client *client)
{
    for (int s = 0; client->kv && s < client->setup.servers; s++) {
        tri_connection *connection = client->kv->links[s].is_stalled ? NULL : client->links[s].connection;
        for (ps_call *call = client->kv->links[s].calls; connection && call; call = call->next)
            if (!call->said && call_endpoint(&client->kv->links[s], connection, call) != TRI_OK) {
                tri_ps_client_fail(client, TRI_ENOMEM);
                return;
            }
    }
}

/* Tables first, since the server may be new, then all that was not answered, in order. */
void tri_ps_kv_greet(tri_ps_client *client, int server)
{
    tri_mutex_lock(&client->mutex);
    for (const ps_kv_open *open = client->kv ? client->kv->opens : NULL; open; open = open->next) {
        tri_message message = ps_head_write(&(ps_head){.kind = PS_KV_OPEN, .nbytes = open->text.nbytes});
        if (tri_connection_send(client->links[server].connection, (unsigned)INT32_MAX, &message, open->text.text, NULL,
                                NULL))
            tri_ps_client_fail(client, TRI_ENOMEM);
    }
    for (ps_call *call = client->kv ? client->kv->links[server].calls : NULL; call; call = call->next)
        call->said = false;
    if (client->kv) {
        client->kv->links[server].is_stalled = false;
        tri_ps_kv_known_forget(&client->kv->links[server]);
        client->kv->links[server].is_near = tri_connection_is_local(client->links[server].connection);
    }
    tri_mutex_unlock(&client->mutex);
}

void tri_ps_kv_moved(tri_ps_client *client, int server, uint64_t request)
{
    ps_kv_link *link = client->kv ? &client->kv->links[server] : NULL;
    for (const ps_call *call = link ? link->calls : NULL; call; call = call->next)
        if (call->head.request == request)
            link->is_stalled = client->look = true;
}

tri_status tri_ps_kv_open_note(tri_ps_client *client, const tri_string *text)
{
    ps_kv_open *open = tri_alloc_zero(1, sizeof(*open));
    tri_status status = open ? tri_string_append_bytes(&open->text, text->text, text->nbytes) : TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_free(open);
        return status;
    }
    tri_mutex_lock(&client->mutex);
    open->next = client->kv->opens;
    client->kv->opens = open;
    tri_mutex_unlock(&client->mutex);
    return TRI_OK;
}

bool tri_ps_kv_serves(tri_ps_client *client, int server)
{
    tri_mutex_lock(&client->mutex);
    bool serves = ps_view_has(&client->view, server);
    tri_mutex_unlock(&client->mutex);
    return serves;
}

/* --- the same to all --- */

static ps_call *ask_make(const tri_kv_table *table, const ps_head *head, const void *body, const ps_slots *slots,
                         int server)
{
    ps_call *call = tri_alloc_zero(1, sizeof(*call));
    if (!call)
        return NULL;
    call->server = server;
    call->head = *head;
    call->head.nbytes = slots ? sizeof(ps_slots) : head->nbytes;
    call->head.table = table ? table->id : 0;
    call->of_slots = slots != NULL;
    call->slots = slots ? *slots : (ps_slots){{0}};
    call->weight = TRI_MESSAGE_NBYTES + call->head.nbytes;
    call->body = tri_alloc(call->head.nbytes);
    if (!call->body) {
        tri_ps_kv_call_free(call);
        return NULL;
    }
    if (slots)
        for (int i = 0; i < PS_SLOTS / 64; i++)
            tri_bytes_write_u64(call->body + 8 * i, call->slots.bits[i]);
    else if (head->nbytes > 0)
        memcpy(call->body, body, head->nbytes);
    return call;
}

tri_status tri_ps_kv_ask_one(tri_ps_client *client, tri_kv_work *work, const tri_kv_table *table, const ps_head *head,
                             const void *body, const ps_slots *slots, int server)
{
    ps_call *call = ask_make(table, head, body, slots, server);
    if (!call)
        return TRI_ENOMEM;
    call->work = work;
    return tri_ps_kv_call(client, call);
}

tri_status tri_ps_kv_ask(tri_ps_client *client, tri_kv_work *work, const tri_kv_table *table, const ps_head *head,
                         const void *body, bool slots, const char *what)
{
    for (int s = 0; s < client->setup.servers; s++) {
        tri_mutex_lock(&client->mutex);
        bool serves = ps_view_has(&client->view, s);
        ps_slots own = client->kv->slots[s];
        tri_mutex_unlock(&client->mutex);
        if (serves)
            TRI_TRY_IN(tri_ps_kv_ask_one(client, work, table, head, body, slots ? &own : NULL, s), "%s", what);
    }
    return TRI_OK;
}

tri_status tri_ps_kv_ask_slot(tri_ps_client *client, tri_kv_work *work, const ps_head *head, int slot)
{
    ps_slots slots = {{0}};
    ps_slots_add(&slots, slot);
    tri_mutex_lock(&client->mutex);
    int server = client->view.slots[slot];
    tri_mutex_unlock(&client->mutex);
    return tri_ps_kv_ask_one(client, work, NULL, head, NULL, &slots, server);
}

/* --- open and close --- */

tri_status tri_ps_kv_open(tri_ps_client *client, uint64_t *stops)
{
    ps_kv_connections *connections = tri_alloc_zero(1, sizeof(*connections));
    tri_kv_work *work = tri_ps_kv_work(client);
    if (!connections || !work) {
        tri_free(connections);
        tri_free(work);
        return TRI_ENOMEM;
    }
    connections->window = (size_t)client->setup.ps->window_kib * 1024;
    tri_mutex_lock(&client->mutex);
    client->kv = connections;
    for (int s = 0; s < client->setup.servers; s++)
        connections->links[s].is_near =
            client->links[s].connection && tri_connection_is_local(client->links[s].connection);
    tri_ps_kv_reown(client);
    tri_mutex_unlock(&client->mutex);
    ps_head head = {.kind = PS_KV_JOIN};
    tri_status status = tri_ps_kv_ask(client, work, NULL, &head, NULL, false, "joining the servers");
    if (status == TRI_OK)
        status = work_await(work, "joining the servers");
    if (status == TRI_OK) {
        connections->last = work->last > connections->last ? work->last : connections->last;
        *stops = work->stops;
    }
    return tri_ps_kv_end(work, status, "", NULL);
}

void tri_ps_kv_close(tri_ps_client *client)
{
    for (int s = 0; client->kv && s < client->setup.servers; s++)
        while (client->kv->links[s].calls) {
            ps_call *call = client->kv->links[s].calls;
            client->kv->links[s].calls = call->next;
            tri_ps_kv_call_free(call);
        }
    while (client->kv && client->kv->opens) {
        ps_kv_open *open = client->kv->opens;
        client->kv->opens = open->next;
        tri_string_fini(&open->text);
        tri_free(open);
    }
    tri_free(client->kv);
    client->kv = NULL;
}
