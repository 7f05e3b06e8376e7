/* SPDX-License-Identifier: Apache-2.0
 *
 * host.c: asks the kernel who we are.
 */
#include "net/host.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fs.h"

/* "net:[4026531840]" */
static void namespace_read(const char *path, char *text, size_t nbytes)
{
    ssize_t got = readlink(path, text, nbytes - 1);

    text[got > 0 ? got : 0] = 0;
}

void tri_host_id(char id[TRI_HOST_ID_NBYTES])
{
    char text[512], network[64], ipc[64], name[256] = "";
    char *boot = NULL;
    size_t nbytes;

    if (tri_fs_read("/proc/sys/kernel/random/boot_id", 4096, &boot, &nbytes) != TRI_OK && gethostname(name, 255) != 0)
        name[0] = 0;
    namespace_read("/proc/self/ns/net", network, sizeof network);
    namespace_read("/proc/self/ns/ipc", ipc, sizeof ipc);
    snprintf(text, sizeof text, "%.64s|%.200s|%s|%s", boot ? boot : "", name, network, ipc);
    tri_free(boot);
    snprintf(id, TRI_HOST_ID_NBYTES, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
}

void tri_host_name(char name[64])
{
    memset(name, 0, 64);
    if (gethostname(name, 63) != 0)
        name[0] = 0;
}

int tri_host_cores(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    /* Fails only on machines with more than 1024 cores: those have enough. */
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return CPU_SETSIZE;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}
