/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dense_hostile.c: a client that knows the token and says what no sound worker says of a table of weights: it is
 * refused, what it says twice counts once, and the worker beside it notices nothing.
 */
#include <math.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "kernel/kernel.h"
#include "ps/client/client.h"
#include "ps/rpc/protocol.h"
#include "ps/server/server.h"
#include "unit/ps/ps_rig.h"

#define COUNT 9024 /* elements of the store */
#define MOST  (96 << 10)

enum { SERVER, WORKER, HOSTILE, ENDS };

typedef struct scene scene;
struct scene {
    const char *options[5]; /* ps.* without the section; NULL at the end */
    void (*body)(scene *at);
    tri_hub *hub;
    tri_net_config net;
    tri_ps_config ps;
    tri_optim_config optim;
    tri_param entries[2];
    tri_params params;
    ps_spec spec;
    tri_ps_server *server;
    /* the sound worker */
    tri_ps_client *client;
    tri_ps_dense *dense;
    float values[COUNT];
    /* the other one */
    tri_endpoint *endpoint;
    tri_connection *connection;
    bool refused, answered, over;
    bool is_slow;     /* the links are */
    int heard, of[8]; /* blocks whose values came, in their order */
    char why[256];
    tri_status statuses[ENDS];
    char message[256];
};

/* --- what is there --- */

static tri_status scene_make(scene *at)
{
    tri_options_defaults(&tri_net_options, &at->net);
    tri_options_defaults(&tri_ps_options, &at->ps);
    tri_options_defaults(&tri_optim_options, &at->optim);
    at->optim.lr = 0.5;
    TRI_TRY(tri_options_set(&tri_ps_options, &at->ps, "block_kib", "16"));
    for (int i = 0; at->options[i]; i += 2)
        TRI_TRY(tri_options_set(&tri_ps_options, &at->ps, at->options[i], at->options[i + 1]));
    int64_t blocks = (5000 + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK;
    at->entries[0] = (tri_param){.name = "a", .count = 5000};
    at->entries[1] = (tri_param){.name = "b", .number = 1, .first = 5008, .count = 4000, .block = blocks};
    at->params = (tri_params){.entries = at->entries,
                              .entry_count = 2,
                              .count = COUNT,
                              .block_count = blocks + (4000 + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK};
    return tri_ps_spec_of(&at->params, &at->ps, &at->optim, 2, 2, 100, &at->spec);
}

static tri_status serve(scene *at)
{
    tri_ps_server_setup setup = {.net = &at->net,
                                 .token = "test",
                                 .servers = 1,
                                 .workers = 2,
                                 .threads = 1,
                                 .replicas = 1,
                                 .hub = at->hub,
                                 .rank = SERVER,
                                 .world = ENDS};
    TRI_TRY(tri_ps_server_open(&setup, &at->server));
    return tri_ps_server_run(at->server);
}

static tri_status worker_open(scene *at)
{
    static const char *const addresses[] = {"0"};
    tri_ps_client_setup setup = {.net = &at->net,
                                 .ps = &at->ps,
                                 .token = "test",
                                 .addresses = addresses,
                                 .workers = 2,
                                 .servers = 1,
                                 .hub = at->hub,
                                 .rank = WORKER,
                                 .world = ENDS};
    int64_t clock;
    TRI_TRY(tri_ps_client_open(&setup, &at->client));
    TRI_TRY(tri_ps_dense_open(at->client, &at->spec, true, at->values, &clock, &at->dense));
    return tri_ps_dense_give(at->dense, 0, NULL, 1); /* momentum: zeros */
}

/* The server is there, and tells the worker so. */
static tri_status worker_look(scene *at)
{
    tri_string text = {0};
    tri_status status = tri_ps_client_stats(at->client, &text);
    tri_string_fini(&text);
    return status;
}

static tri_status weights_pull(scene *at)
{
    tri_ps_dense_pull(at->dense, 0, false);
    for (int b = 0; b < at->spec.cut_count; b++)
        TRI_TRY(tri_ps_dense_wait(at->dense, b, 0));
    return TRI_OK;
}

static tri_status worker_run(scene *at)
{
    tri_status status = worker_open(at);
    if (status == TRI_OK)
        at->body(at);
    char message[256];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_ps_dense_close(at->dense);
    tri_endpoint_close(at->endpoint);
    if (status == TRI_OK)
        status = worker_look(at);
    else
        status = tri_fail_copy(status, message);
    tri_ps_client_close(at->client);
    tri_ps_server_stop(at->server);
    return status;
}

/* --- one who says anything; turned by the worker's fiber, so that they speak in turns --- */

static bool hostile_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    scene *at = arg;
    ps_head head = ps_head_read(message);
    (void)connection;
    if (head.kind == PS_REFUSED) {
        at->refused = true;
        snprintf(at->why, sizeof(at->why), "%.*s", (int)head.nbytes, (const char *)body);
    }
    at->answered = at->answered || head.kind == PS_STATS;
    if (head.kind == PS_VALUES && at->heard < (int)TRI_COUNT_OF(at->of))
        at->of[at->heard++] = (int)head.block;
    return true;
}

static void hostile_closed(void *arg, tri_connection *connection, const char *why)
{
    scene *at = arg;
    (void)why;
    if (connection == at->connection)
        at->connection = NULL;
}

static void message_send(scene *at, ps_head head, const void *body)
{
    tri_message message = ps_head_write(&head);
    if (at->connection && tri_connection_send(at->connection, 0, &message, body, NULL, NULL) != TRI_OK)
        at->over = true;
}

/* A connection on which it is worker 1, or nobody yet. */
static void hostile_dial(scene *at, bool says_who)
{
    tri_endpoint_setup setup = {.name = "hostile",
                                .config = &at->net,
                                .token = "test",
                                .body_limit = PS_BODY_LIMIT_NBYTES,
                                .hub = at->hub,
                                .rank = HOSTILE,
                                .world = ENDS,
                                .handlers = {.arg = at, .message = hostile_message, .closed = hostile_closed}};
    if (!at->endpoint && tri_endpoint_open(&setup, &at->endpoint) != TRI_OK)
        at->over = true;
    while (at->connection && at->refused) /* the server hangs up on who is refused */
        (void)tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(100));
    at->refused = false;
    while (!at->connection && !at->over &&
           tri_endpoint_dial(at->endpoint, "0", tri_deadline_after_ms(1000), &at->connection) != TRI_OK)
        (void)tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(100)); /* what is left of the connection before */
    if (says_who)
        message_send(at, (ps_head){.kind = PS_HELLO, .request = PS_VERSION, .clock = 1}, NULL);
}

/* Says it, and asks for what is always answered; true: it was refused. */
static bool say(scene *at, ps_head head, const void *body, bool says_who)
{
    if (!at->connection || at->refused)
        hostile_dial(at, says_who);
    at->answered = false;
    message_send(at, head, body);
    message_send(at, (ps_head){.kind = PS_STATS}, NULL);
    while (at->connection && !at->refused && !at->answered && !at->over)
        (void)tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(1000));
    return at->refused || !at->connection;
}

/* --- runs --- */

static void note(scene *at, int index, tri_status status)
{
    at->statuses[index] = status;
    if (status != TRI_OK && !at->message[0])
        snprintf(at->message, sizeof(at->message), "%d: %s", index, tri_last_error());
    if (status != TRI_OK && index == WORKER && at->server)
        tri_ps_server_stop(at->server);
}

static void fiber_body(int index, void *arg)
{
    scene *at = arg;
    if (index != HOSTILE)
        note(at, index, index == SERVER ? serve(at) : worker_run(at));
}

static void run(scene *at)
{
    tri_hub_config config = {.world = ENDS};
    if (at->is_slow)
        config.fabric = (tri_fabric_config){.latency_us = 50, .bandwidth = 1000000, .message_us = 1};
    tri_sim_config sim = {.seed = 3};
    OK(scene_make(at));
    OK(tri_hub_create(&config, &at->hub));
    OK(tri_sim_run(&sim, ENDS, fiber_body, at));
    tri_ps_server_close(at->server);
    tri_hub_destroy(at->hub);
    tri_ps_spec_fini(&at->spec);
    if (at->message[0])
        fail_msg("%s", at->message);
    assert_false(at->over);
}

static float body[MOST / sizeof(float)];

static size_t block_nbytes(const scene *at, int b)
{
    return tri_ps_cut_nbytes(&at->spec.cuts[b]);
}

static void expect_refusal(scene *at, ps_head head, const char *why)
{
    bool says_who = strcmp(why, "it has not said who it is") != 0 && strcmp(why, "it says that it is worker") != 0;
    if (at->message[0])
        return;
    if (!says_who && at->connection && !at->refused) {
        tri_connection_close(at->connection);
        at->connection = NULL;
    }
    if (!say(at, head, body, says_who) || !strstr(at->why, why))
        snprintf(at->message, sizeof(at->message), "want a refusal with '%s', got '%.80s'", why,
                 at->refused ? at->why : "an answer");
    note(at, WORKER, worker_look(at));
}

static void lies_are_told(scene *at)
{
    const double huge = 1e300;
    ps_head push = {.kind = PS_PUSH, .nbytes = block_nbytes(at, 0), .part = {0, 1}, .extra = 1}, head;
#define BAD(why, ...)                                                                                                  \
    do {                                                                                                               \
        head = push;                                                                                                   \
        __VA_ARGS__;                                                                                                   \
        expect_refusal(at, head, why);                                                                                 \
    } while (0)
    BAD("there is no table 7", head.table = 7);
    BAD("there is no table 4294967295", head.table = UINT32_MAX);
    BAD("block 99 of table 'weights' is not here", head.block = 99);
    BAD("want", head.nbytes -= 4);
    BAD("want", head.nbytes = 0);
    BAD("a message of kind 200", head.kind = (ps_kind)200);
    BAD("as only servers do", head.kind = PS_COPY);
    BAD("block 4294967295", head.block = UINT32_MAX);
    BAD("array", (head.kind = PS_PULL_STATE, head.nbytes = 0, head.extra = huge));
    BAD("array", (head.kind = PS_PULL_STATE, head.nbytes = 0, head.extra = -1));
    BAD("step 100 is over", (head.kind = PS_CLOCK, head.clock = 100, head.nbytes = 0));
    BAD("it asks for part 1", (head.kind = PS_CLOCK, head.clock = 1, head.flags = PS_FLAG_DEAL, head.nbytes = 0));
    BAD("a choice of", (head.kind = PS_MOVE, head.nbytes = 2));
    BAD("a tail of step", (head.kind = PS_TAIL, head.clock = PS_CLOCK_MAX, head.nbytes = 4 * TRI_PARAMS_TAIL));
    BAD("it speaks of step", head.clock = INT64_MAX);
    BAD("it speaks of step", (head.kind = PS_TAIL, head.clock = INT64_MIN, head.nbytes = 4 * TRI_PARAMS_TAIL));
    BAD("want at most", (head.kind = PS_CLOCK, head.nbytes = 8));
    BAD("a note on subject 2", (head.kind = PS_NOTE, head.block = 2, head.nbytes = 0));
    BAD("it has not said who it is", head.kind = PS_STATS, head.nbytes = 0);
    BAD("it says that it is worker",
        (head.kind = PS_HELLO, head.request = PS_VERSION, head.clock = 5, head.nbytes = 0));
}

static void what_cannot_be_is_refused_and_says_why(void **state)
{
    (void)state;
    static scene at;
    at = (scene){.options = {"consistency", "async"}, .body = lies_are_told};
    run(&at);
}

/* The same push again and again moves the weights once. */
static void pushes_are_replayed(scene *at)
{
    for (size_t i = 0; i < TRI_COUNT_OF(body); i++)
        body[i] = 2;
    for (int round = 0; round < 100; round++)
        for (int b = 0; b < at->spec.cut_count; b++)
            if (say(at,
                    (ps_head){.kind = PS_PUSH,
                              .nbytes = block_nbytes(at, b),
                              .block = (uint32_t)b,
                              .part = {0, 1},
                              .extra = 4},
                    body, true))
                snprintf(at->message, sizeof(at->message), "a sound push is refused: %.80s", at->why);
    note(at, WORKER, weights_pull(at));
    for (int i = 0; i < COUNT && !at->message[0]; i++) { /* lr 0.5 / 2 workers, gradient 2 / 4 */
        bool gap = (i >= 5000 && i < 5008) || i >= 9008;
        if (at->values[i] != (gap ? 0 : -0.125f))
            snprintf(at->message, sizeof(at->message), "element %d is %f", i, (double)at->values[i]);
    }
}

static void what_is_said_again_counts_once(void **state)
{
    (void)state;
    static scene at;
    at = (scene){.options = {"consistency", "async"}, .body = pushes_are_replayed};
    run(&at);
}

/* Two pushes of one who has not pulled in between: the second one's gradient is of weights that have moved since. */
static void pushes_come_late(scene *at)
{
    const float first = -0.125f;                               /* lr 0.5 / 2 workers, gradient 2 / 4 */
    const float late = 0.5f + 4.0f * 0.5f * 0.5f * first;      /* g + strength * g * g * (now - seen) */
    const float wanted = first - 0.25f * (0.9f * 0.5f + late); /* with the momentum of the first one */
    for (size_t i = 0; i < TRI_COUNT_OF(body); i++)
        body[i] = 2;
    for (int b = 0; b < at->spec.cut_count; b++)
        (void)say(at, (ps_head){.kind = PS_PULL, .block = (uint32_t)b}, NULL, true);
    for (int64_t step = 0; step < 2; step++)
        for (int b = 0; b < at->spec.cut_count; b++)
            if (say(at,
                    (ps_head){.kind = PS_PUSH,
                              .clock = step,
                              .nbytes = block_nbytes(at, b),
                              .block = (uint32_t)b,
                              .part = {0, 1},
                              .extra = 4},
                    body, true))
                snprintf(at->message, sizeof(at->message), "a sound push is refused: %.80s", at->why);
    note(at, WORKER, weights_pull(at));
    for (int i = 0; i < 5000 && !at->message[0]; i++)
        if (fabsf(at->values[i] - wanted) > 1e-6f)
            snprintf(at->message, sizeof(at->message), "element %d is %f, want %f", i, (double)at->values[i],
                     (double)wanted);
}

static void a_late_gradient_is_compensated(void **state)
{
    (void)state;
    static scene at;
    at = (scene){.options = {"consistency", "async", "delay_compensation", "4"}, .body = pushes_come_late};
    run(&at);
}

/* Asks for all blocks at once, the last one first. */
static void all_are_pulled(scene *at)
{
    hostile_dial(at, true);
    for (int b = at->spec.cut_count - 1; b >= 0; b--)
        message_send(at, (ps_head){.kind = PS_PULL, .block = (uint32_t)b}, NULL);
    while (at->connection && at->heard < at->spec.cut_count && !at->over)
        (void)tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(1000));
}

/* What the next forward pass reads first overtakes what waits with it for the link. */
static void values_of_the_first_layers_come_first(void **state)
{
    (void)state;
    static scene at;
    at = (scene){.options = {"consistency", "async"}, .is_slow = true, .body = all_are_pulled};
    run(&at);
    assert_int_equal(at.heard, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(at.of[i], i);
}

static ps_head anything(const scene *at, rig_random *random)
{
    static const ps_kind kinds[] = {PS_HELLO, PS_OPEN,  PS_INIT, PS_READY, PS_PUSH,   PS_PUSH,       PS_PUSH, PS_TAIL,
                                    PS_MOVE,  PS_CLOCK, PS_PULL, PS_LOOK,  PS_VALUES, PS_PULL_STATE, PS_TAIL};
    static const int64_t clocks[] = {0, 0, 0, 1, 1, 2, 3, -1, PS_CLOCK_MAX, -PS_CLOCK_MAX, INT64_MAX, INT64_MIN};
    static const double extras[] = {1, 0, -1, 1e300, -1e300, NAN, INFINITY};
    uint64_t block = rig_below(random, (uint64_t)at->spec.cut_count + 1);
    size_t sizes[] = {block_nbytes(at, (int)(block % (uint64_t)at->spec.cut_count)), 0, 2, 64, rig_below(random, MOST)};
    ps_head head = {.kind = kinds[rig_below(random, TRI_COUNT_OF(kinds))],
                    .flags = (uint16_t)rig_below(random, 1024),
                    .nbytes = sizes[rig_below(random, TRI_COUNT_OF(sizes))],
                    .clock = clocks[rig_below(random, TRI_COUNT_OF(clocks))],
                    .table = rig_below(random, 10) == 0 ? (uint32_t)rig_below(random, UINT32_MAX) : 0,
                    .block = rig_below(random, 10) == 0 ? (uint32_t)rig_below(random, UINT32_MAX) : (uint32_t)block,
                    .part = {(int64_t)rig_below(random, 3), (int64_t)rig_below(random, 4)},
                    .extra = extras[rig_below(random, TRI_COUNT_OF(extras))]};
    if (head.kind == PS_TAIL && rig_below(random, 2) == 0)
        head.nbytes = 64;
    head.flags &= (uint16_t)~PS_FLAG_SERVER; /* who has the token may say that it is a server: that is another matter */
    return head;
}

static void nonsense_is_told(scene *at)
{
    rig_random random = {.rng = {7, 1}};
    int refused = 0;
    for (int round = 0; round < 3000 && !at->message[0]; round++) {
        for (int i = 0; i < 64; i++)
            body[rig_below(&random, TRI_COUNT_OF(body))] = (float)rig_below(&random, 1000) - 500;
        refused += say(at, anything(at, &random), body, true);
        if (round % 50 == 0)
            note(at, WORKER, worker_look(at));
    }
    if (refused < 500 || refused == 3000)
        snprintf(at->message, sizeof(at->message), "%d of 3000 messages were refused", refused);
}

static void nonsense_ends_no_server(void **state)
{
    (void)state;
    static const char *const options[][5] = {
        {"consistency", "async"},
        {"consistency", "ssp", "schedule", "dynamic"},
        {"consistency", "bsp"},
        {"consistency", "bsp", "values", "bf16"},
        {"consistency", "bsp", "backup_workers", "1"},
        {"consistency", "async", "values", "int8"},
    };
    static scene at;
    for (size_t i = 0; i < TRI_COUNT_OF(options); i++) {
        at = (scene){.body = nonsense_is_told};
        memcpy(at.options, options[i], sizeof(at.options));
        run(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused_and_says_why),
        cmocka_unit_test(what_is_said_again_counts_once),
        cmocka_unit_test(a_late_gradient_is_compensated),
        cmocka_unit_test(values_of_the_first_layers_come_first),
        cmocka_unit_test(nonsense_ends_no_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
