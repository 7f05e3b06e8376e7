/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv_hostile.c: a client that knows the token and says what no sound client says is refused, and harms nobody; and
 * servers and workers whose memory ends say so.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "ps/rpc/kv_body.h"
#include "ps/rpc/protocol.h"
#include "ps/tables/kv_spec.h"
#include "unit/ps/kv_rig.h"

#define TOKEN "a token of this test"
#define DIM   4

/* --- one who says anything --- */

typedef struct hostile {
    tri_endpoint *endpoint;
    tri_connection *connection;
    const char *address;
    bool refused, answered;
    char why[256];
    uint64_t request;
} hostile;

static bool hostile_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    hostile *self = arg;
    ps_head head = ps_head_read(message);
    (void)connection;
    if (head.kind == PS_REFUSED) {
        self->refused = true;
        snprintf(self->why, sizeof(self->why), "%.*s", (int)head.nbytes, (const char *)body);
    }
    self->answered = self->answered || head.kind == PS_STATS || head.kind == PS_BYE;
    return true;
}

static void hostile_closed(void *arg, tri_connection *connection, const char *why)
{
    hostile *self = arg;
    (void)why;
    self->refused = self->refused || connection == self->connection;
    self->connection = connection == self->connection ? NULL : self->connection;
}

static void hostile_open(hostile *self, const tri_net_config *net, const char *address)
{
    tri_endpoint_setup setup = {.name = "hostile",
                                .config = net,
                                .token = TOKEN,
                                .body_limit = PS_BODY_LIMIT_NBYTES,
                                .handlers = {.arg = self, .message = hostile_message, .closed = hostile_closed}};
    *self = (hostile){.address = address, .request = 1000};
    OK(tri_endpoint_open(&setup, &self->endpoint));
}

static void message_send(hostile *self, const ps_head *head, const void *body)
{
    tri_message message = ps_head_write(head);
    self->answered = self->refused = false;
    OK(tri_connection_send(self->connection, 0, &message, body, NULL, NULL));
}

/* As worker 1, on a fresh connection. */
static void hostile_dial(hostile *self)
{
    ps_head hello = {.kind = PS_HELLO, .request = PS_VERSION, .clock = 1};
    if (self->connection)
        tri_connection_close(self->connection);
    OK(tri_endpoint_dial(self->endpoint, self->address, tri_deadline_after_ms(20000), &self->connection));
    message_send(self, &hello, NULL);
}

/* Says it, and asks for what is always answered; true: it was refused. */
static bool say(hostile *self, const ps_head *head, const void *body)
{
    const ps_head stats = {.kind = PS_STATS};
    if (!self->connection || self->refused)
        hostile_dial(self);
    message_send(self, head, body);
    message_send(self, &stats, NULL);
    while (!self->refused && !self->answered)
        OK(tri_endpoint_poll(self->endpoint, tri_deadline_after_ms(1000)));
    return self->refused;
}

/* --- messages --- */

#define ROWS 10

typedef struct push {
    ps_head head;
    unsigned char body[4096];
} push;

/* A sound push of table 0, of keys that nobody else has. */
static push push_make(hostile *self)
{
    uint64_t keys[ROWS];
    float values[ROWS * DIM];
    ps_rows_body body = {.keys = keys, .values = values, .count = ROWS};
    push out;
    for (int i = 0; i < ROWS; i++) {
        keys[i] = UINT64_C(1) << 50 | (uint64_t)i * 77;
        for (int e = 0; e < DIM; e++)
            values[i * DIM + e] = 1;
    }
    memset(&body.slots, 255, sizeof(body.slots));
    out.head = (ps_head){.kind = PS_KV_PUSH, .block = ROWS, .request = ++self->request};
    out.head.table = ps_kv_table_id("table");
    out.head.extra = (double)self->request;
    out.head.nbytes = ps_rows_body_write(&body, DIM, PS_WIRE_F32, false, out.body);
    return out;
}

static void wants_refusal(hostile *self, const push *message, const char *why)
{
    if (!say(self, &message->head, message->body) || !strstr(self->why, why))
        fail_msg("want a refusal with '%s', got '%s'", why, self->refused ? self->why : "an answer");
}

static void worker_check(tri_kv_table *table, int pushes)
{
    uint64_t keys[3] = {1, 2, UINT64_MAX};
    float rows[3 * DIM], got[3 * DIM];
    for (int i = 0; i < 3 * DIM; i++)
        rows[i] = 1;
    OK(tri_kv_push_pull(table, keys, rows, got, 3, NULL));
    for (int i = 0; i < 3 * DIM; i++)
        assert_true(got[i] == (float)pushes);
}

typedef struct scene {
    kv_rig rig;
    tri_kv *kv;
    tri_kv_table *table, *bsp;
    tri_net_config net;
    hostile other;
} scene;

static void scene_open(scene *at)
{
    *at = (scene){.rig = {.servers = 1, .workers = 2}};
    tri_options_defaults(&tri_net_options, &at->net);
    OK(tri_options_set(&tri_net_options, &at->net, "interface", "lo"));
    assert_true(kv_rig_serve(&at->rig));
    OK(kv_rig_join(&at->rig, 0, &at->kv));
    OK(tri_kv_table_open(at->kv, "table", DIM, "merge: add", &at->table));
    OK(tri_kv_table_open(at->kv, "bsp", DIM, "merge: add, consistency: bsp, shards: 2", &at->bsp));
    worker_check(at->table, 1);
    hostile_open(&at->other, &at->net, at->rig.addresses[0]);
}

static void scene_close(scene *at)
{
    ps_head bye = {.kind = PS_BYE};
    hostile_dial(&at->other);
    message_send(&at->other, &bye, NULL);
    while (!at->other.answered && !at->other.refused)
        OK(tri_endpoint_poll(at->other.endpoint, tri_deadline_after_ms(1000)));
    assert_true(at->other.answered);
    tri_endpoint_close(at->other.endpoint);
    OK(tri_kv_close(at->kv));
    assert_true(kv_rig_close(&at->rig));
}

static void messages_that_cannot_be_are_refused_and_say_why(void **state)
{
    scene at;
    (void)state;
    scene_open(&at);
    push message = push_make(&at.other);
    assert_false(say(&at.other, &message.head, message.body)); /* as it is it may be said */

#define BAD(why, ...)                                                                                                  \
    do {                                                                                                               \
        message = push_make(&at.other);                                                                                \
        __VA_ARGS__;                                                                                                   \
        wants_refusal(&at.other, &message, why);                                                                       \
        worker_check(at.table, ++pushes);                                                                              \
    } while (0)

    int pushes = 1;
    BAD("no table 7", message.head.table = 7);
    BAD("no table 4294967295", message.head.table = UINT32_MAX);
    BAD("want", message.head.block = ROWS - 1);
    BAD("rows", message.head.block = UINT32_MAX);
    BAD("want", message.head.nbytes -= 4);
    BAD("keys", message.head.nbytes = 16);
    BAD("bytes of slots", message.head.nbytes = 15);
    BAD("bytes of slots", message.head.nbytes = 0);
    BAD("in none of the slots", memset(message.body, 0, 16));
    BAD("step -1", message.head.clock = -1);
    BAD("step", message.head.clock = INT64_MAX);
    BAD("no part", (message.head.table = ps_kv_table_id("bsp"), message.head.part = (tri_tree_part){1, 2}));
    BAD("no part", (message.head.table = ps_kv_table_id("bsp"), message.head.part = (tri_tree_part){0, 0}));
    BAD("after its step", (message.head.table = ps_kv_table_id("bsp"), message.head.flags = PS_FLAG_PULL,
                           message.head.part = (tri_tree_part){0, 1}));
    BAD("bsp", (message.head.kind = PS_KV_CLOCK, message.head.table = ps_kv_table_id("bsp"), message.head.nbytes = 16));
    BAD("step 5 is over, after step 0",
        (message.head.kind = PS_KV_CLOCK, message.head.clock = 5, message.head.nbytes = 16));
    BAD("want at most 16", message.head.kind = PS_KV_CLOCK);
    BAD("barrier 3", (message.head.kind = PS_KV_BARRIER, message.head.clock = 3, message.head.nbytes = 16));
    BAD("bytes of slots", (message.head.kind = PS_KV_BARRIER, message.head.clock = 1, message.head.nbytes = 0));
    BAD("as only servers do", (message.head.kind = PS_KV_STOPS, message.head.nbytes = 16));
    BAD("kind 99", message.head.kind = (ps_kind)99);
    BAD("it says that it is worker", (message.head.kind = PS_HELLO, message.head.request = PS_VERSION,
                                      message.head.clock = 0, message.head.nbytes = 0));
    scene_close(&at);
}

static void nonsense_harms_nobody(void **state)
{
    scene at;
    rig_random random = {.rng = {3, 3}};
    int pushes = 1, refused = 0;
    (void)state;
    scene_open(&at);
    for (int round = 0; round < 1500; round++) {
        push message = push_make(&at.other);
        int kinds = PS_KV_STATS - PS_KV_JOIN + 1;
        message.head.kind = (ps_kind)(PS_KV_JOIN + (int)rig_below(&random, (uint64_t)kinds));
        message.head.clock = (int64_t)rig_below(&random, 4);
        message.head.table = ps_kv_table_id(message.head.clock == 1 ? "bsp" : "table");
        message.head.flags = (uint16_t)rig_below(&random, 16);
        message.head.part = (tri_tree_part){(int64_t)rig_below(&random, 3), (int64_t)rig_below(&random, 3)};
        for (uint64_t spoilt = rig_below(&random, 4); spoilt > 0; spoilt--)
            message.body[rig_below(&random, message.head.nbytes)] ^= (unsigned char)(1 + rig_below(&random, 255));
        if (rig_below(&random, 4) == 0)
            message.head.nbytes = rig_below(&random, message.head.nbytes + 1);
        refused += say(&at.other, &message.head, message.body);
        if (round % 50 == 0)
            worker_check(at.table, ++pushes);
    }
    print_message("%d of 1500 messages were refused\n", refused);
    assert_true(refused > 300);
    scene_close(&at);
}

/* --- no memory --- */

static void quiet_merge(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    for (int e = 0; e < dim; e++)
        row[e] += pushed[e];
}

/* One worker's life with one server; whatever fails is said, and all ends. */
static tri_status life(void)
{
    static const tri_kv_merge_row merges[] = {{"quiet", quiet_merge, NULL}, {NULL, NULL, NULL}};
    static const char *const options[] = {"comm.interface=lo", "comm.timeout_s=3", "ps.retry_s=0.2", NULL};
    uint64_t keys[300];
    float rows[300 * DIM] = {0};
    tri_kv_server *server = NULL;
    tri_kv *kv = NULL;
    tri_kv_table *table, *bsp;
    tri_kv_server_setup setup = {.servers = 1, .workers = 1, .token = TOKEN, .options = options, .merges = merges};
    TRI_TRY(tri_kv_server_open(&setup, &server));
    tri_status status = tri_kv_server_start(server);
    const char *address = tri_kv_server_address(server);
    tri_kv_setup worker = {.addresses = &address, .servers = 1, .workers = 1, .token = TOKEN, .options = options};
    for (uint64_t i = 0; i < 300; i++)
        keys[i] = i * i;
    if (status == TRI_OK)
        status = tri_kv_open(&worker, &kv);
    if (status == TRI_OK)
        status = tri_kv_table_open(kv, "a", DIM, "merge: quiet, values: int8", &table);
    if (status == TRI_OK)
        status = tri_kv_table_open(kv, "b", DIM, "merge: optim, consistency: bsp, shards: 2", &bsp);
    if (status == TRI_OK)
        status = tri_kv_push_pull(table, keys, rows, rows, 300, NULL);
    if (status == TRI_OK)
        status = tri_kv_push(bsp, 0, keys, rows, 300, NULL);
    if (status == TRI_OK)
        status = tri_kv_clock(kv);
    if (status == TRI_OK)
        status = tri_kv_pull(bsp, keys, 300, rows, NULL);
    tri_status closed = kv ? tri_kv_close(kv) : TRI_OK;
    tri_kv_server_stop(server);
    tri_status served = tri_kv_server_close(server);
    if (status == TRI_OK)
        status = closed;
    return status == TRI_OK ? served : status;
}

static void who_has_no_memory_says_so_and_ends(void **state)
{
    (void)state;
    OK(life());
    uint64_t before = tri_memory_now().live;
    int failed = 0;
    for (uint64_t n = 1; n < 500; n += n < 150 ? 1 : 7) {
        tri_memory_fail_at(n);
        tri_status status = life();
        tri_memory_fail_at(0);
        failed += status != TRI_OK;
        if (tri_memory_now().live != before)
            fail_msg("allocation %llu: %llu allocations are left behind", (unsigned long long)n,
                     (unsigned long long)(tri_memory_now().live - before));
    }
    print_message("%d lives failed\n", failed);
    assert_true(failed > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_that_cannot_be_are_refused_and_say_why),
        cmocka_unit_test(nonsense_harms_nobody),
        cmocka_unit_test(who_has_no_memory_says_so_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
