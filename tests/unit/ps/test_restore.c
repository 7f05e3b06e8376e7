/* SPDX-License-Identifier: Apache-2.0
 *
 * test_restore.c: a server that is there again with nothing, and workers that had left before: who can go back, who
 * need not, and who is waited for.
 */
#include <stdatomic.h>

#include "base/runtime.h"
#include "ps/client/client.h"
#include "ps/server/server.h"
#include "ps/views.h"
#include "unit/ps/ps_rig.h"

#define TOKEN    "a token of this test"
#define WORKERS  2
#define COUNT    5000
#define LIMIT_MS 30000 /* a test that waits for so long has failed */
#define HAD_LEFT "server 0 was lost when 1 of 2 workers had ended"

typedef struct rig_worker {
    float values[COUNT];
    tri_ps_client *client;
    tri_ps_dense *dense;
} rig_worker;

typedef struct rig {
    tri_net_config net;
    tri_ps_config ps;
    tri_optim_config optim;
    tri_param entry;
    tri_params params;
    ps_spec spec;
    tri_store *store;
    tri_ps_server *server;
    tri_thread *thread;
    tri_status status;
    char message[256];
    atomic_bool ended; /* the server, with that */
    rig_worker workers[WORKERS];
    tri_status awaited;
} rig;

static void rig_open(rig *at)
{
    memset(at, 0, sizeof(*at));
    tri_options_defaults(&tri_net_options, &at->net);
    tri_options_defaults(&tri_ps_options, &at->ps);
    tri_options_defaults(&tri_optim_options, &at->optim);
    OK(tri_options_set(&tri_net_options, &at->net, "interface", "lo"));
    int64_t blocks = (COUNT + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK;
    at->entry = (tri_param){.name = "a", .count = COUNT};
    at->params = (tri_params){.entries = &at->entry, .entry_count = 1, .count = COUNT, .block_count = blocks};
    OK(tri_ps_spec_of(&at->params, &at->ps, &at->optim, WORKERS, WORKERS, 100, &at->spec));
    OK(tri_store_memory(&at->store));
    tri_ps_server_setup setup = {.net = &at->net,
                                 .token = TOKEN,
                                 .servers = 1,
                                 .workers = WORKERS,
                                 .threads = 1,
                                 .replicas = 1,
                                 .store = at->store};
    char key[TRI_PS_ADDRESS_KEY_NBYTES];
    OK(tri_ps_server_open(&setup, &at->server));
    tri_ps_address_key(0, key);
    const char *address = tri_ps_server_address(at->server);
    OK(tri_store_set(at->store, key, address, strlen(address), tri_deadline_after_ms(LIMIT_MS)));
}

static void server_body(void *arg)
{
    rig *at = arg;
    at->status = tri_ps_server_run(at->server);
    snprintf(at->message, sizeof(at->message), "%s", tri_last_error());
    atomic_store(&at->ended, true);
}

static void rig_run(rig *at)
{
    OK(tri_thread_start(&at->thread, "server", server_body, at));
}

static bool rig_ends(const rig *at, int64_t limit_ms)
{
    for (int64_t until_ns = tri_deadline_after_ms(limit_ms); !atomic_load(&at->ended) && tri_now_ns() < until_ns;)
        tri_sleep_ns(TRI_NS_PER_MS);
    return atomic_load(&at->ended);
}

static void rig_close(rig *at)
{
    if (at->thread)
        assert_true(rig_ends(at, LIMIT_MS));
    tri_thread_join(at->thread);
    for (int w = 0; w < WORKERS; w++) {
        tri_ps_dense_close(at->workers[w].dense);
        tri_ps_client_close(at->workers[w].client);
    }
    tri_ps_server_close(at->server);
    tri_ps_spec_fini(&at->spec);
    tri_store_close(at->store);
}

/* As a worker of the present era: the leader gives first values, the others wait for them. */
static void worker_join(rig *at, int number)
{
    rig_worker *worker = &at->workers[number];
    tri_ps_client_setup setup = {.net = &at->net,
                                 .ps = &at->ps,
                                 .token = TOKEN,
                                 .store = at->store,
                                 .worker = number,
                                 .workers = WORKERS,
                                 .servers = 1};
    int64_t clock;
    OK(tri_ps_client_open(&setup, &worker->client));
    at->spec.era = tri_ps_client_era(worker->client);
    OK(tri_ps_dense_open(worker->client, &at->spec, number == 0, worker->values, &clock, &worker->dense));
    if (number == 0)
        OK(tri_ps_dense_give(worker->dense, 0, NULL, 1)); /* momentum: zeros */
}

static void worker_leave(rig *at, int number)
{
    tri_ps_dense_close(at->workers[number].dense);
    at->workers[number].dense = NULL;
    OK(tri_ps_client_bye(at->workers[number].client));
}

static int64_t era_of(const rig *at)
{
    int64_t era;
    OK(tri_ps_views_era(at->store, 0, &era));
    return era;
}

static void all_go_back_where_nobody_had_left(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    OK(tri_ps_server_restore(at.server, true));
    assert_int_equal(era_of(&at), 1);
    rig_run(&at);
    for (int w = 0; w < WORKERS; w++)
        worker_join(&at, w);
    for (int w = 0; w < WORKERS; w++)
        worker_leave(&at, w);
    assert_true(rig_ends(&at, LIMIT_MS));
    assert_int_equal(at.status, TRI_OK);
    rig_close(&at);
}

static void who_had_left_cannot_go_back(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    OK(tri_ps_views_left(at.store, 1));
    FAILS(TRI_EPEER, HAD_LEFT, tri_ps_server_restore(at.server, true));
    assert_int_equal(era_of(&at), 0); /* nobody goes anywhere */
    rig_close(&at);
}

/* It was saying goodbye when the server was lost, and the store hears of it only when the server is back. */
static void who_is_found_to_have_left_ends_it(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    OK(tri_ps_server_restore(at.server, true));
    rig_run(&at);
    worker_join(&at, 0);
    assert_false(rig_ends(&at, 50));
    OK(tri_ps_views_left(at.store, 1));
    assert_true(rig_ends(&at, LIMIT_MS));
    assert_int_equal(at.status, TRI_EPEER);
    assert_non_null(strstr(at.message, HAD_LEFT));
    rig_close(&at);
}

/* The connection to this server was lost in its goodbye. */
static void who_was_of_this_era_may_leave(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    OK(tri_ps_server_restore(at.server, true));
    rig_run(&at);
    for (int w = 0; w < WORKERS; w++)
        worker_join(&at, w);
    OK(tri_ps_views_left(at.store, 1));
    assert_false(rig_ends(&at, 2500)); /* it looks each second */
    worker_leave(&at, 0);
    assert_true(rig_ends(&at, LIMIT_MS));
    assert_int_equal(at.status, TRI_OK);
    rig_close(&at);
}

static tri_store_ops late_ops;
static tri_status (*add_to_store)(tri_store *, const char *, int64_t, int64_t *, int64_t);
static atomic_bool is_silent;
static atomic_int unanswered;

static tri_status late_add(tri_store *store, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    if (!atomic_load(&is_silent))
        return add_to_store(store, key, amount, after, deadline_ns);
    atomic_fetch_add(&unanswered, 1);
    return tri_fail(TRI_ETIMEOUT, "store key %s: want an answer before the deadline, got none", key);
}

/* Whoever has it has no core for a while, or its host stands still. */
static void a_store_that_is_silent_is_asked_again(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    OK(tri_ps_server_restore(at.server, true));
    late_ops = *at.store->ops;
    add_to_store = late_ops.add;
    late_ops.add = late_add;
    at.store->ops = &late_ops;
    rig_run(&at);
    for (int w = 0; w < WORKERS; w++)
        worker_join(&at, w);
    atomic_store(&is_silent, true);
    for (int64_t until_ns = tri_deadline_after_ms(LIMIT_MS); atomic_load(&unanswered) < 2 && tri_now_ns() < until_ns;)
        tri_sleep_ns(TRI_NS_PER_MS);
    assert_true(atomic_load(&unanswered) >= 2);
    assert_false(atomic_load(&at.ended));
    atomic_store(&is_silent, false);
    for (int w = 0; w < WORKERS; w++)
        worker_leave(&at, w);
    assert_true(rig_ends(&at, LIMIT_MS));
    assert_int_equal(at.status, TRI_OK);
    rig_close(&at);
}

/* The leader leaves last, with all that is to be saved. */
static void nobody_goes_back_where_the_leader_had_left(void **state)
{
    (void)state;
    for (int others = 0; others < WORKERS; others++) {
        static rig at;
        rig_open(&at);
        for (int w = 0; w <= others; w++)
            OK(tri_ps_views_left(at.store, w));
        OK(tri_ps_server_restore(at.server, true));
        assert_int_equal(era_of(&at), 0);
        rig_run(&at);
        assert_true(rig_ends(&at, LIMIT_MS));
        assert_int_equal(at.status, TRI_OK);
        rig_close(&at);
    }
}

/* ssp, async: the rest of the run goes on. */
static void a_part_alone_goes_back_whoever_had_left(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    OK(tri_ps_views_left(at.store, 1));
    OK(tri_ps_server_restore(at.server, false));
    rig_run(&at);
    assert_false(rig_ends(&at, 1500));
    OK(tri_ps_views_left(at.store, 0));
    assert_true(rig_ends(&at, LIMIT_MS));
    assert_int_equal(at.status, TRI_OK);
    rig_close(&at);
}

static void awaits(void *arg)
{
    rig *at = arg;
    at->awaited = tri_ps_client_await_leader(at->workers[1].client, false);
}

/* A follower that has made its last step: until the leader is done, or the run goes back; once it is done it does not.
 */
static void who_is_done_waits_for_the_leader(void **state)
{
    (void)state;
    enum { LEADER_ENDS, LOST, LOST_TOO_LATE, CASES };
    for (int which = 0; which < CASES; which++) {
        const bool lost = which == LOST;
        static rig at;
        tri_thread *thread;
        int64_t era;
        rig_open(&at);
        rig_run(&at);
        for (int w = 0; w < WORKERS; w++)
            worker_join(&at, w);
        tri_ps_dense_close(at.workers[1].dense);
        at.workers[1].dense = NULL;
        OK(tri_thread_start(&thread, "follower", awaits, &at));
        if (which == LOST_TOO_LATE)
            OK(tri_ps_client_done(at.workers[0].client));
        if (which != LEADER_ENDS)
            OK(tri_ps_views_era(at.store, 1, &era));
        else
            worker_leave(&at, 0);
        tri_thread_join(thread);
        assert_int_equal(at.awaited, lost ? TRI_EABORT : TRI_OK);
        assert_int_equal(tri_ps_client_is_past(at.workers[1].client), lost);
        assert_int_equal(tri_ps_client_bye(at.workers[1].client), at.awaited);
        tri_ps_server_stop(at.server);
        rig_close(&at);
    }
}

static void who_has_failed_does_not_wait(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    at.ps.retry_s = 0.2;
    rig_run(&at);
    for (int w = 0; w < WORKERS; w++)
        worker_join(&at, w);
    tri_ps_server_stop(at.server);
    assert_true(rig_ends(&at, LIMIT_MS));
    tri_ps_server_close(at.server);
    at.server = NULL;
    awaits(&at);
    assert_int_equal(at.awaited, TRI_EPEER);
    rig_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_go_back_where_nobody_had_left),
        cmocka_unit_test(who_had_left_cannot_go_back),
        cmocka_unit_test(who_is_found_to_have_left_ends_it),
        cmocka_unit_test(who_was_of_this_era_may_leave),
        cmocka_unit_test(a_store_that_is_silent_is_asked_again),
        cmocka_unit_test(nobody_goes_back_where_the_leader_had_left),
        cmocka_unit_test(a_part_alone_goes_back_whoever_had_left),
        cmocka_unit_test(who_is_done_waits_for_the_leader),
        cmocka_unit_test(who_has_failed_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
