/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fence.c: a server that was stopped, or is taken for stopped, and wakes up: nobody listens to it, and it tells
 * nobody anything. One server is real; this test speaks for its neighbour and for the worker.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/runtime.h"
#include "cluster/store.h"
#include "ps/client.h"
#include "ps/kv_body.h"
#include "ps/kv_spec.h"
#include "ps/protocol.h"
#include "ps/server.h"
#include "ps/view.h"
#include "ps/views.h"
#include "unit/ps/ps_rig.h"

#define TOKEN    "a token of this test"
#define BEAT_MS  20
#define DIM      4
#define LIMIT_MS 30000 /* a test that waits for so long has failed */

typedef struct scene {
    tri_net_config net;
    tri_store *store;
    tri_ps_server *server; /* the real one, of number `own` */
    int servers, own, other;
    tri_thread *thread;
    pthread_t server_thread;
    tri_status status;
    atomic_bool ended;                          /* the real one, with that status */
    tri_post *post;                             /* the other one, and the worker */
    tri_line *as_server;                        /* dialed: the other one has the real one as its backup */
    tri_line *as_worker;                        /* dialed */
    tri_line *as_backup;                        /* the real one has dialed */
    bool acknowledges;                          /* letters that come there */
    uint64_t heard;                             /* of them */
    uint64_t acknowledged;                      /* of ours, by the real one */
    uint64_t answered;                          /* request of the latest answer to the worker, */
    float row[DIM];                             /* and the row that came with it */
    int64_t told;                               /* view that the real one has told its backup of */
    bool lost_server, lost_worker, lost_backup; /* these lines have ended */
} scene;

static bool on_opened(void *arg, tri_line *line)
{
    scene *at = arg;
    at->as_backup = line;
    at->heard = 0;
    return true;
}

static void acknowledge(scene *at)
{
    tri_letter ack = ps_head_write(&(ps_head){.kind = PS_ACK, .request = at->heard});
    if (at->as_backup)
        OK(tri_post_send(at->as_backup, 0, &ack, NULL, NULL, NULL));
}

static bool on_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    scene *at = arg;
    ps_head head = ps_head_read(letter);
    if (line == at->as_backup) {
        at->heard += !(head.kind == PS_BEAT && head.extra > 0);
        at->told = head.kind == PS_LOOK ? head.clock : at->told;
        if (at->acknowledges)
            acknowledge(at);
    } else if (line == at->as_server && head.kind == PS_ACK)
        at->acknowledged = head.request;
    else if (line == at->as_worker && head.kind == PS_KV_DONE) {
        at->answered = head.request;
        if (head.nbytes == sizeof(at->row))
            memcpy(at->row, body, sizeof(at->row));
    }
    return true;
}

static void on_closed(void *arg, tri_line *line, const char *why)
{
    scene *at = arg;
    (void)why;
    at->lost_server = at->lost_server || line == at->as_server;
    at->lost_worker = at->lost_worker || line == at->as_worker;
    at->lost_backup = at->lost_backup || line == at->as_backup;
    at->as_server = line == at->as_server ? NULL : at->as_server;
    at->as_worker = line == at->as_worker ? NULL : at->as_worker;
    at->as_backup = line == at->as_backup ? NULL : at->as_backup;
}

static void server_body(void *arg)
{
    scene *at = arg;
    sigset_t usr;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &usr, NULL); /* who_wakes_up_tells_nobody_what_it_knew_before() */
    at->server_thread = pthread_self();
    at->status = tri_ps_server_run(at->server);
    atomic_store(&at->ended, true);
}

static void address_put(scene *at, int number, const char *address)
{
    char key[TRI_PS_KEY_NBYTES];
    tri_ps_key(number, key);
    OK(tri_store_set(at->store, key, address, strlen(address), tri_deadline_after_ms(LIMIT_MS)));
}

static void scene_open(scene *at, int servers, int own)
{
    *at = (scene){.servers = servers, .own = own, .other = 1 - own, .acknowledges = true};
    tri_options_defaults(&tri_net_options, &at->net);
    OK(tri_options_set(&tri_net_options, &at->net, "interface", "lo"));
    at->net.heartbeat_ms = BEAT_MS;
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
    tri_post_setup post = {.name = "the other server",
                           .config = &at->net,
                           .token = TOKEN,
                           .listens = true,
                           .body_limit = PS_BODY_LIMIT_NBYTES,
                           .handlers = {.arg = at, .opened = on_opened, .letter = on_letter, .closed = on_closed}};
    OK(tri_post_open(&post, &at->post));
    address_put(at, own, tri_ps_server_address(at->server));
    address_put(at, at->other, tri_post_address(at->post));
    OK(tri_thread_start(&at->thread, "server", server_body, at));
}

static void scene_close(scene *at)
{
    tri_ps_server_stop(at->server);
    tri_thread_join(at->thread);
    OK(at->status);
    tri_post_close(at->post);
    tri_ps_server_close(at->server);
    tri_store_close(at->store);
}

/* What comes is handled until `done`, or for so long. Returns whether it is. */
static bool turn_until(scene *at, const bool *done, int64_t limit_ms)
{
    int64_t until_ns = tri_deadline_after_ms(limit_ms);
    while (!(done && *done) && tri_now_ns() < until_ns)
        OK(tri_post_turn(at->post, tri_deadline_after_ms(5)));
    return done && *done;
}

static tri_line *dial(scene *at)
{
    tri_line *line;
    OK(tri_post_dial(at->post, tri_ps_server_address(at->server), tri_deadline_after_ms(LIMIT_MS), &line));
    return line;
}

static void say(tri_line *line, const ps_head *head, const void *body)
{
    tri_letter letter = ps_head_write(head);
    assert_non_null(line);
    OK(tri_post_send(line, 0, &letter, body, NULL, NULL));
}

static void hello_as_server(scene *at, uint16_t flags, uint64_t version)
{
    at->lost_server = false;
    at->as_server = dial(at);
    say(at->as_server,
        &(ps_head){.kind = PS_HELLO,
                   .flags = PS_FLAG_SERVER | flags,
                   .request = PS_VERSION,
                   .clock = at->other,
                   .extra = (double)version},
        NULL);
}

/* It has no tables. */
static void begin_as_server(scene *at)
{
    hello_as_server(at, 0, 1);
    say(at->as_server, &(ps_head){.kind = PS_LOOK, .clock = 1}, NULL);
}

static ps_view view_now(const scene *at)
{
    ps_view view;
    OK(ps_view_first(at->servers, &view));
    OK(tri_ps_views_look(at->store, &view));
    return view;
}

/* --- one that sleeps --- */

/* It says that it may be silent for so long, and is: it is done without, when that is over. */
static void an_excuse_holds_for_as_long_as_it_says(void **state)
{
    enum { EXCUSE_MS = 400 };
    scene at;
    (void)state;
    scene_open(&at, 2, 1);
    begin_as_server(&at);
    while (at.acknowledged < 1)
        OK(tri_post_turn(at.post, tri_deadline_after_ms(5)));
    int64_t start_ns = tri_now_ns();
    say(at.as_server, &(ps_head){.kind = PS_BEAT, .extra = EXCUSE_MS}, NULL);
    assert_true(turn_until(&at, &at.lost_server, LIMIT_MS)); /* comm.timeout_s is much longer than this */
    assert_true(tri_now_ns() - start_ns >= EXCUSE_MS * TRI_NS_PER_MS);
    ps_view view = view_now(&at);
    assert_false(ps_view_has(&view, at.other));
    scene_close(&at);
}

static void who_wakes_up_when_others_do_without_it_is_not_listened_to(void **state)
{
    scene at;
    (void)state;
    scene_open(&at, 2, 1);
    begin_as_server(&at);
    assert_true(turn_until(&at, &at.lost_server, LIMIT_MS)); /* it sleeps, and has lost its line */
    ps_view view = view_now(&at);
    assert_false(ps_view_has(&view, at.other));
    /* It wakes up, and goes on as if nothing had happened: in view 1 it has half of the slots. */
    at.acknowledged = 0;
    begin_as_server(&at);
    say(at.as_server, &(ps_head){.kind = PS_BEAT}, NULL);
    assert_true(turn_until(&at, &at.lost_server, LIMIT_MS));
    assert_int_equal(at.acknowledged, 0);
    assert_int_equal(view_now(&at).version, view.version);
    /* Once it is in a view again it is. */
    ps_change change = {PS_JOIN, at.other};
    OK(tri_ps_views_claim(at.store, &change, &view));
    hello_as_server(&at, 0, view.version);
    while (at.acknowledged < 1 && !at.lost_server)
        OK(tri_post_turn(at.post, tri_deadline_after_ms(5)));
    assert_false(at.lost_server);
    scene_close(&at);
}

/* --- one that others do without --- */

static void table_open(scene *at)
{
    ps_kv_spec spec;
    tri_string text = {0};
    OK(ps_kv_spec_make("table", DIM, 1, "merge: add", &spec));
    OK(ps_kv_spec_print(&spec, &text));
    at->as_worker = dial(at);
    say(at->as_worker, &(ps_head){.kind = PS_HELLO, .request = PS_VERSION}, NULL);
    say(at->as_worker, &(ps_head){.kind = PS_KV_OPEN, .request = 1, .nbytes = text.nbytes}, tri_string_text(&text));
    while (at->answered < 1)
        OK(tri_post_turn(at->post, tri_deadline_after_ms(5)));
    tri_string_fini(&text);
}

/* Pulls a row, or makes it these values. */
static void row_say(scene *at, uint64_t request, uint64_t key, const float *values)
{
    unsigned char bytes[256];
    ps_rows_body body = {.slots = ps_keys_slots(&key, 1), .keys = &key, .values = values, .count = 1};
    ps_head head = {.kind = values ? PS_KV_PUSH : PS_KV_PULL,
                    .flags = values ? PS_FLAG_ASSIGN : 0,
                    .request = request,
                    .table = ps_kv_table_id("table"),
                    .block = 1,
                    .extra = values ? (double)request : 0};
    head.nbytes = ps_rows_body_write(&body, DIM, PS_WIRE_F32, true, bytes);
    say(at->as_worker, &head, bytes);
}

/* Of a row that lies with the real server. */
static void pull(scene *at, uint64_t request)
{
    uint64_t key = 0;
    while (ps_key_slot(key) % at->servers != at->own)
        key++;
    row_say(at, request, key, NULL);
}

static atomic_bool is_frozen;

static void freeze(int signal)
{
    (void)signal;
    while (atomic_load(&is_frozen))
        usleep(1000);
}

/* As after SIGSTOP: what was asked meanwhile is read when it goes on, and before what its backup has answered to a beat
 * that was on its way when it was stopped, if one was. */
static void wakes_up(bool beat_is_on_its_way)
{
    scene at;
    scene_open(&at, 3, 0); /* so it has no copy of what its backup has, and does not do without that one */
    table_open(&at);
    pull(&at, 2);
    while (at.answered < 2)
        OK(tri_post_turn(at.post, tri_deadline_after_ms(5)));
    turn_until(&at, NULL, 3 * BEAT_MS);
    at.acknowledges = !beat_is_on_its_way;
    turn_until(&at, NULL, 2 * BEAT_MS);
    signal(SIGUSR1, freeze);
    atomic_store(&is_frozen, true);
    assert_int_equal(pthread_kill(at.server_thread, SIGUSR1), 0);
    pull(&at, 3);
    turn_until(&at, NULL, 3 * BEAT_MS);
    if (beat_is_on_its_way)
        acknowledge(&at);
    turn_until(&at, NULL, 3 * BEAT_MS); /* together as long as others wait, and more */
    assert_int_equal(at.answered, 2);
    ps_view view = view_now(&at);
    ps_change change = {PS_WITHOUT, at.own};
    OK(tri_ps_views_claim(at.store, &change, &view));
    at.acknowledges = false; /* nobody is its backup any more */
    atomic_store(&is_frozen, false);
    turn_until(&at, &at.lost_worker, 10 * BEAT_MS);
    assert_int_equal(at.answered, 2);
    if (at.as_backup)
        tri_line_hang_up(at.as_backup);
    at.as_backup = NULL;
    at.acknowledges = true;
    assert_true(turn_until(&at, &at.lost_worker, LIMIT_MS)); /* it begins anew: its worker is to look */
    assert_int_equal(at.answered, 2);
    view = view_now(&at);
    assert_true(ps_view_has(&view, at.own));
    assert_int_equal(ps_view_slots(&view, at.own), 0); /* with nothing */
    scene_close(&at);
}

static void who_wakes_up_tells_nobody_what_it_knew_before(void **state)
{
    (void)state;
    wakes_up(false);
    wakes_up(true);
}

/* A beat that is acknowledged late: nobody has done without it, and what it kept is said. */
static void who_hears_of_its_backup_again_says_what_it_kept(void **state)
{
    scene at;
    (void)state;
    scene_open(&at, 3, 0);
    table_open(&at);
    at.acknowledges = false;
    turn_until(&at, NULL, 5 * BEAT_MS);
    pull(&at, 2);
    turn_until(&at, NULL, 10 * BEAT_MS);
    assert_int_equal(at.answered, 1);
    at.acknowledges = true;
    acknowledge(&at);
    while (at.answered < 2)
        OK(tri_post_turn(at.post, tri_deadline_after_ms(5)));
    scene_close(&at);
}

/* --- a backup in its first moments --- */

static void open_as_server(scene *at, uint16_t flags)
{
    ps_kv_spec spec;
    tri_string text = {0};
    OK(ps_kv_spec_make("table", DIM, 1, "merge: add", &spec));
    OK(ps_kv_spec_print(&spec, &text));
    say(at->as_server, &(ps_head){.kind = PS_KV_OPEN, .flags = flags, .nbytes = text.nbytes}, tri_string_text(&text));
    tri_string_fini(&text);
}

/* The other server dies when it has said so much; what became of the server that goes on in its place. */
static tri_status dies_after(scene *at, uint16_t flags, bool opens)
{
    scene_open(at, 2, 1);
    hello_as_server(at, flags, 1);
    if (opens)
        open_as_server(at, 0);
    while (at->acknowledged < 1 + (opens ? 1 : 0))
        OK(tri_post_turn(at->post, tri_deadline_after_ms(5)));
    ps_view view = view_now(at);
    OK(tri_ps_views_claim(at->store, &(ps_change){PS_WITHOUT, at->other}, &view));
    say(at->as_server, &(ps_head){.kind = PS_LOOK, .clock = (int64_t)view.version}, NULL);
    while (!at->lost_server && !atomic_load(&at->ended))
        OK(tri_post_turn(at->post, tri_deadline_after_ms(5)));
    tri_ps_server_stop(at->server);
    tri_thread_join(at->thread);
    tri_post_close(at->post);
    tri_ps_server_close(at->server);
    tri_store_close(at->store);
    return at->status;
}

static void who_had_nothing_yet_is_no_loss(void **state)
{
    scene at;
    (void)state;
    assert_int_equal(dies_after(&at, PS_FLAG_STARTS, false), TRI_OK);
    assert_int_equal(dies_after(&at, PS_FLAG_STARTS, true), TRI_OK);
}

/* It may have had tables that this one has never heard of. */
static void who_has_not_told_its_tables_is_missed(void **state)
{
    scene at;
    (void)state;
    assert_int_equal(dies_after(&at, 0, false), TRI_EPEER);
}

/* The next view, of which the worker tells the real server. */
static void view_change(scene *at, ps_change_kind kind)
{
    ps_view view = view_now(at);
    OK(tri_ps_views_claim(at->store, &(ps_change){kind, at->other}, &view));
    say(at->as_worker, &(ps_head){.kind = PS_LOOK, .clock = (int64_t)view.version}, NULL);
}

static void row_await(scene *at, uint64_t request)
{
    while (at->answered < request && !atomic_load(&at->ended))
        OK(tri_post_turn(at->post, tri_deadline_after_ms(5)));
    assert_false(atomic_load(&at->ended)); /* "its backup had not been given all that it held" */
    assert_int_equal(at->answered, request);
}

/* The other one has come back with view 3, and says so when it has been given all and half of the slots (view 4). It
 * takes for given what the real one has of them, so that must not go: not with HELLO, nor with the tables behind it. */
static void what_was_shared_stays_when_the_hello_comes_behind(void **state)
{
    const float values[DIM] = {1, 2, 3, 4};
    uint64_t key = 0;
    scene at;
    ps_view shared;
    (void)state;
    OK(ps_view_first(2, &shared));
    OK(ps_view_change(&shared, &(ps_change){PS_WITHOUT, 0}, &shared));
    OK(ps_view_change(&shared, &(ps_change){PS_JOIN, 0}, &shared));
    OK(ps_view_change(&shared, &(ps_change){PS_SHARE, 1}, &shared));
    while (shared.slots[ps_key_slot(key)] != 0)
        key++;
    scene_open(&at, 2, 1);
    hello_as_server(&at, PS_FLAG_STARTS, 1);
    table_open(&at);
    view_change(&at, PS_WITHOUT);
    row_say(&at, 2, key, values);
    row_await(&at, 2);
    view_change(&at, PS_JOIN);
    while (at.told < (int64_t)shared.version)
        OK(tri_post_turn(at.post, tri_deadline_after_ms(5)));
    ps_view view = view_now(&at);
    assert_memory_equal(view.slots, shared.slots, sizeof(view.slots));
    at.acknowledged = 0;
    hello_as_server(&at, 0, 3);
    open_as_server(&at, PS_FLAG_COPY);
    while (at.acknowledged < 2)
        OK(tri_post_turn(at.post, tri_deadline_after_ms(5)));
    view_change(&at, PS_WITHOUT);
    row_say(&at, 3, key, NULL);
    row_await(&at, 3);
    assert_memory_equal(at.row, values, sizeof(values));
    scene_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_excuse_holds_for_as_long_as_it_says),
        cmocka_unit_test(who_wakes_up_when_others_do_without_it_is_not_listened_to),
        cmocka_unit_test(who_wakes_up_tells_nobody_what_it_knew_before),
        cmocka_unit_test(who_hears_of_its_backup_again_says_what_it_kept),
        cmocka_unit_test(who_had_nothing_yet_is_no_loss),
        cmocka_unit_test(who_has_not_told_its_tables_is_missed),
        cmocka_unit_test(what_was_shared_stays_when_the_hello_comes_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
