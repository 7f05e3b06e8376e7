/* SPDX-License-Identifier: Apache-2.0
 *
 * test_chaos_plan.c: schedules of faults: the same seed gives the same one, the printed one reads back, and what is no
 * schedule is refused by line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cli/chaos/chaos.h"

/* The names alone: nobody is struck here. */
const chaos_kind chaos_kinds[CHAOS_KINDS] = {
    {.name = "kill", .workers = 2},
    {.name = "stop", .least_s = 0.5, .most_s = 2},
    {.name = "a"},
    {.name = "b"},
    {.name = "c"},
    {.name = "d"},
    {.name = "e"},
    {.name = "f"},
    {.name = "g"},
    {.name = "h"},
    {.name = "i"},
    {.name = "j"},
};

static char path[] = "/tmp/trireme-chaos-plan-XXXXXX";

static void text_of(uint64_t seed, tri_string *text)
{
    chaos_plan plan;
    assert_int_equal(chaos_plan_draw("kill,stop", seed, 100, 2, &plan), TRI_OK);
    assert_in_range(plan.events.count, 34, 100);
    assert_int_equal(chaos_plan_print(&plan, text), TRI_OK);
    chaos_plan_fini(&plan);
}

static void the_same_seed_gives_the_same_schedule_which_reads_back(void **state)
{
    tri_string texts[4] = {{0}};
    chaos_plan plan;
    (void)state;
    for (size_t i = 0; i < 3; i++)
        text_of(i == 2 ? 8 : 7, &texts[i]);
    assert_string_equal(texts[0].text, texts[1].text);
    assert_string_not_equal(texts[0].text, texts[2].text);
    assert_int_equal(tri_fs_write_swap(path, texts[0].text, texts[0].nbytes), TRI_OK);
    assert_int_equal(chaos_plan_read(path, &plan), TRI_OK);
    assert_int_equal(chaos_plan_print(&plan, &texts[3]), TRI_OK);
    assert_string_equal(texts[0].text, texts[3].text);
    chaos_plan_fini(&plan);
    for (size_t i = 0; i < 4; i++)
        tri_string_fini(&texts[i]);
}

static void lines_are_put_in_order_and_remarks_passed_over(void **state)
{
    static const char text[] = "# three faults\n\n2.5 stop 3 0.75\n  1 kill #4\n1 kill 2\n";
    chaos_plan plan;
    (void)state;
    assert_int_equal(tri_fs_write_swap(path, text, strlen(text)), TRI_OK);
    assert_int_equal(chaos_plan_read(path, &plan), TRI_OK);
    assert_int_equal(plan.events.count, 3);
    const chaos_event *events = plan.events.items;
    assert_true(events[0].at_s == 1 && events[0].rank == -1 && events[0].draw == 4);
    assert_int_equal(events[1].rank, 2);
    assert_true(events[2].rank == 3 && events[2].for_s == 0.75 && plan.for_s == 3.25);
    chaos_plan_fini(&plan);
}

static void what_is_no_schedule_is_refused_by_its_line(void **state)
{
    static const char *const wrong[] = {"1 kill",       "x kill 0",     "-1 kill 0",  "1 kil 0",
                                        "1 kill #",     "1 kill -2",    "1 kill 0 2", "1 stop 0",
                                        "1 stop 0 1 1", "1e999 kill 0", "# nothing"};
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        chaos_plan plan;
        assert_int_equal(tri_fs_write_swap(path, wrong[i], strlen(wrong[i])), TRI_OK);
        assert_int_equal(chaos_plan_read(path, &plan), TRI_ECONFIG);
        assert_non_null(strstr(tri_last_error(), path));
        chaos_plan_fini(&plan);
    }
    chaos_plan plan;
    assert_int_equal(chaos_plan_draw("kill,", 1, 10, 1, &plan), TRI_ECONFIG);
    chaos_plan_fini(&plan);
    assert_int_equal(chaos_plan_draw("kill,stopp", 1, 10, 1, &plan), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "got 'stopp'"));
    chaos_plan_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_schedule_which_reads_back),
        cmocka_unit_test(lines_are_put_in_order_and_remarks_passed_over),
        cmocka_unit_test(what_is_no_schedule_is_refused_by_its_line),
    };
    int fd = mkstemp(path);
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
