/* SPDX-License-Identifier: Apache-2.0
 *
 * members_listener.c: the thread of a member that hears news while the others work: who has ended, who asks for the
 * next generation, whether there is a launcher.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/members_impl.h"

#define LISTENER_NS (100 * TRI_NS_PER_MS) /* of one wait for news */
#define SLOW_NS     (800 * TRI_NS_PER_MS) /* longer than it: the store has not answered at all */
#define BEAT_NS     TRI_NS_PER_S          /* between two looks at a launcher's beat, and at which news are forgotten */
#define AWAY_NS                                                                                                        \
    (10 * TRI_NS_PER_S) /* no answer takes so long: this process stood still, and knows nothing of that time */
/* Ends that are remembered at least, and for each member: who ended before them is in no generation to come. */
#define DEAD        128
#define DEAD_MEMBER 2

bool tri_members_has(const tri_generation *generation, const char *id)
{
    for (int i = 0; i < generation->count; i++)
        if (strcmp(generation->members[i].id, id) == 0)
            return true;
    return false;
}

static void news_read(tri_members *members, const char *text)
{
    char id[TRI_MEMBER_NBYTES] = "";
    int64_t number;

    if (sscanf(text, "call %" SCNd64, &number) == 1 && number > atomic_load(&members->heard))
        atomic_store(&members->heard, number);
    if (sscanf(text, "gone %39s", id) != 1)
        return;
    tri_mutex_lock(&members->mutex);
    size_t kept = DEAD + DEAD_MEMBER * (size_t)members->now.count, count = members->dead.count;
    if (count >= 2 * kept) {
        memmove(members->dead.items, tri_vector_at(&members->dead, count - kept), kept * TRI_MEMBER_NBYTES);
        members->dead.count = kept;
    }
    (void)tri_vector_push(&members->dead, id); /* forgotten where memory is out: its links tell */
    if (tri_members_has(&members->now, id))
        atomic_store(&members->broken, true);
    tri_mutex_unlock(&members->mutex);
}

/* Who was away so long that the others have gone on has missed news of those that it takes for members. */
static void left_behind(tri_members *members)
{
    int64_t newest;

    if (tri_members_number(members->setup.listener, "gen/now", &newest) != TRI_OK)
        return;
    tri_mutex_lock(&members->mutex);
    if (newest > members->now.number)
        atomic_store(&members->broken, true);
    tri_mutex_unlock(&members->mutex);
}

/* Behind news that are forgotten, of which none will come. */
static int64_t news_seek(tri_members *members, int64_t next)
{
    int64_t oldest;

    if (tri_members_number(members->setup.listener, "news/oldest", &oldest) != TRI_OK || oldest <= next)
        return next;
    left_behind(members);
    return oldest;
}

/* What the listener knows of the launcher. */
typedef struct launcher_sign {
    int64_t seen_ns; /* when it was there last */
    int64_t look_ns; /* not before this again */
    int late; /* waits in a row that took longer than an answer takes: of one, this process may have stood still */
    char beat[32];
} launcher_sign;

/* A store of its own answers while it is there; another one keeps its beat. */
static void launcher_look(tri_members *members, launcher_sign *sign, bool answers)
{
    char *text;
    size_t nbytes;
    int64_t now_ns = tri_now_ns();

    if (!members->setup.beat && answers)
        sign->seen_ns = now_ns;
    if (!members->setup.beat || now_ns < sign->look_ns)
        return;
    sign->look_ns = now_ns + BEAT_NS;
    if (tri_store_wait(members->setup.listener, members->setup.beat, &text, &nbytes, now_ns) != TRI_OK)
        return;
    if (strncmp(text, sign->beat, sizeof sign->beat - 1) != 0)
        sign->seen_ns = now_ns;
    snprintf(sign->beat, sizeof sign->beat, "%s", text);
    tri_free(text);
}

/* Calls `alone` when the launcher has been gone for long. */
static void listener_check(tri_members *members, tri_status status, int64_t asked_ns, launcher_sign *sign)
{
    bool answers = status == TRI_OK || (status == TRI_ETIMEOUT && tri_now_ns() - asked_ns < LISTENER_NS + SLOW_NS);

    if (members->setup.alone_ns == 0)
        return;
    if (tri_now_ns() - asked_ns > AWAY_NS)
        sign->seen_ns += tri_now_ns() - asked_ns;
    launcher_look(members, sign, answers);
    sign->late = status == TRI_ETIMEOUT && !answers ? sign->late + 1 : 0;
    if (sign->late == 1 || tri_now_ns() - sign->seen_ns < members->setup.alone_ns)
        return;
    members->setup.alone(members->setup.arg);
    members->setup.alone_ns = 0;
}

void tri_members_listen(void *arg)
{
    tri_members *members = arg;
    char key[KEY], *text;
    size_t nbytes;
    int64_t next = members->first_news, seek_ns = tri_now_ns() + BEAT_NS;
    launcher_sign sign = {.seen_ns = tri_now_ns()};

    while (!atomic_load(&members->closing)) {
        snprintf(key, sizeof key, "news/%" PRId64, next);
        int64_t asked_ns = tri_now_ns();
        tri_status status = tri_store_wait(members->setup.listener, key, &text, &nbytes, asked_ns + LISTENER_NS);
        listener_check(members, status, asked_ns, &sign);
        if (status == TRI_OK) {
            news_read(members, text);
            tri_free(text);
            next++;
        } else if (status != TRI_ETIMEOUT) {
            tri_sleep_ns(LISTENER_NS);
        } else if (tri_now_ns() >= seek_ns) {
            next = news_seek(members, next);
            seek_ns = tri_now_ns() + BEAT_NS;
        }
    }
}
