/* SPDX-License-Identifier: Apache-2.0
 *
 * splits.c: where the time of each rank went, and what servers took and gave, by RUN/ranks: also of other hosts.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "cli/top/top.h"

#define END_NBYTES (64u << 10) /* of a file: lines have some hundred bytes */

double tri_top_phases(const tri_step_record *record)
{
    double sum = 0;
#define PHASE_ADD(name) sum += record->name;
    TRI_PHASE_LIST(PHASE_ADD)
#undef PHASE_ADD
    return sum;
}

double tri_top_left_s(const tri_top *top)
{
    const double left_s = (double)(top->steps - top->last.step - 1) * tri_top_phases(&top->last);
    return left_s > 0 ? left_s : 0;
}

static void line_seen(void *arg, const tri_metrics_line *line)
{
    tri_top_split *split = arg;
    const double steps = tri_metrics_line_real(line, "steps");
    if (!(steps > 0)) { /* an event, or nothing was done */
        tri_served served;
        if (tri_served_read(line, &served))
            split->served = served;
        return;
    }
    split->served.seconds = 0;
    split->step = tri_metrics_line_step(line);
    split->steps = (int64_t)steps;
    split->time = tri_metrics_line_real(line, "time");
    split->generation = tri_metrics_line_real(line, "generation");
#define PHASE_READ(name) split->sum.name = tri_metrics_line_real(line, #name);
    TRI_PHASE_LIST(PHASE_READ)
#undef PHASE_READ
    split->memory = tri_metrics_line_real(line, "memory_bytes");
    split->has_card = false;
#define CARD_READ(name, type, help)                                                                                    \
    split->card.name = tri_metrics_line_real(line, "gpu_" #name);                                                      \
    split->has_card = split->has_card || !isnan(split->card.name);
    TRI_CARD_LIST(CARD_READ)
#undef CARD_READ
}

static int rank_order(const void *a, const void *b)
{
    return ((const tri_top_split *)a)->rank - ((const tri_top_split *)b)->rank;
}

static tri_status rank_found(void *arg, int rank, const char *path)
{
    tri_top *top = arg;
    tri_top_split split = {.rank = rank};
    uint64_t nbytes;
    for (size_t i = 0; i < top->splits.count; i++)
        if (((const tri_top_split *)tri_vector_at(&top->splits, i))->rank == rank)
            return TRI_OK;
    snprintf(split.tail.path, sizeof(split.tail.path), "%s", path);
    if (tri_fs_nbytes(path, &nbytes) == TRI_OK && nbytes > END_NBYTES)
        split.tail.at = nbytes - END_NBYTES;
    return tri_vector_push(&top->splits, &split) ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_top_splits_look(tri_top *top)
{
    const size_t before = top->splits.count;
    TRI_TRY(tri_rank_log_visit(top->run, rank_found, top));
    if (top->splits.count > before)
        qsort(top->splits.items, top->splits.count, sizeof(tri_top_split), rank_order);
    for (size_t i = 0; i < top->splits.count; i++) {
        tri_top_split *split = tri_vector_at(&top->splits, i);
        TRI_TRY(tri_metrics_read(&split->tail, line_seen, split));
    }
    return TRI_OK;
}
