/* SPDX-License-Identifier: Apache-2.0
 *
 * store_server.c: the sockets of a store's server: one thread, one epoll loop; what is said there is store_table.c's.
 *
 * A client is read only while nothing is owed to it, so that what it can make the server hold is one request and one
 * reply. A turn costs what is ready, not how many are connected: thousands of ranks join at once.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "cluster/store_server_impl.h"

#define UNPROVEN_NS    (5 * TRI_NS_PER_S)
#define UNPROVEN_LIMIT 1024
#define EVENTS         256
#define REFUSED_NS     TRI_NS_PER_S

/* Says who did not show the job's token; once a second, however many knock. Who leaves without a word was looking for
 * an open port. */
static void stranger_note(tri_store_server *server, const store_client *client)
{
    int64_t now_ns = tri_now_ns();
    char others[64] = "";

    if (client->proven || !(client->has_spoken || now_ns >= client->deadline_ns))
        return;
    if (server->refused_ns > 0 && now_ns - server->refused_ns < REFUSED_NS) {
        server->refused++;
        return;
    }
    if (server->refused > 0)
        snprintf(others, sizeof others, "; so did %llu since the last one named", (unsigned long long)server->refused);
    tri_log(TRI_LOG_WARN, "store server, port %d: %s %s the job's token and was refused%s", server->port, client->from,
            client->has_spoken ? "did not prove that it knows" : "did not show", others);
    server->refused_ns = now_ns;
    server->refused = 0;
}

static void client_destroy(tri_store_server *server, store_client *client)
{
    *client->link = client->next;
    if (client->next)
        client->next->link = client->link;
    else
        server->clients_end = client->link;
    /* A process that was forked a moment ago may hold the socket too: events of it would continue. */
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->fd, NULL);
    tri_tls_close(client->tls);
    close(client->fd);
    tri_store_client_destroy(server, client);
}

static void client_drop(tri_store_server *server, store_client *client)
{
    stranger_note(server, client);
    client_destroy(server, client);
}

/* As recv and send without waiting; -1 with EAGAIN: not now. */
static ssize_t client_receive(store_client *client, void *bytes, size_t nbytes)
{
    size_t given = 0;

    if (!client->tls)
        return recv(client->fd, bytes, nbytes, MSG_DONTWAIT);
    if (tri_tls_read(client->tls, bytes, nbytes, &given) != TRI_OK)
        return 0;
    errno = EAGAIN;
    return given > 0 ? (ssize_t)given : -1;
}

static ssize_t client_send(store_client *client, const void *bytes, size_t nbytes, bool more)
{
    size_t taken = 0;
    bool good;

    if (!client->tls)
        return send(client->fd, bytes, nbytes, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    good = tri_tls_write(client->tls, bytes, nbytes, &taken) == TRI_OK;
    errno = good ? EAGAIN : EPIPE;
    return taken > 0 ? (ssize_t)taken : -1;
}

/* It knows the token: what follows is encrypted. False: drop the client. */
static bool client_encrypt(tri_store_server *server, store_client *client)
{
    client->shakes = true;
    client->deadline_ns = tri_now_ns() + UNPROVEN_NS;
    if (client->deadline_ns < server->sweep_ns)
        server->sweep_ns = client->deadline_ns;
    return tri_tls_open(server->tls, client->fd, false, client->secret, &client->tls) == TRI_OK;
}

/* Reads what is there. False: drop the client. */
static bool client_read(tri_store_server *server, store_client *client)
{
    size_t room_nbytes;
    char *room;

    while ((room = tri_store_client_room(client, &room_nbytes)) != NULL) {
        ssize_t got = client_receive(client, room, room_nbytes);

        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        client->has_spoken = client->caller.has_spoken = true;
        if (!tri_store_client_take(server, client, (size_t)got))
            return false;
    }
    return true;
}

/* Sends what the socket takes. False: drop the client. */
static bool client_write(tri_store_server *server, store_client *client)
{
    size_t nbytes;
    const char *from;

    while ((from = tri_store_client_reply(client, &nbytes)) != NULL) {
        bool more = client->at < sizeof client->header && client->reply && client->reply->nbytes > 0;
        ssize_t sent = client_send(client, from, nbytes, more);

        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        client->at += (size_t)sent;
    }
    if (!tri_store_client_next(server, client))
        return false;
    return !client->proven || client->tls || client_encrypt(server, client);
}

/* What is polled for at a descriptor: EPOLL_CTL_ADD or EPOLL_CTL_MOD. */
static bool watch(const tri_store_server *server, int how, int fd, uint32_t events, void *whose)
{
    struct epoll_event event = {.events = events, .data = {.ptr = whose}};

    return epoll_ctl(server->epoll, how, fd, &event) == 0;
}

static void address_print(const struct sockaddr_storage *from, char text[48])
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;

    if (!inet_ntop(from->ss_family, from->ss_family == AF_INET6 ? (const void *)&six->sin6_addr : &four->sin_addr, text,
                   48))
        snprintf(text, 48, "somebody");
}

static void client_admit(tri_store_server *server, int fd, const struct sockaddr_storage *from)
{
    int on = 1;
    int64_t now_ns = tri_now_ns(), silence_ns;
    uint64_t address = tri_caller_address((const struct sockaddr *)from);
    tri_caller *leaves;
    store_client *client =
        tri_crowd_admits(&server->unproven, address, now_ns, &leaves) ? tri_alloc_zero(1, sizeof *client) : NULL;

    if (leaves)
        client_drop(server, tri_container_of(leaves, store_client, caller));
    if (!client || !watch(server, EPOLL_CTL_ADD, fd, EPOLLIN, client)) {
        tri_free(client);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    client->fd = fd;
    address_print(from, client->from);
    client->link = server->clients_end;
    *client->link = client;
    server->clients_end = &client->next;
    client->deadline_ns = tri_now_ns() + UNPROVEN_NS;
    if (client->deadline_ns < server->sweep_ns)
        server->sweep_ns = client->deadline_ns;
    tri_crowd_add(&server->unproven, &client->caller, address, now_ns);
    if (tri_crowd_silent(&server->unproven, now_ns, &silence_ns))
        silence_ns = now_ns;
    if (silence_ns < server->sweep_ns)
        server->sweep_ns = silence_ns;
    tri_entropy(client->nonce, sizeof client->nonce);
    tri_store_client_greet(server, client);
    if (!client_write(server, client))
        client_destroy(server, client);
}

static void clients_accept(tri_store_server *server)
{
    for (;;) {
        struct sockaddr_storage from = {0};
        socklen_t nbytes = sizeof from;
        int fd = accept4(server->listener, (struct sockaddr *)&from, &nbytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            client_admit(server, fd, &from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            server->accept_after_ns = tri_now_ns() + 100 * TRI_NS_PER_MS;
            watch(server, EPOLL_CTL_MOD, server->listener, 0, &server->listener);
        }
        return;
    }
}

/* What its socket is polled for. */
static bool client_watch(const tri_store_server *server, store_client *client, bool is_writing)
{
    if (client->is_writing == is_writing)
        return true;
    client->is_writing = is_writing;
    return watch(server, EPOLL_CTL_MOD, client->fd, is_writing ? EPOLLOUT : EPOLLIN, client);
}

static bool client_reads(const store_client *client)
{
    return client->state == CLIENT_HEADER || client->state == CLIENT_BODY;
}

/* Bytes of it are here already, of which the poll does not tell. */
static bool client_has_bytes(const store_client *client)
{
    return client->tls && !client->shakes && tri_tls_has_bytes(client->tls);
}

/* One client's turn. False: drop it. */
static bool client_turn(tri_store_server *server, store_client *client, uint32_t events, int64_t now_ns)
{
    if ((!client->proven || client->shakes) && now_ns >= client->deadline_ns)
        return false;
    if (client->shakes && events) {
        short want;

        if (tri_tls_shake(client->tls, &want) != TRI_OK)
            return false;
        client->shakes = want != 0;
        if (client->shakes)
            return client_watch(server, client, want == POLLOUT);
    }
    if (client->state == CLIENT_WAITS) {
        char next;
        bool has_more =
            client_has_bytes(client) || (events & EPOLLIN && recv(client->fd, &next, 1, MSG_DONTWAIT | MSG_PEEK) == 1);

        if (events && !has_more)
            return false;                              /* it went away */
        if (has_more || now_ns >= client->deadline_ns) /* its next request also ends a wait */
            tri_store_client_give_up(server, client);
    }
    do {
        if ((events || client_has_bytes(client)) && client_reads(client) && !client->shakes &&
            !client_read(server, client))
            return false;
        if (client->state == CLIENT_REPLY && !client_write(server, client))
            return false;
    } while (client_reads(client) && client_has_bytes(client));
    return client_watch(server, client, client->state == CLIENT_REPLY);
}

/* Those whose time is over, silent ones of a crowd; the next deadline. */
static void clients_sweep(tri_store_server *server, int64_t now_ns)
{
    store_client *next;
    tri_caller *silent;

    while ((silent = tri_crowd_silent(&server->unproven, now_ns, &server->sweep_ns)) != NULL)
        client_drop(server, tri_container_of(silent, store_client, caller));
    for (store_client *client = server->clients; client; client = next) {
        next = client->next;
        if (!client_turn(server, client, 0, now_ns))
            client_drop(server, client);
        else if ((!client->proven || client->shakes || client->state == CLIENT_WAITS) &&
                 client->deadline_ns < server->sweep_ns)
            server->sweep_ns = client->deadline_ns;
    }
}

/* Milliseconds until something is due. */
static int pause_ms(tri_store_server *server)
{
    int64_t now_ns = tri_now_ns(), first_ns = now_ns + 60 * TRI_NS_PER_S;

    if (server->accept_after_ns > 0 && now_ns >= server->accept_after_ns) {
        server->accept_after_ns = 0;
        watch(server, EPOLL_CTL_MOD, server->listener, EPOLLIN, &server->listener);
    }
    if (server->accept_after_ns > 0)
        first_ns = server->accept_after_ns;
    if (server->sweep_ns < first_ns)
        first_ns = server->sweep_ns;
    return first_ns <= now_ns ? 0 : (int)((first_ns - now_ns - 1) / TRI_NS_PER_MS + 1);
}

static void serve(void *arg)
{
    tri_store_server *server = arg;
    struct epoll_event events[EVENTS];

    while (!atomic_load(&server->stop)) {
        int count = epoll_wait(server->epoll, events, EVENTS, pause_ms(server));
        int64_t now_ns = tri_now_ns();
        bool calls = false;

        if (count < 0)
            tri_sleep_ns(TRI_NS_PER_MS); /* interrupted: no spinning */
        for (int i = 0; i < count; i++) {
            store_client *client = events[i].data.ptr;

            if (events[i].data.ptr == &server->listener)
                calls = true;
            else if (events[i].data.ptr != &server->wake && !client_turn(server, client, events[i].events, now_ns))
                client_drop(server, client);
        }
        while (server->owed) {
            store_client *client = server->owed;

            *client->owed_link = client->next_owed;
            if (client->next_owed)
                client->next_owed->owed_link = client->owed_link;
            client->owed_link = NULL;
            if (!client_turn(server, client, 0, now_ns))
                client_drop(server, client);
        }
        if (calls)
            clients_accept(server);
        if (now_ns >= server->sweep_ns)
            clients_sweep(server, now_ns);
    }
}

static void server_destroy(tri_store_server *server)
{
    while (server->clients)
        client_destroy(server, server->clients);
    tri_store_table_fini(server);
    tri_tls_context_destroy(server->tls);
    if (server->listener >= 0)
        close(server->listener);
    if (server->wake >= 0)
        close(server->wake);
    if (server->epoll >= 0)
        close(server->epoll);
    tri_free(server);
}

/* TRI_ECONFIG when the address is no address, TRI_ENOTFOUND when it is none of this host's; TRI_EIO when it cannot be
 * listened on. */
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
    tri_status status = TRI_OK;

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
        status = tri_fail(errno == EADDRNOTAVAIL ? TRI_ENOTFOUND : TRI_EIO,
                          "store server: cannot listen on %s port %d: %s", address, port, strerror(errno));
    freeaddrinfo(found);
    server->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                     : ((struct sockaddr_in *)&bound)->sin_port);
    return status;
}

tri_status tri_store_server_start(const char *address, int port, const char *token, tri_store_server **out)
{
    return tri_store_server_start_kept(address, port, token, NULL, out);
}

tri_status tri_store_server_start_kept(const char *address, int port, const char *token, tri_journal *journal,
                                       tri_store_server **out)
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
    server->clients_end = &server->clients;
    tri_crowd_init(&server->unproven, UNPROVEN_LIMIT);
    server->sweep_ns = TRI_FOREVER;
    server->journal = journal;
    memcpy(server->token, token, strlen(token));
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->listener = -1;
    status =
        server->wake < 0 || server->epoll < 0 || !watch(server, EPOLL_CTL_ADD, server->wake, EPOLLIN, &server->wake)
            ? tri_fail(TRI_EIO, "store server: no eventfd or epoll: %s", strerror(errno))
            : listen_on(server, address, port);
    if (status == TRI_OK && !watch(server, EPOLL_CTL_ADD, server->listener, EPOLLIN, &server->listener))
        status = tri_fail(TRI_EIO, "store server: cannot poll its listener: %s", strerror(errno));
    if (status == TRI_OK)
        status = tri_tls_context_create(false, &server->tls);
    if (status == TRI_OK)
        status = tri_store_table_restore(server);
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

int tri_store_server_connected(tri_store_server *server)
{
    return atomic_load(&server->connected);
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
