/* SPDX-License-Identifier: Apache-2.0
 *
 * health.h: does a run make steps? By the time of the last line of metrics.jsonl, which each step writes.
 */
#ifndef TRI_MONITOR_HEALTH_H
#define TRI_MONITOR_HEALTH_H

#include "monitor/http.h"

#define TRI_HEALTH_WITHIN_S 600

typedef enum tri_health { TRI_HEALTH_NO_STEP, TRI_HEALTH_GOOD, TRI_HEALTH_LATE } tri_health;
/* *ago_s: since the last step, where there is one. */
tri_status tri_health_look(const char *folder, int64_t within_s, tri_health *out, double *ago_s);
/* /healthz and, with `ready`, /readyz of a run; ?within=SECONDS. Code 503: no (a run without a step is alive, not
 * ready). */
tri_status tri_health_page(const char *folder, bool ready, tri_http_request *request, tri_string *out);

#endif
