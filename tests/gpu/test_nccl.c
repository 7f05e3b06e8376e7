/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl.c: sums between cards by the fake NCCL: the canonical order has the bits of the host's sum, any order is
 * exact where every order is, and each way to fail is one sentence.
 *
 * test_nccl absent: without a library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "device/cuda/nccl.h"
#include "parallel/nccl_sums.h"
#include "ranks/comm_spawn.h"

enum { LEAVES = 8, COUNT = 1003, MOST_PARTS = 8, LIMIT_MS = 60000, SHORT_MS = 150 };
enum { STAGING_NBYTES = 4096 }; /* several rounds */

static const tri_nccl_limits patient = {.join_ms = LIMIT_MS, .exchange_ms = LIMIT_MS, .leave_ms = LIMIT_MS};

/* A rank with its card. */
typedef struct party {
    spawn_rank *self;
    tri_comm *comm;
    tri_group *world;
    tri_device card;
    tri_tree_part leaves[TRI_TREE_MAX_PARTS];
    int part_count;
    float *host[MOST_PARTS], *there[MOST_PARTS]; /* parts */
} party;

static bool card_open(party *p, spawn_rank *self, int index)
{
    *p = (party){.self = self, .card = {.ops = &tri_device_cuda, .index = index}};
    const bool good = tri_device_cuda.open(&p->card) == TRI_OK;
    SPAWN_CHECK(self, good);
    p->comm = good ? comm_spawn_open(self, NULL, NULL) : NULL;
    p->world = p->comm ? tri_comm_world(p->comm) : NULL;
    return p->comm;
}

static void card_close(party *p)
{
    for (int i = 0; i < MOST_PARTS; i++) {
        tri_free(p->host[i]);
        tri_device_free(&p->card, p->there[i]);
    }
    tri_device_cuda.close(&p->card);
    tri_comm_leave(p->comm);
}

/* Sums of the leaves of each part; whole: of numbers that every order of additions adds exactly. */
static void parts_fill(party *p, bool whole)
{
    const int64_t first = tri_tree_first(LEAVES, p->self->rank, p->self->world);
    p->part_count = tri_tree_parts(LEAVES, first, tri_tree_count(LEAVES, p->self->rank, p->self->world), p->leaves);
    for (int i = 0; i < p->part_count; i++) {
        if (!p->host[i]) {
            p->host[i] = tri_alloc(COUNT * sizeof(float));
            p->there[i] = tri_device_alloc(&p->card, COUNT * sizeof(float));
        }
        comm_spawn_tree(p->host[i], p->leaves[i].first, p->leaves[i].count, COUNT);
        for (int64_t k = 0; k < COUNT && whole; k++)
            p->host[i][k] = (float)((p->leaves[i].first + 1) * k);
        tri_device_from_host(&p->card, p->there[i], p->host[i], COUNT * sizeof(float));
    }
}

static tri_nccl_sums *sums_open(const party *p, bool any_order)
{
    tri_nccl_sums *sums = NULL;
    const tri_nccl_setup setup = {.group = p->world,
                                  .device = &p->card,
                                  .any_order = any_order,
                                  .limits = patient,
                                  .staging_nbytes = STAGING_NBYTES};
    const tri_status status = tri_nccl_sums_open(&setup, &sums);
    if (status != TRI_OK)
        fprintf(stderr, "%s\n", tri_last_error());
    SPAWN_CHECK(p->self, status == TRI_OK);
    return sums;
}

static bool is_same(const party *p, const float *there, const float *wanted, int64_t count)
{
    float got[COUNT];
    tri_device_to_host(&p->card, got, there, (size_t)count * sizeof(float));
    return memcmp(got, wanted, (size_t)count * sizeof(float)) == 0;
}

static void canonical(spawn_rank *self, void *arg)
{
    party p;
    float wanted[COUNT], block[COUNT];
    (void)arg;
    if (!card_open(&p, self, self->rank))
        return;
    parts_fill(&p, false);
    comm_spawn_tree(wanted, 0, LEAVES, COUNT);
    SPAWN_CHECK(self, tri_all_reduce_tree(p.world, LEAVES, p.host, p.part_count, COUNT, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(p.host[0], wanted, sizeof(wanted)) == 0);
    tri_nccl_sums *sums = sums_open(&p, false);
    if (sums) {
        SPAWN_CHECK(self, strcmp(tri_nccl_sums_name(sums), "NCCL 2.28.9") == 0);
        SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count, COUNT) == TRI_OK);
        SPAWN_CHECK(self, tri_nccl_sums_wait(sums, NULL) == TRI_OK);
        SPAWN_CHECK(self, is_same(&p, p.there[0], wanted, COUNT));
        parts_fill(&p, false); /* fewer elements than ranks */
        SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count, 2) == TRI_OK);
        SPAWN_CHECK(self, is_same(&p, p.there[0], wanted, 2));

        /* zero1: blocks of different lengths, one of them empty, with gaps */
        int64_t counts[8], firsts[8];
        for (int r = 0; r < self->world; r++) {
            counts[r] = r == 1 ? 0 : 100 + 7 * r;
            firsts[r] = 200 * r;
        }
        const tri_blocks blocks = {counts, firsts};
        float *const own = p.there[0] + firsts[self->rank];
        parts_fill(&p, false);
        SPAWN_CHECK(self, tri_nccl_sums_reduce_scatter(sums, LEAVES, p.there, p.part_count, &blocks, own) == TRI_OK);
        SPAWN_CHECK(self, is_same(&p, own, wanted + firsts[self->rank], counts[self->rank]));
        SPAWN_CHECK(self, tri_nccl_sums_all_gather(sums, p.there[0], &blocks) == TRI_OK);
        for (int r = 0; r < self->world; r++) {
            tri_device_to_host(&p.card, block, p.there[0] + firsts[r], (size_t)counts[r] * sizeof(float));
            SPAWN_CHECK(self, memcmp(block, wanted + firsts[r], (size_t)counts[r] * sizeof(float)) == 0);
        }
        SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, 12, p.there, p.part_count, COUNT) == TRI_EINVAL);
        SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count + 1, COUNT) == TRI_EINVAL);
        SPAWN_CHECK(self, tri_nccl_sums_close(sums) == TRI_OK);
    }
    card_close(&p);
}

static void any(spawn_rank *self, void *arg)
{
    party p;
    float wanted[COUNT];
    (void)arg;
    if (!card_open(&p, self, self->rank))
        return;
    parts_fill(&p, true);
    SPAWN_CHECK(self, tri_all_reduce_tree(p.world, LEAVES, p.host, p.part_count, COUNT, NULL) == TRI_OK);
    memcpy(wanted, p.host[0], sizeof(wanted));
    tri_nccl_sums *sums = sums_open(&p, true);
    if (sums) {
        SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count, COUNT) == TRI_OK);
        SPAWN_CHECK(self, tri_nccl_sums_wait(sums, NULL) == TRI_OK);
        SPAWN_CHECK(self, is_same(&p, p.there[0], wanted, COUNT));
        SPAWN_CHECK(self, tri_nccl_sums_close(sums) == TRI_OK);
    }
    card_close(&p);
}

static const int worlds[] = {1, 2, 3, 5};

static void fake_set(const char *words)
{
    setenv("FAKE_NCCL", words, 1);
}

static void the_canonical_order_has_the_bits_of_the_host(void **state)
{
    (void)state;
    fake_set("");
    for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
        const spawn_config config = {.kind = SPAWN_INPROC, .world = worlds[i]};
        assert_true(spawn_ranks(&config, canonical, NULL));
    }
}

static void any_order_adds_all(void **state)
{
    (void)state;
    fake_set("");
    for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
        const spawn_config config = {.kind = SPAWN_INPROC, .world = worlds[i]};
        assert_true(spawn_ranks(&config, any, NULL));
    }
}

/* --- failures --- */

typedef struct failure {
    const char *words;
    bool one_card;
    tri_status status;
    const char *sentence; /* NULL: they meet, and it is the exchange that fails */
    const char *exchange;
    bool hangs; /* and so the card is not closed */
    bool sees;  /* rank 0 does not have to wait */
} failure;

static void said(const party *p, tri_status status, tri_status wanted, const char *sentence)
{
    const bool same = status == wanted && strcmp(tri_last_error(), sentence) == 0;
    if (!same)
        fprintf(stderr, "rank %d: want %d \"%s\"\n        got %d \"%s\"\n", p->self->rank, (int)wanted, sentence,
                (int)status, tri_last_error());
    SPAWN_CHECK(p->self, same);
}

static void fails(spawn_rank *self, void *arg)
{
    party p;
    tri_nccl_sums *sums = NULL;
    const failure *f = arg;
    if (!card_open(&p, self, f->one_card ? 0 : self->rank))
        return;
    const bool leaves = !strstr(f->words, "abort_hangs"), exchanges = f->exchange, waits = !f->sees || self->rank != 0;
    const tri_nccl_setup setup = {.group = p.world,
                                  .device = &p.card,
                                  .staging_nbytes = STAGING_NBYTES,
                                  .limits = {.join_ms = exchanges ? LIMIT_MS : SHORT_MS,
                                             .exchange_ms = waits ? SHORT_MS : LIMIT_MS,
                                             .leave_ms = leaves ? LIMIT_MS : SHORT_MS}};
    const tri_status status = tri_nccl_sums_open(&setup, &sums);
    if (f->sentence) {
        said(&p, status, f->status, f->sentence);
        SPAWN_CHECK(self, !sums == !f->hangs);
        SPAWN_CHECK(self, tri_nccl_sums_close(sums) == (f->hangs ? TRI_ETIMEOUT : TRI_OK));
    } else if (status != TRI_OK) {
        said(&p, status, TRI_OK, "");
    } else {
        parts_fill(&p, true);
        tri_status ended = tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count, COUNT);
        if (ended == TRI_OK)
            ended = tri_nccl_sums_wait(sums, NULL);
        if (self->rank == 0)
            said(&p, ended, f->status, f->exchange);
        if (self->rank == 0) {
            SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count, COUNT) == TRI_EIO);
            SPAWN_CHECK(self, strcmp(tri_last_error(), "NCCL 2.28.9: it was aborted after an earlier failure") == 0);
        }
        SPAWN_CHECK(self, tri_nccl_sums_close(sums) == (f->hangs ? TRI_ETIMEOUT : TRI_OK));
    }
    if (f->hangs)
        tri_comm_leave(p.comm);
    else
        card_close(&p);
}

#define WAITED "rank 0 has waited 0.1 s for the others of 2 ranks"
#define HANGS  "NCCL 2.28.9: its abort has not ended within 0.1 s: end this process"

static const failure failures[] = {
    {.words = "old1",
     .status = TRI_ECONFIG,
     .sentence = "want the same version of NCCL on all ranks: rank 0 has NCCL 2.28.9, rank 1 has NCCL 2.27.3"},
    {.words = "no_version1",
     .status = TRI_EUNSUPPORTED,
     .sentence = "rank 1: NCCL does not tell its version: unhandled system error"},
    {.words = "",
     .one_card = true,
     .status = TRI_ECONFIG,
     .sentence = "ranks 0 and 1 are both on the card at 0000:17:00.0 (cuda:0, cuda:0): NCCL needs one card for each "
                 "rank"},
    {.words = "absent1", .status = TRI_ETIMEOUT, .sentence = "rank 0: NCCL 2.28.9: init: " WAITED},
    {.words = "absent1,abort_hangs",
     .status = TRI_ETIMEOUT,
     .sentence = "rank 0: NCCL 2.28.9: init: " WAITED "; " HANGS,
     .hangs = true},
    {.words = "fails1", .status = TRI_EIO, .sentence = "rank 1: NCCL 2.28.9: init: unhandled system error"},
    {.words = "silent1", .status = TRI_ETIMEOUT, .exchange = "NCCL 2.28.9: exchange: " WAITED},
    {.words = "gone1",
     .status = TRI_EPEER,
     .exchange = "NCCL 2.28.9: exchange: remote process exited or there was a network error",
     .sees = true},
    {.words = "silent1,abort_hangs",
     .status = TRI_ETIMEOUT,
     .exchange = "NCCL 2.28.9: exchange: " WAITED "; " HANGS,
     .hangs = true},
};

static void each_failure_is_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(failures); i++) {
        failure f = failures[i];
        fake_set(f.words);
        if (!spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 2}, fails, &f))
            fail_msg("%s", f.words);
    }
}

static void without_a_library(void **state)
{
    failure f = {.words = "", .status = TRI_EUNSUPPORTED, .sentence = "rank 0: there is no NCCL (libnccl.so.2)"};
    (void)state;
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 2}, fails, &f));
}

/* As NCCL itself says it, where nobody has compared cards before. */
static void twice(spawn_rank *self, void *arg)
{
    party p;
    nccl_unique_id id;
    tri_nccl *nccl = NULL;
    (void)arg;
    if (!card_open(&p, self, 0))
        return;
    SPAWN_CHECK(self, self->rank != 0 || tri_nccl_unique_id(&p.card, &id) == TRI_OK);
    SPAWN_CHECK(self, tri_broadcast(p.world, &id, (int64_t)sizeof(id), TRI_U8, 0, NULL) == TRI_OK);
    const tri_status status = tri_nccl_open(&p.card, &id, self->rank, self->world, &patient, &nccl);
    SPAWN_CHECK(self, status == TRI_EIO && strstr(tri_last_error(), "NCCL 2.28.9: init: invalid usage: Duplicate GPU "
                                                                    "detected : rank "));
    card_close(&p);
}

static void the_library_refuses_two_ranks_on_one_card(void **state)
{
    (void)state;
    fake_set("");
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 2}, twice, NULL));
}

static void a_finalize_that_hangs_ends(spawn_rank *self, void *arg)
{
    party p;
    nccl_unique_id id;
    tri_nccl *nccl = NULL;
    (void)arg;
    if (!card_open(&p, self, 0))
        return;
    SPAWN_CHECK(self, tri_nccl_unique_id(&p.card, &id) == TRI_OK);
    SPAWN_CHECK(self,
                tri_nccl_open(&p.card, &id, 0, 1,
                              &(tri_nccl_limits){.join_ms = LIMIT_MS, .exchange_ms = LIMIT_MS, .leave_ms = SHORT_MS},
                              &nccl) == TRI_OK);
    if (nccl)
        said(&p, tri_nccl_close(nccl), TRI_ETIMEOUT, "NCCL 2.28.9: its finalize has not ended within 0.1 s");
    card_close(&p);
}

static void closing_has_a_limit(void **state)
{
    (void)state;
    fake_set("finalize_hangs");
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 1}, a_finalize_that_hangs_ends, NULL));
}

static atomic_int quiet, over; /* rank 1 does nothing between the two */

/* What is on the queue waits for a rank that sends nothing, until the abort. */
static void without_memory(spawn_rank *self, void *arg)
{
    party p;
    (void)arg;
    if (!card_open(&p, self, self->rank))
        return;
    parts_fill(&p, true);
    tri_nccl_sums *sums = sums_open(&p, true);
    if (sums)
        SPAWN_CHECK(self, tri_nccl_sums_all_reduce(sums, LEAVES, p.there, p.part_count, COUNT) == TRI_OK);
    if (self->rank == 1)
        atomic_store(&quiet, 1);
    while (!atomic_load(self->rank == 0 ? &quiet : &over))
        tri_yield();
    tri_memory_fail_at(self->rank == 0 ? 1 : 0);
    SPAWN_CHECK(self, !sums || tri_nccl_sums_abort(sums) == TRI_OK);
    tri_memory_fail_at(0);
    atomic_store(&over, 1);
    SPAWN_CHECK(self, !sums || tri_nccl_sums_wait(sums, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_nccl_sums_close(sums) == TRI_OK);
    card_close(&p);
}

static void an_abort_needs_no_memory(void **state)
{
    (void)state;
    fake_set("silent1");
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 2}, without_memory, NULL));
}

/* A communicator whose last group is still under way takes nothing; ours polls before. */
static void a_call_too_early_is_refused(void **state)
{
    tri_device card = {.ops = &tri_device_cuda};
    nccl_unique_id id;
    tri_nccl *nccl = NULL;
    nccl_result now = 0;
    (void)state;
    fake_set("");
    assert_int_equal(tri_device_cuda.open(&card), TRI_OK);
    float *x = tri_device_alloc(&card, 64);
    assert_int_equal(tri_nccl_unique_id(&card, &id), TRI_OK);
    assert_int_equal(tri_nccl_open(&card, &id, 0, 1, &patient, &nccl), TRI_OK);
    assert_int_equal(nccl->calls->all_reduce(x, x, 4, NCCL_F32, NCCL_SUM, nccl->comm, nccl->card.stream),
                     NCCL_IN_PROGRESS);
    assert_int_equal(nccl->calls->all_reduce(x, x, 4, NCCL_F32, NCCL_SUM, nccl->comm, nccl->card.stream),
                     NCCL_INVALID_ARGUMENT);
    do
        assert_int_equal(nccl->calls->comm_state(nccl->comm, &now), 0);
    while (now == NCCL_IN_PROGRESS);
    tri_nccl_begin(nccl, "try");
    tri_nccl_all_reduce(nccl, x, 4);
    assert_int_equal(tri_nccl_end(nccl), TRI_OK);
    tri_nccl_begin(nccl, "try");
    tri_nccl_send(nccl, x, 4, 1); /* there is no rank 1 */
    assert_int_equal(tri_nccl_end(nccl), TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "NCCL 2.28.9: send: invalid argument"));
    assert_int_equal(tri_nccl_close(nccl), TRI_OK);
    tri_device_free(&card, x);
    tri_device_cuda.close(&card);
}

static void of_another_device_there_is_no_card(void **state)
{
    nccl_unique_id id;
    (void)state;
    assert_int_equal(tri_nccl_unique_id(tri_device_host(), &id), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "NCCL needs an NVIDIA card: want train.device=cuda, got cpu");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_canonical_order_has_the_bits_of_the_host),
        cmocka_unit_test(any_order_adds_all),
        cmocka_unit_test(the_library_refuses_two_ranks_on_one_card),
        cmocka_unit_test(closing_has_a_limit),
        cmocka_unit_test(an_abort_needs_no_memory),
        cmocka_unit_test(a_call_too_early_is_refused),
        cmocka_unit_test(of_another_device_there_is_no_card),
        cmocka_unit_test(each_failure_is_one_sentence), /* the last: cards wait for ever after it */
    };
    const struct CMUnitTest absent[] = {cmocka_unit_test(without_a_library)};
    tri_cuda_image = NULL; /* the fake has its own */
    setenv("FAKE_CUDA_CARDS", "8", 1);
    if (argc > 1 && strcmp(argv[1], "absent") == 0)
        return cmocka_run_group_tests(absent, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
