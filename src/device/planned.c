/* SPDX-License-Identifier: Apache-2.0
 *
 * planned.c: a card that is not there: arrays have addresses and lengths, and no memory.
 *
 * A plan builds its part of a job with it (train/core/plan.c), so that what is planned is what would be allocated. No
 * kernel runs, and the host finds zeros in a view.
 */
#include <stdint.h>

#include "base/memory.h"
#include "device/cuda/cuda.h"

#define FIRST ((uintptr_t)1 << 20)
#define ALIGN ((uintptr_t)256)

typedef struct planned_state {
    tri_gpu_queue queue; /* first: device/launch.h */
    uintptr_t next;      /* address */
} planned_state;

static tri_status planned_launch(void *arg, const tri_gpu_launch *launch)
{
    (void)arg;
    return tri_fail(TRI_EINTERNAL, "%s: launched on a card that is not there", launch->symbol);
}

static tri_status planned_open(tri_device *device)
{
    planned_state *s = device->state = tri_alloc_zero(1, sizeof(*s));
    if (!s)
        return TRI_ENOMEM;
    s->queue = (tri_gpu_queue){.launch = planned_launch, .arg = s};
    s->next = FIRST;
    return TRI_OK;
}

static void planned_close(tri_device *device)
{
    tri_free(device->state);
}

static void *planned_alloc(const tri_device *device, size_t nbytes)
{
    planned_state *s = device->state;
    const uintptr_t at = s->next;
    if (nbytes > UINTPTR_MAX / 2 - at) {
        (void)tri_fail(TRI_ENOMEM, "%s: cannot allocate %zu bytes: more than any card has", device->ops->name, nbytes);
        return NULL;
    }
    s->next = at + nbytes + ALIGN - nbytes % ALIGN;
    return (void *)at;
}

static void planned_free(const tri_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

static void planned_copy(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    (void)device;
    (void)to;
    (void)from;
    (void)nbytes;
}

static void planned_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes)
{
    (void)device;
    (void)to;
    (void)byte;
    (void)nbytes;
}

static tri_status planned_room(const tri_device *device, tri_device_room *out)
{
    (void)out;
    return tri_fail(TRI_EUNSUPPORTED, "%s: a plan has no card", device->ops->name);
}

const tri_device_ops tri_device_cuda_planned = {
    .name = "cuda",
    .does = "an NVIDIA card that is not there",
    .kernels = "cuda",
    .open = planned_open,
    .close = planned_close,
    .alloc = planned_alloc,
    .free = planned_free,
    .copy = planned_copy,
    .to_host = planned_copy,
    .from_host = planned_copy,
    .fill = planned_fill,
    .room = planned_room,
};
