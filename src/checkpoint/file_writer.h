/* SPDX-License-Identifier: Apache-2.0
 *
 * file_writer.h: a file written piece by piece under a name that nobody reads yet, with its length and hash at the end.
 */
#ifndef TRI_CHECKPOINT_FILE_WRITER_H
#define TRI_CHECKPOINT_FILE_WRITER_H

#include "checkpoint/safetensors.h"

typedef struct tri_file_digest {
    uint64_t nbytes;
    uint64_t hash; /* xxh3, 64 bits */
} tri_file_digest;

typedef struct tri_file_writer tri_file_writer;
/* Removes what stood under the name. */
tri_status tri_file_writer_open(const char *path, tri_file_writer **out);
tri_status tri_file_writer_put(tri_file_writer *writer, const void *bytes, size_t nbytes);
/* Writes what is left, syncs the file; digest may be NULL. Closes the writer, also on failure. */
tri_status tri_file_writer_close(tri_file_writer *writer, tri_file_digest *digest);
/* Closes without writing what is left. */
void tri_file_writer_abandon(tri_file_writer *writer);

/* Removes a file or folder after a failure, whose message stays. Returns `cause`. */
tri_status tri_file_discard(const char *path, tri_status cause);
/* Renames and syncs the folder that holds the new name. */
tri_status tri_file_rename(const char *from, const char *to);

/* The hash of bytes in memory, as the writer computes it. */
uint64_t tri_file_hash(const void *bytes, size_t nbytes);

/* What stands before the data of a safetensors file: the bytes of the tensors follow, without gaps, in this order.
 * `path` is for messages. */
tri_status tri_safetensors_put_header(tri_file_writer *writer, const char *path, const tri_stored_tensor *tensors,
                                      int count, const char *const *metadata);

#endif
