/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_impl.h: the strategies that sync.c lists.
 */
#ifndef TRI_PARALLEL_SYNC_IMPL_H
#define TRI_PARALLEL_SYNC_IMPL_H

#include "parallel/sync.h"

extern const tri_sync_ops tri_sync_ddp, tri_sync_zero1, tri_sync_zero2, tri_sync_zero3, tri_sync_local, tri_sync_diloco,
    tri_sync_ps;
/* allreduce with parallel.compress: no name of its own. */
extern const tri_sync_ops tri_sync_compressed;

/* sync_staged.c: the strategy `ops` for params of a device that shares no memory with the host. read and write bring
 * the weights to the strategy's arrays, and back; hear: it has another step, and weights on their way. All do nothing
 * for a strategy that works on the store itself. */
tri_status tri_sync_staged_create(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync **out);
/* From what the strategy itself keeps to what is kept with it. */
void tri_sync_staged_memory(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync_bytes *bytes);
void tri_sync_staged_read(tri_sync *sync);
void tri_sync_staged_write(tri_sync *sync);
void tri_sync_staged_hear(tri_sync *sync);

/* sync_nccl.c, sync_nccl_zero.c: for setup->cards.nccl; rows without `create`. */
extern const tri_sync_ops tri_sync_nccl, tri_sync_nccl_zero1, tri_sync_nccl_zero2, tri_sync_nccl_zero3;
tri_status tri_sync_nccl_create(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync **out);
tri_status tri_sync_nccl_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes);

/* Bytes that sums of this many ranks take there, besides gradients. */
tri_status tri_sync_compressed_nbytes(const tri_sync_setup *setup, int ranks, size_t *nbytes);

/* Gradient arrays of all parts, with tails; collective: the first part is reduced in place by all ranks of a host. */
tri_status tri_sync_arrays_alloc(tri_group *group, const tri_params *params, int part_count, tri_kept *kept,
                                 float ***out);
/* Arrays NULL: nothing. */
void tri_sync_arrays_free(tri_group *group, const tri_params *params, int part_count, tri_kept *kept, float **arrays);

#endif
