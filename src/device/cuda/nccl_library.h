/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_library.h: the functions of libnccl that are used here, loaded when ranks of cards first meet.
 *
 * The few types and numbers of its interface are declared here, so that no header of NCCL is needed.
 */
#ifndef TRI_DEVICE_CUDA_NCCL_LIBRARY_H
#define TRI_DEVICE_CUDA_NCCL_LIBRARY_H

#include <limits.h>
#include <stdbool.h>

#include "device/cuda/library.h"

typedef int nccl_result; /* 0: done */
typedef struct nccl_comm_object *nccl_comm;

typedef struct nccl_unique_id {
    char bytes[128];
} nccl_unique_id;

/* As version 2.14 has it; later versions know by `version` that there is no more. */
typedef struct nccl_config {
    size_t nbytes;
    unsigned magic, version;
    int blocking;
    int unused; /* later versions call it cgaClusterSize */
} nccl_config;

enum {
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
    NCCL_F32 = 7,
    NCCL_SUM = 0,
    NCCL_UNSET = INT_MIN,
    NCCL_CONFIG_VERSION = 21400,
    NCCL_NOT_BLOCKING = 0
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu

/* result, symbol, name here, arguments */
#define TRI_NCCL_CALLS(X)                                                                                              \
    X(nccl_result, ncclGetVersion, version, (int *version))                                                            \
    X(nccl_result, ncclGetUniqueId, unique_id, (nccl_unique_id * id))                                                  \
    X(nccl_result, ncclCommInitRankConfig, comm_create,                                                                \
      (nccl_comm * comm, int count, nccl_unique_id id, int rank, nccl_config *config))                                 \
    X(nccl_result, ncclCommGetAsyncError, comm_state, (nccl_comm comm, nccl_result * state))                           \
    X(nccl_result, ncclCommFinalize, comm_finalize, (nccl_comm comm))                                                  \
    X(nccl_result, ncclCommDestroy, comm_destroy, (nccl_comm comm))                                                    \
    X(nccl_result, ncclCommAbort, comm_abort, (nccl_comm comm))                                                        \
    X(const char *, ncclGetErrorString, error_string, (nccl_result result))                                            \
    X(const char *, ncclGetLastError, last_error, (nccl_comm comm))                                                    \
    X(nccl_result, ncclGroupStart, group_start, (void))                                                                \
    X(nccl_result, ncclGroupEnd, group_end, (void))                                                                    \
    X(nccl_result, ncclSend, send,                                                                                     \
      (const void *from, size_t count, int type, int peer, nccl_comm comm, cuda_stream stream))                        \
    X(nccl_result, ncclRecv, receive,                                                                                  \
      (void *to, size_t count, int type, int peer, nccl_comm comm, cuda_stream stream))                                \
    X(nccl_result, ncclAllReduce, all_reduce,                                                                          \
      (const void *from, void *to, size_t count, int type, int op, nccl_comm comm, cuda_stream stream))                \
    X(nccl_result, ncclAllGather, all_gather,                                                                          \
      (const void *from, void *to, size_t count, int type, nccl_comm comm, cuda_stream stream))                        \
    X(nccl_result, ncclBroadcast, broadcast,                                                                           \
      (const void *from, void *to, size_t count, int type, int root, nccl_comm comm, cuda_stream stream))

typedef struct tri_nccl_calls {
#define TRI_NCCL_FIELD(result, symbol, name, args) result(*name) args;
    TRI_NCCL_CALLS(TRI_NCCL_FIELD)
#undef TRI_NCCL_FIELD
} tri_nccl_calls;

/* That of this machine; emulated: that of the tests, beside their driver. Stays loaded. TRI_EUNSUPPORTED: one sentence
 * says why there is none. */
tri_status tri_nccl_load(bool emulated, const tri_nccl_calls **out);

#endif
