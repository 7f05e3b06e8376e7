/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: which machine, and which part of it, this process can share memory and loopback with.
 */
#ifndef TRI_NET_HOST_H
#define TRI_NET_HOST_H

#include <stdbool.h>
#include <stdint.h>

#define TRI_HOST_ID_NBYTES 17

/* 16 hex digits: hash of the machine's boot id and of this process's network and ipc namespaces, so that two containers
 * of one machine differ. */
void tri_host_id(char id[TRI_HOST_ID_NBYTES]);
#define TRI_HOST_NAME_NBYTES 65
/* As people call the machine; "?" where it has no name. */
void tri_host_name(char name[TRI_HOST_NAME_NBYTES]);
/* Cores that this process may use, at least 1. */
int tri_host_cores(void);

/* The same by number, of the first TRI_CORES_MAX. */
#define TRI_CORES_MAX 1024
typedef struct tri_core_set {
    uint64_t bits[TRI_CORES_MAX / 64];
} tri_core_set;
void tri_host_core_set(tri_core_set *set);
/* Do two processes share a core? */
bool tri_core_sets_meet(const tri_core_set *a, const tri_core_set *b);
int tri_core_set_count(const tri_core_set *set);

#endif
