/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_read.h: a run's metrics.jsonl, or another file of such lines, read while it grows: each whole line once.
 *
 * Its writer may cut it and continue (a run that was resumed writes its last steps again): what was read last is looked
 * at again, and where it differs the file is read from its beginning.
 */
#ifndef TRI_MONITOR_METRICS_READ_H
#define TRI_MONITOR_METRICS_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/trace_id.h"

#define TRI_METRICS_SEAM_NBYTES 64

typedef struct tri_metrics_tail {
    char path[1200];
    uint64_t at;    /* bytes of the file that were read */
    uint64_t all;   /* bytes of the file, when last looked at */
    bool restarted; /* the last call began with the first line */
    size_t seam_nbytes;
    char seam[TRI_METRICS_SEAM_NBYTES]; /* what is before `at` */
} tri_metrics_tail;

/* That of the run, by the first line of its metrics.jsonl; "": there is none. */
void tri_metrics_trace_id_read(const char *path, char trace[TRI_TRACE_ID_NBYTES]);

/* One line; valid in the call that gives it. Numbers are found soonest when asked for in the order of the line. */
typedef struct tri_metrics_line tri_metrics_line;
/* -1: it has none. */
int64_t tri_metrics_line_step(const tri_metrics_line *line);
/* NaN: it has no such number. */
double tri_metrics_line_real(const tri_metrics_line *line, const char *key);
/* NULL: it has no such text. */
const char *tri_metrics_line_text(const tri_metrics_line *line, const char *key);

/* Calls for each key that is the prefix and a number behind it ("to_3"), from the number found last on. */
typedef void (*tri_metrics_numbered)(void *arg, int number, double value);
void tri_metrics_line_numbered(const tri_metrics_line *line, const char *prefix, tri_metrics_numbered visit, void *arg);

typedef void (*tri_metrics_seen)(void *arg, const tri_metrics_line *line);
/* Gives the lines that are new since the last call; none when there is no file yet. Lines that are no object are passed
 * over. */
tri_status tri_metrics_read(tri_metrics_tail *reader, tri_metrics_seen seen, void *arg);

/* The same in two halves, of some of what is new: the first waits for the file, the second only computes. So what lines
 * say can be under a lock that nobody holds who waits for a disk. */
typedef struct tri_metrics_piece {
    char *bytes;   /* whole lines */
    size_t nbytes; /* 0: there is nothing new */
    size_t room;
} tri_metrics_piece;
/* Some 256 KiB, fewer of a file that has not been read yet; what they hold counts as read from now on. A piece is
 * fetched into again and again. */
tri_status tri_metrics_fetch(tri_metrics_tail *reader, tri_metrics_piece *piece);
void tri_metrics_give(const tri_metrics_piece *piece, tri_metrics_seen seen, void *arg);
void tri_metrics_piece_fini(tri_metrics_piece *piece);

#endif
