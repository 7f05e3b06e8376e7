/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv_thousand.c: a thousand workers and eight servers in one simulation, whose links are too slow for what the
 * workers want: everybody gets the same part, and nothing piles up.
 *
 * Each worker has several requests under way all the time, a few want as much as they can get. A fiber of its own looks
 * at what lies on the servers.
 */
#include <stdlib.h>

#include "ps/api/api.h"
#include "ps/api/table.h"
#include "ps/key.h"
#include "ps/server/server_impl.h"
#include "unit/ps/ps_rig.h"

#define WORKERS    1000
#define SERVERS    8
#define DIM        64
#define ROWS       4  /* of a request, all on one server */
#define UNDER_WAY  2  /* requests of a worker */
#define GREEDY     10 /* workers with more of them: */
#define MORE       256
#define WINDOW_KIB 64 /* of each connection */
#define STALENESS  1
#define WARM_NS    (30 * TRI_NS_PER_MS) /* until all have begun */
#define BODY_MOST  ((size_t)ROWS * DIM * sizeof(float) + 256)

typedef struct thousand {
    const char *options; /* of the table */
    bool in_steps;       /* a clock after each request */
    tri_hub *hub;
    tri_ps_server *servers[SERVERS];
    char addresses[SERVERS][12];  /* any int and its end */
    uint64_t keys[SERVERS][ROWS]; /* some on each server */
    int64_t served[WORKERS];
    int64_t start_ns, timed_ns;
    int ready, left;
    tri_status status; /* the first failure */
    char message[TRI_ERROR_NBYTES];
    size_t most_connection, most_owed, most_server; /* bytes that lay for one worker, and for all of one server */
    int64_t most_ahead;
} thousand;

static void note(thousand *rig, tri_status status)
{
    if (status == TRI_OK || rig->status != TRI_OK)
        return;
    rig->status = status;
    snprintf(rig->message, sizeof(rig->message), "%s", tri_last_error());
}

/* --- servers --- */

static tri_status serve(thousand *rig, int number)
{
    tri_net_config net;
    tri_options_defaults(&tri_net_options, &net);
    TRI_TRY(tri_options_set(&tri_net_options, &net, "slot_kib", "4")); /* little is on the way: the rest is queued */
    tri_ps_server_setup setup = {.net = &net,
                                 .token = "test",
                                 .number = number,
                                 .servers = SERVERS,
                                 .workers = WORKERS,
                                 .threads = 1,
                                 .replicas = 1,
                                 .hub = rig->hub,
                                 .rank = WORKERS + number,
                                 .world = WORKERS + SERVERS};
    TRI_TRY(tri_ps_server_open(&setup, &rig->servers[number]));
    return tri_ps_server_run(rig->servers[number]);
}

/* --- workers --- */

static tri_status kv_join(thousand *rig, int worker, tri_kv **out)
{
    const char *const options[] = {"comm.timeout_s=600", "ps.window_kib=64", "comm.slot_kib=4", NULL};
    const char *addresses[SERVERS];
    uint64_t stops = 0;
    tri_kv *kv = tri_alloc_zero(1, sizeof(*kv));
    if (!kv)
        return TRI_ENOMEM;
    *out = kv;
    for (int s = 0; s < SERVERS; s++)
        addresses[s] = rig->addresses[s];
    TRI_TRY(tri_kv_options_read(options, &kv->net, &kv->ps));
    assert_int_equal(kv->ps.window_kib, WINDOW_KIB);
    tri_ps_client_setup setup = {.net = &kv->net,
                                 .ps = &kv->ps,
                                 .token = "test",
                                 .addresses = addresses,
                                 .worker = worker,
                                 .workers = WORKERS,
                                 .servers = SERVERS,
                                 .hub = rig->hub,
                                 .rank = worker,
                                 .world = WORKERS + SERVERS};
    TRI_TRY(tri_ps_client_open(&setup, &kv->client));
    return tri_ps_kv_open(kv->client, &stops);
}

static bool continues(const thousand *rig)
{
    return tri_now_ns() - rig->start_ns < rig->timed_ns;
}

static bool is_timed(const thousand *rig)
{
    return continues(rig) && tri_now_ns() - rig->start_ns >= WARM_NS;
}

/* Requests to servers in turns, some of them at once. */
static tri_status requests_run(thousand *rig, int worker, tri_kv_table *table)
{
    static const float ones[ROWS * DIM] = {1};
    static float rows[ROWS * DIM]; /* nobody reads them */
    tri_kv_work *works[MORE] = {NULL};
    int at_once = worker < GREEDY ? MORE : UNDER_WAY;
    int64_t sent = 0, done = 0;
    while (continues(rig)) {
        int slot = (int)(sent % at_once);
        if (works[slot]) {
            TRI_TRY(tri_kv_wait(works[slot]));
            done++;
            rig->served[worker] += is_timed(rig);
        }
        const uint64_t *keys = rig->keys[(sent + worker) % SERVERS];
        TRI_TRY(worker < GREEDY ? tri_kv_pull(table, keys, ROWS, rows, &works[slot])
                                : tri_kv_push_pull(table, keys, ones, rows, ROWS, &works[slot]));
        sent++;
    }
    for (; done < sent; done++)
        TRI_TRY(tri_kv_wait(works[done % at_once]));
    return TRI_OK;
}

/* A step is a request to each server and a clock. */
static tri_status steps_run(thousand *rig, int worker, tri_kv *kv, tri_kv_table *table)
{
    static const float ones[ROWS * DIM] = {1};
    float rows[ROWS * DIM];
    for (int64_t step = 0; continues(rig); step++) {
        const uint64_t *keys = rig->keys[(step + worker) % SERVERS];
        TRI_TRY(tri_kv_pull(table, keys, ROWS, rows, NULL));
        TRI_TRY(tri_kv_push(table, -1, keys, ones, ROWS, NULL));
        TRI_TRY(tri_kv_clock(kv));
        rig->served[worker] = step + 1;
        int64_t least = INT64_MAX;
        for (int w = 0; w < WORKERS; w++)
            least = rig->served[w] < least ? rig->served[w] : least;
        rig->most_ahead = step + 1 - least > rig->most_ahead ? step + 1 - least : rig->most_ahead;
    }
    return TRI_OK;
}

static tri_status work(thousand *rig, int worker, tri_kv *kv)
{
    tri_kv_table *table;
    TRI_TRY(tri_kv_table_open(kv, "rows", DIM, rig->options, &table));
    TRI_TRY(tri_kv_barrier(kv));
    if (rig->ready++ == 0)
        rig->start_ns = tri_now_ns();
    TRI_TRY(rig->in_steps ? steps_run(rig, worker, kv, table) : requests_run(rig, worker, table));
    return TRI_OK;
}

static tri_status worker_run(thousand *rig, int worker)
{
    tri_kv *kv = NULL;
    tri_status status = kv_join(rig, worker, &kv);
    if (status == TRI_OK)
        status = work(rig, worker, kv);
    if (status == TRI_OK)
        return tri_kv_close(kv);
    note(rig, status);
    if (kv)
        (void)tri_kv_abandon(kv);
    return status;
}

/* --- who looks --- */

static void server_look(thousand *rig, const tri_ps_server *server)
{
    size_t all = 0;
    for (const ps_client_connection *client = server ? server->clients : NULL; client; client = client->next) {
        size_t queued = tri_connection_queued(client->connection);
        rig->most_connection = queued > rig->most_connection ? queued : rig->most_connection;
        rig->most_owed = client->owed > rig->most_owed ? client->owed : rig->most_owed;
        all += queued > client->owed ? queued : client->owed;
    }
    rig->most_server = all > rig->most_server ? all : rig->most_server;
}

static void watch(thousand *rig)
{
    while (rig->left < WORKERS && rig->status == TRI_OK) {
        for (int s = 0; s < SERVERS; s++)
            server_look(rig, rig->servers[s]);
        tri_sleep_ns(5 * TRI_NS_PER_MS);
    }
    for (int s = 0; rig->status != TRI_OK && s < SERVERS; s++)
        if (rig->servers[s])
            tri_ps_server_stop(rig->servers[s]);
}

static void fiber_body(int index, void *arg)
{
    thousand *rig = arg;
    if (index < WORKERS) {
        note(rig, worker_run(rig, index));
        rig->left++;
    } else if (index < WORKERS + SERVERS) {
        note(rig, serve(rig, index - WORKERS));
    } else {
        watch(rig);
    }
}

/* --- runs --- */

static const thousand *run(const char *options, bool in_steps, int64_t timed_ms)
{
    static thousand one;
    ps_view view;
    one = (thousand){.options = options, .in_steps = in_steps, .timed_ns = timed_ms * TRI_NS_PER_MS};
    OK(ps_view_first(SERVERS, &view));
    int found[SERVERS] = {0};
    for (uint64_t key = 1, all = 0; all < SERVERS * ROWS; key++) {
        int server = view.slots[ps_key_slot(key)];
        if (found[server] < ROWS) {
            one.keys[server][found[server]++] = key;
            all++;
        }
    }
    for (int s = 0; s < SERVERS; s++)
        snprintf(one.addresses[s], sizeof(one.addresses[s]), "%d", WORKERS + s);
    tri_hub_config config = {
        .world = WORKERS + SERVERS,
        .fabric = {
            .latency_us = 50, .bandwidth = 40000000, .node_bandwidth = 40000000, .message_us = 1, .jitter_us = 20}};
    OK(tri_hub_create(&config, &one.hub));
    tri_sim_config sim = {.seed = 5, .stack_nbytes = 128 << 10};
    OK(tri_sim_run(&sim, WORKERS + SERVERS + 1, fiber_body, &one));
    for (int s = 0; s < SERVERS; s++)
        tri_ps_server_close(one.servers[s]);
    tri_hub_destroy(one.hub);
    if (one.status != TRI_OK)
        fail_msg("%s", one.message);
    return &one;
}

static void served_count(const thousand *rig, int64_t *least, int64_t *most)
{
    *least = INT64_MAX;
    *most = 0;
    for (int w = GREEDY; w < WORKERS; w++) { /* of the others */
        *least = rig->served[w] < *least ? rig->served[w] : *least;
        *most = rig->served[w] > *most ? rig->served[w] : *most;
    }
}

/* What lay on the servers is bounded by what a worker may have under way. */
static void expect_bounds(const thousand *rig, const char *name)
{
    int64_t least, most;
    served_count(rig, &least, &most);
    size_t one = rig->most_connection > rig->most_owed ? rig->most_connection : rig->most_owed;
    print_message("%s: each was served %lld to %lld times; at most %zu bytes lay for one, %zu on a server\n", name,
                  (long long)least, (long long)most, one, rig->most_server);
    assert_true(least >= 10);
    assert_true(10 * (most - least) <= most);
    assert_true(one <= ((size_t)WINDOW_KIB << 10) + BODY_MOST);
    assert_true(rig->most_server <=
                GREEDY * (((size_t)WINDOW_KIB << 10) + BODY_MOST) + WORKERS * UNDER_WAY * BODY_MOST);
}

static void all_are_served_alike_and_nothing_piles_up(void **state)
{
    (void)state;
    const thousand *rig = run("merge: add, consistency: async", false, 120);
    expect_bounds(rig, "async");
    assert_true(rig->most_connection > 2 * BODY_MOST); /* the greedy wait for their answers, not the servers */
}

static void nobody_runs_ahead_of_a_thousand(void **state)
{
    (void)state;
    const thousand *rig = run("merge: add, consistency: ssp, staleness: 1", true, 80);
    expect_bounds(rig, "ssp");
    assert_in_range(rig->most_ahead, 1, STALENESS + 1); /* that it finishes the step which it may begin */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_served_alike_and_nothing_piles_up),
        cmocka_unit_test(nobody_runs_ahead_of_a_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
