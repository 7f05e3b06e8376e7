/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: lines for people and machines about what the process does; one sink for the process.
 *
 * Levels are defined by volume: ERROR ends something, WARN is for the user to act on, INFO is a few lines a run, DEBUG
 * a few lines a step. The library logs nothing above DEBUG on its own; `train` and `cli` do. Exceptions, all WARN:
 * waits that last (comm/report.c, base/wait.h), a flight record that cannot be written, a job without a secret token.
 */
#ifndef TRI_BASE_LOG_H
#define TRI_BASE_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "base/containers.h"
#include "base/status.h"
#include "base/trace_id.h"

typedef enum tri_log_level { TRI_LOG_ERROR, TRI_LOG_WARN, TRI_LOG_INFO, TRI_LOG_DEBUG } tri_log_level;

/* Where lines go: `line` is "[label] text" without newline. Called under the log's lock; what it logs itself is
 * dropped. */
typedef void (*tri_log_sink)(tri_log_level level, const char *line, void *arg);

/* sink NULL: standard error, "HH:MM:SS.mmm level [label] text", or with TRI_LOG_JSON an object. */
void tri_log_sink_set(tri_log_sink sink, void *arg);
void tri_log_level_set(tri_log_level level);
tri_log_level tri_log_level_now(void);
/* Put before each line of this thread, such as "rank 3"; copied, at most 31 bytes; fibers have their own. */
void tri_log_label_set(const char *label);
/* The runtime gives each fiber a label of its own: swaps the label buffer of this OS thread (NULL = its own). */
void tri_log_label_swap(char *slot);
#define TRI_LOG_LABEL_NBYTES 32
void tri_log_write(tri_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define tri_log(level, ...) ((level) <= tri_log_level_now() ? tri_log_write((level), __VA_ARGS__) : (void)0)

/* The form of lines of this process, and of what tri_log_tell() says: text, or a JSON object a line. */
typedef enum tri_log_format { TRI_LOG_TEXT, TRI_LOG_JSON } tri_log_format;
void tri_log_format_set(tri_log_format format);
tri_log_format tri_log_format_now(void);
/* "text", "json"; false: neither. */
bool tri_log_format_read(const char *text, tri_log_format *format);
/* Who speaks, in objects; of the process. */
typedef struct tri_log_who {
    int rank;                                                        /* -1: none */
    int64_t generation;                                              /* of ranks that come and go, else 0 */
    char trace_id[TRI_TRACE_ID_NBYTES], span_id[TRI_SPAN_ID_NBYTES]; /* "": not known */
} tri_log_who;
void tri_log_who_set(const tri_log_who *who);
tri_log_who tri_log_who_now(void);
/* The step that this process is at, from 0; -1: none. */
void tri_log_step_set(int64_t step);
/* Appends a line as an object, without a newline. It is valid JSON and UTF-8 whatever the text is. rank -1: that of
 * tri_log_who_set(), with its span and the step; else only the trace is known of who has said it. */
tri_status tri_log_object(tri_string *out, tri_log_level level, int rank, const char *label, const char *text);
/* A line for people that is none of the log ("weights: ..."), without newline: to the stream as it is, or as an object;
 * and to the copy. */
void tri_log_tell(FILE *stream, tri_log_level level, const char *line);

/* A file that gets every line this process says to people, whichever way: what tri_log writes to standard error, and
 * what others print and hand to tri_log_copy_write(). A file that is under the path is replaced. When the file
 * cannot be written any more, one line on standard error says so and the copy ends. */
tri_status tri_log_copy_open(const char *path);
/* One line, without newline. Nothing happens when no copy is open. */
void tri_log_copy_write(const char *line);
void tri_log_copy_close(void);

/* A moment of tri_wall_ns() by RFC 3339, UTC, to the millisecond. */
#define TRI_LOG_TIME_NBYTES 48
void tri_log_time_print(int64_t wall_ns, char text[TRI_LOG_TIME_NBYTES]);

#endif
