/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_address.c: the interfaces of this machine, and the text that tells others about them.
 *
 * Which of the offered addresses is the right one is not known here: the handshake tries them (dial.c).
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

socklen_t tri_tcp_place_nbytes(const tri_tcp_place *place)
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

void tri_tcp_place_print(const tri_tcp_place *place, char text[INET6_ADDRSTRLEN])
{
    const void *address =
        place->any.sa_family == AF_INET ? (const void *)&place->four.sin_addr : (const void *)&place->six.sin6_addr;

    if (!inet_ntop(place->any.sa_family, address, text, INET6_ADDRSTRLEN))
        text[0] = 0;
}

/* An address that is of use to others. */
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

/* The addresses to listen on. */
typedef struct place_list {
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    int count;
} place_list;

/* More than fit are of no use to anybody. */
static void list_add(place_list *list, const tri_tcp_place *place)
{
    for (int i = 0; i < list->count; i++) {
        if (memcmp(&list->places[i], place, tri_tcp_place_nbytes(place)) == 0)
            return;
    }
    if (list->count < TRI_TCP_PLACES_MAX)
        list->places[list->count++] = *place;
}

/* All addresses of the interfaces that are up, or of the one of this name: IPv4 first, loopback last. */
static void list_add_interfaces(place_list *list, const struct ifaddrs *all, const char *name)
{
    tri_tcp_place place;

    for (int pass = 0; pass < 4; pass++) {
        for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
            if (place_of(entry, &place) && (place.any.sa_family == AF_INET6) == (pass % 2 == 1) &&
                is_loopback(&place) == (pass >= 2) && (!name || strcmp(entry->ifa_name, name) == 0))
                list_add(list, &place);
        }
    }
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

static bool is_any(const tri_tcp_place *place)
{
    return place->any.sa_family == AF_INET ? place->four.sin_addr.s_addr == htonl(INADDR_ANY)
                                           : IN6_IS_ADDR_UNSPECIFIED(&place->six.sin6_addr);
}

/* The addresses of the interfaces that the user named, in the user's order. */
static tri_status list_add_named(place_list *list, const struct ifaddrs *all, const char *names)
{
    char part[64];

    while (*names) {
        const char *rest = names;
        int before = list->count;
        tri_tcp_place place;

        if (!part_next(&rest, part))
            snprintf(part, sizeof part, "%.*s", (int)strcspn(names, ","), names);
        else if (!place_parse(part, &place))
            list_add_interfaces(list, all, part);
        else if (!is_any(&place))
            list_add(list, &place);
        if (list->count == before && before < TRI_TCP_PLACES_MAX)
            return tri_fail(TRI_ECONFIG,
                            "comm.interface: want an interface that is up or an address of this host, got %s", part);
        names = rest;
    }
    return TRI_OK;
}

/* ---- listening */

static void port_set(tri_tcp_place *place, int port)
{
    if (place->any.sa_family == AF_INET)
        place->four.sin_port = htons((in_port_t)port);
    else
        place->six.sin6_port = htons((in_port_t)port);
}

static int socket_listen(const tri_tcp_place *place, bool is_fixed, tri_tcp_place *bound)
{
    int on = 1, error;
    socklen_t nbytes = sizeof *bound;
    int fd = socket(place->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (place->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (is_fixed) /* connections of an earlier listener may still be closing */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &place->any, tri_tcp_place_nbytes(place)) == 0 && listen(fd, SOMAXCONN) == 0 &&
        getsockname(fd, &bound->any, &nbytes) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* On the first port of the range that is free; errno EADDRINUSE: none is. */
static int range_listen(tri_tcp_place place, int first, int last, tri_tcp_place *bound)
{
    int fd = -1;

    for (int port = first; port <= last && fd < 0; port++) {
        port_set(&place, port);
        fd = socket_listen(&place, first > 0, bound);
        if (fd < 0 && errno != EADDRINUSE)
            return -1;
    }
    return fd;
}

tri_status tri_tcp_ports_parse(const char *text, int *first, int *last)
{
    char rest;
    int count = sscanf(text, "%d-%d%c", first, last, &rest);

    if (!text[0]) {
        *first = *last = 0;
        return TRI_OK;
    }
    if (count == 1 && text[strspn(text, "0123456789")] == 0)
        *last = *first;
    else if (count != 2)
        *first = -1;
    if (*first < 1 || *last > 65535 || *first > *last)
        return tri_fail(TRI_ECONFIG, "comm.ports: want a range of ports such as 40000-40100, got '%.40s'", text);
    return TRI_OK;
}

static in_port_t port_of(const tri_tcp_place *place)
{
    return place->any.sa_family == AF_INET ? place->four.sin_port : place->six.sin6_port;
}

tri_status tri_tcp_listen(const char *interfaces, const char *ports, int listeners[TRI_TCP_PLACES_MAX], int *count,
                          char text[TRI_TCP_ADDRESS_NBYTES])
{
    place_list list = {.count = 0};
    char id[TRI_HOST_ID_NBYTES], one[INET6_ADDRSTRLEN];
    struct ifaddrs *all;
    tri_status status = TRI_OK;
    int error = EADDRNOTAVAIL, first, last;

    *count = 0;
    TRI_TRY(tri_tcp_ports_parse(ports, &first, &last));
    tri_host_id(id);
    snprintf(text, TRI_TCP_ADDRESS_NBYTES, "%s", id);
    if (getifaddrs(&all) != 0)
        return tri_fail(TRI_EIO, "tcp: cannot list the network interfaces: %s", strerror(errno));
    if (interfaces[0])
        status = list_add_named(&list, all, interfaces);
    else
        list_add_interfaces(&list, all, NULL);
    freeifaddrs(all);
    TRI_TRY(status);
    for (int i = 0; i < list.count; i++) {
        tri_tcp_place bound;
        size_t used = strlen(text);
        int fd = range_listen(list.places[i], first, last, &bound);

        tri_tcp_place_print(&list.places[i], one);
        if (fd < 0) {
            error = errno;
            if (first > 0 && error == EADDRINUSE)
                return tri_fail(TRI_EIO,
                                "comm.ports: want a free port for each listener of a rank (3 at most), got none "
                                "of %s on %s",
                                ports, one);
            /* An address that goes away or is still being checked is not worth a failure, unless the user named it. */
            if (interfaces[0])
                return tri_fail(TRI_EIO, "tcp: cannot listen on %s (comm.interface = %s): %s", one, interfaces,
                                strerror(error));
            continue;
        }
        listeners[(*count)++] = fd;
        snprintf(text + used, TRI_TCP_ADDRESS_NBYTES - used, ",%s/%u", one, (unsigned)ntohs(port_of(&bound)));
    }
    if (*count == 0)
        return tri_fail(TRI_EIO, "tcp: cannot listen on any interface: %s", strerror(error));
    return TRI_OK;
}

/* ---- the text of another */

static bool part_place(char part[64], tri_tcp_place *place)
{
    char *slash = strchr(part, '/'), *end;
    unsigned long port;

    if (!slash || slash[1] < '0' || slash[1] > '9')
        return false;
    *slash = 0;
    port = strtoul(slash + 1, &end, 10);
    if (*end || port < 1 || port > 65535 || !place_parse(part, place))
        return false;
    port_set(place, (int)port);
    return true;
}

static int text_places(const char *text, tri_tcp_place places[TRI_TCP_PLACES_MAX])
{
    char part[64];
    int count = 0;

    if (!part_next(&text, part))
        return 0;
    while (count < TRI_TCP_PLACES_MAX && part_next(&text, part)) {
        if (!part_place(part, &places[count++]))
            return 0;
    }
    return count;
}

/* Leading bits that two addresses have in common, out of 32; -1: of different kinds. */
static int bits_alike(const tri_tcp_place *a, const tri_tcp_place *b)
{
    bool four = a->any.sa_family == AF_INET;
    const unsigned char *x = four ? (const unsigned char *)&a->four.sin_addr : a->six.sin6_addr.s6_addr;
    const unsigned char *y = four ? (const unsigned char *)&b->four.sin_addr : b->six.sin6_addr.s6_addr;
    int bits = 0, limit = four ? 32 : 128;

    if (a->any.sa_family != b->any.sa_family)
        return -1;
    while (bits < limit && ((x[bits / 8] ^ y[bits / 8]) >> (7 - bits % 8) & 1) == 0)
        bits++;
    return four ? bits : bits / 4;
}

/* How likely a place is to be near: the larger, the earlier it is tried. */
static int place_rank(const tri_tcp_place *place, bool same_host, const tri_tcp_place *own, int own_count)
{
    int most = 0;

    if (same_host)
        return is_loopback(place);
    for (int i = 0; i < own_count; i++) {
        int bits = bits_alike(place, &own[i]);

        if (bits == 32)
            return -1;
        most = bits > most ? bits : most;
    }
    return most;
}

int tri_tcp_places(const char *text, const char *own, tri_tcp_place places[TRI_TCP_PLACES_MAX])
{
    tri_tcp_place all[TRI_TCP_PLACES_MAX], mine[TRI_TCP_PLACES_MAX];
    int count = text_places(text, all), mine_count = text_places(own, mine), kept = 0;
    int ranks[TRI_TCP_PLACES_MAX];
    bool same_host = tri_tcp_same_host(text, own);

    for (int i = 0; i < count; i++) {
        int rank = place_rank(&all[i], same_host, mine, mine_count), at = kept;

        if (!same_host && is_loopback(&all[i]))
            continue;
        for (; at > 0 && ranks[at - 1] < rank; at--) {
            ranks[at] = ranks[at - 1];
            places[at] = places[at - 1];
        }
        ranks[at] = rank;
        places[at] = all[i];
        kept++;
    }
    return kept;
}

bool tri_tcp_same_host(const char *text, const char *other)
{
    size_t nbytes = strcspn(text, ",");

    return nbytes > 0 && nbytes == strcspn(other, ",") && memcmp(text, other, nbytes) == 0;
}

void tri_tcp_place_where(const tri_tcp_place *place, char text[TRI_TCP_WHERE_NBYTES])
{
    char one[INET6_ADDRSTRLEN];

    tri_tcp_place_print(place, one);
    snprintf(text, TRI_TCP_WHERE_NBYTES, "%s/%u", one, (unsigned)ntohs(port_of(place)));
}

void tri_tcp_door_close(tri_tcp_door *door)
{
    for (int i = 0; i < door->count; i++)
        close(door->listeners[i]);
    door->count = 0;
}

tri_status tri_tcp_door_open(const char *interfaces, const char *ports, tri_tcp_door *door)
{
    tri_status status;

    *door = (tri_tcp_door){.count = 0};
    status = tri_tcp_listen(interfaces, ports, door->listeners, &door->count, door->address);
    if (status != TRI_OK)
        tri_tcp_door_close(door);
    return status;
}
