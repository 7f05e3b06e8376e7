/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what each step did, for machines (metrics.jsonl) and for people (console.c).
 */
#ifndef TRI_MONITOR_METRICS_H
#define TRI_MONITOR_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Where the time of a step goes, seconds. comm is what was waited for, not what was hidden behind the backward pass. */
#define TRI_PHASE_LIST(X) X(data) X(forward) X(backward) X(comm) X(optimizer) X(other)

typedef struct tri_step_record {
    int64_t step;                       /* from 0 */
    double epoch;                       /* 1.25: a quarter into the second */
    double loss, lr, grad_norm;         /* loss NaN: no target here counted; grad_norm NaN: not computed */
    double known_loss;                  /* of the newest step that has one, for people */
    double samples_per_s, tokens_per_s; /* tokens_per_s NaN: samples are no sequences */
    int64_t sent_bytes;                 /* payload to other ranks since the record before */
    double loss_scale;                  /* that the gradients were made with; NaN: without */
    bool skipped;                       /* nothing moved: they overflowed, or a guard has acted */
    double mfu;                         /* part of the peak that the model's own operations take; NaN: not known */
#define TRI_PHASE_FIELD(name) double name;
    TRI_PHASE_LIST(TRI_PHASE_FIELD)
#undef TRI_PHASE_FIELD
} tri_step_record;

typedef struct tri_metrics tri_metrics;
/* Whether a file has the line of a step; false if there is no file. */
tri_status tri_metrics_has_steps(const char *path, bool *has);
/* Opens <path> for appending; lines of steps >= first_step that an earlier run left are removed. */
tri_status tri_metrics_open(const char *path, int64_t first_step, tri_metrics **out);
/* Of a run whose writer may change. Writes nothing, but keeps the latest lines, as whoever does write has them too: it
 * can continue with the file at any time, without a gap or a line twice. */
tri_status tri_metrics_follow(const char *path, tri_metrics **out);
/* From now on this one writes; lines of steps >= first_step are removed, those that are not there yet are added. All
 * that was written so far is in the file then. */
tri_status tri_metrics_lead(tri_metrics *metrics, int64_t first_step);
/* From now on not, once it has written what it has. */
void tri_metrics_yield(tri_metrics *metrics);
/* Whoever leads writes what it has to the file. */
tri_status tri_metrics_flush(tri_metrics *metrics);
/* The run goes back to `step`: lines of it and of later ones are forgotten; somebody leads again afterwards. */
tri_status tri_metrics_rewind(tri_metrics *metrics, int64_t step);
/* Nor that, at once: somebody else has gone on with the file. The lines are kept: perhaps nobody else has them. */
void tri_metrics_drop_lead(tri_metrics *metrics);
/* Gets the lines that have just been written to the file; NULL: nobody does. */
typedef void (*tri_metrics_reader)(void *arg, const char *lines, size_t nbytes);
void tri_metrics_reader_set(tri_metrics *metrics, tri_metrics_reader reader, void *arg);
/* A line of a step and kind that was written already is passed over. Buffers; written at least once a second of steps.
 * No allocation. */
tri_status tri_metrics_write(tri_metrics *metrics, const tri_step_record *record);
/* Another kind of line: an evaluation after `step` steps. NaN: that has no meaning. */
typedef struct tri_test_record {
    double loss, accuracy, perplexity, mae, r2;
} tri_test_record;
tri_status tri_metrics_write_test(tri_metrics *metrics, int64_t step, const tri_test_record *record);
/* And another: a save that ended. */
typedef struct tri_save_record {
    int64_t step; /* the last one before it */
    const char *folder;
    int64_t nbytes;          /* 0: it failed */
    double paused_s, took_s; /* training stood still; until it was durable */
    int64_t failed;          /* saves of this run so far */
    const char *error;       /* NULL: it was saved */
} tri_save_record;
tri_status tri_metrics_write_save(tri_metrics *metrics, const tri_save_record *record);
/* And another: what the model wrote after a prompt. */
tri_status tri_metrics_write_sample(tri_metrics *metrics, int64_t step, const char *prompt, const char *text);
/* And another: something that should not happen often, in one word and in a line for people. */
tri_status tri_metrics_write_event(tri_metrics *metrics, int64_t step, const char *event, const char *text);
/* An event, `slow`: which rank, why, and how much of the time the others wait for it. */
tri_status tri_metrics_write_slow(tri_metrics *metrics, int64_t step, int rank, const char *cause, double share,
                                  const char *text);
/* The first line of a file that has none yet (else nothing happens): an event, `run`, with the ids of the run and of
 * its span. */
tri_status tri_metrics_write_head(tri_metrics *metrics, int64_t step, const char *trace_id, const char *span_id);
tri_status tri_metrics_close(tri_metrics *metrics);

/* The progress of a run for people, on standard error: a line that rewrites itself on a terminal, else one every few
 * seconds. */
typedef struct tri_console tri_console;
tri_status tri_console_open(int64_t first_step, int64_t steps, int64_t steps_per_epoch, int64_t epochs,
                            tri_console **out);
void tri_console_step(tri_console *console, const tri_step_record *record);
/* A line that stays, on standard output. */
void tri_console_line(tri_console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tri_console_close(tri_console *console);

#endif
