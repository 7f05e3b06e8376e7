/* SPDX-License-Identifier: Apache-2.0
 *
 * strain.c: /proc/self/schedstat, /proc/stat, /proc/vmstat, /proc/pressure, /proc/net/snmp, cpu.stat of the control
 * group (both versions), getrusage().
 */
#include "base/strain.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/runtime.h"

#define FILE_MOST (1u << 20)

/* NULL: it cannot be read. tri_free(). What fails here is nobody's failure. */
static char *text_read(const char *path)
{
    char *text = NULL;
    size_t nbytes;
    return tri_fs_exists(path) && tri_fs_read(path, FILE_MOST, &text, &nbytes) == TRI_OK ? text : NULL;
}

/* The number behind `key` at the beginning of a line; 0: there is none. */
static double number_after(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, key, length) == 0)
            return strtod(line + length, NULL);
    return 0;
}

static void schedule_read(tri_strain *now)
{
    unsigned long long ran_ns = 0, waited_ns = 0;
    char *text = text_read("/proc/self/schedstat");
    if (text && sscanf(text, "%llu %llu", &ran_ns, &waited_ns) == 2) {
        now->cpu_seconds_total = (double)ran_ns / 1e9;
        now->queue_seconds_total = (double)waited_ns / 1e9;
    }
    tri_free(text);
}

/* "cpu3 user nice system idle iowait irq softirq steal ..." */
static void stolen_read(tri_strain *now)
{
    cpu_set_t own;
    int count = 0;
    double ticks = 0;
    char *text = text_read("/proc/stat");
    if (!text || sched_getaffinity(0, sizeof(own), &own) != 0)
        CPU_ZERO(&own);
    for (const char *line = text; line && strncmp(line, "cpu", 3) == 0; line = strchr(line, '\n') + 1) {
        unsigned cpu;
        unsigned long long stolen;
        if (sscanf(line, "cpu%u %*u %*u %*u %*u %*u %*u %*u %llu", &cpu, &stolen) == 2 && cpu < CPU_SETSIZE &&
            CPU_ISSET(cpu, &own)) {
            ticks += (double)stolen;
            count++;
        }
        if (!strchr(line, '\n'))
            break;
    }
    now->stolen_seconds_total = count > 0 ? ticks / count / (double)sysconf(_SC_CLK_TCK) : 0;
    tri_free(text);
}

/* The group's folder is the third field of /proc/self/cgroup, below where this controller is mounted; in a container
 * that sees its own group as the root, the mount itself. */
static void throttled_read(tri_strain *now)
{
    static const struct {
        const char *key, *mount;
    } places[] = {
        {"0::", "/sys/fs/cgroup"}, {"cpu,cpuacct:", "/sys/fs/cgroup/cpu,cpuacct"}, {"cpu:", "/sys/fs/cgroup/cpu"}};
    char *groups = text_read("/proc/self/cgroup"), path[1200];
    for (size_t i = 0; groups && i < TRI_COUNT_OF(places); i++) {
        const char *found = strstr(groups, places[i].key);
        if (!found)
            continue;
        found += strlen(places[i].key);
        snprintf(path, sizeof(path), "%s%.*s/cpu.stat", places[i].mount, (int)strcspn(found, "\n"), found);
        char *text = text_read(path);
        if (!text) {
            snprintf(path, sizeof(path), "%s/cpu.stat", places[i].mount);
            text = text_read(path);
        }
        double seconds = number_after(text, "throttled_usec ") / 1e6 + number_after(text, "throttled_time ") / 1e9;
        now->throttled_seconds_total = seconds > now->throttled_seconds_total ? seconds : now->throttled_seconds_total;
        tri_free(text);
    }
    tri_free(groups);
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123": microseconds. */
static double pressure_read(const char *path)
{
    char *text = text_read(path), *total = text ? strstr(text, "total=") : NULL;
    double seconds = total ? strtod(total + strlen("total="), NULL) / 1e6 : 0;
    tri_free(text);
    return seconds;
}

/* Two lines "Tcp: ": names, then numbers. */
static void network_read(tri_strain *now)
{
    char *text = text_read("/proc/self/net/snmp"), *names = text ? strstr(text, "Tcp: ") : NULL;
    char *numbers = names ? strstr(names + 1, "Tcp: ") : NULL, *wanted = names ? strstr(names, " RetransSegs") : NULL;
    if (numbers && wanted && wanted < numbers) {
        for (const char *at = names; at < wanted; at++)
            if (*at == ' ')
                numbers = strchr(numbers, ' ') ? strchr(numbers, ' ') + 1 : numbers;
        numbers = strchr(numbers, ' ');
        now->retransmitted_segments_total = numbers ? strtod(numbers, NULL) : 0;
    }
    tri_free(text);
}

static void swap_read(tri_strain *now)
{
    char *text = text_read("/proc/vmstat");
    now->swapped_in_pages_total = number_after(text, "pswpin ");
    tri_free(text);
}

void tri_strain_read(tri_strain *now)
{
    struct rusage used;
    *now = (tri_strain){0};
    if (tri_sim_active())
        return;
    schedule_read(now);
    stolen_read(now);
    throttled_read(now);
    network_read(now);
    swap_read(now);
    now->memory_stall_seconds_total = pressure_read("/proc/pressure/memory");
    now->io_stall_seconds_total = pressure_read("/proc/pressure/io");
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        now->major_faults_total = (double)used.ru_majflt;
        now->involuntary_switches_total = (double)used.ru_nivcsw;
    }
}

tri_strain tri_strain_since(const tri_strain *later, const tri_strain *earlier)
{
    tri_strain passed;
#define STRAIN_SINCE(name, help) passed.name = later->name - earlier->name;
    TRI_STRAIN_LIST(STRAIN_SINCE)
#undef STRAIN_SINCE
    return passed;
}
