/* SPDX-License-Identifier: Apache-2.0
 *
 * state_shard.c: a role's memory, and the elements that it stands for.
 */
#include "train/elastic/state_shard.h"

#include "base/memory.h"

static tri_status held_find(const tri_tensors *tensors, bool all, tri_state_shard *shard)
{
    const tri_params *params = shard->params;
    int64_t at = 0;
    for (int i = 0; i < shard->share_count; at += shard->share[i++].count) {
        tri_slice slice = shard->share[i];
        int64_t at_values = params->share ? at : slice.first;
        TRI_TRY(tri_extents_of_slice(params, tensors, slice, at, true, &shard->held));
        TRI_TRY(tri_extents_of_slice(params, tensors, slice, at_values, true, &shard->held_values));
        if (!all)
            TRI_TRY(tri_extents_of_slice(params, tensors, slice, at_values, true, &shard->wanted_values));
    }
    tri_slice store = {0, params->count};
    return all ? tri_extents_of_slice(params, tensors, store, 0, true, &shard->wanted_values) : TRI_OK;
}

tri_status tri_state_shard_make(const tri_tensors *tensors, tri_params *params, tri_optim *optim, tri_slice *share,
                                int share_count, bool all, tri_state_shard *shard)
{
    const tri_vector none = {.each = sizeof(tri_extent)};
    *shard = (tri_state_shard){params, optim, share, share_count, none, none, none, {0}};
    return held_find(tensors, all && !params->share, shard);
}

static void shard_close(tri_state_shard *shard)
{
    tri_optim_destroy(shard->optim);
    tri_params_destroy(shard->params);
    tri_free(shard->share);
    tri_vector_fini(&shard->held);
    tri_vector_fini(&shard->held_values);
    tri_vector_fini(&shard->wanted_values);
    tri_state_shard_digests_close(shard);
    *shard = (tri_state_shard){0};
}

int64_t tri_state_shard_at(const tri_state_shard *shard, int64_t element)
{
    int64_t at = 0;
    for (int i = 0; i < shard->share_count; at += shard->share[i++].count)
        if (element >= shard->share[i].first && element < shard->share[i].first + shard->share[i].count)
            return at + element - shard->share[i].first;
    return -1;
}

void tri_shard_set_close(tri_shard_set *set)
{
    shard_close(&set->own);
    shard_close(&set->mirror);
    set->what = (tri_assignment_set){0};
}
