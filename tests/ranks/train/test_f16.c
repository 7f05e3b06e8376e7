/* SPDX-License-Identifier: Apache-2.0
 *
 * test_f16.c: values in f16 with a loss scale: the same weights in every layout, steps that overflow skipped by all
 * alike, the scale in checkpoints, and what cannot be refused in one line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "ranks/train/train_expect.h"
#include "tier.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-f16-run"

/* The scale begins far too high and grows again soon, so that steps are skipped at the start and now and then. */
static const char gpt[] =
    "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1}\n"
    "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
    "synthetic_width: 20}\n"
    "train: {batch: 20, shards: 8, epochs: 6, seed: 7, threads: 1, precision: f16, "
    "loss_scale_init: 1048576, loss_scale_window: 3}\n"
    "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
    "parallel: {bucket_kib: 4, tensor_parts: 2}\n";
static const char cnn[] = "model:\n"
                          "  layers:\n"
                          "    - reshape: [4, 4, 2]\n"
                          "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                          "    - batch_norm\n"
                          "    - relu\n"
                          "    - flatten\n"
                          "    - dropout: 0.25\n"
                          "    - linear: {out: 24, relu: true}\n"
                          "    - batch_norm\n"
                          "    - linear: classes\n"
                          "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                          "train: {batch: 50, shards: 8, epochs: 5, seed: 7, threads: 1, precision: f16, "
                          "loss_scale_init: 1048576, loss_scale_window: 3}\n"
                          "optim: {lr: 0.05, momentum: 0.9}\n";

static void every_layout_gives_the_same_weights(void **state)
{
    (void)state;
    static const char *const configs[] = {gpt, cnn};
    static const char *const variants[][4] = {{NULL},
                                              {"train.threads=2", "train.shards_at_once=1", NULL},
                                              {"parallel.sync=zero2", NULL},
                                              {"parallel.sync=zero3", "parallel.overlap=false", NULL}};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        const uint64_t alone = expect_run(&(train_case){.config = configs[c], .world = 1});
        for (int world = 1; world <= 4; world++)
            for (size_t v = 0; v < (world == 3 ? TRI_COUNT_OF(variants) : tests_count(TRI_COUNT_OF(variants), 1)); v++)
                assert_int_equal(
                    expect_run(&(train_case){.config = configs[c], .overrides = variants[v], .world = world}), alone);
        const char *const wide[] = {"train.precision=f32", NULL}, *const half[] = {"train.precision=bf16", NULL};
        assert_int_not_equal(expect_run(&(train_case){.config = configs[c], .overrides = wide, .world = 1}), alone);
        assert_int_not_equal(expect_run(&(train_case){.config = configs[c], .overrides = half, .world = 1}), alone);
    }
}

static void meshes_give_the_same_weights(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[4];
        int world;
    } cases[] = {
        {{"parallel.tensor=2", NULL}, 2},
        {{"parallel.pipeline=2", NULL}, 2},
        {{"parallel.tensor=2", "parallel.sync=zero1", NULL}, 4},
        {{"parallel.pipeline=2", "parallel.schedule=gpipe", "parallel.tensor=2", NULL}, 4},
        {{"model.checkpoint=true", NULL}, 3},
    };
    const uint64_t alone = expect_run(&(train_case){.config = gpt, .world = 1});
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        assert_int_equal(
            expect_run(&(train_case){.config = gpt, .overrides = cases[i].overrides, .world = cases[i].world}), alone);
    const char *const one[] = {"parallel.sequence=true", NULL};
    const char *const two[] = {"parallel.sequence=true", "parallel.tensor=2", NULL};
    assert_int_equal(expect_run(&(train_case){.config = gpt, .overrides = two, .world = 4}),
                     expect_run(&(train_case){.config = gpt, .overrides = one, .world = 1}));
}

/* The scale goes on where it was: with that of the start, the first steps would be skipped again. */
static void a_resumed_run_goes_on_with_the_scale(void **state)
{
    (void)state;
    const int worlds[][2] = {{1, 1}, {2, 3}, {4, 1}};
    const char *const stop[] = {"train.steps=9", NULL};
    const uint64_t alone = expect_run(&(train_case){.config = gpt, .world = 1});
    for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_case first = {.config = gpt, .overrides = stop, .run_folder = RUN_FOLDER, .world = worlds[i][0]};
        train_case second = {.config = gpt, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = worlds[i][1]};
        assert_int_not_equal(expect_run(&first), alone);
        assert_true(lines_with(RUN_FOLDER, "\"skipped\":true") >= 3);
        assert_true(lines_with(RUN_FOLDER, "\"skipped\":false") >= 1);
        assert_int_equal(expect_run(&second), alone);
        assert_int_equal(lines_with(RUN_FOLDER, "\"loss_scale\":1048576,"), 1); /* the first step's */
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void a_fixed_scale_stays(void **state)
{
    (void)state;
    const char *const fixed[] = {"train.loss_scale=256", NULL};
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    const uint64_t alone =
        expect_run(&(train_case){.config = gpt, .overrides = fixed, .run_folder = RUN_FOLDER, .world = 1});
    assert_int_equal(lines_with(RUN_FOLDER, "\"loss_scale\":256,"), 24);
    assert_int_equal(lines_with(RUN_FOLDER, "\"skipped\":true"), 0);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    assert_int_equal(expect_run(&(train_case){.config = gpt, .overrides = fixed, .world = 3}), alone);
}

static void steps_that_overflow_move_nothing(void **state)
{
    (void)state;
    const char *const few[] = {"train.steps=1", NULL}, *const more[] = {"train.steps=2", NULL};
    assert_int_equal(expect_run(&(train_case){.config = gpt, .overrides = few, .world = 1}),
                     expect_run(&(train_case){.config = gpt, .overrides = more, .world = 2}));
    const char *const learns[] = {"train.steps=12", NULL};
    assert_int_not_equal(expect_run(&(train_case){.config = gpt, .overrides = learns, .world = 1}),
                         expect_run(&(train_case){.config = gpt, .overrides = few, .world = 1}));
}

static void what_cannot_be_is_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[4];
        tri_status status;
        const char *words;
    } cases[] = {
        {{"parallel.sync=local", NULL}, TRI_ECONFIG, "needs all workers to skip the same steps: parallel.sync local"},
        {{"parallel.sync=ps", NULL}, TRI_ECONFIG, "needs all workers to skip the same steps: parallel.sync ps"},
        {{"parallel.compress=int8", NULL}, TRI_ECONFIG, "of which parallel.compress int8 would keep back some"},
        {{"train.loss_scale=1000", NULL}, TRI_ECONFIG, "train.loss_scale: want a power of two or 0, got 1000"},
        {{"train.loss_scale_init=3", NULL}, TRI_ECONFIG, "train.loss_scale_init: want a power of two, got 3"},
        {{"train.loss_scale=549755813888", "train.epochs=20", NULL},
         TRI_ENUMERIC,
         "the gradients of 40 steps in a row overflow f16, in the end with a loss scale of 5.49756e+11: want a "
         "smaller train.loss_scale"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        train_outcome outcome =
            train_threads(&(train_case){.config = cnn, .overrides = cases[i].overrides, .world = 1});
        if (outcome.status != cases[i].status || !strstr(outcome.message, cases[i].words))
            fail_msg("want '%s', got '%s'", cases[i].words, outcome.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_gives_the_same_weights),  cmocka_unit_test(meshes_give_the_same_weights),
        cmocka_unit_test(a_resumed_run_goes_on_with_the_scale), cmocka_unit_test(a_fixed_scale_stays),
        cmocka_unit_test(steps_that_overflow_move_nothing),     cmocka_unit_test(what_cannot_be_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
