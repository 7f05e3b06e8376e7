/* SPDX-License-Identifier: Apache-2.0
 *
 * library.c: loads libcuda and asks whether it can be used.
 */
#include "device/cuda/library.h"

#include <dlfcn.h>

#include "base/status.h"
#include "device/cuda/once.h"

#define LIBRARY       "libcuda.so.1"
#define OLDEST_DRIVER 12000 /* that knows the kernels' module format and all calls */

const char *tri_cuda_text(const tri_cuda_calls *calls, cuda_result result)
{
    const char *text = NULL;
    return calls->error_string(result, &text) == 0 && text ? text : "an error without a name";
}

static tri_status find_calls(void *library, tri_cuda_calls *calls)
{
#define FIND(symbol, name, args)                                                                                       \
    calls->name = (cuda_result(*) args)dlsym(library, #symbol);                                                        \
    if (!calls->name)                                                                                                  \
        return tri_fail(TRI_EUNSUPPORTED, "%s has no %s: want a driver for CUDA 12 or later", LIBRARY, #symbol);
    TRI_CUDA_CALLS(FIND)
#undef FIND
    const tri_cuda_kernels *(*emulated)(void) =
        (const tri_cuda_kernels *(*)(void))dlsym(library, "trireme_emulated_kernels");
    calls->emulated = emulated ? emulated() : NULL;
    return TRI_OK;
}

static tri_status check_driver(const tri_cuda_calls *calls)
{
    int version = 0, count = 0;
    cuda_result result = calls->driver_version(&version);
    if (result == 0 && version < OLDEST_DRIVER)
        return tri_fail(TRI_EUNSUPPORTED, "the driver is for CUDA %d.%d: want one for CUDA 12 or later", version / 1000,
                        version % 1000 / 10);
    result = result == 0 ? calls->init(0) : result;
    result = result == 0 ? calls->device_count(&count) : result;
    if (result == CUDA_NO_DEVICE || (result == 0 && count == 0))
        return tri_fail(TRI_EUNSUPPORTED, "the driver finds no NVIDIA card");
    if (result != 0)
        return tri_fail(TRI_EUNSUPPORTED, "the driver cannot start: %s", tri_cuda_text(calls, result));
    return TRI_OK;
}

static tri_status driver_load(bool emulated, void *calls)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    (void)emulated; /* the driver's own word */
    if (!library)
        return tri_fail(TRI_EUNSUPPORTED, "there is no NVIDIA driver (%s)", LIBRARY);
    TRI_TRY(find_calls(library, calls));
    return check_driver(calls);
}

tri_status tri_cuda_load(const tri_cuda_calls **out)
{
    static tri_cuda_calls calls;
    static tri_cuda_once once = {.mutex = {.real = PTHREAD_MUTEX_INITIALIZER}};
    *out = &calls;
    return tri_cuda_load_once(&once, driver_load, false, &calls);
}
