/* SPDX-License-Identifier: Apache-2.0
 *
 * test_history.c: stretches of a history beside sums over its rows; and files of lines that are cut and grow again.
 */
#include <math.h>
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
#include "monitor/history.h"
#include "monitor/metrics_read.h"

#define ROWS 5000

static double value_of(size_t row)
{
    return row % 7 == 3 ? (double)NAN : (double)(row * 2654435761u % 1000);
}

/* Of rows that all have a value the mean is exact, up to rounding. */
static void fold_check(const tri_history *history, size_t from, size_t to)
{
    double low = INFINITY, high = -INFINITY, sum = 0;
    for (size_t row = from; row < to; row++) {
        low = fmin(low, value_of(row)); /* fmin and fmax pass over NaN */
        high = fmax(high, value_of(row));
        sum += (double)row;
    }
    const tri_history_point point = tri_history_fold(history, 0, from, to);
    assert_true((double)point.low == low && (double)point.high == high);
    assert_true(fabs((double)tri_history_fold(history, 1, from, to).mean - sum / (double)(to - from)) < 0.5);
}

static void stretches_are_those_of_the_rows_also_after_a_cut(void **state)
{
    (void)state;
    tri_history *history;
    assert_int_equal(tri_history_create(2, &history), TRI_OK);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t row = tri_history_rows(history); row < ROWS; row++)
            assert_int_equal(tri_history_add(history, (double)row, (double[]){value_of(row), (double)row}), TRI_OK);
        for (size_t from = 0; from < ROWS - 2; from += 611)
            for (size_t to = from + 2; to <= ROWS; to += 97)
                fold_check(history, from, to);
        /* A step that comes again: the history goes on from there. */
        assert_int_equal(tri_history_add(history, 777, (double[]){value_of(777), 777}), TRI_OK);
        assert_int_equal(tri_history_rows(history), 778);
    }
    assert_true(isnan(tri_history_fold(history, 0, 3, 4).mean));
    assert_int_equal(tri_history_find(history, 500.5), 501);
    assert_int_equal(tri_history_piece(1000000, 1000), 1024);
    tri_history_destroy(history);
}

typedef struct seen {
    int64_t count, last;
    double loss;
} seen;

static void line_seen(void *arg, const tri_metrics_line *line)
{
    seen *to = arg;
    to->count++;
    to->last = tri_metrics_line_step(line);
    to->loss = tri_metrics_line_real(line, "loss");
    const char *text = tri_metrics_line_text(line, "text");
    assert_true(!text || strcmp(text, "a \"loss\":5") == 0);
}

static void append(const char *path, const char *text)
{
    assert_int_equal(tri_fs_append(path, text, strlen(text)), TRI_OK);
}

static void a_file_that_was_cut_and_grew_is_read_anew(void **state)
{
    (void)state;
    char folder[] = "/tmp/trireme-history-XXXXXX";
    tri_metrics_tail tail = {0};
    seen all = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(tail.path, sizeof(tail.path), "%s/lines", folder);
    assert_int_equal(tri_metrics_read(&tail, line_seen, &all), TRI_OK); /* there is none yet */
    append(tail.path,
           "{\"step\":1,\"text\":\"a \\\"loss\\\":5\",\"loss\": 0.5}\nno line\n{\"step\":2,\"loss\":null}\n{\"ste");
    assert_int_equal(tri_metrics_read(&tail, line_seen, &all), TRI_OK);
    assert_int_equal(all.count, 2);
    assert_true(all.last == 2 && isnan(all.loss));
    append(tail.path, "p\":3,\"loss\":-1.5e2}\n");
    assert_int_equal(tri_metrics_read(&tail, line_seen, &all), TRI_OK);
    assert_true(all.count == 3 && all.last == 3 && all.loss == -150);
    assert_int_equal(tri_fs_cut(tail.path, 45), TRI_OK); /* its first line, or less */
    append(
        tail.path,
        "\n{\"step\":2,\"loss\":1,\"and\":\"so much more that the file is longer than it was before it was cut\"}\n");
    assert_int_equal(tri_metrics_read(&tail, line_seen, &all), TRI_OK);
    assert_true(tail.restarted && all.last == 2 && all.loss == 1);
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

static void a_piece_is_read_before_its_lines_are_given(void **state)
{
    (void)state;
    char folder[] = "/tmp/trireme-history-XXXXXX";
    tri_metrics_tail tail = {0};
    tri_metrics_piece piece = {0};
    seen all = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(tail.path, sizeof(tail.path), "%s/lines", folder);
    assert_int_equal(tri_metrics_fetch(&tail, &piece), TRI_OK);
    tri_metrics_give(&piece, line_seen, &all);
    assert_int_equal(all.count, 0);
    append(tail.path, "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n{\"ste");
    assert_int_equal(tri_metrics_fetch(&tail, &piece), TRI_OK);
    assert_int_equal(all.count, 0);
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
    tri_metrics_give(&piece, line_seen, &all); /* which no file is wanted for */
    assert_true(all.count == 2 && all.last == 2 && tail.at == piece.nbytes && tail.all > tail.at);
    assert_int_equal(tri_metrics_fetch(&tail, &piece), TRI_OK);
    assert_int_equal(piece.nbytes, 0);
    tri_metrics_piece_fini(&piece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stretches_are_those_of_the_rows_also_after_a_cut),
        cmocka_unit_test(a_file_that_was_cut_and_grew_is_read_anew),
        cmocka_unit_test(a_piece_is_read_before_its_lines_are_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
