/* SPDX-License-Identifier: Apache-2.0
 *
 * dnnl_linear.c: linear and matmul by oneDNN's matmul, for products that pay for the packing inside each call.
 *
 * linear: one product is one shard; the gradient of w is a leaf per shard, added in tree order. matmul: one product is
 * one matrix of the batch. Short shards are left to linear.c, which takes all shards as rows of one product.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/dnnl.h"

#define LONG_ROWS  1024               /* of a shard from which on linear is oneDNN's */
#define LEAST_WORK (INT64_C(1) << 20) /* multiplications of one product from which on matmul is */
#define MOST_WORK  (INT64_C(1) << 26) /* and up to which: above it is slower than the tiles */

enum { FORWARD, FIRST, SECOND, JOBS }; /* the gradients of x and w, of a and b */

typedef struct product_state {
    tri_dnnl_job job[JOBS];
    int64_t rows, units, channels, batch; /* linear: of one shard; matmul: M N K and products of one shard */
    int64_t leaf_count, bias_leaves, pads, pad;
} product_state;

static tri_dnnl_form matrix(int64_t rows, int64_t columns)
{
    return tri_dnnl_form_dense(2, (const int64_t[]){rows, columns});
}

/* The transpose of a dense matrix of [columns][rows]. */
static tri_dnnl_form turned(int64_t rows, int64_t columns)
{
    return (tri_dnnl_form){.ndim = 2, .dim = {rows, columns}, .stride = {1, rows}};
}

static tri_status state_make(tri_kernel *kernel, product_state **state)
{
    *state = tri_alloc_zero(1, sizeof **state);
    kernel->state = *state;
    return *state != NULL ? TRI_OK : TRI_ENOMEM;
}

static void product_release(tri_kernel *kernel)
{
    product_state *state = kernel->state;
    for (int i = 0; state != NULL && i < JOBS; i++) {
        tri_dnnl_job_release(&state->job[i]);
    }
    tri_free(state);
}

static void pads_settle(const tri_op_desc *desc, tri_kernel *kernel, product_state *state, int64_t before)
{
    for (int i = 0; i < JOBS; i++) {
        state->pad = tri_int64_max(state->pad, tri_align_count(state->job[i].scratch_count));
    }
    state->pads = before;
    kernel->scratch_nbytes = (size_t)(before + state->pad * desc->threads) * sizeof(float);
}

typedef struct product_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    const product_state *state;
    bool bias, dweights, split; /* wanted; a shard's backward is two tiles */
} product_arg;

static void product_run(const product_arg *v, int job, const void *a, const void *b, const void *bias, float *y)
{
    const int worker = tri_tile_worker();
    tri_dnnl_run(&v->state->job[job], worker, (float *const[]){(float *)a, (float *)b, (float *)bias, y},
                 (float *)v->call->scratch + v->state->pads + worker * v->state->pad);
}

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    product_state *s;
    TRI_TRY(state_make(kernel, &s));
    s->units = desc->param[0].dim[0];
    s->channels = desc->param[0].dim[1];
    s->rows = tri_shape_count(desc->output) / s->units;
    const tri_dnnl_form x = matrix(s->rows, s->channels), w = matrix(s->units, s->channels);
    const tri_dnnl_form y = matrix(s->rows, s->units), w_turned = turned(s->channels, s->units);
    const tri_dnnl_form y_turned = turned(s->units, s->rows), bias = matrix(1, s->units);
    TRI_TRY(tri_dnnl_plan_matmul(&s->job[FORWARD], &x, &w_turned, desc->attr.bias ? &bias : NULL, &y, desc->attr.relu,
                                 desc->threads));
    TRI_TRY(tri_dnnl_plan_matmul(&s->job[FIRST], &y, &w, NULL, &x, false, desc->threads));
    TRI_TRY(tri_dnnl_plan_matmul(&s->job[SECOND], &y_turned, &x, NULL, &w, false, desc->threads));
    s->leaf_count = tri_align_count(s->units * s->channels);
    s->bias_leaves = s->leaf_count * desc->max_shards;
    pads_settle(desc, kernel, s, s->bias_leaves + tri_align_count(s->units * desc->max_shards));
    return TRI_OK;
}

static void linear_forward_tile(void *arg, int64_t shard)
{
    const product_arg *v = arg;
    product_run(v, FORWARD, tri_call_input(v->kernel, v->call, 0, shard), v->call->param[0], v->call->param[1],
                tri_call_output(v->kernel, v->call, shard));
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    product_arg arg = {.kernel = kernel, .call = call, .state = kernel->state};
    tri_tiles_run(kernel->desc.threads, call->shards, linear_forward_tile, &arg);
}

static void linear_backward_tile(void *arg, int64_t tile)
{
    const product_arg *v = arg;
    const product_state *s = v->state;
    const int64_t shard = v->split ? tile / 2 : tile;
    float *dy = tri_call_doutput(v->kernel, v->call, shard), *scratch = v->call->scratch;
    if (!v->split) {
        tri_cpu_mask_shard(dy, v->kernel->desc.attr.relu ? tri_call_output(v->kernel, v->call, shard) : NULL,
                           v->bias ? scratch + s->bias_leaves + shard * s->units : NULL, s->rows, s->units);
    }
    if (v->dweights && !(v->split && tile % 2 == 1)) {
        product_run(v, SECOND, dy, tri_call_input(v->kernel, v->call, 0, shard), NULL, scratch + shard * s->leaf_count);
    }
    if (v->call->dinput[0] != NULL && !(v->split && tile % 2 == 0)) {
        product_run(v, FIRST, dy, v->call->param[0], NULL, tri_call_dinput(v->kernel, v->call, 0, shard));
    }
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const product_state *s = kernel->state;
    float *scratch = call->scratch;
    product_arg arg = {.kernel = kernel,
                       .call = call,
                       .state = s,
                       .bias = kernel->desc.attr.bias && tri_call_wants_dparam(call, 1),
                       .dweights = tri_call_wants_dparam(call, 0),
                       .split = call->shards < kernel->desc.threads};
    if (arg.split) {
        tri_cpu_mask_columns(kernel, call, s->rows, s->units, kernel->desc.attr.relu,
                             arg.bias ? scratch + s->bias_leaves : NULL);
    }
    tri_tiles_run(kernel->desc.threads, call->shards * (arg.split ? 2 : 1), linear_backward_tile, &arg);
    if (arg.bias) {
        tri_leaves_sum(kernel, call, 1, scratch + s->bias_leaves, s->units, s->units);
    }
    tri_leaves_sum(kernel, call, 0, scratch, s->leaf_count, s->units * s->channels);
}

static bool is_long(const tri_op_desc *desc)
{
    return tri_shape_count(desc->output) / desc->param[0].dim[0] >= LONG_ROWS;
}

static bool is_long_relu(const tri_op_desc *desc)
{
    return desc->attr.relu && is_long(desc);
}

const tri_kernel_ops tri_dnnl_linear_relu_row = {
    .op = TRI_OP_LINEAR,
    .name = "dnnl",
    .can = is_long_relu,
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .release = product_release,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

const tri_kernel_ops tri_dnnl_linear_row = {
    .op = TRI_OP_LINEAR,
    .name = "dnnl",
    .can = is_long,
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .release = product_release,
    .backward_input = true,
    .input_for_weight = true,
};

static tri_status matmul_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    product_state *s;
    TRI_TRY(state_make(kernel, &s));
    const tri_shape *a_shape = &desc->input[0];
    s->rows = a_shape->dim[a_shape->ndim - 2];
    s->channels = a_shape->dim[a_shape->ndim - 1];
    s->units = tri_shape_last(&desc->output);
    s->batch = tri_shape_product(a_shape, 0, a_shape->ndim - 2);
    const tri_dnnl_form a = matrix(s->rows, s->channels), b = matrix(s->channels, s->units);
    const tri_dnnl_form y = matrix(s->rows, s->units);
    const tri_dnnl_form a_turned = turned(s->channels, s->rows), b_turned = turned(s->units, s->channels);
    TRI_TRY(tri_dnnl_plan_matmul(&s->job[FORWARD], &a, &b, NULL, &y, false, desc->threads));
    TRI_TRY(tri_dnnl_plan_matmul(&s->job[FIRST], &y, &b_turned, NULL, &a, false, desc->threads));
    TRI_TRY(tri_dnnl_plan_matmul(&s->job[SECOND], &a_turned, &y, NULL, &b, false, desc->threads));
    pads_settle(desc, kernel, s, 0);
    return TRI_OK;
}

static void matmul_forward_tile(void *arg, int64_t tile)
{
    const product_arg *v = arg;
    const product_state *s = v->state;
    product_run(v, FORWARD, (const float *)v->call->input[0] + tile * s->rows * s->channels,
                (const float *)v->call->input[1] + tile * s->channels * s->units, NULL,
                (float *)v->call->output + tile * s->rows * s->units);
}

static void matmul_backward_tile(void *arg, int64_t tile)
{
    const product_arg *v = arg;
    const product_state *s = v->state;
    const int64_t a = tile * s->rows * s->channels, b = tile * s->channels * s->units;
    const float *dy = (const float *)v->call->doutput + tile * s->rows * s->units;
    if (v->call->dinput[0] != NULL) {
        product_run(v, FIRST, dy, (const float *)v->call->input[1] + b, NULL, (float *)v->call->dinput[0] + a);
    }
    if (v->call->dinput[1] != NULL) {
        product_run(v, SECOND, (const float *)v->call->input[0] + a, dy, NULL, (float *)v->call->dinput[1] + b);
    }
}

static void matmul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    product_arg arg = {.kernel = kernel, .call = call, .state = kernel->state};
    tri_tiles_run(kernel->desc.threads, arg.state->batch * call->shards, matmul_forward_tile, &arg);
}

static void matmul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    product_arg arg = {.kernel = kernel, .call = call, .state = kernel->state};
    tri_tiles_run(kernel->desc.threads, arg.state->batch * call->shards, matmul_backward_tile, &arg);
}

static bool is_middling(const tri_op_desc *desc)
{
    const tri_shape *a = &desc->input[0];
    const int64_t work = a->dim[a->ndim - 2] * a->dim[a->ndim - 1] * tri_shape_last(&desc->output);
    return work >= LEAST_WORK && work <= MOST_WORK;
}

const tri_kernel_ops tri_dnnl_matmul_row = {
    .op = TRI_OP_MATMUL,
    .name = "dnnl",
    .can = is_middling,
    .plan = matmul_plan,
    .forward = matmul_forward,
    .backward = matmul_backward,
    .release = product_release,
    .backward_input = true,
};
