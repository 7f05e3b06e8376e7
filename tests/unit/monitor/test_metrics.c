/* SPDX-License-Identifier: Apache-2.0
 *
 * test_metrics.c: lines of a run on a disk that is full for a while (base/chaos.h): none is lost, none is torn, and
 * nobody hears of an error before the end.
 */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wait_while_the_disk_is_full),
        cmocka_unit_test(a_disk_that_stays_full_is_told_at_the_end),
    };
    if (!mkdtemp(folder) || tri_chaos_offer() != TRI_OK)
        return 1;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)tri_fs_remove(folder);
    return failed;
}
