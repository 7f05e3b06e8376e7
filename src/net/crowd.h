/* SPDX-License-Identifier: Apache-2.0
 *
 * crowd.h: callers of a listener that have proven nothing yet: how many there may be, and who has to go.
 *
 * One rule for every listener (store, parameter servers, meeting of ranks): who dials speaks first. A crowd has a
 * bounded share of the descriptors and each address a share of the crowd; while it is crowded a caller that is silent
 * for 100 ms goes. Knows no sockets: the owner closes whom it is given.
 */
#ifndef TRI_NET_CROWD_H
#define TRI_NET_CROWD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Part of the owner's own struct of a caller. */
typedef struct tri_caller {
    struct tri_caller *next, *before; /* of the crowd, the oldest first */
    uint64_t from;                    /* its address, without the port */
    int64_t since_ns;
    bool has_spoken; /* the owner says so */
} tri_caller;

typedef struct tri_crowd {
    tri_caller *first, *last;
    int count, limit;
} tri_crowd;

/* An address as callers have it. */
uint64_t tri_caller_address(const struct sockaddr *address);
/* At most `limit` callers, and at most a quarter of the open files that this process may have. */
void tri_crowd_init(tri_crowd *crowd, int limit);
void tri_crowd_add(tri_crowd *crowd, tri_caller *caller, uint64_t from, int64_t now_ns);
void tri_crowd_remove(tri_crowd *crowd, tri_caller *caller);
/* May one from this address come in? *leaves: who has to go for that; NULL: nobody. */
bool tri_crowd_admits(const tri_crowd *crowd, uint64_t from, int64_t now_ns, tri_caller **leaves);
/* The next one that has been silent for too long; else NULL, and *next_ns is when that may be otherwise. */
tri_caller *tri_crowd_silent(const tri_crowd *crowd, int64_t now_ns, int64_t *next_ns);

#endif
