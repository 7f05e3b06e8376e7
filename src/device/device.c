/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: the list of devices of this build.
 */
#include "device/device.h"

#include <string.h>

#include "base/status.h"

extern const tri_device_ops tri_device_cpu;

static const tri_device_ops *const devices[] = {&tri_device_cpu};

const tri_device_ops *tri_device_at(size_t i)
{
    return i < TRI_COUNT_OF(devices) ? devices[i] : NULL;
}

const tri_device_ops *tri_device_find(const char *name)
{
    for (size_t i = 0; i < TRI_COUNT_OF(devices); i++) {
        if (strcmp(devices[i]->name, name) == 0) {
            return devices[i];
        }
    }
    return NULL;
}
