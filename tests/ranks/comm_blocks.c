/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_blocks.c: operations on blocks (gather, scatter, all-to-all and their v forms), out-of-place sums, sums of
 * multiplied elements, and batches.
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
#include "tensor/reduce.h"

enum { RANKS_MAX = 8, BLOCK_MAX = 40 };

/* What rank a sends to rank b: every element names both and its place. */
static int32_t element(int a, int b, int64_t i)
{
    return (int32_t)((a * 100 + b) * 1000 + i);
}

/* Lengths that differ by sender and receiver; some are 0. */
static int64_t length(int a, int b)
{
    return (a * 5 + b * 3) % 7 * 4;
}

/* A rank whose block has no elements has no buffer for it. */
static int32_t *or_null(int32_t *buffer, int64_t count)
{
    return count > 0 ? buffer : NULL;
}

typedef struct blocks_room {
    int32_t in[RANKS_MAX * BLOCK_MAX], out[RANKS_MAX * BLOCK_MAX], want[RANKS_MAX * BLOCK_MAX];
    int64_t in_counts[RANKS_MAX], out_counts[RANKS_MAX], firsts[RANKS_MAX];
} blocks_room;

static void check_same(spawn_rank *self, const blocks_room *room)
{
    SPAWN_CHECK(self, memcmp(room->out, room->want, sizeof(room->out)) == 0);
}

static void clear(blocks_room *room)
{
    memset(room, 0x55, sizeof(*room));
}

static void check_gather(spawn_rank *self, tri_group *group, int64_t count)
{
    static _Thread_local blocks_room room;
    for (int root = 0; root < self->world; root++) {
        clear(&room);
        for (int64_t i = 0; i < count; i++)
            room.in[i] = element(self->rank, 0, i);
        for (int r = 0; self->rank == root && r < self->world; r++)
            for (int64_t i = 0; i < count; i++)
                room.want[r * count + i] = element(r, 0, i);
        void *out = self->rank == root ? room.out : NULL;
        SPAWN_CHECK(self, tri_gather(group, room.in, out, count, TRI_I32, root, NULL) == TRI_OK);
        check_same(self, &room);
    }
}

static void check_scatter(spawn_rank *self, tri_group *group, int64_t count)
{
    static _Thread_local blocks_room room;
    for (int root = 0; root < self->world; root++) {
        clear(&room);
        for (int r = 0; r < self->world; r++)
            for (int64_t i = 0; i < count; i++)
                room.in[r * count + i] = element(root, r, i);
        for (int64_t i = 0; i < count; i++)
            room.want[i] = element(root, self->rank, i);
        void *in = self->rank == root ? room.in : NULL;
        SPAWN_CHECK(self, tri_scatter(group, in, room.out, count, TRI_I32, root, NULL) == TRI_OK);
        check_same(self, &room);
    }
}

static void check_all_to_all(spawn_rank *self, tri_group *group, int64_t count)
{
    static _Thread_local blocks_room room;
    clear(&room);
    for (int r = 0; r < self->world; r++) {
        for (int64_t i = 0; i < count; i++) {
            room.in[r * count + i] = element(self->rank, r, i);
            room.want[r * count + i] = element(r, self->rank, i);
        }
    }
    SPAWN_CHECK(self, tri_all_to_all(group, room.in, room.out, count, TRI_I32, NULL) == TRI_OK);
    check_same(self, &room);
}

static void check_all_to_all_v(spawn_rank *self, tri_group *group, bool spread)
{
    static _Thread_local blocks_room room;
    clear(&room);
    int64_t at = 0;
    for (int r = 0; r < self->world; r++) {
        room.in_counts[r] = length(self->rank, r);
        room.out_counts[r] = length(r, self->rank);
        /* Blocks of the output in reverse, with room between them. */
        room.firsts[r] = spread ? (self->world - 1 - r) * BLOCK_MAX : at;
        for (int64_t i = 0; i < room.out_counts[r]; i++)
            room.want[room.firsts[r] + i] = element(r, self->rank, i);
        at += room.out_counts[r];
    }
    at = 0;
    for (int r = 0; r < self->world; r++)
        for (int64_t i = 0; i < room.in_counts[r]; i++)
            room.in[at++] = element(self->rank, r, i);
    tri_blocks in = {.counts = room.in_counts},
               out = {.counts = room.out_counts, .firsts = spread ? room.firsts : NULL};
    SPAWN_CHECK(self, tri_all_to_all_v(group, room.in, &in, room.out, &out, TRI_I32, NULL) == TRI_OK);
    check_same(self, &room);
}

static void check_gathers_v(spawn_rank *self, tri_group *group)
{
    static _Thread_local blocks_room room;
    for (int root = -1; root < self->world; root++) { /* -1: all-gather */
        clear(&room);
        bool has = root < 0 || root == self->rank;
        int64_t at = 0;
        for (int r = 0; r < self->world; r++) {
            room.out_counts[r] = has || r == self->rank ? length(r, 1) : -7; /* others' are nobody's business */
            for (int64_t i = 0; has && i < length(r, 1); i++)
                room.want[at++] = element(r, 1, i);
        }
        for (int64_t i = 0; i < length(self->rank, 1); i++)
            room.in[i] = element(self->rank, 1, i);
        tri_blocks blocks = {.counts = room.out_counts};
        const int32_t *own = or_null(room.in, length(self->rank, 1));
        tri_status status = root < 0 ? tri_all_gather_v(group, own, room.out, &blocks, TRI_I32, NULL)
                                     : tri_gather_v(group, own, room.out, &blocks, TRI_I32, root, NULL);
        SPAWN_CHECK(self, status == TRI_OK);
        check_same(self, &room);
    }
}

static void check_scatter_v(spawn_rank *self, tri_group *group)
{
    static _Thread_local blocks_room room;
    for (int root = 0; root < self->world; root++) {
        clear(&room);
        int64_t at = 0;
        for (int r = 0; r < self->world; r++) {
            room.in_counts[r] = root == self->rank || r == self->rank ? length(1, r) : -7;
            for (int64_t i = 0; i < length(1, r); i++)
                room.in[at++] = element(root, r, i);
        }
        for (int64_t i = 0; i < length(1, self->rank); i++)
            room.want[i] = element(root, self->rank, i);
        tri_blocks blocks = {.counts = room.in_counts};
        int32_t *own = or_null(room.out, length(1, self->rank));
        SPAWN_CHECK(self, tri_scatter_v(group, room.in, &blocks, own, TRI_I32, root, NULL) == TRI_OK);
        check_same(self, &room);
    }
}

static void check_reduce_scatter_v(spawn_rank *self, tri_group *group)
{
    static _Thread_local blocks_room room;
    clear(&room);
    int64_t at = 0;
    for (int r = 0; r < self->world; r++) {
        room.in_counts[r] = length(r, 2);
        for (int64_t i = 0; i < room.in_counts[r]; i++)
            room.in[at++] = element(self->rank, r, i);
    }
    for (int64_t i = 0; i < length(self->rank, 2); i++) {
        room.want[i] = 0;
        for (int r = 0; r < self->world; r++)
            room.want[i] += element(r, self->rank, i);
    }
    tri_blocks blocks = {.counts = room.in_counts};
    int32_t *own = or_null(room.out, length(self->rank, 2));
    SPAWN_CHECK(self, tri_reduce_scatter_v(group, room.in, &blocks, own, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    check_same(self, &room);
}

static void block_operations(spawn_rank *self, void *arg)
{
    tri_comm *comm = comm_spawn_open(self, NULL, arg);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    for (int64_t count = 0; count <= BLOCK_MAX; count = 3 * count + 1) {
        check_gather(self, group, count);
        check_scatter(self, group, count);
        check_all_to_all(self, group, count);
    }
    check_all_to_all_v(self, group, false);
    check_all_to_all_v(self, group, true);
    check_gathers_v(self, group);
    check_scatter_v(self, group);
    check_reduce_scatter_v(self, group);
    tri_comm_leave(comm);
}

static void run_all(spawn_kind kind, void (*body)(spawn_rank *, void *), const char *algorithm)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    for (size_t w = 0; w < TRI_COUNT_OF(worlds); w++) {
        spawn_config config = {.kind = kind, .world = worlds[w]};
        assert_true(spawn_ranks(&config, body, (void *)(uintptr_t)algorithm));
    }
}

static void blocks_arrive_whatever_their_lengths(void **state)
{
    (void)state;
    run_all(SPAWN_INPROC, block_operations, "gather:0-=direct;scatter:0-=direct;all_to_all:0-=direct");
    run_all(SPAWN_INPROC, block_operations, "gather:0-=tree;scatter:0-=tree;all_to_all:0-=pairs");
    run_all(SPAWN_SHM, block_operations, NULL);
    run_all(SPAWN_TCP, block_operations, NULL);
    run_all(SPAWN_UCX, block_operations, NULL);
}

enum { SUM_COUNT = 1000 };

static void sums_elsewhere(spawn_rank *self, void *arg)
{
    static _Thread_local float in[SUM_COUNT], kept[SUM_COUNT], out[SUM_COUNT], want[SUM_COUNT];
    tri_comm *comm = comm_spawn_open(self, NULL, arg);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    comm_spawn_fill(in, TRI_F32, self->rank, 0, SUM_COUNT);
    memcpy(kept, in, sizeof(in));
    comm_spawn_expect(want, TRI_F32, TRI_REDUCE_AVERAGE, self->world, 0, SUM_COUNT);
    SPAWN_CHECK(self, tri_all_reduce(group, in, out, SUM_COUNT, TRI_F32, TRI_REDUCE_AVERAGE, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(out, want, sizeof(out)) == 0 && memcmp(in, kept, sizeof(in)) == 0);
    for (int root = 0; root < self->world; root++) {
        memset(out, 0, sizeof(out));
        void *to = self->rank == root ? out : NULL;
        SPAWN_CHECK(self, tri_reduce(group, in, to, SUM_COUNT, TRI_F32, TRI_REDUCE_AVERAGE, root, NULL) == TRI_OK);
        SPAWN_CHECK(self, self->rank != root || memcmp(out, want, sizeof(out)) == 0);
        SPAWN_CHECK(self, memcmp(in, kept, sizeof(in)) == 0);
    }
    tri_comm_leave(comm);
}

static void sums_leave_their_input_alone(void **state)
{
    (void)state;
    run_all(SPAWN_INPROC, sums_elsewhere, "all_reduce:0-=tree;reduce:0-=tree");
    run_all(SPAWN_INPROC, sums_elsewhere, "all_reduce:0-=halving;reduce:0-=direct");
    run_all(SPAWN_SHM, sums_elsewhere, "all_reduce:0-=direct");
}

/* Small numbers with a factor that is a power of two: exact in every type. */
static void multiplied_sums(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    double factor = self->rank % 2 ? 2 : 4, all = 0;
    for (int r = 0; r < self->world; r++)
        all += (r % 2 ? 2 : 4) * (r + 1);
    tri_group_scale_next(group, factor);
    for (int d = 0; d < TRI_DTYPE_COUNT; d++) {
        char value[8], sum[8], scattered[8], block[RANKS_MAX * 8];
        double own = self->rank + 1, got = 0;
        tri_dtype dtype = (tri_dtype)d;
        size_t each = tri_dtype_nbytes(dtype);
        SPAWN_CHECK(self, tri_convert(value, dtype, &own, TRI_F64, 1) == TRI_OK);
        for (int r = 0; r < self->world; r++)
            memcpy(block + (size_t)r * each, value, each);
        SPAWN_CHECK(self, tri_all_reduce(group, value, sum, 1, dtype, TRI_REDUCE_PREMUL_SUM, NULL) == TRI_OK);
        SPAWN_CHECK(self, tri_convert(&got, TRI_F64, sum, dtype, 1) == TRI_OK && got == all);
        SPAWN_CHECK(self, tri_reduce_scatter(group, block, scattered, 1, dtype, TRI_REDUCE_PREMUL_SUM, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(scattered, sum, each) == 0);
    }
    tri_comm_leave(comm);
}

static void elements_are_multiplied_before_they_are_added(void **state)
{
    (void)state;
    run_all(SPAWN_INPROC, multiplied_sums, NULL);
}

/* Around a ring with blocking calls in the order that would lock without a batch, and two sums; run three times. */
static void batched_calls(spawn_rank *self, void *arg)
{
    (void)arg;
    enum { COUNT = 300000 }; /* more than a ring holds */
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    int next = (self->rank + 1) % self->world, previous = (self->rank + self->world - 1) % self->world;
    int32_t *give = tri_alloc(COUNT * sizeof(int32_t)), *take = tri_alloc(COUNT * sizeof(int32_t)), one = 0, two[2];
    tri_batch *batch = NULL;
    tri_work *work = NULL;
    SPAWN_CHECK(self, tri_batch_begin(group) == TRI_OK && tri_batch_begin(group) == TRI_EINVAL);
    if (self->world > 1) {
        SPAWN_CHECK(self, tri_send(group, give, COUNT, TRI_I32, next, NULL) == TRI_OK);
        SPAWN_CHECK(self, tri_receive(group, take, COUNT, TRI_I32, previous, NULL) == TRI_OK);
    }
    SPAWN_CHECK(self, tri_all_reduce(group, &one, &two[0], 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_all_reduce(group, &one, &two[1], 1, TRI_I32, TRI_REDUCE_MAX, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_batch_end(group, &batch) == TRI_OK);
    for (int32_t turn = 1; turn <= 3; turn++) {
        one = turn * (self->rank + 1);
        give[0] = give[COUNT - 1] = self->rank * 10 + turn;
        SPAWN_CHECK(self, tri_batch_run(batch, turn == 2 ? &work : NULL) == TRI_OK);
        if (turn == 2)
            SPAWN_CHECK(self, tri_work_wait(work) == TRI_OK);
        SPAWN_CHECK(self, two[0] == turn * self->world * (self->world + 1) / 2 && two[1] == turn * self->world);
        if (self->world > 1)
            SPAWN_CHECK(self, take[0] == previous * 10 + turn && take[COUNT - 1] == take[0]);
    }
    tri_batch_destroy(batch);
    tri_free(give);
    tri_free(take);
    tri_comm_leave(comm);
}

static void a_batch_runs_as_often_as_wanted(void **state)
{
    (void)state;
    run_all(SPAWN_INPROC, batched_calls, NULL);
    run_all(SPAWN_SHM, batched_calls, NULL);
}

static void wrong_calls(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    int32_t x = 0;
    int64_t counts[2] = {1, -1};
    tri_batch *batch;
    tri_work *work = NULL;
    tri_blocks blocks = {.counts = counts};
    SPAWN_CHECK(self, tri_all_gather_v(group, &x, &x, &blocks, TRI_I32, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, strstr(tri_last_error(), "block 1: want a count from 0") != NULL);
    SPAWN_CHECK(self, tri_all_to_all_v(group, &x, NULL, &x, &blocks, TRI_I32, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_gather(group, &x, NULL, 1, TRI_I32, self->rank, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_scatter(group, NULL, &x, 1, TRI_I32, self->rank, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_batch_end(group, &batch) == TRI_EINVAL);
    /* The first error inside a batch is what its end says. */
    SPAWN_CHECK(self, tri_batch_begin(group) == TRI_OK);
    SPAWN_CHECK(self, tri_all_reduce(group, &x, &x, 1, TRI_I32, TRI_REDUCE_SUM, &work) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce(group, &x, NULL, 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_batch_end(group, &batch) == TRI_EINVAL && batch == NULL);
    SPAWN_CHECK(self, strstr(tri_last_error(), "no handle of its own") != NULL);
    /* Rank 0 sends more than rank 1 wants; it may hear of it only in its next call. */
    int32_t many[4] = {0};
    int64_t gives[2] = {1, self->rank == 0 ? 2 : 1}, wants[2] = {1, 1};
    tri_blocks in = {.counts = gives}, out = {.counts = wants};
    tri_status status = tri_all_to_all_v(group, many, &in, many + 2, &out, TRI_I32, NULL);
    SPAWN_CHECK(self, status == TRI_EMISMATCH || (self->rank == 0 && status == TRI_OK));
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_EMISMATCH);
    tri_comm_leave(comm);
}

static void wrong_blocks_and_batches_are_told(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 2};
    assert_true(spawn_ranks(&config, wrong_calls, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_arrive_whatever_their_lengths),
        cmocka_unit_test(sums_leave_their_input_alone),
        cmocka_unit_test(elements_are_multiplied_before_they_are_added),
        cmocka_unit_test(a_batch_runs_as_often_as_wanted),
        cmocka_unit_test(wrong_blocks_and_batches_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
