/* SPDX-License-Identifier: Apache-2.0
 *
 * file_writer.c: small pieces are gathered, large ones go straight to the file; the hash runs along.
 */
#include "checkpoint/file_writer.h"

#include <string.h>
#include <xxhash.h>

#include "base/fs.h"

#define BUFFER_NBYTES ((size_t)1 << 20)

struct tri_file_writer {
    char *path;
    XXH3_state_t *hash;
    uint64_t nbytes; /* put so far */
    size_t used;     /* of the buffer */
    unsigned char buffer[BUFFER_NBYTES];
};

uint64_t tri_file_hash(const void *bytes, size_t nbytes)
{
    return XXH3_64bits(bytes, nbytes);
}

void tri_file_writer_abandon(tri_file_writer *writer)
{
    XXH3_freeState(writer->hash);
    tri_free(writer->path);
    tri_free(writer);
}

tri_status tri_file_writer_open(const char *path, tri_file_writer **out)
{
    *out = NULL;
    TRI_TRY(tri_fs_remove(path));
    tri_file_writer *writer = tri_alloc_zero(1, sizeof(*writer));
    if (writer == NULL)
        return TRI_ENOMEM;
    writer->path = tri_strdup(path);
    writer->hash = XXH3_createState();
    if (writer->path == NULL || writer->hash == NULL) {
        tri_file_writer_abandon(writer);
        return tri_fail(TRI_ENOMEM, "%s: no memory to write it", path);
    }
    XXH3_64bits_reset(writer->hash);
    *out = writer;
    return TRI_OK;
}

static tri_status flush(tri_file_writer *writer)
{
    size_t nbytes = writer->used;
    writer->used = 0;
    return nbytes > 0 ? tri_fs_append(writer->path, writer->buffer, nbytes) : TRI_OK;
}

tri_status tri_file_writer_put(tri_file_writer *writer, const void *bytes, size_t nbytes)
{
    if (nbytes == 0)
        return TRI_OK;
    XXH3_64bits_update(writer->hash, bytes, nbytes);
    writer->nbytes += nbytes;
    if (nbytes > BUFFER_NBYTES - writer->used)
        TRI_TRY(flush(writer));
    if (nbytes > BUFFER_NBYTES)
        return tri_fs_append(writer->path, bytes, nbytes);
    memcpy(writer->buffer + writer->used, bytes, nbytes);
    writer->used += nbytes;
    return TRI_OK;
}

tri_status tri_file_writer_close(tri_file_writer *writer, tri_file_digest *digest)
{
    tri_status status = flush(writer);
    if (status == TRI_OK)
        status = tri_fs_sync(writer->path);
    if (digest != NULL)
        *digest = (tri_file_digest){writer->nbytes, XXH3_64bits_digest(writer->hash)};
    tri_file_writer_abandon(writer);
    return status;
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
