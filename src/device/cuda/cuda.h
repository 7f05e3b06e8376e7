/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.h: NVIDIA cards: what this machine has, and the kind of devices "cuda".
 */
#ifndef TRI_DEVICE_CUDA_CUDA_H
#define TRI_DEVICE_CUDA_CUDA_H

#include "device/cuda/kernel_times.h"
#include "device/cuda/library.h"
#include "device/launch.h"

typedef struct tri_cuda_card {
    char name[128];
    int capability; /* 90: compute capability 9.0 */
    int sms;
    size_t memory_nbytes;
    char id[TRI_DEVICE_ID_NBYTES]; /* its UUID; under MIG that of the instance */
    char place[32];                /* its PCI address, which instances of a card share */
} tri_cuda_card;

/* Cards of this machine, at most `capacity`; the driver's version as 13000. TRI_EUNSUPPORTED: one sentence says why
 * there are none. */
tri_status tri_cuda_cards(tri_cuda_card *cards, int capacity, int *count, int *driver);
/* TRI_EUNSUPPORTED: one sentence says that our kernels do not run on it. */
tri_status tri_cuda_card_check(const tri_cuda_card *card, int index);
/* The module of kernels that is part of this build; NULL: it was built without. Tests set another one. */
extern const void *tri_cuda_image;

/* Memory and two streams of a card; its state begins with the queue that takes launches. A call of the driver that
 * fails ends the process in one line, but for memory that is out: nothing on a card can be trusted after it. */
extern const tri_device_ops tri_device_cuda;
extern const tri_device_ops tri_device_cuda_planned; /* device/planned.c */

/* A card that is open, with a queue of kernels of its own beside the first one's: events order the two. Memory and the
 * queue of copies are the same. Closed before the card; nothing is in its queue by then. */
tri_status tri_cuda_beside_open(const tri_device *device, tri_device *out);
void tri_cuda_beside_close(tri_device *beside); /* of zeros: does nothing */

/* What other libraries of NVIDIA need of an opened card. */
typedef struct tri_cuda_handles {
    const tri_cuda_calls *calls;
    cuda_context context;
    cuda_stream stream; /* of TRI_QUEUE_KERNELS */
    int index;
    char id[TRI_DEVICE_ID_NBYTES], place[32]; /* as of tri_cuda_card */
    tri_cuda_times *times;                    /* of what the stream does */
} tri_cuda_handles;
/* TRI_EUNSUPPORTED: the device is of another kind. */
tri_status tri_cuda_handles_read(const tri_device *device, tri_cuda_handles *out);

#endif
