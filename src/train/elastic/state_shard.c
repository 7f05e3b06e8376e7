/* SPDX-License-Identifier: Apache-2.0
 *
 * state_shard.c: a role's memory, and the elements that it stands for.
 */
#include "train/elastic/state_shard.h"

#include "base/memory.h"

static tri_status held_find(const tri_tensors *tensors, bool all, tri_stock *stock)
{
    const tri_params *params = stock->params;
    int64_t at = 0;
    for (int i = 0; i < stock->share_count; at += stock->share[i++].count) {
        tri_slice slice = stock->share[i];
        int64_t at_values = params->share ? at : slice.first;
        TRI_TRY(tri_holdings_of_slice(params, tensors, slice, at, true, &stock->held));
        TRI_TRY(tri_holdings_of_slice(params, tensors, slice, at_values, true, &stock->held_values));
        if (!all)
            TRI_TRY(tri_holdings_of_slice(params, tensors, slice, at_values, true, &stock->wanted_values));
    }
    tri_slice store = {0, params->count};
    return all ? tri_holdings_of_slice(params, tensors, store, 0, true, &stock->wanted_values) : TRI_OK;
}

tri_status tri_stock_make(const tri_tensors *tensors, tri_params *params, tri_optim *optim, tri_slice *share,
                          int share_count, bool all, tri_stock *stock)
{
    const tri_vector none = {.each = sizeof(tri_holding)};
    *stock = (tri_stock){params, optim, share, share_count, none, none, none, {0}};
    return held_find(tensors, all && !params->share, stock);
}

void tri_stock_close(tri_stock *stock)
{
    tri_optim_destroy(stock->optim);
    tri_params_destroy(stock->params);
    tri_free(stock->share);
    tri_vector_fini(&stock->held);
    tri_vector_fini(&stock->held_values);
    tri_vector_fini(&stock->wanted_values);
    tri_stock_digests_close(stock);
    *stock = (tri_stock){0};
}

int64_t tri_stock_at(const tri_stock *stock, int64_t element)
{
    int64_t at = 0;
    for (int i = 0; i < stock->share_count; at += stock->share[i++].count)
        if (element >= stock->share[i].first && element < stock->share[i].first + stock->share[i].count)
            return at + element - stock->share[i].first;
    return -1;
}

void tri_stock_set_close(tri_stock_set *set)
{
    tri_stock_close(&set->own);
    tri_stock_close(&set->mirror);
    set->what = (tri_role_set){0};
}
