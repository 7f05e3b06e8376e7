/* SPDX-License-Identifier: Apache-2.0
 *
 * crowd.h: the callers of a listener that have proven nothing yet: how many there may be, and which one is closed.
 *
 * One rule holds for every listener (store, parameter servers, rendezvous of ranks): the side that dials speaks first.
 * A crowd has a bounded share of the descriptors, and each address a share of the crowd. While it is crowded, a caller
 * that says nothing for 100 ms is closed. A crowd knows no sockets: the owner closes the callers that it is given.
 */
#ifndef TRI_NET_CROWD_H
#define TRI_NET_CROWD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define TRI_CROWD_SHARES 64

enum { TRI_IN_CROWD, TRI_IN_SHARE }; /* the lists that a caller is in */

/* Part of the owner's own struct of a caller. */
typedef struct tri_caller {
    struct tri_caller *next[2], *before[2]; /* of the crowd and of its share, the oldest first */
    uint64_t from;                          /* its address, without the port */
    int64_t since_ns;
    bool has_spoken; /* set by the owner: its first message has come as a whole */
} tri_caller;

typedef struct tri_caller_list {
    tri_caller *first, *last;
    int count;
} tri_caller_list;

typedef struct tri_crowd {
    tri_caller_list all, shares[TRI_CROWD_SHARES]; /* a share: the callers of all addresses with one remainder */
    int limit;
} tri_crowd;

/* An address as callers have it. One host may have all addresses of an IPv6 prefix of 64 bits, so they count as one. */
uint64_t tri_caller_address(const struct sockaddr *address);
/* At most `limit` callers, and at most a quarter of the open files that this process may have. */
void tri_crowd_init(tri_crowd *crowd, int limit);
void tri_crowd_add(tri_crowd *crowd, tri_caller *caller, uint64_t from, int64_t now_ns);
void tri_crowd_remove(tri_crowd *crowd, tri_caller *caller);
/* Is there a place for a caller from this address? *leaves: the caller to close for it; NULL: none. */
bool tri_crowd_admits(const tri_crowd *crowd, uint64_t from, int64_t now_ns, tri_caller **leaves);
/* The oldest caller that has been silent for too long. NULL: none is, and *next_ns is when to ask again. */
tri_caller *tri_crowd_silent(const tri_crowd *crowd, int64_t now_ns, int64_t *next_ns);

#endif
