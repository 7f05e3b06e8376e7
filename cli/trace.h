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

/* What a parameter server did. */
typedef struct tri_server_operation {
    int server, worker;
    int64_t step;
    bool pulls;               /* it gave values; else it took in a push */
    double at, took_us;       /* microseconds: when, and how long a push was taken in */
    double waited_us, nbytes; /* of values: since they were asked for */
} tri_server_operation;
typedef struct tri_server_operations {
    tri_vector items; /* tri_server_operation */
    int servers, workers;
} tri_server_operations;

typedef struct tri_server_view {
    int64_t pushes, pulls;
    double in_bytes, out_bytes, busy_us; /* busy: takes pushes in */
} tri_server_view;
typedef struct tri_wait_view {
    double waited_us;
    int64_t times; /* steps, mostly */
} tri_wait_view;
typedef struct tri_servers_view {
    tri_server_view *servers;
    int count; /* 0: there are none */
    tri_wait_view *waits;
    int workers;
    double all_us; /* from the first operation to the last */
} tri_servers_view;

/* trace_servers.c */
tri_status tri_servers_reckon(tri_server_operations *operations, tri_servers_view *view);
void tri_servers_view_fini(tri_servers_view *view);
void tri_servers_print(const tri_servers_view *view);
void tri_servers_json(const tri_servers_view *view, tri_json *all);
/* What to change; "": nothing. */
void tri_servers_advise(const tri_servers_view *view, char *text, size_t capacity);

/* Kernels of one name, on all cards. */
typedef struct tri_kernel_view {
    char name[32];
    int64_t launches;
    double took_us;
} tri_kernel_view;

/* trace_kernels.c: of a vector of tri_kernel_view; all_us: from the first kernel to the end of the last one, of all
 * ranks together. */
tri_status tri_kernels_add(tri_vector *kernels, const char *name, double took_us);
void tri_kernels_reckon(tri_vector *kernels);
void tri_kernels_print(const tri_vector *kernels, int64_t steps, double all_us);
void tri_kernels_json(const tri_vector *kernels, double all_us, tri_json *all);

/* trace_ask.c: `trireme trace RUN --steps N`. NULL: the default. */
tri_status tri_trace_ask(const char *run, const char *steps, const char *wait_s);

#endif
