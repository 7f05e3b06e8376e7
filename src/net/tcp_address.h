/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_address.h: where a rank listens, as a text, and back to places to try.
 *
 * "<host id>,<address>/<port>,..." with IPv4 and IPv6 addresses in their usual form. Each address has a listener of its
 * own, bound to it alone. Loopback is in the list, and is tried (first) only by those on the same host.
 */
#ifndef TRI_NET_TCP_ADDRESS_H
#define TRI_NET_TCP_ADDRESS_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

#define TRI_TCP_ADDRESS_NBYTES 448
#define TRI_TCP_PLACES_MAX     8

typedef union tri_tcp_place {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} tri_tcp_place;

#define TRI_TCP_WHERE_NBYTES (INET6_ADDRSTRLEN + 8)

/* "40000-40100" or one port; "": any, 0 to 0. TRI_ECONFIG names the option comm.ports. */
tri_status tri_tcp_ports_parse(const char *text, int *first, int *last);

/* Nonblocking listeners on free ports (of `ports`, see above), at most TRI_TCP_PLACES_MAX, and the text for the others.
 * interfaces: names or addresses, separated by commas; "" = one on each address of an interface that is up. */
tri_status tri_tcp_listen(const char *interfaces, const char *ports, int listeners[TRI_TCP_PLACES_MAX], int *count,
                          char text[TRI_TCP_ADDRESS_NBYTES]);
/* Where a rank listens: a socket at each of its places, and the text that tells the others. */
typedef struct tri_tcp_door {
    int listeners[TRI_TCP_PLACES_MAX];
    int count; /* 0: closed */
    char address[TRI_TCP_ADDRESS_NBYTES];
    const atomic_bool *broken; /* for the rendezvous, set by who holds it; NULL: never */
} tri_tcp_door;

tri_status tri_tcp_door_open(const char *interfaces, const char *ports, tri_tcp_door *door);
/* A zeroed or closed one is fine. */
void tri_tcp_door_close(tri_tcp_door *door);

/* The places that `text` names for somebody whose own text is `own`, those first that are likely to be the nearest:
 * on the same host loopback; else by how many leading bits an address has in common with one of one's own. An address
 * that is also one's own means somebody else here, so it comes last. 0: none, or not an address. */
int tri_tcp_places(const char *text, const char *own, tri_tcp_place places[TRI_TCP_PLACES_MAX]);
socklen_t tri_tcp_place_nbytes(const tri_tcp_place *place);
/* The address alone, without port. */
void tri_tcp_place_print(const tri_tcp_place *place, char text[INET6_ADDRSTRLEN]);
/* With port: "10.0.0.1/40001". */
void tri_tcp_place_where(const tri_tcp_place *place, char text[TRI_TCP_WHERE_NBYTES]);
/* Does a text come from the host of another? */
bool tri_tcp_same_host(const char *text, const char *other);

#endif
