/* SPDX-License-Identifier: Apache-2.0
 *
 * test_endpoint_strangers.c: who does not know the token, who knows it and talks nonsense, who comes in crowds, who is
 * killed; and that the connection of somebody honest is as good afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/bytes.h"
#include "net/endpoint_impl.h"
#include "net/handshake.h"
#include "net/tcp_address.h"
#include "unit/net/cmocka_all.h"
#include "unit/net/endpoint_pair.h"

#define CROWD 400

static void over_sockets(void (*body)(endpoint_pair *pair))
{
    for (int i = 0; i < ENDPOINT_WAYS; i++) {
        if (!endpoint_ways[i].over_hub)
            assert_true(pair_holds(&endpoint_ways[i], body));
    }
}

static void over_plain(void (*body)(endpoint_pair *pair))
{
    assert_true(pair_holds(&endpoint_ways[0], body));
}

/* Both ends of the honest connection hear each other. */
static void honest_handshake(endpoint_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        pair_end *end = &pair->ends[i], *other = &pair->ends[!i];
        int messages = pair_count(other, PAIR_MESSAGE);

        pair_send(end, end->connection, 0, 77, "honest", 6);
        PAIR_UNTIL(pair, pair_count(other, PAIR_MESSAGE) == messages + 1);
    }
}

static int stranger_connect(endpoint_pair *pair)
{
    const char *address = tri_endpoint_address(pair->ends[0].endpoint);
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    int fd;

    PAIR_CHECK(pair, tri_tcp_places(address, address, places) > 0);
    fd = socket(places[0].any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PAIR_CHECK(pair, fd >= 0 && connect(fd, &places[0].any, tri_tcp_place_nbytes(&places[0])) == 0);
    return fd;
}

static bool has_ended(int fd)
{
    char waste[256];
    ssize_t got;

    while ((got = recv(fd, waste, sizeof waste, MSG_DONTWAIT)) > 0)
        ;
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

/* ---- unproven */

static void nonsense_body(endpoint_pair *pair)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: trireme\r\nUser-Agent: curl\r\nAccept: */*\r\n\r\n";
    unsigned char said[4][512];
    int fds[4], opened = pair_count(&pair->ends[0], PAIR_OPENED);

    memset(said, 0, sizeof said);
    memcpy(said[0], http, sizeof http);
    tri_entropy(said[1], sizeof said[1]);
    tri_bytes_write_u32(said[2], TRI_HELLO_MAGIC);
    tri_message_encode(&(tri_message){.kind = 1, .nbytes = 1u << 30}, said[3]);
    for (int i = 0; i < 4; i++) {
        fds[i] = stranger_connect(pair);
        PAIR_CHECK(pair, send(fds[i], said[i], sizeof said[i], MSG_NOSIGNAL) == sizeof said[i]);
    }
    honest_handshake(pair);
    for (int i = 0; i < 4; i++) {
        PAIR_UNTIL(pair, has_ended(fds[i]));
        close(fds[i]);
    }
    honest_handshake(pair);
    PAIR_CHECK(pair, pair_count(&pair->ends[0], PAIR_OPENED) == opened);
}

static void nonsense_is_hung_up_on(void **state)
{
    (void)state;
    over_sockets(nonsense_body);
}

static void slow_body(endpoint_pair *pair)
{
    int fds[2] = {stranger_connect(pair), stranger_connect(pair)};
    unsigned char byte = 'T';

    /* One says nothing, the other a byte at a time. */
    while (!has_ended(fds[1])) {
        (void)!send(fds[1], &byte, 1, MSG_NOSIGNAL);
        for (int i = 0; i < 100; i++)
            pair_turn(pair);
        honest_handshake(pair);
    }
    PAIR_UNTIL(pair, has_ended(fds[0]));
    close(fds[0]);
    close(fds[1]);
}

static void who_is_slow_to_prove_is_hung_up_on(void **state)
{
    (void)state;
    over_plain(slow_body);
}

static void crowd_body(endpoint_pair *pair)
{
    int fds[CROWD];
    tri_connection *connection = NULL;

    for (int i = 0; i < CROWD; i++)
        fds[i] = stranger_connect(pair);
    PAIR_CHECK(pair, pair_dial(pair, pair->ends[1].endpoint, tri_endpoint_address(pair->ends[0].endpoint),
                               &connection) == TRI_OK);
    PAIR_UNTIL(pair, pair_count(&pair->ends[0], PAIR_OPENED) == 2);
    pair->ends[1].connection = connection;
    honest_handshake(pair);
    PAIR_UNTIL(pair, has_ended(fds[0])); /* a silent connection leaves a crowd soon */
    honest_handshake(pair);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
}

static void a_crowd_keeps_nobody_out_for_long(void **state)
{
    (void)state;
    over_plain(crowd_body);
}

/* ---- the hellos by hand */

static void hello_exchange(endpoint_pair *pair, const tri_rendezvous *is, net_handshake *handshake)
{
    int64_t until_ns = tri_deadline_after_ms(PAIR_WAIT_MS);

    while (handshake->stage != HANDSHAKE_DONE && handshake->stage != HANDSHAKE_IDLE && tri_now_ns() < until_ns) {
        tri_handshake_advance(is, handshake);
        pair_turn(pair);
    }
}

/* A stranger's socket that has gone through the handshake by hand; said: its two hellos. */
static int stranger_prove(endpoint_pair *pair, const char *token, unsigned char said[2 * TRI_HELLO_NBYTES])
{
    tri_rendezvous is = {.name = "hand", .rank = 1, .world = TRI_RENDEZVOUS_CROWD, .token = token, .memory_fd = -1};
    net_handshake handshake = {.fd = stranger_connect(pair), .memory_fd = -1, .dialed = true, .sockets = 1};
    int opened = pair_count(&pair->ends[0], PAIR_OPENED);

    tri_entropy(handshake.nonces[0], sizeof handshake.nonces[0]);
    tri_handshake_send_start(&is, &handshake, 1);
    memcpy(said, handshake.hello, TRI_HELLO_NBYTES);
    hello_exchange(pair, &is, &handshake);
    PAIR_CHECK(pair, handshake.stage == HANDSHAKE_DONE);
    memcpy(said + TRI_HELLO_NBYTES, handshake.hello, TRI_HELLO_NBYTES);
    PAIR_UNTIL(pair, pair_count(&pair->ends[0], PAIR_OPENED) == opened + 1);
    return handshake.fd;
}

static void replay_body(endpoint_pair *pair)
{
    unsigned char said[2 * TRI_HELLO_NBYTES], again[2 * TRI_HELLO_NBYTES];
    tri_connection *honest = pair->ends[0].connection;
    int fd = stranger_prove(pair, "0123456789abcdef", said), thief, opened = pair_count(&pair->ends[0], PAIR_OPENED);

    pair->ends[0].connection = honest;
    for (int first = 0; first < 2; first++) {
        thief = stranger_connect(pair);
        memcpy(again, said, sizeof again);
        /* As it was, and with the second hello in place of the first. */
        if (first == 1)
            memcpy(again, said + TRI_HELLO_NBYTES, TRI_HELLO_NBYTES);
        PAIR_CHECK(pair, send(thief, again, sizeof again, MSG_NOSIGNAL) == sizeof again);
        PAIR_UNTIL(pair, has_ended(thief));
        close(thief);
    }
    PAIR_CHECK(pair, pair_count(&pair->ends[0], PAIR_OPENED) == opened);
    honest_handshake(pair);
    close(fd);
    PAIR_UNTIL(pair, pair_count(&pair->ends[0], PAIR_CLOSED) == 1);
}

static void hellos_of_another_connection_prove_nothing(void **state)
{
    (void)state;
    over_plain(replay_body);
}

static void wrong_body(endpoint_pair *pair)
{
    unsigned char heads[4][TRI_MESSAGE_NBYTES], said[2 * TRI_HELLO_NBYTES];
    static const char *const whys[] = {"magic", "check", "body of at most", "body of at most"};
    tri_connection *honest = pair->ends[0].connection;

    for (int i = 0; i < 4; i++)
        tri_message_encode(&(tri_message){.kind = 1, .nbytes = i < 2 ? 0 : PAIR_LIMIT_NBYTES + 1}, heads[i]);
    heads[0][0] ^= 1;
    heads[1][20] ^= 1;
    tri_message_encode(&(tri_message){.kind = 1, .nbytes = UINT64_MAX}, heads[3]);
    for (int i = 0; i < 4; i++) {
        int fd = stranger_prove(pair, "0123456789abcdef", said);

        PAIR_CHECK(pair, send(fd, heads[i], sizeof heads[i], MSG_NOSIGNAL) == sizeof heads[i]);
        PAIR_UNTIL(pair, has_ended(fd));
        PAIR_CHECK(pair, pair_count(&pair->ends[0], PAIR_CLOSED) == i + 1);
        PAIR_CHECK(pair, strstr(pair_event_of(&pair->ends[0], PAIR_CLOSED, i)->why, whys[i]));
        close(fd);
    }
    PAIR_CHECK(pair, pair_count(&pair->ends[0], PAIR_MESSAGE) == 0);
    pair->ends[0].connection = honest;
    honest_handshake(pair);
}

static void wrong_messages_end_their_connection_alone(void **state)
{
    (void)state;
    over_plain(wrong_body);
}

/* ---- who cannot be a partner */

static void token_body(endpoint_pair *pair)
{
    tri_endpoint_setup setup = pair_setup(pair, 1);
    tri_endpoint *endpoint;
    tri_connection *connection;

    setup.rank = 2;
    setup.token = "another";
    PAIR_CHECK(pair, tri_endpoint_open(&setup, &endpoint) == TRI_OK);
    PAIR_CHECK(pair,
               pair_dial(pair, endpoint, tri_endpoint_address(pair->ends[0].endpoint), &connection) == TRI_EPEER &&
                   !connection);
    PAIR_CHECK(pair, strstr(tri_last_error(), "does not know the token of this job"));
    tri_endpoint_close(endpoint);
    honest_handshake(pair);
}

static void another_token_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < ENDPOINT_WAYS; i++)
        assert_true(pair_holds(&endpoint_ways[i], token_body));
}

static void encrypt_body(endpoint_pair *pair)
{
    tri_endpoint_setup setup = pair_setup(pair, 1);
    tri_net_config config = pair->config;
    tri_endpoint *endpoint;
    tri_connection *connection;

    config.encrypt = !config.encrypt;
    setup.config = &config;
    PAIR_CHECK(pair, tri_endpoint_open(&setup, &endpoint) == TRI_OK);
    PAIR_CHECK(pair,
               pair_dial(pair, endpoint, tri_endpoint_address(pair->ends[0].endpoint), &connection) == TRI_ECONFIG &&
                   !connection);
    PAIR_CHECK(pair, strstr(tri_last_error(), "comm.encrypt"));
    tri_endpoint_close(endpoint);
    honest_handshake(pair);
    PAIR_CHECK(pair, pair_count(&pair->ends[0], PAIR_OPENED) == 1);
}

static void both_ends_encrypt_or_none(void **state)
{
    (void)state;
    over_sockets(encrypt_body);
}

/* ---- many */

static bool answer_then(pair_end *end, const pair_event *event)
{
    if (event->what == PAIR_MESSAGE)
        pair_send(end, event->connection, 0, event->id, end->body, 0);
    return true;
}

static void many_body(endpoint_pair *pair)
{
    tri_connection *connections[200], *honest = pair->ends[0].connection;

    pair->ends[0].then = answer_then;
    for (int i = 0; i < 200; i++)
        PAIR_CHECK(pair, pair_dial(pair, pair->ends[1].endpoint, tri_endpoint_address(pair->ends[0].endpoint),
                                   &connections[i]) == TRI_OK);
    for (int i = 0; i < 200; i++)
        pair_send(&pair->ends[1], connections[i], 0, (uint64_t)i, "0123456789", 10);
    PAIR_UNTIL(pair, pair_count(&pair->ends[1], PAIR_MESSAGE) == 200);
    PAIR_CHECK(pair, pair_count(&pair->ends[0], PAIR_OPENED) == 201);
    for (int i = 0; i < 200; i++)
        tri_connection_close(connections[i]);
    PAIR_UNTIL(pair, pair_count(&pair->ends[0], PAIR_CLOSED) == 200);
    pair->ends[0].connection = honest;
    pair->ends[0].then = NULL;
    honest_handshake(pair);
}

static void a_server_has_two_hundred_connections(void **state)
{
    (void)state;
    over_sockets(many_body);
}

static void limit_body(endpoint_pair *pair)
{
    tri_endpoint_setup setup = pair_setup(pair, 0);
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    tri_connection *connections[4];

    tri_endpoint_close(to->endpoint);
    PAIR_CHECK(pair, pair_count(to, PAIR_CLOSED) == 1);
    to->endpoint = NULL;
    PAIR_UNTIL(pair, pair_count(from, PAIR_CLOSED) == 1);
    setup.connection_limit = 3;
    PAIR_CHECK(pair, tri_endpoint_open(&setup, &to->endpoint) == TRI_OK);
    for (int i = 0; i < 4; i++)
        PAIR_CHECK(pair,
                   pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &connections[i]) == TRI_OK);
    PAIR_UNTIL(pair, pair_count(from, PAIR_CLOSED) == 2);
    PAIR_CHECK(pair,
               pair_event_of(from, PAIR_CLOSED, 1)->connection == connections[3] && pair_count(to, PAIR_OPENED) == 4);
    tri_connection_close(connections[0]);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 2);
    PAIR_CHECK(pair, pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &connections[0]) == TRI_OK);
    PAIR_UNTIL(pair, pair_count(to, PAIR_OPENED) == 5);
    PAIR_CHECK(pair, pair_count(from, PAIR_CLOSED) == 2);
}

static void no_more_connections_than_the_owner_wants(void **state)
{
    (void)state;
    over_sockets(limit_body);
}

static void descriptors_body(endpoint_pair *pair)
{
    int fd = stranger_connect(pair), held[4096], count = 0;
    unsigned char said[2 * TRI_HELLO_NBYTES];
    tri_connection *honest = pair->ends[0].connection;

    while (count < 4096 && (held[count] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    if (count < 4096) {
        honest_handshake(pair);
        for (int i = 0; i < 50; i++)
            pair_turn(pair);
        PAIR_CHECK(pair, !has_ended(fd));
    }
    while (count > 0)
        close(held[--count]);
    close(fd);
    fd = stranger_prove(pair, "0123456789abcdef", said);
    pair->ends[0].connection = honest;
    honest_handshake(pair);
    close(fd);
}

static void who_calls_waits_while_there_are_no_descriptors(void **state)
{
    (void)state;
    over_plain(descriptors_body);
}

/* ---- kill -9 */

static void child_main(endpoint_pair *pair, const char *address)
{
    tri_endpoint_setup setup = pair_setup(pair, 1);
    tri_endpoint *endpoint;
    tri_connection *connection;

    if (tri_endpoint_open(&setup, &endpoint) != TRI_OK ||
        tri_endpoint_dial(endpoint, address, tri_deadline_after_ms(PAIR_WAIT_MS), &connection) != TRI_OK ||
        tri_connection_send(connection, 0, &(tri_message){.kind = 1, .words = {5}}, NULL, NULL, NULL) != TRI_OK)
        _exit(1);
    for (;;)
        (void)tri_endpoint_poll(endpoint, TRI_FOREVER);
}

static void killed_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0];
    tri_connection *honest = to->connection;
    pid_t child = fork();
    int64_t before_ns;

    if (child == 0)
        child_main(pair, tri_endpoint_address(to->endpoint));
    PAIR_CHECK(pair, child > 0);
    PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == 1);
    kill(child, SIGKILL);
    before_ns = tri_now_ns();
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    print_message("a killed partner was missed after %.1f ms\n", (double)(tri_now_ns() - before_ns) * 1e-6);
    waitpid(child, NULL, 0);
    to->connection = honest;
    honest_handshake(pair);
}

static void who_is_killed_is_missed(void **state)
{
    (void)state;
    over_sockets(killed_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_hung_up_on),
        cmocka_unit_test(who_is_slow_to_prove_is_hung_up_on),
        cmocka_unit_test(a_crowd_keeps_nobody_out_for_long),
        cmocka_unit_test(hellos_of_another_connection_prove_nothing),
        cmocka_unit_test(wrong_messages_end_their_connection_alone),
        cmocka_unit_test(another_token_is_refused),
        cmocka_unit_test(both_ends_encrypt_or_none),
        cmocka_unit_test(a_server_has_two_hundred_connections),
        cmocka_unit_test(no_more_connections_than_the_owner_wants),
        cmocka_unit_test(who_calls_waits_while_there_are_no_descriptors),
        cmocka_unit_test(who_is_killed_is_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
