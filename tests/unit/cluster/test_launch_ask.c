/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch_ask.c: hosts that answer, answer wrongly, or not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cluster/launch_impl.h"

static const char shell[] = "#!/bin/sh\n"
                            "case $1 in\n"
                            "good*) exec sh -c \"$2\";;\n"
                            "silent) exec sleep 1000;;\n"
                            "closed) exec >&- 2>&-; exec sleep 1000;;\n"
                            "*) echo no route to $1 >&2; echo more; exit 255;;\n"
                            "esac\n";

static void each_host_answers_as_it_does(void **state)
{
    static const char hosts[] = "good slots=3\nsilent\naway\nclosed\ngood2\n";
    char folder[] = "/tmp/tri-ask-XXXXXX", path[64], *argv[] = {"printf", "%s\\n", "it's $HOME", NULL};
    tri_vector answers = {.each = sizeof(tri_host_answer)};
    tri_launch_config config;
    const tri_host_answer *answer;

    (void)state;
    tri_options_defaults(&tri_launch_options, &config);
    assert_non_null(mkdtemp(folder));
    snprintf(config.ssh, sizeof config.ssh, "%s/ssh", folder);
    snprintf(path, sizeof path, "%s/hosts", folder);
    assert_int_equal(tri_fs_write_atomic(config.ssh, shell, sizeof shell - 1), TRI_OK);
    assert_int_equal(chmod(config.ssh, 0700), 0);
    assert_int_equal(tri_fs_write_atomic(path, hosts, sizeof hosts - 1), TRI_OK);
    snprintf(config.hosts, sizeof config.hosts, "%s", path);
    assert_int_equal(tri_launch_hosts_ask(&config, argv, 3000, &answers), TRI_OK);
    assert_int_equal(answers.count, 5);
    answer = answers.items;
    assert_string_equal(answer[0].name, "good");
    assert_string_equal(answer[0].text, "it's $HOME");
    assert_int_equal(answer[0].slots, 3);
    assert_int_equal(answer[0].exit_code, 0);
    assert_int_equal(answer[1].exit_code, -1);
    assert_int_equal(answer[2].exit_code, 255);
    assert_string_equal(answer[2].text, "no route to away");
    assert_int_equal(answer[3].exit_code, -1);
    assert_string_equal(answer[4].text, "it's $HOME");
    tri_vector_fini(&answers);

    answers = (tri_vector){.each = sizeof(tri_host_answer)};
    snprintf(config.ssh, sizeof config.ssh, "%s/none", folder);
    assert_int_equal(tri_launch_hosts_ask(&config, argv, 3000, &answers), TRI_OK);
    answer = answers.items;
    assert_int_equal(answer[0].exit_code, 127);
    assert_non_null(strstr(answer[0].text, "cannot be started: No such file"));
    tri_vector_fini(&answers);
    (void)tri_fs_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_host_answers_as_it_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
