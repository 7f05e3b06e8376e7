/* SPDX-License-Identifier: Apache-2.0
 *
 * held.c: samples of some parts of a data set in memory, and how they become those of other parts.
 *
 * Rows of parts that stay move to the front in their order, the memory is made as long as it has to be, and rows that
 * are missing are read behind them, in the order of their indices, so that a file is read from front to back. Where a
 * row is does not matter to anybody: `places` finds it.
 */
#include "data/held.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct index_place {
    int64_t index, place;
} index_place;

/* What becomes of it. */
typedef struct held_plan {
    int64_t first_shard, shard_count, count;
    int64_t *part_first, *places; /* the new ones */
    int64_t kept;                 /* rows that stay */
    int64_t missing;              /* rows that are read */
} held_plan;

static int compare_indices(const void *a, const void *b)
{
    int64_t left = ((const index_place *)a)->index, right = ((const index_place *)b)->index;
    return (left > right) - (left < right);
}

static void *alloc_array(int64_t count, size_t each)
{
    return tri_alloc_zero((size_t)count, each);
}

void tri_held_fini(tri_held *held)
{
    tri_free(held->samples);
    tri_free(held->targets);
    tri_free(held->indices);
    tri_free(held->places);
    tri_free(held->part_first);
    *held = (tri_held){.read_count = held->read_count};
}

/* Is something of it of use? */
static bool is_of(const tri_held *held, const tri_held *wanted)
{
    const tri_sampler *a = &held->sampler, *b = &wanted->sampler;
    return held->places != NULL && a->seed == b->seed && a->count == b->count && a->batch == b->batch &&
           a->shards == b->shards && a->shuffle == b->shuffle && held->sample_nbytes == wanted->sample_nbytes &&
           held->target_nbytes == wanted->target_nbytes;
}

static bool has_part(const tri_held *held, int64_t shard)
{
    return shard >= held->first_shard && shard < held->first_shard + held->shard_count;
}

static bool is_wanted(const held_plan *plan, int64_t shard)
{
    return shard >= plan->first_shard && shard < plan->first_shard + plan->shard_count;
}

static tri_status plan_make(const tri_sampler *sampler, held_plan *plan)
{
    plan->part_first = alloc_array(plan->shard_count + 1, sizeof(int64_t));
    if (plan->part_first == NULL)
        return TRI_ENOMEM;
    for (int64_t s = 0; s < plan->shard_count; s++)
        plan->part_first[s + 1] = plan->part_first[s] + tri_sampler_part_count(sampler, plan->first_shard + s);
    plan->count = plan->part_first[plan->shard_count];
    plan->places = alloc_array(plan->count, sizeof(int64_t));
    return plan->places != NULL ? TRI_OK : TRI_ENOMEM;
}

static void row_move(tri_held *held, int64_t from, int64_t to)
{
    held->indices[to] = held->indices[from];
    if (held->samples != NULL)
        memmove(held->samples + (size_t)to * held->sample_nbytes, held->samples + (size_t)from * held->sample_nbytes,
                held->sample_nbytes);
    if (held->targets != NULL)
        memmove(held->targets + (size_t)to * held->target_nbytes, held->targets + (size_t)from * held->target_nbytes,
                held->target_nbytes);
}

/* Rows of the parts that stay move to the front. */
static tri_status rows_keep(tri_held *held, held_plan *plan)
{
    int64_t *moved = alloc_array(held->count, sizeof(int64_t)); /* where a row is then, and 1; 0: it goes */
    if (moved == NULL)
        return TRI_ENOMEM;
    for (int64_t s = 0; s < held->shard_count; s++)
        for (int64_t i = held->part_first[s]; i < held->part_first[s + 1] && is_wanted(plan, held->first_shard + s);
             i++)
            moved[held->places[i]] = 1;
    for (int64_t row = 0; row < held->count; row++) {
        if (moved[row] == 0)
            continue;
        if (row != plan->kept)
            row_move(held, row, plan->kept);
        moved[row] = ++plan->kept;
    }
    for (int64_t s = 0; s < plan->shard_count; s++) {
        int64_t shard = plan->first_shard + s, *places = plan->places + plan->part_first[s];
        for (int64_t i = 0; i < plan->part_first[s + 1] - plan->part_first[s] && has_part(held, shard); i++)
            places[i] = moved[held->places[held->part_first[shard - held->first_shard] + i]] - 1;
    }
    tri_free(moved);
    return TRI_OK;
}

static tri_status resize(unsigned char **rows, int64_t count, size_t each)
{
    size_t nbytes;
    if (__builtin_mul_overflow((size_t)count, each, &nbytes))
        return tri_fail(TRI_ENOMEM, "loader: %" PRId64 " samples of %zu bytes are more than an address can count",
                        count, each);
    unsigned char *grown = *rows != NULL ? tri_realloc(*rows, nbytes) : tri_alloc_bulk(nbytes);
    if (grown == NULL)
        return TRI_ENOMEM;
    *rows = grown;
    return TRI_OK;
}

/* Room for all; what nobody needs has none. */
static tri_status rows_resize(tri_held *held, const held_plan *plan, const tri_loader_setup *setup)
{
    if (!setup->skips_input)
        TRI_TRY(resize(&held->samples, plan->count, held->sample_nbytes));
    if (!setup->skips_target)
        TRI_TRY(resize(&held->targets, plan->count, held->target_nbytes));
    int64_t *indices = tri_realloc(held->indices, (size_t)plan->count * sizeof(int64_t));
    if (indices == NULL)
        return TRI_ENOMEM;
    held->indices = indices;
    return TRI_OK;
}

/* The samples of the parts that come, sorted by index, come to be behind those that stay. */
static tri_status rows_place(tri_held *held, held_plan *plan)
{
    index_place *order = alloc_array(plan->count - plan->kept, sizeof(*order));
    int64_t count = 0;
    if (order == NULL)
        return TRI_ENOMEM;
    for (int64_t s = 0; s < plan->shard_count; s++) {
        const int64_t shard = plan->first_shard + s;
        for (int64_t i = plan->part_first[s]; i < plan->part_first[s + 1] && !has_part(held, shard); i++)
            order[count++] = (index_place){tri_sampler_part_index(&held->sampler, shard, i - plan->part_first[s]), i};
    }
    qsort(order, (size_t)count, sizeof(*order), compare_indices);
    for (int64_t i = 0; i < count; i++) {
        held->indices[plan->kept + i] = order[i].index;
        plan->places[order[i].place] = plan->kept + i;
    }
    plan->missing = count;
    tri_free(order);
    return TRI_OK;
}

/* Whole numbers must fit 32 bits, and be rows of the embedding that reads them (rows 0: whatever it has). */
static tri_status numbers_check(const tri_normalizer *normalizer, int64_t rows, const unsigned char *samples,
                                const int64_t *indices, int64_t count)
{
    const int64_t each = normalizer->count, low = rows > 0 ? 0 : INT32_MIN, high = rows > 0 ? rows - 1 : INT32_MAX;
    for (int64_t i = 0; i < count * each; i++) {
        const int64_t number = normalizer->from == TRI_I64 ? ((const int64_t *)(const void *)samples)[i]
                                                           : ((const int32_t *)(const void *)samples)[i];
        if (number >= low && number <= high)
            continue;
        if (rows > 0)
            return tri_fail(TRI_EFORMAT, "sample %" PRId64 " holds %" PRId64 ", the embedding has rows 0 to %" PRId64,
                            indices[i / each], number, high);
        return tri_fail(TRI_EFORMAT, "sample %" PRId64 " holds the token %" PRId64 ", want 32 bits", indices[i / each],
                        number);
    }
    return TRI_OK;
}

/* Floats must be finite. */
static tri_status rows_check(const tri_normalizer *normalizer, int64_t rows, const unsigned char *samples,
                             const int64_t *indices, int64_t count)
{
    const int64_t each = normalizer->count;
    const tri_dtype dtype = normalizer->from;
    if (tri_is_whole(dtype))
        return numbers_check(normalizer, rows, samples, indices, count);
    if (dtype != TRI_F32 && dtype != TRI_F64 && dtype != TRI_F16)
        return TRI_OK;
    float *values = alloc_array(each, sizeof(float));
    if (values == NULL)
        return TRI_ENOMEM;
    tri_status status = TRI_OK;
    for (int64_t i = 0; i < count && status == TRI_OK; i++) {
        tri_normalizer_apply(normalizer, samples + (size_t)i * (size_t)each * tri_dtype_nbytes(dtype), values);
        for (int64_t j = 0; j < each && status == TRI_OK; j++)
            if (!isfinite(values[j]))
                status = tri_fail(TRI_ENUMERIC, "element %" PRId64 " of sample %" PRId64 " is not a finite number", j,
                                  indices[i]);
    }
    tri_free(values);
    return status;
}

/* A data set reads samples and targets; what nobody needs goes at once. */
static tri_status rows_read(tri_held *held, tri_dataset *dataset, const tri_normalizer *normalizer, int64_t rows,
                            const held_plan *plan)
{
    const int64_t *indices = held->indices + plan->kept;
    unsigned char *samples = held->samples, *targets = held->targets;
    tri_status status = TRI_OK;
    if (plan->missing == 0)
        return TRI_OK;
    if (samples != NULL)
        samples += (size_t)plan->kept * held->sample_nbytes;
    else
        status = resize(&samples, plan->missing, held->sample_nbytes);
    if (targets != NULL)
        targets += (size_t)plan->kept * held->target_nbytes;
    else if (status == TRI_OK)
        status = resize(&targets, plan->missing, held->target_nbytes);
    if (status == TRI_OK)
        status = tri_dataset_read(dataset, indices, plan->missing, samples, targets);
    if (status == TRI_OK)
        status = rows_check(normalizer, rows, samples, indices, plan->missing);
    if (held->samples == NULL)
        tri_free(samples);
    if (held->targets == NULL)
        tri_free(targets);
    held->read_count += plan->missing;
    return status;
}

/* Whoever needs what is not there has to read all again. */
static void let_go(tri_held *held, const tri_held *wanted, const tri_loader_setup *setup)
{
    if (!is_of(held, wanted) || (!setup->skips_input && held->samples == NULL) ||
        (!setup->skips_target && held->targets == NULL))
        tri_held_fini(held);
    if (setup->skips_input) {
        tri_free(held->samples);
        held->samples = NULL;
    }
    if (setup->skips_target) {
        tri_free(held->targets);
        held->targets = NULL;
    }
}

static tri_status change(tri_held *held, tri_dataset *dataset, const tri_normalizer *normalizer,
                         const tri_loader_setup *setup, held_plan *plan)
{
    TRI_TRY(plan_make(&held->sampler, plan));
    if (held->places != NULL)
        TRI_TRY(rows_keep(held, plan));
    TRI_TRY(rows_resize(held, plan, setup));
    TRI_TRY(rows_place(held, plan));
    return rows_read(held, dataset, normalizer, setup->rows, plan);
}

tri_status tri_held_change(tri_held *held, tri_dataset *dataset, const tri_normalizer *normalizer,
                           const tri_loader_setup *setup)
{
    const tri_dataset_info *info = &dataset->info;
    const tri_held wanted = {.sampler = setup->sampler,
                             .sample_nbytes = (size_t)normalizer->count * tri_dtype_nbytes(info->dtype),
                             .target_nbytes =
                                 (size_t)tri_shape_count(info->target) * tri_dtype_nbytes(info->target_dtype)};
    held_plan plan = {.first_shard = setup->first_shard, .shard_count = setup->shard_count};
    let_go(held, &wanted, setup);
    if (held->places != NULL && held->first_shard == plan.first_shard && held->shard_count == plan.shard_count)
        return TRI_OK;
    held->sampler = wanted.sampler;
    held->sample_nbytes = wanted.sample_nbytes;
    held->target_nbytes = wanted.target_nbytes;
    tri_status status = change(held, dataset, normalizer, setup, &plan);
    if (status != TRI_OK) {
        tri_free(plan.part_first);
        tri_free(plan.places);
        tri_held_fini(held);
        return status;
    }
    tri_free(held->part_first);
    tri_free(held->places);
    held->part_first = plan.part_first;
    held->places = plan.places;
    held->first_shard = plan.first_shard;
    held->shard_count = plan.shard_count;
    held->count = plan.count;
    return TRI_OK;
}
