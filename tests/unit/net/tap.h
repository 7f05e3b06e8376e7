/* SPDX-License-Identifier: Apache-2.0
 *
 * tap.h: somebody in the middle of one TCP connection on this host: passes on what both ends send, keeps all of it, and
 * can put in bytes of its own.
 */
#ifndef TRI_TESTS_TAP_H
#define TRI_TESTS_TAP_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/containers.h"
#include "base/runtime.h"

typedef struct tap {
    int listener, port, to_port; /* dialers call `port`, and reach `to_port` */
    int ends[2];                 /* sockets to the dialer and to the one that listens */
    tri_thread *thread;
    tri_mutex mutex;
    tri_string seen; /* under the mutex */
    atomic_bool stop;
} tap;

static void tap_pass(tap *at, int from)
{
    char bytes[4096];
    ssize_t got = recv(at->ends[from], bytes, sizeof bytes, 0);

    if (got <= 0) {
        shutdown(at->ends[!from], SHUT_WR);
        atomic_store(&at->stop, true);
        return;
    }
    tri_mutex_lock(&at->mutex);
    TRI_ASSERT(tri_string_append_bytes(&at->seen, bytes, (size_t)got) == TRI_OK);
    tri_mutex_unlock(&at->mutex);
    for (ssize_t sent = 0, part; sent < got; sent += part) {
        part = send(at->ends[!from], bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (part <= 0)
            return;
    }
}

static void tap_run(void *arg)
{
    tap *at = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)at->to_port)};
    struct pollfd polls[2] = {{.fd = at->listener, .events = POLLIN}};

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (!atomic_load(&at->stop) && poll(polls, 1, 10) <= 0)
        continue;
    if (atomic_load(&at->stop))
        return;
    at->ends[0] = accept(at->listener, NULL, NULL);
    at->ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TRI_ASSERT(at->ends[0] >= 0 && connect(at->ends[1], (struct sockaddr *)&to, sizeof to) == 0);
    for (int end = 0; end < 2; end++)
        polls[end] = (struct pollfd){.fd = at->ends[end], .events = POLLIN};
    while (!atomic_load(&at->stop)) {
        if (poll(polls, 2, 10) <= 0)
            continue;
        for (int end = 0; end < 2; end++)
            if (polls[end].revents)
                tap_pass(at, end);
    }
}

static void tap_open(tap *at, int to_port)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t nbytes = sizeof own;

    *at = (tap){.to_port = to_port, .ends = {-1, -1}};
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    tri_mutex_init(&at->mutex);
    at->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TRI_ASSERT(at->listener >= 0 && bind(at->listener, (struct sockaddr *)&own, sizeof own) == 0 &&
               listen(at->listener, 8) == 0 && getsockname(at->listener, (struct sockaddr *)&own, &nbytes) == 0);
    at->port = ntohs(own.sin_port);
    TRI_ASSERT(tri_thread_start(&at->thread, "tap", tap_run, at) == TRI_OK);
}

/* Whether these bytes have passed, either way. */
static inline bool tap_has(tap *at, const char *bytes, size_t nbytes)
{
    tri_mutex_lock(&at->mutex);
    bool found = at->seen.nbytes > 0 && memmem(at->seen.text, at->seen.nbytes, bytes, nbytes) != NULL;
    tri_mutex_unlock(&at->mutex);
    return found;
}

static inline size_t tap_nbytes(tap *at)
{
    tri_mutex_lock(&at->mutex);
    size_t nbytes = at->seen.nbytes;
    tri_mutex_unlock(&at->mutex);
    return nbytes;
}

static void tap_close(tap *at)
{
    atomic_store(&at->stop, true);
    tri_thread_join(at->thread);
    for (int end = 0; end < 2; end++)
        if (at->ends[end] >= 0)
            close(at->ends[end]);
    close(at->listener);
    tri_string_fini(&at->seen);
    tri_mutex_fini(&at->mutex);
}

#endif
