/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device.c: a job on a device that shares nothing with the host: all that kernels compute on comes from its table,
 * and the run ends with the same weights.
 *
 * The linker gives tri_device_find() of the whole program to __wrap_tri_device_find(): the trainer asks by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "device/device.h"
#include "nn/graph_impl.h"
#include "ranks/train/failing_open.h"
#include "ranks/train/train_ranks.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-device-run"

extern const tri_device_ops tri_device_cpu;

/* --- the device: memory of the host that says it is not, and counts --- */

static struct {
    void *memory[64];
    size_t nbytes[64];
    size_t fail_at; /* the n-th allocation from now on fails; 0: none */
    size_t calls, live, to_host, from_host;
} fake;
static tri_mutex fake_mutex; /* ranks are threads */

static void *fake_alloc(size_t nbytes)
{
    void *memory = NULL;
    tri_mutex_lock(&fake_mutex);
    fake.calls++;
    if (fake.fail_at == 0 || --fake.fail_at > 0)
        memory = tri_device_cpu.alloc(nbytes);
    else
        (void)tri_fail(TRI_ENOMEM, "the fake device is full");
    for (size_t i = 0; memory && i < TRI_COUNT_OF(fake.memory); i++)
        if (!fake.memory[i]) {
            fake.memory[i] = memory;
            fake.nbytes[i] = nbytes;
            fake.live++;
            break;
        }
    tri_mutex_unlock(&fake_mutex);
    return memory;
}

/* Bytes of the device at and behind an address; 0: not of the device. */
static size_t fake_nbytes(const void *at)
{
    for (size_t i = 0; i < TRI_COUNT_OF(fake.memory); i++) {
        uintptr_t first = (uintptr_t)fake.memory[i];
        if (first && (uintptr_t)at >= first && (uintptr_t)at < first + fake.nbytes[i])
            return fake.nbytes[i] - ((uintptr_t)at - first);
    }
    return 0;
}

static void fake_free(void *memory)
{
    tri_mutex_lock(&fake_mutex);
    for (size_t i = 0; memory && i < TRI_COUNT_OF(fake.memory); i++)
        if (fake.memory[i] == memory) {
            fake.memory[i] = NULL;
            fake.live--;
        }
    tri_mutex_unlock(&fake_mutex);
    tri_device_cpu.free(memory);
}

static void fake_to_host(void *to, const void *from, size_t nbytes)
{
    tri_mutex_lock(&fake_mutex);
    TRI_ASSERT(fake_nbytes(from) >= nbytes && fake_nbytes(to) == 0);
    fake.to_host++;
    tri_mutex_unlock(&fake_mutex);
    memcpy(to, from, nbytes);
}

static void fake_from_host(void *to, const void *from, size_t nbytes)
{
    tri_mutex_lock(&fake_mutex);
    size_t room = fake_nbytes(to); /* none: the gradient, memory of the group */
    TRI_ASSERT((room == 0 || room >= nbytes) && fake_nbytes(from) == 0);
    fake.from_host++;
    tri_mutex_unlock(&fake_mutex);
    memcpy(to, from, nbytes);
}

static const tri_device_ops fake_ops = {
    .name = "cpu", .alloc = fake_alloc, .free = fake_free, .to_host = fake_to_host, .from_host = fake_from_host};
static const tri_device_ops *found = &tri_device_cpu;

const tri_device_ops *__wrap_tri_device_find(const char *name);
const tri_device_ops *__wrap_tri_device_find(const char *name)
{
    assert_string_equal(name, "cpu");
    return found;
}

/* --- runs --- */

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

static uint64_t hash_of(const tri_device_ops *device, train_case test)
{
    found = device;
    train_outcome outcome = train_threads(&test);
    found = &tri_device_cpu;
    if (outcome.status != TRI_OK)
        fail_msg("%d ranks: %s", test.world, outcome.message);
    assert_true(outcome.all_equal);
    return outcome.hash;
}

static void what_kernels_compute_on_lies_in_the_device(void **state)
{
    (void)state;
    tri_job *job;
    bool done;
    found = &fake_ops;
    assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = config}, &job), TRI_OK);
    size_t store = (size_t)job->params->count * sizeof(float), calls = fake.calls, from_host = fake.from_host;
    assert_true(fake_nbytes(job->params->values) >= store);
    assert_true(fake_nbytes(tri_optim_state(job->optim, 0)) >= store);
    assert_true(fake_nbytes(tri_optim_state(job->optim, 1)) >= store);
    assert_int_equal(job->accumulation.levels, 2);
    for (int level = 0; level < job->accumulation.levels; level++)
        assert_true(fake_nbytes(job->accumulation.scratch[level]) >= store + TRI_PARAMS_TAIL * sizeof(float));
    assert_true(fake_nbytes(job->graph->memory) >= job->graph->planned_nbytes && job->graph->planned_nbytes > 0);
    assert_int_equal(tri_job_step(job, &done), TRI_OK);
    assert_true(fake_nbytes(job->graph->batch.input) > 0 && fake_nbytes(job->graph->batch.target) > 0);
    for (int o = 0; o < job->graph->op_count; o++)
        assert_true(fake_nbytes(job->graph->ops[o].call.output) > 0);
    assert_int_equal(fake.calls, calls);                 /* a step allocates nothing */
    assert_int_equal(fake.from_host - from_host, 4 * 3); /* of each pair of shards: input, target, tail */
    tri_job_close(job);
    found = &tri_device_cpu;
    assert_int_equal(fake.live, 0);
}

static void the_device_changes_no_bits(void **state)
{
    (void)state;
    uint64_t hash = hash_of(&tri_device_cpu, (train_case){.config = config, .world = 1});
    size_t calls = fake.calls;
    for (int world = 1; world <= 3; world++)
        assert_int_equal(hash_of(&fake_ops, (train_case){.config = config, .world = world}), hash);
    assert_true(fake.calls > calls && fake.live == 0);
}

static void a_checkpoint_goes_from_device_to_device(void **state)
{
    (void)state;
    const char *const stop[] = {"train.steps=3", NULL};
    uint64_t hash = hash_of(&tri_device_cpu, (train_case){.config = config, .world = 1});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_case first = {.config = config, .overrides = stop, .run_folder = RUN_FOLDER, .world = 1};
        train_case second = {.config = config, .run_folder = RUN_FOLDER, .resume = RUN_FOLDER, .world = 3};
        hash_of(i == 0 ? &fake_ops : &tri_device_cpu, first);
        assert_int_equal(hash_of(i == 0 ? &tri_device_cpu : &fake_ops, second), hash);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    assert_int_equal(fake.live, 0);
}

static void a_full_device_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    int failures = 0;
    tri_status status = TRI_ENOMEM;
    found = &fake_ops;
    for (size_t n = 1; status != TRI_OK; n++) {
        tri_job *job = NULL;
        fake.fail_at = n;
        status = tri_job_open(&(tri_job_setup){.config_text = config}, &job);
        fake.fail_at = 0;
        assert_true(status == TRI_OK || (status == TRI_ENOMEM && strstr(tri_last_error(), "the fake device is full")));
        failures += status != TRI_OK;
        tri_job_close(job);
        assert_int_equal(fake.live, 0);
    }
    found = &tri_device_cpu;
    assert_int_equal(failures, 9); /* values, memory, sums, input, target, two of state, two of waves */
}

static void nothing_lives(void)
{
    assert_int_equal(fake.live, 0);
}

static void a_full_host_leaves_nothing_in_the_device(void **state)
{
    (void)state;
    found = &fake_ops;
    fail_each_allocation(config, nothing_lives);
    found = &tri_device_cpu;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_kernels_compute_on_lies_in_the_device),
        cmocka_unit_test(the_device_changes_no_bits),
        cmocka_unit_test(a_checkpoint_goes_from_device_to_device),
        cmocka_unit_test(a_full_device_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_full_host_leaves_nothing_in_the_device),
    };
    tri_mutex_init(&fake_mutex);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_mutex_fini(&fake_mutex);
    return failed;
}
