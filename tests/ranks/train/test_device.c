/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device.c: jobs on the fake device: all that kernels compute on lies in its memory, which the host cannot touch,
 * and runs end with the weights that they have on the CPU. More layouts: golden.py --fake.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/memory.h"
#include "nn/graph_impl.h"
#include "ranks/train/failing_open.h"
#include "ranks/train/train_ranks.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-device-run"

static const char config[] = "model:\n"
                             "  layers:\n"
                             "    - reshape: [4, 4, 2]\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - flatten\n"
                             "    - linear: classes\n"
                             "data: {name: synthetic, synthetic_count: 210, synthetic_width: 32}\n"
                             "train: {batch: 50, shards: 8, shards_at_once: 2, epochs: 2, threads: 1}\n"
                             "optim: {name: adam, lr: 0.01, clip_norm: 1}\n";
static const char *const on_fake[] = {"train.device=fake", NULL}, *const on_cpu[] = {"train.device=cpu", NULL};

static uint64_t hash_of(train_case test)
{
    train_outcome outcome = train_threads(&test);
    if (outcome.status != TRI_OK)
        fail_msg("%d ranks: %s", test.world, outcome.message);
    assert_true(outcome.all_equal);
    return outcome.hash;
}

/* Ends the process where an address is not of the device. */
static void is_of(const tri_job *job, const void *memory)
{
    assert_true(tri_device_mapped(job->device, memory) != memory);
}

static void what_kernels_compute_on_lies_in_the_device(void **state)
{
    (void)state;
    tri_job *job;
    bool done;
    tri_job_setup setup = {.config_text = config, .overrides = on_fake};
    assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
    is_of(job, job->params->values);
    is_of(job, tri_optim_state(job->optim, 0));
    is_of(job, tri_optim_state(job->optim, 1));
    is_of(job, job->sync->grads[0]);
    assert_int_equal(job->shards.accumulation.levels, 2);
    for (int level = 0; level < job->shards.accumulation.levels; level++)
        is_of(job, job->shards.accumulation.scratch[level]);
    is_of(job, job->model.graph->memory);
    const uint64_t calls = tri_memory_now().calls;
    assert_int_equal(tri_job_step(job, &done), TRI_OK);
    assert_int_equal(tri_memory_now().calls, calls); /* a step allocates nothing */
    is_of(job, job->model.graph->batch.input);
    is_of(job, job->model.graph->batch.target);
    for (int o = 0; o < job->model.graph->op_count; o++)
        is_of(job, job->model.graph->ops[o].call.output);
    tri_job_close(job);
}

static void the_device_changes_no_bits(void **state)
{
    (void)state;
    uint64_t hash = hash_of((train_case){.config = config, .world = 1});
    for (int world = 1; world <= 3; world++)
        assert_int_equal(hash_of((train_case){.config = config, .overrides = on_fake, .world = world}), hash);
}

static void a_checkpoint_goes_from_device_to_device(void **state)
{
    (void)state;
    const char *const stop[2][3] = {{"train.steps=3", "train.device=fake", NULL}, {"train.steps=3", NULL}};
    const char *const *const then[2] = {on_cpu, on_fake};
    uint64_t hash = hash_of((train_case){.config = config, .world = 1});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_case first = {.config = config, .overrides = stop[i], .run_folder = RUN_FOLDER, .world = 1};
        train_case second = {
            .config = config, .overrides = then[i], .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = 3};
        hash_of(first);
        assert_int_equal(hash_of(second), hash);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* The device has no array left when it is closed, or it ends the process. */
static void a_full_device_is_reported_and_leaves_nothing(void **state)
{
    (void)state;
    static char text[sizeof(config) + 64];
    snprintf(text, sizeof(text), "%s", config);
    char *threads = strstr(text, "threads: 1}");
    snprintf(threads, sizeof(text) - (size_t)(threads - text), "threads: 1, device: fake}\n%s",
             "optim: {name: adam, lr: 0.01, clip_norm: 1}\n");
    fail_each_allocation(text, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_kernels_compute_on_lies_in_the_device),
        cmocka_unit_test(the_device_changes_no_bits),
        cmocka_unit_test(a_checkpoint_goes_from_device_to_device),
        cmocka_unit_test(a_full_device_is_reported_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
