/* SPDX-License-Identifier: Apache-2.0
 *
 * dnnl_conv.c: conv2d by oneDNN. Weights are reordered once a call to the layout it prefers, so are their gradients
 * back, once a part: leaves are added in oneDNN's layout.
 *
 * Forward and the gradient of x run on pieces of a shard, the gradient of w on whole shards; all three are fixed by the
 * shape. A shard's backward is one tile while its memory is in the cache, two where threads are more than shards.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/dnnl.h"

#define PIECE_FLOPS 4e6 /* of the smallest piece */

typedef struct conv_state {
    tri_dnnl_job forward, input, weights;
    tri_dnnl_job up, down, back; /* weights to forward's and input's layout, their gradient from weights' layout */
    tri_window w;
    int64_t piece;                                             /* images */
    int64_t leaves, leaf_count, bias_leaves, pads, pad, total; /* of scratch, elements; packed weights are at 0 */
} conv_state;

static tri_dnnl_form image_form(int64_t batch, const int64_t area[2], int64_t channels)
{
    return (tri_dnnl_form){.ndim = 4,
                           .dim = {batch, channels, area[0], area[1]},
                           .stride = {area[0] * area[1] * channels, 1, area[1] * channels, channels}};
}

/* Weights [D, C/groups, kh, kw] as the store has them. */
static tri_dnnl_form weights_form(const tri_window *w)
{
    const int64_t groups = w->groups;
    const int64_t dim[] = {groups, w->out_channels / groups, w->channels / groups, w->kernel[0], w->kernel[1]};
    return groups > 1 ? tri_dnnl_form_dense(5, dim) : tri_dnnl_form_dense(4, dim + 1);
}

static int64_t piece_of(const tri_window *w)
{
    const double flops = 2.0 * (double)(w->out[0] * w->out[1] * w->out_channels * (w->channels / w->groups) *
                                        w->kernel[0] * w->kernel[1]);
    int64_t piece = w->batch;
    while (piece % 2 == 0 && (double)(piece / 2) * flops >= PIECE_FLOPS) {
        piece /= 2;
    }
    return piece;
}

static tri_status jobs_plan(const tri_op_desc *desc, conv_state *state)
{
    const tri_window *w = &state->w;
    const tri_dnnl_form plain = weights_form(w);
    tri_dnnl_conv conv = {.x = image_form(state->piece, w->in, w->channels),
                          .w = plain,
                          .y = image_form(state->piece, w->out, w->out_channels),
                          .stride = {w->stride[0], w->stride[1]},
                          .dilation = {w->dilation[0], w->dilation[1]},
                          .pad = {w->pad[0], w->pad[1]},
                          .relu = desc->attr.relu};
    conv.w.any = true;
    if (desc->attr.bias) {
        conv.bias = tri_dnnl_form_dense(1, &w->out_channels);
    }
    TRI_TRY(tri_dnnl_plan_conv(&state->forward, TRI_DNNL_FORWARD, &conv, desc->threads));
    TRI_TRY(tri_dnnl_plan_reorder(&state->up, &state->forward, 1, &plain, false, 1));
    conv.bias.ndim = 0;
    if (desc->need_dinput[0]) {
        TRI_TRY(tri_dnnl_plan_conv(&state->input, TRI_DNNL_INPUT, &conv, desc->threads));
        TRI_TRY(tri_dnnl_plan_reorder(&state->down, &state->input, 1, &plain, false, 1));
    }
    conv.x = image_form(w->batch, w->in, w->channels);
    conv.y = image_form(w->batch, w->out, w->out_channels);
    TRI_TRY(tri_dnnl_plan_conv(&state->weights, TRI_DNNL_WEIGHTS, &conv, desc->threads));
    return tri_dnnl_plan_reorder(&state->back, &state->weights, 2, &plain, true, 1);
}

static void layout_settle(const tri_op_desc *desc, conv_state *state)
{
    const tri_dnnl_job *const jobs[] = {&state->forward, &state->input, &state->weights,
                                        &state->up,      &state->down,  &state->back};
    for (size_t i = 0; i < TRI_COUNT_OF(jobs); i++) {
        state->pad = tri_int64_max(state->pad, tri_align_count(jobs[i]->scratch_count));
    }
    state->leaf_count = tri_align_count(state->weights.count[2]);
    state->leaves = tri_align_count(tri_int64_max(state->forward.count[1], state->input.count[1]));
    state->bias_leaves = state->leaves + state->leaf_count * desc->max_shards;
    state->pads = state->bias_leaves + tri_align_count(state->w.out_channels * desc->max_shards);
    state->total = state->pads + state->pad * desc->threads;
}

static tri_status conv_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    conv_state *state = tri_alloc_zero(1, sizeof *state);
    if (state == NULL) {
        return TRI_ENOMEM;
    }
    kernel->state = state;
    state->w = tri_window_make(desc);
    state->piece = piece_of(&state->w);
    TRI_TRY(jobs_plan(desc, state));
    layout_settle(desc, state);
    kernel->scratch_nbytes = (size_t)state->total * sizeof(float);
    return TRI_OK;
}

static void conv_release(tri_kernel *kernel)
{
    conv_state *state = kernel->state;
    if (state == NULL) {
        return;
    }
    tri_dnnl_job *const jobs[] = {&state->forward, &state->input, &state->weights,
                                  &state->up,      &state->down,  &state->back};
    for (size_t i = 0; i < TRI_COUNT_OF(jobs); i++) {
        tri_dnnl_job_release(jobs[i]);
    }
    tri_free(state);
}

typedef struct conv_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    const conv_state *state;
    float *weights;             /* in the layout of forward or input */
    bool bias, dweights, split; /* wanted; a shard's backward is two tiles */
} conv_arg;

static float *pad_of(const conv_arg *v)
{
    return (float *)v->call->scratch + v->state->pads + tri_tile_worker() * v->state->pad;
}

/* The weights in the layout that the job `pack` leads to; where they already have it, they themselves. */
static float *weights_pack(const conv_arg *v, const tri_dnnl_job *pack)
{
    float *const plain = (float *)v->call->param[0];
    if (pack->primitive == NULL) {
        return plain;
    }
    tri_dnnl_run(pack, 0, (float *const[]){plain, v->call->scratch}, pad_of(v));
    return v->call->scratch;
}

static void forward_tile(void *arg, int64_t tile)
{
    const conv_arg *v = arg;
    const tri_window *w = &v->state->w;
    const int64_t first = tile * v->state->piece;
    float *x = (float *)v->call->input[0] + first * w->in[0] * w->in[1] * w->channels;
    float *y = (float *)v->call->output + first * w->out[0] * w->out[1] * w->out_channels;
    tri_dnnl_run(&v->state->forward, tri_tile_worker(), (float *const[]){x, v->weights, (float *)v->call->param[1], y},
                 pad_of(v));
}

static void conv_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const conv_state *state = kernel->state;
    conv_arg arg = {.kernel = kernel, .call = call, .state = state};
    arg.weights = weights_pack(&arg, &state->up);
    tri_tiles_run(kernel->desc.threads, state->w.batch / state->piece * call->shards, forward_tile, &arg);
}

static void weights_shard(const conv_arg *v, int64_t shard)
{
    tri_dnnl_run(&v->state->weights, tri_tile_worker(),
                 (float *const[]){(float *)tri_call_input(v->kernel, v->call, 0, shard),
                                  tri_call_doutput(v->kernel, v->call, shard),
                                  (float *)v->call->scratch + v->state->leaves + shard * v->state->leaf_count},
                 pad_of(v));
}

static void input_shard(const conv_arg *v, int64_t shard)
{
    const tri_window *w = &v->state->w;
    const int64_t x_count = w->in[0] * w->in[1] * w->channels, y_count = w->out[0] * w->out[1] * w->out_channels;
    for (int64_t first = shard * w->batch; first < (shard + 1) * w->batch; first += v->state->piece) {
        tri_dnnl_run(&v->state->input, tri_tile_worker(),
                     (float *const[]){(float *)v->call->doutput + first * y_count, v->weights,
                                      (float *)v->call->dinput[0] + first * x_count},
                     pad_of(v));
    }
}

static void backward_tile(void *arg, int64_t tile)
{
    const conv_arg *v = arg;
    const tri_window *w = &v->state->w;
    const int64_t shard = v->split ? tile / 2 : tile;
    if (!v->split) {
        float *sums = (float *)v->call->scratch + v->state->bias_leaves + shard * w->out_channels;
        tri_cpu_mask_shard(tri_call_doutput(v->kernel, v->call, shard),
                           v->kernel->desc.attr.relu ? tri_call_output(v->kernel, v->call, shard) : NULL,
                           v->bias ? sums : NULL, w->batch * w->out[0] * w->out[1], w->out_channels);
    }
    if (v->dweights && !(v->split && tile % 2 == 1)) {
        weights_shard(v, shard);
    }
    if (v->call->dinput[0] != NULL && !(v->split && tile % 2 == 0)) {
        input_shard(v, shard);
    }
}

static void back_tile(void *arg, int64_t part)
{
    const conv_arg *v = arg;
    const conv_state *state = v->state;
    float *leaf = (float *)v->call->scratch + state->leaves + v->call->parts[part].first * state->leaf_count;
    tri_dnnl_run(&state->back, 0, (float *const[]){leaf, v->call->dparam[0][part]}, pad_of(v));
}

static void conv_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const conv_state *state = kernel->state;
    const tri_window *w = &state->w;
    const int threads = kernel->desc.threads;
    float *leaves = (float *)call->scratch + state->leaves, *bias_leaves = (float *)call->scratch + state->bias_leaves;
    conv_arg arg = {.kernel = kernel,
                    .call = call,
                    .state = state,
                    .bias = kernel->desc.attr.bias && tri_call_wants_dparam(call, 1),
                    .dweights = tri_call_wants_dparam(call, 0),
                    .split = call->shards < threads};
    arg.weights = call->dinput[0] != NULL ? weights_pack(&arg, &state->down) : NULL;
    if (arg.split) {
        tri_cpu_mask_columns(kernel, call, w->batch * w->out[0] * w->out[1], w->out_channels, kernel->desc.attr.relu,
                             arg.bias ? bias_leaves : NULL);
    }
    tri_tiles_run(threads, call->shards * (arg.split ? 2 : 1), backward_tile, &arg);
    if (arg.bias) {
        tri_leaves_sum(kernel, call, 1, bias_leaves, w->out_channels, w->out_channels);
    }
    if (arg.dweights && state->back.primitive == NULL) {
        tri_leaves_sum(kernel, call, 0, leaves, state->leaf_count, tri_shape_count(kernel->desc.param[0]));
    } else if (arg.dweights) {
        tri_leaves_fold(kernel, call, leaves, state->leaf_count);
        for (int part = 0; part < call->part_count; part++) {
            back_tile(&arg, part);
        }
    }
}

/* Windows that are in the padding alone have no fast implementation. */
static bool fits(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    for (int i = 0; i < 2; i++) {
        if (w.pad[i] > (w.kernel[i] - 1) * w.dilation[i]) {
            return false;
        }
    }
    return !desc->attr.pool;
}

static bool fits_relu(const tri_op_desc *desc)
{
    return desc->attr.relu && fits(desc);
}

const tri_kernel_ops tri_dnnl_conv_relu_row = {
    .op = TRI_OP_CONV,
    .name = "dnnl",
    .can = fits_relu,
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .release = conv_release,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

const tri_kernel_ops tri_dnnl_conv_row = {
    .op = TRI_OP_CONV,
    .name = "dnnl",
    .can = fits,
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .release = conv_release,
    .backward_input = true,
    .input_for_weight = true,
};
