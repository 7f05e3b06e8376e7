/* SPDX-License-Identifier: Apache-2.0
 *
 * pace.h: how long a step of a run takes, from its lines of metrics.jsonl.
 */
#ifndef TRI_TUNE_PACE_H
#define TRI_TUNE_PACE_H

#include "base/containers.h"
#include "monitor/metrics_read.h"

typedef struct tri_pace {
    tri_vector seconds; /* of each step, in their order */
} tri_pace;

/* A line of a step: the sum of its phases. */
tri_status tri_pace_add(tri_pace *pace, const tri_metrics_line *line);
/* Seconds: the median of the later half of the steps, since the first ones fill caches and plan. NaN: there was none.
 */
double tri_pace_median(const tri_pace *pace);
void tri_pace_fini(tri_pace *pace);

#endif
