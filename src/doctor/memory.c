/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: checks of the memory that ranks take, map and share.
 */
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"

#define THP               "/sys/kernel/mm/transparent_hugepage/"
#define MEMORY_OF_RANK    TRI_GIB
#define MEMORY_AT_ALL     (256 * TRI_MIB)
#define MAPS_USUAL        65530
#define MAPS_MANY         262144
#define SHM_FOLDER_NBYTES TRI_GIB

static int64_t ranks_of(const tri_machine *machine)
{
    return machine->ranks > 0 ? machine->ranks : 1;
}

void tri_check_free_memory(const tri_machine *machine, tri_finding *finding)
{
    int64_t total, available, wanted = ranks_of(machine) * MEMORY_OF_RANK;

    TRI_FINDING_SET(finding->wanted, "at least %s", tri_bytes_print(wanted).text);
    if (!tri_machine_memory(machine, "MemTotal", &total) || !tri_machine_memory(machine, "MemAvailable", &available)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known: /proc/meminfo does not tell");
        return;
    }
    TRI_FINDING_SET(finding->found, "%s of %s", tri_bytes_print(available).text, tri_bytes_print(total).text);
    if (available >= wanted)
        return;
    finding->result = available < ranks_of(machine) * MEMORY_AT_ALL ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->fix, "ps -eo pid,rss,user,comm --sort=-rss | head     # end what need not run");
}

void tri_check_memory_group(const tri_machine *machine, tri_finding *finding)
{
    int64_t used = 0, wanted = ranks_of(machine) * MEMORY_OF_RANK;
    tri_cgroup_limit group;
    char path[480];

    TRI_FINDING_SET(finding->wanted, "none, or at least %s free", tri_bytes_print(wanted).text);
    if (!tri_machine_cgroup(machine, "memory", "memory.max", "memory.limit_in_bytes", &group)) {
        TRI_FINDING_SET(finding->found, "none");
        return;
    }
    snprintf(path, sizeof path, "%s/%s", group.folder, group.is_two ? "memory.current" : "memory.usage_in_bytes");
    (void)tri_machine_number(machine, path, &used);
    TRI_FINDING_SET(finding->found, "%s, of which %s are used (caches of files included)",
                    tri_bytes_print(group.value).text, tri_bytes_print(used).text);
    if (group.value - used >= wanted)
        return;
    /* Caches are given up under pressure: only the limit itself says that it cannot work. */
    finding->result = group.value < ranks_of(machine) * MEMORY_AT_ALL ? TRI_RESULT_FAIL
                      : group.value < wanted                          ? TRI_RESULT_WARN
                                                                      : TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, "echo %s | sudo tee %s/%s", group.is_two ? "max" : "-1", group.folder,
                    group.is_two ? "memory.max" : "memory.limit_in_bytes");
}

void tri_check_overcommit(const tri_machine *machine, tri_finding *finding)
{
    int64_t mode, limit = 0, used = 0;

    TRI_FINDING_SET(finding->wanted, "0 or 1");
    if (!tri_machine_number(machine, "/proc/sys/vm/overcommit_memory", &mode)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    TRI_FINDING_SET(finding->found, "vm.overcommit_memory = %lld", (long long)mode);
    if (mode != 2)
        return;
    (void)tri_machine_memory(machine, "CommitLimit", &limit);
    (void)tri_machine_memory(machine, "Committed_AS", &used);
    TRI_FINDING_SET(finding->found, "vm.overcommit_memory = 2: %s may still be promised",
                    tri_bytes_print(limit > used ? limit - used : 0).text);
    finding->result = limit - used < ranks_of(machine) * MEMORY_AT_ALL ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->fix, "sudo sysctl -w vm.overcommit_memory=0");
}

void tri_check_maps(const tri_machine *machine, tri_finding *finding)
{
    /* Each rank maps each local rank's piece of each shared memory. */
    int64_t count, wanted = machine->ranks > 64 ? MAPS_MANY : MAPS_USUAL;

    TRI_FINDING_SET(finding->wanted, "at least %lld", (long long)wanted);
    if (!tri_machine_number(machine, "/proc/sys/vm/max_map_count", &count)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    TRI_FINDING_SET(finding->found, "vm.max_map_count = %lld", (long long)count);
    if (count >= wanted)
        return;
    finding->result = count < 1024 ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->fix, "sudo sysctl -w vm.max_map_count=%d", MAPS_MANY);
}

void tri_check_shm_folder(const tri_machine *machine, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "1 GiB for MPI, NCCL and data loaders of others; Trireme puts nothing there");
    TRI_FINDING_SET(finding->found, "%s",
                    machine->probe.shm_nbytes < 0 ? "none" : tri_bytes_print(machine->probe.shm_nbytes).text);
    if (machine->probe.shm_nbytes >= SHM_FOLDER_NBYTES)
        return;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, machine->probe.shm_nbytes < 0 ? "sudo mount -t tmpfs -o size=8G tmpfs /dev/shm"
                                                                : "sudo mount -o remount,size=8G /dev/shm");
}

/* What the kernel chose in `file` of its huge pages; false, and a note, where it has none. */
static bool find_huge_choice(const tri_machine *machine, const char *file, char choice[32], tri_finding *finding)
{
    bool has = tri_machine_choice(machine, file, choice, 32);

    TRI_FINDING_SET(finding->found, "%s", has ? choice : "this kernel has none");
    if (!has)
        finding->result = TRI_RESULT_NOTE;
    return has;
}

void tri_check_huge_anonymous(const tri_machine *machine, tri_finding *finding)
{
    char choice[32];

    TRI_FINDING_SET(finding->wanted, "madvise or always");
    if (!find_huge_choice(machine, THP "enabled", choice, finding) || strcmp(choice, "never") != 0)
        return;
    finding->result = TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->fix, "echo madvise | sudo tee " THP "enabled");
}

void tri_check_huge_shared(const tri_machine *machine, tri_finding *finding)
{
    char choice[32];

    TRI_FINDING_SET(finding->wanted, "within_size or always");
    if (!find_huge_choice(machine, THP "shmem_enabled", choice, finding) ||
        (strcmp(choice, "never") != 0 && strcmp(choice, "deny") != 0))
        return;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->found, "%s: gradients shared inside the host are on 4 KiB pages", choice);
    TRI_FINDING_SET(finding->fix, "echo within_size | sudo tee " THP "shmem_enabled");
}

void tri_check_huge_reserved(const tri_machine *machine, tri_finding *finding)
{
    char text[32] = "";
    int64_t each = 0, total, idle = 0;
    long long pages = 0, free_pages = 0;

    TRI_FINDING_SET(finding->wanted, "none lying idle: Trireme does not take them");
    (void)tri_machine_memory(machine, "Hugepagesize", &each);
    if (tri_machine_field(machine, "/proc/meminfo", "HugePages_Total", text, sizeof text))
        (void)sscanf(text, "%lld", &pages);
    if (tri_machine_field(machine, "/proc/meminfo", "HugePages_Free", text, sizeof text))
        (void)sscanf(text, "%lld", &free_pages);
    idle = free_pages * each;
    TRI_FINDING_SET(finding->found, "%lld pages reserved, %lld free (%s)", pages, free_pages,
                    tri_bytes_print(idle).text);
    if (!tri_machine_memory(machine, "MemTotal", &total) || idle < total / 8 || idle == 0)
        return;
    finding->result = TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->fix, "sudo sysctl -w vm.nr_hugepages=%lld", pages - free_pages);
}

void tri_check_shared_memory(const tri_machine *machine, tri_finding *finding)
{
    const tri_probe *probe = &machine->probe;
    const char *why = probe->region[0] ? probe->region : probe->neighbour;

    TRI_FINDING_SET(finding->wanted, "a memfd that another process of this user can map");
    TRI_FINDING_SET(finding->found, "%s", why[0] ? why : "works");
    if (!why[0])
        return;
    finding->result = TRI_RESULT_FAIL;
    if (strstr(why, "File size limit") || strstr(why, "File too large"))
        TRI_FINDING_SET(finding->fix, "ulimit -f unlimited");
    else if (strstr(why, "Too many open files"))
        TRI_FINDING_SET(finding->fix, "ulimit -n 1024");
    else if (strstr(why, "Cannot allocate memory"))
        TRI_FINDING_SET(finding->fix, "ulimit -v unlimited");
    else if (strstr(why, "fork"))
        TRI_FINDING_SET(finding->fix, "ulimit -u 1024");
    else
        TRI_FINDING_SET(finding->fix, "docker run --security-opt seccomp=unconfined --cap-add SYS_PTRACE ...");
}

void tri_check_peek(const tri_machine *machine, tri_finding *finding)
{
    const char *why = machine->probe.peek;
    int64_t scope = 0;
    bool yama = tri_machine_number(machine, "/proc/sys/kernel/yama/ptrace_scope", &scope);

    TRI_FINDING_SET(finding->wanted, "ranks of one user may, as other collective libraries and debuggers need it");
    if (yama)
        TRI_FINDING_SET(finding->found, "%s (kernel.yama.ptrace_scope = %lld)", why[0] ? why : "works",
                        (long long)scope);
    else
        TRI_FINDING_SET(finding->found, "%s", why[0] ? why : "works");
    if (!why[0])
        return;
    finding->result = TRI_RESULT_NOTE;
    if (yama && scope > 0)
        TRI_FINDING_SET(finding->fix, "sudo sysctl -w kernel.yama.ptrace_scope=0");
    else
        TRI_FINDING_SET(finding->fix, "docker run --cap-add SYS_PTRACE ...");
}
