/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_cuda.c: a libcuda.so.1 that runs kernels by the emulator: found by the same dlopen (LD_LIBRARY_PATH).
 *
 * Streams are lazy: work is done when the stream is waited for, so that who reads too early reads what was there
 * before. It brings the kernels along, so that a program that was built without nvcc trains on it too. FAKE_CUDA names
 * faults: no_kernels, no_card, old_driver, old_card, no_start, full (the 2nd allocation), and sticky (the
 * 2nd launch fails and so does every call after it).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/library.h"
#include "gpu/emulator.h"
#include "gpu/fake_cuda.h"

#define MOST_WORK  1024
#define CARD_NAME  "Emulated card"
#define ERROR_SICK 700
#define EXPORT     __attribute__((visibility("default")))

typedef struct work {
    int kind; /* 0: launch, 1: copy, 2: fill, 3: call */
    tri_gpu_launch launch;
    void (*run)(void *arg); /* 3; arg: to */
    void *to;
    const void *from; /* owned, where it came from the host */
    int owned;
    unsigned char byte;
    size_t nbytes;
} work;

struct cuda_stream_object {
    work list[MOST_WORK];
    int count;
};

static cuda_result sick; /* what every call gives from now on */
static int allocations, launches;

static int has(const char *fault)
{
    const char *faults = getenv("FAKE_CUDA");
    return faults && strcmp(faults, fault) == 0;
}

static void *copied(const void *from, size_t nbytes)
{
    void *to = malloc(nbytes > 0 ? nbytes : 1);
    if (!to)
        abort();
    memcpy(to, from, nbytes);
    return to;
}

static void run_all(cuda_stream stream)
{
    for (int i = 0; i < stream->count; i++) {
        work *w = &stream->list[i];
        if (w->kind == 0 && tri_emulator_launch(&w->launch) != TRI_OK) {
            fprintf(stderr, "fake libcuda: %s\n", tri_last_error());
            abort();
        }
        if (w->kind == 1)
            memcpy(w->to, w->from, w->nbytes);
        if (w->kind == 2)
            memset(w->to, w->byte, w->nbytes);
        if (w->kind == 3)
            w->run(w->to);
        if (w->kind == 0)
            free((void *)(uintptr_t)w->launch.args);
        if (w->owned)
            free((void *)(uintptr_t)w->from);
    }
    stream->count = 0;
}

static cuda_result add(cuda_stream stream, work w)
{
    if (stream->count == MOST_WORK)
        run_all(stream);
    stream->list[stream->count++] = w;
    return sick;
}

void fake_cuda_call(cuda_stream stream, void (*run)(void *arg), void *arg)
{
    (void)add(stream, (work){.kind = 3, .run = run, .to = arg});
}

/* Each with the arguments of its row. */
#define DECLARE(symbol, name, args) EXPORT cuda_result symbol args;
TRI_CUDA_CALLS(DECLARE)

/* What NVIDIA's library has not: device/cuda/library.h. */
EXPORT const void *trireme_emulated_kernels(void);
const void *trireme_emulated_kernels(void)
{
    return has("no_kernels") ? NULL : "kernels of the emulator";
}

cuda_result cuInit(unsigned flags)
{
    (void)flags;
    return has("no_start") ? 999 : has("no_card") ? CUDA_NO_DEVICE : 0;
}

cuda_result cuDriverGetVersion(int *version)
{
    *version = has("old_driver") ? 11040 : 13000;
    return 0;
}

cuda_result cuGetErrorString(cuda_result result, const char **text)
{
    *text = result == ERROR_SICK ? "an illegal memory access was encountered" : "unknown error";
    return 0;
}

cuda_result cuDeviceGetCount(int *count)
{
    *count = 2;
    return 0;
}

cuda_result cuDeviceGet(cuda_device *device, int index)
{
    *device = index;
    return 0;
}

cuda_result cuDeviceGetName(char *name, int nbytes, cuda_device device)
{
    (void)device;
    snprintf(name, (size_t)nbytes, "%s", CARD_NAME);
    return 0;
}

cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_SMS ? 132 : attribute == CUDA_ATTRIBUTE_MAJOR ? (has("old_card") ? 7 : 9) : 0;
    return 0;
}

cuda_result cuDeviceTotalMem_v2(size_t *nbytes, cuda_device device)
{
    (void)device;
    *nbytes = (size_t)80 << 30;
    return 0;
}

cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device)
{
    static char object[2];
    *context = (cuda_context)(void *)&object[device];
    return 0;
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device)
{
    (void)device;
    return 0;
}

cuda_result cuCtxSetCurrent(cuda_context context)
{
    (void)context;
    return sick;
}

cuda_result cuModuleLoadData(cuda_module *module, const void *image)
{
    static char object;
    *module = (cuda_module)(void *)&object;
    return image ? 0 : 200;
}

cuda_result cuModuleUnload(cuda_module module)
{
    (void)module;
    return 0;
}

cuda_result cuModuleGetFunction(cuda_function *function, cuda_module module, const char *name)
{
    const int kernel = tri_emulator_find(name);
    (void)module;
    *function = (cuda_function)(uintptr_t)(kernel + 1);
    return kernel >= 0 ? sick : 500;
}

cuda_result cuStreamCreate(cuda_stream *stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof(**stream));
    return *stream ? 0 : CUDA_OUT_OF_MEMORY;
}

cuda_result cuStreamDestroy_v2(cuda_stream stream)
{
    run_all(stream);
    free(stream);
    return 0;
}

cuda_result cuStreamSynchronize(cuda_stream stream)
{
    if (sick == 0)
        run_all(stream);
    return sick;
}

cuda_result cuMemAlloc_v2(cuda_memory *memory, size_t nbytes)
{
    void *bytes = has("full") && ++allocations >= 2 ? NULL : aligned_alloc(256, (nbytes + 255) / 256 * 256);
    *memory = (cuda_memory)(uintptr_t)bytes;
    if (bytes)
        memset(bytes, 0xff, nbytes);
    return bytes ? sick : CUDA_OUT_OF_MEMORY;
}

cuda_result cuMemFree_v2(cuda_memory memory)
{
    free((void *)(uintptr_t)memory);
    return sick;
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_memory to, const void *from, size_t nbytes, cuda_stream stream)
{
    return add(
        stream,
        (work){.kind = 1, .to = (void *)(uintptr_t)to, .from = copied(from, nbytes), .owned = 1, .nbytes = nbytes});
}

cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_memory from, size_t nbytes, cuda_stream stream)
{
    return add(stream, (work){.kind = 1, .to = to, .from = (void *)(uintptr_t)from, .nbytes = nbytes});
}

cuda_result cuMemcpyDtoDAsync_v2(cuda_memory to, cuda_memory from, size_t nbytes, cuda_stream stream)
{
    return cuMemcpyDtoHAsync_v2((void *)(uintptr_t)to, from, nbytes, stream);
}

cuda_result cuMemsetD8Async(cuda_memory to, unsigned char byte, size_t nbytes, cuda_stream stream)
{
    return add(stream, (work){.kind = 2, .to = (void *)(uintptr_t)to, .byte = byte, .nbytes = nbytes});
}

cuda_result cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_nbytes, cuda_stream stream, void **args,
                           void **extra)
{
    const int kernel = (int)(uintptr_t)function - 1;
    const size_t nbytes = tri_emulator_args_nbytes(kernel);
    (void)extra;
    if (block_y != 1 || block_z != 1 || shared_nbytes != 0)
        return 1;
    if (has("sticky") && ++launches >= 2)
        sick = ERROR_SICK;
    return add(stream, (work){.launch = {.kernel = kernel,
                                         .grid = {grid_x, grid_y, grid_z},
                                         .threads = (int)block_x,
                                         .args = copied(args[0], nbytes),
                                         .args_nbytes = nbytes}});
}
