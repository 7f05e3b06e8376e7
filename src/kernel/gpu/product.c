/* SPDX-License-Identifier: Apache-2.0
 *
 * product.c: who multiplies: the probe of a library's algorithms, and the choices so far, one for each shape.
 *
 * The choices are few and are searched from the start at each call.
 */
#include "kernel/gpu/product.h"

#include "base/log.h"
#include "base/rng.h"
#include "base/status.h"

#define MOST_ALGORITHMS 8
#define NOISE           INT64_C(262147) /* elements of it, a prime: shards that it repeats in differ */

static const int64_t types[] = {
    [TRI_GPU_F32] = CUBLASLT_F32, [TRI_GPU_BF16] = CUBLASLT_BF16, [TRI_GPU_F16] = CUBLASLT_F16};

/* Bytes of the results of one call, where it has more than one shard: the probe has two of them. Of large products few
 * fill a card. */
int64_t tri_gpu_product_nbytes = INT64_C(1) << 28;

/* A factor of `rows` rows of k elements: which of them are neighbours, and the step between the others; false: none
 * are.
 */
static bool factor_make(const tri_gpu_operand *o, int64_t rows, int64_t k, int64_t *along, int64_t *step)
{
    *along = o->column == 1 && (o->row >= k || rows == 1);
    const int64_t inner = *along ? k : rows, given = *along ? o->row : o->column;
    *step = tri_int64_max(inner, given);
    return o->source == TRI_GPU_PLAIN && (*along || (o->row == 1 && (given >= inner || k == 1)));
}

/* What a library can be asked for: dense rows, both factors of one type, c of that or f32. */
static bool product_make(const tri_gpu_gemm_args *args, tri_gpu_product *out)
{
    const tri_gpu_operand *a = &args->a, *b = &args->b, *c = &args->c;
    *out = (tri_gpu_product){.m = args->m,
                             .n = args->n,
                             .k = args->k,
                             .type = types[a->value.type],
                             .c_type = types[c->value.type],
                             .a_stride = a->shard_stride,
                             .b_stride = b->shard_stride,
                             .adds = args->adds,
                             .bias = args->bias != NULL,
                             .relu = args->relu};
    return factor_make(a, args->m, args->k, &out->a_along, &out->a_step) &&
           factor_make(b, args->n, args->k, &out->b_along, &out->b_step) && args->groups <= 1 &&
           a->value.type == b->value.type && (c->value.type == a->value.type || c->value.type == TRI_GPU_F32) &&
           c->column == 1 && c->row == args->n && c->shard_stride == (int64_t)args->m * args->n &&
           (!args->adds || c->value.type == TRI_GPU_F32);
}

/* Shards of a call, at most: from the shape of one alone. */
static int batch_of(const tri_gpu_product *x)
{
    int batch = TRI_PRODUCT_BATCH;
    while (batch > 1 && batch * x->m * x->n * (x->c_type == CUBLASLT_F32 ? 4 : 2) > tri_gpu_product_nbytes) {
        batch /= 2;
    }
    return batch;
}

static tri_product_choice *choice_find(const tri_cublaslt *library, const tri_gpu_product *product)
{
    for (int i = 0; i < library->choice_count; i++) {
        if (memcmp(&library->choices[i].product, product, sizeof *product) == 0) {
            return &library->choices[i];
        }
    }
    return NULL;
}

/* --- the probe --- */

/* Arrays of `batch` shards. */
typedef struct probe {
    const tri_device *device;
    const tri_gpu_product *product;
    const tri_gpu_gemm_args *args;
    int64_t batch;
    tri_gpu_value a, b, c, other;   /* other: of shards in another batch; or what c should be */
    tri_gpu_value bias, whole_bias; /* of c's type; as our own kernel reads it */
    int64_t a_count, b_count, c_count;
    int32_t *blocks; /* of the device: elements that differ */
    int32_t *counts; /* the same on the host */
} probe;

/* Elements of a factor with `rows` rows along i or j. */
static int64_t factor_count(int64_t batch, int64_t rows, int64_t k, bool along, int64_t step, int64_t stride)
{
    const int64_t one = along ? (rows - 1) * step + k : (k - 1) * step + rows;
    return stride * (batch - 1) + one;
}

static int64_t value_nbytes(const tri_gpu_value *value)
{
    return value->type == TRI_GPU_F32 ? 4 : 2;
}

static int gpu_type_of(int64_t type)
{
    return type == CUBLASLT_F32 ? TRI_GPU_F32 : type == CUBLASLT_BF16 ? TRI_GPU_BF16 : TRI_GPU_F16;
}

static tri_status value_alloc(const probe *p, int64_t type, int64_t count, tri_gpu_value *out)
{
    out->type = gpu_type_of(type);
    out->data = tri_device_alloc(p->device, (size_t)(count * value_nbytes(out)));
    return out->data != NULL ? TRI_OK : TRI_ENOMEM;
}

static int64_t differs_blocks(const probe *p)
{
    return tri_int64_ceil(p->c_count * value_nbytes(&p->c) / 2, (int64_t)TRI_GPU_THREADS * TRI_GPU_DIFFERS);
}

static tri_status probe_open(probe *p)
{
    const tri_gpu_product *x = p->product;
    p->a_count = factor_count(p->batch, x->m, x->k, x->a_along, x->a_step, x->a_stride);
    p->b_count = factor_count(p->batch, x->n, x->k, x->b_along, x->b_step, x->b_stride);
    p->c_count = p->batch * x->m * x->n;
    TRI_TRY(value_alloc(p, x->type, p->a_count, &p->a));
    TRI_TRY(value_alloc(p, x->type, p->b_count, &p->b));
    TRI_TRY(value_alloc(p, x->c_type, p->c_count, &p->c));
    TRI_TRY(value_alloc(p, x->c_type, p->c_count, &p->other));
    TRI_TRY(value_alloc(p, x->c_type, x->n, &p->bias));
    TRI_TRY(value_alloc(p, CUBLASLT_F32, x->n, &p->whole_bias));
    p->blocks = tri_device_alloc(p->device, (size_t)differs_blocks(p) * sizeof(int32_t));
    p->counts = tri_alloc((size_t)differs_blocks(p) * sizeof(int32_t));
    return p->blocks != NULL && p->counts != NULL ? TRI_OK : TRI_ENOMEM;
}

static void probe_close(probe *p)
{
    tri_free(p->counts);
    tri_device_free(p->device, p->blocks);
    tri_device_free(p->device, p->whole_bias.data);
    tri_device_free(p->device, p->bias.data);
    tri_device_free(p->device, p->other.data);
    tri_device_free(p->device, p->c.data);
    tri_device_free(p->device, p->b.data);
    tri_device_free(p->device, p->a.data);
}

/* out[0, count) = the elements of [0, filled), again and again. */
static void repeat(const probe *p, const tri_gpu_value *out, int64_t filled, int64_t count)
{
    for (int64_t now = filled; now < count; now *= 2) {
        const int64_t more = tri_int64_min(now, count - now);
        tri_device_copy(p->device, tri_gpu_moved(*out, now), out->data, (size_t)(more * value_nbytes(out)));
    }
}

/* The first elements, in f32, of the host: those of the others follow from them. */
static tri_status fill_from(const probe *p, const tri_gpu_value *out, int64_t count, const float *first, int64_t filled)
{
    float *const there = tri_device_alloc(p->device, (size_t)filled * sizeof(float));
    if (there == NULL) {
        return TRI_ENOMEM;
    }
    tri_device_from_host(p->device, there, first, (size_t)filled * sizeof(float));
    tri_gpu_cast(tri_gpu_queue_of(p->device), *out, tri_gpu_value_make(there, TRI_F32), filled);
    tri_device_free(p->device, there);
    repeat(p, out, filled, count);
    return TRI_OK;
}

static tri_status fill_value(const probe *p, const tri_gpu_value *out, int64_t count, float value)
{
    return fill_from(p, out, count, &value, 1);
}

/* In [-1, 1); whole: -1, 0 or 1. */
static tri_status fill_noise(const probe *p, const tri_gpu_value *out, int64_t count, uint64_t seed, bool whole)
{
    const int64_t filled = tri_int64_min(count, NOISE);
    float *const noise = tri_alloc((size_t)filled * sizeof(float));
    if (noise == NULL) {
        return TRI_ENOMEM;
    }
    tri_rng_fill_uniform((tri_rng){seed, tri_rng_stream("probe", 0, 0)}, 0, (uint64_t)filled, noise);
    for (int64_t i = 0; i < filled; i++) {
        noise[i] = whole ? (float)(int)(3 * noise[i]) - 1 : 2 * noise[i] - 1;
    }
    const tri_status status = fill_from(p, out, count, noise, filled);
    tri_free(noise);
    return status;
}

static bool is_equal(const probe *p)
{
    const tri_gpu_differs_args args = {
        .a = p->c.data, .b = p->other.data, .count = p->c_count * value_nbytes(&p->c) / 2, .blocks = p->blocks};
    const int64_t blocks = differs_blocks(p);
    int64_t sum = 0;
    tri_gpu_run(tri_gpu_queue_of(p->device), tri_gpu_kernel_differs, blocks, 1, 1, TRI_GPU_THREADS, &args, sizeof args);
    tri_device_to_host(p->device, p->counts, p->blocks, (size_t)blocks * sizeof(int32_t));
    for (int64_t i = 0; i < blocks; i++) {
        sum += p->counts[i];
    }
    return sum == 0;
}

/* Shards [first, first + count) in one batch. */
static tri_status multiply(const probe *p, const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                           const tri_gpu_value *c, int first, int count)
{
    const tri_gpu_product *x = p->product;
    return tri_cublaslt_multiply(tri_gpu_library_of(p->device), choice->plan, algorithm, count,
                                 tri_gpu_moved(p->a, first * x->a_stride), tri_gpu_moved(p->b, first * x->b_stride),
                                 p->bias.data, tri_gpu_moved(*c, first * x->m * x->n));
}

/* All shards in batches of `each`, and the rest in one: the same bytes as all in one batch. */
static tri_status batch_check(const probe *p, const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                              int each, bool *good)
{
    TRI_TRY(fill_value(p, &p->other, p->c_count, 0.5f));
    for (int first = 0; first < p->batch; first += each) {
        const int rest = (int)p->batch - first;
        TRI_TRY(multiply(p, choice, algorithm, &p->other, first, rest < each ? rest : each));
    }
    *good = is_equal(p);
    return TRI_OK;
}

static tri_status noise_check(const probe *p, const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                              bool *good)
{
    TRI_TRY(fill_noise(p, &p->a, p->a_count, 1, false));
    TRI_TRY(fill_noise(p, &p->b, p->b_count, 2, false));
    TRI_TRY(fill_noise(p, &p->bias, p->product->n, 3, false));
    TRI_TRY(fill_value(p, &p->c, p->c_count, 0.5f));
    TRI_TRY(multiply(p, choice, algorithm, &p->c, 0, (int)p->batch));
    for (int each = 1; (each == 1 || each < p->batch) && *good; each++) { /* a batch of one: twice the same */
        TRI_TRY(batch_check(p, choice, algorithm, each, good));
    }
    return TRI_OK;
}

/* Sums of -1, 0 and 1 are exact in any order, and small, so a term that is left out shows in the type of c: the bytes
 * are those of our own kernel. */
static tri_status sums_check(const probe *p, const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                             bool *good)
{
    tri_gpu_gemm_args own = *p->args;
    own.a.value = p->a;
    own.b.value = p->b;
    own.c.value = p->other;
    own.bias = p->args->bias != NULL ? p->whole_bias.data : NULL;
    own.type = p->a.type;
    TRI_TRY(fill_noise(p, &p->a, p->a_count, 4, true));
    TRI_TRY(fill_noise(p, &p->b, p->b_count, 5, true));
    TRI_TRY(fill_value(p, &p->bias, p->product->n, 1));
    TRI_TRY(fill_value(p, &p->whole_bias, p->product->n, 1));
    TRI_TRY(fill_value(p, &p->c, p->c_count, 1));
    TRI_TRY(fill_value(p, &p->other, p->c_count, 1));
    tri_gpu_gemm_own(&(tri_op_call){.device = p->device}, &own, p->batch);
    TRI_TRY(multiply(p, choice, algorithm, &p->c, 0, (int)p->batch));
    *good = is_equal(p);
    return TRI_OK;
}

static tri_status algorithm_check(const probe *p, const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                                  tri_product_finding *finding)
{
    bool good = true;
    *finding = TRI_PRODUCT_SUM_DIFFERS;
    tri_status status = sums_check(p, choice, algorithm, &good);
    if (status == TRI_OK && good) {
        *finding = TRI_PRODUCT_BATCH_DIFFERS;
        status = noise_check(p, choice, algorithm, &good);
    }
    if (status == TRI_EUNSUPPORTED) {
        *finding = TRI_PRODUCT_REFUSES;
        return TRI_OK;
    }
    *finding = good ? TRI_PRODUCT_PASSES : *finding;
    return status;
}

/* One algorithm that leaves out a term is the library's; that all do is no accident. */
static void warn_of_sums(const probe *p, int count)
{
    static const char *const names[] = {[TRI_GPU_F32] = "f32", [TRI_GPU_BF16] = "bf16", [TRI_GPU_F16] = "f16"};
    const tri_gpu_product *x = p->product;
    tri_log(
        TRI_LOG_WARN,
        "matrix product %lld x %lld, k %lld, of %s in %s: want the exact sums of our own kernel, got others from %s%d "
        "algorithm%s of %s: one of the two is wrong (tools/gpu_check ops checks our kernels)",
        (long long)x->m, (long long)x->n, (long long)x->k, names[p->a.type], names[p->c.type],
        count > 1 ? "all " : "the ", count, count > 1 ? "s" : "", tri_gpu_library_of(p->device)->name);
}

tri_status tri_gpu_product_probe(const tri_device *device, const tri_gpu_gemm_args *args,
                                 const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                                 tri_product_finding *finding)
{
    probe p = {.device = device, .product = &choice->product, .args = args, .batch = choice->batch};
    tri_status status = probe_open(&p);
    if (status == TRI_OK) {
        status = algorithm_check(&p, choice, algorithm, finding);
    }
    probe_close(&p);
    return status == TRI_OK ? tri_gpu_queue_of(device)->status : status;
}

static tri_status choose(const tri_device *device, const tri_gpu_gemm_args *args, tri_product_choice *choice)
{
    int wrong = 0;
    tri_gpu_algorithm found[MOST_ALGORITHMS];
    probe p = {.device = device, .product = &choice->product, .args = args, .batch = choice->batch};
    const int count =
        tri_cublaslt_find(tri_gpu_library_of(device), choice->plan, choice->batch, false, found, MOST_ALGORITHMS);
    tri_status status = count > 0 ? probe_open(&p) : TRI_OK;
    choice->own = true;
    for (int i = 0; i < count && choice->own && status == TRI_OK; i++) {
        tri_product_finding finding;
        status = algorithm_check(&p, choice, &found[i], &finding);
        choice->own = finding != TRI_PRODUCT_PASSES;
        choice->refused += choice->own;
        wrong += status == TRI_OK && finding == TRI_PRODUCT_SUM_DIFFERS;
        choice->algorithm = found[i];
    }
    if (tri_gpu_queue_of(device)->status == TRI_OK && wrong > 0 && wrong == count) {
        warn_of_sums(&p, count);
    }
    probe_close(&p);
    return status == TRI_OK ? tri_gpu_queue_of(device)->status : status; /* what was not launched has shown nothing */
}

/* --- plans and runs --- */

tri_status tri_gpu_product_plan(const tri_op_desc *desc, const tri_gpu_gemm_args *args)
{
    tri_product_choice choice = {.own = true};
    tri_cublaslt *const library = tri_gpu_library_of(desc->device);
    if (library == NULL || !product_make(args, &choice.product) || choice_find(library, &choice.product) != NULL) {
        return TRI_OK;
    }
    tri_product_choice *const more =
        tri_realloc(library->choices, (size_t)(library->choice_count + 1) * sizeof(choice));
    if (more == NULL) {
        return TRI_ENOMEM;
    }
    library->choices = more;
    choice.batch = batch_of(&choice.product);
    tri_status status = tri_cublaslt_plan_create(library, &choice.product, &choice.plan);
    if (status == TRI_OK) {
        status = choose(desc->device, args, &choice);
    }
    if (status != TRI_OK && status != TRI_EUNSUPPORTED) {
        tri_cublaslt_plan_destroy(library, choice.plan);
        return tri_fail_context(
            status, "while probing algorithms of %s (train.kernels=cuda_own needs no room for that)", library->name);
    }
    library->choices[library->choice_count++] = choice;
    return TRI_OK;
}

bool tri_gpu_product_run(const tri_op_call *call, const tri_gpu_gemm_args *args, const void *bias, int64_t shards)
{
    tri_gpu_product product;
    tri_gpu_queue *const queue = tri_gpu_queue_of(call->device);
    if (queue->library == NULL || !product_make(args, &product)) {
        return false;
    }
    const tri_product_choice *choice = choice_find(queue->library, &product);
    if (choice == NULL || choice->own) {
        return false;
    }
    for (int64_t first = 0; first < shards; first += choice->batch) {
        const tri_status status = tri_cublaslt_multiply(queue->library, choice->plan, &choice->algorithm,
                                                        (int)tri_int64_min(choice->batch, shards - first),
                                                        tri_gpu_moved(args->a.value, first * product.a_stride),
                                                        tri_gpu_moved(args->b.value, first * product.b_stride), bias,
                                                        tri_gpu_moved(args->c.value, first * product.m * product.n));
        if (status != TRI_OK) { /* as a launch that fails: a step without this product is no step */
            tri_log(TRI_LOG_ERROR, "%s: this process ends", tri_last_error());
            _Exit(1);
        }
    }
    return true;
}

void tri_gpu_gemm(const tri_op_call *call, const tri_gpu_gemm_args *args, const void *bias, int64_t shards)
{
    if (!tri_gpu_product_run(call, args, bias, shards)) {
        tri_gpu_gemm_own(call, args, shards);
    }
}
