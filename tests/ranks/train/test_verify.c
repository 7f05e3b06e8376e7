/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify.c: bits that flip in one replica's weights or optimizer state: found at the next comparison, named,
 * repaired from the majority, and the run ends with the weights of a quiet one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/rng.h"
#include "checkpoint/manifest.h"
#include "ranks/train/train_expect.h"
#include "train/checkpointing/resume.h"
#include "train/core/features.h"
#include "train/core/job.h"
#include "train/core/step.h"

#define RUN_FOLDER "trireme-test-verify-run"

static const char mlp[] = "model: {layers: [linear: {out: 24, relu: true}, batch_norm, linear: {out: 24, relu: true}, "
                          "linear: classes]}\n"
                          "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                          "train: {batch: 30, shards: 8, epochs: 5, seed: 7, threads: 1, verify_every: 1}\n"
                          "optim: {lr: 0.05, momentum: 0.9}\n"
                          "parallel: {bucket_kib: 1}\n";
static const char gpt[] =
    "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1}\n"
    "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, synthetic_width: 20}\n"
    "train: {batch: 20, shards: 8, epochs: 3, seed: 7, threads: 1, verify_every: 1}\n"
    "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
    "parallel: {bucket_kib: 4, tensor_parts: 2}\n";

/* --- flips --- */

static struct {
    int rank;
    int64_t step;
    int array; /* 0: weights, 1: the optimizer's first array, .. */
    int every; /* steps from one flip to the next, of a random rank; 0: one flip */
    int turns; /* each of so many ranks once, one after the other, from `step` on; 0: one flip */
} flip;

static void bit_flip(tri_job *job)
{
    const tri_params *params = job->params;
    int64_t count = params->share ? params->share_elements : params->count;
    float *values = flip.array == 0 ? params->values : tri_optim_state(job->optim, flip.array - 1);
    tri_rng rng = {(uint64_t)job->step, tri_rng_stream("flip", 0, 0)};
    bool now = flip.every > 0
                   ? job->step % flip.every == 0 && (int)tri_rng_below(rng, 0, (uint64_t)job->world) == job->rank
               : flip.turns > 0
                   ? job->step >= flip.step && job->step < flip.step + flip.turns && job->step - flip.step == job->rank
                   : job->step == flip.step && job->rank == flip.rank;
    if (!now)
        return;
    assert_int_equal(tri_job_settle(job), TRI_OK);
    uint32_t bits = 0;
    uint64_t at = 2;
    float *value = NULL;
    while (bits << 1 == 0) { /* not in a gap */
        value = values + tri_rng_below(rng, at++, (uint64_t)(flip.array == 0 ? count : tri_optim_count(job->optim)));
        tri_device_to_host(job->device, &bits, value, sizeof(bits));
    }
    bits ^= 1u << tri_rng_below(rng, 1, 32);
    tri_device_from_host(job->device, value, &bits, sizeof(bits));
}

static uint64_t repairs_of(const train_case *test, train_outcome *outcome)
{
    uint64_t before = tri_counter_now(TRI_COUNT_REPAIRS);
    *outcome = train_threads(test);
    return tri_counter_now(TRI_COUNT_REPAIRS) - before;
}

static const struct {
    const char *config, *layout[5];
    int world;
} layouts[] = {
    {mlp, {NULL}, 3},
    {mlp, {"train.threads=2", "train.shards_at_once=1", NULL}, 5},
    {mlp, {"parallel.ahead=on", NULL}, 3},
    {mlp, {"parallel.sync=zero1", NULL}, 3},
    {mlp, {"parallel.sync=zero2", "parallel.overlap=false", NULL}, 4},
    {mlp, {"parallel.sync=zero2", "parallel.zero_ranks=2", NULL}, 6},
    {mlp, {"parallel.sync=zero3", "parallel.zero_ranks=2", NULL}, 6},
    {mlp, {"comm.order=any", NULL}, 3},
    {mlp, {"parallel.compress=int8", "parallel.compress_between=ranks", "train.on_nonfinite=skip", NULL}, 3},
    {mlp, {"parallel.compress=int8", "parallel.compress_between=ranks", NULL}, 3},
    {mlp, {"parallel.compress=topk", "parallel.compress_between=ranks", NULL}, 3},
    {gpt, {"parallel.compress=powersgd", "parallel.compress_between=ranks", NULL}, 4},
    {gpt, {NULL}, 3},
    {gpt, {"parallel.tensor=2", NULL}, 6},
    {gpt, {"parallel.pipeline=2", NULL}, 6},
    {gpt, {"parallel.pipeline=2", "parallel.sync=zero1", NULL}, 6},
};

static void a_flipped_bit_is_found_and_the_run_ends_as_a_quiet_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(layouts); i++)
        for (int rank = 0; rank < layouts[i].world; rank += 2) {
            train_case test = {.config = layouts[i].config, .overrides = layouts[i].layout, .world = layouts[i].world};
            train_outcome quiet, outcome;
            assert_int_equal(repairs_of(&test, &quiet), 0);
            assert_int_equal(quiet.status, TRI_OK);
            flip.rank = rank;
            flip.step = 5 + rank;
            flip.array = flip.every = 0;
            test.before_step = bit_flip;
            uint64_t repairs = repairs_of(&test, &outcome);
            if (outcome.status != TRI_OK || !outcome.all_equal || outcome.hash != quiet.hash || repairs == 0)
                fail_msg("layout %zu, rank %d: %d repairs, %s", i, rank, (int)repairs, outcome.message);
        }
}

/* Nobody looks: the flip stays, and others see it. */
static void without_comparing_the_run_ends_otherwise(void **state)
{
    (void)state;
    const char *const off[] = {"train.verify_every=off", NULL};
    train_outcome quiet, outcome;
    train_case test = {.config = mlp, .overrides = off, .world = 3};
    assert_int_equal(repairs_of(&test, &quiet), 0);
    flip.rank = 1;
    flip.step = 5;
    flip.array = flip.every = 0;
    test.before_step = bit_flip;
    assert_int_equal(repairs_of(&test, &outcome), 0);
    assert_int_equal(outcome.status, TRI_OK);
    assert_true(!outcome.all_equal && outcome.hash != quiet.hash);
}

/* What the newest manifest says. */
static void check_bits(const char *wanted)
{
    char *path;
    tri_manifest manifest;
    assert_int_equal(tri_checkpoint_newest(RUN_FOLDER "/checkpoints", &path, NULL), TRI_OK);
    assert_int_equal(tri_manifest_load(path, &manifest), TRI_OK);
    assert_string_equal(manifest.run.bits, wanted);
    tri_manifest_fini(&manifest);
    tri_free(path);
}

static void the_rank_and_the_tensor_are_named(void **state)
{
    (void)state;
    train_outcome quiet = expect_outcome(&(train_case){.config = mlp, .world = 3}), outcome;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    flip.rank = 2;
    flip.step = 6;
    flip.array = flip.every = 0;
    train_case test = {.config = mlp, .run_folder = RUN_FOLDER, .world = 3, .before_step = bit_flip};
    repairs_of(&test, &outcome);
    assert_true(outcome.status == TRI_OK && outcome.hash == quiet.hash);
    assert_int_equal(
        lines_with(RUN_FOLDER,
                   "{\"step\":6,\"event\":\"repair\",\"text\":\"before step 6 weights differ from the other "
                   "replicas': rank 2 ("),
        1);
    assert_int_equal(lines_with(RUN_FOLDER, "), first in "), 1);
    assert_int_equal(lines_with(RUN_FOLDER, ".weight: repaired from these"), 1);
    assert_int_equal(lines_with(RUN_FOLDER, "\"event\""), 2); /* with that of the run itself */
    check_bits("reproducible");
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* Between the comparison that comes before a checkpoint and the copy of what goes there. */
static void flip_and_save(tri_job *job)
{
    extern const tri_feature tri_feature_replicas;
    if (job->step != flip.step)
        return;
    assert_int_equal(tri_feature_replicas.run(job), TRI_OK);
    bit_flip(job);
    if (tri_job_save(job) != TRI_OK) /* it is looked for in the log; the others wait for this rank */
        assert_int_equal(tri_job_await_all(job), TRI_OK);
}

static void a_bit_that_flips_before_it_is_copied_is_in_no_checkpoint(void **state)
{
    (void)state;
    const char *const kept[] = {"checkpoint.keep=100", NULL};
    train_outcome quiet = expect_outcome(&(train_case){.config = mlp, .world = 3}), outcome;
    for (int rank = 0; rank < 2; rank++) { /* rank 0 writes */
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        flip.rank = rank;
        flip.step = 6;
        flip.array = flip.every = 0;
        train_case test = {
            .config = mlp, .overrides = kept, .run_folder = RUN_FOLDER, .world = 3, .before_step = flip_and_save};
        assert_true(repairs_of(&test, &outcome) > 0);
        assert_true(outcome.status == TRI_OK && outcome.hash == quiet.hash);
        assert_int_equal(lines_with(RUN_FOLDER, "changed in memory while it was copied"), rank == 0 ? 1 : 0);
        assert_int_equal(tri_fs_exists(RUN_FOLDER "/checkpoints/step-00000006"), rank != 0);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void the_state_of_an_optimizer_is_repaired_with_the_weights(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        train_outcome quiet = expect_outcome(&(train_case){.config = gpt, .world = 3}), outcome;
        flip.rank = rank;
        flip.step = 4;
        flip.array = 1;
        flip.every = 0;
        train_case test = {.config = gpt, .world = 3, .before_step = bit_flip};
        assert_int_equal(repairs_of(&test, &outcome), 3); /* once: each rank counts */
        assert_true(outcome.status == TRI_OK && outcome.all_equal && outcome.hash == quiet.hash);
    }
    flip.array = 0;
}

static void hundreds_of_flips_leave_no_trace(void **state)
{
    (void)state;
    const char *const long_run[] = {"train.epochs=50", "train.guard_limit=0", "train.eval_every=0", NULL};
    for (int world = 3; world <= 5; world++) {
        train_case test = {.config = mlp, .overrides = long_run, .world = world};
        train_outcome quiet, outcome;
        assert_int_equal(repairs_of(&test, &quiet), 0);
        flip.array = 0;
        flip.every = 1;
        test.before_step = bit_flip;
        assert_true(repairs_of(&test, &outcome) >= (uint64_t)(350 * world)); /* each rank counts */
        assert_true(outcome.status == TRI_OK && outcome.all_equal && outcome.hash == quiet.hash);
    }
    flip.every = 0;
}

/* --- the last step --- */

static tri_status flip_late(void *arg, const tri_gradient *gradient)
{
    tri_job *job = arg;
    float value;
    if (gradient->step == job->progress.steps - 1 && job->rank == 1) {
        tri_device_to_host(job->device, &value, job->params->values + 3, sizeof(value));
        value += 1;
        tri_device_from_host(job->device, job->params->values + 3, &value, sizeof(value));
    }
    return TRI_OK;
}

static void hook_flips_late(tri_job *job)
{
    if (job->step == job->progress.first_step)
        tri_job_gradient_hook(job, flip_late, job);
}

static void what_is_saved_at_the_end_is_compared_before(void **state)
{
    (void)state;
    train_case test = {.config = mlp, .world = 3};
    train_outcome quiet, outcome;
    assert_int_equal(repairs_of(&test, &quiet), 0);
    test.before_step = hook_flips_late;
    assert_true(repairs_of(&test, &outcome) > 0);
    assert_true(outcome.status == TRI_OK && outcome.all_equal && outcome.hash == quiet.hash);
}

/* --- intervals, and what ends in words --- */

static void between_comparisons_a_flip_waits(void **state)
{
    (void)state;
    const char *const fours[] = {"train.verify_every=4", "checkpoint.every_epochs=0", NULL};
    train_outcome outcome;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    flip.rank = 1;
    flip.step = 5;
    flip.array = flip.every = 0;
    train_case test = {
        .config = mlp, .overrides = fours, .run_folder = RUN_FOLDER, .world = 3, .before_step = bit_flip};
    assert_true(repairs_of(&test, &outcome) > 0);
    assert_true(outcome.status == TRI_OK && outcome.all_equal);
    assert_int_equal(lines_with(RUN_FOLDER, "{\"step\":8,\"event\":\"repair\""), 1);
    check_bits("not reproducible (a flipped bit was in use for up to 4 steps before step 8)");
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void two_have_no_majority(void **state)
{
    (void)state;
    train_outcome outcome;
    flip.rank = 1;
    flip.step = 5;
    flip.array = flip.every = 0;
    train_case test = {.config = mlp, .world = 2, .before_step = bit_flip};
    assert_int_equal(repairs_of(&test, &outcome), 0);
    assert_int_equal(outcome.status, TRI_ENUMERIC);
    assert_non_null(
        strstr(outcome.message, "replicas of the weights differ before step 5, and none has a majority: rank 0 ("));
    assert_non_null(strstr(outcome.message, ", rank 1 ("));
    assert_non_null(strstr(outcome.message, ", first in "));
}

static void flips_without_end_end_the_run(void **state)
{
    (void)state;
    const char *const few[] = {"train.guard_limit=3", NULL};
    train_outcome outcome;
    flip.array = 0;
    flip.every = 1;
    train_case test = {.config = mlp, .overrides = few, .world = 3, .before_step = bit_flip};
    repairs_of(&test, &outcome);
    assert_int_equal(outcome.status, TRI_ENUMERIC);
    assert_non_null(strstr(outcome.message, "weights of rank "));
    assert_non_null(
        strstr(outcome.message, ", after 3 repairs (train.guard_limit): its memory or its processor fails"));
    flip.every = 0;
}

static void the_limit_is_of_each_rank(void **state)
{
    (void)state;
    const char *const one[] = {"train.guard_limit=1", NULL};
    train_case test = {.config = mlp, .overrides = one, .world = 5};
    train_outcome quiet = expect_outcome(&test), outcome;
    flip.step = 3;
    flip.array = 0;
    flip.turns = 5;
    test.before_step = bit_flip;
    assert_int_equal(repairs_of(&test, &outcome), 25); /* five: each rank counts */
    assert_true(outcome.status == TRI_OK && outcome.all_equal && outcome.hash == quiet.hash);
    flip.turns = 0;
}

static void options_that_cannot_be_are_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[3], *words;
    } cases[] = {
        {{"train.verify_every=sometimes", NULL},
         "train.verify_every: want auto, off or an integer, 1 to 999999999, got \"sometimes\""},
        {{"train.verify_every=0", NULL}, "got \"0\""},
        {{"train.verify_every=5", "parallel.sync=local", NULL},
         "with parallel.sync local no two workers have the same"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        train_outcome outcome =
            train_threads(&(train_case){.config = mlp, .overrides = cases[i].overrides, .world = 2});
        assert_int_equal(outcome.status, TRI_ECONFIG);
        if (!strstr(outcome.message, cases[i].words))
            fail_msg("want '%s', got '%s'", cases[i].words, outcome.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_is_found_and_the_run_ends_as_a_quiet_one),
        cmocka_unit_test(without_comparing_the_run_ends_otherwise),
        cmocka_unit_test(the_rank_and_the_tensor_are_named),
        cmocka_unit_test(a_bit_that_flips_before_it_is_copied_is_in_no_checkpoint),
        cmocka_unit_test(the_state_of_an_optimizer_is_repaired_with_the_weights),
        cmocka_unit_test(hundreds_of_flips_leave_no_trace),
        cmocka_unit_test(what_is_saved_at_the_end_is_compared_before),
        cmocka_unit_test(between_comparisons_a_flip_waits),
        cmocka_unit_test(two_have_no_majority),
        cmocka_unit_test(flips_without_end_end_the_run),
        cmocka_unit_test(the_limit_is_of_each_rank),
        cmocka_unit_test(options_that_cannot_be_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
