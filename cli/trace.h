/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h: what `trireme trace` knows of a trace.
 */
#ifndef TRI_CLI_TRACE_H
#define TRI_CLI_TRACE_H

#include "base/containers.h"
#include "base/json.h"

/* A micro-batch in a stage of a pipeline. */
typedef struct tri_slot {
    int64_t step;
    int stage, micro, rank;
    enum { TRI_SLOT_UP, TRI_SLOT_DOWN, TRI_SLOT_WEIGHTS } kind; /* weights: for which no other slot waits */
    double start, end;                                          /* microseconds */
} tri_slot;

typedef struct tri_slots {
    tri_vector items;    /* tri_slot */
    double *pipeline_us; /* [ranks]: time of their steps' pipelines */
    int ranks;
} tri_slots;

/* One stage, in all steps. */
typedef struct tri_stage_view {
    int ranks;             /* that have it */
    int64_t slots;         /* micro-batches up */
    double up_us, down_us; /* all of them */
    double bubble;         /* part of its ranks' pipelines in which they computed nothing */
    double critical_us;    /* on the longest way through the slots of each step */
} tri_stage_view;
typedef struct tri_stages_view {
    tri_vector stages;             /* tri_stage_view; empty: there is no pipeline */
    double critical_us, waited_us; /* of that way, and what of it is in no slot */
    int64_t steps;
} tri_stages_view;

/* trace_stages.c */
tri_status tri_stages_reckon(const tri_slots *slots, tri_stages_view *view);
void tri_stages_view_fini(tri_stages_view *view);
void tri_stages_print(const tri_stages_view *view);
void tri_stages_json(const tri_stages_view *view, tri_json *all);
/* What to change; "": nothing. */
void tri_stages_advise(const tri_stages_view *view, char *text, int capacity);

/* trace_ask.c: `trireme trace RUN --steps N`. NULL: the default. */
tri_status tri_trace_ask(const char *run, const char *steps, const char *wait_s);

#endif
