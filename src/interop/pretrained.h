/* SPDX-License-Identifier: Apache-2.0
 *
 * pretrained.h: a model that is on the disk, whoever wrote it, as tensors under our names.
 *
 * Understood: a folder of Hugging Face (config.json and safetensors, also sharded), a checkpoint of ours, the run
 * folder above it (its newest checkpoint), what `trireme convert` wrote, a safetensors file alone.
 */
#ifndef TRI_INTEROP_PRETRAINED_H
#define TRI_INTEROP_PRETRAINED_H

#include "checkpoint/checkpoint.h"
#include "interop/hf_names.h"

typedef struct tri_pretrained tri_pretrained;

/* Reads headers and config.json, no weights. Files stay mapped until it is closed. */
tri_status tri_pretrained_open(const char *path, tri_pretrained **out);
void tri_pretrained_close(tri_pretrained *source);
/* NULL where there is no config.json. */
tri_hf_config *tri_pretrained_config(const tri_pretrained *source);
/* Whether nothing says that Trireme wrote the files: neither a manifest beside them nor a mark in them. */
bool tri_pretrained_is_foreign(const tri_pretrained *source);
/* Whether the files have Hugging Face's names and not ours. */
bool tri_pretrained_is_hf(const tri_pretrained *source);
const tri_tensor_set *tri_pretrained_tensors(const tri_pretrained *source);
/* All floating tensors under our names. */
const tri_tensor_view *tri_pretrained_views(const tri_pretrained *source, int *count);
const tri_tensor_view *tri_pretrained_find(const tri_pretrained *source, const char *name);
/* The folder that was named, or that of the file: config.json and a tokenizer are there. */
const char *tri_pretrained_folder(const tri_pretrained *source);
/* Where the weights are, for messages. */
const char *tri_pretrained_origin(const tri_pretrained *source);

typedef struct tri_pretrained_load {
    /* Names that keep what they have; count 0: none. NULL never says yes. */
    bool (*keeps)(void *arg, const char *name);
    void *keeps_arg;
    /* Called now and then with the elements read so far and those of all; may be NULL. */
    void (*progress)(void *arg, int64_t count, int64_t all);
    void *progress_arg;
} tri_pretrained_load;
/* Every slice is there with its shape, and nothing beyond; values are not touched. */
tri_status tri_pretrained_check(const tri_pretrained *source, const tri_checkpoint_slice *slices, int count);
/* Fills the slices. Every name that is not kept must be there with its shape; what is there beyond must be kept.
 * Nothing is changed when a name or a shape does not fit. */
tri_status tri_pretrained_read(const tri_pretrained *source, const tri_checkpoint_slice *slices, int count,
                               const tri_pretrained_load *options);

#endif
