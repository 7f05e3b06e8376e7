/* SPDX-License-Identifier: Apache-2.0
 *
 * measure_products.c: the matrix products of GPT-2 124M and a Llama on a card: which algorithm of cublasLt passes the
 * probe, and its time beside the one that the heuristic names first when sums may be cut. tools/gpu_check runs it.
 *
 * usage: gpu_measure_products shapes | survey | ceiling | refusals | dump [small]
 * shapes prints a line for each product; survey one for each algorithm that the heuristic offers for those of GPT-2;
 * refusals what the library knows no algorithm for, beside what the fake one of the tests refuses; dump, which needs no
 * cublasLt, factors and results of one step of tensor cores. Exit code 1: cublasLt is not there, or a call failed.
 * small: on the emulator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/cuda/cuda.h"
#include "kernel/gpu/product.h"
#include "tensor/half.h"

#define NOISE       INT64_C(262147) /* elements of it, a prime: rows that it repeats in differ */
#define OFFERED     16              /* algorithms, at most */
#define GPT2_LAYERS 5               /* the first ones below */

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

/* Normal numbers in bf16, again and again: what is multiplied decides a card's power, and so its clock. */
static bool noise_fill(uint16_t *there, int64_t count, uint64_t seed)
{
    const int64_t filled = tri_int64_min(count, NOISE);
    uint16_t *noise = tri_alloc((size_t)filled * sizeof(*noise));
    if (!noise)
        return false;
    for (int64_t i = 0; i < filled; i++)
        noise[i] = half_to_bf16(tri_rng_normal((tri_rng){.seed = seed}, (uint64_t)i));
    tri_device_from_host(&card, there, noise, (size_t)filled * sizeof(*noise));
    tri_free(noise);
    for (int64_t now = filled; now < count; now *= 2)
        tri_device_copy(&card, there + now, there, (size_t)tri_int64_min(now, count - now) * sizeof(*noise));
    return true;
}

/* Memory of a, b, c for a batch, with noise in a and b; false: the card is full. */
static bool memory_make(const tri_gpu_product *p, int batch, void *memory[3])
{
    const int64_t counts[] = {p->m * p->k, p->n * p->k, p->m * p->n};
    for (int i = 0; i < 3; i++) {
        memory[i] = tri_device_alloc(&card, (size_t)(counts[i] * batch) * sizeof(float));
        if (!memory[i] || (i < 2 && !noise_fill(memory[i], counts[i] * batch, (uint64_t)i + 1)))
            return false;
    }
    return true;
}

static void memory_free(void *memory[3])
{
    for (int i = 0; i < 3; i++)
        tri_device_free(&card, memory[i]);
}

static bool product_measure(const char *title, const tri_product_choice *choice, int turns)
{
    const tri_gpu_product *p = &choice->product;
    void *memory[3] = {NULL};
    tri_gpu_algorithm first;
    const double work = 2e-12 * (double)choice->batch * (double)p->m * (double)p->n * (double)p->k;
    bool good = memory_make(p, choice->batch, memory);
    double own = 0, free_s = 0;
    if (good && !choice->own)
        own = seconds_of(choice, &choice->algorithm, choice->batch, memory, turns);
    if (good && choice->plan && tri_cublaslt_find(library(), choice->plan, choice->batch, true, &first, 1) == 1)
        free_s = seconds_of(choice, &first, choice->batch, memory, turns);
    memory_free(memory);
    if (!good || own < 0 || free_s < 0)
        return false;
    if (choice->own)
        printf("%s: our own kernel (%d algorithms refused)\n", title, choice->refused);
    else
        printf("%s: %s (%d refused), %.3f ms, %.0f TFLOP/s; the first of the heuristic %.3f ms\n", title,
               choice->algorithm.text, choice->refused, 1e3 * own, work / own, 1e3 * free_s);
    fflush(stdout);
    return true;
}

static bool offered_contain(const tri_gpu_algorithm *list, int count, const tri_gpu_algorithm *one)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].text, one->text) == 0)
            return true;
    return false;
}

/* Algorithms without a cut of the sum over k, which a run chooses from, then the others. */
static int offered_list(const tri_product_choice *choice, tri_gpu_algorithm list[2 * OFFERED], int *whole)
{
    tri_gpu_algorithm any[OFFERED];
    *whole = 0;
    if (!choice->plan)
        return 0; /* cublasLt knows no such product */
    *whole = tri_cublaslt_find(library(), choice->plan, choice->batch, false, list, OFFERED);
    const int found = tri_cublaslt_find(library(), choice->plan, choice->batch, true, any, OFFERED);
    int count = *whole;
    for (int i = 0; i < found; i++)
        if (!offered_contain(list, count, &any[i]))
            list[count++] = any[i];
    return count;
}

/* What the probe finds of each algorithm, and its time. */
static bool product_survey(const char *title, const tri_gpu_gemm_args *args, const tri_product_choice *choice,
                           int turns)
{
    static const char *const texts[] = {[TRI_PRODUCT_PASSES] = "passes",
                                        [TRI_PRODUCT_REFUSES] = "refuses to run",
                                        [TRI_PRODUCT_SUM_DIFFERS] = "sum differs",
                                        [TRI_PRODUCT_BATCH_DIFFERS] = "batch count differs"};
    tri_gpu_algorithm list[2 * OFFERED];
    void *memory[3] = {NULL};
    int whole;
    const int count = offered_list(choice, list, &whole);
    bool good = memory_make(&choice->product, choice->batch, memory);
    for (int i = 0; i < count && good; i++) {
        tri_product_finding finding;
        good = tri_gpu_product_probe(&card, args, choice, &list[i], &finding) == TRI_OK;
        const double seconds =
            good && finding != TRI_PRODUCT_REFUSES ? seconds_of(choice, &list[i], choice->batch, memory, turns) : 0;
        if (good)
            printf("%s: %s: %s, %.3f ms%s\n", title, list[i].text, texts[finding], 1e3 * seconds,
                   i < whole ? "" : ", offered where sums may be cut");
    }
    memory_free(memory);
    fflush(stdout);
    return good;
}

static bool shapes_measure(const layer *list, int count, int turns, bool survey)
{
    static const char *const what[] = {"output", "input gradient", "weight gradients"};
    const tri_op_desc desc = {.op = TRI_OP_LINEAR, .device = &card};
    for (int i = 0; i < count; i++)
        for (int w = 0; w < 3; w++) {
            const tri_gpu_gemm_args args = args_make(&list[i], w);
            const int before = library()->choice_count;
            if (tri_gpu_product_plan(&desc, &args) != TRI_OK)
                return false;
            if (library()->choice_count == before)
                continue;
            const tri_product_choice *choice = &library()->choices[before];
            char title[96];
            snprintf(title, sizeof(title), "%s %s %dx%dx%d x%d", list[i].name, what[w], args.m, args.n, args.k,
                     choice->batch);
            if (!(survey ? product_survey(title, &args, choice, turns) : product_measure(title, choice, turns)))
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

/* --- one step of tensor cores: m16n8k16 --- */

enum { STEP_M = 16, STEP_N = 8, STEP_K = 16 };

static void rows_print(const char *title, const void *values, int rows, int columns, size_t nbytes)
{
    for (int i = 0; i < rows; i++) {
        printf("%s %d:", title, i);
        for (int j = 0; j < columns; j++) {
            uint32_t bits = 0;
            memcpy(&bits, (const char *)values + (size_t)(i * columns + j) * nbytes, nbytes);
            printf(" %0*x", 2 * (int)nbytes, (unsigned)bits);
        }
        printf("\n");
    }
}

/* Row by row a [m][k], b [n][k] and c [m][n] in bits; whole: of whole numbers, whose sums are exact in any order. */
static bool step_dump(int type, bool whole)
{
    uint16_t a[STEP_M * STEP_K], b[STEP_N * STEP_K];
    float c[STEP_M * STEP_N];
    void *const from[] = {a, b, c};
    const size_t nbytes[] = {sizeof(a), sizeof(b), sizeof(c)};
    void *there[3] = {NULL};
    const tri_rng rng = {.seed = 1};
    for (int i = 0; i < STEP_M * STEP_K + STEP_N * STEP_K; i++) {
        const float value = whole ? (float)tri_rng_below(rng, (uint64_t)i, 127) - 63 : tri_rng_normal(rng, (uint64_t)i);
        *(i < STEP_M * STEP_K ? &a[i] : &b[i - STEP_M * STEP_K]) =
            type == TRI_GPU_BF16 ? half_to_bf16(value) : half_to_f16(value);
    }
    bool good = true;
    for (int i = 0; i < 3; i++) {
        there[i] = tri_device_alloc(&card, nbytes[i]);
        good = good && there[i] != NULL;
        if (good && i < 2)
            tri_device_from_host(&card, there[i], from[i], nbytes[i]);
    }
    tri_gpu_gemm_args args = {.a = operand(type, STEP_M * STEP_K, STEP_K, 1),
                              .b = operand(type, STEP_N * STEP_K, STEP_K, 1),
                              .c = operand(TRI_GPU_F32, STEP_M * STEP_N, STEP_N, 1),
                              .m = STEP_M,
                              .n = STEP_N,
                              .k = STEP_K,
                              .type = type};
    args.a.value.data = there[0];
    args.b.value.data = there[1];
    args.c.value.data = there[2];
    if (good) {
        tri_gpu_gemm_own(&(tri_op_call){.device = &card}, &args, 1);
        tri_device_to_host(&card, c, there[2], sizeof(c));
        good = tri_gpu_queue_of(&card)->status == TRI_OK;
    }
    for (int i = 0; i < 3; i++) {
        char title[32];
        snprintf(title, sizeof(title), "%s %s %c", type == TRI_GPU_BF16 ? "bf16" : "f16", whole ? "whole" : "noise",
                 "abc"[i]);
        if (good)
            rows_print(title, from[i], i == 1 ? STEP_N : STEP_M, i == 2 ? STEP_N : STEP_K, i == 2 ? 4 : 2);
        tri_device_free(&card, there[i]);
    }
    return good;
}

static bool steps_dump(void)
{
    return step_dump(TRI_GPU_BF16, true) && step_dump(TRI_GPU_BF16, false) && step_dump(TRI_GPU_F16, true) &&
           step_dump(TRI_GPU_F16, false);
}

static bool word_run(const char *word, bool small)
{
    const int turns = small ? 1 : 10;
    if (strcmp(word, "dump") == 0)
        return steps_dump();
    if (tri_device_cuda.library_open(&card) != TRI_OK)
        return false;
    if (strcmp(word, "refusals") == 0)
        return refusals_compare();
    if (strcmp(word, "ceiling") == 0)
        return ceiling_measure(small ? 32 : 8192, turns);
    const bool survey = strcmp(word, "survey") == 0;
    return small ? shapes_measure(small_layers, TRI_COUNT_OF(small_layers), turns, survey)
                 : shapes_measure(layers, survey ? GPT2_LAYERS : TRI_COUNT_OF(layers), turns, survey);
}

int main(int argc, char **argv)
{
    static const char *const words[] = {"shapes", "survey", "ceiling", "refusals", "dump"};
    const char *word = NULL;
    for (size_t i = 0; i < TRI_COUNT_OF(words); i++)
        word = argc > 1 && strcmp(argv[1], words[i]) == 0 ? words[i] : word;
    if (!word) {
        fprintf(stderr, "error: want shapes, survey, ceiling, refusals or dump\n");
        return 2;
    }
    card = (tri_device){.ops = &tri_device_cuda};
    const bool good =
        tri_device_cuda.open(&card) == TRI_OK && word_run(word, argc > 2 && strcmp(argv[2], "small") == 0);
    if (!good)
        fprintf(stderr, "error: %s\n", tri_last_error());
    return good ? 0 : 1;
}
