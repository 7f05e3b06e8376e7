/* SPDX-License-Identifier: Apache-2.0
 *
 * fs_direct.h: large files on their way between memory and disk, past the system's cache of files.
 *
 * Through that cache each byte is copied once more and each page found, filled and written back: of a gigabyte some
 * three seconds of a core that the training needs (docs/design/recovery.md). Where a file system cannot
 * do without it, bytes go the usual way.
 */
#ifndef TRI_BASE_FS_DIRECT_H
#define TRI_BASE_FS_DIRECT_H

#include "base/fs_impl.h"

#define TRI_DIRECT_BLOCK ((size_t)4096) /* what memory, place and length are multiples of: no disk has larger ones */
#define TRI_DIRECT_STAGE ((size_t)1 << 20)

/* Bytes of neighbouring places, on their way to a file. */
typedef struct tri_fs_direct {
    int fd;
    void *memory;
    unsigned char *bytes; /* of it, from a whole block on; the first belongs at `at`, which is one, too */
    uint64_t at;
    size_t begin, end; /* that are there */
} tri_fs_direct;

/* NULL: not of this file, or no memory. */
tri_fs_direct *tri_fs_direct_open(const char *path);
/* What does not fill blocks is written to fd, the usual way. The error is in errno. */
bool tri_fs_direct_write(tri_fs_direct *direct, int fd, const void *bytes, size_t nbytes, uint64_t at);
bool tri_fs_direct_flush(tri_fs_direct *direct, int fd);
void tri_fs_direct_close(tri_fs_direct *direct);

#endif
