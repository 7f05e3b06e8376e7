/* SPDX-License-Identifier: Apache-2.0
 *
 * test_zero.c: state, gradients and weights that are spread over the ranks: the same weights and the same files as when
 * every rank has all of them, and a share of the memory.
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
#include "train/core/plan.h"

#define RUN_FOLDER "trireme-test-zero-run"
#define ZERO1      "parallel.sync=zero1"
#define ZERO3      "parallel.sync=zero3"

static const char *const stages[] = {ZERO1, "parallel.sync=zero2", ZERO3};

/* Running statistics, dropout, clipping, and batches and shares that do not come out even. */
static const char conv[] = "model:\n"
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
                           "optim: {name: adamw, lr: 0.01, weight_decay: 0.01, clip_norm: 1, schedule: cosine}\n"
                           "parallel: {bucket_kib: 1}\n";

/* Tied weights. */
static const char gpt[] = "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
                          "synthetic_width: 20}\n"
                          "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
                          "parallel: {bucket_kib: 4}\n";

static const char mlp[] = "model: {name: mlp, hidden: [48, 24]}\n"
                          "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                          "train: {batch: 50, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {lr: 0.05, momentum: 0.9}\n"
                          "parallel: {bucket_kib: 1}\n";

static void every_number_of_ranks_gives_the_weights_of_one(void **state)
{
    (void)state;
    static const char *const configs[] = {conv, gpt};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        uint64_t alone = expect_run(&(train_case){.config = configs[c], .world = 1});
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++)
            for (int world = 1; world <= 8; world++) {
                const char *const zero[] = {stages[s], NULL};
                if (expect_run(&(train_case){.config = configs[c], .overrides = zero, .world = world}) != alone)
                    fail_msg("%s, %d ranks: other weights", stages[s], world);
            }
    }
}

static bool is_pieced(const char *const *overrides)
{
    while (*overrides && strncmp(*overrides, "train.shards_at_once", 20) != 0)
        overrides++;
    return *overrides;
}

static void optimizers_groups_frozen_parts_waves_threads_and_bf16_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *config, *decides[3], *layout[3]; /* what the weights depend on, and what not */
    } cases[] = {
        {conv, {NULL}, {"train.threads=2", "train.shards_at_once=2"}},
        {conv, {NULL}, {"parallel.overlap=false", "parallel.bucket_kib=100000"}},
        {conv, {"optim.clip_norm=0"}, {"parallel.ahead=on"}},
        {conv, {"optim.name=adam", "optim.schedule=step"}, {NULL}},
        {conv, {"optim.name=sgd", "optim.nesterov=true", "optim.momentum=0.9"}, {NULL}},
        {conv, {"optim.name=sgd", "optim.momentum=0"}, {NULL}}, /* no state at all */
        {conv, {"optim.groups=[{match: '*.bias', lr_scale: 0.5, weight_decay: 0}]", "optim.schedule=wsd"}, {NULL}},
        {conv, {"train.precision=bf16"}, {"train.threads=2"}},
        {gpt, {"train.precision=bf16"}, {"train.shards_at_once=1", "model.checkpoint=true"}},
        {gpt, {NULL}, {"model.checkpoint=true", "parallel.overlap=false", "parallel.bucket_kib=1"}},
        {gpt, {"optim.groups=[{match: '*wte*', lr_scale: 2}]"}, {NULL}},
        {mlp, {"model.freeze=[fc1.*]"}, {NULL}},
        {mlp, {"model.freeze=[fc2.weight, fc3.*]"}, {"train.threads=2"}},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *const *decides = cases[i].decides, *const *layout = cases[i].layout;
        const char *plain[4] = {NULL}, *zero[8] = {NULL};
        int plains = 0, zeros = 1;
        for (int k = 0; k < 3 && decides[k]; k++)
            plain[plains++] = zero[zeros++] = decides[k];
        for (int k = 0; k < 3 && layout[k]; k++)
            zero[zeros++] = layout[k];
        uint64_t alone = expect_run(&(train_case){.config = cases[i].config, .overrides = plain, .world = 1});
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++)
            for (int world = 2; world <= 4; world++) {
                zero[0] = stages[s];
                if (world == 3 && strcmp(stages[s], ZERO3) == 0 && is_pieced(zero))
                    continue; /* refused, below */
                if (expect_run(&(train_case){.config = cases[i].config, .overrides = zero, .world = world}) != alone)
                    fail_msg("case %zu, %s, %d ranks: other weights", i, stages[s], world);
            }
    }
}

static void twenty_simulated_ranks_give_the_weights_of_one(void **state)
{
    (void)state;
    const char *wide[] = {
        "train.shards=64", "train.batch=128", "train.epochs=1", "data.synthetic_count=384", NULL, NULL};
    train_case test = {.config = conv, .overrides = wide, .world = 1};
    uint64_t alone = expect_run(&test);
    test.world = 20;
    for (uint64_t seed = 1; seed <= TRI_COUNT_OF(stages); seed++) {
        wide[4] = stages[seed - 1];
        train_outcome outcome = train_fibers(&test, seed);
        if (outcome.status != TRI_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, outcome.message);
        assert_true(outcome.all_equal);
        assert_int_equal(outcome.hash, alone);
    }
}

/* --- files --- */

static char *file_of(const char *folder, const char *name, size_t *nbytes)
{
    char path[256], *text;
    snprintf(path, sizeof(path), "%s/checkpoints/step-00000007/%s.safetensors", folder, name);
    if (tri_fs_read(path, 1 << 24, &text, nbytes) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return text;
}

static void the_files_are_those_of_one_rank_and_rank_0_alone_knows_the_folder(void **state)
{
    (void)state;
    static const char *const files[] = {"model", "optimizer"};
    const char *zero[] = {"train.steps=7", NULL, NULL}, *const plain[] = {"train.steps=7", NULL};
    char *wanted[2];
    size_t wanted_nbytes[2], nbytes;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = gpt, .overrides = plain, .run_folder = RUN_FOLDER, .world = 1});
    for (int f = 0; f < 2; f++)
        wanted[f] = file_of(RUN_FOLDER, files[f], &wanted_nbytes[f]);
    for (int i = 0; i < 6; i++) {
        int world = 2 + i % 2;
        zero[1] = stages[i / 2];
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        expect_run(&(train_case){.config = gpt,
                                 .overrides = zero,
                                 .run_folder = RUN_FOLDER,
                                 .first_writes = world % 2 != 0,
                                 .world = world});
        for (int f = 0; f < 2; f++) {
            char *found = file_of(RUN_FOLDER, files[f], &nbytes);
            assert_int_equal(nbytes, wanted_nbytes[f]);
            assert_memory_equal(found, wanted[f], nbytes);
            tri_free(found);
        }
    }
    tri_free(wanted[0]);
    tri_free(wanted[1]);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void a_run_stopped_and_resumed_in_another_layout_ends_the_same(void **state)
{
    (void)state;
    static const struct {
        int world;
        const char *sync;
    } layouts[][2] = {{{1, "allreduce"}, {3, "zero1"}}, {{3, "zero1"}, {1, "allreduce"}}, {{2, "zero1"}, {2, "zero1"}},
                      {{4, "zero1"}, {3, "zero1"}},     {{2, "zero1"}, {5, "allreduce"}}, {{1, "zero1"}, {8, "zero1"}},
                      {{3, "zero3"}, {1, "allreduce"}}, {{1, "allreduce"}, {5, "zero3"}}, {{2, "zero3"}, {3, "zero2"}},
                      {{4, "zero2"}, {2, "zero3"}},     {{3, "zero3"}, {4, "zero3"}}};
    static const char *const configs[] = {conv, gpt};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        uint64_t whole = expect_run(&(train_case){.config = configs[c], .world = 1});
        for (size_t i = 0; i < TRI_COUNT_OF(layouts); i++) {
            char first_sync[64], second_sync[64];
            snprintf(first_sync, sizeof(first_sync), "parallel.sync=%s", layouts[i][0].sync);
            snprintf(second_sync, sizeof(second_sync), "parallel.sync=%s", layouts[i][1].sync);
            const char *const stop[] = {"train.steps=5", first_sync, NULL}, *const on[] = {second_sync, NULL};
            assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
            uint64_t half = expect_run(&(train_case){
                .config = configs[c], .overrides = stop, .run_folder = RUN_FOLDER, .world = layouts[i][0].world});
            assert_int_not_equal(half, whole);
            uint64_t end = expect_run(&(train_case){.config = configs[c],
                                                    .overrides = on,
                                                    .run_folder = RUN_FOLDER,
                                                    .resume = RUN_FOLDER,
                                                    .world = layouts[i][1].world});
            if (end != whole)
                fail_msg("layouts %zu: other weights", i);
        }
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void the_best_checkpoint_is_kept_and_goes_on(void **state)
{
    (void)state;
    const char *const best[] = {ZERO3, "checkpoint.keep_best=true", "train.eval_every=1", "checkpoint.every_steps=3",
                                NULL};
    const char *const on[] = {"train.epochs=4", NULL};
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = conv, .overrides = best, .run_folder = RUN_FOLDER, .world = 3});
    assert_true(tri_fs_exists(RUN_FOLDER "/best/best.json"));
    assert_true(tri_fs_exists(RUN_FOLDER "/checkpoints/step-00000015/optimizer.safetensors"));
    /* Without, nobody asks. */
    expect_run(
        &(train_case){.config = conv, .overrides = on, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = 2});
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void a_checkpoint_that_does_not_fit_is_one_error_on_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = mlp, .run_folder = RUN_FOLDER, .world = 1});
    for (size_t s = 0; s < TRI_COUNT_OF(stages); s++) {
        const char *const zero[] = {stages[s], NULL};
        train_outcome outcome =
            train_threads(&(train_case){.config = gpt, .overrides = zero, .resume = RUN_FOLDER, .world = 3});
        assert_true(outcome.status != TRI_OK);
        if (!strstr(outcome.message, "while resuming " RUN_FOLDER) || !strstr(outcome.message, "is missing"))
            fail_msg("%s", outcome.message);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- what does not go together --- */

static void expect_refusal(const char *const *overrides, int world, const char *text)
{
    train_outcome outcome = train_threads(&(train_case){.config = gpt, .overrides = overrides, .world = world});
    assert_true(outcome.status != TRI_OK);
    if (!strstr(outcome.message, text))
        fail_msg("%s", outcome.message);
}

static void what_does_not_go_with_zero3_is_refused(void **state)
{
    (void)state;
    expect_refusal((const char *const[]){ZERO3, "train.shards_at_once=2", NULL}, 3,
                   "want a number of ranks that divides train.shards, 8, got 3");
}

/* --- memory --- */

static tri_job_memory memory_of(const char *sync, int ranks)
{
    const char *const overrides[] = {sync, "model.n_embd=128", "parallel.bucket_kib=16", NULL};
    tri_config config;
    tri_job_memory memory;
    assert_int_equal(tri_config_load(NULL, gpt, overrides, &config), TRI_OK);
    assert_int_equal(tri_job_memory_plan(&config, ranks, &memory), TRI_OK);
    tri_config_fini(&config);
    return memory;
}

static void a_worker_takes_its_share_of_the_memory(void **state)
{
    (void)state;
    tri_job_memory whole = memory_of("parallel.sync=allreduce", 4);
    assert_true(whole.optimizer == 2 * whole.weights); /* two moments */
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++) {
            tri_job_memory part = memory_of(stages[s], ranks);
            size_t share = whole.weights / (size_t)ranks, slack = share / 6; /* units of few blocks */
            size_t passing = 3 * 4 * 128 * 128 * sizeof(float); /* the largest units: two matrices of each block */
            assert_in_range(part.optimizer, 2 * (share - slack), 2 * (share + slack));
            if (s == 0 || ranks == 1)
                assert_true(part.gradients >= whole.weights);
            else
                assert_in_range(part.gradients, share - slack, share + slack + whole.weights / 16 + passing);
            if (s < 2 || ranks == 1)
                assert_true(part.weights == whole.weights);
            else
                assert_in_range(part.weights, share - slack, share + slack + passing);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_ranks_gives_the_weights_of_one),
        cmocka_unit_test(optimizers_groups_frozen_parts_waves_threads_and_bf16_change_nothing),
        cmocka_unit_test(twenty_simulated_ranks_give_the_weights_of_one),
        cmocka_unit_test(the_files_are_those_of_one_rank_and_rank_0_alone_knows_the_folder),
        cmocka_unit_test(a_run_stopped_and_resumed_in_another_layout_ends_the_same),
        cmocka_unit_test(the_best_checkpoint_is_kept_and_goes_on),
        cmocka_unit_test(a_checkpoint_that_does_not_fit_is_one_error_on_all_ranks),
        cmocka_unit_test(what_does_not_go_with_zero3_is_refused),
        cmocka_unit_test(a_worker_takes_its_share_of_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
