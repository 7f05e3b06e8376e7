/* SPDX-License-Identifier: Apache-2.0
 *
 * file_writer.h: a file written piece by piece under a name that nobody reads yet.
 */
#ifndef TRI_CHECKPOINT_FILE_WRITER_H
#define TRI_CHECKPOINT_FILE_WRITER_H

#include "checkpoint/safetensors.h"

typedef struct tri_file_writer tri_file_writer;
/* Removes what stood under the name. */
tri_status tri_file_writer_open(const char *path, tri_file_writer **out);
tri_status tri_file_writer_put(tri_file_writer *writer, const void *bytes, size_t nbytes);
/* Writes what is left, syncs the file. Closes the writer, also on failure. */
tri_status tri_file_writer_close(tri_file_writer *writer);
/* Closes without writing what is left. */
void tri_file_writer_abandon(tri_file_writer *writer);

/* Removes a file or folder after a failure, whose message stays. Returns `cause`. */
tri_status tri_file_discard(const char *path, tri_status cause);
/* Renames and syncs the folder that holds the new name. */
tri_status tri_file_rename(const char *from, const char *to);

/* Appends what is before the data of a safetensors file: the bytes of the tensors follow, without gaps, in this
 * order. `path` is for messages. */
tri_status tri_safetensors_print_header(const char *path, const tri_stored_tensor *tensors, int count,
                                        const char *const *metadata, tri_string *out);
tri_status tri_safetensors_put_header(tri_file_writer *writer, const char *path, const tri_stored_tensor *tensors,
                                      int count, const char *const *metadata);

#endif
