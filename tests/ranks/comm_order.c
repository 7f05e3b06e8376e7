/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_order.c: calls with priorities: what has the lowest number goes first among what all ranks have made, on all
 * ranks alike, whenever they made it; what has none is passed by nobody; the bits are those of any order.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/runtime.h"
#include "comm/run.h"

#define CALLS_MAX 14 /* and their agreements: as many as the board of a simulated rank keeps */

/* A rank's sums of f32 in the world's group, by their counts, in the order in which they ran; their numbers must go up.
 */
static int calls_seen(spawn_rank *self, tri_comm *comm, int64_t counts[CALLS_MAX])
{
    static _Thread_local tri_board_call calls[TRI_BOARD_CALLS];
    size_t kept = tri_board_copy(comm->board, calls, TRI_BOARD_CALLS);
    uint64_t latest = 0;
    int seen = 0;
    for (size_t i = 0; i < kept; i++) {
        if (calls[i].frame.group != tri_comm_world(comm)->id || calls[i].frame.dtype != TRI_F32)
            continue;
        SPAWN_CHECK(self, calls[i].frame.sequence > latest);
        latest = calls[i].frame.sequence;
        if (seen < CALLS_MAX)
            counts[seen] = (int64_t)calls[i].frame.count;
        seen++;
    }
    return seen;
}

/* Nothing that is made starts until queue_let_go. */
static void queue_hold(tri_comm *comm)
{
    while (atomic_exchange(&comm->busy, 1) != 0)
        tri_sleep_ns(TRI_NS_PER_MS);
}

static void queue_let_go(tri_comm *comm)
{
    tri_mutex_lock(&comm->mutex);
    atomic_store(&comm->busy, 0);
    tri_cond_signal(&comm->ready);
    tri_mutex_unlock(&comm->mutex);
}

/* Sums of 1, 2, ... elements made in this order, one of them with no priority. */
static const unsigned priorities[] = {3, 9, 1, 2, 0, 5, 4, 4, 1};
static const int64_t wanted[] = {3, 4, 1, 2, 5, 9, 7, 8, 6};

static void held_and_let_go(spawn_rank *self, void *arg)
{
    enum { CALLS = TRI_COUNT_OF(priorities) };
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    float data[CALLS][CALLS], want[CALLS];
    tri_work *works[CALLS];
    int64_t counts[CALLS_MAX];
    (void)arg;
    if (!comm)
        return;
    queue_hold(comm);
    for (int i = 0; i < CALLS; i++) {
        comm_spawn_fill(data[i], TRI_F32, self->rank, i, i + 1);
        tri_group_priority_next(tri_comm_world(comm), priorities[i]);
        SPAWN_CHECK(self, tri_all_reduce(tri_comm_world(comm), data[i], data[i], i + 1, TRI_F32, TRI_REDUCE_SUM,
                                         &works[i]) == TRI_OK);
    }
    spawn_barrier(self); /* all have made all */
    queue_let_go(comm);
    for (int i = 0; i < CALLS; i++) {
        SPAWN_CHECK(self, tri_work_wait(works[i]) == TRI_OK);
        comm_spawn_expect(want, TRI_F32, TRI_REDUCE_SUM, self->world, i, i + 1);
        SPAWN_CHECK(self, memcmp(data[i], want, (size_t)(i + 1) * sizeof(float)) == 0);
    }
    SPAWN_CHECK(self, calls_seen(self, comm, counts) == CALLS);
    SPAWN_CHECK(self, memcmp(counts, wanted, sizeof(wanted)) == 0);
    tri_comm_leave(comm);
}

static void the_lowest_number_goes_first_and_nothing_passes_a_call_without_one(void **state)
{
    (void)state;
    for (int kind = 0; kind < SPAWN_KIND_COUNT; kind++)
        for (int world = 1; world <= 5; world += 2) {
            spawn_config config = {.kind = (spawn_kind)kind, .world = world, .seed = 3};
            assert_true(spawn_ranks(&config, held_and_let_go, NULL));
        }
}

typedef struct timing {
    uint64_t seed;
    int moved; /* runs in which some call was passed */
} timing;

/* Each rank makes the same calls at times of its own; some are waited for at once. */
static void at_any_time(spawn_rank *self, void *arg)
{
    timing *test = arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    float data[CALLS_MAX][CALLS_MAX], want[CALLS_MAX];
    tri_work *works[CALLS_MAX] = {NULL};
    int64_t counts[CALLS_MAX] = {0};
    char text[8 * CALLS_MAX] = "";
    if (!comm)
        return;
    for (int i = 0; i < CALLS_MAX; i++) {
        uint64_t drawn = tri_rng_u64((tri_rng){test->seed, 0}, (uint64_t)i);
        uint64_t own = tri_rng_u64((tri_rng){test->seed, 1 + (uint64_t)self->rank}, (uint64_t)i);
        comm_spawn_fill(data[i], TRI_F32, self->rank, i, i + 1);
        tri_group_priority_next(tri_comm_world(comm), (unsigned)(drawn % 8));
        SPAWN_CHECK(self, tri_all_reduce(tri_comm_world(comm), data[i], data[i], i + 1, TRI_F32, TRI_REDUCE_SUM,
                                         drawn % 11 == 0 ? NULL : &works[i]) == TRI_OK);
        if (own % 4 == 0)
            tri_sleep_ns((int64_t)(own % 40) * 1000);
    }
    for (int i = 0; i < CALLS_MAX; i++) {
        SPAWN_CHECK(self, !works[i] || tri_work_wait(works[i]) == TRI_OK);
        comm_spawn_expect(want, TRI_F32, TRI_REDUCE_SUM, self->world, i, i + 1);
        SPAWN_CHECK(self, memcmp(data[i], want, (size_t)(i + 1) * sizeof(float)) == 0);
    }
    int seen = calls_seen(self, comm, counts), passed = 0;
    SPAWN_CHECK(self, seen == CALLS_MAX);
    for (int i = 0; i < seen; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " %d", (int)counts[i]);
        passed += counts[i] != i + 1;
    }
    const char *const *all = spawn_exchange(self, text);
    for (int r = 0; r < self->world; r++)
        SPAWN_CHECK(self, strcmp(all[r], all[0]) == 0);
    if (self->rank == 0)
        test->moved += passed > 0;
    tri_comm_leave(comm);
}

static void ranks_that_make_calls_at_different_times_choose_alike(void **state)
{
    (void)state;
    const spawn_kind kinds[] = {SPAWN_SIM, SPAWN_INPROC_FIBERS, SPAWN_SHM, SPAWN_TCP};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        timing test = {.moved = 0};
        for (test.seed = 1; test.seed <= (k < 2 ? 20 : 3); test.seed++) {
            spawn_config config = {.kind = kinds[k], .world = test.seed % 2 ? 3 : 8, .seed = test.seed};
            assert_true(spawn_ranks(&config, at_any_time, &test));
        }
        assert_true(k > 0 || test.moved > 10);
    }
}

/* Groups that overlap: what one agrees does not wait for the other. */
static void two_groups(spawn_rank *self, void *arg)
{
    enum { CALLS = 6 };
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    tri_group *pair = NULL, *groups[2];
    int32_t data[2][CALLS];
    tri_work *works[2][CALLS];
    (void)arg;
    if (!comm)
        return;
    SPAWN_CHECK(self, tri_group_split(tri_comm_world(comm), self->rank / 2, 0, &pair) == TRI_OK);
    groups[0] = tri_comm_world(comm);
    groups[1] = pair;
    for (int i = 0; i < CALLS; i++)
        for (int g = 0; g < 2; g++) {
            data[g][i] = 1;
            tri_group_priority_next(groups[g], (unsigned)(CALLS - i));
            SPAWN_CHECK(self, tri_all_reduce(groups[g], &data[g][i], &data[g][i], 1, TRI_I32, TRI_REDUCE_SUM,
                                             &works[g][i]) == TRI_OK);
        }
    for (int i = 0; i < CALLS; i++)
        for (int g = 0; g < 2; g++) {
            SPAWN_CHECK(self, tri_work_wait(works[g][i]) == TRI_OK);
            SPAWN_CHECK(self, data[g][i] == tri_group_count(groups[g]));
        }
    tri_comm_leave(comm);
    tri_group_destroy(pair);
}

static void groups_agree_each_for_itself(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        spawn_config config = {.kind = SPAWN_SIM, .world = 6, .seed = seed};
        assert_true(spawn_ranks(&config, two_groups, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_number_goes_first_and_nothing_passes_a_call_without_one),
        cmocka_unit_test(ranks_that_make_calls_at_different_times_choose_alike),
        cmocka_unit_test(groups_agree_each_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
