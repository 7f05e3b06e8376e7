/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.c: a card as a device: its primary context, a stream for each queue, the module of kernels. Streams are
 * non-blocking: neither waits for the other, nor for the default stream, through which the synchronous copies go.
 */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/kernel_times.h"
#include "device/cuda/library.h"
#include "device/cuda/nccl.h"

#define OLDEST_CARD   80 /* compute capability of the kernels' oldest code */
#define SYMBOL_PREFIX "tri_cuda_"

#ifdef TRI_CUDA_IMAGE
/* The file that nvcc made, as it is. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".globl tri_cuda_image_bytes\n"
        ".hidden tri_cuda_image_bytes\n"
        "tri_cuda_image_bytes:\n"
        ".incbin \"" TRI_CUDA_IMAGE "\"\n"
        ".popsection\n");
extern const char tri_cuda_image_bytes[] __attribute__((visibility("hidden")));
const void *tri_cuda_image = tri_cuda_image_bytes;
#else
const void *tri_cuda_image;
#define TRI_CUDA_VERSION 0
#endif

typedef struct cuda_state {
    tri_gpu_queue queue; /* first: device/launch.h */
    const tri_cuda_calls *calls;
    int index, sms;
    cuda_device card;
    cuda_context context;
    cuda_module module;
    cuda_stream streams[TRI_QUEUE_COUNT];
    char arithmetic[160];
    cuda_function kernels[TRI_LAUNCH_KERNELS]; /* found when first launched */
    tri_cuda_times times;
} cuda_state;

/* As NVIDIA prints it, without the kind before it (GPU, MIG), which CUDA does not say. */
static cuda_result id_read(const tri_cuda_calls *calls, cuda_device card, char id[TRI_DEVICE_ID_NBYTES])
{
    cuda_uuid uuid = {.bytes = {0}};
    const cuda_result result = calls->device_uuid(&uuid, card);
    for (int i = 0, at = 0; i < (int)sizeof(uuid.bytes); i++)
        at += snprintf(id + at, TRI_DEVICE_ID_NBYTES - (size_t)at, "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
    return result;
}

static tri_status card_read(const tri_cuda_calls *calls, int index, tri_cuda_card *out)
{
    cuda_device card;
    int major = 0, minor = 0;
    *out = (tri_cuda_card){.sms = 0};
    cuda_result result = calls->device_get(&card, index);
    result = result == 0 ? calls->device_name(out->name, (int)sizeof(out->name), card) : result;
    result = result == 0 ? calls->device_attribute(&major, CUDA_ATTRIBUTE_MAJOR, card) : result;
    result = result == 0 ? calls->device_attribute(&minor, CUDA_ATTRIBUTE_MINOR, card) : result;
    result = result == 0 ? calls->device_attribute(&out->sms, CUDA_ATTRIBUTE_SMS, card) : result;
    result = result == 0 ? calls->device_memory(&out->memory_nbytes, card) : result;
    result = result == 0 ? calls->device_place(out->place, (int)sizeof(out->place), card) : result;
    result = result == 0 ? id_read(calls, card, out->id) : result;
    if (result != 0)
        return tri_fail(TRI_EUNSUPPORTED, "cuda:%d: cannot ask the card: %s", index, tri_cuda_text(calls, result));
    out->capability = 10 * major + minor;
    return TRI_OK;
}

tri_status tri_cuda_cards(tri_cuda_card *cards, int capacity, int *count, int *driver)
{
    const tri_cuda_calls *calls;
    TRI_TRY(tri_cuda_load(&calls));
    (void)calls->driver_version(driver);
    (void)calls->device_count(count);
    for (int i = 0; i < *count && i < capacity; i++)
        TRI_TRY(card_read(calls, i, &cards[i]));
    return TRI_OK;
}

/* A card that failed once fails for ever: the process ends, and the others continue without it. */
static void must(const cuda_state *s, const char *call, cuda_result result)
{
    if (result == 0)
        return;
    if (result == CUDA_OUT_OF_MEMORY)
        tri_log(TRI_LOG_ERROR, "cuda:%d: %s failed: the card's memory is full: this process ends", s->index, call);
    else
        tri_log(TRI_LOG_ERROR, "cuda:%d: %s failed: %s; nothing on the card can be used after it: this process ends",
                s->index, call, tri_cuda_text(s->calls, result));
    _Exit(1);
}

static cuda_memory address(const void *memory)
{
    return (cuda_memory)(uintptr_t)memory;
}

/* The context is a thread's own setting. */
static const cuda_state *enter(const tri_device *device)
{
    const cuda_state *s = device->state;
    must(s, "cuCtxSetCurrent", s->calls->context_set(s->context));
    return s;
}

static tri_status cuda_launch(void *arg, const tri_gpu_launch *launch)
{
    cuda_state *s = arg;
    cuda_function *kernel = &s->kernels[launch->kernel];
    const unsigned x = (unsigned)(launch->grid[0] > 0 ? launch->grid[0] : 1);
    const unsigned y = (unsigned)(launch->grid[1] > 0 ? launch->grid[1] : 1);
    const unsigned z = (unsigned)(launch->grid[2] > 0 ? launch->grid[2] : 1);
    void *args[] = {(void *)(uintptr_t)launch->args};
    must(s, "cuCtxSetCurrent", s->calls->context_set(s->context));
    if (!*kernel)
        must(s, launch->symbol, s->calls->module_function(kernel, s->module, launch->symbol));
    if (launch->threads == 0)
        return TRI_OK;
    tri_cuda_times_begin(&s->times, launch->symbol + strlen(SYMBOL_PREFIX));
    must(s, launch->symbol,
         s->calls->launch(*kernel, x, y, z, (unsigned)launch->threads, 1, 1, 0, s->streams[TRI_QUEUE_KERNELS], args,
                          NULL));
    tri_cuda_times_end(&s->times);
    return TRI_OK;
}

tri_status tri_cuda_card_check(const tri_cuda_card *card, int index)
{
    if (card->capability >= OLDEST_CARD)
        return TRI_OK;
    return tri_fail(TRI_EUNSUPPORTED, "cuda:%d: %s has compute capability %d.%d: want 8.0 or later", index, card->name,
                    card->capability / 10, card->capability % 10);
}

static tri_cuda_kernels kernels_of(const tri_cuda_calls *calls)
{
    return calls->emulated ? *calls->emulated : (tri_cuda_kernels){tri_cuda_image, TRI_CUDA_VERSION, TRI_CUDA_TEXT};
}

static tri_status open_card(cuda_state *s, tri_device *device)
{
    tri_cuda_card card;
    int count = 0, driver = 0;
    (void)s->calls->device_count(&count);
    if (device->any && count > 0)
        device->index = device->place % count;
    s->index = device->index;
    if (s->index >= count)
        return tri_fail(TRI_EUNSUPPORTED, "cuda:%d: this machine has %d NVIDIA card%s", s->index, count,
                        count == 1 ? "" : "s");
    TRI_TRY(card_read(s->calls, s->index, &card));
    TRI_TRY(tri_cuda_card_check(&card, s->index));
    s->sms = card.sms;
    (void)s->calls->driver_version(&driver);
    const tri_cuda_kernels kernels = kernels_of(s->calls);
    if (!kernels.image)
        return tri_fail(TRI_EUNSUPPORTED, "this build has no CUDA kernels");
    if (driver / 1000 < kernels.version)
        return tri_fail(TRI_EUNSUPPORTED,
                        "the driver is for CUDA %d.%d, and the kernels of this build are of CUDA %d: want a newer "
                        "driver, or a build by an older nvcc",
                        driver / 1000, driver % 1000 / 10, kernels.version);
    snprintf(s->arithmetic, sizeof(s->arithmetic), "cuda%s, compute capability %d.%d, driver for CUDA %d, kernels %s",
             s->calls->emulated ? " emulated" : "", card.capability / 10, card.capability % 10, driver / 1000,
             kernels.text);
    cuda_result result = s->calls->device_get(&s->card, s->index);
    (void)s->calls->context_flags(s->card, CUDA_BLOCKING_SYNC); /* else each wait keeps a core busy */
    result = result == 0 ? s->calls->context_retain(&s->context, s->card) : result;
    result = result == 0 ? s->calls->context_set(s->context) : result;
    result = result == 0 ? s->calls->module_load(&s->module, kernels.image) : result;
    for (int q = 0; q < TRI_QUEUE_COUNT; q++)
        result = result == 0 ? s->calls->stream_create(&s->streams[q], CUDA_STREAM_NON_BLOCKING) : result;
    if (result != 0)
        return tri_fail(TRI_EUNSUPPORTED, "cuda:%d: cannot open %s: %s", s->index, card.name,
                        tri_cuda_text(s->calls, result));
    tri_cuda_times_init(&s->times, s->calls, s->streams[TRI_QUEUE_KERNELS]);
    return TRI_OK;
}

static void cuda_close(tri_device *device)
{
    cuda_state *s = device->state;
    if (s && s->context) {
        tri_cublaslt_close(s->queue.library);
        (void)s->calls->context_set(s->context);
        tri_cuda_times_fini(&s->times);
        for (int q = 0; q < TRI_QUEUE_COUNT; q++)
            if (s->streams[q])
                (void)s->calls->stream_destroy(s->streams[q]);
        if (s->module && !tri_nccl_is_left_behind())
            (void)s->calls->module_unload(s->module);
        if (!tri_nccl_is_left_behind())
            (void)s->calls->context_release(s->card);
    }
    tri_free(s);
    device->state = NULL;
}

static tri_status cuda_open(tri_device *device)
{
    const tri_cuda_calls *calls;
    TRI_TRY(tri_cuda_load(&calls));
    cuda_state *s = tri_alloc_zero(1, sizeof(*s));
    if (!s)
        return TRI_ENOMEM;
    s->queue = (tri_gpu_queue){.launch = cuda_launch, .arg = s};
    s->calls = calls;
    device->state = s;
    tri_status status = open_card(s, device);
    if (status != TRI_OK)
        cuda_close(device);
    return status;
}

tri_status tri_cuda_beside_open(const tri_device *device, tri_device *out)
{
    const cuda_state *of = enter(device);
    cuda_state *s = tri_alloc_zero(1, sizeof(*s));
    if (!s)
        return TRI_ENOMEM;
    *s = *of;
    s->queue = (tri_gpu_queue){.launch = cuda_launch, .arg = s};
    const cuda_result result = s->calls->stream_create(&s->streams[TRI_QUEUE_KERNELS], CUDA_STREAM_NON_BLOCKING);
    if (result != 0) {
        tri_free(s);
        return tri_fail(TRI_EIO, "cuda:%d: cannot make a queue: %s", of->index, tri_cuda_text(of->calls, result));
    }
    tri_cuda_times_init(&s->times, s->calls, s->streams[TRI_QUEUE_KERNELS]);
    *out = *device;
    out->state = s;
    return TRI_OK;
}

void tri_cuda_beside_close(tri_device *beside)
{
    cuda_state *s = beside->state;
    if (!s)
        return;
    (void)s->calls->context_set(s->context);
    tri_cuda_times_fini(&s->times);
    (void)s->calls->stream_destroy(s->streams[TRI_QUEUE_KERNELS]);
    tri_free(s);
    *beside = (tri_device){0};
}

static tri_status cuda_library_open(tri_device *device)
{
    cuda_state *s = device->state;
    TRI_TRY(tri_cublaslt_open(s->calls, s->index, s->context, s->streams[TRI_QUEUE_KERNELS], &s->queue.library));
    s->queue.library->times = &s->times;
    const size_t used = strlen(s->arithmetic);
    snprintf(s->arithmetic + used, sizeof(s->arithmetic) - used, ", %s on %d SMs", s->queue.library->name, s->sms);
    return TRI_OK;
}

static void queue_wait(const cuda_state *s, tri_device_queue queue)
{
    must(s, "cuStreamSynchronize", s->calls->stream_wait(s->streams[queue]));
}

static void *cuda_alloc(const tri_device *device, size_t nbytes)
{
    const cuda_state *s = enter(device);
    cuda_memory memory = 0;
    const size_t wanted = nbytes > 0 ? nbytes : 1;
    const cuda_result result = s->calls->memory_alloc(&memory, wanted);
    if (result == CUDA_OUT_OF_MEMORY) {
        (void)tri_fail(TRI_ENOMEM, "cuda:%d: cannot allocate %zu bytes: the card's memory is full", s->index, nbytes);
        return NULL;
    }
    must(s, "cuMemAlloc", result);
    must(s, "cuMemsetD8Async", s->calls->memory_fill(memory, 0, wanted, s->streams[TRI_QUEUE_KERNELS]));
    queue_wait(s, TRI_QUEUE_KERNELS); /* it is zeroed for copies too */
    return (void *)(uintptr_t)memory;
}

static void cuda_free(const tri_device *device, void *memory)
{
    if (!memory)
        return;
    const cuda_state *s = enter(device);
    queue_wait(s, TRI_QUEUE_KERNELS); /* who uses it may still run */
    queue_wait(s, TRI_QUEUE_COPIES);
    must(s, "cuMemFree", s->calls->memory_free(address(memory)));
}

static void cuda_copy(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    const cuda_state *s = enter(device);
    must(s, "cuMemcpyDtoDAsync",
         s->calls->copy_within(address(to), address(from), nbytes, s->streams[TRI_QUEUE_KERNELS]));
}

static void cuda_to_host(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    const cuda_state *s = enter(device);
    queue_wait(s, TRI_QUEUE_KERNELS);
    must(s, "cuMemcpyDtoH", s->calls->copy_to_host_now(to, address(from), nbytes));
}

/* The call has read pageable memory when it returns, but may not have written it yet. */
static void cuda_from_host(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    const cuda_state *s = enter(device);
    queue_wait(s, TRI_QUEUE_KERNELS);
    must(s, "cuMemcpyHtoD", s->calls->copy_from_host_now(address(to), from, nbytes));
    must(s, "cuStreamSynchronize", s->calls->stream_wait(NULL));
}

static void cuda_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes)
{
    const cuda_state *s = enter(device);
    must(s, "cuMemsetD8Async", s->calls->memory_fill(address(to), byte, nbytes, s->streams[TRI_QUEUE_KERNELS]));
}

/* --- copies beside kernels --- */

static void *cuda_host_alloc(const tri_device *device, size_t nbytes)
{
    const cuda_state *s = enter(device);
    const size_t wanted = nbytes > 0 ? nbytes : 1;
    void *memory = NULL;
    const cuda_result result = s->calls->host_alloc(&memory, wanted, CUDA_HOST_PORTABLE);
    if (result == CUDA_OUT_OF_MEMORY) {
        (void)tri_fail(TRI_ENOMEM, "cuda:%d: cannot pin %zu bytes of the host's memory: %s", s->index, nbytes,
                       tri_cuda_text(s->calls, result));
        return NULL;
    }
    must(s, "cuMemHostAlloc", result);
    memset(memory, 0, wanted);
    return memory;
}

static void cuda_host_free(const tri_device *device, void *memory)
{
    if (!memory)
        return;
    const cuda_state *s = enter(device);
    queue_wait(s, TRI_QUEUE_COPIES);
    must(s, "cuMemFreeHost", s->calls->host_free(memory));
}

static bool cuda_host_pin(const tri_device *device, void *memory, size_t nbytes)
{
    const cuda_state *s = enter(device);
    return s->calls->host_register(memory, nbytes, CUDA_HOST_PORTABLE) == 0;
}

static void cuda_host_unpin(const tri_device *device, void *memory)
{
    const cuda_state *s = enter(device);
    queue_wait(s, TRI_QUEUE_COPIES);
    must(s, "cuMemHostUnregister", s->calls->host_unregister(memory));
}

static void cuda_copy_out(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    const cuda_state *s = enter(device);
    must(s, "cuMemcpyDtoHAsync", s->calls->copy_to_host(to, address(from), nbytes, s->streams[TRI_QUEUE_COPIES]));
}

static void cuda_copy_in(const tri_device *device, void *to, const void *from, size_t nbytes)
{
    const cuda_state *s = enter(device);
    must(s, "cuMemcpyHtoDAsync", s->calls->copy_from_host(address(to), from, nbytes, s->streams[TRI_QUEUE_COPIES]));
}

static tri_status cuda_event_create(const tri_device *device, tri_device_event *event)
{
    const cuda_state *s = enter(device);
    cuda_event mark = NULL;
    must(s, "cuEventCreate", s->calls->event_create(&mark, CUDA_EVENT_BLOCKING_SYNC | CUDA_EVENT_DISABLE_TIMING));
    event->mark = mark;
    return TRI_OK;
}

static void cuda_event_destroy(const tri_device *device, tri_device_event *event)
{
    const cuda_state *s = enter(device);
    must(s, "cuEventDestroy", s->calls->event_destroy(event->mark));
}

static void cuda_event_record(const tri_device *device, tri_device_event event, tri_device_queue queue)
{
    const cuda_state *s = enter(device);
    must(s, "cuEventRecord", s->calls->event_record(event.mark, s->streams[queue]));
}

static void cuda_event_order(const tri_device *device, tri_device_event event, tri_device_queue queue)
{
    const cuda_state *s = enter(device);
    must(s, "cuStreamWaitEvent", s->calls->stream_order(s->streams[queue], event.mark, 0));
}

static void cuda_event_wait(const tri_device *device, tri_device_event event)
{
    const cuda_state *s = enter(device);
    must(s, "cuEventSynchronize", s->calls->event_wait(event.mark));
}

static tri_status cuda_room(const tri_device *device, tri_device_room *out)
{
    const cuda_state *s = enter(device);
    *out = (tri_device_room){.cards = 1};
    if (device->any)
        must(s, "cuDeviceGetCount", s->calls->device_count(&out->cards));
    must(s, "cuMemGetInfo", s->calls->memory_info(&out->free_nbytes, &out->total_nbytes));
    must(s, "cuDeviceGetPCIBusId", s->calls->device_place(out->place, (int)sizeof(out->place), s->card));
    must(s, "cuDeviceGetUuid", id_read(s->calls, s->card, out->id));
    return TRI_OK;
}

/* Multiply-adds that one multiprocessor makes in a cycle by NVIDIA's tables: in f32, and in bf16 with f32 sums, where
 * cards for games and the L40 make half of what others of their capability do. */
static void sm_rates(const tri_cuda_card *card, double *f32, double *half)
{
    const int capability = card->capability;
    const bool halved = strstr(card->name, "GeForce") || strcmp(card->name, "NVIDIA L40") == 0;
    *f32 = capability == 80 ? 64 : 128;
    *half = capability == 80 ? 1024 : capability < 90 || capability >= 120 ? 512 : capability < 100 ? 2048 : 4096;
    *half /= halved ? 2 : 1;
}

static tri_status cuda_rates(const tri_device *device, tri_device_rates *out)
{
    const cuda_state *s = enter(device);
    tri_cuda_card card;
    int khz = 0, memory_khz = 0, bits = 0;
    double f32, half;
    TRI_TRY(card_read(s->calls, s->index, &card));
    must(s, "cuDeviceGetAttribute", s->calls->device_attribute(&khz, CUDA_ATTRIBUTE_KHZ, s->card));
    must(s, "cuDeviceGetAttribute", s->calls->device_attribute(&memory_khz, CUDA_ATTRIBUTE_MEMORY_KHZ, s->card));
    must(s, "cuDeviceGetAttribute", s->calls->device_attribute(&bits, CUDA_ATTRIBUTE_MEMORY_BITS, s->card));
    sm_rates(&card, &f32, &half);
    *out = (tri_device_rates){.flops = 2 * f32 * card.sms * khz * 1e3,
                              .half_flops = 2 * half * card.sms * khz * 1e3,
                              .memory = 2.0 * memory_khz * 1e3 * bits / 8};
    return TRI_OK;
}

static void cuda_kernels_time(const tri_device *device, int64_t step)
{
    cuda_state *s = device->state;
    (void)enter(device);
    tri_cuda_times_step(&s->times, step);
}

static tri_status cuda_kernels_read(const tri_device *device, tri_device_kernel **out, int64_t *count)
{
    cuda_state *s = device->state;
    (void)enter(device);
    return tri_cuda_times_read(&s->times, out, count);
}

static const char *cuda_arithmetic(const tri_device *device)
{
    return ((const cuda_state *)device->state)->arithmetic;
}

tri_status tri_cuda_handles_read(const tri_device *device, tri_cuda_handles *out)
{
    if (device->ops != &tri_device_cuda)
        return tri_fail(TRI_EUNSUPPORTED, "NCCL needs an NVIDIA card: want train.device=cuda, got %s",
                        device->ops->name);
    cuda_state *s = device->state;
    (void)enter(device);
    *out = (tri_cuda_handles){.calls = s->calls,
                              .context = s->context,
                              .stream = s->streams[TRI_QUEUE_KERNELS],
                              .index = s->index,
                              .times = &s->times};
    must(s, "cuDeviceGetPCIBusId", s->calls->device_place(out->place, (int)sizeof(out->place), s->card));
    must(s, "cuDeviceGetUuid", id_read(s->calls, s->card, out->id));
    return TRI_OK;
}

const tri_device_ops tri_device_cuda = {
    .name = "cuda",
    .does = "an NVIDIA card",
    .kernels = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .library_open = cuda_library_open,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .to_host = cuda_to_host,
    .from_host = cuda_from_host,
    .fill = cuda_fill,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .host_pin = cuda_host_pin,
    .host_unpin = cuda_host_unpin,
    .copy_out = cuda_copy_out,
    .copy_in = cuda_copy_in,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_order = cuda_event_order,
    .event_wait = cuda_event_wait,
    .arithmetic = cuda_arithmetic,
    .room = cuda_room,
    .rates = cuda_rates,
    .kernels_time = cuda_kernels_time,
    .kernels_read = cuda_kernels_read,
    .planned = &tri_device_cuda_planned,
};
