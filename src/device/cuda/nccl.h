/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.h: NVIDIA's NCCL between the cards of ranks: a communicator that is non-blocking, and its operations.
 *
 * Whatever waits for other ranks has a time limit. What may hang inside NCCL (its finalize and abort) runs on a thread
 * of its own, which is left behind when its time is over. Operations go through the queue of kernels, between begin and
 * end, and return before they are done. Which ranks meet, and sums in a fixed order: parallel/nccl_sums.h.
 */
#ifndef TRI_DEVICE_CUDA_NCCL_H
#define TRI_DEVICE_CUDA_NCCL_H

#include "device/cuda/cuda.h"
#include "device/cuda/nccl_library.h"

#define TRI_NCCL_NBYTES 32 /* of "NCCL 2.28.9" */

/* Of waits for other ranks. Time in which this process itself was stopped does not count. */
typedef struct tri_nccl_limits {
    int64_t join_ms, exchange_ms, leave_ms; /* leave: of finalize and abort */
    bool (*ended)(void *arg);               /* asked while it waits: has another rank failed? NULL: nobody knows */
    void *arg;
} tri_nccl_limits;

typedef struct tri_nccl {
    const tri_nccl_calls *calls;
    tri_cuda_handles card;
    nccl_comm comm;                   /* NULL: it was aborted */
    struct tri_nccl_call *abort_call; /* made when it is opened: an abort needs no memory; NULL: it was aborted */
    bool hangs;                       /* the abort does, and so what it has queued */
    int rank, count;
    tri_nccl_limits limits;
    nccl_result result;                   /* the first failure since begin */
    const char *failed;                   /* the operation that failed so */
    int64_t sent_nbytes, received_nbytes; /* since begin */
    char name[TRI_NCCL_NBYTES];
} tri_nccl;

/* The version of the library as a number (22809) and in words. TRI_EUNSUPPORTED: one sentence says why there is none.
 */
tri_status tri_nccl_version(int *version, char text[TRI_NCCL_NBYTES]);
/* A thread of this process hangs in NCCL: neither the card is closed, nor do handlers of exit run. */
bool tri_nccl_is_left_behind(void);
void tri_nccl_print(int version, char text[TRI_NCCL_NBYTES]);
/* Rank 0 makes it, and tells it the others. */
tri_status tri_nccl_unique_id(const tri_device *device, nccl_unique_id *id);

/* Collective. Blocks until all ranks are there: TRI_ETIMEOUT, one is not; TRI_EABORT, another rank has failed. After a
 * failure *out stays as it is, unless its abort hangs: then close says so. With NCCL_COMM_BLOCKING=1 in the environment
 * NCCL waits by itself, without a limit. The same thread calls the functions below. */
tri_status tri_nccl_open(const tri_device *device, const nccl_unique_id *id, int rank, int count,
                         const tri_nccl_limits *limits, tri_nccl **out);
/* Collective, unless it was aborted. NULL does nothing. TRI_ETIMEOUT: NCCL hangs, and so may the card's queue. */
tri_status tri_nccl_close(tri_nccl *nccl);
/* Ends what is under way; TRI_ETIMEOUT: NCCL hangs, and this card cannot be used by this process any more. */
tri_status tri_nccl_abort(tri_nccl *nccl);

/* Operations in f32 between these two travel at the same time; end returns when they are queued. name: in traces. */
void tri_nccl_begin(tri_nccl *nccl, const char *name);
void tri_nccl_send(tri_nccl *nccl, const float *data, int64_t count, int to);
void tri_nccl_receive(tri_nccl *nccl, float *data, int64_t count, int from);
/* In place, in an order of NCCL's own. */
void tri_nccl_all_reduce(tri_nccl *nccl, float *data, int64_t count);
/* In place: rank r's block is data[r count .. (r + 1) count). */
void tri_nccl_all_gather(tri_nccl *nccl, float *data, int64_t count);
void tri_nccl_broadcast(tri_nccl *nccl, float *data, int64_t count, int root);
/* After a failure the communicator is aborted. */
tri_status tri_nccl_end(tri_nccl *nccl);
/* Until an event of the queue is over; NULL: until all that was queued is. After a failure the communicator is aborted.
 */
tri_status tri_nccl_wait(tri_nccl *nccl, const tri_device_event *event);

#endif
