/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h: what each rank says of itself once a second, and all of it as Prometheus reads it.
 *
 * A rank leaves its figures in RUN/live/rank-N, one `name{labels} value` a line; whoever serves /metrics reads those of
 * all ranks. So serving costs a rank nothing, and one that hangs is seen by the age of what it said.
 */
#ifndef TRI_MONITOR_FIGURES_H
#define TRI_MONITOR_FIGURES_H

#include "base/containers.h"
#include "base/strain.h"
#include "monitor/metrics.h"

#define TRI_FIGURES_TYPE "text/plain; version=0.0.4; charset=utf-8"

typedef struct tri_figures tri_figures;
/* Of one rank; folder: of the run. serves: it is a parameter server, and makes no steps. */
tri_status tri_figures_open(const char *folder, int rank, bool serves, tri_figures **out);
/* What a step did; leaves the figures if a second has passed. steps: of the whole run. */
void tri_figures_step(tri_figures *figures, const tri_step_record *record, int64_t steps);
/* Leaves the figures as they are now. */
void tri_figures_leave(tri_figures *figures);
/* What an evaluation found; NaN: not known. */
void tri_figures_test(tri_figures *figures, double loss, double accuracy);
/* What holds the rank up; cause: why the others wait for it, NULL: they do not. */
void tri_figures_strain(tri_figures *figures, const tri_strain *strain, const char *cause);
/* This rank's alone, as Prometheus reads them; from any thread. */
tri_status tri_figures_print(tri_figures *figures, tri_string *out);
/* The rank ends, and its figures with it. NULL does nothing. */
void tri_figures_close(tri_figures *figures);

/* Those of all ranks of a run. What is not a line of a rank is passed over. */
tri_status tri_figures_gather(const char *folder, tri_string *out);
/* What an earlier run in this folder left. */
tri_status tri_figures_clear(const char *folder);

#endif
