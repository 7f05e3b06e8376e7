/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_read.h: a run's metrics.jsonl read while it grows: each whole line once.
 */
#ifndef TRI_MONITOR_METRICS_READ_H
#define TRI_MONITOR_METRICS_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/trace_id.h"

typedef struct tri_metrics_tail {
    char path[1200];
    uint64_t at; /* bytes of the file that were read */
} tri_metrics_tail;

/* That of the run, by the first line of its metrics.jsonl; "": there is none. */
void tri_metrics_trace_id_read(const char *path, char trace[TRI_TRACE_ID_NBYTES]);

/* One line; valid in the call that gives it. */
typedef struct tri_metrics_line tri_metrics_line;
/* -1: it has none. */
int64_t tri_metrics_line_step(const tri_metrics_line *line);
/* NaN: it has no such number. */
double tri_metrics_line_real(const tri_metrics_line *line, const char *key);
/* NULL: it has no such text. */
const char *tri_metrics_line_text(const tri_metrics_line *line, const char *key);

typedef void (*tri_metrics_seen)(void *arg, const tri_metrics_line *line);
/* Gives the lines that are new since the last call; none when there is no file yet. A file that became shorter (a run
 * that was resumed writes its last steps again) is read from the beginning. Lines that are no JSON are passed over. */
tri_status tri_metrics_read(tri_metrics_tail *reader, tri_metrics_seen seen, void *arg);

#endif
