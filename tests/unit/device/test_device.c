/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device.c: the table of devices, the memory of each, and the deaths of those who touch what they may not.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "device/device.h"

static void devices_are_opened_by_their_words(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        tri_status status;
        const char *kind, *says;
        int index;
    } rows[] = {
        {"cpu", TRI_OK, "cpu", NULL, 0},
        {"fake", TRI_OK, "fake", NULL, 0},
        {"fake:3", TRI_OK, "fake", NULL, 3},
        {"fake:", TRI_ECONFIG, NULL, "want auto, cpu, cuda or cuda:N, got 'fake:'", 0},
        {"fake:4294967296", TRI_ECONFIG, NULL, "got 'fake:4294967296'", 0},
        {"fake:99999999999999999999", TRI_ECONFIG, NULL, "got 'fake:9999", 0},
        {"cpu:0", TRI_OK, "cpu", NULL, 0},
        {"cpu:7", TRI_ECONFIG, NULL, "got 'cpu:7'", 0},
        {"fake:1x", TRI_ECONFIG, NULL, "got 'fake:1x'", 0},
        {"faker", TRI_ECONFIG, NULL, "got 'faker'", 0},
        {"", TRI_ECONFIG, NULL, "got ''", 0},
        {"cuda:", TRI_ECONFIG, NULL, "want auto, cpu, cuda or cuda:N, got 'cuda:'", 0},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        tri_device *device = NULL;
        assert_int_equal(tri_device_open(rows[i].word, &device), rows[i].status);
        if (rows[i].status == TRI_OK) {
            assert_string_equal(device->ops->name, rows[i].kind);
            assert_int_equal(device->index, rows[i].index);
        } else
            assert_non_null(strstr(tri_last_error(), rows[i].says));
        tri_device_close(device);
    }
    assert_null(tri_device_at(1000));
}

/* Cards, which few machines have, are tested by tests/gpu. */
static bool next_kind(size_t *i)
{
    while (tri_device_at(*i) && strcmp(tri_device_at(*i)->name, "cuda") == 0)
        (*i)++;
    return tri_device_at(*i) != NULL;
}

static void memory_is_zeroed_aligned_and_copied(void **state)
{
    (void)state;
    const uint64_t live = tri_memory_now().live;
    for (size_t i = 0; next_kind(&i); i++) {
        unsigned char host[1000];
        tri_device *device;
        assert_int_equal(tri_device_open(tri_device_at(i)->name, &device), TRI_OK);
        unsigned char *a = tri_device_alloc(device, 1000), *b = tri_device_alloc(device, 1000);
        assert_true(a && b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
        memset(host, 9, sizeof(host));
        tri_device_to_host(device, host, a, 1000);
        for (size_t k = 0; k < sizeof(host); k++)
            assert_int_equal(host[k], 0);
        tri_device_fill(device, a, 7, 999);
        tri_device_copy(device, b, a, 1000);
        tri_device_from_host(device, b + 998, (unsigned char[]){1, 2}, 2);
        tri_device_to_host(device, host, b + 997, 3);
        assert_memory_equal(host, ((unsigned char[]){7, 1, 2}), 3);
        tri_device_copy(device, NULL, NULL, 0);
        tri_device_free(device, a);
        tri_device_free(device, b);
        tri_device_free(device, NULL);
        tri_device_free(device, tri_device_alloc(device, 0));
        tri_device_close(device);
    }
    assert_int_equal(tri_memory_now().live, live);
}

static void a_view_is_the_array_or_a_copy(void **state)
{
    (void)state;
    for (size_t i = 0; next_kind(&i); i++) {
        tri_device *device;
        tri_device_view view;
        int back[2];
        assert_int_equal(tri_device_open(tri_device_at(i)->name, &device), TRI_OK);
        int *array = tri_device_alloc(device, sizeof(back));
        tri_device_from_host(device, array, (int[]){4, 5}, sizeof(back));
        assert_int_equal(tri_device_view_open(&view, device, array, sizeof(back)), TRI_OK);
        int *host = view.host;
        assert_int_equal(host == array, tri_device_shares_host(device));
        assert_int_equal(host[1], 5);
        host[1] = 6;
        tri_device_view_write(&view);
        tri_device_view_close(&view);
        tri_device_to_host(device, back, array, sizeof(back));
        assert_int_equal(back[0] * 10 + back[1], 46);
        tri_device_free(device, array);
        tri_device_close(device);
    }
}

static void exhausted_memory_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; next_kind(&i); i++) {
        tri_device *device;
        assert_int_equal(tri_device_open(tri_device_at(i)->name, &device), TRI_OK);
        tri_memory_fail_at(1);
        assert_null(tri_device_alloc(device, 64));
        tri_memory_fail_at(0);
        assert_null(tri_device_alloc(device, SIZE_MAX / 4));
        tri_device_close(device);
    }
}

/* --- who touches what he may not --- */

static void reads_an_array(const tri_device *device, volatile float *array)
{
    (void)device;
    (void)(array[3] + 1);
}

static void writes_an_array(const tri_device *device, volatile float *array)
{
    (void)device;
    array[3] = 1;
}

static void reads_what_is_freed(const tri_device *device, volatile float *array)
{
    float back[2];
    tri_device_free(device, (void *)(uintptr_t)array);
    tri_device_to_host(device, back, (const void *)(uintptr_t)array, sizeof(back));
}

static void copies_too_much(const tri_device *device, volatile float *array)
{
    static char back[3 * 4096];
    tri_device_to_host(device, back, (const void *)(uintptr_t)array, sizeof(back));
}

static void gives_the_hosts_memory(const tri_device *device, volatile float *array)
{
    float own[4] = {0};
    tri_device_copy(device, (void *)(uintptr_t)array, own, sizeof(own));
}

static void takes_the_other_devices_memory(const tri_device *device, volatile float *array)
{
    tri_device *other;
    assert_int_equal(tri_device_open("fake", &other), TRI_OK);
    tri_device_fill(other, (void *)(uintptr_t)array, 1, 4);
    (void)device;
}

/* What the child prints before it dies. */
static void child_dies(void (*body)(const tri_device *device, volatile float *array), const char *says)
{
    char text[4096];
    size_t used = 0;
    int ends[2], how;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        tri_device *device;
        dup2(ends[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); /* cmocka has them */
        signal(SIGABRT, SIG_DFL);
        if (tri_device_open("fake", &device) == TRI_OK)
            body(device, tri_device_alloc(device, 4096));
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + used, sizeof(text) - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    if ((WIFEXITED(how) && WEXITSTATUS(how) == 0) || !strstr(text, says))
        fail_msg("want a death with '%s', got %d and '%s'", says, how, text);
}

static void a_touch_of_the_fake_devices_memory_ends_the_process(void **state)
{
    (void)state;
    child_dies(reads_an_array, "error: the host touches memory of the fake device at 0x");
    child_dies(writes_an_array, "error: the host touches memory of the fake device at 0x");
    child_dies(reads_what_is_freed, "error: a kernel or a copy passes the end of an array of the fake device at 0x");
    child_dies(copies_too_much, "error: a kernel or a copy passes the end of an array of the fake device at 0x");
    child_dies(gives_the_hosts_memory, "the fake device is given memory that is not its own: 0x");
    child_dies(takes_the_other_devices_memory, "the fake device is given memory that is not its own: 0x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_opened_by_their_words),
        cmocka_unit_test(memory_is_zeroed_aligned_and_copied),
        cmocka_unit_test(a_view_is_the_array_or_a_copy),
        cmocka_unit_test(exhausted_memory_is_reported),
        cmocka_unit_test(a_touch_of_the_fake_devices_memory_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
