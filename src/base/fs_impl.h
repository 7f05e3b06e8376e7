/* SPDX-License-Identifier: Apache-2.0
 *
 * fs_impl.h: what fs.c and fs_file.c have in common.
 */
#ifndef TRI_BASE_FS_IMPL_H
#define TRI_BASE_FS_IMPL_H

#include <sys/types.h>

#include "base/fs.h"
#include "base/status.h"

/* "<path>: cannot <verb>: <reason>"; TRI_ENOTFOUND when it does not exist. */
tri_status tri_fs_fail(const char *path, const char *verb, int error);
/* Continues after signals. */
int tri_fs_open_retrying(const char *path, int flags);
/* All bytes of files go through it; at -1: where the file is. */
ssize_t tri_fs_put(int fd, const void *bytes, size_t nbytes, off_t at);
tri_status tri_fs_sync_fd(int fd, const char *path);

#endif
