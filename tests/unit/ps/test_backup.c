/* SPDX-License-Identifier: Apache-2.0
 *
 * test_backup.c: a backup in its first moments: what it must have of the server whose place it takes, and what it keeps
 * when that one comes back.
 */
#include "base/runtime.h"
#include "ps/tables/kv_spec.h"
#include "unit/ps/fence_rig.h"

static void open_as_server(fence_scene *at, uint16_t flags)
{
    ps_kv_spec spec;
    tri_string text = {0};
    OK(ps_kv_spec_make("table", FENCE_DIM, 1, "merge: add", &spec));
    OK(ps_kv_spec_print(&spec, &text));
    fence_say(at->as_server, &(ps_head){.kind = PS_KV_OPEN, .flags = flags, .nbytes = text.nbytes},
              tri_string_text(&text));
    tri_string_fini(&text);
}

/* The other server dies when it has said so much; what became of the server that goes on in its place. */
static tri_status dies_after(fence_scene *at, uint16_t flags, bool opens)
{
    fence_open(at, 2, 1, 0);
    fence_hello_as_server(at, flags, 1);
    if (opens)
        open_as_server(at, 0);
    while (at->acknowledged < 1 + (opens ? 1 : 0))
        OK(tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(5)));
    ps_view view = fence_view_now(at);
    OK(tri_ps_views_claim(at->store, &(ps_change){PS_WITHOUT, at->other}, &view));
    fence_say(at->as_server, &(ps_head){.kind = PS_LOOK, .clock = (int64_t)view.version}, NULL);
    while (!at->lost_server && !atomic_load(&at->ended))
        OK(tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(5)));
    tri_ps_server_stop(at->server);
    tri_thread_join(at->thread);
    tri_endpoint_close(at->endpoint);
    tri_ps_server_close(at->server);
    tri_store_close(at->store);
    return at->status;
}

static void who_had_nothing_yet_is_no_loss(void **state)
{
    fence_scene at;
    (void)state;
    assert_int_equal(dies_after(&at, PS_FLAG_STARTS, false), TRI_OK);
    assert_int_equal(dies_after(&at, PS_FLAG_STARTS, true), TRI_OK);
}

/* It may have had tables that this one has never heard of. */
static void who_has_not_told_its_tables_is_missed(void **state)
{
    fence_scene at;
    (void)state;
    assert_int_equal(dies_after(&at, 0, false), TRI_EPEER);
}

/* The next view, of which the worker tells the real server. */
static void view_change(fence_scene *at, ps_change_kind kind)
{
    ps_view view = fence_view_now(at);
    OK(tri_ps_views_claim(at->store, &(ps_change){kind, at->other}, &view));
    fence_say(at->as_worker, &(ps_head){.kind = PS_LOOK, .clock = (int64_t)view.version}, NULL);
}

static void row_await(fence_scene *at, uint64_t request)
{
    while (at->answered < request && !atomic_load(&at->ended))
        OK(tri_endpoint_poll(at->endpoint, tri_deadline_after_ms(5)));
    assert_false(atomic_load(&at->ended)); /* "its backup had not been given all that it held" */
    assert_int_equal(at->answered, request);
}

/* The other one has come back with view 3, and says so when it has been given all and half of the slots (view 4). It
 * takes for given what the real one has of them, so that must not go: not with HELLO, nor with the tables behind it. */
static void what_was_shared_stays_when_the_hello_comes_behind(void **state)
{
    const float values[FENCE_DIM] = {1, 2, 3, 4};
    uint64_t key = 0;
    fence_scene at;
    ps_view shared;
    (void)state;
    OK(ps_view_first(2, &shared));
    OK(ps_view_change(&shared, &(ps_change){PS_WITHOUT, 0}, &shared));
    OK(ps_view_change(&shared, &(ps_change){PS_JOIN, 0}, &shared));
    OK(ps_view_change(&shared, &(ps_change){PS_SHARE, 1}, &shared));
    while (shared.slots[ps_key_slot(key)] != 0)
        key++;
    fence_open(&at, 2, 1, 0);
    fence_hello_as_server(&at, PS_FLAG_STARTS, 1);
    fence_table_open(&at);
    view_change(&at, PS_WITHOUT);
    fence_row_say(&at, 2, key, values);
    row_await(&at, 2);
    view_change(&at, PS_JOIN);
    while (at.told < (int64_t)shared.version)
        OK(tri_endpoint_poll(at.endpoint, tri_deadline_after_ms(5)));
    ps_view view = fence_view_now(&at);
    assert_memory_equal(view.slots, shared.slots, sizeof(view.slots));
    at.acknowledged = 0;
    fence_hello_as_server(&at, 0, 3);
    open_as_server(&at, PS_FLAG_COPY);
    while (at.acknowledged < 2)
        OK(tri_endpoint_poll(at.endpoint, tri_deadline_after_ms(5)));
    view_change(&at, PS_WITHOUT);
    fence_row_say(&at, 3, key, NULL);
    row_await(&at, 3);
    assert_memory_equal(at.row, values, sizeof(values));
    fence_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_had_nothing_yet_is_no_loss),
        cmocka_unit_test(who_has_not_told_its_tables_is_missed),
        cmocka_unit_test(what_was_shared_stays_when_the_hello_comes_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
