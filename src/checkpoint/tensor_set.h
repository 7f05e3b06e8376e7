/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_set.h: the tensors of a model that are in one safetensors file, or in several with an index.
 *
 * The index (model.safetensors.index.json of Hugging Face) says which file holds which tensor; it is believed only
 * where the files agree with it: each tensor is in the file it names, and no file holds another.
 */
#ifndef TRI_CHECKPOINT_TENSOR_SET_H
#define TRI_CHECKPOINT_TENSOR_SET_H

#include "base/arena.h"
#include "checkpoint/safetensors.h"

#define TRI_INDEX_FILE "model.safetensors.index.json"

/* What an index says. */
typedef struct tri_tensor_index {
    tri_arena arena;
    const char **files; /* plain names, in order of first mention */
    int file_count;
    tri_map tensors; /* -> number of the file */
} tri_tensor_index;
/* tri_tensor_index_fini() it whatever is returned. `origin` is for messages. */
tri_status tri_tensor_index_parse(const char *text, size_t nbytes, const char *origin, tri_tensor_index *index);
void tri_tensor_index_fini(tri_tensor_index *index);

typedef struct tri_tensor_set tri_tensor_set;
/* path: a safetensors file, or a folder with model.safetensors or, failing that, an index. Files stay mapped until the
 * set is closed. TRI_ENOTFOUND when the folder has neither. */
tri_status tri_tensor_set_open(const char *path, tri_tensor_set **out);
int tri_tensor_set_count(const tri_tensor_set *set);
int tri_tensor_set_file_count(const tri_tensor_set *set);
/* In the order of the files, and within a file of its bytes. */
const tri_stored_tensor *tri_tensor_set_at(const tri_tensor_set *set, int index);
/* NULL when absent. */
const tri_stored_tensor *tri_tensor_set_find(const tri_tensor_set *set, const char *name);
/* A text of __metadata__ of the first file, or NULL. */
const char *tri_tensor_set_metadata(const tri_tensor_set *set, const char *key);
/* The file or the folder's index, for messages. */
const char *tri_tensor_set_origin(const tri_tensor_set *set);
void tri_tensor_set_close(tri_tensor_set *set);

#endif
