/* SPDX-License-Identifier: Apache-2.0
 *
 * measure_products.c: the matrix products of GPT-2 124M and a Llama on a card: which algorithm of cublasLt passes the
 * probe, and its time beside the one that the heuristic names first when sums may be cut. tools/gpu_check runs it.
 *
 * usage: gpu_measure_products shapes | ceiling | refusals [small]
 * shapes prints a line for each product; refusals what the library knows no algorithm for, beside what the fake one of
 * the tests refuses. Exit code 1: cublasLt is not there, or a call failed. small: on the emulator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda.h"
#include "kernel/gpu/product.h"

/* A linear layer of one shard: B rows, C inputs, D outputs. */
typedef struct layer {
    const char *name;
    int64_t rows, c, d;
} layer;

static const layer layers[] = {
    {"gpt2 qkv", 8192, 768, 2304},
    {"gpt2 projection", 8192, 768, 768},
    {"gpt2 up", 8192, 768, 3072},
    {"gpt2 down", 8192, 3072, 768},
    {"gpt2 512 words", 8192, 768, 512},
    {"llama q", 4096, 2048, 2048},
    {"llama gate and up", 4096, 2048, 16384},
    {"llama down", 4096, 8192, 2048},
};
static const layer small_layers[] = {{"small", 16, 24, 32}, {"small odd", 6, 10, 7}};

static tri_device card;

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static tri_cublaslt *library(void)
{
    return tri_gpu_queue_of(&card)->library;
}

static tri_gpu_operand operand(int type, int64_t stride, int64_t row, int64_t column)
{
    return (tri_gpu_operand){.value = {NULL, type}, .shard_stride = stride, .row = row, .column = column};
}

/* Output, gradient of the input, gradients of the weights. */
static tri_gpu_gemm_args args_make(const layer *l, int which)
{
    const int64_t b = l->rows, c = l->c, d = l->d;
    const tri_gpu_gemm_args all[] = {{.a = operand(TRI_GPU_BF16, b * c, c, 1),
                                      .b = operand(TRI_GPU_BF16, 0, c, 1),
                                      .c = operand(TRI_GPU_BF16, b * d, d, 1),
                                      .m = (int)b,
                                      .n = (int)d,
                                      .k = (int)c},
                                     {.a = operand(TRI_GPU_BF16, b * d, d, 1),
                                      .b = operand(TRI_GPU_BF16, 0, 1, c),
                                      .c = operand(TRI_GPU_BF16, b * c, c, 1),
                                      .m = (int)b,
                                      .n = (int)c,
                                      .k = (int)d},
                                     {.a = operand(TRI_GPU_BF16, b * d, 1, d),
                                      .b = operand(TRI_GPU_BF16, b * c, 1, c),
                                      .c = operand(TRI_GPU_F32, d * c, c, 1),
                                      .m = (int)d,
                                      .n = (int)c,
                                      .k = (int)b}};
    return all[which];
}

/* Seconds of one call of `batch` shards, the best of a few runs; below 0: it failed. */
static double seconds_of(const tri_product_choice *choice, const tri_gpu_algorithm *algorithm, int batch,
                         void *const memory[3], int turns)
{
    double best = 1e9;
    char byte;
    for (int run = 0; run < 3; run++) {
        tri_device_to_host(&card, &byte, memory[2], 1);
        const double began = now_s();
        for (int i = 0; i < turns; i++)
            if (tri_cublaslt_multiply(library(), choice->plan, algorithm, batch, memory[0], memory[1], NULL,
                                      memory[2]) != TRI_OK)
                return -1;
        tri_device_to_host(&card, &byte, memory[2], 1);
        const double each = (now_s() - began) / turns;
        best = each < best ? each : best;
    }
    return best;
}

/* Memory of a, b, c for a batch; false: the card is full. */
static bool memory_make(const tri_gpu_product *p, int batch, void *memory[3])
{
    const int64_t largest = p->m * p->k + p->n * p->k + p->m * p->n;
    for (int i = 0; i < 3; i++) {
        memory[i] = tri_device_alloc(&card, (size_t)(largest * batch) * sizeof(float));
        if (!memory[i])
            return false;
    }
    return true;
}

static void memory_free(void *memory[3])
{
    for (int i = 0; i < 3; i++)
        tri_device_free(&card, memory[i]);
}

static bool product_measure(const char *name, const char *what, const tri_product_choice *choice, int turns)
{
    const tri_gpu_product *p = &choice->product;
    void *memory[3] = {NULL};
    tri_gpu_algorithm first;
    const double work = 2e-12 * (double)choice->batch * (double)p->m * (double)p->n * (double)p->k;
    bool good = memory_make(p, choice->batch, memory);
    double own = 0, free_s = 0;
    if (good && !choice->own)
        own = seconds_of(choice, &choice->algorithm, choice->batch, memory, turns);
    if (good && tri_cublaslt_find(library(), choice->plan, choice->batch, true, &first, 1) == 1)
        free_s = seconds_of(choice, &first, choice->batch, memory, turns);
    memory_free(memory);
    if (!good || own < 0 || free_s < 0)
        return false;
    printf("%s %s %dx%dx%d x%d: ", name, what, (int)p->m, (int)p->n, (int)p->k, choice->batch);
    if (choice->own)
        printf("our own kernel (%d algorithms refused)\n", choice->refused);
    else
        printf("%s (%d refused), %.3f ms, %.0f TFLOP/s; the first of the heuristic %.3f ms\n", choice->algorithm.text,
               choice->refused, 1e3 * own, work / own, 1e3 * free_s);
    return true;
}

static bool shapes_measure(const layer *list, int count, int turns)
{
    static const char *const what[] = {"output", "input gradient", "weight gradients"};
    const tri_op_desc desc = {.op = TRI_OP_LINEAR, .device = &card};
    for (int i = 0; i < count; i++)
        for (int w = 0; w < 3; w++) {
            const tri_gpu_gemm_args args = args_make(&list[i], w);
            const int before = library()->choice_count;
            if (tri_gpu_product_plan(&desc, &args) != TRI_OK)
                return false;
            for (int at = before; at < library()->choice_count; at++)
                if (!product_measure(list[i].name, what[w], &library()->choices[at], turns))
                    return false;
        }
    return true;
}

/* One product of n x n by n x n, by the algorithm that the heuristic names first. */
static bool ceiling_measure(int64_t n, int turns)
{
    const layer square = {"ceiling", n, n, n};
    const tri_op_desc desc = {.op = TRI_OP_LINEAR, .device = &card};
    const tri_gpu_gemm_args args = args_make(&square, 0);
    void *memory[3] = {NULL};
    tri_gpu_algorithm first;
    if (tri_gpu_product_plan(&desc, &args) != TRI_OK || library()->choice_count == 0)
        return false;
    const tri_product_choice *choice = &library()->choices[0];
    bool good = tri_cublaslt_find(library(), choice->plan, choice->batch, true, &first, 1) == 1 &&
                memory_make(&choice->product, 1, memory);
    const double seconds = good ? seconds_of(choice, &first, 1, memory, turns) : -1;
    memory_free(memory);
    if (seconds < 0)
        return false;
    printf("%s %d^3 bf16: %.4g TFLOP/s\n", library()->name, (int)n, 2e-12 * (double)(n * n * n) / seconds);
    return true;
}

/* Products of 16 x 16 x 16, changed: whether there is an algorithm, as tests/gpu/fake_cublaslt.c has it. */
static bool refusals_compare(void)
{
    const tri_gpu_product plain = {.m = 16,
                                   .n = 16,
                                   .k = 16,
                                   .type = CUBLASLT_BF16,
                                   .c_type = CUBLASLT_BF16,
                                   .a_along = 1,
                                   .b_along = 1,
                                   .a_step = 16,
                                   .b_step = 16,
                                   .a_stride = 256};
    const struct {
        const char *name;
        int64_t type, c_type, k, step, stride;
        bool fits;
    } rows[] = {
        {"bf16 to bf16", CUBLASLT_BF16, CUBLASLT_BF16, 16, 16, 256, true},
        {"bf16 to f32", CUBLASLT_BF16, CUBLASLT_F32, 16, 16, 256, true},
        {"f16 to f32", CUBLASLT_F16, CUBLASLT_F32, 16, 16, 256, true},
        {"f32 to f32", CUBLASLT_F32, CUBLASLT_F32, 16, 16, 256, true},
        {"bf16 to f16", CUBLASLT_BF16, CUBLASLT_F16, 16, 16, 256, false},
        {"f16 to bf16", CUBLASLT_F16, CUBLASLT_BF16, 16, 16, 256, false},
        {"f32 to bf16", CUBLASLT_F32, CUBLASLT_BF16, 16, 16, 256, false},
        {"rows of 15", CUBLASLT_BF16, CUBLASLT_BF16, 15, 15, 240, true},
        {"rows of 1", CUBLASLT_BF16, CUBLASLT_BF16, 1, 1, 16, true},
        {"shards that begin at odd places", CUBLASLT_BF16, CUBLASLT_BF16, 16, 16, 257, true},
        {"one factor for all shards", CUBLASLT_BF16, CUBLASLT_BF16, 16, 16, 0, true},
        {"rows that overlap", CUBLASLT_BF16, CUBLASLT_BF16, 16, 15, 256, false},
    };
    int same = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        tri_gpu_product product = plain;
        tri_cublaslt_plan *plan = NULL;
        tri_gpu_algorithm found;
        product.type = rows[i].type;
        product.c_type = rows[i].c_type;
        product.k = rows[i].k;
        product.a_step = product.b_step = rows[i].step;
        product.a_stride = rows[i].stride;
        const bool fits = tri_cublaslt_plan_create(library(), &product, &plan) == TRI_OK &&
                          tri_cublaslt_find(library(), plan, TRI_PRODUCT_BATCH, false, &found, 1) == 1;
        tri_cublaslt_plan_destroy(library(), plan);
        same += fits == rows[i].fits;
        if (fits != rows[i].fits)
            printf("%s: %s here, not by the fake\n", rows[i].name, fits ? "multiplied" : "refused");
    }
    printf("%d of %d refusals are those of the fake\n", same, (int)TRI_COUNT_OF(rows));
    return true;
}

int main(int argc, char **argv)
{
    const bool small = argc > 2 && strcmp(argv[2], "small") == 0, ceiling = argc > 1 && strcmp(argv[1], "ceiling") == 0;
    card = (tri_device){.ops = &tri_device_cuda};
    bool good = tri_device_cuda.open(&card) == TRI_OK && tri_device_cuda.library_open(&card) == TRI_OK;
    if (good && argc > 1 && strcmp(argv[1], "refusals") == 0)
        good = refusals_compare();
    else if (good && ceiling)
        good = ceiling_measure(small ? 32 : 8192, small ? 1 : 10);
    else if (good)
        good = small ? shapes_measure(small_layers, TRI_COUNT_OF(small_layers), 1)
                     : shapes_measure(layers, TRI_COUNT_OF(layers), 10);
    if (!good)
        fprintf(stderr, "error: %s\n", tri_last_error());
    return good ? 0 : 1;
}
