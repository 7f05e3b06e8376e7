/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.h: named tensors in one file, as the safetensors format lays them out.
 *
 * Header checked fully before anything is believed: length <= 100 MB, offsets contiguous, inside the file, without
 * overlap, dtype and shape agree with the bytes.
 */
#ifndef TRI_CHECKPOINT_SAFETENSORS_H
#define TRI_CHECKPOINT_SAFETENSORS_H

#include <trireme/tensor.h>

#include "base/containers.h"

#define TRI_SAFETENSORS_HEADER_LIMIT UINT64_C(100000000) /* bytes: the format's own */

typedef struct tri_stored_tensor {
    const char *name;
    tri_dtype dtype;
    tri_shape shape;
    const void *bytes; /* reading: inside the mapped file; writing: the caller's */
    size_t nbytes;
} tri_stored_tensor;

typedef struct tri_safetensors tri_safetensors;
tri_status tri_safetensors_open(const char *path, tri_safetensors **out);
/* For the fuzzer and for bytes from elsewhere; borrowed until close. `origin` is for messages. */
tri_status tri_safetensors_parse(const void *bytes, size_t nbytes, const char *origin, tri_safetensors **out);
int tri_safetensors_count(const tri_safetensors *file);
const tri_stored_tensor *tri_safetensors_at(const tri_safetensors *file, int index);
/* NULL when absent. */
const tri_stored_tensor *tri_safetensors_find(const tri_safetensors *file, const char *name);
/* Where its bytes begin in the file that was opened. */
uint64_t tri_safetensors_place(const tri_safetensors *file, const tri_stored_tensor *tensor);
/* A text of __metadata__, or NULL. */
const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key);
void tri_safetensors_close(tri_safetensors *file);

#endif
