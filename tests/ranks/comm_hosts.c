/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_hosts.c: ranks that say they are on several hosts: operations in two floors have the bits of any other, and are
 * taken only where they can be.
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

#define BY_HOSTS "all_reduce:0-=hosts;reduce_scatter:0-=hosts;all_gather:0-=hosts;broadcast:0-=hosts;barrier:0-=hosts"

typedef struct hosts_case {
    int world;
    int hosts[8];
    const char *order;
    bool sums, moves, meets; /* by hosts: additions, blocks, barriers */
} hosts_case;

enum { COUNT_MAX = 20003 };

static void check_sums(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count)
{
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype), all = nbytes * (size_t)self->world;
    char *in = tri_alloc(all + 1), *out = tri_alloc(all + 1), *want = tri_alloc(all + 1);
    for (tri_reduce_op op = TRI_REDUCE_SUM; op <= TRI_REDUCE_MIN; op++) {
        comm_spawn_fill(in, dtype, self->rank, 0, count);
        comm_spawn_expect(want, dtype, op, self->world, 0, count);
        SPAWN_CHECK(self, tri_all_reduce(group, in, out, count, dtype, op, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(out, want, nbytes) == 0);
        SPAWN_CHECK(self, tri_all_reduce(group, in, in, count, dtype, op, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(in, want, nbytes) == 0);
        comm_spawn_fill(in, dtype, self->rank, 0, count * self->world);
        comm_spawn_expect(want, dtype, op, self->world, count * self->rank, count);
        SPAWN_CHECK(self, tri_reduce_scatter(group, in, out, count, dtype, op, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(out, want, nbytes) == 0);
    }
    tri_free(in);
    tri_free(out);
    tri_free(want);
}

static void check_moves(spawn_rank *self, tri_group *group, int64_t count)
{
    size_t nbytes = (size_t)count * sizeof(float), all = nbytes * (size_t)self->world;
    char *in = tri_alloc(all + 1), *out = tri_alloc(all + 1), *want = tri_alloc(all + 1);
    for (int root = 0; root < self->world; root++) {
        comm_spawn_fill(out, TRI_F32, self->rank, 0, count);
        comm_spawn_fill(want, TRI_F32, root, 0, count);
        SPAWN_CHECK(self, tri_broadcast(group, out, count, TRI_F32, root, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(out, want, nbytes) == 0);
    }
    for (int r = 0; r < self->world; r++)
        comm_spawn_fill(want + nbytes * (size_t)r, TRI_F32, r, 0, count);
    comm_spawn_fill(in, TRI_F32, self->rank, 0, count);
    SPAWN_CHECK(self, tri_all_gather(group, in, out, count, TRI_F32, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(out, want, all) == 0);
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    tri_free(in);
    tri_free(out);
    tri_free(want);
}

static bool is_by_hosts(const tri_group *group, tri_comm_op op)
{
    return strcmp(tri_comm_choice(group, op, 100000, NULL), "hosts") == 0;
}

static void on_hosts(spawn_rank *self, void *arg)
{
    const hosts_case *at = arg;
    static const int64_t counts[] = {0, 1, 7, 1000, COUNT_MAX};
    self->config.heartbeat_ms = 0;
    tri_comm *comm = comm_spawn_open(self, at->order, BY_HOSTS);
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm);
    SPAWN_CHECK(self, is_by_hosts(world, TRI_COMM_ALL_REDUCE) == at->sums);
    SPAWN_CHECK(self, is_by_hosts(world, TRI_COMM_REDUCE_SCATTER) == (at->sums && at->moves));
    SPAWN_CHECK(self, is_by_hosts(world, TRI_COMM_ALL_GATHER) == at->moves);
    SPAWN_CHECK(self, is_by_hosts(world, TRI_COMM_BARRIER) == at->meets);
    for (size_t c = 0; c < TRI_COUNT_OF(counts); c++) {
        check_moves(self, world, counts[c]);
        check_sums(self, world, TRI_I32, counts[c]);
        if (strcmp(at->order, "canonical") == 0) {
            check_sums(self, world, TRI_F32, counts[c]);
            check_sums(self, world, TRI_BF16, counts[c]);
        }
    }
    tri_comm_leave(comm);
}

static void floors_have_the_bits_of_any_other_way(void **state)
{
    (void)state;
    static const hosts_case cases[] = {
        {4, {0, 0, 1, 1}, "canonical", true, true, true},
        {6, {0, 0, 1, 1, 2, 2}, "canonical", true, true, true},
        {8, {5, 5, 5, 5, 3, 3, 3, 3}, "canonical", true, true, true},
        {6, {0, 0, 0, 1, 1, 1}, "canonical", false, true, true}, /* three ranks are no whole subtree */
        {6, {0, 0, 0, 1, 1, 1}, "any", true, true, true},
        {4, {0, 1, 0, 1}, "canonical", false, false, true}, /* not one after the other */
        {4, {0, 1, 0, 1}, "any", true, false, true},
        {5, {0, 0, 1, 1, 1}, "canonical", false, false, false},
        {3, {0, 1, 2}, "canonical", false, false, false},
        {3, {0, 0, 0}, "canonical", false, false, false},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        spawn_config config = {.kind = SPAWN_AUTO, .world = cases[c].world, .hosts = cases[c].hosts};
        if (!spawn_ranks(&config, on_hosts, (void *)(uintptr_t)&cases[c]))
            fail_msg("case %zu", c);
    }
}

/* Rank 3 never comes: ranks 0 and 1 wait between the hosts, rank 2 on its own; the job's limit is far. */
static void waits_a_little(spawn_rank *self, void *arg)
{
    (void)arg;
    self->config.heartbeat_ms = 0;
    tri_comm *comm = comm_spawn_open(self, NULL, BY_HOSTS);
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm);
    SPAWN_CHECK(self, is_by_hosts(world, TRI_COMM_BARRIER));
    SPAWN_CHECK(self, tri_group_limit(world, 0.05) == TRI_OK);
    int64_t start_ns = tri_now_ns();
    if (self->rank != 3) {
        tri_status status = tri_barrier(world, NULL);
        SPAWN_CHECK(self, status == TRI_ETIMEOUT || status == TRI_EABORT);
        SPAWN_CHECK(self, tri_now_ns() - start_ns < 20 * TRI_NS_PER_S);
    }
    spawn_barrier(self);
    tri_comm_leave(comm);
}

static void the_limit_of_a_group_is_that_of_its_floors(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_AUTO, .world = 4, .hosts = (const int[]){0, 0, 1, 1}, .timeout_s = 40};
    assert_true(spawn_ranks(&config, waits_a_little, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(floors_have_the_bits_of_any_other_way),
                                       cmocka_unit_test(the_limit_of_a_group_is_that_of_its_floors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
