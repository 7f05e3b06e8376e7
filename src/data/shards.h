/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.h: which files a data path stands for: one file, the files of a folder, or a pattern.
 *
 * Patterns: {000..012} and {a,b} anywhere, * and ? in the last name; several patterns between blanks or commas outside
 * braces. In a folder, files whose names begin with train, val or test, or sub-folders of these names, are the parts;
 * without such names all files are one set.
 */
#ifndef TRI_DATA_SHARDS_H
#define TRI_DATA_SHARDS_H

#include "base/containers.h"
#include "base/fs.h"
#include "data/data.h"

typedef struct tri_shards {
    tri_vector paths; /* char *: in order */
    bool own;         /* they are of the part that was asked for alone; else that is a fraction of them */
} tri_shards;

/* Whether there is a first file with this ending. */
bool tri_shards_can(const char *path, const char *ending);
/* The files of a part, at least one; TRI_ENOTFOUND says what was looked for. */
tri_status tri_shards_find(const char *path, tri_data_part part, const char *ending, tri_shards *out);
void tri_shards_fini(tri_shards *shards);

/* The program that expands files which begin so ("gunzip"); NULL: they are not compressed. */
const char *tri_compression_tool(const void *bytes, size_t nbytes);
/* A path that is compressed, or a folder with a file that is, as the error that says so; else TRI_OK. */
tri_status tri_shards_check_compressed(const char *path);

/* Waits until no other process of this host makes what is kept beside `kept`, a path in an index folder.
 * TRI_ECANCELED: a signal came. tri_fs_lock_release() it. */
tri_status tri_index_lock(const char *kept, tri_fs_lock *lock);

/* Where the index of a data file is kept: in `folder`, or where that is "" in .trireme beside the file; the folder is
 * made. tri_free() it. `what`: its name behind that of the file. */
tri_status tri_index_path(const char *folder, const char *file, const char *what, char **out);

#endif
