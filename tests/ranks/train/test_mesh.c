/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mesh.c: the promise in every layout: layers that are shared out, stages, shards of the batch and of the state,
 * and all of them together give the weights of one process; and files go from any layout to any other.
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
#include "tier.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-mesh-run"

/* Tied weights, dropout, clipping, a vocabulary that 4 does not divide, batches that do not come out even. */
static const char gpt[] = "model: {name: gpt2, n_layer: 4, n_head: 4, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
                          "synthetic_width: 12}\n"
                          "train: {batch: 20, shards: 8, epochs: 5, seed: 7, threads: 1}\n"
                          "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
                          "parallel: {bucket_kib: 4, tensor_parts: 4}\n";

/* Grouped queries. */
static const char llama[] =
    "model: {name: llama, num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 4, "
    "hidden_size: 32, intermediate_size: 24}\n"
    "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
    "synthetic_width: 12}\n"
    "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
    "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, clip_norm: 1}\n"
    "parallel: {bucket_kib: 4, tensor_parts: 4}\n";

static const char mlp[] = "model: {name: mlp, hidden: [48, 24, 16]}\n"
                          "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                          "train: {batch: 50, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {lr: 0.05, momentum: 0.9}\n"
                          "parallel: {bucket_kib: 1, tensor_parts: 4}\n";

/* The same overrides with those of a layout. */
static const char *const *join(const char *const *common, const char *const *layout)
{
    static const char *all[32];
    int count = 0;
    for (; common && *common; common++)
        all[count++] = *common;
    for (; layout && *layout; layout++)
        all[count++] = *layout;
    all[count] = NULL;
    return all;
}

typedef struct mesh_layout {
    int world;
    const char *layout[6];
} mesh_layout;

static void expect_layouts(const char *config, const char *const *common, const mesh_layout *layouts, size_t count)
{
    uint64_t alone = expect_run(&(train_case){.config = config, .overrides = join(common, NULL), .world = 1});
    for (size_t i = 0; i < count; i++) {
        train_case test = {.config = config, .overrides = join(common, layouts[i].layout), .world = layouts[i].world};
        if (expect_run(&test) != alone)
            fail_msg("%d ranks, %s %s: other weights", layouts[i].world, layouts[i].layout[0], layouts[i].layout[1]);
    }
}

static const mesh_layout tensors[] = {
    {2, {"parallel.tensor=2"}},
    {4, {"parallel.tensor=4"}},
    {4, {"parallel.tensor=2", "parallel.data=2"}},
    {8, {"parallel.tensor=4", "parallel.data=auto"}},
    {6, {"parallel.tensor=2", "parallel.sync=zero1"}},
    {4, {"parallel.tensor=2", "parallel.sync=zero2"}},
    {4, {"parallel.tensor=2", "parallel.sync=zero3"}},
    {4, {"parallel.tensor=4", "train.threads=2"}},
};

static void tensor_ranks_change_nothing(void **state)
{
    (void)state;
    const char *const twice[] = {"train.epochs=2", NULL};
    const char *const bf16[] = {"train.precision=bf16", "train.epochs=1", NULL};
    const char *const kept[] = {"model.checkpoint=true", "train.epochs=1", NULL};
    const char *const tokens[] = {"parallel.sequence=true", "train.epochs=1", NULL};
    const char *const tokens_bf16[] = {"parallel.sequence=true", "train.epochs=1", "train.precision=bf16", NULL};
    const size_t few = tests_count(TRI_COUNT_OF(tensors), 2);
    expect_layouts(gpt, tokens, tensors, tests_count(TRI_COUNT_OF(tensors), 4));
    expect_layouts(gpt, tokens_bf16, tensors, few);
    expect_layouts(llama, tokens, tensors, few);
    expect_layouts(gpt, twice, tensors, TRI_COUNT_OF(tensors));
    expect_layouts(gpt, bf16, tensors, few);
    expect_layouts(gpt, kept, tensors, 2);
    expect_layouts(llama, twice, tensors, few);
    expect_layouts(mlp, NULL, tensors, TRI_COUNT_OF(tensors));
}

static const mesh_layout pipelines[] = {
    {2, {"parallel.pipeline=2"}},
    {2, {"parallel.pipeline=2", "parallel.schedule=gpipe", "train.shards_at_once=2"}},
    {2, {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"}},
    {4, {"parallel.pipeline=4", "parallel.schedule=gpipe"}},
    {4, {"parallel.pipeline=4", "train.threads=2"}},
    {4, {"parallel.pipeline=auto", "parallel.data=2"}},
    {6, {"parallel.pipeline=2", "parallel.sync=zero1"}},
};

/* State, gradients and weights of each stage spread over those who have it. */
static const mesh_layout spread_stages[] = {
    {4, {"parallel.pipeline=2", "parallel.sync=zero2"}},
    {4, {"parallel.pipeline=2", "parallel.sync=zero3", "train.eval_every=1"}},
    {6, {"parallel.pipeline=2", "parallel.sync=zero2"}},
    {4, {"parallel.pipeline=2", "parallel.sync=zero3", "parallel.schedule=gpipe", "train.shards_at_once=2"}},
    {4, {"parallel.pipeline=2", "parallel.sync=zero3", "parallel.schedule=interleaved", "parallel.chunks=2"}},
    {4, {"parallel.pipeline=2", "parallel.sync=zero2", "parallel.schedule=interleaved", "parallel.chunks=2"}},
    {8, {"parallel.pipeline=2", "parallel.sync=zero3", "parallel.overlap=false"}},
    {8, {"parallel.pipeline=2", "parallel.sync=zero3", "parallel.zero_ranks=2"}},
    {8, {"parallel.pipeline=4", "parallel.sync=zero3", "train.threads=2"}},
    {8, {"parallel.pipeline=4", "parallel.sync=zero1"}},
};

/* Residual connections, running statistics. */
static const char resnet[] = "model:\n"
                             "  layers:\n"
                             "    - reshape: [4, 4, 2]\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - flatten\n"
                             "    - dropout: 0.25\n"
                             "    - linear: {out: 24, relu: true}\n"
                             "    - linear: classes\n"
                             "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                             "train: {batch: 50, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                             "optim: {name: adamw, lr: 0.01, weight_decay: 0.01, clip_norm: 1}\n"
                             "parallel: {bucket_kib: 1}\n";

static void stages_change_nothing(void **state)
{
    (void)state;
    const char *const twice[] = {"train.epochs=2", NULL};
    const char *const bf16[] = {"train.precision=bf16", "train.epochs=1", NULL};
    const char *const kept[] = {"model.checkpoint=true", "train.epochs=1", NULL};
    const char *const frozen[] = {"model.freeze=[wte.*, h.0.*]", "train.epochs=1", NULL};
    const char *const whole[] = {"parallel.tensor_parts=1", "optim.groups=[{match: '*wte*', lr_scale: 2}]", NULL};
    expect_layouts(gpt, twice, pipelines, TRI_COUNT_OF(pipelines));
    expect_layouts(gpt, whole, pipelines, tests_count(TRI_COUNT_OF(pipelines), 2));
    expect_layouts(gpt, bf16, pipelines, tests_count(3, 1));
    expect_layouts(gpt, kept, pipelines, tests_count(3, 1));
    expect_layouts(gpt, frozen, pipelines, tests_count(3, 1));
    expect_layouts(resnet, NULL, pipelines, tests_count(TRI_COUNT_OF(pipelines), 2));
    expect_layouts(gpt, twice, spread_stages, TRI_COUNT_OF(spread_stages));
    expect_layouts(gpt, whole, spread_stages, tests_count(TRI_COUNT_OF(spread_stages), 1));
    expect_layouts(gpt, bf16, spread_stages, tests_count(5, 1));
    expect_layouts(gpt, kept, spread_stages, tests_count(5, 1));
    expect_layouts(gpt, frozen, spread_stages, tests_count(5, 1));
    expect_layouts(resnet, NULL, spread_stages, tests_count(TRI_COUNT_OF(spread_stages), 1));
}

static const mesh_layout hybrids[] = {
    {8, {"parallel.data=2", "parallel.tensor=2", "parallel.pipeline=2"}},
    {8, {"parallel.data=2", "parallel.tensor=2", "parallel.pipeline=2", "parallel.sync=zero1"}},
    {8, {"parallel.data=2", "parallel.tensor=2", "parallel.pipeline=2", "parallel.sync=zero3"}},
    {8, {"parallel.tensor=4", "parallel.pipeline=2", "parallel.schedule=gpipe"}},
    {8, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"}},
};

static void data_tensor_and_stages_together_change_nothing(void **state)
{
    (void)state;
    const char *const twice[] = {"train.epochs=2", NULL};
    const char *const bf16[] = {"train.precision=bf16", "train.epochs=1", NULL};
    const char *const tokens[] = {"parallel.sequence=true", "train.epochs=1", NULL};
    expect_layouts(gpt, twice, hybrids, TRI_COUNT_OF(hybrids));
    expect_layouts(gpt, tokens, hybrids, tests_count(TRI_COUNT_OF(hybrids), 1));
    expect_layouts(gpt, bf16, hybrids, tests_count(2, 1));
}

static void whatever_comes_first_stages_end_alike(void **state)
{
    (void)state;
    static const mesh_layout cases[] = {
        {4, {"parallel.pipeline=2", "parallel.sync=zero3", "train.epochs=1"}},
        {8, {"parallel.pipeline=2", "parallel.tensor=2", "parallel.sync=zero3", "train.epochs=1"}},
        {4,
         {"parallel.pipeline=2", "parallel.sync=zero3", "parallel.schedule=interleaved", "parallel.chunks=2",
          "train.epochs=1"}},
        {6,
         {"parallel.pipeline=2", "parallel.sync=zero2", "parallel.schedule=interleaved", "parallel.chunks=2",
          "train.epochs=1"}},
        {8,
         {"parallel.pipeline=4", "parallel.sync=zero1", "parallel.schedule=gpipe", "parallel.bucket_kib=1",
          "train.epochs=1"}},
        {8,
         {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2", "parallel.bucket_kib=1",
          "train.epochs=1"}},
        {6,
         {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2", "parallel.bucket_kib=1",
          "train.epochs=1"}},
    };
    const char *const once[] = {"train.epochs=1", NULL};
    uint64_t alone = expect_run(&(train_case){.config = gpt, .overrides = once, .world = 1});
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        for (uint64_t seed = 1; seed <= tests_count(8, 3); seed++) {
            train_case test = {
                .config = gpt, .overrides = cases[i].layout, .world = cases[i].world, .ranks_per_host = 2};
            train_outcome outcome = train_fibers(&test, seed);
            if (outcome.status != TRI_OK)
                fail_msg("case %zu, seed %llu: %s", i, (unsigned long long)seed, outcome.message);
            assert_true(outcome.all_equal);
            assert_int_equal(outcome.hash, alone);
        }
}

static void stages_in_the_middle_hold_no_samples(void **state)
{
    (void)state;
    const char *const layout[] = {"parallel.pipeline=4", "train.steps=1", "parallel.tensor_parts=1", NULL};
    train_outcome stages = train_threads(&(train_case){.config = mlp, .overrides = layout, .world = 4});
    train_outcome whole = train_threads(&(train_case){.config = mlp, .overrides = layout + 1, .world = 1});
    assert_int_equal(stages.status, TRI_OK);
    assert_int_equal(stages.hash, whole.hash);
    assert_int_equal(stages.held_nbytes, 0);
    assert_true(whole.held_nbytes > 210 * 32);
}

/* --- files --- */

static void a_run_goes_on_in_another_layout(void **state)
{
    (void)state;
    static const mesh_layout layouts[] = {
        {1, {NULL}},
        {4, {"parallel.tensor=4"}},
        {4, {"parallel.tensor=2", "parallel.sync=zero3"}},
        {2, {"parallel.pipeline=2"}},
        {3, {"parallel.sync=zero2"}},
        {8, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.sync=zero1"}},
        {4, {"parallel.pipeline=2", "parallel.sync=zero3"}},
        {8, {"parallel.pipeline=2", "parallel.sync=zero3", "parallel.zero_ranks=2"}},
        {2, {"parallel.data=2"}},
        {4, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"}},
    };
    uint64_t wanted = expect_run(&(train_case){.config = gpt, .world = 1});
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    for (size_t i = 0; i < TRI_COUNT_OF(layouts); i++) {
        char steps[32];
        bool last = i + 1 == TRI_COUNT_OF(layouts);
        snprintf(steps, sizeof(steps), "train.steps=%zu", last ? (size_t)0 : 2 * (i + 1));
        const char *const part[] = {steps, NULL};
        train_case test = {.config = gpt,
                           .overrides = join(part, layouts[i].layout),
                           .run_folder = RUN_FOLDER,
                           .resume = i > 0 ? RUN_FOLDER : NULL,
                           .world = layouts[i].world};
        uint64_t hash = expect_run(&test);
        if (last)
            assert_int_equal(hash, wanted);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- refusals --- */

static void what_cannot_be_is_refused_with_the_arithmetic(void **state)
{
    (void)state;
    static const struct {
        int world;
        const char *layout[4], *words;
    } cases[] = {
        {2, {"parallel.tensor=3"}, "data auto x tensor 3 x pipeline 1 needs a multiple of 3 ranks, but 2 take part"},
        {3, {"parallel.tensor=3"}, "parallel.tensor: want a power of two, got 3"},
        {4,
         {"parallel.tensor=4", "parallel.tensor_parts=2"},
         "parallel.tensor_parts: want a power of two that parallel.tensor (4) divides, got 2"},
        {2, {"parallel.tensor=2", "parallel.tensor_parts=8"}, "n_head"},
        {8,
         {"parallel.pipeline=8", "parallel.chunks=64", "parallel.schedule=interleaved"},
         "want 8 x 64 stages, the model has"},
        {2, {"parallel.pipeline=2", "parallel.schedule=interleaved"}, "interleaved"},
        {6,
         {"parallel.pipeline=2", "parallel.sync=zero3"},
         "parallel.pipeline: with parallel.sync zero3 all ranks go through the weights equally often: want a number of "
         "ranks that divides train.shards, 8, got 3"},
        {2, {"parallel.pipeline=2", "parallel.cut_at=[h.2, h.3]"}, "2 cuts make 3 stages"},
        {2, {"parallel.pipeline=2", "parallel.cut_at=[h.9]"}, "h.9"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        train_case test = {.config = gpt, .overrides = cases[i].layout, .world = cases[i].world};
        train_outcome outcome = train_threads(&test);
        if (outcome.status != TRI_ECONFIG)
            fail_msg("%s: want a refusal, got %d: %s", cases[i].words, (int)outcome.status, outcome.message);
        if (!strstr(outcome.message, cases[i].words))
            fail_msg("want '%s' in: %s", cases[i].words, outcome.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_ranks_change_nothing),
        cmocka_unit_test(stages_change_nothing),
        cmocka_unit_test(data_tensor_and_stages_together_change_nothing),
        cmocka_unit_test(whatever_comes_first_stages_end_alike),
        cmocka_unit_test(stages_in_the_middle_hold_no_samples),
        cmocka_unit_test(a_run_goes_on_in_another_layout),
        cmocka_unit_test(what_cannot_be_is_refused_with_the_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
