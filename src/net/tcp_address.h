/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_address.h: where a rank listens, as a text, and back to addresses to try.
 *
 * "<host id>,<port>,<address>,..." with IPv4 and IPv6 addresses in their usual form. Loopback is in the list, and is
 * tried (first) only by those on the same host.
 */
#ifndef TRI_NET_TCP_ADDRESS_H
#define TRI_NET_TCP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>

#include "base/status.h"

#define TRI_TCP_ADDRESS_NBYTES 352

typedef union tri_tcp_place {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} tri_tcp_place;

/* A nonblocking listener on a free port of `interface` (a name or an address; "" = all), and the text for the others.
 */
tri_status tri_tcp_listen(const char *interface, int *listener, char text[TRI_TCP_ADDRESS_NBYTES]);
/* The attempt-th place to try; false: no more, or not an address. */
bool tri_tcp_address_place(const char *text, const char *host_id, int attempt, tri_tcp_place *place);

#endif
