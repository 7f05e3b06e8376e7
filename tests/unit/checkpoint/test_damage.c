/* SPDX-License-Identifier: Apache-2.0
 *
 * test_damage.c: whatever is done to the files of a checkpoint is found before it is used, and named: file, tensor,
 * bytes; and the one before it is taken instead.
 * usage: test_damage [--figures]: 100,000 random bits of the payload, and a line for bench/reliability.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "base/runtime.h"
#include "checkpoint/manifest.h"
#include "unit/checkpoint/write.h"

#define WEIGHTS 300000 /* two pieces */

static char folder[] = "/tmp/trireme-damage-XXXXXX";
static int random_bits = 4000;
static int damages;        /* done and found */
static int64_t slowest_ns; /* until the one before was found */

static char *path_of(int64_t step, const char *name)
{
    static char paths[2][200];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof(paths[0]), "%s/step-%08lld%s%s", folder, (long long)step, name[0] ? "/" : "", name);
    return path;
}

static void save(int64_t step)
{
    static float weight[WEIGHTS], bias[7], moment[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) {
        weight[i] = (float)(step * 7 + i);
        moment[i] = (float)(i - step);
    }
    bias[3] = (float)step;
    const tri_checkpoint_slice model[] = {{.name = "a.weight", .shape = {2, {300, 1000}}, .values = weight},
                                          {.name = "a.bias", .shape = {1, {7}}, .values = bias}};
    const tri_checkpoint_slice state[] = {{.name = "m.a.weight", .shape = {2, {300, 1000}}, .values = moment}};
    const tri_checkpoint_manifest manifest = {.step = step, .bits = "reproducible"};
    assert_int_equal(checkpoint_save(&(tri_checkpoint_place){folder, 9, 0}, &manifest,
                                     &(tri_checkpoint_content){model, state, 2, 1}),
                     TRI_OK);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    save(1);
    save(2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return tri_fs_remove(folder) == TRI_OK ? 0 : 1;
}

/* It is refused, with that text. */
static void refused(const char *what)
{
    if (tri_checkpoint_verify(path_of(2, "")) == TRI_OK)
        fail_msg("damage is not found: %s", what);
    if (!strstr(tri_last_error(), what))
        fail_msg("want '%s' in '%s'", what, tri_last_error());
    damages++;
}

/* It is passed over for the one before it. */
static void falls_back(const char *what)
{
    char *newest = NULL;
    tri_string skipped = {0};
    int64_t start_ns = tri_now_ns();
    assert_int_equal(tri_checkpoint_newest(folder, &newest, &skipped), TRI_OK);
    int64_t took_ns = tri_now_ns() - start_ns;
    slowest_ns = took_ns > slowest_ns ? took_ns : slowest_ns;
    assert_string_equal(newest, path_of(1, ""));
    assert_non_null(strstr(skipped.text, what));
    tri_string_fini(&skipped);
    tri_free(newest);
}

static void flip(int fd, uint64_t bit)
{
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (unsigned char)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
}

static uint64_t header_nbytes(const char *name)
{
    char *bytes;
    assert_int_equal(tri_fs_read(path_of(2, name), 0, &bytes, NULL), TRI_OK);
    uint64_t length = 0;
    memcpy(&length, bytes, 8);
    tri_free(bytes);
    return 8 + length;
}

static void every_bit_of_headers_and_manifest_counts(void **state)
{
    (void)state;
    static const char *const names[] = {TRI_MODEL_FILE, TRI_STATE_FILE, TRI_MANIFEST_FILE};
    for (int n = 0; n < 3; n++) {
        char *bytes;
        size_t nbytes;
        assert_int_equal(tri_fs_read(path_of(2, names[n]), 0, &bytes, &nbytes), TRI_OK);
        tri_free(bytes);
        uint64_t end = n < 2 ? header_nbytes(names[n]) : nbytes - 1; /* the last byte is a line end */
        int fd = open(path_of(2, names[n]), O_RDWR);
        for (uint64_t bit = 0; bit < 8 * end; bit++) {
            flip(fd, bit);
            refused(names[n]);
            if (bit % 500 == 0)
                falls_back(names[n]);
            flip(fd, bit);
        }
        close(fd);
    }
    assert_int_equal(tri_checkpoint_verify(path_of(2, "")), TRI_OK);
}

static void any_bit_of_the_payload_counts_and_its_place_is_named(void **state)
{
    (void)state;
    uint64_t first = header_nbytes(TRI_MODEL_FILE), random = 22;
    int fd = open(path_of(2, TRI_MODEL_FILE), O_RDWR);
    for (int i = 0; i < random_bits; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t bit = (random >> 16) % ((WEIGHTS + 7) * 32), byte = bit / 8;
        char where[100];
        if (byte >= WEIGHTS * 4)
            snprintf(where, sizeof(where), "tensor 'a.bias' is damaged in its bytes 0 to 28, from byte %llu",
                     (unsigned long long)first + WEIGHTS * 4);
        else
            snprintf(where, sizeof(where), "tensor 'a.weight' is damaged in its bytes %s, from byte %llu",
                     byte < TRI_CHECK_NBYTES ? "0 to 1048576" : "1048576 to 1200000",
                     (unsigned long long)(first + (byte < TRI_CHECK_NBYTES ? 0 : TRI_CHECK_NBYTES)));
        flip(fd, 8 * first + bit);
        refused(where);
        flip(fd, 8 * first + bit);
    }
    close(fd);
    assert_int_equal(tri_checkpoint_verify(path_of(2, "")), TRI_OK);
}

static void a_file_of_any_other_length_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {TRI_MODEL_FILE, TRI_STATE_FILE};
    for (int n = 0; n < 2; n++) {
        char *bytes;
        size_t nbytes;
        assert_int_equal(tri_fs_read(path_of(2, names[n]), 0, &bytes, &nbytes), TRI_OK);
        for (size_t cut = 0; cut < nbytes; cut += 4096) {
            assert_int_equal(truncate(path_of(2, names[n]), (off_t)cut), 0);
            refused("it was cut short");
            assert_int_equal(tri_fs_write_swap(path_of(2, names[n]), bytes, nbytes), TRI_OK);
        }
        for (size_t more = 1; more < 5000; more += 999) {
            assert_int_equal(truncate(path_of(2, names[n]), (off_t)(nbytes + more)), 0);
            refused("there is something behind its end");
        }
        assert_int_equal(tri_fs_write_swap(path_of(2, names[n]), bytes, nbytes), TRI_OK);
        tri_free(bytes);
    }
    assert_int_equal(tri_checkpoint_verify(path_of(2, "")), TRI_OK);
}

static void a_file_of_another_checkpoint_or_in_anothers_place_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {TRI_MODEL_FILE, TRI_STATE_FILE, TRI_MANIFEST_FILE};
    char aside[200];
    snprintf(aside, sizeof(aside), "%s/aside", folder);
    for (int n = 0; n < 3; n++) { /* old among new: each file in turn */
        char *bytes;
        size_t nbytes;
        assert_int_equal(tri_fs_rename(path_of(2, names[n]), aside), TRI_OK);
        assert_int_equal(tri_fs_read(path_of(1, names[n]), 0, &bytes, &nbytes), TRI_OK);
        assert_int_equal(tri_fs_write_swap(path_of(2, names[n]), bytes, nbytes), TRI_OK);
        refused(n == 0   ? "model.safetensors: tensor 'a.weight' is damaged"
                : n == 1 ? "optimizer.safetensors: tensor 'm.a.weight' is damaged"
                         : "its manifest is of step 1");
        falls_back(n < 2 ? names[n] : "step-00000002");
        assert_int_equal(tri_fs_rename(aside, path_of(2, names[n])), TRI_OK);
        tri_free(bytes);
        assert_int_equal(tri_fs_rename(path_of(2, names[n]), aside), TRI_OK); /* none */
        refused(names[n]);
        assert_int_equal(tri_fs_rename(aside, path_of(2, names[n])), TRI_OK);
    }
    assert_int_equal(tri_fs_exchange(path_of(2, names[0]), path_of(2, names[1])), TRI_OK); /* swapped */
    refused("model.safetensors");
    assert_int_equal(tri_fs_exchange(path_of(2, names[0]), path_of(2, names[1])), TRI_OK);
    assert_int_equal(tri_checkpoint_verify(path_of(2, "")), TRI_OK);
}

static void told_of_none(void *arg, const char *what)
{
    (void)arg;
    fail_msg("told as damage: %s", what);
}

/* A file that no process can open now, whoever runs the test: a link to itself is no damage to what it stands for. */
static void what_cannot_be_read_now_is_neither_damaged_nor_passed_over(void **state)
{
    (void)state;
    static const char *const names[] = {"manifest.json", "model.safetensors", "optimizer.safetensors"};
    tri_string skipped = {0};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
        char *path = NULL, *kept = tri_format("%s.kept", path_of(2, names[i]));
        assert_int_equal(rename(path_of(2, names[i]), kept), 0);
        assert_int_equal(symlink(path_of(2, names[i]), path_of(2, names[i])), 0);
        assert_int_equal(tri_checkpoint_newest(folder, &path, &skipped), TRI_EIO);
        assert_null(path);
        assert_non_null(strstr(tri_last_error(), names[i]));
        assert_int_equal(tri_checkpoint_examine(path_of(2, ""), told_of_none, NULL), TRI_EIO);
        assert_int_equal(rename(kept, path_of(2, names[i])), 0);
        tri_free(kept);
        assert_int_equal(tri_checkpoint_newest(folder, &path, &skipped), TRI_OK);
        assert_int_equal(tri_checkpoint_path_step(path), 2);
        tri_free(path);
    }
    assert_int_equal(skipped.nbytes, 0);
    char *manifest = path_of(2, "manifest.json"), *kept = tri_format("%s.kept", manifest), *path = NULL;
    assert_int_equal(rename(manifest, kept), 0); /* that is damage */
    assert_int_equal(tri_checkpoint_newest(folder, &path, &skipped), TRI_OK);
    assert_int_equal(tri_checkpoint_path_step(path), 1);
    assert_int_equal(rename(kept, manifest), 0);
    tri_free(path);
    tri_free(kept);
    tri_string_fini(&skipped);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_of_headers_and_manifest_counts),
        cmocka_unit_test(any_bit_of_the_payload_counts_and_its_place_is_named),
        cmocka_unit_test(a_file_of_any_other_length_is_refused),
        cmocka_unit_test(a_file_of_another_checkpoint_or_in_anothers_place_is_refused),
        cmocka_unit_test(what_cannot_be_read_now_is_neither_damaged_nor_passed_over),
    };
    bool tells = argc > 1 && strcmp(argv[1], "--figures") == 0;
    random_bits = tells ? 100000 : random_bits;
    int64_t start_ns = tri_now_ns();
    int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    if (tells)
        printf("figures damages %d found %s fallback_ms %.1f seconds %.1f\n", damages, failed ? "fewer" : "all",
               (double)slowest_ns / 1e6, (double)(tri_now_ns() - start_ns) / 1e9);
    return failed;
}
