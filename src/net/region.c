/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c: a memfd, reached by others of the same user through /proc/<process>/fd/<file>.
 *
 * No socket carries the descriptor: a ticket of four numbers does, over whatever links the ranks have.
 */
#include "net/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime.h"

static size_t pages_of(size_t nbytes)
{
    return (nbytes + sizeof(int64_t) + 4095) / 4096 * 4096;
}

static int64_t *mark_of(const tri_region *region)
{
    return (int64_t *)(void *)((char *)region->bytes + region->mapped_nbytes - sizeof(int64_t));
}

static tri_status region_map(int file, tri_region *region)
{
    region->bytes = mmap(NULL, region->mapped_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (region->bytes != MAP_FAILED)
        return TRI_OK;
    region->bytes = NULL;
    return tri_fail(TRI_ENOMEM, "shared memory: cannot map %zu bytes: %s", region->mapped_nbytes, strerror(errno));
}

tri_status tri_region_create(size_t nbytes, tri_region *region)
{
    *region = (tri_region){.mapped_nbytes = pages_of(nbytes)};
    int file = memfd_create("trireme-region", MFD_CLOEXEC);
    if (file < 0)
        return tri_fail(TRI_EUNSUPPORTED, "shared memory: memfd_create: %s", strerror(errno));
    tri_status status = TRI_OK;
    if (ftruncate(file, (off_t)region->mapped_nbytes) != 0)
        status = tri_fail(TRI_ENOMEM, "shared memory: want %zu bytes: %s", region->mapped_nbytes, strerror(errno));
    if (status == TRI_OK)
        status = region_map(file, region);
    if (status != TRI_OK) {
        close(file);
        return status;
    }
    region->ticket = (tri_region_ticket){.process = getpid(), .file = file, .nbytes = (int64_t)nbytes};
    tri_memory_touch(region->bytes, region->mapped_nbytes); /* all at once takes less than half of one by one */
    tri_entropy(&region->ticket.mark, sizeof(region->ticket.mark));
    *mark_of(region) = region->ticket.mark;
    return TRI_OK;
}

tri_status tri_region_open(const tri_region_ticket *ticket, tri_region *region)
{
    char path[64];
    struct stat info;
    *region = (tri_region){.mapped_nbytes = pages_of((size_t)ticket->nbytes), .ticket = *ticket};
    region->ticket.file = -1;
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)ticket->process, (long long)ticket->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return tri_fail(TRI_EUNSUPPORTED, "shared memory: %s cannot be opened: %s", path, strerror(errno));
    tri_status status = TRI_OK;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != (off_t)region->mapped_nbytes)
        status =
            tri_fail(TRI_EUNSUPPORTED, "shared memory: %s is not the region of %zu bytes", path, region->mapped_nbytes);
    if (status == TRI_OK)
        status = region_map(file, region);
    close(file);
    if (status == TRI_OK && *mark_of(region) != ticket->mark) {
        tri_region_close(region);
        status = tri_fail(TRI_EUNSUPPORTED, "shared memory: %s is another process's region", path);
    }
    return status;
}

void tri_region_close(tri_region *region)
{
    if (region->bytes)
        munmap(region->bytes, region->mapped_nbytes);
    if (region->bytes && region->ticket.file >= 0)
        close((int)region->ticket.file);
    *region = (tri_region){0};
}
