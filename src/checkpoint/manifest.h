/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.h: manifest.json: what a checkpoint is, and the length and checksums of each of its files.
 *
 * docs/formats/checkpoint.md specifies it.
 */
#ifndef TRI_CHECKPOINT_MANIFEST_H
#define TRI_CHECKPOINT_MANIFEST_H

#include "checkpoint/checkpoint.h"

#define TRI_MANIFEST_FILE      "manifest.json"
#define TRI_MODEL_FILE         "model.safetensors"
#define TRI_STATE_FILE         "optimizer.safetensors"
#define TRI_LAYOUT_NAME        "trireme" /* "layout" in __metadata__: names and shapes are ours */
#define TRI_MANIFEST_VERSION   2
#define TRI_MANIFEST_MAX_FILES 2
#define TRI_CHECK_NBYTES       (UINT64_C(1) << 20) /* of a tensor, that one checksum is of, at most */

typedef struct tri_manifest_file {
    char name[32]; /* TRI_MODEL_FILE or TRI_STATE_FILE */
    uint64_t nbytes;
    uint32_t header;  /* CRC-32C of what is before the data */
    uint32_t *checks; /* of pieces of TRI_CHECK_NBYTES of each tensor, the last one shorter, in the order of the data */
    int64_t check_count;
} tri_manifest_file;

typedef struct tri_manifest {
    tri_checkpoint_manifest run;
    tri_manifest_file files[TRI_MANIFEST_MAX_FILES];
    int file_count;
} tri_manifest;

/* Pieces with a checksum each of a tensor. */
static inline int64_t tri_check_count(uint64_t nbytes)
{
    return (int64_t)((nbytes + TRI_CHECK_NBYTES - 1) / TRI_CHECK_NBYTES);
}

/* Appends the JSON text. */
tri_status tri_manifest_print(const tri_manifest *manifest, tri_string *out);
/* tri_manifest_fini() it after success. */
tri_status tri_manifest_parse(const char *text, size_t nbytes, const char *origin, tri_manifest *manifest);
/* Reads <path>/manifest.json; likewise. */
tri_status tri_manifest_load(const char *path, tri_manifest *manifest);
void tri_manifest_fini(tri_manifest *manifest);

/* The step of a folder's name, step-NNNNNNNN; false for any other name. */
bool tri_checkpoint_name_step(const char *name, int64_t *step);
typedef struct tri_checkpoint_entry {
    int64_t step;
    char *name;
} tri_checkpoint_entry;
/* Checkpoints of a folder by name, newest first: a vector of tri_checkpoint_entry; tri_checkpoint_list_free() it. */
tri_status tri_checkpoint_list(const char *folder, tri_vector *out);
void tri_checkpoint_list_free(tri_vector *list);

#endif
