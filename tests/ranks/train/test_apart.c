/* SPDX-License-Identifier: Apache-2.0
 *
 * test_apart.c: ranks with weights of their own: the same weights in each run of a layout, stopped and resumed or not,
 * looked at in between or not.
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
#include "train/core/plan.h"

#define RUN_FOLDER "trireme-test-apart-run"

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
                           "parallel: {local_steps: 4, compress_block: 64}\n";

/* Tied weights. */
static const char gpt[] = "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 160, "
                          "synthetic_width: 20}\n"
                          "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
                          "parallel: {local_steps: 4, compress_block: 64}\n";

static const char mlp[] = "model: {name: mlp, hidden: [48, 24]}\n"
                          "data: {name: synthetic, synthetic_count: 200, synthetic_width: 32}\n"
                          "train: {batch: 40, shards: 8, epochs: 3, seed: 7, threads: 1}\n"
                          "optim: {lr: 0.05, momentum: 0}\n";

static const char *const configs[] = {conv, gpt};

/* One each of what a step can find on its way. */
typedef struct way {
    const char *overrides[6];
} way;
static const way ways[] = {
    {{"parallel.sync=local"}},
    {{"parallel.sync=diloco"}},
    {{"parallel.sync=diloco", "parallel.outer_fragments=4"}},
    {{"parallel.sync=diloco", "parallel.outer_fragments=3", "parallel.outer_delay=3"}},
    {{"parallel.sync=diloco", "parallel.outer_delay=1", "parallel.outer_mix=0.25"}},
    {{"parallel.sync=diloco", "parallel.outer_fragments=2", "parallel.outer_delay=3", "parallel.compress=int8"}},
    {{"parallel.sync=diloco", "parallel.compress=bf16"}},
};

typedef struct overrides {
    const char *items[12];
} overrides;

/* A way with more options, NULL at the end. */
static overrides with(const way *at, const char *const *more)
{
    overrides all = {{"parallel.compress_between=ranks"}};
    int count = 1;
    for (int i = 0; i < 6 && at->overrides[i]; i++)
        all.items[count++] = at->overrides[i];
    for (int i = 0; more && more[i]; i++)
        all.items[count++] = more[i];
    return all;
}

static void each_run_of_a_layout_gives_the_same_weights(void **state)
{
    (void)state;
    const char *const more[] = {"train.threads=2", "train.shards_at_once=1", NULL};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++)
        for (int world = 2; world <= 3; world++) {
            uint64_t seen[TRI_COUNT_OF(ways) + 1] = {expect_run(&(train_case){.config = configs[c], .world = 1})};
            for (size_t w = 0; w < TRI_COUNT_OF(ways); w++) {
                overrides one = with(&ways[w], NULL), other = with(&ways[w], more);
                train_case test = {.config = configs[c], .overrides = one.items, .world = world};
                seen[w + 1] = expect_run(&test);
                for (size_t before = 0; before <= w; before++)
                    assert_int_not_equal(seen[w + 1], seen[before]); /* each does something of its own */
                assert_int_equal(train_fibers(&test, w + 1).hash, seen[w + 1]);
                test.overrides = other.items;
                assert_int_equal(expect_run(&test), seen[w + 1]);
            }
        }
}

/* Evaluations and checkpoints look at the mean of the weights and give each rank its own back. */
static void who_looks_on_changes_nothing(void **state)
{
    (void)state;
    const char *const looks[] = {"train.eval_every_steps=3", "checkpoint.every_steps=5", "checkpoint.keep_best=true",
                                 NULL};
    for (size_t w = 0; w < TRI_COUNT_OF(ways); w++) {
        overrides one = with(&ways[w], NULL), other = with(&ways[w], looks);
        train_case test = {.config = configs[w % 2], .overrides = one.items, .world = 3};
        uint64_t alone = expect_run(&test);
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        test.overrides = other.items;
        test.run_folder = RUN_FOLDER;
        test.first_writes = true;
        assert_int_equal(expect_run(&test), alone);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* At an exchange, between two, and while fragments are on their way. */
static void a_run_stopped_anywhere_goes_on_as_if_it_had_not(void **state)
{
    (void)state;
    static const char *const stops[] = {"train.steps=4", "train.steps=5", "train.steps=7", "train.steps=10"};
    for (size_t w = 0; w < TRI_COUNT_OF(ways); w++)
        for (size_t s = 0; s < TRI_COUNT_OF(stops); s++) {
            const char *const stop[] = {stops[s], NULL};
            int world = 1 + (int)(w + s) % 3;
            overrides whole = with(&ways[w], NULL), part = with(&ways[w], stop);
            train_case test = {.config = configs[(w + s) % 2], .overrides = whole.items, .world = world};
            uint64_t wanted = expect_run(&test);
            assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
            test.run_folder = RUN_FOLDER;
            test.overrides = part.items;
            assert_int_not_equal(expect_run(&test), wanted);
            test.overrides = whole.items;
            test.resume = RUN_FOLDER;
            if (expect_run(&test) != wanted)
                fail_msg("way %zu, %s, %d ranks: other weights", w, stops[s], world);
        }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void a_checkpoint_of_another_layout_is_one_clear_error(void **state)
{
    (void)state;
    overrides stop = with(&ways[1], (const char *const[]){"train.steps=5", NULL}), on = with(&ways[1], NULL);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = conv, .overrides = stop.items, .run_folder = RUN_FOLDER, .world = 2});
    train_outcome outcome =
        train_threads(&(train_case){.config = conv, .overrides = on.items, .resume = RUN_FOLDER, .world = 3});
    assert_true(outcome.status != TRI_OK);
    if (!strstr(outcome.message, "parallel.sync diloco resumes with the ranks it had (model.from takes weights alone)"))
        fail_msg("%s", outcome.message);
    outcome = train_threads(&(train_case){.config = conv, .resume = RUN_FOLDER, .world = 2});
    assert_int_equal(outcome.status, TRI_EFORMAT);
    if (!strstr(outcome.message,
                "local or diloco have saved it, each its own weights, from which allreduce cannot continue"))
        fail_msg("%s", outcome.message);
    /* The weights alone, anywhere. */
    const char *const from[] = {"model.from=" RUN_FOLDER, "train.steps=2", NULL};
    expect_run(&(train_case){.config = conv, .overrides = from, .world = 3});
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- what an exchange does --- */

static double loss_of(const char *const *options, int world)
{
    return expect_outcome(&(train_case){.config = mlp, .overrides = options, .world = world}).test_loss;
}

/* Without momentum the mean of weights after one step each is the step by the mean. */
static void an_exchange_after_each_step_is_plain_data_parallel(void **state)
{
    (void)state;
    const char *const local[] = {"parallel.sync=local", "parallel.local_steps=1", NULL};
    const char *const outer[] = {"parallel.sync=diloco", "parallel.local_steps=1", "parallel.outer_lr=1",
                                 "parallel.outer_momentum=0", NULL};
    const char *const never[] = {"parallel.sync=local", "parallel.local_steps=1000", NULL};
    double plain = loss_of(NULL, 1);
    for (int world = 2; world <= 4; world += 2) {
        assert_true(fabs(loss_of(local, world) - plain) < 1e-5);
        assert_true(fabs(loss_of(outer, world) - plain) < 1e-5);
        assert_true(fabs(loss_of(never, world) - plain) > 1e-4);
    }
}

/* One rank, one round of three steps: the anchor goes lr (1 + momentum) of the way that the rank went. */
static void the_outer_step_is_nesterovs(void **state)
{
    (void)state;
    static const char *const factors[][2] = {{"parallel.outer_lr=0.5", "parallel.outer_momentum=0"},
                                             {"parallel.outer_lr=0.4", "parallel.outer_momentum=0.25"},
                                             {"parallel.outer_lr=1", "parallel.outer_momentum=0"}};
    double losses[3], plain = loss_of((const char *const[]){"train.steps=3", NULL}, 1);
    for (size_t i = 0; i < 3; i++) {
        const char *const options[] = {
            "parallel.sync=diloco", "parallel.local_steps=3", "train.steps=3", factors[i][0], factors[i][1], NULL};
        losses[i] = loss_of(options, 1);
    }
    assert_true(fabs(losses[0] - losses[1]) < 1e-5); /* 0.4 * 1.25 */
    assert_true(fabs(losses[2] - plain) < 1e-5);
    assert_true(fabs(losses[0] - plain) > 1e-4);
}

/* In batches of 2 samples two of the four have none: they see no statistics, and keep those that they had. */
static void a_rank_without_samples_keeps_its_running_statistics(void **state)
{
    (void)state;
    static const char config[] = "model: {layers: [linear: 16, batch_norm, relu, linear: classes]}\n"
                                 "data: {name: synthetic, synthetic_count: 42}\n"
                                 "train: {batch: 40, shards: 8, epochs: 3, threads: 1}\n"
                                 "parallel: {local_steps: 2}\n";
    static const char *const syncs[][2] = {{"parallel.sync=local"}, {"parallel.sync=diloco"}};
    for (size_t s = 0; s < TRI_COUNT_OF(syncs); s++) {
        double loss = expect_outcome(&(train_case){.config = config, .overrides = syncs[s], .world = 4}).test_loss;
        if (!isfinite(loss))
            fail_msg("%s: test loss %f", syncs[s][0], loss);
    }
}

static void expect_refused(const char *const *options, const char *text)
{
    train_outcome outcome = train_threads(&(train_case){.config = mlp, .overrides = options, .world = 1});
    assert_int_equal(outcome.status, TRI_ECONFIG);
    if (!strstr(outcome.message, text))
        fail_msg("%s", outcome.message);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    expect_refused((const char *const[]){"parallel.sync=diloco", "parallel.compress=topk", NULL},
                   "parallel.compress topk requires parallel.sync allreduce, got diloco");
    expect_refused((const char *const[]){"parallel.sync=local", "parallel.compress=int8", NULL},
                   "parallel.compress int8 requires parallel.sync allreduce or diloco, got local");
    expect_refused(
        (const char *const[]){"parallel.sync=diloco", "parallel.local_steps=4", "parallel.outer_delay=4", NULL},
        "parallel.outer_delay is 4 but parallel.local_steps is 4");
    expect_refused(
        (const char *const[]){"parallel.sync=diloco", "parallel.local_steps=4", "parallel.outer_fragments=5", NULL},
        "parallel.outer_fragments is 5 but parallel.local_steps is 4");
}

static void the_outer_state_is_in_the_plan(void **state)
{
    (void)state;
    tri_config config;
    tri_job_memory plain, outer;
    assert_int_equal(tri_config_load(NULL, mlp, NULL, &config), TRI_OK);
    assert_int_equal(tri_job_memory_plan(&config, 2, &plain), TRI_OK);
    tri_config_fini(&config);
    assert_int_equal(tri_config_load(NULL, mlp, (const char *const[]){"parallel.sync=diloco", NULL}, &config), TRI_OK);
    assert_int_equal(tri_job_memory_plan(&config, 2, &outer), TRI_OK);
    tri_config_fini(&config);
    assert_int_equal(outer.optimizer - plain.optimizer, 3 * plain.weights); /* anchor, momentum, what is under way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_run_of_a_layout_gives_the_same_weights),
        cmocka_unit_test(who_looks_on_changes_nothing),
        cmocka_unit_test(a_run_stopped_anywhere_goes_on_as_if_it_had_not),
        cmocka_unit_test(a_checkpoint_of_another_layout_is_one_clear_error),
        cmocka_unit_test(an_exchange_after_each_step_is_plain_data_parallel),
        cmocka_unit_test(the_outer_step_is_nesterovs),
        cmocka_unit_test(a_rank_without_samples_keeps_its_running_statistics),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(the_outer_state_is_in_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
