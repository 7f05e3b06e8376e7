/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: the list of devices of this build, and their arrays as the host sees them.
 */
#include "device/device.h"

#include <string.h>

#include "base/memory.h"
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

tri_status tri_device_view_open(tri_device_view *view, const tri_device_ops *device, void *memory, size_t nbytes)
{
    *view = (tri_device_view){.device = device, .memory = memory, .host = memory, .nbytes = nbytes};
    if (device->shares_host) {
        return TRI_OK;
    }
    view->host = tri_alloc_bulk(nbytes);
    if (!view->host) {
        return TRI_ENOMEM;
    }
    tri_device_view_read(view);
    return TRI_OK;
}

void tri_device_view_read(const tri_device_view *view)
{
    if (!view->device->shares_host) {
        view->device->to_host(view->host, view->memory, view->nbytes);
    }
}

void tri_device_view_write(const tri_device_view *view)
{
    if (!view->device->shares_host) {
        view->device->from_host(view->memory, view->host, view->nbytes);
    }
}

void tri_device_view_close(tri_device_view *view)
{
    if (view->device && !view->device->shares_host) {
        tri_free(view->host);
    }
    *view = (tri_device_view){0};
}
