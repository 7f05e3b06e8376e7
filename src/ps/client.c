/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: lines to the servers: found in the store, dialed, greeted, turned by a thread, dialed again when lost.
 */
#include "ps/client.h"

#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "base/memory.h"
#include "ps/client_impl.h"
#include "ps/client_kv.h"
#include "ps/views.h"

/* Between two tries to reach a server. */
#define DIAL_EVERY_NS (50 * TRI_NS_PER_MS)

void tri_ps_key(int number, char key[TRI_PS_KEY_NBYTES])
{
    snprintf(key, TRI_PS_KEY_NBYTES, "ps/server/%d", number);
}

void tri_ps_client_fail(tri_ps_client *client, tri_status status)
{
    if (client->status == TRI_OK) {
        client->status = status;
        snprintf(client->message, sizeof(client->message), "%s", tri_last_error());
    }
    tri_cond_broadcast(&client->moved);
}

void tri_ps_queue(tri_ps_client *client, int server, unsigned priority, const ps_head *head, const void *body)
{
    ps_command command = {.server = server, .priority = priority, .head = *head, .body = body};
    bool first = client->commands.count == 0;
    if (!tri_vector_push(&client->commands, &command))
        tri_ps_client_fail(client, TRI_ENOMEM);
    if (first)
        tri_post_wake(client->post);
}

tri_status tri_ps_await(tri_ps_client *client, bool (*done)(void *arg), void *arg, const char *what)
{
    double limit_s = client->setup.net->timeout_s;
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(limit_s * 1e3));
    while (client->status == TRI_OK && !done(arg))
        if (!tri_cond_wait(&client->moved, &client->mutex, deadline_ns) && client->status == TRI_OK && !done(arg))
            return tri_fail(TRI_ETIMEOUT,
                            "%s: the parameter servers did not answer within %g s (comm.timeout_s): some "
                            "worker may be late or gone",
                            what, limit_s);
    return client->status == TRI_OK ? TRI_OK : tri_fail_copy(client->status, client->message);
}

/* --- questions to all servers --- */

/* Servers that are gone owe nothing; nor do those that a worker leaves and that are gone before. */
static bool all_answered(void *arg)
{
    const tri_ps_client *client = arg;
    for (int s = 0; s < client->setup.servers; s++) {
        const ps_link *link = &client->links[s];
        bool owes = ps_view_has(&client->view, s) && !(client->leaving && !link->line);
        if (owes && link->answers < client->wanted[s])
            return false;
    }
    return true;
}

static void ask_queue(tri_ps_client *client, int server)
{
    ps_head head = *client->asked;
    head.table = client->links[server].table;
    if (client->links[server].answers < client->wanted[server])
        tri_ps_queue(client, server, (unsigned)INT32_MAX, &head, client->asked_body);
}

tri_status tri_ps_ask_all(tri_ps_client *client, ps_head head, const void *body, const char *what)
{
    client->asked = &head;
    client->asked_body = body;
    for (int s = 0; s < client->setup.servers; s++) {
        client->wanted[s] = client->links[s].answers + 1;
        ask_queue(client, s);
    }
    tri_status status = tri_ps_await(client, all_answered, client, what);
    client->asked = NULL;
    return status;
}

/* --- letters --- */

static int link_of(const tri_ps_client *client, const tri_line *line)
{
    for (int s = 0; s < client->setup.servers; s++)
        if (client->links[s].line == line)
            return s;
    return -1;
}

static void *on_place(void *arg, tri_line *line, const tri_letter *letter, bool *refused)
{
    tri_ps_client *client = arg;
    ps_head head = ps_head_read(letter);
    tri_mutex_lock(&client->mutex);
    int server = link_of(client, line);
    void *place = client->dense && server >= 0 ? tri_ps_dense_place(client->dense, server, &head, refused) : NULL;
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

/* On a line that was made anew everything follows once the server has told its number of the table. */
static void take_open(tri_ps_client *client, ps_link *link, const ps_head *head)
{
    int server = (int)(link - client->links);
    link->table = head->table;
    link->opened = true;
    if (head->request == PS_AGAIN && client->dense)
        tri_ps_dense_resend(client->dense, server);
    if (head->request == PS_AGAIN && client->asked)
        ask_queue(client, server);
}

static void take_answer(tri_ps_client *client, ps_link *link, const ps_head *head, const char *body)
{
    switch (head->kind) {
    case PS_HELLO:
        return;
    case PS_MOVED:
        if (head->request != 0 && client->kv) {
            tri_ps_kv_moved(client, (int)(link - client->links), head->request);
            return;
        }
        take_moved(client, (int)(link - client->links), head);
        return;
    case PS_OPEN:
        take_open(client, link, head);
        if (head->request == PS_AGAIN)
            return;
        break;
    case PS_STATS:
        if (link == client->links && tri_string_append_bytes(&client->stats, body, head->nbytes) != TRI_OK)
            tri_ps_client_fail(client, TRI_ENOMEM);
        break;
    case PS_REFUSED: {
        tri_status status = head->extra > 0 && head->extra < 64 ? (tri_status)head->extra : TRI_EPEER;
        tri_ps_client_fail(client, tri_fail(status, "parameter server %d: %.*s", (int)(link - client->links),
                                            (int)head->nbytes, body));
        return;
    }
    default:
        break;
    }
    link->clock = head->clock;
    link->extra = head->extra;
    link->answers++;
}

static bool on_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    tri_ps_client *client = arg;
    ps_head head = ps_head_read(letter);
    tri_counter_add(TRI_COUNT_RECEIVED_NBYTES, letter->nbytes);
    tri_mutex_lock(&client->mutex);
    int server = link_of(client, line);
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

static void link_lost(tri_ps_client *client, int server, const char *why)
{
    ps_link *link = &client->links[server];
    link->line = NULL;
    link->opened = link->cut = false;
    link->dial_ns = 0;
    link->lost_ns = tri_now_ns();
    client->look = true;
    snprintf(link->why, sizeof(link->why), "%s", why);
    if (client->dense)
        tri_ps_dense_lost(client->dense, server);
}

static void on_closed(void *arg, tri_line *line, const char *why)
{
    tri_ps_client *client = arg;
    tri_mutex_lock(&client->mutex);
    int server = link_of(client, line);
    if (server >= 0) {
        link_lost(client, server, why);
        if (!client->leaving && !client->closing && !tri_stop_signal() && ps_view_has(&client->view, server))
            tri_log(TRI_LOG_WARN, "lost parameter server %d: %s", server, why);
    }
    tri_cond_broadcast(&client->moved);
    tri_mutex_unlock(&client->mutex);
}

/* --- the thread --- */

static void sent_nothing(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
}

/* Letters that were queued go to their lines; those of a line that is lost are said again when it is back, as far as
 * they are still wanted. */
static void commands_send(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    for (size_t i = 0; i < client->commands.count; i++) {
        const ps_command *command = tri_vector_at(&client->commands, i);
        const ps_link *link = &client->links[command->server];
        tri_letter letter = ps_head_write(&command->head);
        bool ready = link->line && (link->opened || !client->dense || command->head.kind == PS_LOOK);
        if (ready && tri_post_send(link->line, command->priority, &letter, command->body, sent_nothing, NULL))
            tri_ps_client_fail(client, TRI_ENOMEM);
        tri_counter_add(TRI_COUNT_SENT_NBYTES, ready ? letter.nbytes : 0);
    }
    client->commands.count = 0;
    tri_ps_kv_send(client);
    tri_mutex_unlock(&client->mutex);
}

static tri_status address_find(tri_ps_client *client, int server, int64_t deadline_ns, char **out)
{
    char key[TRI_PS_KEY_NBYTES];
    size_t nbytes;
    if (!client->setup.store) {
        *out = tri_strdup(client->setup.addresses[server]);
        return *out ? TRI_OK : TRI_ENOMEM;
    }
    tri_ps_key(server, key);
    return tri_store_wait(client->setup.store, key, out, &nbytes, deadline_ns);
}

/* Dials, and says who we are; letters of the line wait behind it. */
static tri_status link_dial(tri_ps_client *client, int server, int64_t deadline_ns)
{
    char *address = NULL;
    tri_line *line;
    TRI_TRY(address_find(client, server, deadline_ns, &address));
    tri_status status = tri_post_dial(client->post, address, deadline_ns, &line);
    tri_free(address);
    TRI_TRY(status);
    ps_head head = {.kind = PS_HELLO, .request = PS_VERSION, .clock = client->setup.worker};
    tri_letter letter = ps_head_write(&head);
    client->links[server].line = line;
    client->links[server].lost_ns = 0;
    TRI_TRY(tri_post_send(line, (unsigned)INT32_MAX, &letter, NULL, NULL, NULL));
    if (!client->dense)
        return TRI_OK;
    head =
        (ps_head){.kind = PS_OPEN, .flags = PS_FLAG_STARTS, .request = PS_AGAIN, .nbytes = client->dense->text.nbytes};
    letter = ps_head_write(&head);
    return tri_post_send(line, (unsigned)INT32_MAX, &letter, tri_string_text(&client->dense->text), NULL, NULL);
}

/* A slot may have gone away and come back between two views of this client: nobody else was told what was refused. */
static void refused_resend(tri_ps_client *client)
{
    for (int s = 0; s < client->setup.servers; s++) {
        ps_link *link = &client->links[s];
        if (link->refused && link->opened && client->dense)
            tri_ps_dense_resend(client->dense, s);
        link->refused = false;
    }
}

/* Who serves what may have changed. */
static void view_look(tri_ps_client *client)
{
    ps_view *newest = client->setup.store ? tri_alloc(sizeof(*newest)) : NULL;
    if (!newest)
        return;
    *newest = client->view;
    tri_status status = tri_ps_views_look(client->setup.store, newest);
    tri_mutex_lock(&client->mutex);
    client->look = status != TRI_OK;
    if (status == TRI_OK && newest->version > client->view.version) {
        client->view = *newest;
        if (client->dense)
            tri_ps_dense_reown(client->dense);
        tri_cond_broadcast(&client->moved);
    }
    if (status == TRI_OK) {
        tri_ps_kv_reown(client);
        refused_resend(client);
    }
    tri_mutex_unlock(&client->mutex);
    tri_free(newest);
}

/* A server that is lost is tried again, until another one has taken its place; after ps.retry_s the client gives up. */
static void link_mend(tri_ps_client *client, int server)
{
    ps_link *link = &client->links[server];
    int64_t now_ns = tri_now_ns();
    if (link->line || now_ns < link->dial_ns || !ps_view_has(&client->view, server))
        return;
    link->dial_ns = now_ns + DIAL_EVERY_NS;
    if (link_dial(client, server, now_ns + DIAL_EVERY_NS / 2) == TRI_OK) {
        tri_ps_kv_greet(client, server);
        tri_mutex_lock(&client->mutex);
        if (!client->dense && client->asked) /* else once it has told its number of the table */
            ask_queue(client, server);
        tri_mutex_unlock(&client->mutex);
        return;
    }
    client->look = true;
    if (now_ns - link->lost_ns < (int64_t)(client->setup.ps->retry_s * 1e9))
        return;
    tri_mutex_lock(&client->mutex);
    tri_ps_client_fail(client, tri_fail(TRI_EPEER,
                                        "parameter server %d is lost (%s) and was not there again within %g s "
                                        "(ps.retry_s)%s",
                                        server, link->why, client->setup.ps->retry_s,
                                        client->setup.ps->replicas > 1 ? "" : ": ps.replicas 2 goes on without it"));
    tri_mutex_unlock(&client->mutex);
}

static void links_cut(tri_ps_client *client)
{
    for (int s = 0; s < client->setup.servers; s++) {
        tri_line *line = client->links[s].cut ? client->links[s].line : NULL;
        if (!line)
            continue;
        tri_mutex_lock(&client->mutex);
        link_lost(client, s, "its slots went to another server");
        tri_mutex_unlock(&client->mutex);
        tri_line_hang_up(line);
    }
}

static void links_mend(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    bool look = client->look, leaving = client->leaving;
    tri_mutex_unlock(&client->mutex);
    if (leaving)
        return;
    if (look)
        view_look(client);
    links_cut(client);
    for (int s = 0; s < client->setup.servers; s++)
        link_mend(client, s);
}

static bool is_closing(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    bool closing = client->closing;
    tri_mutex_unlock(&client->mutex);
    return closing;
}

static void client_body(void *arg)
{
    tri_ps_client *client = arg;
    while (!is_closing(client)) {
        links_mend(client);
        commands_send(client);
        tri_status status = tri_post_turn(client->post, tri_now_ns() + DIAL_EVERY_NS);
        if (status != TRI_OK) {
            tri_mutex_lock(&client->mutex);
            tri_ps_client_fail(client, status);
            tri_mutex_unlock(&client->mutex);
            return;
        }
    }
}

/* --- open and close --- */

static tri_status links_open(tri_ps_client *client)
{
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(client->setup.net->timeout_s * 1e3));
    for (int s = 0; s < client->setup.servers; s++)
        if (ps_view_has(&client->view, s))
            TRI_TRY_IN(link_dial(client, s, deadline_ns), "while reaching parameter server %d of %d", s,
                       client->setup.servers);
    return tri_thread_start(&client->thread, "ps client", client_body, client);
}

tri_status tri_ps_client_open(const tri_ps_client_setup *setup, tri_ps_client **out)
{
    if (setup->servers < 1 || setup->servers > PS_MAX_SERVERS)
        return tri_fail(TRI_ECONFIG, "parameter servers: want 1 to %d, got %d", PS_MAX_SERVERS, setup->servers);
    tri_ps_client *client = tri_alloc_zero(1, sizeof(*client));
    if (!client)
        return TRI_ENOMEM;
    client->setup = *setup;
    client->commands.each = sizeof(ps_command);
    tri_mutex_init(&client->mutex);
    tri_cond_init(&client->moved);
    client->links = tri_alloc_zero((size_t)setup->servers, sizeof(ps_link));
    tri_post_setup post = {.name = "worker",
                           .config = setup->net,
                           .token = setup->token,
                           .body_limit = PS_BODY_LIMIT_NBYTES,
                           .hub = setup->hub,
                           .rank = setup->rank,
                           .world = setup->world,
                           .handlers = {.arg = client, .place = on_place, .letter = on_letter, .closed = on_closed}};
    tri_status status = client->links ? ps_view_first(setup->servers, &client->view) : TRI_ENOMEM;
    if (status == TRI_OK && setup->store) /* one that was started again may find another */
        status = tri_ps_views_look(setup->store, &client->view);
    if (status == TRI_OK)
        status = tri_post_open(&post, &client->post);
    if (status == TRI_OK)
        status = links_open(client);
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

tri_status tri_ps_client_bye(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    client->leaving = true;
    tri_status status = tri_ps_ask_all(client, (ps_head){.kind = PS_BYE}, NULL, "goodbye");
    tri_mutex_unlock(&client->mutex);
    if (status == TRI_OK && client->setup.store && client->setup.ps->replicas > 1) /* one may come back yet */
        status = tri_ps_views_left(client->setup.store, client->setup.worker);
    return status;
}

void tri_ps_client_close(tri_ps_client *client)
{
    if (!client)
        return;
    tri_mutex_lock(&client->mutex);
    client->closing = true;
    tri_mutex_unlock(&client->mutex);
    if (client->post)
        tri_post_wake(client->post);
    tri_thread_join(client->thread);
    tri_post_close(client->post);
    tri_ps_kv_close(client);
    tri_vector_fini(&client->commands);
    tri_string_fini(&client->stats);
    tri_free(client->links);
    tri_mutex_fini(&client->mutex);
    tri_cond_fini(&client->moved);
    tri_free(client);
}
