/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: the list of kinds of devices of this build, opened ones, and their arrays as the host sees them.
 */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

extern const tri_device_ops tri_device_cpu, tri_device_fake, tri_device_cuda;

static const tri_device_ops *const kinds[] = {&tri_device_cpu, &tri_device_fake, &tri_device_cuda};
static const tri_device host = {.ops = &tri_device_cpu};

const tri_device *tri_device_host(void)
{
    return &host;
}

const tri_device_ops *tri_device_at(size_t i)
{
    return i < TRI_COUNT_OF(kinds) ? kinds[i] : NULL;
}

#define MOST_DEVICES 1024 /* of a kind */

/* "cuda:1" of a kind named "cuda". */
static bool word_is(const char *word, const char *name, int *index)
{
    const size_t nbytes = strlen(name);
    char *end = NULL;
    *index = 0;
    if (strncmp(word, name, nbytes) != 0)
        return false;
    if (word[nbytes] == 0)
        return true;
    if (word[nbytes] != ':' || word[nbytes + 1] < '0' || word[nbytes + 1] > '9')
        return false;
    const long number = strtol(word + nbytes + 1, &end, 10);
    *index = (int)number;
    return *end == 0 && number < MOST_DEVICES;
}

static tri_status kind_find(const char *word, const tri_device_ops **ops, int *index)
{
    if (strcmp(word, "auto") == 0)
        word = TRI_AUTO_DEVICE;
    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++)
        if (word_is(word, kinds[i]->name, index) && (*index == 0 || kinds[i]->open)) { /* there is one host */
            *ops = kinds[i];
            return TRI_OK;
        }
    return tri_fail(TRI_ECONFIG, "want auto, cpu, cuda or cuda:N, got '%s'", word);
}

bool tri_device_is_card(const char *word)
{
    const tri_device_ops *ops;
    int index;
    return kind_find(word, &ops, &index) == TRI_OK && ops->arithmetic;
}

tri_status tri_device_open(const char *word, tri_device **out)
{
    const tri_device_ops *ops;
    int index;
    TRI_TRY(kind_find(word, &ops, &index));
    tri_device *device = tri_alloc_zero(1, sizeof(*device));
    if (!device)
        return TRI_ENOMEM;
    *device = (tri_device){.ops = ops, .index = index};
    tri_status status = ops->open ? ops->open(device) : TRI_OK;
    if (status != TRI_OK) {
        tri_free(device);
        return status;
    }
    *out = device;
    return TRI_OK;
}

void tri_device_close(tri_device *device)
{
    if (device && device->ops->close)
        device->ops->close(device);
    tri_free(device);
}

void *tri_device_alloc(const tri_device *device, size_t nbytes)
{
    return device->ops->alloc(device, nbytes);
}

void tri_device_free(const tri_device *device, void *memory)
{
    device->ops->free(device, memory);
}

void tri_device_copy(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0)
        device->ops->copy(device, to, from, nbytes);
}

void tri_device_to_host(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0)
        device->ops->to_host(device, to, from, nbytes);
}

void tri_device_from_host(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0)
        device->ops->from_host(device, to, from, nbytes);
}

void tri_device_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes)
{
    if (nbytes > 0)
        device->ops->fill(device, to, byte, nbytes);
}

/* --- copies beside kernels --- */

void *tri_device_host_alloc(const tri_device *device, size_t nbytes)
{
    return device->ops->host_alloc ? device->ops->host_alloc(device, nbytes) : tri_alloc_bulk(nbytes);
}

void tri_device_host_free(const tri_device *device, void *memory)
{
    if (device->ops->host_free)
        device->ops->host_free(device, memory);
    else
        tri_free(memory);
}

bool tri_device_host_pin(const tri_device *device, void *memory, size_t nbytes)
{
    return !device->ops->host_pin || device->ops->host_pin(device, memory, nbytes);
}

void tri_device_host_unpin(const tri_device *device, void *memory)
{
    if (device->ops->host_unpin)
        device->ops->host_unpin(device, memory);
}

void tri_device_copy_out(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0)
        (device->ops->copy_out ? device->ops->copy_out : device->ops->to_host)(device, to, from, nbytes);
}

void tri_device_copy_in(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0)
        (device->ops->copy_in ? device->ops->copy_in : device->ops->from_host)(device, to, from, nbytes);
}

tri_status tri_device_event_create(const tri_device *device, tri_device_event *event)
{
    *event = (tri_device_event){0};
    return device->ops->event_create ? device->ops->event_create(device, event) : TRI_OK;
}

void tri_device_event_destroy(const tri_device *device, tri_device_event *event)
{
    if (event->mark)
        device->ops->event_destroy(device, event);
    *event = (tri_device_event){0};
}

void tri_device_event_record(const tri_device *device, tri_device_event event, tri_device_queue queue)
{
    if (device->ops->event_record)
        device->ops->event_record(device, event, queue);
}

void tri_device_event_order(const tri_device *device, tri_device_event event, tri_device_queue queue)
{
    if (device->ops->event_order)
        device->ops->event_order(device, event, queue);
}

void tri_device_event_wait(const tri_device *device, tri_device_event event)
{
    if (device->ops->event_wait)
        device->ops->event_wait(device, event);
}

/* --- views --- */

tri_status tri_device_view_open(tri_device_view *view, const tri_device *device, void *memory, size_t nbytes)
{
    *view = (tri_device_view){.device = device, .memory = memory, .host = memory, .nbytes = nbytes};
    if (tri_device_shares_host(device))
        return TRI_OK;
    view->host = tri_alloc_bulk(nbytes);
    if (!view->host)
        return TRI_ENOMEM;
    tri_device_view_read(view);
    return TRI_OK;
}

void tri_device_view_read(const tri_device_view *view)
{
    if (!tri_device_shares_host(view->device))
        tri_device_to_host(view->device, view->host, view->memory, view->nbytes);
}

void tri_device_view_write(const tri_device_view *view)
{
    if (!tri_device_shares_host(view->device))
        tri_device_from_host(view->device, view->memory, view->host, view->nbytes);
}

void tri_device_view_close(tri_device_view *view)
{
    if (view->device && !tri_device_shares_host(view->device))
        tri_free(view->host);
    *view = (tri_device_view){0};
}
