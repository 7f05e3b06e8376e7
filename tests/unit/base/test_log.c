/* SPDX-License-Identifier: Apache-2.0
 *
 * test_log.c: what reaches the sink: level, label, one line; and the format of standard error.
 */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/status.h"

typedef struct seen_lines {
    int count;
    tri_log_level level;
    char line[5000]; /* the latest */
} seen_lines;

static void remember(tri_log_level level, const char *line, void *arg)
{
    seen_lines *seen = arg;
    seen->count++;
    seen->level = level;
    snprintf(seen->line, sizeof(seen->line), "%s", line);
}

static int restore(void **state)
{
    (void)state;
    tri_log_sink_set(NULL, NULL);
    tri_log_level_set(TRI_LOG_INFO);
    tri_log_label_set("");
    tri_log_copy_close();
    return 0;
}

static void lines_up_to_the_level_reach_the_sink(void **state)
{
    (void)state;
    seen_lines seen = {0};
    tri_log_sink_set(remember, &seen);
    assert_int_equal(tri_log_level_now(), TRI_LOG_INFO);
    tri_log(TRI_LOG_INFO, "step %d", 7);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.level, TRI_LOG_INFO);
    assert_string_equal(seen.line, "step 7");
    tri_log(TRI_LOG_DEBUG, "silent");
    tri_log_write(TRI_LOG_DEBUG, "silent");
    assert_int_equal(seen.count, 1);
    tri_log_level_set(TRI_LOG_DEBUG);
    tri_log(TRI_LOG_DEBUG, "heard");
    assert_string_equal(seen.line, "heard");
    tri_log_level_set(TRI_LOG_ERROR);
    tri_log(TRI_LOG_WARN, "silent");
    assert_int_equal(seen.count, 2);
}

static void arguments_of_silent_lines_are_not_computed(void **state)
{
    (void)state;
    int computed = 0;
    tri_log(TRI_LOG_DEBUG, "%d", ++computed);
    assert_int_equal(computed, 0);
}

static void labels_stand_before_the_line_and_are_cut(void **state)
{
    (void)state;
    seen_lines seen = {0};
    tri_log_sink_set(remember, &seen);
    tri_log_label_set("rank 3");
    tri_log(TRI_LOG_WARN, "slow");
    assert_string_equal(seen.line, "[rank 3] slow");
    tri_log_label_set("0123456789012345678901234567890123456789");
    tri_log(TRI_LOG_WARN, "x");
    assert_string_equal(seen.line, "[0123456789012345678901234567890] x");
    tri_log_label_set(NULL);
    tri_log(TRI_LOG_WARN, "bare");
    assert_string_equal(seen.line, "bare");
}

static void a_swapped_label_belongs_to_its_fiber(void **state)
{
    (void)state;
    seen_lines seen = {0};
    char fiber[TRI_LOG_LABEL_NBYTES] = "";
    tri_log_sink_set(remember, &seen);
    tri_log_label_set("thread");
    tri_log_label_swap(fiber);
    tri_log(TRI_LOG_INFO, "a");
    assert_string_equal(seen.line, "a");
    tri_log_label_set("fiber");
    tri_log(TRI_LOG_INFO, "b");
    assert_string_equal(seen.line, "[fiber] b");
    tri_log_label_swap(NULL);
    tri_log(TRI_LOG_INFO, "c");
    assert_string_equal(seen.line, "[thread] c");
    assert_string_equal(fiber, "fiber");
}

static void lines_have_no_newlines_and_an_end(void **state)
{
    (void)state;
    seen_lines seen = {0};
    tri_log_sink_set(remember, &seen);
    tri_log(TRI_LOG_INFO, "a\nb\r\n");
    assert_string_equal(seen.line, "a b  ");
    tri_log(TRI_LOG_INFO, "%06000d", 1);
    assert_int_equal(strlen(seen.line), 4095);
}

static void log_again(tri_log_level level, const char *line, void *arg)
{
    remember(level, line, arg);
    tri_log(TRI_LOG_ERROR, "the sink itself");
}

static void what_a_sink_logs_is_dropped(void **state)
{
    (void)state;
    seen_lines seen = {0};
    tri_log_sink_set(log_again, &seen);
    tri_log(TRI_LOG_INFO, "one");
    tri_log(TRI_LOG_INFO, "two");
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.line, "two");
}

static void standard_error_has_time_level_label_text(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    tri_log_label_set("rank 1");
    tri_log(TRI_LOG_WARN, "disk is %d %% full", 97);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    char line[200] = "";
    assert_non_null(fgets(line, sizeof(line), file));
    fclose(file);
    int hours, minutes, seconds, ms, used = 0;
    assert_int_equal(sscanf(line, "%2d:%2d:%2d.%3d %n", &hours, &minutes, &seconds, &ms, &used), 4);
    assert_in_range(hours, 0, 23);
    assert_in_range(minutes, 0, 59);
    assert_int_equal(used, 13);
    assert_string_equal(line + used, "warn  [rank 1] disk is 97 % full\n");
}

static void *logs_many(void *arg)
{
    tri_log_label_set(arg);
    for (int i = 0; i < 2000; i++)
        tri_log(TRI_LOG_INFO, "line %d of %s", i, (const char *)arg);
    return NULL;
}

static void check_label(tri_log_level level, const char *line, void *arg)
{
    (void)level;
    int *wrong = arg; /* no lock of its own: the log's protects it */
    const char *end = strchr(line, ']');
    if (line[0] != '[' || !end || strncmp(line + 1, line + strlen(line) - 1, 1) != 0)
        wrong[0]++;
    wrong[1]++;
}

static void threads_have_labels_of_their_own_and_whole_lines(void **state)
{
    (void)state;
    int counts[2] = {0, 0};
    tri_log_sink_set(check_label, counts);
    pthread_t threads[3];
    static char labels[3][2] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, logs_many, labels[i]), 0);
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 6000);
}

static void the_copy_has_each_line_that_is_said(void **state)
{
    (void)state;
    char path[] = "/tmp/trireme-log-XXXXXX", *text = NULL;
    size_t nbytes;
    int fd = mkstemp(path), saved = dup(2), away = open("/dev/null", O_WRONLY);
    assert_int_equal(write(fd, "an older run\n", 13), 13);
    close(fd);
    assert_int_equal(tri_log_copy_open(path), TRI_OK);
    dup2(away, 2);
    tri_log(TRI_LOG_INFO, "first");
    dup2(saved, 2);
    close(saved);
    close(away);
    tri_log_copy_write("second");
    char longer[6000];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    tri_log_copy_write(longer);
    tri_log_copy_close();
    tri_log_copy_write("unheard");
    assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
    assert_non_null(strchr(text, ' '));
    assert_ptr_equal(strchr(text, ' '), strstr(text, " info  first\nsecond\nxxx"));
    assert_int_equal(text[nbytes - 1], '\n');
    assert_null(strstr(text, "unheard"));
    tri_free(text);
    unlink(path);
}

static void a_copy_that_cannot_be_written_ends_and_leaves_the_last_error(void **state)
{
    (void)state;
    assert_int_equal(tri_log_copy_open("/nowhere/at/all.log"), TRI_ENOTFOUND);
    char folder[] = "/tmp/trireme-log-XXXXXX", path[64], said[256] = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    assert_int_equal(tri_log_copy_open(path), TRI_OK);
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
    int saved = dup(2), ends[2];
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], 2);
    (void)tri_fail(TRI_ENOMEM, "the cause");
    tri_log_copy_write("first");
    tri_log_copy_write("second");
    dup2(saved, 2);
    close(saved);
    close(ends[1]);
    assert_true(read(ends[0], said, sizeof(said) - 1) > 0);
    close(ends[0]);
    assert_ptr_equal(strstr(said, "the log ends here: "), said);
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    assert_string_equal(tri_last_error(), "the cause");
}

static void objects_say_who_speaks_and_replace_what_is_no_text(void **state)
{
    (void)state;
    char bytes[256];
    tri_string line = {0};
    for (int i = 0; i < 255; i++)
        bytes[i] = (char)(i + 1);
    bytes[255] = 0;
    tri_log_who_set(&(tri_log_who){.rank = 3, .generation = 2, .trace_id = "4bf9", .span_id = "00f0"});
    tri_log_step_set(7);
    assert_int_equal(tri_log_object(&line, TRI_LOG_WARN, -1, "", bytes), TRI_OK);
    assert_non_null(strstr(line.text, ",\"level\":\"warn\",\"rank\":3,\"generation\":2,\"step\":7,"
                                      "\"span_id\":\"00f0\",\"trace_id\":\"4bf9\",\"message\":\"\\u0001"));
    for (const char *at = line.text; *at; at++)
        assert_true((unsigned char)*at >= 0x20 && (unsigned char)*at != 0xff);
    assert_non_null(strstr(line.text, "\xef\xbf\xbd\"}")); /* the last byte, 0xff, is in no text */
    tri_string_clear(&line);
    assert_int_equal(tri_log_object(&line, TRI_LOG_INFO, -1, "rank 5", "of a thread"), TRI_OK);
    assert_non_null(strstr(line.text, "\"rank\":5,"));
    tri_string_clear(&line);
    assert_int_equal(tri_log_object(&line, TRI_LOG_INFO, 1, "server 0", "of another process"), TRI_OK);
    assert_non_null(strstr(line.text, "\"rank\":1,\"trace_id\":\"4bf9\",\"label\":\"server 0\",\"message\":"));
    assert_null(strstr(line.text, "step"));
    tri_string_fini(&line);
    tri_log_who_set(&(tri_log_who){.rank = -1});
    tri_log_step_set(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(lines_up_to_the_level_reach_the_sink, restore),
        cmocka_unit_test_teardown(arguments_of_silent_lines_are_not_computed, restore),
        cmocka_unit_test_teardown(labels_stand_before_the_line_and_are_cut, restore),
        cmocka_unit_test_teardown(a_swapped_label_belongs_to_its_fiber, restore),
        cmocka_unit_test_teardown(lines_have_no_newlines_and_an_end, restore),
        cmocka_unit_test_teardown(what_a_sink_logs_is_dropped, restore),
        cmocka_unit_test_teardown(standard_error_has_time_level_label_text, restore),
        cmocka_unit_test_teardown(the_copy_has_each_line_that_is_said, restore),
        cmocka_unit_test_teardown(a_copy_that_cannot_be_written_ends_and_leaves_the_last_error, restore),
        cmocka_unit_test_teardown(objects_say_who_speaks_and_replace_what_is_no_text, restore),
        cmocka_unit_test_teardown(threads_have_labels_of_their_own_and_whole_lines, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
