/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor.c: sums over tensor ranks by all-reduces, and gathers.
 *
 * f32: one all-reduce, which is the balanced tree over ranks. bf16: an all-reduce adds in f32 and rounds once, but the
 * tree over parts rounds each sum of two, wherever its halves are; so neighbours add up first, then neighbouring pairs,
 * and so on, each time an all-reduce of two ranks, which rounds like an addition. Two ranks are one such pair.
 */
#include "parallel/tensor.h"

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"

#define MAX_LEVELS 16

struct tri_tensor_ranks {
    tri_group *group;
    int level_count;
    tri_group *pairs[MAX_LEVELS]; /* [level]: this rank and the one whose number differs in that bit */
    int64_t spent_ns;
};

static tri_status pairs_make(tri_tensor_ranks *tensor)
{
    int rank = tri_group_rank(tensor->group), count = tri_group_count(tensor->group);
    if (count == 2)
        return TRI_OK;
    for (int step = 1; step < count; step *= 2) {
        TRI_TRY(tri_group_split(tensor->group, rank & ~step, rank, &tensor->pairs[tensor->level_count]));
        tensor->level_count++;
    }
    return TRI_OK;
}

tri_status tri_tensor_ranks_create(tri_group *group, tri_tensor_ranks **out)
{
    int count = tri_group_count(group);
    if ((count & (count - 1)) != 0 || count > 1 << MAX_LEVELS)
        return tri_fail(TRI_EINVAL, "tensor: want a power of two of ranks, got %d", count);
    tri_tensor_ranks *tensor = tri_alloc_zero(1, sizeof(*tensor));
    if (!tensor)
        return TRI_ENOMEM;
    tensor->group = group;
    tri_status status = pairs_make(tensor);
    if (status != TRI_OK) {
        tri_tensor_ranks_destroy(tensor);
        return status;
    }
    *out = tensor;
    return TRI_OK;
}

void tri_tensor_ranks_destroy(tri_tensor_ranks *tensor)
{
    if (!tensor)
        return;
    for (int level = 0; level < tensor->level_count; level++)
        tri_group_destroy(tensor->pairs[level]);
    tri_free(tensor);
}

static tri_status sum(const tri_tensor_ranks *tensor, void *data, int64_t count, tri_dtype dtype)
{
    if (dtype == TRI_F32 || tensor->level_count == 0)
        return tri_all_reduce(tensor->group, data, data, count, dtype, TRI_REDUCE_SUM, NULL);
    for (int level = 0; level < tensor->level_count; level++)
        TRI_TRY(tri_all_reduce(tensor->pairs[level], data, data, count, dtype, TRI_REDUCE_SUM, NULL));
    return TRI_OK;
}

static tri_status sum_run(void *arg, void *data, int64_t count, tri_dtype dtype)
{
    tri_tensor_ranks *tensor = arg;
    int64_t begin = tri_now_ns();
    TRI_TRY_IN(sum(tensor, data, count, dtype), "in a sum over tensor ranks");
    tensor->spent_ns += tri_now_ns() - begin;
    return TRI_OK;
}

static tri_status gather_run(void *arg, const void *in, void *out, int64_t count, tri_dtype dtype)
{
    tri_tensor_ranks *tensor = arg;
    int64_t begin = tri_now_ns();
    TRI_TRY_IN(tri_all_gather(tensor->group, in, out, count, dtype, NULL), "in a gather over tensor ranks");
    tensor->spent_ns += tri_now_ns() - begin;
    return TRI_OK;
}

tri_op_ranks tri_tensor_ranks_across(tri_tensor_ranks *tensor)
{
    return (tri_op_ranks){.sum = sum_run, .gather = gather_run, .arg = tensor};
}

int64_t tri_tensor_ranks_spent_ns(const tri_tensor_ranks *tensor)
{
    return tensor->spent_ns;
}
