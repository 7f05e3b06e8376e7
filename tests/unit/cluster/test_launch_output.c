/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch_output.c: what becomes of lines for which there is no room.
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
#include "cluster/launch_impl.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tri-test-output-XXXXXX");
    signal(SIGPIPE, SIG_IGN);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return tri_fs_remove(root) == TRI_OK ? 0 : -1;
}

static void sink_open(launch_sink *sink, const char *path, int flags)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
    assert_true(fd >= 0);
    tri_launch_sink_init(sink, fd);
}

static void sink_close(launch_sink *sink)
{
    close(sink->fd);
    tri_string_fini(&sink->pending);
    tri_map_fini(&sink->said);
}

static void a_full_disk_drops_lines_until_there_is_room(void **state)
{
    char *path = tri_format("%s/out", root), *bytes, line[80];
    launch_sink sink, file;
    size_t nbytes, end;
    int last = 0;

    (void)state;
    sink_open(&sink, "/dev/full", 0);
    for (int i = 0; i < 40000; i++) {
        assert_int_equal(tri_string_appendf(&sink.pending, "line %d of those that find no room in here\n", i), TRI_OK);
        if (i % 100 == 0)
            tri_launch_sink_write(&sink);
        assert_false(tri_launch_sink_is_full(&sink));
    }
    tri_launch_sink_write(&sink);
    assert_true(sink.loss.is);
    assert_false(sink.broken);
    assert_true(sink.loss.nbytes > 0 && sink.pending.nbytes <= TRI_LAUNCH_PENDING_NBYTES);

    sink_open(&file, path, O_CREAT);
    assert_true(dup2(file.fd, sink.fd) >= 0);
    tri_launch_sink_write(&sink);
    assert_false(sink.loss.is);
    assert_int_equal(tri_fs_read(path, 0, &bytes, &nbytes), TRI_OK);
    for (size_t at = 0; at < nbytes; at = end + 1) { /* whole lines, the newest among them */
        int number = -1, length = 0;
        end = at + strcspn(bytes + at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(end - at), bytes + at);
        assert_int_equal(sscanf(line, "line %d of those that find no room in here%n", &number, &length), 1);
        assert_int_equal(length, strlen(line));
        assert_true(at == 0 ? number == 0 : number > last);
        last = number;
    }
    assert_int_equal(last, 39999);
    tri_free(bytes);
    tri_free(path);
    sink_close(&file);
    sink_close(&sink);
}

static void a_closed_pipe_is_no_full_disk(void **state)
{
    launch_sink sink;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    tri_launch_sink_init(&sink, ends[1]);
    assert_int_equal(tri_string_append(&sink.pending, "nobody reads this\n"), TRI_OK);
    tri_launch_sink_write(&sink);
    assert_true(sink.broken);
    assert_false(sink.loss.is);
    sink_close(&sink);
}

static void say(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void a_log_without_room_is_tried_again(void **state)
{
    char *folder = tri_format("%s/log", root), *path = tri_format("%s/rank-0.log", folder), *bytes;
    launch_loss loss = {0};
    size_t nbytes;
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    launch_stream stream = {.fd = ends[0], .log_path = path, .log_loss = &loss};
    say(ends[1], "lost\n");
    assert_int_equal(tri_launch_stream_read(&stream), TRI_OK);
    assert_true(loss.is);
    assert_int_equal(loss.nbytes, 5);
    assert_non_null(strstr(loss.why, "rank-0.log: cannot open for appending"));

    assert_int_equal(tri_fs_make_folder(folder), TRI_OK);
    say(ends[1], "kept\n");
    assert_int_equal(tri_launch_stream_read(&stream), TRI_OK);
    assert_false(loss.is);
    assert_int_equal(tri_fs_read(path, 0, &bytes, &nbytes), TRI_OK);
    assert_string_equal(bytes, "kept\n");
    tri_free(bytes);
    tri_launch_stream_close(&stream);
    close(ends[1]);
    tri_free(path);
    tri_free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_drops_lines_until_there_is_room, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_closed_pipe_is_no_full_disk, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_log_without_room_is_tried_again, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
