/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fs.c: files in a folder of its own under /tmp; failures that also happen to root.
 */
#include "base/fs.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/map_guard.h"
#include "base/status.h"

static char root[64];
static char path_text[4][256];

/* root/name, in one of four buffers. */
static const char *in_root(const char *name)
{
    static size_t next;
    char *text = path_text[next++ % 4];
    snprintf(text, sizeof(path_text[0]), "%s/%s", root, name);
    return text;
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tri-test-fs-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return tri_fs_remove(root) == TRI_OK ? 0 : -1;
}

static void assert_file(const char *path, const void *want, size_t want_nbytes)
{
    char *text = NULL;
    size_t nbytes = 0;
    assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
    assert_int_equal(nbytes, want_nbytes);
    assert_memory_equal(text, want, want_nbytes);
    assert_int_equal(text[nbytes], 0);
    tri_free(text);
}

static size_t count_in_root(void)
{
    char **names;
    size_t count;
    assert_int_equal(tri_fs_list(root, &names, &count), TRI_OK);
    tri_fs_list_free(names, count);
    return count;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const char *path = in_root("a");
    assert_int_equal(tri_fs_write_atomic(path, "one\0two", 7), TRI_OK);
    assert_file(path, "one\0two", 7);
    assert_int_equal(tri_fs_write_atomic(path, "", 0), TRI_OK);
    assert_file(path, "", 0);
    size_t nbytes = (size_t)3 << 20;
    char *large = tri_alloc(nbytes);
    for (size_t i = 0; i < nbytes; i++)
        large[i] = (char)(i * 7 >> 3);
    assert_int_equal(tri_fs_write_atomic(path, large, nbytes), TRI_OK);
    assert_file(path, large, nbytes);
    tri_free(large);
    assert_int_equal(count_in_root(), 1);
}

static void relative_paths_work_too(void **state)
{
    (void)state;
    char before[1024];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(tri_fs_write_atomic("here", "x", 1), TRI_OK);
    assert_int_equal(tri_fs_make_folder("p/q"), TRI_OK);
    assert_int_equal(chdir(before), 0);
    assert_file(in_root("here"), "x", 1);
    assert_true(tri_fs_is_folder(in_root("p/q")));
}

static void files_that_lie_about_their_length_are_read_whole(void **state)
{
    (void)state;
    char *text;
    size_t nbytes;
    assert_int_equal(tri_fs_read("/proc/self/maps", 0, &text, &nbytes), TRI_OK); /* stat says 0 bytes */
    assert_true(nbytes > 100);
    assert_int_equal(strlen(text), nbytes);
    tri_free(text);
    assert_int_equal(tri_fs_read("/proc/self/maps", 100, &text, &nbytes), TRI_EFORMAT);
    assert_int_equal(tri_fs_read("/dev/zero", 100000, &text, &nbytes), TRI_EFORMAT);
    /* Gives all it has to the first read, and nothing to a second. */
    assert_int_equal(tri_fs_read("/proc/sys/kernel/pid_max", 0, &text, &nbytes), TRI_OK);
    assert_true(nbytes > 4 && text[nbytes - 1] == '\n');
    tri_free(text);
}

static void the_limit_of_a_read_is_inclusive(void **state)
{
    (void)state;
    char *text = NULL;
    size_t nbytes;
    const char *path = in_root("limited");
    tri_fs_write_atomic(path, "12345", 5);
    assert_int_equal(tri_fs_read(path, 5, &text, &nbytes), TRI_OK);
    tri_free(text);
    text = NULL;
    assert_int_equal(tri_fs_read(path, 4, &text, &nbytes), TRI_EFORMAT);
    assert_null(text);
    assert_non_null(strstr(tri_last_error(), "limited: want at most 4 bytes, got 5"));
}

static void failures_name_path_and_reason(void **state)
{
    (void)state;
    char *text = NULL;
    size_t nbytes;
    assert_int_equal(tri_fs_read(in_root("absent"), 0, &text, &nbytes), TRI_ENOTFOUND);
    assert_non_null(strstr(tri_last_error(), "/absent: cannot open for reading: No such file"));
    assert_int_equal(tri_fs_read(root, 0, &text, &nbytes), TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "Is a directory"));
    tri_fs_write_atomic(in_root("file"), "x", 1);
    assert_int_equal(tri_fs_write_atomic(in_root("file/below"), "x", 1), TRI_EIO); /* fails for root as well */
    assert_non_null(strstr(tri_last_error(), "file/below: cannot create: Not a directory"));
    assert_int_equal(tri_fs_append(in_root("file/below"), "x", 1), TRI_EIO);
    assert_int_equal(tri_fs_make_folder(in_root("file/below/c")), TRI_EIO);
    assert_int_equal(tri_fs_make_folder(in_root("file")), TRI_EIO);
    assert_int_equal(tri_fs_make_folder(""), TRI_EINVAL);
    assert_int_equal(tri_fs_rename(in_root("absent"), in_root("b")), TRI_ENOTFOUND);
    assert_int_equal(tri_fs_sync(in_root("absent")), TRI_ENOTFOUND);
    assert_int_equal(tri_fs_write_atomic(in_root("no/such/folder"), "x", 1), TRI_ENOTFOUND);
}

static void a_full_disk_is_told_as_such(void **state)
{
    (void)state;
    assert_int_equal(tri_fs_append("/dev/full", "0123456789", 10), TRI_EIO);
    assert_string_equal(tri_last_error(), "/dev/full: cannot write: want 10 bytes, got 0: no space left on the device");
}

static void a_failed_atomic_write_leaves_the_old_file_and_nothing_else(void **state)
{
    (void)state;
    const char *path = in_root("precious");
    assert_int_equal(tri_fs_write_atomic(path, "old", 3), TRI_OK);
    size_t before = count_in_root();
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    static const char bytes[10000];
    setrlimit(RLIMIT_FSIZE, &small);
    tri_status status = tri_fs_write_atomic(path, bytes, sizeof(bytes));
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "precious: cannot write: want 10000 bytes, got 4096: File too large"));
    assert_file(path, "old", 3);
    assert_int_equal(count_in_root(), before);
    /* The name is taken by a folder: renaming onto it fails. */
    tri_fs_make_folder(in_root("folder"));
    before = count_in_root();
    assert_int_equal(tri_fs_write_atomic(in_root("folder"), "x", 1), TRI_EIO);
    assert_int_equal(count_in_root(), before);
}

static void a_temporary_name_that_is_taken_is_passed_over(void **state)
{
    (void)state;
    const char *path = in_root("contested");
    for (unsigned long n = 0; n < 60; n++) { /* leftovers of a crashed process with our number */
        char name[300];
        snprintf(name, sizeof(name), "%s.tmp-%ld-%lu", path, (long)getpid(), n);
        assert_int_equal(tri_fs_append(name, "leftover", 8), TRI_OK);
    }
    assert_int_equal(tri_fs_write_atomic(path, "mine", 4), TRI_OK);
    assert_file(path, "mine", 4);
}

static void appending_goes_to_the_end(void **state)
{
    (void)state;
    const char *path = in_root("log");
    assert_int_equal(tri_fs_append(path, "ab", 2), TRI_OK);
    assert_int_equal(tri_fs_append(path, "", 0), TRI_OK);
    assert_int_equal(tri_fs_append(path, "cd", 2), TRI_OK);
    assert_file(path, "abcd", 4);
}

static void folders_are_made_listed_and_removed_as_trees(void **state)
{
    (void)state;
    assert_int_equal(tri_fs_make_folder(in_root("t/u//v/")), TRI_OK);
    assert_int_equal(tri_fs_make_folder(in_root("t/u/v")), TRI_OK);
    assert_true(tri_fs_is_folder(in_root("t/u/v")));
    tri_fs_write_atomic(in_root("t/u/z"), "", 0);
    tri_fs_write_atomic(in_root("t/u/a"), "", 0);
    tri_fs_write_atomic(in_root("t/u/.hidden"), "", 0);
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(tri_fs_list(in_root("t/u"), &names, &count), TRI_OK);
    assert_int_equal(count, 4);
    static const char *const want[] = {".hidden", "a", "v", "z"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(names[i], want[i]);
    tri_fs_list_free(names, count);
    assert_int_equal(tri_fs_list(in_root("t/u/v"), &names, &count), TRI_OK);
    assert_int_equal(count, 0);
    tri_fs_list_free(names, count);
    assert_int_equal(tri_fs_list(in_root("nowhere"), &names, &count), TRI_ENOTFOUND);
    assert_int_equal(tri_fs_sync(in_root("t/u")), TRI_OK);
    assert_int_equal(tri_fs_remove(in_root("t")), TRI_OK);
    assert_false(tri_fs_exists(in_root("t")));
    assert_int_equal(tri_fs_remove(in_root("t")), TRI_OK);
}

static void removing_does_not_follow_links(void **state)
{
    (void)state;
    tri_fs_make_folder(in_root("kept"));
    tri_fs_write_atomic(in_root("kept/x"), "x", 1);
    tri_fs_make_folder(in_root("gone"));
    assert_int_equal(symlink(in_root("kept"), in_root("gone/link")), 0);
    assert_int_equal(symlink("nowhere", in_root("dangling")), 0);
    assert_int_equal(tri_fs_remove(in_root("gone")), TRI_OK);
    assert_int_equal(tri_fs_remove(in_root("dangling")), TRI_OK);
    assert_file(in_root("kept/x"), "x", 1);
    struct stat info;
    assert_int_not_equal(lstat(in_root("dangling"), &info), 0);
}

static void renaming_replaces_the_target(void **state)
{
    (void)state;
    tri_fs_write_atomic(in_root("from"), "new", 3);
    tri_fs_write_atomic(in_root("to"), "old", 3);
    assert_int_equal(tri_fs_rename(in_root("from"), in_root("to")), TRI_OK);
    assert_false(tri_fs_exists(in_root("from")));
    assert_file(in_root("to"), "new", 3);
}

static void maps_show_the_file(void **state)
{
    (void)state;
    tri_fs_map map;
    tri_fs_write_atomic(in_root("m"), "mapped", 6);
    assert_int_equal(tri_fs_map_open(in_root("m"), &map), TRI_OK);
    assert_int_equal(map.nbytes, 6);
    assert_memory_equal(map.bytes, "mapped", 6);
    tri_fs_map_close(&map);
    assert_null(map.bytes);
    tri_fs_map_close(&map);
    tri_fs_write_atomic(in_root("m"), "", 0);
    assert_int_equal(tri_fs_map_open(in_root("m"), &map), TRI_OK);
    assert_int_equal(map.nbytes, 0);
    assert_non_null(map.bytes);
    tri_fs_map_close(&map);
    assert_int_equal(tri_fs_map_open(root, &map), TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "want a regular file, got a folder"));
    assert_int_equal(tri_fs_map_open(in_root("absent"), &map), TRI_ENOTFOUND);
    assert_int_equal(mkfifo(in_root("pipe"), 0600), 0);
    assert_int_equal(tri_fs_map_open(in_root("pipe"), &map), TRI_EIO); /* and does not wait for a writer */
}

/* What a child that cuts the first of two maps to `left` bytes and reads the byte at `at` of map `which` says and how
 * it ends. */
static int cut_and_read(off_t left, int which, size_t at, char said[512])
{
    int ends[2], status;
    static const char bytes[20000];
    assert_int_equal(tri_fs_write_atomic(in_root("cut"), bytes, sizeof(bytes)), TRI_OK);
    assert_int_equal(tri_fs_write_atomic(in_root("whole"), bytes, sizeof(bytes)), TRI_OK);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        tri_fs_map maps[3];
        dup2(ends[1], STDERR_FILENO);
        tri_fs_cut_catch();
        if (tri_fs_map_open(in_root("cut"), &maps[0]) != TRI_OK ||
            tri_fs_map_open(in_root("whole"), &maps[1]) != TRI_OK)
            _exit(90);
        maps[2] = maps[0];
        if (which == 2) /* a map that is no longer guarded; the address stays */
            tri_map_guard_remove(maps[0].bytes);
        if (truncate(in_root("cut"), left) != 0)
            _exit(91);
        volatile char byte = ((const char *)maps[which].bytes)[at];
        _exit(byte == 0 ? 0 : 92);
    }
    close(ends[1]);
    ssize_t nbytes = 0, got;
    while ((got = read(ends[0], said + nbytes, (size_t)(511 - nbytes))) > 0)
        nbytes += got;
    said[nbytes] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void a_map_that_is_cut_short_is_named(void **state)
{
    (void)state;
    char said[512], wanted[512];
    snprintf(wanted, sizeof(wanted), "error: %s: cut short by another program while it was read\n", in_root("cut"));
    assert_int_equal(cut_and_read(0, 0, 0, said), 1);
    assert_string_equal(said, wanted);
    assert_int_equal(cut_and_read(5000, 0, 19999, said), 1);
    assert_string_equal(said, wanted);
    assert_int_equal(cut_and_read(5000, 0, 4999, said), 0); /* still there */
    assert_int_equal(cut_and_read(0, 1, 19999, said), 0);   /* another file */
    assert_string_equal(said, "");
}

static void another_bus_error_kills_as_before(void **state)
{
    (void)state;
    char said[512];
    int code = cut_and_read(0, 2, 0, said);
    assert_true(code == -SIGBUS || code == 1); /* 1: a sanitizer's own handler took it */
    assert_null(strstr(said, "cut short"));
}

static void running_out_of_memory_is_reported_everywhere(void **state)
{
    (void)state;
    tri_fs_make_folder(in_root("oom"));
    tri_fs_write_atomic(in_root("oom/a"), "x", 1);
    tri_memory_counts before = tri_memory_now();
    char *text, **names;
    size_t count;
    tri_memory_fail_at(1);
    assert_int_equal(tri_fs_read(in_root("oom/a"), 0, &text, &count), TRI_ENOMEM);
    for (uint64_t n = 1; n <= 2; n++) {
        tri_memory_fail_at(n);
        assert_int_equal(tri_fs_list(in_root("oom"), &names, &count), TRI_ENOMEM);
    }
    tri_memory_fail_at(1);
    assert_int_equal(tri_fs_write_atomic(in_root("oom/a"), "x", 1), TRI_ENOMEM);
    tri_memory_fail_at(1);
    assert_int_equal(tri_fs_make_folder(in_root("oom/b")), TRI_ENOMEM);
    assert_int_equal(tri_memory_now().live, before.live);
}

static void only_a_terminal_is_a_terminal(void **state)
{
    (void)state;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), file = open("/dev/null", O_RDWR);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int inside = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(inside >= 0);
    assert_true(tri_fs_is_terminal(inside));
    assert_false(tri_fs_is_terminal(file));
    assert_false(tri_fs_is_terminal(-1));
    close(inside);
    close(terminal);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(relative_paths_work_too),
        cmocka_unit_test(files_that_lie_about_their_length_are_read_whole),
        cmocka_unit_test(the_limit_of_a_read_is_inclusive),
        cmocka_unit_test(failures_name_path_and_reason),
        cmocka_unit_test(a_full_disk_is_told_as_such),
        cmocka_unit_test(a_failed_atomic_write_leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(a_temporary_name_that_is_taken_is_passed_over),
        cmocka_unit_test(appending_goes_to_the_end),
        cmocka_unit_test(folders_are_made_listed_and_removed_as_trees),
        cmocka_unit_test(removing_does_not_follow_links),
        cmocka_unit_test(renaming_replaces_the_target),
        cmocka_unit_test(maps_show_the_file),
        cmocka_unit_test(a_map_that_is_cut_short_is_named),
        cmocka_unit_test(another_bus_error_kills_as_before),
        cmocka_unit_test(only_a_terminal_is_a_terminal),
        cmocka_unit_test(running_out_of_memory_is_reported_everywhere),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
