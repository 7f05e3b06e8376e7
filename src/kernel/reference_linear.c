/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_linear.c: what linear and matmul mean. Plain loops in double, one shard after the other.
 *
 * B rows, C inputs, D outputs of linear; M K N of matmul.
 */
#include <stdio.h>

#include "kernel/infer.h"

tri_status tri_weights_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t bias = desc->attr.bias ? tri_shape_count(desc->param[1]) : 0;
    kernel->scratch_nbytes = (size_t)(desc->max_shards * (tri_shape_count(desc->param[0]) + bias)) * sizeof(float);
    return TRI_OK;
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d_count = kernel->desc.param[0].dim[0], c_count = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d_count * call->shards;
    const float *x = call->input[0], *w = call->param[0], *b = kernel->desc.attr.bias ? call->param[1] : NULL;
    float *y = call->output;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < d_count; d++) {
            double sum = b != NULL ? (double)b[d] : 0;
            for (int64_t c = 0; c < c_count; c++) {
                sum += (double)x[r * c_count + c] * (double)w[d * c_count + c];
            }
            y[r * d_count + d] = (float)tri_relu_fused(kernel, sum);
        }
    }
}

static void linear_weights(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d_count = kernel->desc.param[0].dim[0], c_count = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d_count;
    float *dw = call->scratch, *db = dw + call->shards * d_count * c_count;
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s), *y = tri_call_output(kernel, call, s);
        const float *dy = tri_call_doutput(kernel, call, s);
        for (int64_t d = 0; d < d_count; d++) {
            double bias = 0;
            for (int64_t r = 0; r < rows; r++) {
                bias += tri_relu_cut(kernel, y[r * d_count + d], dy[r * d_count + d]);
            }
            if (kernel->desc.attr.bias) {
                db[s * d_count + d] = (float)bias;
            }
            for (int64_t c = 0; c < c_count && tri_call_wants_dparam(call, 0); c++) {
                double sum = 0;
                for (int64_t r = 0; r < rows; r++) {
                    sum += tri_relu_cut(kernel, y[r * d_count + d], dy[r * d_count + d]) * (double)x[r * c_count + c];
                }
                dw[(s * d_count + d) * c_count + c] = (float)sum;
            }
        }
    }
    tri_leaves_sum(kernel, call, 0, dw, d_count * c_count, d_count * c_count);
    if (kernel->desc.attr.bias) {
        tri_leaves_sum(kernel, call, 1, db, d_count, d_count);
    }
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d_count = kernel->desc.param[0].dim[0], c_count = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d_count * call->shards;
    const float *w = call->param[0], *dy = call->doutput, *y = call->output;
    float *dx = call->dinput[0];
    linear_weights(kernel, call);
    for (int64_t r = 0; dx != NULL && r < rows; r++) {
        for (int64_t c = 0; c < c_count; c++) {
            double sum = 0;
            for (int64_t d = 0; d < d_count; d++) {
                sum += tri_relu_cut(kernel, y[r * d_count + d], dy[r * d_count + d]) * (double)w[d * c_count + c];
            }
            dx[r * c_count + c] = (float)sum;
        }
    }
}

static tri_status infer_linear(tri_op_desc *desc)
{
    const int64_t units = desc->attr.units;
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units", units));
    TRI_TRY(tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, tri_shape_last(&desc->input[0])})));
    if (desc->attr.bias) {
        TRI_TRY(tri_infer_param(desc, tri_shape_vector(units)));
    }
    desc->output = desc->input[0];
    desc->output.dim[desc->output.ndim - 1] = units;
    return TRI_OK;
}

static double linear_products(const tri_op_desc *desc)
{
    return (double)tri_shape_count(desc->output) * (double)desc->param[0].dim[1];
}

const tri_op_ops tri_op_linear = {
    .infer = infer_linear,
    .products = linear_products,
    .rounds_weights = true,
    .gives_half = true,
    .fuses_relu = true,
    .weights_wait = true,
    .per_token = true,
    .packs = true,
    .reference.plan = tri_weights_plan,
    .reference.forward = linear_forward,
    .reference.backward = linear_backward,
    .reference.backward_input = true,
    .reference.input_for_weight = true,
    .reference.backward_output = true,
};

/* Strides of the three matrices inside one product, and how many products there are. */
typedef struct product {
    int64_t batch, m, k, n;
} product;

static product product_make(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *a = &kernel->desc.input[0];
    return (product){tri_shape_product(a, 0, a->ndim - 2) * call->shards, a->dim[a->ndim - 2], a->dim[a->ndim - 1],
                     tri_shape_last(&kernel->desc.output)};
}

/* c[m,n] = sum over k of a[m * am + k * ak] b[k * bk + n * bn] */
static void multiply(float *c, int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak, const float *b,
                     int64_t bk, int64_t bn)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += (double)a[i * am + l * ak] * (double)b[l * bk + j * bn];
            }
            c[i * n + j] = (float)sum;
        }
    }
}

static void matmul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const product p = product_make(kernel, call);
    const float *a = call->input[0], *b = call->input[1];
    for (int64_t i = 0; i < p.batch; i++) {
        multiply((float *)call->output + i * p.m * p.n, p.m, p.n, p.k, a + i * p.m * p.k, p.k, 1, b + i * p.k * p.n,
                 p.n, 1);
    }
}

static void matmul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const product p = product_make(kernel, call);
    for (int64_t i = 0; i < p.batch; i++) {
        const float *a = (const float *)call->input[0] + i * p.m * p.k;
        const float *b = (const float *)call->input[1] + i * p.k * p.n;
        const float *dy = (const float *)call->doutput + i * p.m * p.n;
        float *da = call->dinput[0], *db = call->dinput[1];
        if (da != NULL) { /* dy b' */
            multiply(da + i * p.m * p.k, p.m, p.k, p.n, dy, p.n, 1, b, 1, p.n);
        }
        if (db != NULL) { /* a' dy */
            multiply(db + i * p.k * p.n, p.k, p.n, p.m, a, 1, p.k, dy, p.n, 1);
        }
    }
}

static tri_status infer_matmul(tri_op_desc *desc)
{
    const tri_shape *a = &desc->input[0], *b = &desc->input[1];
    TRI_TRY(tri_infer_input(desc, 0, 3, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_input(desc, 1, 3, TRI_MAX_DIMS, TRI_F32));
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim - 2; d++) {
        same = a->dim[d] == b->dim[d];
    }
    if (!same || a->dim[a->ndim - 1] != b->dim[b->ndim - 2]) {
        char text[96];
        char wanted[160];
        snprintf(wanted, sizeof wanted, "[batch.., K, N] for [batch.., M, K] = %s", tri_shape_print(*a, text));
        return tri_infer_fail(desc, wanted, "input 1", *b);
    }
    desc->output = *a;
    desc->output.dim[a->ndim - 1] = b->dim[b->ndim - 1];
    return TRI_OK;
}

static double matmul_products(const tri_op_desc *desc)
{
    return (double)tri_shape_count(desc->output) * (double)tri_shape_last(&desc->input[0]);
}

const tri_op_ops tri_op_matmul = {
    .inputs = 2,
    .infer = infer_matmul,
    .products = matmul_products,
    .gives_half = true,
    .reference.forward = matmul_forward,
    .reference.backward = matmul_backward,
    .reference.backward_input = true,
};
