/* SPDX-License-Identifier: Apache-2.0
 *
 * test_metrics.c: lines of a run on a disk that is full for a while (base/chaos.h): none is lost, none is torn, and
 * nobody hears of an error before the end; and of a run whose writer is killed: another one has them too.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/chaos.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/runtime.h"
#include "monitor/metrics.h"

#define STEPS 1000

static char folder[] = "/tmp/trireme-metrics-XXXXXX", path[64];

static void disk_fill(bool full)
{
    tri_chaos_page *page = tri_chaos_page_find(getpid());
    assert_non_null(page);
    atomic_store(&page->disk_until_ns, full ? TRI_FOREVER : 0);
    tri_chaos_page_close(page);
}

/* Steps in the file, in order and whole. */
static int64_t steps_read(void)
{
    char *text, *line;
    int64_t step = 0;
    assert_int_equal(tri_fs_read(path, 0, &text, NULL), TRI_OK);
    for (line = text; *line; line = strchr(line, '\n') + 1) {
        assert_int_equal(strtoll(line + strlen("{\"step\":"), NULL, 10), step++);
        assert_non_null(strchr(line, '\n'));
    }
    tri_free(text);
    return step;
}

static tri_metrics *steps_write(int64_t full_from, int64_t full_to)
{
    tri_metrics *metrics;
    (void)tri_fs_remove(path);
    assert_int_equal(tri_metrics_open(path, 0, &metrics), TRI_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == full_from || step == full_to)
            disk_fill(step == full_from);
        assert_int_equal(tri_metrics_write(metrics, &(tri_step_record){.step = step, .loss = 0.5}), TRI_OK);
    }
    return metrics;
}

static void lines_wait_while_the_disk_is_full(void **state)
{
    (void)state;
    tri_metrics *metrics = steps_write(100, 700);
    assert_int_equal(tri_metrics_close(metrics), TRI_OK);
    assert_int_equal(steps_read(), STEPS);
}

static void a_disk_that_stays_full_is_told_at_the_end(void **state)
{
    (void)state;
    tri_metrics *metrics = steps_write(500, -1);
    assert_int_equal(tri_metrics_close(metrics), TRI_EIO);
    disk_fill(false);
    assert_in_range(steps_read(), 0, 500);
}

/* --- whose writer is killed --- */

static void lines_write(tri_metrics *metrics, int64_t step, const char *event)
{
    if (event)
        assert_int_equal(tri_metrics_write_event(metrics, step, "repair", event), TRI_OK);
    else
        assert_int_equal(tri_metrics_write(metrics, &(tri_step_record){.step = step, .loss = 0.5}), TRI_OK);
}

/* The file as "0 1 2!a 2": a step, or one and the text of its event. */
static void file_is(const char *want)
{
    char *text, found[400] = "", event[16];
    int64_t step;
    assert_int_equal(tri_fs_read(path, 0, &text, NULL), TRI_OK);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        size_t at = strlen(found);
        assert_int_equal(sscanf(line, "{\"step\":%" SCNd64, &step), 1);
        bool told = sscanf(line, "{\"step\":%*d,\"event\":\"repair\",\"text\":\"%15[^\"]", event) == 1;
        snprintf(found + at, sizeof(found) - at, "%s%" PRId64 "%s%s", at ? " " : "", step, told ? "!" : "",
                 told ? event : "");
    }
    tri_free(text);
    assert_string_equal(found, want);
}

/* The first one has written all but what is behind `1!a`, of two that know the same; the second one, which has made so
 * many steps, goes on. */
static void writer_kill(int64_t steps)
{
    tri_metrics *both[2];
    (void)tri_fs_remove(path);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tri_metrics_follow(path, &both[i]), TRI_OK);
    assert_int_equal(tri_metrics_lead(both[0], 0), TRI_OK);
    for (int i = 0; i < 2; i++) {
        lines_write(both[i], 0, NULL);
        lines_write(both[i], 1, "a");
        assert_int_equal(tri_metrics_flush(both[i]), TRI_OK);
    }
    disk_fill(true);
    for (int i = 0; i < 2; i++)
        lines_write(both[i], 1, "b");
    disk_fill(false);
    file_is("0 1!a");
    tri_metrics_drop_lead(both[0]);
    for (int64_t step = 1; step < steps; step++)
        lines_write(both[1], step, NULL);
    assert_int_equal(tri_metrics_lead(both[1], steps), TRI_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tri_metrics_close(both[i]), TRI_OK);
}

static void who_goes_on_has_the_events_too(void **state)
{
    (void)state;
    writer_kill(1); /* in the step that they are of: what was written of it is removed, and written again */
    file_is("0 1!a 1!b");
    writer_kill(3);
    file_is("0 1!a 1!b 1 2");
}

/* The line of a save that ended while later steps were made. */
static void what_is_told_late_of_a_step_stays_with_it(void **state)
{
    (void)state;
    (void)tri_fs_remove(path);
    for (int resumed = 0; resumed < 2; resumed++) {
        tri_metrics *metrics;
        assert_int_equal(tri_metrics_follow(path, &metrics), TRI_OK);
        assert_int_equal(tri_metrics_lead(metrics, resumed ? 2 : 0), TRI_OK);
        for (int64_t step = resumed ? 2 : 0; step < 4; step++)
            lines_write(metrics, step, NULL);
        lines_write(metrics, resumed ? 3 : 1, resumed ? "b" : "a");
        lines_write(metrics, 4, NULL);
        assert_int_equal(tri_metrics_close(metrics), TRI_OK);
        file_is(resumed ? "0 1 1!a 2 3 3!b 4" : "0 1 2 3 1!a 4");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wait_while_the_disk_is_full),
        cmocka_unit_test(a_disk_that_stays_full_is_told_at_the_end),
        cmocka_unit_test(who_goes_on_has_the_events_too),
        cmocka_unit_test(what_is_told_late_of_a_step_stays_with_it),
    };
    if (!mkdtemp(folder) || tri_chaos_offer() != TRI_OK)
        return 1;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)tri_fs_remove(folder);
    return failed;
}
