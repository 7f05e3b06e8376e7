/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.c: checks of what the shell, or whoever starts the ranks, allows a process.
 */
#include <stdio.h>

#include "doctor/checks.h"

#define FILES_OF_RANK   8 /* measured: below this and 2 for each other rank, ranks do not meet */
#define FILES_OF_PEER   2
#define FILES_USUAL     1024
#define THREADS_OF_RANK 16
#define LOCKED_NBYTES   (64 * TRI_MIB)
#define SPACE_OF_RANK   (4 * TRI_GIB)

/* How a limit of this shell is raised: by itself up to the hard one, above by root. */
static void fix_limit(tri_finding *finding, const char *flag, const char *resource, const char *value, bool allowed)
{
    if (allowed)
        TRI_FINDING_SET(finding->fix, "ulimit %s %s", flag, value);
    else
        TRI_FINDING_SET(finding->fix, "sudo prlimit --pid $$ --%s=%s:%s", resource, value, value);
}

/* False: the finding says that the limit is not known. */
static bool limit_read(const tri_machine *machine, const char *name, int64_t *soft, int64_t *hard, tri_finding *finding)
{
    if (tri_machine_limit(machine, name, soft, hard))
        return true;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->found, "not known: /proc/self/limits has no '%s'", name);
    return false;
}

static void print_count(char *field, size_t capacity, int64_t value, const char *what)
{
    if (value == TRI_NO_LIMIT)
        tri_finding_print(field, capacity, "unlimited");
    else
        tri_finding_print(field, capacity, "%lld%s", (long long)value, what);
}

void tri_check_open_files(const tri_machine *machine, tri_finding *finding)
{
    int64_t soft, hard;
    int64_t least = FILES_OF_RANK + FILES_OF_PEER * (int64_t)machine->world;
    int64_t wanted = 2 * least > FILES_USUAL ? 2 * least : FILES_USUAL;
    char text[32];

    TRI_FINDING_SET(finding->wanted, "at least %lld", (long long)wanted);
    if (!limit_read(machine, "Max open files", &soft, &hard, finding))
        return;
    print_count(finding->found, sizeof finding->found, soft, "");
    if (soft >= wanted)
        return;
    finding->result = soft < least ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
    snprintf(text, sizeof text, "%lld", (long long)wanted);
    fix_limit(finding, "-n", "nofile", text, hard >= wanted);
}

void tri_check_processes(const tri_machine *machine, tri_finding *finding)
{
    int64_t soft, hard, used = 0;
    int64_t ranks = machine->ranks > 0 ? machine->ranks : 1, least = ranks * THREADS_OF_RANK;
    int64_t wanted = least * 2 > 1024 ? least * 2 : 1024;
    tri_cgroup_limit group;
    char text[32], path[480];

    TRI_FINDING_SET(finding->wanted, "at least %lld processes and threads", (long long)wanted);
    if (!limit_read(machine, "Max processes", &soft, &hard, finding))
        return;
    print_count(finding->found, sizeof finding->found, soft, "");
    if (soft < wanted) {
        finding->result = soft < least ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
        snprintf(text, sizeof text, "%lld", (long long)wanted);
        fix_limit(finding, "-u", "nproc", text, hard >= wanted);
    }
    if (!tri_machine_cgroup(machine, "pids", "pids.max", "pids.max", &group))
        return;
    snprintf(path, sizeof path, "%s/pids.current", group.folder);
    (void)tri_machine_number(machine, path, &used);
    if (group.value - used >= wanted)
        return;
    TRI_FINDING_SET(finding->found, "%lld of the control group's %lld are left", (long long)(group.value - used),
                    (long long)group.value);
    tri_finding_worse(finding, group.value - used < least ? TRI_RESULT_FAIL : TRI_RESULT_WARN);
    TRI_FINDING_SET(finding->fix, "echo max | sudo tee %s/pids.max", group.folder);
}

void tri_check_locked_memory(const tri_machine *machine, tri_finding *finding)
{
    int64_t soft, hard;

    TRI_FINDING_SET(finding->wanted, "at least 64 MiB for RDMA and zero-copy sends; shm and tcp need none");
    if (!limit_read(machine, "Max locked memory", &soft, &hard, finding))
        return;
    TRI_FINDING_SET(finding->found, "%s", tri_bytes_print(soft).text);
    if (soft >= LOCKED_NBYTES)
        return;
    finding->result = TRI_RESULT_NOTE;
    fix_limit(finding, "-l", "memlock", "unlimited", hard == TRI_NO_LIMIT);
}

void tri_check_address_space(const tri_machine *machine, tri_finding *finding)
{
    static const struct {
        const char *name, *flag, *resource;
    } rows[] = {{"Max address space", "-v", "as"}, {"Max data size", "-d", "data"}};

    TRI_FINDING_SET(finding->wanted, "unlimited");
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        int64_t soft, hard;

        if (!limit_read(machine, rows[i].name, &soft, &hard, finding))
            return;
        if (soft == TRI_NO_LIMIT)
            continue;
        TRI_FINDING_SET(finding->found, "%s of %s for each process", tri_bytes_print(soft).text,
                        i == 0 ? "addresses" : "data");
        finding->result = soft < SPACE_OF_RANK / 4 ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
        fix_limit(finding, rows[i].flag, rows[i].resource, "unlimited", hard == TRI_NO_LIMIT);
        return;
    }
    TRI_FINDING_SET(finding->found, "unlimited");
}

void tri_check_file_length(const tri_machine *machine, tri_finding *finding)
{
    int64_t soft, hard;

    TRI_FINDING_SET(finding->wanted, "unlimited: shared memory and checkpoints are files");
    if (!limit_read(machine, "Max file size", &soft, &hard, finding))
        return;
    TRI_FINDING_SET(finding->found, "%s", tri_bytes_print(soft).text);
    if (soft == TRI_NO_LIMIT)
        return;
    finding->result = soft < TRI_GIB ? TRI_RESULT_FAIL : TRI_RESULT_WARN;
    fix_limit(finding, "-f", "fsize", "unlimited", hard == TRI_NO_LIMIT);
}

void tri_check_core_files(const tri_machine *machine, tri_finding *finding)
{
    int64_t soft, hard;
    char pattern[128] = "";

    TRI_FINDING_SET(finding->wanted, "unlimited, so that a crash can be looked at");
    if (!limit_read(machine, "Max core file size", &soft, &hard, finding))
        return;
    (void)tri_machine_text(machine, "/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
    TRI_FINDING_SET(finding->found, "%s%s%s", tri_bytes_print(soft).text, pattern[0] ? ", written as " : "", pattern);
    if (soft > 0)
        return;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->found, "none: a crash leaves nothing to look at");
    fix_limit(finding, "-c", "core", "unlimited", hard == TRI_NO_LIMIT);
}
