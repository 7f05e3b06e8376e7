/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_cublaslt.c: a cublasLt that computes on the fake card's stream: found by the same dlopen.
 *
 * It refuses what NVIDIA's refuses: types and layouts that do not fit, addresses, steps and strides that are not
 * aligned as an algorithm needs, a workspace that is too small. It sums 8 terms at a time, so its bits are not those
 * of our own kernels. FAKE_CUBLASLT names what else it does, separated by commas: `batch` puts an algorithm in front
 * whose sums depend on the batch, `tail` one that drops the rest of k, `refuses` one that cannot run, `only` removes
 * the good ones; `old` is version 12.9.1, `old1` only on rank 1; `other1` begins with another one on rank 1;
 * `no_start`.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt_library.h"
#include "gpu/fake_cuda.h"
#include "gpu/fake_words.h"
#include "tensor/half.h"

#define EXPORT         __attribute__((visibility("default")))
#define MOST           8
#define VECTOR         16 /* bytes that a fast algorithm reads at once */
#define NEEDS_MEMORY   (1 << 20)
#define ALGORITHM_MARK UINT64_C(0x7472)

typedef enum kind { PLAIN, FAST, SPLIT, BATCH, TAIL, REFUSES } kind;

struct cublaslt_layout_object {
    int type;
    uint64_t rows, columns;
    int64_t step, stride;
    int32_t batch;
};

struct cublaslt_desc_object {
    int compute, scale;
    int32_t turned[2];
    uint32_t epilogue;
    const void *bias;
};

struct cublaslt_preference_object {
    uint64_t workspace;
    uint32_t reductions, align[4];
};

/* A product on the stream. */
typedef struct work {
    struct cublaslt_desc_object desc;
    struct cublaslt_layout_object a, b, c;
    const char *from[2];
    char *to;
    float alpha, beta;
    kind kind;
} work;

/* FAKE_CUBLASLT has that word. */
static bool has(const char *word)
{
    return fake_has("FAKE_CUBLASLT", word);
}

static int is_rank_1(void)
{
    const char *rank = getenv("TRIREME_RANK");
    return rank && strcmp(rank, "1") == 0;
}

#define DECLARE(result, symbol, name, args) EXPORT result symbol args;
TRI_CUBLASLT_CALLS(DECLARE)

size_t cublasLtGetVersion(void)
{
    return has("old") || (has("old1") && is_rank_1()) ? 120901 : 130100;
}

cublaslt_result cublasLtCreate(cublaslt_handle *handle)
{
    static char object;
    *handle = (cublaslt_handle)(void *)&object;
    return has("no_start") ? 1 : 0;
}

cublaslt_result cublasLtDestroy(cublaslt_handle handle)
{
    (void)handle;
    return 0;
}

/* --- descriptors --- */

static void *made(size_t nbytes)
{
    void *memory = calloc(1, nbytes);
    if (!memory)
        abort();
    return memory;
}

static cublaslt_result take(void *field, size_t field_nbytes, const void *value, size_t nbytes)
{
    if (!value || nbytes != field_nbytes)
        return CUBLASLT_INVALID_VALUE;
    memcpy(field, value, nbytes);
    return 0;
}

cublaslt_result cublasLtMatmulDescCreate(cublaslt_desc *desc, int compute, int scale_type)
{
    *desc = made(sizeof(**desc));
    (*desc)->compute = compute;
    (*desc)->scale = scale_type;
    return 0;
}

cublaslt_result cublasLtMatmulDescDestroy(cublaslt_desc desc)
{
    free(desc);
    return 0;
}

cublaslt_result cublasLtMatmulDescSetAttribute(cublaslt_desc desc, int attribute, const void *value, size_t nbytes)
{
    if (attribute == CUBLASLT_DESC_EPILOGUE)
        return take(&desc->epilogue, sizeof(desc->epilogue), value, nbytes);
    if (attribute == CUBLASLT_DESC_BIAS)
        return take(&desc->bias, sizeof(desc->bias), value, nbytes);
    if (attribute != CUBLASLT_DESC_TRANSA && attribute != CUBLASLT_DESC_TRANSB)
        return CUBLASLT_INVALID_VALUE;
    return take(&desc->turned[attribute - CUBLASLT_DESC_TRANSA], sizeof(int32_t), value, nbytes);
}

cublaslt_result cublasLtMatrixLayoutCreate(cublaslt_layout *layout, int type, uint64_t rows, uint64_t columns,
                                           int64_t column_step)
{
    *layout = made(sizeof(**layout));
    **layout = (struct cublaslt_layout_object){
        .type = type, .rows = rows, .columns = columns, .step = column_step, .batch = 1};
    return 0;
}

cublaslt_result cublasLtMatrixLayoutDestroy(cublaslt_layout layout)
{
    free(layout);
    return 0;
}

cublaslt_result cublasLtMatrixLayoutSetAttribute(cublaslt_layout layout, int attribute, const void *value,
                                                 size_t nbytes)
{
    return attribute == CUBLASLT_LAYOUT_BATCH    ? take(&layout->batch, sizeof(layout->batch), value, nbytes)
           : attribute == CUBLASLT_LAYOUT_STRIDE ? take(&layout->stride, sizeof(layout->stride), value, nbytes)
                                                 : CUBLASLT_INVALID_VALUE;
}

cublaslt_result cublasLtMatmulPreferenceCreate(cublaslt_preference *preference)
{
    *preference = made(sizeof(**preference));
    **preference =
        (struct cublaslt_preference_object){.reductions = CUBLASLT_ALL_REDUCTIONS, .align = {256, 256, 256, 256}};
    return 0;
}

cublaslt_result cublasLtMatmulPreferenceDestroy(cublaslt_preference preference)
{
    free(preference);
    return 0;
}

cublaslt_result cublasLtMatmulPreferenceSetAttribute(cublaslt_preference preference, int attribute, const void *value,
                                                     size_t nbytes)
{
    if (attribute == CUBLASLT_PREFERENCE_WORKSPACE)
        return take(&preference->workspace, sizeof(preference->workspace), value, nbytes);
    if (attribute == CUBLASLT_PREFERENCE_REDUCTIONS)
        return take(&preference->reductions, sizeof(preference->reductions), value, nbytes);
    if (attribute >= CUBLASLT_PREFERENCE_ALIGN_A && attribute < CUBLASLT_PREFERENCE_ALIGN_A + 4)
        return take(&preference->align[attribute - CUBLASLT_PREFERENCE_ALIGN_A], sizeof(uint32_t), value, nbytes);
    return CUBLASLT_INVALID_VALUE;
}

/* --- what is refused --- */

static uint64_t value_nbytes(int type)
{
    return type == CUBLASLT_F32 ? 4 : 2;
}

static cublaslt_result types_check(const struct cublaslt_desc_object *d, const struct cublaslt_layout_object *a,
                                   const struct cublaslt_layout_object *b, const struct cublaslt_layout_object *c)
{
    const int half = a->type == CUBLASLT_BF16 || a->type == CUBLASLT_F16;
    const int sums = d->compute == CUBLASLT_COMPUTE_32F || d->compute == CUBLASLT_COMPUTE_32F_PEDANTIC;
    if (!sums || d->scale != CUBLASLT_F32 || a->type != b->type || (!half && a->type != CUBLASLT_F32) ||
        (c->type != a->type && c->type != CUBLASLT_F32))
        return CUBLASLT_NOT_SUPPORTED;
    return 0;
}

static cublaslt_result layout_check(const struct cublaslt_layout_object *l)
{
    return l->rows < 1 || l->columns < 1 || l->step < (int64_t)l->rows || l->batch < 1 || l->stride < 0
               ? CUBLASLT_INVALID_VALUE
               : 0;
}

static cublaslt_result product_check(const struct cublaslt_desc_object *d, const struct cublaslt_layout_object *a,
                                     const struct cublaslt_layout_object *b, const struct cublaslt_layout_object *c)
{
    const uint64_t m = d->turned[0] ? a->columns : a->rows, k = d->turned[0] ? a->rows : a->columns;
    const uint64_t n = d->turned[1] ? b->rows : b->columns, other = d->turned[1] ? b->columns : b->rows;
    if (layout_check(a) || layout_check(b) || layout_check(c) || k != other || c->rows != m || c->columns != n ||
        a->batch != b->batch || a->batch != c->batch ||
        (c->batch > 1 && c->stride < c->step * (int64_t)(c->columns - 1) + (int64_t)c->rows))
        return CUBLASLT_INVALID_VALUE;
    if (d->epilogue & CUBLASLT_EPILOGUE_BIAS && (!d->bias || (uintptr_t)d->bias % VECTOR != 0))
        return CUBLASLT_INVALID_VALUE;
    return types_check(d, a, b, c);
}

static int layout_is_aligned(const struct cublaslt_layout_object *l, uint64_t nbytes)
{
    return (uint64_t)l->step * value_nbytes(l->type) % nbytes == 0 &&
           (uint64_t)l->stride * value_nbytes(l->type) % nbytes == 0;
}

static int is_aligned(const struct cublaslt_layout_object *a, const struct cublaslt_layout_object *b,
                      const struct cublaslt_layout_object *c, uint64_t nbytes)
{
    return layout_is_aligned(a, nbytes) && layout_is_aligned(b, nbytes) && layout_is_aligned(c, nbytes);
}

/* --- algorithms --- */

static uint64_t align_of(kind how, int type)
{
    return how == FAST || how == SPLIT ? VECTOR : value_nbytes(type);
}

static uint64_t workspace_of(kind how)
{
    return how == FAST ? NEEDS_MEMORY : 0;
}

/* In the order of the heuristic. */
static int kinds_list(kind *list)
{
    int count = 0;
    if (has("batch"))
        list[count++] = BATCH;
    if (has("tail"))
        list[count++] = TAIL;
    if (has("refuses"))
        list[count++] = REFUSES;
    if (has("only"))
        return count;
    list[count++] = SPLIT;
    if (!has("other1") || !is_rank_1())
        list[count++] = FAST;
    list[count++] = PLAIN;
    return count;
}

cublaslt_result cublasLtMatmulAlgoGetHeuristic(cublaslt_handle handle, cublaslt_desc desc, cublaslt_layout a,
                                               cublaslt_layout b, cublaslt_layout c, cublaslt_layout d,
                                               cublaslt_preference preference, int capacity, cublaslt_found *found,
                                               int *count)
{
    kind list[MOST];
    const int kinds = kinds_list(list);
    const cublaslt_result result = capacity < 1 || c != d ? CUBLASLT_INVALID_VALUE : product_check(desc, a, b, c);
    (void)handle;
    *count = 0;
    for (int i = 0; i < kinds && result == 0 && *count < capacity; i++) {
        const uint64_t align = align_of(list[i], a->type);
        if (workspace_of(list[i]) > preference->workspace || preference->align[0] < align ||
            preference->align[1] < align || preference->align[2] < align || preference->align[3] < align ||
            (list[i] == SPLIT && (preference->reductions & 2) == 0) || !is_aligned(a, b, c, align))
            continue;
        found[*count] = (cublaslt_found){
            .algorithm = {{ALGORITHM_MARK, (uint64_t)list[i]}}, .workspace_nbytes = workspace_of(list[i]), .waves = 1};
        ++*count;
    }
    return result == 0 && *count == 0 ? CUBLASLT_NOT_SUPPORTED : result;
}

cublaslt_result cublasLtMatmulAlgoConfigGetAttribute(const cublaslt_algorithm *algorithm, int attribute, void *value,
                                                     size_t nbytes, size_t *written)
{
    const int narrow = attribute == CUBLASLT_ALGORITHM_INNER_SHAPE || attribute == CUBLASLT_ALGORITHM_CLUSTER;
    const int split = algorithm->words[1] == SPLIT;
    const uint32_t wide = attribute == CUBLASLT_ALGORITHM_ID          ? (uint32_t)algorithm->words[1]
                          : attribute == CUBLASLT_ALGORITHM_SPLIT_K   ? (split ? 2 : 1)
                          : attribute == CUBLASLT_ALGORITHM_REDUCTION ? (split ? 2 : 0)
                                                                      : 0;
    if (nbytes != (narrow ? sizeof(uint16_t) : sizeof(uint32_t)) || attribute >= CUBLASLT_ALGORITHM_VALUES)
        return CUBLASLT_INVALID_VALUE;
    memcpy(value, narrow ? (const void *)&(uint16_t){0} : (const void *)&wide, nbytes);
    *written = nbytes;
    return 0;
}

/* --- products --- */

static float load(const char *from, int type, int64_t i)
{
    if (type == CUBLASLT_F32)
        return ((const float *)(const void *)from)[i];
    const uint16_t bits = ((const uint16_t *)(const void *)from)[i];
    return type == CUBLASLT_BF16 ? half_from_bf16(bits) : half_from_f16(bits);
}

static void store(char *to, int type, int64_t i, float value)
{
    if (type == CUBLASLT_F32)
        ((float *)(void *)to)[i] = value;
    else
        ((uint16_t *)(void *)to)[i] = type == CUBLASLT_BF16 ? half_to_bf16(value) : half_to_f16(value);
}

/* One element of one product of the batch: terms [first, end) of its sum. */
static float terms_sum(const work *w, int64_t s, int64_t i, int64_t j, int64_t first, int64_t end)
{
    float sum = 0;
    for (int64_t l = first; l < end; l += 8) {
        float part = 0;
        for (int64_t k = l; k < end && k < l + 8; k++) {
            const int64_t a = w->desc.turned[0] ? i * w->a.step + k : k * w->a.step + i;
            const int64_t b = w->desc.turned[1] ? k * w->b.step + j : j * w->b.step + k;
            part += load(w->from[0], w->a.type, s * w->a.stride + a) * load(w->from[1], w->b.type, s * w->b.stride + b);
        }
        sum += part;
    }
    return sum;
}

static void compute(void *arg)
{
    const work *w = arg;
    const int64_t k = (int64_t)(w->desc.turned[0] ? w->a.rows : w->a.columns);
    const int64_t used = w->kind == TAIL ? k - (k > 1 ? 1 : 0) : k;
    const int rounds = w->kind == BATCH && w->c.batch > 3;
    for (int64_t s = 0; s < w->c.batch; s++)
        for (int64_t j = 0; j < (int64_t)w->c.columns; j++)
            for (int64_t i = 0; i < (int64_t)w->c.rows; i++) {
                const int64_t at = s * w->c.stride + j * w->c.step + i;
                float sum = terms_sum(w, s, i, j, 0, used);
                if (rounds && sum != (float)(int)sum) /* whole numbers are exact in any order */
                    sum = 1.0078125f * half_from_bf16(half_to_bf16(sum));
                sum = w->alpha * sum + (w->beta != 0 ? w->beta * load(w->to, w->c.type, at) : 0);
                if (w->desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
                    sum += load(w->desc.bias, w->c.type, i);
                store(w->to, w->c.type, at, w->desc.epilogue & CUBLASLT_EPILOGUE_RELU && sum < 0 ? 0 : sum);
            }
    free(arg);
}

/* Of the fake driver, which is loaded: linked to it, this library would bring it along into a bundle. */
static void stream_call(cuda_stream stream, work *w)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    fake_cuda_call_fn call = driver ? (fake_cuda_call_fn)dlsym(driver, "fake_cuda_call") : NULL;
    if (!call)
        abort();
    call(stream, compute, w);
    (void)dlclose(driver);
}

cublaslt_result cublasLtMatmul(cublaslt_handle handle, cublaslt_desc desc, const void *alpha, const void *a,
                               cublaslt_layout a_layout, const void *b, cublaslt_layout b_layout, const void *beta,
                               const void *c, cublaslt_layout c_layout, void *d, cublaslt_layout d_layout,
                               const cublaslt_algorithm *algorithm, void *workspace, size_t workspace_nbytes,
                               cuda_stream stream)
{
    const cublaslt_result result = product_check(desc, a_layout, b_layout, d_layout);
    const kind how = algorithm ? (kind)algorithm->words[1] : PLAIN;
    const uint64_t align = align_of(how, a_layout->type);
    (void)handle;
    if (result != 0)
        return result;
    if (!algorithm || algorithm->words[0] != ALGORITHM_MARK || c_layout != d_layout || c != d ||
        ((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) % align != 0 || !is_aligned(a_layout, b_layout, d_layout, align) ||
        workspace_nbytes < workspace_of(how) || (uintptr_t)workspace % CUBLASLT_WORKSPACE_ALIGN != 0 ||
        (workspace_of(how) > 0 && !workspace))
        return CUBLASLT_INVALID_VALUE;
    if (how == REFUSES)
        return CUBLASLT_NOT_SUPPORTED;
    work *w = made(sizeof(*w));
    *w = (work){.desc = *desc,
                .a = *a_layout,
                .b = *b_layout,
                .c = *d_layout,
                .from = {a, b},
                .to = d,
                .alpha = *(const float *)alpha,
                .beta = *(const float *)beta,
                .kind = how};
    stream_call(stream, w);
    return 0;
}
