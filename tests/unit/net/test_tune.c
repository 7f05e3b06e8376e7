/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tcp_rendezvous.h"
#include "unit/net/cmocka_all.h"

#define TRIES   200
#define NEAR_US 50
#define ENOUGH  (256 << 10) /* twice what is asked for: the kernel counts its own part */
#define LIMIT_S 10.0

/* A connection over loopback. */
static void pair_open(int pair[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t nbytes = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(door, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(door, 1), 0);
    assert_int_equal(getsockname(door, (struct sockaddr *)&at, &nbytes), 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(pair[0], (struct sockaddr *)&at, sizeof at), 0);
    pair[1] = accept(door, NULL, NULL);
    assert_true(pair[1] >= 0);
    close(door);
}

static int sent_nbytes(int fd)
{
    int value = 0;
    socklen_t nbytes = sizeof value;

    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, &nbytes), 0);
    return value;
}

/* On a busy machine a connection may look far, and is then left alone: others are tried. */
static void a_near_link_lets_little_wait(void **state)
{
    int near = 0;

    (void)state;
    for (int i = 0; i < TRIES && near == 0; i++) {
        int pair[2], before;
        unsigned us;

        pair_open(pair);
        before = sent_nbytes(pair[0]);
        us = tri_tcp_round_trip_us(pair[0]);
        assert_int_equal(tri_tcp_tune(pair[0], LIMIT_S), TRI_OK);
        near += us > 0 && us <= NEAR_US;
        assert_int_equal(sent_nbytes(pair[0]), us > 0 && us <= NEAR_US ? ENOUGH : before);
        close(pair[0]);
        close(pair[1]);
    }
    assert_true(near > 0);
}

static void what_is_no_connection_cannot_be_tuned(void **state)
{
    (void)state;
    assert_int_equal(tri_tcp_round_trip_us(-1), 0);
    assert_int_equal(tri_tcp_tune(-1, LIMIT_S), TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "tcp: cannot set option"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_near_link_lets_little_wait),
        cmocka_unit_test(what_is_no_connection_cannot_be_tuned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
