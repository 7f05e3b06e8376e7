/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.c: the host itself as a device: bulk memory of base/memory.
 */
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

static void cpu_copy(void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0) {
        memcpy(to, from, nbytes);
    }
}

static void cpu_fill(void *to, unsigned char byte, size_t nbytes)
{
    if (nbytes > 0) {
        memset(to, byte, nbytes);
    }
}

extern const tri_device_ops tri_device_cpu;
const tri_device_ops tri_device_cpu = {
    .name = "cpu",
    .shares_host = true,
    .alloc = tri_alloc_bulk,
    .free = tri_free,
    .copy = cpu_copy,
    .to_host = cpu_copy,
    .from_host = cpu_copy,
    .fill = cpu_fill,
};
