/* SPDX-License-Identifier: Apache-2.0
 *
 * clip.c: the norm of the gradient, summed in blocks of the store and a tree over blocks: the same bits for any
 * slicing.
 *
 * Each block is the sum of its pieces of trainable entries in order, so buffers and frozen ones are left out without
 * being touched.
 */
#include <math.h>

#include "optim/entries.h"
#include "optim/optim.h"

typedef struct norm_arg {
    const tri_params *params;
    const float *grads;
    double *blocks;
} norm_arg;

static void norm_tile(void *arg, int64_t tile)
{
    const norm_arg *norm = arg;
    const tri_params *params = norm->params;
    int64_t first = tile * TRI_NORM_BLOCK, end = first + TRI_NORM_BLOCK;
    double sum = 0;
    for (int e = optim_entry_after(params, first); e < params->entry_count && params->entries[e].first < end; e++) {
        const tri_param *entry = &params->entries[e];
        int64_t low = entry->first > first ? entry->first : first;
        int64_t high = entry->first + entry->count < end ? entry->first + entry->count : end;
        double piece = 0;
        if (entry->buffer || entry->frozen)
            continue;
        tri_vector_square_blocks(1, norm->grads + low, high - low, &piece);
        sum += piece;
    }
    norm->blocks[tile] = sum;
}

int64_t tri_clip_block_count(const tri_params *params)
{
    return (params->count + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK;
}

double tri_clip_norm(const tri_params *params, const float *grads, double scale, double *blocks, int threads)
{
    norm_arg arg = {params, grads, blocks};
    int64_t count = tri_clip_block_count(params);
    if (count == 0)
        return 0;
    tri_tiles_run(threads, count, norm_tile, &arg);
    return fabs(scale) * sqrt(tri_vector_tree_sum(blocks, count));
}
