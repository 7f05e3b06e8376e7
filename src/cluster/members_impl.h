/* SPDX-License-Identifier: Apache-2.0
 *
 * members_impl.h: what members.c and its listener share.
 */
#ifndef TRI_CLUSTER_MEMBERS_IMPL_H
#define TRI_CLUSTER_MEMBERS_IMPL_H

#include "cluster/members.h"

#define KEY                    (TRI_MEMBER_NBYTES + 64)
#define TRI_SPEC_DIGEST_NBYTES 33 /* of its text */

/* What is known of one who may be in the next generation. */
typedef struct candidate {
    tri_member member;
    char spec[TRI_SPEC_DIGEST_NBYTES]; /* digest of what it registered with */
    bool here;
    bool dead;          /* it has ended */
    bool gone;          /* or nothing is heard of it */
    tri_member_way way; /* as its links say; cut, or left: it may register all the same */
    char *cuts;         /* lines "id where" of those that it does not reach; NULL: it reaches all */
    bool left_out;      /* of the next generation, as it does not reach others of it */
} candidate;

struct tri_members {
    tri_members_setup setup;
    char id[TRI_MEMBER_NBYTES], host[TRI_MEMBER_NBYTES], note[TRI_MEMBER_NOTE_NBYTES];
    char spec[TRI_SPEC_DIGEST_NBYTES]; /* digest of setup.spec; "": nothing is compared */
    bool spec_agreed;
    tri_generation now;
    int rank;
    tri_vector old, news;    /* candidates: members of now, and newcomers, for the next generation */
    tri_vector absent;       /* candidates: left out of `now`, not known to have ended */
    int64_t registered;      /* of which number this process is registered for */
    int64_t ticket;          /* among its newcomers, from 1; 0: as a member */
    int64_t request_ns;      /* not before this again */
    bool waits;              /* there is no room for it, and it has said so */
    int64_t suspect_from_ns; /* from then on members that have not registered are gone; 0: never */
    int64_t suspect_ns;      /* since when some are waited for that are cut off or have left; 0: none */
    int64_t settle_ns;       /* since when it is known that some do not reach each other; 0: all do */
    tri_string cuts;         /* what it has registered with of that */
    bool *healed;            /* [now.count]: it is reached again, whatever the links of `now` say; NULL: none is */
    int64_t heal_look_ns;    /* when those that are not reached are tried next */
    int64_t reported_number; /* generation for which it has reported who is left out */
    int outs;                /* times that links to it failed though it was reached, lately */
    int64_t out_ns;          /* when it was left out last; 0: never */
    int64_t reached_ns;      /* since when it reaches all members; 0: it does not */
    bool waits_reported;     /* that it does not */
    bool has_door;           /* it is in the store */
    tri_members_lost lost;
    void *lost_arg;

    tri_thread *thread; /* the listener */
    int64_t first_news; /* that it hears */
    atomic_bool closing;
    _Atomic int64_t heard; /* the newest generation that was called for */
    atomic_bool broken;    /* a member of `now` has ended */
    tri_mutex mutex;       /* guards dead, and changes of `now` against the listener */
    tri_vector dead;       /* ids, as they were published */
};

/* members_forget.c. Returns text. */
const char *tri_members_key(char text[KEY], int64_t generation, const char *what, const char *id);
/* A number as it is; 0: there is none. */
tri_status tri_members_number(tri_store *store, const char *key, int64_t *number);
/* TRI_ECONFIG, TRI_EUNSUPPORTED: a member has reported that no member can continue (tri_members_fail). */
tri_status tri_members_failure_check(tri_store *store);
/* A word for all listeners. */
tri_status tri_members_publish(tri_store *store, const char *text, int64_t deadline_ns);

/* members_spec.c. */
tri_status tri_members_spec_digest(const char *spec, char hex[TRI_SPEC_DIGEST_NBYTES]);
/* Appends "key: want VALUE, got VALUE; ..." for each line that differs; nothing where the two are equal. */
tri_status tri_members_spec_compare(const char *want, const char *got, tri_string *out);
/* Once: publishes this process's description, or compares it with the published one. TRI_EMISMATCH: they differ. */
tri_status tri_members_spec_agree(tri_members *members, int64_t deadline_ns);
/* TRI_EMISMATCH: this process was refused. */
tri_status tri_members_refusal_check(const tri_members *members);
/* Refuses a process that has registered with another description. */
tri_status tri_members_misfit_refuse(tri_members *members, candidate *one, int64_t deadline_ns);

/* members_register.c. For generation `number`, once. */
tri_status tri_members_register(tri_members *members, int64_t number, int64_t progress, int64_t deadline_ns);
/* A member that has found out since that it does not reach another one says so. */
tri_status tri_members_register_again(tri_members *members, int64_t number, int64_t progress, int64_t deadline_ns);
/* The generation is closed without this process: what it has registered is of no use. */
void tri_members_register_drop(tri_members *members, bool forgotten, int64_t deadline_ns);
/* False: it cannot be read. */
bool tri_members_register_parse(const char *text, candidate *one);
void tri_members_candidates_clear(tri_vector *candidates);

/* members_reach.c. Marks as left_out those of the next generation that do not reach others of it. */
tri_status tri_members_connected_find(tri_members *members);
/* Does any that has registered not reach another one, as far as is known? */
bool tri_members_any_cut(const tri_members *members);
/* A generation is closed: who is left out of it is named, once. */
void tri_members_left_out_report(tri_members *members, int64_t number);
/* Of a process that is in no list: may it register? After a look, and a short wait where not. */
tri_status tri_members_reach_look(tri_members *members, bool *ready);
/* Tries, once a second, the members that this one does not reach. */
tri_status tri_members_heal_look(tri_members *members);
/* What the links of the present generation say of a rank, unless it was reached since. */
tri_member_way tri_members_way(const tri_members *members, int rank, char where[TRI_MEMBER_WHERE_NBYTES]);
/* Appends the lines of a registration that say whom this process does not reach. */
tri_status tri_members_cuts_print(const tri_members *members, tri_string *text);
/* members.c. Have these a whole state together? */
bool tri_members_is_whole(const tri_members *members, const tri_vector *list);

/* members_listener.c. Is a process in that generation? */
bool tri_members_has(const tri_generation *generation, const char *id);
/* The listener's thread, until members->closing. */
void tri_members_listen(void *members);

#endif
