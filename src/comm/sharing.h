/* SPDX-License-Identifier: Apache-2.0
 *
 * sharing.h: an operation on memory that all ranks of a host reach: what alg_shared.c and alg_staged.c share.
 */
#ifndef TRI_COMM_SHARING_H
#define TRI_COMM_SHARING_H

#include "comm/lane.h"

typedef struct tri_sharing {
    tri_call *call;
    const tri_plan *plan;
    const char *in[TRI_LANE_RANKS_MAX]; /* of every rank, as this one reaches it */
    char *out[TRI_LANE_RANKS_MAX];      /* NULL: gets nothing */
} tri_sharing;

/* Adds elements [first, first + count) of the inputs of all ranks, in plan order, and writes the sum there into the
 * outputs of all others that get it; own: where it goes in this rank's, NULL: nowhere. */
tri_status tri_sharing_add(const tri_sharing *run, int64_t first, int64_t count, char *own);
/* alg_staged.c: the call, by way of the ranks' pages; after a meeting of all. */
tri_status tri_staged_run(const tri_sharing *run);

#endif
