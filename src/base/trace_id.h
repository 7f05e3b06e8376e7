/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_id.h: names by which log lines, metrics and traces of one run are found together, in the form of W3C Trace
 * Context (OpenTelemetry's): a trace id for the run, span ids for what is a part of it.
 *
 * A span's id follows from the trace's and from what it is, so whoever knows both knows it, and nobody has to keep it.
 */
#ifndef TRI_BASE_TRACE_ID_H
#define TRI_BASE_TRACE_ID_H

#include <stdbool.h>
#include <stdint.h>

#define TRI_TRACE_ID_NBYTES    33 /* 16 bytes in hex, and a 0 */
#define TRI_SPAN_ID_NBYTES     17
#define TRI_TRACEPARENT_NBYTES 56

/* A new one. */
void tri_trace_id_make(char trace[TRI_TRACE_ID_NBYTES]);
/* Whether it is one: 32 lower-case hex digits, not all 0. */
bool tri_trace_id_is(const char *text);
/* Of a rank in a generation (0: of ranks that never change), or of the steps from `step` on that it traces; step -1: of
 * all its steps; rank -1: of the run. */
void tri_span_id_make(const char *trace, int rank, int64_t generation, int64_t step, char span[TRI_SPAN_ID_NBYTES]);
/* "00-TRACE-SPAN-FLAGS", as TRACEPARENT has it: the trace's id. False: it is none, and `trace` is "". Versions that are
 * not known yet are read as the standard needs it, by their first four fields. */
bool tri_traceparent_read(const char *text, char trace[TRI_TRACE_ID_NBYTES]);
/* The same for processes that a span starts. */
void tri_traceparent_make(const char *trace, const char *span, char text[TRI_TRACEPARENT_NBYTES]);

#endif
