/* SPDX-License-Identifier: Apache-2.0
 *
 * test_saves.c: checkpoints of runs: the same files for every layout, beside the training or not, whoever writes them;
 * the values of the moment; several places; disks that fail.
 *
 * The linker gives tri_checkpoint_draft_join() of the whole program to __wrap_tri_checkpoint_draft_join(): ranks that
 * do not see the folder of rank 0, as a test asks for. usage: test_saves [--figures]: the snapshots of row 14 alone,
 * with a line for bench/reliability.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/events.h"
#include "base/fs.h"
#include "checkpoint/draft.h"
#include "checkpoint/manifest.h"
#include "ranks/train/train_ranks.h"
#include "train/checkpointing/resume.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-saves-run"
#define FAR_FOLDER "trireme-test-saves-far"

static bool is_blind; /* ranks but 0 */

tri_status __real_tri_checkpoint_draft_join(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out);
tri_status __wrap_tri_checkpoint_draft_join(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out);
tri_status __wrap_tri_checkpoint_draft_join(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out)
{
    *out = NULL;
    return is_blind ? tri_fail(TRI_ENOTFOUND, "blind") : __real_tri_checkpoint_draft_join(setup, out);
}

static const char gpt[] = "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 8, resid_pdrop: 0.1}\n"
                          "data: {name: synthetic, synthetic_tokens: true, classes: 20, synthetic_count: 40, "
                          "synthetic_width: 6}\n"
                          "train: {batch: 8, shards: 4, steps: 7, epochs: 9, threads: 1, eval_every: 0}\n"
                          "optim: {name: adamw, lr: 0.01}\n"
                          "parallel: {bucket_kib: 1, tensor_parts: 2}\n"
                          "checkpoint: {every_steps: 2, keep: 9}\n";

static void folders_drop(void)
{
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    assert_int_equal(tri_fs_remove(FAR_FOLDER), TRI_OK);
}

static void assert_names(const char *folder, const char *wanted)
{
    char **names, text[500] = "";
    size_t count;
    assert_int_equal(tri_fs_list(folder, &names, &count), TRI_OK);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], ".run") == 0) /* whose place it is */
            continue;
        strcat(text, names[i]);
        strcat(text, " ");
    }
    tri_fs_list_free(names, count);
    assert_string_equal(text, wanted);
}

/* --- the same files --- */

enum { STEPS_SAVED = 4, FILES = 3 };
static const char *const steps[STEPS_SAVED] = {"step-00000002", "step-00000004", "step-00000006", "step-00000007"};
static const char *const files[FILES] = {TRI_MODEL_FILE, TRI_STATE_FILE, TRI_MANIFEST_FILE};
typedef struct saved_files {
    char *texts[STEPS_SAVED][FILES];
    size_t nbytes[STEPS_SAVED][FILES];
} saved_files;

static void files_read(saved_files *out)
{
    assert_names(RUN_FOLDER "/checkpoints", "step-00000002 step-00000004 step-00000006 step-00000007 ");
    for (int s = 0; s < STEPS_SAVED; s++)
        for (int f = 0; f < FILES; f++) {
            char path[200];
            snprintf(path, sizeof(path), RUN_FOLDER "/checkpoints/%s/%s", steps[s], files[f]);
            assert_int_equal(tri_fs_read(path, 0, &out->texts[s][f], &out->nbytes[s][f]), TRI_OK);
            snprintf(path, sizeof(path), RUN_FOLDER "/checkpoints/%s", steps[s]);
            assert_int_equal(tri_checkpoint_verify(path), TRI_OK);
        }
}

static void files_free(saved_files *of)
{
    for (int s = 0; s < STEPS_SAVED; s++)
        for (int f = 0; f < FILES; f++)
            tri_free(of->texts[s][f]);
}

/* A run folder with a peak that was measured: virtual time cannot. */
static void folder_make(void)
{
    char text[200];
    folders_drop();
    snprintf(text, sizeof(text), "{\"of\": \"f32\", \"threads\": 1, \"kernels\": \"%s\", \"flops\": 123456789}",
             tri_kernel_arithmetic());
    assert_int_equal(tri_fs_make_folder(RUN_FOLDER), TRI_OK);
    assert_int_equal(tri_fs_write_atomic(RUN_FOLDER "/peak.json", text, strlen(text)), TRI_OK);
}

static uint64_t run(int world, const char *layout, bool async, bool blind, bool fibers, saved_files *out)
{
    char text[200];
    const char *overrides[8] = {async ? "checkpoint.async=on" : "checkpoint.async=off"};
    int count = 1;
    snprintf(text, sizeof(text), "%s", layout);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        overrides[count++] = word;
    train_case test = {.config = gpt,
                       .overrides = overrides,
                       .run_folder = RUN_FOLDER,
                       .first_writes = async && world == 3,
                       .world = world};
    folder_make();
    is_blind = blind;
    train_outcome outcome = fibers ? train_fibers(&test, 5) : train_threads(&test);
    is_blind = false;
    if (outcome.status != TRI_OK)
        fail_msg("%d ranks, %s: %s", world, layout, outcome.message);
    files_read(out);
    return outcome.hash;
}

static void assert_same(const saved_files *wanted, const saved_files *found, int world, const char *layout, int way)
{
    for (int s = 0; s < STEPS_SAVED; s++)
        for (int f = 0; f < FILES; f++)
            if (wanted->nbytes[s][f] != found->nbytes[s][f] ||
                memcmp(wanted->texts[s][f], found->texts[s][f], wanted->nbytes[s][f]) != 0)
                fail_msg("%d ranks, %s, way %d: %s/%s is another", world, layout, way, steps[s], files[f]);
}

static void every_layout_writes_the_same_files(void **state)
{
    (void)state;
    static const struct {
        int world;
        const char *layout;
    } layouts[] = {{1, ""},
                   {3, ""},
                   {2, "parallel.sync=zero1"},
                   {3, "parallel.sync=zero2"},
                   {2, "parallel.sync=zero3"},
                   {4, "parallel.sync=zero3 parallel.zero_ranks=2"},
                   {2, "parallel.tensor=2"},
                   {2, "parallel.pipeline=2"},
                   {4, "parallel.tensor=2 parallel.sync=zero1"}};
    saved_files wanted = {0}, found = {0};
    uint64_t hash = run(1, "", false, false, false, &wanted);
    for (size_t i = 0; i < TRI_COUNT_OF(layouts); i++)
        for (int way = 0; way < 4; way++) { /* at once, beside the training, by rank 0 for all, as fibers */
            assert_int_equal(run(layouts[i].world, layouts[i].layout, way != 0, way == 2, way == 3, &found), hash);
            assert_same(&wanted, &found, layouts[i].world, layouts[i].layout, way);
            files_free(&found);
        }
    files_free(&wanted);
    folders_drop();
}

static void ranks_with_weights_of_their_own_write_their_own(void **state)
{
    (void)state;
    static const char *const layouts[] = {"parallel.sync=local parallel.local_steps=3 parallel.tensor_parts=1",
                                          "parallel.sync=diloco parallel.local_steps=3 parallel.tensor_parts=1"};
    saved_files wanted = {0}, found = {0};
    for (size_t i = 0; i < TRI_COUNT_OF(layouts); i++) {
        uint64_t hash = run(3, layouts[i], false, true, false, &wanted); /* by rank 0 for all */
        for (int way = 0; way < 2; way++) {
            assert_int_equal(run(3, layouts[i], way == 1, false, false, &found), hash);
            assert_same(&wanted, &found, 3, layouts[i], way);
            files_free(&found);
        }
        files_free(&wanted);
    }
    folders_drop();
}

/* --- the values of the moment --- */

static const char wide[] = "model: {name: mlp, hidden: [300, 300]}\n"
                           "data: {name: synthetic, synthetic_count: 64}\n"
                           "train: {batch: 8, shards: 1, steps: 100000, epochs: 100000, threads: 1, eval_every: 0}\n"
                           "optim: {name: adam, lr: 0.001}\n"
                           "checkpoint: {every_steps: 1, keep: 3}\n";

/* All of a rank's weights and state, taken away or put back. */
static void values_move(const tri_job *job, float *kept, bool back)
{
    float *arrays[1 + TRI_OPTIM_MAX_STATE] = {job->params->values};
    int count = 1;
    for (; tri_optim_state_name(job->optim, count - 1); count++)
        arrays[count] = tri_optim_state(job->optim, count - 1);
    for (int a = 0; a < count; a++) {
        size_t nbytes = (size_t)job->params->count * sizeof(float);
        float *here = kept + a * job->params->count;
        if (back) {
            tri_device_from_host(job->device, arrays[a], here, nbytes);
            continue;
        }
        tri_device_to_host(job->device, here, arrays[a], nbytes);
        tri_device_fill(job->device, arrays[a], 0x5a, nbytes);
    }
}

/* The checkpoint holds what was there when its save returned. */
static void saved_is_kept(const tri_job *job, const float *kept, int64_t step)
{
    char path[200];
    tri_safetensors *file = NULL;
    for (int f = 0; f < 2; f++) {
        snprintf(path, sizeof(path), RUN_FOLDER "/checkpoints/step-%08lld/%s", (long long)step, files[f]);
        assert_int_equal(tri_safetensors_open(path, &file), TRI_OK);
        for (int a = f; a < (f == 0 ? 1 : 3); a++)
            for (int e = 0; e < job->params->entry_count; e++) {
                const tri_param *entry = &job->params->entries[e];
                char name[200];
                snprintf(name, sizeof(name), "%s%s%s", a > 0 ? tri_optim_state_name(job->optim, a - 1) : "",
                         a > 0 ? "." : "", entry->name);
                const tri_stored_tensor *tensor = tri_safetensors_find(file, name);
                assert_non_null(tensor);
                if (memcmp(tensor->bytes, kept + a * job->params->count + entry->first, tensor->nbytes) != 0)
                    fail_msg("step %lld: %s is not as it was", (long long)step, name);
            }
        tri_safetensors_close(file);
    }
}

static int snapshots = 60;

static void a_save_holds_the_values_of_its_call(void **state)
{
    (void)state;
    tri_job *job;
    bool done;
    const char *const overrides[] = {"checkpoint.async=on", NULL};
    tri_job_setup setup = {.config_text = wide, .overrides = overrides, .run_folder = RUN_FOLDER};
    uint64_t failures = tri_counter_now(TRI_COUNT_SAVE_FAILURES);
    folders_drop();
    assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
    float *kept = malloc((size_t)job->params->count * 3 * sizeof(float));
    assert_non_null(kept);
    for (int i = 0; i < snapshots; i++) {
        char *newest = NULL, name[40];
        assert_int_equal(tri_job_step(job, &done), TRI_OK); /* every second one waits for the one before it */
        assert_int_equal(tri_job_step(job, &done), TRI_OK);
        values_move(job, kept, false);
        int64_t step = job->step;
        assert_int_equal(tri_checkpoint_newest(RUN_FOLDER "/checkpoints", &newest, NULL), TRI_OK);
        tri_free(newest);                            /* whole at any moment, whatever is under way */
        assert_int_equal(tri_job_save(job), TRI_OK); /* waits; there is nothing new to save */
        snprintf(name, sizeof(name), "step-%08lld", (long long)step);
        saved_is_kept(job, kept, step);
        values_move(job, kept, true);
    }
    assert_int_equal(tri_counter_now(TRI_COUNT_SAVE_FAILURES), failures);
    tri_job_close(job);
    free(kept);
    folders_drop();
}

/* --- places, and disks that fail --- */

static void each_place_has_its_own_times_and_keeps_its_own(void **state)
{
    (void)state;
    const char *const overrides[] = {"checkpoint.keep=2", "checkpoint.keep_every=4", "checkpoint.every_steps=1",
                                     "checkpoint.levels=[{to: " FAR_FOLDER
                                     "/a, every_steps: 3, keep: 1}, {to: " FAR_FOLDER
                                     "/b, every_s: 0.000001, keep: 9}]",
                                     NULL};
    for (int world = 1; world <= 2; world++) {
        const char *const spread[] = {
            overrides[0], overrides[1], overrides[2], overrides[3], world > 1 ? "parallel.sync=zero3" : NULL, NULL};
        train_case test = {.config = gpt, .overrides = spread, .run_folder = "./" RUN_FOLDER "/", .world = world};
        folders_drop();
        train_outcome outcome = train_threads(&test);
        assert_int_equal(outcome.status, TRI_OK);
        assert_names(RUN_FOLDER "/checkpoints", "step-00000004 step-00000006 step-00000007 ");
        assert_names(FAR_FOLDER "/a/" RUN_FOLDER, "step-00000007 ");
        assert_names(FAR_FOLDER "/b/" RUN_FOLDER, "step-00000001 step-00000002 step-00000003 step-00000004 "
                                                  "step-00000005 step-00000006 step-00000007 ");
        /* A run goes on from wherever the newest whole one lies. */
        assert_int_equal(tri_fs_remove(RUN_FOLDER "/checkpoints/step-00000007"), TRI_OK);
        assert_int_equal(tri_fs_remove(FAR_FOLDER "/a"), TRI_OK);
        test.resume = test.run_folder;
        train_outcome again = train_threads(&test);
        assert_int_equal(again.status, TRI_OK);
        assert_int_equal(again.step, 7);
        assert_int_equal(again.hash, outcome.hash);
    }
    folders_drop();
}

/* Checkpoints of an earlier run are neither those of one that begins anew, nor lost. */
static void what_an_earlier_run_left_is_set_aside(void **state)
{
    (void)state;
    const char *overrides[] = {"train.steps=5", "checkpoint.every_steps=2", "checkpoint.keep=2",
                               "checkpoint.levels=[{to: " FAR_FOLDER "/a, every_steps: 3}]", NULL};
    train_case test = {.config = gpt, .overrides = overrides, .run_folder = RUN_FOLDER, .world = 1};
    folders_drop();
    assert_int_equal(train_threads(&test).status, TRI_OK);
    overrides[0] = "train.steps=3";
    assert_int_equal(train_threads(&test).status, TRI_OK);
    assert_names(RUN_FOLDER "/checkpoints", "step-00000002 step-00000003 ");
    assert_names(RUN_FOLDER "/checkpoints.1", "step-00000004 step-00000005 ");
    assert_names(FAR_FOLDER "/a/" RUN_FOLDER, "step-00000003 ");
    assert_names(FAR_FOLDER "/a/" RUN_FOLDER ".1", "step-00000003 step-00000005 ");
    assert_true(tri_fs_exists(RUN_FOLDER "/metrics.jsonl.1"));
    assert_true(tri_fs_exists(RUN_FOLDER "/config.yaml.1"));
    test.resume = RUN_FOLDER;
    overrides[0] = "train.steps=4";
    assert_int_equal(train_threads(&test).step, 4);
    assert_false(tri_fs_exists(RUN_FOLDER "/checkpoints.2"));
    folders_drop();
}

static void a_place_of_another_run_is_refused(void **state)
{
    (void)state;
    const char *const overrides[] = {"train.steps=3", "checkpoint.levels=[{to: " FAR_FOLDER "/a, every_steps: 3}]",
                                     NULL};
    train_case test = {.config = gpt, .overrides = overrides, .run_folder = RUN_FOLDER "/one/run", .world = 1};
    folders_drop();
    assert_int_equal(train_threads(&test).status, TRI_OK);
    test.run_folder = RUN_FOLDER "/two/run";
    train_outcome outcome = train_threads(&test);
    assert_int_equal(outcome.status, TRI_ECONFIG);
    assert_non_null(strstr(outcome.message, "is the place of another run"));
    assert_names(FAR_FOLDER "/a/run", "step-00000003 ");
    folders_drop();
}

static int lines_with(const char *text)
{
    char *lines;
    int count = 0;
    assert_int_equal(tri_fs_read(RUN_FOLDER "/metrics.jsonl", 0, &lines, NULL), TRI_OK);
    for (const char *at = lines; (at = strstr(at, text)) != NULL; at++)
        count++;
    tri_free(lines);
    return count;
}

static void a_disk_that_fails_stops_no_training(void **state)
{
    (void)state;
    static const char *const layouts[] = {"", "parallel.sync=zero3"};
    train_case test = {.config = gpt, .run_folder = RUN_FOLDER, .world = 1};
    folders_drop();
    train_outcome wanted = train_threads(&test);
    for (int way = 0; way < 4; way++) {
        uint64_t failures = tri_counter_now(TRI_COUNT_SAVE_FAILURES);
        const char *overrides[] = {way % 2 ? "checkpoint.async=on" : "checkpoint.async=off", "train.steps=7", NULL,
                                   NULL};
        if (way > 1)
            overrides[2] = layouts[1];
        test.world = way > 1 ? 2 : 1;
        test.overrides = overrides;
        folder_make();
        assert_int_equal(tri_fs_write_atomic(RUN_FOLDER "/checkpoints", "a file", 6), TRI_OK);
        /* The run's own place fails at every save: only at the end is that the end. */
        train_outcome outcome = train_threads(&test);
        assert_int_equal(outcome.status, TRI_EIO);
        assert_non_null(strstr(outcome.message, "checkpoint of step 7 not saved"));
        assert_int_equal(tri_counter_now(TRI_COUNT_SAVE_FAILURES) - failures, 4);
        assert_int_equal(lines_with("\"checkpoint_error\""), 4);
        assert_int_equal(lines_with("\"loss\""), 7);
        /* Another place has it all. */
        overrides[1] = "checkpoint.levels=[{to: " FAR_FOLDER ", every_steps: 2}]";
        outcome = train_threads(&test);
        assert_names(FAR_FOLDER "/" RUN_FOLDER, "step-00000004 step-00000006 step-00000007 ");
        assert_int_equal(tri_fs_remove(RUN_FOLDER "/checkpoints"), TRI_OK);
        test.resume = RUN_FOLDER;
        outcome = train_threads(&test);
        test.resume = NULL;
        assert_int_equal(outcome.status, TRI_OK);
        assert_int_equal(outcome.hash, wanted.hash);
    }
    folders_drop();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_writes_the_same_files),
        cmocka_unit_test(ranks_with_weights_of_their_own_write_their_own),
        cmocka_unit_test(each_place_has_its_own_times_and_keeps_its_own),
        cmocka_unit_test(what_an_earlier_run_left_is_set_aside),
        cmocka_unit_test(a_place_of_another_run_is_refused),
        cmocka_unit_test(a_disk_that_fails_stops_no_training),
        cmocka_unit_test(a_save_holds_the_values_of_its_call),
    };
    const struct CMUnitTest row[] = {cmocka_unit_test(a_save_holds_the_values_of_its_call)};
    if (argc < 2 || strcmp(argv[1], "--figures") != 0)
        return cmocka_run_group_tests(tests, NULL, NULL);
    snapshots = 500;
    int64_t start_ns = tri_now_ns();
    int failed = cmocka_run_group_tests(row, NULL, NULL);
    printf("figures saves %d wrong %d seconds %.1f\n", 2 * snapshots, failed, (double)(tri_now_ns() - start_ns) / 1e9);
    return failed;
}
