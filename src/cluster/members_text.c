/* SPDX-License-Identifier: Apache-2.0
 *
 * members_text.c: lists of members as they stand in the store.
 */
#include "cluster/members_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Strays are last. */
static bool line_parse(const char *line, bool stray, tri_member *member)
{
    if (stray && strncmp(line, "- ", 2) != 0)
        return false;
    return sscanf(line + (stray ? 2 : 0), "%39s %39s %" SCNd64 " %139s", member->id, member->host, &member->progress,
                  member->note) == 4;
}

tri_status tri_members_parse(const char *text, int64_t number, tri_generation *out)
{
    tri_vector list = {.each = sizeof(tri_member)};
    const char *line = text;
    int strays = 0;

    while (*line) {
        const char *end = strchr(line, '\n');
        tri_member member = {.progress = -1};
        strays += strays > 0 || line[0] == '-';
        bool good = end && line_parse(line, strays > 0, &member);

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
        .number = number, .count = (int)list.count - strays, .stray_count = strays, .members = list.items};
    return TRI_OK;
}

tri_status tri_members_print(const tri_member *one, tri_string *text)
{
    return tri_string_appendf(text, "%s %s %" PRId64 " %s\n", one->id, one->host[0] ? one->host : "?", one->progress,
                              one->note[0] ? one->note : "-");
}

/* -1: it is none of them. */
static int place_of(const tri_generation *before, const char *id)
{
    for (int i = 0; i < before->count; i++)
        if (strcmp(before->members[i].id, id) == 0)
            return i;
    return -1;
}

static tri_status newcomers_spread(const tri_generation *before, tri_member *list, int count)
{
    int members = 0, at = 0;

    while (members < count && place_of(before, list[members].id) >= 0)
        members++;
    if (members == 0 || members == count || before->count < 2)
        return TRI_OK;
    tri_member *all = tri_alloc((size_t)count * sizeof *all), *newcomer;
    if (!all)
        return TRI_ENOMEM;
    memcpy(all, list, (size_t)count * sizeof *all);
    newcomer = all + members;
    for (int i = 0; i < members; i++) {
        const int last = before->count - 1, room = count - (members - i); /* for those behind it */
        int place = i == 0 ? 0 : (2 * place_of(before, all[i].id) * (count - 1) + last) / (2 * last);

        place = place < room ? place : room;
        while (at < place)
            list[at++] = *newcomer++;
        list[at++] = all[i];
    }
    while (at < count)
        list[at++] = *newcomer++;
    tri_free(all);
    return TRI_OK;
}

/* Who leads goes on with the files of the run, of which one without a state does not know what is not written yet; it
 * may be a member of a generation that never formed. */
static void first_choose(tri_member *list, int count)
{
    int first = 0;

    while (first < count && list[first].progress < 0)
        first++;
    if (first == 0 || first == count)
        return;
    const tri_member leader = list[first];
    memmove(list + 1, list, (size_t)first * sizeof *list);
    list[0] = leader;
}

tri_status tri_members_spread(const tri_generation *before, tri_member *list, int count)
{
    TRI_TRY(newcomers_spread(before, list, count));
    first_choose(list, count);
    return TRI_OK;
}
