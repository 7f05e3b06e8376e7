/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.h: RUN/ledger: which samples each step of a run was made of, 8 bytes a step, written when the step is made.
 *
 * The entry of step s is at a place of its own: whoever writes it writes the same, so a step that is made again, and
 * a writer that was stopped for a while, do no harm. docs/formats/run.md.
 */
#ifndef TRI_MONITOR_LEDGER_H
#define TRI_MONITOR_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The order of samples, of which everything else follows (data/sampler.c). */
typedef struct tri_ledger_plan {
    int64_t seed, count, batch, shards;
    bool shuffle;
    int64_t block, buffer; /* of samples that are shuffled in blocks; 0: all among each other */
    uint64_t data;         /* digest of the training set; 0: not known */
} tri_ledger_plan;

typedef struct tri_ledger tri_ledger;
/* Keeps the latest steps in memory until it leads. */
tri_status tri_ledger_open(const char *path, tri_ledger **out);
/* From now on this one writes: steps from first_step on are taken out of the file, those that are known and not there
 * are added. A file of another plan starts again, at first_step. */
tri_status tri_ledger_lead(tri_ledger *ledger, const tri_ledger_plan *plan, int64_t first_step);
/* The run goes back to `step`: what is known of it and of later ones is forgotten; somebody leads again afterwards.
 * NULL does nothing. */
void tri_ledger_rewind(tri_ledger *ledger, int64_t step);
/* From now on it writes no more, once it has written what it has; NULL does nothing. */
void tri_ledger_yield(tri_ledger *ledger);
/* Nor that, at once: others have gone on. It is kept, for one who has not seen these steps. NULL does nothing. */
void tri_ledger_drop_lead(tri_ledger *ledger);
/* The step is made, of samples whose marks have this sum, by that generation of ranks. Written each second; a disk that
 * fails is reported, and the steps wait. No allocation. */
void tri_ledger_write(tri_ledger *ledger, int64_t step, uint64_t marks, int64_t generation);
/* What it has is in the file, if this one writes it; whether it is on the disk is for tri_fs_sync(). NULL does nothing.
 */
void tri_ledger_flush(tri_ledger *ledger);
/* TRI_EIO: its last steps could not be written. NULL does nothing. */
tri_status tri_ledger_close(tri_ledger *ledger);

/* As it is read. */
typedef struct tri_ledger_view {
    tri_ledger_plan plan;
    int64_t first, end; /* steps that it speaks of: [first, end) */
    char *bytes;
} tri_ledger_view;
tri_status tri_ledger_load(const char *path, tri_ledger_view *view);
/* Of a step in [first, end); false: nothing is said of it. */
bool tri_ledger_step(const tri_ledger_view *view, int64_t step, uint64_t *marks, int *generation);
void tri_ledger_view_fini(tri_ledger_view *view);

#endif
