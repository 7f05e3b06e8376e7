/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_groups.c: groups that their members alone create, several at once, and the time limit of a group.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/run.h"

/* Sum of the members' world ranks. */
static int64_t sum_over(spawn_rank *self, tri_group *group)
{
    int64_t sum = self->rank;
    SPAWN_CHECK(self, tri_all_reduce(group, &sum, &sum, 1, TRI_I64, TRI_REDUCE_SUM, NULL) == TRI_OK);
    return sum;
}

/* Of five ranks: 4 3 2, and twice 0 3; rank 1 is in none and knows of none. */
static void creates_own(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    static const int three[] = {4, 3, 2}, pair[] = {0, 3};
    tri_group *of_three = NULL, *of_two = NULL, *again = NULL;
    if (self->rank >= 2) {
        SPAWN_CHECK(self, tri_group_create_of(comm, three, 3, "three", &of_three) == TRI_OK);
        SPAWN_CHECK(self, tri_group_rank(of_three) == 4 - self->rank && tri_group_count(of_three) == 3);
    }
    if (self->rank == 0 || self->rank == 3) {
        SPAWN_CHECK(self, tri_group_create_of(comm, pair, 2, "pair", &of_two) == TRI_OK);
        SPAWN_CHECK(self, tri_group_create_of(comm, pair, 2, "again", &again) == TRI_OK);
        SPAWN_CHECK(self, of_two->id != again->id);
    }
    for (int round = 0; round < 3; round++) {
        if (of_three)
            SPAWN_CHECK(self, sum_over(self, of_three) == 9);
        if (of_two)
            SPAWN_CHECK(self, sum_over(self, of_two) == 3 && sum_over(self, again) == 3);
        SPAWN_CHECK(self, sum_over(self, tri_comm_world(comm)) == 10);
    }
    tri_group_destroy(of_three);
    tri_group_destroy(of_two);
    tri_group_destroy(again);
    tri_comm_leave(comm);
}

static void members_alone_create_a_group(void **state)
{
    (void)state;
    for (int kind = 0; kind < SPAWN_KIND_COUNT; kind++) {
        spawn_config config = {.kind = (spawn_kind)kind, .world = 5, .seed = 3};
        assert_true(spawn_ranks(&config, creates_own, NULL));
    }
}

/* Same ranks, other tags: both calls are printed, nobody adds what does not belong together. */
static void tags_differ(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    static const int both[] = {0, 1};
    tri_group *group = NULL;
    int64_t one = 1;
    SPAWN_CHECK(self, tri_group_create_of(comm, both, 2, self->rank ? "a" : "b", &group) == TRI_OK);
    SPAWN_CHECK(self, tri_all_reduce(group, &one, &one, 1, TRI_I64, TRI_REDUCE_SUM, NULL) == TRI_EMISMATCH);
    tri_group_destroy(group);
    tri_comm_leave(comm);
}

static void groups_of_other_tags_do_not_mix(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 2};
    assert_true(spawn_ranks(&config, tags_differ, NULL));
}

static void wrong_members(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    static const int twice[] = {0, 1, 0}, beyond[] = {0, 3}, others[] = {0, 1};
    tri_group *group = (tri_group *)comm;
    SPAWN_CHECK(self, tri_group_create_of(comm, twice, 3, "t", &group) == TRI_EINVAL && !group);
    SPAWN_CHECK(self, strcmp(tri_last_error(), "group: want different ranks, got 0 twice") == 0);
    SPAWN_CHECK(self, tri_group_create_of(comm, beyond, 2, "t", &group) == TRI_EINVAL);
    SPAWN_CHECK(self, strcmp(tri_last_error(), "group: want ranks from 0 to 2, got 3") == 0);
    SPAWN_CHECK(self, tri_group_create_of(comm, others, 0, "t", &group) == TRI_EINVAL);
    SPAWN_CHECK(self, strcmp(tri_last_error(), "group: want 1 to 3 ranks, got 0") == 0);
    if (self->rank == 2) {
        SPAWN_CHECK(self, tri_group_create_of(comm, others, 2, "t", &group) == TRI_EINVAL);
        SPAWN_CHECK(self, strcmp(tri_last_error(), "group: want this rank (2) among the members") == 0);
    }
    tri_comm_leave(comm);
}

static void wrong_members_are_named(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 3};
    assert_true(spawn_ranks(&config, wrong_members, NULL));
}

/* Rank 1 never comes; the spawn's own limit is far. */
static void waits_a_little(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    SPAWN_CHECK(self, tri_group_limit(group, 0) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_group_limit(group, 0.05) == TRI_OK);
    int64_t start_ns = tri_now_ns();
    if (self->rank == 0) {
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_ETIMEOUT);
        SPAWN_CHECK(self, tri_now_ns() - start_ns < 20 * TRI_NS_PER_S);
    }
    spawn_barrier(self);
    tri_comm_leave(comm);
}

static void a_group_has_a_limit_of_its_own(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 2, .timeout_s = 100};
    assert_true(spawn_ranks(&config, waits_a_little, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_alone_create_a_group),
        cmocka_unit_test(groups_of_other_tags_do_not_mix),
        cmocka_unit_test(wrong_members_are_named),
        cmocka_unit_test(a_group_has_a_limit_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
