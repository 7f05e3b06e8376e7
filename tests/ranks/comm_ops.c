/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_ops.c: every operation, exact against the serial definition: ranks 1 2 3 5 8, odd counts, types, transports.
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

typedef struct ops_case {
    const char *algorithm; /* comm.algorithm */
    const char *order;
    int64_t counts[6];                     /* -1 at the end */
    tri_dtype dtypes[TRI_DTYPE_COUNT + 1]; /* TRI_DTYPE_COUNT at the end */
} ops_case;

/* Three buffers of the largest count, and the expected values. */
typedef struct ops_room {
    char *in, *out, *want;
} ops_room;

static void check_all_reduce(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count, ops_room room)
{
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    for (int op = 0; op < TRI_REDUCE_COUNT; op++) {
        comm_spawn_fill(room.out, dtype, self->rank, 0, count);
        comm_spawn_expect(room.want, dtype, (tri_reduce_op)op, self->world, 0, count);
        SPAWN_CHECK(self, tri_all_reduce(group, room.out, room.out, count, dtype, (tri_reduce_op)op, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes) == 0);
        if (count > 10000 && op >= TRI_REDUCE_AVERAGE)
            break;
    }
}

static void check_reduce(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count, ops_room room)
{
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    for (int root = 0; root < self->world; root += 1 + self->world / 3) {
        comm_spawn_fill(room.out, dtype, self->rank, 0, count);
        if (self->rank == root)
            comm_spawn_expect(room.want, dtype, TRI_REDUCE_AVERAGE, self->world, 0, count);
        else
            memcpy(room.want, room.out, nbytes); /* keeps its value */
        SPAWN_CHECK(self,
                    tri_reduce(group, room.out, room.out, count, dtype, TRI_REDUCE_AVERAGE, root, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes) == 0);
    }
}

static void check_broadcast(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count, ops_room room)
{
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    for (int root = 0; root < self->world; root++) {
        comm_spawn_fill(room.out, dtype, self->rank, 0, count);
        comm_spawn_fill(room.want, dtype, root, 0, count);
        SPAWN_CHECK(self, tri_broadcast(group, room.out, count, dtype, root, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes) == 0);
    }
}

static void check_all_gather(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count, ops_room room)
{
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    for (int r = 0; r < self->world; r++)
        comm_spawn_fill(room.want + nbytes * (size_t)r, dtype, r, 0, count);
    comm_spawn_fill(room.in, dtype, self->rank, 0, count);
    memset(room.out, 0x77, nbytes * (size_t)self->world);
    SPAWN_CHECK(self, tri_all_gather(group, room.in, room.out, count, dtype, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes * (size_t)self->world) == 0);
    /* In place. */
    memset(room.out, 0x77, nbytes * (size_t)self->world);
    char *own = room.out + nbytes * (size_t)self->rank;
    memcpy(own, room.in, nbytes);
    SPAWN_CHECK(self, tri_all_gather(group, own, room.out, count, dtype, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes * (size_t)self->world) == 0);
}

static void check_reduce_scatter(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count, ops_room room)
{
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    comm_spawn_fill(room.in, dtype, self->rank, 0, count * self->world);
    comm_spawn_expect(room.want, dtype, TRI_REDUCE_SUM, self->world, count * self->rank, count);
    memset(room.out, 0x77, nbytes);
    SPAWN_CHECK(self, tri_reduce_scatter(group, room.in, room.out, count, dtype, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes) == 0);
    comm_spawn_fill(room.out, dtype, self->rank, 0, count * self->world);
    SPAWN_CHECK(self, memcmp(room.out, room.in, nbytes * (size_t)self->world) == 0);
    char *own = room.in + nbytes * (size_t)self->rank;
    SPAWN_CHECK(self, tri_reduce_scatter(group, room.in, own, count, dtype, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(own, room.want, nbytes) == 0);
}

/* Around a ring: send to the next, receive from the one before. */
static void check_pairs(spawn_rank *self, tri_group *group, tri_dtype dtype, int64_t count, ops_room room)
{
    if (self->world == 1)
        return;
    int next = (self->rank + 1) % self->world, previous = (self->rank + self->world - 1) % self->world;
    size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    comm_spawn_fill(room.in, dtype, self->rank, 0, count);
    comm_spawn_fill(room.want, dtype, previous, 0, count);
    memset(room.out, 0x77, nbytes);
    /* Somebody must begin: a blocking send may wait for its receiver. */
    if (self->rank == 0)
        SPAWN_CHECK(self, tri_send(group, room.in, count, dtype, next, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_receive(group, room.out, count, dtype, previous, NULL) == TRI_OK);
    if (self->rank != 0)
        SPAWN_CHECK(self, tri_send(group, room.in, count, dtype, next, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(room.out, room.want, nbytes) == 0);
}

static void all_operations(spawn_rank *self, void *arg)
{
    const ops_case *ops = arg;
    tri_comm *comm = comm_spawn_open(self, ops->order, ops->algorithm);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    SPAWN_CHECK(self, tri_group_rank(group) == self->rank && tri_group_count(group) == self->world);
    for (int c = 0; ops->counts[c] >= 0; c++) {
        for (int d = 0; ops->dtypes[d] != TRI_DTYPE_COUNT; d++) {
            tri_dtype dtype = ops->dtypes[d];
            int64_t count = ops->counts[c];
            size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype) * (size_t)self->world + 64;
            ops_room room = {tri_alloc(nbytes), tri_alloc(nbytes), tri_alloc(nbytes)};
            check_all_reduce(self, group, dtype, count, room);
            check_reduce(self, group, dtype, count, room);
            check_broadcast(self, group, dtype, count, room);
            check_all_gather(self, group, dtype, count, room);
            check_reduce_scatter(self, group, dtype, count, room);
            check_pairs(self, group, dtype, count, room);
            SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
            tri_free(room.in);
            tri_free(room.out);
            tri_free(room.want);
        }
    }
    tri_comm_leave(comm);
}

static const int worlds[] = {1, 2, 3, 5, 8};

static void run_over(spawn_kind kind, const ops_case *ops)
{
    for (size_t w = 0; w < TRI_COUNT_OF(worlds); w++) {
        spawn_config config = {.kind = kind, .world = worlds[w]};
        assert_true(spawn_ranks(&config, all_operations, (void *)(uintptr_t)ops));
    }
}

static void every_operation_is_exact_for_every_type(void **state)
{
    (void)state;
    ops_case ops = {.counts = {0, 1, 7, 1000, -1},
                    .dtypes = {TRI_F32, TRI_F64, TRI_BF16, TRI_F16, TRI_I8, TRI_U8, TRI_I32, TRI_I64, TRI_DTYPE_COUNT}};
    run_over(SPAWN_INPROC, &ops);
}

static void every_operation_is_exact_for_large_odd_counts(void **state)
{
    (void)state;
    ops_case ops = {.counts = {100003, -1}, .dtypes = {TRI_F32, TRI_BF16, TRI_DTYPE_COUNT}};
    run_over(SPAWN_INPROC, &ops);
}

static void every_operation_is_exact_over_shared_memory(void **state)
{
    (void)state;
    ops_case ops = {.counts = {0, 7, 10007, -1}, .dtypes = {TRI_F32, TRI_F16, TRI_DTYPE_COUNT}};
    run_over(SPAWN_SHM, &ops);
}

static void every_operation_is_exact_over_tcp(void **state)
{
    (void)state;
    ops_case ops = {.counts = {1, 10007, -1}, .dtypes = {TRI_F32, TRI_DTYPE_COUNT}};
    run_over(SPAWN_TCP, &ops);
}

static void every_operation_is_exact_over_ucx(void **state)
{
    (void)state;
    ops_case ops = {.counts = {1, 10007, -1}, .dtypes = {TRI_F32, TRI_DTYPE_COUNT}};
    run_over(SPAWN_UCX, &ops);
}

/* One algorithm for everything; where it cannot, the cheapest that can: the results are the same. */
static void every_algorithm_gives_the_canonical_bits(void **state)
{
    (void)state;
    static const char *const algorithms[] = {
        "all_reduce:0-=tree;reduce:0-=tree;broadcast:0-=tree;all_gather:0-=direct",
        "all_reduce:0-=halving;reduce:0-=direct;broadcast:0-=direct;all_gather:0-=doubling",
        "all_reduce:0-=direct;reduce:0-=direct;broadcast:0-=scatter;all_gather:0-=ring",
        "all_reduce:0-=exchange;all_gather:0-=dissemination",
        "all_reduce:0-=doubling",
    };
    for (size_t a = 0; a < TRI_COUNT_OF(algorithms); a++) {
        ops_case ops = {.algorithm = algorithms[a],
                        .counts = {0, 5, 1000, 70001, -1},
                        .dtypes = {TRI_F32, TRI_F16, TRI_DTYPE_COUNT}};
        run_over(SPAWN_INPROC, &ops);
    }
}

/* Integers: every order of additions gives the same. */
static void rings_are_right_where_order_does_not_matter(void **state)
{
    (void)state;
    ops_case ops = {.algorithm = "all_reduce:0-=ring;reduce_scatter:0-=ring",
                    .order = "any",
                    .counts = {0, 1, 7, 1000, 20011, -1},
                    .dtypes = {TRI_I32, TRI_I64, TRI_U8, TRI_DTYPE_COUNT}};
    run_over(SPAWN_INPROC, &ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_exact_for_every_type),
        cmocka_unit_test(every_operation_is_exact_for_large_odd_counts),
        cmocka_unit_test(every_operation_is_exact_over_shared_memory),
        cmocka_unit_test(every_operation_is_exact_over_tcp),
        cmocka_unit_test(every_operation_is_exact_over_ucx),
        cmocka_unit_test(every_algorithm_gives_the_canonical_bits),
        cmocka_unit_test(rings_are_right_where_order_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
