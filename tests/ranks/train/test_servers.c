/* SPDX-License-Identifier: Apache-2.0
 *
 * test_servers.c: parameter servers: with bsp the weights of one process, whatever the numbers of workers and servers;
 * with ssp and async weights that learn.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/events.h"
#include "base/fs.h"
#include "ranks/train/train_expect.h"
#include "train/core/job.h"

#define PS         "parallel.sync=ps"
#define SMALL      "ps.block_kib=16"
#define RUN_FOLDER "trireme-test-servers-run"

/* Running statistics, dropout, clipping, and batches that do not come out even. */
static const char conv[] = "model:\n"
                           "  layers:\n"
                           "    - reshape: [4, 4, 2]\n"
                           "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                           "    - batch_norm\n"
                           "    - relu\n"
                           "    - flatten\n"
                           "    - dropout: 0.25\n"
                           "    - linear: {out: 240, relu: true}\n"
                           "    - linear: classes\n"
                           "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                           "train: {batch: 50, shards: 8, epochs: 3, seed: 7, threads: 1}\n"
                           "optim: {name: adamw, lr: 0.01, weight_decay: 0.01, clip_norm: 1, schedule: cosine}\n";

/* Tied weights. */
static const char gpt[] = "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 32, resid_pdrop: 0.1, embd_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 300, synthetic_count: 75, "
                          "synthetic_width: 20}\n"
                          "train: {batch: 20, shards: 8, epochs: 2, seed: 7, threads: 1}\n"
                          "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}\n";

static const char mlp[] = "model: {name: mlp, hidden: [48, 24]}\n"
                          "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                          "train: {batch: 50, shards: 8, epochs: 8, seed: 7, threads: 1}\n"
                          "optim: {lr: 0.05, momentum: 0.9}\n";

static void workers_and_servers_give_the_weights_of_one_process(void **state)
{
    (void)state;
    static const char *const configs[] = {conv, gpt, mlp};
    static const char *const ps[] = {PS, SMALL, NULL};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        uint64_t alone = expect_run(&(train_case){.config = configs[c], .world = 1});
        for (int workers = 1; workers <= 4; workers++)
            for (int servers = 1; servers <= 3; servers++)
                if (expect_run(&(train_case){
                        .config = configs[c], .overrides = ps, .world = workers, .servers = servers}) != alone)
                    fail_msg("config %zu, %d workers, %d servers: other weights", c, workers, servers);
    }
}

static void optimizers_groups_frozen_parts_waves_and_bf16_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *config, *decides[3], *layout[3]; /* what the weights depend on, and what not */
    } cases[] = {
        {conv, {NULL}, {"train.shards_at_once=2", "train.threads=2"}},
        {conv, {"optim.clip_norm=0"}, {"ps.block_kib=1024"}},
        {conv, {"optim.name=adagrad", "optim.schedule=step"}, {NULL}},
        {conv, {"optim.name=sgd", "optim.nesterov=true", "optim.momentum=0.9"}, {NULL}},
        {conv, {"optim.name=ftrl", "optim.l1=0.01"}, {NULL}},
        {conv, {"optim.groups=[{match: '*.bias', lr_scale: 0.5, weight_decay: 0}]", "optim.schedule=wsd"}, {NULL}},
        {gpt, {"train.precision=bf16"}, {"model.checkpoint=true"}},
        {gpt, {"optim.clip_norm=0", "optim.groups=[{match: '*wte*', lr_scale: 2}]"}, {NULL}},
        {mlp, {"model.freeze=[fc1.*]"}, {NULL}},
        {mlp, {"model.freeze=[fc2.weight, fc3.*]"}, {NULL}},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *plain[4] = {NULL}, *ps[8] = {PS, SMALL};
        int plains = 0, all = 2;
        for (int k = 0; k < 3 && cases[i].decides[k]; k++)
            plain[plains++] = ps[all++] = cases[i].decides[k];
        for (int k = 0; k < 3 && cases[i].layout[k]; k++)
            ps[all++] = cases[i].layout[k];
        uint64_t alone = expect_run(&(train_case){.config = cases[i].config, .overrides = plain, .world = 1});
        if (expect_run(&(train_case){.config = cases[i].config, .overrides = ps, .world = 3, .servers = 2}) != alone)
            fail_msg("case %zu: other weights", i);
    }
}

static void simulated_workers_give_the_weights_of_one_process(void **state)
{
    (void)state;
    const char *wide[] = {
        "train.shards=64", "train.batch=128", "train.epochs=1", "data.synthetic_count=384", SMALL, NULL, NULL};
    train_case test = {.config = conv, .overrides = wide, .world = 1};
    uint64_t alone = expect_run(&test);
    wide[5] = PS;
    test.world = 20;
    test.servers = 3;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        train_outcome outcome = train_fibers(&test, seed);
        if (outcome.status != TRI_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, outcome.message);
        assert_true(outcome.all_equal);
        assert_int_equal(outcome.hash, alone);
    }
}

/* Each shard's gradient is rounded by itself, so that who computes it makes no difference; evaluations in between,
 * which are of the weights that the servers have, neither. */
static void rounded_gradients_and_weights_are_the_same_for_any_numbers(void **state)
{
    (void)state;
    static const char *const configs[] = {conv, gpt, mlp}, *const kinds[] = {"ps.values=bf16", "ps.values=int8"};
    for (size_t c = 0; c < TRI_COUNT_OF(configs); c++) {
        double plain = expect_end(&(train_case){.config = configs[c], .world = 1}).test_loss;
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
            const char *const ps[] = {PS, SMALL, kinds[k], NULL};
            const char *const looked[] = {PS, "ps.block_kib=64", kinds[k], "train.eval_every_steps=3", NULL};
            uint64_t hash =
                expect_run(&(train_case){.config = configs[c], .overrides = looked, .world = 1, .servers = 1});
            for (int workers = 1; workers <= 3; workers++)
                for (int servers = 1; servers <= 2; servers++) {
                    train_outcome end = expect_end(
                        &(train_case){.config = configs[c], .overrides = ps, .world = workers, .servers = servers});
                    if (end.hash != hash)
                        fail_msg("config %zu, %s, %d workers, %d servers: other weights", c, kinds[k], workers,
                                 servers);
                    if (!(fabs(end.test_loss - plain) < 0.03 * plain))
                        fail_msg("config %zu, %s: loss %f, without rounding %f", c, kinds[k], end.test_loss, plain);
                }
        }
    }
}

/* What workers send and are sent in a run with a shard for each; in thousandths of what f32 takes. */
static uint64_t thousandths(const char *kind, const char *consistency, tri_counter counter)
{
    uint64_t nbytes[2];
    const char *const kinds[] = {"ps.values=f32", kind};
    for (int i = 0; i < 2; i++) {
        const char *const ps[] = {
            PS, SMALL, kinds[i], consistency, "train.shards=2", "data.synthetic_width=512", "train.eval_every=0", NULL};
        uint64_t before = tri_counter_now(counter);
        (void)expect_end(&(train_case){.config = mlp, .overrides = ps, .world = 2, .servers = 2});
        nbytes[i] = tri_counter_now(counter) - before;
    }
    return nbytes[1] * 1000 / nbytes[0];
}

static void narrow_values_take_their_part_of_the_bytes(void **state)
{
    (void)state;
    static const char *const words[] = {"ps.consistency=bsp", "ps.consistency=async"};
    for (size_t i = 0; i < TRI_COUNT_OF(words); i++) {
        assert_in_range(thousandths("ps.values=bf16", words[i], TRI_COUNT_SENT_NBYTES), 480, 540);
        assert_in_range(thousandths("ps.values=int8", words[i], TRI_COUNT_SENT_NBYTES), 240, 300);
        assert_in_range(thousandths("ps.values=bf16", words[i], TRI_COUNT_RECEIVED_NBYTES), 480, 560);
        assert_in_range(thousandths("ps.values=int8", words[i], TRI_COUNT_RECEIVED_NBYTES), 480, 560);
    }
}

static void a_run_with_rounded_weights_goes_on_where_it_was(void **state)
{
    (void)state;
    static const char *const half[] = {PS, SMALL, "ps.values=bf16", "train.steps=7", NULL}, *const ps[] = {
                                                                                                PS, SMALL,
                                                                                                "ps.values=bf16", NULL};
    uint64_t whole = expect_run(&(train_case){.config = conv, .overrides = ps, .world = 2, .servers = 2});
    (void)expect_run(
        &(train_case){.config = conv, .overrides = half, .world = 3, .servers = 2, .run_folder = RUN_FOLDER});
    assert_int_equal(
        expect_run(&(train_case){.config = conv, .overrides = ps, .world = 2, .servers = 1, .resume = RUN_FOLDER}),
        whole);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* Written while the run goes on, of a step that servers are long past when the files are complete: blocks of many
 * sizes, ties, and parts that do not move. */
static void servers_write_the_step_they_were_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *config, *word;
    } cases[] = {{conv, SMALL}, {gpt, SMALL}, {mlp, "model.freeze=[fc1.*]"}, {conv, "ps.values=bf16"}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *const ps[] = {PS, cases[i].word, "train.steps=7", "checkpoint.every_steps=4", NULL};
        const char *const alone[] = {PS, cases[i].word, "train.steps=7", NULL};
        uint64_t whole =
            expect_run(&(train_case){.config = cases[i].config, .overrides = alone, .world = 1, .servers = 1});
        (void)expect_run(&(train_case){
            .config = cases[i].config, .overrides = ps, .world = 3, .servers = 2, .run_folder = RUN_FOLDER});
        assert_int_equal(tri_fs_remove(RUN_FOLDER "/checkpoints/step-00000007"), TRI_OK);
        if (expect_run(&(train_case){
                .config = cases[i].config, .overrides = alone, .world = 2, .servers = 3, .resume = RUN_FOLDER}) !=
            whole)
            fail_msg("case %zu: another state after step 4", i);
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    }
}

/* By any strategy: the servers' state is in the files. */
static void a_run_goes_on_with_and_without_servers(void **state)
{
    (void)state;
    static const char *const half[] = {PS, SMALL, "train.steps=7", NULL}, *const ps[] = {PS, SMALL, NULL},
                             *const plain_half[] = {"train.steps=7", NULL};
    uint64_t whole = expect_run(&(train_case){.config = conv, .world = 1});
    (void)expect_run(
        &(train_case){.config = conv, .overrides = half, .world = 3, .servers = 2, .run_folder = RUN_FOLDER});
    assert_int_equal(expect_run(&(train_case){.config = conv, .world = 2, .resume = RUN_FOLDER}), whole);
    assert_int_equal(
        expect_run(&(train_case){.config = conv, .overrides = ps, .world = 2, .servers = 1, .resume = RUN_FOLDER}),
        whole);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    (void)expect_run(&(train_case){.config = conv, .overrides = plain_half, .world = 2, .run_folder = RUN_FOLDER});
    assert_int_equal(
        expect_run(&(train_case){.config = conv, .overrides = ps, .world = 4, .servers = 3, .resume = RUN_FOLDER}),
        whole);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* One worker's gradients are the batch's, so it makes the same steps whatever the consistency. */
static void one_worker_makes_the_steps_of_one_process_with_any_consistency(void **state)
{
    (void)state;
    uint64_t alone = expect_run(&(train_case){.config = mlp, .world = 1});
    uint64_t clipped = expect_run(&(train_case){.config = gpt, .world = 1});
    static const char *const words[] = {"ps.consistency=ssp", "ps.consistency=async"};
    for (size_t i = 0; i < TRI_COUNT_OF(words); i++) {
        const char *const ps[] = {PS, SMALL, words[i], NULL};
        assert_int_equal(expect_run(&(train_case){.config = mlp, .overrides = ps, .world = 1, .servers = 2}), alone);
        assert_int_equal(expect_run(&(train_case){.config = gpt, .overrides = ps, .world = 1, .servers = 2}), clipped);
    }
}

static void stale_workers_learn(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"ps.consistency=ssp", "ps.staleness=0"}, {"ps.consistency=ssp", "ps.staleness=3"},
        {"ps.consistency=async", NULL},           {"ps.consistency=async", "ps.delay_compensation=0.1"},
        {"ps.consistency=ssp", "ps.values=bf16"}, {"ps.consistency=async", "ps.values=int8"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(words); i++) {
        const char *const ps[] = {PS, SMALL, words[i][0], words[i][1], NULL};
        double loss = expect_end(&(train_case){.config = mlp, .overrides = ps, .world = 3, .servers = 2}).test_loss;
        if (!(loss < 1.2)) /* 2.3 at first, 0.63 by one process */
            fail_msg("case %zu: test loss %f", i, loss);
    }
}

static void expect_refusal(const train_case *test, const char *text)
{
    train_outcome outcome = train_threads(test);
    assert_int_equal(outcome.status, TRI_ECONFIG);
    if (!strstr(outcome.message, text))
        fail_msg("want '%s' in: %s", text, outcome.message);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const char *const ps[] = {PS, NULL}, *const zero[] = {"parallel.sync=zero1", NULL};
    expect_refusal(&(train_case){.config = mlp, .overrides = ps, .world = 1}, "no parameter servers");
    static const char *const many[] = {PS, "ps.values=bf16", "train.shards=128", "train.batch=128", NULL};
    expect_refusal(&(train_case){.config = mlp, .overrides = many, .world = 1, .servers = 1},
                   "want at most 64 shards a worker");
    expect_refusal(&(train_case){.config = mlp, .overrides = zero, .world = 1, .servers = 1}, "parallel.sync is zero1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_and_servers_give_the_weights_of_one_process),
        cmocka_unit_test(optimizers_groups_frozen_parts_waves_and_bf16_change_nothing),
        cmocka_unit_test(simulated_workers_give_the_weights_of_one_process),
        cmocka_unit_test(rounded_gradients_and_weights_are_the_same_for_any_numbers),
        cmocka_unit_test(narrow_values_take_their_part_of_the_bytes),
        cmocka_unit_test(a_run_with_rounded_weights_goes_on_where_it_was),
        cmocka_unit_test(servers_write_the_step_they_were_asked_for),
        cmocka_unit_test(a_run_goes_on_with_and_without_servers),
        cmocka_unit_test(one_worker_makes_the_steps_of_one_process_with_any_consistency),
        cmocka_unit_test(stale_workers_learn),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
