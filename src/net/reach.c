/* SPDX-License-Identifier: Apache-2.0
 *
 * reach.c: the interfaces of this machine, and which of many places answer.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "net/probe.h"

static bool has_row(const tri_vector *rows, size_t first, const char *name)
{
    for (size_t i = first; i < rows->count; i++) {
        if (strcmp(((const tri_interface *)tri_vector_at(rows, i))->name, name) == 0)
            return true;
    }
    return false;
}

static tri_status row_add(tri_vector *rows, const struct ifaddrs *entry, const void *address)
{
    tri_interface row = {.is_up = (entry->ifa_flags & IFF_UP) != 0,
                         .is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};

    snprintf(row.name, sizeof row.name, "%s", entry->ifa_name);
    if (address && !inet_ntop(entry->ifa_addr->sa_family, address, row.address, sizeof row.address))
        row.address[0] = 0;
    return tri_vector_push(rows, &row) ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_interfaces_read(tri_vector *out)
{
    struct ifaddrs *all;
    size_t first = out->count;
    tri_status status = TRI_OK;

    if (getifaddrs(&all) != 0)
        return tri_fail(TRI_EIO, "cannot list the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *at = all; at && status == TRI_OK; at = at->ifa_next) {
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET)
            status = row_add(out, at, &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr);
        else if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET6) {
            const struct sockaddr_in6 *six = (const void *)at->ifa_addr;

            if (!IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
                status = row_add(out, at, &six->sin6_addr);
        }
    }
    for (const struct ifaddrs *at = all; at && status == TRI_OK; at = at->ifa_next) {
        if (!has_row(out, first, at->ifa_name))
            status = row_add(out, at, NULL);
    }
    freeifaddrs(all);
    return status;
}

static int connect_begin(tri_reach *row)
{
    socklen_t nbytes = row->place.any.sa_family == AF_INET ? sizeof row->place.four : sizeof row->place.six;
    int fd = socket(row->place.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    row->error = 0;
    if (fd >= 0 && connect(fd, &row->place.any, nbytes) == 0)
        row->error = 0;
    else
        row->error = errno;
    if (row->error == EINPROGRESS)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void connect_end(tri_reach *row, struct pollfd *poll_row)
{
    socklen_t nbytes = sizeof row->error;

    if (!poll_row->revents)
        return;
    if (getsockopt(poll_row->fd, SOL_SOCKET, SO_ERROR, &row->error, &nbytes) != 0)
        row->error = errno;
    close(poll_row->fd);
    poll_row->fd = -1;
}

tri_status tri_reach_try(tri_reach *rows, size_t count, int limit_ms)
{
    struct pollfd *polls = tri_alloc_zero(count, sizeof *polls);
    int64_t until_ns = tri_deadline_after_ms(limit_ms), left_ns;
    size_t waiting = 0;

    if (!polls)
        return TRI_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        polls[i] = (struct pollfd){.fd = connect_begin(&rows[i]), .events = POLLOUT};
        waiting += polls[i].fd >= 0;
    }
    while (waiting > 0 && (left_ns = until_ns - tri_now_ns()) > 0) {
        if (poll(polls, (nfds_t)count, (int)(left_ns / TRI_NS_PER_MS) + 1) < 0 && errno != EINTR)
            break;
        waiting = 0;
        for (size_t i = 0; i < count; i++) {
            if (polls[i].fd >= 0)
                connect_end(&rows[i], &polls[i]);
            waiting += polls[i].fd >= 0;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (polls[i].fd < 0)
            continue;
        rows[i].error = ETIMEDOUT;
        close(polls[i].fd);
    }
    tri_free(polls);
    return TRI_OK;
}
