/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

static int entries_of(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* Maps and descriptors of this process whose name stands in the folder of shared memory, which others use too. */
static int named_here(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    DIR *folder = opendir("/proc/self/fd");

    assert_true(maps && folder);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "/dev/shm/") && !strstr(line, "(deleted)");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        ssize_t nbytes = readlinkat(dirfd(folder), entry->d_name, line, sizeof line - 1);

        line[nbytes > 0 ? nbytes : 0] = 0;
        count += strncmp(line, "/dev/shm/", 9) == 0 && !strstr(line, "(deleted)");
    }
    fclose(maps);
    closedir(folder);
    return count;
}

static void link_and_leave(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    int *named = arg;

    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    spawn_barrier(self);
    if (self->rank == 0 && named)
        *named = named_here();
    spawn_barrier(self);
    tri_net_close(net);
}

static void nothing_is_left_open_or_named(void **state)
{
    (void)state;
    for (spawn_kind kind = SPAWN_SHM; kind <= SPAWN_AUTO; kind++) {
        if (spawn_is_left_out(kind))
            continue;
        spawn_config config = {.kind = kind, .world = 5};
        int named = -1, fds = entries_of("/proc/self/fd");

        assert_true(spawn_ranks(&config, link_and_leave, &named));
        assert_int_equal(entries_of("/proc/self/fd"), fds);
        assert_int_equal(named, 0);
        assert_int_equal(named_here(), 0);
    }
}

/* In a process of its own: may it be rank 0 of 20 with such limits? */
static int open_under(rlim_t soft, rlim_t hard, const char *text)
{
    struct rlimit files = {soft, hard};
    tri_net_config config;
    tri_net *net = NULL;
    tri_status status;
    pid_t child = fork();
    int end;

    if (child > 0) {
        assert_int_equal(waitpid(child, &end, 0), child);
        return WIFEXITED(end) ? WEXITSTATUS(end) : -1;
    }
    tri_options_defaults(&tri_net_options, &config);
    if (child < 0 || setrlimit(RLIMIT_NOFILE, &files) != 0)
        _exit(1);
    status = tri_net_open(&config, 0, 20, "token", NULL, &net);
    if (text)
        _exit(status == TRI_EIO && strstr(tri_last_error(), text) ? 0 : 2);
    getrlimit(RLIMIT_NOFILE, &files);
    _exit(status == TRI_OK && files.rlim_cur >= 3 * 19 && files.rlim_cur < hard ? 0 : 3);
}

static void a_rank_that_may_not_open_enough_files_says_so_at_once(void **state)
{
    (void)state;
    assert_int_equal(open_under(40, 40, "for a rank of 20 ("), 0);
    assert_int_equal(open_under(40, 40, "the limit of this process is 40: ulimit -n "), 0);
    assert_int_equal(open_under(40, 400, NULL), 0); /* a soft limit is raised */
}

/* Rank 1 has another token. *answered: it was answered so; rank 0 may have given up before rank 1 could call. */
static void stranger(spawn_rank *self, void *arg)
{
    bool *answered = arg;
    tri_net *net = NULL;
    tri_status status;

    status = spawn_net_open(self, &net);
    if (self->rank == 0)
        SPAWN_CHECK(self, status == TRI_ETIMEOUT && strstr(tri_last_error(), "rank 1 has not called"));
    else {
        SPAWN_CHECK(self, status != TRI_OK);
        *answered = status == TRI_EPEER && strstr(tri_last_error(), "does not know the token");
    }
    tri_net_close(net);
}

static void a_wrong_token_is_refused(void **state)
{
    (void)state;
    for (spawn_kind kind = SPAWN_SHM; kind <= SPAWN_UCX; kind++) {
        spawn_config config = {.kind = kind, .world = 2, .timeout_s = 0.5, .tokens = {NULL, "another"}};
        int fds = entries_of("/proc/self/fd");
        bool answered = spawn_is_left_out(kind);

        for (; !answered && config.timeout_s < 60; config.timeout_s *= 2)
            assert_true(spawn_ranks(&config, stranger, &answered));
        assert_true(answered);
        assert_int_equal(entries_of("/proc/self/fd"), fds);
    }
}

/* The port on 127.0.0.1 in "host=..;tcp=<id>,..,127.0.0.1/<port>,.." */
static int port_of(const char *address)
{
    const char *place = strstr(address, ",127.0.0.1/");

    return place ? atoi(place + strlen(",127.0.0.1/")) : 0;
}

static int loopback_connect(int port)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (const struct sockaddr *)&place, sizeof place) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Strangers call rank 0 first: some are silent, one talks nonsense. */
static void strangers_call(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char nonsense[200] = "GET / HTTP/1.1\r\nHost: trireme\r\n\r\n"; /* longer than a hello */
    int fds[100];
    const char *const *addresses;

    (void)arg;
    SPAWN_CHECK(self, tri_net_open(&self->config, self->rank, self->world, self->token, NULL, &net) == TRI_OK);
    addresses = spawn_exchange(self, tri_net_address(net));
    for (int i = 0; self->rank == 0 && i < 100; i++) {
        fds[i] = loopback_connect(port_of(addresses[0]));
        SPAWN_CHECK(self, fds[i] >= 0);
        if (i == 50)
            SPAWN_CHECK(self, write(fds[i], nonsense, sizeof nonsense) == (ssize_t)sizeof nonsense);
    }
    spawn_barrier(self);
    SPAWN_CHECK(self, tri_net_connect(net, addresses, tri_deadline_after_ms(20000)) == TRI_OK);
    spawn_barrier(self);
    for (int i = 0; self->rank == 0 && i < 100; i++)
        close(fds[i]);
    tri_net_close(net);
}

static void silent_and_strange_clients_hold_up_nobody(void **state)
{
    spawn_config config = {.kind = SPAWN_TCP, .world = 3};

    (void)state;
    assert_true(spawn_ranks(&config, strangers_call, NULL));
}

static void a_wrong_interface_is_named(void **state)
{
    tri_net_config config;
    tri_net *net;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    assert_int_equal(tri_options_set(&tri_net_options, &config, "transport", "tcp"), TRI_OK);
    assert_int_equal(tri_options_set(&tri_net_options, &config, "interface", "nosuch0"), TRI_OK);
    assert_int_equal(tri_net_open(&config, 0, 2, "token", NULL, &net), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "nosuch0"));
    assert_int_equal(tri_options_set(&tri_net_options, &config, "interface", "lo"), TRI_OK);
    assert_int_equal(tri_net_open(&config, 0, 2, "token", NULL, &net), TRI_OK);
    assert_non_null(strstr(tri_net_address(net), ",127.0.0.1/"));
    tri_net_close(net);
}

static void bad_addresses_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "host=1;tcp",
                                        "shm=abc",
                                        "host=1;tcp=id,127.0.0.1/port",
                                        "tcp=x,127.0.0.1/65536",
                                        "tcp=x,127.0.0.1",
                                        "tcp=x,127.0.0.1/0",
                                        "tcp=x,not-an-address/80",
                                        "tcp=,,,"};
    tri_net_config config;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        const char *addresses[2] = {wrong[i], NULL};
        tri_net *net;

        assert_int_equal(tri_net_open(&config, 1, 2, "token", NULL, &net), TRI_OK);
        assert_int_not_equal(tri_net_connect(net, addresses, tri_deadline_after_ms(50)), TRI_OK);
        tri_net_close(net);
    }
}

/* ---- processes */

static void text_send(int fd, const char *text)
{
    char line[TRI_NET_ADDRESS_NBYTES] = {0};

    snprintf(line, sizeof line, "%s", text);
    if (write(fd, line, sizeof line) != (ssize_t)sizeof line)
        abort();
}

static void text_receive(int fd, char line[TRI_NET_ADDRESS_NBYTES])
{
    if (recv(fd, line, TRI_NET_ADDRESS_NBYTES, MSG_WAITALL) != TRI_NET_ADDRESS_NBYTES)
        abort();
}

static tri_net *process_link(const char *transport, int rank, int fd)
{
    char peer[TRI_NET_ADDRESS_NBYTES];
    const char *addresses[2] = {peer, peer};
    tri_net_config config;
    tri_net *net;

    tri_options_defaults(&tri_net_options, &config);
    if (tri_options_set(&tri_net_options, &config, "transport", transport) != TRI_OK ||
        tri_net_open(&config, rank, 2, "token", NULL, &net) != TRI_OK)
        return NULL;
    text_send(fd, tri_net_address(net));
    text_receive(fd, peer);
    return tri_net_connect(net, addresses, tri_deadline_after_ms(10000)) == TRI_OK ? net : NULL;
}

static void kill_soon(void *arg)
{
    tri_sleep_ns(100 * TRI_NS_PER_MS);
    kill(*(pid_t *)arg, SIGKILL);
}

static void killed_over(const char *transport)
{
    int fds[2];
    pid_t child;
    tri_thread *killer;
    tri_net *net;
    char byte;
    tri_move move = {.frame = {.kind = TRI_FRAME_DATA, .nbytes = 1}, .peer = 1, .bytes = &byte};

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    child = fork();
    if (child == 0) {
        process_link(transport, 1, fds[1]);
        for (;;)
            pause();
    }
    net = process_link(transport, 0, fds[0]);
    assert_non_null(net);
    assert_int_equal(tri_thread_start(&killer, "killer", kill_soon, &child), TRI_OK);
    assert_int_equal(tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL), TRI_EPEER);
    assert_non_null(strstr(tri_last_error(), "rank 1 is gone ("));
    tri_thread_join(killer);
    assert_int_equal(waitpid(child, NULL, 0), child);
    tri_net_close(net);
    close(fds[0]);
    close(fds[1]);
}

static void a_killed_process_is_noticed_over_shm(void **state)
{
    (void)state;
    killed_over("shm");
}

static void a_killed_process_is_noticed_over_tcp(void **state)
{
    (void)state;
    killed_over("tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_is_noticed_over_shm),
        cmocka_unit_test(a_killed_process_is_noticed_over_tcp),
        cmocka_unit_test(nothing_is_left_open_or_named),
        cmocka_unit_test(a_rank_that_may_not_open_enough_files_says_so_at_once),
        cmocka_unit_test(a_wrong_token_is_refused),
        cmocka_unit_test(silent_and_strange_clients_hold_up_nobody),
        cmocka_unit_test(a_wrong_interface_is_named),
        cmocka_unit_test(bad_addresses_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
