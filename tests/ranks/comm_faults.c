/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_faults.c: ranks that call different things, leave, die, stop or are late: all ranks end, with the first cause.
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

typedef tri_status (*one_call)(tri_group *group, int rank);

typedef struct mismatch_case {
    one_call call;
    const char *texts[4]; /* all of them in the message */
} mismatch_case;

static float buffer[64][256];

static tri_status other_op(tri_group *group, int rank)
{
    return rank == 1 ? tri_broadcast(group, buffer[rank], 100, TRI_F32, 0, NULL)
                     : tri_all_reduce(group, buffer[rank], buffer[rank], 100, TRI_F32, TRI_REDUCE_SUM, NULL);
}

static tri_status other_count(tri_group *group, int rank)
{
    return tri_all_reduce(group, buffer[rank], buffer[rank], rank == 1 ? 99 : 100, TRI_F32, TRI_REDUCE_SUM, NULL);
}

static tri_status other_dtype(tri_group *group, int rank)
{
    return tri_all_reduce(group, buffer[rank], buffer[rank], 100, rank == 1 ? TRI_I32 : TRI_F32, TRI_REDUCE_SUM, NULL);
}

static tri_status other_reduction(tri_group *group, int rank)
{
    return tri_all_reduce(group, buffer[rank], buffer[rank], 100, TRI_F32, rank == 1 ? TRI_REDUCE_MAX : TRI_REDUCE_SUM,
                          NULL);
}

static tri_status other_root(tri_group *group, int rank)
{
    return tri_reduce(group, buffer[rank], buffer[rank], 100, TRI_F32, TRI_REDUCE_SUM, rank == 1 ? 1 : 0, NULL);
}

enum { FEW = 100, SOME = 5000, MANY = 60000, LARGE_RANKS = 3 };
static float large[2][LARGE_RANKS][MANY];

/* Ranks that believe to be the root themselves. */
static tri_status own_root(tri_group *group, int rank)
{
    return tri_broadcast(group, large[0][rank], FEW, TRI_F32, rank, NULL);
}

static tri_status own_root_of_some(tri_group *group, int rank)
{
    return tri_broadcast(group, large[0][rank], SOME, TRI_F32, rank, NULL);
}

static tri_status own_root_of_many(tri_group *group, int rank)
{
    return tri_broadcast(group, large[0][rank], MANY, TRI_F32, rank, NULL);
}

static tri_status own_root_of_scatter(tri_group *group, int rank)
{
    return tri_scatter(group, large[0][rank], large[1][rank], FEW, TRI_F32, rank, NULL);
}

/* Each believes that another rank is the root, and nobody is. */
static tri_status next_root_of_gather(tri_group *group, int rank)
{
    return tri_gather(group, large[0][rank], NULL, FEW, TRI_F32, (rank + 1) % tri_group_count(group), NULL);
}

static tri_status next_root_of_reduce(tri_group *group, int rank)
{
    return tri_reduce(group, large[0][rank], NULL, FEW, TRI_F32, TRI_REDUCE_SUM, (rank + 1) % tri_group_count(group),
                      NULL);
}

static tri_status other_name(tri_group *group, int rank)
{
    tri_group_name_next(group, rank == 1 ? "bucket 4" : "bucket 3");
    return tri_all_reduce(group, buffer[rank], buffer[rank], 100, TRI_F32, TRI_REDUCE_SUM, NULL);
}

static void calls_once(spawn_rank *self, void *arg)
{
    const mismatch_case *one = arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    /* Both names are known to all, so that a message can say the other's. */
    static const char *const names[] = {"bucket 3", "bucket 4", ""};
    tri_status status = TRI_OK;
    for (size_t n = 0; n < TRI_COUNT_OF(names) && status == TRI_OK; n++) {
        tri_group_name_next(group, names[n]);
        status = tri_barrier(group, NULL); /* the last one fails where others have already found the mismatch */
    }
    if (status == TRI_OK)
        status = one->call(group, self->rank);
    /* A rank that only sends may be through before the others find out. */
    for (int more = 0; status == TRI_OK && more < 100; more++)
        status = tri_barrier(group, NULL);
    SPAWN_CHECK(self, status == TRI_EMISMATCH);
    for (int t = 0; t < 4 && one->texts[t]; t++)
        SPAWN_CHECK(self, strstr(tri_last_error(), one->texts[t]) != NULL);
    char cause[TRI_ERROR_NBYTES];
    snprintf(cause, sizeof(cause), "%s", tri_last_error());
    int origin = -1;
    SPAWN_CHECK(self, strcmp(tri_comm_cause(comm, &origin), cause) == 0 && origin >= 0 && origin < self->world);
    /* And so does everything later. */
    tri_work *work = NULL;
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_EMISMATCH && strcmp(tri_last_error(), cause) == 0);
    SPAWN_CHECK(self, tri_barrier(group, &work) == TRI_EMISMATCH && work == NULL);
    tri_comm_leave(comm);
}

static void mismatches_are_errors_on_all_ranks_with_both_calls(void **state)
{
    (void)state;
    static const mismatch_case cases[] = {
        {other_op, {"all_reduce #", "broadcast #", "f32 x 100", "rank 1 called"}},
        {other_count, {"f32 x 100", "f32 x 99", "rank 1 called", NULL}},
        {other_dtype, {"f32 x 100", "i32 x 100", "rank 1 called", NULL}},
        {other_reduction, {"100 sum", "100 max", "rank 1 called", NULL}},
        {other_root, {"root 0", "root 1", "rank 1 called", NULL}},
        {own_root, {"broadcast #", "root ", NULL}},
        {own_root_of_some, {"broadcast #", "root ", NULL}},
        {own_root_of_many, {"broadcast #", "root ", NULL}},
        {own_root_of_scatter, {"scatter #", "root ", NULL}},
        {next_root_of_gather, {"gather #", "root ", NULL}},
        {next_root_of_reduce, {"reduce #", "root ", NULL}},
        {other_name, {"'bucket 3'", "'bucket 4'", "rank 1 called", NULL}},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        for (int world = 2; world <= 3; world++) {
            const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_UCX, SPAWN_SIM};
            for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
                spawn_config config = {.kind = kinds[k], .world = world, .seed = c + 1, .timeout_s = 10};
                assert_true(spawn_ranks(&config, calls_once, (void *)(uintptr_t)&cases[c]));
            }
        }
    }
}

/* Rank 0 is through before the others begin: they find its message where memory is shared. Over links a look at what
 * has come would cost a small call half its time; there the next call tells. Nobody begins before all have left the
 * barrier: who is still in it hears of the error there. */
static void comes_later(spawn_rank *self, void *arg)
{
    atomic_int *through = arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    spawn_barrier(self);
    while (self->rank != 0 && atomic_load(through) == 0)
        tri_sleep_ns(TRI_NS_PER_MS);
    tri_status status = own_root(group, self->rank);
    if (self->rank == 0)
        atomic_store(through, 1);
    SPAWN_CHECK(self, self->rank == 0 || status == TRI_EMISMATCH);
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_EMISMATCH);
    tri_comm_leave(comm);
}

static void another_root_is_an_error_of_the_call_itself(void **state)
{
    (void)state;
    for (int world = 2; world <= 3; world++) {
        const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM};
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
            atomic_int through = 0;
            spawn_config config = {.kind = kinds[k], .world = world, .timeout_s = 10};
            assert_true(spawn_ranks(&config, comes_later, &through));
        }
    }
}

/* Rank 0 has another root than the others, and the next call moves nothing over the links on which messages of the
 * first one wait: the digest of roots shows it all the same, in the first frame between rank 0 and another one. */
static void roots_differ_before(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    tri_status status = tri_broadcast(group, large[0][self->rank], FEW, TRI_F32, self->rank == 0 ? 0 : 1, NULL);
    if (status == TRI_OK)
        status = tri_broadcast(group, large[0][self->rank], FEW, TRI_F32, 2, NULL);
    SPAWN_CHECK(self, self->rank != 0 || status == TRI_EMISMATCH);
    if (status == TRI_OK)
        status = tri_barrier(group, NULL);
    SPAWN_CHECK(self, status == TRI_EMISMATCH);
    SPAWN_CHECK(self, strstr(tri_last_error(), "f32 x 100 root 0") || strstr(tri_last_error(), "f32 x 100 root 1"));
    tri_comm_leave(comm);
}

static void another_root_is_an_error_of_the_next_call_at_the_latest(void **state)
{
    (void)state;
    const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_UCX, SPAWN_SIM};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        spawn_config config = {.kind = kinds[k], .world = 3, .seed = 1, .timeout_s = 10};
        assert_true(spawn_ranks(&config, roots_differ_before, NULL));
    }
}

/* Rank 0 receives from whoever has sent, and is late when all others have left the last barrier. */
static void sends_or_probes(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    int own = 0, from = -1, seen = 0;
    for (int round = 0; round < 3; round++) {
        for (int more = 1; self->rank == 0 && more < self->world; more++) {
            SPAWN_CHECK(self, tri_probe_sender(group, &from) == TRI_OK && from > 0 && from < self->world);
            SPAWN_CHECK(self, tri_receive(group, &own, 1, TRI_I32, from, NULL) == TRI_OK && own == 100 * from);
            seen += own;
        }
        own = 100 * self->rank;
        SPAWN_CHECK(self, self->rank == 0 || tri_send(group, &own, 1, TRI_I32, 0, NULL) == TRI_OK);
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    }
    SPAWN_CHECK(self, self->rank != 0 || seen == 300 * self->world * (self->world - 1) / 2);
    spawn_barrier(self);
    SPAWN_CHECK(self, self->rank == 0 || tri_barrier(group, NULL) == TRI_EABORT); /* they stay until rank 0 is late */
    if (self->rank == 0) {
        SPAWN_CHECK(self, tri_group_limit(group, 0.05) == TRI_OK);
        SPAWN_CHECK(self, tri_probe_sender(group, &from) == TRI_ETIMEOUT);
        SPAWN_CHECK(self, strstr(tri_last_error(), "probe: rank 0 waited") != NULL);
    }
    tri_comm_leave(comm);
}

static void a_probe_names_the_rank_whose_message_waits(void **state)
{
    (void)state;
    const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_UCX, SPAWN_SIM};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        spawn_config config = {.kind = kinds[k], .world = 3, .timeout_s = 10};
        assert_true(spawn_ranks(&config, sends_or_probes, NULL));
    }
}

/* All messages are there when rank 0 asks: a barrier in shared memory came after them. */
static void receives_in_turns(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    int value = self->rank, from = -1;
    for (int i = 0; i < 3; i++)
        SPAWN_CHECK(self, self->rank == 0 || tri_send(group, &value, 1, TRI_I32, 0, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    for (int i = 0; self->rank == 0 && i < 3 * (self->world - 1); i++) {
        SPAWN_CHECK(self, tri_probe_sender(group, &from) == TRI_OK && from == 1 + i % (self->world - 1));
        SPAWN_CHECK(self, tri_receive(group, &value, 1, TRI_I32, from, NULL) == TRI_OK && value == from);
    }
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    tri_comm_leave(comm);
}

static void a_probe_gives_each_sender_its_turn(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_SHM, .world = 4, .timeout_s = 10};
    assert_true(spawn_ranks(&config, receives_in_turns, NULL));
}

/* More than any link holds: each rank's send waits for a receive that its own queue holds back. */
static void sends_in_a_ring(spawn_rank *self, void *arg)
{
    (void)arg;
    enum { RING = 1 << 24 };
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    char *data = calloc(2, RING);
    if (!comm || !data)
        return;
    tri_group *group = tri_comm_world(comm);
    int right = (self->rank + 1) % self->world, left = (self->rank + self->world - 1) % self->world;
    tri_work *work = NULL;
    SPAWN_CHECK(self, tri_group_limit(group, 0.3) == TRI_OK);
    SPAWN_CHECK(self, tri_send(group, data, RING, TRI_U8, right, &work) == TRI_OK);
    tri_status status = tri_receive(group, data + RING, RING, TRI_U8, left, NULL);
    SPAWN_CHECK(self, status != TRI_OK && tri_work_wait(work) != TRI_OK);
    SPAWN_CHECK(self, strstr(tri_last_error(), "need a batch") != NULL);
    tri_comm_leave(comm);
    free(data);
}

static void a_ring_of_sends_is_told_to_use_a_batch(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_SIM, .world = 2, .seed = 1, .timeout_s = 10};
    assert_true(spawn_ranks(&config, sends_in_a_ring, NULL));
}

static void leaves_early(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    if (self->rank == 2) {
        tri_comm_leave(comm);
        return;
    }
    tri_status status = TRI_OK;
    for (int i = 0; i < 1000 && status == TRI_OK; i++)
        status = tri_all_reduce(tri_comm_world(comm), buffer[self->rank], buffer[self->rank], 100, TRI_F32,
                                TRI_REDUCE_SUM, NULL);
    SPAWN_CHECK(self, status == TRI_EPEER || status == TRI_EABORT);
    SPAWN_CHECK(self, strstr(tri_last_error(), "rank 2 is gone") != NULL);
    tri_comm_leave(comm);
}

static void a_rank_that_leaves_early_is_named_by_the_others(void **state)
{
    (void)state;
    const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_UCX, SPAWN_SIM};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        spawn_config config = {.kind = kinds[k], .world = 4, .seed = 3, .timeout_s = 10};
        assert_true(spawn_ranks(&config, leaves_early, NULL));
    }
}

static void is_late(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    if (self->rank == 1)
        tri_sleep_ns(3 * TRI_NS_PER_S);
    tri_group_name_next(tri_comm_world(comm), "the bucket");
    tri_status status = tri_all_reduce(tri_comm_world(comm), buffer[self->rank], buffer[self->rank], 100, TRI_F32,
                                       TRI_REDUCE_SUM, NULL);
    for (int i = 0; i < 1000 && status == TRI_OK; i++)
        status = tri_barrier(tri_comm_world(comm), NULL);
    SPAWN_CHECK(self, status == TRI_ETIMEOUT || status == TRI_EABORT || status == TRI_EPEER);
    SPAWN_CHECK(self, strstr(tri_last_error(), "all_reduce #2") != NULL || status == TRI_EPEER);
    SPAWN_CHECK(self, strstr(tri_last_error(), "'the bucket'") != NULL || status == TRI_EPEER);
    tri_comm_leave(comm);
}

static void a_limit_that_passes_names_the_call(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_SIM, .world = 3, .seed = 1, .timeout_s = 1};
    assert_true(spawn_ranks(&config, is_late, NULL));
}

static void gives_up(spawn_rank *self, void *arg)
{
    atomic_int *begun = arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_status status = TRI_OK;
    tri_work *work = NULL;
    if (self->rank == 1) {
        while (atomic_load(begun) < self->world - 1)
            tri_sleep_ns(TRI_NS_PER_MS);
        tri_comm_abort(comm, TRI_ENUMERIC, "the loss is not a number");
        SPAWN_CHECK(self, tri_barrier(tri_comm_world(comm), NULL) == TRI_ENUMERIC);
    } else {
        status = tri_all_reduce(tri_comm_world(comm), buffer[self->rank], buffer[self->rank], 100, TRI_F32,
                                TRI_REDUCE_SUM, &work);
        atomic_fetch_add(begun, 1);
        SPAWN_CHECK(self, status == TRI_OK && tri_work_wait(work) == TRI_EABORT);
    }
    int origin = -1;
    SPAWN_CHECK(self, strstr(tri_last_error(), "the loss is not a number") != NULL);
    SPAWN_CHECK(self, strcmp(tri_comm_cause(comm, &origin), tri_last_error()) == 0 && origin == 1);
    tri_comm_leave(comm);
}

static void an_abort_reaches_all_with_its_text(void **state)
{
    (void)state;
    const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_UCX, SPAWN_SIM};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        atomic_int begun = 0;
        spawn_config config = {.kind = kinds[k], .world = 3, .seed = 7, .timeout_s = 10};
        assert_true(spawn_ranks(&config, gives_up, &begun));
    }
}

/* While its own operation is under way. */
static void gives_up_busy(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *group = tri_comm_world(comm);
    tri_work *works[2] = {NULL, NULL};
    SPAWN_CHECK(self, tri_all_reduce(group, buffer[self->rank], buffer[self->rank], 100, TRI_F32, TRI_REDUCE_SUM,
                                     &works[0]) == TRI_OK);
    if (self->rank == 0) {
        /* Rank 1 comes later: this one's operation is waiting for it now. */
        tri_sleep_ns(5 * TRI_NS_PER_MS);
        tri_comm_abort(comm, TRI_ENUMERIC, "stop");
        (void)tri_work_wait(works[0]);
        SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_ENUMERIC);
    } else {
        (void)tri_work_wait(works[0]);
        tri_status status = TRI_OK;
        for (int i = 0; i < 1000 && status == TRI_OK; i++)
            status = tri_barrier(group, NULL);
        SPAWN_CHECK(self, status == TRI_EABORT && strstr(tri_last_error(), "stop") != NULL);
    }
    tri_comm_leave(comm);
}

static void an_abort_waits_for_the_operation_under_way(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        spawn_config config = {.kind = SPAWN_SIM, .world = 2, .seed = seed, .timeout_s = 5};
        assert_true(spawn_ranks(&config, gives_up_busy, NULL));
    }
}

static void over_a_bad_link(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = NULL;
    /* Over the links, wherever memory is shared. */
    tri_status status = comm_spawn_try(self, NULL, "all_reduce:0-=direct", &comm);
    enum { COUNT = 20000 };
    float *data = tri_alloc_zero(COUNT, sizeof(float));
    for (int i = 0; i < 50 && status == TRI_OK; i++)
        status = tri_all_reduce(tri_comm_world(comm), data, data, COUNT, TRI_F32, TRI_REDUCE_SUM, NULL);
    SPAWN_CHECK(self, status != TRI_OK && tri_last_error()[0] != 0);
    tri_free(data);
    tri_comm_leave(comm);
}

static void a_link_that_breaks_or_stalls_ends_all_ranks(void **state)
{
    (void)state;
    static const char *const faults[] = {"1:100000:cut", "1:100000:stall", "1:100064:cut", "1:3:cut"};
    const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_TCP, SPAWN_UCX};
    for (size_t f = 0; f < TRI_COUNT_OF(faults); f++) {
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
            spawn_config config = {.kind = kinds[k], .world = 3, .timeout_s = 0.7, .faults = {faults[f]}};
            assert_true(spawn_ranks(&config, over_a_bad_link, NULL));
        }
    }
}

static void opens_unlike(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = NULL;
    tri_status status = comm_spawn_try(self, self->rank == 2 ? "any" : "canonical", NULL, &comm);
    SPAWN_CHECK(self, status == TRI_ECONFIG && comm == NULL);
    SPAWN_CHECK(self,
                strstr(tri_last_error(), "rank 2 has") != NULL && strstr(tri_last_error(), "comm.order = any") != NULL);
}

static void ranks_with_other_options_do_not_start(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 3};
    assert_true(spawn_ranks(&config, opens_unlike, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatches_are_errors_on_all_ranks_with_both_calls),
        cmocka_unit_test(another_root_is_an_error_of_the_call_itself),
        cmocka_unit_test(another_root_is_an_error_of_the_next_call_at_the_latest),
        cmocka_unit_test(a_probe_names_the_rank_whose_message_waits),
        cmocka_unit_test(a_probe_gives_each_sender_its_turn),
        cmocka_unit_test(a_ring_of_sends_is_told_to_use_a_batch),
        cmocka_unit_test(a_rank_that_leaves_early_is_named_by_the_others),
        cmocka_unit_test(a_limit_that_passes_names_the_call),
        cmocka_unit_test(an_abort_reaches_all_with_its_text),
        cmocka_unit_test(an_abort_waits_for_the_operation_under_way),
        cmocka_unit_test(a_link_that_breaks_or_stalls_ends_all_ranks),
        cmocka_unit_test(ranks_with_other_options_do_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
