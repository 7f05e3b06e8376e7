/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_sums.h: gradients of ranks summed between their cards by NCCL, in one of two orders.
 *
 * Canonical: every rank owns a block. It receives the block of each part of all ranks, adds them by our own kernel in
 * the order of the canonical tree (tensor/tree.h), and hands out the sum: the bits of tri_all_reduce_tree(). Any: NCCL
 * adds in an order of its own. Parts are memory of the device. Everything goes through its queue of kernels, and
 * nothing but tri_nccl_sums_wait() waits until it is done. After a failure no more sums can be made: open them again.
 */
#ifndef TRI_PARALLEL_NCCL_SUMS_H
#define TRI_PARALLEL_NCCL_SUMS_H

#include <trireme/comm.h>

#include "device/cuda/nccl.h"

typedef struct tri_nccl_sums tri_nccl_sums;

typedef struct tri_nccl_setup {
    tri_group *group;
    const tri_device *device;
    bool any_order;
    tri_nccl_limits limits;
    size_t staging_nbytes; /* of the device, for parts of other ranks, at most; 0: 64 MiB */
    int64_t leaves, block; /* of all sums; of a rank, in the largest one. 0: staging is allocated by the first sum */
} tri_nccl_setup;

/* Bytes that sums of such a group take on the device, besides their parts. */
size_t tri_nccl_sums_nbytes(int64_t leaves, int ranks, int64_t block);
/* Elements of the largest block of an all-reduce. */
int64_t tri_nccl_sums_block(int64_t count, int ranks);
/* Collective: what tri_nccl_sums_open() would fail with before it asks NCCL, the same on all ranks; "": nothing.
 * against: what this rank itself says against NCCL, which is then what all get; "": nothing. */
#define TRI_NCCL_WHY_NBYTES 480
tri_status tri_nccl_sums_check(tri_group *group, const tri_device *device, const char *against,
                               char why[TRI_NCCL_WHY_NBYTES]);

/* Collective over the group. All ranks fail with the same sentence: one has no NCCL (TRI_EUNSUPPORTED), their versions
 * differ, two are on one card (TRI_ECONFIG), or one does not come (TRI_ETIMEOUT). *out then stays as it is, unless the
 * abort of NCCL hangs: close says so. */
tri_status tri_nccl_sums_open(const tri_nccl_setup *setup, tri_nccl_sums **out);
/* Collective, unless a call has failed. NULL does nothing. TRI_ETIMEOUT: NCCL hangs. */
tri_status tri_nccl_sums_close(tri_nccl_sums *sums);
/* For who knows that another rank has failed, or fails itself: ends what is under way, before close. TRI_ETIMEOUT: NCCL
 * hangs, nothing on the card can be used, and this process should end. */
tri_status tri_nccl_sums_abort(tri_nccl_sums *sums);
/* "NCCL 2.28.9" */
const char *tri_nccl_sums_name(const tri_nccl_sums *sums);

/* As tri_all_reduce_tree(), of at least one leaf for each rank: parts[0] gets the sum, the others are scratch. */
tri_status tri_nccl_sums_all_reduce(tri_nccl_sums *sums, int64_t leaves, float *const *parts, int part_count,
                                    int64_t count);
/* As tri_reduce_scatter_tree(): out gets this rank's block of the sum, and may lie where that of parts[0] does. The
 * order is the canonical one in both settings; parts are scratch. */
tri_status tri_nccl_sums_reduce_scatter(tri_nccl_sums *sums, int64_t leaves, float *const *parts, int part_count,
                                        const tri_blocks *blocks, float *out);
/* Every rank's block of data, on all ranks. */
tri_status tri_nccl_sums_all_gather(tri_nccl_sums *sums, float *data, const tri_blocks *blocks);
/* Until an event of the device's queue of kernels is over; NULL: until all sums so far are there. */
tri_status tri_nccl_sums_wait(tri_nccl_sums *sums, const tri_device_event *event);

#endif
