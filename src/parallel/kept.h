/* SPDX-License-Identifier: Apache-2.0
 *
 * kept.h: memory of gradients, which outlives a sync where another one follows.
 *
 * A fresh array is zeros that the system makes page by page, while the first backward pass waits: on a virtual machine
 * that can take longer than a step. One that is used again has what an earlier step left there, as in any second step.
 */
#ifndef TRI_PARALLEL_KEPT_H
#define TRI_PARALLEL_KEPT_H

#include "comm/comm.h"

/* A zeroed one is empty. A function whose `kept` is NULL allocates and frees. */
typedef struct tri_kept {
    tri_group_memory *items;
    int count, room;
} tri_kept;

/* nbytes of memory that are there or new; group: of it (tri_group_alloc_kept; collective), NULL: of this rank. */
tri_status tri_kept_take(tri_kept *kept, tri_group *group, size_t nbytes, void **out);
/* What take() gave. NULL is fine. */
void tri_kept_give(tri_kept *kept, tri_group *group, size_t nbytes, void *memory);
/* Pages that are there, before somebody takes them. shared: of memory that other processes of the host reach. */
tri_status tri_kept_make(tri_kept *kept, size_t nbytes, bool shared);
/* Frees what has none of these lengths. */
void tri_kept_drop_others(tri_kept *kept, const size_t *nbytes, int count);
void tri_kept_fini(tri_kept *kept);

#endif
