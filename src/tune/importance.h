/* SPDX-License-Identifier: Apache-2.0
 *
 * importance.h: how much of what trials differ in their metric goes with each option.
 */
#ifndef TRI_TUNE_IMPORTANCE_H
#define TRI_TUNE_IMPORTANCE_H

#include "tune/trials.h"

/* For each row of the space the part of the variance of the metric's ranks that the mean over bins of the row explains,
 * 0 to 1; NaN: too few trials tell. All are compared after as many steps as every second trial at least has: *step.
 * The correlation ratio (Pearson 1905), which estimates a first-order Sobol' index; less what bins of noise would
 * explain (Kelley's epsilon squared, "An unbiased correlation ratio measure", PNAS 1935). Of ranks, so that a diverged
 * trial weighs no more than a bad one. Not fANOVA: what options do only together is in no bar. */
tri_status tri_importance(const tri_sweep *sweep, const tri_trials *trials, double *parts, int64_t *step);

#endif
