/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c: what `--dry-run` says that a rank takes is what its job allocates: two layouts are opened by all their
 * ranks, and the difference between them is the one that was foretold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ranks/train/train_ranks.h"
#include "tier.h"
#include "train/core/job.h"
#include "train/core/plan.h"

static const char mlp[] = "model: {name: mlp, hidden: [256, 256, 256, 256]}\n"
                          "data: {name: synthetic, synthetic_count: 64, synthetic_width: 256}\n"
                          "train: {batch: 32, shards: 8, steps: 1, seed: 7, threads: 1, device: cpu}\n"
                          "optim: {lr: 0.05, momentum: 0.9}\n"
                          "parallel: {bucket_kib: 256}\n";

static const char gpt[] = "model: {name: gpt2, n_layer: 4, n_head: 2, n_embd: 160}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 64, synthetic_count: 64, "
                          "synthetic_width: 64}\n"
                          "train: {batch: 32, shards: 16, steps: 1, seed: 7, threads: 1, device: cpu}\n"
                          "optim: {name: adamw, lr: 0.01}\n"
                          "parallel: {bucket_kib: 64}\n";

typedef struct memory_case {
    const char *config;
    int world;
    const char *one[8], *other[8];
} memory_case;

/* Of all ranks, those of a stage taken to be alike; with what is not counted: windows that files pass through, one on
 * each rank and another on rank 0 (train/checkpointing/shard_map.h). */
static double foretold(const memory_case *at, const char *const *overrides)
{
    tri_config config;
    tri_mesh mesh;
    double sum = 0, window = (double)TRI_SHARD_MAP_WINDOW * sizeof(float);
    assert_int_equal(tri_config_load(NULL, at->config, overrides, &config), TRI_OK);
    assert_int_equal(tri_mesh_shape(&config.parallel, at->world, &mesh), TRI_OK);
    for (int stage = 0; stage < mesh.pipeline; stage++) {
        tri_job_memory memory;
        if (tri_job_stage_plan(&config, at->world, stage, &memory) != TRI_OK)
            fail_msg("%s", tri_last_error());
        sum += (double)(memory.weights + memory.gradients + memory.optimizer + memory.activations) * mesh.data;
    }
    tri_spread spread = tri_sync_spread(&config.parallel, mesh.zero);
    bool two = spread == TRI_SPREAD_STATE || spread == TRI_SPREAD_GRADIENTS; /* of weights, and of the rest */
    tri_config_fini(&config);
    return sum + (two ? 2 : 1) * (at->world + 1) * window;
}

static double found(const memory_case *at, const char *const *overrides)
{
    train_outcome outcome =
        train_fibers(&(train_case){.config = at->config, .overrides = overrides, .world = at->world}, 1);
    if (outcome.status != TRI_OK)
        fail_msg("%s: %s", overrides[0], outcome.message);
    return (double)outcome.live_nbytes;
}

/* Tables of all kinds are not counted; pools are there when a step needs them. */
static void expect_foretold(const memory_case *at)
{
    double wanted = foretold(at, at->other) - foretold(at, at->one), real = found(at, at->other) - found(at, at->one);
    double slack = 0.04 * (wanted > 0 ? wanted : -wanted) + 24e3 * at->world;
    assert_true(wanted > 8 * slack || wanted < -8 * slack || wanted == 0); /* or the case says nothing */
    if (real < wanted - slack || real > wanted + slack)
        fail_msg("%d ranks, %s %s: foretold %.0f bytes more than with %s %s, got %.0f", at->world, at->other[0],
                 at->other[1], wanted, at->one[0], at->one[1], real);
}

static void compressed_sums_take_what_was_foretold(void **state)
{
    (void)state;
    static const memory_case cases[] = {
        {mlp, 4, {"parallel.compress=none"}, {"parallel.compress=bf16"}},
        {mlp, 4, {"parallel.compress=none"}, {"parallel.compress=int8"}},
        {mlp, 3, {"parallel.compress=none"}, {"parallel.compress=topk", "parallel.compress_fraction=0.1"}},
        {mlp, 4, {"parallel.compress=none"}, {"parallel.compress=powersgd", "parallel.compress_rank=8"}},
        {mlp, 3, {"parallel.compress=none"}, {"parallel.compress=powersgd", "parallel.compress_residual=none"}},
        {mlp, 4, {"parallel.compress=int8"}, {"parallel.compress=int8", "train.on_nonfinite=skip"}},
        {mlp, 3, {"parallel.compress=powersgd"}, {"parallel.compress=powersgd", "train.on_spike=skip"}},
        {mlp,
         3,
         {"parallel.compress=powersgd", "parallel.compress_residual=none"},
         {"parallel.compress=powersgd", "parallel.compress_residual=none", "train.on_nonfinite=rollback"}},
        {mlp, 4, {"parallel.sync=local", "parallel.local_steps=1"}, {"parallel.sync=diloco", "parallel.local_steps=1"}},
        {mlp,
         4,
         {"parallel.sync=diloco", "parallel.local_steps=2", "parallel.outer_fragments=2"},
         {"parallel.sync=diloco", "parallel.local_steps=2", "parallel.outer_fragments=2", "parallel.compress=int8"}},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        expect_foretold(&cases[i]);
}

static void stages_take_what_was_foretold(void **state)
{
    (void)state;
    static const memory_case cases[] = {
        /* more levels of partial sums, smaller micro-batches */
        {gpt,
         2,
         {"parallel.pipeline=2", "train.shards_at_once=8", "parallel.schedule=gpipe"},
         {"parallel.pipeline=2", "train.shards_at_once=1", "parallel.schedule=gpipe"}},
        {gpt, 2, {"parallel.pipeline=2"}, {"parallel.pipeline=2", "parallel.schedule=gpipe"}},
        {gpt,
         2,
         {"parallel.pipeline=2", "train.shards_at_once=2"},
         {"parallel.pipeline=2", "train.shards_at_once=2", "parallel.schedule=interleaved", "parallel.chunks=4"}},
        {gpt, 4, {"parallel.pipeline=2"}, {"parallel.pipeline=4"}},
    };
    for (size_t i = 0; i < tests_count(TRI_COUNT_OF(cases), 2); i++)
        expect_foretold(&cases[i]);
}

static void spread_state_takes_what_was_foretold(void **state)
{
    (void)state;
    static const memory_case cases[] = {
        {gpt, 4, {"parallel.sync=allreduce"}, {"parallel.sync=zero1"}},
        {gpt, 4, {"parallel.sync=zero1"}, {"parallel.sync=zero2"}},
        {gpt, 4, {"parallel.sync=zero1", "parallel.zero_ranks=2"}, {"parallel.sync=zero1"}},
        {gpt, 4, {"parallel.sync=zero2"}, {"parallel.sync=zero2", "parallel.zero_ranks=2"}},
        {gpt, 4, {"parallel.pipeline=2"}, {"parallel.pipeline=2", "parallel.sync=zero1"}},
    };
    for (size_t i = 0; i < tests_count(TRI_COUNT_OF(cases), 2); i++)
        expect_foretold(&cases[i]);
}

static void copies_to_roll_back_to_take_what_was_foretold(void **state)
{
    (void)state;
    static const memory_case cases[] = {
        {gpt, 2, {"train.on_nonfinite=skip"}, {"train.on_nonfinite=rollback"}},
        {gpt, 3, {"train.on_spike=skip", "parallel.sync=zero2"}, {"train.on_spike=rollback", "parallel.sync=zero2"}},
        {gpt, 3, {"train.on_spike=skip", "parallel.sync=zero3"}, {"train.on_spike=rollback", "parallel.sync=zero3"}},
    };
    for (size_t i = 0; i < tests_count(TRI_COUNT_OF(cases), 1); i++)
        expect_foretold(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_sums_take_what_was_foretold),
        cmocka_unit_test(spread_state_takes_what_was_foretold),
        cmocka_unit_test(stages_take_what_was_foretold),
        cmocka_unit_test(copies_to_roll_back_to_take_what_was_foretold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
