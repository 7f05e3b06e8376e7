/* SPDX-License-Identifier: Apache-2.0
 *
 * members_forget.c: what has ended is published to all, and forgotten when nobody needs it any more, so that a store
 * holds no more after a thousand deaths than after ten.
 *
 * A key that is removed could be claimed again by somebody who was stopped meanwhile. So a number is raised first, and
 * is looked at behind every claim and every look: below gen/oldest nothing counts of a generation, below news/oldest no
 * news. gen/clean, news/clean: all below it was removed; it lags behind where who removed died meanwhile.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/members_impl.h"
#include "cluster/members_text.h"

const char *tri_members_key(char text[KEY], int64_t generation, const char *what, const char *id)
{
    snprintf(text, KEY, "gen/%" PRId64 "%s%s", generation, what, id);
    return text;
}

/* NULL where there is none. */
static tri_status text_find(tri_store *store, const char *key, char **text)
{
    size_t nbytes;
    tri_status status = tri_store_wait(store, key, text, &nbytes, tri_now_ns());

    return status == TRI_ETIMEOUT ? TRI_OK : status;
}

tri_status tri_members_number(tri_store *store, const char *key, int64_t *number)
{
    char *text;

    *number = 0;
    TRI_TRY(text_find(store, key, &text));
    *number = text ? strtoll(text, NULL, 10) : 0;
    tri_free(text);
    return TRI_OK;
}

tri_status tri_members_is_listed(tri_store *store, const char *id, bool *listed, int64_t deadline_ns)
{
    char key[KEY], *text;
    int64_t number;
    size_t nbytes;
    tri_generation now = {0};

    *listed = false;
    TRI_TRY(tri_members_number(store, "gen/now", &number));
    if (number == 0)
        return TRI_OK;
    TRI_TRY(tri_store_wait(store, tri_members_key(key, number, "", ""), &text, &nbytes, deadline_ns));
    tri_status status = tri_members_parse(text, number, &now);
    tri_free(text);
    *listed = status == TRI_OK && tri_members_has(&now, id);
    tri_free(now.members);
    return status;
}

/* --- telling --- */

/* In the first place that is free, which is claimed with the text itself: whoever dies meanwhile leaves no gap at which
 * listeners would wait. The same words of somebody else will do. news/count only says where to begin, and is never
 * ahead of what is there. */
tri_status tri_members_publish(tri_store *store, const char *text, int64_t deadline_ns)
{
    char key[KEY], *stands;
    int64_t place, oldest, count;
    size_t nbytes;
    bool published = false;

    TRI_TRY(tri_members_number(store, "news/count", &place));
    while (!published) {
        snprintf(key, sizeof key, "news/%" PRId64, ++place);
        TRI_TRY(tri_store_claim(store, key, text, strlen(text), &stands, &nbytes, deadline_ns));
        published = strcmp(stands, text) == 0;
        tri_free(stands);
        TRI_TRY(tri_members_number(store, "news/oldest", &oldest));
        if (oldest <= place)
            continue;
        TRI_TRY(tri_store_remove(store, key, deadline_ns)); /* no listener comes by there */
        published = false;
        place = oldest - 1;
    }
    return tri_store_raise(store, "news/count", place, &count, deadline_ns);
}

tri_status tri_members_mark_dead(tri_store *store, const char *id, int64_t deadline_ns)
{
    char key[KEY];

    snprintf(key, sizeof key, "gone/%s", id);
    TRI_TRY(tri_store_set(store, key, "", 0, deadline_ns));
    snprintf(key, sizeof key, "gone %s", id);
    return tri_members_publish(store, key, deadline_ns);
}

tri_status tri_members_end(tri_members *members, int64_t deadline_ns)
{
    return tri_store_set(members->setup.store, "gen/over", "", 0, deadline_ns);
}

tri_status tri_members_fail(tri_store *store, tri_status status, const char *why, int64_t deadline_ns)
{
    tri_string text = {0};

    tri_status written = tri_string_appendf(&text, "%d %s", (int)status, why);
    if (written == TRI_OK)
        written = tri_store_set(store, "gen/failed", tri_string_text(&text), text.nbytes, deadline_ns);
    tri_string_fini(&text);
    return written;
}

tri_status tri_members_leave(tri_members *members, int64_t deadline_ns)
{
    return tri_members_mark_dead(members->setup.store, members->id, deadline_ns);
}

tri_status tri_members_failure_check(tri_store *store)
{
    char *text;
    int number = 0, nbytes = 0;
    size_t text_nbytes;
    tri_status status = tri_store_wait(store, "gen/failed", &text, &text_nbytes, tri_now_ns());

    if (status != TRI_OK)
        return status == TRI_ETIMEOUT ? TRI_OK : status;
    bool good = sscanf(text, "%d %n", &number, &nbytes) == 1 && nbytes > 0;
    bool config = good && (number == TRI_ECONFIG || number == TRI_EUNSUPPORTED);
    status = config ? tri_fail((tri_status)number, "%s", text + nbytes) : TRI_OK; /* of others a later start may fix */
    tri_free(text);
    return status;
}

/* --- forgetting generations --- */

static void list_fini(tri_generation *list)
{
    tri_free(list->members);
    *list = (tri_generation){0};
}

/* Nobody in it where it is not there: it was removed already. */
static tri_status list_find(tri_store *store, int64_t number, tri_generation *list)
{
    char key[KEY], *text;

    list_fini(list);
    TRI_TRY(text_find(store, tri_members_key(key, number, "", ""), &text));
    tri_status status = text ? tri_members_parse(text, number, list) : TRI_OK;
    tri_free(text);
    return status;
}

/* What a generation was made with, by these members of the one before it, and newcomers. */
static tri_status making_drop(tri_store *store, int64_t number, const tri_generation *before, int64_t deadline_ns)
{
    char key[KEY], place[24];
    int64_t count = 0;

    for (int r = 0; r < before->count; r++)
        TRI_TRY(tri_store_remove(store, tri_members_key(key, number, "/in/", before->members[r].id), deadline_ns));
    TRI_TRY(tri_members_number(store, tri_members_key(key, number, "/newcomers", ""), &count));
    for (int64_t i = 1; i <= count; i++) {
        snprintf(place, sizeof place, "%" PRId64, i);
        TRI_TRY(tri_store_remove(store, tri_members_key(key, number, "/new/", place), deadline_ns));
    }
    return count > 0 ? tri_store_remove(store, tri_members_key(key, number, "/newcomers", ""), deadline_ns) : TRI_OK;
}

/* The list last: as long as it is there somebody can take up what is left. */
static tri_status generation_drop(tri_store *store, int64_t number, int64_t deadline_ns)
{
    char key[KEY];

    TRI_TRY(tri_store_remove(store, tri_members_key(key, number, "/formed", ""), deadline_ns));
    return tri_store_remove(store, tri_members_key(key, number, "", ""), deadline_ns);
}

/* From the last one that formed up to the present one; what made that one is gone already. */
static tri_status generations_drop(tri_members *members, int64_t clean, tri_members_forget forget, void *arg,
                                   int64_t deadline_ns)
{
    tri_store *store = members->setup.store;
    tri_generation before = {0};
    tri_status status = TRI_OK;

    for (int64_t g = clean; g <= members->now.number && status == TRI_OK; g++) {
        if (g > clean)
            status = making_drop(store, g, g == 1 ? &members->now : &before, deadline_ns);
        if (g < 1 || g == members->now.number || status != TRI_OK)
            continue;
        status = list_find(store, g, &before);
        if (status == TRI_OK && g > clean && forget)
            status = forget(arg, g, before.count);
        if (status == TRI_OK)
            status = generation_drop(store, g, deadline_ns);
    }
    list_fini(&before);
    return status;
}

/* --- forgetting who has ended --- */

static bool is_named(const tri_generation *list, const char *id)
{
    for (int i = 0; i < list->count + list->absent_count; i++)
        if (strcmp(list->members[i].id, id) == 0)
            return true;
    return false;
}

/* Place `place` among the newcomers of a generation: "" where nothing is registered there yet. */
static tri_status newcomer_read(tri_store *store, int64_t number, int64_t place, char name[TRI_MEMBER_NBYTES])
{
    char key[KEY], at[24], *text;

    name[0] = '\0';
    snprintf(at, sizeof at, "%" PRId64, place);
    TRI_TRY(text_find(store, tri_members_key(key, number, "/new/", at), &text));
    if (text && sscanf(text, "%39s", name) != 1)
        name[0] = '\0';
    tri_free(text);
    return TRI_OK;
}

/* Has it registered for the generation `number`, as a newcomer? `known`: names of the first places, which are read once
 * for many questions; up to a place that is still empty, which may be filled before the next. */
static tri_status newcomer_find(tri_store *store, int64_t number, tri_vector *known, const char *id, bool *found)
{
    char key[KEY], name[TRI_MEMBER_NBYTES];
    int64_t count;

    *found = false;
    TRI_TRY(tri_members_number(store, tri_members_key(key, number, "/newcomers", ""), &count));
    for (size_t i = 0; i < known->count && !*found; i++)
        *found = strcmp(tri_vector_at(known, i), id) == 0;
    for (int64_t place = (int64_t)known->count + 1; place <= count && !*found; place++) {
        TRI_TRY(newcomer_read(store, number, place, name));
        *found = strcmp(name, id) == 0;
        if (name[0] && place == (int64_t)known->count + 1 && !tri_vector_push(known, name))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* A word that nobody needs: a call for what is there, or the end of one that is in no list and will be in none, since
 * it has not registered either. *id: of that one, or empty. *needed: may it be? */
static tri_status word_judge(tri_members *members, tri_vector *newcomers, const char *text, char id[TRI_MEMBER_NBYTES],
                             bool *needed)
{
    int64_t number = 0;

    memset(id, 0, TRI_MEMBER_NBYTES);
    if (sscanf(text, "call %" SCNd64, &number) == 1)
        *needed = *needed && number > members->now.number;
    else if (sscanf(text, "gone %39s", id) == 1 && *needed && !is_named(&members->now, id))
        TRI_TRY(newcomer_find(members->setup.store, members->now.number + 1, newcomers, id, needed));
    return TRI_OK;
}

/* Is there a later one, for which somebody may have registered who was not looked for? */
static tri_status is_newest(const tri_members *members, bool *yes)
{
    char key[KEY], *text;
    int64_t oldest;

    TRI_TRY(text_find(members->setup.store, tri_members_key(key, members->now.number + 1, "", ""), &text));
    TRI_TRY(tri_members_number(members->setup.store, "gen/oldest", &oldest));
    *yes = !text && oldest <= members->now.number;
    tri_free(text);
    return TRI_OK;
}

/* refused/<id> stays: the launcher of that worker removes it when it has read it. */
static tri_status gone_drop(tri_store *store, const char *id, int64_t deadline_ns)
{
    char key[KEY];

    snprintf(key, sizeof key, "door/%s", id);
    TRI_TRY(tri_store_remove(store, key, deadline_ns));
    snprintf(key, sizeof key, "gone/%s", id);
    return tri_store_remove(store, key, deadline_ns);
}

/* Of the dead that these news tell of, in the places from `first` on; a gap was removed already. */
static tri_status words_drop(tri_store *store, int64_t first, const tri_vector *ids, int64_t deadline_ns)
{
    char key[KEY];

    for (size_t i = 0; i < ids->count; i++) {
        const char *id = tri_vector_at(ids, i);

        if (id[0])
            TRI_TRY(gone_drop(store, id, deadline_ns));
        snprintf(key, sizeof key, "news/%" PRId64, first + (int64_t)i);
        TRI_TRY(tri_store_remove(store, key, deadline_ns));
    }
    return TRI_OK;
}

/* Whom the news from `first` on tell of, up to the first word that is needed; below `oldest` none is. */
static tri_status words_find(tri_members *members, tri_vector *newcomers, int64_t first, int64_t oldest,
                             tri_vector *ids)
{
    char key[KEY], id[TRI_MEMBER_NBYTES], *text;

    for (int64_t place = first;; place++) {
        bool needed = place >= oldest;

        snprintf(key, sizeof key, "news/%" PRId64, place);
        TRI_TRY(text_find(members->setup.store, key, &text));
        if (!text && needed)
            return TRI_OK;
        tri_status status = word_judge(members, newcomers, text ? text : "", id, &needed);
        tri_free(text);
        TRI_TRY(status);
        if (needed)
            return TRI_OK;
        if (!tri_vector_push(ids, id))
            return TRI_ENOMEM;
    }
}

/* News in their order, up to the first that is needed; who is judged before it is seen that the present generation is
 * the newest is judged for good: the dead register no more. */
static tri_status news_drop(tri_members *members, int64_t deadline_ns)
{
    tri_store *store = members->setup.store;
    tri_vector ids = {.each = TRI_MEMBER_NBYTES}, newcomers = {.each = TRI_MEMBER_NBYTES};
    int64_t clean, oldest, after;
    bool newest = false;

    TRI_TRY(tri_members_number(store, "news/clean", &clean));
    TRI_TRY(tri_members_number(store, "news/oldest", &oldest));
    clean = clean > 1 ? clean : 1;
    tri_status status = words_find(members, &newcomers, clean, oldest, &ids);
    const int64_t next = clean + (int64_t)ids.count;
    if (status == TRI_OK && ids.count > 0)
        status = is_newest(members, &newest);
    if (status == TRI_OK && newest)
        status = tri_store_raise(store, "news/count", next - 1, &after, deadline_ns);
    if (status == TRI_OK && newest)
        status = tri_store_raise(store, "news/oldest", next, &after, deadline_ns);
    if (status == TRI_OK && newest)
        status = words_drop(store, clean, &ids, deadline_ns);
    if (status == TRI_OK && newest)
        status = tri_store_raise(store, "news/clean", next, &after, deadline_ns);
    tri_vector_fini(&ids);
    tri_vector_fini(&newcomers);
    return status;
}

tri_status tri_members_sweep(tri_members *members, tri_members_forget forget, void *arg, int64_t deadline_ns)
{
    tri_store *store = members->setup.store;
    int64_t clean, after;

    TRI_TRY(tri_members_number(store, "gen/clean", &clean));
    TRI_TRY(tri_store_raise(store, "gen/oldest", members->now.number, &after, deadline_ns));
    TRI_TRY(generations_drop(members, clean, forget, arg, deadline_ns));
    TRI_TRY(news_drop(members, deadline_ns));
    return tri_store_raise(store, "gen/clean", members->now.number, &after, deadline_ns);
}
