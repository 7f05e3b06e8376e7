/* SPDX-License-Identifier: Apache-2.0
 *
 * cores.c: checks of what computes: cores, their share, caches, instructions, clock rate, and who else is there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/checks.h"

#define CPU          "/sys/devices/system/cpu/"
#define CPUS_VISITED 1024

void tri_check_cores(const tri_machine *machine, tri_finding *finding)
{
    char allowed[128], online[128];
    int count, all;

    TRI_FINDING_SET(finding->wanted, machine->ranks > 0 ? "one for each rank" : "all of them");
    if (!tri_machine_field(machine, "/proc/self/status", "Cpus_allowed_list", allowed, sizeof allowed) ||
        !tri_machine_text(machine, CPU "online", online, sizeof online)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    count = tri_list_count(allowed);
    all = tri_list_count(online);
    TRI_FINDING_SET(finding->found, "%d of %d: %s", count, all, allowed);
    if (machine->is_rank) /* the job's checks compare it with the others */
        return;
    if (machine->ranks > count) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "%d for %d ranks: they take turns, and wait for each other", count,
                        machine->ranks);
        if (all >= machine->ranks)
            TRI_FINDING_SET(finding->fix, "taskset -pc %s $$", online);
        else
            TRI_FINDING_SET(finding->fix, "trireme train CONFIG.yaml -n %d", all);
    } else if (count < all) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->fix, "taskset -pc %s $$", online);
    }
}

void tri_check_quota(const tri_machine *machine, tri_finding *finding)
{
    tri_cgroup_limit group;
    char allowed[128];
    double cores, wanted = machine->ranks;

    TRI_FINDING_SET(finding->wanted, "none, or all cores that the ranks use");
    if (!tri_machine_cgroup(machine, "cpu", "cpu.max", "cpu.cfs_quota_us", &group) || group.period <= 0) {
        TRI_FINDING_SET(finding->found, "none");
        return;
    }
    cores = (double)group.value / (double)group.period;
    if (tri_machine_field(machine, "/proc/self/status", "Cpus_allowed_list", allowed, sizeof allowed) &&
        tri_list_count(allowed) > 0 && !machine->is_rank && (wanted <= 0 || wanted > tri_list_count(allowed)))
        wanted = tri_list_count(allowed);
    TRI_FINDING_SET(finding->found, "%.4g of %.4g cores: the group is stopped for the rest of each %.4g ms", cores,
                    wanted, (double)group.period / 1000);
    if (cores >= wanted) {
        TRI_FINDING_SET(finding->found, "%.4g cores", cores);
        return;
    }
    finding->result = TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->fix, "echo %s | sudo tee %s/%s", group.is_two ? "max" : "-1", group.folder,
                    group.is_two ? "cpu.max" : "cpu.cfs_quota_us");
}

/* Who shares the last cache with a core: "0-7"; the level or 0. */
static int cache_read(const tri_machine *machine, int cpu, char *shared, size_t capacity)
{
    int level = 0;

    for (int index = 0; index < 8; index++) {
        char path[96], text[128];
        int64_t found;

        snprintf(path, sizeof path, CPU "cpu%d/cache/index%d/level", cpu, index);
        if (!tri_machine_number(machine, path, &found))
            break;
        snprintf(path, sizeof path, CPU "cpu%d/cache/index%d/shared_cpu_list", cpu, index);
        if (found >= level && tri_machine_text(machine, path, text, sizeof text)) {
            level = (int)found;
            snprintf(shared, capacity, "%s", text);
        }
    }
    return level;
}

static int cores_of(const tri_machine *machine, char *allowed, size_t capacity, int cpus[CPUS_VISITED])
{
    int count = 0;

    if (!tri_machine_field(machine, "/proc/self/status", "Cpus_allowed_list", allowed, capacity))
        return 0;
    for (int cpu = 0; cpu < CPUS_VISITED; cpu++) {
        if (tri_list_has(allowed, cpu))
            cpus[count++] = cpu;
    }
    return count;
}

/* Pairs of allowed cores that are two threads of one: as text "0+1". */
static void threads_find(const tri_machine *machine, const char *allowed, const int *cpus, int count, char siblings[64])
{
    siblings[0] = 0;
    for (int i = 0; i < count && !siblings[0]; i++) {
        char path[96], list[64];

        snprintf(path, sizeof path, CPU "cpu%d/topology/thread_siblings_list", cpus[i]);
        if (!tri_machine_text(machine, path, list, sizeof list) || tri_list_count(list) < 2)
            continue;
        for (int j = i + 1; j < count; j++) {
            if (tri_list_has(list, cpus[j]) && tri_list_has(allowed, cpus[j])) {
                snprintf(siblings, 64, "%d and %d", cpus[i], cpus[j]);
                break;
            }
        }
    }
}

void tri_check_caches(const tri_machine *machine, tri_finding *finding)
{
    char allowed[128], shared[128] = "", first[128] = "", siblings[64];
    int cpus[CPUS_VISITED], count = cores_of(machine, allowed, sizeof allowed, cpus), level = 0, groups = 0;

    TRI_FINDING_SET(finding->wanted, "one for all ranks of a host, and no two ranks on threads of one core");
    for (int i = 0; i < count; i++) {
        level = cache_read(machine, cpus[i], shared, sizeof shared);
        if (i == 0)
            memcpy(first, shared, sizeof first);
        /* Counted where its first allowed core is met. */
        for (int j = 0; level > 0 && j <= i; j++) {
            if (tri_list_has(shared, cpus[j])) {
                groups += j == i;
                break;
            }
        }
    }
    threads_find(machine, allowed, cpus, count, siblings);
    if (level == 0)
        TRI_FINDING_SET(finding->found, "not reported by this machine");
    else if (groups == 1)
        TRI_FINDING_SET(finding->found, "cores %s share one cache of level %d%s%s%s", allowed, level,
                        siblings[0] ? "; " : "", siblings, siblings[0] ? " are threads of one core" : "");
    else
        TRI_FINDING_SET(finding->found, "cores %s have %d caches of level %d; the first serves %s%s%s%s", allowed,
                        groups, level, first, siblings[0] ? "; " : "", siblings,
                        siblings[0] ? " are threads of one core" : "");
    if (groups > 1)
        finding->result = TRI_RESULT_NOTE;
    if (groups > 1 && machine->ranks > 0 && machine->ranks <= tri_list_count(first))
        TRI_FINDING_SET(finding->fix, "taskset -pc %s $$", first);
    if (siblings[0] && !machine->is_rank && machine->ranks > count / 2) {
        tri_finding_worse(finding, TRI_RESULT_NOTE);
        TRI_FINDING_SET(finding->fix, "trireme train CONFIG.yaml -n %d", count / 2 > 0 ? count / 2 : 1);
    }
}

void tri_check_instructions(const tri_machine *machine, tri_finding *finding)
{
    static const char *const wanted[] = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"};
    char flags[4096], found[160] = "", word[24];
    size_t used = 0;
    bool simd = false;

    TRI_FINDING_SET(finding->wanted, "avx2 and fma, better avx512f");
    if (!tri_machine_field(machine, "/proc/cpuinfo", "flags", flags + 1, sizeof flags - 2)) {
        TRI_FINDING_SET(finding->found, "%s", machine->kernels);
        return; /* another architecture: its row is what it is */
    }
    flags[0] = ' ';
    strcat(flags, " ");
    for (size_t i = 0; i < TRI_COUNT_OF(wanted); i++) {
        snprintf(word, sizeof word, " %s ", wanted[i]);
        if (!strstr(flags, word))
            continue;
        used += (size_t)snprintf(found + used, sizeof found - used, "%s ", wanted[i]);
        simd |= strcmp(wanted[i], "fma") == 0;
    }
    TRI_FINDING_SET(finding->found, "%s(used: %s)", found, machine->kernels);
    if (simd && strstr(found, "avx2"))
        return;
    finding->result = TRI_RESULT_WARN;
    TRI_FINDING_SET(finding->found, "no avx2 with fma: products are many times slower (used: %s)", machine->kernels);
}

void tri_check_governor(const tri_machine *machine, tri_finding *finding)
{
    char governor[32], driver[32];

    TRI_FINDING_SET(finding->wanted, "performance");
    if (!tri_machine_text(machine, CPU "cpu0/cpufreq/scaling_governor", governor, sizeof governor)) {
        TRI_FINDING_SET(finding->found, "none: the rate is not this system's to set");
        return;
    }
    (void)tri_machine_text(machine, CPU "cpu0/cpufreq/scaling_driver", driver, sizeof driver);
    TRI_FINDING_SET(finding->found, "%s (%s)", governor, driver[0] ? driver : "driver not known");
    if (strcmp(governor, "performance") == 0)
        return;
    /* These drivers raise the rate by themselves under load, later than they could. */
    finding->result =
        strcmp(governor, "powersave") == 0 && !strstr(driver, "pstate") ? TRI_RESULT_WARN : TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, "echo performance | sudo tee " CPU "cpu*/cpufreq/scaling_governor");
}

void tri_check_load(const tri_machine *machine, tri_finding *finding)
{
    char text[64], online[128];
    double load;
    int count;

    TRI_FINDING_SET(finding->wanted, "less than half of the cores taken by others");
    if (!tri_machine_text(machine, "/proc/loadavg", text, sizeof text) ||
        !tri_machine_text(machine, CPU "online", online, sizeof online)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    load = strtod(text, NULL);
    count = tri_list_count(online);
    TRI_FINDING_SET(finding->found, "%.2f processes ready to run in the last minute, %d cores", load, count);
    if (load <= count / 2.0 || load < 1)
        return;
    finding->result = load > count ? TRI_RESULT_WARN : TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, "ps -eo pid,pcpu,user,comm --sort=-pcpu | head     # end what need not run");
}
