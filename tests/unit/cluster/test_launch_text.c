/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch_text.c: the host file, and quoting that survives a real shell.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster/launch_impl.h"

static void host_files_are_read(void **state)
{
    static const char text[] =
        "# cluster\nnode1 slots=4\n\n  node2\t# one\r\nuser@10.0.0.3 slots=2\nlocalhost\n"
        "anna@gpu7 port=2222 slots=3\ngpu7 port=2223\nroot@[fd00::7]\nfd00::8\nlocalhost port=22";
    tri_vector hosts = {.each = sizeof(launch_host)};
    const launch_host *host;

    (void)state;
    assert_int_equal(tri_launch_hosts_parse(text, sizeof text - 1, "hosts", &hosts), TRI_OK);
    assert_int_equal(hosts.count, 9);
    host = hosts.items;
    assert_string_equal(host[0].name, "node1");
    assert_int_equal(host[0].slots, 4);
    assert_int_equal(host[1].slots, 1);
    assert_string_equal(host[2].name, "user@10.0.0.3");
    assert_true(host[3].is_local && !host[2].is_local);
    assert_string_equal(host[3].port, "");
    assert_string_equal(host[4].name, "anna@gpu7");
    assert_string_equal(host[4].port, "2222");
    assert_int_equal(host[4].slots, 3);
    assert_string_equal(host[6].name, "root@fd00::7");
    assert_string_equal(host[7].name, "fd00::8");
    assert_false(host[8].is_local); /* what is behind a port may be a container */
    tri_vector_fini(&hosts);
}

static void wrong_host_files_are_told_with_their_line(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"a\nb slots=0", "hosts:2: want slots=N"},
        {"a slots=x", "hosts:1: want slots=N"},
        {"a slots=2 b", "hosts:1: want slots=N"},
        {"\n\n-oProxyCommand=x", "hosts:3: want a host"},
        {"a;reboot", "hosts:1: want a host name"},
        {"a\nb\na", "hosts:3: want each host once"},
        {"# nothing\n", "hosts: want lines"},
        {"a slots=99999", "hosts:1: want slots=N"},
        {"a port=0", "hosts:1: want slots=N"},
        {"a port=65536", "hosts:1: want slots=N"},
        {"a:22", "want 'host port=N'"},
        {"[::1]:22", "want 'host port=N'"},
        {"[]", "want 'host port=N'"},
        {"[-::1]", "want 'host port=N'"},
        {"me@-oX", "hosts:1: want a host"},
        {"a port=7\na port=7", "hosts:2: want each host once"},
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

/* A name that only ssh's configuration knows, behind a port of its own. */
static void a_name_that_does_not_resolve_is_asked_of_ssh(void **state)
{
    char folder[] = "/tmp/trireme-ssh-XXXXXX", path[64], name[256];
    launch_host host = {.name = "anna@gpu7.invalid", .port = "2222"};
    tri_launch_config config;
    FILE *file;

    (void)state;
    tri_options_defaults(&tri_launch_options, &config);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/it's $(ssh)", folder); /* a path is no text for a shell */
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("#!/bin/sh\n[ \"$*\" = '-G -p 2222 anna@gpu7.invalid' ] && printf 'user anna\\nhostname 127.0.0.9\\nport "
          "2222\\n'\n",
          file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(tri_options_set(&tri_launch_options, &config, "ssh", path), TRI_OK);
    assert_int_equal(tri_launch_host_name(&config, &host, name), TRI_OK);
    assert_string_equal(name, "127.0.0.9");
    host.port[0] = 0;
    assert_int_equal(tri_launch_host_name(&config, &host, name), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want a name that resolves, or one that"));
    snprintf(host.name, sizeof host.name, "me@127.0.0.1");
    assert_int_equal(tri_launch_host_name(&config, &host, name), TRI_OK);
    assert_string_equal(name, "127.0.0.1");
    unlink(path);
    rmdir(folder);
}

static void a_shell_that_does_not_end_is_ended(void **state)
{
    launch_shell shell = {.argv = {"sh", "-c", "echo begun; exec sleep 1000"}};
    char text[16];

    (void)state;
    assert_int_equal(tri_launch_shell_ask(&shell, "here", 50, text, sizeof text), -1);
    shell.argv[2] = "echo to nobody >&2; echo 0123456789abcdef; exit 3";
    assert_int_equal(tri_launch_shell_ask(&shell, "here", 60000, text, sizeof text), 3);
    assert_string_equal(text, "0123456789abcde");
}

static void a_port_is_an_option_of_ssh(void **state)
{
    tri_launch_config config;
    launch_shell shell;
    int at = 0;

    (void)state;
    tri_options_defaults(&tri_launch_options, &config);
    tri_launch_shell(&config, "me@a", "2222", "true", &shell);
    while (shell.argv[at] && strcmp(shell.argv[at], "-p") != 0)
        at++;
    assert_non_null(shell.argv[at]);
    assert_string_equal(shell.argv[at + 1], "2222");
    assert_string_equal(shell.argv[at + 2], "me@a");
    assert_string_equal(shell.argv[at + 3], "true");
    assert_null(shell.argv[at + 4]);
    tri_launch_shell(&config, "a", "", "true", &shell);
    for (at = 0; shell.argv[at]; at++)
        assert_string_not_equal(shell.argv[at], "-p");
    assert_string_equal(shell.argv[at - 2], "a");
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
    tri_launch_shell(&config, "n10", "", "true", &shell);
    assert_string_equal(shell.argv[0], "srun");
    assert_string_equal(shell.node, "--nodelist=n10");
    assert_string_equal(tri_launch_shell_name(&config), "srun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_files_are_read),
        cmocka_unit_test(wrong_host_files_are_told_with_their_line),
        cmocka_unit_test(a_name_that_does_not_resolve_is_asked_of_ssh),
        cmocka_unit_test(a_shell_that_does_not_end_is_ended),
        cmocka_unit_test(a_port_is_an_option_of_ssh),
        cmocka_unit_test(the_nodes_of_a_slurm_job_are_hosts),
        cmocka_unit_test(quoted_words_survive_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
