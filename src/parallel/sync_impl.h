/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_impl.h: the strategies that sync.c lists.
 */
#ifndef TRI_PARALLEL_SYNC_IMPL_H
#define TRI_PARALLEL_SYNC_IMPL_H

#include "parallel/sync.h"

extern const tri_sync_ops tri_sync_ddp, tri_sync_zero1, tri_sync_local, tri_sync_diloco;
/* allreduce with parallel.compress: no name of its own. */
extern const tri_sync_ops tri_sync_compressed;

#endif
