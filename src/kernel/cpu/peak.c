/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c: the most that a processor's multiply-adds give: chains in registers, as many as hide their latency.
 */
#include "base/runtime.h"
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CHAINS     12 /* at least latency x units: 4 x 2 */
#define ROUNDS     1024
#define RUN_ROUNDS 32 /* of ROUNDS, per thread and run: below a millisecond */

/* One call: ROUNDS multiply-adds in each chain; returns a sum, so that nothing is left out. */
typedef struct peak_row {
    float (*run)(float start);
    int lanes;
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

static peak_row row_find(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return (peak_row){run_wide, 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (peak_row){run_avx, 8};
#endif
    return (peak_row){run_plain, 1};
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

double tri_kernel_peak(int threads, double seconds)
{
    peak_arg arg = {.row = row_find()};
    arg.flops = 2.0 * RUN_ROUNDS * ROUNDS * CHAINS * arg.row.lanes;
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    for (int64_t start_ns = tri_now_ns(); (double)(tri_now_ns() - start_ns) < seconds * 1e9;)
        tri_tiles_run(threads, threads, peak_tile, &arg);
    double sum = 0;
    for (int t = 0; t < threads; t++)
        sum += arg.rates[t];
    return sum;
}
