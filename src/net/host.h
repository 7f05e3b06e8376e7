/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: which machine, and which part of it, this process can share memory and loopback with.
 */
#ifndef TRI_NET_HOST_H
#define TRI_NET_HOST_H

#define TRI_HOST_ID_NBYTES 17

/* 16 hex digits: hash of the machine's boot id and of this process's network and ipc namespaces, so that two containers
 * of one machine differ. */
void tri_host_id(char id[TRI_HOST_ID_NBYTES]);
/* The name that the system has, "" when it has none. */
void tri_host_name(char name[64]);
/* Cores that this process may use, at least 1. */
int tri_host_cores(void);

#endif
