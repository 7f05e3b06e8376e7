/* SPDX-License-Identifier: Apache-2.0
 *
 * answers.c: answers of a server to its clients; where there is a backup each one waits until that has all messages so
 * far.
 */
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "base/memory.h"
#include "ps/replication/chain.h"
#include "ps/server/connection.h"

/* For how long one who is refused may still speak. */
#define HEAR_MS 1000

void tri_ps_answer(ps_client_connection *client, const ps_head *head, const void *body, bool lasting)
{
    tri_message message = ps_head_write(head);
    if (client->server >= 0) /* the server that forwards answers itself */
        return;
    tri_ps_trace_answered(client, head);
    /* What the next step reads first goes first. */
    unsigned priority = head->kind == PS_VALUES ? (unsigned)(INT32_MAX - (int32_t)head->block) : (unsigned)INT32_MAX;
    if (!tri_ps_chain_keep(client->of, client, priority, &message, body, lasting))
        tri_ps_answer_send(client, priority, &message, body, lasting);
}

typedef struct pending_reply {
    tri_ps_server *server;
    ps_client_connection *client; /* may be gone where the message was not sent */
    void *body;
    size_t nbytes;
} pending_reply;

static void pending_reply_sent(void *arg, tri_status status)
{
    pending_reply *sent = arg;
    if (status == TRI_OK) {
        sent->client->unsent -= sent->nbytes;
        tri_ps_connection_bytes_sub(sent->client, sent->nbytes);
    }
    tri_ps_answer_room_give_back(sent->server, sent->body, sent->nbytes);
    tri_free(sent);
}

tri_status tri_ps_answer_take(ps_client_connection *client, const ps_head *head, void *body)
{
    tri_message message = ps_head_write(head);
    tri_ps_trace_answered(client, head);
    if (client->server >= 0 || tri_ps_chain_keep(client->of, client, (unsigned)INT32_MAX, &message, body, false)) {
        tri_free(body);
        return TRI_OK;
    }
    pending_reply *sent = tri_alloc(sizeof(*sent));
    if (sent) {
        *sent = (pending_reply){client->of, client, body, head->nbytes};
        client->unsent += head->nbytes;
        tri_counter_add(TRI_COUNT_SERVED_NBYTES, head->nbytes);
        tri_ps_connection_bytes_add(client, head->nbytes);
        if (tri_connection_send(client->connection, (unsigned)INT32_MAX, &message, body, pending_reply_sent, sent) ==
            TRI_OK)
            return TRI_OK;
    }
    tri_free(sent);
    tri_free(body);
    return TRI_ENOMEM;
}

void tri_ps_answer_plain(ps_client_connection *client, ps_kind kind, uint64_t request, uint32_t table, int64_t clock)
{
    ps_head head = {.kind = kind, .request = request, .table = table, .clock = clock};
    tri_ps_answer(client, &head, NULL, false);
}

/* Tells a client why; it is not listened to any more, and loses its connection when it has had time to hear. */
void tri_ps_refuse(tri_ps_server *server, ps_client_connection *client, tri_status status)
{
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    (void)tri_ps_concerns_all(server, status);
    tri_log(TRI_LOG_WARN, "refused %s (worker %d): %s", tri_connection_peer(client->connection), client->number, why);
    ps_head head = {.kind = PS_REFUSED, .extra = (double)status, .nbytes = strlen(why)};
    tri_ps_answer(client, &head, why, false);
    tri_ps_room_leave(client);
    server->refused += client->closes_ns == 0;
    client->closes_ns = tri_deadline_after_ms(HEAR_MS);
}
