/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch.c: the launcher with real processes: causes, signals, output, and that nothing is left behind.
 *
 * Each launch runs in a process of its own (signals and the subreaper are a process's), its output in files.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cluster/launch_impl.h"

typedef struct run {
    tri_launch_config config;
    char folder[40], out_path[64], err_path[64], log_folder[64];
    char *out, *err;
    pid_t pid;
    int code; /* exit code of the launching process: the result's, or 200 + status */
} run;

static run run_make(int ranks)
{
    run at = {.folder = "/tmp/trireme-launch-XXXXXX"};

    assert_non_null(mkdtemp(at.folder));
    snprintf(at.out_path, sizeof at.out_path, "%s/out", at.folder);
    snprintf(at.err_path, sizeof at.err_path, "%s/err", at.folder);
    snprintf(at.log_folder, sizeof at.log_folder, "%s/logs", at.folder);
    tri_options_defaults(&tri_launch_options, &at.config);
    at.config.ranks = ranks;
    at.config.grace_s = 0.3;
    return at;
}

static void run_start(run *at, const char *script)
{
    at->pid = fork();
    if (at->pid == 0) {
        char text[2048];
        char missing[] = "/no/such/program", *argv[] = {(char[]){"sh"}, (char[]){"-c"}, text, NULL};
        tri_launch_result result;
        tri_status status;

        snprintf(text, sizeof text, "%s", script);
        if (strcmp(script, "missing") == 0)
            argv[0] = missing;
        dup2(open(at->out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(open(at->err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        setenv("TRIREME_TEST_FOLDER", at->folder, 1);
        status = tri_launch_run(&at->config, argv, at->log_folder, false, &result);
        if (status != TRI_OK)
            dprintf(2, "status %d: %s\n", (int)status, tri_last_error());
        _exit(status != TRI_OK ? 200 + (int)status : result.exit_code);
    }
    assert_true(at->pid > 0);
}

static void run_wait(run *at)
{
    int status;
    size_t nbytes;

    assert_int_equal(waitpid(at->pid, &status, 0), at->pid);
    at->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    assert_int_equal(tri_fs_read(at->out_path, 0, &at->out, &nbytes), TRI_OK);
    assert_int_equal(tri_fs_read(at->err_path, 0, &at->err, &nbytes), TRI_OK);
}

/* How often the store does not answer; then whether it lists a worker whose others continue. */
static int store_silences;
static bool store_lists;

tri_status __wrap_tri_members_is_listed(tri_store *store, const char *id, bool *listed, int64_t deadline_ns);
tri_status __wrap_tri_members_is_listed(tri_store *store, const char *id, bool *listed, int64_t deadline_ns)
{
    char path[128];

    (void)store;
    (void)deadline_ns;
    if (store_silences-- > 0)
        return tri_fail(TRI_ETIMEOUT, "the store says nothing");
    *listed = store_lists && strcmp(id, "1.0") == 0;
    snprintf(path, sizeof path, "%s/answered", getenv("TRIREME_TEST_FOLDER"));
    return tri_fs_write_atomic(path, "", 0);
}

/* Processes that have this run's folder in their environment. */
static int count_left(const run *at)
{
    char **names, path[300], needle[80];
    size_t count, nbytes;
    int left = 0;

    snprintf(needle, sizeof needle, "TRIREME_TEST_FOLDER=%s", at->folder);
    assert_int_equal(tri_fs_list("/proc", &names, &count), TRI_OK);
    for (size_t i = 0; i < count; i++) {
        char *text;

        snprintf(path, sizeof path, "/proc/%.20s/environ", names[i]);
        if (names[i][0] < '0' || names[i][0] > '9' || tri_fs_read(path, 0, &text, &nbytes) != TRI_OK)
            continue;
        left += memmem(text, nbytes, needle, strlen(needle)) != NULL;
        tri_free(text);
    }
    tri_fs_list_free(names, count);
    return left;
}

static void run_fini(run *at)
{
    int left = 1;

    for (int i = 0; i < 1000 && (left = count_left(at)) > 0; i++)
        tri_sleep_ns(10 * TRI_NS_PER_MS); /* a killed process takes a moment to be gone */
    assert_int_equal(left, 0);
    tri_free(at->out);
    tri_free(at->err);
    assert_int_equal(tri_fs_remove(at->folder), TRI_OK);
}

static void file_wait(const run *at, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", at->folder, name);
    for (int i = 0; i < 2000 && !tri_fs_exists(path); i++)
        tri_sleep_ns(5 * TRI_NS_PER_MS);
    assert_true(tri_fs_exists(path));
}

static int lines_of(const char *text)
{
    int count = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++)
        count++;
    return count;
}

static void output_check(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("want '%s' in:\n%s", part, text);
}

static void eight_ranks_end_well_and_say_who_they_are(void **state)
{
    run at = run_make(8);

    (void)state;
    run_start(&at, "echo $TRIREME_RANK $RANK of $TRIREME_WORLD_SIZE $LOCAL_RANK ${TRIREME_STORE%:*} ${#TRIREME_TOKEN} "
                   "$OMP_NUM_THREADS $MASTER_ADDR; printf half >&2");
    run_wait(&at);
    assert_int_equal(at.code, 0);
    assert_int_equal(lines_of(at.out), 8);
    output_check(at.out, "[7] 7 7 of 8 7 tcp://127.0.0.1 64 1 127.0.0.1\n");
    assert_int_equal(lines_of(at.err), 8);
    output_check(at.err, "[3] half\n");
    run_fini(&at);
}

static void the_first_failure_is_the_cause(void **state)
{
    run at = run_make(4);

    (void)state;
    run_start(&at, "if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 60");
    run_wait(&at);
    assert_int_equal(at.code, 137);
    output_check(at.err, "trireme: rank 2 was killed by signal 9 (Killed); stopping the others\n");
    run_fini(&at);
    at = run_make(3);
    run_start(&at, "trap '' TERM; if [ $RANK = 1 ]; then echo last words; exit 7; fi; sleep 60; sleep 60");
    run_wait(&at);
    assert_int_equal(at.code, 7);
    output_check(at.err, "trireme: rank 1 ended with exit code 7; stopping the others\n");
    output_check(at.out, "[1] last words\n");
    run_fini(&at);
}

static void a_rank_that_lost_a_peer_ends_first_and_is_not_the_cause(void **state)
{
    run at = run_make(2);

    (void)state;
    at.config.grace_s = 20;
    run_start(&at, "if [ $RANK = 0 ]; then trap 'kill -9 $$' TERM; touch $TRIREME_TEST_FOLDER/ready; while :; do sleep "
                   "0.05; done; fi; "
                   "until [ -e $TRIREME_TEST_FOLDER/ready ]; do sleep 0.01; done; exit 3");
    run_wait(&at);
    assert_int_equal(at.code, 137);
    output_check(at.err, "trireme: rank 1 ended with exit code 3; stopping the others\n");
    output_check(at.err, "trireme: rank 0 was killed by signal 9 (Killed)\n");
    run_fini(&at);
}

static void a_store_that_does_not_say_who_was_a_member_is_asked_again(void **state)
{
    static const struct {
        bool lists;
        int code;
        const char *says;
    } rows[] = {{false, 0, "worker 1 was stopped by a signal before it was a member (exit code 130)"},
                {true, 130, "rank 1 ended with exit code 130; stopping the others"}};

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        run at = run_make(2);

        at.config.elastic = true;
        at.config.restarts = 9;
        store_silences = 1;
        store_lists = rows[i].lists;
        run_start(&at, "[ $RANK = 1 ] && exit 130; until [ -e $TRIREME_TEST_FOLDER/answered ]; do sleep 0.02; done");
        run_wait(&at);
        output_check(at.err, rows[i].says);
        assert_null(strstr(at.err, "started again ("));
        assert_int_equal(at.code, rows[i].code);
        run_fini(&at);
    }
}

static void a_program_that_is_missing_is_an_error(void **state)
{
    run at = run_make(2);

    (void)state;
    run_start(&at, "missing");
    run_wait(&at);
    assert_int_equal(at.code, 200 + TRI_ENOTFOUND);
    output_check(at.err, "/no/such/program: cannot be started");
    run_fini(&at);
}

static void a_stop_signal_is_passed_on(void **state)
{
    run at = run_make(2);

    (void)state;
    run_start(&at,
              "trap 'echo saved; exit 0' TERM; : > $TRIREME_TEST_FOLDER/ready-$RANK; while :; do sleep 0.01; done");
    file_wait(&at, "ready-0");
    file_wait(&at, "ready-1");
    kill(at.pid, SIGTERM);
    run_wait(&at);
    assert_int_equal(at.code, 0);
    output_check(at.out, "[0] saved\n");
    output_check(at.out, "[1] saved\n");
    run_fini(&at);
}

/* A rank is slower to save than the one that ends first: it is not struck a second time. */
static void a_slow_rank_ends_in_peace(void **state)
{
    run at = run_make(2);

    (void)state;
    at.config.grace_s = 20;
    run_start(&at, "trap 'trap - TERM; sleep 0.$(($RANK * 3)); echo saved; exit 143' TERM; "
                   ": > $TRIREME_TEST_FOLDER/ready-$RANK; while :; do sleep 0.01; done");
    file_wait(&at, "ready-0");
    file_wait(&at, "ready-1");
    kill(at.pid, SIGTERM);
    run_wait(&at);
    assert_int_equal(at.code, 143);
    output_check(at.out, "[0] saved\n");
    output_check(at.out, "[1] saved\n");
    assert_null(strstr(at.err, "stopping the others"));
    run_fini(&at);
}

static void descendants_go_with_their_rank(void **state)
{
    run at = run_make(2);

    (void)state;
    run_start(&at, "sleep 60 & setsid sleep 60 & exit 0");
    run_wait(&at);
    assert_int_equal(at.code, 0);
    run_fini(&at);
}

static void nothing_survives_a_killed_launcher(void **state)
{
    run at = run_make(3);

    (void)state;
    run_start(&at, "sleep 60 & setsid sleep 60 & : > $TRIREME_TEST_FOLDER/ready-$RANK; wait");
    for (int r = 0; r < 3; r++)
        file_wait(&at, (char[]){'r', 'e', 'a', 'd', 'y', '-', (char)('0' + r), 0});
    assert_true(count_left(&at) >= 6);
    kill(at.pid, SIGKILL);
    run_wait(&at);
    run_fini(&at);
}

static void lines_are_never_mixed(void **state)
{
    run at = run_make(4);
    char *line, *save = NULL;
    int count = 0;

    (void)state;
    run_start(&at, "i=0; while [ $i -lt 300 ]; do printf 'a%s' $RANK; printf 'b%s' $RANK; printf 'c%s\\n' $RANK; "
                   "i=$((i+1)); done; "
                   "head -c 100000 /dev/zero | tr '\\0' z");
    run_wait(&at);
    assert_int_equal(at.code, 0);
    for (line = strtok_r(at.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), count++) {
        char want[16];

        if (strchr(line, 'z')) {
            assert_true(strlen(line) <= 4 + TRI_LAUNCH_LINE_NBYTES && strspn(line + 4, "z") == strlen(line + 4));
            continue;
        }
        snprintf(want, sizeof want, "[%c] a%cb%cc%c", line[1], line[1], line[1], line[1]);
        assert_string_equal(line, want);
    }
    assert_int_equal(count, 4 * 302);
    run_fini(&at);
}

static void logs_hold_each_ranks_output(void **state)
{
    run at = run_make(2);
    char path[128], *text;
    size_t nbytes;

    (void)state;
    run_start(&at, "echo out $RANK");
    run_wait(&at);
    snprintf(path, sizeof path, "%s/rank-1.log", at.log_folder);
    assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
    assert_string_equal(text, "out 1\n");
    tri_free(text);
    run_fini(&at);
}

/* A host file of two hosts and a remote shell that runs the command here. */
static run remote_make(int ranks)
{
    run at = run_make(ranks);
    char path[64];
    static const char hosts[] = "localhost slots=2\n127.0.0.2 slots=2\n", shell[] = "#!/bin/sh\nshift\nsh -c \"$1\"\n";

    snprintf(path, sizeof path, "%s/hosts", at.folder);
    assert_int_equal(tri_fs_write_atomic(path, hosts, sizeof hosts - 1), TRI_OK);
    snprintf(at.config.hosts, sizeof at.config.hosts, "%s", path);
    snprintf(path, sizeof path, "%s/ssh", at.folder);
    assert_int_equal(tri_fs_write_atomic(path, shell, sizeof shell - 1), TRI_OK);
    assert_int_equal(chmod(path, 0700), 0);
    snprintf(at.config.ssh, sizeof at.config.ssh, "%.60s", path);
    return at;
}

static void hosts_are_started_by_the_remote_shell(void **state)
{
    run at = remote_make(3);

    (void)state;
    run_start(&at, "echo \"it's\" $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE ${#TRIREME_TOKEN} ${TRIREME_STORE%:*}");
    run_wait(&at);
    assert_int_equal(at.code, 0);
    output_check(at.out, "[1] it's 1 1/2 64 tcp://127.0.0.1\n");
    output_check(at.out, "[2] it's 2 0/1 64 tcp://127.0.0.1\n");
    run_fini(&at);
    at = remote_make(5);
    run_start(&at, "exit 0");
    run_wait(&at);
    assert_int_equal(at.code, 200 + TRI_ECONFIG);
    output_check(at.err, "want at most the 4 slots");
    run_fini(&at);
}

static void remote_ranks_are_stopped_and_signalled(void **state)
{
    run at = remote_make(3);

    (void)state;
    run_start(&at, "if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 60 & trap 'echo told; exit 0' TERM; wait");
    run_wait(&at);
    assert_int_equal(at.code, 137);
    output_check(at.err, "trireme: rank 2 was killed by signal 9 (Killed); stopping the others\n");
    run_fini(&at);
    at = remote_make(2);
    run_start(&at,
              "trap 'echo saved; exit 0' TERM; : > $TRIREME_TEST_FOLDER/ready-$RANK; while :; do sleep 0.01; done");
    file_wait(&at, "ready-0");
    file_wait(&at, "ready-1");
    kill(at.pid, SIGTERM);
    run_wait(&at);
    assert_int_equal(at.code, 0);
    output_check(at.out, "[1] saved\n");
    run_fini(&at);
    at = remote_make(2);
    run_start(&at, ": > $TRIREME_TEST_FOLDER/ready-$RANK; sleep 60");
    file_wait(&at, "ready-0");
    file_wait(&at, "ready-1");
    kill(at.pid, SIGKILL);
    run_wait(&at);
    run_fini(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_ranks_end_well_and_say_who_they_are),
        cmocka_unit_test(the_first_failure_is_the_cause),
        cmocka_unit_test(a_rank_that_lost_a_peer_ends_first_and_is_not_the_cause),
        cmocka_unit_test(a_store_that_does_not_say_who_was_a_member_is_asked_again),
        cmocka_unit_test(a_program_that_is_missing_is_an_error),
        cmocka_unit_test(a_stop_signal_is_passed_on),
        cmocka_unit_test(a_slow_rank_ends_in_peace),
        cmocka_unit_test(descendants_go_with_their_rank),
        cmocka_unit_test(nothing_survives_a_killed_launcher),
        cmocka_unit_test(lines_are_never_mixed),
        cmocka_unit_test(logs_hold_each_ranks_output),
        cmocka_unit_test(hosts_are_started_by_the_remote_shell),
        cmocka_unit_test(remote_ranks_are_stopped_and_signalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
