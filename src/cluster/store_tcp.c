/* SPDX-License-Identifier: Apache-2.0
 *
 * store_tcp.c: the client of a store server (docs/formats/wire.md): one connection, one request at a time.
 *
 * Calls from several threads queue. Every step watches the caller's deadline. A reply that comes after its caller gave
 * up is recognised by its ticket and dropped; a connection that broke is made again by the next call.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/store_impl.h"
#include "net/tls.h"

#define ATTEMPT_NS (5 * TRI_NS_PER_S)
/* Of a connect(), which takes one round trip. The kernel alone would try again after 1, 2 and 4 s: late when a link has
 * healed. */
#define CONNECT_NS (TRI_NS_PER_S / 2)
/* A stranger on one port of a range must not hold up the search for long. */
#define RANGE_ATTEMPT_NS (TRI_NS_PER_S / 2)
#define ANSWER_NS        TRI_NS_PER_S         /* within which a server that is there answers */
#define RETRY_PAUSE_NS   (20 * TRI_NS_PER_MS) /* of a patient store */

/* A connection to a server. */
typedef struct wire {
    int fd;       /* -1: none */
    tri_tls *tls; /* NULL: not proven yet */
    bool stops;   /* a stop signal ends its waits: TRI_ETIMEOUT */
} wire;

typedef struct tcp_store {
    tri_store base;
    tri_mutex mutex;
    tri_store_url url;
    char token[65];
    tri_tls_context *tls;
    wire wire;
    uint32_t ticket;
    tri_store_opening *opening; /* until it is open: a stop signal ends its waits; else NULL */
} tcp_store;

/* TRI_ETIMEOUT leaves no message: the caller knows what it waited for. */
static tri_status wait_for(const wire *at, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = at->fd, .events = events};
        int64_t left_ns = deadline_ns == TRI_FOREVER ? TRI_FOREVER : deadline_ns - tri_now_ns();
        int64_t ms = left_ns <= 0 ? 0 : (left_ns - 1) / TRI_NS_PER_MS + 1;
        int64_t most_ms = at->stops ? TRI_WAIT_SLICE_NS / TRI_NS_PER_MS : 60000;
        int ready = poll(&one, 1, ms > most_ms ? (int)most_ms : (int)ms);

        if (ready > 0)
            return TRI_OK;
        if (at->stops && tri_stop_signal())
            return TRI_ETIMEOUT;
        if (ready < 0 && errno != EINTR)
            return tri_fail(TRI_EIO, "store: cannot poll a socket: %s", strerror(errno));
        if (ready == 0 && left_ns <= 0)
            return TRI_ETIMEOUT;
    }
}

static void wire_close(wire *to)
{
    tri_tls_close(to->tls);
    if (to->fd >= 0)
        close(to->fd);
    *to = (wire){.fd = -1};
}

/* As send and recv without waiting; -1 with EAGAIN: not now. */
static ssize_t wire_send(const wire *to, const void *bytes, size_t nbytes)
{
    size_t taken = 0;

    if (!to->tls)
        return send(to->fd, bytes, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    errno = tri_tls_write(to->tls, bytes, nbytes, &taken) == TRI_OK ? EAGAIN : EPIPE;
    return taken > 0 ? (ssize_t)taken : -1;
}

static ssize_t wire_receive(const wire *from, void *bytes, size_t nbytes)
{
    size_t given = 0;

    if (!from->tls)
        return recv(from->fd, bytes, nbytes, MSG_DONTWAIT);
    if (tri_tls_read(from->tls, bytes, nbytes, &given) != TRI_OK)
        return 0;
    errno = EAGAIN;
    return given > 0 ? (ssize_t)given : -1;
}

static tri_status send_all(const wire *to, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    const char *at = bytes;

    while (nbytes > 0) {
        ssize_t sent = wire_send(to, at, nbytes);

        if (sent > 0) {
            at += sent;
            nbytes -= (size_t)sent;
        } else if (sent < 0 && errno == EAGAIN) {
            TRI_TRY(wait_for(to, POLLOUT, deadline_ns));
        } else if (sent < 0 && errno != EINTR) {
            return TRI_EPEER;
        }
    }
    return TRI_OK;
}

/* *got: bytes read so far, also when it fails. */
static tri_status receive_all(const wire *from, void *bytes, size_t nbytes, size_t *got, int64_t deadline_ns)
{
    *got = 0;
    while (*got < nbytes) {
        ssize_t received = wire_receive(from, (char *)bytes + *got, nbytes - *got);

        if (received > 0)
            *got += (size_t)received;
        else if (received == 0)
            return TRI_EPEER;
        else if (errno == EAGAIN)
            TRI_TRY(wait_for(from, POLLIN, deadline_ns));
        else if (errno != EINTR)
            return TRI_EPEER;
    }
    return TRI_OK;
}

/* A connected socket to one address, or -1 with errno. */
static int connect_address(const struct addrinfo *address, bool stops, int64_t deadline_ns)
{
    int on = 1, problem = 0;
    socklen_t problem_nbytes = sizeof problem;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return fd;
    if (errno == EINPROGRESS) {
        if (wait_for(&(wire){.fd = fd, .stops = stops}, POLLOUT, deadline_ns) != TRI_OK)
            problem = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &problem_nbytes) != 0)
            problem = errno;
        if (problem == 0)
            return fd;
        errno = problem;
    }
    problem = errno;
    close(fd);
    errno = problem;
    return -1;
}

static tri_status wire_encrypt(wire *to, tri_tls_context *context, const unsigned char key[TRI_AUTH_NBYTES],
                               int64_t deadline_ns)
{
    short events = POLLIN;

    TRI_TRY(tri_tls_open(context, to->fd, true, key, &to->tls));
    for (;;) {
        TRI_TRY(tri_tls_shake(to->tls, &events));
        if (events == 0)
            return TRI_OK;
        TRI_TRY(wait_for(to, events, deadline_ns));
    }
}

/* Shows that this side knows the token, and has the server show it; what follows is encrypted. TRI_ECONFIG: it is not
 * the server of this job. */
static tri_status shake_hands(tcp_store *store, wire *to, int64_t deadline_ns)
{
    unsigned char header[TRI_STORE_HEADER_NBYTES], nonce[TRI_STORE_NONCE_NBYTES], text[1024];
    unsigned char message[TRI_STORE_HEADER_NBYTES + TRI_STORE_PROOF_NBYTES], *mine = message + TRI_STORE_HEADER_NBYTES;
    unsigned char want[TRI_AUTH_NBYTES];
    tri_store_message in, out = {.op = TRI_STORE_PROVE, .value_nbytes = TRI_STORE_PROOF_NBYTES};
    size_t got;

    TRI_TRY(receive_all(to, header, sizeof header, &got, deadline_ns));
    if (tri_store_message_read(header, &in) != TRI_OK || in.op != (TRI_STORE_GREET | TRI_STORE_REPLY) ||
        in.value_nbytes != sizeof nonce)
        return tri_fail(TRI_ECONFIG, "wanted a Trireme store, got another service");
    TRI_TRY(receive_all(to, nonce, sizeof nonce, &got, deadline_ns));
    tri_entropy(mine, TRI_STORE_NONCE_NBYTES);
    TRI_TRY(tri_store_proof(store->token, "client", nonce, mine, mine + TRI_STORE_NONCE_NBYTES));
    tri_store_message_write(&out, message);
    TRI_TRY(send_all(to, message, sizeof message, deadline_ns));
    TRI_TRY(receive_all(to, header, sizeof header, &got, deadline_ns));
    if (tri_store_message_read(header, &in) != TRI_OK || in.op != (TRI_STORE_PROVE | TRI_STORE_REPLY) ||
        in.value_nbytes >= sizeof text)
        return tri_fail(TRI_ECONFIG, "wanted a Trireme store, got another service");
    TRI_TRY(receive_all(to, text, in.value_nbytes, &got, deadline_ns));
    text[in.value_nbytes] = 0;
    if (in.status != TRI_OK)
        return tri_fail(TRI_ECONFIG, "%s", (char *)text);
    TRI_TRY(tri_store_proof(store->token, "server", nonce, mine, want));
    if (in.value_nbytes != sizeof want || !tri_auth_equals(want, text))
        return tri_fail(TRI_ECONFIG, "the server does not know the token of this job (TRIREME_TOKEN)");
    TRI_TRY(tri_store_proof(store->token, "tlskey", nonce, mine, want));
    return wire_encrypt(to, store->tls, want, deadline_ns);
}

/* One try at one port. TRI_ETIMEOUT: nobody there yet (reason says why), try again. */
static tri_status connect_port(tcp_store *store, int port, int64_t deadline_ns, char *reason)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    char service[8];
    tri_status status = TRI_ETIMEOUT;
    int rc;

    snprintf(service, sizeof service, "%d", port);
    rc = getaddrinfo(store->url.host, service, &hints, &list);
    if (rc != 0) {
        snprintf(reason, TRI_STORE_REASON_NBYTES, "%s does not resolve: %s", store->url.host, gai_strerror(rc));
        return TRI_ETIMEOUT;
    }
    for (const struct addrinfo *address = list; address && status == TRI_ETIMEOUT; address = address->ai_next) {
        const bool stops = store->opening != NULL;
        wire made = {.fd = connect_address(address, stops, tri_wait_until(deadline_ns, CONNECT_NS)), .stops = stops};

        if (made.fd < 0) {
            snprintf(reason, TRI_STORE_REASON_NBYTES, "%s", strerror(errno));
            continue;
        }
        status = shake_hands(store, &made, deadline_ns);
        if (status == TRI_OK) {
            store->wire = made;
            store->wire.stops = false;
            break;
        }
        if (status == TRI_EPEER || status == TRI_ETIMEOUT) {
            snprintf(reason, TRI_STORE_REASON_NBYTES, "%s", status == TRI_EPEER ? "connection closed" : "no answer");
            status = TRI_ETIMEOUT;
        }
        wire_close(&made);
    }
    freeaddrinfo(list);
    return status;
}

/* The ports of the url, once each. TRI_ETIMEOUT: nobody there yet. */
static tri_status ports_try(tcp_store *store, int64_t deadline_ns, char *reason)
{
    bool is_range = store->url.last_port > store->url.first_port;

    for (int port = store->url.first_port; port <= store->url.last_port; port++) {
        tri_status status =
            connect_port(store, port, tri_wait_until(deadline_ns, is_range ? RANGE_ATTEMPT_NS : ATTEMPT_NS), reason);

        if (status == TRI_OK)
            return TRI_OK;
        if (status != TRI_ETIMEOUT && !is_range)
            return tri_fail_context(status, "store tcp://%s:%d", store->url.host, port);
        if (status != TRI_ETIMEOUT)
            snprintf(reason, TRI_STORE_REASON_NBYTES, "%.120s", tri_last_error());
        if (store->opening)
            TRI_TRY(tri_wait_check("connecting to the other ranks"));
    }
    return TRI_ETIMEOUT;
}

static tri_status tcp_connect(tcp_store *store, int64_t deadline_ns)
{
    int64_t pause_ns = TRI_NS_PER_MS;
    char own[TRI_STORE_REASON_NBYTES], *reason = store->opening ? store->opening->reason : own;

    snprintf(reason, TRI_STORE_REASON_NBYTES, "nothing");
    for (;;) {
        tri_status status = ports_try(store, deadline_ns, reason);

        if (status != TRI_ETIMEOUT)
            return status;
        if (deadline_ns - tri_now_ns() <= 0)
            return tri_fail(TRI_ETIMEOUT, "store tcp://%s:%d: want a connection before the deadline, got: %s",
                            store->url.host, store->url.first_port, reason);
        if (store->opening && store->opening->late && tri_wait_is_long(&store->opening->wait))
            store->opening->late(store->opening->arg, reason);
        tri_sleep_ns(tri_wait_until(deadline_ns, pause_ns) - tri_now_ns());
        if (pause_ns < TRI_WAIT_SLICE_NS)
            pause_ns *= 2;
    }
}

static tri_status exchange(tcp_store *store, tri_store_message *message, const char *key, const void *value,
                           char **bytes, int64_t deadline_ns)
{
    unsigned char start[TRI_STORE_HEADER_NBYTES + TRI_STORE_KEY_NBYTES + 1];
    uint32_t ticket = ++store->ticket;
    size_t key_nbytes = strlen(key), got = 0;
    tri_status status;

    message->key_nbytes = (uint16_t)key_nbytes;
    message->ticket = ticket;
    tri_store_message_write(message, start);
    memcpy(start + TRI_STORE_HEADER_NBYTES, key, key_nbytes);
    status = send_all(&store->wire, start, TRI_STORE_HEADER_NBYTES + key_nbytes, deadline_ns);
    if (status == TRI_OK && message->value_nbytes > 0)
        status = send_all(&store->wire, value, message->value_nbytes, deadline_ns);
    if (status != TRI_OK)
        goto broken;
    for (;;) {
        status = receive_all(&store->wire, start, TRI_STORE_HEADER_NBYTES, &got, deadline_ns);
        if (status == TRI_ETIMEOUT && got == 0)
            return status; /* between two messages: the connection stays good */
        if (status != TRI_OK)
            goto broken;
        status = tri_store_message_read(start, message);
        if (status != TRI_OK)
            goto broken;
        *bytes = tri_alloc((size_t)message->value_nbytes + 1);
        status = *bytes ? receive_all(&store->wire, *bytes, message->value_nbytes, &got, deadline_ns) : TRI_ENOMEM;
        if (status != TRI_OK)
            goto broken;
        (*bytes)[message->value_nbytes] = 0;
        if (message->ticket == ticket)
            return TRI_OK;
        tri_free(*bytes);
        *bytes = NULL;
    }
broken:
    tri_free(*bytes);
    *bytes = NULL;
    wire_close(&store->wire);
    return status;
}

/* One exchange over a connection, which is made where there is none. TRI_EPEER: there is no server now. */
static tri_status tcp_try(tcp_store *store, tri_store_message *message, const char *key, const void *value,
                          char **bytes, int64_t deadline_ns)
{
    tri_status status = store->wire.fd < 0 ? tcp_connect(store, deadline_ns) : TRI_OK;

    if (status != TRI_OK) /* a stranger at its port may go again */
        return status == TRI_ETIMEOUT || store->base.patience_ns > 0 ? TRI_EPEER : status;
    status = exchange(store, message, key, value, bytes, deadline_ns);
    if (status == TRI_ETIMEOUT)
        tri_fail(status, "store key %s: want an answer before the deadline, got none", key);
    if (status == TRI_EPEER)
        tri_fail(status, "store tcp://%s:%d: the server closed the connection (key %s)", store->url.host,
                 store->url.first_port, key);
    return status;
}

/* How long the server shall wait, as the request says it: it keeps the deadline. */
static int64_t left_of(const tcp_store *store, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns == TRI_FOREVER ? -1 : deadline_ns - tri_now_ns();

    if (deadline_ns != TRI_FOREVER && left_ns < 0)
        return 0;
    return store->base.patience_ns > 0 && (left_ns < 0 || left_ns > ANSWER_NS) ? ANSWER_NS : left_ns;
}

/* A patient store does not wait for an answer longer than one takes: the server may be gone without a word. */
static int64_t try_until(const tcp_store *store, const tri_store_message *message, int64_t deadline_ns)
{
    int64_t now_ns = tri_now_ns();

    if (message->op == TRI_STORE_WAIT) /* the answer may take a moment longer than the wait */
        return message->number < 0 ? TRI_FOREVER : now_ns + message->number + ANSWER_NS;
    return store->base.patience_ns > 0 ? now_ns + ANSWER_NS : deadline_ns;
}

/* Again and again, while there is no server and the store's patience lasts. */
static tri_status tcp_try_on(tcp_store *store, tri_store_message *message, const char *key, const void *value,
                             char **bytes, int64_t deadline_ns)
{
    const tri_store_message request = *message;
    int64_t gone_ns = 0;

    for (;;) {
        *message = request;
        if (request.op == TRI_STORE_WAIT)
            message->number = left_of(store, deadline_ns);
        tri_status status = tcp_try(store, message, key, value, bytes, try_until(store, message, deadline_ns));
        if (store->base.patience_ns == 0)
            return status;
        if (status == TRI_ETIMEOUT && store->wire.fd >= 0) {
            wire_close(&store->wire);
        }
        if (status == TRI_OK && message->status == TRI_ETIMEOUT && deadline_ns > tri_now_ns()) {
            tri_free(*bytes); /* one slice of a longer wait */
            *bytes = NULL;
            gone_ns = 0;
            continue;
        }
        if (status != TRI_EPEER && status != TRI_ETIMEOUT)
            return status;
        if (gone_ns == 0)
            gone_ns = tri_now_ns();
        if (tri_now_ns() - gone_ns >= store->base.patience_ns || tri_stop_signal())
            return TRI_EPEER;
        tri_sleep_ns(RETRY_PAUSE_NS);
    }
}

static tri_status tcp_call(tri_store *base, tri_store_message *message, const char *key, const void *value,
                           char **bytes, int64_t deadline_ns)
{
    tcp_store *store = tri_container_of(base, tcp_store, base);
    tri_status status;

    *bytes = NULL;
    tri_mutex_lock(&store->mutex);
    status = tcp_try_on(store, message, key, value, bytes, deadline_ns);
    tri_mutex_unlock(&store->mutex);
    if (status == TRI_OK && message->status != TRI_OK) {
        status = message->status < TRI_STATUS_COUNT ? (tri_status)message->status : TRI_EFORMAT;
        tri_fail(status, "store key %s: %s", key, *bytes);
        tri_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

static tri_status tcp_set(tri_store *store, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    tri_store_message message = {.op = TRI_STORE_SET, .value_nbytes = (uint32_t)nbytes};
    char *reply;
    tri_status status = tcp_call(store, &message, key, bytes, &reply, deadline_ns);

    tri_free(reply);
    return status;
}

static tri_status tcp_wait(tri_store *store, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    tri_store_message message = {.op = TRI_STORE_WAIT};
    tri_status status = tcp_call(store, &message, key, NULL, bytes, deadline_ns);

    *nbytes = status == TRI_OK ? message.value_nbytes : 0;
    return status;
}

static tri_status number_call(tri_store *store, tri_store_op op, const char *key, int64_t number, int64_t *after,
                              int64_t deadline_ns)
{
    tri_store_message message = {.op = (uint8_t)op, .number = number};
    char *reply;
    tri_status status = tcp_call(store, &message, key, NULL, &reply, deadline_ns);

    tri_free(reply);
    if (status == TRI_OK)
        *after = message.number;
    return status;
}

static tri_status tcp_add(tri_store *store, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    return number_call(store, TRI_STORE_ADD, key, amount, after, deadline_ns);
}

static tri_status tcp_raise(tri_store *store, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    return number_call(store, TRI_STORE_RAISE, key, least, after, deadline_ns);
}

static tri_status tcp_remove(tri_store *store, const char *key, int64_t deadline_ns)
{
    tri_store_message message = {.op = TRI_STORE_REMOVE};
    char *reply;
    tri_status status = tcp_call(store, &message, key, NULL, &reply, deadline_ns);

    tri_free(reply);
    return status;
}

static tri_status tcp_claim(tri_store *store, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                            size_t *nbytes, int64_t deadline_ns)
{
    tri_store_message message = {.op = TRI_STORE_CLAIM, .value_nbytes = (uint32_t)mine_nbytes};
    tri_status status = tcp_call(store, &message, key, mine, bytes, deadline_ns);

    *nbytes = status == TRI_OK ? message.value_nbytes : 0;
    return status;
}

static void tcp_close(tri_store *base)
{
    tcp_store *store = tri_container_of(base, tcp_store, base);

    wire_close(&store->wire);
    tri_tls_context_destroy(store->tls);
    tri_mutex_fini(&store->mutex);
    tri_free(store);
}

static const tri_store_ops tcp_ops = {
    .name = "tcp",
    .does = "asks a store server in the launcher or in rank 0",
    .set = tcp_set,
    .wait = tcp_wait,
    .add = tcp_add,
    .raise = tcp_raise,
    .remove = tcp_remove,
    .claim = tcp_claim,
    .close = tcp_close,
};

tri_status tri_store_tcp_open(const tri_store_url *url, const char *token, tri_store_opening *opening,
                              int64_t deadline_ns, tri_store **out)
{
    tcp_store *store;
    tri_status status;

    if (strlen(token) >= sizeof store->token)
        return tri_fail(TRI_ECONFIG, "store token: want at most %zu bytes, got %zu", sizeof store->token - 1,
                        strlen(token));
    store = tri_alloc_zero(1, sizeof *store);
    if (!store)
        return TRI_ENOMEM;
    store->base.ops = &tcp_ops;
    tri_mutex_init(&store->mutex);
    store->url = *url;
    memcpy(store->token, token, strlen(token));
    store->wire.fd = -1;
    status = tri_tls_context_create(false, &store->tls);
    store->opening = opening;
    if (status == TRI_OK)
        status = tcp_connect(store, deadline_ns);
    store->opening = NULL;
    if (status != TRI_OK) {
        tcp_close(&store->base);
        return status;
    }
    *out = &store->base;
    return TRI_OK;
}
