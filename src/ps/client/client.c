/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: a worker's client: opened, closed, and what the messages of servers mean. Connections and their thread are
 * in connections.c, questions to servers in requests.c.
 */
#include "ps/client/client.h"

#include "base/events.h"
#include "base/log.h"
#include "base/memory.h"
#include "ps/client/client_impl.h"
#include "ps/client/kv.h"
#include "ps/views.h"

/* For all to answer a goodbye, where there are backups. */
#define LEAVE_MS 3000
/* Of who waits for the leader: each look is two questions to the store. */
#define LEADER_LOOK_NS (100 * TRI_NS_PER_MS)

/* --- messages --- */

static int link_of(const tri_ps_client *client, const tri_connection *connection)
{
    for (int s = 0; s < client->setup.servers; s++)
        if (client->links[s].connection == connection)
            return s;
    return -1;
}

static void *on_place(void *arg, tri_connection *connection, const tri_message *message, bool *refused)
{
    tri_ps_client *client = arg;
    ps_head head = ps_head_read(message);
    tri_mutex_lock(&client->mutex);
    int server = link_of(client, connection);
    void *place = NULL;
    if (server >= 0 && ps_kind_is_kv(head.kind))
        place = tri_ps_kv_place(client, server, &head);
    else if (server >= 0 && client->dense)
        place = tri_ps_dense_place(client->dense, server, &head, refused);
    tri_mutex_unlock(&client->mutex);
    return place;
}

/* A server says that a block is not its own: either this client's view is old, or the server's. */
static void take_moved(tri_ps_client *client, int server, const ps_head *moved)
{
    if ((uint64_t)moved->clock >= client->view.version) {
        client->look = true;
        if (moved->flags & PS_FLAG_REFUSED)
            client->links[server].refused = true;
        return;
    }
    ps_head head = {.kind = PS_LOOK, .clock = (int64_t)client->view.version};
    tri_ps_queue(client, server, (unsigned)INT32_MAX, &head, NULL);
    if (client->dense)
        tri_ps_dense_resend(client->dense, server);
}

/* After a reconnect everything follows once the server has sent its number of the table. */
static void take_open(tri_ps_client *client, ps_link *link, const ps_head *head)
{
    int server = (int)(link - client->links);
    link->table = head->table;
    if (head->request == PS_AGAIN && head->clock == PS_CLOCK_LOST && client->refill) {
        link->empty = true;
        return;
    }
    link->opened = true;
    if (head->request == PS_AGAIN && client->dense)
        tri_ps_dense_resend(client->dense, server);
    if (head->request == PS_AGAIN && client->asked)
        tri_ps_ask_again(client, server);
}

static void take_answer(tri_ps_client *client, ps_link *link, const ps_head *head, const char *body)
{
    switch (head->kind) {
    case PS_HELLO:
        return;
    case PS_MOVED:
        if (head->request != 0 && client->kv && head->flags & PS_FLAG_LISTED) {
            tri_ps_kv_refused(client, (int)(link - client->links), head->request);
            return;
        }
        if (head->request != 0 && client->kv) {
            tri_ps_kv_moved(client, (int)(link - client->links), head->request);
            return;
        }
        take_moved(client, (int)(link - client->links), head);
        return;
    case PS_READY:
        if (head->request == PS_AGAIN) {
            link->refilled = true;
            return;
        }
        break;
    case PS_OPEN:
        take_open(client, link, head);
        if (head->request == PS_AGAIN)
            return;
        break;
    case PS_STATS:
        link->heard_ns = tri_now_ns();
        if (head->flags & PS_FLAG_EVENTS) {
            tri_string_clear(&link->events);
            if (tri_string_append_bytes(&link->events, body, head->nbytes) != TRI_OK)
                tri_ps_client_fail(client, TRI_ENOMEM);
        } else if (link == &client->links[client->home] &&
                   tri_string_append_bytes(&client->stats, body, head->nbytes) != TRI_OK)
            tri_ps_client_fail(client, TRI_ENOMEM);
        break;
    case PS_NOTE:
        tri_string_clear(&link->events);
        if (tri_string_append_bytes(&link->events, body, head->nbytes) != TRI_OK)
            tri_ps_client_fail(client, TRI_ENOMEM);
        break;
    case PS_SAVE:
        if (head->extra != 0 && client->save_why.nbytes == 0 &&
            tri_string_append_bytes(&client->save_why, body, head->nbytes) != TRI_OK)
            tri_ps_client_fail(client, TRI_ENOMEM);
        break;
    case PS_REFUSED: {
        tri_status status = head->extra > 0 && head->extra < 64 ? (tri_status)head->extra : TRI_EPEER;
        client->is_past = client->is_past || (status == TRI_EABORT && client->status == TRI_OK);
        tri_ps_client_fail(client, tri_fail(status, "parameter server %d: %.*s", (int)(link - client->links),
                                            (int)head->nbytes, body));
        return;
    }
    default:
        break;
    }
    if (head->request != link->question) /* asked again since */
        return;
    link->clock = head->clock;
    link->extra = head->extra;
    link->answered = head->request;
}

static bool on_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    tri_ps_client *client = arg;
    ps_head head = ps_head_read(message);
    tri_counter_add(TRI_COUNT_RECEIVED_NBYTES, message->nbytes);
    tri_mutex_lock(&client->mutex);
    int server = link_of(client, connection);
    if (head.kind == PS_KV_DONE || head.kind == PS_KV_FAILED) {
        tri_mutex_unlock(&client->mutex);
        if (server >= 0)
            tri_ps_kv_take(client, server, &head, body);
        return true;
    }
    bool of_dense = head.kind == PS_VALUES || head.kind == PS_STATE || head.kind == PS_SQUARES ||
                    head.kind == PS_TAIL || head.kind == PS_CLOCK;
    if (server >= 0 && of_dense && client->dense)
        tri_ps_dense_take(client->dense, server, &head, body);
    else if (server >= 0 && !of_dense)
        take_answer(client, &client->links[server], &head, body);
    tri_cond_broadcast(&client->moved);
    tri_mutex_unlock(&client->mutex);
    return true;
}

static void on_closed(void *arg, tri_connection *connection, const char *why)
{
    tri_ps_client *client = arg;
    tri_mutex_lock(&client->mutex);
    int server = link_of(client, connection);
    if (server >= 0) {
        tri_ps_link_lost(client, server, why);
        if (!client->leaving && !client->closing && !tri_stop_signal() && ps_view_has(&client->view, server))
            tri_log(TRI_LOG_WARN, "lost parameter server %d: %s", server, why);
    }
    tri_cond_broadcast(&client->moved);
    tri_mutex_unlock(&client->mutex);
}

/* --- open and close --- */

tri_status tri_ps_client_open(const tri_ps_client_setup *setup, tri_ps_client **out)
{
    if (setup->servers < 1 || setup->servers > PS_MAX_SERVERS)
        return tri_fail(TRI_ECONFIG, "parameter servers: want 1 to %d, got %d", PS_MAX_SERVERS, setup->servers);
    tri_ps_client *client = tri_alloc_zero(1, sizeof(*client));
    if (!client)
        return TRI_ENOMEM;
    client->setup = *setup;
    client->commands.each = sizeof(ps_command);
    client->question = PS_AGAIN;
    tri_mutex_init(&client->mutex);
    tri_cond_init(&client->moved);
    client->links = tri_alloc_zero((size_t)setup->servers, sizeof(ps_link));
    tri_endpoint_setup endpoint = {
        .name = "worker",
        .config = setup->net,
        .token = setup->token,
        .body_limit = PS_BODY_LIMIT_NBYTES,
        .hub = setup->hub,
        .rank = setup->rank,
        .world = setup->world,
        .handlers = {.arg = client, .place = on_place, .message = on_message, .closed = on_closed}};
    tri_status status = client->links ? ps_view_first(setup->servers, &client->view) : TRI_ENOMEM;
    if (status == TRI_OK && setup->hosts)
        ps_view_spread(&client->view, setup->hosts);
    if (status == TRI_OK && setup->store) /* one that was started again may find another */
        status = tri_ps_views_look(setup->store, TRI_PS_VIEWS_MS, &client->view);
    if (status == TRI_OK && setup->store)
        status = tri_ps_views_era(setup->store, 0, &client->era);
    if (status == TRI_OK)
        status = tri_endpoint_open(&endpoint, &client->endpoint);
    if (status == TRI_OK)
        status = tri_ps_connections_open(client);
    if (status != TRI_OK) {
        tri_ps_client_close(client);
        return status;
    }
    *out = client;
    return TRI_OK;
}

const tri_ps_client_setup *tri_ps_client_setup_of(const tri_ps_client *client)
{
    return &client->setup;
}

void tri_ps_client_refill_set(tri_ps_client *client, tri_ps_refill refill, void *arg)
{
    tri_mutex_lock(&client->mutex);
    client->refill = refill;
    client->refill_arg = arg;
    tri_mutex_unlock(&client->mutex);
}

int64_t tri_ps_client_era(const tri_ps_client *client)
{
    return client->era;
}

bool tri_ps_client_is_past(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    bool is_past = client->is_past;
    tri_mutex_unlock(&client->mutex);
    return is_past;
}

tri_status tri_ps_client_stats(tri_ps_client *client, tri_string *out)
{
    tri_mutex_lock(&client->mutex);
    tri_string_clear(&client->stats);
    tri_status status = tri_ps_ask_all(client, (ps_head){.kind = PS_STATS}, NULL, "how the servers do");
    if (status == TRI_OK)
        status = tri_string_append(out, tri_string_text(&client->stats));
    tri_mutex_unlock(&client->mutex);
    return status;
}

/* The mutex is held. */
static void leaving_begin(tri_ps_client *client)
{
    client->leaving = true;
    client->leave_ns = tri_deadline_after_ms(LEAVE_MS);
}

tri_status tri_ps_client_done(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    leaving_begin(client);
    tri_mutex_unlock(&client->mutex);
    return client->setup.store ? tri_ps_views_left(client->setup.store, client->setup.worker) : TRI_OK;
}

tri_status tri_ps_client_bye(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    leaving_begin(client);
    tri_status status = tri_ps_ask_all(client, (ps_head){.kind = PS_BYE}, NULL, "goodbye");
    tri_mutex_unlock(&client->mutex);
    if (status == TRI_OK && client->setup.store) /* a server may come back yet, and others wait for the leader */
        status = tri_ps_views_left(client->setup.store, client->setup.worker);
    return status;
}

/* Who has closed its table is not refused: it has to look itself. The era first: a leader that is done when it is newer
 * needs nobody. */
static tri_status leader_look(tri_ps_client *client, bool *ends)
{
    int64_t era;
    bool done;
    *ends = true;
    if (tri_ps_views_era(client->setup.store, 0, &era) != TRI_OK ||
        tri_ps_views_has_left(client->setup.store, 0, TRI_PS_VIEWS_MS, &done) != TRI_OK)
        return TRI_OK;
    tri_mutex_lock(&client->mutex);
    if (era > client->era && !done) {
        client->is_past = true;
        tri_ps_client_fail(client, tri_fail(TRI_EABORT, "a server was lost since the last step"));
    }
    tri_status status = client->status;
    tri_mutex_unlock(&client->mutex);
    *ends = done || status != TRI_OK;
    return status;
}

tri_status tri_ps_client_await_leader(tri_ps_client *client, bool heeds)
{
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(client->setup.net->timeout_s * 1e3));
    while (client->setup.store) {
        bool ends;
        TRI_TRY(leader_look(client, &ends));
        if (ends || tri_now_ns() >= deadline_ns || (heeds && tri_stop_signal()))
            break;
        tri_sleep_ns(LEADER_LOOK_NS);
    }
    return TRI_OK;
}

void tri_ps_client_close(tri_ps_client *client)
{
    if (!client)
        return;
    tri_mutex_lock(&client->mutex);
    client->closing = true;
    tri_mutex_unlock(&client->mutex);
    if (client->endpoint)
        tri_endpoint_wake(client->endpoint);
    tri_thread_join(client->thread);
    tri_endpoint_close(client->endpoint);
    tri_ps_kv_close(client);
    tri_vector_fini(&client->commands);
    tri_string_fini(&client->stats);
    tri_string_fini(&client->save_why);
    for (int s = 0; client->links && s < client->setup.servers; s++)
        tri_string_fini(&client->links[s].events);
    tri_free(client->links);
    tri_mutex_fini(&client->mutex);
    tri_cond_fini(&client->moved);
    tri_free(client);
}
