/* SPDX-License-Identifier: Apache-2.0
 *
 * trials.h: the trials of a sweep: in memory, and in a database (SQLite) that has every change of them at once.
 *
 * A sweep that was killed is opened again and continues. One tuner has a sweep at a time; others may read.
 */
#ifndef TRI_TUNE_TRIALS_H
#define TRI_TUNE_TRIALS_H

#include "tune/sweep.h"

/* waiting: it has all that it was started for, and may be continued. */
#define TRI_TRIAL_STATES(X)                                                                                            \
    X(WAITING, "waiting") X(RUNNING, "running") X(DONE, "done") X(STOPPED, "stopped") X(FAILED, "failed")
typedef enum tri_trial_state {
#define TRI_TRIAL_ENUM(name, text) TRI_TRIAL_##name,
    TRI_TRIAL_STATES(TRI_TRIAL_ENUM)
#undef TRI_TRIAL_ENUM
} tri_trial_state;
const char *tri_trial_state_text(tri_trial_state state);

typedef struct tri_trial_point {
    int64_t step; /* after this many steps */
    double value; /* of the metric */
} tri_trial_point;

typedef struct tri_trial_param {
    char *name, *text;
} tri_trial_param;

typedef struct tri_trial {
    int number;
    tri_trial_state state;
    int64_t target;    /* steps it was started for; 0: all of the configuration */
    double *units;     /* [rows of the space] NaN: not there */
    tri_vector params; /* tri_trial_param */
    tri_vector points; /* tri_trial_point, by rising step */
    double seconds;    /* of its processes so far */
    char error[400];
} tri_trial;

/* The newest point, and NULL: none. */
const tri_trial_point *tri_trial_last(const tri_trial *trial);
/* The value after exactly `step` steps; NaN: none. */
double tri_trial_at(const tri_trial *trial, int64_t step);

typedef struct tri_trials {
    struct sqlite3 *db, *lock;
    tri_vector list; /* tri_trial*, by number */
    int space_count;
} tri_trials;

/* The database of a folder; a new one where there is none, unless `reads`, which changes nothing and may be beside a
 * tuner. TRI_ECONFIG where its sweep is another one. */
tri_status tri_trials_open(const char *folder, const tri_sweep *sweep, bool reads, tri_trials *trials);
void tri_trials_close(tri_trials *trials);
int tri_trials_count(const tri_trials *trials);
tri_trial *tri_trials_at(const tri_trials *trials, int index);
/* By its number, which an outer search may choose; NULL: none. */
tri_trial *tri_trials_find(const tri_trials *trials, int number);
/* A new one, with units (NaN: not there) and no params. */
tri_status tri_trials_add(tri_trials *trials, int number, tri_trial **out);
tri_status tri_trial_param_add(tri_trial *trial, const char *name, const char *text);
/* All but points, into the database. */
tri_status tri_trials_save(tri_trials *trials, const tri_trial *trial);
/* Kept if it is a later step than all before; so a trial that is done again from an earlier step says nothing twice. */
tri_status tri_trials_point_add(tri_trials *trials, tri_trial *trial, int64_t step, double value);
/* The best of those that came furthest; NULL: none has a point. */
tri_trial *tri_trials_best(const tri_trials *trials, const tri_sweep *sweep);

#endif
