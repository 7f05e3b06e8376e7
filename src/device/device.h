/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: where the arrays of a run are: a table of kinds of devices, and opened ones with their memory.
 *
 * Memory of a device is named by addresses. Only its own kernels and the copies below may use them; the host reads
 * and writes there where the kind says shares_host. Kernels, loops and plain copies of a device are a queue, in the
 * order in which they were called. tri_device_to_host() and tri_device_from_host() wait for all of it, and return when
 * their bytes are there; the other calls may return before their work is done. A second queue copies beside the
 * kernels; events order the two.
 */
#ifndef TRI_DEVICE_DEVICE_H
#define TRI_DEVICE_DEVICE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_device tri_device;

typedef enum tri_device_queue { TRI_QUEUE_KERNELS, TRI_QUEUE_COPIES, TRI_QUEUE_COUNT } tri_device_queue;

/* A mark in a queue. Of zeros: none. */
typedef struct tri_device_event {
    void *mark; /* the kind's own */
} tri_device_event;

#define TRI_DEVICE_ID_NBYTES 37

/* Memory of a device that has its own. */
typedef struct tri_device_room {
    size_t free_nbytes, total_nbytes; /* other processes use it too */
    char id[TRI_DEVICE_ID_NBYTES];    /* no other device of any machine has it; parts of a card (MIG) are devices */
    char place[32];                   /* of the card in this machine, for people */
    int cards;                        /* that processes of this machine are spread over by the device's word */
} tri_device_room;

/* What a device that has memory of its own reaches by its data sheet: nothing is measured. */
typedef struct tri_device_rates {
    double flops, half_flops; /* a second: of f32; of bf16 and f16 */
    double memory;            /* bytes a second, read and written */
} tri_device_rates;

#define TRI_DEVICE_NAME_NBYTES 27 /* of a kernel */

/* A kernel that has run. */
typedef struct tri_device_kernel {
    int64_t step, start_ns, duration_ns; /* start_ns: about, by tri_now_ns() */
    int64_t sent_nbytes;                 /* to other ranks; -1: it is no exchange with them */
    char name[TRI_DEVICE_NAME_NBYTES];
} tri_device_kernel;

typedef struct tri_device_ops {
    const char *name;
    const char *does;
    const char *kernels; /* those that compute in its memory: a row of kernel/array.c */
    /* Host and device see each other's memory at the same addresses: nothing has to be copied. */
    bool shares_host;
    /* Fills device->state; TRI_EUNSUPPORTED says in one line why this machine has none. NULL: nothing to open. */
    tri_status (*open)(tri_device *device);
    void (*close)(tri_device *device); /* NULL: nothing to close */
    /* Lets the maker's library multiply matrices (launch.h). TRI_EUNSUPPORTED says in one line why our own kernels have
     * to. NULL: the kind has none. */
    tri_status (*library_open)(tri_device *device);
    /* Zeroed, aligned to at least 64 bytes; NULL when memory is out (TRI_ENOMEM in tri_last_error). nbytes 0 gives an
     * address of nothing. */
    void *(*alloc)(const tri_device *device, size_t nbytes);
    void (*free)(const tri_device *device, void *memory); /* NULL does nothing */
    /* Within the device; the ranges must not overlap. */
    void (*copy)(const tri_device *device, void *to, const void *from, size_t nbytes);
    void (*to_host)(const tri_device *device, void *to, const void *from, size_t nbytes);
    void (*from_host)(const tri_device *device, void *to, const void *from, size_t nbytes);
    void (*fill)(const tri_device *device, void *to, unsigned char byte, size_t nbytes);
    /* The functions of these names below. All NULL: copies are made at once, and no event is needed. */
    void *(*host_alloc)(const tri_device *device, size_t nbytes);
    void (*host_free)(const tri_device *device, void *memory);
    bool (*host_pin)(const tri_device *device, void *memory, size_t nbytes);
    void (*host_unpin)(const tri_device *device, void *memory);
    void (*copy_out)(const tri_device *device, void *to, const void *from, size_t nbytes);
    void (*copy_in)(const tri_device *device, void *to, const void *from, size_t nbytes);
    tri_status (*event_create)(const tri_device *device, tri_device_event *event);
    void (*event_destroy)(const tri_device *device, tri_device_event *event);
    void (*event_record)(const tri_device *device, tri_device_event event, tri_device_queue queue);
    void (*event_order)(const tri_device *device, tri_device_event event, tri_device_queue queue);
    void (*event_wait)(const tri_device *device, tri_device_event event);
    /* What the bits of its kernels depend on, in words: "cuda, compute capability 9.0, driver for CUDA 13". NULL: they
     * are the host's. */
    const char *(*arithmetic)(const tri_device *device);
    /* NULL: its memory is the host's. */
    tri_status (*room)(const tri_device *device, tri_device_room *out);
    tri_status (*rates)(const tri_device *device, tri_device_rates *out); /* of a kind with `room` */
    /* tri_device_kernels_time() and _read(). NULL: kernels run while their caller waits. */
    void (*kernels_time)(const tri_device *device, int64_t step);
    tri_status (*kernels_read)(const tri_device *device, tri_device_kernel **out, int64_t *count);
    const struct tri_device_ops *planned; /* tri_device_plan(): of a kind with `room` */
    /* Of a kind whose kernels run on the host's processor: where these find its memory. NULL: at its address. */
    void *(*mapped)(const tri_device *device, const void *memory);
} tri_device_ops;

typedef struct tri_device_usage tri_device_usage; /* device.c */

struct tri_device {
    const tri_device_ops *ops;
    int index;               /* "cuda:1": 1 */
    bool any;                /* the word has no number: open() chooses the index by place */
    int place;               /* as in tri_device_open_of() */
    void *state;             /* the kind's own */
    tri_device_usage *usage; /* NULL: its memory is the host's, and counted there (base/memory.h) */
};

/* word: "auto" (what TRI_AUTO_DEVICE of the build names), or the name of a kind, with ":N" the N-th device
 * of it. TRI_ECONFIG: this build has no such kind; TRI_EUNSUPPORTED: this machine has none. */
tri_status tri_device_open(const char *word, tri_device **out);
/* The same for a process that is number `place` of those of its host, from 0: "cuda" without a number is a card of
 * their own, as long as there are as many; then they share. */
tri_status tri_device_open_of(const char *word, int place, tri_device **out);
/* One like it for a plan: allocations are counted and give addresses that nobody may use, copies do nothing, and the
 * machine needs no such device. Of a kind whose memory is the host's: as tri_device_open(). */
tri_status tri_device_plan(const char *word, tri_device **out);
/* All its memory is free by then. NULL is fine. */
void tri_device_close(tri_device *device);
/* The host itself, which is always there. */
const tri_device *tri_device_host(void);
/* The i-th kind, NULL behind the last: for lists of what there is. */
const tri_device_ops *tri_device_at(size_t i);
/* Whether a word of tri_device_open() means a device whose kernels are its own, so that its memory and time are too. */
bool tri_device_is_card(const char *word);

/* Its memory is not the host's: a plan counts both. */
static inline bool tri_device_has_memory(const tri_device *device)
{
    return device->usage != NULL;
}
/* Of a device that has memory: bytes that are allocated now. */
size_t tri_device_live(const tri_device *device);

/* Bytes of this process on all devices that have memory of their own, those of plans left out. */
typedef struct tri_device_memory {
    size_t live, peak, planned; /* planned: the most that the run wants to need; 0: nobody has said */
} tri_device_memory;
tri_device_memory tri_device_memory_now(void);
void tri_device_memory_planned_set(size_t nbytes);

static inline bool tri_device_shares_host(const tri_device *device)
{
    return device->ops->shares_host;
}
void *tri_device_alloc(const tri_device *device, size_t nbytes);
void tri_device_free(const tri_device *device, void *memory);
void tri_device_copy(const tri_device *device, void *to, const void *from, size_t nbytes);
void tri_device_to_host(const tri_device *device, void *to, const void *from, size_t nbytes);
void tri_device_from_host(const tri_device *device, void *to, const void *from, size_t nbytes);
void tri_device_fill(const tri_device *device, void *to, unsigned char byte, size_t nbytes);

/* --- copies beside kernels --- */

/* Memory of the host that these copies can reach: zeroed, page-locked on a card. NULL when memory is out. */
void *tri_device_host_alloc(const tri_device *device, size_t nbytes);
void tri_device_host_free(const tri_device *device, void *memory); /* NULL does nothing */
/* Makes memory that is there already such memory, until unpin; false: the driver refuses. */
bool tri_device_host_pin(const tri_device *device, void *memory, size_t nbytes);
void tri_device_host_unpin(const tri_device *device, void *memory);
/* In TRI_QUEUE_COPIES: they run beside kernels, behind what came before them in that queue. The host's side is memory
 * of the two calls above and stays as it is until an event behind the copy was waited for. */
void tri_device_copy_out(const tri_device *device, void *to, const void *from, size_t nbytes);
void tri_device_copy_in(const tri_device *device, void *to, const void *from, size_t nbytes);

tri_status tri_device_event_create(const tri_device *device, tri_device_event *event);
void tri_device_event_destroy(const tri_device *device, tri_device_event *event); /* of zeros: does nothing */
/* The event is what was queued there so far, in place of what it was before. */
void tri_device_event_record(const tri_device *device, tri_device_event event, tri_device_queue queue);
/* What is queued there from now on waits for the event; one that was never recorded is over. */
void tri_device_event_order(const tri_device *device, tri_device_event event, tri_device_queue queue);
/* The host waits for it. Any thread may call this and all above. */
void tri_device_event_wait(const tri_device *device, tri_device_event event);

/* --- who has a copy of an array in another form --- */

/* An array of a device that has memory of its own. Each call above that writes there, and whoever calls
 * tri_device_written(), says which bytes of it change, before they do. `changes` is called by the thread that writes:
 * only one may. */
typedef struct tri_device_watch {
    const void *memory;
    size_t nbytes;
    void (*changes)(void *arg, size_t first, size_t nbytes);
    void *arg;
} tri_device_watch;
/* The watch is borrowed until it is taken away. A device has one at a time: false: it
 * has another one, or none can be. */
bool tri_device_watch_set(const tri_device *device, const tri_device_watch *watch);
void tri_device_watch_end(const tri_device *device, const tri_device_watch *watch);
/* A kernel, or another library, writes there. To be called by whoever launches a kernel that writes weights
 * (kernel/array.c, optim/gpu.c), or lets NCCL write them. */
void tri_device_written(const tri_device *device, const void *memory, size_t nbytes);

/* Times each kernel that is queued from now on, for this step; below 0: no more, and what was not read is dropped. */
void tri_device_kernels_time(const tri_device *device, int64_t step);
/* Waits for the queue of kernels: those that were timed since the last call, in order (tri_free). None on a device
 * whose kernels run while their caller waits. */
tri_status tri_device_kernels_read(const tri_device *device, tri_device_kernel **out, int64_t *count);

/* For kernels and loops that run on the host's processor, and nobody else: where they find memory of the device. Not of
 * one whose memory the host cannot reach. */
static inline void *tri_device_mapped(const tri_device *device, const void *memory)
{
    TRI_ASSERT(device->ops->mapped || device->ops->shares_host);
    return device->ops->mapped ? device->ops->mapped(device, memory) : (void *)(size_t)memory;
}

/* An array of a device as the host reads and writes it: the array itself where the device shares memory with the host,
 * else a copy. */
typedef struct tri_device_view {
    const tri_device *device;
    void *memory; /* of the device */
    void *host;
    size_t nbytes;
} tri_device_view;

/* view->host holds the array's present content. */
tri_status tri_device_view_open(tri_device_view *view, const tri_device *device, void *memory, size_t nbytes);
/* Brings the device's present content to the host, and the host's to the device; nothing where they share memory. */
void tri_device_view_read(const tri_device_view *view);
void tri_device_view_write(const tri_device_view *view);
/* Releases the copy; a view of zeros does nothing. */
void tri_device_view_close(tri_device_view *view);

#endif
