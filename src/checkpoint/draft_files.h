/* SPDX-License-Identifier: Apache-2.0
 *
 * draft_files.h: what a draft is made of: names, files with their pieces' checksums, and what writers tell each other.
 */
#ifndef TRI_CHECKPOINT_DRAFT_FILES_H
#define TRI_CHECKPOINT_DRAFT_FILES_H

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "storage/pieces.h"

typedef struct draft_names {
    char *folder, *temporary, *old, *visible;
} draft_names;
/* draft_names_fini() it whatever is returned. */
tri_status draft_names_make(const char *folder, int64_t step, draft_names *names);
void draft_names_fini(draft_names *names);
/* The hidden folder takes the visible name, at once also where a checkpoint has it. */
tri_status draft_put_in_place(const draft_names *names);

typedef struct draft_file {
    const char *name;
    char *path;
    tri_string header; /* what is before the data */
    uint64_t *firsts;  /* [slices + 1] bytes of the file where their data begin */
    int64_t *checks;   /* [slices + 1] number of their first piece */
    int count;         /* of slices */
    uint64_t nbytes;
    uint32_t *parts; /* [checks[count]] what was put adds to each piece's CRC */
    tri_fs_file *file;
    bool is_piece; /* has what this writer put alone, one after the other */
    tri_piece piece;
} draft_file;
/* draft_file_fini() it whatever is returned. */
tri_status draft_file_lay(draft_file *file, const char *folder, const char *name, const tri_checkpoint_slice *slices,
                          int count);
void draft_file_fini(draft_file *file);
/* Bytes that have this place in the whole file. */
tri_status draft_file_write(draft_file *file, const void *bytes, size_t nbytes, uint64_t at);
tri_status draft_file_put(draft_file *file, int slice, uint64_t first, size_t nbytes, const void *bytes);
/* Its row of a manifest; checks are the row's (tri_manifest_fini). */
tri_status draft_file_describe(const draft_file *file, tri_manifest_file *row);

/* What a writer tells: an 8-byte mark, then numbers of 4 and 8 bytes in the order of the machine, message, the parts of
 * all files, and the CRC of all that. */
typedef struct draft_part {
    tri_status status;
    uint64_t put_nbytes;
    char message[TRI_ERROR_NBYTES]; /* or its note */
} draft_part;
tri_status draft_part_print(const draft_part *part, const draft_file *files, int file_count, tri_string *out);
/* Adds its parts to those of the files. `path` is for messages. */
tri_status draft_part_take(const char *text, size_t nbytes, const char *path, draft_file *files, int file_count,
                           draft_part *part);

#endif
