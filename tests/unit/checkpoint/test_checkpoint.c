/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoint.c: saving, loading, keeping, and every way in which a checkpoint can be damaged or not be written.
 */
#include "checkpoint/checkpoint.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "checkpoint/manifest.h"
#include "unit/checkpoint/write.h"

#define WEIGHTS 300

typedef struct test_run {
    float weight[WEIGHTS], bias[3], moment[WEIGHTS];
    tri_checkpoint_slice model[2], state[1];
    tri_checkpoint_manifest manifest;
} test_run;

/* A run whose values are made of the seed. */
static void make_run(test_run *run, int64_t step, float seed)
{
    *run = (test_run){
        .manifest = {
            .step = step, .weights_hash = UINT64_C(0xfedcba9876543210), .config_hash = 5, .bits = "reproducible"}};
    for (int i = 0; i < WEIGHTS; i++) {
        run->weight[i] = seed + (float)i;
        run->moment[i] = seed - (float)i;
    }
    run->bias[1] = seed;
    run->model[0] = (tri_checkpoint_slice){.name = "layer.weight", .shape = {2, {3, 100}}, .values = run->weight};
    run->model[1] = (tri_checkpoint_slice){.name = "layer.bias", .shape = {1, {3}}, .values = run->bias};
    run->state[0] =
        (tri_checkpoint_slice){.name = "layer.weight.moment", .shape = {1, {WEIGHTS}}, .values = run->moment};
}

/* Weights and state, as they are saved and loaded. */
#define all_of(run) ((tri_checkpoint_content){(run)->model, (run)->state, 2, 1})

static tri_status save(const char *folder, int64_t step, float seed, int64_t keep)
{
    test_run run;
    make_run(&run, step, seed);
    return checkpoint_save(&(tri_checkpoint_place){folder, keep, 0}, &run.manifest, &all_of(&run));
}

static tri_status load(const char *path, test_run *run)
{
    make_run(run, 0, -1);
    return tri_checkpoint_load(path, &run->manifest, &all_of(run));
}

static void assert_error_has(const char *text)
{
    if (strstr(tri_last_error(), text) == NULL)
        fail_msg("want '%s' in '%s'", text, tri_last_error());
}

static char *make_folder(void)
{
    char pattern[] = "/tmp/trireme-checkpoint-XXXXXX";
    assert_non_null(mkdtemp(pattern));
    return strdup(pattern);
}

static void drop_folder(char *folder)
{
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
    free(folder);
}

static const char *in_folder(const char *folder, const char *name)
{
    static char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void assert_names(const char *folder, const char *wanted)
{
    char **names, text[500] = "";
    size_t count;
    assert_int_equal(tri_fs_list(folder, &names, &count), TRI_OK);
    for (size_t i = 0; i < count; i++) {
        strcat(text, names[i]);
        strcat(text, " ");
    }
    tri_fs_list_free(names, count);
    assert_string_equal(text, wanted);
}

static void assert_newest(const char *folder, const char *name)
{
    char *path;
    assert_int_equal(tri_checkpoint_newest(folder, &path, NULL), TRI_OK);
    assert_string_equal(path, in_folder(folder, name));
    tri_free(path);
}

static void what_was_saved_is_loaded(void **state)
{
    (void)state;
    char *folder = make_folder();
    test_run saved, loaded;
    make_run(&saved, 12, 0.5f);
    strcpy(saved.manifest.bits, "not reproducible (\"any\" order, \xc3\xa4)");
    const char *deep = in_folder(folder, "runs/a");
    char *at = strdup(deep);
    assert_int_equal(checkpoint_save(&(tri_checkpoint_place){at, 3, 0}, &saved.manifest, &all_of(&saved)), TRI_OK);
    assert_names(at, "step-00000012 ");
    const char *path = in_folder(at, "step-00000012");
    assert_names(path, "manifest.json model.safetensors optimizer.safetensors ");
    assert_int_equal(tri_checkpoint_verify(path), TRI_OK);
    assert_int_equal(load(path, &loaded), TRI_OK);
    assert_memory_equal(loaded.weight, saved.weight, sizeof(saved.weight));
    assert_memory_equal(loaded.bias, saved.bias, sizeof(saved.bias));
    assert_memory_equal(loaded.moment, saved.moment, sizeof(saved.moment));
    assert_int_equal(loaded.manifest.step, 12);
    assert_int_equal(loaded.manifest.weights_hash, UINT64_C(0xfedcba9876543210));
    assert_int_equal(loaded.manifest.config_hash, 5);
    assert_string_equal(loaded.manifest.bits, saved.manifest.bits);
    free(at);
    drop_folder(folder);
}

static void a_step_in_the_name_must_be_the_manifests(void **state)
{
    (void)state;
    char *folder = make_folder();
    assert_int_equal(save(folder, 7, 3, 3), TRI_OK);
    char *from = strdup(in_folder(folder, "step-00000007")), *other = strdup(in_folder(folder, "step-00000008"));
    assert_int_equal(tri_fs_rename(from, other), TRI_OK);
    assert_int_equal(tri_checkpoint_verify(other), TRI_EFORMAT);
    assert_error_has("step-00000008: its manifest is of step 7");
    char *path = NULL;
    assert_int_equal(tri_checkpoint_newest(folder, &path, NULL), TRI_ENOTFOUND);
    assert_int_equal(tri_fs_rename(other, in_folder(folder, "best")), TRI_OK);
    assert_int_equal(tri_checkpoint_verify(in_folder(folder, "best")), TRI_OK);
    free(from);
    free(other);
    drop_folder(folder);
}

static void weights_alone_can_be_saved_and_loaded(void **state)
{
    (void)state;
    char *folder = make_folder();
    test_run saved, loaded;
    make_run(&saved, 1, 0.5f);
    tri_checkpoint_content weights = {.model = saved.model, .model_count = 2};
    assert_int_equal(checkpoint_save(&(tri_checkpoint_place){folder, 3, 0}, &saved.manifest, &weights), TRI_OK);
    const char *path = in_folder(folder, "step-00000001");
    assert_int_equal(load(path, &loaded), TRI_ENOTFOUND);
    assert_error_has("holds weights only");
    weights.model = loaded.model;
    assert_int_equal(tri_checkpoint_load(path, &loaded.manifest, &weights), TRI_OK);
    assert_memory_equal(loaded.weight, saved.weight, sizeof(saved.weight));
    drop_folder(folder);
}

static void names_and_shapes_must_fit_and_nothing_is_changed_otherwise(void **state)
{
    (void)state;
    char *folder = make_folder();
    test_run loaded;
    assert_int_equal(save(folder, 7, 3, 3), TRI_OK);
    const char *path = in_folder(folder, "step-00000007");
    make_run(&loaded, 0, -1);
    float before[WEIGHTS];
    memcpy(before, loaded.weight, sizeof(before));
    tri_checkpoint_content weights = {.model = loaded.model, .model_count = 1};
    assert_int_equal(tri_checkpoint_load(path, &loaded.manifest, &weights), TRI_EFORMAT);
    assert_error_has("'layer.bias' is in the file");
    weights.model_count = 2;
    loaded.model[1].name = "layer.other";
    assert_int_equal(tri_checkpoint_load(path, &loaded.manifest, &weights), TRI_EFORMAT);
    assert_error_has("'layer.other' is missing");
    loaded.model[1].name = "layer.bias";
    loaded.model[0].shape = (tri_shape){2, {100, 3}};
    assert_int_equal(tri_checkpoint_load(path, &loaded.manifest, &weights), TRI_EFORMAT);
    assert_error_has("want f32 [100, 3], got f32 [3, 100]");
    loaded.model[0].shape = (tri_shape){2, {3, 100}};
    loaded.state[0].name = "unknown";
    assert_int_equal(tri_checkpoint_load(path, &loaded.manifest, &all_of(&loaded)), TRI_EFORMAT);
    assert_memory_equal(loaded.weight, before, sizeof(before));
    assert_int_equal(loaded.manifest.step, 0);
    drop_folder(folder);
}

static void the_newest_are_kept_in_the_order_of_numbers(void **state)
{
    (void)state;
    char *folder = make_folder();
    static const int64_t steps[] = {5, 99999999, 100000000, 20};
    assert_int_equal(save(folder, 100, 1, 3), TRI_OK);
    assert_int_equal(mkdir(in_folder(folder, "step-00000001"), 0777), 0); /* no manifest: not ours to remove */
    assert_int_equal(mkdir(in_folder(folder, "best"), 0777), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(save(folder, steps[i], 1, 3), TRI_OK);
    assert_names(folder, "best step-00000001 step-00000100 step-100000000 step-99999999 ");
    assert_newest(folder, "step-100000000");
    assert_int_equal(save(folder, steps[3], 1, 1), TRI_OK); /* what was just saved stays, whatever its number */
    assert_names(folder, "best step-00000001 step-00000020 step-100000000 ");
    drop_folder(folder);
}

static void a_step_is_saved_again_over_the_old_one(void **state)
{
    (void)state;
    char *folder = make_folder();
    test_run loaded;
    assert_int_equal(save(folder, 7, 1, 3), TRI_OK);
    assert_int_equal(save(folder, 7, 2, 3), TRI_OK);
    assert_names(folder, "step-00000007 ");
    assert_int_equal(load(in_folder(folder, "step-00000007"), &loaded), TRI_OK);
    assert_true(loaded.bias[1] == 2.0f);
    drop_folder(folder);
}

static void debris_of_a_crash_is_cleared_and_old_ones_come_back(void **state)
{
    (void)state;
    char *folder = make_folder(), *from = NULL;
    assert_int_equal(save(folder, 7, 1, 9), TRI_OK);
    assert_int_equal(save(folder, 8, 1, 9), TRI_OK);
    from = strdup(in_folder(folder, "step-00000007"));
    assert_int_equal(tri_fs_rename(from, in_folder(folder, ".step-00000007.old.tmp")), TRI_OK);
    free(from);
    assert_int_equal(mkdir(in_folder(folder, ".step-00000009.tmp"), 0777), 0);
    assert_int_equal(tri_fs_append(in_folder(folder, ".step-00000009.tmp/model.safetensors"), "half", 4), TRI_OK);
    assert_int_equal(mkdir(in_folder(folder, ".step-00000005.gone.tmp"), 0777), 0);
    assert_int_equal(mkdir(in_folder(folder, ".step-00000008.old.tmp"), 0777), 0); /* the new one took its place */
    assert_int_equal(save(folder, 10, 1, 9), TRI_OK);
    assert_names(folder, "step-00000007 step-00000008 step-00000010 ");
    assert_int_equal(tri_checkpoint_verify(in_folder(folder, "step-00000007")), TRI_OK);
    drop_folder(folder);
}

/* Replaces one byte, or cuts the file there. */
static void damage(const char *path, size_t at, bool cut)
{
    char *bytes;
    size_t nbytes;
    assert_int_equal(tri_fs_read(path, 0, &bytes, &nbytes), TRI_OK);
    assert_true(at < nbytes);
    bytes[at] ^= 1;
    assert_int_equal(tri_fs_write_atomic(path, bytes, cut ? at : nbytes), TRI_OK);
    tri_free(bytes);
}

static void damaged_checkpoints_are_passed_over_and_named(void **state)
{
    (void)state;
    char *folder = make_folder(), *path;
    for (int64_t step = 1; step <= 5; step++)
        assert_int_equal(save(folder, step, (float)step, 9), TRI_OK);
    damage(in_folder(folder, "step-00000005/model.safetensors"), 700, false);
    damage(in_folder(folder, "step-00000004/optimizer.safetensors"), 500, true);
    damage(in_folder(folder, "step-00000003/manifest.json"), 60, false);
    assert_int_equal(tri_fs_remove(in_folder(folder, "step-00000002/manifest.json")), TRI_OK);
    tri_string skipped = {0};
    assert_int_equal(tri_checkpoint_newest(folder, &path, &skipped), TRI_OK);
    assert_string_equal(path, in_folder(folder, "step-00000001"));
    for (int step = 2; step <= 5; step++) {
        char name[20];
        snprintf(name, sizeof(name), "step-%08d (", step);
        assert_non_null(strstr(skipped.text, name));
    }
    tri_free(path);
    tri_string_fini(&skipped);
    test_run loaded;
    assert_int_equal(load(in_folder(folder, "step-00000005"), &loaded), TRI_EFORMAT);
    assert_error_has("model.safetensors: tensor 'layer.weight' is damaged in its bytes 0 to 1200");
    assert_int_equal(tri_checkpoint_verify(in_folder(folder, "step-00000004")), TRI_EFORMAT);
    assert_error_has("bytes, got 500");
    drop_folder(folder);
}

static void a_manifest_believes_no_changed_byte_and_no_prefix(void **state)
{
    (void)state;
    tri_manifest manifest = {.run = {.step = 9, .bits = "reproducible"}, .file_count = 1}, parsed;
    strcpy(manifest.files[0].name, TRI_MODEL_FILE);
    manifest.files[0].checks = (uint32_t[]){1, 2};
    manifest.files[0].check_count = 2;
    tri_string text = {0};
    assert_int_equal(tri_manifest_print(&manifest, &text), TRI_OK);
    assert_int_equal(tri_manifest_parse(text.text, text.nbytes, "m", &parsed), TRI_OK);
    assert_int_equal(parsed.run.step, 9);
    assert_int_equal(parsed.files[0].checks[1], 2);
    tri_manifest_fini(&parsed);
    for (size_t i = 0; i + 1 < text.nbytes; i++) { /* the last byte is a line end */
        assert_int_equal(tri_manifest_parse(text.text, i, "m", &parsed), TRI_EFORMAT);
        for (int bit = 0; bit < 8; bit++) {
            text.text[i] ^= (char)(1 << bit);
            assert_int_equal(tri_manifest_parse(text.text, text.nbytes, "m", &parsed), TRI_EFORMAT);
            text.text[i] ^= (char)(1 << bit);
        }
    }
    tri_string_fini(&text);
}

static void a_folder_without_checkpoints_is_not_found(void **state)
{
    (void)state;
    char *folder = make_folder(), *path;
    assert_int_equal(tri_checkpoint_newest(folder, &path, NULL), TRI_ENOTFOUND);
    assert_null(path);
    assert_int_equal(tri_checkpoint_newest(in_folder(folder, "none"), &path, NULL), TRI_ENOTFOUND);
    drop_folder(folder);
}

/* The save fails, says why in one line, and the old checkpoint is as it was. */
static void expect_failed_save(const char *folder, const char *reason)
{
    assert_error_has(reason);
    assert_null(strchr(tri_last_error(), '\n'));
    assert_names(folder, "step-00000001 ");
    assert_int_equal(tri_checkpoint_verify(in_folder(folder, "step-00000001")), TRI_OK);
}

static void files_that_may_not_grow_leave_the_old_checkpoint(void **state)
{
    (void)state;
    char *folder = make_folder();
    assert_int_equal(save(folder, 1, 1, 3), TRI_OK);
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t nbytes = 0; nbytes <= 1200; nbytes += 400) {
        limit = (struct rlimit){nbytes, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        tri_status status = save(folder, 2, 2, 3);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, TRI_EIO);
        expect_failed_save(folder, "File too large");
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(save(folder, 2, 2, 3), TRI_OK);
    drop_folder(folder);
}

static void a_full_disk_leaves_the_old_checkpoint(void **state)
{
    (void)state;
    char *folder = make_folder();
    if (mount("tmpfs", folder, "tmpfs", 0, "size=32k") != 0) {
        drop_folder(folder);
        skip();
    }
    assert_int_equal(save(folder, 1, 1, 3), TRI_OK);
    char filler[4096] = {0};
    while (tri_fs_append(in_folder(folder, "filler"), filler, sizeof(filler)) == TRI_OK)
        ;
    assert_int_equal(truncate(in_folder(folder, "filler"), 4096 * 3), 0);
    tri_status status = save(folder, 2, 2, 3);
    char message[1024];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    assert_int_equal(tri_fs_remove(in_folder(folder, "filler")), TRI_OK);
    assert_int_equal(status, TRI_EIO);
    assert_non_null(strstr(message, "no space left on the device"));
    assert_names(folder, "step-00000001 ");
    assert_int_equal(tri_checkpoint_verify(in_folder(folder, "step-00000001")), TRI_OK);
    assert_int_equal(umount(folder), 0);
    drop_folder(folder);
}

static void a_folder_that_cannot_be_made_gives_one_clear_line(void **state)
{
    (void)state;
    char *folder = make_folder();
    assert_int_equal(save(folder, 1, 1, 3), TRI_OK);
    assert_int_equal(save("/proc/trireme/checkpoints", 2, 2, 3), TRI_ENOTFOUND);
    expect_failed_save(folder, "/proc/trireme");
    assert_int_equal(save(in_folder(folder, "step-00000001/manifest.json"), 2, 2, 3), TRI_EIO);
    expect_failed_save(folder, "manifest.json");
    drop_folder(folder);
}

static void every_failing_allocation_leaves_the_old_checkpoint(void **state)
{
    (void)state;
    char *folder = make_folder();
    uint64_t live = tri_memory_now().live;
    assert_int_equal(save(folder, 1, 1, 3), TRI_OK);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 500);
        tri_memory_fail_at(n);
        tri_status status = save(folder, 2, 2, 3);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        assert_int_equal(tri_memory_now().live, live);
        assert_int_equal(tri_checkpoint_verify(in_folder(folder, "step-00000001")), TRI_OK);
        assert_int_equal(tri_fs_exists(in_folder(folder, "step-00000002")), status == TRI_OK);
        if (status != TRI_OK)
            continue;
        done = n > 70; /* clearing up after saving may fail without harm */
        assert_int_equal(tri_fs_remove(in_folder(folder, "step-00000002")), TRI_OK);
    }
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_loaded),
        cmocka_unit_test(a_step_in_the_name_must_be_the_manifests),
        cmocka_unit_test(weights_alone_can_be_saved_and_loaded),
        cmocka_unit_test(names_and_shapes_must_fit_and_nothing_is_changed_otherwise),
        cmocka_unit_test(the_newest_are_kept_in_the_order_of_numbers),
        cmocka_unit_test(a_step_is_saved_again_over_the_old_one),
        cmocka_unit_test(debris_of_a_crash_is_cleared_and_old_ones_come_back),
        cmocka_unit_test(damaged_checkpoints_are_passed_over_and_named),
        cmocka_unit_test(a_manifest_believes_no_changed_byte_and_no_prefix),
        cmocka_unit_test(a_folder_without_checkpoints_is_not_found),
        cmocka_unit_test(files_that_may_not_grow_leave_the_old_checkpoint),
        cmocka_unit_test(a_full_disk_leaves_the_old_checkpoint),
        cmocka_unit_test(a_folder_that_cannot_be_made_gives_one_clear_line),
        cmocka_unit_test(every_failing_allocation_leaves_the_old_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
