/* SPDX-License-Identifier: Apache-2.0
 *
 * sampler.c: which sample is where: pure integer functions of (seed, epoch, shard, position).
 *
 * With b(v) = floor(v B / V), part v is positions [floor(N b(v) / B), floor(N b(v + 1) / B)) of one permutation of the
 * data set. A full batch takes b(v + 1) - b(v) samples of part v, and what is left for the last, short batch is never
 * more than that, so that all parts run out together. tests/unit/data/sample_order.py says the same as a program.
 */
#include "base/rng.h"
#include "data/data.h"

/* floor(a * b / c) without overflow. */
static int64_t scale(int64_t a, int64_t b, int64_t c)
{
    return (int64_t)((__int128)a * b / c);
}

/* Samples of a full batch before shard v. */
static int64_t rows_before(const tri_sampler *sampler, int64_t shard)
{
    return scale(shard, sampler->batch, sampler->shards);
}

static int64_t part_first(const tri_sampler *sampler, int64_t shard)
{
    return scale(sampler->count, rows_before(sampler, shard), sampler->batch);
}

int64_t tri_sampler_rows(const tri_sampler *sampler, int64_t shard)
{
    return rows_before(sampler, shard + 1) - rows_before(sampler, shard);
}

int64_t tri_sampler_part_count(const tri_sampler *sampler, int64_t shard)
{
    return part_first(sampler, shard + 1) - part_first(sampler, shard);
}

void tri_sampler_cover(tri_sampler *sampler, const tri_dataset *dataset, const tri_data_config *config)
{
    sampler->count = dataset->info.count;
    sampler->block = dataset->ops->streams ? config->shuffle_block : 0;
    sampler->buffer = dataset->ops->streams ? config->shuffle_buffer : 0;
}

static bool in_blocks(const tri_sampler *sampler)
{
    return sampler->block > 1 && sampler->count > sampler->buffer;
}

/* Position `at` of `count` in an order of blocks: the blocks begin at a random place, and the samples that make no
 * whole block come last. */
static int64_t block_permute(tri_rng rng, int64_t at, int64_t count, int64_t block)
{
    const int64_t whole = count / block, begin = (int64_t)tri_rng_below(rng, 0, (uint64_t)count);
    int64_t place = at;
    if (at < whole * block)
        place = (int64_t)tri_rng_permute(rng, (uint64_t)(at / block), (uint64_t)whole) * block + at % block;
    return place < count - begin ? place + begin : place - (count - begin);
}

int64_t tri_sampler_part_index(const tri_sampler *sampler, int64_t shard, int64_t k)
{
    if (sampler->shuffle) {
        tri_rng rng = {sampler->seed, tri_rng_stream("data parts", 0, 0)};
        uint64_t position = (uint64_t)(part_first(sampler, shard) + k);
        if (in_blocks(sampler))
            return block_permute(rng, (int64_t)position, sampler->count, sampler->block);
        return (int64_t)tri_rng_permute(rng, position, (uint64_t)sampler->count);
    }
    /* natural order: batch t is samples [t B, (t + 1) B) */
    int64_t rows = tri_sampler_rows(sampler, shard);
    int64_t step = k / rows, full = sampler->count / sampler->batch, rest = sampler->count % sampler->batch;
    int64_t before = rows_before(sampler, shard);
    if (step == full) /* the short batch */
        before = scale(rest, before, sampler->batch);
    return step * sampler->batch + before + (k - step * rows);
}

/* The k-th sample of a part: one of the buffer that position k of the part's order of blocks is in. */
static int64_t buffer_order(const tri_sampler *sampler, int64_t epoch, int64_t shard, int64_t k)
{
    const int64_t count = tri_sampler_part_count(sampler, shard), number = k / sampler->buffer;
    const int64_t first = number * sampler->buffer, rest = count - first;
    const int64_t size = rest < sampler->buffer ? rest : sampler->buffer;
    const tri_rng buffers = {
        sampler->seed, tri_rng_stream("data buffer", (uint64_t)epoch, (uint64_t)(number * sampler->shards + shard))};
    const tri_rng blocks = {sampler->seed, tri_rng_stream("data order", (uint64_t)epoch, (uint64_t)shard)};
    const int64_t at = first + (int64_t)tri_rng_permute(buffers, (uint64_t)(k - first), (uint64_t)size);
    return block_permute(blocks, at, count, sampler->block);
}

void tri_sampler_orders(const tri_sampler *sampler, int64_t epoch, int64_t shard, int64_t first, int64_t count,
                        int64_t *order)
{
    if (!sampler->shuffle) {
        for (int64_t i = 0; i < count; i++)
            order[i] = first + i;
        return;
    }
    if (in_blocks(sampler)) {
        for (int64_t i = 0; i < count; i++)
            order[i] = buffer_order(sampler, epoch, shard, first + i);
        return;
    }
    tri_rng rng = {sampler->seed, tri_rng_stream("data order", (uint64_t)epoch, (uint64_t)shard)};
    tri_rng_fill_permute(rng, (uint64_t)first, (uint64_t)count, (uint64_t)tri_sampler_part_count(sampler, shard),
                         (uint64_t *)order);
}

int64_t tri_sampler_order(const tri_sampler *sampler, int64_t epoch, int64_t shard, int64_t k)
{
    int64_t order;
    tri_sampler_orders(sampler, epoch, shard, k, 1, &order);
    return order;
}

int64_t tri_sampler_steps(const tri_sampler *sampler)
{
    return sampler->count / sampler->batch + (sampler->count % sampler->batch != 0);
}

#define MARK_MASK UINT64_C(0x07ff07ff07ff07ff) /* lanes are 16 bits apart: room for the sum of two */

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): each bit of a mark depends on each of the index. */
uint64_t tri_sampler_mark(int64_t index)
{
    uint64_t bits = (uint64_t)index + UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return (bits ^ bits >> 31) & MARK_MASK;
}

uint64_t tri_sampler_marks_add(uint64_t left, uint64_t right)
{
    return (left + right) & MARK_MASK;
}

int64_t tri_sampler_batch(const tri_sampler *sampler, int64_t step, int64_t shard, int64_t *indices)
{
    int64_t steps = tri_sampler_steps(sampler), epoch = step / steps, in_epoch = step % steps;
    int64_t rows = tri_sampler_rows(sampler, shard), first = in_epoch * rows;
    int64_t rest = tri_sampler_part_count(sampler, shard) - first, count = rest < rows ? rest : rows;
    tri_sampler_orders(sampler, epoch, shard, first, count, indices);
    for (int64_t i = 0; i < count; i++)
        indices[i] = tri_sampler_part_index(sampler, shard, indices[i]);
    return count;
}
