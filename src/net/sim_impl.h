/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_impl.h: what the files of the simulated network share: messages, pipes, ports.
 *
 * For sim.c and sim_pipe.c only. A pipe exists once something was written. Fibers of one OS thread: no
 * atomics, and nothing here gives way to others but the wait.
 */
#ifndef TRI_NET_SIM_IMPL_H
#define TRI_NET_SIM_IMPL_H

#include "base/sim_process.h"
#include "base/sim_wait.h"
#include "net/hub.h"
#include "net/sim_heap.h"

/* What a rank says to all at once: an abort and a goodbye. */
#define SIM_REST_NBYTES ((size_t)2048)
#define SIM_RESTS       2

typedef struct sim_message {
    struct sim_message *next;
    struct sim_pipe *pipe;
    tri_fabric_trip trip;
    int64_t at_ns; /* when it is there; TRI_FOREVER: not known yet */
    size_t nbytes, read_nbytes;
    unsigned char *bytes;
} sim_message;

typedef struct sim_pipe {
    int from, to;
    sim_message *first, *last;
    size_t held_nbytes;
    uint64_t written_nbytes;
    int64_t latest_ns; /* when the latest that is known is there */
    bool starved;      /* the writer found no room */
    tri_fabric_link link;
} sim_pipe;

typedef struct sim_port {
    tri_sim_sleeper sleeper;
    tri_port_state state;
    const tri_sim_process *process; /* the rank's, NULL: none */
    sim_pipe **in;                  /* [world], by sender; made with the first pipe */
    sim_heap due;                   /* senders, by when a message of theirs is there */
    size_t coming_count;            /* messages in `coming` of its host, for which `due` has room */
    const unsigned char *want;      /* of the wait under way; NULL: none */
    bool rung;                      /* the wait is to end */
    bool freed;                     /* a reader made room for which this rank waited */
    size_t news_seen;               /* of the hub's */
    tri_vector unheard;             /* of int: ranks of these that it could not hear, or did not want to */
    /* Said to all who had no pipe by then. */
    unsigned char *rest;
    struct {
        size_t upto;
        int64_t at_ns;
    } rests[SIM_RESTS];
    int rest_count;
    uint16_t *heard; /* [world], by sender: bytes of its rest that were read */
} sim_port;

/* Where messages wait until it is known when they pass its interface. */
typedef struct sim_host {
    struct tri_sim_hub *sim;
    sim_heap coming; /* messages by head_ns */
    tri_sim_alarm alarm;
} sim_host;

struct tri_sim_hub {
    int world;
    tri_fabric *fabric;
    sim_port *ports;
    sim_host *hosts; /* [hosts] */
    tri_vector news; /* of int: ranks, as they left or said something to all */
};

typedef struct sim_endpoint {
    tri_transport base;
    tri_sim_hub *sim;
    sim_port *port;
    tri_sim_process *process;  /* NULL: none */
    tri_sim_listener listener; /* for its end */
    const atomic_bool *broken;
    const tri_net_config *config;
    bool *lost; /* [world]: peers that were silent for too long */
    size_t window_nbytes;
    int *woken; /* [world] */
    size_t woken_count;
    uint32_t *reported; /* [world]: the wait in which it was reported of each peer */
    uint32_t waits;
    char address[16];
} sim_endpoint;

static inline sim_port *sim_port_of(const sim_endpoint *end, int rank)
{
    return &end->sim->ports[rank];
}

static inline sim_pipe *sim_pipe_of(const sim_endpoint *end, int from, int to)
{
    sim_port *port = sim_port_of(end, to);

    return port->in ? port->in[from] : NULL;
}

/* Until when nothing of the peer gets here: now, or when the cut between the two ends. */
static inline int64_t sim_reach_ns(const sim_endpoint *end, int peer)
{
    return end->process ? tri_sim_process_reach_ns(sim_port_of(end, peer)->process, end->process) : tri_now_ns();
}

/* A rank whose process was killed neither says nor hears anything. */
static inline bool sim_is_dead(const sim_endpoint *end)
{
    return end->process && end->process->dead;
}

/* Messages whose head nobody can come before any more pass the interface of the host (sim_host). */
void tri_sim_host_advance(void *host);
/* This rank left, or said something to all: whoever waits for it looks at that time. */
void tri_sim_news_spread(sim_endpoint *end, int64_t at_ns);
/* What the peer said to all and this rank has not heard yet: bytes that are there, or when the next ones are. */
size_t tri_sim_rest_left(const sim_endpoint *end, int peer, const void **bytes, int64_t *next_ns);

/* Slots of the table. */
tri_status tri_sim_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken);
void tri_sim_write_rest(tri_transport *transport, const void *bytes, size_t nbytes);
tri_status tri_sim_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes);
void tri_sim_consume(tri_transport *transport, int peer, size_t nbytes);
tri_status tri_sim_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given);

#endif
