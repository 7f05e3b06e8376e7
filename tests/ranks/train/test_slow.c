/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slow.c: training over slow links: other weights than without, but the same in each run of a layout.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "ranks/train/train_expect.h"
#include "train/core/job.h"

#define RUN_FOLDER    "trireme-test-slow-run"
#define BETWEEN_RANKS "parallel.compress_between=ranks"

/* Running statistics, dropout, clipping, and batches that do not come out even. */
static const char conv[] = "model:\n"
                           "  layers:\n"
                           "    - reshape: [4, 4, 2]\n"
                           "    - conv2d: {out: 8, kernel: 3, pad: 1}\n"
                           "    - batch_norm\n"
                           "    - relu\n"
                           "    - flatten\n"
                           "    - dropout: 0.25\n"
                           "    - linear: {out: 24, relu: true}\n"
                           "    - linear: classes\n"
                           "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                           "train: {batch: 50, shards: 8, epochs: 3, seed: 7, threads: 1}\n"
                           "optim: {lr: 0.05, momentum: 0.9, weight_decay: 1e-4, clip_norm: 1, schedule: cosine}\n"
                           "parallel: {bucket_kib: 1, compress_block: 64, compress_fraction: 0.1, compress_rank: 2, "
                           "compress_residual: none}\n";

/* Tied weights. */
static const char gpt[] = "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
                          "synthetic_width: 20}\n"
                          "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
                          "parallel: {bucket_kib: 4, compress_block: 64, compress_fraction: 0.1, compress_rank: 2}\n";

static const char *const configs[] = {conv, gpt};
static const char *const compressions[] = {"parallel.compress=bf16", "parallel.compress=int8", "parallel.compress=topk",
                                           "parallel.compress=powersgd"};

/* --- compression --- */

static void compressed_gradients_give_the_same_weights_in_each_run_of_a_layout(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        uint64_t plain = expect_run(&(train_case){.config = configs[c], .world = 1});
        for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++)
            for (int world = 2; world <= 5; world++) {
                const char *const one[] = {compressions[k], BETWEEN_RANKS, NULL};
                const char *const more[] = {compressions[k],          BETWEEN_RANKS,          "train.threads=2",
                                            "train.shards_at_once=1", "parallel.overlap=off", NULL};
                uint64_t first = expect_run(&(train_case){.config = configs[c], .overrides = one, .world = world});
                assert_int_not_equal(first, plain);
                assert_int_equal(expect_run(&(train_case){.config = configs[c], .overrides = more, .world = world}),
                                 first);
            }
    }
}

/* On two ranks the exact sums are those of one; from then on they are not. */
static void the_first_steps_may_be_exact(void **state)
{
    (void)state;
    for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++) {
        const char *const all[] = {compressions[k], BETWEEN_RANKS, "parallel.compress_after=1000", NULL};
        const char *const some[] = {compressions[k], BETWEEN_RANKS, "parallel.compress_after=7", NULL};
        const char *const none[] = {compressions[k], BETWEEN_RANKS, NULL};
        const char *const hosts[] = {compressions[k], "parallel.compress_after=7", NULL};
        uint64_t plain = expect_run(&(train_case){.config = conv, .world = 1});
        uint64_t later = expect_run(&(train_case){.config = conv, .overrides = some, .world = 2});
        assert_int_equal(expect_run(&(train_case){.config = conv, .overrides = all, .world = 2}), plain);
        assert_int_not_equal(later, plain);
        assert_int_not_equal(later, expect_run(&(train_case){.config = conv, .overrides = none, .world = 2}));
        train_case four = {.config = conv, .overrides = hosts, .world = 4, .ranks_per_host = 2};
        assert_int_equal(train_fibers(&four, 1).hash, later);
    }
}

static void simulated_schedules_change_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++) {
        const char *const overrides[] = {compressions[k], BETWEEN_RANKS, NULL};
        train_case test = {.config = conv, .overrides = overrides, .world = 3};
        uint64_t threads = expect_run(&test);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            train_outcome outcome = train_fibers(&test, seed);
            if (outcome.status != TRI_OK)
                fail_msg("seed %llu: %s", (unsigned long long)seed, outcome.message);
            assert_true(outcome.all_equal);
            assert_int_equal(outcome.hash, threads);
        }
    }
}

static uint64_t expect_fibers(const train_case *test)
{
    train_outcome outcome = train_fibers(test, 1);
    if (outcome.status != TRI_OK)
        fail_msg("%d fibers: %s", test->world, outcome.message);
    assert_true(outcome.all_equal);
    return outcome.hash;
}

/* On one host nothing is rounded; on several what a host's ranks give each other is not. */
static void ranks_of_a_host_add_up_exactly(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++)
        for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++) {
            const char *const hosts[] = {compressions[k], NULL}, *const ranks[] = {compressions[k], BETWEEN_RANKS,
                                                                                   NULL};
            train_case test = {.config = configs[c], .overrides = hosts, .world = 4};
            uint64_t plain = expect_run(&(train_case){.config = configs[c], .world = 1});
            uint64_t of_two = expect_run(&(train_case){.config = configs[c], .overrides = ranks, .world = 2});
            assert_int_not_equal(of_two, plain);
            assert_int_equal(expect_run(&test), plain);
            test.ranks_per_host = 4;
            assert_int_equal(expect_fibers(&test), plain);
            /* The two ranks of a host hold a whole subtree, so its leader has what one of two ranks would have. */
            test.ranks_per_host = 2;
            assert_int_equal(expect_fibers(&test), of_two);
            test.ranks_per_host = 1;
            test.world = 2;
            assert_int_equal(expect_fibers(&test), of_two);
            test.ranks_per_host = 2; /* the third host has one */
            test.world = 5;
            uint64_t uneven = expect_fibers(&test);
            assert_int_not_equal(uneven, plain);
            test.overrides = (const char *const[]){compressions[k], "parallel.overlap=off", "train.threads=2", NULL};
            assert_int_equal(expect_fibers(&test), uneven);
        }
}

static void expect_refused(const char *const *overrides, const char *text)
{
    train_outcome outcome = train_threads(&(train_case){.config = conv, .overrides = overrides, .world = 2});
    assert_int_equal(outcome.status, TRI_ECONFIG);
    if (!strstr(outcome.message, text))
        fail_msg("%s", outcome.message);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    const char *const zero[] = {"parallel.sync=zero1", "parallel.compress=int8", NULL};
    expect_refused(zero, "parallel.compress int8 requires parallel.sync allreduce or diloco, got zero1");
}

static void the_manifest_says_that_bits_are_not_reproducible(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        const char *const overrides[] = {"parallel.compress=powersgd", "train.steps=3", apart ? BETWEEN_RANKS : NULL,
                                         NULL};
        char *text;
        size_t nbytes;
        train_case test = {.config = conv, .overrides = overrides, .run_folder = RUN_FOLDER, .world = 2};
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        expect_run(&test);
        assert_int_equal(tri_fs_read(RUN_FOLDER "/checkpoints/step-00000003/manifest.json", 1 << 20, &text, &nbytes),
                         TRI_OK);
        const char *wanted =
            apart ? "\"not reproducible (parallel.compress powersgd on 2 ranks: other layouts give other bits)\""
                  : "\"reproducible\"";
        if (!strstr(text, wanted))
            fail_msg("%s", text);
        tri_free(text);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_gradients_give_the_same_weights_in_each_run_of_a_layout),
        cmocka_unit_test(the_first_steps_may_be_exact),
        cmocka_unit_test(simulated_schedules_change_nothing),
        cmocka_unit_test(ranks_of_a_host_add_up_exactly),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(the_manifest_says_that_bits_are_not_reproducible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
