/* SPDX-License-Identifier: Apache-2.0
 *
 * top.h: what is known of a run while it goes on, and of its processes on this machine.
 */
#ifndef TRI_CLI_TOP_H
#define TRI_CLI_TOP_H

#include "base/json.h"
#include "monitor/metrics.h"
#include "monitor/rank_log.h"
#include "monitor/spark.h"

/* One process of a run. */
typedef struct tri_top_rank {
    int rank, pid, threads;
    bool serves;    /* a parameter server; else a worker */
    char state;     /* as in /proc: R S D T Z */
    double cpu_s;   /* used so far */
    double cpu;     /* cores since the look before; NaN: not known yet */
    int64_t memory; /* resident bytes */
    int64_t seen_ns;
} tri_top_rank;

/* What a rank did, on whatever host it is: where the time of a worker went, what a server took and gave. The newest
 * line of its file. */
typedef struct tri_top_split {
    int rank;
    tri_metrics_tail tail;
    int64_t step, steps; /* steps: that the line stands for; 0: there was none yet */
    double time;         /* seconds since 1970, by its clock */
    tri_step_record sum; /* phases, of these steps */
    double memory;
    tri_served served; /* seconds 0: it is no server */
} tri_top_split;

typedef struct tri_top {
    char run[1100];
    tri_metrics_tail reader;
    tri_spark loss;
    tri_step_record newest, last; /* the newest step, and that with rates and times smoothed */
    int64_t seen;                 /* steps seen */
    double test_loss, test_accuracy;
    int64_t tested;        /* the step of that; -1: none */
    char event[256];       /* the newest event or failed save; "" none */
    int slow_rank;         /* whom the others wait for, as it was told last, */
    char slow_cause[16];   /* and why; "": it was not */
    int64_t epochs, steps; /* of the whole run; steps 0: not known */
    bool has_config, steps_told;
    tri_vector ranks;  /* tri_top_rank, by rank */
    tri_vector splits; /* tri_top_split, by rank */
} tri_top;

/* seen.c: takes a line in; true: it is a step, which top->newest is now. */
bool tri_top_seen(tri_top *top, const tri_metrics_line *line);
/* How long the run is, once that can be known: epochs are in its configuration, steps of one in its lines. */
void tri_top_length_find(tri_top *top);
/* The same in two halves: what config.yaml says, false: it is not there; and what follows from that and the lines. */
bool tri_top_planned(const char *run, int64_t *epochs, int64_t *steps);
void tri_top_length_reckon(tri_top *top);
/* ranks.c: looks for the processes that train in the run's folder. */
tri_status tri_top_ranks_look(tri_top *top);
/* They go to `found`, of tri_top_rank; top->ranks is the look before. */
tri_status tri_top_ranks_find(const tri_top *top, tri_vector *found);
/* splits.c: what each rank has said of itself. */
tri_status tri_top_splits_look(tri_top *top);
/* Seconds that the rest of the steps may take; only where top->steps is known. */
double tri_top_left_s(const tri_top *top);
/* Seconds of a record's phases. */
double tri_top_phases(const tri_step_record *record);
/* draw.c: the screen, a line, an object. */
tri_status tri_top_draw(const tri_top *top, int columns, tri_string *out);
tri_status tri_top_line(const tri_top *top, tri_string *out);
tri_status tri_top_json(const tri_top *top, tri_string *out);
/* What a server does a second, as an element of a list. */
void tri_top_served_fields(const tri_served *served, int rank, tri_json *list);
/* The object's fields alone. */
void tri_top_fields(const tri_top *top, tri_json *json);
/* "running", "ended", "not running here". */
const char *tri_top_state(const tri_top *top);

#endif
