/* SPDX-License-Identifier: Apache-2.0
 *
 * store_server.c: the table behind a tcp store: one thread, one poll loop, protocol in docs/formats/store.md.
 *
 * A client is read only while nothing is owed to it, so that what it can make the server hold is one request and one
 * reply. Values are counted references: a thousand clients that are sent the same value share its bytes. All values
 * and keys together, half-received ones too, stay below TRI_STORE_TOTAL_NBYTES.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/store_impl.h"

#define UNPROVEN_NS    (5 * TRI_NS_PER_S)
#define UNPROVEN_LIMIT 1024
#define ENTRY_NBYTES   128 /* what a key costs besides its bytes and its value */

typedef struct store_value {
    int refs;
    uint32_t nbytes;
    char bytes[];
} store_value;

typedef struct store_entry {
    store_value *value;           /* NULL: only waited for */
    struct store_client *waiters; /* by next_waiter */
    struct store_entry *next, **link;
    char key[TRI_STORE_KEY_NBYTES + 1];
} store_entry;

typedef enum client_state { CLIENT_HEADER, CLIENT_BODY, CLIENT_WAITS, CLIENT_REPLY } client_state;

typedef struct store_client {
    int fd;
    client_state state;
    bool proven;
    bool ending;         /* close once the reply is out */
    int64_t deadline_ns; /* unproven: to show the token; CLIENT_WAITS: of the wait */
    unsigned char nonce[TRI_STORE_NONCE_NBYTES];
    unsigned char header[TRI_STORE_HEADER_NBYTES];
    tri_store_message request;
    char key[TRI_STORE_KEY_NBYTES + 1];
    store_value *body; /* of the request; NULL while the table has no room: its bytes are skipped */
    size_t at;         /* bytes of the present part read or written */
    store_value *reply;
    store_entry *entry; /* CLIENT_WAITS */
    struct store_client *next_waiter;
} store_client;

struct tri_store_server {
    tri_thread *thread;
    int listener, wake, port;
    atomic_bool stop;
    atomic_int connected; /* proven clients */
    char token[65];
    tri_map keys; /* to store_entry */
    store_entry *entries;
    size_t held_nbytes;
    tri_vector clients; /* store_client *, oldest first */
    tri_vector polls;   /* struct pollfd */
    size_t unproven;
    int64_t accept_after_ns; /* out of descriptors: not before this */
};

static store_value *value_create(tri_store_server *server, uint32_t nbytes)
{
    store_value *value = NULL;

    if (nbytes + server->held_nbytes <= TRI_STORE_TOTAL_NBYTES)
        value = tri_alloc(sizeof *value + nbytes + 1);
    if (!value)
        return NULL;
    value->refs = 1;
    value->nbytes = nbytes;
    value->bytes[nbytes] = 0;
    server->held_nbytes += nbytes;
    return value;
}

static void value_release(tri_store_server *server, store_value *value)
{
    if (value && --value->refs == 0) {
        server->held_nbytes -= value->nbytes;
        tri_free(value);
    }
}

static store_entry *entry_find(tri_store_server *server, const char *key)
{
    int64_t found;

    return tri_map_find(&server->keys, key, &found) ? (store_entry *)(intptr_t)found : NULL;
}

/* NULL when there is no room. */
static store_entry *entry_make(tri_store_server *server, const char *key)
{
    store_entry *entry = entry_find(server, key);

    if (entry || server->held_nbytes + ENTRY_NBYTES + strlen(key) > TRI_STORE_TOTAL_NBYTES)
        return entry;
    entry = tri_alloc_zero(1, sizeof *entry);
    if (!entry || tri_map_set(&server->keys, key, (int64_t)(intptr_t)entry) != TRI_OK) {
        tri_free(entry);
        return NULL;
    }
    memcpy(entry->key, key, strlen(key) + 1);
    server->held_nbytes += ENTRY_NBYTES + strlen(key);
    entry->next = server->entries;
    entry->link = &server->entries;
    if (entry->next)
        entry->next->link = &entry->next;
    server->entries = entry;
    return entry;
}

/* An entry lives while it has a value or somebody waits for it. */
static void entry_settle(tri_store_server *server, store_entry *entry)
{
    if (entry->value || entry->waiters)
        return;
    server->held_nbytes -= ENTRY_NBYTES + strlen(entry->key);
    tri_map_remove(&server->keys, entry->key);
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    tri_free(entry);
}

static void wait_end(tri_store_server *server, store_client *client)
{
    store_entry *entry = client->entry;

    if (!entry)
        return;
    for (store_client **at = &entry->waiters; *at; at = &(*at)->next_waiter) {
        if (*at == client) {
            *at = client->next_waiter;
            break;
        }
    }
    client->entry = NULL;
    entry_settle(server, entry);
}

static void client_destroy(tri_store_server *server, store_client *client)
{
    wait_end(server, client);
    value_release(server, client->body);
    value_release(server, client->reply);
    if (client->proven)
        atomic_fetch_sub(&server->connected, 1);
    else
        server->unproven--;
    close(client->fd);
    tri_free(client);
}

/* Starts the reply; takes the reference to value (NULL: an empty one). */
static void reply_start(store_client *client, tri_status status, int64_t number, store_value *value)
{
    tri_store_message message = {.op = (uint8_t)(client->request.op | TRI_STORE_REPLY),
                                 .status = (uint8_t)status,
                                 .ticket = client->request.ticket,
                                 .number = number,
                                 .value_nbytes = value ? value->nbytes : 0};

    tri_store_message_write(&message, client->header);
    client->reply = value;
    client->at = 0;
    client->state = CLIENT_REPLY;
}

/* Small texts are outside the account: one per client. */
static void reply_text(tri_store_server *server, store_client *client, tri_status status, const void *bytes,
                       size_t nbytes)
{
    store_value *value = tri_alloc(sizeof *value + nbytes + 1);

    if (value) {
        value->refs = 1;
        value->nbytes = (uint32_t)nbytes;
        memcpy(value->bytes, bytes, nbytes);
        server->held_nbytes += nbytes; /* value_release takes it off again */
    }
    reply_start(client, status, 0, value);
}

static void reply_error(tri_store_server *server, store_client *client, tri_status status, const char *text)
{
    reply_text(server, client, status, text, strlen(text));
}

static void reply_full(tri_store_server *server, store_client *client)
{
    char text[128];

    snprintf(text, sizeof text, "the store is full: want at most %u bytes in all, %zu are held", TRI_STORE_TOTAL_NBYTES,
             server->held_nbytes);
    reply_error(server, client, TRI_EINVAL, text);
}

/* Takes the reference. */
static void entry_fill(tri_store_server *server, store_entry *entry, store_value *value)
{
    store_client *next;

    value_release(server, entry->value);
    entry->value = value;
    for (store_client *client = entry->waiters; client; client = next) {
        next = client->next_waiter;
        client->entry = NULL;
        value->refs++;
        reply_start(client, TRI_OK, 0, value);
    }
    entry->waiters = NULL;
}

static void answer_prove(tri_store_server *server, store_client *client)
{
    unsigned char want[TRI_AUTH_NBYTES];
    const unsigned char *nonce = (const unsigned char *)client->body->bytes;

    tri_store_proof(server->token, "client", client->nonce, nonce, want);
    if (!tri_auth_equals(want, nonce + TRI_STORE_NONCE_NBYTES)) {
        client->ending = true;
        reply_error(server, client, TRI_ECONFIG, "this process does not know the token of the job (TRIREME_TOKEN)");
        return;
    }
    tri_store_proof(server->token, "server", client->nonce, nonce, want);
    client->proven = true;
    server->unproven--;
    atomic_fetch_add(&server->connected, 1);
    reply_text(server, client, TRI_OK, want, sizeof want);
}

static void answer_set(tri_store_server *server, store_client *client)
{
    store_entry *entry = entry_make(server, client->key);

    if (!entry) {
        reply_full(server, client);
        return;
    }
    entry_fill(server, entry, client->body);
    client->body = NULL;
    reply_start(client, TRI_OK, 0, NULL);
}

static void answer_wait(tri_store_server *server, store_client *client)
{
    store_entry *entry = entry_make(server, client->key);
    int64_t now_ns = tri_now_ns(), ns = client->request.number;

    if (!entry) {
        reply_full(server, client);
    } else if (entry->value) {
        entry->value->refs++;
        reply_start(client, TRI_OK, 0, entry->value);
    } else {
        client->state = CLIENT_WAITS;
        client->deadline_ns = ns < 0 || ns > TRI_FOREVER - now_ns ? TRI_FOREVER : now_ns + ns;
        client->entry = entry;
        client->next_waiter = entry->waiters;
        entry->waiters = client;
    }
}

static void answer_add(tri_store_server *server, store_client *client)
{
    store_entry *entry = entry_make(server, client->key);
    store_value *value;
    char text[32], *end = NULL;
    long long before = 0, after;

    if (!entry) {
        reply_full(server, client);
        return;
    }
    if (entry->value) {
        errno = 0;
        before = strtoll(entry->value->bytes, &end, 10);
        if (end == entry->value->bytes || *end || errno || end != entry->value->bytes + entry->value->nbytes) {
            reply_error(server, client, TRI_EINVAL, "add: want a number there, got other bytes");
            return;
        }
    }
    if (__builtin_add_overflow(before, (long long)client->request.number, &after)) {
        reply_error(server, client, TRI_EINVAL, "add: the sum is beyond 64 bits");
        return;
    }
    value = value_create(server, (uint32_t)snprintf(text, sizeof text, "%lld", after));
    if (!value) {
        entry_settle(server, entry);
        reply_full(server, client);
        return;
    }
    memcpy(value->bytes, text, value->nbytes);
    entry_fill(server, entry, value);
    reply_start(client, TRI_OK, after, NULL);
}

static void answer(tri_store_server *server, store_client *client)
{
    store_entry *entry;

    if (client->request.op == TRI_STORE_PROVE) {
        answer_prove(server, client);
    } else if (tri_store_key_check(client->key, client->request.key_nbytes) != TRI_OK) {
        reply_error(server, client, TRI_EINVAL, tri_last_error());
    } else if (!client->body && (client->request.value_nbytes > 0 || client->request.op == TRI_STORE_SET)) {
        reply_full(server, client);
    } else if (client->request.op == TRI_STORE_SET) {
        answer_set(server, client);
    } else if (client->request.op == TRI_STORE_WAIT) {
        answer_wait(server, client);
    } else if (client->request.op == TRI_STORE_ADD) {
        answer_add(server, client);
    } else {
        entry = entry_find(server, client->key);
        if (entry) {
            value_release(server, entry->value);
            entry->value = NULL;
            entry_settle(server, entry);
        }
        reply_start(client, TRI_OK, 0, NULL);
    }
    value_release(server, client->body);
    client->body = NULL;
}

/* A whole header is there. False: drop the client. */
static bool header_arrived(tri_store_server *server, store_client *client)
{
    tri_store_message *request = &client->request;
    tri_status status = tri_store_message_read(client->header, request);
    bool is_proof = request->op == TRI_STORE_PROVE;

    if (status == TRI_EFORMAT)
        return false;
    if (status == TRI_OK && (request->op & TRI_STORE_REPLY || request->op == TRI_STORE_GREET))
        return false;
    if (is_proof == client->proven)
        return false;
    if (is_proof && (request->key_nbytes != 0 || request->value_nbytes != TRI_STORE_PROOF_NBYTES))
        return false;
    if (status != TRI_OK) { /* what follows cannot be trusted to have the length it says */
        client->ending = true;
        reply_error(server, client, status, tri_last_error());
        return true;
    }
    client->at = 0;
    client->state = CLIENT_BODY;
    memset(client->key, 0, sizeof client->key);
    if (request->value_nbytes > 0 || request->op == TRI_STORE_SET)
        client->body = value_create(server, request->value_nbytes);
    /* A client without the token is not told how full we are. */
    return client->body || client->proven;
}

/* Reads what is there. False: drop the client. */
static bool client_read(tri_store_server *server, store_client *client)
{
    while (client->state == CLIENT_HEADER || client->state == CLIENT_BODY) {
        char skipped[4096];
        size_t key_nbytes = client->request.key_nbytes, total = key_nbytes + client->request.value_nbytes, want;
        char *to;
        ssize_t got;

        if (client->state == CLIENT_HEADER) {
            to = (char *)client->header + client->at;
            want = sizeof client->header - client->at;
        } else if (client->at == total) {
            client->state = CLIENT_REPLY; /* unless the answer is to wait */
            answer(server, client);
            continue;
        } else if (client->at < key_nbytes) {
            to = client->key + client->at;
            want = key_nbytes - client->at;
        } else {
            want = total - client->at;
            to = client->body ? client->body->bytes + (client->at - key_nbytes) : skipped;
            if (!client->body && want > sizeof skipped)
                want = sizeof skipped;
        }
        got = recv(client->fd, to, want, MSG_DONTWAIT);
        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        client->at += (size_t)got;
        if (client->state == CLIENT_HEADER && client->at == sizeof client->header && !header_arrived(server, client))
            return false;
    }
    return true;
}

/* Sends what the socket takes. False: drop the client. */
static bool client_write(tri_store_server *server, store_client *client)
{
    size_t body_nbytes = client->reply ? client->reply->nbytes : 0;

    while (client->at < sizeof client->header + body_nbytes) {
        bool in_header = client->at < sizeof client->header;
        const char *from = in_header ? (const char *)client->header + client->at
                                     : client->reply->bytes + (client->at - sizeof client->header);
        size_t nbytes =
            in_header ? sizeof client->header - client->at : sizeof client->header + body_nbytes - client->at;
        ssize_t sent =
            send(client->fd, from, nbytes, MSG_DONTWAIT | MSG_NOSIGNAL | (in_header && body_nbytes > 0 ? MSG_MORE : 0));

        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        client->at += (size_t)sent;
    }
    value_release(server, client->reply);
    client->reply = NULL;
    client->at = 0;
    client->state = CLIENT_HEADER;
    return !client->ending;
}

static void client_accept(tri_store_server *server)
{
    for (;;) {
        int on = 1, fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        store_client *client;

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                server->accept_after_ns = tri_now_ns() + 100 * TRI_NS_PER_MS;
            return;
        }
        client = tri_alloc_zero(1, sizeof *client);
        if (!client || !tri_vector_push(&server->clients, &client)) {
            tri_free(client);
            close(fd);
            return;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        client->fd = fd;
        client->deadline_ns = tri_now_ns() + UNPROVEN_NS;
        server->unproven++;
        tri_entropy(client->nonce, sizeof client->nonce);
        client->request.op = TRI_STORE_GREET;
        reply_text(server, client, TRI_OK, client->nonce, sizeof client->nonce);
    }
}

/* One client's turn. False: drop it. */
static bool client_turn(tri_store_server *server, store_client *client, short events, int64_t now_ns)
{
    if (!client->proven && now_ns >= client->deadline_ns)
        return false;
    if (client->state == CLIENT_WAITS) {
        char next;
        bool has_more = events & POLLIN && recv(client->fd, &next, 1, MSG_DONTWAIT | MSG_PEEK) == 1;

        if (events && !has_more)
            return false;                                /* it went away */
        if (has_more || now_ns >= client->deadline_ns) { /* its next request also ends a wait */
            wait_end(server, client);
            reply_error(server, client, TRI_ETIMEOUT, "want it to be set before the deadline, nobody did");
        }
    }
    if (events && client->state != CLIENT_REPLY && client->state != CLIENT_WAITS && !client_read(server, client))
        return false;
    return client->state != CLIENT_REPLY || client_write(server, client);
}

/* Milliseconds until the next deadline. */
static int polls_make(tri_store_server *server)
{
    store_client **clients = server->clients.items;
    int64_t now_ns = tri_now_ns(), first_ns = now_ns + 60 * TRI_NS_PER_S, ms;
    struct pollfd one = {.fd = server->wake, .events = POLLIN};

    server->polls.count = 0;
    tri_vector_push(&server->polls, &one);
    one.fd = now_ns < server->accept_after_ns ? -1 : server->listener;
    if (one.fd < 0)
        first_ns = server->accept_after_ns;
    tri_vector_push(&server->polls, &one);
    for (size_t i = 0; i < server->clients.count; i++) {
        one = (struct pollfd){.fd = clients[i]->fd, .events = clients[i]->state == CLIENT_REPLY ? POLLOUT : POLLIN};
        if ((!clients[i]->proven || clients[i]->state == CLIENT_WAITS) && clients[i]->deadline_ns < first_ns)
            first_ns = clients[i]->deadline_ns;
        if (!tri_vector_push(&server->polls, &one))
            break; /* without memory the rest waits for its turn */
    }
    ms = first_ns <= now_ns ? 0 : (first_ns - now_ns - 1) / TRI_NS_PER_MS + 1;
    return (int)ms;
}

static void serve(void *arg)
{
    tri_store_server *server = arg;

    while (!atomic_load(&server->stop)) {
        int ms = polls_make(server);
        struct pollfd *polls = server->polls.items;
        size_t polled = server->polls.count, kept = 0;
        int64_t now_ns;
        store_client **clients;

        if (polled < 2 || poll(polls, polled, ms) < 0) {
            tri_sleep_ns(TRI_NS_PER_MS); /* interrupted or out of memory: no spinning */
            continue;
        }
        if (polls[1].revents)
            client_accept(server);
        now_ns = tri_now_ns();
        clients = server->clients.items;
        for (size_t i = 0; i < server->clients.count; i++) {
            /* New ones have a greeting to send; the oldest strangers make room when there are too many. */
            short events = i + 2 < polled ? polls[i + 2].revents : 0;
            bool crowded = !clients[i]->proven && server->unproven > UNPROVEN_LIMIT;

            if (crowded || !client_turn(server, clients[i], events, now_ns)) {
                client_destroy(server, clients[i]);
                clients[i] = NULL;
            }
        }
        for (size_t i = 0; i < server->clients.count; i++) {
            if (clients[i])
                clients[kept++] = clients[i];
        }
        server->clients.count = kept;
    }
}

static void server_destroy(tri_store_server *server)
{
    store_client **clients = server->clients.items;

    for (size_t i = 0; i < server->clients.count; i++)
        client_destroy(server, clients[i]);
    while (server->entries) {
        store_entry *entry = server->entries;

        value_release(server, entry->value);
        entry->value = NULL;
        entry_settle(server, entry);
    }
    tri_map_fini(&server->keys);
    tri_vector_fini(&server->clients);
    tri_vector_fini(&server->polls);
    if (server->listener >= 0)
        close(server->listener);
    if (server->wake >= 0)
        close(server->wake);
    tri_free(server);
}

/* TRI_ECONFIG when the address is no address; TRI_EIO when it cannot be listened on. */
static tri_status listen_on(tri_store_server *server, const char *address, int port)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_PASSIVE},
                    *found;
    struct sockaddr_storage bound = {0};
    socklen_t bound_nbytes = sizeof bound;
    char service[8];
    int on = 1, off = 0, rc;

    snprintf(service, sizeof service, "%d", port);
    if (port < 0 || port > 65535 || getaddrinfo(address, service, &hints, &found) != 0)
        return tri_fail(TRI_ECONFIG, "store server: want a numeric address and a port of 0 to 65535, got %.100s and %d",
                        address, port);
    server->listener = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    rc = server->listener;
    if (rc >= 0) {
        setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (found->ai_family == AF_INET6)
            setsockopt(server->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        rc = bind(server->listener, found->ai_addr, found->ai_addrlen);
    }
    if (rc >= 0)
        rc = listen(server->listener, 4096);
    if (rc >= 0)
        rc = getsockname(server->listener, (struct sockaddr *)&bound, &bound_nbytes);
    if (rc < 0)
        tri_fail(TRI_EIO, "store server: cannot listen on %s port %d: %s", address, port, strerror(errno));
    freeaddrinfo(found);
    server->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                     : ((struct sockaddr_in *)&bound)->sin_port);
    return rc < 0 ? TRI_EIO : TRI_OK;
}

tri_status tri_store_server_start(const char *address, int port, const char *token, tri_store_server **out)
{
    tri_store_server *server;
    tri_status status;

    *out = NULL;
    if (strlen(token) >= sizeof server->token)
        return tri_fail(TRI_ECONFIG, "store token: want at most %zu bytes, got %zu", sizeof server->token - 1,
                        strlen(token));
    server = tri_alloc_zero(1, sizeof *server);
    if (!server)
        return TRI_ENOMEM;
    server->clients.each = sizeof(store_client *);
    server->polls.each = sizeof(struct pollfd);
    memcpy(server->token, token, strlen(token));
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->listener = -1;
    status = server->wake < 0 ? tri_fail(TRI_EIO, "store server: no eventfd: %s", strerror(errno))
                              : listen_on(server, address, port);
    if (status == TRI_OK)
        status = tri_thread_start(&server->thread, "store server", serve, server);
    if (status != TRI_OK) {
        server_destroy(server);
        return status;
    }
    *out = server;
    return TRI_OK;
}

int tri_store_server_port(const tri_store_server *server)
{
    return server->port;
}

void tri_store_server_drain(tri_store_server *server, int64_t deadline_ns)
{
    while (atomic_load(&server->connected) > 0 && tri_now_ns() < deadline_ns)
        tri_sleep_ns(TRI_NS_PER_MS);
}

void tri_store_server_stop(tri_store_server *server)
{
    uint64_t one = 1;

    if (!server)
        return;
    atomic_store(&server->stop, true);
    while (write(server->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
    tri_thread_join(server->thread);
    server_destroy(server);
}
