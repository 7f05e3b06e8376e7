/* SPDX-License-Identifier: Apache-2.0
 *
 * hub.h: the place where ranks of one process meet: what hub.c, inproc.c and sim.c share.
 *
 * Of inproc: each rank has a port with a lock and a condition to sleep at, and one pipe for the bytes of each sender,
 * in memory that the sender took when it opened. Bytes move without the lock (ring.h); the lock is only for sleeping.
 */
#ifndef TRI_NET_HUB_H
#define TRI_NET_HUB_H

#include "net/ring.h"
#include "net/transport.h"

typedef struct tri_pipe {
    tri_ring_ends ends;
    tri_ring ring;
} tri_pipe;

typedef enum tri_port_state { TRI_PORT_NEW, TRI_PORT_OPEN, TRI_PORT_CLOSED } tri_port_state;

typedef struct tri_port {
    tri_mutex mutex;
    tri_cond cond;
    atomic_int sleeping;     /* its rank is at the condition, or about to be */
    atomic_int state;        /* tri_port_state */
    _Atomic(tri_pipe *) *in; /* [world], by sender; each is set once by its sender, at the first write */
    _Atomic(char *) token;   /* of whoever listens there for messages (endpoint_hub.c); NULL: nobody yet */
    atomic_bool rung;        /* its wait is to end */
    void *out;               /* memory of the pipes to the others, from when the rank opened */
} tri_port;

typedef struct tri_sim_hub tri_sim_hub; /* sim.c */

struct tri_hub {
    tri_hub_config config;
    _Atomic(tri_pipe *) *pipes; /* [world][world]; memory that is not touched costs none */
    tri_port *ports;
    tri_fabric *fabric;
    tri_sim_hub *sim; /* from the first rank on that opens inside a simulation */
};

/* TRI_EINVAL unless there is a hub and the rank belongs to it. */
tri_status tri_hub_check(const tri_transport_setup *setup, const char *name);
/* Says that a rank listens for messages, and whose. */
tri_status tri_hub_listen(tri_hub *hub, int rank, const char *token);
/* The token of such a rank; NULL: it does not listen. */
const char *tri_hub_listener(const tri_hub *hub, int rank);
/* NULL does nothing. */
void tri_sim_hub_destroy(tri_sim_hub *sim);

/* hub.c: slots of the table of inproc. */
tri_status tri_hub_endpoint_open(const tri_transport_ops *ops, const tri_transport_setup *setup, tri_transport **out);
const char *tri_hub_endpoint_address(const tri_transport *transport);
tri_status tri_hub_endpoint_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns);
tri_status tri_hub_endpoint_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes,
                                       size_t *taken);
tri_status tri_hub_endpoint_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given);
tri_status tri_hub_endpoint_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes);
void tri_hub_endpoint_consume(tri_transport *transport, int peer, size_t nbytes);
tri_status tri_hub_endpoint_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns);
void tri_hub_endpoint_wake(tri_transport *transport);
void tri_hub_endpoint_close(tri_transport *transport);

#endif
