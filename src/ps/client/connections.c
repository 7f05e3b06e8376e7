/* SPDX-License-Identifier: Apache-2.0
 *
 * connections.c: the thread of a worker that turns its connections: dialed, greeted, cut, dialed again when they are
 * lost; and messages that were queued go out.
 */
#include <stdio.h>

#include "base/events.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/wait.h"
#include "ps/client/client_impl.h"
#include "ps/client/kv.h"
#include "ps/views.h"

/* Between two looks at what is to be done. */
#define DIAL_EVERY_NS (50 * TRI_NS_PER_MS)
/* A try to reach a server that is lost holds up the thread, and so what other servers say. It may last as long as the
 * server has been lost, from the least to the most, and then as much time is left to the others: a far or busy server
 * is reached however long its answers take up to the most, and one that is dead costs no more than half of the time. */
#define REDIAL_LEAST_NS (25 * TRI_NS_PER_MS)
#define REDIAL_MOST_NS  TRI_NS_PER_S
/* One try of the first time: to a host that answers slowly it is made again. */
#define DIAL_FIRST_NS (2 * TRI_NS_PER_S)
/* At the newest view: the thread waits, and asks again. */
#define LOOK_MS 2000

void tri_ps_link_lost(tri_ps_client *client, int server, const char *why)
{
    ps_link *link = &client->links[server];
    link->connection = NULL;
    link->opened = link->cut = link->empty = false;
    link->dial_ns = 0;
    link->lost_ns = tri_now_ns();
    client->look = true;
    if (client->save_lost)
        atomic_store(client->save_lost, true);
    snprintf(link->why, sizeof(link->why), "%s", why);
    if (client->dense)
        tri_ps_dense_lost(client->dense, server);
    tri_ps_kv_lost(client, server);
}

/* --- out --- */

static void sent_nothing(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
}

/* Messages that were queued go to their connections; those of a connection that is lost are said again when it is back,
 * as far as they are still wanted. */
static void commands_send(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    for (size_t i = 0; i < client->commands.count; i++) {
        const ps_command *command = tri_vector_at(&client->commands, i);
        const ps_link *link = &client->links[command->server];
        tri_message message = ps_head_write(&command->head);
        bool ready = link->connection && (link->opened || !client->dense || command->head.kind == PS_LOOK);
        if (ready &&
            tri_connection_send(link->connection, command->priority, &message, command->body, sent_nothing, NULL))
            tri_ps_client_fail(client, TRI_ENOMEM);
        tri_counter_add(TRI_COUNT_SENT_NBYTES, ready ? message.nbytes : 0);
    }
    client->commands.count = 0;
    tri_ps_kv_send(client);
    tri_mutex_unlock(&client->mutex);
}

static tri_status address_find(tri_ps_client *client, int server, int64_t deadline_ns, char **out)
{
    char key[TRI_PS_ADDRESS_KEY_NBYTES];
    size_t nbytes;
    if (!client->setup.store) {
        *out = tri_strdup(client->setup.addresses[server]);
        return *out ? TRI_OK : TRI_ENOMEM;
    }
    tri_ps_address_key(server, key);
    return tri_store_wait(client->setup.store, key, out, &nbytes, deadline_ns);
}

/* The mutex is held. */
static tri_status hello_say(const tri_ps_client *client, tri_connection *connection)
{
    ps_head head = {.kind = PS_HELLO, .request = PS_VERSION, .clock = client->setup.worker};
    tri_message message = ps_head_write(&head);
    return tri_connection_send(connection, (unsigned)INT32_MAX, &message, NULL, NULL, NULL);
}

/* Once more, to a server that is there again. The mutex is held. */
static tri_status open_say(const tri_ps_client *client, tri_connection *connection)
{
    bool gives = client->refill || client->dense->consistency == PS_BSP || client->setup.ps->replicas > 1;
    ps_head head = {.kind = PS_OPEN,
                    .flags = gives ? PS_FLAG_STARTS : 0, /* else once the leader has given it values */
                    .request = PS_AGAIN,
                    .extra = (double)client->dense->dealt,
                    .nbytes = client->dense->text.nbytes};
    tri_message message = ps_head_write(&head);
    return tri_connection_send(connection, (unsigned)INT32_MAX, &message, tri_string_text(&client->dense->text), NULL,
                               NULL);
}

/* Dials, and says who we are; messages of the connection wait behind it. Once: not again where nobody listens. */
static tri_status link_dial(tri_ps_client *client, int server, bool once, int64_t deadline_ns)
{
    char *address = NULL;
    tri_connection *connection;
    TRI_TRY(address_find(client, server, deadline_ns, &address));
    tri_status status = once ? tri_endpoint_redial(client->endpoint, address, deadline_ns, &connection)
                             : tri_endpoint_dial(client->endpoint, address, deadline_ns, &connection);
    tri_free(address);
    TRI_TRY(status);
    tri_mutex_lock(&client->mutex); /* the table may be opened or closed just now */
    client->links[server].connection = connection;
    client->links[server].cut = false;
    client->links[server].lost_ns = 0;
    status = hello_say(client, connection);
    if (status == TRI_OK && client->dense)
        status = open_say(client, connection);
    tri_mutex_unlock(&client->mutex);
    return status;
}

/* A slot may have gone away and come back between two views of this client: nobody else was sent what was refused. */
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
    tri_status status = tri_ps_views_look(client->setup.store, LOOK_MS, newest);
    tri_mutex_lock(&client->mutex);
    client->look = status != TRI_OK;
    if (status == TRI_OK && newest->version > client->view.version) {
        client->view = *newest;
        for (int s = 0; s < client->setup.servers; s++) /* one that hangs keeps its connection */
            client->links[s].cut = client->links[s].cut || !ps_view_has(&client->view, s);
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

static int64_t redial_ns(int64_t wanted_ns)
{
    int64_t most_ns = wanted_ns < REDIAL_MOST_NS ? wanted_ns : REDIAL_MOST_NS;
    return most_ns > REDIAL_LEAST_NS ? most_ns : REDIAL_LEAST_NS;
}

/* A server that is lost is tried again, until another one has taken its place; after ps.retry_s the client gives up. */
static void link_renew(tri_ps_client *client, int server)
{
    ps_link *link = &client->links[server];
    int64_t now_ns = tri_now_ns();
    bool serves = ps_view_has(&client->view, server);
    if (!serves) /* who comes back, or was not there when this client began, has all of ps.retry_s again */
        link->lost_ns = 0;
    if (link->connection || now_ns < link->dial_ns || !serves)
        return;
    link->lost_ns = link->lost_ns == 0 ? now_ns : link->lost_ns;
    tri_status status = link_dial(client, server, true, now_ns + redial_ns(now_ns - link->lost_ns));
    int64_t end_ns = tri_now_ns();
    link->dial_ns = end_ns + redial_ns(end_ns - now_ns);
    if (status == TRI_OK) {
        tri_ps_kv_greet(client, server);
        tri_mutex_lock(&client->mutex);
        if (!client->dense && client->asked) /* else once it has sent its number of the table */
            tri_ps_ask_again(client, server);
        tri_mutex_unlock(&client->mutex);
        return;
    }
    client->look = true;
    if (now_ns - link->lost_ns < (int64_t)(client->setup.ps->retry_s * 1e9))
        return;
    tri_mutex_lock(&client->mutex);
    tri_ps_client_fail(client,
                       tri_fail(TRI_EPEER,
                                "parameter server %d is lost (%s) and was not there again within %g s "
                                "(ps.retry_s)%s",
                                server, link->why, client->setup.ps->retry_s,
                                client->setup.ps->replicas > 1 ? "" : ": with ps.replicas 2 its backup takes over"));
    tri_mutex_unlock(&client->mutex);
}

static void links_cut(tri_ps_client *client)
{
    for (int s = 0; s < client->setup.servers; s++) {
        tri_connection *connection = client->links[s].cut ? client->links[s].connection : NULL;
        if (!connection)
            continue;
        tri_mutex_lock(&client->mutex);
        tri_ps_link_lost(client, s, "what it was saying or hearing is not wanted any more");
        tri_mutex_unlock(&client->mutex);
        tri_connection_close(connection);
    }
}

static void links_renew(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    bool look = client->look, leaving = client->leaving, failed = client->status != TRI_OK;
    if (leaving) /* time passes */
        tri_cond_broadcast(&client->moved);
    tri_mutex_unlock(&client->mutex);
    if (leaving)
        return;
    if (look && !failed)
        view_look(client);
    links_cut(client);
    if (failed) /* nobody asks anything any more, and would be refused again and again */
        return;
    for (int s = 0; s < client->setup.servers; s++)
        link_renew(client, s);
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
        links_renew(client);
        commands_send(client);
        tri_status status = tri_endpoint_poll(client->endpoint, tri_now_ns() + DIAL_EVERY_NS);
        if (status != TRI_OK) {
            tri_mutex_lock(&client->mutex);
            tri_ps_client_fail(client, status);
            for (int s = 0; s < client->setup.servers; s++)
                client->links[s].cut = true;
            tri_mutex_unlock(&client->mutex);
            links_cut(client); /* what callers have lent is theirs again */
            return;
        }
    }
}

/* The first time. A server may have died since it left its address: another one is in its place, or it is back with a
 * new one. */
static tri_status link_open(tri_ps_client *client, int server, tri_wait *wait, int64_t deadline_ns)
{
    for (;;) {
        TRI_TRY(tri_wait_check("waiting for a parameter server"));
        int64_t try_ns = tri_now_ns() + DIAL_FIRST_NS;
        bool last = !client->setup.store || try_ns >= deadline_ns;
        tri_status status = link_dial(client, server, false, last ? deadline_ns : try_ns);
        if (status == TRI_OK || (last && status != TRI_ETIMEOUT))
            return status;
        if (last)
            return tri_fail(TRI_ETIMEOUT, "rank %d, a parameter server, did not join within %lld s",
                            client->setup.workers + server, tri_wait_limit_s(wait, deadline_ns));
        if (tri_wait_is_long(wait))
            tri_log(TRI_LOG_WARN, "waiting for rank %d of %d, a parameter server", client->setup.workers + server,
                    client->setup.workers + client->setup.servers);
        TRI_TRY(tri_ps_views_look(client->setup.store, TRI_PS_VIEWS_MS, &client->view));
        if (!ps_view_has(&client->view, server))
            return TRI_OK;
    }
}

tri_status tri_ps_connections_open(tri_ps_client *client)
{
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(client->setup.net->timeout_s * 1e3));
    tri_wait wait;
    tri_wait_begin(&wait);
    for (int s = 0; s < client->setup.servers; s++)
        if (ps_view_has(&client->view, s))
            TRI_TRY_IN(link_open(client, s, &wait, deadline_ns), "while reaching parameter server %d of %d", s,
                       client->setup.servers);
    return tri_thread_start(&client->thread, "ps client", client_body, client);
}
