/* SPDX-License-Identifier: Apache-2.0
 *
 * fake.c: a device for tests: the kernels of the CPU, in memory that the host cannot touch.
 *
 * Address space is reserved twice over. The addresses of the device are its first half, which stays closed: whoever
 * dereferences one dies on the spot, by a line that says so. The bytes are at the same place of the second half, which
 * only copies and kernels find (mapped). An address is given once: what was freed is closed for good, and so is the
 * page behind each array. A kernel that is given memory of the host, or of another device, ends the process too.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/closed.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "device/device.h"

#define SPAN_NBYTES ((size_t)16 << 30) /* of addresses */

typedef struct fake_state {
    char *space; /* [2 * SPAN_NBYTES] */
    tri_mutex mutex;
    size_t used; /* of the addresses */
    size_t live; /* arrays */
} fake_state;

/* A page before each array, in the second half. */
typedef struct fake_head {
    size_t nbytes; /* of pages: the head's, and the array's */
    void *counted; /* by base/memory.h, like each array of the host */
} fake_head;

static tri_status fake_open(tri_device *device)
{
    fake_state *fake = tri_alloc_zero(1, sizeof(*fake));
    if (!fake)
        return TRI_ENOMEM;
    fake->space = tri_closed_reserve(2 * SPAN_NBYTES);
    if (!fake->space) {
        tri_free(fake);
        return TRI_ENOMEM;
    }
    tri_mutex_init(&fake->mutex);
    tri_closed_name(fake->space, SPAN_NBYTES, "the host touches memory of the fake device");
    tri_closed_name(fake->space + SPAN_NBYTES, SPAN_NBYTES,
                    "a kernel or a copy passes the end of an array of the fake device");
    device->state = fake;
    return TRI_OK;
}

static void fake_close(tri_device *device)
{
    fake_state *fake = device->state;
    TRI_ASSERT(fake->live == 0);
    tri_closed_unname(fake->space);
    tri_closed_unname(fake->space + SPAN_NBYTES);
    tri_closed_release(fake->space, 2 * SPAN_NBYTES);
    tri_mutex_fini(&fake->mutex);
    tri_free(fake);
}

static fake_head *head_of(const tri_device *device, const void *memory)
{
    return (fake_head *)(void *)((char *)tri_device_mapped(device, memory) - TRI_CLOSED_PAGE);
}

/* Offset of the next `nbytes` addresses, behind which a page stays closed. */
static tri_status addresses_take(fake_state *fake, size_t nbytes, size_t *first)
{
    tri_mutex_lock(&fake->mutex);
    bool full = nbytes > SPAN_NBYTES - TRI_CLOSED_PAGE || fake->used > SPAN_NBYTES - TRI_CLOSED_PAGE - nbytes;
    *first = fake->used;
    fake->used += full ? 0 : nbytes + TRI_CLOSED_PAGE;
    fake->live += !full;
    tri_mutex_unlock(&fake->mutex);
    return full ? tri_fail(TRI_ENOMEM, "the fake device is full: want %zu bytes", nbytes) : TRI_OK;
}

static void live_less(fake_state *fake)
{
    tri_mutex_lock(&fake->mutex);
    fake->live--;
    tri_mutex_unlock(&fake->mutex);
}

static void *fake_alloc(const tri_device *device, size_t nbytes)
{
    fake_state *fake = device->state;
    size_t first, pages = (nbytes / TRI_CLOSED_PAGE + 2) * TRI_CLOSED_PAGE; /* one for the head */
    void *counted = tri_alloc(1);
    if (!counted)
        return NULL;
    if (addresses_take(fake, pages, &first) == TRI_OK) {
        char *hidden = fake->space + SPAN_NBYTES + first;
        if (tri_closed_open(hidden, pages) == TRI_OK) {
            *(fake_head *)(void *)hidden = (fake_head){pages, counted};
            return fake->space + first + TRI_CLOSED_PAGE;
        }
        live_less(fake);
    }
    tri_free(counted);
    return NULL;
}

static void fake_free(const tri_device *device, void *memory)
{
    if (!memory)
        return;
    fake_head *head = head_of(device, memory);
    tri_free(head->counted);
    tri_closed_close(head, head->nbytes);
    live_less(device->state);
}

static void *fake_mapped(const tri_device *device, const void *memory)
{
    const fake_state *fake = device->state;
    size_t at = (uintptr_t)memory - (uintptr_t)fake->space;
    if (!memory)
        return NULL;
    if (at >= SPAN_NBYTES) {
        tri_log(TRI_LOG_ERROR, "the fake device is given memory that is not its own: %p", memory);
        abort();
    }
    return fake->space + SPAN_NBYTES + at;
}

static void fake_copy(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    memcpy(fake_mapped(device, to), fake_mapped(device, from), nbytes);
}

static void fake_to_host(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    memcpy(to, fake_mapped(device, from), nbytes);
}

static void fake_from_host(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    memcpy(fake_mapped(device, to), from, nbytes);
}

static void fake_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes)
{
    memset(fake_mapped(device, to), byte, nbytes);
}

extern const tri_device_ops tri_device_fake;
const tri_device_ops tri_device_fake = {
    .name = "fake",
    .does = "for tests: the CPU's kernels in memory that the host cannot touch",
    .kernels = "cpu",
    .open = fake_open,
    .close = fake_close,
    .alloc = fake_alloc,
    .free = fake_free,
    .copy = fake_copy,
    .to_host = fake_to_host,
    .from_host = fake_from_host,
    .fill = fake_fill,
    .mapped = fake_mapped,
};
