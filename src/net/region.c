/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c: a memfd, reached by others of the same user through /proc/<process>/fd/<file>.
 *
 * No socket carries the descriptor: a ticket of four numbers does, over whatever links the ranks have.
 */
#include "net/region.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime.h"

#define PAGE_NBYTES 4096
#define USERS_COUNT ((PAGE_NBYTES - 16) / 4)

/* The last page of a region. */
typedef struct region_end {
    int64_t mark;
    _Atomic int32_t crowded;            /* somebody opened it and found no place */
    _Atomic int32_t users[USERS_COUNT]; /* processes that map it, 0: free */
} region_end;

_Static_assert(sizeof(region_end) <= PAGE_NBYTES, "the end of a region is one page");

static size_t pages_of(size_t nbytes)
{
    return (nbytes + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES + PAGE_NBYTES;
}

static region_end *end_of(const tri_region *region)
{
    return (region_end *)(void *)((char *)region->bytes + region->mapped_nbytes - PAGE_NBYTES);
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
    *region = (tri_region){.mapped_nbytes = pages_of(nbytes), .user = -1};
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
    end_of(region)->mark = region->ticket.mark;
    return TRI_OK;
}

static void user_list(tri_region *region)
{
    region_end *end = end_of(region);
    for (int i = 0; i < USERS_COUNT && region->user < 0; i++) {
        int32_t nobody = 0;
        if (atomic_compare_exchange_strong(&end->users[i], &nobody, (int32_t)getpid()))
            region->user = i;
    }
    if (region->user < 0)
        atomic_store(&end->crowded, 1);
}

tri_status tri_region_open(const tri_region_ticket *ticket, tri_region *region)
{
    char path[64];
    struct stat info;
    *region = (tri_region){.mapped_nbytes = pages_of((size_t)ticket->nbytes), .user = -1, .ticket = *ticket};
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
    if (status == TRI_OK && end_of(region)->mark != ticket->mark) {
        tri_region_close(region);
        status = tri_fail(TRI_EUNSUPPORTED, "shared memory: %s is another process's region", path);
    }
    if (status == TRI_OK)
        user_list(region);
    return status;
}

static bool has_ended(pid_t process)
{
    int file = (int)syscall(SYS_pidfd_open, process, 0);
    if (file < 0)
        return errno == ESRCH;
    struct pollfd one = {.fd = file, .events = POLLIN};
    bool ended = poll(&one, 1, 0) > 0;
    close(file);
    return ended;
}

bool tri_region_is_alone(const tri_region *region)
{
    region_end *end = end_of(region);
    if (atomic_load(&end->crowded))
        return false;
    for (int i = 0; i < USERS_COUNT; i++) {
        int32_t process = atomic_load(&end->users[i]);
        if (process != 0 && !has_ended(process))
            return false;
    }
    return true;
}

void tri_region_close(tri_region *region)
{
    if (region->bytes && region->user >= 0 && region->ticket.file < 0)
        atomic_store(&end_of(region)->users[region->user], 0);
    if (region->bytes)
        munmap(region->bytes, region->mapped_nbytes);
    if (region->bytes && region->ticket.file >= 0)
        close((int)region->ticket.file);
    *region = (tri_region){0};
}
