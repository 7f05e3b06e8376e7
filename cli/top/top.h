/* SPDX-License-Identifier: Apache-2.0
 *
 * top.h: what is known of a run while it trains, and of its processes on this machine.
 */
#ifndef TRI_CLI_TOP_H
#define TRI_CLI_TOP_H

#include "base/json.h"
#include "device/cuda/nvml.h"
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
    double generation;   /* 0: ranks do not come and go */
    tri_step_record sum; /* phases, of these steps */
    double memory;
    bool has_card;
    tri_card_figures card; /* of the card that it computes on */
    tri_served served;     /* seconds 0: it is no server */
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
    int slow_rank;         /* whom the others wait for, as it was reported last, */
    char slow_cause[16];   /* and why; "": it was not */
    int64_t epochs, steps; /* of the whole run; steps 0: not known */
    bool has_config, steps_reported;
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

/* What a rank, or a process of a run whose ranks come and go, does. */
#define TRI_TOP_DOES_LIST(X) X(training) X(serving) X(stopped) X(silent) X(left) X(ended)
typedef enum tri_top_does {
#define TRI_TOP_ENUM(name) TRI_TOP_##name,
    TRI_TOP_DOES_LIST(TRI_TOP_ENUM) TRI_TOP_DOES_COUNT
#undef TRI_TOP_ENUM
} tri_top_does;
const char *tri_top_does_name(tri_top_does does);

/* A line of the table: what a rank says of itself, with its process if that is here. */
typedef struct tri_top_row {
    int rank;
    const tri_top_split *split;  /* NULL: it has said nothing */
    const tri_top_rank *process; /* NULL: it is not on this machine */
    tri_top_does does;
    double step, wait, memory; /* wait: part of its steps; NaN: not known */
} tri_top_row;

/* By what rows are sorted: name, and whether the greatest is first unless it is turned around. */
#define TRI_TOP_ORDER_LIST(X) X(rank, false) X(step, false) X(wait, false) X(memory, true)
typedef enum tri_top_order {
#define TRI_TOP_ENUM(name, greatest_first) TRI_TOP_BY_##name,
    TRI_TOP_ORDER_LIST(TRI_TOP_ENUM) TRI_TOP_ORDER_COUNT
#undef TRI_TOP_ENUM
} tri_top_order;

/* How somebody wants to see it. */
typedef struct tri_top_view {
    tri_top_order order;
    bool reversed, paused, help, keys; /* keys: there are some */
    int only;                          /* a tri_top_does; -1: all rows */
    int chosen;                        /* rank; -1: none */
    bool chosen_process;               /* it is a process without a rank */
    size_t first;                      /* row that is on top */
} tri_top_view;

/* rows.c: rows that are wanted, in their order; of tri_top_row, valid until the next look. now_s: since 1970. */
tri_status tri_top_rows(const tri_top *top, const tri_top_view *view, double now_s, tri_vector *rows);
/* view.c: what a key changes; false: it ends. rows: as they are shown, page: how many of them at once. */
bool tri_top_view_key(tri_top_view *view, int key, const tri_vector *rows, size_t page);
bool tri_top_view_is_chosen(const tri_top_view *view, const tri_top_row *row);
/* The row that is chosen; -1: none. Moves what is shown so that it is seen. */
long tri_top_view_place(tri_top_view *view, const tri_vector *rows, size_t page);
/* draw.c: the screen, of `lines` lines (0: as many as it takes); *page: rows that are shown at once. */
tri_status tri_top_draw(const tri_top *top, tri_top_view *view, int columns, int lines, size_t *page, tri_string *out);
/* tell.c: a line, an object. */
tri_status tri_top_line(const tri_top *top, tri_string *out);
tri_status tri_top_json(const tri_top *top, tri_string *out);
/* What a server does a second, as an element of a list. */
void tri_top_served_fields(const tri_served *served, int rank, tri_json *list);
/* The object's fields alone. */
void tri_top_fields(const tri_top *top, tri_json *json);
/* "running", "ended", "not running here". */
const char *tri_top_state(const tri_top *top);

#endif
