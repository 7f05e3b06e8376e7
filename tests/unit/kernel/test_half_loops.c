/* SPDX-License-Identifier: Apache-2.0
 *
 * test_half_loops.c: each set of loops over bf16 against the formulas in double, at all lengths; nothing behind the end
 * is touched.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernel/cpu/half_loops.h"
#include "kernel/half.h"
#include "tensor/half.h"

#define ROOM    160 /* elements of a row and what lies behind it */
#define LONGEST 100
#define BEHIND  0x7e57
#define NEAR    6e-3 /* a rounding to bf16, and its neighbour where a sum falls on the other side */

static int sets(const tri_half_loops *list[2])
{
    int count = 0;
    list[count++] = &tri_half_loops_plain;
    if (tri_half_loops_find() != list[0]) {
        list[count++] = tri_half_loops_find();
    }
    return count;
}

/* Numbers of either sign, the same in each run; bf16 has them. */
static float number(int64_t i)
{
    return half_from_bf16(half_to_bf16(3.0f * sinf(1.7f * (float)i + 0.3f)));
}

static void halves_fill(uint16_t *to, int64_t count, int64_t salt)
{
    for (int64_t i = 0; i < ROOM; i++) {
        to[i] = i < count ? half_to_bf16(number(i + salt)) : BEHIND;
    }
}

static void floats_fill(float *to, int64_t salt)
{
    for (int64_t i = 0; i < ROOM; i++) {
        to[i] = number(i + salt);
    }
}

static void expect(const char *set, const char *what, double got, double want, double near)
{
    if (!(fabs(got - want) <= near * (1.0 + fabs(want)))) {
        fail_msg("%s: %s: got %g, want %g", set, what, got, want);
    }
}

static void expect_row(const char *set, const char *what, const uint16_t *got, const double *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        expect(set, what, (double)half_from_bf16(got[i]), want[i], NEAR);
    }
    for (int64_t i = count; i < ROOM; i++) {
        assert_int_equal(got[i], BEHIND);
    }
}

static void check_gelu(const tri_half_loops *loops, int64_t count)
{
    uint16_t x[ROOM], dy[ROOM], y[ROOM];
    double want[ROOM], slope[ROOM];
    halves_fill(x, count, 1);
    halves_fill(dy, count, 2);
    halves_fill(y, 0, 0);
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)number(i + 1), root = 0.7978845608028654,
                     inside = tanh(root * (v + 0.044715 * v * v * v));
        want[i] = 0.5 * v * (1 + inside);
        slope[i] = (double)number(i + 2) *
                   (0.5 * (1 + inside) + 0.5 * v * (1 - inside * inside) * root * (1 + 3 * 0.044715 * v * v));
    }
    loops->gelu(y, x, count);
    expect_row(loops->name, "gelu", y, want, count);
    loops->gelu_back(dy, x, dy, count);
    expect_row(loops->name, "gelu_back", dy, slope, count);
}

static void check_norm(const tri_half_loops *loops, int64_t count)
{
    uint16_t x[ROOM], dy[ROOM], y[ROOM];
    float scale[ROOM], shift[ROOM], grown[2][ROOM] = {{0}}, figures[2];
    double want[ROOM], slope[ROOM], mean = 0, square = 0, base = 0, lean = 0;
    halves_fill(x, count, 3);
    halves_fill(dy, count, 4);
    halves_fill(y, 0, 0);
    floats_fill(scale, 5);
    floats_fill(shift, 6);
    for (int64_t i = 0; i < count; i++) {
        mean += (double)number(i + 3) / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        square += ((double)number(i + 3) - mean) * ((double)number(i + 3) - mean) / (double)count;
    }
    const double rstd = 1 / sqrt(square + 0.5);
    for (int64_t i = 0; i < count; i++) {
        want[i] = ((double)number(i + 3) - mean) * rstd * (double)scale[i] + (double)shift[i];
        base += (double)number(i + 4) * (double)scale[i] / (double)count;
        lean += (double)number(i + 4) * (double)scale[i] * ((double)number(i + 3) - mean) * rstd / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        slope[i] =
            rstd * ((double)number(i + 4) * (double)scale[i] - base - ((double)number(i + 3) - mean) * rstd * lean);
    }
    loops->norm(y, x, scale, shift, 0.5f, figures, count);
    expect_row(loops->name, "norm", y, want, count);
    expect(loops->name, "mean", (double)figures[0], mean, 1e-5);
    expect(loops->name, "rstd", (double)figures[1], rstd, 1e-5);
    for (int twice = 0; twice < 2; twice++) {
        loops->norm_back(twice ? dy : NULL, grown[0], grown[1], dy, x, scale, figures, count);
    }
    expect_row(loops->name, "norm_back", dy, slope, count);
    for (int64_t i = 0; i < ROOM; i++) {
        const double g = i < count ? 2 * (double)number(i + 4) : 0;
        expect(loops->name, "dscale", (double)grown[0][i], g * ((double)number(i + 3) - mean) * rstd, 1e-4);
        expect(loops->name, "dshift", (double)grown[1][i], g, 1e-5);
    }
}

/* Lanes behind `valid` are zeros, whatever lay there. */
static void check_weights(const tri_half_loops *loops, int64_t valid)
{
    float s[ROOM];
    uint16_t w[ROOM];
    double want[ROOM] = {0}, sum = 0;
    const int64_t end = (valid + 20 + 15) / 16 * 16;
    floats_fill(s, 7);
    s[valid] = NAN;
    halves_fill(w, 0, 0);
    for (int64_t i = 0; i < valid; i++) {
        want[i] = exp((double)s[i] * 0.25 - 0.4);
        sum += want[i];
    }
    expect(loops->name, "sum", (double)loops->weights(w, s, 0.25f, 0.4f, valid, valid + 20), sum, 1e-5);
    expect_row(loops->name, "weights", w, want, end);
}

/* Two rows of different lengths, as the diagonal cuts them. */
static void check_weights_back(const tri_half_loops *loops, int64_t valid)
{
    float s[2 * ROOM], d[2 * ROOM];
    uint16_t ds[2][ROOM];
    uint32_t p_pairs[ROOM], ds_pairs[ROOM];
    floats_fill(s, 8);
    floats_fill(s + ROOM, 9);
    floats_fill(d, 10);
    floats_fill(d + ROOM, 11);
    s[valid] = NAN;
    loops->weights_back(&(tri_half_rows){.s = s,
                                         .d = d,
                                         .ds = ds[0],
                                         .p_pairs = p_pairs,
                                         .ds_pairs = ds_pairs,
                                         .stride = ROOM,
                                         .scale = 0.25f,
                                         .log_sum = {0.5f, 0.75f},
                                         .mean = {0.125f, -0.5f},
                                         .valid = {valid, valid + 1},
                                         .count = valid + 20});
    for (int row = 0; row < 2; row++) {
        for (int64_t i = 0; i < valid + 20; i++) {
            const double at = (double)s[row * ROOM + i], lean = (double)d[row * ROOM + i] - (row ? -0.5 : 0.125);
            const double p = i < valid + row ? exp(at * 0.25 - (row ? 0.75 : 0.5)) : 0;
            const double g = i < valid + row ? p * lean * 0.25 : 0;
            expect(loops->name, "p", (double)half_from_bf16((uint16_t)(p_pairs[i] >> 16 * row)), p, NEAR);
            expect(loops->name, "ds", (double)half_from_bf16(ds[row][i]), g, NEAR);
            assert_int_equal((uint16_t)(ds_pairs[i] >> 16 * row), ds[row][i]);
        }
    }
}

/* Rows of 37 floats, of which the panel takes `count`, `k` elements each. */
static void check_packing(const tri_half_loops *loops, int64_t count, int64_t k)
{
    enum { NR = 32, STRIDE = 111 };
    static float src[NR * STRIDE];
    static uint32_t to[LONGEST * NR + 4], pair[ROOM];
    for (int64_t i = 0; i < NR * STRIDE; i++) {
        src[i] = number(i);
    }
    memset(to, 0x55, sizeof to);
    memset(pair, 0x55, sizeof pair);
    loops->turn_floats(to, src, k, count, STRIDE, NR);
    for (int64_t p = 0; p < (k + 1) / 2; p++) {
        for (int64_t j = 0; j < NR; j++) {
            const uint16_t low = j < count ? half_to_bf16(src[j * STRIDE + 2 * p]) : 0;
            const uint16_t high = j < count && 2 * p + 1 < k ? half_to_bf16(src[j * STRIDE + 2 * p + 1]) : 0;
            assert_int_equal(to[p * NR + j], (uint32_t)low | (uint32_t)high << 16);
        }
    }
    assert_int_equal(to[(k + 1) / 2 * NR], 0x55555555);
    for (int both = 0; both < 2; both++) {
        loops->pair_floats(pair, src, both ? src + STRIDE : NULL, count);
        for (int64_t i = 0; i < count; i++) {
            const uint32_t high = both ? half_to_bf16(src[STRIDE + i]) : 0;
            assert_int_equal(pair[i], (uint32_t)half_to_bf16(src[i]) | high << 16);
        }
        assert_int_equal(pair[count], 0x55555555);
    }
}

static void check_parts(const tri_half_loops *loops, int64_t count, int64_t width)
{
    uint16_t low[ROOM], high[ROOM];
    uint32_t to[4 * ROOM];
    const int64_t step = width + 7;
    memset(to, 0x55, sizeof to);
    halves_fill(low, count, 12);
    halves_fill(high, count, 13);
    loops->pair_parts(to, low, high, step, count, width);
    for (int64_t i = 0; i < count / width * width; i++) {
        assert_int_equal(to[i / width * step + i % width], (uint32_t)low[i] | (uint32_t)high[i] << 16);
        assert_int_equal(to[i / width * step + width], 0x55555555);
    }
}

static void check_sums(const tri_half_loops *loops, int64_t count)
{
    uint16_t a[ROOM], b[ROOM], y[ROOM];
    float x[ROOM], top = -INFINITY;
    double sum = 0, scaled[ROOM];
    halves_fill(a, count, 14);
    halves_fill(b, count, 15);
    halves_fill(y, 0, 0);
    floats_fill(x, 16);
    for (int64_t i = 0; i < count; i++) {
        sum += (double)number(i + 14) * (double)number(i + 15);
        top = fmaxf(top, x[i]);
        scaled[i] = 0.3 * (double)x[i];
    }
    expect(loops->name, "product", (double)loops->product(a, b, count), sum, 1e-5);
    assert_true(loops->top(x, count) == top);
    loops->scale(y, x, 0.3f, count);
    expect_row(loops->name, "scale", y, scaled, count);
    loops->add(x, a, count);
    loops->blend(a, 0.3f, -1.5f, count);
    for (int64_t i = 0; i < ROOM; i++) {
        expect(loops->name, "add", (double)x[i], (double)(number(i + 16) + (i < count ? number(i + 14) : 0)), 1e-6);
        scaled[i] = 0.3 * (double)number(i + 14) - 1.5;
    }
    expect_row(loops->name, "blend", a, scaled, count);
}

static void loops_do_what_their_formulas_say_at_all_lengths(void **state)
{
    (void)state;
    const tri_half_loops *list[2];
    for (int set = sets(list) - 1; set >= 0; set--) {
        for (int64_t count = 1; count <= LONGEST; count++) {
            check_gelu(list[set], count);
            check_norm(list[set], count);
            check_weights(list[set], count);
            check_weights_back(list[set], count);
            check_packing(list[set], (count - 1) % 32 + 1, count);
            check_parts(list[set], count, 12);
            check_parts(list[set], count, 32);
            check_sums(list[set], count);
        }
    }
}

/* exp saturates, and NaN stays NaN. */
static void gelu_of_what_is_no_number_or_too_large(void **state)
{
    (void)state;
    const tri_half_loops *list[2];
    const float in[] = {NAN, INFINITY, 1e30f, -1e30f, 30.0f, -30.0f, 0.0f},
                want[] = {NAN, INFINITY, 1e30f, 0, 30.0f, 0, 0};
    for (int set = sets(list) - 1; set >= 0; set--) {
        for (size_t i = 0; i < TRI_COUNT_OF(in); i++) {
            uint16_t x = half_to_bf16(in[i]), y;
            list[set]->gelu(&y, &x, 1);
            const float got = half_from_bf16(y);
            assert_true(isnan(want[i])   ? isnan(got)
                        : isinf(want[i]) ? got == want[i]
                                         : fabsf(got - want[i]) <= 0.01f * fabsf(want[i]) + 1e-6f);
        }
    }
}

/* All of f16 there is, and numbers of every size and sign: the bits of the plain formulas, subnormal ones and NaN too.
 */
static void f16_is_the_same_by_any_instructions(void **state)
{
    (void)state;
    enum { COUNT = 65536 };
    uint16_t *half = malloc(COUNT * sizeof(uint16_t)), *back = malloc(COUNT * sizeof(uint16_t));
    float *wide = malloc(COUNT * sizeof(float));
    for (int i = 0; i < COUNT; i++) {
        half[i] = (uint16_t)i;
    }
    tri_half_widen_all(2, TRI_F16, wide, half, COUNT - 1); /* an odd length: both bodies */
    for (int i = 0; i < COUNT - 1; i++) {
        const float want = half_from_f16(half[i]);
        assert_memory_equal(&wide[i], &want, sizeof want);
    }
    for (uint32_t round = 0; round < 64; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            wide[i] = half_float((i << 16 | i) * 2654435761u + round * 40503u);
        }
        tri_half_round_all(2, TRI_F16, half, wide, COUNT - 1);
        for (int i = 0; i < COUNT - 1; i++) {
            assert_int_equal(half[i], half_to_f16(wide[i]));
        }
    }
    for (int i = 0; i < COUNT; i++) {
        half[i] = half_to_f16((float)i / 1000);
    }
    tri_vector_add_half(2, TRI_F16, back, half, half, COUNT - 1);
    for (int i = 0; i < COUNT - 1; i++) {
        assert_int_equal(back[i], half_to_f16(2 * half_from_f16(half[i])));
    }
    free(half);
    free(back);
    free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_do_what_their_formulas_say_at_all_lengths),
        cmocka_unit_test(gelu_of_what_is_no_number_or_too_large),
        cmocka_unit_test(f16_is_the_same_by_any_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
