/* SPDX-License-Identifier: Apache-2.0
 *
 * fabric.h: how long bytes travel between simulated ranks: the figures, and the arithmetic on virtual time.
 *
 * A message from one host to another waits for the sender's processor, its link and its host's interface, sets out,
 * reaches the other interface a latency later and passes it one after the other with all that come there. Inside a host
 * there is only the link, with figures of its own. All of it follows from the seed of the simulation.
 */
#ifndef TRI_NET_FABRIC_H
#define TRI_NET_FABRIC_H

#include "base/options.h"
#include "base/runtime.h"

#define TRI_FABRIC_OPTIONS(X)                                                                                          \
    X(REAL, latency_us, "20", 0, 1e9, NULL, "one way between two hosts")                                               \
    X(INT, bandwidth, "1200M", 0, 1e15, NULL, "bytes a second of one link between hosts, 0 = no limit")                \
    X(INT, node_bandwidth, "1200M", 0, 1e15, NULL,                                                                     \
      "bytes a second of a host's interface, each way, for all its links together, 0 = no limit")                      \
    X(REAL, message_us, "0.5", 0, 1e6, NULL, "time of the sender's processor for one message")                         \
    X(INT, ranks_per_host, "1", 1, 1e6, NULL, "ranks that share a host and its interface")                             \
    X(REAL, local_latency_us, "1", 0, 1e9, NULL, "one way inside a host")                                              \
    X(INT, local_bandwidth, "5000M", 0, 1e15, NULL, "bytes a second of one link inside a host, 0 = no limit")          \
    X(REAL, jitter_us, "0", 0, 1e9, NULL, "up to this much more for each message, at random")                          \
    X(REAL, loss, "0", 0, 0.5, NULL, "share of packets between hosts that are lost and sent again")                    \
    X(INT, packet, "1500", 64, 1e9, NULL, "bytes of a packet")                                                         \
    X(REAL, resend_us, "1000", 0, 1e9, NULL, "after how long a lost packet is sent again")                             \
    X(REAL, stragglers, "0", 0, 1e6, NULL, "ranks with a slow processor: below 1 a share of all, else a number")       \
    X(REAL, slowdown, "4", 1, 1e6, NULL, "how many times longer a straggler adds and sends a message")                 \
    X(INT, add_rate, "8000M", 0, 1e15, NULL, "bytes a second that a rank adds, 0 = in no time")
typedef struct tri_fabric_config {
    TRI_FABRIC_OPTIONS(TRI_OPTION_FIELD)
} tri_fabric_config;
/* Section "sim". A configuration of zeros is a network that costs no time. */
extern const tri_option_table tri_fabric_options;

typedef struct tri_fabric tri_fabric;
/* host: of each rank, from 0 on, copied; NULL: as many in a row as sim.ranks_per_host says. */
tri_status tri_fabric_create(const tri_fabric_config *config, int world, const int *host, tri_fabric **out);
void tri_fabric_destroy(tri_fabric *fabric);

/* What the fabric remembers of one direction between two ranks: zeros at first. */
typedef struct tri_fabric_link {
    int64_t free_ns;   /* when it has put all bytes so far on the wire */
    int64_t latest_ns; /* when the head of the latest message reaches the other side */
} tri_fabric_link;

/* A message on its way. */
typedef struct tri_fabric_trip {
    int64_t head_ns; /* its first byte reaches the interface of the other host */
    int64_t tail_ns; /* its last byte is there, if that interface has nothing else to do */
} tri_fabric_trip;

/* A message of nbytes is written now (inside a simulation). */
tri_fabric_trip tri_fabric_send(tri_fabric *fabric, int from, int to, tri_fabric_link *link, size_t nbytes);
/* It is late by so much more, and so is what comes behind it on its link. */
void tri_fabric_hold(tri_fabric_link *link, tri_fabric_trip *trip, int64_t ns);
/* It passes the interface of the host of `to`, after all that were given to this call before: when it is there. To be
 * called in the order of head_ns, ranks of one host together; not for messages inside a host. */
int64_t tri_fabric_receive(tri_fabric *fabric, int to, tri_fabric_trip trip, size_t nbytes);
/* Messages between hosts that are written from now on have their head there no earlier than this much later. */
int64_t tri_fabric_ahead_ns(const tri_fabric *fabric);
int tri_fabric_host(const tri_fabric *fabric, int rank);
int tri_fabric_host_count(const tri_fabric *fabric);
const tri_fabric_config *tri_fabric_figures(const tri_fabric *fabric);
/* How many times slower its processor is; the stragglers are drawn at the first call inside the simulation. */
double tri_fabric_slowness(tri_fabric *fabric, int rank);

#endif
