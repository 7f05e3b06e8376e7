/* SPDX-License-Identifier: Apache-2.0
 *
 * test_zero_ranks.c: several copies of a state that is spread, each over some of the ranks: the weights and the files
 * of one process, and fewer bytes between hosts.
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

#define RUN_FOLDER "trireme-test-zero-ranks-run"

static const char *const stages[] = {"parallel.sync=zero1", "parallel.sync=zero2", "parallel.sync=zero3"};

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
                           "train: {batch: 50, shards: 16, epochs: 2, seed: 7, threads: 1}\n"
                           "optim: {name: adamw, lr: 0.01, weight_decay: 0.01, clip_norm: 1, schedule: cosine}\n"
                           "parallel: {bucket_kib: 1}\n";

/* Tied weights. */
static const char gpt[] = "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, "
                          "synthetic_width: 20}\n"
                          "train: {batch: 20, shards: 16, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n"
                          "parallel: {bucket_kib: 4, tensor_parts: 2}\n";

static uint64_t hash_alone(const char *config, const char *decides)
{
    const char *const plain[] = {decides, NULL};
    return expect_run(&(train_case){.config = config, .overrides = plain, .world = 1});
}

static void copies_of_a_spread_state_change_nothing(void **state)
{
    (void)state;
    static const struct {
        int world;
        const char *zero_ranks;
    } cases[] = {{4, "parallel.zero_ranks=2"},   {8, "parallel.zero_ranks=4"}, {8, "parallel.zero_ranks=2"},
                 {6, "parallel.zero_ranks=3"},   {6, "parallel.zero_ranks=2"}, {9, "parallel.zero_ranks=3"},
                 {4, "parallel.zero_ranks=host"}};
    static const char *const configs[] = {conv, gpt};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        uint64_t alone = hash_alone(configs[c], NULL);
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++)
            for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
                const char *const layout[] = {stages[s], cases[i].zero_ranks, NULL};
                train_case test = {.config = configs[c], .overrides = layout, .world = cases[i].world};
                if (expect_run(&test) != alone)
                    fail_msg("%d ranks, %s, %s: other weights", cases[i].world, stages[s], cases[i].zero_ranks);
            }
    }
}

static void pieces_precision_parts_and_stages_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *config, *decides;
        int world;
        const char *zero_ranks, *layout[3];
    } cases[] = {
        {conv, NULL, 4, "parallel.zero_ranks=2", {"train.shards_at_once=1"}},
        {conv, NULL, 6, "parallel.zero_ranks=3", {"train.shards_at_once=1"}},
        {conv, NULL, 6, "parallel.zero_ranks=2", {"parallel.overlap=false", "train.threads=2"}},
        {conv, "train.precision=bf16", 6, "parallel.zero_ranks=2", {NULL}},
        {gpt, "train.precision=bf16", 4, "parallel.zero_ranks=2", {"model.checkpoint=true"}},
        {gpt, NULL, 8, "parallel.zero_ranks=2", {"parallel.tensor=2"}},
        {gpt, NULL, 8, "parallel.zero_ranks=2", {"parallel.pipeline=2"}},
        {conv, "optim.clip_norm=0", 8, "parallel.zero_ranks=4", {"parallel.bucket_kib=100000"}},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        uint64_t alone = hash_alone(cases[i].config, cases[i].decides);
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++) {
            const char *layout[8] = {stages[s], cases[i].zero_ranks, cases[i].decides};
            int count = cases[i].decides ? 3 : 2;
            bool pieces = false, pipeline = false;
            for (int k = 0; k < 3 && cases[i].layout[k]; k++) {
                layout[count++] = cases[i].layout[k];
                pieces = pieces || strstr(cases[i].layout[k], "at_once");
                pipeline = pipeline || strstr(cases[i].layout[k], "pipeline");
            }
            if ((s == 2 && pieces && cases[i].world == 6) || (s > 0 && pipeline))
                continue; /* refused */
            train_case test = {.config = cases[i].config, .overrides = layout, .world = cases[i].world};
            if (expect_run(&test) != alone)
                fail_msg("case %zu, %s: other weights", i, stages[s]);
        }
    }
}

/* --- files --- */

static char *file_of(const char *name, size_t *nbytes)
{
    char path[256], *text;
    snprintf(path, sizeof(path), RUN_FOLDER "/checkpoints/step-00000004/%s.safetensors", name);
    if (tri_fs_read(path, 1 << 24, &text, nbytes) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return text;
}

static void the_files_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const files[] = {"model", "optimizer"};
    const char *zero[] = {"train.steps=4", NULL, "parallel.zero_ranks=2", NULL};
    const char *const plain[] = {"train.steps=4", NULL};
    char *wanted[2];
    size_t wanted_nbytes[2], nbytes;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    expect_run(&(train_case){.config = gpt, .overrides = plain, .run_folder = RUN_FOLDER, .world = 1});
    for (int f = 0; f < 2; f++)
        wanted[f] = file_of(files[f], &wanted_nbytes[f]);
    for (int s = 0; s < 3; s++) {
        zero[1] = stages[s];
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        expect_run(&(train_case){
            .config = gpt, .overrides = zero, .run_folder = RUN_FOLDER, .first_writes = true, .world = 6});
        for (int f = 0; f < 2; f++) {
            char *found = file_of(files[f], &nbytes);
            assert_int_equal(nbytes, wanted_nbytes[f]);
            assert_memory_equal(found, wanted[f], nbytes);
            tri_free(found);
        }
    }
    tri_free(wanted[0]);
    tri_free(wanted[1]);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void a_run_goes_on_in_another_layout(void **state)
{
    (void)state;
    static const struct {
        int world;
        const char *layout[2];
    } layouts[] = {
        {4, {"parallel.sync=zero3", "parallel.zero_ranks=2"}}, {1, {NULL}},
        {6, {"parallel.sync=zero1", "parallel.zero_ranks=3"}}, {6, {"parallel.sync=zero3"}},
        {8, {"parallel.sync=zero2", "parallel.zero_ranks=2"}}, {6, {"parallel.sync=zero3", "parallel.zero_ranks=2"}}};
    uint64_t wanted = hash_alone(gpt, "train.steps=6");
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    for (int i = 0; i < (int)TRI_COUNT_OF(layouts); i++) {
        char steps[32];
        snprintf(steps, sizeof(steps), "train.steps=%d", i + 1);
        const char *const overrides[] = {steps, layouts[i].layout[0], layouts[i].layout[1], NULL};
        uint64_t hash = expect_run(&(train_case){.config = gpt,
                                                 .overrides = overrides,
                                                 .run_folder = RUN_FOLDER,
                                                 .resume = i > 0 ? RUN_FOLDER : NULL,
                                                 .world = layouts[i].world});
        if (i + 1 == (int)TRI_COUNT_OF(layouts))
            assert_int_equal(hash, wanted);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- hosts --- */

static const char wide[] = "model: {name: mlp, hidden: [200, 200, 200, 200, 200]}\n"
                           "data: {name: synthetic, synthetic_count: 256, synthetic_width: 32}\n"
                           "train: {batch: 16, shards: 8, epochs: 1, seed: 7, threads: 1}\n"
                           "optim: {name: adamw, lr: 0.01}\n"
                           "parallel: {bucket_kib: 64}\n";
enum { WIDE_VALUES = 32 * 200 + 200 + 4 * (200 * 200 + 200) + 200 * 10 + 10 };

static uint64_t far_nbytes(const char *sync, const char *zero_ranks, const char *steps, int world, int ranks_per_host)
{
    const char *const overrides[] = {sync, zero_ranks, steps, NULL};
    train_outcome outcome = train_fibers(
        &(train_case){.config = wide, .overrides = overrides, .world = world, .ranks_per_host = ranks_per_host}, 1);
    if (outcome.status != TRI_OK)
        fail_msg("%s: %s", sync, outcome.message);
    return outcome.far_nbytes;
}

/* What the rank that sends most sends to other hosts in a step. */
static double far_of_step(const char *sync, const char *zero_ranks, int world, int ranks_per_host)
{
    enum { FEW = 2, MANY = 12 };
    char few[32], many[32];
    snprintf(few, sizeof(few), "train.steps=%d", FEW);
    snprintf(many, sizeof(many), "train.steps=%d", MANY);
    return (double)(far_nbytes(sync, zero_ranks, many, world, ranks_per_host) -
                    far_nbytes(sync, zero_ranks, few, world, ranks_per_host)) /
           (MANY - FEW);
}

static void only_the_sum_of_a_share_goes_between_hosts(void **state)
{
    (void)state;
    static const struct {
        int world, locals;
    } cases[] = {{4, 2}, {8, 4}, {6, 3}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        int world = cases[i].world, locals = cases[i].locals, hosts = world / locals;
        double share = 4.0 * WIDE_VALUES / locals, sum = 2.0 * (hosts - 1) / hosts * share;
        double slack = 0.25 * share + 4096; /* shares end at blocks of the norm; the tail */
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++) {
            double found = far_of_step(stages[s], "parallel.zero_ranks=host", world, locals);
            double all = far_of_step(stages[s], "parallel.zero_ranks=all", world, locals);
            if (found < sum - slack || found > sum + slack)
                fail_msg("%d ranks on %d hosts, %s: want %.0f bytes a step, got %.0f", world, hosts, stages[s], sum,
                         found);
            assert_true(1.5 * found < all);
        }
    }
}

static void hosts_give_the_weights_of_one(void **state)
{
    (void)state;
    static const struct {
        int world, locals;
    } cases[] = {{6, 2}, {8, 4}, {4, 4}};
    uint64_t alone = hash_alone(conv, NULL);
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        for (size_t s = 0; s < TRI_COUNT_OF(stages); s++) {
            const char *const layout[] = {stages[s], "parallel.zero_ranks=host", NULL};
            train_case test = {
                .config = conv, .overrides = layout, .world = cases[i].world, .ranks_per_host = cases[i].locals};
            train_outcome outcome = train_fibers(&test, i + 1);
            if (outcome.status != TRI_OK)
                fail_msg("%s", outcome.message);
            assert_true(outcome.all_equal);
            assert_int_equal(outcome.hash, alone);
        }
}

/* --- what cannot be --- */

static void what_does_not_come_out_even_is_refused_with_the_arithmetic(void **state)
{
    (void)state;
    static const struct {
        int world, locals;
        const char *sync, *zero_ranks, *words;
    } cases[] = {
        {4, 1, "parallel.sync=zero1", "parallel.zero_ranks=3", "2 or more that divide the 4 data ranks, got 3"},
        {4, 1, "parallel.sync=zero1", "parallel.zero_ranks=1", "2 or more that divide the 4 data ranks, got 1"},
        {4, 1, "parallel.sync=zero1", "parallel.zero_ranks=few", "want all, host or an integer, 1 to 1048576, got"},
        {4, 2, "parallel.sync=allreduce", "parallel.zero_ranks=2",
         "requires parallel.sync zero1, zero2 or zero3, got allreduce"},
        {5, 2, "parallel.sync=zero2", "parallel.zero_ranks=host", "from rank 0 on there are 2, from rank 4 on 1"},
        {3, 1, "parallel.sync=zero3", "parallel.zero_ranks=host", "got 3 hosts with one each"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *const layout[] = {cases[i].sync, cases[i].zero_ranks, NULL};
        train_case test = {
            .config = gpt, .overrides = layout, .world = cases[i].world, .ranks_per_host = cases[i].locals};
        train_outcome outcome = train_fibers(&test, 1);
        if (outcome.status != TRI_ECONFIG || !strstr(outcome.message, cases[i].words))
            fail_msg("want '%s', got %d: %s", cases[i].words, (int)outcome.status, outcome.message);
    }
}

static tri_job_memory memory_of(const char *sync, const char *zero_ranks, int ranks)
{
    const char *const overrides[] = {sync, zero_ranks, "model.n_embd=128", "parallel.bucket_kib=16", NULL};
    tri_config config;
    tri_job_memory memory;
    assert_int_equal(tri_config_load(NULL, gpt, overrides, &config), TRI_OK);
    assert_int_equal(tri_job_memory_plan(&config, ranks, &memory), TRI_OK);
    tri_config_fini(&config);
    return memory;
}

static void a_rank_keeps_its_share_of_one_copy(void **state)
{
    (void)state;
    for (size_t s = 0; s < TRI_COUNT_OF(stages); s++) {
        tri_job_memory one = memory_of(stages[s], "parallel.zero_ranks=all", 2);
        tri_job_memory two = memory_of(stages[s], "parallel.zero_ranks=2", 4);
        assert_int_equal(one.weights, two.weights);
        assert_int_equal(one.optimizer, two.optimizer);
        assert_int_equal(one.gradients, two.gradients);
        /* Three copies: a rank's shards are no subtree with its neighbour's, and the sums of both are kept. */
        assert_true(memory_of(stages[s], "parallel.zero_ranks=2", 6).gradients > two.gradients);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_a_spread_state_change_nothing),
        cmocka_unit_test(pieces_precision_parts_and_stages_change_nothing),
        cmocka_unit_test(the_files_are_those_of_one_rank),
        cmocka_unit_test(a_run_goes_on_in_another_layout),
        cmocka_unit_test(only_the_sum_of_a_share_goes_between_hosts),
        cmocka_unit_test(hosts_give_the_weights_of_one),
        cmocka_unit_test(what_does_not_come_out_even_is_refused_with_the_arithmetic),
        cmocka_unit_test(a_rank_keeps_its_share_of_one_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
