/* SPDX-License-Identifier: Apache-2.0
 *
 * members_reach.c: members that do not reach each other. A registration says whom its process does not reach; whoever
 * closes a generation keeps the largest set of members that all reach each other, and newcomers that reach all of it. A
 * process that is left out, or comes new, joins once it reaches every member.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/members_impl.h"

#define HEAL_NS     TRI_NS_PER_S          /* between two trials of those that members do not reach */
#define LOOK_NS     (200 * TRI_NS_PER_MS) /* between two looks of one that does not reach all */
#define HOLD_NS     (700 * TRI_NS_PER_MS) /* one that was left out reaches all as long before it joins; */
#define HOLD_DOUBLE 6                     /* where links to it failed though it was reached: twice as long each time */
#define OUT_NS      (600 * TRI_NS_PER_S)  /* after which these count again */
#define NODES       4096                  /* of the search for the largest set, at most */

/* --- saying it --- */

tri_member_way tri_members_way(const tri_members *members, int rank, char where[TRI_MEMBER_WHERE_NBYTES])
{
    where[0] = 0;
    if (members->rank < 0 || rank == members->rank || !members->lost)
        return TRI_MEMBER_HEARD;
    tri_member_way way = members->lost(members->lost_arg, rank, where);
    return way == TRI_MEMBER_CUT && members->healed && members->healed[rank] ? TRI_MEMBER_HEARD : way;
}

tri_status tri_members_cuts_print(const tri_members *members, tri_string *text)
{
    char where[TRI_MEMBER_WHERE_NBYTES];

    for (int r = 0; r < members->now.count; r++) {
        if (tri_members_way(members, r, where) != TRI_MEMBER_CUT)
            continue;
        where[strcspn(where, "\n")] = 0;
        TRI_TRY(tri_string_appendf(text, "cut %s %s\n", members->now.members[r].id, where));
    }
    return TRI_OK;
}

/* Does it say that it does not reach that one? *where: the rest of the line. */
static bool says_cut(const candidate *one, const char *id, const char **where)
{
    size_t nbytes = strlen(id);

    for (const char *at = one->cuts; at && strncmp(at, "cut ", 4) == 0;) {
        if (strncmp(at + 4, id, nbytes) == 0 && at[4 + nbytes] == ' ') {
            *where = at + 5 + nbytes;
            return true;
        }
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* This process's own knowledge may be newer than what it has registered with. */
static bool is_cut(const tri_members *members, const candidate *a, const candidate *b)
{
    const char *where;
    const candidate *own = strcmp(a->member.id, members->id) == 0   ? a
                           : strcmp(b->member.id, members->id) == 0 ? b
                                                                    : NULL;

    if (own && (own == a ? b : a)->way == TRI_MEMBER_CUT)
        return true;
    return says_cut(a, b->member.id, &where) || says_cut(b, a->member.id, &where);
}

static bool is_in(const candidate *one)
{
    return one->here && !one->gone && !one->left_out;
}

/* --- the largest set --- */

typedef struct search {
    const tri_members *members;
    int count;
    candidate **at;      /* [count]: registered members of the present generation that are in a pair, by rank */
    unsigned char *cut;  /* [count * count] */
    unsigned char *out;  /* [count]: left out in this branch; */
    unsigned char *best; /* and in the best one so far */
    int best_out;        /* how many; count + 1: there is none yet */
    bool best_whole;
    int nodes;
} search;

static int degree_of(const search *all, int v)
{
    int degree = 0;

    for (int other = 0; other < all->count && !all->out[v]; other++)
        degree += !all->out[other] && all->cut[v * all->count + other];
    return degree;
}

/* The one with most cut links, of several the last; -1: all that are left reach each other. */
static int worst_find(const search *all)
{
    int worst = -1, most = 1;

    for (int v = 0; v < all->count; v++) {
        int degree = degree_of(all, v);

        if (degree >= most) {
            most = degree;
            worst = v;
        }
    }
    return worst;
}

static bool search_is_whole(const search *all)
{
    tri_vector list = {.each = sizeof(tri_member)};
    bool whole = true;

    for (int v = 0; v < all->count; v++)
        all->at[v]->left_out = all->out[v];
    for (size_t i = 0; i < all->members->old.count && whole; i++) {
        const candidate *one = tri_vector_at(&all->members->old, i);
        whole = !is_in(one) || tri_vector_push(&list, &one->member);
    }
    whole = whole && tri_members_is_whole(all->members, &list);
    tri_vector_fini(&list);
    return whole;
}

static void leaf_judge(search *all, int out)
{
    bool whole = search_is_whole(all);

    if (whole < all->best_whole || (whole == all->best_whole && out >= all->best_out))
        return;
    memcpy(all->best, all->out, (size_t)all->count);
    all->best_out = out;
    all->best_whole = whole;
}

/* Either the one with most cut links is left out, or all that it does not reach are. */
static void search_run(search *all, int out)
{
    int worst = worst_find(all), more = 0;

    if (all->nodes++ >= NODES || (all->best_whole && out >= all->best_out))
        return;
    if (worst < 0) {
        leaf_judge(all, out);
        return;
    }
    all->out[worst] = 1;
    search_run(all, out + 1);
    all->out[worst] = 0;
    int *others = tri_alloc((size_t)all->count * sizeof(*others));
    for (int v = 0; others && v < all->count; v++)
        if (!all->out[v] && all->cut[worst * all->count + v])
            others[more++] = v;
    for (int i = 0; i < more; i++)
        all->out[others[i]] = 1;
    if (others)
        search_run(all, out + more);
    for (int i = 0; i < more; i++)
        all->out[others[i]] = 0;
    tri_free(others);
}

/* Members that are in some pair whose link is cut. */
static tri_status pairs_find(tri_members *members, search *all)
{
    size_t count = members->old.count;

    all->at = tri_alloc_zero(count + 1, sizeof(*all->at));
    if (!all->at)
        return TRI_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        candidate *one = tri_vector_at(&members->old, i);
        bool paired = false;

        for (size_t k = 0; k < count && is_in(one) && !paired; k++) {
            const candidate *other = tri_vector_at(&members->old, k);
            paired = k != i && is_in(other) && is_cut(members, one, other);
        }
        if (paired)
            all->at[all->count++] = one;
    }
    return TRI_OK;
}

static tri_status members_pick(tri_members *members)
{
    search all = {.members = members};
    tri_status status = pairs_find(members, &all);
    size_t count = (size_t)all.count;

    if (status == TRI_OK && count > 0) {
        all.cut = tri_alloc_zero(count * count, 1);
        all.out = tri_alloc_zero(count, 1);
        all.best = tri_alloc_zero(count, 1);
        all.best_out = all.count + 1;
        status = all.cut && all.out && all.best ? TRI_OK : TRI_ENOMEM;
    }
    for (size_t v = 0; status == TRI_OK && v < count; v++)
        for (size_t w = 0; w < count; w++)
            all.cut[v * count + w] = v != w && is_cut(members, all.at[v], all.at[w]);
    if (status == TRI_OK && count > 0) {
        search_run(&all, 0);
        for (size_t v = 0; v < count; v++)
            all.at[v]->left_out = all.best[v];
    }
    tri_free(all.at);
    tri_free(all.cut);
    tri_free(all.out);
    tri_free(all.best);
    return status;
}

bool tri_members_any_cut(const tri_members *members)
{
    const tri_vector *all[] = {&members->old, &members->news};

    for (size_t v = 0; v < TRI_COUNT_OF(all); v++)
        for (size_t i = 0; i < all[v]->count; i++) {
            const candidate *one = tri_vector_at(all[v], i);
            bool asks = one->here && !one->gone && (one->cuts || (v == 0 && (int)i == members->rank));

            for (size_t k = 0; asks && k < members->old.count; k++) {
                const candidate *other = tri_vector_at(&members->old, k);
                if (other != one && other->here && !other->gone && is_cut(members, one, other))
                    return true;
            }
        }
    return false;
}

tri_status tri_members_connected_find(tri_members *members)
{
    const tri_vector *all[] = {&members->old, &members->news};

    for (size_t v = 0; v < TRI_COUNT_OF(all); v++)
        for (size_t i = 0; i < all[v]->count; i++)
            ((candidate *)tri_vector_at(all[v], i))->left_out = false;
    if (!tri_members_any_cut(members))
        return TRI_OK;
    TRI_TRY(members_pick(members));
    for (size_t i = 0; i < members->news.count; i++) {
        candidate *one = tri_vector_at(&members->news, i);

        for (size_t v = 0; v < TRI_COUNT_OF(all) && is_in(one); v++)
            for (size_t k = 0; k < (v == 0 ? all[v]->count : i) && is_in(one); k++) {
                const candidate *other = tri_vector_at(all[v], k);
                one->left_out = is_in(other) && is_cut(members, one, other);
            }
    }
    return TRI_OK;
}

void tri_members_left_out_report(tri_members *members, int64_t number)
{
    const char *where;

    if (members->reported_number == number)
        return;
    members->reported_number = number;
    for (size_t i = 0; i < members->old.count; i++) {
        const candidate *one = tri_vector_at(&members->old, i), *by = NULL;

        for (size_t k = 0; k < members->old.count && one->left_out && !by; k++) {
            const candidate *other = tri_vector_at(&members->old, k);
            by = other != one && is_in(other) && is_cut(members, one, other) ? other : NULL;
        }
        if (!by)
            continue;
        where = "";
        if (!says_cut(by, one->member.id, &where))
            (void)says_cut(one, by->member.id, &where);
        tri_log(
            TRI_LOG_WARN,
            "worker %s (host %s) is left out of generation %" PRId64 ": no link between it and worker %s (host %s): "
            "%.*s; the others continue, and it joins again once it reaches them",
            one->member.id, one->member.host, number, by->member.id, by->member.host, (int)strcspn(where, "\n"), where);
    }
}

/* Those of the present generation that this process does not reach, and their ranks. */
static tri_status cut_find(tri_members *members, tri_member *list, tri_member_reach *reach, int *ranks, int *count)
{
    char key[KEY], where[TRI_MEMBER_WHERE_NBYTES];
    size_t nbytes;

    for (int r = 0; r < members->now.count; r++) {
        if (tri_members_way(members, r, where) != TRI_MEMBER_CUT)
            continue;
        list[*count] = members->now.members[r];
        ranks[*count] = r;
        snprintf(key, sizeof key, "door/%s", members->now.members[r].id);
        tri_status status = tri_store_wait(members->setup.store, key, &reach[*count].door, &nbytes, tri_now_ns());
        ++*count;
        if (status != TRI_OK && status != TRI_ETIMEOUT)
            return status;
    }
    return TRI_OK;
}

tri_status tri_members_heal_look(tri_members *members)
{
    size_t room = (size_t)members->now.count + 1;
    int count = 0;

    if (members->cuts.nbytes == 0 || !members->setup.reach || tri_now_ns() < members->heal_look_ns)
        return TRI_OK;
    if (!members->healed && !(members->healed = tri_alloc_zero(room, 1)))
        return TRI_ENOMEM;
    tri_member *list = tri_alloc_zero(room, sizeof(*list));
    tri_member_reach *reach = tri_alloc_zero(room, sizeof(*reach));
    int *ranks = tri_alloc_zero(room, sizeof(*ranks));
    tri_status status = list && reach && ranks ? cut_find(members, list, reach, ranks, &count) : TRI_ENOMEM;
    if (status == TRI_OK && count > 0)
        status = members->setup.reach(members->setup.arg, list, reach, count);
    for (int i = 0; i < count; i++) {
        if (status == TRI_OK)
            members->healed[ranks[i]] = !reach[i].cut;
        tri_free(reach[i].door);
    }
    tri_free(list);
    tri_free(reach);
    tri_free(ranks);
    members->heal_look_ns = tri_now_ns() + HEAL_NS;
    return status;
}

/* --- joining --- */

static tri_status door_tell(tri_members *members, int64_t deadline_ns)
{
    char key[KEY];

    if (!members->setup.door || members->has_door)
        return TRI_OK;
    snprintf(key, sizeof key, "door/%s", members->id);
    TRI_TRY(tri_store_set(members->setup.store, key, members->setup.door, strlen(members->setup.door), deadline_ns));
    members->has_door = true;
    return TRI_OK;
}

/* A member that has ended needs not to be reached. */
static tri_status doors_find(tri_members *members, tri_member *list, tri_member_reach *reach, int *count)
{
    char key[KEY], *text;
    size_t nbytes;

    *count = 0;
    for (int r = 0; r < members->now.count; r++) {
        snprintf(key, sizeof key, "gone/%s", members->now.members[r].id);
        tri_status status = tri_store_wait(members->setup.store, key, &text, &nbytes, tri_now_ns());
        if (status == TRI_OK)
            tri_free(text);
        if (status == TRI_OK)
            continue;
        list[*count] = members->now.members[r];
        snprintf(key, sizeof key, "door/%s", members->now.members[r].id);
        status = tri_store_wait(members->setup.store, key, &reach[*count].door, &nbytes, tri_now_ns());
        ++*count;
        if (status != TRI_OK && status != TRI_ETIMEOUT)
            return status;
    }
    return TRI_OK;
}

static void waits_tell(tri_members *members, const tri_member *one, const tri_member_reach *reach)
{
    const char *ports = members->setup.ports;

    if (members->waits_reported)
        return;
    members->waits_reported = true;
    tri_log(
        TRI_LOG_WARN,
        "cannot reach worker %s (host %s) at %s: waits until it can, and the others continue; %s%s%s between the hosts",
        one->id, one->host, reach->where[0] ? reach->where : "any address",
        ports && ports[0] ? "a firewall has to let TCP ports " : "a firewall has to let all TCP ports",
        ports && ports[0] ? ports : "", ports && ports[0] ? " through" : " (or those of comm.ports) through");
}

/* Are all of them reached? */
static tri_status members_try(tri_members *members, bool *all)
{
    size_t room = (size_t)members->now.count + 1;
    tri_member *list = tri_alloc_zero(room, sizeof(*list));
    tri_member_reach *reach = tri_alloc_zero(room, sizeof(*reach));
    int count = 0;
    tri_status status = list && reach ? doors_find(members, list, reach, &count) : TRI_ENOMEM;

    if (status == TRI_OK && count > 0)
        status = members->setup.reach(members->setup.arg, list, reach, count);
    *all = status == TRI_OK;
    for (int i = 0; status == TRI_OK && i < count; i++) {
        if (reach[i].cut && *all)
            waits_tell(members, &list[i], &reach[i]);
        *all = *all && !reach[i].cut;
    }
    for (int i = 0; i < count; i++)
        tri_free(reach[i].door);
    tri_free(list);
    tri_free(reach);
    return status;
}

/* How long one reaches all before it joins: one whose links come and go must not hold up the others each time. */
static int64_t hold_ns(const tri_members *members)
{
    return members->out_ns == 0 ? 0 : HOLD_NS << (members->outs < HOLD_DOUBLE ? members->outs : HOLD_DOUBLE);
}

tri_status tri_members_reach_look(tri_members *members, bool *ready)
{
    int64_t now_ns = tri_now_ns();

    *ready = true;
    TRI_TRY(door_tell(members, now_ns + TRI_NS_PER_S));
    if (members->rank >= 0 || !members->setup.reach || members->now.number == 0)
        return TRI_OK;
    if (now_ns - members->out_ns > OUT_NS)
        members->outs = 0;
    TRI_TRY(members_try(members, ready));
    if (!*ready) {
        members->reached_ns = 0;
        tri_sleep_ns(LOOK_NS);
        return TRI_OK;
    }
    members->reached_ns = members->reached_ns > 0 ? members->reached_ns : now_ns;
    *ready = now_ns - members->reached_ns >= hold_ns(members);
    if (!*ready)
        tri_sleep_ns(LOOK_NS);
    else if (members->waits_reported)
        tri_log(TRI_LOG_INFO, "reaches all workers, and asks to join");
    members->waits_reported = members->waits_reported && !*ready;
    return TRI_OK;
}
