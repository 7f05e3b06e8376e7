/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_sim.c: every algorithm on tens and hundreds of simulated ranks, over a network that loses packets and has slow
 * ranks: the results are exact, and the same seed is the same run.
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
#include "tier.h"

#define COUNT_MAX 331

static const int64_t counts[] = {0, 1, 37, COUNT_MAX};

static const tri_fabric_config rough = {.latency_us = 20,
                                        .bandwidth = 1000000000,
                                        .node_bandwidth = 1000000000,
                                        .message_us = 0.5,
                                        .ranks_per_host = 4,
                                        .local_latency_us = 1,
                                        .local_bandwidth = 4000000000,
                                        .jitter_us = 30,
                                        .loss = 0.02,
                                        .resend_us = 500,
                                        .stragglers = 0.1,
                                        .slowdown = 5,
                                        .add_rate = 1000000000};

typedef struct sim_test {
    tri_comm_op op;
    const char *algorithm;
    bool any; /* its order of additions is its own */
    int64_t end_ns;
    /* Worked out once: what all ranks contribute to a sum, and what is to come. */
    char *sums; /* of world * COUNT_MAX elements */
} sim_test;

/* Whole numbers where the order may be any. */
static tri_dtype dtype_of(const sim_test *test)
{
    return test->any ? TRI_I32 : TRI_F32;
}

static tri_status call_run(const sim_test *test, tri_group *group, void *in, void *out, int64_t count)
{
    tri_dtype dtype = dtype_of(test);
    int root = tri_group_count(group) / 2;

    switch (test->op) {
    case TRI_COMM_ALL_REDUCE:
        return tri_all_reduce(group, in, in, count, dtype, TRI_REDUCE_SUM, NULL);
    case TRI_COMM_REDUCE:
        return tri_reduce(group, in, in, count, dtype, TRI_REDUCE_SUM, root, NULL);
    case TRI_COMM_BROADCAST:
        return tri_broadcast(group, in, count, dtype, root, NULL);
    case TRI_COMM_ALL_GATHER:
        return tri_all_gather(group, in, out, count, dtype, NULL);
    case TRI_COMM_REDUCE_SCATTER:
        return tri_reduce_scatter(group, in, out, count, dtype, TRI_REDUCE_SUM, NULL);
    default:
        return tri_barrier(group, NULL);
    }
}

static bool result_is_right(const sim_test *test, const spawn_rank *self, const char *in, const char *out,
                            int64_t count, char *want)
{
    size_t nbytes = (size_t)count * 4;
    int root = self->world / 2;

    switch (test->op) {
    case TRI_COMM_ALL_REDUCE:
        return memcmp(in, test->sums, nbytes) == 0;
    case TRI_COMM_REDUCE:
        comm_spawn_fill(want, dtype_of(test), self->rank, 0, count);
        return memcmp(in, self->rank == root ? test->sums : want, nbytes) == 0;
    case TRI_COMM_BROADCAST:
        comm_spawn_fill(want, dtype_of(test), root, 0, count);
        return memcmp(in, want, nbytes) == 0;
    case TRI_COMM_ALL_GATHER:
        for (int r = 0; r < self->world; r++) {
            comm_spawn_fill(want, dtype_of(test), r, 0, count);
            if (memcmp(out + nbytes * (size_t)r, want, nbytes) != 0)
                return false;
        }
        return true;
    case TRI_COMM_REDUCE_SCATTER:
        return memcmp(out, test->sums + nbytes * (size_t)self->rank, nbytes) == 0;
    default:
        return true;
    }
}

static void runs_all_counts(spawn_rank *self, void *arg)
{
    sim_test *test = arg;
    char rule[96];
    int64_t widest = test->op == TRI_COMM_REDUCE_SCATTER ? self->world : 1;
    char *in = tri_alloc((size_t)widest * COUNT_MAX * 4), *want = tri_alloc(COUNT_MAX * 4);
    char *out = tri_alloc((size_t)self->world * COUNT_MAX * 4);
    tri_comm *comm;

    snprintf(rule, sizeof(rule), "%s:0-=%s", tri_comm_op_name(test->op), test->algorithm);
    comm = comm_spawn_open(self, test->any ? "any" : NULL, rule);
    for (size_t c = 0; comm && c < TRI_COUNT_OF(counts); c++) {
        comm_spawn_fill(in, dtype_of(test), self->rank, 0, counts[c] * widest);
        SPAWN_CHECK(self, call_run(test, tri_comm_world(comm), in, out, counts[c]) == TRI_OK);
        SPAWN_CHECK(self, result_is_right(test, self, in, out, counts[c], want));
    }
    if (tri_now_ns() > test->end_ns)
        test->end_ns = tri_now_ns();
    tri_comm_leave(comm);
    tri_free(in);
    tri_free(out);
    tri_free(want);
}

static void run_all(tri_comm_op op, int world)
{
    const char *name;

    for (int i = 0; (name = tri_comm_algorithm_name(op, i)); i++) {
        spawn_config config = {.kind = SPAWN_SIM, .world = world, .seed = (uint64_t)(i + world), .fabric = &rough};
        sim_test test = {.op = op, .algorithm = name, .any = tri_comm_needs_any(op, name)};
        int64_t widest = op == TRI_COMM_REDUCE_SCATTER ? world : 1;

        test.sums = tri_alloc((size_t)widest * COUNT_MAX * 4);
        comm_spawn_expect(test.sums, dtype_of(&test), TRI_REDUCE_SUM, world, 0, COUNT_MAX * widest);
        assert_true(spawn_ranks(&config, runs_all_counts, &test));
        tri_free(test.sums);
    }
}

static const tri_comm_op ops[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE,         TRI_COMM_BROADCAST,
                                  TRI_COMM_ALL_GATHER, TRI_COMM_REDUCE_SCATTER, TRI_COMM_BARRIER};

static void every_algorithm_is_exact_on_64_ranks_over_a_rough_network(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(ops); i++)
        run_all(ops[i], 64);
}

static void every_algorithm_is_exact_on_61_ranks_over_a_rough_network(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(ops); i++)
        run_all(ops[i], 61);
}

static void every_algorithm_is_exact_on_256_ranks_over_a_rough_network(void **state)
{
    (void)state;
    if (tests_count(2, 1) == 1)
        skip();
    for (size_t i = 0; i < TRI_COUNT_OF(ops); i++)
        run_all(ops[i], 256);
}

static int64_t end_of(const tri_fabric_config *fabric, uint64_t seed)
{
    spawn_config config = {.kind = SPAWN_SIM, .world = 16, .seed = seed, .fabric = fabric};
    sim_test test = {.op = TRI_COMM_ALL_REDUCE, .algorithm = "halving"};

    test.sums = tri_alloc(COUNT_MAX * 4);
    comm_spawn_expect(test.sums, TRI_F32, TRI_REDUCE_SUM, 16, 0, COUNT_MAX);
    assert_true(spawn_ranks(&config, runs_all_counts, &test));
    tri_free(test.sums);
    return test.end_ns;
}

static void a_seed_is_a_run(void **state)
{
    int64_t first_ns = end_of(&rough, 3);

    (void)state;
    assert_true(end_of(&rough, 3) == first_ns);
    assert_true(end_of(&rough, 4) != first_ns);
}

static void what_is_worse_takes_longer(void **state)
{
    tri_fabric_config fabric = {
        .latency_us = 20, .bandwidth = 1000000000, .node_bandwidth = 1000000000, .add_rate = 1000000000};
    int64_t calm_ns = end_of(&fabric, 1);

    (void)state;
    fabric.loss = 0.2;
    fabric.resend_us = 1000;
    assert_true(end_of(&fabric, 1) > calm_ns + TRI_NS_PER_MS);
    fabric.loss = 0;
    fabric.stragglers = 1;
    fabric.slowdown = 1000;
    /* Its share of the additions: 15/16 of 369 elements, at a thousand nanoseconds a byte. */
    assert_true(end_of(&fabric, 1) > calm_ns + TRI_NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_exact_on_64_ranks_over_a_rough_network),
        cmocka_unit_test(every_algorithm_is_exact_on_61_ranks_over_a_rough_network),
        cmocka_unit_test(every_algorithm_is_exact_on_256_ranks_over_a_rough_network),
        cmocka_unit_test(a_seed_is_a_run),
        cmocka_unit_test(what_is_worse_takes_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
