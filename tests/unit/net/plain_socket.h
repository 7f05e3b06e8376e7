/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_socket.h: bytes over a plain TCP socket on this host, from a thread to another: what benches of letters stand
 * beside. The one who measures says how many bytes come how often; the other reads them to `to` and answers.
 */
#ifndef TRI_TESTS_PLAIN_SOCKET_H
#define TRI_TESTS_PLAIN_SOCKET_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : (perror("bench: " #condition), exit(1)))

/* What is measured: letters with bodies of nbytes; the other side answers after every `every`-th. */
typedef struct bench_task {
    size_t nbytes;
    int count, every;
} bench_task;

typedef struct plain_socket {
    int fds[2]; /* of the one who measures, of the other */
    void *to;   /* where the other one reads to */
} plain_socket;

static inline void plain_bytes_send(int fd, const void *bytes, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t sent = send(fd, (const char *)bytes + done, nbytes - done, MSG_NOSIGNAL);

        CHECK(sent > 0);
        done += (size_t)sent;
    }
}

static inline bool plain_bytes_receive(int fd, void *bytes, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t got = recv(fd, (char *)bytes + done, nbytes - done, 0);

        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

/* The other end's thread; ends with the socket. Tasks come on the same socket. */
static inline void plain_main(void *arg)
{
    const plain_socket *plain = arg;
    bench_task task;

    while (plain_bytes_receive(plain->fds[1], &task, sizeof task)) {
        for (int i = 1; i <= task.count; i++) {
            CHECK(plain_bytes_receive(plain->fds[1], plain->to, task.nbytes));
            if (i % task.every == 0)
                plain_bytes_send(plain->fds[1], plain->to, 1);
        }
    }
}

static inline void plain_open(plain_socket *plain, void *to)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof place;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    plain->to = to;
    plain->fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&place, sizeof place) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&place, &nbytes) == 0);
    CHECK(connect(plain->fds[0], (struct sockaddr *)&place, sizeof place) == 0);
    CHECK((plain->fds[1] = accept(listener, NULL, NULL)) >= 0);
    for (int i = 0; i < 2; i++)
        CHECK(setsockopt(plain->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    close(listener);
}

static inline void plain_run(const plain_socket *plain, const void *from, const bench_task *task)
{
    unsigned char answer;

    plain_bytes_send(plain->fds[0], task, sizeof *task);
    for (int i = 1; i <= task->count; i++) {
        plain_bytes_send(plain->fds[0], from, task->nbytes);
        if (i % task->every == 0)
            CHECK(plain_bytes_receive(plain->fds[0], &answer, 1));
    }
}

#endif
