/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.c: the table of strategies, and the options of this floor.
 */
#include "parallel/sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/compress_impl.h"
#include "parallel/fetch.h"
#include "parallel/grads.h"
#include "parallel/outer.h"
#include "parallel/sync_impl.h"

#define TRI_OPTION_STRUCT tri_parallel_config
static const tri_option rows[] = {TRI_PARALLEL_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_parallel_options =
    TRI_OPTION_TABLE("parallel", tri_parallel_config, rows, "layout and gradient synchronization");

const tri_sync_ops *const tri_sync_table[] = {
    [TRI_SYNC_ALLREDUCE] = &tri_sync_ddp, [TRI_SYNC_ZERO1] = &tri_sync_zero1, [TRI_SYNC_ZERO2] = &tri_sync_zero2,
    [TRI_SYNC_ZERO3] = &tri_sync_zero3,   [TRI_SYNC_LOCAL] = &tri_sync_local, [TRI_SYNC_DILOCO] = &tri_sync_diloco,
    [TRI_SYNC_PS] = &tri_sync_ps};

tri_spread tri_sync_spread(const tri_parallel_config *config, int ranks)
{
    return ranks > 1 ? tri_sync_table[config->sync]->spread : TRI_SPREAD_NOTHING;
}

static int compare_shares(const void *a, const void *b)
{
    int64_t left = ((const tri_share *)a)->slice.first, right = ((const tri_share *)b)->slice.first;
    return (left > right) - (left < right);
}

static void shares_fill(tri_shares *shares, const tri_units *units)
{
    for (int u = 0; u < units->store_count; u++) {
        const tri_unit *unit = &units->items[u];
        for (int r = 0; r < units->ranks; r++)
            if (unit->counts[r] > 0)
                shares->items[shares->count++] =
                    (tri_share){{unit->first + unit->firsts[r], unit->counts[r]}, r, unit->at[r]};
    }
    qsort(shares->items, (size_t)shares->count, sizeof(tri_share), compare_shares);
}

tri_status tri_shares_init(tri_shares *shares, const tri_parallel_config *config, const tri_params *params, int ranks)
{
    tri_units units = {0};
    bool spread = tri_sync_spread(config, ranks) != TRI_SPREAD_NOTHING;
    *shares = (tri_shares){0};
    if (spread)
        TRI_TRY(tri_units_init(&units, params, tri_bucket_nbytes(config), ranks));
    shares->items = tri_alloc_zero((size_t)units.store_count * (size_t)ranks + 1, sizeof(tri_share));
    if (shares->items && spread)
        shares_fill(shares, &units);
    else if (shares->items)
        shares->items[shares->count++] = (tri_share){{0, params->count}, -1, 0};
    tri_units_fini(&units);
    return shares->items ? TRI_OK : TRI_ENOMEM;
}

void tri_shares_fini(tri_shares *shares)
{
    tri_free(shares->items);
    *shares = (tri_shares){0};
}

tri_status tri_shares_of(const tri_shares *shares, int rank, tri_slice **slices, int *count)
{
    *count = 0;
    *slices = tri_alloc_zero((size_t)shares->count + 1, sizeof(tri_slice));
    if (!*slices)
        return TRI_ENOMEM;
    for (int i = 0; i < shares->count; i++)
        if (shares->items[i].rank == rank || shares->items[i].rank < 0)
            (*slices)[(*count)++] = shares->items[i].slice;
    return TRI_OK;
}

static size_t array_nbytes(const tri_params *params)
{
    return (size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * sizeof(float);
}

tri_status tri_sync_kept_make(tri_kept *kept, const tri_parallel_config *config, const tri_params *params,
                              int part_count, bool shared)
{
    if (config->sync != TRI_SYNC_ALLREDUCE || tri_compress_find(config))
        return TRI_OK;
    for (int p = 0; p < part_count; p++)
        TRI_TRY(tri_kept_make(kept, array_nbytes(params), shared && p == 0));
    return TRI_OK;
}

tri_status tri_sync_arrays_alloc(tri_group *group, const tri_params *params, int part_count, tri_kept *kept,
                                 float ***out)
{
    const size_t nbytes = array_nbytes(params);
    float **arrays = tri_alloc_zero((size_t)part_count, sizeof(float *));
    tri_status status = arrays ? TRI_OK : TRI_ENOMEM;
    tri_kept_drop_others(kept, &nbytes, 1);
    for (int p = 0; p < part_count && status == TRI_OK; p++) {
        void *array = NULL;
        status = tri_kept_take(kept, p == 0 ? group : NULL, nbytes, &array);
        if (arrays)
            arrays[p] = array;
    }
    if (status != TRI_OK) {
        tri_sync_arrays_free(group, params, part_count, NULL, arrays);
        arrays = NULL;
    }
    *out = arrays;
    return status;
}

void tri_sync_arrays_free(tri_group *group, const tri_params *params, int part_count, tri_kept *kept, float **arrays)
{
    for (int p = 0; arrays && p < part_count; p++)
        tri_kept_give(kept, p == 0 ? group : NULL, array_nbytes(params), arrays[p]);
    tri_free(arrays);
}

bool tri_sync_is_local(const tri_parallel_config *config)
{
    return tri_sync_table[config->sync]->meet;
}

tri_status tri_sync_check(const tri_parallel_config *config)
{
    bool planned = config->layout == TRI_LAYOUT_AUTO; /* then parallel.sync is not known yet */
    bool diloco = config->sync == TRI_SYNC_DILOCO;
    if (!planned && config->zero_ranks != TRI_ZERO_RANKS_ALL && tri_sync_spread(config, 2) == TRI_SPREAD_NOTHING)
        return tri_fail(TRI_ECONFIG, "parallel.zero_ranks requires parallel.sync zero1, zero2 or zero3, got %s",
                        tri_sync_kind_word(config->sync));
    bool elements = config->compress == TRI_COMPRESS_BF16 || config->compress == TRI_COMPRESS_INT8;
    if (config->compress != TRI_COMPRESS_NONE && config->sync != TRI_SYNC_ALLREDUCE && !(diloco && elements))
        return tri_fail(TRI_ECONFIG, "parallel.compress %s requires parallel.sync allreduce%s, got %s",
                        tri_compress_kind_word(config->compress), elements ? " or diloco" : "",
                        tri_sync_kind_word(config->sync));
    if (diloco && config->outer_fragments > config->local_steps)
        return tri_fail(TRI_ECONFIG,
                        "parallel.outer_fragments is %lld but parallel.local_steps is %lld: want at most a fragment a "
                        "step",
                        (long long)config->outer_fragments, (long long)config->local_steps);
    if (diloco && config->outer_delay >= config->local_steps)
        return tri_fail(TRI_ECONFIG,
                        "parallel.outer_delay is %lld but parallel.local_steps is %lld: want sums that come before the "
                        "fragment leaves again",
                        (long long)config->outer_delay, (long long)config->local_steps);
    return TRI_OK;
}

const char *tri_sync_bits(const tri_parallel_config *config, int ranks, bool between_hosts,
                          char text[TRI_SYNC_BITS_NBYTES])
{
    text[0] = 0;
    if (tri_sync_is_local(config) && (ranks > 1 || config->sync == TRI_SYNC_DILOCO))
        snprintf(text, TRI_SYNC_BITS_NBYTES, "not reproducible across layouts (parallel.sync %.16s on %d ranks)",
                 tri_sync_kind_word(config->sync), ranks);
    else if (tri_compress_is_used(config, ranks, between_hosts))
        snprintf(text, TRI_SYNC_BITS_NBYTES,
                 "not reproducible (parallel.compress %.16s on %d ranks: other layouts give "
                 "other bits)",
                 tri_compress_kind_word(config->compress), ranks);
    return text;
}

/* zero: ranks that share one copy of the state. */
static const tri_sync_ops *ops_of(const tri_parallel_config *config, int zero)
{
    const tri_sync_ops *ops = tri_sync_table[config->sync];
    return ops->spread != TRI_SPREAD_NOTHING && zero == 1 ? &tri_sync_ddp : ops; /* it has everything anyway */
}

/* The same between cards. */
static const tri_sync_ops *nccl_of(const tri_sync_ops *ops)
{
    return ops == &tri_sync_zero1   ? &tri_sync_nccl_zero1
           : ops == &tri_sync_zero2 ? &tri_sync_nccl_zero2
           : ops == &tri_sync_zero3 ? &tri_sync_nccl_zero3
                                    : &tri_sync_nccl;
}

tri_status tri_sync_create(const tri_sync_setup *setup, tri_sync **out)
{
    const tri_sync_ops *ops = ops_of(setup->config, setup->zero ? tri_group_count(setup->zero) : 1);
    if (tri_sync_table[setup->config->sync] == &tri_sync_ddp &&
        tri_compress_is_used(setup->config, tri_group_count(setup->group), setup->between_hosts))
        ops = &tri_sync_compressed;
    if (setup->cards.nccl)
        TRI_TRY(tri_sync_nccl_create(nccl_of(ops), setup, out));
    else if (tri_device_shares_host(setup->params->device))
        TRI_TRY(ops->create(setup, out));
    else
        TRI_TRY(tri_sync_staged_create(ops, setup, out));
    if (setup->kept)
        tri_kept_fini(setup->kept); /* what nobody took */
    (*out)->next_step = -1;
    return TRI_OK;
}

void tri_sync_destroy(tri_sync *sync)
{
    if (sync)
        sync->ops->destroy(sync);
}

/* --- what strategies share --- */

/* Bytes of the `most` largest units at once. */
static size_t largest_nbytes(const tri_units *units, tri_units_kind kind, int most)
{
    int64_t counts[TRI_FETCH_BUFFERS + TRI_GRADS_BUFFERS], sum = 0;
    TRI_ASSERT(most <= (int)TRI_COUNT_OF(counts));
    tri_units_largest(units, kind, most, counts);
    for (int i = 0; i < most; i++)
        sum += counts[i];
    return (size_t)sum * sizeof(float);
}

int tri_sync_subtrees(const tri_sync_setup *setup, tri_sync_place place)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int copy = place.rank / place.zero, copies = place.ranks / place.zero;
    return tri_tree_parts(setup->leaves, tri_tree_first(setup->leaves, copy, copies),
                          tri_tree_count(setup->leaves, copy, copies), parts);
}

/* Of what passes through sums that are not gradient arrays. */
static tri_status sums_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes)
{
    const tri_parallel_config *config = setup->config;
    size_t compressed = 0;
    bytes->outer = 0;
    if (config->sync == TRI_SYNC_DILOCO)
        return tri_outer_nbytes(config, setup->params, place.ranks, &bytes->outer);
    if (config->sync == TRI_SYNC_ALLREDUCE && tri_compress_is_used(config, place.ranks, true))
        TRI_TRY(tri_sync_compressed_nbytes(setup, place.ranks, &compressed));
    bytes->gradients += compressed;
    return TRI_OK;
}

static tri_status strategy_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes)
{
    const tri_params *params = setup->params;
    int rank = place.rank % place.zero, ranks = place.zero;
    tri_spread spread = tri_sync_spread(setup->config, ranks);
    size_t parts = (size_t)setup->part_count, value = sizeof(float);
    tri_units units;
    bytes->host = 0;
    bytes->weights = (size_t)params->count * value;
    bytes->gradients = parts * (size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * value;
    TRI_TRY(sums_memory(setup, place, bytes));
    if (spread == TRI_SPREAD_NOTHING)
        return TRI_OK;
    TRI_TRY(tri_units_init(&units, params, tri_bucket_nbytes(setup->config), ranks));
    if (spread >= TRI_SPREAD_GRADIENTS && !setup->whole_gradients) {
        bytes->gradients = (size_t)tri_units_owned(&units, rank) * value + parts * TRI_PARAMS_TAIL * value;
        for (int u = units.store_count; u < units.count; u++)
            bytes->gradients += (size_t)units.items[u].counts[rank] * value;
        bytes->gradients += parts * largest_nbytes(&units, TRI_UNITS_ALL, TRI_GRADS_BUFFERS);
    }
    bytes->gradients += tri_grads_scratch(&units, rank, tri_sync_subtrees(setup, place)) * value;
    if (spread == TRI_SPREAD_WEIGHTS)
        bytes->weights =
            (size_t)tri_units_owned(&units, rank) * value + largest_nbytes(&units, TRI_UNITS_READ, TRI_FETCH_BUFFERS);
    tri_units_fini(&units);
    return TRI_OK;
}

tri_status tri_sync_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes)
{
    TRI_TRY(strategy_memory(setup, place, bytes));
    const tri_device *device = setup->params->device; /* NULL: of a table without values */
    if (device && setup->cards.nccl)
        return tri_sync_nccl_memory(setup, place, bytes);
    if (device && tri_device_has_memory(device))
        tri_sync_staged_memory(ops_of(setup->config, place.zero), setup, bytes);
    return TRI_OK;
}
