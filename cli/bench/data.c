/* SPDX-License-Identifier: Apache-2.0
 *
 * data.c: inputs whose results are known: a block of small whole numbers, turned by rank and by turn.
 *
 * Element i of rank r in turn t is number i + 131 r + 17 t of the block, so a result is either such a number of another
 * rank or the combination of all ranks' numbers, made once per case.
 */
#include <math.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "tensor/reduce.h"

#define RANK_STEP 131
#define TURN_STEP 17

/* The largest whole number up to which every one is exact, and small enough for quick sums. */
static int64_t exact_limit(tri_dtype dtype)
{
    switch (dtype) {
    case TRI_I8:
        return 127;
    case TRI_U8:
        return 255;
    case TRI_BF16:
        return 256;
    case TRI_F16:
        return 2048;
    default:
        return 1 << 24;
    }
}

/* Sums and the like begin at 0, products at 1. One in `rarity` elements is more than that, so that the combination of
 * many ranks stays exact. */
static double number_at(tri_reduce_op op, int64_t most, int rarity, int index)
{
    uint32_t hash = (uint32_t)(index + 1) * 2654435761u;
    hash ^= hash >> 15;
    bool plain = (hash >> 8) % (uint32_t)rarity != 0;
    if (op == TRI_REDUCE_PRODUCT)
        return plain ? 1 : 2;
    return plain ? 0 : 1 + (double)(hash % (uint32_t)most);
}

static double combine(tri_reduce_op op, double a, double b)
{
    switch (op) {
    case TRI_REDUCE_MIN:
        return fmin(a, b);
    case TRI_REDUCE_MAX:
        return fmax(a, b);
    case TRI_REDUCE_PRODUCT:
        return a * b;
    default:
        return a + b;
    }
}

double bench_scale(int rank)
{
    return 1 + rank % 2;
}

/* Fills both blocks with numbers and returns the largest. */
static double numbers_make(const bench_case *c, int64_t most, int rarity, double *input, double *combined)
{
    double largest = 0;
    for (int i = 0; i < BENCH_PERIOD; i++)
        input[i] = number_at(c->reduce, most, rarity, i);
    for (int i = 0; i < BENCH_PERIOD; i++) {
        combined[i] = input[i];
        for (int r = 1; r < c->ranks; r++) {
            double number = input[(i + (int64_t)r * RANK_STEP) % BENCH_PERIOD];
            number *= c->reduce == TRI_REDUCE_PREMUL_SUM ? bench_scale(r) : 1;
            combined[i] = combine(c->reduce, combined[i], number);
        }
        largest = fmax(largest, combined[i]);
    }
    return largest;
}

/* One division of the sum, as the type makes it: in f32 unless it is f64, towards zero for integers. */
static double average(const bench_case *c, double sum)
{
    if (c->dtype == TRI_F64)
        return sum / c->ranks;
    if (c->dtype == TRI_F32 || c->dtype == TRI_BF16 || c->dtype == TRI_F16)
        return (double)((float)sum / (float)c->ranks);
    return trunc(sum / c->ranks);
}

/* A block twice, in the case's type. */
static tri_status block_make(const bench_case *c, const double *numbers, char **out)
{
    size_t nbytes = BENCH_PERIOD * tri_dtype_nbytes(c->dtype);
    *out = tri_alloc(2 * nbytes);
    if (!*out)
        return TRI_ENOMEM;
    TRI_TRY(tri_convert(*out, c->dtype, numbers, TRI_F64, BENCH_PERIOD));
    memcpy(*out + nbytes, *out, nbytes);
    return TRI_OK;
}

tri_status bench_pattern_init(const bench_case *c, bench_pattern *pattern)
{
    double input[BENCH_PERIOD], combined[BENCH_PERIOD];
    int64_t limit = exact_limit(c->dtype), most = limit / c->ranks;
    *pattern = (bench_pattern){.each = tri_dtype_nbytes(c->dtype)};
    most = most > 120 ? 120 : most < 1 ? 1 : most;
    for (int rarity = 1; numbers_make(c, most, rarity, input, combined) > (double)limit; rarity *= 2)
        if (rarity > BENCH_PERIOD)
            return tri_fail(TRI_ECONFIG, "--dtype %s: the %s of %d ranks is not exact in it", tri_dtype_name(c->dtype),
                            tri_reduce_name(c->reduce), c->ranks);
    for (int i = 0; c->reduce == TRI_REDUCE_AVERAGE && i < BENCH_PERIOD; i++)
        combined[i] = average(c, combined[i]);
    tri_status status = block_make(c, input, &pattern->input);
    if (status == TRI_OK && c->op->reduces)
        status = block_make(c, combined, &pattern->combined);
    if (status != TRI_OK)
        bench_pattern_fini(pattern);
    return status;
}

void bench_pattern_fini(bench_pattern *pattern)
{
    tri_free(pattern->input);
    tri_free(pattern->combined);
    *pattern = (bench_pattern){0};
}

/* The period that begins with this element of the source. */
static const char *period_of(const bench_pattern *pattern, int rank, int64_t first, int64_t turn)
{
    int64_t at = (first + turn % BENCH_PERIOD * TURN_STEP) % BENCH_PERIOD;
    if (rank == BENCH_REDUCED)
        return pattern->combined + (size_t)at * pattern->each;
    at = (at + (int64_t)rank * RANK_STEP) % BENCH_PERIOD;
    return pattern->input + (size_t)at * pattern->each;
}

void bench_pattern_write(const bench_case *c, const bench_pattern *pattern, int64_t turn, void *in)
{
    const char *period = period_of(pattern, c->rank, 0, turn);
    size_t left = (size_t)c->op->in_count(c) * pattern->each, block = BENCH_PERIOD * pattern->each;
    for (char *at = in; left > 0; at += block) {
        block = left < block ? left : block;
        memcpy(at, period, block);
        left -= block;
    }
}

static int64_t count_wrong(const char *found, const char *wanted, size_t nbytes, size_t each)
{
    int64_t wrong = 0;
    for (size_t at = 0; at < nbytes; at += each)
        wrong += memcmp(found + at, wanted + at, each) != 0;
    return wrong;
}

int64_t bench_pattern_wrong(const bench_case *c, const bench_pattern *pattern, int64_t turn, const void *out)
{
    int64_t wrong = 0, count = c->op->out_count(c);
    const char *found = out;
    for (int64_t at = 0; at < count;) {
        bench_source source = c->op->expect(c, at);
        const char *period = period_of(pattern, source.rank, source.first, turn);
        int64_t run = source.count < count - at ? source.count : count - at;
        run = run < BENCH_PERIOD ? run : BENCH_PERIOD;
        size_t nbytes = (size_t)run * pattern->each;
        if (memcmp(found, period, nbytes) != 0)
            wrong += count_wrong(found, period, nbytes, pattern->each);
        found += nbytes;
        at += run;
    }
    return wrong;
}
