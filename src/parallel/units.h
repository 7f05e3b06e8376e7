/* SPDX-License-Identifier: Apache-2.0
 *
 * units.h: sharded state: which entries travel together, and which part of them is whose.
 *
 * A unit is a run of whole entries of at least parallel.bucket_kib, in the order of the store; each tie is one of its
 * own behind them, and so is an entry whose gradients are made on several stages: their ranks then have the same part
 * of it. Every unit is cut into a share for each rank, at ends of blocks of the norm or between entries, so
 * that what a rank owns of the store is one slice of each unit. All of it is a function of the store, bucket_kib and
 * the number of ranks.
 */
#ifndef TRI_PARALLEL_UNITS_H
#define TRI_PARALLEL_UNITS_H

#include "nn/params.h"

typedef struct tri_unit {
    int64_t first, count; /* elements of gradient arrays; of the store, unless it is a tie */
    int entry_count;      /* gradients in it */
    int tie;              /* -1: entries */
    bool frozen;          /* nobody moves it: no gradient travels */
    bool away;            /* its gradient is made on another stage, and does not travel here */
    int64_t *counts;      /* [ranks] elements of each rank's share */
    int64_t *firsts;      /* [ranks] where it begins, counted from the unit's first */
    int64_t *at;          /* [ranks] of entries: elements that the rank owns of earlier units */
    char name[48];        /* what messages call it */
} tri_unit;

typedef struct tri_units {
    tri_unit *items;
    int count;
    int store_count; /* those of entries; ties follow */
    int ranks;
    int *of;         /* [tri_params_tail()]: number of a gradient -> unit */
    int64_t *places; /* memory of the units' arrays */
} tri_units;

tri_status tri_units_init(tri_units *units, const tri_params *params, int64_t nbytes_each, int ranks);
void tri_units_fini(tri_units *units);
/* READ: of the store; SUMMED: those whose gradients travel. */
typedef enum tri_units_kind { TRI_UNITS_ALL, TRI_UNITS_READ, TRI_UNITS_SUMMED } tri_units_kind;
/* Elements of each of the `most` largest units, the largest first; 0 where there are fewer. */
void tri_units_largest(const tri_units *units, tri_units_kind kind, int most, int64_t *counts);
/* Elements of the store that a rank owns. */
int64_t tri_units_owned(const tri_units *units, int rank);

#endif
