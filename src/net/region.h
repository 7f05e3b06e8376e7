/* SPDX-License-Identifier: Apache-2.0
 *
 * region.h: memory that other processes of this host may map, if they know where: an anonymous file (memfd), nothing
 * named.
 *
 * A region carries a random mark behind its bytes; whoever maps it checks the mark, so that a process number that means
 * somebody else here (another container) is found out. Beside the mark are the numbers of the processes that map it.
 */
#ifndef TRI_NET_REGION_H
#define TRI_NET_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What another process needs to reach a region: plain numbers, to be sent. */
typedef struct tri_region_ticket {
    int64_t process, file, nbytes, mark;
} tri_region_ticket;

typedef struct tri_region {
    void *bytes; /* zeros at first, 4 KiB aligned */
    size_t mapped_nbytes;
    int user; /* of a region that was opened: where its process is listed; -1: nowhere */
    tri_region_ticket ticket;
} tri_region;

tri_status tri_region_create(size_t nbytes, tri_region *region);
/* Maps a region of another process of this host, or of this process once more. TRI_EUNSUPPORTED when it cannot be
 * reached from here. */
tri_status tri_region_open(const tri_region_ticket *ticket, tri_region *region);
/* Whether no other process can write to a region of this one: all that opened it have closed it or have ended. */
bool tri_region_is_alone(const tri_region *region);
/* Unmaps; the memory lives as long as anybody maps it. A zeroed region is fine. */
void tri_region_close(tri_region *region);

#endif
