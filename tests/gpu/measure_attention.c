/* SPDX-License-Identifier: Apache-2.0
 *
 * measure_attention.c: attention of GPT-2 124M and a Llama by our own kernels in bf16 on a card. tools/gpu_check runs
 * it.
 *
 * usage: gpu_measure_attention [small]
 * Prints a JSON object for each shape: milliseconds and TFLOP/s of both passes (of what lies below the diagonal: 2 and
 * 5 products); `error`: the largest difference from our kernels in f32, relative to their largest value; `same`:
 * whether repeated runs of one sample, and the first and last samples of a batch, have the same bits. Exit code 1: a
 * call failed. small: on the emulator.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/cuda/cuda.h"
#include "kernel/kernel.h"
#include "tensor/half.h"

#define REPEATS 20

/* B samples of each shard, T tokens, H heads and K of keys, each D wide. */
typedef struct shape {
    const char *name;
    int shards;
    int64_t b, t;
    int h, k;
    int64_t d;
} shape;

static const shape shapes[] = {
    {"gpt2", 8, 8, 1024, 12, 12, 64},
    {"gpt2 long", 8, 1, 4096, 12, 12, 64},
    {"llama short", 8, 2, 1024, 32, 8, 128},
    {"llama", 4, 1, 4096, 32, 8, 128},
};
static const shape small_shapes[] = {{"small", 2, 1, 8, 2, 2, 16}, {"small grouped", 2, 1, 8, 2, 1, 16}};

/* A planned op with its memory on the card; all samples have the same content. */
typedef struct attention {
    tri_kernel kernel;
    tri_op_call call;
    int32_t rows[8];
    int64_t first_sample[8];
    void *x, *y, *dy, *dx;
    int64_t x_count, y_count; /* elements of a sample */
    int64_t samples;          /* of all shards */
} attention;

static tri_device *card;

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static size_t element_nbytes(const attention *a)
{
    return a->kernel.desc.output_dtype == TRI_F32 ? 4 : 2;
}

/* Noise that bf16 holds, as the type of the op; the same for each sample. */
static tri_status fill(const attention *a, void *to, int64_t count, const char *purpose)
{
    const tri_rng rng = {.seed = 1, .stream = tri_rng_stream(purpose, 0, 0)};
    const size_t nbytes = (size_t)count * element_nbytes(a);
    char *host = tri_alloc(nbytes);
    if (!host)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        const uint16_t half = half_to_bf16(tri_rng_normal(rng, (uint64_t)i));
        if (element_nbytes(a) == 2)
            ((uint16_t *)(void *)host)[i] = half;
        else
            ((float *)(void *)host)[i] = half_from_bf16(half);
    }
    for (int64_t s = 0; s < a->samples; s++)
        tri_device_from_host(card, (char *)to + (size_t)s * nbytes, host, nbytes);
    tri_free(host);
    return TRI_OK;
}

static void close_attention(attention *a)
{
    void *const memory[] = {a->x, a->y, a->dy, a->dx, a->call.saved, a->call.scratch};
    for (size_t i = 0; i < TRI_COUNT_OF(memory); i++)
        tri_device_free(card, memory[i]);
    if (a->kernel.ops)
        tri_kernel_release(&a->kernel);
}

static tri_status memory_make(attention *a, int64_t shard_samples)
{
    const size_t each = element_nbytes(a), samples = (size_t)a->samples;
    a->x = tri_device_alloc(card, samples * (size_t)a->x_count * each);
    a->dx = a->x ? tri_device_alloc(card, samples * (size_t)a->x_count * each) : NULL;
    a->y = a->dx ? tri_device_alloc(card, samples * (size_t)a->y_count * each) : NULL;
    a->dy = a->y ? tri_device_alloc(card, samples * (size_t)a->y_count * each) : NULL;
    a->call.saved = a->dy ? tri_device_alloc(card, a->kernel.saved_nbytes * (size_t)a->call.shards) : NULL;
    a->call.scratch = a->call.saved ? tri_device_alloc(card, a->kernel.scratch_nbytes) : NULL;
    if (!a->call.scratch)
        return TRI_ENOMEM;
    TRI_TRY(fill(a, a->x, a->x_count, "x"));
    TRI_TRY(fill(a, a->dy, a->y_count, "dy"));
    for (int s = 0; s < a->call.shards; s++) {
        a->rows[s] = (int32_t)shard_samples;
        a->first_sample[s] = s * shard_samples;
    }
    a->call.input[0] = a->x;
    a->call.output = a->y;
    a->call.doutput = a->dy;
    a->call.dinput[0] = a->dx;
    a->call.rows = a->rows;
    a->call.first_sample = a->first_sample;
    return TRI_OK;
}

/* Ends with close_attention() whatever is returned. */
static tri_status open_attention(const shape *s, int shards, int64_t b, tri_dtype dtype, attention *a)
{
    const int64_t dim[] = {b, s->t, (s->h + 2 * s->k) * s->d};
    tri_op_desc desc = {.op = TRI_OP_ATTENTION,
                        .attr = {.heads = s->h, .kv_heads = s->k},
                        .input_count = 1,
                        .input = {tri_shape_make(3, dim)},
                        .input_dtype = {TRI_F32},
                        .need_dinput = {true},
                        .max_shards = shards,
                        .threads = 1,
                        .device = card};
    *a = (attention){.call = {.device = card, .shards = shards, .training = true}, .samples = shards * b};
    TRI_TRY(tri_op_infer(&desc));
    desc.input_dtype[0] = desc.output_dtype = dtype;
    TRI_TRY(tri_kernel_plan("cuda", &desc, &a->kernel));
    a->x_count = tri_shape_count(desc.input[0]) / b;
    a->y_count = tri_shape_count(desc.output) / b;
    return memory_make(a, b);
}

/* Seconds of one pass, the best of a few runs. */
static double seconds_of(const attention *a, void (*pass)(const tri_kernel *kernel, const tri_op_call *call), int turns)
{
    double best = 1e9;
    char byte;
    for (int run = 0; run < 3; run++) {
        tri_device_to_host(card, &byte, a->x, 1);
        const double began = now_s();
        for (int i = 0; i < turns; i++)
            pass(&a->kernel, &a->call);
        tri_device_to_host(card, &byte, a->x, 1);
        best = fmin(best, (now_s() - began) / turns);
    }
    return best;
}

/* Output and gradient of one sample, f32: [y_count], [x_count]; tri_free(). */
static float *results_read(const attention *a, int64_t sample)
{
    const int64_t counts[] = {a->y_count, a->x_count};
    const void *const from[] = {a->y, a->dx};
    const size_t each = element_nbytes(a);
    float *all = tri_alloc((size_t)(a->y_count + a->x_count) * sizeof(*all)), *to = all;
    char *raw = tri_alloc((size_t)a->x_count * each);
    for (int i = 0; i < 2 && all && raw; i++) {
        const size_t nbytes = (size_t)counts[i] * each;
        tri_device_to_host(card, raw, (const char *)from[i] + (size_t)sample * nbytes, nbytes);
        for (int64_t n = 0; n < counts[i]; n++)
            *to++ = each == 2 ? half_from_bf16(((const uint16_t *)(void *)raw)[n]) : ((const float *)(void *)raw)[n];
    }
    tri_free(raw);
    return all;
}

static double error_of(const float *got, const float *want, int64_t count)
{
    double error = 0, top = 0;
    for (int64_t i = 0; i < count; i++) {
        const double difference = fabs((double)got[i] - (double)want[i]);
        error = difference <= error || isnan(error) ? error : difference; /* a NaN stays */
        top = fmax(top, fabs((double)want[i]));
    }
    return error / top;
}

static void run_both(const attention *a)
{
    tri_kernel_forward(&a->kernel, &a->call);
    tri_kernel_backward(&a->kernel, &a->call);
}

/* One sample alone, again and again, and beside others; and in f32. NULL where a call fails. */
static tri_status bits_compare(const shape *s, const attention *whole, bool *same, double error[2])
{
    attention one = {.samples = 0}, exact = {.samples = 0};
    float *first = NULL, *other = NULL;
    tri_status status = open_attention(s, 1, 1, TRI_BF16, &one);
    *same = true;
    if (status == TRI_OK)
        status = open_attention(s, 1, 1, TRI_F32, &exact);
    for (int run = 0; run < REPEATS + 2 && status == TRI_OK; run++) {
        if (run < REPEATS)
            run_both(&one);
        tri_free(other);
        other = run < REPEATS ? results_read(&one, 0) : results_read(whole, run == REPEATS ? 0 : whole->samples - 1);
        status = other ? TRI_OK : TRI_ENOMEM;
        if (run == 0) {
            first = other;
            other = NULL;
        } else if (other)
            *same = *same && memcmp(first, other, (size_t)(one.x_count + one.y_count) * sizeof(*first)) == 0;
    }
    tri_free(other);
    other = NULL;
    if (status == TRI_OK) {
        run_both(&exact);
        other = results_read(&exact, 0);
        status = other ? TRI_OK : TRI_ENOMEM;
    }
    if (other) {
        error[0] = error_of(first, other, one.y_count);
        error[1] = error_of(first + one.y_count, other + one.y_count, one.x_count);
    }
    tri_free(first);
    tri_free(other);
    close_attention(&one);
    close_attention(&exact);
    return status;
}

static tri_status shape_measure(const shape *s, int turns)
{
    attention a = {.samples = 0};
    double forward_s = 0, backward_s = 0, error[2] = {0};
    bool same = false;
    tri_status status = open_attention(s, s->shards, s->b, TRI_BF16, &a);
    if (status == TRI_OK) {
        forward_s = seconds_of(&a, tri_kernel_forward, turns);
        backward_s = seconds_of(&a, tri_kernel_backward, turns);
        status = bits_compare(s, &a, &same, error);
    }
    if (status == TRI_OK)
        status = tri_gpu_queue_of(card)->status;
    const double work = 1e-12 * (double)a.samples * s->h * (double)(s->t * (s->t + 1)) * (double)s->d;
    close_attention(&a);
    if (status == TRI_OK)
        printf("{\"shape\": \"%s\", \"batch\": %d, \"tokens\": %d, \"heads\": %d, \"kv_heads\": %d, \"width\": %d, "
               "\"forward_ms\": %.4f, \"backward_ms\": %.4f, \"forward_tflops\": %.6g, \"backward_tflops\": %.6g, "
               "\"forward_error\": %.3g, \"backward_error\": %.3g, \"same\": %s}\n",
               s->name, (int)(s->shards * s->b), (int)s->t, s->h, s->k, (int)s->d, 1e3 * forward_s, 1e3 * backward_s,
               2 * work / forward_s, 5 * work / backward_s, error[0], error[1], same ? "true" : "false");
    return status;
}

int main(int argc, char **argv)
{
    const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    const shape *list = small ? small_shapes : shapes;
    const size_t count = small ? TRI_COUNT_OF(small_shapes) : TRI_COUNT_OF(shapes);
    tri_status status = tri_device_open("cuda", &card);
    for (size_t i = 0; i < count && status == TRI_OK; i++)
        status = shape_measure(&list[i], small ? 1 : 10);
    if (status != TRI_OK)
        fprintf(stderr, "error: %s\n", tri_last_error());
    tri_device_close(card);
    return status == TRI_OK ? 0 : 1;
}
