/* SPDX-License-Identifier: Apache-2.0
 *
 * test_guard.c: steps whose loss or gradient is NaN or Inf, and losses that jump: the run ends, the step moves nothing,
 * or the weights go back; the same in every layout, and after a resume.
 *
 * The linker gives tri_dataset_open() of the whole program to __wrap_tri_dataset_open(): a data set of which some
 * samples are far too large.
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
#include "base/memory.h"
#include "data/data.h"
#include "ranks/train/train_expect.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-guard-run"
#define WIDTH      12
#define BATCH      20
#define COUNT      190 /* 10 steps an epoch, the last with 10 samples */

/* --- the data set --- */

/* Samples with far too large a target: 127, of step 6 of each epoch, the square of whose loss is no f32; and 185, of
 * step 9. */
static struct {
    int64_t index;
    float factor;
} odd[] = {{127, 1e37f}, {185, 30}};

static tri_status samples_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples,
                               void *targets)
{
    (void)dataset;
    float *sample = samples, *target = targets;
    for (int64_t i = 0; i < count; i++) {
        float factor = 1;
        for (size_t k = 0; k < TRI_COUNT_OF(odd); k++)
            factor = indices[i] == odd[k].index ? odd[k].factor : factor;
        for (int64_t j = 0; j < WIDTH; j++)
            *sample++ = ((float)((indices[i] * 7 + j * (1 + indices[i] % 4)) % 11) - 5) / 5;
        *target++ = factor * (float)(1 + indices[i] % 4);
    }
    return TRI_OK;
}

static void samples_close(tri_dataset *dataset)
{
    tri_free(dataset);
}

static const tri_dataset_ops samples_ops = {.name = "samples", .read = samples_read, .close = samples_close};

tri_status __real_tri_dataset_open(const tri_data_config *config, bool test, tri_dataset **out);
tri_status __wrap_tri_dataset_open(const tri_data_config *config, bool test, tri_dataset **out);
tri_status __wrap_tri_dataset_open(const tri_data_config *config, bool test, tri_dataset **out)
{
    int64_t width = WIDTH, one = 1;
    if (strcmp(config->path, "odd") != 0)
        return __real_tri_dataset_open(config, test, out);
    *out = tri_alloc_zero(1, sizeof(**out));
    if (!*out)
        return TRI_ENOMEM;
    (*out)->ops = &samples_ops;
    (*out)->info = (tri_dataset_info){.count = test ? 100 : COUNT,
                                      .sample = tri_shape_make(1, &width),
                                      .dtype = TRI_F32,
                                      .target_dtype = TRI_F32,
                                      .target = tri_shape_make(1, &one)};
    return TRI_OK;
}

/* Not shuffled: step 6 of each epoch of 10 has no loss; step 9 has a large one. */
static const char config[] = "model: {layers: [linear: {out: 16, relu: true}, batch_norm, linear: 1]}\n"
                             "data: {path: odd, shuffle: false}\n"
                             "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1, eval_every: 0}\n"
                             "optim: {name: adam, lr: 0.01}\n"
                             "parallel: {bucket_kib: 1}\n";
static const char gpt[] =
    "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1}\n"
    "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, synthetic_width: 20}\n"
    "train: {batch: 20, shards: 8, epochs: 3, seed: 7, threads: 1}\n"
    "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
    "parallel: {bucket_kib: 4, tensor_parts: 2}\n";

static uint64_t hash_with(int world, const char *const *overrides)
{
    return expect_run(&(train_case){.config = config, .overrides = overrides, .world = world});
}

static uint64_t hash_of_no_steps(void)
{
    tri_job *job;
    tri_job_result result;
    assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = config}, &job), TRI_OK);
    assert_int_equal(tri_job_result_read(job, &result), TRI_OK);
    tri_job_close(job);
    return result.weights_hash;
}

/* --- the same in every layout --- */

static const char *const layouts[][4] = {{NULL},
                                         {"train.threads=2", "train.shards_at_once=1", NULL},
                                         {"parallel.sync=zero1", NULL},
                                         {"parallel.sync=zero2", NULL},
                                         {"parallel.sync=zero3", NULL},
                                         {"parallel.ahead=on", NULL}};

static void every_layout_leaves_out_the_same_steps(void **state)
{
    (void)state;
    static const char *const acts[][3] = {{"train.on_nonfinite=skip", "train.on_spike=off", NULL},
                                          {"train.on_nonfinite=skip", "train.on_spike=skip", NULL},
                                          {"train.on_nonfinite=rollback", "train.on_spike=skip", NULL},
                                          {"train.on_nonfinite=skip", "train.on_spike=rollback", NULL}};
    uint64_t seen[TRI_COUNT_OF(acts)];
    for (size_t a = 0; a < TRI_COUNT_OF(acts); a++) {
        const char *overrides[16] = {acts[a][0], acts[a][1], "train.spike_window=4", "checkpoint.every_steps=4"};
        seen[a] = hash_with(1, overrides);
        for (size_t k = 0; k < a; k++)
            assert_int_not_equal(seen[a], seen[k]);
        for (int world = 1; world <= 4; world++)
            for (size_t l = 0; l < TRI_COUNT_OF(layouts); l++) {
                memcpy(overrides + 4, layouts[l], sizeof(layouts[l]));
                assert_int_equal(hash_with(world, overrides), seen[a]);
            }
    }
}

static tri_status spoil(void *arg, const tri_gradient *gradient)
{
    (void)arg;
    if (strcmp(gradient->name, "ln_f.weight") == 0 && (gradient->step == 3 || gradient->step == 7) &&
        gradient->first == 0 && gradient->count > 0)
        gradient->values[0] = gradient->step == 3 ? NAN : INFINITY;
    return TRI_OK;
}

static void spoil_gradients(tri_job *job)
{
    if (job->step == job->progress.first_step)
        tri_job_gradient_hook(job, spoil, NULL);
}

static void meshes_see_gradients_that_are_no_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *layout[4];
        int world;
    } cases[] = {{{NULL}, 3},
                 {{"parallel.tensor=2", NULL}, 2},
                 {{"parallel.pipeline=2", NULL}, 2},
                 {{"parallel.sync=zero2", NULL}, 3},
                 {{"parallel.tensor=2", "parallel.sync=zero1", NULL}, 4},
                 {{"parallel.pipeline=2", "parallel.tensor=2", "parallel.schedule=gpipe", NULL}, 4}};
    static const char *const acts[] = {"train.on_nonfinite=skip", "train.on_nonfinite=rollback"};
    const uint64_t quiet = expect_run(&(train_case){.config = gpt, .world = 1});
    for (size_t a = 0; a < TRI_COUNT_OF(acts); a++) {
        const char *overrides[8] = {acts[a], "checkpoint.every_steps=2"};
        train_case test = {.config = gpt, .overrides = overrides, .world = 1, .before_step = spoil_gradients};
        const uint64_t alone = expect_run(&test);
        assert_int_not_equal(alone, quiet);
        for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
            memcpy(overrides + 2, cases[i].layout, sizeof(cases[i].layout));
            test.world = cases[i].world;
            assert_int_equal(expect_run(&test), alone);
        }
    }
}

/* Nobody else wants the norm. */
static void without_clipping_gradients_are_looked_at_too(void **state)
{
    (void)state;
    const char *overrides[] = {"train.on_nonfinite=skip", "optim.clip_norm=0", "train.guard_limit=2", NULL};
    train_case test = {.config = gpt, .overrides = overrides, .world = 1, .before_step = spoil_gradients};
    const uint64_t alone = expect_run(&test);
    test.world = 3;
    assert_int_equal(expect_run(&test), alone);
}

static void meshes_see_losses_that_jump(void **state)
{
    (void)state;
    const char *const wild[] = {"optim.lr=0.5", NULL};
    const char *const calm[] = {"optim.lr=0.5",         "train.on_spike=skip", "train.spike_factor=1",
                                "train.spike_window=3", "train.guard_limit=0", NULL};
    const char *const calm_of_four[] = {
        "optim.lr=0.5",        "train.on_spike=skip", "train.spike_factor=1", "train.spike_window=3",
        "train.guard_limit=0", "parallel.pipeline=2", "parallel.tensor=2",    NULL};
    const uint64_t alone = expect_run(&(train_case){.config = gpt, .overrides = calm, .world = 1});
    assert_int_not_equal(alone, expect_run(&(train_case){.config = gpt, .overrides = wild, .world = 1}));
    assert_int_equal(expect_run(&(train_case){.config = gpt, .overrides = calm, .world = 3}), alone);
    assert_int_equal(expect_run(&(train_case){.config = gpt, .overrides = calm_of_four, .world = 4}), alone);
}

/* --- what is kept from step to step --- */

/* Whatever the gradient of the steps was that are left out: weights go on as if it had been another one. */
static void expect_no_trace(const char *const *overrides, int world, int ranks_per_host)
{
    static const float bad[] = {1e37f, -3e38f, INFINITY, NAN};
    train_outcome first = {0};
    for (size_t b = 0; b < TRI_COUNT_OF(bad); b++) {
        odd[0].factor = bad[b];
        train_case test = {.config = config, .overrides = overrides, .world = world, .ranks_per_host = ranks_per_host};
        train_outcome outcome = ranks_per_host > 0 ? train_fibers(&test, 1) : expect_outcome(&test);
        odd[0].factor = 1e37f;
        if (outcome.status != TRI_OK || !isfinite(outcome.test_loss) || (b > 0 && outcome.hash != first.hash))
            fail_msg("%s, %d ranks, %g: %s", overrides[0], world, (double)bad[b], outcome.message);
        first = outcome;
    }
}

static const char *const compressions[] = {"parallel.compress=bf16", "parallel.compress=int8", "parallel.compress=topk",
                                           "parallel.compress=powersgd"};

static void compressed_sums_keep_nothing_of_a_step_that_is_left_out(void **state)
{
    (void)state;
    static const char *const acts[] = {"train.on_nonfinite=skip", "train.on_nonfinite=rollback"};
    static const char *const rests[] = {"parallel.compress_residual=none", "parallel.compress_residual=two_bits"};
    for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++)
        for (size_t a = 0; a < TRI_COUNT_OF(acts); a++)
            for (size_t r = 0; r < TRI_COUNT_OF(rests); r++) {
                const char *const overrides[] = {compressions[k],
                                                 acts[a],
                                                 rests[r],
                                                 "parallel.compress_between=ranks",
                                                 "parallel.compress_rank=2",
                                                 "parallel.compress_fraction=0.1",
                                                 "checkpoint.every_steps=4",
                                                 NULL};
                for (int world = 2; world <= 4; world++)
                    expect_no_trace(overrides, world, 0);
            }
}

/* Leaders alone keep something. */
static void nor_do_those_of_hosts(void **state)
{
    (void)state;
    for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++) {
        const char *const overrides[] = {compressions[k], "train.on_nonfinite=skip", "parallel.compress_rank=2",
                                         "parallel.compress_after=3", NULL};
        expect_no_trace(overrides, 4, 2);
    }
}

/* A loss that jumps is one of finite gradients: nothing of theirs may come later either. */
static void nor_of_a_loss_that_jumps(void **state)
{
    (void)state;
    static const float jumps[] = {60, -200};
    for (size_t k = 0; k < TRI_COUNT_OF(compressions); k++) {
        const char *const overrides[] = {compressions[k],           "parallel.compress_between=ranks",
                                         "train.on_spike=skip",     "train.spike_window=4",
                                         "train.on_nonfinite=skip", NULL};
        train_case test = {.config = config, .overrides = overrides, .world = 2};
        const uint64_t first = expect_run(&test);
        for (size_t j = 0; j < TRI_COUNT_OF(jumps); j++) {
            odd[1].factor = jumps[j];
            uint64_t hash = expect_run(&test);
            odd[1].factor = 30;
            assert_int_equal(hash, first);
        }
    }
}

/* Each leaves out steps of its own: the sample is one of rank 0. */
static void workers_apart_leave_out_their_own_steps(void **state)
{
    (void)state;
    static const char *const syncs[] = {"parallel.sync=local", "parallel.sync=diloco"};
    for (size_t s = 0; s < TRI_COUNT_OF(syncs); s++)
        for (int world = 2; world <= 4; world++) {
            const char *const overrides[] = {syncs[s], "train.on_nonfinite=skip", "parallel.local_steps=4", NULL};
            const char *const stop[] = {syncs[s], "parallel.local_steps=4", NULL};
            expect_no_trace(overrides, world, 0);
            train_outcome outcome = train_threads(&(train_case){.config = config, .overrides = stop, .world = world});
            assert_non_null(strstr(outcome.message, "the loss of step 6 is ")); /* of rank 0, or as others hear of it */
        }
}

static void the_others_make_the_step_that_one_leaves_out(void **state)
{
    (void)state;
    const char *const overrides[] = {"train.on_nonfinite=skip", "parallel.sync=local", "parallel.local_steps=1000",
                                     "train.steps=7", NULL};
    const char *const before[] = {"train.on_nonfinite=skip", "parallel.sync=local", "parallel.local_steps=1000",
                                  "train.steps=6", NULL};
    assert_int_equal(hash_with(1, overrides), hash_with(1, before));
    assert_int_not_equal(hash_with(2, overrides), hash_with(2, before));
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = config, .overrides = overrides, .run_folder = RUN_FOLDER, .world = 2});
    assert_int_equal(lines_with(RUN_FOLDER, "\"skipped\":true"), 1);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- what a guard does --- */

static void a_step_that_is_skipped_moves_nothing(void **state)
{
    (void)state;
    const char *const before[] = {"train.on_nonfinite=skip", "train.steps=6", NULL};
    const char *const after[] = {"train.on_nonfinite=skip", "train.steps=7", NULL};
    const char *const later[] = {"train.on_nonfinite=skip", "train.steps=8", NULL};
    assert_int_equal(hash_with(1, before), hash_with(2, after));
    assert_int_not_equal(hash_with(1, before), hash_with(2, later));
}

static void rolling_back_brings_the_weights_of_the_latest_copy(void **state)
{
    (void)state;
    static const char *const fours[] = {"train.on_nonfinite=rollback", "checkpoint.every_steps=4", "train.steps=4",
                                        NULL};
    static const char *const seven[] = {"train.on_nonfinite=rollback", "checkpoint.every_steps=4", "train.steps=7",
                                        NULL};
    static const char *const first[] = {"train.on_nonfinite=rollback", "train.steps=7", NULL};
    const uint64_t none = hash_of_no_steps();
    const uint64_t four = hash_with(1, fours);
    assert_int_not_equal(four, none);
    for (int world = 1; world <= 3; world++) {
        assert_int_equal(hash_with(world, seven), four);
        assert_int_equal(hash_with(world, first), none);
    }
}

static void what_guards_do_is_told(void **state)
{
    (void)state;
    const char *const overrides[] = {"train.on_nonfinite=skip", "train.on_spike=rollback", "train.spike_window=4",
                                     NULL};
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = config, .overrides = overrides, .run_folder = RUN_FOLDER, .world = 2});
    assert_int_equal(lines_with(RUN_FOLDER, "\"event\":\"skip\",\"text\":\"the loss of step "), 2);
    assert_int_equal(
        lines_with(RUN_FOLDER, "{\"step\":9,\"event\":\"rollback\",\"text\":\"the loss of step 9 jumps to "), 1);
    assert_int_equal(lines_with(RUN_FOLDER, "\"event\":\"rollback\""), 2);
    assert_int_equal(lines_with(RUN_FOLDER, "\"skipped\":true"), 4);
    assert_int_equal(lines_with(RUN_FOLDER, "\"skipped\":false"), 16);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* The loss of the weights before the first step is far above what later ones came to. */
static void weights_that_are_back_do_not_jump_again(void **state)
{
    (void)state;
    const char *const overrides[] = {"train.on_nonfinite=skip",
                                     "train.on_spike=rollback",
                                     "train.spike_window=3",
                                     "train.spike_factor=2",
                                     "optim.lr=0.1",
                                     NULL};
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = config, .overrides = overrides, .run_folder = RUN_FOLDER, .world = 1});
    assert_int_equal(lines_with(RUN_FOLDER, "\"event\":\"rollback\""), 2);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* The mean of losses and the number of acts go on; the copy is the checkpoint's. */
static void a_resumed_run_judges_as_if_it_had_not_stopped(void **state)
{
    (void)state;
    const char *const whole[] = {"train.on_nonfinite=rollback", "train.on_spike=skip", "train.spike_window=12",
                                 "checkpoint.every_steps=4", NULL};
    const char *const half[] = {"train.on_nonfinite=rollback", "train.on_spike=skip", "train.spike_window=12",
                                "checkpoint.every_steps=4",    "train.steps=12",      NULL};
    const char *const few[] = {"train.on_nonfinite=rollback", "train.on_spike=skip", "train.spike_window=12",
                               "checkpoint.every_steps=4",    "train.guard_limit=1", NULL};
    const char *const few_half[] = {"train.on_nonfinite=rollback",
                                    "train.on_spike=skip",
                                    "train.spike_window=12",
                                    "checkpoint.every_steps=4",
                                    "train.guard_limit=1",
                                    "train.steps=12",
                                    NULL};
    const uint64_t alone = hash_with(1, whole);
    const int worlds[][2] = {{1, 1}, {2, 3}, {3, 1}};
    for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_case first = {.config = config, .overrides = half, .run_folder = RUN_FOLDER, .world = worlds[i][0]};
        train_case second = {.config = config,
                             .overrides = whole,
                             .run_folder = RUN_FOLDER,
                             .resume = RUN_FOLDER,
                             .world = worlds[i][1]};
        expect_run(&first);
        assert_int_equal(expect_run(&second), alone);
        assert_int_equal(lines_with(RUN_FOLDER, "{\"step\":19,\"event\":\"skip\""), 1);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = config, .overrides = few_half, .run_folder = RUN_FOLDER, .world = 1});
    train_outcome outcome = train_threads(
        &(train_case){.config = config, .overrides = few, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = 2});
    assert_int_equal(outcome.status, TRI_ENUMERIC);
    assert_non_null(strstr(outcome.message, "step 16: the loss of step 16 is "));
    assert_non_null(strstr(outcome.message, "and guards have acted 1 times already (train.guard_limit)"));
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* What a rollback goes back to is older than where the run was stopped. */
static void a_resumed_run_rolls_back_as_if_it_had_not_stopped(void **state)
{
    (void)state;
    static const struct {
        const char *every, *keep;
        int64_t stop;
        bool kept; /* the checkpoint of the copy */
    } runs[] = {{"checkpoint.every_steps=4", "checkpoint.keep=3", 6, true},
                {"checkpoint.every_steps=0", "checkpoint.keep=3", 3, true},
                {"checkpoint.every_steps=4", "checkpoint.keep=1", 6, false}};
    for (size_t i = 0; i < TRI_COUNT_OF(runs); i++) {
        char stop[32];
        snprintf(stop, sizeof(stop), "train.steps=%lld", (long long)runs[i].stop);
        const char *const whole[] = {"train.on_nonfinite=rollback", runs[i].every, runs[i].keep, NULL};
        const char *const half[] = {"train.on_nonfinite=rollback", runs[i].every, runs[i].keep, stop, NULL};
        const uint64_t alone = hash_with(1, whole);
        for (int world = 1; world <= 3; world += 2) {
            assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
            expect_run(&(train_case){.config = config, .overrides = half, .run_folder = RUN_FOLDER, .world = 2});
            uint64_t hash = expect_run(&(train_case){
                .config = config, .overrides = whole, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = world});
            assert_true((hash == alone) == runs[i].kept);
        }
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- what ends in words --- */

static void what_ends_the_run_and_what_cannot_be_is_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[5];
        tri_status status;
        const char *words;
    } cases[] = {
        {{NULL}, TRI_ENUMERIC, "step 6: the loss of step 6 is "},
        {{"train.on_nonfinite=skip", "train.on_spike=stop", "train.spike_window=4", NULL},
         TRI_ENUMERIC,
         "step 9: the loss of step 9 jumps to "},
        {{"train.on_nonfinite=skip", "train.guard_limit=1", NULL},
         TRI_ENUMERIC,
         "and guards have acted 1 times already (train.guard_limit)"},
        {{"parallel.sync=local", "train.on_nonfinite=rollback", NULL},
         TRI_ECONFIG,
         "train.on_nonfinite rollback needs all workers to skip the same steps: parallel.sync local"},
        {{"parallel.sync=diloco", "train.on_nonfinite=skip", "train.on_spike=skip", NULL},
         TRI_ECONFIG,
         "train.on_spike skip needs all workers to skip the same steps: parallel.sync diloco"},
        {{"parallel.sync=ps", "train.on_spike=rollback", NULL},
         TRI_ECONFIG,
         "train.on_spike rollback needs all workers to skip the same steps: parallel.sync ps"},
        {{"train.precision=f16", "train.on_nonfinite=skip", NULL},
         TRI_ECONFIG,
         "train.on_nonfinite skip: with train.precision f16 the loss scale skips steps"},
        {{"train.on_nonfinite=ignore", NULL}, TRI_ECONFIG, "train.on_nonfinite"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        for (int world = 1; world <= 2; world++) {
            train_outcome outcome =
                train_threads(&(train_case){.config = config, .overrides = cases[i].overrides, .world = world});
            if (outcome.status != cases[i].status || !strstr(outcome.message, cases[i].words))
                fail_msg("want '%s', got '%s'", cases[i].words, outcome.message);
        }
    train_outcome outcome =
        train_threads(&(train_case){.config = gpt, .world = 2, .before_step = spoil_gradients}); /* clips */
    assert_int_equal(outcome.status, TRI_ENUMERIC);
    assert_non_null(strstr(outcome.message, "step 3: the gradient of step 3 is NaN or Inf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_leaves_out_the_same_steps),
        cmocka_unit_test(meshes_see_gradients_that_are_no_numbers),
        cmocka_unit_test(without_clipping_gradients_are_looked_at_too),
        cmocka_unit_test(meshes_see_losses_that_jump),
        cmocka_unit_test(compressed_sums_keep_nothing_of_a_step_that_is_left_out),
        cmocka_unit_test(nor_do_those_of_hosts),
        cmocka_unit_test(nor_of_a_loss_that_jumps),
        cmocka_unit_test(workers_apart_leave_out_their_own_steps),
        cmocka_unit_test(the_others_make_the_step_that_one_leaves_out),
        cmocka_unit_test(a_step_that_is_skipped_moves_nothing),
        cmocka_unit_test(rolling_back_brings_the_weights_of_the_latest_copy),
        cmocka_unit_test(what_guards_do_is_told),
        cmocka_unit_test(weights_that_are_back_do_not_jump_again),
        cmocka_unit_test(a_resumed_run_judges_as_if_it_had_not_stopped),
        cmocka_unit_test(a_resumed_run_rolls_back_as_if_it_had_not_stopped),
        cmocka_unit_test(what_ends_the_run_and_what_cannot_be_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
