/* SPDX-License-Identifier: Apache-2.0
 *
 * files.h: what the checks of a machine share: its small files, its limits, its control groups.
 */
#ifndef TRI_DOCTOR_FILES_H
#define TRI_DOCTOR_FILES_H

#include "doctor/doctor.h"

#define TRI_NO_LIMIT INT64_MAX

/* The whole file below the root, without the last newline; "" and false when it cannot be read. */
bool tri_machine_text(const tri_machine *machine, const char *path, char *text, size_t capacity);
bool tri_machine_has(const tri_machine *machine, const char *path);
/* The first whole number of a file. */
bool tri_machine_number(const tri_machine *machine, const char *path, int64_t *number);
/* The text behind "name:" at the start of a line, without blanks. */
bool tri_machine_field(const tri_machine *machine, const char *path, const char *name, char *text, size_t capacity);
/* The interface of the default route; "" and false when there is none. */
bool tri_machine_route(const tri_machine *machine, char name[16]);
/* The choice in brackets: "always [madvise] never". */
bool tri_machine_choice(const tri_machine *machine, const char *path, char *text, size_t capacity);
/* kB of /proc/meminfo as bytes. */
bool tri_machine_memory(const tri_machine *machine, const char *name, int64_t *nbytes);
/* A row of /proc/self/limits: "Max open files"; TRI_NO_LIMIT for unlimited. */
bool tri_machine_limit(const tri_machine *machine, const char *name, int64_t *soft, int64_t *hard);

/* The lowest limit of the process's control group and those above it. `two` and `one` name the file in cgroup v2 and
 * v1; the value is its first word ("max", negative or absurdly high: none). *path: where the lowest is, below the
 * root. False when there is no limit. */
typedef struct tri_cgroup_limit {
    int64_t value, period; /* period: the second word (cpu.max), or cpu.cfs_period_us; 0: none */
    bool is_two;
    char folder[400];
} tri_cgroup_limit;
bool tri_machine_cgroup(const tri_machine *machine, const char *controller, const char *two, const char *one,
                        tri_cgroup_limit *out);

/* Whether a list such as "0-3,8" holds a number; and how many it holds. */
bool tri_list_has(const char *list, int number);
int tri_list_count(const char *list);
/* Sets marks[n] for each number n of a list below count. */
void tri_list_mark(const char *list, bool *marks, int count);
/* Whether two lists have a number in common. */
bool tri_lists_meet(const char *one, const char *other);

/* "1.5 GiB". */
typedef struct tri_bytes_text {
    char text[24];
} tri_bytes_text;
tri_bytes_text tri_bytes_print(int64_t nbytes);

#define TRI_MIB (INT64_C(1) << 20)
#define TRI_GIB (INT64_C(1) << 30)

#endif
