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

typedef struct asked {
    char folder[32];
    tri_launch_config config;
    tri_vector answers;
} asked;

/* `shell` stands for ssh. */
static const tri_host_answer *ask(asked *at, const char *hosts, bool has_shell, int limit_ms)
{
    char path[64], *argv[] = {"printf", "%s\\n", "it's $HOME", NULL};

    *at = (asked){.folder = "/tmp/tri-ask-XXXXXX", .answers = {.each = sizeof(tri_host_answer)}};
    tri_options_defaults(&tri_launch_options, &at->config);
    assert_non_null(mkdtemp(at->folder));
    snprintf(at->config.ssh, sizeof at->config.ssh, "%s/ssh", at->folder);
    snprintf(path, sizeof path, "%s/hosts", at->folder);
    if (has_shell) {
        assert_int_equal(tri_fs_write_atomic(at->config.ssh, shell, sizeof shell - 1), TRI_OK);
        assert_int_equal(chmod(at->config.ssh, 0700), 0);
    }
    assert_int_equal(tri_fs_write_atomic(path, hosts, strlen(hosts)), TRI_OK);
    snprintf(at->config.hosts, sizeof at->config.hosts, "%s", path);
    assert_int_equal(tri_launch_hosts_ask(&at->config, argv, limit_ms, &at->answers), TRI_OK);
    return at->answers.items;
}

static void asked_fini(asked *at)
{
    tri_vector_fini(&at->answers);
    (void)tri_fs_remove(at->folder);
}

static void each_host_answers_as_it_does(void **state)
{
    asked at;
    const tri_host_answer *answer = ask(&at, "good slots=3\naway\ngood2\n", true, 60000);

    (void)state;
    assert_int_equal(at.answers.count, 3);
    assert_string_equal(answer[0].name, "good");
    assert_string_equal(answer[0].text, "it's $HOME");
    assert_int_equal(answer[0].slots, 3);
    assert_int_equal(answer[0].exit_code, 0);
    assert_int_equal(answer[1].exit_code, 255);
    assert_string_equal(answer[1].text, "no route to away");
    assert_string_equal(answer[2].text, "it's $HOME");
    asked_fini(&at);
}

static void who_does_not_answer_holds_nobody_up(void **state)
{
    asked at;
    const tri_host_answer *answer = ask(&at, "silent\nclosed\n", true, 1000);

    (void)state;
    assert_int_equal(at.answers.count, 2);
    assert_int_equal(answer[0].exit_code, -1);
    assert_int_equal(answer[1].exit_code, -1);
    asked_fini(&at);
}

static void without_ssh_each_host_says_so(void **state)
{
    asked at;
    const tri_host_answer *answer = ask(&at, "good\n", false, 60000);

    (void)state;
    assert_int_equal(answer[0].exit_code, 127);
    assert_non_null(strstr(answer[0].text, "cannot be started: No such file"));
    asked_fini(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_host_answers_as_it_does),
                                       cmocka_unit_test(who_does_not_answer_holds_nobody_up),
                                       cmocka_unit_test(without_ssh_each_host_says_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
