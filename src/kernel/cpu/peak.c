/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c: the most that a processor's multiply-adds give: chains in registers, as many as hide their latency. For bf16
 * they are the instructions of the tiles that multiply here (gemm_half.h).
 */
#include "base/runtime.h"
#include "kernel/cpu/gemm_half.h"
#include "kernel/isa.h"
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CHAINS     12 /* at least latency x units: 4 x 2 */
#define ROUNDS     1024
#define RUN_ROUNDS 32 /* of ROUNDS, per thread and run: below a millisecond */

/* One call: ROUNDS instructions in each chain; returns a sum, so that nothing is left out. */
typedef struct peak_row {
    float (*run)(float start);
    double multiply_adds; /* of one round */
} peak_row;

static float run_plain(float start)
{
    float chain[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        chain[c] = start + (float)c;
    for (int i = 0; i < ROUNDS; i++)
        for (int c = 0; c < CHAINS; c++)
            chain[c] = chain[c] * 0.999f + 0.001f;
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += chain[c];
    return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static float run_avx(float start)
{
    __m256 chain[CHAINS], scale = _mm256_set1_ps(0.999f), shift = _mm256_set1_ps(0.001f);
    for (int c = 0; c < CHAINS; c++)
        chain[c] = _mm256_set1_ps(start + (float)c);
    for (int i = 0; i < ROUNDS; i++)
        for (int c = 0; c < CHAINS; c++)
            chain[c] = _mm256_fmadd_ps(chain[c], scale, shift);
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += _mm256_cvtss_f32(chain[c]);
    return sum;
}

__attribute__((target("avx512f"))) static float run_wide(float start)
{
    __m512 chain[CHAINS], scale = _mm512_set1_ps(0.999f), shift = _mm512_set1_ps(0.001f);
    for (int c = 0; c < CHAINS; c++)
        chain[c] = _mm512_set1_ps(start + (float)c);
    for (int i = 0; i < ROUNDS; i++)
        for (int c = 0; c < CHAINS; c++)
            chain[c] = _mm512_fmadd_ps(chain[c], scale, shift);
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += _mm512_cvtss_f32(chain[c]);
    return sum;
}
#endif

#ifdef TRI_HAVE_X86
__attribute__((target("avx512f,avx512bf16"))) static float run_pairs(float start)
{
    __m512 chain[CHAINS];
    const __m512bh left = (__m512bh)_mm512_set1_ps(start), right = (__m512bh)_mm512_set1_ps(0.001f);
    for (int c = 0; c < CHAINS; c++)
        chain[c] = _mm512_set1_ps(start + (float)c);
    for (int i = 0; i < ROUNDS; i++)
        for (int c = 0; c < CHAINS; c++)
            chain[c] = _mm512_dpbf16_ps(chain[c], left, right);
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += _mm512_cvtss_f32(chain[c]);
    return sum;
}

/* Four tiles of sums: one instruction takes 16 cycles, its result about 50. */
__attribute__((target("amx-tile,amx-bf16"))) static float run_tiles(float start)
{
    float sums[16 * 16] = {start};
    tri_gemm_enter(&tri_gemm_amx);
    _tile_loadd(0, sums, 64);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, sums, 64);
    _tile_loadd(6, sums, 64);
    for (int i = 0; i < ROUNDS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 6);
    }
    _tile_stored(0, sums, 64);
    tri_gemm_leave(&tri_gemm_amx);
    return sums[0];
}
#endif

static peak_row row_find(tri_dtype precision)
{
#ifdef TRI_HAVE_X86
    const tri_gemm_ops *pairs = precision == TRI_BF16 ? tri_gemm_half_find() : NULL;
    if (pairs == &tri_gemm_amx)
        return (peak_row){run_tiles, 4.0 * 16 * 16 * 32};
    if (pairs == &tri_gemm_bf16)
        return (peak_row){run_pairs, 32.0 * CHAINS};
#else
    (void)precision;
#endif
#if defined(__x86_64__)
    if (tri_isa_now() >= TRI_ISA_AVX512)
        return (peak_row){run_wide, 16.0 * CHAINS};
    if (tri_isa_now() == TRI_ISA_AVX2)
        return (peak_row){run_avx, 8.0 * CHAINS};
#endif
    return (peak_row){run_plain, CHAINS};
}

#define MAX_THREADS 1024

typedef struct peak_arg {
    peak_row row;
    double flops;              /* of a run */
    double rates[MAX_THREADS]; /* the best of each tile */
    float sums[MAX_THREADS];
} peak_arg;

/* Each thread times itself: one that has to wait for a core in one run is quick in another. */
static void peak_tile(void *arg, int64_t tile)
{
    peak_arg *peak = arg;
    int64_t start_ns = tri_now_ns();
    for (int i = 0; i < RUN_ROUNDS; i++)
        peak->sums[tile] += peak->row.run((float)i);
    int64_t passed_ns = tri_now_ns() - start_ns;
    double rate = peak->flops / ((double)(passed_ns > 0 ? passed_ns : 1) / 1e9);
    peak->rates[tile] = rate > peak->rates[tile] ? rate : peak->rates[tile];
}

double tri_kernel_peak(tri_dtype precision, int threads, double seconds)
{
    peak_arg arg = {.row = row_find(precision)};
    arg.flops = 2.0 * RUN_ROUNDS * ROUNDS * arg.row.multiply_adds;
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    for (int64_t start_ns = tri_now_ns(); (double)(tri_now_ns() - start_ns) < seconds * 1e9;)
        tri_tiles_run(threads, threads, peak_tile, &arg);
    double sum = 0;
    for (int t = 0; t < threads; t++)
        sum += arg.rates[t];
    return sum;
}
