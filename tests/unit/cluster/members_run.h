/* SPDX-License-Identifier: Apache-2.0
 *
 * members_run.h: generations of members in a simulation: processes that are killed and stopped at any request to the
 * store, and newcomers, while a made-up training goes on.
 *
 * The training is the promise in small: step s is done by all members of a generation or by none that goes on; what a
 * process holds after it is a function of what it held before. At the end all hold what one process would.
 */
#ifndef TRI_TESTS_MEMBERS_RUN_H
#define TRI_TESTS_MEMBERS_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cluster/members_impl.h"
#include "cluster/members_text.h"

#define PROCESSES   256  /* of a run, at most */
#define GENERATIONS 2048 /* likewise */
#define STEPS       60
#define STEP_NS     (2 * TRI_NS_PER_MS)
#define SEEN_NS     (3 * TRI_NS_PER_MS)   /* until a death is seen */
#define STOP_NS     (300 * TRI_NS_PER_MS) /* until a stopped one is given up */

typedef struct process {
    struct run *run;
    tri_store store; /* ours, with hazards, over the run's */
    char id[TRI_MEMBER_NBYTES];
    int number;
    int64_t dies_ns, stops_ns, stop_ns; /* 0: not */
    int looks;                          /* after so many more it dies; 0: not */
    bool dead, ended, marked_dead;
    int64_t dead_ns, stopped_ns; /* since when; 0: it runs */
    bool has_state;
    int64_t step;
    uint64_t state;
    int64_t generation; /* that it works in; others see when it has left one */
    tri_members *members;
    tri_thread *thread;
    bool finished; /* all steps */
} process;

/* What all ranks of a generation did together. */
typedef struct meeting {
    char *list; /* as the first that adopted it saw it */
    int formed; /* arrivals */
    int arrived[STEPS];
    uint64_t source_state;
    bool source_known;
} meeting;

typedef struct run {
    tri_store *store;
    int initial_members, least, most, restarts, kills, stops;
    int64_t step_ns; /* 0: STEP_NS */
    int64_t life_ns; /* nobody lives longer; 0: half of them live on */
    uint64_t seed, drawn;
    process processes[PROCESSES];
    int count;
    meeting meetings[GENERATIONS];
    int64_t newest;             /* generation that somebody worked in */
    uint64_t states[STEPS + 1]; /* after so many steps, as one process would have them */
    int begun_again;
    int failures; /* of a check; fibers cannot leave by cmocka's way */
    const char *failed;
} run;

/* A check that failed. */
void broke(run *all, const char *what);
/* A process's way to the store. */
extern const tri_store_ops guarded_ops;
/* From begin to end; what is in it is checked. */
run *seed_run(uint64_t seed, run settings);
void run_free(run *all);
/* Processes that made all steps. */
int finishers(const run *all);
bool is_kept(run *all, const char *key);
/* How many of the keys <before>1<after> to <before><count><after> are there. */
int numbered_kept(run *all, const char *before, int count, const char *after);
/* Ends that are told, and generations, with what they were made with. */
int all_kept(run *all, int generations);

#endif
