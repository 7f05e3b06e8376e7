/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_work.c: handles and their order, groups of groups, names, the steady state, and random schedules in the
 * simulator.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/runtime.h"

static void ten_queued(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    enum { COUNT = 3001, WORKS = 10 };
    int32_t *data[WORKS];
    tri_work *works[WORKS];
    for (int w = 0; w < WORKS; w++) {
        data[w] = tri_alloc(COUNT * sizeof(int32_t));
        for (int i = 0; i < COUNT; i++)
            data[w][i] = w * 100 + self->rank;
        SPAWN_CHECK(self, tri_all_reduce(group, data[w], data[w], COUNT, TRI_I32, TRI_REDUCE_SUM, &works[w]) == TRI_OK);
    }
    /* The eleventh blocks, behind the others. */
    int32_t last = 1;
    SPAWN_CHECK(self, tri_all_reduce(group, &last, &last, 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, last == self->world);
    for (int w = 0; w < WORKS; w++)
        SPAWN_CHECK(self, tri_work_is_done(works[w]));
    for (int w = WORKS - 1; w >= 0; w--) {
        SPAWN_CHECK(self, tri_work_wait(works[w]) == TRI_OK);
        int32_t want = w * 100 * self->world + self->world * (self->world - 1) / 2;
        for (int i = 0; i < COUNT; i++)
            SPAWN_CHECK(self, data[w][i] == want);
        tri_free(data[w]);
    }
    tri_comm_leave(comm);
}

static void queued_operations_end_in_order(void **state)
{
    (void)state;
    for (int kind = 0; kind < SPAWN_KIND_COUNT; kind++) {
        spawn_config config = {.kind = (spawn_kind)kind, .world = 3, .seed = 5};
        assert_true(spawn_ranks(&config, ten_queued, NULL));
    }
}

/* Works that nobody waited for end before the comm is gone. */
static void leaves_with_queue(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    int32_t data[4] = {1, 1, 1, 1};
    tri_work *works[4];
    for (int w = 0; w < 4; w++)
        SPAWN_CHECK(self, tri_all_reduce(tri_comm_world(comm), &data[w], &data[w], 1, TRI_I32, TRI_REDUCE_SUM,
                                         &works[w]) == TRI_OK);
    tri_comm_leave(comm);
    for (int w = 0; w < 4; w++)
        SPAWN_CHECK(self, data[w] == self->world);
}

static void leaving_ends_what_is_queued(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 4};
    assert_true(spawn_ranks(&config, leaves_with_queue, NULL));
}

static void rows_and_columns(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm), *row = NULL, *column = NULL, *none = NULL, *turned = NULL;
    /* A 2 x 3 mesh. */
    SPAWN_CHECK(self, tri_group_split(world, self->rank / 3, 0, &row) == TRI_OK);
    SPAWN_CHECK(self, tri_group_split(world, self->rank % 3, 0, &column) == TRI_OK);
    SPAWN_CHECK(self, tri_group_count(row) == 3 && tri_group_rank(row) == self->rank % 3);
    SPAWN_CHECK(self, tri_group_count(column) == 2 && tri_group_rank(column) == self->rank / 3);
    int64_t sum = self->rank;
    SPAWN_CHECK(self, tri_all_reduce(row, &sum, &sum, 1, TRI_I64, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, sum == (self->rank < 3 ? 0 + 1 + 2 : 3 + 4 + 5));
    SPAWN_CHECK(self, tri_all_reduce(column, &sum, &sum, 1, TRI_I64, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, sum == 15);
    /* Ranks 4 and 5 are in no group; the others stand in reverse order. */
    SPAWN_CHECK(self, tri_group_split(world, self->rank < 4 ? 7 : -1, -self->rank, &turned) == TRI_OK);
    SPAWN_CHECK(self, (turned != NULL) == (self->rank < 4));
    if (turned) {
        SPAWN_CHECK(self, tri_group_count(turned) == 4 && tri_group_rank(turned) == 3 - self->rank);
        int32_t from_first = self->rank;
        SPAWN_CHECK(self, tri_broadcast(turned, &from_first, 1, TRI_I32, 0, NULL) == TRI_OK);
        SPAWN_CHECK(self, from_first == 3);
        tri_group *half = NULL;
        SPAWN_CHECK(self, tri_group_split(turned, tri_group_rank(turned) % 2, 0, &half) == TRI_OK);
        int32_t ones = 1;
        SPAWN_CHECK(self, tri_all_reduce(half, &ones, &ones, 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK);
        SPAWN_CHECK(self, ones == 2);
        tri_group_destroy(half);
    }
    SPAWN_CHECK(self, tri_group_split(world, -1, 0, &none) == TRI_OK && none == NULL);
    tri_group_destroy(turned);
    tri_group_destroy(row);
    tri_comm_leave(comm);
    tri_group_destroy(column); /* a group may outlive its comm, as memory */
}

static void groups_are_split_and_split_again(void **state)
{
    (void)state;
    for (int kind = 0; kind < SPAWN_KIND_COUNT; kind++) {
        spawn_config config = {.kind = (spawn_kind)kind, .world = 6, .seed = 9};
        assert_true(spawn_ranks(&config, rows_and_columns, NULL));
    }
}

static void wrong_arguments(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    float x = 1;
    SPAWN_CHECK(self, tri_all_reduce(group, &x, &x, -1, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce(group, &x, &x, INT64_MAX, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce(group, NULL, NULL, 1, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_COUNT, TRI_REDUCE_SUM, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce(group, &x, &x, 1, TRI_F32, TRI_REDUCE_COUNT, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_broadcast(group, &x, 1, TRI_F32, 2, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_broadcast(group, &x, 1, TRI_F32, -1, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_send(group, &x, 1, TRI_F32, self->rank, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce(group, NULL, NULL, 0, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_all_reduce(group, &x, &x, 1, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK && x == 2);
    tri_comm_leave(comm);
}

static void wrong_arguments_lose_nothing(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 2};
    assert_true(spawn_ranks(&config, wrong_arguments, NULL));
}

static void warm_then_counted(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    enum { COUNT = 50000 };
    float *data = tri_alloc_zero(COUNT, sizeof(float));
    uint64_t calls = 0;
    for (int round = 0; round < 4; round++) {
        tri_work *works[3];
        for (int w = 0; w < 3; w++)
            SPAWN_CHECK(self,
                        tri_all_reduce(group, data, data, COUNT, TRI_F32, TRI_REDUCE_AVERAGE, &works[w]) == TRI_OK);
        for (int w = 0; w < 3; w++)
            SPAWN_CHECK(self, tri_work_wait(works[w]) == TRI_OK);
        SPAWN_CHECK(self, tri_reduce(group, data, data, COUNT, TRI_F32, TRI_REDUCE_SUM, 1, NULL) == TRI_OK);
        SPAWN_CHECK(self, tri_broadcast(group, data, COUNT, TRI_F32, 2, NULL) == TRI_OK);
        spawn_barrier(self);
        if (round == 1)
            calls = tri_memory_now().calls;
        spawn_barrier(self);
    }
    SPAWN_CHECK(self, tri_memory_now().calls == calls);
    spawn_barrier(self);
    tri_free(data);
    tri_comm_leave(comm);
}

static void a_steady_state_allocates_nothing(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 3};
    assert_true(spawn_ranks(&config, warm_then_counted, NULL));
}

static void a_bit_of_everything(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    float data[40], want[40];
    tri_work *work = NULL;
    comm_spawn_fill(data, TRI_F32, self->rank, 0, 40);
    comm_spawn_expect(want, TRI_F32, TRI_REDUCE_SUM, self->world, 0, 40);
    SPAWN_CHECK(self, tri_all_reduce(group, data, data, 40, TRI_F32, TRI_REDUCE_SUM, &work) == TRI_OK);
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_work_wait(work) == TRI_OK);
    SPAWN_CHECK(self, memcmp(data, want, sizeof(data)) == 0);
    int32_t own = self->rank, all[64];
    SPAWN_CHECK(self, tri_all_gather(group, &own, all, 1, TRI_I32, NULL) == TRI_OK);
    for (int r = 0; r < self->world; r++)
        SPAWN_CHECK(self, all[r] == r);
    tri_comm_leave(comm);
}

static void sixty_four_simulated_ranks_end_for_every_seed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        spawn_config config = {.kind = SPAWN_SIM, .world = seed % 2 ? 64 : 61, .seed = seed};
        assert_true(spawn_ranks(&config, a_bit_of_everything, NULL));
    }
}

/* While one rank waits at a barrier two others talk to each other, with numbers that the barrier has too. */
static void pairs_beside_a_barrier(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    int32_t value = self->rank;
    for (int turn = 0; turn < 40; turn++) {
        if (self->rank == 0)
            SPAWN_CHECK(self, tri_send(group, &value, 1, TRI_I32, 1, NULL) == TRI_OK);
        if (self->rank == 1) {
            if (turn % 8 == 0)
                tri_sleep_ns(20 * TRI_NS_PER_MS); /* the third looks around meanwhile */
            SPAWN_CHECK(self, tri_receive(group, &value, 1, TRI_I32, 0, NULL) == TRI_OK);
        }
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    }
    tri_comm_leave(comm);
}

static void pairs_and_collectives_are_not_taken_for_one_another(void **state)
{
    (void)state;
    const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        spawn_config config = {.kind = kinds[k], .world = 3};
        assert_true(spawn_ranks(&config, pairs_beside_a_barrier, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_and_collectives_are_not_taken_for_one_another),
        cmocka_unit_test(queued_operations_end_in_order),
        cmocka_unit_test(leaving_ends_what_is_queued),
        cmocka_unit_test(groups_are_split_and_split_again),
        cmocka_unit_test(wrong_arguments_lose_nothing),
        cmocka_unit_test(a_steady_state_allocates_nothing),
        cmocka_unit_test(sixty_four_simulated_ranks_end_for_every_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
