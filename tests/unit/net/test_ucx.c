/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ucx.c: what is particular to the transport ucx; that it carries bytes is in test_move and test_failures.
 */
#include <signal.h>
#include <string.h>

#include "net/transport.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

static void on_signal(int number)
{
    (void)number;
}

static tri_status open_one(tri_net **net)
{
    tri_net_config config;

    tri_options_defaults(&tri_net_options, &config);
    assert_int_equal(tri_options_set(&tri_net_options, &config, "transport", "ucx"), TRI_OK);
    return tri_net_open(&config, 0, 2, "", NULL, net);
}

/* Must be the first test: a library is loaded once. */
static void loading_it_leaves_signals_alone(void **state)
{
    struct sigaction found;
    tri_net *net = NULL;

    (void)state;
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, SIG_IGN);
    if (open_one(&net) == TRI_ENOTFOUND)
        skip();
    assert_non_null(net);
    tri_net_close(net);
    sigaction(SIGSEGV, NULL, &found);
    assert_ptr_equal(found.sa_handler, on_signal);
    sigaction(SIGBUS, NULL, &found);
    assert_ptr_equal(found.sa_handler, SIG_IGN);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
}

static void other_slots(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;

    (void)arg;
    self->config.slot_kib = self->rank == 0 ? 16 : 32;
    SPAWN_CHECK(self, spawn_net_open(self, &net) != TRI_OK);
    SPAWN_CHECK(self, strstr(tri_last_error(), "want slots of") || strstr(tri_last_error(), "is gone"));
    SPAWN_CHECK(self, self->rank == 1 || strstr(tri_last_error(), "(comm.slot_kib)"));
    spawn_barrier(self);
    tri_net_close(net);
}

static void ranks_with_slots_of_other_lengths_are_told(void **state)
{
    spawn_config config = {.kind = SPAWN_UCX, .world = 2, .timeout_s = 5};

    (void)state;
    assert_true(spawn_ranks(&config, other_slots, NULL));
}

/* Rank 1 lets UCX work but reads nothing: rank 0 is stopped by what fits, which is more than UCX's own queues hold. */
static void writes_ahead(spawn_rank *self, void *arg)
{
    const tri_transport_setup setup = {
        .config = &self->config, .rank = self->rank, .world = 2, .token = self->token, .hub = NULL};
    const tri_transport_ops *ops = tri_transport_find("ucx");
    static _Thread_local char bytes[1 << 20];
    unsigned char want[2] = {TRI_WANT_READ, TRI_WANT_WRITE};
    tri_transport *transport = NULL;
    size_t total = 0, taken = 1;
    /* Of sixteen slots of a quarter each the greeting has taken one. */
    size_t room = ((size_t)self->config.slot_kib << 10) / 4 * 15;

    (void)arg;
    SPAWN_CHECK(self, ops->open(&setup, &transport) == TRI_OK);
    const char *const *addresses = spawn_exchange(self, ops->address(transport));
    SPAWN_CHECK(self, ops->connect(transport, addresses, tri_deadline_after_ms(5000)) == TRI_OK);
    spawn_barrier(self);
    for (int i = 0; i < 1000; i++) {
        if (self->rank == 0)
            SPAWN_CHECK(self, ops->write_some(transport, 1, bytes, sizeof bytes, &taken) == TRI_OK);
        total += self->rank == 0 ? taken : 0;
        want[1 - self->rank] = 0;
        SPAWN_CHECK(self, ops->wait(transport, want, tri_now_ns()) == TRI_OK);
    }
    SPAWN_CHECK(self, self->rank == 1 || total == room);
    spawn_barrier(self);
    /* All of it comes to be read, though rank 0 makes no call meanwhile, and then there is room again. */
    int64_t until_ns = tri_deadline_after_ms(20000);
    while (self->rank == 1 && total < room && tri_now_ns() < until_ns) {
        SPAWN_CHECK(self, ops->read_some(transport, 0, bytes, sizeof bytes, &taken) == TRI_OK);
        total += taken;
    }
    SPAWN_CHECK(self, total == room);
    spawn_barrier(self);
    if (self->rank == 0) {
        want[1] = TRI_WANT_WRITE;
        SPAWN_CHECK(self, ops->wait(transport, want, tri_deadline_after_ms(5000)) == TRI_OK);
        SPAWN_CHECK(self, ops->write_some(transport, 1, bytes, 100, &taken) == TRI_OK && taken == 100);
    }
    spawn_barrier(self);
    ops->close(transport);
}

static void nobody_sends_more_than_the_other_has_room_for(void **state)
{
    spawn_config config = {.kind = SPAWN_UCX, .world = 2, .slot_kib = 4096};

    (void)state;
    assert_true(spawn_ranks(&config, writes_ahead, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_it_leaves_signals_alone),
        cmocka_unit_test(ranks_with_slots_of_other_lengths_are_told),
        cmocka_unit_test(nobody_sends_more_than_the_other_has_room_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
