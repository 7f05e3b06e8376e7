/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_save.h: views written as safetensors: one file, or several with an index, an element type of choice.
 */
#ifndef TRI_CHECKPOINT_TENSOR_SAVE_H
#define TRI_CHECKPOINT_TENSOR_SAVE_H

#include "checkpoint/tensor_view.h"

typedef struct tri_tensor_save {
    tri_dtype dtype;             /* a floating type: to the nearest, ties to even; TRI_DTYPE_COUNT: each view's own */
    uint64_t shard_nbytes;       /* files are closed before they exceed it; 0: one file */
    const char *const *metadata; /* pairs key, value, NULL at the end; or NULL */
    /* Called now and then with the bytes written so far and those of all; may be NULL. */
    void (*progress)(void *arg, uint64_t nbytes, uint64_t all);
    void *progress_arg;
} tri_tensor_save;

/* Writes model.safetensors, or model-NNNNN-of-NNNNN.safetensors and the index, into a folder that exists. Tensors keep
 * their order; one that is larger than shard_nbytes has a file of its own. *file_count may be NULL. TRI_EFORMAT names a
 * tensor with a finite element that the type cannot hold. */
tri_status tri_tensor_save_all(const char *folder, const tri_tensor_view *views, int count,
                               const tri_tensor_save *options, int *file_count);

/* The type that a view is written in. */
tri_dtype tri_tensor_save_dtype(const tri_tensor_save *options, const tri_tensor_view *view);

#endif
