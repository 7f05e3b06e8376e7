/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bits.c: *the* test of the system: the weights after training have the same hash in every layout.
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

#define RUN_FOLDER "trireme-test-bits-run"

/* Batch norm, dropout, momentum, clipping, and batches that do not come out even: everything that could depend on a
 * layout. */
static const char config[] = "model:\n"
                             "  layers:\n"
                             "    - reshape: [4, 4, 2]\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - flatten\n"
                             "    - dropout: 0.25\n"
                             "    - linear: {out: 24, relu: true}\n"
                             "    - linear: classes\n"
                             "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                             "train: {batch: 50, shards: 8, epochs: 3, seed: 7, threads: 1}\n"
                             "optim: {lr: 0.05, momentum: 0.9, weight_decay: 1e-4, clip_norm: 1, schedule: cosine}\n"
                             "parallel: {bucket_kib: 1}\n";

static uint64_t one_rank(void)
{
    static uint64_t hash;
    if (hash == 0)
        hash = expect_run(&(train_case){.config = config, .world = 1});
    return hash;
}

static void every_number_of_ranks_gives_the_same_weights(void **state)
{
    (void)state;
    for (int world = 2; world <= 8; world++)
        assert_int_equal(expect_run(&(train_case){.config = config, .world = world}), one_rank());
}

static void threads_waves_buckets_and_overlap_change_nothing(void **state)
{
    (void)state;
    const char *const cases[][4] = {
        {"train.threads=2", NULL},
        {"train.threads=3", "train.shards_at_once=2", NULL},
        {"train.shards_at_once=1", NULL},
        {"parallel.overlap=false", NULL},
        {"parallel.bucket_kib=100000", NULL},
        {"data.prefetch=1", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int world = 1; world <= 3; world += 2)
            assert_int_equal(expect_run(&(train_case){.config = config, .overrides = cases[i], .world = world}),
                             one_rank());
}

/* Weights that move in the forward pass of the next step are the same weights, saved in between or not. */
static void the_next_step_may_begin_before_all_sums_are_there(void **state)
{
    (void)state;
    const char *const plain[] = {"optim.clip_norm=0", "parallel.ahead=off", NULL};
    const char *const cases[][5] = {{"optim.clip_norm=0", "parallel.ahead=on", NULL},
                                    {"optim.clip_norm=0", "parallel.ahead=on", "train.threads=2", NULL},
                                    {"optim.clip_norm=0", "parallel.ahead=on", "train.eval_every=1", NULL},
                                    {"optim.clip_norm=0", "parallel.ahead=on", "checkpoint.every_steps=1", NULL}};
    uint64_t alone = expect_run(&(train_case){.config = config, .overrides = plain, .world = 1});
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int world = 1; world <= 5; world++) {
            assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
            assert_int_equal(
                expect_run(&(train_case){
                    .config = config, .overrides = cases[i], .run_folder = i == 3 ? RUN_FOLDER : NULL, .world = world}),
                alone);
        }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void what_decides_the_bits_changes_them(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"train.seed=8", NULL}, {"train.shards=4", NULL}, {"optim.lr=0.051", NULL}, {"data.shuffle=false", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_not_equal(expect_run(&(train_case){.config = config, .overrides = cases[i], .world = 2}),
                             one_rank());
}

static void a_run_stopped_in_mid_epoch_and_resumed_elsewhere_ends_the_same(void **state)
{
    (void)state;
    const int worlds[][2] = {{1, 1}, {2, 2}, {2, 3}, {5, 1}};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        const char *const stop[] = {"train.steps=7", NULL};
        train_case first = {.config = config, .overrides = stop, .run_folder = RUN_FOLDER, .world = worlds[i][0]};
        train_case second = {.config = config, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = worlds[i][1]};
        assert_int_not_equal(expect_run(&first), one_rank());
        assert_int_equal(expect_run(&second), one_rank());
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void every_optimizer_is_the_same_everywhere_too(void **state)
{
    (void)state;
    const char *const cases[][4] = {
        {"optim.name=adam", "optim.lr=0.01", NULL},
        {"optim.name=adamw", "optim.lr=0.01", NULL},
        {"optim.name=adagrad", "optim.lr=0.01", "optim.initial_accumulator=0.1", NULL},
        {"optim.name=ftrl", "optim.l1=0.001", NULL},
        {"optim.nesterov=true", "optim.warmup_steps=3", NULL},
        {"optim.groups=[{match: '*.bias', lr_scale: 0.5, weight_decay: 0}]", "optim.schedule=wsd", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t alone = expect_run(&(train_case){.config = config, .overrides = cases[i], .world = 1});
        assert_int_equal(expect_run(&(train_case){.config = config, .overrides = cases[i], .world = 3}), alone);
        assert_int_equal(expect_run(&(train_case){.config = config, .overrides = cases[i], .world = 4}), alone);
    }
}

/* State that does not begin at 0, and state that weights are made of. */
static void sums_of_squares_are_resumed(void **state)
{
    (void)state;
    const char *const cases[][4] = {
        {"optim.name=adagrad", "optim.initial_accumulator=0.5", NULL, NULL},
        {"optim.name=ftrl", "optim.initial_accumulator=0.5", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const stop[] = {cases[i][0], cases[i][1], "train.steps=7", NULL};
        uint64_t alone = expect_run(&(train_case){.config = config, .overrides = cases[i], .world = 1});
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_case first = {.config = config, .overrides = stop, .run_folder = RUN_FOLDER, .world = 2};
        train_case second = {
            .config = config, .overrides = cases[i], .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = 3};
        assert_int_not_equal(expect_run(&first), alone);
        assert_int_equal(expect_run(&second), alone);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* Ranks, threads, waves, and a stop in mid epoch: all of it once more with values in bf16. */
static void bf16_is_the_same_everywhere_too(void **state)
{
    (void)state;
    const char *const plain[] = {"train.precision=bf16", NULL};
    const char *const waves[] = {"train.precision=bf16", "train.threads=2", "train.shards_at_once=2", NULL};
    const char *const stop[] = {"train.precision=bf16", "train.steps=7", NULL};
    const uint64_t alone = expect_run(&(train_case){.config = config, .overrides = plain, .world = 1});
    assert_int_not_equal(alone, one_rank());
    for (int world = 1; world <= 3; world++)
        assert_int_equal(expect_run(&(train_case){.config = config, .overrides = waves, .world = world}), alone);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    train_case first = {.config = config, .overrides = stop, .run_folder = RUN_FOLDER, .world = 2};
    train_case second = {
        .config = config, .overrides = plain, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = 3};
    assert_int_not_equal(expect_run(&first), alone);
    assert_int_equal(expect_run(&second), alone);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void sixty_four_simulated_ranks_under_twenty_seeds_give_the_same_weights(void **state)
{
    (void)state;
    const char *const wide[] = {"train.shards=64", "train.batch=128", "train.epochs=1", "data.synthetic_count=384",
                                NULL};
    train_case test = {.config = config, .overrides = wide, .world = 1};
    uint64_t alone = expect_run(&test);
    test.world = 64;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        train_outcome outcome = train_fibers(&test, seed);
        if (outcome.status != TRI_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, outcome.message);
        assert_true(outcome.all_equal);
        assert_int_equal(outcome.hash, alone);
    }
}

static const char gpt[] =
    "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1}\n"
    "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
    "synthetic_width: 20}\n"
    "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
    "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
    "parallel: {bucket_kib: 4}\n";
static const char llama[] = "model: {name: llama, num_hidden_layers: 2, hidden_size: 16, num_attention_heads: 4, "
                            "num_key_value_heads: 2, attention_dropout: 0.1, checkpoint: true}\n"
                            "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
                            "synthetic_width: 20}\n"
                            "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                            "optim: {lr: 0.1}\n";

/* Tied weights, dropout, norms, blocks formed again: layouts, threads and waves change nothing. */
static void transformers_are_the_same_everywhere(void **state)
{
    (void)state;
    static const char *const configs[] = {gpt, llama};
    static const char *const variants[][3] = {{NULL}, {"train.threads=2", NULL}, {"train.shards_at_once=1", NULL}};
    for (size_t c = 0; c < 2; c++) {
        uint64_t alone = expect_run(&(train_case){.config = configs[c], .world = 1});
        for (int world = 1; world <= 3; world++)
            for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++)
                assert_int_equal(
                    expect_run(&(train_case){.config = configs[c], .overrides = variants[v], .world = world}), alone);
        const char *const kept[] = {c == 0 ? "model.checkpoint=true" : "model.checkpoint=false", NULL};
        assert_int_equal(expect_run(&(train_case){.config = configs[c], .overrides = kept, .world = 2}), alone);
    }
}

static void transformers_in_bf16_are_the_same_everywhere(void **state)
{
    (void)state;
    static const char *const configs[] = {gpt, llama};
    const char *const plain[] = {"train.precision=bf16", NULL};
    const char *const cases[][4] = {{"train.precision=bf16", "train.threads=2", NULL},
                                    {"train.precision=bf16", "train.shards_at_once=1", "model.checkpoint=true", NULL},
                                    {"train.precision=bf16", "model.checkpoint=false", NULL}};
    for (size_t c = 0; c < 2; c++) {
        uint64_t alone = expect_run(&(train_case){.config = configs[c], .overrides = plain, .world = 1});
        assert_int_not_equal(alone, expect_run(&(train_case){.config = configs[c], .world = 1}));
        for (int world = 1; world <= 3; world++)
            for (size_t v = 0; v < sizeof(cases) / sizeof(cases[0]); v++)
                assert_int_equal(expect_run(&(train_case){.config = configs[c], .overrides = cases[v], .world = world}),
                                 alone);
    }
}

static void more_ranks_than_shards_is_one_clear_error(void **state)
{
    (void)state;
    train_outcome outcome = train_threads(&(train_case){.config = config, .world = 9});
    /* A rank that is still joining hears of it from another. */
    assert_true(outcome.status == TRI_ECONFIG || outcome.status == TRI_EABORT);
    if (!strstr(outcome.message, "9 workers but train.shards is 8"))
        fail_msg("%s", outcome.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_ranks_gives_the_same_weights),
        cmocka_unit_test(threads_waves_buckets_and_overlap_change_nothing),
        cmocka_unit_test(the_next_step_may_begin_before_all_sums_are_there),
        cmocka_unit_test(what_decides_the_bits_changes_them),
        cmocka_unit_test(a_run_stopped_in_mid_epoch_and_resumed_elsewhere_ends_the_same),
        cmocka_unit_test(every_optimizer_is_the_same_everywhere_too),
        cmocka_unit_test(sums_of_squares_are_resumed),
        cmocka_unit_test(bf16_is_the_same_everywhere_too),
        cmocka_unit_test(sixty_four_simulated_ranks_under_twenty_seeds_give_the_same_weights),
        cmocka_unit_test(transformers_are_the_same_everywhere),
        cmocka_unit_test(transformers_in_bf16_are_the_same_everywhere),
        cmocka_unit_test(more_ranks_than_shards_is_one_clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
