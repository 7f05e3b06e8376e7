/* SPDX-License-Identifier: Apache-2.0
 *
 * hub.h: what inproc.c and sim.c share: ports, pipes, and the transport over them.
 *
 * Each rank has a port with a lock and a condition to sleep at, and one pipe for the bytes of each sender, in memory
 * that the sender took when it opened. Bytes move without the lock (ring.h); the lock is only for sleeping. A modelled
 * pipe (sim) holds bytes back until their arrival time.
 */
#ifndef TRI_NET_HUB_H
#define TRI_NET_HUB_H

#include "net/ring.h"
#include "net/transport.h"

/* Bytes up to `upto` (in the count of the ring's tail) arrive at `at_ns`. */
typedef struct tri_pipe_stamp {
    uint64_t upto;
    int64_t at_ns;
} tri_pipe_stamp;

#define TRI_PIPE_STAMPS 128

/* Only for pipes inside a simulation, where fibers of one thread use it. */
typedef struct tri_pipe_model {
    tri_pipe_stamp stamps[TRI_PIPE_STAMPS]; /* in flight, a ring, in order of both fields */
    size_t first, count;
    uint64_t arrived;    /* bytes ever visible */
    int64_t sent_all_ns; /* when the link has put all bytes so far on the wire */
    int64_t latest_ns;   /* arrival of the latest */
} tri_pipe_model;

typedef struct tri_pipe {
    tri_ring_ends ends;
    tri_ring ring;
    tri_pipe_model *model; /* NULL: bytes are visible at once */
} tri_pipe;

typedef enum tri_port_state { TRI_PORT_NEW, TRI_PORT_OPEN, TRI_PORT_CLOSED } tri_port_state;

typedef struct tri_port {
    tri_mutex mutex;
    tri_cond cond;
    atomic_int sleeping;     /* its rank is at the condition, or about to be */
    atomic_int state;        /* tri_port_state */
    _Atomic(tri_pipe *) *in; /* [world], by sender; each is set once by its sender, at the first write */
    void *out;               /* memory of the pipes to the others, from when the rank opened */
} tri_port;

struct tri_hub {
    tri_hub_config config;
    tri_port *ports;
};

/* sim.c: the model of a link. */
/* Bytes were written: decides when they arrive. */
void tri_pipe_stamp_written(const tri_hub_config *config, tri_pipe *pipe);
/* How many of the bytes in the ring have arrived by now. */
uint64_t tri_pipe_arrived(tri_pipe *pipe);
/* When the next bytes arrive, TRI_FOREVER: none are in flight. */
int64_t tri_pipe_next_ns(const tri_pipe *pipe);

/* hub.c: slots of the two tables. */
tri_status tri_hub_endpoint_open(const tri_transport_ops *ops, const tri_transport_setup *setup, bool modelled,
                                 tri_transport **out);
const char *tri_hub_endpoint_address(const tri_transport *transport);
tri_status tri_hub_endpoint_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns);
tri_status tri_hub_endpoint_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes,
                                       size_t *taken);
tri_status tri_hub_endpoint_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given);
tri_status tri_hub_endpoint_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes);
void tri_hub_endpoint_consume(tri_transport *transport, int peer, size_t nbytes);
tri_status tri_hub_endpoint_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns);
void tri_hub_endpoint_close(tri_transport *transport);

#endif
