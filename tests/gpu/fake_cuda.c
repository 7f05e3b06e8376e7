/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_cuda.c: a libcuda.so.1 that runs kernels by the emulator: found by the same dlopen (LD_LIBRARY_PATH).
 *
 * Streams are lazy: work is done when somebody waits, and work of several streams runs in an order that
 * FAKE_CUDA_SEED draws: a copy that no event orders reads too early or too late. An asynchronous copy must name pinned
 * memory of the host. Memory is freed, and unpinned, when all streams of its card are done, as NVIDIA's driver does. It
 * brings the kernels along, so that a program that was built without nvcc trains on it too.
 * FAKE_CUDA has faults, with commas between: no_kernels, new_kernels (of a CUDA that the driver does not know),
 * other_kernels (of another text; =RANK: that one's), no_card, old_driver, next_driver, old_card, game_card, no_start,
 * no_pin, no_order (streams do not wait for events); memory=MIB of a card (8192), of which each process has all;
 * full=WHEN, memory is out for one allocation; sticky=WHEN, a launch fails and so does every call after it. WHEN is a
 * number (that one, of this process; 2), or FILE or FILE@NUMBER: whoever removes the file first, from its NUMBER-th
 * call on. killed=FILE@NUMBER: whoever renames the file to FILE.killed is killed at such a launch; held=FILE@NUMBER:
 * whoever renames it to FILE.held waits there until that is removed. FAKE_CUDA_CARDS: how many there are, 2 if it is
 * not set; CUDA_VISIBLE_DEVICES chooses some by number. With `mig` in FAKE_CUDA they are instances of one card: a
 * process sees one of them, the first, or that of the MIG-UUID in CUDA_VISIBLE_DEVICES.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/library.h"
#include "gpu/emulator.h"
#include "gpu/fake_cuda.h"
#include "gpu/fake_words.h"

#define MOST_WORK     4096 /* of a stream, before it begins by itself */
#define MOST_STREAMS  16
#define MOST_PINNED   4096
#define MOST_CARDS    16
#define TRY_EVERY_US  50
#define CARD_NAME     "Emulated card"
#define ERROR_INVALID 1
#define ERROR_PINNED  712 /* already */
#define ERROR_DEVICE  101
#define ERROR_HANDLE  400
#define ERROR_SICK    700
#define EXPORT        __attribute__((visibility("default")))

enum { LAUNCH, COPY, FILL, CALL, MARK, AWAIT, TRY };
enum { LATE, EARLY, MIXED, STYLES }; /* when work runs that nobody waits for */

struct cuda_event_object {
    int64_t recorded, over; /* how often */
    cuda_stream stream;     /* of the last time */
    int uses;               /* in streams */
    int destroyed;
    int timed;
    double over_ms; /* when it was last over */
};

typedef struct work {
    int kind;
    tri_gpu_launch launch;
    void (*run)(void *arg);    /* CALL; arg: to */
    int (*attempt)(void *arg); /* TRY */
    void *to;
    const void *from; /* owned, where it came from the host */
    int owned;
    unsigned char byte;
    size_t nbytes;
    cuda_event event; /* MARK, AWAIT */
    int64_t number;
} work;

struct cuda_stream_object {
    int open;
    cuda_device card;
    work list[MOST_WORK]; /* a ring */
    int first, count;
};

static struct cuda_stream_object streams[MOST_STREAMS]; /* the first: the default one */
static struct {
    const char *memory;
    size_t nbytes;
} pinned[MOST_PINNED];
static int pinned_count;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* all above, and the emulator */
static uint64_t seed;
static cuda_result sick; /* what every call gives from now on */
static int allocations, launches;
static _Thread_local cuda_device current;
static size_t used; /* bytes of the card */

static const char *value_of(const char *fault, char value[FAKE_VALUE_NBYTES])
{
    return fake_value("FAKE_CUDA", fault, value);
}

static bool has(const char *fault)
{
    return fake_has("FAKE_CUDA", fault);
}

/* Whether the fault is for the number-th call of its kind. */
static int is_now(const char *fault, int number)
{
    char value[FAKE_VALUE_NBYTES];
    if (!value_of(fault, value))
        return 0;
    return value[0] == '/' ? fake_takes("FAKE_CUDA", fault, number) : number == (value[0] ? atoi(value) : 2);
}

/* Whoever first renames FILE of "fault=FILE@NUMBER" to FILE.fault, from the NUMBER-th launch on. */
static bool renames(const char *fault, int number, char to[FAKE_VALUE_NBYTES + 8])
{
    char file[FAKE_VALUE_NBYTES];
    if (!value_of(fault, file) || number < fake_number(file))
        return false;
    snprintf(to, FAKE_VALUE_NBYTES + 8, "%s.%s", file, fault);
    return rename(file, to) == 0;
}

static void launch_faults(int number)
{
    char held[FAKE_VALUE_NBYTES + 8];
    if (renames("killed", number, held))
        (void)kill(getpid(), SIGKILL);
    if (renames("held", number, held))
        while (access(held, F_OK) == 0)
            usleep(1000);
    if (is_now("sticky", number))
        sick = ERROR_SICK;
}

static size_t total(void)
{
    char value[FAKE_VALUE_NBYTES];
    return (size_t)(value_of("memory", value) ? atoi(value) : 8192) << 20;
}

static void stop(const char *why)
{
    fprintf(stderr, "fake libcuda: %s\n", why);
    abort();
}

static void *copied(const void *from, size_t nbytes)
{
    void *to = malloc(nbytes > 0 ? nbytes : 1);
    if (!to)
        abort();
    memcpy(to, from, nbytes);
    return to;
}

/* --- streams --- */

static uint64_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static void event_release(cuda_event event)
{
    if (event->destroyed && event->uses == 0)
        free(event);
}

/* A TRY that can run has run. */
static int can_run(struct cuda_stream_object *stream)
{
    work *w = &stream->list[stream->first];
    if (stream->count == 0 || (w->kind == AWAIT && w->event->over < w->number))
        return 0;
    if (w->kind == TRY && w->attempt && w->attempt(w->to))
        w->attempt = NULL;
    return w->kind != TRY || !w->attempt;
}

static int is_tried(void)
{
    for (int i = 0; i < MOST_STREAMS; i++)
        if (streams[i].count > 0 && streams[i].list[streams[i].first].kind == TRY)
            return 1;
    return 0;
}

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static void run_one(cuda_stream stream)
{
    work *w = &stream->list[stream->first];
    if (w->kind == LAUNCH && tri_emulator_launch(&w->launch) != TRI_OK)
        stop(tri_last_error());
    if (w->kind == LAUNCH)
        free((void *)(uintptr_t)w->launch.args);
    if (w->kind == COPY)
        memcpy(w->to, w->from, w->nbytes);
    if (w->kind == FILL)
        memset(w->to, w->byte, w->nbytes);
    if (w->kind == CALL)
        w->run(w->to);
    if (w->kind == MARK && w->event->over < w->number) {
        w->event->over = w->number;
        w->event->over_ms = now_ms();
    }
    if (w->owned)
        free((void *)(uintptr_t)w->from);
    if (w->event) {
        w->event->uses--;
        event_release(w->event);
    }
    stream->first = (stream->first + 1) % MOST_WORK;
    stream->count--;
}

/* The stream whose next piece of work runs while somebody waits for `wanted`; NULL: none can. */
static cuda_stream pick(cuda_stream wanted, int style)
{
    cuda_stream others[MOST_STREAMS];
    int count = 0;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (&streams[i] != wanted && can_run(&streams[i]))
            others[count++] = &streams[i];
    const int own = can_run(wanted);
    if (count == 0)
        return own ? wanted : NULL;
    if (own && (style == LATE || (style == MIXED && draw() % 2 == 0)))
        return wanted;
    return others[draw() % (uint64_t)count];
}

/* event NULL: the stream is empty. */
static int is_over(cuda_stream stream, const struct cuda_event_object *event)
{
    return event ? event->over >= event->recorded : stream->count == 0;
}

/* event NULL: until the stream is empty. */
static void run_until(cuda_stream stream, const struct cuda_event_object *event)
{
    const int64_t number = event ? event->recorded : 0;
    const int style = (int)(draw() % STYLES);
    while (event ? event->over < number : stream->count > 0) {
        cuda_stream next = pick(stream, style);
        if (next) {
            run_one(next);
            continue;
        }
        if (!is_tried())
            stop("streams wait for each other");
        pthread_mutex_unlock(&mutex); /* held once */
        usleep(TRY_EVERY_US);
        pthread_mutex_lock(&mutex);
    }
}

/* The mutex is held. */
static void card_wait(void)
{
    for (int i = 0; i < MOST_STREAMS && sick == 0; i++)
        if (streams[i].open && streams[i].card == current)
            run_until(&streams[i], NULL);
}

/* Of calls that queue: the mutex is held. */
static cuda_result add(cuda_stream stream, work w)
{
    if (!stream)
        stream = &streams[0];
    while (stream->count == MOST_WORK)
        run_until(stream, NULL);
    if (w.event)
        w.event->uses++;
    stream->list[(stream->first + stream->count++) % MOST_WORK] = w;
    return sick;
}

static cuda_result queue(cuda_stream stream, work w)
{
    pthread_mutex_lock(&mutex);
    const cuda_result result = add(stream, w);
    pthread_mutex_unlock(&mutex);
    return result;
}

void fake_cuda_call(cuda_stream stream, void (*run)(void *arg), void *arg)
{
    (void)queue(stream, (work){.kind = CALL, .run = run, .to = arg});
}

void fake_cuda_try(cuda_stream stream, int (*run)(void *arg), void *arg)
{
    (void)queue(stream, (work){.kind = TRY, .attempt = run, .to = arg});
}

cuda_device fake_cuda_card(void)
{
    return current;
}

/* Whether work that was queued names [memory, memory + nbytes); launches do not say. */
static int in_use(const char *memory, size_t nbytes)
{
    for (int s = 0; s < MOST_STREAMS; s++)
        for (int i = 0; i < streams[s].count; i++) {
            const work *w = &streams[s].list[(streams[s].first + i) % MOST_WORK];
            const char *to = w->to, *from = w->from;
            if (w->nbytes > 0 && ((to < memory + nbytes && memory < to + w->nbytes) ||
                                  (from && from < memory + nbytes && memory < from + w->nbytes)))
                return 1;
        }
    return 0;
}

/* --- pinned memory --- */

/* The number of the range that has any of these bytes; -1: none has. */
static int pinned_find(const char *memory, size_t nbytes)
{
    for (int i = 0; i < pinned_count; i++)
        if (memory < pinned[i].memory + pinned[i].nbytes && pinned[i].memory < memory + nbytes)
            return i;
    return -1;
}

static int is_pinned(const char *memory, size_t nbytes)
{
    const int i = pinned_find(memory, nbytes);
    return i >= 0 && memory >= pinned[i].memory && memory + nbytes <= pinned[i].memory + pinned[i].nbytes;
}

static cuda_result pin(const char *memory, size_t nbytes)
{
    pthread_mutex_lock(&mutex);
    cuda_result result = pinned_find(memory, nbytes) >= 0 ? ERROR_PINNED : sick;
    if (pinned_count == MOST_PINNED)
        stop("too much pinned memory");
    if (result == 0) {
        pinned[pinned_count].memory = memory;
        pinned[pinned_count++].nbytes = nbytes;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

static cuda_result unpin(const char *memory)
{
    pthread_mutex_lock(&mutex);
    const int i = pinned_find(memory, 1);
    cuda_result result = i >= 0 && pinned[i].memory == memory ? sick : ERROR_INVALID;
    if (result == 0) {
        if (in_use(memory, pinned[i].nbytes))
            stop("a copy still uses pinned memory that is freed");
        card_wait();
        pinned[pinned_find(memory, 1)] = pinned[pinned_count - 1]; /* others may have freed theirs meanwhile */
        pinned_count--;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Each with the arguments of its row. */
#define DECLARE(symbol, name, args) EXPORT cuda_result symbol args;
TRI_CUDA_CALLS(DECLARE)

/* What NVIDIA's library has not: device/cuda/library.h. */
EXPORT const tri_cuda_kernels *trireme_emulated_kernels(void);
const tri_cuda_kernels *trireme_emulated_kernels(void)
{
    static tri_cuda_kernels kernels = {"kernels of the emulator", 12, TRI_CUDA_TEXT};
    char only[FAKE_VALUE_NBYTES];
    const char *rank = getenv("TRIREME_RANK");
    if (has("new_kernels"))
        kernels.version = 14;
    if (value_of("other_kernels", only) && (!only[0] || (rank && strcmp(only, rank) == 0)))
        kernels.text = "00000000";
    return has("no_kernels") ? NULL : &kernels;
}

cuda_result cuInit(unsigned flags)
{
    (void)flags;
    return has("no_start") ? 999 : has("no_card") ? CUDA_NO_DEVICE : 0;
}

cuda_result cuDriverGetVersion(int *version)
{
    *version = has("old_driver") ? 11040 : has("next_driver") ? 14000 : 13000;
    return 0;
}

cuda_result cuGetErrorString(cuda_result result, const char **text)
{
    *text = result == ERROR_SICK      ? "an illegal memory access was encountered"
            : result == ERROR_INVALID ? "invalid argument"
                                      : "unknown error";
    return 0;
}

static int instance_find(const char *named, int all, cuda_device *out)
{
    const char *number = named ? strrchr(named, '-') : NULL; /* the end of the UUID, below */
    *out = number ? (cuda_device)strtol(number + 1, NULL, 16) : 0;
    return (!named || (number && strncmp(named, "MIG-face0000-", 13) == 0)) && *out < all;
}

/* Those that CUDA_VISIBLE_DEVICES names, up to the first that is not there. */
static int cards_list(cuda_device visible[MOST_CARDS])
{
    const char *given = getenv("FAKE_CUDA_CARDS"), *at = getenv("CUDA_VISIBLE_DEVICES");
    const int all = given ? atoi(given) : 2;
    int count = 0;
    if (has("mig"))
        return instance_find(at, all, &visible[0]);
    for (int i = 0; !at && i < all && i < MOST_CARDS; i++)
        visible[count++] = i;
    while (at && *at && count < MOST_CARDS) {
        char *end;
        const long card = strtol(at, &end, 10);
        if (end == at || card < 0 || card >= all)
            break;
        visible[count++] = (cuda_device)card;
        at = end + (*end == ',');
    }
    return count;
}

cuda_result cuDeviceGetCount(int *count)
{
    cuda_device visible[MOST_CARDS];
    *count = cards_list(visible);
    return 0;
}

cuda_result cuDeviceGet(cuda_device *device, int index)
{
    cuda_device visible[MOST_CARDS];
    if (index >= cards_list(visible))
        return ERROR_DEVICE;
    *device = visible[index];
    return 0;
}

cuda_result cuDeviceGetName(char *name, int nbytes, cuda_device device)
{
    (void)device;
    snprintf(name, (size_t)nbytes, "%s%s", has("game_card") ? "NVIDIA GeForce" : CARD_NAME,
             has("mig") ? FAKE_INSTANCE_NAME : "");
    return 0;
}

cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
    const int capability = has("old_card") ? 70 : has("game_card") ? 89 : 90;
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_SMS           ? 132
             : attribute == CUDA_ATTRIBUTE_MAJOR       ? capability / 10
             : attribute == CUDA_ATTRIBUTE_MINOR       ? capability % 10
             : attribute == CUDA_ATTRIBUTE_KHZ         ? 1980000
             : attribute == CUDA_ATTRIBUTE_MEMORY_KHZ  ? 2619000
             : attribute == CUDA_ATTRIBUTE_MEMORY_BITS ? 5120
                                                       : 0;
    return 0;
}

cuda_result cuDeviceTotalMem_v2(size_t *nbytes, cuda_device device)
{
    (void)device;
    *nbytes = total();
    return 0;
}

cuda_result cuDeviceGetUuid_v2(cuda_uuid *uuid, cuda_device device)
{
    *uuid = (cuda_uuid){.bytes = {0xfa, 0xce, [15] = (unsigned char)device}};
    return 0;
}

static char contexts[MOST_CARDS];
cuda_result cuMemGetInfo_v2(size_t *free_nbytes, size_t *total_nbytes)
{
    *total_nbytes = total();
    *free_nbytes = *total_nbytes > used ? *total_nbytes - used : 0;
    return sick;
}

cuda_result cuDeviceGetPCIBusId(char *place, int nbytes, cuda_device device)
{
    const int length = snprintf(place, (size_t)nbytes, "0000:%02x:00.0", 0x17 + (has("mig") ? 0 : device));
    return length < nbytes ? 0 : 1;
}

cuda_result cuDevicePrimaryCtxSetFlags_v2(cuda_device device, unsigned flags)
{
    (void)device;
    return flags == CUDA_BLOCKING_SYNC ? 0 : ERROR_INVALID;
}

cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device)
{
    *context = (cuda_context)(void *)&contexts[device];
    return 0;
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device)
{
    (void)device;
    return 0;
}

cuda_result cuCtxSetCurrent(cuda_context context)
{
    current = (cuda_device)((char *)(void *)context - contexts);
    return sick;
}

cuda_result cuModuleLoadData(cuda_module *module, const void *image)
{
    static char object;
    *module = (cuda_module)(void *)&object;
    return image ? 0 : 200;
}

cuda_result cuModuleUnload(cuda_module module)
{
    (void)module;
    return 0;
}

cuda_result cuModuleGetFunction(cuda_function *function, cuda_module module, const char *name)
{
    const int kernel = tri_emulator_find(name);
    (void)module;
    *function = (cuda_function)(uintptr_t)(kernel + 1);
    return kernel >= 0 ? sick : 500;
}

cuda_result cuStreamCreate(cuda_stream *stream, unsigned flags)
{
    const char *drawn = getenv("FAKE_CUDA_SEED");
    (void)flags;
    pthread_mutex_lock(&mutex);
    seed = drawn ? strtoull(drawn, NULL, 10) : 1;
    *stream = NULL;
    for (int i = 1; i < MOST_STREAMS && !*stream; i++)
        if (!streams[i].open)
            *stream = &streams[i];
    if (*stream) {
        (*stream)->open = 1;
        (*stream)->card = current;
    }
    pthread_mutex_unlock(&mutex);
    return *stream ? 0 : CUDA_OUT_OF_MEMORY;
}

cuda_result cuStreamDestroy_v2(cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    run_until(stream, NULL);
    stream->open = 0;
    pthread_mutex_unlock(&mutex);
    return 0;
}

cuda_result cuStreamSynchronize(cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    if (sick == 0)
        run_until(stream ? stream : &streams[0], NULL);
    pthread_mutex_unlock(&mutex);
    return sick;
}

/* Whether a stream is empty, or an event of it over; what can run until then runs. */
static cuda_result ask(cuda_stream stream, const struct cuda_event_object *event)
{
    cuda_stream next;
    pthread_mutex_lock(&mutex);
    while (sick == 0 && !is_over(stream, event) && (next = pick(stream, LATE)))
        run_one(next);
    const int over = is_over(stream, event);
    pthread_mutex_unlock(&mutex);
    return sick != 0 ? sick : over ? 0 : CUDA_NOT_READY;
}

cuda_result cuStreamQuery(cuda_stream stream)
{
    return ask(stream, NULL);
}

cuda_result cuEventQuery(cuda_event event)
{
    return event->recorded > 0 ? ask(event->stream, event) : 0;
}

cuda_result cuEventCreate(cuda_event *event, unsigned flags)
{
    *event = calloc(1, sizeof(**event));
    if (!*event)
        return CUDA_OUT_OF_MEMORY;
    (*event)->timed = !(flags & CUDA_EVENT_DISABLE_TIMING);
    return sick;
}

cuda_result cuEventDestroy_v2(cuda_event event)
{
    pthread_mutex_lock(&mutex);
    event->destroyed = 1;
    event_release(event);
    pthread_mutex_unlock(&mutex);
    return 0;
}

cuda_result cuEventRecord(cuda_event event, cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    event->stream = stream;
    const cuda_result result = add(stream, (work){.kind = MARK, .event = event, .number = ++event->recorded});
    pthread_mutex_unlock(&mutex);
    return result;
}

cuda_result cuStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&mutex);
    const int64_t number = has("no_order") ? 0 : event->recorded;
    const cuda_result result = add(stream, (work){.kind = AWAIT, .event = event, .number = number});
    pthread_mutex_unlock(&mutex);
    return result;
}

cuda_result cuEventSynchronize(cuda_event event)
{
    pthread_mutex_lock(&mutex);
    if (sick == 0)
        run_until(event->stream, event);
    pthread_mutex_unlock(&mutex);
    return sick;
}

cuda_result cuEventElapsedTime(float *ms, cuda_event begin, cuda_event end)
{
    pthread_mutex_lock(&mutex);
    const int recorded = begin->timed && end->timed && begin->recorded > 0 && end->recorded > 0;
    const int over = begin->over == begin->recorded && end->over == end->recorded;
    *ms = (float)(end->over_ms - begin->over_ms);
    pthread_mutex_unlock(&mutex);
    return !recorded ? ERROR_HANDLE : over ? sick : CUDA_NOT_READY;
}

cuda_result cuMemAlloc_v2(cuda_memory *memory, size_t nbytes)
{
    char *bytes = NULL;
    if (nbytes == 0)
        return ERROR_INVALID;
    pthread_mutex_lock(&mutex);
    if (!is_now("full", ++allocations) && used <= total() && nbytes <= total() - used)
        bytes = aligned_alloc(256, (nbytes + 255) / 256 * 256);
    used += bytes ? malloc_usable_size(bytes) : 0;
    pthread_mutex_unlock(&mutex);
    *memory = (cuda_memory)(uintptr_t)bytes;
    if (bytes)
        memset(bytes, 0xff, nbytes);
    return bytes ? sick : CUDA_OUT_OF_MEMORY;
}

cuda_result cuMemFree_v2(cuda_memory memory)
{
    void *bytes = (void *)(uintptr_t)memory;
    pthread_mutex_lock(&mutex);
    if (sick == 0 && in_use(bytes, malloc_usable_size(bytes)))
        stop("work still uses memory that is freed");
    card_wait();
    used -= malloc_usable_size(bytes);
    pthread_mutex_unlock(&mutex);
    free(bytes);
    return sick;
}

cuda_result cuMemHostAlloc(void **memory, size_t nbytes, unsigned flags)
{
    (void)flags;
    *memory = malloc(nbytes);
    if (!*memory)
        return CUDA_OUT_OF_MEMORY;
    memset(*memory, 0xff, nbytes);
    return pin(*memory, nbytes);
}

cuda_result cuMemFreeHost(void *memory)
{
    const cuda_result result = unpin(memory);
    if (result == 0)
        free(memory);
    return result;
}

cuda_result cuMemHostRegister_v2(void *memory, size_t nbytes, unsigned flags)
{
    (void)flags;
    return has("no_pin") ? ERROR_INVALID : pin(memory, nbytes);
}

cuda_result cuMemHostUnregister(void *memory)
{
    return unpin(memory);
}

static cuda_result queue_pinned(cuda_stream stream, const void *host, work w)
{
    pthread_mutex_lock(&mutex);
    const cuda_result result = is_pinned(host, w.nbytes) ? add(stream, w) : ERROR_INVALID;
    pthread_mutex_unlock(&mutex);
    return result;
}

/* What it reads of the host is read; it is written when the default stream is waited for. */
cuda_result cuMemcpyHtoD_v2(cuda_memory to, const void *from, size_t nbytes)
{
    return queue(
        NULL,
        (work){.kind = COPY, .to = (void *)(uintptr_t)to, .from = copied(from, nbytes), .owned = 1, .nbytes = nbytes});
}

cuda_result cuMemcpyDtoH_v2(void *to, cuda_memory from, size_t nbytes)
{
    pthread_mutex_lock(&mutex);
    memcpy(to, (void *)(uintptr_t)from, nbytes);
    pthread_mutex_unlock(&mutex);
    return sick;
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_memory to, const void *from, size_t nbytes, cuda_stream stream)
{
    return queue_pinned(stream, from,
                        (work){.kind = COPY, .to = (void *)(uintptr_t)to, .from = from, .nbytes = nbytes});
}

cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_memory from, size_t nbytes, cuda_stream stream)
{
    return queue_pinned(stream, to, (work){.kind = COPY, .to = to, .from = (void *)(uintptr_t)from, .nbytes = nbytes});
}

cuda_result cuMemcpyDtoDAsync_v2(cuda_memory to, cuda_memory from, size_t nbytes, cuda_stream stream)
{
    return queue(stream,
                 (work){.kind = COPY, .to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .nbytes = nbytes});
}

cuda_result cuMemsetD8Async(cuda_memory to, unsigned char byte, size_t nbytes, cuda_stream stream)
{
    return queue(stream, (work){.kind = FILL, .to = (void *)(uintptr_t)to, .byte = byte, .nbytes = nbytes});
}

cuda_result cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_nbytes, cuda_stream stream, void **args,
                           void **extra)
{
    const int kernel = (int)(uintptr_t)function - 1;
    const size_t nbytes = tri_emulator_args_nbytes(kernel);
    (void)extra;
    if (block_y != 1 || block_z != 1 || shared_nbytes != 0)
        return 1;
    launch_faults(++launches);
    return queue(stream, (work){.kind = LAUNCH,
                                .launch = {.kernel = kernel,
                                           .grid = {grid_x, grid_y, grid_z},
                                           .threads = (int)block_x,
                                           .args = copied(args[0], nbytes),
                                           .args_nbytes = nbytes}});
}
