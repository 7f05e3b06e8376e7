/* SPDX-License-Identifier: Apache-2.0
 *
 * dnnl.c: jobs on oneDNN's C interface, 2.x and 3.x. What differs between them is between the first two marks.
 *
 * One engine serves the process: made by whoever comes first, never destroyed (it owns no threads and no memory worth
 * naming). Numbers of threads are forced to one around creation, where oneDNN chooses blockings by them, and around
 * execution.
 */
#include "kernel/cpu/dnnl.h"

#include <oneapi/dnnl/dnnl.h>

/* From the OpenMP runtime that oneDNN itself was built on; absent when it was built without. */
extern int omp_get_max_threads(void) __attribute__((weak));
extern void omp_set_num_threads(int count) __attribute__((weak));

static int one_thread_begin(void)
{
    if (omp_get_max_threads == NULL || omp_set_num_threads == NULL) {
        return 1;
    }
    const int before = omp_get_max_threads();
    if (before != 1) {
        omp_set_num_threads(1);
    }
    return before;
}

static void one_thread_end(int before)
{
    if (before != 1) {
        omp_set_num_threads(before);
    }
}

static tri_status check(dnnl_status_t status, const char *what)
{
    switch (status) {
    case dnnl_success:
        return TRI_OK;
    case dnnl_out_of_memory:
        return tri_fail(TRI_ENOMEM, "oneDNN: no memory for %s", what);
    default:
        return tri_fail(TRI_EUNSUPPORTED, "oneDNN: want %s, got status %d", what, (int)status);
    }
}

/* ---- what differs between the generations ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t md_view;
typedef struct layout {
    dnnl_memory_desc_t md;
} layout;

static md_view layout_view(const layout *l)
{
    return l->md;
}

static dnnl_status_t layout_fill(layout *l, int ndim, const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    return strides == NULL ? dnnl_memory_desc_create_with_tag(&l->md, ndim, dims, dnnl_f32, dnnl_format_tag_any)
                           : dnnl_memory_desc_create_with_strides(&l->md, ndim, dims, dnnl_f32, strides);
}

static void layout_drop(layout *l)
{
    if (l->md != NULL) {
        dnnl_memory_desc_destroy(l->md);
    }
}
#else
typedef const dnnl_memory_desc_t *md_view;
typedef struct layout {
    dnnl_memory_desc_t md; /* ndims 0: none */
} layout;

static md_view layout_view(const layout *l)
{
    return l->md.ndims > 0 ? &l->md : NULL;
}

static dnnl_status_t layout_fill(layout *l, int ndim, const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    return strides == NULL ? dnnl_memory_desc_init_by_tag(&l->md, ndim, dims, dnnl_f32, dnnl_format_tag_any)
                           : dnnl_memory_desc_init_by_strides(&l->md, ndim, dims, dnnl_f32, strides);
}

static void layout_drop(layout *l)
{
    (void)l;
}
#endif

static dnnl_status_t relu_append(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
#else
    return dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
#endif
}

typedef struct conv_shape {
    md_view x, w, bias, y;
    dnnl_dims_t stride, gap, pad; /* gap: dilation less one */
} conv_shape;

/* hint: of the forward pass, for the other two. */
static dnnl_status_t conv_describe(dnnl_primitive_desc_t *pd, tri_dnnl_pass pass, const conv_shape *c,
                                   const_dnnl_primitive_attr_t attr, dnnl_engine_t engine, dnnl_primitive_desc_t hint)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_auto;
#if DNNL_VERSION_MAJOR >= 3
    switch (pass) {
    case TRI_DNNL_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, alg, c->x, c->w,
                                                              c->bias, c->y, c->stride, c->gap, c->pad, c->pad, attr);
    case TRI_DNNL_INPUT:
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, alg, c->x, c->w, c->y, c->stride,
                                                                    c->gap, c->pad, c->pad, hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, alg, c->x, c->w, NULL, c->y,
                                                                       c->stride, c->gap, c->pad, c->pad, hint, attr);
    }
#else
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    switch (pass) {
    case TRI_DNNL_FORWARD:
        status = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, alg, c->x, c->w, c->bias,
                                                            c->y, c->stride, c->gap, c->pad, c->pad);
        break;
    case TRI_DNNL_INPUT:
        status = dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, c->x, c->w, c->y, c->stride, c->gap,
                                                                  c->pad, c->pad);
        break;
    default:
        status = dnnl_dilated_convolution_backward_weights_desc_init(&desc, alg, c->x, c->w, NULL, c->y, c->stride,
                                                                     c->gap, c->pad, c->pad);
    }
    return status != dnnl_success ? status : dnnl_primitive_desc_create(pd, &desc, attr, engine, hint);
#endif
}

static dnnl_status_t matmul_describe(dnnl_primitive_desc_t *pd, md_view a, md_view b, md_view bias, md_view y,
                                     const_dnnl_primitive_attr_t attr, dnnl_engine_t engine)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, y, attr);
#else
    dnnl_matmul_desc_t desc;
    const dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, bias, y);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL);
#endif
}

/* ---- what is the same ---- */

tri_dnnl_form tri_dnnl_form_dense(int ndim, const int64_t *dim)
{
    tri_dnnl_form form = {.ndim = ndim};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        form.dim[i] = dim[i];
        form.stride[i] = stride;
        stride *= dim[i];
    }
    return form;
}

static tri_status layout_make(layout *l, const tri_dnnl_form *form)
{
    *l = (layout){0};
    if (form == NULL || form->ndim == 0) {
        return TRI_OK;
    }
    dnnl_dims_t dims = {0}, strides = {0};
    for (int i = 0; i < form->ndim; i++) {
        dims[i] = form->dim[i];
        strides[i] = form->stride[i];
    }
    return check(layout_fill(l, form->ndim, dims, form->any ? NULL : strides), "a layout");
}

/* The first engine wins; who loses a race drops his. */
static tri_status engine_find(dnnl_engine_t *engine)
{
    static dnnl_engine_t shared;
    *engine = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    if (*engine != NULL) {
        return TRI_OK;
    }
    dnnl_engine_t mine, none = NULL;
    TRI_TRY(check(dnnl_engine_create(&mine, dnnl_cpu, 0), "an engine"));
    if (__atomic_compare_exchange_n(&shared, &none, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        *engine = mine;
    } else {
        dnnl_engine_destroy(mine);
        *engine = none;
    }
    return TRI_OK;
}

static tri_status attr_make(dnnl_primitive_attr_t *attr, bool relu)
{
    TRI_TRY(check(dnnl_primitive_attr_create(attr), "attributes"));
    TRI_TRY(check(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user), "a scratchpad of ours"));
    if (!relu) {
        return TRI_OK;
    }
    dnnl_post_ops_t ops;
    TRI_TRY(check(dnnl_post_ops_create(&ops), "post-ops"));
    dnnl_status_t status = relu_append(ops);
    status = status == dnnl_success ? dnnl_primitive_attr_set_post_ops(*attr, ops) : status;
    dnnl_post_ops_destroy(ops);
    return check(status, "relu as a post-op");
}

static md_view job_layout(const_dnnl_primitive_desc_t pd, int arg)
{
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

static int64_t layout_count(md_view md)
{
    return md == NULL ? 0 : (int64_t)((dnnl_memory_desc_get_size(md) + sizeof(float) - 1) / sizeof(float));
}

/* Memory objects and streams of each thread, without data yet. */
static tri_status job_memory(tri_dnnl_job *job, const_dnnl_primitive_desc_t pd, dnnl_engine_t engine)
{
    const int each = job->arg_count + 1;
    job->memory = tri_alloc_zero((size_t)(job->threads * each), sizeof *job->memory);
    job->streams = tri_alloc_zero((size_t)job->threads, sizeof *job->streams);
    if (job->memory == NULL || job->streams == NULL) {
        return TRI_ENOMEM;
    }
    for (int t = 0; t < job->threads; t++) {
        TRI_TRY(check(dnnl_stream_create(&job->streams[t], engine, dnnl_stream_default_flags), "a stream"));
        for (int i = 0; i < each; i++) {
            const md_view md = job_layout(pd, i < job->arg_count ? job->arg[i] : DNNL_ARG_SCRATCHPAD);
            const int64_t count = layout_count(md);
            *(i < job->arg_count ? &job->count[i] : &job->scratch_count) = count;
            if (count > 0) {
                TRI_TRY(
                    check(dnnl_memory_create(&job->memory[t * each + i], md, engine, DNNL_MEMORY_NONE), "an array"));
            }
        }
    }
    return TRI_OK;
}

static tri_status job_make(tri_dnnl_job *job, dnnl_primitive_desc_t pd, dnnl_engine_t engine, int threads,
                           int arg_count, const int *arg)
{
    *job = (tri_dnnl_job){.threads = threads, .arg_count = arg_count};
    memcpy(job->arg, arg, (size_t)arg_count * sizeof(int));
    tri_status status = check(dnnl_primitive_create(&job->primitive, pd), "a primitive");
    status = status == TRI_OK ? job_memory(job, pd, engine) : status;
    if (status != TRI_OK) {
        tri_dnnl_job_release(job);
    }
    return status;
}

/* Takes pd. The reference implementations of oneDNN are refused: they are slower than ours by far. */
static tri_status job_take(tri_dnnl_job *job, dnnl_primitive_desc_t pd, dnnl_engine_t engine, int threads,
                           int arg_count, const int *arg)
{
    const char *name = "";
    tri_status status = check(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name), "a name");
    if (status == TRI_OK && strncmp(name, "ref", 3) == 0) {
        status = tri_fail(TRI_EUNSUPPORTED, "oneDNN: want a fast implementation, got %s", name);
    }
    status = status == TRI_OK ? job_make(job, pd, engine, threads, arg_count, arg) : status;
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static const int conv_args[][TRI_DNNL_ARGS] = {
    [TRI_DNNL_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
    [TRI_DNNL_INPUT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
    [TRI_DNNL_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS}};

static tri_status conv_make(tri_dnnl_job *job, tri_dnnl_pass pass, const conv_shape *shape, bool relu, int threads)
{
    dnnl_engine_t engine;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    dnnl_primitive_attr_t attr = NULL;
    TRI_TRY(engine_find(&engine));
    tri_status status = attr_make(&attr, relu && pass == TRI_DNNL_FORWARD);
    if (status == TRI_OK && pass != TRI_DNNL_FORWARD) {
        status = check(conv_describe(&hint, TRI_DNNL_FORWARD, shape, attr, engine, NULL), "a convolution");
    }
    if (status == TRI_OK) {
        status = check(conv_describe(&pd, pass, shape, attr, engine, hint), "a convolution");
    }
    if (status == TRI_OK) {
        status = job_take(job, pd, engine, threads, pass == TRI_DNNL_FORWARD ? 4 : 3, conv_args[pass]);
    }
    if (hint != NULL) {
        dnnl_primitive_desc_destroy(hint);
    }
    if (attr != NULL) {
        dnnl_primitive_attr_destroy(attr);
    }
    return status;
}

tri_status tri_dnnl_plan_conv(tri_dnnl_job *job, tri_dnnl_pass pass, const tri_dnnl_conv *conv, int threads)
{
    const tri_dnnl_form *const forms[] = {&conv->x, &conv->w, &conv->bias, &conv->y};
    layout l[TRI_COUNT_OF(forms)] = {0};
    *job = (tri_dnnl_job){0};
    tri_status status = TRI_OK;
    for (size_t i = 0; i < TRI_COUNT_OF(forms) && status == TRI_OK; i++) {
        status = layout_make(&l[i], forms[i]);
    }
    conv_shape shape = {layout_view(&l[0]), layout_view(&l[1]), layout_view(&l[2]), layout_view(&l[3]), {0}, {0}, {0}};
    for (int i = 0; i < 2; i++) {
        shape.stride[i] = conv->stride[i];
        shape.gap[i] = conv->dilation[i] - 1;
        shape.pad[i] = conv->pad[i];
    }
    if (status == TRI_OK) {
        const int before = one_thread_begin();
        status = conv_make(job, pass, &shape, conv->relu, threads);
        one_thread_end(before);
    }
    for (size_t i = 0; i < TRI_COUNT_OF(forms); i++) {
        layout_drop(&l[i]);
    }
    return status;
}

static tri_status matmul_make(tri_dnnl_job *job, const layout *l, bool relu, int threads)
{
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    dnnl_engine_t engine;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = NULL;
    TRI_TRY(engine_find(&engine));
    tri_status status = attr_make(&attr, relu);
    if (status == TRI_OK) {
        status = check(matmul_describe(&pd, layout_view(&l[0]), layout_view(&l[1]), layout_view(&l[2]),
                                       layout_view(&l[3]), attr, engine),
                       "a product");
    }
    if (status == TRI_OK) {
        status = job_take(job, pd, engine, threads, TRI_COUNT_OF(args), args);
    }
    if (attr != NULL) {
        dnnl_primitive_attr_destroy(attr);
    }
    return status;
}

tri_status tri_dnnl_plan_matmul(tri_dnnl_job *job, const tri_dnnl_form *a, const tri_dnnl_form *b,
                                const tri_dnnl_form *bias, const tri_dnnl_form *y, bool relu, int threads)
{
    const tri_dnnl_form *const forms[] = {a, b, bias, y};
    layout l[TRI_COUNT_OF(forms)] = {0};
    *job = (tri_dnnl_job){0};
    tri_status status = TRI_OK;
    for (size_t i = 0; i < TRI_COUNT_OF(forms) && status == TRI_OK; i++) {
        status = layout_make(&l[i], forms[i]);
    }
    if (status == TRI_OK) {
        const int before = one_thread_begin();
        status = matmul_make(job, l, relu, threads);
        one_thread_end(before);
    }
    for (size_t i = 0; i < TRI_COUNT_OF(forms); i++) {
        layout_drop(&l[i]);
    }
    return status;
}

static tri_status reorder_make(tri_dnnl_job *job, md_view from, md_view to, int threads)
{
    static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    dnnl_engine_t engine;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = NULL;
    if (dnnl_memory_desc_equal(from, to) != 0) {
        return TRI_OK;
    }
    TRI_TRY(engine_find(&engine));
    tri_status status = attr_make(&attr, false);
    if (status == TRI_OK) {
        status = check(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr), "a reorder");
    }
    if (status == TRI_OK) {
        status = job_make(job, pd, engine, threads, TRI_COUNT_OF(args), args);
        dnnl_primitive_desc_destroy(pd);
    }
    if (attr != NULL) {
        dnnl_primitive_attr_destroy(attr);
    }
    return status;
}

tri_status tri_dnnl_plan_reorder(tri_dnnl_job *job, const tri_dnnl_job *of, int i, const tri_dnnl_form *plain,
                                 bool back, int threads)
{
    const_dnnl_primitive_desc_t pd;
    layout l;
    *job = (tri_dnnl_job){0};
    TRI_TRY(check(dnnl_primitive_get_primitive_desc(of->primitive, &pd), "the description of a primitive"));
    tri_status status = layout_make(&l, plain);
    if (status == TRI_OK) {
        const md_view inner = job_layout(pd, of->arg[i]), outer = layout_view(&l);
        const int before = one_thread_begin();
        status = reorder_make(job, back ? inner : outer, back ? outer : inner, threads);
        one_thread_end(before);
    }
    layout_drop(&l);
    return status;
}

void tri_dnnl_job_release(tri_dnnl_job *job)
{
    for (int i = 0; job->memory != NULL && i < job->threads * (job->arg_count + 1); i++) {
        if (job->memory[i] != NULL) {
            dnnl_memory_destroy(job->memory[i]);
        }
    }
    for (int t = 0; job->streams != NULL && t < job->threads; t++) {
        if (job->streams[t] != NULL) {
            dnnl_stream_destroy(job->streams[t]);
        }
    }
    if (job->primitive != NULL) {
        dnnl_primitive_destroy(job->primitive);
    }
    tri_free(job->memory);
    tri_free(job->streams);
    *job = (tri_dnnl_job){0};
}

void tri_dnnl_run(const tri_dnnl_job *job, int worker, float *const *array, float *scratch)
{
    dnnl_exec_arg_t args[TRI_DNNL_ARGS + 1];
    struct dnnl_memory *const *memory = job->memory + worker * (job->arg_count + 1);
    int count = 0;
    TRI_ASSERT(worker < job->threads);
    const int before = one_thread_begin();
    for (int i = 0; i <= job->arg_count; i++) {
        if (memory[i] != NULL) {
            dnnl_memory_set_data_handle(memory[i], i < job->arg_count ? array[i] : scratch);
            args[count++] = (dnnl_exec_arg_t){i < job->arg_count ? job->arg[i] : DNNL_ARG_SCRATCHPAD, memory[i]};
        }
    }
    const dnnl_status_t status = dnnl_primitive_execute(job->primitive, job->streams[worker], count, args);
    one_thread_end(before);
    TRI_ASSERT(status == dnnl_success); /* shapes and arrays were settled by the plan */
}

void tri_dnnl_version(int version[3])
{
    const dnnl_version_t *v = dnnl_version();
    version[0] = v->major;
    version[1] = v->minor;
    version[2] = v->patch;
}

tri_status tri_dnnl_isa_set(tri_isa isa)
{
    static const dnnl_cpu_isa_t rows[] = {[TRI_ISA_GENERIC] = dnnl_cpu_isa_sse41,
                                          [TRI_ISA_AVX2] = dnnl_cpu_isa_avx2,
                                          [TRI_ISA_AVX512] = dnnl_cpu_isa_avx512_core,
                                          [TRI_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
                                          [TRI_ISA_AMX] = dnnl_cpu_isa_avx512_core_amx};
    if (dnnl_set_max_cpu_isa(rows[isa]) == dnnl_success) {
        return TRI_OK;
    }
    return tri_fail(TRI_EUNSUPPORTED, "instruction set: want %s, but this process has computed with another one",
                    tri_isa_name(isa));
}
