/* SPDX-License-Identifier: Apache-2.0
 *
 * clip.c: the norm of the gradient, summed in blocks of each parameter and a tree over the blocks of the whole model:
 * the same bits whoever holds which of them.
 */
#include <math.h>

#include "kernel/array.h"
#include "optim/entries.h"
#include "optim/optim.h"

/* Blocks of one entry within a slice, which ends where blocks end. */
static void entry_squares(const tri_device *device, const tri_param *entry, const float *grads, tri_slice slice,
                          double *blocks, int threads)
{
    const tri_slice here = tri_param_within(entry, slice);
    const int64_t low = here.first - entry->first;
    if (entry->buffer || entry->frozen || entry->copy || here.count == 0)
        return;
    TRI_ASSERT(low % TRI_NORM_BLOCK == 0);
    tri_array_square_blocks(device, threads, grads + (here.first - slice.first), here.count,
                            blocks + entry->block + low / TRI_NORM_BLOCK);
}

void tri_clip_squares(const tri_params *params, const float *grads, int64_t first, int64_t count, double *blocks,
                      int threads)
{
    for (int e = optim_entry_after(params, first); e < params->entry_count; e++) {
        if (params->entries[e].first >= first + count)
            break;
        entry_squares(params->device, &params->entries[e], grads, (tri_slice){first, count}, blocks, threads);
    }
}

double tri_clip_norm(double *blocks, int64_t count, double scale)
{
    return count > 0 ? fabs(scale) * sqrt(tri_vector_tree_sum(blocks, count)) : 0;
}
