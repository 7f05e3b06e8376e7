/* SPDX-License-Identifier: Apache-2.0
 *
 * file_writer.c: small pieces are gathered, large ones go straight to the file.
 */
#include "checkpoint/file_writer.h"

#include <string.h>

#include "base/fs.h"

#define BUFFER_NBYTES ((size_t)1 << 20)

struct tri_file_writer {
    tri_fs_file *file;
    uint64_t nbytes; /* in the file */
    size_t used;     /* of the buffer */
    unsigned char buffer[BUFFER_NBYTES];
};

void tri_file_writer_abandon(tri_file_writer *writer)
{
    (void)tri_fs_file_close(writer->file);
    tri_free(writer);
}

tri_status tri_file_writer_open(const char *path, tri_file_writer **out)
{
    *out = NULL;
    tri_file_writer *writer = tri_alloc_zero(1, sizeof(*writer));
    if (writer == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_fs_remove(path);
    if (status == TRI_OK)
        status = tri_fs_file_open(path, true, &writer->file);
    if (status != TRI_OK) {
        tri_file_writer_abandon(writer);
        return status;
    }
    *out = writer;
    return TRI_OK;
}

static tri_status put(tri_file_writer *writer, const void *bytes, size_t nbytes)
{
    TRI_TRY(tri_fs_file_write(writer->file, bytes, nbytes, writer->nbytes));
    writer->nbytes += nbytes;
    return TRI_OK;
}

static tri_status flush(tri_file_writer *writer)
{
    size_t nbytes = writer->used;
    writer->used = 0;
    return put(writer, writer->buffer, nbytes);
}

tri_status tri_file_writer_put(tri_file_writer *writer, const void *bytes, size_t nbytes)
{
    if (nbytes == 0)
        return TRI_OK;
    if (nbytes > BUFFER_NBYTES - writer->used)
        TRI_TRY(flush(writer));
    if (nbytes > BUFFER_NBYTES)
        return put(writer, bytes, nbytes);
    memcpy(writer->buffer + writer->used, bytes, nbytes);
    writer->used += nbytes;
    return TRI_OK;
}

tri_status tri_file_writer_close(tri_file_writer *writer)
{
    tri_status status = flush(writer);
    if (status == TRI_OK)
        status = tri_fs_file_sync(writer->file);
    tri_status closed = tri_fs_file_close(writer->file);
    writer->file = NULL;
    tri_file_writer_abandon(writer);
    return status == TRI_OK ? closed : status;
}

tri_status tri_file_discard(const char *path, tri_status cause)
{
    char message[TRI_ERROR_NBYTES];
    strncpy(message, tri_last_error(), sizeof(message) - 1);
    message[sizeof(message) - 1] = 0;
    tri_fs_remove(path); /* debris at worst: the next save tries again */
    return tri_fail_copy(cause, message);
}

tri_status tri_file_rename(const char *from, const char *to)
{
    const char *slash = strrchr(to, '/');
    char *folder = slash == NULL ? tri_strdup(".") : tri_strndup(to, slash == to ? 1 : (size_t)(slash - to));
    if (folder == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_fs_rename(from, to);
    if (status == TRI_OK)
        status = tri_fs_sync(folder);
    tri_free(folder);
    return status;
}
