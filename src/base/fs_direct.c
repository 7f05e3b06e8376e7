/* SPDX-License-Identifier: Apache-2.0
 *
 * fs_direct.c: whole blocks go past the system's cache (O_DIRECT), what is before and behind them through it.
 */
#include "base/fs_direct.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* As many whole blocks as hold `nbytes` bytes. */
static uintptr_t blocks_of(uintptr_t nbytes)
{
    return (nbytes + TRI_DIRECT_BLOCK - 1) / TRI_DIRECT_BLOCK * TRI_DIRECT_BLOCK;
}

/* --- writing --- */

tri_fs_direct *tri_fs_direct_open(const char *path)
{
    tri_fs_direct *direct = tri_alloc_zero(1, sizeof(*direct));
    if (!direct)
        return NULL;
    direct->fd = -1;
    direct->memory = tri_alloc(TRI_DIRECT_STAGE + TRI_DIRECT_BLOCK);
    if (direct->memory)
        direct->fd = tri_fs_open_retrying(path, O_WRONLY | O_DIRECT);
    if (direct->fd < 0) {
        tri_fs_direct_close(direct);
        return NULL;
    }
    direct->bytes = (unsigned char *)blocks_of((uintptr_t)direct->memory);
    return direct;
}

void tri_fs_direct_close(tri_fs_direct *direct)
{
    if (!direct)
        return;
    if (direct->fd >= 0)
        (void)close(direct->fd); /* what it wrote is on the disk, or in question until the file's sync */
    tri_free(direct->memory);
    tri_free(direct);
}

/* Bytes [from, upto) of the stage. */
static bool put(const tri_fs_direct *direct, int fd, size_t from, size_t upto)
{
    while (from < upto) {
        ssize_t done = tri_fs_put(fd, direct->bytes + from, upto - from, (off_t)(direct->at + from));
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done < 0 ? errno : EIO;
            return false;
        }
        from += (size_t)done;
    }
    return true;
}

/* A file system may take O_DIRECT and then not these blocks: the usual way, from now on. */
static bool put_blocks(tri_fs_direct *direct, int fd, size_t from, size_t upto)
{
    if (direct->fd >= 0 && put(direct, direct->fd, from, upto))
        return true;
    if (direct->fd >= 0 && errno != EINVAL)
        return false;
    if (direct->fd >= 0)
        (void)close(direct->fd);
    direct->fd = -1;
    return put(direct, fd, from, upto);
}

bool tri_fs_direct_flush(tri_fs_direct *direct, int fd)
{
    const size_t begin = direct->begin, end = direct->end;
    const size_t low = blocks_of(begin), high = end / TRI_DIRECT_BLOCK * TRI_DIRECT_BLOCK;
    direct->begin = direct->end = 0;
    if (low >= high)
        return put(direct, fd, begin, end);
    return put(direct, fd, begin, low) && put_blocks(direct, fd, low, high) && put(direct, fd, high, end);
}

bool tri_fs_direct_write(tri_fs_direct *direct, int fd, const void *bytes, size_t nbytes, uint64_t at)
{
    for (size_t done = 0, run; done < nbytes; done += run) {
        if (at + done != direct->at + direct->end || direct->end == TRI_DIRECT_STAGE) {
            if (!tri_fs_direct_flush(direct, fd))
                return false;
            direct->begin = direct->end = (at + done) % TRI_DIRECT_BLOCK;
            direct->at = at + done - direct->end;
        }
        run = nbytes - done < TRI_DIRECT_STAGE - direct->end ? nbytes - done : TRI_DIRECT_STAGE - direct->end;
        memcpy(direct->bytes + direct->end, (const char *)bytes + done, run);
        direct->end += run;
    }
    return true;
}

/* --- reading --- */

struct tri_fs_reader {
    char *path;
    int fd;
    void *memory;
    unsigned char *bytes;
};

tri_status tri_fs_reader_open(const char *path, tri_fs_reader **out)
{
    tri_fs_reader *reader = tri_alloc_zero(1, sizeof(*reader));
    *out = NULL;
    if (!reader)
        return TRI_ENOMEM;
    reader->fd = -1;
    reader->path = tri_strdup(path);
    reader->memory = tri_alloc(TRI_DIRECT_STAGE + TRI_DIRECT_BLOCK);
    tri_status status = reader->path && reader->memory ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK) {
        reader->fd = tri_fs_open_retrying(path, O_RDONLY | O_DIRECT);
        if (reader->fd < 0 && errno == EINVAL)
            reader->fd = tri_fs_open_retrying(path, O_RDONLY);
        if (reader->fd < 0)
            status = tri_fs_fail(path, "open for reading", errno);
    }
    if (status != TRI_OK) {
        tri_fs_reader_close(reader);
        return status;
    }
    reader->bytes = (unsigned char *)blocks_of((uintptr_t)reader->memory);
    *out = reader;
    return TRI_OK;
}

void tri_fs_reader_close(tri_fs_reader *reader)
{
    if (!reader)
        return;
    if (reader->fd >= 0)
        (void)close(reader->fd);
    tri_free(reader->memory);
    tri_free(reader->path);
    tri_free(reader);
}

/* The usual way, where direct reads are refused after all. */
static bool is_plain_now(const tri_fs_reader *reader)
{
    int flags = fcntl(reader->fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) && fcntl(reader->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

tri_status tri_fs_reader_look(tri_fs_reader *reader, uint64_t at, size_t most, const void **bytes, size_t *nbytes)
{
    const size_t before = at % TRI_DIRECT_BLOCK;
    size_t room = TRI_DIRECT_STAGE;
    if (most < room - before)
        room = blocks_of(before + most);
    ssize_t got;
    do
        got = pread(reader->fd, reader->bytes, room, (off_t)(at - before));
    while (got < 0 && (errno == EINTR || (errno == EINVAL && is_plain_now(reader))));
    if (got < 0)
        return tri_fs_fail(reader->path, "read", errno);
    if ((size_t)got <= before)
        return tri_fail(TRI_EIO, "%s: cannot read: want more than %llu bytes, got no more", reader->path,
                        (unsigned long long)at);
    *bytes = reader->bytes + before;
    *nbytes = (size_t)got - before < most ? (size_t)got - before : most;
    return TRI_OK;
}
