/* SPDX-License-Identifier: Apache-2.0
 *
 * members_impl.h: what members.c and its ear share.
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
    bool buried; /* it has ended */
    bool gone;   /* or nothing is heard of it */
} candidate;

struct tri_members {
    tri_members_setup setup;
    char id[TRI_MEMBER_NBYTES], host[TRI_MEMBER_NBYTES], note[TRI_MEMBER_NOTE_NBYTES];
    char spec[TRI_SPEC_DIGEST_NBYTES]; /* digest of setup.spec; "": nothing is compared */
    bool spec_agreed;
    tri_generation now;
    int rank;
    tri_vector old, news; /* candidates: members of now, and newcomers, for the next generation */
    tri_vector strays;    /* candidates: left out of `now`, not known to have ended */
    int64_t registered;   /* of which number this process is registered for */
    int64_t ticket;       /* among its newcomers, from 1; 0: as a member */
    int64_t called_ns;    /* not before this again */
    bool waits;           /* there is no room for it, and it has said so */
    int64_t silent_ns;    /* from then on members that have not registered are gone; 0: never */
    tri_members_lost lost;
    void *lost_arg;

    tri_thread *thread; /* the ear */
    int64_t first_news; /* that it hears */
    atomic_bool closing;
    _Atomic int64_t heard; /* the newest generation that was called for */
    atomic_bool broken;    /* a member of `now` has ended */
    tri_mutex mutex;       /* guards dead, and changes of `now` against the ear */
    tri_vector dead;       /* ids, as they were told */
};

/* members_forget.c. Returns text. */
const char *tri_members_key(char text[KEY], int64_t generation, const char *what, const char *id);
/* A number as it stands; 0: there is none. */
tri_status tri_members_number(tri_store *store, const char *key, int64_t *number);
/* A word for all ears. */
tri_status tri_members_tell(tri_store *store, const char *text, int64_t deadline_ns);

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

/* members_ear.c. Is a process in that generation? */
bool tri_members_has(const tri_generation *generation, const char *id);
/* The ear's thread, until members->closing. */
void tri_members_ear(void *members);

#endif
