/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: the list of kinds of devices of this build, opened ones, and their arrays as the host sees them.
 */
#include "device/device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers.h"
#include "base/memory.h"
#include "base/runtime.h"
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

/* "cuda:1" of a kind named "cuda"; index: -1 without a number. */
static bool word_is(const char *word, const char *name, int *index)
{
    const size_t nbytes = strlen(name);
    char *end = NULL;
    *index = -1;
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
        if (word_is(word, kinds[i]->name, index) && (*index <= 0 || kinds[i]->open)) { /* there is one host */
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

/* --- what is allocated --- */

typedef struct usage_array {
    void *memory;
    size_t nbytes;
} usage_array;

struct tri_device_usage {
    tri_mutex mutex;
    tri_vector arrays; /* usage_array */
    size_t live;
    bool planned;
    const tri_device_watch *_Atomic watch; /* threads that load batches copy too */
};

static _Atomic size_t process_live, process_peak, process_planned;

static void process_add(size_t nbytes)
{
    const size_t live = atomic_fetch_add_explicit(&process_live, nbytes, memory_order_relaxed) + nbytes;
    size_t peak = atomic_load_explicit(&process_peak, memory_order_relaxed);
    while (peak < live && !atomic_compare_exchange_weak_explicit(&process_peak, &peak, live, memory_order_relaxed,
                                                                 memory_order_relaxed))
        ;
}

static bool usage_add(tri_device_usage *usage, void *memory, size_t nbytes)
{
    tri_mutex_lock(&usage->mutex);
    const bool added = tri_vector_push(&usage->arrays, &(usage_array){memory, nbytes});
    usage->live += added ? nbytes : 0;
    tri_mutex_unlock(&usage->mutex);
    if (added && !usage->planned)
        process_add(nbytes);
    return added;
}

static void usage_drop(tri_device_usage *usage, const void *memory)
{
    tri_mutex_lock(&usage->mutex);
    usage_array *arrays = usage->arrays.items;
    size_t i = 0;
    while (i < usage->arrays.count && arrays[i].memory != memory)
        i++;
    TRI_ASSERT(i < usage->arrays.count);
    const size_t nbytes = arrays[i].nbytes;
    arrays[i] = arrays[--usage->arrays.count];
    usage->live -= nbytes;
    tri_mutex_unlock(&usage->mutex);
    if (!usage->planned)
        atomic_fetch_sub_explicit(&process_live, nbytes, memory_order_relaxed);
}

static tri_status usage_open(tri_device *device, bool planned)
{
    if (!device->ops->room)
        return TRI_OK;
    device->usage = tri_alloc_zero(1, sizeof(*device->usage));
    if (!device->usage)
        return TRI_ENOMEM;
    tri_mutex_init(&device->usage->mutex);
    device->usage->arrays.each = sizeof(usage_array);
    device->usage->planned = planned;
    return TRI_OK;
}

static void usage_close(tri_device_usage *usage)
{
    if (!usage)
        return;
    tri_vector_fini(&usage->arrays);
    tri_mutex_fini(&usage->mutex);
    tri_free(usage);
}

size_t tri_device_live(const tri_device *device)
{
    tri_mutex_lock(&device->usage->mutex);
    const size_t live = device->usage->live;
    tri_mutex_unlock(&device->usage->mutex);
    return live;
}

tri_device_memory tri_device_memory_now(void)
{
    return (tri_device_memory){atomic_load_explicit(&process_live, memory_order_relaxed),
                               atomic_load_explicit(&process_peak, memory_order_relaxed),
                               atomic_load_explicit(&process_planned, memory_order_relaxed)};
}

void tri_device_memory_planned_set(size_t nbytes)
{
    atomic_store_explicit(&process_planned, nbytes, memory_order_relaxed);
}

/* --- opened ones --- */

/* The word's kind and number, nothing opened. */
static tri_status word_read(const char *word, tri_device *device)
{
    TRI_TRY(kind_find(word, &device->ops, &device->index));
    device->any = device->index < 0;
    device->index = device->any ? 0 : device->index;
    return TRI_OK;
}

static tri_status ops_open(tri_device opened, bool planned, tri_device **out)
{
    tri_device *device = tri_alloc_zero(1, sizeof(*device));
    if (!device)
        return TRI_ENOMEM;
    *device = opened;
    tri_status status = usage_open(device, planned);
    if (status == TRI_OK && device->ops->open)
        status = device->ops->open(device);
    if (status != TRI_OK) {
        usage_close(device->usage);
        tri_free(device);
        return status;
    }
    *out = device;
    return TRI_OK;
}

tri_status tri_device_open(const char *word, tri_device **out)
{
    return tri_device_open_of(word, 0, out);
}

tri_status tri_device_open_of(const char *word, int place, tri_device **out)
{
    tri_device device = {.place = place};
    TRI_TRY(word_read(word, &device));
    return ops_open(device, false, out);
}

tri_status tri_device_plan(const char *word, tri_device **out)
{
    tri_device device = {0};
    TRI_TRY(word_read(word, &device));
    if (device.ops->planned)
        device.ops = device.ops->planned;
    return ops_open(device, true, out);
}

void tri_device_close(tri_device *device)
{
    if (device && device->ops->close)
        device->ops->close(device);
    if (device)
        usage_close(device->usage);
    tri_free(device);
}

void *tri_device_alloc(const tri_device *device, size_t nbytes)
{
    void *memory = device->ops->alloc(device, nbytes);
    if (!memory || !device->usage || usage_add(device->usage, memory, nbytes))
        return memory;
    device->ops->free(device, memory);
    return NULL;
}

void tri_device_free(const tri_device *device, void *memory)
{
    if (memory && device->usage)
        usage_drop(device->usage, memory);
    device->ops->free(device, memory);
}

/* --- watched arrays --- */

bool tri_device_watch_set(const tri_device *device, const tri_device_watch *watch)
{
    const tri_device_watch *none = NULL;
    return device->usage && atomic_compare_exchange_strong(&device->usage->watch, &none, watch);
}

void tri_device_watch_end(const tri_device *device, const tri_device_watch *watch)
{
    if (device->usage && atomic_load(&device->usage->watch) == watch)
        atomic_store(&device->usage->watch, NULL);
}

void tri_device_written(const tri_device *device, const void *memory, size_t nbytes)
{
    const tri_device_watch *watch = device->usage ? atomic_load(&device->usage->watch) : NULL;
    if (!watch)
        return;
    const uintptr_t from = (uintptr_t)watch->memory, to = from + watch->nbytes;
    uintptr_t first = (uintptr_t)memory, end = first + nbytes;
    first = first > from ? first : from;
    end = end < to ? end : to;
    if (first < end)
        watch->changes(watch->arg, first - from, end - first);
}

/* --- copies --- */

void tri_device_copy(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    tri_device_written(device, to, nbytes);
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
    tri_device_written(device, to, nbytes);
    if (nbytes > 0)
        device->ops->from_host(device, to, from, nbytes);
}

void tri_device_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes)
{
    tri_device_written(device, to, nbytes);
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
    tri_device_written(device, to, nbytes);
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

void tri_device_kernels_time(const tri_device *device, int64_t step)
{
    if (device->ops->kernels_time)
        device->ops->kernels_time(device, step);
}

tri_status tri_device_kernels_read(const tri_device *device, tri_device_kernel **out, int64_t *count)
{
    *out = NULL;
    *count = 0;
    return device->ops->kernels_read ? device->ops->kernels_read(device, out, count) : TRI_OK;
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
