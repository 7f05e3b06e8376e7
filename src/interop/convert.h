/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.h: a model on the disk written again: in Hugging Face's form or in ours, in another element type, in other
 * files.
 */
#ifndef TRI_INTEROP_CONVERT_H
#define TRI_INTEROP_CONVERT_H

#include "checkpoint/tensor_save.h"
#include "interop/pretrained.h"

typedef struct tri_convert_result {
    bool to_hf;
    int dtype_counts[TRI_DTYPE_COUNT]; /* tensors of each type */
    int tensor_count, file_count;
    uint64_t nbytes; /* of all tensors */
} tri_convert_result;

/* Copies what came with a model besides config.json and weights, such as its tokenizer, chat template and
 * generation_config.json; of a checkpoint, what its run has. */
tri_status tri_companions_copy(const tri_pretrained *source, const char *folder);

/* `folder` must not exist or be empty; it appears whole or not at all. to: "hf", "trireme", or "" for the other one
 * than the source is. save->dtype TRI_DTYPE_COUNT: each tensor keeps its type. save->metadata is ours to set. */
tri_status tri_model_convert(const tri_pretrained *source, const char *folder, const char *to, tri_tensor_save save,
                             tri_convert_result *result);

#endif
