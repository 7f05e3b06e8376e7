/* SPDX-License-Identifier: Apache-2.0
 *
 * test_probe.c: what works here is said to work, what does not is said with its reason; places that answer are told
 * from those that do not.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/net/cmocka_all.h"

#include "net/probe.h"
#include "net/tcp_address.h"

static void what_ranks_need_works_here(void **state)
{
    tri_probe probe;

    (void)state;
    tri_probe_run(&probe);
    assert_string_equal(probe.region, "");
    assert_string_equal(probe.neighbour, "");
    assert_string_equal(probe.loopback, "");
    assert_string_equal(probe.listen, "");
}

/* A child with this limit probes; its exit code says whether `field` has `text`. */
static void expect_under(int resource, rlim_t most, size_t field, const char *text)
{
    int how = 0;
    pid_t pid = fork();

    if (pid == 0) {
        tri_probe probe;

        setrlimit((__rlimit_resource_t)resource, &(struct rlimit){most, most});
        tri_probe_run(&probe);
        _exit(strstr((const char *)&probe + field, text) ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &how, 0) == pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void limits_are_met_in_a_child_and_named(void **state)
{
    (void)state;
    expect_under(RLIMIT_FSIZE, 4096, offsetof(tri_probe, region), "File size limit");
    expect_under(RLIMIT_NOFILE, 3, offsetof(tri_probe, region), "Too many open files");
    expect_under(RLIMIT_NOFILE, 3, offsetof(tri_probe, neighbour), "not tried");
    expect_under(RLIMIT_NOFILE, 3, offsetof(tri_probe, listen), "Too many open files");
}

static void interfaces_have_loopback_once(void **state)
{
    tri_vector rows = {.each = sizeof(tri_interface)};
    int found = 0;

    (void)state;
    assert_int_equal(tri_interfaces_read(&rows), TRI_OK);
    for (size_t i = 0; i < rows.count; i++) {
        const tri_interface *row = tri_vector_at(&rows, i);

        found += strcmp(row->address, "127.0.0.1") == 0 && row->is_up && row->is_loopback;
    }
    assert_int_equal(found, 1);
    tri_vector_fini(&rows);
}

static void places_that_answer_are_told_from_others(void **state)
{
    tri_reach rows[3] = {0};
    tri_tcp_door doors[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        tri_tcp_place places[TRI_TCP_PLACES_MAX];

        assert_int_equal(tri_tcp_door_open("", "", &doors[i]), TRI_OK);
        assert_true(tri_tcp_places(doors[i].address, doors[i].address, places) > 0);
        rows[i].place = places[0];
    }
    tri_tcp_door_close(&doors[1]);
    rows[2] = rows[0];
    assert_int_equal(tri_reach_try(rows, 3, 5000), TRI_OK);
    assert_int_equal(rows[0].error, 0);
    assert_int_equal(rows[1].error, ECONNREFUSED);
    assert_int_equal(rows[2].error, 0);
    assert_int_equal(tri_reach_try(rows, 0, 5000), TRI_OK);
    tri_tcp_door_close(&doors[0]);
    tri_tcp_door_close(&doors[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ranks_need_works_here),
        cmocka_unit_test(limits_are_met_in_a_child_and_named),
        cmocka_unit_test(interfaces_have_loopback_once),
        cmocka_unit_test(places_that_answer_are_told_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
