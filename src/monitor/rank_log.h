/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_log.h: RUN/ranks/rank-N.jsonl: where the time of one rank went, a line now and then (docs/formats/run.md).
 *
 * Each rank writes its own, so that knowing it costs no other rank a message. A line stands for the time since the one
 * before, of this process: nothing is lost between, and a rank that begins again needs to know of nothing.
 */
#ifndef TRI_MONITOR_RANK_LOG_H
#define TRI_MONITOR_RANK_LOG_H

#include "base/events.h"
#include "monitor/metrics.h"
#include "monitor/metrics_read.h"

typedef struct tri_rank_log tri_rank_log;
#define TRI_RANK_LOG_RANKS 4096 /* that readers look at, at most */
/* Calls for each rank that has a file in the run's folder; stops at a failure. */
tri_status tri_rank_log_visit(const char *folder, tri_status (*visit)(void *arg, int rank, const char *path),
                              void *arg);
/* folder: of the run. Appends to what is there, unless the run begins (first_step 0). */
tri_status tri_rank_log_open(const char *folder, int rank, int64_t every_s, int64_t first_step, tri_rank_log **out);
/* Who the rank is now: members of its generation (0: there are none), and bytes it has sent to each of them so far. */
typedef struct tri_rank_place {
    int64_t generation;
    int world;
    uint64_t (*sent_to)(const void *arg, int rank);
    const void *arg;
} tri_rank_place;
/* What a step did; writes a line if it is time, or the step is the last one. A disk that fails is reported once. */
void tri_rank_log_step(tri_rank_log *log, const tri_step_record *record, bool last, const tri_rank_place *place);

/* What a parameter server counts, since the line before; X(name, counter). */
#define TRI_SERVED_LIST(X)                                                                                             \
    X(pushes, TRI_COUNT_PUSHES)                                                                                        \
    X(pulls, TRI_COUNT_PULLS)                                                                                          \
    X(taken_bytes, TRI_COUNT_TAKEN_NBYTES)                                                                             \
    X(served_bytes, TRI_COUNT_SERVED_NBYTES)
typedef struct tri_served {
    double time, seconds; /* when that was said; for how long it holds */
#define TRI_SERVED_FIELD(name, counter) double name;
    TRI_SERVED_LIST(TRI_SERVED_FIELD)
#undef TRI_SERVED_FIELD
    double memory_bytes;
} tri_served;
/* Of a server, whose log this is, now and then; writes a line if it is time. */
void tri_rank_log_serve(tri_rank_log *log);
/* false: it is no line of a server. */
bool tri_served_read(const tri_metrics_line *line, tri_served *out);

/* Something that people should see on a time line, in one word and in a line. */
void tri_rank_log_event(tri_rank_log *log, int64_t step, const char *event, const char *text);
/* Writes what is left. NULL does nothing. */
void tri_rank_log_close(tri_rank_log *log);

#endif
