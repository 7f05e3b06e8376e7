/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c: reads the small files of /proc and /sys below a root.
 */
#include "doctor/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

#define FILE_LIMIT ((uint64_t)4 << 20)

/* tri_free() it; NULL when it cannot be read: an old kernel, a container, another system. */
static char *whole(const tri_machine *machine, const char *path)
{
    char full[1024], *text = NULL;

    snprintf(full, sizeof full, "%s%s", machine->root, path);
    return tri_fs_read(full, FILE_LIMIT, &text, NULL) == TRI_OK ? text : NULL;
}

static void copy(const char *from, size_t nbytes, char *text, size_t capacity)
{
    if (nbytes >= capacity)
        nbytes = capacity - 1;
    memcpy(text, from, nbytes);
    text[nbytes] = 0;
}

bool tri_machine_text(const tri_machine *machine, const char *path, char *text, size_t capacity)
{
    char *all = whole(machine, path);

    text[0] = 0;
    if (!all)
        return false;
    all[strcspn(all, "\n")] = 0;
    copy(all, strlen(all), text, capacity);
    tri_free(all);
    return true;
}

bool tri_machine_has(const tri_machine *machine, const char *path)
{
    char full[1024];

    snprintf(full, sizeof full, "%s%s", machine->root, path);
    return tri_fs_exists(full);
}

bool tri_machine_number(const tri_machine *machine, const char *path, int64_t *number)
{
    char text[64], *end;

    *number = 0;
    if (!tri_machine_text(machine, path, text, sizeof text))
        return false;
    *number = strtoll(text, &end, 10);
    return end != text;
}

bool tri_machine_field(const tri_machine *machine, const char *path, const char *name, char *text, size_t capacity)
{
    char *all = whole(machine, path);
    size_t nbytes = strlen(name);
    bool found = false;

    text[0] = 0;
    for (const char *line = all; line && *line && !found; line += strcspn(line, "\n") + 1) {
        const char *at = line + nbytes;

        if (strncmp(line, name, nbytes) == 0) {
            at += strspn(at, " \t");
            found = *at == ':';
        }
        if (found) {
            at += 1 + strspn(at + 1, " \t");
            copy(at, strcspn(at, "\n"), text, capacity);
        }
        if (!line[strcspn(line, "\n")])
            break;
    }
    tri_free(all);
    return found;
}

/* "Iface Destination ...", a line a route, blanks and tabs between. */
bool tri_machine_route(const tri_machine *machine, char name[16])
{
    char *all = whole(machine, "/proc/net/route");
    bool found = false;

    name[0] = 0;
    for (const char *line = all; line && *line && !found; line += strcspn(line, "\n"), line += *line == '\n') {
        char word[16], destination[16];

        found = sscanf(line, "%15s %15s", word, destination) == 2 && strcmp(destination, "00000000") == 0;
        if (found)
            memcpy(name, word, sizeof word);
    }
    tri_free(all);
    return found;
}

bool tri_machine_choice(const tri_machine *machine, const char *path, char *text, size_t capacity)
{
    char line[256];
    const char *open;

    text[0] = 0;
    if (!tri_machine_text(machine, path, line, sizeof line) || !(open = strchr(line, '[')))
        return false;
    copy(open + 1, strcspn(open + 1, "]"), text, capacity);
    return true;
}

bool tri_machine_memory(const tri_machine *machine, const char *name, int64_t *nbytes)
{
    char text[64];

    *nbytes = 0;
    if (!tri_machine_field(machine, "/proc/meminfo", name, text, sizeof text))
        return false;
    *nbytes = strtoll(text, NULL, 10) * 1024;
    return true;
}

static const char *limit_read(const char *at, int64_t *value)
{
    char *end;

    at += strspn(at, " ");
    if (strncmp(at, "unlimited", 9) == 0) {
        *value = TRI_NO_LIMIT;
        return at + 9;
    }
    *value = (int64_t)strtoull(at, &end, 10);
    if (*value < 0)
        *value = TRI_NO_LIMIT;
    return end == at ? NULL : end;
}

bool tri_machine_limit(const tri_machine *machine, const char *name, int64_t *soft, int64_t *hard)
{
    char *all = whole(machine, "/proc/self/limits");
    const char *at = all ? strstr(all, name) : NULL;
    bool ok = at && (at = limit_read(at + strlen(name), soft)) && limit_read(at, hard);

    tri_free(all);
    return ok;
}

/* --- control groups --- */

/* "4:memory:/a/b" or "0::/a": the path of a controller. */
static bool group_path(const char *all, const char *controller, char path[256])
{
    size_t nbytes = strlen(controller);

    for (const char *line = all; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *list = strchr(line, ':'), *end = list ? strchr(list + 1, ':') : NULL;
        bool found;

        if (!end || end > line + strcspn(line, "\n"))
            continue;
        found = nbytes == 0 && end == list + 1;
        for (const char *at = list + 1; nbytes > 0 && at < end && !found; at += strcspn(at, ",:") + 1)
            found = strncmp(at, controller, nbytes) == 0 && (at[nbytes] == ',' || at[nbytes] == ':');
        if (found) {
            copy(end + 1, strcspn(end + 1, "\n"), path, 256);
            return true;
        }
    }
    return false;
}

static bool value_read(const tri_machine *machine, const char *folder, const char *file, tri_cgroup_limit *out)
{
    char path[640], text[96], *end;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!tri_machine_text(machine, path, text, sizeof text))
        return false;
    out->value = strtoll(text, &end, 10);
    out->period = strtoll(end, NULL, 10);
    if (end == text || out->value < 0 || out->value >= INT64_MAX / 2)
        return false;
    if (out->period == 0 && strcmp(file, "cpu.cfs_quota_us") == 0) {
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        (void)tri_machine_number(machine, path, &out->period);
    }
    return true;
}

static double worth(const tri_cgroup_limit *limit)
{
    return (double)limit->value / (limit->period > 0 ? (double)limit->period : 1);
}

bool tri_machine_cgroup(const tri_machine *machine, const char *controller, const char *two, const char *one,
                        tri_cgroup_limit *out)
{
    static const char mount[] = "/sys/fs/cgroup";
    char *all = whole(machine, "/proc/self/cgroup");
    char path[256] = "", text[8];
    tri_cgroup_limit at = {0};
    bool found = false;

    at.is_two = tri_machine_text(machine, "/sys/fs/cgroup/cgroup.controllers", text, sizeof text);
    if (all)
        (void)group_path(all, at.is_two ? "" : controller, path);
    tri_free(all);
    for (;;) {
        snprintf(at.folder, sizeof at.folder, "%s%s%s%s", mount, at.is_two ? "" : "/", at.is_two ? "" : controller,
                 strcmp(path, "/") == 0 ? "" : path);
        if (value_read(machine, at.folder, at.is_two ? two : one, &at) && (!found || worth(&at) < worth(out))) {
            *out = at;
            found = true;
        }
        if (!strrchr(path, '/'))
            return found;
        *strrchr(path, '/') = 0;
    }
}

/* --- lists and numbers --- */

static const char *range_read(const char *at, long *low, long *high)
{
    char *end;

    *low = *high = strtol(at, &end, 10);
    if (end == at)
        return NULL;
    if (*end == '-')
        *high = strtol(end + 1, &end, 10);
    return *end == ',' ? end + 1 : end;
}

bool tri_list_has(const char *list, int number)
{
    long low, high;

    while (list && *list && (list = range_read(list, &low, &high)) != NULL) {
        if (number >= low && number <= high)
            return true;
    }
    return false;
}

int tri_list_count(const char *list)
{
    long low, high, count = 0;

    while (list && *list && (list = range_read(list, &low, &high)) != NULL)
        count += high - low + 1;
    return (int)count;
}

void tri_list_mark(const char *list, bool *marks, int count)
{
    long low, high;

    while (list && *list && (list = range_read(list, &low, &high)) != NULL) {
        for (long n = low < 0 ? 0 : low; n <= high && n < count; n++)
            marks[n] = true;
    }
}

bool tri_lists_meet(const char *one, const char *other)
{
    long low, high;

    while (one && *one && (one = range_read(one, &low, &high)) != NULL) {
        for (const char *at = other; at && *at;) {
            long from, to;

            at = range_read(at, &from, &to);
            if (at && from <= high && low <= to)
                return true;
        }
    }
    return false;
}

tri_bytes_text tri_bytes_print(int64_t nbytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    tri_bytes_text out;
    double value = (double)nbytes;
    size_t unit = 0;

    if (nbytes == TRI_NO_LIMIT) {
        snprintf(out.text, sizeof out.text, "unlimited");
        return out;
    }
    while (value >= 1024 && unit + 1 < TRI_COUNT_OF(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}
