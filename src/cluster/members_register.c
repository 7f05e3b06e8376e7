/* SPDX-License-Identifier: Apache-2.0
 *
 * members_register.c: what a process says of itself when it wants to be in the next generation: its line of a list, the
 * digest of its description of the run, and whom it does not reach.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/members_impl.h"

/* Its line of a list, the digest of its description, and whom it does not reach. */
static tri_status registration_write(tri_members *members, const char *key, int64_t progress, int64_t deadline_ns)
{
    tri_string text = {0};
    tri_status status =
        tri_string_appendf(&text, "%s %s %" PRId64 " %s\n", members->id, members->host, progress, members->note);

    if (status == TRI_OK && members->spec[0])
        status = tri_string_appendf(&text, "spec %s\n", members->spec);
    tri_string_clear(&members->cuts);
    if (status == TRI_OK)
        status = tri_members_cuts_print(members, &members->cuts);
    if (status == TRI_OK)
        status = tri_string_append(&text, tri_string_text(&members->cuts));
    if (status == TRI_OK)
        status = tri_store_set(members->setup.store, key, tri_string_text(&text), text.nbytes, deadline_ns);
    tri_string_fini(&text);
    return status;
}

static tri_status register_newcomer(tri_members *members, int64_t number, int64_t progress, int64_t deadline_ns)
{
    char key[KEY], place[24];
    tri_store *store = members->setup.store;

    TRI_TRY(tri_store_add(store, tri_members_key(key, number, "/newcomers", ""), 1, &members->ticket, deadline_ns));
    snprintf(place, sizeof place, "%" PRId64, members->ticket);
    TRI_TRY(registration_write(members, tri_members_key(key, number, "/new/", place), progress, deadline_ns));
    members->request_ns = 0;
    return TRI_OK;
}
tri_status tri_members_register(tri_members *members, int64_t number, int64_t progress, int64_t deadline_ns)
{
    char key[KEY];

    if (members->registered == number)
        return TRI_OK;
    members->ticket = 0;
    if (members->rank < 0)
        TRI_TRY(register_newcomer(members, number, progress, deadline_ns));
    else
        TRI_TRY(registration_write(members, tri_members_key(key, number, "/in/", members->id), progress, deadline_ns));
    members->registered = number;
    members->heal_look_ns = tri_now_ns() + TRI_NS_PER_S;
    return TRI_OK;
}

/* A member that has found out since that it does not reach another one says so. */
tri_status tri_members_register_again(tri_members *members, int64_t number, int64_t progress, int64_t deadline_ns)
{
    char key[KEY];
    tri_string cuts = {0};

    if (members->rank < 0)
        return TRI_OK;
    TRI_TRY(tri_members_heal_look(members));
    tri_status status = tri_members_cuts_print(members, &cuts);
    bool same = strcmp(tri_string_text(&cuts), tri_string_text(&members->cuts)) == 0;
    tri_string_fini(&cuts);
    if (status != TRI_OK || same)
        return status;
    return registration_write(members, tri_members_key(key, number, "/in/", members->id), progress, deadline_ns);
}

/* The generation is closed without this one: its line is of no use there, and nobody else may take it away. */
void tri_members_register_drop(tri_members *members, bool forgotten, int64_t deadline_ns)
{
    char key[KEY], place[24];
    tri_store *store = members->setup.store;

    snprintf(place, sizeof place, "%" PRId64, members->ticket);
    if (members->ticket > 0)
        (void)tri_store_remove(store, tri_members_key(key, members->registered, "/new/", place), deadline_ns);
    else
        (void)tri_store_remove(store, tri_members_key(key, members->registered, "/in/", members->id), deadline_ns);
    if (members->ticket > 0 && forgotten)
        (void)tri_store_remove(store, tri_members_key(key, members->registered, "/newcomers", ""), deadline_ns);
}
/* One that cannot be read counts for nothing: whoever wrote it is waited for, or gone. */
bool tri_members_register_parse(const char *text, candidate *one)
{
    const char *rest = strchr(text, '\n');

    if (sscanf(text, "%39s %39s %" SCNd64 " %139s", one->member.id, one->member.host, &one->member.progress,
               one->member.note) != 4)
        return false;
    one->spec[0] = 0;
    if (rest && sscanf(rest + 1, "spec %32s", one->spec) == 1)
        rest = strchr(rest + 1, '\n');
    tri_free(one->cuts);
    one->cuts = NULL;
    if (rest && strncmp(rest + 1, "cut ", 4) == 0)
        one->cuts = tri_strdup(rest + 1); /* where memory is out it takes another try to find out */
    return true;
}

void tri_members_candidates_clear(tri_vector *candidates)
{
    for (size_t i = 0; i < candidates->count; i++)
        tri_free(((candidate *)tri_vector_at(candidates, i))->cuts);
    candidates->count = 0;
}
