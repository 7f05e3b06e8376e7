/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sync_norm.c: batch norm over the whole batch (model.sync_batch_norm): the same weights in every layout, other
 * ones than with statistics per shard, running statistics that evaluation uses, and layouts that are refused.
 */
#include <math.h>
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

#define RUN_FOLDER "trireme-test-sync-norm-run"

/* 210 samples in batches of 50 over 8 shards: shards of 6 and 7 samples, a last batch of 10. */
static const char config[] = "model:\n"
                             "  sync_batch_norm: true\n"
                             "  layers:\n"
                             "    - reshape: [4, 4, 2]\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - conv2d: {out: 20, kernel: 3, pad: 1}\n"
                             "    - batch_norm: {relu: true}\n"
                             "    - flatten\n"
                             "    - linear: classes\n"
                             "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                             "train: {batch: 50, shards: 8, epochs: 3, seed: 7, threads: 1}\n"
                             "optim: {lr: 0.05, momentum: 0.9, clip_norm: 1}\n"
                             "parallel: {bucket_kib: 1}\n";

static uint64_t alone(void)
{
    static uint64_t hash;
    if (hash == 0)
        hash = expect_outcome(&(train_case){.config = config, .world = 1}).hash;
    return hash;
}

static void every_number_of_ranks_gives_the_same_weights(void **state)
{
    (void)state;
    for (int world = 2; world <= 8; world++)
        assert_int_equal(expect_outcome(&(train_case){.config = config, .world = world}).hash, alone());
    const char *const apart[] = {"model.sync_batch_norm=false", NULL};
    assert_int_not_equal(expect_outcome(&(train_case){.config = config, .overrides = apart, .world = 1}).hash, alone());
}

static void strategies_threads_and_precision_change_nothing_between_layouts(void **state)
{
    (void)state;
    const char *const cases[][4] = {{"train.threads=2", NULL},
                                    {"parallel.sync=zero1", NULL},
                                    {"parallel.sync=zero2", "train.threads=2", NULL},
                                    {"parallel.sync=zero3", NULL},
                                    {"parallel.overlap=false", NULL}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        for (int world = 1; world <= 4; world++)
            assert_int_equal(
                expect_outcome(&(train_case){.config = config, .overrides = cases[i], .world = world}).hash, alone());
    const char *const ahead[] = {"optim.clip_norm=0", "parallel.ahead=on", NULL};
    const char *const half[] = {"train.precision=bf16", NULL};
    const uint64_t one = expect_outcome(&(train_case){.config = config, .overrides = ahead, .world = 1}).hash;
    const uint64_t short_one = expect_outcome(&(train_case){.config = config, .overrides = half, .world = 1}).hash;
    for (int world = 2; world <= 4; world++) {
        assert_int_equal(expect_outcome(&(train_case){.config = config, .overrides = ahead, .world = world}).hash, one);
        assert_int_equal(expect_outcome(&(train_case){.config = config, .overrides = half, .world = world}).hash,
                         short_one);
    }
}

static void simulated_ranks_give_the_same_weights(void **state)
{
    (void)state;
    const char *const few[] = {"train.epochs=1", NULL};
    const uint64_t one = expect_outcome(&(train_case){.config = config, .overrides = few, .world = 1}).hash;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        train_outcome outcome =
            train_fibers(&(train_case){.config = config, .overrides = few, .world = 2 + (int)seed}, seed);
        if (outcome.status != TRI_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, outcome.message);
        assert_true(outcome.all_equal);
        assert_int_equal(outcome.hash, one);
    }
}

static void a_run_stopped_and_resumed_elsewhere_ends_the_same(void **state)
{
    (void)state;
    const int worlds[][2] = {{1, 3}, {2, 2}, {3, 1}};
    const char *const stop[] = {"train.steps=7", NULL};
    for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_case first = {.config = config, .overrides = stop, .run_folder = RUN_FOLDER, .world = worlds[i][0]};
        train_case second = {.config = config, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = worlds[i][1]};
        assert_int_not_equal(expect_outcome(&first).hash, alone());
        assert_int_equal(expect_outcome(&second).hash, alone());
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* One shard has the statistics of eight: the first steps go the same way up to rounding. */
static void one_shard_goes_the_way_of_eight(void **state)
{
    (void)state;
    double loss[3];
    const char *const cases[][4] = {{"train.steps=4", "train.shards=8", NULL},
                                    {"train.steps=4", "train.shards=1", NULL},
                                    {"train.steps=4", "train.shards=8", "model.sync_batch_norm=false", NULL}};
    for (size_t i = 0; i < 3; i++) {
        const char *const overrides[] = {
            cases[i][0], cases[i][1], "data.shuffle=false", "train.batch=48", "data.synthetic_count=192",
            cases[i][2], NULL};
        train_outcome outcome = expect_outcome(&(train_case){.config = config, .overrides = overrides, .world = 1});
        loss[i] = outcome.test_loss;
    }
    assert_true(isfinite(loss[0]));
    if (!(fabs(loss[0] - loss[1]) < 1e-4 * loss[0]) || fabs(loss[0] - loss[2]) < 1e-4 * loss[0])
        fail_msg("test losses of 8 shards in sync, of 1, of 8 apart: %.9g %.9g %.9g", loss[0], loss[1], loss[2]);
}

static void batches_in_pieces_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[3];
        int world;
        const char *words;
    } cases[] = {
        {{"train.shards_at_once=2", NULL}, 2, "train.shards_at_once 0 (all), got 2 of up to 4"},
        {{"parallel.pipeline=2", NULL}, 2, "parallel.pipeline 1, got 2, whose micro-batches"},
        {{"parallel.sync=local", NULL}, 2, "another parallel.sync than local"},
        {{"parallel.sync=diloco", NULL}, 2, "another parallel.sync than diloco"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        train_outcome outcome =
            train_threads(&(train_case){.config = config, .overrides = cases[i].overrides, .world = cases[i].world});
        assert_true(outcome.status == TRI_ECONFIG || outcome.status == TRI_EABORT);
        if (!strstr(outcome.message, cases[i].words))
            fail_msg("want '%s', got '%s'", cases[i].words, outcome.message);
    }
    /* As many at once as a rank has are no pieces. */
    const char *const enough[] = {"train.shards_at_once=4", NULL};
    assert_int_equal(expect_outcome(&(train_case){.config = config, .overrides = enough, .world = 2}).hash, alone());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_ranks_gives_the_same_weights),
        cmocka_unit_test(strategies_threads_and_precision_change_nothing_between_layouts),
        cmocka_unit_test(simulated_ranks_give_the_same_weights),
        cmocka_unit_test(a_run_stopped_and_resumed_elsewhere_ends_the_same),
        cmocka_unit_test(one_shard_goes_the_way_of_eight),
        cmocka_unit_test(batches_in_pieces_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
