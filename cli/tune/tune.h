/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.h: what the files of `trireme tune` share.
 */
#ifndef TRI_CLI_TUNE_H
#define TRI_CLI_TUNE_H

#include "base/json.h"
#include "tune/tuner.h"

/* A sweep that is worked on. */
typedef struct tri_tune_work {
    tri_sweep sweep;
    tri_trials trials;
    tri_tuner tuner;
    char folder[1200];
} tri_tune_work;

/* ask.c: trials as a program on the other end of stdin and stdout says, one JSON object a line. */
tri_status tri_tune_ask(tri_tune_work *work);
/* report.c: what a sweep has found so far: as a table, or as JSON; and as a page of its own in the folder. */
tri_status tri_tune_report(tri_tune_work *work, bool json);
/* The same as fields of an object. */
tri_status tri_tune_json(const tri_tune_work *work, tri_json *json);
/* The sweep of a folder, to be looked at; ends with the three calls of trials, sweep and tuner. */
tri_status tri_tune_open(const char *folder, tri_tune_work *work);
/* page.c */
tri_status tri_tune_page(const tri_tune_work *work, const double *parts, int64_t step, tri_string *out);
/* The best trial's options, over the configuration, as YAML. */
tri_status tri_tune_best_config(const tri_tune_work *work, const tri_trial *best, tri_string *out);

#endif
