/* SPDX-License-Identifier: Apache-2.0
 *
 * test_settings.c: options of section comm without a configuration: TRIREME_COMM, and words of a command line.
 */
#include "comm/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tri_comm_config config;
static tri_net_config net;

static const char *look(const char *name, void *arg)
{
    return strcmp(name, "TRIREME_COMM") == 0 ? arg : NULL;
}

static tri_status read_text(const char *text)
{
    return tri_comm_settings_read(look, (void *)(uintptr_t)text, &config, &net);
}

static void nothing_said_leaves_the_defaults(void **state)
{
    (void)state;
    static const char *const nothing[] = {NULL, "", " \t "};
    for (size_t i = 0; i < TRI_COUNT_OF(nothing); i++) {
        assert_int_equal(read_text(nothing[i]), TRI_OK);
        assert_int_equal(config.order, TRI_ORDER_CANONICAL);
        assert_int_equal(net.transport, TRI_TRANSPORT_AUTO);
        assert_false(net.encrypt);
    }
}

static void words_reach_both_tables(void **state)
{
    (void)state;
    assert_int_equal(read_text(" comm.encrypt=on  comm.order=any\tcomm.interface=eth0,eth1 comm.algorithm="
                               "all_reduce:0-64k=tree;broadcast:0-=direct\n"),
                     TRI_OK);
    assert_true(net.encrypt);
    assert_int_equal(config.order, TRI_ORDER_ANY);
    assert_string_equal(net.interface, "eth0,eth1");
    assert_string_equal(config.algorithm, "all_reduce:0-64k=tree;broadcast:0-=direct");
    assert_int_equal(tri_comm_setting("comm.order=canonical", &config, &net), TRI_OK);
    assert_int_equal(config.order, TRI_ORDER_CANONICAL);
    assert_true(net.encrypt);
}

static void each_mistake_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"comm.encript=on", "TRIREME_COMM: there is no option 'comm.encript'; did you mean 'comm.encrypt'?"},
        {"comm.ordre=any", "TRIREME_COMM: there is no option 'comm.ordre'; did you mean 'comm.order'?"},
        {"comm.zzzzzzzzzz=1", "TRIREME_COMM: there is no option 'comm.zzzzzzzzzz'"},
        {"comm.encrypt=maybe", "TRIREME_COMM: comm.encrypt: want true or false (yes/no, on/off), got \"maybe\""},
        {"comm.encrypt", "TRIREME_COMM: want comm.KEY=VALUE, such as comm.encrypt=on, got 'comm.encrypt'"},
        {"encrypt=on", "TRIREME_COMM: want comm.KEY=VALUE, such as comm.encrypt=on, got 'encrypt=on'"},
        {"a=comm.", "TRIREME_COMM: want comm.KEY=VALUE, such as comm.encrypt=on, got 'a=comm.'"},
        {"comm.order=any comm.=", "TRIREME_COMM: there is no option 'comm.'"},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        assert_int_equal(read_text(cases[c][0]), TRI_ECONFIG);
        assert_string_equal(tri_last_error(), cases[c][1]);
    }
    char endless[400];
    memset(endless, 'x', sizeof(endless));
    memcpy(endless, "comm.", 5);
    memcpy(endless + sizeof(endless) - 3, "=1", 3);
    assert_int_equal(read_text(endless), TRI_ECONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_said_leaves_the_defaults),
        cmocka_unit_test(words_reach_both_tables),
        cmocka_unit_test(each_mistake_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
