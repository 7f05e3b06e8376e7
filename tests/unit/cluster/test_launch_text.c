/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch_text.c: the host file, and quoting that survives a real shell.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/launch_impl.h"

static void host_files_are_read(void **state)
{
    static const char text[] = "# cluster\nnode1 slots=4\n\n  node2\t# one\r\nuser@10.0.0.3 slots=2\nlocalhost";
    tri_vector hosts = {.each = sizeof(launch_host)};
    const launch_host *host;

    (void)state;
    assert_int_equal(tri_launch_hosts_parse(text, sizeof text - 1, "hosts", &hosts), TRI_OK);
    assert_int_equal(hosts.count, 4);
    host = hosts.items;
    assert_string_equal(host[0].name, "node1");
    assert_int_equal(host[0].slots, 4);
    assert_int_equal(host[1].slots, 1);
    assert_string_equal(host[2].name, "user@10.0.0.3");
    assert_true(host[3].is_local && !host[2].is_local);
    tri_vector_fini(&hosts);
}

static void wrong_host_files_are_told_with_their_line(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"a\nb slots=0", "hosts:2: want slots=N"}, {"a slots=x", "hosts:1: want slots=N"},
        {"a slots=2 b", "hosts:1: want nothing"},  {"\n\n-oProxyCommand=x", "hosts:3: want a host"},
        {"a;reboot", "hosts:1: want a host name"}, {"a\nb\na", "hosts:3: want each host once"},
        {"# nothing\n", "hosts: want lines"},      {"a slots=99999", "hosts:1: want slots=N"},
    };

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        tri_vector hosts = {.each = sizeof(launch_host)};

        assert_int_equal(tri_launch_hosts_parse(rows[i].text, strlen(rows[i].text), "hosts", &hosts), TRI_ECONFIG);
        if (!strstr(tri_last_error(), rows[i].says))
            fail_msg("row %zu: %s", i, tri_last_error());
        tri_vector_fini(&hosts);
    }
}

static void quoted_words_survive_a_shell(void **state)
{
    static const char *const words[] = {"", "a b", "it's", "''", "$HOME `id` \"x\" \\ *", "-n", "new\nline"};

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(words); i++) {
        tri_string command = {0};
        char back[128] = "";
        FILE *shell;
        size_t nbytes;

        assert_int_equal(tri_string_append(&command, "printf %s "), TRI_OK);
        assert_int_equal(tri_launch_quote(&command, words[i]), TRI_OK);
        shell = popen(tri_string_text(&command), "r");
        assert_non_null(shell);
        nbytes = fread(back, 1, sizeof back - 1, shell);
        assert_int_equal(pclose(shell), 0);
        assert_int_equal(nbytes, strlen(words[i]));
        assert_string_equal(back, words[i]);
        tri_string_fini(&command);
    }
}

static const char *lookup(const char *name, void *arg)
{
    const char *const *pairs = arg;

    for (; pairs[0]; pairs += 2) {
        if (strcmp(pairs[0], name) == 0)
            return pairs[1];
    }
    return NULL;
}

static void the_nodes_of_a_slurm_job_are_hosts(void **state)
{
    const char *job[] = {"SLURM_JOB_NODELIST", "n[08-10]", "SLURM_TASKS_PER_NODE", "4(x2),1", NULL};
    const char *half[] = {"SLURM_JOB_NODELIST", "n[08-10]", NULL}, *nothing[] = {NULL};
    tri_vector hosts = {.each = sizeof(launch_host)};
    tri_launch_config config;
    launch_shell shell;

    (void)state;
    assert_int_equal(tri_launch_hosts_slurm(lookup, job, &hosts), TRI_OK);
    assert_int_equal(hosts.count, 3);
    assert_string_equal(((launch_host *)tri_vector_at(&hosts, 2))->name, "n10");
    assert_int_equal(((launch_host *)tri_vector_at(&hosts, 1))->slots, 4);
    assert_int_equal(((launch_host *)tri_vector_at(&hosts, 2))->slots, 1);
    assert_int_equal(tri_launch_hosts_slurm(lookup, half, &hosts), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "SLURM_TASKS_PER_NODE"));
    assert_int_equal(tri_launch_hosts_slurm(lookup, nothing, &hosts), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "SLURM_JOB_NODELIST"));
    tri_vector_fini(&hosts);

    tri_options_defaults(&tri_launch_options, &config);
    assert_int_equal(tri_options_set(&tri_launch_options, &config, "hosts", "slurm"), TRI_OK);
    tri_launch_shell(&config, "n10", "true", &shell);
    assert_string_equal(shell.argv[0], "srun");
    assert_string_equal(shell.node, "--nodelist=n10");
    assert_string_equal(tri_launch_shell_name(&config), "srun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_files_are_read),
        cmocka_unit_test(wrong_host_files_are_told_with_their_line),
        cmocka_unit_test(the_nodes_of_a_slurm_job_are_hosts),
        cmocka_unit_test(quoted_words_survive_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
