/* SPDX-License-Identifier: Apache-2.0
 *
 * test_journal.c: what a journal holds after its process was killed at any byte, and a store's server that begins by
 * it.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cluster/journal.h"
#include "cluster/launch_impl.h"
#include "cluster/store.h"
#include "net/auth.h"

static char folder[] = "/tmp/trireme-journal-XXXXXX", path[64];

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/trireme-journal-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/journal", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return tri_fs_remove(folder) == TRI_OK ? 0 : 1;
}

static tri_journal *opened(void)
{
    tri_journal *journal;

    assert_int_equal(tri_journal_open(path, &journal), TRI_OK);
    return journal;
}

/* All keys and values as one text, whatever their order: keys are single letters. */
static tri_status note(void *arg, const char *key, const char *bytes, size_t nbytes)
{
    char(*texts)[24] = arg;

    snprintf(texts[key[0] - 'a'], 24, "%s=%.*s;", key, (int)(nbytes < 16 ? nbytes : 16), bytes);
    return TRI_OK;
}

static void holds(tri_journal *journal, const char *want)
{
    char texts[26][24] = {{0}}, all[26 * 24] = "";

    assert_int_equal(tri_journal_each(journal, note, texts), TRI_OK);
    for (int i = 0; i < 26; i++)
        strncat(all, texts[i], sizeof all - strlen(all) - 1);
    assert_string_equal(all, want);
}

static void the_last_value_of_a_key_stands(void **state)
{
    tri_journal *journal = opened();

    (void)state;
    holds(journal, "");
    tri_journal_put(journal, "a", "one", 3);
    tri_journal_put(journal, "b", "", 0);
    tri_journal_put(journal, "c", "gone", 4);
    tri_journal_put(journal, "a", "two", 3);
    tri_journal_put(journal, "c", NULL, 0);
    holds(journal, "a=two;b=;");
    tri_journal_close(journal, false);
    journal = opened();
    holds(journal, "a=two;b=;");
    assert_int_equal(tri_journal_clear(journal), TRI_OK);
    holds(journal, "");
    tri_journal_put(journal, "d", "x", 1);
    holds(journal, "d=x;");
    tri_journal_close(journal, true);
    assert_false(tri_fs_exists(path));
}

static void two_cannot_have_it(void **state)
{
    tri_journal *journal = opened(), *other;

    (void)state;
    assert_int_equal(tri_journal_open(path, &other), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "is the launcher of this one"));
    tri_journal_close(journal, false);
    tri_journal_close(opened(), false);
}

static void cut_at_any_byte_it_holds_what_was_whole_and_goes_on(void **state)
{
    tri_journal *journal = opened();
    struct stat info;

    (void)state;
    tri_journal_put(journal, "a", "1", 1);
    assert_int_equal(stat(path, &info), 0);
    off_t first = info.st_size;
    tri_journal_put(journal, "a", "second", 6);
    assert_int_equal(stat(path, &info), 0);
    tri_journal_close(journal, false);
    for (off_t at = info.st_size; at-- > 0;) {
        assert_int_equal(truncate(path, at), 0);
        journal = opened();
        holds(journal, at >= first ? "a=1;" : "");
        tri_journal_put(journal, "b", "after", 5);
        holds(journal, at >= first ? "a=1;b=after;" : "b=after;");
        tri_journal_close(journal, false);
    }
}

static void a_flipped_byte_ends_it_there(void **state)
{
    tri_journal *journal = opened();
    char byte;

    (void)state;
    tri_journal_put(journal, "a", "1", 1);
    tri_journal_put(journal, "b", "2", 1);
    tri_journal_close(journal, false);
    int fd = open(path, O_RDWR);
    off_t last = lseek(fd, -1, SEEK_END);
    assert_int_equal(pread(fd, &byte, 1, last), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, last), 1);
    close(fd);
    journal = opened();
    holds(journal, "a=1;");
    tri_journal_close(journal, true);
}

static void one_of_before_the_machine_started_is_empty(void **state)
{
    tri_journal *journal = opened();

    (void)state;
    tri_journal_put(journal, "a", "1", 1);
    tri_journal_close(journal, false);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "00000000", 8, 8), 8); /* the boot id */
    close(fd);
    journal = opened();
    holds(journal, "");
    tri_journal_close(journal, true);
}

static void it_is_written_anew_before_it_grows_without_end(void **state)
{
    tri_journal *journal = opened();
    size_t nbytes = 100000;
    char *big = tri_alloc_zero(1, nbytes);
    struct stat info;

    (void)state;
    tri_journal_put(journal, "z", "kept", 4);
    for (int i = 0; i < 200; i++)
        tri_journal_put(journal, "a", big, nbytes);
    tri_journal_put(journal, "a", "small", 5);
    holds(journal, "a=small;z=kept;");
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size < 5 << 20);
    tri_journal *other;
    assert_int_equal(tri_journal_open(path, &other), TRI_ECONFIG); /* the new file is locked too */
    tri_journal_close(journal, false);
    journal = opened();
    holds(journal, "a=small;z=kept;");
    tri_journal_close(journal, true);
    tri_free(big);
}

static void what_cannot_be_written_is_not_gone_on_with(void **state)
{
    tri_journal *journal;

    (void)state;
    if (symlink("/dev/full", path) == 0) {
        assert_int_equal(tri_journal_open(path, &journal), TRI_EIO); /* no links */
        assert_int_equal(unlink(path), 0);
    }
}

static void a_file_of_others_or_for_others_is_not_believed(void **state)
{
    static const mode_t modes[] = {0666, 0644, 0640, 0620, 0602};
    tri_journal *journal = opened();
    struct stat info;
    char beside[80];

    (void)state;
    tri_journal_put(journal, "a", "1", 1);
    tri_journal_close(journal, false);
    for (size_t i = 0; i < TRI_COUNT_OF(modes); i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(tri_journal_open(path, &journal), TRI_ECONFIG);
        assert_non_null(strstr(tri_last_error(), "that others cannot read or write, got one of user"));
    }
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_int_equal(tri_journal_open(path, &journal), TRI_ECONFIG);
        assert_non_null(strstr(tri_last_error(), "of user 12345, mode 0600"));
        assert_int_equal(chown(path, 0, 0), 0);
    }
    journal = opened();
    holds(journal, "a=1;");
    tri_journal_close(journal, false);
    /* A file that somebody has put where the journal is written again does not become the journal. */
    snprintf(beside, sizeof beside, "%s.new", path);
    int fd = open(beside, O_RDWR | O_CREAT, 0666);
    assert_int_equal(fchmod(fd, 0666), 0);
    journal = opened();
    char *big = tri_alloc_zero(1, 100000);
    for (int i = 0; i < 100; i++)
        tri_journal_put(journal, "a", big, 100000);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_size, 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    close(fd);
    tri_free(big);
    tri_journal_close(journal, true);
}

/* A pipe, which would let whoever opens it wait for a writer. */
static void what_is_no_file_is_refused_without_waiting(void **state)
{
    tri_journal *journal;
    char exit_path[80];
    int fd;

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(tri_journal_open(path, &journal), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "/journal: want a file, got something else of user"));
    assert_int_equal(tri_journal_file_open(path, O_RDONLY, 022, &fd), TRI_ECONFIG);
    assert_int_equal(fd, -1);
    snprintf(exit_path, sizeof exit_path, "%s/rank-3.exit", folder);
    assert_int_equal(mkfifo(exit_path, 0600), 0);
    assert_int_equal(tri_launch_exit_read(folder, 3, 0), -1);
    assert_int_equal(unlink(exit_path), 0);
    tri_launch_exit_note(folder, 3, 2, 7);
    assert_int_equal(tri_launch_exit_read(folder, 3, 1), -1);
    assert_int_equal(tri_launch_exit_read(folder, 3, 2), 7);
}

/* Of a process that runs a program with this token in its environment, "": without one; stopped by kill(). */
static pid_t sleeper(const char *token)
{
    char text[96], *const environment[] = {text, NULL};

    snprintf(text, sizeof text, "TRIREME_TOKEN=%s", token);
    pid_t pid = fork();
    if (pid == 0) {
        execle("/bin/sleep", "sleep", "1000", NULL, token[0] ? environment : environment + 1);
        _exit(1);
    }
    return pid;
}

static void a_process_is_of_the_job_whose_token_it_has(void **state)
{
    static const char token[] = "0123456789abcdef0123456789abcdef";
    char id[TRI_AUTH_JOB_NBYTES];
    pid_t pids[] = {sleeper(token), sleeper("0123456789abcdef0123456789abcdeF"), sleeper("")};

    (void)state;
    assert_int_equal(tri_auth_job_id(token, id), TRI_OK);
    for (size_t i = 0; i < TRI_COUNT_OF(pids); i++) {
        assert_int_equal(tri_launch_is_of_job(pids[i], id), i == 0);
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        assert_false(tri_launch_is_of_job(pids[i], id));
    }
}

/* Files may grow to so many bytes: what a full disk is like. */
static void limit_files(rlim_t nbytes)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = nbytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_disk_that_is_full_for_a_while_leaves_nothing_out(void **state)
{
    tri_journal *journal = opened();
    struct stat info;

    (void)state;
    tri_journal_put(journal, "a", "1", 1);
    tri_journal_put(journal, "b", "2", 1);
    assert_int_equal(stat(path, &info), 0);
    limit_files((rlim_t)info.st_size + 3);
    tri_journal_put(journal, "a", "3", 1);
    tri_journal_put(journal, "c", "4", 1);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 0); /* nobody goes on with what is not so any more */
    limit_files(RLIM_INFINITY);
    for (int i = 0; i < 100 && info.st_size == 0; i++) {
        usleep(20000);
        tri_journal_put(journal, "d", "5", 1);
        assert_int_equal(stat(path, &info), 0);
    }
    tri_journal_put(journal, "e", "6", 1);
    tri_journal_close(journal, false);
    journal = opened();
    holds(journal, "a=3;b=2;c=4;d=5;e=6;");
    tri_journal_close(journal, true);
}

/* --- a server by it --- */

static int64_t soon(void)
{
    return tri_deadline_after_ms(20000);
}

static tri_store *served(tri_journal *journal, tri_store_server **server, int *port)
{
    char url[64];
    tri_store *store;

    assert_int_equal(tri_store_server_start_kept("127.0.0.1", *port, "secret", journal, server), TRI_OK);
    *port = tri_store_server_port(*server);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", *port);
    assert_int_equal(tri_store_open(url, "secret", soon(), &store), TRI_OK);
    return store;
}

static void a_server_in_its_place_lets_nothing_be_claimed_twice(void **state)
{
    tri_journal *journal = opened();
    tri_store_server *server;
    int port = 0;
    tri_store *store = served(journal, &server, &port);
    char *bytes;
    size_t nbytes;
    int64_t after;

    (void)state;
    store->patience_ns = 20 * TRI_NS_PER_S;
    assert_int_equal(tri_store_claim(store, "gen/7", "first", 5, &bytes, &nbytes, soon()), TRI_OK);
    tri_free(bytes);
    assert_int_equal(tri_store_add(store, "n", 3, &after, soon()), TRI_OK);
    assert_int_equal(tri_store_set(store, "gone", "", 0, soon()), TRI_OK);
    assert_int_equal(tri_store_set(store, "beat/x", "1", 1, soon()), TRI_OK);
    assert_int_equal(tri_store_remove(store, "gone", soon()), TRI_OK);
    tri_store_server_stop(server);
    tri_journal_close(journal, false);

    journal = opened();
    tri_store *second = served(journal, &server, &port);
    /* The client of the first one finds the second by itself. */
    assert_int_equal(tri_store_claim(store, "gen/7", "another", 7, &bytes, &nbytes, soon()), TRI_OK);
    assert_string_equal(bytes, "first");
    tri_free(bytes);
    assert_int_equal(tri_store_add(store, "n", 1, &after, soon()), TRI_OK);
    assert_int_equal(after, 4);
    assert_int_equal(tri_store_wait(store, "gone", &bytes, &nbytes, tri_now_ns()), TRI_ETIMEOUT);
    assert_int_equal(tri_store_wait(store, "beat/x", &bytes, &nbytes, tri_now_ns()), TRI_ETIMEOUT);
    tri_store_close(store);
    tri_store_close(second);
    tri_store_server_stop(server);
    tri_journal_close(journal, true);
}

static void patience_ends(void **state)
{
    tri_store_server *server;
    int port = 0;
    tri_store *store = served(NULL, &server, &port);
    int64_t start_ns = tri_now_ns();

    (void)state;
    store->patience_ns = 60 * TRI_NS_PER_MS;
    tri_store_server_stop(server);
    assert_int_equal(tri_store_set(store, "a", "", 0, soon()), TRI_EPEER);
    assert_true(tri_now_ns() - start_ns >= 60 * TRI_NS_PER_MS);
    store->patience_ns = 0;
    assert_int_equal(tri_store_set(store, "a", "", 0, tri_now_ns()), TRI_EPEER);
    tri_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_value_of_a_key_stands, begin, end),
        cmocka_unit_test_setup_teardown(two_cannot_have_it, begin, end),
        cmocka_unit_test_setup_teardown(cut_at_any_byte_it_holds_what_was_whole_and_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(a_flipped_byte_ends_it_there, begin, end),
        cmocka_unit_test_setup_teardown(one_of_before_the_machine_started_is_empty, begin, end),
        cmocka_unit_test_setup_teardown(it_is_written_anew_before_it_grows_without_end, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_is_not_gone_on_with, begin, end),
        cmocka_unit_test_setup_teardown(a_file_of_others_or_for_others_is_not_believed, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_refused_without_waiting, begin, end),
        cmocka_unit_test(a_process_is_of_the_job_whose_token_it_has),
        cmocka_unit_test_setup_teardown(a_disk_that_is_full_for_a_while_leaves_nothing_out, begin, end),
        cmocka_unit_test_setup_teardown(a_server_in_its_place_lets_nothing_be_claimed_twice, begin, end),
        cmocka_unit_test_setup_teardown(patience_ends, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
