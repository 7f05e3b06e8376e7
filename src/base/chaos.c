/* SPDX-License-Identifier: Apache-2.0
 *
 * chaos.c: the page of chaos.h, as a sealed memfd; both sides.
 */
#include "base/chaos.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/runtime.h"

#define PAGE_MAGIC  UINT64_C(0x33534f4148435254) /* "TRCHAOS3" */
#define PAGE_NBYTES 4096
#define PAGE_NAME   "trireme-chaos"

/* Read by all threads after it was set once, before they have begun. */
static tri_chaos_page *own;

tri_status tri_chaos_offer(void)
{
    if (own)
        return TRI_OK;
    int fd = memfd_create(PAGE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* stays open: it is how the page is found */
    bool made = fd >= 0 && ftruncate(fd, PAGE_NBYTES) == 0 &&
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    void *bytes = made ? mmap(NULL, PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return tri_fail(TRI_EIO, "comm.chaos: cannot make its page: %s", strerror(error));
    }
    own = bytes;
    atomic_store(&own->step, -1);
    own->magic = PAGE_MAGIC;
    return TRI_OK;
}

bool tri_chaos_is_offered(void)
{
    return own != NULL;
}

void tri_chaos_tell(int64_t step, int64_t flip_nbytes)
{
    if (!own)
        return;
    atomic_store(&own->flip_nbytes, flip_nbytes);
    atomic_store(&own->step, step);
}

int64_t tri_chaos_flip_take(int64_t step)
{
    if (!own || atomic_load(&own->flip) == 0 || step < atomic_load(&own->flip_step))
        return -1;
    return atomic_exchange(&own->flip, 0) - 1;
}

tri_status tri_chaos_fail_take(void)
{
    if (!own || atomic_exchange(&own->fails, 0) == 0)
        return TRI_OK;
    return tri_fail(TRI_EIO, "comm.chaos: this worker fails, as trireme chaos asks");
}

bool tri_chaos_disk_is_full(void)
{
    return own && tri_now_ns() < atomic_load(&own->disk_until_ns);
}

int64_t tri_chaos_clock_ns(void)
{
    return own ? atomic_load(&own->clock_ns) : 0;
}

int64_t tri_chaos_delay_ns(void)
{
    return own && tri_now_ns() < atomic_load(&own->delay_until_ns) ? atomic_load(&own->delay_ns) : 0;
}

/* --- the other side --- */

static tri_chaos_page *page_map(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *bytes = fstat(fd, &info) == 0 && info.st_size == PAGE_NBYTES
                      ? mmap(NULL, PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                      : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return NULL;
    tri_chaos_page *page = bytes;
    if (page->magic == PAGE_MAGIC)
        return page;
    munmap(bytes, PAGE_NBYTES);
    return NULL;
}

tri_chaos_page *tri_chaos_page_find(pid_t pid)
{
    static const char name[] = "/memfd:" PAGE_NAME;
    char path[320], target[sizeof(name)];
    tri_chaos_page *page = NULL;
    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && !page && (entry = readdir(folder));) {
        snprintf(path, sizeof(path), "/proc/%ld/fd/%s", (long)pid, entry->d_name);
        ssize_t nbytes = readlink(path, target, sizeof(target) - 1);
        if (nbytes == (ssize_t)sizeof(name) - 1 && memcmp(target, name, sizeof(name) - 1) == 0)
            page = page_map(path);
    }
    if (folder)
        closedir(folder);
    return page;
}

void tri_chaos_page_close(tri_chaos_page *page)
{
    if (page)
        munmap(page, PAGE_NBYTES);
}
