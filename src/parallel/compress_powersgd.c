/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_powersgd.c: each matrix M as P Q', of a few columns: one step of power iteration from the last sum's Q.
 *
 * P = sum of M Q, made orthonormal on every rank; Q = sum of M' P; the sum of M is taken for P Q'. Both travel in bf16.
 * What a rank's own M has besides crosses in two bits an element (parallel.compress_residual), and what those do not
 * say stays with it; or all of it stays, as in the source: Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank
 * gradient compression for distributed optimization", NeurIPS 2019. Here rows of P and Q are stored as columns
 * (transposed), so that all loops go along the rows of M; each sum has one order, whatever the threads.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "parallel/compress_impl.h"
#include "tensor/half.h"
#include "tensor/loops.h"
#include "tensor/reduce.h"

/* [m n] M, rows m, columns n; r = rank. left[c][m] is column c of P, right[c][n] column c of Q. */
typedef struct matrix {
    int64_t rows, columns, rank;
    float *values, *left, *right;
} matrix;

typedef struct compress_powersgd {
    tri_compress base;
    tri_group *group;
    tri_compress_span *spans;
    matrix *matrices; /* [span_count] */
    int span_count;
    int threads;
    bool forgets;
    int64_t count, left_count, right_count;
    float *values, *lefts, *rights;       /* of all matrices, one after the other; values: what P Q' does not say */
    tri_compress *rest;                   /* sums `values`, and keeps what is lost; NULL: it stays in `values` */
    uint16_t *halves;                     /* lefts or rights on their way, bf16 */
    uint64_t redrawn;                     /* columns that had nothing to say and were drawn again */
    float *values_before, *rights_before; /* before the last sum; NULL: `values` are not kept, or nothing is undone */
    uint64_t redrawn_before;
    tri_work *work;
    char name[48];
} compress_powersgd;

static int64_t rank_of(const tri_parallel_config *config, const tri_compress_span *span)
{
    int64_t rank = config->compress_rank;
    rank = rank < span->rows ? rank : span->rows;
    return rank < span->columns ? rank : span->columns;
}

static bool powersgd_takes(const tri_parallel_config *config, const tri_compress_span *span)
{
    return rank_of(config, span) * (span->rows + span->columns) < span->count;
}

static void powersgd_destroy(tri_compress *compress)
{
    compress_powersgd *low = tri_container_of(compress, compress_powersgd, base);
    if (low->work)
        (void)tri_work_wait(low->work);
    tri_compress_destroy(low->rest);
    tri_free(low->spans);
    tri_free(low->matrices);
    tri_free(low->values);
    tri_free(low->lefts);
    tri_free(low->rights);
    tri_free(low->values_before);
    tri_free(low->rights_before);
    tri_free(low->halves);
    tri_free(low);
}

/* Any start will do that is the same on all ranks. */
static void draw(float *out, int64_t count, uint64_t number)
{
    const tri_rng rng = {.seed = 1, .stream = tri_rng_stream("powersgd", number, 0)};
    for (int64_t i = 0; i < count; i++)
        out[i] = tri_rng_normal(rng, (uint64_t)i);
}

static tri_status powersgd_allocate(compress_powersgd *low, const tri_parallel_config *config)
{
    low->matrices = tri_alloc_zero((size_t)low->span_count, sizeof(matrix));
    if (!low->spans || !low->matrices)
        return TRI_ENOMEM;
    for (int s = 0; s < low->span_count; s++) {
        int64_t rank = rank_of(config, &low->spans[s]);
        low->matrices[s] = (matrix){.rows = low->spans[s].rows, .columns = low->spans[s].columns, .rank = rank};
        low->left_count += rank * low->spans[s].rows;
        low->right_count += rank * low->spans[s].columns;
    }
    low->values = tri_alloc_bulk((size_t)low->count * sizeof(float));
    low->lefts = tri_alloc_bulk((size_t)low->left_count * sizeof(float));
    low->rights = tri_alloc_bulk((size_t)low->right_count * sizeof(float));
    int64_t most = low->left_count > low->right_count ? low->left_count : low->right_count;
    low->halves = tri_alloc_bulk((size_t)most * sizeof(uint16_t));
    if (!low->values || !low->lefts || !low->rights || !low->halves)
        return TRI_ENOMEM;
    float *values = low->values, *left = low->lefts, *right = low->rights;
    for (matrix *m = low->matrices; m < low->matrices + low->span_count; m++) {
        m->values = values;
        m->left = left;
        m->right = right;
        values += m->rows * m->columns;
        left += m->rank * m->rows;
        right += m->rank * m->columns;
    }
    draw(low->rights, low->right_count, low->redrawn++);
    return TRI_OK;
}

static bool sends_rest(const tri_parallel_config *config)
{
    return config->compress_residual == TRI_RESIDUAL_TWO_BITS;
}

/* `values` are kept where nothing else keeps what is lost of them. */
static bool keeps_values(const tri_compress_setup *setup)
{
    return !setup->forgets && !sends_rest(setup->config);
}

static tri_status allocate_before(compress_powersgd *low, const tri_compress_setup *setup)
{
    if (!setup->undoes)
        return TRI_OK;
    low->rights_before = tri_alloc_bulk((size_t)low->right_count * sizeof(float));
    low->values_before = keeps_values(setup) ? tri_alloc_bulk((size_t)low->count * sizeof(float)) : NULL;
    return low->rights_before && (low->values_before || !keeps_values(setup)) ? TRI_OK : TRI_ENOMEM;
}

/* `values` as a sum of its own. */
static tri_compress_setup rest_setup(const tri_compress_setup *setup, tri_compress_span *all)
{
    tri_compress_setup rest = *setup;
    *all = (tri_compress_span){.count = tri_compress_count(setup->spans, setup->span_count), .rows = 1};
    all->columns = all->count;
    rest.spans = all;
    rest.span_count = 1;
    return rest;
}

static size_t powersgd_nbytes(const tri_compress_setup *setup, int ranks)
{
    int64_t lefts = 0, rights = 0;
    tri_compress_span all;
    const tri_compress_setup rest = rest_setup(setup, &all);
    for (int s = 0; s < setup->span_count; s++) {
        lefts += rank_of(setup->config, &setup->spans[s]) * setup->spans[s].rows;
        rights += rank_of(setup->config, &setup->spans[s]) * setup->spans[s].columns;
    }
    int64_t before = setup->undoes ? rights + (keeps_values(setup) ? all.count : 0) : 0;
    size_t nbytes = (size_t)(all.count + lefts + rights + before) * sizeof(float);
    nbytes += (size_t)(lefts > rights ? lefts : rights) * sizeof(uint16_t);
    return nbytes + (sends_rest(setup->config) ? tri_two_bits_sum_nbytes(&rest, ranks) : 0);
}

static tri_status powersgd_create(const tri_compress_setup *setup, tri_compress **out)
{
    compress_powersgd *low = tri_alloc_zero(1, sizeof(*low));
    if (!low)
        return TRI_ENOMEM;
    low->base.ops = &tri_compress_powersgd;
    low->group = setup->group;
    low->span_count = setup->span_count;
    low->threads = setup->threads;
    low->forgets = setup->forgets;
    low->count = tri_compress_count(setup->spans, setup->span_count);
    low->spans = tri_spans_copy(setup);
    snprintf(low->name, sizeof(low->name), "%s", setup->name);
    tri_compress_span all;
    const tri_compress_setup rest = rest_setup(setup, &all);
    tri_status status = powersgd_allocate(low, setup->config);
    if (status == TRI_OK)
        status = allocate_before(low, setup);
    if (status == TRI_OK && sends_rest(setup->config))
        status = tri_two_bits_create(&rest, &low->rest);
    if (status != TRI_OK) {
        powersgd_destroy(&low->base);
        return status;
    }
    *out = &low->base;
    return TRI_OK;
}

/* --- products; tiles are rows of P, or columns of Q and M --- */

enum { ROW_TILE = 16, COLUMN_TILE = 512, LANES = 16 };

TRI_CLONES static float dot(const float *a, const float *b, int64_t count)
{
    float lanes[LANES] = {0}, sum = 0;
    int64_t whole = count / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += a[i + l] * b[i + l];
    for (int64_t i = whole; i < count; i++)
        lanes[i - whole] += a[i] * b[i];
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

TRI_CLONES static void add_scaled(float *out, const float *a, float factor, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        out[i] += a[i] * factor;
}

TRI_CLONES static void round_to_half(float *values, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        values[i] = half_from_bf16(half_to_bf16(values[i]));
}

static int64_t tile_end(int64_t tile, int64_t each, int64_t count)
{
    return (tile + 1) * each < count ? (tile + 1) * each : count;
}

static int64_t tile_count(int64_t count, int64_t each)
{
    return (count + each - 1) / each;
}

/* P = M Q: some rows. */
static void left_tile(void *arg, int64_t tile)
{
    const matrix *m = arg;
    for (int64_t i = tile * ROW_TILE; i < tile_end(tile, ROW_TILE, m->rows); i++)
        for (int64_t c = 0; c < m->rank; c++)
            m->left[c * m->rows + i] = dot(m->values + i * m->columns, m->right + c * m->columns, m->columns);
}

/* Q = M' P, and M loses P Q': some columns. */
static void right_tile(void *arg, int64_t tile)
{
    const matrix *m = arg;
    int64_t first = tile * COLUMN_TILE, count = tile_end(tile, COLUMN_TILE, m->columns) - first;
    for (int64_t c = 0; c < m->rank; c++)
        memset(m->right + c * m->columns + first, 0, (size_t)count * sizeof(float));
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t c = 0; c < m->rank; c++)
            add_scaled(m->right + c * m->columns + first, m->values + i * m->columns + first, m->left[c * m->rows + i],
                       count);
    for (int64_t c = 0; c < m->rank; c++)
        round_to_half(m->right + c * m->columns + first, count); /* as it is sent */
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t c = 0; c < m->rank; c++)
            add_scaled(m->values + i * m->columns + first, m->right + c * m->columns + first, -m->left[c * m->rows + i],
                       count);
}

/* out = P Q', and the sum of what that does not say: some rows. */
typedef struct product {
    const matrix *m;
    const float *rest; /* [m n], or NULL */
    float *out;
} product;

static void product_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    const matrix *m = p->m;
    for (int64_t i = tile * ROW_TILE; i < tile_end(tile, ROW_TILE, m->rows); i++) {
        if (p->rest)
            memcpy(p->out + i * m->columns, p->rest + i * m->columns, (size_t)m->columns * sizeof(float));
        else
            memset(p->out + i * m->columns, 0, (size_t)m->columns * sizeof(float));
        for (int64_t c = 0; c < m->rank; c++)
            add_scaled(p->out + i * m->columns, m->right + c * m->columns, m->left[c * m->rows + i], m->columns);
    }
}

/* Takes from a column what it has of those before it, and makes it one long. False: nothing was left. */
static bool column_finish(const matrix *m, int64_t c)
{
    float *column = m->left + c * m->rows;
    float before = sqrtf(dot(column, column, m->rows));
    for (int64_t b = 0; b < 2 * c; b++) { /* twice: the first time leaves rounding errors of what it takes */
        const float *other = m->left + b % c * m->rows;
        add_scaled(column, other, -dot(column, other, m->rows), m->rows);
    }
    float length = sqrtf(dot(column, column, m->rows));
    if (!(length > before * 1e-5f && length > FLT_MIN)) /* rounding errors are no direction */
        return false;
    for (int64_t i = 0; i < m->rows; i++)
        column[i] /= length;
    return true;
}

/* A matrix of a lower rank has no more to say: its columns stay orthonormal with any others. */
static void orthonormalize(compress_powersgd *low, const matrix *m)
{
    for (int64_t c = 0; c < m->rank; c++) {
        if (column_finish(m, c))
            continue;
        draw(m->left + c * m->rows, m->rows, low->redrawn++);
        (void)column_finish(m, c);
    }
}

/* A matrix that was of a lower rank: without this, its new columns would never be seen. */
static void renew_right(compress_powersgd *low, const matrix *m)
{
    for (int64_t c = 0; c < m->rank; c++) {
        float *column = m->right + c * m->columns;
        if (dot(column, column, m->columns) == 0)
            draw(column, m->columns, low->redrawn++);
    }
}

/* --- the legs --- */

static tri_status leg_start(compress_powersgd *low, const float *values, int64_t count)
{
    TRI_TRY(tri_convert(low->halves, TRI_BF16, values, TRI_F32, count));
    tri_group_name_next(low->group, low->name);
    return tri_all_reduce(low->group, low->halves, low->halves, count, TRI_BF16, TRI_REDUCE_SUM, &low->work);
}

static tri_status leg_end(compress_powersgd *low, float *values, int64_t count)
{
    tri_work *work = low->work;
    low->work = NULL;
    TRI_TRY(tri_work_wait(work));
    return tri_convert(values, TRI_F32, low->halves, TRI_BF16, count);
}

static void copy(float *to, const float *from, int64_t count)
{
    if (to)
        memcpy(to, from, (size_t)count * sizeof(float));
}

static tri_status powersgd_send(tri_compress *compress, const float *values)
{
    compress_powersgd *low = tri_container_of(compress, compress_powersgd, base);
    copy(low->values_before, low->values, low->count);
    copy(low->rights_before, low->rights, low->right_count);
    low->redrawn_before = low->redrawn;
    if (low->forgets || low->rest)
        memset(low->values, 0, (size_t)low->count * sizeof(float));
    tri_spans_add(low->spans, low->span_count, values, low->values);
    for (matrix *m = low->matrices; m < low->matrices + low->span_count; m++) {
        renew_right(low, m);
        tri_tiles_run(low->threads, tile_count(m->rows, ROW_TILE), left_tile, m);
    }
    return leg_start(low, low->lefts, low->left_count);
}

static tri_status powersgd_turn(tri_compress *compress)
{
    compress_powersgd *low = tri_container_of(compress, compress_powersgd, base);
    TRI_TRY(leg_end(low, low->lefts, low->left_count));
    for (matrix *m = low->matrices; m < low->matrices + low->span_count; m++) {
        orthonormalize(low, m);
        tri_tiles_run(low->threads, tile_count(m->columns, COLUMN_TILE), right_tile, m);
    }
    TRI_TRY(leg_start(low, low->rights, low->right_count));
    return low->rest ? low->rest->ops->send(low->rest, low->values) : TRI_OK;
}

static tri_status powersgd_turn_again(tri_compress *compress)
{
    compress_powersgd *low = tri_container_of(compress, compress_powersgd, base);
    return low->rest ? low->rest->ops->turn(low->rest) : TRI_OK;
}

static tri_status powersgd_take(tri_compress *compress, float *values)
{
    compress_powersgd *low = tri_container_of(compress, compress_powersgd, base);
    TRI_TRY(leg_end(low, low->rights, low->right_count));
    if (low->rest)
        TRI_TRY(low->rest->ops->take(low->rest, low->values));
    for (int s = 0; s < low->span_count; s++) {
        const matrix *m = &low->matrices[s];
        product p = {m, low->rest ? m->values : NULL, values + low->spans[s].first};
        tri_tiles_run(low->threads, tile_count(p.m->rows, ROW_TILE), product_tile, &p);
    }
    return TRI_OK;
}

static void powersgd_undo(tri_compress *compress)
{
    compress_powersgd *low = tri_container_of(compress, compress_powersgd, base);
    TRI_ASSERT(low->rights_before);
    memcpy(low->rights, low->rights_before, (size_t)low->right_count * sizeof(float));
    if (low->values_before)
        memcpy(low->values, low->values_before, (size_t)low->count * sizeof(float));
    low->redrawn = low->redrawn_before;
    if (low->rest)
        low->rest->ops->undo(low->rest);
}

const tri_compress_ops tri_compress_powersgd = {
    .name = "powersgd",
    .does = "each matrix as a product of two thin ones, the rest in two bits; what is lost is added to the next sum",
    .keeps = true,
    .takes = powersgd_takes,
    .create = powersgd_create,
    .nbytes = powersgd_nbytes,
    .send = powersgd_send,
    .turn = powersgd_turn,
    .turn_again = powersgd_turn_again,
    .take = powersgd_take,
    .undo = powersgd_undo,
    .destroy = powersgd_destroy,
};
