/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_shared.c: operations in memory of the group give what they give in ordinary memory, wherever it is shared and
 * wherever it is not.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "comm/shared.h"
#include "net/region.h"
#include "tensor/tree.h"

/* ThreadSanitizer does not see what threads tell each other through two mappings of one memfd, which the rings of shm
 * are. */
#ifdef __SANITIZE_THREAD__
#define UNSEEN_RINGS true
#else
#define UNSEEN_RINGS false
#endif

#define LARGEST 100003
#define OFFSET  16 /* elements in front of the data */

static float value_of(int rank, int64_t i)
{
    return 1.0f / (float)(1 + (i * 31 + rank * 7) % 1009) * (rank % 2 ? 1e3f : 1.0f);
}

static void fill(float *data, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = value_of(rank, i);
}

static void sums_agree(spawn_rank *self, void *arg)
{
    const bool *shares = arg;
    static const int64_t counts[] = {0, 1, 7, 1000, LARGEST};
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm);
    float *plain = tri_alloc(LARGEST * sizeof(float));
    void *memory = NULL;
    SPAWN_CHECK(self, tri_group_alloc(world, (LARGEST + OFFSET) * sizeof(float), &memory) == TRI_OK);
    float *data = (float *)memory + OFFSET;
    SPAWN_CHECK(self, (tri_shared_find(world, data, sizeof(float)) != NULL) == (*shares && self->world > 1));
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (tri_reduce_op op = TRI_REDUCE_SUM; op <= TRI_REDUCE_MAX; op++) {
            fill(plain, self->rank, counts[c]);
            fill(data, self->rank, counts[c]);
            SPAWN_CHECK(self, tri_all_reduce(world, plain, plain, counts[c], TRI_F32, op, NULL) == TRI_OK);
            SPAWN_CHECK(self, tri_all_reduce(world, data, data, counts[c], TRI_F32, op, NULL) == TRI_OK);
            SPAWN_CHECK(self, memcmp(plain, data, (size_t)counts[c] * sizeof(float)) == 0);
        }
    tri_group_free(world, memory);
    SPAWN_CHECK(self, tri_shared_find(world, data, sizeof(float)) == NULL);
    tri_free(plain);
    tri_comm_leave(comm);
}

#define LEAVES 8

/* Blocks of different lengths, read in the memory of all ranks; the sum in its place. */
static void expect_own_block(spawn_rank *self, tri_group *world, float *const *parts, int part_count, const float *want,
                             int64_t count)
{
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    int64_t counts[8], firsts[8], first = tri_tree_first(LEAVES, self->rank, self->world);
    tri_blocks blocks = {counts, firsts};
    (void)tri_tree_parts(LEAVES, first, tri_tree_count(LEAVES, self->rank, self->world), own);
    for (int p = 0; p < part_count; p++)
        comm_spawn_tree(parts[p], own[p].first, own[p].count, count);
    for (int r = 0; r < self->world; r++) {
        firsts[r] = count * r * r / (self->world * self->world);
        counts[r] = count * (r + 1) * (r + 1) / (self->world * self->world) - firsts[r];
    }
    float *out = parts[0] + firsts[self->rank];
    SPAWN_CHECK(self, tri_reduce_scatter_tree(world, LEAVES, parts, part_count, &blocks, out, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(out, want + firsts[self->rank], (size_t)counts[self->rank] * sizeof(float)) == 0);
}

static void tree_sums_agree(spawn_rank *self, void *arg)
{
    (void)arg;
    static const int64_t counts[] = {1, 40, LARGEST};
    tri_comm *comm = comm_spawn_open(self, NULL, "all_reduce:0-=shared;reduce_scatter:0-=shared");
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm);
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    int64_t first = tri_tree_first(LEAVES, self->rank, self->world);
    int part_count = tri_tree_parts(LEAVES, first, tri_tree_count(LEAVES, self->rank, self->world), own);
    float *want = tri_alloc(LARGEST * sizeof(float)), *parts[TRI_TREE_MAX_PARTS];
    void *memory = NULL;
    SPAWN_CHECK(self, tri_group_alloc(world, (LARGEST + OFFSET) * sizeof(float), &memory) == TRI_OK);
    for (int p = 0; p < part_count; p++)
        parts[p] = p == 0 ? (float *)memory + OFFSET : tri_alloc(LARGEST * sizeof(float));
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int p = 0; p < part_count; p++)
            comm_spawn_tree(parts[p], own[p].first, own[p].count, counts[c]);
        comm_spawn_tree(want, 0, LEAVES, counts[c]);
        SPAWN_CHECK(self, tri_all_reduce_tree(world, LEAVES, parts, part_count, counts[c], NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(parts[0], want, (size_t)counts[c] * sizeof(float)) == 0);
        expect_own_block(self, world, parts, part_count, want, counts[c]);
    }
    for (int p = 1; p < part_count; p++)
        tri_free(parts[p]);
    tri_group_free(world, memory);
    tri_free(want);
    tri_comm_leave(comm);
}

static void over_kinds(spawn_body body)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    const struct {
        spawn_kind kind;
        bool shares;
    } cases[] = {{SPAWN_INPROC, true}, {SPAWN_SHM, true}, {SPAWN_TCP, false}, {SPAWN_SIM, false}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        if (cases[k].kind == SPAWN_SHM && UNSEEN_RINGS)
            continue;
        for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
            int world = worlds[w];
            spawn_config config = {.kind = cases[k].kind, .world = world, .seed = 5};
            bool shares = cases[k].shares;
            if (!spawn_ranks(&config, body, &shares))
                fail_msg("%s, %d ranks", spawn_kind_name(cases[k].kind), world);
        }
    }
}

static void shared_memory_gives_the_same_bits(void **state)
{
    (void)state;
    over_kinds(sums_agree);
}

static void a_sum_over_shards_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    over_kinds(tree_sums_agree);
}

/* Data anywhere: another offset on every rank, and on the last one (`arg`) in ordinary memory. */
static void places_differ(spawn_rank *self, void *arg)
{
    const bool *ordinary = arg;
    enum { COUNT = 60000 };
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    void *memory = NULL;
    SPAWN_CHECK(self, tri_group_alloc(tri_comm_world(comm), 1 << 20, &memory) == TRI_OK);
    float *plain = tri_alloc(COUNT * sizeof(float)), *want = tri_alloc(COUNT * sizeof(float));
    float *data = *ordinary && self->rank == self->world - 1 ? plain : (float *)memory + 64 * self->rank;
    comm_spawn_fill(data, TRI_F32, self->rank, 0, COUNT);
    comm_spawn_expect(want, TRI_F32, TRI_REDUCE_SUM, self->world, 0, COUNT);
    SPAWN_CHECK(self, tri_all_reduce(tri_comm_world(comm), data, data, COUNT, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(data, want, COUNT * sizeof(float)) == 0);
    tri_free(plain);
    tri_free(want);
    tri_comm_leave(comm);
}

static void ranks_may_pass_different_places(void **state)
{
    (void)state;
    for (int world = 2; world <= 3; world++) {
        for (int ordinary = 0; ordinary < 2; ordinary++) {
            bool is_ordinary = ordinary;
            spawn_config config = {.kind = UNSEEN_RINGS ? SPAWN_INPROC : SPAWN_SHM, .world = world};
            assert_true(spawn_ranks(&config, places_differ, &is_ordinary));
        }
    }
}

/* Every other operation with its data in the group's memory: large blocks, from where they lie to where they belong. */
static void blocks_of(int32_t *block, int from, int to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        block[i] = (int32_t)(from * 1000003 + to * 10007 + i);
}

static bool is_block(const int32_t *block, int from, int to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (block[i] != (int32_t)(from * 1000003 + to * 10007 + i))
            return false;
    }
    return true;
}

static void move_blocks(spawn_rank *self, void *arg)
{
    (void)arg;
    enum { COUNT = 30001 };
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm);
    int rank = self->rank, ranks = self->world, root = ranks - 1;
    size_t nbytes = (size_t)ranks * COUNT * sizeof(int32_t);
    void *in_memory = NULL, *out_memory = NULL;
    SPAWN_CHECK(self, tri_group_alloc(world, nbytes, &in_memory) == TRI_OK);
    SPAWN_CHECK(self, tri_group_alloc(world, nbytes, &out_memory) == TRI_OK);
    int32_t *in = in_memory, *out = out_memory;
    for (int turn = 0; turn < 3; turn++) {
        for (int r = 0; r < ranks; r++)
            blocks_of(in + r * COUNT, rank, r, COUNT);
        SPAWN_CHECK(self, tri_all_to_all(world, in, out, COUNT, TRI_I32, NULL) == TRI_OK);
        for (int r = 0; r < ranks; r++)
            SPAWN_CHECK(self, is_block(out + r * COUNT, r, rank, COUNT));
        SPAWN_CHECK(self, tri_all_gather(world, in, out, COUNT, TRI_I32, NULL) == TRI_OK);
        for (int r = 0; r < ranks; r++)
            SPAWN_CHECK(self, is_block(out + r * COUNT, r, 0, COUNT));
        memset(out, 0, nbytes);
        SPAWN_CHECK(self, tri_gather(world, in, rank == root ? out : NULL, COUNT, TRI_I32, root, NULL) == TRI_OK);
        for (int r = 0; r < ranks && rank == root; r++)
            SPAWN_CHECK(self, is_block(out + r * COUNT, r, 0, COUNT));
        SPAWN_CHECK(self, tri_scatter(world, rank == root ? in : NULL, out, COUNT, TRI_I32, root, NULL) == TRI_OK);
        SPAWN_CHECK(self, is_block(out, root, rank, COUNT));
        SPAWN_CHECK(self, tri_reduce_scatter(world, in, out, COUNT, TRI_I32, TRI_REDUCE_MAX, NULL) == TRI_OK);
        SPAWN_CHECK(self, is_block(out, ranks - 1, rank, COUNT));
        SPAWN_CHECK(self, tri_broadcast(world, in, ranks * COUNT, TRI_I32, root, NULL) == TRI_OK);
        for (int r = 0; r < ranks; r++)
            SPAWN_CHECK(self, is_block(in + r * COUNT, root, r, COUNT));
    }
    tri_group_free(world, in_memory);
    tri_group_free(world, out_memory);
    tri_comm_leave(comm);
}

static void blocks_move_through_shared_memory(void **state)
{
    (void)state;
    over_kinds(move_blocks);
}

/* The next group's memory is where the last one's was, with what lay there, and is as good as new: sums in it are
 * right, and all reach it. Other lengths are fresh. */
static void keep_memory(spawn_rank *self, void *arg)
{
    const bool *shares = arg;
    bool direct = *shares && self->world > 1;
    size_t nbytes = LARGEST * sizeof(float);
    tri_group_memory kept = {0};
    void *memory = NULL, *before = NULL;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *world = tri_comm_world(comm), *other = NULL, *alone = NULL;
    SPAWN_CHECK(self, tri_group_split(world, 0, self->world - self->rank, &other) == TRI_OK);
    SPAWN_CHECK(self, tri_group_split(world, self->rank, 0, &alone) == TRI_OK);
    for (int turn = 0; turn < 3; turn++) {
        tri_group *group = turn % 2 ? other : world;
        SPAWN_CHECK(self, tri_group_alloc_kept(group, nbytes, &kept, &memory) == TRI_OK);
        SPAWN_CHECK(self, (tri_shared_find(group, memory, nbytes) != NULL) == direct);
        SPAWN_CHECK(self, !kept.plain && !kept.region.bytes && (!before || memory == before));
        float *data = memory;
        SPAWN_CHECK(self, data[LARGEST - 1] == (float)(turn * self->world));
        for (int i = 0; i < LARGEST; i++)
            data[i] = (float)(turn + 1);
        SPAWN_CHECK(self, tri_all_reduce(group, data, data, LARGEST, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK);
        SPAWN_CHECK(self, data[0] == data[LARGEST - 1] && data[0] == (float)((turn + 1) * self->world));
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
        tri_group_free_kept(group, memory, &kept);
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK); /* all have freed theirs */
        SPAWN_CHECK(self, (kept.region.bytes != NULL) == direct && (kept.plain != NULL) == !direct);
        before = memory;
        /* A group that does not share memory takes the shared kind too, and leaves it for one that does. */
        SPAWN_CHECK(self, tri_group_alloc_kept(alone, nbytes, &kept, &memory) == TRI_OK);
        SPAWN_CHECK(self, memory == before && !tri_shared_find(alone, memory, nbytes));
        SPAWN_CHECK(self, ((float *)memory)[LARGEST - 1] == data[0]);
        tri_group_free_kept(alone, memory, &kept);
        SPAWN_CHECK(self, (kept.region.bytes != NULL) == direct && (kept.plain != NULL) == !direct);
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    }
    SPAWN_CHECK(self, tri_group_alloc_kept(world, nbytes / 2, &kept, &memory) == TRI_OK);
    SPAWN_CHECK(self, ((float *)memory)[0] == 0 && (kept.plain || kept.region.bytes));
    tri_group_memory mine = {0};
    before = memory;
    if (self->rank == 0)
        tri_group_free_kept(world, memory, &mine);
    SPAWN_CHECK(self, tri_barrier(world, NULL) == TRI_OK);
    if (self->rank == 0) { /* the others may still write there */
        void *again = NULL;
        SPAWN_CHECK(self, tri_group_alloc_kept(alone, nbytes / 2, &mine, &again) == TRI_OK);
        SPAWN_CHECK(self, (again == before) == !direct && (mine.region.bytes != NULL) == direct);
        tri_group_free(alone, again);
        tri_group_memory_free(&mine);
    }
    SPAWN_CHECK(self, tri_barrier(world, NULL) == TRI_OK);
    if (self->rank != 0)
        tri_group_free(world, memory);
    tri_group_memory_free(&kept);
    tri_group_destroy(alone);
    tri_group_destroy(other);
    tri_comm_leave(comm);
}

static void memory_that_is_kept_serves_the_next_group(void **state)
{
    (void)state;
    over_kinds(keep_memory);
}

static void a_region_is_found_by_its_ticket_and_by_no_other(void **state)
{
    (void)state;
    tri_region region, other;
    assert_int_equal(tri_region_create(100000, &region), TRI_OK);
    assert_int_equal(tri_region_open(&region.ticket, &other), TRI_OK);
    ((char *)region.bytes)[99999] = 42;
    assert_int_equal(((char *)other.bytes)[99999], 42);
    tri_region_close(&other);
    tri_region_ticket wrong = region.ticket;
    wrong.mark ^= 1;
    assert_int_equal(tri_region_open(&wrong, &other), TRI_EUNSUPPORTED);
    wrong = region.ticket;
    wrong.nbytes += 8192;
    assert_int_equal(tri_region_open(&wrong, &other), TRI_EUNSUPPORTED);
    wrong = region.ticket;
    wrong.file = 0;
    assert_int_equal(tri_region_open(&wrong, &other), TRI_EUNSUPPORTED);
    wrong.process = -1;
    assert_int_equal(tri_region_open(&wrong, &other), TRI_EUNSUPPORTED);
    tri_region_close(&region);
}

/* Maps the region, tells of it, and never ends by itself. */
static void user_run(const tri_region *region, int told)
{
    tri_region mapped;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (tri_region_open(&region->ticket, &mapped) == TRI_OK)
        (void)!write(told, "x", 1);
    for (;;)
        pause();
}

static void a_region_is_alone_when_its_users_have_ended(void **state)
{
    (void)state;
    tri_region region;
    int told[2];
    char byte;
    siginfo_t info;
    assert_int_equal(tri_region_create(100000, &region), TRI_OK);
    assert_true(tri_region_is_alone(&region));
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0)
        user_run(&region, told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_false(tri_region_is_alone(&region));
    assert_int_equal(kill(child, SIGSTOP), 0); /* it may go on */
    assert_false(tri_region_is_alone(&region));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_true(tri_region_is_alone(&region)); /* also where nobody has waited for it */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(tri_region_is_alone(&region));
    close(told[0]);
    close(told[1]);
    tri_region_close(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_gives_the_same_bits),
        cmocka_unit_test(a_sum_over_shards_has_the_bits_of_one_rank),
        cmocka_unit_test(ranks_may_pass_different_places),
        cmocka_unit_test(blocks_move_through_shared_memory),
        cmocka_unit_test(memory_that_is_kept_serves_the_next_group),
        cmocka_unit_test(a_region_is_found_by_its_ticket_and_by_no_other),
        cmocka_unit_test(a_region_is_alone_when_its_users_have_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
