/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_times.c: two events for each launch. Only while a trace is made: recording them costs some microseconds, and
 * the card begins no launch before the event that ends the one before.
 */
#include "device/cuda/kernel_times.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"

#define MOST_LAUNCHES 65536 /* between two calls of tri_cuda_times_read() */

typedef struct timed_launch {
    char name[TRI_DEVICE_NAME_NBYTES];
    int64_t step, sent_nbytes;
    cuda_event begin, end; /* NULL: it could not be recorded */
} timed_launch;

void tri_cuda_times_init(tri_cuda_times *times, const tri_cuda_calls *calls, cuda_stream stream)
{
    *times = (tri_cuda_times){.calls = calls, .stream = stream, .step = -1, .launches = {.each = sizeof(timed_launch)}};
}

static void event_drop(const tri_cuda_times *times, cuda_event event)
{
    if (event)
        (void)times->calls->event_destroy(event);
}

static void launches_drop(tri_cuda_times *times)
{
    const timed_launch *launches = times->launches.items;
    for (size_t i = 0; i < times->launches.count; i++) {
        event_drop(times, launches[i].begin);
        event_drop(times, launches[i].end);
    }
    times->launches.count = 0;
}

void tri_cuda_times_fini(tri_cuda_times *times)
{
    if (!times->calls)
        return;
    launches_drop(times);
    event_drop(times, times->origin);
    tri_vector_fini(&times->launches);
}

static cuda_event event_record(const tri_cuda_times *times)
{
    cuda_event event = NULL;
    if (times->calls->event_create(&event, 0) != 0)
        return NULL;
    if (times->calls->event_record(event, times->stream) == 0)
        return event;
    event_drop(times, event);
    return NULL;
}

void tri_cuda_times_step(tri_cuda_times *times, int64_t step)
{
    times->step = step;
    if (step < 0) {
        launches_drop(times);
        event_drop(times, times->origin);
        times->origin = NULL;
    } else if (!times->origin) {
        times->origin = event_record(times);
        if (!times->origin || times->calls->event_wait(times->origin) != 0)
            times->step = -1;
        times->origin_ns = tri_now_ns();
    }
}

void tri_cuda_times_begin(tri_cuda_times *times, const char *name)
{
    if (times->step < 0 || times->launches.count >= MOST_LAUNCHES)
        return;
    timed_launch launch = {.step = times->step, .sent_nbytes = -1, .begin = event_record(times)};
    snprintf(launch.name, sizeof(launch.name), "%s", name);
    if (!tri_vector_push(&times->launches, &launch))
        event_drop(times, launch.begin);
}

void tri_cuda_times_end(tri_cuda_times *times)
{
    tri_cuda_times_exchange_end(times, -1);
}

void tri_cuda_times_exchange_end(tri_cuda_times *times, int64_t sent_nbytes)
{
    timed_launch *last;
    if (times->step < 0 || times->launches.count == 0)
        return;
    last = tri_vector_at(&times->launches, times->launches.count - 1);
    if (last->end)
        return;
    last->end = event_record(times);
    last->sent_nbytes = sent_nbytes;
}

static bool kernel_make(const tri_cuda_times *times, const timed_launch *launch, tri_device_kernel *out)
{
    float since_ms = 0, took_ms = 0;
    if (!launch->begin || !launch->end || times->calls->event_time(&since_ms, times->origin, launch->begin) != 0 ||
        times->calls->event_time(&took_ms, launch->begin, launch->end) != 0)
        return false;
    *out = (tri_device_kernel){.step = launch->step,
                               .sent_nbytes = launch->sent_nbytes,
                               .start_ns = times->origin_ns + (int64_t)(1e6 * (double)since_ms),
                               .duration_ns = (int64_t)(1e6 * (double)took_ms)};
    snprintf(out->name, sizeof(out->name), "%s", launch->name);
    return true;
}

tri_status tri_cuda_times_read(tri_cuda_times *times, tri_device_kernel **out, int64_t *count)
{
    const timed_launch *launches = times->launches.items;
    *count = 0;
    *out = tri_alloc((times->launches.count + 1) * sizeof(**out));
    if (!*out)
        return TRI_ENOMEM;
    if (times->launches.count > 0 && times->calls->stream_wait(times->stream) == 0)
        for (size_t i = 0; i < times->launches.count; i++)
            *count += kernel_make(times, &launches[i], &(*out)[*count]);
    launches_drop(times);
    return TRI_OK;
}
