/* SPDX-License-Identifier: Apache-2.0
 *
 * requests.c: what a worker asks servers: messages that wait for the client's thread, questions to all servers, and
 * waits for their answers.
 */
#include <stdio.h>

#include "ps/client/client_impl.h"

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
        tri_endpoint_wake(client->endpoint);
}

/* A server that has lost what it held is given it before anything else is waited for. */
static bool refill_one(tri_ps_client *client)
{
    for (int s = 0; s < client->setup.servers; s++) {
        ps_link *link = &client->links[s];
        if (!link->empty || !client->refill)
            continue;
        link->empty = false;
        tri_mutex_unlock(&client->mutex);
        tri_status status = client->refill(client->refill_arg, s);
        tri_mutex_lock(&client->mutex);
        if (status != TRI_OK && link->connection) /* else it was lost again, and will ask again */
            tri_ps_client_fail(client, status);
        return true;
    }
    return false;
}

tri_status tri_ps_await(tri_ps_client *client, bool (*done)(void *arg), void *arg, const char *what)
{
    double limit_s = client->setup.net->timeout_s;
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(limit_s * 1e3));
    while (client->status == TRI_OK && !done(arg))
        if (refill_one(client))
            deadline_ns = tri_deadline_after_ms((int64_t)(limit_s * 1e3));
        else if (!tri_cond_wait(&client->moved, &client->mutex, deadline_ns) && client->status == TRI_OK && !done(arg))
            return tri_fail(TRI_ETIMEOUT,
                            "%s: the parameter servers did not answer within %g s (comm.timeout_s): some "
                            "worker may be late or gone",
                            what, limit_s);
    return client->status == TRI_OK ? TRI_OK : tri_fail_copy(client->status, client->message);
}

/* --- questions to all servers --- */

/* Servers that are gone owe nothing; nor do those that a worker leaves and that are gone before, or hang when nobody is
 * left who could do without them: what they acknowledged is on their backups, and the store says that all have left. */
static bool all_answered(void *arg)
{
    const tri_ps_client *client = arg;
    for (int s = 0; s < client->setup.servers; s++) {
        const ps_link *link = &client->links[s];
        bool hangs = client->setup.ps->replicas > 1 && client->leaving && tri_now_ns() > client->leave_ns;
        bool owes = ps_view_has(&client->view, s) && !(client->leaving && !link->connection) && !hangs;
        if (owes && link->answered != link->question)
            return false;
    }
    return true;
}

void tri_ps_ask_server(tri_ps_client *client, int server)
{
    ps_link *link = &client->links[server];
    ps_head head = *client->asked;
    head.request = link->question = ++client->question;
    head.table = link->table;
    head.extra = client->asked_extras ? client->asked_extras[server] : head.extra;
    tri_ps_queue(client, server, (unsigned)INT32_MAX, &head, client->asked_body);
}

void tri_ps_ask_again(tri_ps_client *client, int server)
{
    if (client->links[server].answered != client->links[server].question)
        tri_ps_ask_server(client, server);
}

tri_status tri_ps_ask_all(tri_ps_client *client, ps_head head, const void *body, const char *what)
{
    client->asked = &head;
    client->asked_body = body;
    for (int s = 0; s < client->setup.servers; s++)
        tri_ps_ask_server(client, s);
    tri_status status = tri_ps_await(client, all_answered, client, what);
    client->asked = NULL;
    return status;
}
