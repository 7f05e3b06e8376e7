/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.h: a way for bytes to go from one rank to another: an ordered byte stream each way between each two ranks.
 *
 * One table per transport (inproc, shm, tcp, ucx, sim; `faulty` wraps any). The table is small because it is about
 * bytes only: frames, mismatches and time limits are net.c's, once for all of them. All calls of one transport object
 * come from one thread at a time.
 */
#ifndef TRI_NET_TRANSPORT_H
#define TRI_NET_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"
#include "base/runtime.h"
#include "net/fabric.h"

#define tri_transport_kind_words(W)                                                                                    \
    W(TRI_TRANSPORT_AUTO, "auto")                                                                                      \
    W(TRI_TRANSPORT_SHM, "shm")                                                                                        \
    W(TRI_TRANSPORT_TCP, "tcp")                                                                                        \
    W(TRI_TRANSPORT_UCX, "ucx") W(TRI_TRANSPORT_INPROC, "inproc") W(TRI_TRANSPORT_SIM, "sim")
TRI_ENUM(tri_transport_kind)

#define TRI_NET_OPTIONS(X)                                                                                             \
    X(ENUM, transport, "auto", 0, 0, tri_transport_kind,                                                               \
      "transport; auto: shm (shared memory) inside a host, tcp between hosts; ucx: both; inproc and sim: ranks of "    \
      "one process, in programs and tests")                                                                            \
    X(TEXT, interface, "", 0, 0, NULL,                                                                                 \
      "network interfaces or addresses to use, separated by commas, such as eth0,eth1; with several, each link has a " \
      "connection over each; empty: all that are up, found by trying")                                                 \
    X(TEXT, ports, "", 0, 0, NULL,                                                                                     \
      "TCP ports to listen on, such as 40000-40100, for hosts with a firewall between them: up to 3 per rank and "     \
      "address, 1 per parameter server; empty: any free ports")                                                        \
    X(INT, tcp_connections, "0", 0, 8, NULL,                                                                           \
      "TCP connections between each two ranks; 0: one, or several if the round trip is long")                          \
    X(BOOL, encrypt, "off", 0, 0, NULL,                                                                                \
      "TLS 1.3 on all TCP connections between ranks, with a key from the job's token; cannot be combined with "        \
      "comm.transport ucx and comm.engine mpi")                                                                        \
    X(BOOL, require_token, "off", 0, 0, NULL, "refuse to start without a secret token (TRIREME_TOKEN)")                \
    X(NAME, host, "", 0, 0, NULL,                                                                                      \
      "name of this host: ranks with the same name share memory; empty: detected; for containers that are detected "   \
      "wrongly")                                                                                                       \
    X(REAL, timeout_s, "300", 0.001, 1e6, NULL,                                                                        \
      "longest wait for a peer inside one call (an hour behind files), seconds")                                       \
    X(INT, heartbeat_ms, "100", 0, 60000, NULL,                                                                        \
      "heartbeat interval; three to six missed ones mean failure; 0: no failure detection (to halt a rank in a "       \
      "debugger)")                                                                                                     \
    X(INT, slot_kib, "512", 4, 65536, NULL,                                                                            \
      "data in flight per link in shared memory, KiB; over ucx four times as much")                                    \
    X(TEXT, faults, "", 0, 0, NULL,                                                                                    \
      "faults to inject, for tests, as peer:after_bytes:what;... (what: cut, stall, slow, flip; peer *: all)")         \
    X(BOOL, chaos, "off", 0, 0, NULL,                                                                                  \
      "allow trireme chaos to inject faults into this process: disk, clock, weights, slow links; for tests")
typedef struct tri_transport tri_transport;
typedef struct tri_hub tri_hub; /* where ranks of one process meet (inproc, sim) */

typedef struct tri_net_config {
    TRI_NET_OPTIONS(TRI_OPTION_FIELD)
    /* No options: */
    const atomic_bool *broken; /* once it is set, links that are being made are given up; NULL: never */
    tri_hub *hub;              /* where ranks that meet in a store have their links: fibers; NULL: on the network */
    /* Links could not be made in time, and this peer is one that was not reached; where: its address. NULL: nobody
     * asks.
     */
    void (*unmet)(void *arg, int peer, const char *where);
    void *unmet_arg;
} tri_net_config;
extern const tri_option_table tri_net_options; /* section "comm", beside the options of comm/ */

typedef struct tri_transport_setup {
    const tri_net_config *config;
    int rank, world;
    const char *token; /* of the job: both sides of a link prove that they know it */
    tri_hub *hub;      /* inproc, sim; NULL otherwise */
} tri_transport_setup;

/* A piece of what is written. */
typedef struct tri_part {
    const void *bytes;
    size_t nbytes;
} tri_part;
#define TRI_PARTS_MAX 4

/* What the kernel knows of what one side sends on a link; sums since it is up, but for the round trip. */
typedef struct tri_link_load {
    double busy_s; /* something was on its way, or waited for its turn, and the other side had room */
    double acked_nbytes;
    double resent_segments;
    double round_trip_s; /* of late */
} tri_link_load;

typedef struct tri_transport_ops {
    const char *name;
    const char *does; /* one line for --help */
    bool between_hosts;
    /* Listens; nobody is connected yet. */
    tri_status (*open)(const tri_transport_setup *setup, tri_transport **out);
    /* What the others need to reach this rank; no spaces, semicolons or equal signs; valid while open. */
    const char *(*address)(const tri_transport *transport);
    /* Links to every peer whose address is not NULL; returns when all are up both ways. addresses[rank] is ignored. */
    tri_status (*connect)(tri_transport *transport, const char *const *addresses, int64_t deadline_ns);
    /* Takes up to nbytes without blocking; *taken may be 0. TRI_EPEER when the peer is gone. */
    tri_status (*write_some)(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken);
    /* The same with bytes that are in up to TRI_PARTS_MAX pieces. NULL: write_some only. */
    tri_status (*write_parts)(tri_transport *transport, int peer, const tri_part *parts, size_t count, size_t *taken);
    /* Gives up to nbytes without blocking; *given may be 0. TRI_EPEER when the peer is gone and nothing is left. */
    tri_status (*read_some)(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given);
    /* Looks at bytes that have arrived, in place, and later lets them go. NULL: read_some only. */
    tri_status (*peek)(tri_transport *transport, int peer, const void **bytes, size_t *nbytes);
    void (*consume)(tri_transport *transport, int peer, size_t nbytes);
    /* Returns when one of the peers marked in want[peer] (TRI_WANT_READ | TRI_WANT_WRITE) may continue, or at the
     * deadline, or for no reason. Spins a little, then sleeps. */
    tri_status (*wait)(tri_transport *transport, const unsigned char *want, int64_t deadline_ns);
    /* For how long the other host has acknowledged nothing of what was sent to it again and again; 0: all is well.
     * NULL: cannot happen. */
    int64_t (*unanswered_ns)(tri_transport *transport, int peer);
    /* Is the peer known to be gone, or silent for too long? It stays so. NULL: is not known, or a watch (watch.h)
     * tells.
     */
    bool (*has_lost)(tri_transport *transport, int peer);
    /* Ends a wait that is under way or the next one: the only call that may come from another thread at any time. NULL:
     * none can. */
    void (*wake)(tri_transport *transport);
    /* The peers for whom the latest wait returned; valid until the next. NULL: it does not tell. */
    size_t (*woken)(const tri_transport *transport, const int **peers);
    /* Writes to all peers to whom nothing was written before, without blocking; NULL: they are written to like others.
     */
    void (*write_rest)(tri_transport *transport, const void *bytes, size_t nbytes);
    /* How the peer is reached, for people. NULL: its name says all. */
    void (*describe)(const tri_transport *transport, int peer, char *text, size_t capacity);
    /* How long a byte and its answer take, as the kernel has seen it. NULL: not known. */
    int64_t (*round_trip_ns)(const tri_transport *transport, int peer);
    /* Any thread, while the transport is connected. NULL: not known. */
    void (*load)(const tri_transport *transport, int peer, tri_link_load *load);
    void (*close)(tri_transport *transport);
} tri_transport_ops;

#define TRI_WANT_READ  1
#define TRI_WANT_WRITE 2

/* First member of each implementation's struct. */
struct tri_transport {
    const tri_transport_ops *ops;
    int rank, world;
};

extern const tri_transport_ops tri_transport_inproc, tri_transport_shm, tri_transport_tcp, tri_transport_sim;
extern const tri_transport_ops tri_transport_ucx; /* where libucx-dev was there to build it */
/* All of them, NULL at the end. */
extern const tri_transport_ops *const tri_transports[];
/* NULL when there is none of that name. */
const tri_transport_ops *tri_transport_find(const char *name);

/* Wraps (and takes) a transport; behaves as the text says ("faults" above), replayable. */
tri_status tri_transport_faulty(tri_transport *inner, const char *faults, tri_transport **out);

/* A place for `world` ranks of this process (threads: inproc; fibers of a simulation: sim over the modelled network).
 */
typedef struct tri_hub_config {
    int world;
    tri_fabric_config fabric; /* sim; zeros: bytes take no time */
    const int *host;          /* sim: of each rank, from 0 on, borrowed by create; NULL: by sim.ranks_per_host */
} tri_hub_config;
tri_status tri_hub_create(const tri_hub_config *config, tri_hub **out);
void tri_hub_destroy(tri_hub *hub);
/* The fabric of its network; figures and slow ranks can be asked for. */
tri_fabric *tri_hub_fabric(const tri_hub *hub);

#endif
