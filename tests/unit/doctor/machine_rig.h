/* SPDX-License-Identifier: Apache-2.0
 *
 * machine_rig.h: a machine in a temporary folder where nothing is wrong, to be spoilt file by file.
 */
#ifndef TRI_TESTS_MACHINE_RIG_H
#define TRI_TESTS_MACHINE_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "doctor/files.h"

#define CGROUP "/sys/fs/cgroup"
#define CPU    "/sys/devices/system/cpu"
#define THP    "/sys/kernel/mm/transparent_hugepage"

#define RIG_LIMITS(cores, space, length, processes, files, locked)                                                     \
    "Limit                     Soft Limit           Hard Limit           Units     \n"                                 \
    "Max file size             " length " bytes     \n"                                                                \
    "Max data size             unlimited            unlimited            bytes     \n"                                 \
    "Max core file size        " cores " bytes     \n"                                                                 \
    "Max processes             " processes " processes \n"                                                             \
    "Max open files            " files " files     \n"                                                                 \
    "Max locked memory         " locked " bytes     \n"                                                                \
    "Max address space         " space " bytes     \n"
#define ALL "unlimited unlimited"

static const char rig_flags[] = "processor\t: 0\nflags\t\t: fpu sse2 avx2 fma f16c avx512f avx512bw\n";

static const struct {
    const char *path, *text;
} rig_files[] = {
    {"/proc/self/limits", RIG_LIMITS(ALL, ALL, ALL, "96365 96365", "4096 8192", ALL)},
    {"/proc/self/cgroup", "0::/job\n"},
    {"/proc/self/status", "Name:\ttrireme\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"},
    {"/proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   30000000 kB\nCommitLimit:    16777216 kB\n"
                      "Committed_AS:    1048576 kB\nHugePages_Total:       0\nHugePages_Free:        0\n"
                      "Hugepagesize:       2048 kB\n"},
    {"/proc/cpuinfo", rig_flags},
    {"/proc/loadavg", "0.10 0.10 0.10 1/100 4711\n"},
    {"/proc/net/route", "Iface\tDestination\tGateway\neth0\t0002000A\t00000000\neth0\t00000000\t0102000A\n"},
    {"/proc/sys/vm/overcommit_memory", "0\n"},
    {"/proc/sys/vm/max_map_count", "65530\n"},
    {"/proc/sys/kernel/yama/ptrace_scope", "0\n"},
    {"/proc/sys/kernel/core_pattern", "core\n"},
    {"/proc/sys/net/core/rmem_max", "33554432\n"},
    {"/proc/sys/net/core/wmem_max", "33554432\n"},
    {"/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t33554432\n"},
    {"/proc/sys/net/ipv4/tcp_wmem", "4096\t65536\t33554432\n"},
    {"/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0\n"},
    {"/proc/sys/net/ipv4/tcp_available_ulp", "mptcp tls\n"},
    {CGROUP "/cgroup.controllers", "cpu memory pids\n"},
    {CGROUP "/job/cpu.max", "max 100000\n"},
    {CGROUP "/job/memory.max", "max\n"},
    {CGROUP "/job/memory.current", "1048576\n"},
    {CGROUP "/job/pids.max", "max\n"},
    {CGROUP "/job/pids.current", "7\n"},
    {CPU "/online", "0-3\n"},
    {CPU "/cpu0/cpufreq/scaling_governor", "performance\n"},
    {CPU "/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n"},
    {CPU "/cpu0/cache/index0/level", "1\n"},
    {CPU "/cpu0/cache/index0/shared_cpu_list", "0\n"},
    {CPU "/cpu0/cache/index1/level", "3\n"},
    {CPU "/cpu0/cache/index1/shared_cpu_list", "0-3\n"},
    {CPU "/cpu1/cache/index0/level", "3\n"},
    {CPU "/cpu1/cache/index0/shared_cpu_list", "0-3\n"},
    {CPU "/cpu2/cache/index0/level", "3\n"},
    {CPU "/cpu2/cache/index0/shared_cpu_list", "0-3\n"},
    {CPU "/cpu3/cache/index0/level", "3\n"},
    {CPU "/cpu3/cache/index0/shared_cpu_list", "0-3\n"},
    {CPU "/cpu0/topology/thread_siblings_list", "0\n"},
    {THP "/enabled", "always [madvise] never\n"},
    {THP "/shmem_enabled", "always [within_size] advise never deny force\n"},
    {"/sys/class/net/eth0/mtu", "1500\n"},
    {"/sys/class/net/eth0/speed", "1000\n"},
    {"/sys/class/net/eth0/duplex", "full\n"},
    {"/sys/class/net/lo/mtu", "65536\n"},
};

typedef struct rig {
    char root[64];
    tri_machine machine;
} rig;

/* text NULL: removes it. */
static inline bool rig_write(const rig *at, const char *path, const char *text)
{
    char full[512], *slash;

    snprintf(full, sizeof full, "%s%s", at->root, path);
    if (!text)
        return tri_fs_remove(full) == TRI_OK;
    slash = strrchr(full, '/');
    *slash = 0;
    if (tri_fs_make_folder(full) != TRI_OK)
        return false;
    *slash = '/';
    return tri_fs_remove(full) == TRI_OK && tri_fs_append(full, text, strlen(text)) == TRI_OK;
}

static inline bool rig_interface(rig *at, const char *name, const char *address, bool is_up, bool is_loopback)
{
    tri_interface row = {.is_up = is_up, .is_loopback = is_loopback};

    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.address, sizeof row.address, "%s", address);
    return tri_vector_push(&at->machine.interfaces, &row) != NULL;
}

static inline bool rig_open(rig *at)
{
    bool ok;

    *at = (rig){.root = "/tmp/tri-doctor-XXXXXX"};
    ok = mkdtemp(at->root) != NULL;
    at->machine =
        (tri_machine){.root = at->root, .kernels = "own tiles", .interfaces = {.each = sizeof(tri_interface)}};
    at->machine.probe.shm_nbytes = 8 * TRI_GIB;
    snprintf(at->machine.probe.addresses, sizeof at->machine.probe.addresses, "10.0.2.1");
    for (size_t i = 0; ok && i < TRI_COUNT_OF(rig_files); i++)
        ok = rig_write(at, rig_files[i].path, rig_files[i].text);
    return ok && rig_interface(at, "lo", "127.0.0.1", true, true) && rig_interface(at, "eth0", "10.0.2.1", true, false);
}

static inline void rig_close(rig *at)
{
    tri_vector_fini(&at->machine.interfaces);
    (void)tri_fs_remove(at->root);
}

#endif
