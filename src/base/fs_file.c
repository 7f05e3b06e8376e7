/* SPDX-License-Identifier: Apache-2.0
 *
 * fs_file.c: files that are written at any place, and names that last: what a checkpoint needs besides fs.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs_direct.h"
#include "base/sim_process.h"

struct tri_fs_file {
    char *path;
    int fd;
    tri_fs_direct *direct; /* NULL: the usual way */
};

tri_status tri_fs_file_open(const char *path, bool create, tri_fs_file **out)
{
    tri_fs_file *file = tri_alloc_zero(1, sizeof(*file));
    *out = NULL;
    if (!file)
        return TRI_ENOMEM;
    file->path = tri_strdup(path);
    file->fd = file->path ? tri_fs_open_retrying(path, O_WRONLY | (create ? O_CREAT | O_TRUNC : 0)) : -1;
    if (file->fd < 0) {
        tri_status status = file->path ? tri_fs_fail(path, create ? "create" : "open for writing", errno) : TRI_ENOMEM;
        tri_free(file->path);
        tri_free(file);
        return status;
    }
    *out = file;
    return TRI_OK;
}

void tri_fs_file_pass_cache(tri_fs_file *file)
{
    if (!file->direct && !tri_sim_process_now()) /* simulated disks are in memory */
        file->direct = tri_fs_direct_open(file->path);
}

tri_status tri_fs_file_write(tri_fs_file *file, const void *bytes, size_t nbytes, uint64_t at)
{
    if (file->direct)
        return tri_fs_direct_write(file->direct, file->fd, bytes, nbytes, at) ? TRI_OK
                                                                              : tri_fs_fail(file->path, "write", errno);
    for (size_t done = 0; done < nbytes;) {
        ssize_t put = tri_fs_put(file->fd, (const char *)bytes + done, nbytes - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return tri_fs_fail(file->path, "write", put < 0 ? errno : EIO);
        done += (size_t)put;
    }
    return TRI_OK;
}

tri_status tri_fs_file_sync(tri_fs_file *file)
{
    if (file->direct && !tri_fs_direct_flush(file->direct, file->fd))
        return tri_fs_fail(file->path, "write", errno);
    return tri_fs_sync_fd(file->fd, file->path);
}

tri_status tri_fs_file_close(tri_fs_file *file)
{
    if (!file)
        return TRI_OK;
    tri_fs_direct_close(file->direct);
    tri_status status = close(file->fd) != 0 && errno != EINTR ? tri_fs_fail(file->path, "close", errno) : TRI_OK;
    tri_free(file->path);
    tri_free(file);
    return status;
}

tri_status tri_fs_exchange(const char *a, const char *b)
{
    if (tri_sim_process_is_dead())
        return tri_fs_fail(a, "exchange with another name", EIO);
    if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
        return TRI_OK;
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP)
        return tri_fail(TRI_EUNSUPPORTED, "%s: its file system cannot exchange two names", a);
    return tri_fs_fail(a, "exchange with another name", errno);
}

/* The folder that holds a name. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? tri_strdup(".") : tri_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* A folder is named in the one above it: that is what has to be on the disk, for each that is new. */
tri_status tri_fs_make_folder_lasting(const char *path)
{
    if (tri_fs_is_folder(path))
        return TRI_OK;
    char *parent = parent_of(path);
    if (!parent)
        return TRI_ENOMEM;
    tri_status status = strcmp(parent, path) != 0 ? tri_fs_make_folder_lasting(parent) : TRI_OK;
    if (status == TRI_OK)
        status = tri_fs_make_folder(path);
    if (status == TRI_OK)
        status = tri_fs_sync(parent);
    tri_free(parent);
    return status;
}
