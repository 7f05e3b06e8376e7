/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h: which trials get more steps. Pure functions of the trials' points.
 *
 * asha: Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020: a trial waits at a rung, and
 * the best of each `eta` continue from there to the next. A run that continues from its checkpoint has the bits of one
 * that was never interrupted, so waiting costs a start and nothing else. median: Golovin et al., "Google Vizier", KDD
 * 2017, section 3.2.2.
 */
#ifndef TRI_TUNE_SCHEDULE_H
#define TRI_TUNE_SCHEDULE_H

#include "tune/trials.h"

/* The steps that a trial gets to begin with; 0: all that the configuration says. */
int64_t tri_schedule_first(const tri_sweep *sweep);
/* A waiting trial that is to continue, NULL: none. `last`: there will be no more new ones and none runs; then from each
 * rung, the lowest first, at least one continues. */
tri_trial *tri_schedule_promote(const tri_sweep *sweep, const tri_trials *trials, bool last, int64_t *target);
/* Whether a running one is to be stopped, by its newest point. asha: it is not among the best of those that came to the
 * rung it has reached (for trials that others run). */
bool tri_schedule_stops(const tri_sweep *sweep, const tri_trials *trials, const tri_trial *trial);

#endif
