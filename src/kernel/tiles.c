/* SPDX-License-Identifier: Apache-2.0
 *
 * tiles.c: fixed tiles shared out over threads, and the few vector loops that other folders use.
 *
 * The cut into tiles depends on the shape alone; threads only change who computes a tile, so they never change bits.
 */
#include "kernel/kernel.h"

#ifdef _OPENMP
#include <omp.h>
#include <stdatomic.h>

#include "base/log.h"
#endif

#include "kernel/row.h"
#include "kernel/tile_threads.h"

#define MOST_THREADS  64 /* that OMP_NUM_THREADS may ask for whatever the number of cores is, */
#define MOST_PER_CORE 8  /* and for each core: more help nobody, and hundreds of thousands end the process */

#define TILE_COUNT INT64_C(16384) /* elements of one tile of a vector loop */

int tri_tile_worker(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

int tri_tiles_threads(void)
{
#ifdef _OPENMP
    static atomic_bool reported;
    const int asked = omp_get_max_threads(), cores = omp_get_num_procs();
    if (asked <= MOST_THREADS || asked <= MOST_PER_CORE * cores) {
        return asked;
    }
    if (!atomic_exchange(&reported, true)) {
        tri_log(TRI_LOG_WARN, "OMP_NUM_THREADS: %d threads are too many for %d cores: %d are used", asked, cores,
                cores);
    }
    return cores;
#else
    return 1;
#endif
}

#ifdef _OPENMP
#define MAX_RANGES 64

/* Tiles that a thread has left: the first in the low half, the end in the high half. */
typedef struct tile_range {
    _Alignas(64) _Atomic uint64_t left;
} tile_range;

/* A tile of the range, from its front or its back; -1: none is left. */
static int64_t take_tile(tile_range *range, bool front)
{
    uint64_t left = atomic_load_explicit(&range->left, memory_order_relaxed), rest;
    do {
        if ((uint32_t)left >= left >> 32)
            return -1;
        rest = front ? left + 1 : left - (UINT64_C(1) << 32);
    } while (
        !atomic_compare_exchange_weak_explicit(&range->left, &left, rest, memory_order_relaxed, memory_order_relaxed));
    return front ? (int64_t)(uint32_t)left : (int64_t)(rest >> 32);
}

static void run_ranges(tile_range *ranges, int count, int own, tri_tile_fn body, void *arg)
{
    for (int i = 0; i < count; i++) {
        tile_range *range = &ranges[(own + i) % count];
        for (int64_t tile; (tile = take_tile(range, i == 0)) >= 0;) {
            body(arg, tile);
        }
    }
}
#endif

/* Each thread begins with its own share, the same one in every call, so that what it wrote last is in its own cache;
 * who is done takes from the back of the others. */
void tri_tiles_run(int threads, int64_t tile_count, tri_tile_fn body, void *arg)
{
#ifdef _OPENMP
    threads = tri_tiles_tuned(threads);
    if (threads > 1 && tile_count > 1 && tile_count < UINT32_MAX) {
        tile_range ranges[MAX_RANGES];
        const int count = threads < MAX_RANGES ? threads : MAX_RANGES;
        for (int i = 0; i < count; i++) {
            const uint64_t first = (uint64_t)(tile_count * i / count), end = (uint64_t)(tile_count * (i + 1) / count);
            atomic_init(&ranges[i].left, first | end << 32);
        }
#pragma omp parallel num_threads(threads)
        run_ranges(ranges, count, omp_get_thread_num() % count, body, arg);
        return;
    }
#else
    (void)threads;
#endif
    for (int64_t tile = 0; tile < tile_count; tile++) {
        body(arg, tile);
    }
}

TRI_CLONES static void add_slice(float *out, const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = a[i] + b[i];
    }
}

typedef struct add_arg {
    float *out;
    const float *a, *b;
    int64_t count;
} add_arg;

static void add_tile(void *arg, int64_t tile)
{
    const add_arg *v = arg;
    const int64_t first = tile * TILE_COUNT;
    add_slice(v->out + first, v->a + first, v->b + first, tri_int64_min(TILE_COUNT, v->count - first));
}

void tri_vector_add(int threads, float *out, const float *a, const float *b, int64_t count)
{
    add_arg arg = {out, a, b, count};
    tri_tiles_run(threads, tri_int64_ceil(count, TILE_COUNT), add_tile, &arg);
}

#define LANES 16

/* Lanes of fixed stride, then a tree over the lanes: the same order in every instruction set. */
TRI_CLONES static double square_sum(const float *x, int64_t count)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)x[i + j] * (double)x[i + j];
        }
    }
    for (int j = 0; i + j < count; j++) {
        lane[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int step = LANES / 2; step > 0; step /= 2) {
        for (int j = 0; j < step; j++) {
            lane[j] += lane[j + step];
        }
    }
    return lane[0];
}

typedef struct square_arg {
    const float *x;
    int64_t count;
    double *blocks;
} square_arg;

static void square_tile(void *arg, int64_t tile)
{
    const square_arg *v = arg;
    const int64_t first = tile * TRI_NORM_BLOCK;
    v->blocks[tile] = square_sum(v->x + first, tri_int64_min(TRI_NORM_BLOCK, v->count - first));
}

void tri_vector_square_blocks(int threads, const float *x, int64_t count, double *blocks)
{
    square_arg arg = {x, count, blocks};
    tri_tiles_run(threads, tri_int64_ceil(count, TRI_NORM_BLOCK), square_tile, &arg);
}

double tri_vector_tree_sum(double *blocks, int64_t count)
{
    if (count <= 0) {
        return 0;
    }
    for (int64_t step = 1; step < count; step *= 2) {
        for (int64_t i = 0; i + step < count; i += 2 * step) {
            blocks[i] += blocks[i + step];
        }
    }
    return blocks[0];
}

#define LEAF_TILE INT64_C(1024) /* elements: 8 leaves of a tile fit in L1 */

typedef struct leaves_arg {
    const tri_op_call *call;
    int p; /* -1: sums stay in the leaves */
    bool adds;
    float *leaves;
    int64_t stride, count;
} leaves_arg;

static void leaves_tile(void *arg, int64_t tile)
{
    const leaves_arg *v = arg;
    const int64_t first = tile * LEAF_TILE, count = tri_int64_min(LEAF_TILE, v->count - first);
    for (int part = 0; part < v->call->part_count; part++) {
        const tri_tree_part range = v->call->parts[part];
        float *leaf = v->leaves + range.first * v->stride + first;
        float *gradient = v->p >= 0 ? v->call->dparam[v->p][part] + first : leaf;
        float *out = v->adds ? leaf : gradient;
        for (int64_t step = 1; step < range.count; step *= 2) {
            for (int64_t i = 0; i + step < range.count; i += 2 * step) {
                float *into = leaf + i * v->stride;
                add_slice(2 * step >= range.count ? out : into, into, into + step * v->stride, count);
            }
        }
        if (range.count == 1 && out != leaf) {
            memcpy(out, leaf, (size_t)count * sizeof(float));
        }
        if (v->adds) {
            add_slice(gradient, gradient, leaf, count);
        }
    }
}

void tri_leaves_sum(const tri_kernel *kernel, const tri_op_call *call, int p, float *leaves, int64_t stride,
                    int64_t count)
{
    if (!tri_call_wants_dparam(call, p)) {
        return;
    }
    leaves_arg arg = {call, p, kernel->desc.adds, leaves, stride, count};
    tri_tiles_run(kernel->desc.threads, tri_int64_ceil(count, LEAF_TILE), leaves_tile, &arg);
}

void tri_doubles_tree_sum(double *leaves, int shards, int64_t count)
{
    int half = 1;
    if (shards < 2) {
        return;
    }
    while (2 * half < shards) {
        half *= 2;
    }
    double *right = leaves + half * count;
    tri_doubles_tree_sum(leaves, half, count);
    tri_doubles_tree_sum(right, shards - half, count);
    for (int64_t i = 0; i < count; i++) {
        leaves[i] += right[i];
    }
}

void tri_batch_sum(const tri_op_call *call, double *leaves, int64_t count)
{
    tri_op_batch *batch = call->batch;
    if (batch == NULL || batch->sum == NULL) {
        tri_doubles_tree_sum(leaves, call->shards, count);
    } else if (batch->status == TRI_OK) {
        batch->status = batch->sum(batch->arg, leaves, call->shards, count);
    }
}

void tri_leaves_fold(const tri_kernel *kernel, const tri_op_call *call, float *leaves, int64_t stride)
{
    leaves_arg arg = {call, -1, false, leaves, stride, stride};
    tri_tiles_run(kernel->desc.threads, tri_int64_ceil(stride, LEAF_TILE), leaves_tile, &arg);
}
