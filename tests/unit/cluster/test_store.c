/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store.c: what every store promises (tcp, file), and what a hostile client cannot do to the server.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/log.h"
#include "cluster/etcd_http.h"
#include "cluster/store_impl.h"
#include "net/tls.h"
#include "unit/net/tap.h"

#define THREADS 4
#define ADDS    25

static int64_t soon(void)
{
    return tri_deadline_after_ms(20000);
}

typedef struct place {
    tri_store_server *server;
    char url[64], folder[40];
} place;

static place tcp_place(void)
{
    place at = {.server = NULL};

    assert_int_equal(tri_store_server_start("127.0.0.1", 0, "secret", &at.server), TRI_OK);
    snprintf(at.url, sizeof at.url, "tcp://127.0.0.1:%d", tri_store_server_port(at.server));
    return at;
}

static place file_place(void)
{
    place at = {.folder = "/tmp/trireme-test-XXXXXX"};

    assert_non_null(mkdtemp(at.folder));
    snprintf(at.url, sizeof at.url, "file://%s", at.folder);
    return at;
}

static void place_fini(place *at)
{
    tri_store_server_stop(at->server);
    if (at->folder[0])
        assert_int_equal(tri_fs_remove(at->folder), TRI_OK);
}

static void value_check(tri_store *store, const char *key, const char *want, size_t want_nbytes)
{
    char *bytes;
    size_t nbytes;

    assert_int_equal(tri_store_wait(store, key, &bytes, &nbytes, soon()), TRI_OK);
    assert_int_equal(nbytes, want_nbytes);
    assert_memory_equal(bytes, want, nbytes);
    assert_int_equal(bytes[nbytes], 0);
    tri_free(bytes);
}

static void contract_check(tri_store *store)
{
    char long_key[TRI_STORE_KEY_NBYTES + 2], *big = tri_alloc_zero(1, TRI_STORE_VALUE_NBYTES + 1), *bytes;
    size_t nbytes;
    int64_t after, start_ns;

    memset(long_key, 'k', sizeof long_key);
    long_key[sizeof long_key - 1] = 0;
    memset(big, 'b', TRI_STORE_VALUE_NBYTES);
    assert_int_equal(tri_store_set(store, "a/b", "one\0two", 7, soon()), TRI_OK);
    assert_int_equal(tri_store_set(store, "a", "", 0, soon()), TRI_OK);
    assert_int_equal(tri_store_set(store, "..", "dots", 4, soon()), TRI_OK);
    value_check(store, "a/b", "one\0two", 7);
    value_check(store, "a", "", 0);
    value_check(store, "..", "dots", 4);
    assert_int_equal(tri_store_set(store, "a", big, TRI_STORE_VALUE_NBYTES, soon()), TRI_OK);
    value_check(store, "a", big, TRI_STORE_VALUE_NBYTES);
    assert_int_equal(tri_store_set(store, "a", big, TRI_STORE_VALUE_NBYTES + 1, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_set(store, long_key, "", 0, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_set(store, "", "", 0, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_set(store, "a b", "", 0, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_add(store, "n", 5, &after, soon()), TRI_OK);
    assert_int_equal(tri_store_add(store, "n", -7, &after, soon()), TRI_OK);
    assert_int_equal(after, -2);
    value_check(store, "n", "-2", 2);
    assert_int_equal(tri_store_add(store, "a/b", 1, &after, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_add(store, "n", INT64_MIN, &after, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_raise(store, "n", -3, &after, soon()), TRI_OK);
    assert_int_equal(after, -2);
    assert_int_equal(tri_store_raise(store, "n", 12, &after, soon()), TRI_OK);
    assert_int_equal(after, 12);
    value_check(store, "n", "12", 2);
    assert_int_equal(tri_store_raise(store, "n", 11, &after, soon()), TRI_OK);
    assert_int_equal(after, 12);
    value_check(store, "n", "12", 2);
    assert_int_equal(tri_store_raise(store, "a/b", 1, &after, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_remove(store, "n", soon()), TRI_OK);
    assert_int_equal(tri_store_remove(store, "n", soon()), TRI_OK);
    assert_int_equal(tri_store_raise(store, "n", -1, &after, soon()), TRI_OK);
    assert_int_equal(after, 0);
    assert_int_equal(tri_store_raise(store, "n", 3, &after, soon()), TRI_OK);
    value_check(store, "n", "3", 1);
    assert_int_equal(tri_store_remove(store, "n", soon()), TRI_OK);
    start_ns = tri_now_ns();
    assert_int_equal(tri_store_wait(store, "n", &bytes, &nbytes, start_ns + 20 * TRI_NS_PER_MS), TRI_ETIMEOUT);
    assert_true(tri_now_ns() - start_ns >= 20 * TRI_NS_PER_MS);
    assert_int_equal(tri_store_wait(store, "n", &bytes, &nbytes, 0), TRI_ETIMEOUT);
    value_check(store, "..", "dots", 4);
    assert_int_equal(tri_store_claim(store, "c", "first", 5, &bytes, &nbytes, soon()), TRI_OK);
    assert_string_equal(bytes, "first");
    tri_free(bytes);
    assert_int_equal(tri_store_claim(store, "c", "the other", 9, &bytes, &nbytes, soon()), TRI_OK);
    assert_int_equal(nbytes, 5);
    assert_string_equal(bytes, "first");
    tri_free(bytes);
    value_check(store, "c", "first", 5);
    assert_int_equal(tri_store_remove(store, "c", soon()), TRI_OK);
    assert_int_equal(tri_store_claim(store, "c", "", 0, &bytes, &nbytes, soon()), TRI_OK);
    assert_int_equal(nbytes, 0);
    tri_free(bytes);
    assert_int_equal(tri_store_claim(store, "c", big, TRI_STORE_VALUE_NBYTES + 1, &bytes, &nbytes, soon()), TRI_EINVAL);
    assert_int_equal(tri_store_remove(store, "c", soon()), TRI_OK);
    tri_free(big);
}

static void longest_key_check(tri_store *store)
{
    char key[TRI_STORE_KEY_NBYTES + 1];

    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = 0;
    assert_int_equal(tri_store_set(store, key, "long", 4, soon()), TRI_OK);
    key[128] = 0;
    assert_int_equal(tri_store_set(store, key, "short", 5, soon()), TRI_OK);
    value_check(store, key, "short", 5);
    key[128] = 'k';
    value_check(store, key, "long", 4);
}

static void places_check(place at, void (*check)(tri_store *store))
{
    tri_store *store;

    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    check(store);
    tri_store_close(store);
    place_fini(&at);
}

static void every_store_keeps_the_contract(void **state)
{
    (void)state;
    places_check(tcp_place(), contract_check);
    places_check(file_place(), contract_check);
    places_check(tcp_place(), longest_key_check);
    places_check(file_place(), longest_key_check);
    tri_store *memory;
    assert_int_equal(tri_store_memory(&memory), TRI_OK);
    contract_check(memory);
    longest_key_check(memory);
    tri_store_close(memory);
}

static void add_many(void *arg)
{
    tri_store *store;
    int64_t after;

    if (tri_store_open(arg, "secret", soon(), &store) != TRI_OK)
        return;
    for (int i = 0; i < ADDS; i++)
        tri_store_add(store, "count", 1, &after, soon());
    tri_store_set(store, "go", "!", 1, soon());
    tri_store_close(store);
}

/* The url of a running etcd, for who starts one (tests/process/etcd.py); keys of each test of their own. */
static bool etcd_place(const char *test, char url[1400])
{
    const char *given = getenv("TRIREME_TEST_ETCD"), *settings = given ? strchr(given, '?') : NULL;

    if (!given)
        return false;
    snprintf(url, 1400, "%.*s/%s-%d%s", (int)(settings ? settings - given : (long)strlen(given)), given, test,
             (int)getpid(), settings ? settings : "");
    return true;
}

static void etcd_keeps_the_contract(void **state)
{
    char url[1400], *bytes;
    size_t nbytes;
    tri_store *store;

    (void)state;
    if (!etcd_place("contract", url))
        skip();
    if (tri_store_open(url, "", soon(), &store) != TRI_OK)
        fail_msg("%s", tri_last_error());
    contract_check(store);
    longest_key_check(store);
    assert_int_equal(tri_store_clear(store, soon()), TRI_OK);
    assert_int_equal(tri_store_wait(store, "..", &bytes, &nbytes, tri_now_ns()), TRI_ETIMEOUT);
    tri_store_close(store);
}

static void etcd_adds_atomically_and_waits(void **state)
{
    char url[1400];

    (void)state;
    if (!etcd_place("add", url))
        skip();
    tri_thread *threads[THREADS];
    tri_store *store;
    int64_t after;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(tri_thread_start(&threads[i], "adder", add_many, url), TRI_OK);
    assert_int_equal(tri_store_open(url, "", soon(), &store), TRI_OK);
    value_check(store, "go", "!", 1); /* waits for a thread */
    for (int i = 0; i < THREADS; i++)
        tri_thread_join(threads[i]);
    assert_int_equal(tri_store_add(store, "count", 0, &after, soon()), TRI_OK);
    assert_int_equal(after, THREADS * ADDS);
    assert_int_equal(tri_store_clear(store, soon()), TRI_OK);
    tri_store_close(store);
}

static void concurrent_check(place at)
{
    tri_thread *threads[THREADS];
    tri_store *store;
    int64_t after;

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(tri_thread_start(&threads[i], "adder", add_many, at.url), TRI_OK);
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    value_check(store, "go", "!", 1); /* waits for a thread */
    for (int i = 0; i < THREADS; i++)
        tri_thread_join(threads[i]);
    assert_int_equal(tri_store_add(store, "count", 0, &after, soon()), TRI_OK);
    assert_int_equal(after, THREADS * ADDS);
    tri_store_close(store);
    place_fini(&at);
}

static void adding_is_atomic(void **state)
{
    (void)state;
    concurrent_check(tcp_place());
    concurrent_check(file_place());
}

static void a_wrong_token_is_refused_at_once(void **state)
{
    place at = tcp_place();
    tri_store *store;

    (void)state;
    assert_int_equal(tri_store_open(at.url, "guess", soon(), &store), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "TRIREME_TOKEN"));
    assert_null(store);
    place_fini(&at);
}

static atomic_int lines_seen, lines_wrong;

static void line_count(tri_log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    if (!strstr(line, "store server, port "))
        return;
    atomic_fetch_add(&lines_seen, 1);
    if (!strstr(line, ": 127.0.0.1 did not prove that it knows the job's token and was refused"))
        atomic_fetch_add(&lines_wrong, 1);
}

static void strangers_are_named_but_not_one_by_one(void **state)
{
    enum { KNOCKS = 60 };
    place at = tcp_place();
    tri_store *store;

    (void)state;
    atomic_store(&lines_seen, 0);
    tri_log_sink_set(line_count, NULL);
    for (int i = 0; i < KNOCKS; i++)
        assert_int_equal(tri_store_open(at.url, "guess", soon(), &store), TRI_ECONFIG);
    /* Who has the token, and who says nothing, is not named. */
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    tri_store_close(store);
    place_fini(&at);
    tri_log_sink_set(NULL, NULL);
    assert_true(atomic_load(&lines_seen) >= 1 && atomic_load(&lines_seen) < KNOCKS);
    assert_int_equal(atomic_load(&lines_wrong), 0);
}

static void opening_waits_for_the_server_until_the_deadline(void **state)
{
    place at = tcp_place();
    tri_store *store;

    (void)state;
    place_fini(&at);
    assert_int_equal(tri_store_open(at.url, "secret", tri_deadline_after_ms(30), &store), TRI_ETIMEOUT);
    assert_non_null(strstr(tri_last_error(), "refused"));
}

static void a_range_of_ports_is_searched_past_strangers(void **state)
{
    tri_store_server *stranger = NULL, *mine = NULL;
    tri_store *store;
    char url[64];
    int port = 0;

    (void)state;
    for (int i = 0; i < 20 && !mine; i++) {
        tri_store_server_stop(stranger);
        assert_int_equal(tri_store_server_start("127.0.0.1", 0, "other", &stranger), TRI_OK);
        port = tri_store_server_port(stranger);
        if (port < 65535 && tri_store_server_start("127.0.0.1", port + 1, "secret", &mine) != TRI_OK)
            mine = NULL;
    }
    assert_non_null(mine);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d-%d", port, port + 1);
    assert_int_equal(tri_store_open(url, "secret", soon(), &store), TRI_OK);
    assert_int_equal(tri_store_set(store, "x", "y", 1, soon()), TRI_OK);
    tri_store_close(store);
    tri_store_server_stop(stranger);
    tri_store_server_stop(mine);
}

static void urls_are_checked(void **state)
{
    static const char *const wrong[] = {
        "",           "tcp://",   "tcp://h",  "tcp://h:",   "tcp://h:0", "tcp://h:65536", "tcp://:1", "tcp://h:2-1",
        "tcp://h:1-", "file://x", "file:///", "http://h:1", "tcp://h:1x"};
    tri_store_url url;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        if (tri_store_url_parse(wrong[i], &url) != TRI_ECONFIG)
            fail_msg("took '%s'", wrong[i]);
    }
    assert_int_equal(tri_store_url_parse("tcp://[::1]:80", &url), TRI_OK);
    assert_string_equal(url.host, "::1");
}

static int dial(const place *at)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)tri_store_server_port(at->server))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Whether the server closes within so long; reads what it says before. */
static bool is_closed(int fd, int limit_ms)
{
    char buffer[256];
    struct pollfd one = {.fd = fd, .events = POLLIN};

    while (poll(&one, 1, limit_ms) == 1) {
        if (recv(fd, buffer, sizeof buffer, 0) <= 0)
            return true;
    }
    return false;
}

static void send_header(int fd, tri_store_message message)
{
    unsigned char header[TRI_STORE_HEADER_NBYTES];

    tri_store_message_write(&message, header);
    assert_int_equal(send(fd, header, sizeof header, MSG_NOSIGNAL), sizeof header);
}

/* Whether the server closes the connection of `begin` for what it sends: one that is silent for longer, and is closed
 * for that, is still there. Where this test itself was stopped for so long, it tries another pair. */
static bool is_dropped(const place *at, int (*begin)(const place *at))
{
    bool dropped = false;

    for (int i = 0; i < 3 && !dropped; i++) {
        int silent = dial(at), fd = begin(at);

        dropped = is_closed(fd, 60000) && !is_closed(silent, 0);
        close(fd);
        close(silent);
    }
    return dropped;
}

static int web_begin(const place *at)
{
    int fd = dial(at);

    assert_int_equal(send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 0), 27);
    return fd;
}

static int early_begin(const place *at)
{
    int fd = dial(at);

    send_header(fd, (tri_store_message){.op = TRI_STORE_SET, .key_nbytes = 1, .value_nbytes = 1});
    return fd;
}

static int large_begin(const place *at)
{
    int fd = dial(at);

    send_header(fd, (tri_store_message){.op = TRI_STORE_PROVE, .value_nbytes = 1u << 20});
    return fd;
}

static void strangers_are_dropped_and_block_nobody(void **state)
{
    place at = tcp_place();
    int silent = dial(&at), half = dial(&at), others[] = {web_begin(&at), early_begin(&at), large_begin(&at)};
    tri_store *store;

    (void)state;
    assert_int_equal(send(half, "TRS2", 4, 0), 4);
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    contract_check(store);
    assert_true(is_dropped(&at, web_begin));
    assert_true(is_dropped(&at, early_begin));
    assert_true(is_dropped(&at, large_begin));
    tri_store_close(store);
    place_fini(&at); /* does not wait for silent and half */
    close(silent);
    close(half);
    for (size_t i = 0; i < TRI_COUNT_OF(others); i++)
        close(others[i]);
}

/* A connection that has shown the token, and is encrypted. */
typedef struct member {
    int fd;
    tri_tls_context *context;
    tri_tls *tls;
} member;

static void member_dial(const place *at, member *out)
{
    unsigned char greeting[TRI_STORE_HEADER_NBYTES + TRI_STORE_NONCE_NBYTES], proof[TRI_STORE_PROOF_NBYTES] = {0};
    unsigned char reply[TRI_STORE_HEADER_NBYTES + TRI_AUTH_NBYTES], key[TRI_AUTH_NBYTES];
    const unsigned char *nonce = greeting + TRI_STORE_HEADER_NBYTES;

    out->fd = dial(at);
    assert_int_equal(recv(out->fd, greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    assert_int_equal(tri_store_proof("secret", "client", nonce, proof, proof + TRI_STORE_NONCE_NBYTES), TRI_OK);
    assert_int_equal(tri_store_proof("secret", "tlskey", nonce, proof, key), TRI_OK);
    send_header(out->fd, (tri_store_message){.op = TRI_STORE_PROVE, .value_nbytes = sizeof proof});
    assert_int_equal(send(out->fd, proof, sizeof proof, 0), sizeof proof);
    assert_int_equal(recv(out->fd, reply, sizeof reply, MSG_WAITALL), sizeof reply);
    assert_int_equal(tri_tls_context_create(false, &out->context), TRI_OK);
    assert_int_equal(tri_tls_open(out->context, out->fd, true, key, &out->tls), TRI_OK);
    assert_int_equal(tri_tls_shake_all("test", &(tri_tls_end){out->tls, out->fd, 0}, 1, NULL, soon()), TRI_OK);
}

static void member_send(const member *to, const void *bytes, size_t nbytes)
{
    size_t taken;

    assert_int_equal(tri_tls_write(to->tls, bytes, nbytes, &taken), TRI_OK);
    assert_int_equal(taken, nbytes);
}

static void member_send_header(const member *to, tri_store_message message)
{
    unsigned char header[TRI_STORE_HEADER_NBYTES];

    tri_store_message_write(&message, header);
    member_send(to, header, sizeof header);
}

static void member_receive(const member *from, void *bytes, size_t nbytes)
{
    struct pollfd one = {.fd = from->fd, .events = POLLIN};

    for (size_t got = 0, given; got < nbytes; got += given) {
        assert_int_equal(tri_tls_read(from->tls, (char *)bytes + got, nbytes - got, &given), TRI_OK);
        if (given == 0)
            assert_int_equal(poll(&one, 1, 20000), 1);
    }
}

static void member_close(member *at)
{
    tri_tls_close(at->tls);
    tri_tls_context_destroy(at->context);
    close(at->fd);
}

static void a_member_that_stops_inside_a_message_blocks_nobody(void **state)
{
    place at = tcp_place();
    member half, waits, large;
    unsigned char header[TRI_STORE_HEADER_NBYTES];
    tri_store_message reply;
    tri_store *store;

    (void)state;
    member_dial(&at, &half);
    member_dial(&at, &waits);
    member_dial(&at, &large);
    member_send_header(&half, (tri_store_message){.op = TRI_STORE_SET, .key_nbytes = 1, .value_nbytes = 1000});
    member_send(&half, "k", 1);
    member_send_header(&waits, (tri_store_message){.op = TRI_STORE_WAIT, .key_nbytes = 1, .number = -1});
    member_send(&waits, "w", 1);
    member_send_header(&large,
                       (tri_store_message){.op = TRI_STORE_SET, .key_nbytes = 1, .value_nbytes = (1u << 20) + 1});
    member_receive(&large, header, sizeof header);
    assert_int_equal(tri_store_message_read(header, &reply), TRI_OK);
    assert_int_equal(reply.status, TRI_EINVAL);
    assert_true(is_closed(large.fd, 60000));
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    contract_check(store);
    member_close(&waits); /* while the server holds its wait */
    assert_int_equal(tri_store_set(store, "w", "x", 1, soon()), TRI_OK);
    value_check(store, "w", "x", 1);
    tri_store_close(store);
    place_fini(&at);
    member_close(&half);
    member_close(&large);
}

/* Several requests in one record: the bytes of the later ones are in the library, where no poll tells of them. */
static void requests_that_come_together_are_all_answered(void **state)
{
    place at = tcp_place();
    unsigned char bytes[2 * (TRI_STORE_HEADER_NBYTES + 1)], *second = bytes + sizeof bytes / 2;
    unsigned char header[TRI_STORE_HEADER_NBYTES], value;
    tri_store_message reply;
    member one;

    (void)state;
    member_dial(&at, &one);
    tri_store_message_write(&(tri_store_message){.op = TRI_STORE_WAIT, .key_nbytes = 1, .number = -1, .ticket = 1},
                            bytes);
    bytes[TRI_STORE_HEADER_NBYTES] = 'w';
    tri_store_message_write(&(tri_store_message){.op = TRI_STORE_ADD, .key_nbytes = 1, .number = 7, .ticket = 2},
                            second);
    second[TRI_STORE_HEADER_NBYTES] = 'a';
    member_send(&one, bytes, sizeof bytes);
    for (uint32_t ticket = 1; ticket <= 2; ticket++) {
        member_receive(&one, header, sizeof header);
        assert_int_equal(tri_store_message_read(header, &reply), TRI_OK);
        assert_int_equal(reply.ticket, ticket);
        assert_int_equal(reply.status, ticket == 1 ? TRI_ETIMEOUT : TRI_OK); /* the second ends the wait */
        for (uint32_t i = 0; i < reply.value_nbytes; i++)
            member_receive(&one, &value, 1);
    }
    assert_int_equal(reply.number, 7);
    member_close(&one);
    place_fini(&at);
}

/* Who proves that it knows the token, and then does not encrypt. */
static int clear_begin(const place *at)
{
    unsigned char greeting[TRI_STORE_HEADER_NBYTES + TRI_STORE_NONCE_NBYTES], proof[TRI_STORE_PROOF_NBYTES] = {0};
    unsigned char reply[TRI_STORE_HEADER_NBYTES + TRI_AUTH_NBYTES], request[TRI_STORE_HEADER_NBYTES + 2];
    int fd = dial(at);

    assert_int_equal(recv(fd, greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    assert_int_equal(
        tri_store_proof("secret", "client", greeting + TRI_STORE_HEADER_NBYTES, proof, proof + TRI_STORE_NONCE_NBYTES),
        TRI_OK);
    send_header(fd, (tri_store_message){.op = TRI_STORE_PROVE, .value_nbytes = sizeof proof});
    assert_int_equal(send(fd, proof, sizeof proof, 0), sizeof proof);
    assert_int_equal(recv(fd, reply, sizeof reply, MSG_WAITALL), sizeof reply);
    tri_store_message_write(&(tri_store_message){.op = TRI_STORE_SET, .key_nbytes = 1, .value_nbytes = 1}, request);
    memcpy(request + TRI_STORE_HEADER_NBYTES, "kv", 2);
    assert_int_equal(send(fd, request, sizeof request, MSG_NOSIGNAL), sizeof request);
    return fd;
}

static void a_member_that_sends_in_clear_is_dropped(void **state)
{
    place at = tcp_place();
    tri_store *store;
    char *bytes;
    size_t nbytes;

    (void)state;
    assert_true(is_dropped(&at, clear_begin));
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    assert_int_equal(tri_store_wait(store, "k", &bytes, &nbytes, tri_deadline_after_ms(1)), TRI_ETIMEOUT);
    tri_store_close(store);
    place_fini(&at);
}

static void what_goes_to_the_server_and_back_cannot_be_read_on_the_way(void **state)
{
    place at = tcp_place();
    tri_store *store;
    char url[64];
    tap in;

    (void)state;
    tap_open(&in, tri_store_server_port(at.server));
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", in.port);
    assert_int_equal(tri_store_open(url, "secret", soon(), &store), TRI_OK);
    assert_true(tap_has(&in, "TRS2", 4)); /* the proofs */
    assert_int_equal(tri_store_set(store, "the-key", "the value", 9, soon()), TRI_OK);
    value_check(store, "the-key", "the value", 9);
    tri_store_close(store);
    assert_false(tap_has(&in, "the-key", 7));
    assert_false(tap_has(&in, "the value", 9));
    tap_close(&in);
    place_fini(&at);
}

static void the_server_refuses_to_grow_beyond_its_limit(void **state)
{
    place at = tcp_place();
    tri_store *store;
    char *big = tri_alloc_zero(1, TRI_STORE_VALUE_NBYTES), key[16];
    tri_status status = TRI_OK;
    int held = 0;

    (void)state;
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    for (; held < 100 && status == TRI_OK; held += status == TRI_OK) {
        snprintf(key, sizeof key, "big%d", held);
        status = tri_store_set(store, key, big, TRI_STORE_VALUE_NBYTES, soon());
    }
    assert_int_equal(status, TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "full"));
    assert_int_equal(held, 63);
    assert_int_equal(tri_store_remove(store, "big7", soon()), TRI_OK);
    assert_int_equal(tri_store_set(store, "big7", big, TRI_STORE_VALUE_NBYTES, soon()), TRI_OK);
    tri_store_close(store);
    tri_free(big);
    place_fini(&at);
}

/* A job leaves some keys behind for each worker that dies, for as long as its launcher runs. */
static void many_keys_cost_little_more_than_their_bytes(void **state)
{
    enum { KEYS = 3000 };
    place at = tcp_place();
    tri_store *store;
    char key[24], value[24];

    (void)state;
    assert_int_equal(tri_store_open(at.url, "secret", soon(), &store), TRI_OK);
    assert_int_equal(tri_store_set(store, "first", "1", 1, soon()), TRI_OK);
    uint64_t before = tri_memory_now().live_nbytes;
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "gone/%d.%d", i % 7, i);
        assert_int_equal(tri_store_set(store, key, key, strlen(key), soon()), TRI_OK);
    }
    assert_true(tri_memory_now().live_nbytes - before < KEYS * UINT64_C(100));
    for (int i = 0; i < KEYS; i += 2) {
        snprintf(key, sizeof key, "gone/%d.%d", i % 7, i);
        assert_int_equal(tri_store_remove(store, key, soon()), TRI_OK);
    }
    for (int i = 1; i < KEYS; i += 2) {
        snprintf(key, sizeof key, "gone/%d.%d", i % 7, i);
        snprintf(value, sizeof value, "%s", key);
        value_check(store, key, value, strlen(value));
    }
    tri_store_close(store);
    place_fini(&at);
}

#ifdef TRI_HAS_CURL
static void a_password_goes_in_clear_to_this_host_alone(void **state)
{
    static const struct {
        const char *url;
        bool good;
    } cases[] = {
        {"etcd://127.0.0.1:2379?auth=%s", true},
        {"etcd://localhost:2379,[::1]:2380?auth=%s", true},
        {"etcd://192.0.2.1:2379?auth=%s", false},
        {"etcd://127.0.0.1:2379,h:2379?auth=%s", false},
        {"etcd://localhost.example.org:2379/p?auth=%s", false},
        {"etcd://192.0.2.1:2379?insecure=yes&auth=%s", true},
        {"etcds://192.0.2.1:2379?auth=%s", true},
        {"etcd://192.0.2.1:2379", true},
        {"etcd://192.0.2.1:2379?auth=%s&insecure=no", false},
    };
    char path[] = "/tmp/trireme-auth-XXXXXX", url[256], prefix[TRI_ETCD_PREFIX_NBYTES];
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, "root:p4ss\n", 10), 10);
    close(fd);
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        tri_etcd *etcd = NULL;

        snprintf(url, sizeof url, cases[c].url, path);
        if ((tri_etcd_open(url, &etcd, prefix) == TRI_OK) != cases[c].good)
            fail_msg("%s: %s", url, tri_last_error());
        if (!cases[c].good)
            assert_null(strstr(tri_last_error(), "p4ss"));
        tri_etcd_close(etcd);
    }
    unlink(path);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef TRI_HAS_CURL
        cmocka_unit_test(a_password_goes_in_clear_to_this_host_alone),
#endif
        cmocka_unit_test(every_store_keeps_the_contract),
        cmocka_unit_test(etcd_keeps_the_contract),
        cmocka_unit_test(etcd_adds_atomically_and_waits),
        cmocka_unit_test(adding_is_atomic),
        cmocka_unit_test(a_wrong_token_is_refused_at_once),
        cmocka_unit_test(strangers_are_named_but_not_one_by_one),
        cmocka_unit_test(opening_waits_for_the_server_until_the_deadline),
        cmocka_unit_test(a_range_of_ports_is_searched_past_strangers),
        cmocka_unit_test(urls_are_checked),
        cmocka_unit_test(strangers_are_dropped_and_block_nobody),
        cmocka_unit_test(a_member_that_stops_inside_a_message_blocks_nobody),
        cmocka_unit_test(requests_that_come_together_are_all_answered),
        cmocka_unit_test(a_member_that_sends_in_clear_is_dropped),
        cmocka_unit_test(what_goes_to_the_server_and_back_cannot_be_read_on_the_way),
        cmocka_unit_test(many_keys_cost_little_more_than_their_bytes),
        cmocka_unit_test(the_server_refuses_to_grow_beyond_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
