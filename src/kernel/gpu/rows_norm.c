/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_norm.c: rows of batch norm, layer norm, RMS norm, softmax.
 */
#include "base/status.h"
#include "kernel/gpu/rows.h"

/* --- batch norm: saved as the reference has it --- */

/* With attr.sync, on the host: what is saved of all shards, sums [2][shards][width], and leaves of the batch's sums. */
typedef struct batch_host {
    float *saved, *sums;
    double *leaves;
} batch_host;

static size_t batch_saved_nbytes(int64_t width, int64_t shards)
{
    return (size_t)(3 * width * shards) * sizeof(float);
}

static tri_status batch_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t width = tri_shape_last(&desc->input[0]), shards = desc->max_shards;
    kernel->saved_nbytes = batch_saved_nbytes(width, 1);
    if (desc->attr.sync) {
        kernel->host_nbytes = (size_t)tri_align_count(5 * width * shards) * sizeof(float) +
                              (size_t)(tri_sync_count(width) * shards) * sizeof(double);
    }
    return tri_gpu_rows_plan(desc, kernel, tri_shape_count(desc->input[0]) / width, width, 4); /* sums and means */
}

static batch_host host_make(const tri_op_call *call, int64_t width)
{
    float *const saved = call->host;
    return (batch_host){
        .saved = saved,
        .sums = saved + 3 * width * call->shards,
        .leaves = (double *)(void *)(saved + tri_align_count(5 * width * call->shards)),
    };
}

/* Sums of the mean and variance over shards, for the running ones. */
static void batch_buffers(const tri_kernel *kernel, const tri_op_call *call, int64_t width)
{
    for (int p = 2; p < 4; p++) {
        tri_gpu_leaves(kernel, call, p, (const float *)call->saved + (p == 2 ? 0 : 2 * width), 3 * width, width);
    }
}

static tri_gpu_columns_args batch_columns(const tri_kernel *kernel, const tri_op_call *call, int mode)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    tri_gpu_columns_args args = {.x = tri_gpu_input(kernel, call, 0),
                                 .batch_stats = call->saved,
                                 .mode = mode,
                                 .rows = count / width,
                                 .width = width};
    tri_gpu_valid(call, count / width / kernel->desc.input[0].dim[0], args.valid);
    return args;
}

/* Figures of the whole batch, from the mean and the spread of each shard. */
static void batch_figures(const tri_kernel *kernel, const tri_op_call *call, const float *spread, int64_t width,
                          const int64_t *valid)
{
    const batch_host h = host_make(call, width);
    const size_t nbytes = batch_saved_nbytes(width, call->shards);
    tri_op_call seen = *call;
    tri_device_to_host(call->device, h.saved, call->saved, nbytes);
    tri_device_to_host(call->device, h.sums, spread, (size_t)(width * call->shards) * sizeof(float));
    for (int64_t s = 0; s < call->shards; s++) {
        double *const leaf = h.leaves + tri_sync_count(width) * s, n = (double)valid[s];
        leaf[0] = n;
        for (int64_t c = 0; c < width; c++) {
            const double mean = (double)h.saved[3 * width * s + c];
            leaf[1 + c] = mean * n;
            leaf[1 + width + c] = (double)h.sums[width * s + c] + mean * mean * n;
        }
    }
    tri_batch_sum(call, h.leaves, tri_sync_count(width));
    seen.saved = h.saved;
    tri_sync_figures(&seen, h.leaves, width, tri_norm_epsilon(kernel));
    tri_device_from_host(call->device, call->saved, h.saved, nbytes);
}

static void batch_statistics(const tri_kernel *kernel, const tri_op_call *call, int64_t width)
{
    const bool sync = kernel->desc.attr.sync;
    const float epsilon = (float)tri_norm_epsilon(kernel);
    tri_gpu_columns_args args = batch_columns(kernel, call, TRI_GPU_MEAN_SUMS);
    tri_gpu_columns(call, &args, call->shards, 1, epsilon, call->scratch);
    args.mode = sync ? TRI_GPU_SPREAD_SUMS : TRI_GPU_SQUARE_SUMS;
    const float *spread = tri_gpu_columns(call, &args, call->shards, 1, epsilon, call->scratch);
    if (sync) {
        batch_figures(kernel, call, spread, width, args.valid);
    }
}

static void batch_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const float *const stats = call->saved;
    float *const roots = call->scratch; /* of running variances */
    if (call->training) {
        batch_statistics(kernel, call, width);
    } else {
        const tri_gpu_batch_roots_args args = {
            .variance = call->param[3], .roots = roots, .epsilon = (float)tri_norm_epsilon(kernel), .width = width};
        TRI_GPU_RUN(call, batch_roots, tri_gpu_blocks(width), 1, 1, args);
    }
    tri_gpu_batch_norm_args args = {.y = tri_gpu_output(kernel, call),
                                    .x = tri_gpu_input(kernel, call, 0),
                                    .scale = call->param[0],
                                    .shift = call->param[1],
                                    .mean = call->training ? stats : call->param[2],
                                    .roots = call->training ? stats + width : roots,
                                    .stride = call->training ? 3 * width : 0,
                                    .relu = kernel->desc.attr.relu,
                                    .each = count,
                                    .width = width};
    tri_gpu_valid(call, count / kernel->desc.input[0].dim[0], args.valid);
    TRI_GPU_RUN(call, batch_norm, tri_gpu_blocks_each(count), call->shards, 1, args);
    if (call->training) {
        batch_buffers(kernel, call, width);
    }
}

/* sums [2][shards][width], of g h and g, become [2][width]: those of the batch, divided by its rows. */
static void batch_means(const tri_op_call *call, float *sums, int64_t width, const int64_t *valid)
{
    const batch_host h = host_make(call, width);
    const int64_t all = width * call->shards;
    tri_device_to_host(call->device, h.sums, sums, (size_t)(2 * all) * sizeof(float));
    for (int64_t s = 0; s < call->shards; s++) {
        double *const leaf = h.leaves + tri_sync_count(width) * s;
        leaf[0] = (double)valid[s];
        for (int64_t c = 0; c < 2 * width; c++) {
            leaf[1 + c] = (double)h.sums[c / width * all + s * width + c % width];
        }
    }
    tri_batch_sum(call, h.leaves, tri_sync_count(width));
    const double n = h.leaves[0] < 1 ? 1 : h.leaves[0];
    for (int64_t c = 0; c < 2 * width; c++) {
        h.sums[c] = (float)(h.leaves[1 + c] / n);
    }
    tri_device_from_host(call->device, sums, h.sums, (size_t)(2 * width) * sizeof(float));
}

static void batch_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const bool sync = kernel->desc.attr.sync;
    tri_gpu_columns_args sums = batch_columns(kernel, call, TRI_GPU_BATCH_SUMS);
    batch_buffers(kernel, call, width);
    sums.g = tri_gpu_doutput(kernel, call);
    sums.mask = kernel->desc.attr.relu ? tri_gpu_output(kernel, call) : (tri_gpu_value){0};
    float *leaves = tri_gpu_columns(call, &sums, call->shards, 2, 0, call->scratch);
    tri_gpu_leaves(kernel, call, 0, leaves, width, width);
    tri_gpu_leaves(kernel, call, 1, leaves + call->shards * width, width, width);
    if (sync) {
        batch_means(call, leaves, width, sums.valid);
    }
    tri_gpu_batch_norm_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                         .x = sums.x,
                                         .dy = sums.g,
                                         .mask = sums.mask,
                                         .scale = call->param[0],
                                         .stats = call->saved,
                                         .means = sync ? leaves : leaves + 2 * call->shards * width,
                                         .shards = sync ? 1 : call->shards,
                                         .each = count,
                                         .width = width};
    tri_gpu_valid(call, count / kernel->desc.input[0].dim[0], args.valid);
    if (args.dx.data != NULL) {
        TRI_GPU_RUN(call, batch_norm_back, tri_gpu_blocks_each(count), call->shards, 1, args);
    }
}

const tri_kernel_ops tri_gpu_row_batch_norm = {
    TRI_GPU_ROW,
    .op = TRI_OP_BATCH_NORM,
    .plan = batch_plan,
    .forward = batch_forward,
    .backward = batch_backward,
    .backward_input = true,
    .backward_output = true,
};

/* --- layer norm, RMS norm: mean and 1 / root of each row are saved --- */

static tri_status norm_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t width = tri_shape_last(&desc->input[0]), rows = tri_shape_count(desc->input[0]) / width;
    kernel->saved_nbytes = (size_t)(2 * rows) * sizeof(float);
    return tri_gpu_rows_plan(desc, kernel, rows, width, 2);
}

static void norm_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const bool rms = kernel->desc.op == TRI_OP_RMS_NORM;
    const tri_dtype dtype = kernel->desc.input_dtype[0]; /* of the add too */
    const tri_op_call *add = call->add;
    const tri_gpu_norm_args args = {.y = tri_gpu_output(kernel, call),
                                    .x = tri_gpu_input(kernel, call, 0),
                                    .left = tri_gpu_value_make(add != NULL ? add->input[0] : NULL, dtype),
                                    .right = tri_gpu_value_make(add != NULL ? add->input[1] : NULL, dtype),
                                    .scale = call->param[0],
                                    .shift = rms ? NULL : call->param[1],
                                    .stats = call->training ? call->saved : NULL,
                                    .rows = count / width * call->shards,
                                    .width = width,
                                    .epsilon = (float)tri_norm_epsilon(kernel),
                                    .rms = rms};
    TRI_GPU_RUN(call, norm, tri_gpu_blocks_rows(args.rows), 1, 1, args);
}

static void norm_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / width;
    const bool rms = kernel->desc.op == TRI_OP_RMS_NORM;
    if (tri_call_wants_dparam(call, 0) || (!rms && tri_call_wants_dparam(call, 1))) {
        tri_gpu_columns_args sums = {.g = tri_gpu_doutput(kernel, call),
                                     .x = tri_gpu_input(kernel, call, 0),
                                     .rows_stats = call->saved,
                                     .mode = rms ? TRI_GPU_RMS_SUMS : TRI_GPU_LAYER_SUMS,
                                     .rows = rows,
                                     .width = width};
        const float *leaves = tri_gpu_rows_sum(kernel, call, &sums, rms ? 1 : 2);
        tri_gpu_leaves(kernel, call, 0, leaves, width, width);
        if (!rms) {
            tri_gpu_leaves(kernel, call, 1, leaves + call->shards * width, width, width);
        }
    }
    const tri_gpu_norm_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                         .x = tri_gpu_input(kernel, call, 0),
                                         .dy = tri_gpu_doutput(kernel, call),
                                         .scale = call->param[0],
                                         .stats = call->saved,
                                         .rows = rows * call->shards,
                                         .width = width,
                                         .rms = rms,
                                         .adds = call->adds_dinput};
    if (args.dx.data != NULL) {
        TRI_GPU_RUN(call, norm_back, tri_gpu_blocks_rows(args.rows), 1, 1, args);
    }
}

#define NORM(row, id)                                                                                                  \
    const tri_kernel_ops row = {                                                                                       \
        TRI_GPU_ROW,                                                                                                   \
        .op = id,                                                                                                      \
        .plan = norm_plan,                                                                                             \
        .forward = norm_forward,                                                                                       \
        .backward = norm_backward,                                                                                     \
        .backward_input = true,                                                                                        \
        .takes_add = true,                                                                                             \
        .adds_dinput = true,                                                                                           \
    }
NORM(tri_gpu_row_layer_norm, TRI_OP_LAYER_NORM);
NORM(tri_gpu_row_rms_norm, TRI_OP_RMS_NORM);

static void softmax_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]);
    const tri_gpu_softmax_args args = {.y = tri_gpu_output(kernel, call),
                                       .x = tri_gpu_input(kernel, call, 0),
                                       .rows = tri_shape_count(kernel->desc.input[0]) / width * call->shards,
                                       .width = width};
    TRI_GPU_RUN(call, softmax, tri_gpu_blocks_rows(args.rows), 1, 1, args);
}

static void softmax_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]);
    const tri_gpu_softmax_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                            .y = tri_gpu_output(kernel, call),
                                            .dy = tri_gpu_doutput(kernel, call),
                                            .rows = tri_shape_count(kernel->desc.input[0]) / width * call->shards,
                                            .width = width};
    if (args.dx.data != NULL) {
        TRI_GPU_RUN(call, softmax_back, tri_gpu_blocks_rows(args.rows), 1, 1, args);
    }
}

const tri_kernel_ops tri_gpu_row_softmax = {
    TRI_GPU_ROW,
    .op = TRI_OP_SOFTMAX,
    .forward = softmax_forward,
    .backward = softmax_backward,
    .backward_output = true,
};
