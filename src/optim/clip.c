/* SPDX-License-Identifier: Apache-2.0
 *
 * clip.c: the norm of the gradient, summed in blocks of each parameter and a tree over the blocks of the whole model:
 * the same bits whoever holds which of them.
 */
#include <math.h>

#include "optim/entries.h"
#include "optim/optim.h"

/* Blocks of one entry within the slice [first, end), which ends where blocks end. */
static void entry_squares(const tri_param *entry, const float *grads, int64_t first, int64_t end, double *blocks,
                          int threads)
{
    int64_t low = first - entry->first, high = end - entry->first;
    low = low < 0 ? 0 : low;
    high = high > entry->count ? entry->count : high;
    if (entry->buffer || entry->frozen || entry->copy || low >= high)
        return;
    TRI_ASSERT(low % TRI_NORM_BLOCK == 0);
    tri_vector_square_blocks(threads, grads + (entry->first + low - first), high - low,
                             blocks + entry->block + low / TRI_NORM_BLOCK);
}

void tri_clip_squares(const tri_params *params, const float *grads, int64_t first, int64_t count, double *blocks,
                      int threads)
{
    for (int e = optim_entry_after(params, first); e < params->entry_count; e++) {
        if (params->entries[e].first >= first + count)
            break;
        entry_squares(&params->entries[e], grads, first, first + count, blocks, threads);
    }
}

double tri_clip_norm(double *blocks, int64_t count, double scale)
{
    return count > 0 ? fabs(scale) * sqrt(tri_vector_tree_sum(blocks, count)) : 0;
}
