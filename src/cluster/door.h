/* SPDX-License-Identifier: Apache-2.0
 *
 * door.h: a place at which a process can be tried: it listens as its links do, takes every connection and closes it.
 */
#ifndef TRI_CLUSTER_DOOR_H
#define TRI_CLUSTER_DOOR_H

#include "cluster/members.h"

typedef struct tri_door tri_door;
/* interfaces, ports: comm.interface, comm.ports. */
tri_status tri_door_open(const char *interfaces, const char *ports, tri_door **out);
/* For others; valid while open. */
const char *tri_door_address(const tri_door *door);
void tri_door_close(tri_door *door);
/* Connects to all doors at once, within a second: cut and where of each. */
tri_status tri_doors_try(const tri_door *own, tri_member_reach *reach, int count);

#endif
