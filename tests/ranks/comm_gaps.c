/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_gaps.c: blocks of which each lies in a page of its own, with pages between them that nobody may touch.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { PAGE = 4096, APART = 4 * PAGE, RANKS_MAX = 3 };

typedef struct islands {
    float *base;
    int64_t counts[RANKS_MAX], firsts[RANKS_MAX];
} islands;

static int64_t length_of(int rank)
{
    return 100 + 17 * rank;
}

/* One block of length_of(r) per rank, or all of `length` elements. */
static bool islands_open(islands *is, int world, int64_t length)
{
    void *base = mmap(NULL, (size_t)world * APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return false;
    is->base = base;
    for (int r = 0; r < world; r++) {
        is->counts[r] = length ? length : length_of(r);
        /* In reverse, and up to the end of the page. */
        int64_t page_end = (world - 1 - r) * (APART / 4) + PAGE / 4;
        is->firsts[r] = page_end - is->counts[r];
        if (mprotect(&is->base[page_end - PAGE / 4], PAGE, PROT_READ | PROT_WRITE) != 0)
            return false;
    }
    return true;
}

static float *block(islands *is, int r)
{
    return is->base + is->firsts[r];
}

static void check_block(spawn_rank *self, const float *is, float want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        SPAWN_CHECK(self, is[i] == want);
}

static void set_block(float *is, float value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        is[i] = value;
}

static void check_gathers(spawn_rank *self, tri_group *group, islands *is, float *own)
{
    tri_blocks blocks = {.counts = is->counts, .firsts = is->firsts};
    int world = self->world;
    set_block(own, (float)self->rank, length_of(self->rank));
    SPAWN_CHECK(self, tri_all_gather_v(group, own, is->base, &blocks, TRI_F32, NULL) == TRI_OK);
    for (int r = 0; r < world; r++)
        check_block(self, block(is, r), (float)r, length_of(r));
    set_block(own, (float)self->rank + 10, length_of(self->rank));
    void *out = self->rank == world - 1 ? is->base : NULL;
    SPAWN_CHECK(self, tri_gather_v(group, own, out, &blocks, TRI_F32, world - 1, NULL) == TRI_OK);
    for (int r = 0; out && r < world; r++)
        check_block(self, block(is, r), (float)r + 10, length_of(r));
}

static void check_scatters(spawn_rank *self, tri_group *group, islands *is, float *own)
{
    tri_blocks blocks = {.counts = is->counts, .firsts = is->firsts};
    int world = self->world, mine = self->rank;
    for (int r = 0; r < world; r++)
        set_block(block(is, r), (float)(r + 1), length_of(r));
    void *in = mine == 0 ? is->base : NULL;
    SPAWN_CHECK(self, tri_scatter_v(group, in, &blocks, own, TRI_F32, 0, NULL) == TRI_OK);
    check_block(self, own, (float)(mine + 1), length_of(mine));
    SPAWN_CHECK(self, tri_reduce_scatter_v(group, is->base, &blocks, own, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    check_block(self, own, (float)((mine + 1) * world), length_of(mine));
    tri_group_scale_next(group, self->rank + 1);
    SPAWN_CHECK(self,
                tri_reduce_scatter_v(group, is->base, &blocks, own, TRI_F32, TRI_REDUCE_PREMUL_SUM, NULL) == TRI_OK);
    check_block(self, own, (float)((mine + 1) * world * (world + 1) / 2), length_of(mine));
}

static void body(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    islands is, from, to;
    bool opened =
        islands_open(&is, self->world, 0) && islands_open(&from, self->world, 50) && islands_open(&to, self->world, 50);
    SPAWN_CHECK(self, opened);
    if (!comm || !opened)
        return;
    float own[200];
    tri_group *group = tri_comm_world(comm);
    check_gathers(self, group, &is, own);
    check_scatters(self, group, &is, own);
    for (int r = 0; r < self->world; r++)
        set_block(block(&from, r), (float)(10 * self->rank + r), 50);
    tri_blocks in = {.counts = from.counts, .firsts = from.firsts}, out = {.counts = to.counts, .firsts = to.firsts};
    SPAWN_CHECK(self, tri_all_to_all_v(group, from.base, &in, to.base, &out, TRI_F32, NULL) == TRI_OK);
    for (int r = 0; r < self->world; r++)
        check_block(self, block(&to, r), (float)(10 * r + self->rank), 50);
    munmap(is.base, (size_t)self->world * APART);
    munmap(from.base, (size_t)self->world * APART);
    munmap(to.base, (size_t)self->world * APART);
    tri_comm_leave(comm);
}

static void what_lies_between_blocks_is_not_touched(void **state)
{
    (void)state;
    static const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        for (int world = 1; world <= RANKS_MAX; world++) {
            spawn_config config = {.kind = kinds[k], .world = world};
            assert_true(spawn_ranks(&config, body, NULL));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_between_blocks_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
