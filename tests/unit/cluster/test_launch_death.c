/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch_death.c: where the kernel counts how often its out-of-memory killer struck. tests/process/oom.py has one
 * that strikes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cluster/launch_impl.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tri-test-death-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return tri_fs_remove(root) == TRI_OK ? 0 : -1;
}

static void put(const char *path, const char *text)
{
    char *whole = tri_format("%s%s", root, path), *slash = strrchr(whole, '/');
    *slash = 0;
    assert_int_equal(tri_fs_make_folder(whole), TRI_OK);
    *slash = '/';
    assert_int_equal(tri_fs_remove(whole), TRI_OK);
    assert_int_equal(tri_fs_append(whole, text, strlen(text)), TRI_OK);
    tri_free(whole);
}

/* The nearest that counts is believed: each row adds a file to those before it. */
static void the_nearest_count_is_taken(void **state)
{
    static const struct {
        const char *path, *text;
        int64_t count;
    } rows[] = {
        {"/proc/nothing", "", -1},
        {"/proc/vmstat", "nr_free_pages 1\noom_kill 7\nnuma_hit 3\n", 7},
        {"/proc/self/cgroup", "4:cpu:/a\n3:memory:/kube/pod\n0::/\n", 7},
        {"/sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5},
        {"/sys/fs/cgroup/memory/kube/pod/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", 4},
        {"/proc/self/cgroup", "0::/user.slice/run\n", 7},
        {"/sys/fs/cgroup/user.slice/run/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n",
         1},
    };

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        put(rows[i].path, rows[i].text);
        assert_int_equal(tri_launch_oom_count(root), rows[i].count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_nearest_count_is_taken)};

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
