/* SPDX-License-Identifier: Apache-2.0
 *
 * members.h: who takes part in a job whose processes come and go: a log of generations in the job's store.
 *
 * A generation is a list of processes, in order of rank, that is written once and never changed. Whoever loses a peer
 * registers for the next one; one of those that registered claims its key with the list of all of them, and the first
 * claim is (docs/design/recovery.md). Goes through base/runtime and the store's table alone, so that a
 * simulation runs it too.
 */
#ifndef TRI_CLUSTER_MEMBERS_H
#define TRI_CLUSTER_MEMBERS_H

#include <stdatomic.h>

#include "cluster/store.h"

#define TRI_MEMBER_NBYTES      40
#define TRI_MEMBER_NOTE_NBYTES 140

typedef struct tri_member {
    char id[TRI_MEMBER_NBYTES];   /* of the process: "2.1" is the second one started as number 2; no two have one */
    char host[TRI_MEMBER_NBYTES]; /* equal: they share a machine */
    int64_t progress;             /* how far its state is, larger is farther; -1: it has none */
    char note[TRI_MEMBER_NOTE_NBYTES]; /* a word of whoever uses this; "-": none */
} tri_member;

typedef struct tri_generation {
    int64_t number;      /* 0: before the first */
    int count;           /* of that one: the initial members */
    int absent_count;    /* left out, and not known to have ended: they may come back, and have a state */
    tri_member *members; /* [count + absent_count]: by rank, then absent members */
} tri_generation;

/* What a member of the generation that ends knows of a rank of it. */
typedef enum tri_member_way {
    TRI_MEMBER_HEARD,
    TRI_MEMBER_GONE, /* it has ended, or stands still */
    TRI_MEMBER_CUT,  /* it is not heard, and may live */
    TRI_MEMBER_LEFT  /* it has closed its links */
} tri_member_way;
/* where: text of fewer than TRI_MEMBER_WHERE_NBYTES bytes, for TRI_MEMBER_CUT: the address that is not reached. */
typedef tri_member_way (*tri_members_lost)(void *arg, int rank, char *where);
#define TRI_MEMBER_WHERE_NBYTES 160

/* Whether one that wants to join reaches a member. */
typedef struct tri_member_reach {
    char *door; /* where that listens; NULL: not known */
    bool cut;
    char where[TRI_MEMBER_WHERE_NBYTES];
} tri_member_reach;

typedef struct tri_members_setup {
    tri_store *store;    /* borrowed */
    tri_store *listener; /* borrowed, used by a thread of its own that hears calls; NULL: none are heard */
    const char *id, *host;
    const char *spec;    /* lines "key=value" of what all members must have in common; NULL: nothing is compared */
    int initial_members; /* processes "0.0", "1.0", ... that make the first generation */
    int least, most;     /* members */
    int64_t wait_ns;  /* how long fewer than `least`, or such as have no state, wait for others; then they continue */
    const char *beat; /* key that changes while there is a launcher; NULL: while there is a store there is one */
    int64_t alone_ns; /* how long it may be gone, with a listener; 0: for ever */
    void (*alone)(void *arg); /* it was: called once, by the listener's thread */
    /* Have these a whole state together? NULL: one with progress has. */
    bool (*whole)(void *arg, const tri_member *members, int count);
    /* How many of `count` can work together, at least 1; the others wait as newcomers. NULL: all. */
    int (*fit)(void *arg, int count);
    /* Finds which of these it does not reach now; within a second or two. NULL: it reaches all. */
    tri_status (*reach)(void *arg, const tri_member *members, tri_member_reach *reach, int count);
    const char *door;  /* where this process listens, for others to try; NULL: nowhere */
    const char *ports; /* what a firewall has to let through, for people */
    void *arg;         /* of all of these calls */
} tri_members_setup;

typedef struct tri_members tri_members;
tri_status tri_members_open(const tri_members_setup *setup, tri_members **out);
void tri_members_close(tri_members *members);

/* Of a process that is in no list: the newest is the present one, as far as it is known now. */
tri_status tri_members_look(tri_members *members, int64_t deadline_ns);
/* Registers for the next generation and waits until this process is in one. progress: of its own state. lost (NULL:
 * nothing is known) is asked about ranks of the present generation, if this process is in it. TRI_ETIMEOUT at
 * the deadline; TRI_ECANCELED: a newcomer is not needed any more, or was asked to stop. A process that was left out of
 * a generation comes back as a newcomer. TRI_EMISMATCH: it does not fit (spec), or was refused; nobody waits for it. */
tri_status tri_members_next(tri_members *members, int64_t progress, tri_members_lost lost, void *arg,
                            int64_t deadline_ns);
/* The present generation did not form, so it has no links that could tell who is there: whoever of it has not
 * registered for the next one by then is given up. Until that one is closed. */
void tri_members_suspect_from(tri_members *members, int64_t from_ns);
/* What it says of itself in the next registrations: one word of fewer than TRI_MEMBER_NOTE_NBYTES bytes. */
void tri_members_note(tri_members *members, const char *note);
/* The present one, until the next call; its members are in the order of ranks of the one before, newcomers last. */
const tri_generation *tri_members_now(const tri_members *members);
/* Of this process in it; -1: it is in none. */
int tri_members_rank(const tri_members *members);
/* Somebody asks for the next generation: one relaxed load; known to rank 0 alone, and a moment later. */
bool tri_members_rescale_requested(const tri_members *members);
/* Newcomers that are ready, and would be in the next generation if there were room. */
tri_status tri_members_spares(tri_members *members, int *count);
/* Set while a member of the present generation is known to have ended: making links to it cannot succeed. Valid until
 * close. */
const atomic_bool *tri_members_broken(const tri_members *members);
/* Has the present generation formed? Of all that say whether it has, the first is right, and all are given its word;
 * no, where that is forgotten. */
tri_status tri_members_formed(tri_members *members, bool word, bool *stands, int64_t deadline_ns);
/* The present generation has formed, says its rank 0: what was there for its making alone goes, and all of earlier ones
 * and of who has ended since, which nobody needs any more: a process that asks for it finds that it was left out.
 * forget (NULL: nothing) is called for each earlier one that never formed, with its number and members. */
typedef tri_status (*tri_members_forget)(void *arg, int64_t generation, int count);
tri_status tri_members_sweep(tri_members *members, tri_members_forget forget, void *arg, int64_t deadline_ns);
/* The work is done: newcomers need not wait. */
tri_status tri_members_end(tri_members *members, int64_t deadline_ns);
/* The run cannot continue, whoever takes part: launchers start nobody again. Where that is a wrong configuration
 * (TRI_ECONFIG, TRI_EUNSUPPORTED), members that wait for others end with the same status and words. */
tri_status tri_members_fail(tri_store *store, tri_status status, const char *why, int64_t deadline_ns);
/* Whether a process is in the present generation, as far as gen/now tells; false before the first one. */
tri_status tri_members_is_listed(tri_store *store, const char *id, bool *listed, int64_t deadline_ns);
/* This process takes no further part: nobody waits for it. */
tri_status tri_members_leave(tri_members *members, int64_t deadline_ns);
/* The same, said by who saw it end. */
tri_status tri_members_mark_dead(tri_store *store, const char *id, int64_t deadline_ns);
/* This process cannot be a member, and says why: nobody waits for it, nor is it started again. Returns
 * TRI_EMISMATCH. */
tri_status tri_members_withdraw(tri_members *members, const char *why, int64_t deadline_ns);
/* The process takes no further part, even against its will, and gets the reason. */
tri_status tri_members_refuse(tri_store *store, const char *id, const char *why, int64_t deadline_ns);

#endif
