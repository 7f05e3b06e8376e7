/* SPDX-License-Identifier: Apache-2.0
 *
 * library.h: NVIDIA's driver, libcuda, loaded when somebody first asks for a card: one program runs with it and
 * without.
 *
 * The few types and numbers of its interface that are used here are declared here, so that no CUDA header is needed.
 */
#ifndef TRI_DEVICE_CUDA_LIBRARY_H
#define TRI_DEVICE_CUDA_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef int cuda_result; /* 0: done */
typedef int cuda_device;
typedef uint64_t cuda_memory; /* an address of the card */
typedef struct cuda_uuid {
    unsigned char bytes[16];
} cuda_uuid;
typedef struct cuda_context_object *cuda_context;
typedef struct cuda_module_object *cuda_module;
typedef struct cuda_function_object *cuda_function;
typedef struct cuda_stream_object *cuda_stream;
typedef struct cuda_event_object *cuda_event;

enum {
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_NOT_READY = 600,
    CUDA_BLOCKING_SYNC = 4, /* of a context: who waits for a stream sleeps */
    CUDA_ATTRIBUTE_KHZ = 13,
    CUDA_ATTRIBUTE_SMS = 16,
    CUDA_ATTRIBUTE_MEMORY_KHZ = 36,
    CUDA_ATTRIBUTE_MEMORY_BITS = 37,
    CUDA_ATTRIBUTE_MAJOR = 75,
    CUDA_ATTRIBUTE_MINOR = 76,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING_SYNC = 1, /* who waits for it sleeps */
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_PORTABLE = 1 /* pinned for all contexts */
};

/* symbol, name here, arguments */
#define TRI_CUDA_CALLS(X)                                                                                              \
    X(cuInit, init, (unsigned flags))                                                                                  \
    X(cuDriverGetVersion, driver_version, (int *version))                                                              \
    X(cuGetErrorString, error_string, (cuda_result result, const char **text))                                         \
    X(cuDeviceGetCount, device_count, (int *count))                                                                    \
    X(cuDeviceGet, device_get, (cuda_device * device, int index))                                                      \
    X(cuDeviceGetName, device_name, (char *name, int nbytes, cuda_device device))                                      \
    X(cuDeviceGetAttribute, device_attribute, (int *value, int attribute, cuda_device device))                         \
    X(cuDeviceTotalMem_v2, device_memory, (size_t * nbytes, cuda_device device))                                       \
    X(cuDeviceGetUuid_v2, device_uuid, (cuda_uuid * uuid, cuda_device device))                                         \
    X(cuDevicePrimaryCtxSetFlags_v2, context_flags, (cuda_device device, unsigned flags))                              \
    X(cuDevicePrimaryCtxRetain, context_retain, (cuda_context * context, cuda_device device))                          \
    X(cuDevicePrimaryCtxRelease_v2, context_release, (cuda_device device))                                             \
    X(cuCtxSetCurrent, context_set, (cuda_context context))                                                            \
    X(cuModuleLoadData, module_load, (cuda_module * module, const void *image))                                        \
    X(cuModuleUnload, module_unload, (cuda_module module))                                                             \
    X(cuModuleGetFunction, module_function, (cuda_function * function, cuda_module module, const char *name))          \
    X(cuStreamCreate, stream_create, (cuda_stream * stream, unsigned flags))                                           \
    X(cuStreamDestroy_v2, stream_destroy, (cuda_stream stream))                                                        \
    X(cuStreamSynchronize, stream_wait, (cuda_stream stream))                                                          \
    X(cuStreamQuery, stream_query, (cuda_stream stream))                                                               \
    X(cuMemGetInfo_v2, memory_info, (size_t * free_nbytes, size_t * total_nbytes))                                     \
    X(cuDeviceGetPCIBusId, device_place, (char *place, int nbytes, cuda_device device))                                \
    X(cuMemAlloc_v2, memory_alloc, (cuda_memory * memory, size_t nbytes))                                              \
    X(cuMemFree_v2, memory_free, (cuda_memory memory))                                                                 \
    X(cuMemHostAlloc, host_alloc, (void **memory, size_t nbytes, unsigned flags))                                      \
    X(cuMemFreeHost, host_free, (void *memory))                                                                        \
    X(cuMemHostRegister_v2, host_register, (void *memory, size_t nbytes, unsigned flags))                              \
    X(cuMemHostUnregister, host_unregister, (void *memory))                                                            \
    X(cuEventCreate, event_create, (cuda_event * event, unsigned flags))                                               \
    X(cuEventDestroy_v2, event_destroy, (cuda_event event))                                                            \
    X(cuEventRecord, event_record, (cuda_event event, cuda_stream stream))                                             \
    X(cuEventSynchronize, event_wait, (cuda_event event))                                                              \
    X(cuEventQuery, event_query, (cuda_event event))                                                                   \
    X(cuEventElapsedTime, event_time, (float *ms, cuda_event begin, cuda_event end))                                   \
    X(cuStreamWaitEvent, stream_order, (cuda_stream stream, cuda_event event, unsigned flags))                         \
    X(cuMemcpyHtoD_v2, copy_from_host_now, (cuda_memory to, const void *from, size_t nbytes))                          \
    X(cuMemcpyDtoH_v2, copy_to_host_now, (void *to, cuda_memory from, size_t nbytes))                                  \
    X(cuMemcpyHtoDAsync_v2, copy_from_host, (cuda_memory to, const void *from, size_t nbytes, cuda_stream stream))     \
    X(cuMemcpyDtoHAsync_v2, copy_to_host, (void *to, cuda_memory from, size_t nbytes, cuda_stream stream))             \
    X(cuMemcpyDtoDAsync_v2, copy_within, (cuda_memory to, cuda_memory from, size_t nbytes, cuda_stream stream))        \
    X(cuMemsetD8Async, memory_fill, (cuda_memory to, unsigned char byte, size_t nbytes, cuda_stream stream))           \
    X(cuLaunchKernel, launch,                                                                                          \
      (cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,  \
       unsigned block_z, unsigned shared_nbytes, cuda_stream stream, void **args, void **extra))

/* A module of kernels. */
typedef struct tri_cuda_kernels {
    const void *image;
    int version;      /* of the compiler's CUDA: drivers load modules of their own major version and of older ones */
    const char *text; /* hash of what they were compiled from: cmake/TriremeCuda.cmake */
} tri_cuda_kernels;

typedef struct tri_cuda_calls {
#define TRI_CUDA_FIELD(symbol, name, args) cuda_result(*name) args;
    TRI_CUDA_CALLS(TRI_CUDA_FIELD)
#undef TRI_CUDA_FIELD
    /* Those that the library brings along: of the tests' emulator. NULL: it is NVIDIA's. */
    const tri_cuda_kernels *emulated;
} tri_cuda_calls;

/* The driver, ready to use, with at least one card. TRI_EUNSUPPORTED: the sentence says why there is none. Stays
 * loaded.
 */
tri_status tri_cuda_load(const tri_cuda_calls **out);
/* "cannot allocate 8 bytes: out of memory" of a call that did not give 0. */
const char *tri_cuda_text(const tri_cuda_calls *calls, cuda_result result);

#endif
