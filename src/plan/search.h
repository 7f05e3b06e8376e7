/* SPDX-License-Identifier: Apache-2.0
 *
 * search.h: all layouts of a job on a cluster, with what they cost, why some cannot be, and which one to take.
 */
#ifndef TRI_PLAN_SEARCH_H
#define TRI_PLAN_SEARCH_H

#include "parallel/sync.h"
#include "plan/models.h"

typedef struct tri_plan_row {
    tri_layout layout;
    tri_plan_cost cost; /* where it was worked out: also of what needs too much memory */
    bool costed;
    bool moves_bits;   /* the weights would not be those of another layout */
    char refusal[400]; /* why it cannot be; "": it can */
} tri_plan_row;

/* What the search is restricted to; 0 and NULL: not. */
typedef struct tri_plan_wish {
    int data, tensor, pipeline, chunks;
    const tri_sync_kind *sync;
    const tri_pipe_kind *schedule;
    int64_t zero_ranks;
} tri_plan_wish;

typedef struct tri_plan_list {
    tri_vector rows; /* tri_plan_row: those that can be, fastest first, then the others */
    int feasible;    /* how many of them can be */
    int chosen;      /* row, -1: none */
    char why[400];
    double memory_limit; /* bytes of a worker that a layout may take; infinite: not known */
    double host_limit;   /* the same of the host, with cards */
} tri_plan_list;

/* Collective, and the same on all ranks. Ends with tri_plan_list_fini() whatever is returned. */
tri_status tri_plan_list_make(tri_plan_models *models, const tri_plan_wish *wish, tri_plan_list *plan);
void tri_plan_list_fini(tri_plan_list *plan);

#endif
