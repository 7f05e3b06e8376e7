/* SPDX-License-Identifier: Apache-2.0
 *
 * cublaslt.c: loads cublasLt, and translates products: a matrix row by row is its transpose column by column, so
 * cublasLt computes c' = b a'.
 */
#include "device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "device/cuda/once.h"

#define WORKSPACE_NBYTES ((size_t)32 << 20) /* as NVIDIA recommends for Hopper */
#define MOST_FOUND       16

#define NEWEST_DRIVER 13000 /* that of the first file; with an older one its create fails */
static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
static const char *const emulated_files[] = {"libcublasLt_emulated.so.13", NULL}; /* NVIDIA's takes seconds to load */

static tri_status find_calls(void *library, const char *file, tri_cublaslt_calls *calls)
{
#define FIND(result, symbol, name, args)                                                                               \
    calls->name = (result(*) args)dlsym(library, #symbol);                                                             \
    if (!calls->name)                                                                                                  \
        return tri_fail(TRI_EUNSUPPORTED, "%s has no %s: want cublasLt of CUDA 12 or later", file, #symbol);
    TRI_CUBLASLT_CALLS(FIND)
#undef FIND
    return TRI_OK;
}

static tri_status calls_load(bool emulated, void *calls)
{
    const tri_cuda_calls *driver;
    int version = 0;
    TRI_TRY(tri_cuda_load(&driver));
    (void)driver->driver_version(&version);
    for (size_t i = version < NEWEST_DRIVER ? 1 : 0; i < TRI_COUNT_OF(files); i++) {
        const char *file = emulated ? emulated_files[i] : files[i];
        void *library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
        if (!library)
            continue;
        return find_calls(library, file, calls);
    }
    return tri_fail(TRI_EUNSUPPORTED, "there is no cublasLt (%s, %s)", files[0], files[1]);
}

tri_status tri_cublaslt_load(bool emulated, const tri_cublaslt_calls **out)
{
    static tri_cublaslt_calls calls;
    static tri_cuda_once once = {.mutex = {.real = PTHREAD_MUTEX_INITIALIZER}};
    *out = &calls;
    return tri_cuda_load_once(&once, calls_load, emulated, &calls);
}

static void name_print(const tri_cublaslt_calls *calls, char text[TRI_CUBLASLT_NBYTES])
{
    const int version = (int)calls->version();
    snprintf(text, TRI_CUBLASLT_NBYTES, "cublasLt %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

tri_status tri_cublaslt_name(char text[TRI_CUBLASLT_NBYTES])
{
    const tri_cuda_calls *driver;
    const tri_cublaslt_calls *calls;
    TRI_TRY(tri_cuda_load(&driver));
    TRI_TRY(tri_cublaslt_load(driver->emulated != NULL, &calls));
    name_print(calls, text);
    return TRI_OK;
}

tri_status tri_cublaslt_open(const tri_cuda_calls *driver, int index, cuda_context context, cuda_stream stream,
                             tri_cublaslt **out)
{
    const tri_cublaslt_calls *calls;
    TRI_TRY(tri_cublaslt_load(driver->emulated != NULL, &calls));
    tri_cublaslt *library = tri_alloc_zero(1, sizeof(*library));
    if (!library)
        return TRI_ENOMEM;
    *library = (tri_cublaslt){.calls = calls, .driver = driver, .index = index, .context = context, .stream = stream};
    name_print(calls, library->name);
    (void)driver->context_set(context);
    const cublaslt_result result = calls->create(&library->handle);
    if (result != 0) {
        tri_status status = tri_fail(TRI_EUNSUPPORTED, "%s cannot start: error %d", library->name, result);
        library->handle = NULL;
        tri_cublaslt_close(library);
        return status;
    }
    if (driver->memory_alloc(&library->workspace, WORKSPACE_NBYTES) != 0) {
        library->workspace = 0;
        tri_cublaslt_close(library);
        return tri_fail(TRI_ENOMEM, "cuda:%d: cannot allocate %zu bytes: the card's memory is full", index,
                        WORKSPACE_NBYTES);
    }
    *out = library;
    return TRI_OK;
}

void tri_cublaslt_close(tri_cublaslt *library)
{
    if (!library)
        return;
    (void)library->driver->context_set(library->context);
    for (int i = 0; i < library->choice_count; i++)
        tri_cublaslt_plan_destroy(library, library->choices[i].plan);
    if (library->handle)
        (void)library->calls->destroy(library->handle);
    if (library->workspace)
        (void)library->driver->memory_free(library->workspace);
    tri_free(library->choices);
    tri_free(library);
}

/* --- a product --- */

enum { LEFT, RIGHT, RESULT, MATRICES };

struct tri_cublaslt_plan {
    cublaslt_desc desc;
    cublaslt_layout layout[MATRICES]; /* of b, a and c */
    uint32_t align[MATRICES];         /* bytes that the addresses of all shards are multiples of */
    int batch;                        /* that the layouts are set to */
    char name[TRI_DEVICE_NAME_NBYTES];
    bool adds, bias;
};

static int64_t type_nbytes(int64_t type)
{
    return type == CUBLASLT_F32 ? 4 : 2;
}

/* The layouts' batch counts are one setting of the plan. */
static cublaslt_result batch_set(const tri_cublaslt *library, tri_cublaslt_plan *plan, int batch)
{
    const int32_t count = batch;
    cublaslt_result result = 0;
    for (int i = 0; i < MATRICES && result == 0 && plan->batch != batch; i++)
        result = library->calls->layout_set(plan->layout[i], CUBLASLT_LAYOUT_BATCH, &count, sizeof(count));
    plan->batch = result == 0 ? batch : 0; /* 0: of some only */
    return result;
}

/* A factor whose element (row, l) lies at row * step + l, or at l * step + row. */
static cublaslt_result factor_make(const tri_cublaslt *library, tri_cublaslt_plan *plan, int which, int64_t type,
                                   int64_t rows, int64_t k, bool along, int64_t step)
{
    const int32_t turned = which == LEFT ? along : !along;
    const cublaslt_result result = library->calls->desc_set(
        plan->desc, which == LEFT ? CUBLASLT_DESC_TRANSA : CUBLASLT_DESC_TRANSB, &turned, sizeof(turned));
    return result != 0 ? result
                       : library->calls->layout_create(&plan->layout[which], (int)type, (uint64_t)(along ? k : rows),
                                                       (uint64_t)(along ? rows : k), step);
}

static cublaslt_result stride_set(const tri_cublaslt *library, tri_cublaslt_plan *plan, int which, int64_t stride,
                                  int64_t type)
{
    uint32_t align = TRI_PRODUCT_ALIGNMENT;
    while (stride * type_nbytes(type) % align != 0)
        align /= 2;
    plan->align[which] = align;
    return library->calls->layout_set(plan->layout[which], CUBLASLT_LAYOUT_STRIDE, &stride, sizeof(stride));
}

static cublaslt_result bias_set(const tri_cublaslt *library, const tri_cublaslt_plan *plan, const void *bias)
{
    return plan->bias ? library->calls->desc_set(plan->desc, CUBLASLT_DESC_BIAS, &bias, sizeof(bias)) : 0;
}

/* A search wants to see a bias too: any memory that is aligned. */
static cublaslt_result epilogue_set(const tri_cublaslt *library, const tri_gpu_product *p, tri_cublaslt_plan *plan)
{
    const uint32_t epilogue = (p->relu ? CUBLASLT_EPILOGUE_RELU : 0) | (p->bias ? CUBLASLT_EPILOGUE_BIAS : 0);
    plan->bias = p->bias;
    cublaslt_result result =
        epilogue != 0 ? library->calls->desc_set(plan->desc, CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) : 0;
    return result == 0 ? bias_set(library, plan, (const void *)(uintptr_t)library->workspace) : result;
}

static cublaslt_result plan_fill(const tri_cublaslt *library, const tri_gpu_product *p, tri_cublaslt_plan *plan)
{
    const int compute = p->type == CUBLASLT_F32 ? CUBLASLT_COMPUTE_32F_PEDANTIC : CUBLASLT_COMPUTE_32F;
    plan->adds = p->adds;
    snprintf(plan->name, sizeof(plan->name), "cublasLt %lldx%lldx%lld", (long long)p->m, (long long)p->n,
             (long long)p->k);
    cublaslt_result result = library->calls->desc_create(&plan->desc, compute, CUBLASLT_F32);
    result = result == 0 ? epilogue_set(library, p, plan) : result;
    result = result == 0 ? factor_make(library, plan, LEFT, p->type, p->n, p->k, p->b_along, p->b_step) : result;
    result = result == 0 ? factor_make(library, plan, RIGHT, p->type, p->m, p->k, p->a_along, p->a_step) : result;
    result = result == 0 ? library->calls->layout_create(&plan->layout[RESULT], (int)p->c_type, (uint64_t)p->n,
                                                         (uint64_t)p->m, p->n)
                         : result;
    result = result == 0 ? stride_set(library, plan, LEFT, p->b_stride, p->type) : result;
    result = result == 0 ? stride_set(library, plan, RIGHT, p->a_stride, p->type) : result;
    return result == 0 ? stride_set(library, plan, RESULT, p->m * p->n, p->c_type) : result;
}

tri_status tri_cublaslt_plan_create(tri_cublaslt *library, const tri_gpu_product *product, tri_cublaslt_plan **out)
{
    tri_cublaslt_plan *plan = tri_alloc_zero(1, sizeof(*plan));
    if (!plan)
        return TRI_ENOMEM;
    const cublaslt_result result = plan_fill(library, product, plan);
    if (result != 0) {
        tri_cublaslt_plan_destroy(library, plan);
        return tri_fail(TRI_EUNSUPPORTED, "%s: a product cannot be described: error %d", library->name, result);
    }
    *out = plan;
    return TRI_OK;
}

void tri_cublaslt_plan_destroy(const tri_cublaslt *library, tri_cublaslt_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < MATRICES; i++)
        if (plan->layout[i])
            (void)library->calls->layout_destroy(plan->layout[i]);
    if (plan->desc)
        (void)library->calls->desc_destroy(plan->desc);
    tri_free(plan);
}

/* --- algorithms --- */

static tri_status preference_make(const tri_cublaslt *library, const tri_cublaslt_plan *plan, bool cuts,
                                  cublaslt_preference *out)
{
    const uint64_t workspace = WORKSPACE_NBYTES;
    const uint32_t reductions = cuts ? CUBLASLT_ALL_REDUCTIONS : 0;
    const uint32_t align[] = {plan->align[LEFT], plan->align[RIGHT], plan->align[RESULT], plan->align[RESULT]};
    const tri_cublaslt_calls *calls = library->calls;
    cublaslt_result result = calls->preference_create(out);
    if (result != 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: no preferences: error %d", library->name, result);
    result = calls->preference_set(*out, CUBLASLT_PREFERENCE_WORKSPACE, &workspace, sizeof(workspace));
    result = result == 0 ? calls->preference_set(*out, CUBLASLT_PREFERENCE_REDUCTIONS, &reductions, sizeof(reductions))
                         : result;
    for (int i = 0; i < (int)TRI_COUNT_OF(align) && result == 0; i++)
        result = calls->preference_set(*out, CUBLASLT_PREFERENCE_ALIGN_A + i, &align[i], sizeof(align[i]));
    if (result == 0)
        return TRI_OK;
    (void)calls->preference_destroy(*out);
    return tri_fail(TRI_EUNSUPPORTED, "%s: a preference cannot be set: error %d", library->name, result);
}

/* One value of an algorithm; -1: this version does not know it. */
static int64_t value_of(const tri_cublaslt *library, const cublaslt_algorithm *algorithm, int attribute)
{
    uint32_t value = 0;
    uint16_t narrow = 0;
    size_t written = 0;
    const bool is_narrow = attribute == CUBLASLT_ALGORITHM_INNER_SHAPE || attribute == CUBLASLT_ALGORITHM_CLUSTER;
    void *to = is_narrow ? (void *)&narrow : (void *)&value;
    const size_t nbytes = is_narrow ? sizeof(narrow) : sizeof(value);
    if (library->calls->algorithm_value(algorithm, attribute, to, nbytes, &written) != 0)
        return -1;
    return is_narrow ? narrow : value;
}

static void text_print(const tri_cublaslt *library, tri_gpu_algorithm *algorithm)
{
    int at = 0;
    for (int i = 0; i < CUBLASLT_ALGORITHM_VALUES && at < TRI_ALGORITHM_NBYTES; i++)
        at += snprintf(algorithm->text + at, TRI_ALGORITHM_NBYTES - (size_t)at, "%s%lld", i > 0 ? "." : "",
                       (long long)value_of(library, &algorithm->record, i));
}

int tri_cublaslt_find(const tri_cublaslt *library, tri_cublaslt_plan *plan, int batch, bool cuts,
                      tri_gpu_algorithm *found, int capacity)
{
    cublaslt_found all[MOST_FOUND];
    cublaslt_preference preference;
    int count = 0, kept = 0;
    (void)library->driver->context_set(library->context);
    if (batch_set(library, plan, batch) != 0 || preference_make(library, plan, cuts, &preference) != TRI_OK)
        return 0;
    if (library->calls->find(library->handle, plan->desc, plan->layout[LEFT], plan->layout[RIGHT], plan->layout[RESULT],
                             plan->layout[RESULT], preference, MOST_FOUND, all, &count) != 0)
        count = 0;
    (void)library->calls->preference_destroy(preference);
    for (int i = 0; i < count && kept < capacity; i++) {
        const cublaslt_algorithm *record = &all[i].algorithm;
        const bool whole = value_of(library, record, CUBLASLT_ALGORITHM_SPLIT_K) <= 1 &&
                           value_of(library, record, CUBLASLT_ALGORITHM_REDUCTION) <= 0;
        if (all[i].state != 0 || all[i].workspace_nbytes > WORKSPACE_NBYTES || (!cuts && !whole))
            continue;
        found[kept] = (tri_gpu_algorithm){.record = *record, .workspace_nbytes = all[i].workspace_nbytes};
        text_print(library, &found[kept++]);
    }
    return kept;
}

tri_status tri_cublaslt_multiply(const tri_cublaslt *library, tri_cublaslt_plan *plan,
                                 const tri_gpu_algorithm *algorithm, int batch, const void *a, const void *b,
                                 const void *bias, void *c)
{
    const float one = 1, old = plan->adds ? 1 : 0;
    TRI_ASSERT((uintptr_t)b % plan->align[LEFT] == 0 && (uintptr_t)a % plan->align[RIGHT] == 0 &&
               (uintptr_t)c % plan->align[RESULT] == 0 && (uintptr_t)bias % TRI_PRODUCT_ALIGNMENT == 0);
    (void)library->driver->context_set(library->context);
    cublaslt_result result = batch_set(library, plan, batch);
    result = result == 0 ? bias_set(library, plan, bias) : result;
    if (library->times)
        tri_cuda_times_begin(library->times, plan->name);
    if (result == 0)
        result =
            library->calls->multiply(library->handle, plan->desc, &one, b, plan->layout[LEFT], a, plan->layout[RIGHT],
                                     &old, c, plan->layout[RESULT], c, plan->layout[RESULT], &algorithm->record,
                                     (void *)(uintptr_t)library->workspace, WORKSPACE_NBYTES, library->stream);
    if (library->times)
        tri_cuda_times_end(library->times);
    return result == 0 ? TRI_OK
                       : tri_fail(TRI_EUNSUPPORTED, "cuda:%d: %s: error %d", library->index, library->name, result);
}
