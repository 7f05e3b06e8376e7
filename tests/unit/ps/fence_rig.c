/* SPDX-License-Identifier: Apache-2.0
 *
 * fence_rig.c: a real server, and what this test says and hears as its neighbour and as the worker.
 */
#include "unit/ps/fence_rig.h"

#include <signal.h>

#include "base/runtime.h"
#include "ps/client/client.h"
#include "ps/rpc/kv_body.h"
#include "ps/tables/kv_spec.h"

#define TOKEN "a token of this test"

static bool on_opened(void *arg, tri_connection *connection)
{
    fence_scene *at = arg;
    at->as_backup = connection;
    at->heard = 0;
    return true;
}

void fence_acknowledge(fence_scene *at)
{
    tri_message ack = ps_head_write(&(ps_head){.kind = PS_ACK, .request = at->heard});
    if (at->as_backup)
        OK(tri_connection_send(at->as_backup, 0, &ack, NULL, NULL, NULL));
}

static bool on_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    fence_scene *at = arg;
    ps_head head = ps_head_read(message);
    if (connection == at->as_backup) {
        at->heard += !(head.kind == PS_BEAT && head.extra > 0);
        at->told = head.kind == PS_LOOK ? head.clock : at->told;
        if (at->acknowledges)
            fence_acknowledge(at);
    } else if (connection == at->as_server && head.kind == PS_ACK)
        at->acknowledged = head.request;
    else if (connection == at->as_worker && head.kind == PS_KV_DONE) {
        at->answered = head.request;
        if (head.nbytes == sizeof(at->row))
            memcpy(at->row, body, sizeof(at->row));
    }
    return true;
}

static void on_closed(void *arg, tri_connection *connection, const char *why)
{
    fence_scene *at = arg;
    (void)why;
    at->lost_server = at->lost_server || connection == at->as_server;
    at->lost_worker = at->lost_worker || connection == at->as_worker;
    at->lost_backup = at->lost_backup || connection == at->as_backup;
    at->as_server = connection == at->as_server ? NULL : at->as_server;
    at->as_worker = connection == at->as_worker ? NULL : at->as_worker;
    at->as_backup = connection == at->as_backup ? NULL : at->as_backup;
}

static void server_body(void *arg)
{
    fence_scene *at = arg;
    sigset_t usr;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &usr, NULL); /* who_wakes_up_tells_nobody_what_it_knew_before() */
    at->server_thread = pthread_self();
    at->status = tri_ps_server_run(at->server);
    atomic_store(&at->ended, true);
}

static void address_put(fence_scene *at, int number, const char *address)
{
    char key[TRI_PS_ADDRESS_KEY_NBYTES];
    tri_ps_address_key(number, key);
    OK(tri_store_set(at->store, key, address, strlen(address), tri_deadline_after_ms(FENCE_LIMIT_MS)));
}

void fence_open(fence_scene *at, int servers, int own, int beat_ms)
{
    *at = (fence_scene){.servers = servers, .own = own, .other = 1 - own, .acknowledges = true};
    tri_options_defaults(&tri_net_options, &at->net);
    OK(tri_options_set(&tri_net_options, &at->net, "interface", "lo"));
    at->net.heartbeat_ms = beat_ms;
    OK(tri_store_memory(&at->store));
    tri_ps_server_setup setup = {.net = &at->net,
                                 .token = TOKEN,
                                 .number = own,
                                 .servers = servers,
                                 .workers = 1,
                                 .threads = 1,
                                 .replicas = 2,
                                 .store = at->store};
    OK(tri_ps_server_open(&setup, &at->server));
    tri_endpoint_setup endpoint = {
        .name = "the other server",
        .config = &at->net,
        .token = TOKEN,
        .listens = true,
        .body_limit = PS_BODY_LIMIT_NBYTES,
        .handlers = {.arg = at, .opened = on_opened, .message = on_message, .closed = on_closed}};
    OK(tri_endpoint_open(&endpoint, &at->endpoint));
    address_put(at, own, tri_ps_server_address(at->server));
    address_put(at, at->other, tri_endpoint_address(at->endpoint));
    OK(tri_thread_start(&at->thread, "server", server_body, at));
}

void fence_close(fence_scene *at)
{
    tri_ps_server_stop(at->server);
    tri_thread_join(at->thread);
    OK(at->status);
    tri_endpoint_close(at->endpoint);
    tri_ps_server_close(at->server);
    tri_store_close(at->store);
}

/* What comes is handled until `done`, or for so long. Returns whether it is. */
bool fence_turn_until(fence_scene *at, const bool *done, int64_t limit_ms)
{
    int64_t until_ns = tri_deadline_after_ms(limit_ms);
    while (!(done && *done) && tri_now_ns() < until_ns)
        OK(tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(5)));
    return done && *done;
}

static tri_connection *dial(fence_scene *at)
{
    tri_connection *connection;
    OK(tri_endpoint_dial(at->endpoint, tri_ps_server_address(at->server), tri_deadline_after_ms(FENCE_LIMIT_MS),
                         &connection));
    return connection;
}

void fence_say(tri_connection *connection, const ps_head *head, const void *body)
{
    tri_message message = ps_head_write(head);
    assert_non_null(connection);
    OK(tri_connection_send(connection, 0, &message, body, NULL, NULL));
}

void fence_hello_as_server(fence_scene *at, uint16_t flags, uint64_t version)
{
    at->lost_server = false;
    at->as_server = dial(at);
    fence_say(at->as_server,
              &(ps_head){.kind = PS_HELLO,
                         .flags = PS_FLAG_SERVER | flags,
                         .request = PS_VERSION,
                         .clock = at->other,
                         .extra = (double)version},
              NULL);
}

/* It has no tables. */
void fence_begin_as_server(fence_scene *at)
{
    fence_hello_as_server(at, 0, 1);
    fence_say(at->as_server, &(ps_head){.kind = PS_LOOK, .clock = 1}, NULL);
}

ps_view fence_view_now(const fence_scene *at)
{
    ps_view view;
    OK(ps_view_first(at->servers, &view));
    OK(tri_ps_views_look(at->store, TRI_PS_VIEWS_MS, &view));
    return view;
}

void fence_table_open(fence_scene *at)
{
    ps_kv_spec spec;
    tri_string text = {0};
    OK(ps_kv_spec_make("table", FENCE_DIM, 1, "merge: add", &spec));
    OK(ps_kv_spec_print(&spec, &text));
    at->as_worker = dial(at);
    fence_say(at->as_worker, &(ps_head){.kind = PS_HELLO, .request = PS_VERSION}, NULL);
    fence_say(at->as_worker, &(ps_head){.kind = PS_KV_OPEN, .request = 1, .nbytes = text.nbytes},
              tri_string_text(&text));
    while (at->answered < 1)
        OK(tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(5)));
    tri_string_fini(&text);
}

/* Pulls a row, or makes it these values. */
void fence_row_say(fence_scene *at, uint64_t request, uint64_t key, const float *values)
{
    unsigned char bytes[256];
    ps_rows_body body = {.slots = ps_keys_slots(&key, 1), .keys = &key, .values = values, .count = 1};
    ps_head head = {.kind = values ? PS_KV_PUSH : PS_KV_PULL,
                    .flags = values ? PS_FLAG_ASSIGN : 0,
                    .request = request,
                    .table = ps_kv_table_id("table"),
                    .block = 1,
                    .extra = values ? (double)request : 0};
    head.nbytes = ps_rows_body_write(&body, FENCE_DIM, PS_WIRE_F32, true, bytes);
    fence_say(at->as_worker, &head, bytes);
}
