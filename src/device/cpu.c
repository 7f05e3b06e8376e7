/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.c: the host itself as a device: bulk memory of base/memory.
 */
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

static void *cpu_alloc(const tri_device *device, size_t nbytes)
{
    (void)device;
    return tri_alloc_bulk(nbytes);
}

static void cpu_free(const tri_device *device, void *memory)
{
    (void)device;
    tri_free(memory);
}

static void cpu_copy(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    (void)device;
    memcpy(to, from, nbytes);
}

static void cpu_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes)
{
    (void)device;
    memset(to, byte, nbytes);
}

extern const tri_device_ops tri_device_cpu;
const tri_device_ops tri_device_cpu = {
    .name = "cpu",
    .does = "the host's processors and memory",
    .kernels = "cpu",
    .shares_host = true,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .to_host = cpu_copy,
    .from_host = cpu_copy,
    .fill = cpu_fill,
};
