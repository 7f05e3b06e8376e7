/* SPDX-License-Identifier: Apache-2.0
 *
 * test_flat.c: flat stores on the emulator: kernels against the loops of the CPU, under seeded schedules; and the
 * emulator itself: it refuses what no card runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "gpu/emulator.h"
#include "gpu/faulty.h"
#include "gpu/mma.h"
#include "kernel/digest.h"
#include "kernel/gpu/flat.h"
#include "kernel/gpu/math.h"
#include "kernel/kernel.h"
#include "optim/step.h"
#include "tensor/half.h"

#define COUNT 4999

static float *normal(uint64_t stream, int64_t count)
{
    float *x = tri_alloc_bulk((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = tri_rng_normal((tri_rng){1, stream}, (uint64_t)i);
    }
    return x;
}

static tri_gpu_value f32(const void *data)
{
    return tri_gpu_value_make(data, TRI_F32);
}

static void expect_bits(const char *what, const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0) {
            fail_msg("%s[%lld]: want the bits of %.9g, got %.9g", what, (long long)i, (double)want[i], (double)got[i]);
        }
    }
}

static void arrays_are_filled_cast_and_added(void **state)
{
    (void)state;
    tri_gpu_queue queue = tri_emulator_queue();
    float *a = normal(1, COUNT), *b = normal(2, COUNT), *out = normal(3, COUNT), *want = normal(4, COUNT);
    uint16_t *half = tri_alloc_bulk(COUNT * sizeof *half);
    tri_gpu_fill(&queue, out, 2.5f, COUNT);
    assert_true(out[0] == 2.5f && out[COUNT - 1] == 2.5f);
    tri_gpu_add(&queue, f32(out), f32(a), f32(b), COUNT);
    tri_vector_add(1, want, a, b, COUNT);
    expect_bits("add", out, want, COUNT);
    tri_gpu_add(&queue, f32(out + 1), f32(a + 1), f32(b + 2), COUNT - 2); /* on no multiple of 16 bytes */
    tri_vector_add(1, want + 1, a + 1, b + 2, COUNT - 2);
    expect_bits("add", out, want, COUNT);
    a[0] = NAN;
    a[1] = INFINITY;
    a[2] = 1e-41f;
    a[3] = 65519.9f;
    a[4] = 3e-8f;
    for (int type = 0; type < 2; type++) {
        const tri_dtype dtype = type == 0 ? TRI_BF16 : TRI_F16;
        tri_gpu_cast(&queue, tri_gpu_value_make(half, dtype), f32(a), COUNT);
        tri_gpu_cast(&queue, f32(out), tri_gpu_value_make(half, dtype), COUNT);
        for (int64_t i = 0; i < COUNT; i++) {
            const uint16_t bits = type == 0 ? half_to_bf16(a[i]) : half_to_f16(a[i]);
            assert_int_equal(half[i], bits);
            want[i] = type == 0 ? half_from_bf16(bits) : half_from_f16(bits);
        }
        expect_bits("cast", out, want, COUNT);
    }
    assert_int_equal(queue.status, TRI_OK);
    tri_free(a);
    tri_free(b);
    tri_free(out);
    tri_free(want);
    tri_free(half);
}

/* The tree that docs/bits.md has: T(a, b) = T(a, m) + T(m, b). */
static float tree_of(const float *leaves, int64_t stride, int64_t first, int64_t count)
{
    return count == 1
               ? leaves[first * stride]
               : tree_of(leaves, stride, first, count / 2) + tree_of(leaves, stride, first + count / 2, count / 2);
}

static void leaves_fold_in_the_order_of_the_tree(void **state)
{
    (void)state;
    enum { STRIDE = 300, WIDTH = 290 };
    tri_gpu_queue queue = tri_emulator_queue();
    float *leaves = normal(5, 64 * STRIDE), out[2][WIDTH], want[WIDTH];
    float *const outs[] = {out[0], out[1]};
    for (int64_t count = 1; count <= 64; count *= 2) {
        const tri_tree_part parts[] = {{0, count},
                                       {count < 64 ? count : 32, count < 64 ? (count > 32 ? 32 : count) : 32}};
        tri_gpu_fold(&queue, leaves, STRIDE, WIDTH, parts, count < 64 ? 2 : 1, outs, 1.0f, false);
        assert_int_equal(queue.status, TRI_OK);
        for (int part = 0; part < (count < 64 ? 2 : 1); part++) {
            for (int i = 0; i < WIDTH; i++) {
                want[i] = tree_of(leaves + i, STRIDE, parts[part].first, parts[part].count);
            }
            expect_bits("fold", out[part], want, WIDTH);
        }
    }
    const tri_tree_part all = {0, 8};
    tri_gpu_fold(&queue, leaves, STRIDE, WIDTH, &all, 1, outs, 1.0f, false);
    tri_gpu_fold(&queue, leaves, STRIDE, WIDTH, &all, 1, outs, 2.0f, true);
    for (int i = 0; i < WIDTH; i++) {
        const float sum = tree_of(leaves + i, STRIDE, 0, 8);
        want[i] = sum + sum * 2.0f;
    }
    expect_bits("fold and add", out[0], want, WIDTH);
    tri_free(leaves);
}

static void norms_have_the_bits_of_the_cpu_under_every_schedule(void **state)
{
    (void)state;
    enum { LONG = 5 * TRI_NORM_BLOCK + 77 };
    float *x = normal(6, LONG);
    double blocks[6], cpu[6];
    tri_vector_square_blocks(1, x, LONG, cpu);
    for (uint64_t seed = 0; seed < 5; seed++) {
        tri_gpu_queue queue = tri_emulator_queue();
        tri_emulator_seed(seed);
        tri_gpu_squares(&queue, x, LONG, blocks);
        assert_memory_equal(blocks, cpu, sizeof blocks);
        assert_int_equal(queue.status, TRI_OK);
    }
    tri_emulator_seed(0);
    tri_free(x);
}

static void expect_step(const tri_optim_ops *ops, const optim_rates *rates, float decay)
{
    static uint16_t rounded[COUNT], cast[COUNT];
    tri_gpu_step_args args = optim_gpu_args(ops, rates, decay);
    float *grads = normal(8, COUNT), *values[2], *moment[2][2];
    tri_gpu_queue queue = tri_emulator_queue();
    for (int i = 0; i < 2; i++) {
        values[i] = normal(7, COUNT);
        moment[i][0] = normal(9, COUNT);
        moment[i][1] = normal(10, COUNT);
        for (int64_t k = 0; k < COUNT; k++) { /* sums of squares */
            moment[i][0][k] = ops->accumulates[0] ? fabsf(moment[i][0][k]) : moment[i][0][k];
            moment[i][1][k] = fabsf(moment[i][1][k]);
        }
    }
    args.values = values[0];
    args.grads = grads;
    args.state[0] = moment[0][0];
    args.state[1] = moment[0][1];
    args.count = COUNT;
    args.rounded = tri_gpu_value_make(rounded, ops->gpu == TRI_GPU_SGD ? TRI_F16 : TRI_BF16);
    for (int step = 0; step < 3; step++) {
        tri_gpu_step(&queue, &args);
        ops->step(rates, decay, values[1], grads, moment[1], COUNT);
    }
    assert_int_equal(queue.status, TRI_OK);
    expect_bits(ops->name, values[0], values[1], COUNT);
    expect_bits("state 0", moment[0][0], moment[1][0], COUNT);
    expect_bits("state 1", moment[0][1], moment[1][1], COUNT);
    tri_gpu_cast(&queue, (tri_gpu_value){cast, args.rounded.type}, tri_gpu_value_make(values[0], TRI_F32), COUNT);
    assert_memory_equal(rounded, cast, sizeof cast);
    for (int i = 0; i < 2; i++) {
        tri_free(values[i]);
        tri_free(moment[i][0]);
        tri_free(moment[i][1]);
    }
    tri_free(grads);
}

static void optimizers_step_with_the_bits_of_the_cpu(void **state)
{
    (void)state;
    optim_rates r = {.lr = 0.03f,
                     .grad_scale = 0.125f,
                     .momentum = 0.9f,
                     .beta1 = 0.9f,
                     .beta2 = 0.999f,
                     .epsilon = 1e-8f,
                     .one_minus_beta1 = 0.1f,
                     .one_minus_beta2 = 0.001f,
                     .step_lr = 0.3f,
                     .root_scale = 30.0f,
                     .beta = 1.0f,
                     .l1 = 0.5f,
                     .l2 = 0.01f};
    const float decay = 0.01f;
    expect_step(&tri_optim_sgd_plain, &r, decay);
    expect_step(&tri_optim_sgd, &r, decay);
    expect_step(&tri_optim_adam, &r, decay);
    expect_step(&tri_optim_adamw, &r, decay);
    expect_step(&tri_optim_adagrad, &r, decay);
    expect_step(&tri_optim_ftrl, &r, decay);
    r.nesterov = true;
    expect_step(&tri_optim_sgd, &r, decay);
}

static void running_statistics_follow_with_the_bits_of_the_cpu(void **state)
{
    (void)state;
    tri_gpu_queue queue = tri_emulator_queue();
    const tri_device device = tri_emulator_device(&queue);
    for (int k = 0; k < 2; k++) {
        const float momentum = k == 0 ? 0.1f : 0.9f, scale = 1.0f / 3;
        float *values = normal(11, COUNT), *want = normal(11, COUNT), *sums = normal(12, COUNT);
        optim_gpu_average(&device, momentum, scale, values, sums, COUNT);
        for (int64_t i = 0; i < COUNT; i++) {
            want[i] = optim_average(want[i], sums[i] * scale, momentum, 1.0f - momentum);
        }
        expect_bits("average", values, want, COUNT);
        tri_free(values);
        tri_free(want);
        tri_free(sums);
    }
    assert_int_equal(queue.status, TRI_OK);
}

static void expect_refusal(const char *name, tri_emulator_kernel kernel, const char *why)
{
    float x[64];
    const tri_gpu_faulty_args args = {x};
    const tri_gpu_launch launch = {.grid = {1}, .threads = 64, .args = &args, .args_nbytes = sizeof args};
    for (uint64_t seed = 0; seed < 3; seed++) {
        tri_emulator_seed(seed);
        assert_int_equal(tri_emulator_run(name, kernel, &launch), TRI_EINVAL);
        if (strstr(tri_last_error(), why) == NULL) {
            fail_msg("%s: want '%s', got '%s'", name, why, tri_last_error());
        }
    }
    tri_emulator_seed(0);
}

/* Tiles of all lengths at which xxh3 is another function, or scrambles, from odd places on. */
static void digests_are_those_of_the_host(void **state)
{
    static const int64_t counts[] = {1, 2, 4, 5, 32, 33, 60, 61, 64, 65, 80, 256, 257, 272, 512, 513, 700, 4096, 16384};
    static const uint64_t seeds[] = {0, 1, 77, UINT64_C(0x9000000000000005)};
    enum { TILES = 2 * TRI_COUNT_OF(counts) };
    (void)state;
    tri_gpu_queue queue = tri_emulator_queue();
    const tri_device device = tri_emulator_device(&queue);
    float *a = normal(1, 2 * COUNT), *b = normal(2, 20000);
    const float *const arrays[TRI_DIGEST_ARRAYS] = {a, b};
    tri_digest_tile tiles[TILES];
    uint64_t wanted[TILES], found[TILES];
    tri_digest *host, *gpu;
    for (size_t i = 0; i < TILES; i++) {
        const int64_t count = counts[i / 2];
        const bool first = i % 2 == 0 && count < COUNT;
        tiles[i] = (tri_digest_tile){
            .array = first ? 0 : 1, .first = (int64_t)i * 3 + 1, .count = count, .seed = seeds[i % 4]};
    }
    assert_int_equal(tri_digest_create(tri_device_host(), tiles, TILES, &host), TRI_OK);
    assert_int_equal(tri_digest_create(&device, tiles, TILES, &gpu), TRI_OK);
    tri_digest_run(host, 2, arrays, wanted);
    for (uint64_t seed = 0; seed < 3; seed++) {
        memset(found, 0, sizeof found);
        tri_emulator_seed(seed);
        tri_digest_run(gpu, 1, arrays, found);
        assert_int_equal(queue.status, TRI_OK);
        for (size_t i = 0; i < TILES; i++) {
            if (found[i] != wanted[i]) {
                fail_msg("%lld elements, seed %llx: want %016llx, got %016llx", (long long)tiles[i].count,
                         (unsigned long long)tiles[i].seed, (unsigned long long)wanted[i],
                         (unsigned long long)found[i]);
            }
        }
    }
    tri_emulator_seed(0);
    tri_digest_destroy(host);
    tri_digest_destroy(gpu);
    tri_free(a);
    tri_free(b);
}

static void a_kernel_that_hangs_is_refused(void **state)
{
    (void)state;
    expect_refusal("two_barriers", tri_cuda_two_barriers, "threads wait at different barriers");
    expect_refusal("leaver", tri_cuda_leaver, "barrier for one that has ended");
    expect_refusal("lane_leaver", tri_cuda_lane_leaver, "exchange for one that has ended");
    expect_refusal("mixed_lanes", tri_cuda_mixed_lanes, "different exchanges");
}

static void shared_memory_begins_as_nan(void **state)
{
    (void)state;
    float x[64];
    const tri_gpu_faulty_args args = {x};
    const tri_gpu_launch launch = {.grid = {1}, .threads = 64, .args = &args, .args_nbytes = sizeof args};
    assert_int_equal(tri_emulator_run("unset", tri_cuda_unset, &launch), TRI_OK);
    assert_true(isnan(x[0]) && isnan(x[63]));
}

static void a_launch_that_no_card_takes_is_refused(void **state)
{
    (void)state;
    float x[64];
    const tri_gpu_fill_args args = {x, 1, 64};
    tri_gpu_launch launch = {.kernel = tri_gpu_kernel_fill, .threads = 33, .args = &args, .args_nbytes = sizeof args};
    assert_int_equal(tri_emulator_launch(&launch), TRI_EINVAL);
    launch.threads = 64;
    launch.grid[1] = 70000;
    assert_int_equal(tri_emulator_launch(&launch), TRI_EINVAL);
    launch.grid[1] = 1;
    launch.args_nbytes--;
    assert_int_equal(tri_emulator_launch(&launch), TRI_EINVAL);
    launch.args_nbytes++;
    assert_int_equal(tri_emulator_launch(&launch), TRI_OK);
}

static float step_of(int type, const uint16_t *a, const uint16_t *b, float c)
{
    mma_factors left, right;
    mma_read(&left, type, a);
    mma_read(&right, type, b);
    return mma_step(&left, &right, c);
}

/* 1 + 2^-24 twice is cut where a fused sum in f32 would round, and one big term hides small ones. */
static void a_tensor_core_cuts_to_25_bits(void **state)
{
    (void)state;
    uint16_t a[16] = {0}, b[16] = {0};
    assert_true(step_of(TRI_GPU_BF16, a, b, 0) == 0);
    assert_true(step_of(TRI_GPU_BF16, a, b, -0x1.8p-140f) == -0x1.8p-140f);
    assert_int_equal(signbit(step_of(TRI_GPU_BF16, a, b, -0.0f)), 0);
    b[3] = half_to_bf16(-INFINITY);
    assert_true(isnan(step_of(TRI_GPU_BF16, a, b, 0)));
    for (int i = 0; i < 16; i++) {
        a[i] = half_to_bf16(1.0f);
        b[i] = half_to_bf16((float)i);
    }
    assert_true(step_of(TRI_GPU_BF16, a, b, 0.5f) == 120.5f);
    b[0] = half_to_bf16(0x1p26f);
    for (int i = 1; i < 16; i++) {
        b[i] = half_to_bf16(1.0f);
    }
    assert_true(step_of(TRI_GPU_BF16, a, b, 0) == 0x1p26f); /* each 1 lies below 2^26 / 2^25 */
    b[0] = half_to_bf16(0x1p25f);
    assert_true(step_of(TRI_GPU_BF16, a, b, 0) == 0x1p25f + 12.0f); /* 15 of them, cut to 24 bits */
    b[1] = half_to_bf16(INFINITY);
    assert_true(isinf(step_of(TRI_GPU_BF16, a, b, 0)));
    a[1] = half_to_bf16(0);
    assert_true(isnan(step_of(TRI_GPU_BF16, a, b, 0)));
    for (int i = 0; i < 16; i++) {
        a[i] = half_to_f16(0x1p-24f); /* subnormal */
        b[i] = half_to_f16(1.5f);
    }
    assert_true(step_of(TRI_GPU_F16, a, b, 0) == 24 * 0x1p-24f);
}

/* Bits of -0 to -infinity, then of 0 to 60. */
static void exponentials_in_fewer_operations_have_the_same_bits(void **state)
{
    (void)state;
    const uint32_t first[2] = {0x80000000u, 0}, last[2] = {0xff800000u, 0x42700000u};
    for (int sign = 0; sign < 2; sign++) {
        for (uint32_t bits = first[sign]; bits <= last[sign]; bits += 1009) {
            const float x = gpu_float(bits), want = gpu_exp(x), got = gpu_exp_below(x);
            if (gpu_bits(got) != gpu_bits(want)) {
                fail_msg("exp(%a): want %a, got %a", (double)x, (double)want, (double)got);
            }
        }
    }
    assert_true(gpu_exp_below(-INFINITY) == 0 && gpu_exp_below(0) == 1 && isnan(gpu_exp_below(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_filled_cast_and_added),
        cmocka_unit_test(leaves_fold_in_the_order_of_the_tree),
        cmocka_unit_test(norms_have_the_bits_of_the_cpu_under_every_schedule),
        cmocka_unit_test(optimizers_step_with_the_bits_of_the_cpu),
        cmocka_unit_test(running_statistics_follow_with_the_bits_of_the_cpu),
        cmocka_unit_test(digests_are_those_of_the_host),
        cmocka_unit_test(a_kernel_that_hangs_is_refused),
        cmocka_unit_test(shared_memory_begins_as_nan),
        cmocka_unit_test(a_launch_that_no_card_takes_is_refused),
        cmocka_unit_test(a_tensor_core_cuts_to_25_bits),
        cmocka_unit_test(exponentials_in_fewer_operations_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
