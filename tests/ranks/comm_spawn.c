/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_spawn.c: contributions and expected sums, one element at a time and by plain recursion.
 */
#include "ranks/comm_spawn.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "comm/run.h"

tri_status comm_spawn_try(spawn_rank *self, const char *order, const char *algorithm, tri_comm **out)
{
    tri_comm_config config;
    tri_options_defaults(&tri_comm_options, &config);
    (void)tri_options_set(&tri_comm_options, &config, "order", order ? order : "canonical");
    snprintf(config.algorithm, sizeof(config.algorithm), "%s", algorithm ? algorithm : "");
    snprintf(config.flight, sizeof(config.flight), "none");
    *out = NULL;
    if (self->hub)
        return tri_comm_open_hub(self->hub, self->rank, self->world, &config, &self->config, out);
    tri_net *net = NULL;
    TRI_TRY(spawn_net_open(self, &net));
    return tri_comm_create(net, (tri_comm_place){self->rank, self->world, 0}, &config, &self->config, out);
}

tri_comm *comm_spawn_open(spawn_rank *self, const char *order, const char *algorithm)
{
    tri_comm *comm = NULL;
    SPAWN_CHECK(self, comm_spawn_try(self, order, algorithm, &comm) == TRI_OK);
    return comm;
}

static bool is_float(tri_dtype dtype)
{
    return dtype == TRI_F32 || dtype == TRI_F64 || dtype == TRI_BF16 || dtype == TRI_F16;
}

void comm_spawn_fill(void *data, tri_dtype dtype, int rank, int64_t first, int64_t count)
{
    size_t each = tri_dtype_nbytes(dtype);
    double values[256];
    int64_t wholes[256];
    for (int64_t i = 0; i < count; i++) {
        /* Cheap, and of many magnitudes: a wrong order shows. */
        uint64_t hash =
            ((uint64_t)rank + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(first + i) * UINT64_C(0xd1b54a32d192ed03);
        hash ^= hash >> 31;
        hash *= UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 29;
        int64_t at = i % 256;
        values[at] = ((double)(int64_t)hash * 0x1p-63) * (double)(1 << (hash & 7));
        wholes[at] = (int64_t)(hash % 1000) - 500;
        if (at < 255 && i + 1 < count)
            continue;
        char *out = (char *)data + (size_t)(i - at) * each;
        if (is_float(dtype))
            (void)tri_convert(out, dtype, values, TRI_F64, at + 1);
        else
            (void)tri_convert(out, dtype, wholes, TRI_I64, at + 1);
    }
}

/* Ranks [rank, rank + ranks), as the type of the additions. */
static void sum_ranks(void *out, tri_dtype dtype, tri_dtype adds_in, tri_reduce_op op, int rank, int ranks,
                      int64_t first, int64_t count)
{
    char *other = tri_alloc((size_t)count * 8 + 8);
    if (ranks == 1) {
        comm_spawn_fill(other, dtype, rank, first, count);
        (void)tri_convert(out, adds_in, other, dtype, count);
    } else {
        int left = 1;
        while (left * 2 < ranks)
            left *= 2;
        sum_ranks(out, dtype, adds_in, op, rank, left, first, count);
        sum_ranks(other, dtype, adds_in, op, rank + left, ranks - left, first, count);
        tri_reduce_find(op, adds_in)(out, out, other, count);
    }
    tri_free(other);
}

void comm_spawn_expect(void *out, tri_dtype dtype, tri_reduce_op op, int ranks, int64_t first, int64_t count)
{
    tri_dtype adds_in = dtype == TRI_F16 || dtype == TRI_BF16 ? TRI_F32 : dtype;
    char *sum = tri_alloc((size_t)count * 8 + 8);
    sum_ranks(sum, dtype, adds_in, op, 0, ranks, first, count);
    if (op == TRI_REDUCE_AVERAGE)
        (void)tri_reduce_divide(sum, adds_in, count, ranks);
    (void)tri_convert(out, dtype, sum, adds_in, count);
    tri_free(sum);
}

void comm_spawn_tree(float *out, int64_t leaf, int64_t leaves, int64_t count)
{
    if (leaves == 1) {
        comm_spawn_fill(out, TRI_F32, (int)leaf, 0, count);
        return;
    }
    float *other = tri_alloc((size_t)count * sizeof(float) + 8);
    comm_spawn_tree(out, leaf, leaves / 2, count);
    comm_spawn_tree(other, leaf + leaves / 2, leaves / 2, count);
    for (int64_t i = 0; i < count; i++)
        out[i] = out[i] + other[i];
    tri_free(other);
}
