/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_rendezvous.h: authenticated TCP connections to all peers, for those that need one each (ucx, watch).
 */
#ifndef TRI_NET_TCP_RENDEZVOUS_H
#define TRI_NET_TCP_RENDEZVOUS_H

#include "net/rendezvous.h"
#include "net/tcp_address.h"

/* As tri_rendezvous_run, with addresses as other doors have them. `name` is for messages; slot_kib tells different
 * rendezvous of the same ranks apart. */
tri_status tri_tcp_rendezvous(const char *name, int rank, int world, const char *token, const tri_tcp_door *door,
                              uint32_t slot_kib, const char *const *addresses, int64_t deadline_ns,
                              tri_connected_peer **connected);
/* The shortest round trip of a connection, microseconds; 0: not known. */
unsigned tri_tcp_round_trip_us(int fd);
/* Small messages go at once, and near links keep little waiting (where the reasons are, in tcp_rendezvous.c).
 * The kernel gives a connection up when bytes stay unacknowledged, or a peer's window shut, for the time limit of a
 * call: a peer that computes for long does not read, and must not be taken for dead sooner. A host that is gone is
 * noticed on an idle one in 35 s. */
tri_status tri_tcp_tune(int fd, double timeout_s);

#endif
