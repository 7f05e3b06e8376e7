/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.h: what the system lets a process do, found out by trying it; for `trireme doctor`.
 *
 * Whatever may kill a process (a limit on files, a filter of system calls) is tried in a child, for a bounded time.
 */
#ifndef TRI_NET_PROBE_H
#define TRI_NET_PROBE_H

#include <stdbool.h>

#include "base/containers.h"
#include "net/tcp_address.h"

#define TRI_PROBE_TEXT_NBYTES 200

typedef struct tri_probe {
    /* Each: "" when it works, else why not. */
    char region[TRI_PROBE_TEXT_NBYTES];    /* shared memory (a memfd), made and filled */
    char neighbour[TRI_PROBE_TEXT_NBYTES]; /* ... and opened by another process */
    char peek[TRI_PROBE_TEXT_NBYTES];      /* another process reads this one's memory (process_vm_readv) */
    char zerocopy[TRI_PROBE_TEXT_NBYTES];  /* a TCP socket takes SO_ZEROCOPY */
    char loopback[TRI_PROBE_TEXT_NBYTES];  /* a connection from 127.0.0.1 to itself */
    char listen[TRI_PROBE_TEXT_NBYTES];    /* listening as a rank does, and the addresses below */
    int64_t shm_nbytes;                    /* of /dev/shm, -1: there is none */
    /* Addresses that ranks of other hosts get, in the order in which they try them; may be empty. */
    char addresses[TRI_TCP_ADDRESS_NBYTES];
} tri_probe;

void tri_probe_run(tri_probe *out);

/* An interface and one of its addresses; one without an address has a row with "". */
typedef struct tri_interface {
    char name[16];
    char address[46];
    bool is_up, is_loopback;
} tri_interface;

/* Appends all of them, in the system's order; link-local addresses of IPv6 are left out. */
tri_status tri_interfaces_read(tri_vector *out);

/* A place to connect to, and how that went. */
typedef struct tri_reach {
    tri_tcp_place place;
    int error; /* 0: somebody listens there; else errno, ETIMEDOUT at the limit */
} tri_reach;

/* Connects to all at once, for at most limit_ms. */
tri_status tri_reach_try(tri_reach *rows, size_t count, int limit_ms);

#endif
