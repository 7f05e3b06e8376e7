/* SPDX-License-Identifier: Apache-2.0
 *
 * tuner.h: trials as processes: each is `trireme train` in a folder of its own, on cores of its own, watched by its
 * metrics.jsonl. Who is started, and how far, is said by the caller; nothing here blocks.
 */
#ifndef TRI_TUNE_TUNER_H
#define TRI_TUNE_TUNER_H

#include "cluster/child.h"
#include "monitor/metrics_read.h"
#include "tune/pace.h"
#include "tune/trials.h"

/* Something about a trial: a point (not NULL) was added, or it has ended (its state says how). */
typedef void (*tri_tuner_tell)(void *arg, const tri_trial *trial, const tri_trial_point *point);

typedef struct tri_tuner_slot {
    tri_trial *trial; /* NULL: free */
    tri_child child;
    tri_metrics_tail reader;
    bool stops;    /* it was asked to */
    bool steps;    /* it has made one */
    tri_pace pace; /* where that is the metric */
    int64_t start_ns;
    tri_status status; /* of what came from its file */
} tri_tuner_slot;

typedef struct tri_tuner {
    const tri_sweep *sweep;
    tri_trials *trials;
    const char *folder;
    tri_tuner_tell tell;
    void *arg;
    tri_tuner_slot *slots;
    int slot_count;
    int *cpus;
    int cpu_count;
    int card_count; /* that trials take turns with; 0: they are on the host */
    int failures;   /* one after the other, of trials that made no step */
} tri_tuner;

/* sweep, trials, folder, tell and arg are set, and borrowed. Checks the configuration with the middle of the space, and
 * finds how many trials there may be at once. Ends with tri_tuner_close() whatever is returned. */
tri_status tri_tuner_open(tri_tuner *tuner);
/* Asks those that run to stop (they save, and are running in the database: they run another time), and waits. */
void tri_tuner_close(tri_tuner *tuner);
bool tri_tuner_has_room(const tri_tuner *tuner);
bool tri_tuner_is_idle(const tri_tuner *tuner);
/* Runs a trial until `target` steps (0: all): from its newest checkpoint, where it has one. */
tri_status tri_tuner_start(tri_tuner *tuner, tri_trial *trial, int64_t target);
/* Asks a running trial to stop; it then is stopped. */
void tri_tuner_stop(tri_tuner *tuner, const tri_trial *trial);
/* Looks at all that run. */
tri_status tri_tuner_turn(tri_tuner *tuner);
/* RUN folder of a trial. */
void tri_tuner_run_folder(const char *folder, int number, char path[1300]);

#endif
