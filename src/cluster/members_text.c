/* SPDX-License-Identifier: Apache-2.0
 *
 * members_text.c: lists of members as they are in the store.
 */
#include "cluster/members_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Absent members are last. */
static bool line_parse(const char *line, bool absent, tri_member *member)
{
    if (absent && strncmp(line, "- ", 2) != 0)
        return false;
    return sscanf(line + (absent ? 2 : 0), "%39s %39s %" SCNd64 " %139s", member->id, member->host, &member->progress,
                  member->note) == 4;
}

tri_status tri_members_parse(const char *text, int64_t number, tri_generation *out)
{
    tri_vector list = {.each = sizeof(tri_member)};
    const char *line = text;
    int absent = 0;

    while (*line) {
        const char *end = strchr(line, '\n');
        tri_member member = {.progress = -1};
        absent += absent > 0 || line[0] == '-';
        bool good = end && line_parse(line, absent > 0, &member);

        if (!good || !tri_vector_push(&list, &member)) {
            tri_vector_fini(&list);
            return good ? TRI_ENOMEM
                        : tri_fail(TRI_EFORMAT,
                                   "store key gen/%" PRId64 ": want lines of id, host, progress, note, got '%.80s'",
                                   number, line);
        }
        line = end + 1;
    }
    *out = (tri_generation){
        .number = number, .count = (int)list.count - absent, .absent_count = absent, .members = list.items};
    return TRI_OK;
}

tri_status tri_members_print(const tri_member *one, tri_string *text)
{
    return tri_string_appendf(text, "%s %s %" PRId64 " %s\n", one->id, one->host[0] ? one->host : "?", one->progress,
                              one->note[0] ? one->note : "-");
}
