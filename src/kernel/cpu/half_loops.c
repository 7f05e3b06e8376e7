/* SPDX-License-Identifier: Apache-2.0
 *
 * half_loops.c: the plain set of half_loops.h, and the choice.
 */
#include "kernel/cpu/half_loops.h"

#include "kernel/cpu/gemm.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"
#include "kernel/half.h"
#include "kernel/isa.h"
#include "tensor/half.h"
#include "tensor/loops.h"

#define LANES 16

const tri_half_loops *tri_half_loops_find(void)
{
#ifdef TRI_HAVE_X86
    if (tri_isa_now() >= TRI_ISA_AVX512_BF16) {
        return &tri_half_loops_bf16;
    }
#endif
    return &tri_half_loops_plain;
}

TRI_CLONES static void scale_row(uint16_t *to, const float *from, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = half_to_bf16(from[i] * factor);
    }
}

TRI_CLONES static void blend_row(uint16_t *x, float factor, float shift, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] = half_to_bf16(half_from_bf16(x[i]) * factor + shift);
    }
}

TRI_CLONES static void add_row(float *sum, const uint16_t *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        sum[i] += half_from_bf16(x[i]);
    }
}

TRI_CLONES static void pair_floats(uint32_t *to, const float *low, const float *high, int64_t count)
{
    if (high == NULL) {
        for (int64_t i = 0; i < count; i++) {
            to[i] = half_to_bf16(low[i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        to[i] = (uint32_t)half_to_bf16(low[i]) | (uint32_t)half_to_bf16(high[i]) << 16;
    }
}

#define CHUNK 128 /* of k, even */

/* Rows of src are rounded a chunk at a time, then turned. */
static void turn_floats(uint32_t *to, const float *src, int64_t k, int64_t count, int64_t n_step, int64_t nr)
{
    uint16_t chunk[TRI_GEMM_MAX_NR][CHUNK];
    const tri_gemm_ops panel = {.nr = (int)nr};
    for (int64_t first = 0; first < k; first += CHUNK) {
        const int64_t len = tri_int64_min(CHUNK, k - first);
        for (int64_t j = 0; j < count; j++) {
            tri_half_round(chunk[j], src + j * n_step + first, len);
            if (len % 2 != 0) {
                chunk[j][len] = 0;
            }
        }
        tri_gemm_pack(&panel, (float *)(void *)(to + first / 2 * nr), (const float *)(const void *)chunk, (len + 1) / 2,
                      count, 1, CHUNK / 2, 0);
    }
}

#define PARTS(width)                                                                                                   \
    for (int64_t part = 0; part < count / (width); part++) {                                                           \
        for (int64_t i = 0; i < (width); i++) {                                                                        \
            const int64_t at = part * (width) + i;                                                                     \
            to[part * step + i] = (uint32_t)low[at] | (uint32_t)high[at] << 16;                                        \
        }                                                                                                              \
    }

TRI_CLONES static void pair_parts(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t step, int64_t count,
                                  int64_t width)
{
    if (width == 32) {
        PARTS(32)
    } else {
        PARTS(width)
    }
}

TRI_CLONES static float weights_row(uint16_t *w, const float *s, float scale, float top, int64_t valid, int64_t count)
{
    float lane[LANES] = {0};
    int64_t first = 0;
    for (; first < valid; first += LANES) {
        for (int j = 0; j < LANES; j++) {
            const float e = tri_choose(j < (int)(valid - first), tri_exp(s[first + j] * scale - top), 0.0f);
            lane[j] += e;
            w[first + j] = half_to_bf16(e);
        }
    }
    for (; first < count; first += LANES) {
        for (int j = 0; j < LANES; j++) {
            w[first + j] = 0;
        }
    }
    return tri_row_lanes_sum(lane);
}

/* exp(s scale - log_sum) where the place is valid, else 0 */
static inline __attribute__((always_inline)) float weight_of(float s, float scale, float log_sum, bool valid)
{
    return tri_choose(valid, tri_exp(s * scale - log_sum), 0.0f);
}

TRI_CLONES static void weights_back(const tri_half_rows *v)
{
    const float *s = v->s, *d = v->d, scale = v->scale;
    const float low_sum = v->log_sum[0], high_sum = v->log_sum[1], low_mean = v->mean[0], high_mean = v->mean[1];
    const int64_t next = v->stride;
    uint16_t *low_ds = v->ds, *high_ds = v->ds + next;
    uint32_t *p_pairs = v->p_pairs, *ds_pairs = v->ds_pairs;
    const int64_t end = tri_int64_max(v->valid[0], v->valid[1]);
    int64_t first = 0;
    for (; first < end; first += LANES) {
        const int low = (int)(v->valid[0] - first), high = (int)(v->valid[1] - first);
        for (int j = 0; j < LANES; j++) {
            const int64_t i = first + j;
            const float p = weight_of(s[i], scale, low_sum, j < low);
            const float q = weight_of(s[next + i], scale, high_sum, j < high);
            const uint16_t dp = half_to_bf16(tri_choose(j < low, p * (d[i] - low_mean) * scale, 0.0f));
            const uint16_t dq = half_to_bf16(tri_choose(j < high, q * (d[next + i] - high_mean) * scale, 0.0f));
            p_pairs[i] = (uint32_t)half_to_bf16(p) | (uint32_t)half_to_bf16(q) << 16;
            ds_pairs[i] = (uint32_t)dp | (uint32_t)dq << 16;
            low_ds[i] = dp;
            high_ds[i] = dq;
        }
    }
    for (; first < v->count; first += LANES) {
        for (int j = 0; j < LANES; j++) {
            p_pairs[first + j] = 0;
            ds_pairs[first + j] = 0;
            low_ds[first + j] = 0;
            high_ds[first + j] = 0;
        }
    }
}

TRI_CLONES static float product(const uint16_t *a, const uint16_t *b,
                                int64_t count){TRI_ROW_SUM_BODY(half_from_bf16(a[i]) * half_from_bf16(b[i]))}

/* Formulas of some length run in f32 between two conversions: with 16 bits in a loop compilers take narrower vectors.
 */
#define GELU_CHUNK INT64_C(1024)

TRI_CLONES static void gelu_slice(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] *= tri_gelu_gate(x[i]);
    }
}

static void gelu(uint16_t *y, const uint16_t *x, int64_t count)
{
    float chunk[GELU_CHUNK];
    for (int64_t i = 0; i < count; i += GELU_CHUNK) {
        const int64_t n = tri_int64_min(GELU_CHUNK, count - i);
        tri_half_widen(chunk, x + i, n);
        gelu_slice(chunk, n);
        tri_half_round(y + i, chunk, n);
    }
}

TRI_CLONES static void gelu_slope_slice(float *x, const float *dy, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] = dy[i] * tri_gelu_slope(x[i]);
    }
}

static void gelu_back(uint16_t *dx, const uint16_t *x, const uint16_t *dy, int64_t count)
{
    float chunk[GELU_CHUNK], slope[GELU_CHUNK];
    for (int64_t i = 0; i < count; i += GELU_CHUNK) {
        const int64_t n = tri_int64_min(GELU_CHUNK, count - i);
        tri_half_widen(slope, x + i, n);
        tri_half_widen(chunk, dy + i, n);
        gelu_slope_slice(slope, chunk, n);
        tri_half_round(dx + i, slope, n);
    }
}

TRI_CLONES static float row_sum(const uint16_t *x, int64_t count){TRI_ROW_SUM_BODY(half_from_bf16(x[i]))}

TRI_CLONES static float row_squares(const uint16_t *x, float mean, int64_t count){
    TRI_ROW_SUM_BODY((half_from_bf16(x[i]) - mean) * (half_from_bf16(x[i]) - mean))}

TRI_CLONES static void norm_map(uint16_t *y, const uint16_t *x, const float *scale, const float *shift, float mean,
                                float rstd, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = half_to_bf16((half_from_bf16(x[i]) - mean) * rstd * scale[i] + shift[i]);
    }
}

static void norm(uint16_t *y, const uint16_t *x, const float *scale, const float *shift, float epsilon, float *figures,
                 int64_t count)
{
    figures[0] = row_sum(x, count) / (float)count;
    figures[1] = 1.0f / sqrtf(row_squares(x, figures[0], count) / (float)count + epsilon);
    norm_map(y, x, scale, shift, figures[0], figures[1], count);
}

TRI_CLONES static float row_base(const uint16_t *dy, const float *scale,
                                 int64_t count){TRI_ROW_SUM_BODY(half_from_bf16(dy[i]) * scale[i])}

TRI_CLONES static float row_lean(const uint16_t *dy, const uint16_t *x, const float *scale, float mean, int64_t count){
    TRI_ROW_SUM_BODY(half_from_bf16(dy[i]) * scale[i] * (half_from_bf16(x[i]) - mean))}

TRI_CLONES static void norm_grow(float *dscale, float *dshift, const uint16_t *dy, const uint16_t *x, float mean,
                                 float rstd, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        dscale[i] += half_from_bf16(dy[i]) * ((half_from_bf16(x[i]) - mean) * rstd);
        dshift[i] += half_from_bf16(dy[i]);
    }
}

/* figure: mean, rstd, base, lean */
TRI_CLONES static void norm_slope(uint16_t *dx, const uint16_t *dy, const uint16_t *x, const float *scale,
                                  const float *figure, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        dx[i] = half_to_bf16(figure[1] * (half_from_bf16(dy[i]) * scale[i] - figure[2] -
                                          (half_from_bf16(x[i]) - figure[0]) * figure[3]));
    }
}

static void norm_back(uint16_t *dx, float *dscale, float *dshift, const uint16_t *dy, const uint16_t *x,
                      const float *scale, const float *figures, int64_t count)
{
    const float mean = figures[0], rstd = figures[1], n = (float)count;
    norm_grow(dscale, dshift, dy, x, mean, rstd, count);
    if (dx != NULL) {
        const float lean = row_lean(dy, x, scale, mean, count) * rstd * rstd / n;
        norm_slope(dx, dy, x, scale, (const float[]){mean, rstd, row_base(dy, scale, count) / n, lean}, count);
    }
}

const tri_half_loops tri_half_loops_plain = {
    .name = "plain",
    .scale = scale_row,
    .blend = blend_row,
    .add = add_row,
    .pair_floats = pair_floats,
    .turn_floats = turn_floats,
    .pair_parts = pair_parts,
    .top = tri_row_max,
    .weights = weights_row,
    .weights_back = weights_back,
    .product = product,
    .gelu = gelu,
    .gelu_back = gelu_back,
    .norm = norm,
    .norm_back = norm_back,
};
