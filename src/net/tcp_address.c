/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_address.c: the interfaces of this machine, and the text that tells others about them.
 */
#include "net/tcp_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/host.h"

static bool is_loopback(const tri_tcp_place *place)
{
    return place->any.sa_family == AF_INET ? (ntohl(place->four.sin_addr.s_addr) >> 24) == 127
                                           : IN6_IS_ADDR_LOOPBACK(&place->six.sin6_addr);
}

static socklen_t place_nbytes(const tri_tcp_place *place)
{
    return place->any.sa_family == AF_INET ? sizeof place->four : sizeof place->six;
}

static bool place_parse(const char *text, tri_tcp_place *place)
{
    memset(place, 0, sizeof *place);
    if (inet_pton(AF_INET, text, &place->four.sin_addr) == 1) {
        place->any.sa_family = AF_INET;
        return true;
    }
    if (inet_pton(AF_INET6, text, &place->six.sin6_addr) == 1) {
        place->any.sa_family = AF_INET6;
        return true;
    }
    return false;
}

static void place_print(const tri_tcp_place *place, char text[INET6_ADDRSTRLEN])
{
    const void *address =
        place->any.sa_family == AF_INET ? (const void *)&place->four.sin_addr : (const void *)&place->six.sin6_addr;

    if (!inet_ntop(place->any.sa_family, address, text, INET6_ADDRSTRLEN))
        text[0] = 0;
}

/* An address that others can be told. */
static bool place_of(const struct ifaddrs *entry, tri_tcp_place *place)
{
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
        return false;
    memset(place, 0, sizeof *place);
    if (entry->ifa_addr->sa_family == AF_INET) {
        memcpy(&place->four, entry->ifa_addr, sizeof place->four);
        return true;
    }
    if (entry->ifa_addr->sa_family != AF_INET6)
        return false;
    memcpy(&place->six, entry->ifa_addr, sizeof place->six);
    /* Means nothing without the name of an interface of the other side. */
    return !IN6_IS_ADDR_LINKLOCAL(&place->six.sin6_addr);
}

/* The address of an interface, IPv4 before IPv6. */
static tri_status interface_find(const char *name, tri_tcp_place *place)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all;
    bool found = false;

    if (place_parse(name, place))
        return TRI_OK;
    if (getifaddrs(&all) != 0)
        return tri_fail(TRI_EIO, "tcp: cannot list the network interfaces: %s", strerror(errno));
    for (size_t i = 0; i < TRI_COUNT_OF(families); i++) {
        for (const struct ifaddrs *entry = all; entry && !found; entry = entry->ifa_next)
            found = strcmp(entry->ifa_name, name) == 0 && place_of(entry, place) && place->any.sa_family == families[i];
    }
    freeifaddrs(all);
    if (!found)
        return tri_fail(TRI_ECONFIG, "comm.interface: want an interface that is up or an address of this host, got %s",
                        name);
    return TRI_OK;
}

static int socket_listen(const tri_tcp_place *place)
{
    int off = 0, error;
    int fd = socket(place->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (place->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &place->any, place_nbytes(place)) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void text_add(char text[TRI_TCP_ADDRESS_NBYTES], const tri_tcp_place *place)
{
    char one[INET6_ADDRSTRLEN];
    size_t used = strlen(text);

    place_print(place, one);
    /* More addresses than fit are of no use to anybody. */
    if (used + 1 + strlen(one) < TRI_TCP_ADDRESS_NBYTES)
        snprintf(text + used, TRI_TCP_ADDRESS_NBYTES - used, ",%s", one);
}

/* The addresses of all interfaces: IPv4 first, loopback last. */
static tri_status text_add_all(char text[TRI_TCP_ADDRESS_NBYTES], bool six)
{
    struct ifaddrs *all;
    tri_tcp_place place;

    if (getifaddrs(&all) != 0)
        return tri_fail(TRI_EIO, "tcp: cannot list the network interfaces: %s", strerror(errno));
    for (int pass = 0; pass < 4; pass++) {
        for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
            if (place_of(entry, &place) && (place.any.sa_family == AF_INET6) == (pass % 2 == 1) &&
                is_loopback(&place) == (pass >= 2) && (six || place.any.sa_family == AF_INET))
                text_add(text, &place);
        }
    }
    freeifaddrs(all);
    return TRI_OK;
}

tri_status tri_tcp_listen(const char *interface, int *listener, char text[TRI_TCP_ADDRESS_NBYTES])
{
    tri_tcp_place place = {.six = {.sin6_family = AF_INET6}}, bound;
    socklen_t nbytes = sizeof bound;
    char id[TRI_HOST_ID_NBYTES];
    in_port_t port;

    *listener = -1;
    if (interface[0])
        TRI_TRY(interface_find(interface, &place));
    *listener = socket_listen(&place);
    if (*listener < 0 && !interface[0]) {
        /* A machine without IPv6. */
        place = (tri_tcp_place){.four = {.sin_family = AF_INET}};
        *listener = socket_listen(&place);
    }
    if (*listener < 0 || getsockname(*listener, &bound.any, &nbytes) != 0)
        return tri_fail(TRI_EIO, "tcp: cannot listen on %s: %s", interface[0] ? interface : "any interface",
                        strerror(errno));
    port = bound.any.sa_family == AF_INET ? bound.four.sin_port : bound.six.sin6_port;
    tri_host_id(id);
    snprintf(text, TRI_TCP_ADDRESS_NBYTES, "%s,%u", id, (unsigned)ntohs(port));
    if (!interface[0])
        return text_add_all(text, bound.any.sa_family == AF_INET6);
    text_add(text, &place);
    return TRI_OK;
}

/* Takes the next part of a list up to a comma. */
static bool part_next(const char **text, char part[64])
{
    size_t nbytes = strcspn(*text, ",");

    if (nbytes == 0 || nbytes >= 64)
        return false;
    memcpy(part, *text, nbytes);
    part[nbytes] = 0;
    *text += nbytes + ((*text)[nbytes] == ',');
    return true;
}

bool tri_tcp_address_place(const char *text, const char *host_id, int attempt, tri_tcp_place *place)
{
    char part[64], *end;
    bool same_host;
    const char *list;
    unsigned long port;
    int index = 0;

    if (!part_next(&text, part))
        return false;
    same_host = strcmp(part, host_id) == 0;
    if (!part_next(&text, part))
        return false;
    port = strtoul(part, &end, 10);
    if (*end || port < 1 || port > 65535)
        return false;
    for (int pass = 0; pass < 2; pass++) {
        list = text;
        while (part_next(&list, part)) {
            if (!place_parse(part, place))
                return false;
            if (is_loopback(place) != (pass == 0) || (pass == 0 && !same_host))
                continue;
            if (index++ != attempt)
                continue;
            if (place->any.sa_family == AF_INET)
                place->four.sin_port = htons((in_port_t)port);
            else
                place->six.sin6_port = htons((in_port_t)port);
            return true;
        }
    }
    return false;
}
