/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h: sockets and memory files between processes of one machine, without a name that could be left behind.
 *
 * A listener has a random name of 32 hex digits in the abstract name space of unix sockets; memory is a memfd sealed
 * against shrinking and growing, so that nobody can cut it short under those who map it.
 */
#ifndef TRI_NET_LOCAL_H
#define TRI_NET_LOCAL_H

#include "net/rendezvous.h"

#define TRI_LOCAL_NAME_NBYTES 33

/* A nonblocking listener on "@trireme-<name>"; `what` begins a message. */
tri_status tri_local_listen(const char *what, int *listener, char name[TRI_LOCAL_NAME_NBYTES]);
/* For tri_rendezvous.find: an address is such a name. */
bool tri_local_find(void *arg, const char *address, int attempt, tri_rendezvous_place *place);
/* For tri_rendezvous.trusts: whoever can learn the name may connect; memory is for this user alone. */
bool tri_local_trusts(void *arg, int fd);
/* Makes and maps memory for others to map. */
tri_status tri_local_memory(const char *what, size_t nbytes, int *memory_fd, void **map);
/* Is it sealed, and of exactly that length? */
bool tri_local_is_sealed(int memory_fd, size_t nbytes);

#endif
