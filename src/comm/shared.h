/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.h: what shared.c knows of a group's memory, for the algorithms that read it in place.
 */
#ifndef TRI_COMM_SHARED_H
#define TRI_COMM_SHARED_H

#include "comm/run.h"
#include "net/region.h"

/* One tri_group_alloc. Listed under comm->mutex; its fields do not change afterwards. */
typedef struct tri_shared {
    tri_group *group;
    int count; /* ranks of the group, which may be gone before this is */
    size_t nbytes;
    bool direct;     /* every rank reaches every other one's */
    uint32_t number; /* within the group, the same on all ranks */
    tri_region own;
    tri_region *peers; /* [group->count], empty for this rank */
    char **base;       /* [group->count]: where each rank's memory is for this rank */
    void *plain;       /* instead, where not direct; NULL: `own` serves there, as ordinary memory */
    struct tri_shared *next;
} tri_shared;

/* The direct memory of the group that holds all of [data, data + nbytes), or NULL. */
const tri_shared *tri_shared_find(const tri_group *group, const void *data, size_t nbytes);
/* What rank `rank` has at an offset of the group's region of this number; NULL: there is none. */
char *tri_shared_at(const tri_group *group, uint32_t number, int rank, uint64_t offset);
void tri_shared_free_all(tri_comm *comm);

#endif
