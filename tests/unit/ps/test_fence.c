/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fence.c: a server that was stopped, or is taken for stopped, and wakes up: nobody listens to it, and it tells
 * nobody anything.
 */
#include <signal.h>
#include <unistd.h>

#include "base/runtime.h"
#include "unit/ps/fence_rig.h"

/* --- one that sleeps --- */

/* It says that it may be silent for so long, and is: it is done without, when that is over. */
static void an_excuse_holds_for_as_long_as_it_says(void **state)
{
    enum { EXCUSE_MS = 400 };
    fence_scene at;
    (void)state;
    fence_open(&at, 2, 1, FENCE_BEAT_MS);
    int64_t start_ns = tri_now_ns();
    fence_begin_as_server(&at); /* goes together with the excuse: there is no silence before it */
    fence_say(at.as_server, &(ps_head){.kind = PS_BEAT, .extra = EXCUSE_MS}, NULL);
    assert_true(fence_turn_until(&at, &at.lost_server, FENCE_LIMIT_MS)); /* comm.timeout_s is much longer than this */
    assert_true(tri_now_ns() - start_ns >= EXCUSE_MS * TRI_NS_PER_MS);
    ps_view view = fence_view_now(&at);
    assert_false(ps_view_has(&view, at.other));
    fence_close(&at);
}

static void who_wakes_up_when_others_do_without_it_is_not_listened_to(void **state)
{
    fence_scene at;
    (void)state;
    fence_open(&at, 2, 1, FENCE_BEAT_MS);
    fence_begin_as_server(&at);
    assert_true(fence_turn_until(&at, &at.lost_server, FENCE_LIMIT_MS)); /* it sleeps, and has lost its connection */
    ps_view view = fence_view_now(&at);
    assert_false(ps_view_has(&view, at.other));
    /* It wakes up, and goes on as if nothing had happened: in view 1 it has half of the slots. */
    at.acknowledged = 0;
    fence_begin_as_server(&at);
    fence_say(at.as_server, &(ps_head){.kind = PS_BEAT}, NULL);
    assert_true(fence_turn_until(&at, &at.lost_server, FENCE_LIMIT_MS));
    assert_int_equal(at.acknowledged, 0);
    assert_int_equal(fence_view_now(&at).version, view.version);
    /* Once it is in a view again it is. */
    ps_change change = {PS_JOIN, at.other};
    OK(tri_ps_views_claim(at.store, &change, &view));
    fence_hello_as_server(&at, 0, view.version);
    while (at.acknowledged < 1 && !at.lost_server)
        OK(tri_endpoint_poll(at.endpoint, tri_deadline_after_ms(5)));
    assert_true(at.acknowledged >= 1); /* and lost again since, if this test has been silent for long */
    fence_close(&at);
}

/* --- one that others do without --- */

/* Of a row that lies with the real server. */
static void pull(fence_scene *at, uint64_t request)
{
    uint64_t key = 0;
    while (ps_key_slot(key) % at->servers != at->own)
        key++;
    fence_row_say(at, request, key, NULL);
}

static atomic_bool is_frozen, has_frozen;

static void freeze(int signal)
{
    (void)signal;
    atomic_store(&has_frozen, true);
    while (atomic_load(&is_frozen))
        usleep(1000);
}

/* As after SIGSTOP: what was asked meanwhile is read when it goes on, and before what its backup has answered to a beat
 * that was on its way when it was stopped, if one was. */
static void wakes_up(bool beat_is_on_its_way)
{
    fence_scene at;
    fence_open(&at, 3, 0,
               FENCE_BEAT_MS); /* so it has no copy of what its backup has, and does not do without that one */
    fence_table_open(&at);
    pull(&at, 2);
    while (at.answered < 2)
        OK(tri_endpoint_poll(at.endpoint, tri_deadline_after_ms(5)));
    fence_turn_until(&at, NULL, 3 * FENCE_BEAT_MS);
    at.acknowledges = !beat_is_on_its_way;
    fence_turn_until(&at, NULL, 2 * FENCE_BEAT_MS);
    signal(SIGUSR1, freeze);
    atomic_store(&is_frozen, true);
    atomic_store(&has_frozen, false);
    assert_int_equal(pthread_kill(at.server_thread, SIGUSR1), 0);
    while (!atomic_load(&has_frozen))
        usleep(100);
    pull(&at, 3);
    fence_turn_until(&at, NULL, 3 * FENCE_BEAT_MS);
    if (beat_is_on_its_way)
        fence_acknowledge(&at);
    fence_turn_until(&at, NULL, 3 * FENCE_BEAT_MS); /* together as long as others wait, and more */
    assert_int_equal(at.answered, 2);
    ps_view view = fence_view_now(&at);
    ps_change change = {PS_WITHOUT, at.own};
    OK(tri_ps_views_claim(at.store, &change, &view));
    at.acknowledges = false; /* nobody is its backup any more */
    atomic_store(&is_frozen, false);
    fence_turn_until(&at, &at.lost_worker, 10 * FENCE_BEAT_MS);
    assert_int_equal(at.answered, 2);
    if (at.as_backup)
        tri_connection_close(at.as_backup);
    at.as_backup = NULL;
    at.acknowledges = true;
    assert_true(fence_turn_until(&at, &at.lost_worker, FENCE_LIMIT_MS)); /* it begins anew: its worker is to look */
    assert_int_equal(at.answered, 2);
    view = fence_view_now(&at);
    assert_true(ps_view_has(&view, at.own));
    assert_int_equal(ps_view_slots(&view, at.own), 0); /* with nothing */
    fence_close(&at);
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
    fence_scene at;
    (void)state;
    fence_open(&at, 3, 0, FENCE_BEAT_MS);
    fence_table_open(&at);
    at.acknowledges = false;
    fence_turn_until(&at, NULL, 5 * FENCE_BEAT_MS);
    pull(&at, 2);
    fence_turn_until(&at, NULL, 10 * FENCE_BEAT_MS);
    assert_int_equal(at.answered, 1);
    at.acknowledges = true;
    fence_acknowledge(&at);
    while (at.answered < 2)
        OK(tri_endpoint_poll(at.endpoint, tri_deadline_after_ms(5)));
    fence_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_excuse_holds_for_as_long_as_it_says),
        cmocka_unit_test(who_wakes_up_when_others_do_without_it_is_not_listened_to),
        cmocka_unit_test(who_wakes_up_tells_nobody_what_it_knew_before),
        cmocka_unit_test(who_hears_of_its_backup_again_says_what_it_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
