/* SPDX-License-Identifier: Apache-2.0
 *
 * members.c: the protocol of generations over a store.
 *
 * Keys: gen/<g> the list of generation g, claimed once, absent members with a "-" before their lines; gen/<g>/formed,
 * claimed too: "yes", all of its members have the state that it begins with, or "no"; gen/<g>/in/<id> a member of g - 1
 * that has registered for g; gen/<g>/newcomers how many newcomers have, gen/<g>/new/<i> each of them; gen/now a number
 * that is not above the newest generation; gen/over set: there will be none any more; gone/<id> a process that has
 * ended or leaves; news/<i>, each claimed: "gone <id>" or "call <g>" (members of g - 1 are asked to form g), for all
 * listeners; news/count: how many of these there are at least. What has become of no use is forgotten
 * (members_forget.c): below gen/oldest there are no generations, and below news/oldest no news.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/members_impl.h"
#include "cluster/members_text.h"
#include "cluster/store_impl.h"

#define SLICE_NS (10 * TRI_NS_PER_MS) /* between two looks at who is there */
#define FIRST_NS (10 * TRI_NS_PER_S)  /* to ask the store for the first time */
#define CALL_NS  TRI_NS_PER_S         /* between two calls of a newcomer */
/* How long those are waited for that are cut off from this one, or have closed their links, and may register. */
#define SUSPECT_NS (500 * TRI_NS_PER_MS)
/* Some do not reach each other: how long until all of them have found out and said so. */
#define SETTLE_NS (300 * TRI_NS_PER_MS)

/* --- texts --- */

static void generation_fini(tri_generation *generation)
{
    tri_free(generation->members);
    *generation = (tri_generation){0};
}

/* TRI_ETIMEOUT when it is not there by then. */
static tri_status value_find(tri_members *members, const char *key, int64_t until_ns, char **text)
{
    size_t nbytes;

    return tri_store_wait(members->setup.store, key, text, &nbytes, until_ns);
}

/* --- the present generation --- */

/* Who of it may be in the next one. */
static tri_status adopt(tri_members *members, tri_generation *list)
{
    members->rank = -1;
    members->suspect_from_ns = 0;
    tri_mutex_lock(&members->mutex);
    generation_fini(&members->now);
    members->now = *list;
    *list = (tri_generation){0};
    atomic_store(&members->broken, false);
    for (size_t i = 0; i < members->dead.count; i++)
        if (tri_members_has(&members->now, tri_vector_at(&members->dead, i)))
            atomic_store(&members->broken, true);
    tri_mutex_unlock(&members->mutex);
    tri_members_candidates_clear(&members->old);
    tri_members_candidates_clear(&members->news);
    tri_members_candidates_clear(&members->absent);
    members->suspect_ns = members->settle_ns = 0;
    tri_free(members->healed);
    members->healed = NULL;
    for (int i = 0; i < members->now.count + members->now.absent_count; i++) {
        candidate one = {.member = members->now.members[i]};
        bool in = i < members->now.count;

        if (in && strcmp(one.member.id, members->id) == 0)
            members->rank = i;
        if (!tri_vector_push(in ? &members->old : &members->absent, &one))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* If generation `number` is closed by then: it is the present one. TRI_ETIMEOUT: it is not. TRI_ENOTFOUND: it is over,
 * and forgotten; what is there now somebody has claimed who was late, like this one. */
static tri_status look(tri_members *members, int64_t number, int64_t until_ns)
{
    char key[KEY], *text = NULL;
    int64_t oldest = 0;
    tri_generation list = {0};
    tri_status status = value_find(members, tri_members_key(key, number, "", ""), until_ns, &text), known;

    if (status != TRI_OK)
        text = NULL;
    if (status != TRI_OK && status != TRI_ETIMEOUT)
        return status;
    known = tri_members_number(members->setup.store, "gen/oldest", &oldest);
    status = known == TRI_OK ? status : known;
    if (oldest > number)
        status = tri_fail(TRI_ENOTFOUND, "generation %" PRId64 " is over: the others are at %" PRId64 " or later",
                          number, oldest);
    if (status == TRI_OK)
        status = tri_members_parse(text, number, &list);
    tri_free(text);
    if (status == TRI_OK)
        status = adopt(members, &list);
    generation_fini(&list);
    return status;
}

/* Later ones that are closed already: this process was stopped, or cut off, and would look for the links of one that
 * the others have left. */
static tri_status later_find(tri_members *members)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK)
        status = look(members, members->now.number + 1, tri_now_ns());
    return status == TRI_ETIMEOUT ? TRI_OK : status;
}

/* A process that is in none finds the newest: not forgotten, or gen/now is farther on by now. */
static tri_status newest_find(tri_members *members, int64_t deadline_ns)
{
    int64_t number = 0;
    tri_status status;

    do {
        status = tri_members_number(members->setup.store, "gen/now", &number);
        if (status == TRI_OK && number > members->now.number)
            status = look(members, number, tri_now_ns());
        if (status == TRI_OK)
            status = later_find(members);
    } while (status == TRI_ENOTFOUND && tri_now_ns() < deadline_ns);
    return status == TRI_ETIMEOUT && tri_now_ns() < deadline_ns ? TRI_OK : status;
}

static tri_status initial_members_make(tri_members *members)
{
    tri_generation list = {.count = members->setup.initial_members,
                           .members = tri_alloc_zero((size_t)members->setup.initial_members + 1, sizeof(tri_member))};

    if (!list.members)
        return TRI_ENOMEM;
    for (int i = 0; i < list.count; i++) {
        list.members[i].progress = -1;
        snprintf(list.members[i].id, TRI_MEMBER_NBYTES, "%d.0", i);
    }
    return adopt(members, &list);
}

/* --- newcomers --- */

static int newcomers_count(const tri_members *members)
{
    int here = 0;

    for (size_t i = 0; i < members->news.count; i++) {
        const candidate *one = tri_vector_at(&members->news, i);

        here += one->here && !one->gone;
    }
    return here;
}

/* Would there be more members with those that wait? */
static bool is_wanted(const tri_members *members)
{
    const tri_members_setup *setup = &members->setup;
    int here = newcomers_count(members), now = members->now.count;

    here = here > 0 ? here : 1;
    int count = now + here < setup->most ? now + here : setup->most;
    return now < setup->most && (!setup->fit || setup->fit(setup->arg, count) > now);
}

/* Again now and then: whoever shall hear it may be a process that was not there. A spare waits until somebody is
 * missing: it is registered for the next generation, and is in it whenever that comes. */
static tri_status call(tri_members *members, int64_t number, int64_t deadline_ns)
{
    char text[48];
    int64_t now_ns = tri_now_ns();
    bool wanted = is_wanted(members);

    if (!wanted && !members->waits)
        tri_log(TRI_LOG_INFO, "waits as a spare, ready, until one of %d workers is missing", members->now.count);
    members->waits = !wanted;
    if (now_ns < members->request_ns || !wanted)
        return TRI_OK;
    members->request_ns = now_ns + CALL_NS;
    snprintf(text, sizeof text, "call %" PRId64, number);
    return tri_members_publish(members->setup.store, text, deadline_ns);
}

/* --- closing --- */

/* rank: in the present generation, -1: a newcomer. */
static tri_status find_gone(tri_members *members, candidate *one, int rank)
{
    char key[KEY], where[TRI_MEMBER_WHERE_NBYTES], *text;

    if (strcmp(one->member.id, members->id) == 0 || one->dead)
        return TRI_OK;
    if (rank >= 0)
        one->way = tri_members_way(members, rank, where);
    one->gone = one->gone || one->way == TRI_MEMBER_GONE;
    snprintf(key, sizeof key, "gone/%s", one->member.id);
    tri_status status = value_find(members, key, tri_now_ns(), &text);
    one->dead = status == TRI_OK;
    one->gone = one->gone || one->dead;
    if (status == TRI_OK)
        tri_free(text);
    return status == TRI_ETIMEOUT ? TRI_OK : status;
}

static tri_status find_here(tri_members *members, candidate *one, const char *key)
{
    char *text;

    if (one->here)
        return TRI_OK;
    tri_status status = value_find(members, key, tri_now_ns(), &text);
    if (status != TRI_OK)
        return status == TRI_ETIMEOUT ? TRI_OK : status;
    one->here = tri_members_register_parse(text, one);
    tri_free(text);
    return TRI_OK;
}

/* A generation without links: long enough for those of it that live. */
static bool is_silent(const tri_members *members)
{
    return members->suspect_from_ns > 0 && members->rank >= 0 && tri_now_ns() >= members->suspect_from_ns;
}

/* Does this process close the next generation? The first that is not gone does; others would be right too, and are
 * spared the questions. */
static tri_status leads(tri_members *members, bool *yes)
{
    *yes = is_silent(members); /* the first one may have registered and be cut off */
    for (size_t i = 0; !*yes && i < members->old.count; i++) {
        if ((int)i == members->rank)
            return *yes = true, TRI_OK;
        candidate *one = tri_vector_at(&members->old, i);
        TRI_TRY(find_gone(members, one, (int)i));
        if (!one->gone && one->way == TRI_MEMBER_HEARD)
            return TRI_OK;
    }
    for (size_t i = 0; !*yes && i < members->news.count; i++) { /* nobody of the present one is left */
        candidate *one = tri_vector_at(&members->news, i);
        if ((int64_t)i + 1 == members->ticket)
            break;
        if (!one->here) /* ended with a ticket in its hand, perhaps */
            continue;
        TRI_TRY(find_gone(members, one, -1));
        if (!one->gone)
            return TRI_OK;
    }
    *yes = true;
    return TRI_OK;
}

static tri_status news_find(tri_members *members, int64_t number, int64_t deadline_ns)
{
    char key[KEY], place[24];
    int64_t count = 0;

    TRI_TRY(tri_members_number(members->setup.store, tri_members_key(key, number, "/newcomers", ""), &count));
    while ((int64_t)members->news.count < count) {
        candidate one = {.member = {.progress = -1}};

        if (!tri_vector_push(&members->news, &one))
            return TRI_ENOMEM;
    }
    for (size_t i = 0; i < members->news.count; i++) {
        candidate *one = tri_vector_at(&members->news, i);

        snprintf(place, sizeof place, "%zu", i + 1);
        TRI_TRY(find_here(members, one, tri_members_key(key, number, "/new/", place)));
        if (one->here) {
            TRI_TRY(find_gone(members, one, -1));
            TRI_TRY(tri_members_misfit_refuse(members, one, deadline_ns));
        }
    }
    return TRI_OK;
}

/* Are those worth waiting for that are cut off from this one? Not where it is in a majority without them, nor for one
 * alone: they cannot be more then. */
static bool cut_may_be_more(const tri_members *members)
{
    size_t sure = 0, cut = 0;

    for (size_t i = 0; i < members->old.count; i++) {
        const candidate *one = tri_vector_at(&members->old, i);

        sure += (int)i == members->rank || (one->here && !one->gone);
        cut += !one->here && !one->gone && one->way == TRI_MEMBER_CUT;
    }
    return cut > 1 && 2 * sure <= members->old.count;
}

/* Where some do not reach each other all get the time to say so, and what they have said is read again. */
static bool is_settled(tri_members *members)
{
    if (!tri_members_any_cut(members))
        return true;
    if (members->settle_ns == 0)
        members->settle_ns = tri_now_ns();
    if (tri_now_ns() - members->settle_ns >= SETTLE_NS)
        return true;
    for (size_t i = 0; i < members->old.count; i++)
        ((candidate *)tri_vector_at(&members->old, i))->here = false;
    return false;
}

/* Those that are cut off, or have closed their links, and have not registered: the others have known it as long. */
static const candidate *suspects_judge(tri_members *members)
{
    const candidate *first = NULL;
    bool waits = cut_may_be_more(members);

    for (size_t i = 0; i < members->old.count; i++) {
        candidate *one = tri_vector_at(&members->old, i);

        if (one->here || one->gone || one->way == TRI_MEMBER_HEARD || (int)i == members->rank)
            continue;
        if (members->suspect_ns == 0)
            members->suspect_ns = tri_now_ns();
        if ((one->way == TRI_MEMBER_LEFT || waits) && tri_now_ns() - members->suspect_ns < SUSPECT_NS)
            first = first ? first : one;
    }
    return first;
}

/* Members of the present one that are neither registered nor gone; the first of them. */
static tri_status missing_find(tri_members *members, int64_t number, const candidate **first)
{
    char key[KEY];

    *first = NULL;
    for (size_t i = 0; i < members->old.count; i++) {
        candidate *one = tri_vector_at(&members->old, i);

        TRI_TRY(find_gone(members, one, (int)i));
        if (!one->dead) /* one that was given up may live all the same */
            TRI_TRY(find_here(members, one, tri_members_key(key, number, "/in/", one->member.id)));
        one->gone = one->gone || (!one->here && i != (size_t)members->rank && is_silent(members));
        if (!one->gone && !one->here && one->way == TRI_MEMBER_HEARD && !*first)
            *first = one;
    }
    if (!*first)
        *first = suspects_judge(members);
    return TRI_OK;
}

static tri_status list_append(tri_vector *list, const tri_vector *candidates)
{
    for (size_t i = 0; i < candidates->count; i++) {
        const candidate *one = tri_vector_at(candidates, i);

        if (one->here && !one->gone && !one->left_out && !tri_vector_push(list, &one->member))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

bool tri_members_is_whole(const tri_members *members, const tri_vector *list)
{
    if (members->setup.whole)
        return members->setup.whole(members->setup.arg, list->items, (int)list->count);
    for (size_t i = 0; i < list->count; i++)
        if (((const tri_member *)tri_vector_at(list, i))->progress >= 0)
            return true;
    return false;
}

static void list_remove(tri_vector *list, size_t i)
{
    tri_member *all = list->items;

    list->count--;
    memmove(all + i, all + i + 1, (list->count - i) * sizeof *all);
}

/* The last one without whom the others have what they have with him; the last one where there is no such. */
static void list_shorten(const tri_members *members, tri_vector *list)
{
    for (size_t i = list->count; tri_members_is_whole(members, list) && i-- > 0;) {
        tri_member one = *(tri_member *)tri_vector_at(list, i);

        list_remove(list, i);
        if (tri_members_is_whole(members, list))
            return;
        (void)tri_vector_push(list, NULL); /* has room */
        tri_member *all = list->items;
        memmove(all + i + 1, all + i, (list->count - 1 - i) * sizeof *all);
        all[i] = one;
    }
    list_remove(list, list->count - 1);
}

/* Members that were given up and have registered, before or after. */
static tri_status silent_append(tri_vector *list, const tri_vector *candidates)
{
    for (size_t i = 0; i < candidates->count; i++) {
        const candidate *one = tri_vector_at(candidates, i);

        if (one->here && one->gone && !one->dead && !tri_vector_push(list, &one->member))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* Those that are here, as many as can work together: members first, newcomers behind them; and where these have no
 * whole state, members of whom nothing is heard too. */
static tri_status list_make(tri_members *members, tri_vector *list)
{
    const tri_members_setup *setup = &members->setup;

    TRI_TRY(tri_members_connected_find(members));
    TRI_TRY(list_append(list, &members->old));
    TRI_TRY(list_append(list, &members->news));
    if (!tri_members_is_whole(members, list))
        TRI_TRY(silent_append(list, &members->old));
    int count = (int)list->count < setup->most ? (int)list->count : setup->most;
    int fit = setup->fit && count > 0 ? setup->fit(setup->arg, count) : count;
    while ((int)list->count > fit)
        list_shorten(members, list);
    return TRI_OK;
}

static bool is_listed(const tri_vector *list, const char *id)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(((const tri_member *)tri_vector_at(list, i))->id, id) == 0)
            return true;
    return false;
}

/* It has said that it has no state. */
static bool is_empty(const candidate *one)
{
    return one->here && one->member.progress < 0;
}

/* A stray that has come back speaks for itself. */
static bool has_come(const tri_members *members, const char *id)
{
    for (size_t i = 0; i < members->news.count; i++) {
        const candidate *one = tri_vector_at(&members->news, i);

        if (one->here && strcmp(one->member.id, id) == 0)
            return true;
    }
    return false;
}

static tri_status list_print(const tri_members *members, const tri_vector *list, tri_string *text)
{
    for (size_t i = 0; i < list->count; i++)
        TRI_TRY(tri_members_print(tri_vector_at(list, i), text));
    /* Who may live with a state, and is not in the list. */
    const tri_vector *all[] = {&members->old, &members->news, &members->absent};

    for (size_t v = 0; v < TRI_COUNT_OF(all); v++)
        for (size_t i = 0; i < all[v]->count; i++) {
            const candidate *one = tri_vector_at(all[v], i);
            bool nameless = all[v] == &members->news && !one->here;
            bool twice = all[v] == &members->absent && has_come(members, one->member.id);

            if (nameless || twice || one->dead || is_empty(one) || is_listed(list, one->member.id))
                continue;
            TRI_TRY(tri_string_append(text, "- "));
            TRI_TRY(tri_members_print(&one->member, text));
        }
    return TRI_OK;
}

/* Claims the next generation with those that are here; what is then is the present one. */
static tri_status claim(tri_members *members, int64_t number, const tri_vector *list, int64_t deadline_ns)
{
    char key[KEY], *stands;
    size_t nbytes;
    tri_string text = {0};

    tri_status status = list_print(members, list, &text);
    if (status == TRI_OK)
        status = tri_store_claim(members->setup.store, tri_members_key(key, number, "", ""), tri_string_text(&text),
                                 text.nbytes, &stands, &nbytes, deadline_ns);
    tri_string_fini(&text);
    TRI_TRY(status);
    tri_free(stands);
    status = look(members, number, tri_now_ns()); /* not there: forgotten, and nothing to wait for */
    if (status == TRI_ENOTFOUND)                  /* it was of use to nobody before this one claimed it */
        (void)tri_store_remove(members->setup.store, key, deadline_ns);
    return status;
}

/* Those that are here have no whole state, and one that may have it has not ended: it is worth waiting for. */
static bool state_may_come(const tri_members *members, int64_t number, const tri_vector *list)
{
    bool may = false;

    for (size_t i = 0; i < members->old.count; i++) {
        const candidate *one = tri_vector_at(&members->old, i);

        may = may || (one->left_out && !one->dead && !is_empty(one)) ||
              ((one->gone || one->way != TRI_MEMBER_HEARD) && !one->dead &&
               !one->here); /* else it is in the list with what it has */
    }
    for (size_t i = 0; i < members->absent.count; i++) {
        const candidate *one = tri_vector_at(&members->absent, i);

        may = may || (!one->dead && !has_come(members, one->member.id));
    }
    return may && number > 1 && !tri_members_is_whole(members, list);
}

/* Registrations of members that do not reach others are read again. */
static void cut_forget(tri_members *members)
{
    for (size_t i = 0; i < members->old.count; i++) {
        candidate *one = tri_vector_at(&members->old, i);
        one->here = one->here && !one->cuts;
    }
}

/* Whether a newcomer cannot become a member. */
static tri_status newcomer_check(tri_members *members)
{
    char *text;

    if (tri_stop_signal())
        return tri_fail(TRI_ECANCELED, "stopped by a signal before it was a member");
    TRI_TRY(tri_members_refusal_check(members));
    tri_status status = value_find(members, "gen/over", tri_now_ns(), &text);
    if (status == TRI_OK)
        tri_free(text);
    return status == TRI_OK ? tri_fail(TRI_ECANCELED, "the run is over") : status == TRI_ETIMEOUT ? TRI_OK : status;
}

/* One look at who is there. TRI_ETIMEOUT: the generation is not closed yet. */
static tri_status close_try(tri_members *members, int64_t number, int64_t few_ns, int64_t deadline_ns)
{
    const candidate *missing;
    char key[KEY], *text;
    tri_vector list = {.each = sizeof(tri_member)};
    int64_t slice_ns = tri_now_ns() + SLICE_NS;

    TRI_TRY(missing_find(members, number, &missing));
    if (missing) { /* on, once it registers */
        tri_status status =
            value_find(members, tri_members_key(key, number, "/in/", missing->member.id), slice_ns, &text);
        if (status == TRI_OK)
            tri_free(text);
        return status == TRI_OK ? TRI_ETIMEOUT : status;
    }
    if (!is_settled(members)) {
        tri_sleep_ns(SLICE_NS);
        return TRI_ETIMEOUT;
    }
    TRI_TRY(news_find(members, number, deadline_ns));
    for (size_t i = 0; i < members->absent.count; i++)
        TRI_TRY(find_gone(members, tri_vector_at(&members->absent, i), -1));
    tri_status status = list_make(members, &list);
    bool few = (int)list.count < members->setup.least && !tri_stop_signal();
    few = (few || state_may_come(members, number, &list)) && tri_now_ns() < few_ns;
    if (few) /* a link that is whole again is said in another registration */
        cut_forget(members);
    if (status == TRI_OK && few)
        status = tri_members_failure_check(members->setup.store);
    if (status == TRI_OK && few)
        status = look(members, number, slice_ns);
    else if (status == TRI_OK && members->rank < 0) /* the others may be gone because all is done */
        status = newcomer_check(members);
    if (status == TRI_OK && !few)
        tri_members_left_out_report(members, number);
    if (status == TRI_OK && !few)
        status = claim(members, number, &list, deadline_ns);
    tri_vector_fini(&list);
    return status;
}

/* Until when a spare waits is put off meanwhile, limit_ns at a time: it is one in later generations too. */
static tri_status closed_wait(tri_members *members, int64_t number, int64_t progress, int64_t limit_ns, int64_t *few_ns,
                              int64_t *deadline_ns)
{
    bool yes = false;
    tri_status status = TRI_ETIMEOUT;

    while (status == TRI_ETIMEOUT) {
        if (members->waits && members->rank < 0 && !yes) { /* a spare: as long as the others need nobody */
            *deadline_ns = tri_now_ns() + limit_ns;
            *few_ns = tri_now_ns() + members->setup.wait_ns;
        }
        if (tri_now_ns() > *deadline_ns)
            return tri_fail(TRI_ETIMEOUT, "generation %" PRId64 ": want it closed in time, and it is not", number);
        status = look(members, number, tri_now_ns());
        if (status != TRI_ETIMEOUT)
            break;
        if (members->rank < 0) {
            TRI_TRY(newcomer_check(members));
            TRI_TRY(call(members, number, *deadline_ns));
            TRI_TRY(news_find(members, number, *deadline_ns));
        }
        TRI_TRY(tri_members_register_again(members, number, progress, *deadline_ns));
        TRI_TRY(leads(members, &yes));
        status =
            yes ? close_try(members, number, *few_ns, *deadline_ns) : look(members, number, tri_now_ns() + SLICE_NS);
    }
    return status;
}

/* --- the calls of others --- */

tri_status tri_members_look(tri_members *members, int64_t deadline_ns)
{
    return members->rank < 0 ? newest_find(members, deadline_ns) : TRI_OK;
}

const atomic_bool *tri_members_broken(const tri_members *members)
{
    return &members->broken;
}

tri_status tri_members_next(tri_members *members, int64_t progress, tri_members_lost lost, void *arg,
                            int64_t deadline_ns)
{
    int64_t few_ns = tri_now_ns() + members->setup.wait_ns, limit_ns = deadline_ns - tri_now_ns(), newest;
    bool ready, unformed = members->suspect_from_ns > 0;

    members->lost = lost;
    members->lost_arg = arg;
    do {
        if (members->rank < 0)
            TRI_TRY(newest_find(members, deadline_ns));
        TRI_TRY(tri_members_spec_agree(members, deadline_ns));
        if (members->rank < 0)
            TRI_TRY(newcomer_check(members));
        TRI_TRY(tri_members_reach_look(members, &ready));
        if (!ready) { /* it waits as long as it takes */
            deadline_ns = tri_now_ns() + limit_ns;
            continue;
        }
        int64_t number = members->now.number + 1;
        TRI_TRY_IN(tri_members_register(members, number, progress, deadline_ns),
                   "while registering for generation %" PRId64, number);
        tri_status status = closed_wait(members, number, progress, limit_ns, &few_ns, &deadline_ns);
        if (status == TRI_OK)
            status = later_find(members);
        if (status == TRI_ENOTFOUND) {
            tri_log(TRI_LOG_INFO, "%s; this worker was away, and asks to be in the next one", tri_last_error());
            members->rank = -1;
        }
        TRI_TRY(status == TRI_ENOTFOUND ? TRI_OK : status);
        if (members->rank < 0 && members->cuts.nbytes > 0) {
            members->outs += unformed;
            members->out_ns = tri_now_ns();
            members->reached_ns = 0;
        }
        if (members->rank < 0)
            tri_members_register_drop(members, status == TRI_ENOTFOUND, deadline_ns);
        members->lost = NULL; /* its ranks are others */
    } while (members->rank < 0);
    members->waits = false;
    return members->rank > 0
               ? TRI_OK
               : tri_store_raise(members->setup.store, "gen/now", members->now.number, &newest, deadline_ns);
}

tri_status tri_members_spares(tri_members *members, int *count)
{
    TRI_TRY(news_find(members, members->now.number + 1, tri_now_ns() + CALL_NS));
    *count = newcomers_count(members);
    return TRI_OK;
}

void tri_members_suspect_from(tri_members *members, int64_t from_ns)
{
    members->suspect_from_ns = from_ns;
}

void tri_members_note(tri_members *members, const char *note)
{
    TRI_ASSERT(strlen(note) < sizeof members->note && note[0] && !strpbrk(note, " \n"));
    snprintf(members->note, sizeof members->note, "%s", note);
}

const tri_generation *tri_members_now(const tri_members *members)
{
    return &members->now;
}

int tri_members_rank(const tri_members *members)
{
    return members->rank;
}

bool tri_members_rescale_requested(const tri_members *members)
{
    return members->rank == 0 && atomic_load_explicit((_Atomic int64_t *)(uintptr_t)&members->heard,
                                                      memory_order_relaxed) == members->now.number + 1;
}

tri_status tri_members_formed(tri_members *members, bool word, bool *stands, int64_t deadline_ns)
{
    char key[KEY], *said;
    const char *mine = word ? "yes" : "no";
    size_t nbytes;
    int64_t oldest;

    TRI_TRY(tri_store_claim(members->setup.store, tri_members_key(key, members->now.number, "/formed", ""), mine,
                            strlen(mine), &said, &nbytes, deadline_ns));
    *stands = strcmp(said, "yes") == 0;
    tri_free(said);
    TRI_TRY(tri_members_number(members->setup.store, "gen/oldest", &oldest));
    if (oldest <= members->now.number)
        return TRI_OK;
    *stands = false; /* the word that was there is forgotten; a later generation has a state */
    return tri_store_remove(members->setup.store, key, deadline_ns);
}

void tri_members_close(tri_members *members)
{
    if (!members)
        return;
    atomic_store(&members->closing, true);
    tri_thread_join(members->thread);
    tri_mutex_fini(&members->mutex);
    generation_fini(&members->now);
    tri_string_fini(&members->cuts);
    tri_free(members->healed);
    tri_vector *all[] = {&members->old, &members->news, &members->absent};
    for (size_t v = 0; v < TRI_COUNT_OF(all); v++) {
        tri_members_candidates_clear(all[v]);
        tri_vector_fini(all[v]);
    }
    tri_vector_fini(&members->dead);
    tri_free(members);
}

static bool is_word(const char *text)
{
    return text && text[0] && strlen(text) < TRI_MEMBER_NBYTES && tri_store_key_check(text, strlen(text)) == TRI_OK;
}

/* Where news begin for this one. Its launcher may be killed just now, and nobody listens yet who could say when there
 * was none for long enough. */
static tri_status news_begin(tri_members *members)
{
    tri_store *listener = members->setup.listener;
    const int64_t patience_ns = listener->patience_ns;
    listener->patience_ns = members->setup.store->patience_ns > 0 ? members->setup.alone_ns : 0;
    tri_status status = tri_store_add(listener, "news/count", 0, &members->first_news, tri_now_ns() + FIRST_NS);
    listener->patience_ns = patience_ns;
    return status;
}

tri_status tri_members_open(const tri_members_setup *setup, tri_members **out)
{
    *out = NULL;
    if (!is_word(setup->id) || !is_word(setup->host))
        return tri_fail(TRI_EINVAL, "members: want an id and a host of 1 to %d bytes of [A-Za-z0-9_./-]",
                        TRI_MEMBER_NBYTES - 1);
    tri_members *members = tri_alloc_zero(1, sizeof *members);
    if (!members)
        return TRI_ENOMEM;
    members->setup = *setup;
    snprintf(members->id, sizeof members->id, "%s", setup->id);
    snprintf(members->host, sizeof members->host, "%s", setup->host);
    snprintf(members->note, sizeof members->note, "-");
    members->old.each = members->news.each = members->absent.each = sizeof(candidate);
    members->dead.each = TRI_MEMBER_NBYTES;
    tri_mutex_init(&members->mutex);
    tri_status status = tri_members_spec_digest(setup->spec, members->spec);
    if (status == TRI_OK)
        status = initial_members_make(members);
    if (status == TRI_OK && setup->listener)
        status = news_begin(members);
    members->first_news++;
    if (status == TRI_OK && setup->listener)
        status = tri_thread_start(&members->thread, "members", tri_members_listen, members);
    if (status != TRI_OK) {
        tri_members_close(members);
        return status;
    }
    *out = members;
    return TRI_OK;
}
