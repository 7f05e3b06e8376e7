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

void tri_host_name(char name[TRI_HOST_NAME_NBYTES])
{
    if (gethostname(name, TRI_HOST_NAME_NBYTES) != 0 || !name[0])
        snprintf(name, TRI_HOST_NAME_NBYTES, "?");
    name[TRI_HOST_NAME_NBYTES - 1] = 0;
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

void tri_host_core_set(tri_core_set *set)
{
    cpu_set_t allowed;

    *set = (tri_core_set){0};
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        memset(&allowed, 0xff, sizeof allowed);
    for (size_t core = 0; core < TRI_CORES_MAX; core++) {
        if (CPU_ISSET(core, &allowed))
            set->bits[core / 64] |= UINT64_C(1) << (core % 64);
    }
}

bool tri_core_sets_meet(const tri_core_set *a, const tri_core_set *b)
{
    for (size_t i = 0; i < TRI_CORES_MAX / 64; i++) {
        if (a->bits[i] & b->bits[i])
            return true;
    }
    return false;
}

int tri_core_set_count(const tri_core_set *set)
{
    int count = 0;

    for (size_t i = 0; i < TRI_CORES_MAX / 64; i++)
        count += __builtin_popcountll(set->bits[i]);
    return count;
}
