/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tls.c: encrypted connections: what they carry, whom they refuse, what stands on the wire.
 */
#include "net/tls.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wait.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

typedef struct tls_pair {
    int fds[2];
    tri_tls_context *context;
    tri_tls *ends[2];
} tls_pair;

/* Goes on with both ends until they are done or one refuses; false: refused. */
static bool pair_shake(tls_pair *pair)
{
    short events[2] = {POLLIN, POLLIN};

    for (int i = 0; i < 100 && (events[0] || events[1]); i++) {
        for (int end = 0; end < 2; end++) {
            if (events[end] && tri_tls_shake(pair->ends[end], &events[end]) != TRI_OK)
                return false;
        }
    }
    return !events[0] && !events[1];
}

static bool bulk = true;

static bool pair_open(tls_pair *pair, unsigned char first, unsigned char second)
{
    unsigned char keys[2][TRI_AUTH_NBYTES];

    memset(keys[0], first, TRI_AUTH_NBYTES);
    memset(keys[1], second, TRI_AUTH_NBYTES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair->fds), 0);
    assert_int_equal(tri_tls_context_create(bulk, &pair->context), TRI_OK);
    for (int end = 0; end < 2; end++)
        assert_int_equal(tri_tls_open(pair->context, pair->fds[end], end == 1, keys[end], &pair->ends[end]), TRI_OK);
    return pair_shake(pair);
}

static void pair_close(tls_pair *pair)
{
    for (int end = 0; end < 2; end++) {
        tri_tls_close(pair->ends[end]);
        if (pair->fds[end] >= 0)
            close(pair->fds[end]);
    }
    tri_tls_context_destroy(pair->context);
}

/* The socket is full again and again: records go in parts. */
static void every_byte_arrives(size_t record_nbytes)
{
    enum { NBYTES = 3000017 };
    unsigned char *out = malloc(NBYTES), *in = calloc(1, NBYTES);
    size_t sent = 0, got = 0, moved;
    bool held = false;
    tls_pair pair;

    assert_true(pair_open(&pair, 7, 7));
    for (size_t i = 0; i < NBYTES; i++)
        out[i] = (unsigned char)(i * 7 + (i >> 9));
    while (got < NBYTES) {
        do {
            assert_int_equal(tri_tls_write(pair.ends[0], out + sent, NBYTES - sent, &moved), TRI_OK);
            sent += moved;
            held |= moved > 0 && moved % record_nbytes == record_nbytes - 1;
        } while (moved > 0 && sent < NBYTES);
        /* Not more than 10,000 bytes at a time: records stay in pieces. */
        do {
            size_t left = NBYTES - got;

            assert_int_equal(tri_tls_read(pair.ends[1], in + got, left < 10000 ? left : 10000, &moved), TRI_OK);
            got += moved;
        } while (moved > 0);
    }
    assert_true(held);
    assert_memory_equal(out, in, NBYTES);
    pair_close(&pair);
    free(out);
    free(in);
}

static void every_byte_arrives_though_the_socket_is_full(void **state)
{
    (void)state;
    every_byte_arrives(TRI_TLS_RECORD_NBYTES);
    bulk = false;
    every_byte_arrives(4096);
    bulk = true;
}

static void another_key_is_refused(void **state)
{
    tls_pair pair;

    (void)state;
    assert_false(pair_open(&pair, 7, 8));
    assert_non_null(strstr(tri_last_error(), "TLS: "));
    pair_close(&pair);
}

static int stop_came(void)
{
    return SIGTERM;
}

/* The other end is silent, and the limit far. */
static void a_wait_for_a_silent_end_can_be_given_up(void **state)
{
    unsigned char key[TRI_AUTH_NBYTES] = {7};
    atomic_bool broken = true;
    tls_pair pair = {.ends = {NULL}};
    tri_tls_end end;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.fds), 0);
    assert_int_equal(tri_tls_context_create(true, &pair.context), TRI_OK);
    assert_int_equal(tri_tls_open(pair.context, pair.fds[0], true, key, &pair.ends[0]), TRI_OK);
    end = (tri_tls_end){pair.ends[0], pair.fds[0], 1};
    assert_int_equal(tri_tls_shake_all("test", &end, 1, &broken, tri_deadline_after_ms(300000)), TRI_EPEER);
    assert_non_null(strstr(tri_last_error(), "a rank has ended"));
    tri_stop_ask_set(stop_came);
    assert_int_equal(tri_tls_shake_all("test", &end, 1, NULL, tri_deadline_after_ms(300000)), TRI_ECANCELED);
    assert_non_null(strstr(tri_last_error(), "while connecting to the other ranks"));
    broken = false;
    assert_int_equal(tri_tls_shake_all("test", &end, 1, &broken, tri_deadline_after_ms(50)), TRI_ETIMEOUT);
    tri_stop_ask_set(NULL);
    pair_close(&pair);
}

static void what_travels_cannot_be_read_or_changed(void **state)
{
    static const char secret[] = "the weights of the last layer, the weights of the last layer";
    unsigned char seen[512];
    tls_pair pair;
    ssize_t seen_nbytes;
    size_t moved;

    (void)state;
    assert_true(pair_open(&pair, 7, 7));
    assert_int_equal(tri_tls_write(pair.ends[0], secret, sizeof secret, &moved), TRI_OK);
    seen_nbytes = recv(pair.fds[1], seen, sizeof seen, 0);
    assert_true(seen_nbytes > (ssize_t)sizeof secret);
    assert_null(memmem(seen, (size_t)seen_nbytes, "weights", 7));
    seen[seen_nbytes - 1] ^= 1;
    assert_int_equal(send(pair.fds[0], seen, (size_t)seen_nbytes, 0), seen_nbytes);
    assert_int_equal(tri_tls_read(pair.ends[1], seen, sizeof seen, &moved), TRI_EPEER);
    pair_close(&pair);
}

/* A SIGPIPE would end this process. */
static void a_closed_end_is_an_error_and_no_signal(void **state)
{
    static const unsigned char bytes[100];
    tri_status status = TRI_OK;
    tls_pair pair;
    size_t moved;

    (void)state;
    assert_true(pair_open(&pair, 7, 7));
    close(pair.fds[1]);
    pair.fds[1] = -1;
    assert_int_equal(tri_tls_read(pair.ends[0], &(char){0}, 1, &moved), TRI_EPEER);
    for (int i = 0; i < 3 && status == TRI_OK; i++)
        status = tri_tls_write(pair.ends[0], bytes, sizeof bytes, &moved);
    assert_int_equal(status, TRI_EPEER);
    pair_close(&pair);
}

/* ---- ranks */

static tri_frame frame_of(size_t nbytes)
{
    return (tri_frame){.kind = TRI_FRAME_DATA, .op = 1, .sequence = 5, .count = nbytes, .nbytes = nbytes};
}

static void encrypted_ranks(spawn_rank *self, void *arg)
{
    static const size_t lengths[] = {0, 1, 64, 16320, 100003, 2000000, 5};
    unsigned char *bytes = calloc(2, 2000000);
    char text[TRI_NET_DESCRIBE_NBYTES];
    int peer = 1 - self->rank;
    tri_net *net = NULL;

    self->config.encrypt = true;
    self->config.tcp_connections = *(int *)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    tri_net_describe_peer(net, peer, text);
    SPAWN_CHECK(self, strstr(text, ", encrypted"));
    for (size_t k = 0; k < TRI_COUNT_OF(lengths); k++) {
        size_t nbytes = lengths[k], wrong = 0;
        tri_move moves[2] = {{.peer = peer, .send = true, .frame = frame_of(nbytes), .bytes = bytes},
                             {.peer = peer, .frame = frame_of(nbytes), .bytes = bytes + 2000000}};

        for (size_t i = 0; i < nbytes; i++)
            bytes[i] = (unsigned char)(i * 3 + k + (size_t)self->rank);
        SPAWN_CHECK(self, tri_net_move(net, moves, 2, tri_deadline_after_ms(20000), NULL, NULL) == TRI_OK);
        for (size_t i = 0; i < nbytes; i++)
            wrong += bytes[2000000 + i] != (unsigned char)(i * 3 + k + (size_t)peer);
        SPAWN_CHECK(self, wrong == 0);
    }
    spawn_barrier(self);
    tri_net_close(net);
    free(bytes);
}

static void encrypted_links_carry_the_same_bytes(void **state)
{
    (void)state;
    for (int sockets = 1; sockets <= 4; sockets += 3) {
        spawn_config config = {.kind = SPAWN_TCP, .world = 2};

        assert_true(spawn_ranks(&config, encrypted_ranks, &sockets));
    }
}

static void one_encrypts(spawn_rank *self, void *arg)
{
    char wanted[128];
    tri_net *net = NULL;

    self->config.encrypt = self->rank == *(int *)arg;
    snprintf(wanted, sizeof wanted, "tcp: rank %d has comm.encrypt = %s, rank %d has %s", self->rank,
             self->config.encrypt ? "on" : "off", 1 - self->rank, self->config.encrypt ? "off" : "on");
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_ECONFIG);
    SPAWN_CHECK(self, strcmp(tri_last_error(), wanted) == 0);
    tri_net_close(net);
}

static void plain_and_encrypted_ranks_both_say_so(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        spawn_config config = {.kind = SPAWN_TCP, .world = 2};

        assert_true(spawn_ranks(&config, one_encrypts, &which));
    }
}

/* *answered: rank 1 was answered; rank 0 may have given up before rank 1 could call. */
static void wrong_token(spawn_rank *self, void *arg)
{
    bool *answered = arg;
    tri_net *net = NULL;

    self->config.encrypt = true;
    SPAWN_CHECK(self, spawn_net_open(self, &net) != TRI_OK);
    if (self->rank == 0)
        SPAWN_CHECK(self, strstr(tri_last_error(), "rank 1 has not called"));
    else
        *answered = strstr(tri_last_error(), "does not know the token");
    tri_net_close(net);
}

static void a_wrong_token_is_refused_when_encrypted(void **state)
{
    spawn_config config = {.kind = SPAWN_TCP, .world = 2, .timeout_s = 0.5, .tokens = {NULL, "another"}};
    bool answered = false;

    (void)state;
    for (; !answered && config.timeout_s < 60; config.timeout_s *= 2)
        assert_true(spawn_ranks(&config, wrong_token, &answered));
    assert_true(answered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_arrives_though_the_socket_is_full),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(a_wait_for_a_silent_end_can_be_given_up),
        cmocka_unit_test(what_travels_cannot_be_read_or_changed),
        cmocka_unit_test(a_closed_end_is_an_error_and_no_signal),
        cmocka_unit_test(encrypted_links_carry_the_same_bytes),
        cmocka_unit_test(plain_and_encrypted_ranks_both_say_so),
        cmocka_unit_test(a_wrong_token_is_refused_when_encrypted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
