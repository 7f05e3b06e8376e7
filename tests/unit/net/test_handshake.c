/* SPDX-License-Identifier: Apache-2.0
 *
 * test_handshake.c: a rendezvous of two ranks while strangers hold more connections than the listening process may
 * open.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/runtime.h"
#include "net/bytes.h"
#include "net/handshake.h"
#include "net/tcp_rendezvous.h"
#include "unit/net/cmocka_all.h"

#define WORLD     200 /* a large world may have many callers: the open files bound them, too */
#define STRANGERS 400
#define FILES     256
#define TOKEN     "0123456789abcdef"
#define WAIT_MS   4000 /* less than a stranger's handshake may take */

/* What a stranger says first; false: it closes its connection. */
typedef bool (*stranger_fn)(int fd);

static bool is_silent(int fd)
{
    return fd >= 0;
}

static bool says_a_byte(int fd)
{
    return send(fd, "T", 1, MSG_NOSIGNAL) == 1;
}

static bool speaks_http(int fd)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: trireme\r\nUser-Agent: curl/8.5.0\r\nAccept: text/plain\r\n"
                               "Accept-Encoding: identity\r\n\r\n";

    return send(fd, text, sizeof text, MSG_NOSIGNAL) == sizeof text;
}

/* A right first hello needs no token. */
static bool knows_the_protocol(int fd)
{
    tri_rendezvous is = {.rank = 2, .world = WORLD, .token = "another", .memory_fd = -1};
    net_handshake handshake = {.fd = -1, .memory_fd = -1, .dialed = true, .sockets = 1};

    tri_handshake_send_start(&is, &handshake, 1);
    return send(fd, handshake.hello, sizeof handshake.hello, MSG_NOSIGNAL) == sizeof handshake.hello;
}

static tri_status meet(int rank, int peer, const tri_tcp_door *door, const char *address)
{
    const char *addresses[WORLD] = {NULL};
    tri_connected_peer *connected;

    addresses[peer] = address;
    return tri_tcp_rendezvous("test", rank, WORLD, TOKEN, door, 1, addresses, tri_deadline_after_ms(WAIT_MS),
                              &connected);
}

/* The listening rank, in a process of its own. */
static int listener_main(int out)
{
    struct rlimit files = {FILES, FILES};
    tri_tcp_door door;

    if (setrlimit(RLIMIT_NOFILE, &files) != 0 || tri_tcp_door_open("lo", "", &door) != TRI_OK ||
        write(out, door.address, sizeof door.address) != sizeof door.address)
        return 1;
    return meet(0, 2, &door, "") == TRI_OK ? 0 : 2;
}

static void strangers_that(stranger_fn say)
{
    tri_tcp_door door, own;
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    int fds[STRANGERS], ends[2], end;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0)
        _exit(listener_main(ends[1]));
    assert_int_equal(read(ends[0], door.address, sizeof door.address), sizeof door.address);
    assert_true(tri_tcp_places(door.address, door.address, places) > 0);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = socket(places[0].any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], &places[0].any, tri_tcp_place_nbytes(&places[0])), 0);
        (void)say(fds[i]); /* it may have been closed */
    }
    assert_int_equal(tri_tcp_door_open("lo", "", &own), TRI_OK);
    assert_int_equal(meet(2, 0, &own, door.address), TRI_OK);
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_int_equal(end, 0);
    tri_tcp_door_close(&own);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    close(ends[0]);
    close(ends[1]);
}

static void strangers_leave_places_for_the_ranks(void **state)
{
    static const stranger_fn kinds[] = {is_silent, says_a_byte, speaks_http, knows_the_protocol};

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++) {
        int64_t began_ns = tri_now_ns();

        strangers_that(kinds[i]);
        print_message("strangers of kind %zu: %.0f ms\n", i, (double)(tri_now_ns() - began_ns) * 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_leave_places_for_the_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
