/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_nccl_impl.h: what strategies between cards share: sync_nccl.c, and sync_nccl_zero.c for state that is spread.
 */
#ifndef TRI_PARALLEL_SYNC_NCCL_IMPL_H
#define TRI_PARALLEL_SYNC_NCCL_IMPL_H

#include "base/status.h"
#include "parallel/bucket.h"
#include "parallel/fetch.h"
#include "parallel/nccl_sums.h"
#include "parallel/sync_impl.h"

/* Weights that were gathered. */
typedef struct nccl_buffer {
    tri_device_event gathered, left; /* left: kernels that read them are done */
} nccl_buffer;

/* zero1 to zero3. Gradients are arrays as long as the store (zero1, and where a batch is computed in pieces), or pass
 * through rooms: from when a kernel first writes a unit's gradient to when its sum is formed. */
typedef struct nccl_zero {
    tri_units units;
    int *missing; /* [units.count]: gradients that are not complete in this step */
    int *full;    /* [full_count] units that are, in the order of the backward pass */
    int full_count;
    int released, landed; /* of `full`: the sums of the first ones are under way, and there */
    tri_sync_piece *pieces;
    bool whole;
    float *shares;            /* not whole, memory of the device: sums of this rank's shares, */
    float **sums;             /* [units.count] where each is */
    tri_pool rooms;           /* not whole */
    int *room;                /* [units.count]: of a unit; -1: none */
    int open;                 /* units whose gradients are being written */
    tri_device_event *summed; /* [units.count] */
    tri_fetch fetch;          /* zero3 */
    tri_vector buffers;       /* nccl_buffer: of the pool of `fetch` */
    int64_t waited_ns;        /* for rooms, since it was made */
} nccl_zero;

typedef struct sync_nccl {
    tri_sync base;
    tri_group *group;
    const tri_params *params;
    const tri_device *device;
    tri_device beside; /* the same card: its queue has the sums */
    int64_t leaves;
    int part_count;
    bool overlap;
    tri_buckets buckets; /* allreduce */
    nccl_zero zero;
    float **lent; /* [gradients]: sums that stages share, on the host; NULL: no other stage asks */
    bool *is_lent;
    tri_nccl_sums *sums;
    float *tail_memory;          /* of the device, where gradients have no arrays: [part_count][TRI_PARAMS_TAIL] */
    float **tails;               /* [part_count]: the host's */
    float *tail_read;            /* [part_count] rows that kernels write: pinned */
    tri_device_event computed;   /* gradients so far */
    tri_device_event tail_there; /* in tail_read */
    tri_status status;           /* first failure of a sum; then there are no more */
    char message[TRI_ERROR_NBYTES];
    char *failed; /* of tri_sync_cards */
} sync_nccl;

static inline sync_nccl *nccl_of(tri_sync *sync)
{
    return tri_container_of(sync, sync_nccl, base);
}

static inline bool nccl_is_spread(const sync_nccl *nccl)
{
    return nccl->base.ops->spread != TRI_SPREAD_NOTHING;
}

/* sync_nccl.c. follow: what NCCL does from now on sees what kernels so far have made. explain: after a failure: which
 * rank is lost, as the comm knows it, or what NCCL says. */
void tri_sync_nccl_keep_failure(sync_nccl *nccl, tri_status status);
void tri_sync_nccl_follow(const sync_nccl *nccl);
tri_status tri_sync_nccl_explain(sync_nccl *nccl);
float *tri_sync_nccl_tail(const sync_nccl *nccl, int part);
/* Slots of all rows; lent_return: other stages may have changed the sums that they asked for. */
tri_status tri_sync_nccl_begin(tri_sync *sync);
void tri_sync_nccl_ready(tri_sync *sync, int number);
tri_status tri_sync_nccl_finish(tri_sync *sync, tri_sync_slice *slice);
float *tri_sync_nccl_sum(tri_sync *sync, int number, int64_t *count);
void tri_sync_nccl_lent_return(const sync_nccl *nccl);
void tri_sync_nccl_stop(tri_sync *sync);
void tri_sync_nccl_end(tri_sync *sync);
void tri_sync_nccl_destroy(tri_sync *sync);
#define TRI_SYNC_NCCL_SLOTS                                                                                            \
    .begin = tri_sync_nccl_begin, .ready = tri_sync_nccl_ready, .finish = tri_sync_nccl_finish,                        \
    .sum = tri_sync_nccl_sum, .stop = tri_sync_nccl_stop, .end = tri_sync_nccl_end, .destroy = tri_sync_nccl_destroy

/* sync_nccl_zero.c. release: sums of what is full; finished: all sums are there. */
tri_status tri_sync_nccl_zero_open(sync_nccl *nccl, const tri_sync_setup *setup);
void tri_sync_nccl_zero_close(sync_nccl *nccl);
void tri_sync_nccl_zero_begin(sync_nccl *nccl);
void tri_sync_nccl_zero_ready(sync_nccl *nccl, int number);
void tri_sync_nccl_zero_release(sync_nccl *nccl);
void tri_sync_nccl_zero_finished(sync_nccl *nccl);
/* Gradients are arrays as long as the store, also where nothing is spread. */
bool tri_sync_nccl_zero_is_whole(const tri_sync_setup *setup, tri_spread spread);
/* Bytes of the device besides the weights that this rank has itself: gradients, and what passes through. */
size_t tri_sync_nccl_zero_nbytes(const tri_sync_setup *setup, const tri_units *units, tri_spread spread, int rank);

#endif
