/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fs_direct.c: large files past the system's cache have the bytes that they would have had through it.
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

#define NBYTES ((size_t)5 << 20)

static char root[64], path[128];
static unsigned char *wanted;

static int make(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tri-test-direct-XXXXXX");
    wanted = malloc(NBYTES);
    for (size_t i = 0; i < NBYTES; i++)
        wanted[i] = (unsigned char)(i * 2654435761u >> 13);
    return mkdtemp(root) && snprintf(path, sizeof(path), "%s/file", root) > 0 ? 0 : -1;
}

static int clear(void **state)
{
    (void)state;
    free(wanted);
    return tri_fs_remove(root) == TRI_OK ? 0 : -1;
}

static tri_fs_file *opened(bool anew)
{
    tri_fs_file *file;
    assert_int_equal(tri_fs_file_open(path, anew, &file), TRI_OK);
    tri_fs_file_pass_cache(file);
    return file;
}

static void ended(tri_fs_file *file)
{
    assert_int_equal(tri_fs_file_sync(file), TRI_OK);
    assert_int_equal(tri_fs_file_close(file), TRI_OK);
}

static void assert_wanted(size_t nbytes)
{
    char *text;
    size_t found;
    assert_int_equal(tri_fs_read(path, 0, &text, &found), TRI_OK);
    assert_int_equal(found, nbytes);
    assert_memory_equal(text, wanted, nbytes);
    tri_free(text);
}

/* Pieces of any length from any place on. */
static void a_row_of_pieces_is_written(void **state)
{
    (void)state;
    static const size_t heads[] = {0, 1, 8, 4095, 4096, 4097, 70000}, runs[] = {1, 1000, 4096, 1 << 20, 3 << 20};
    for (size_t h = 0; h < sizeof(heads) / sizeof(*heads); h++)
        for (size_t r = 0; r < sizeof(runs) / sizeof(*runs); r++) {
            tri_fs_file *file;
            assert_int_equal(tri_fs_file_open(path, true, &file), TRI_OK);
            assert_int_equal(tri_fs_file_write(file, wanted, heads[h], 0), TRI_OK);
            tri_fs_file_pass_cache(file);
            const size_t all = r == 0 ? heads[h] + 9000 : NBYTES - 13;
            for (size_t at = heads[h], run; at < all; at += run) {
                run = all - at < runs[r] ? all - at : runs[r];
                assert_int_equal(tri_fs_file_write(file, wanted + at, run, at), TRI_OK);
            }
            ended(file);
            assert_wanted(all);
        }
}

/* As ranks do whose elements lie between each other's: blocks of the disk belong to several. */
static void writers_share_blocks(void **state)
{
    (void)state;
    tri_fs_file *writers[3] = {opened(true), opened(false), opened(false)};
    uint32_t dice = 7;
    for (size_t at = 0, run; at < NBYTES; at += run) {
        dice = dice * 1664525u + 1013904223u;
        run = 1 + (dice >> 8) % (dice >> 31 ? 300000 : 3000);
        run = run < NBYTES - at ? run : NBYTES - at;
        assert_int_equal(tri_fs_file_write(writers[dice >> 4 & 1 ? 0 : 1 + (dice >> 5 & 1)], wanted + at, run, at),
                         TRI_OK);
    }
    for (int w = 0; w < 3; w++)
        ended(writers[w]);
    assert_wanted(NBYTES);
}

static size_t pages_in_cache(size_t first, size_t nbytes)
{
    unsigned char there[NBYTES / 4096];
    int fd = open(path, O_RDONLY);
    void *map = mmap(NULL, NBYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mincore(map, NBYTES, there), 0);
    munmap(map, NBYTES);
    close(fd);
    size_t count = 0;
    for (size_t p = first / 4096; p < (first + nbytes) / 4096; p++)
        count += there[p] & 1;
    return count;
}

static void the_cache_is_passed(void **state)
{
    (void)state;
    int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    struct statfs kind;
    if (fd < 0 || statfs(root, &kind) != 0 || kind.f_type == 0x01021994) /* tmpfs is its own cache */
        skip();
    close(fd);
    tri_fs_file *file = opened(true);
    assert_int_equal(tri_fs_file_write(file, wanted + 100, NBYTES - 100, 100), TRI_OK);
    ended(file);
    assert_int_equal(pages_in_cache(4096, NBYTES - 4096), 0);
    tri_fs_reader *reader;
    assert_int_equal(tri_fs_reader_open(path, &reader), TRI_OK);
    const void *bytes;
    for (size_t at = 4096, some; at < NBYTES; at += some)
        assert_int_equal(tri_fs_reader_look(reader, at, NBYTES - at, &bytes, &some), TRI_OK);
    tri_fs_reader_close(reader);
    assert_int_equal(pages_in_cache(4096, NBYTES - 4096), 0);
}

static void a_file_is_looked_at_anywhere(void **state)
{
    (void)state;
    const size_t all = NBYTES - 5;
    static const size_t places[] = {0, 1, 4095, 4096, 5000, (1 << 20) - 3, (3 << 20) + 17, NBYTES - 4097, NBYTES - 6};
    tri_fs_file *file = opened(true);
    assert_int_equal(tri_fs_file_write(file, wanted, all, 0), TRI_OK);
    ended(file);
    tri_fs_reader *reader;
    assert_int_equal(tri_fs_reader_open(path, &reader), TRI_OK);
    for (size_t p = 0; p < sizeof(places) / sizeof(*places); p++)
        for (size_t at = places[p], some, most = 1; at < all; at += some, most *= 7) {
            const void *bytes;
            assert_int_equal(tri_fs_reader_look(reader, at, most, &bytes, &some), TRI_OK);
            assert_true(some > 0 && some <= most && some <= all - at);
            assert_memory_equal(bytes, wanted + at, some);
        }
    const void *bytes;
    size_t some;
    assert_int_equal(tri_fs_reader_look(reader, all, 1, &bytes, &some), TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "file: cannot read: want more than 5242875 bytes"));
    tri_fs_reader_close(reader);
    snprintf(path, sizeof(path), "%s/none", root);
    assert_int_equal(tri_fs_reader_open(path, &reader), TRI_ENOTFOUND);
    snprintf(path, sizeof(path), "%s/file", root);
}

/* The last of a write is told by the sync at the latest. */
static void what_cannot_be_written_is_told(void **state)
{
    (void)state;
    struct rlimit before, little = {.rlim_cur = 3 << 20};
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    little.rlim_max = before.rlim_max;
    tri_fs_file *file = opened(true);
    setrlimit(RLIMIT_FSIZE, &little);
    tri_status status = tri_fs_file_write(file, wanted, 3 << 20, 0);
    tri_status last = tri_fs_file_write(file, wanted, 5000, 3 << 20);
    tri_status synced = tri_fs_file_sync(file);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, TRI_OK);
    assert_int_equal(last, TRI_OK);
    assert_int_equal(synced, TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "file: cannot write: File too large"));
    assert_int_equal(tri_fs_file_close(file), TRI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_of_pieces_is_written),
        cmocka_unit_test(writers_share_blocks),
        cmocka_unit_test(the_cache_is_passed),
        cmocka_unit_test(a_file_is_looked_at_anywhere),
        cmocka_unit_test(what_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
