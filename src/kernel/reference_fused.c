/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_fused.c: what a convolution with a fused pool means: the one, then the other.
 */
#include "kernel/row.h"

/* The two kernels, and where what goes between them lies in scratch, in elements; the convolution's own lies at 0. */
typedef struct fused {
    tri_kernel conv, pool;
    int64_t between, dbetween, total;
} fused;

static fused fused_make(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    fused f = {.conv = {.ops = &tri_reference_conv, .desc = *desc}, .pool = {.ops = &tri_reference_max_pool}};
    f.conv.desc.attr.pool = false;
    f.conv.desc.output = tri_shape_make(4, (int64_t[]){w.batch, w.out[0], w.out[1], w.out_channels});
    f.pool.desc = (tri_op_desc){.op = TRI_OP_MAX_POOL,
                                .attr = {.kernel = {2, 2}, .stride = {2, 2}},
                                .input_count = 1,
                                .input = {f.conv.desc.output},
                                .output = desc->output,
                                .max_shards = desc->max_shards,
                                .threads = 1};
    const int64_t count = tri_align_count(tri_shape_count(f.conv.desc.output) * desc->max_shards);
    (void)tri_reference_conv.plan(&f.conv.desc, &f.conv);
    f.between = tri_align_count((int64_t)(f.conv.scratch_nbytes / sizeof(float)));
    f.dbetween = f.between + count;
    f.total = f.dbetween + count;
    return f;
}

static tri_status fused_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)fused_make(desc).total * sizeof(float);
    return TRI_OK;
}

static tri_op_call conv_call(const fused *f, const tri_op_call *call)
{
    tri_op_call conv = *call;
    conv.output = (float *)call->scratch + f->between;
    conv.doutput = (float *)call->scratch + f->dbetween;
    return conv;
}

static void fused_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const fused f = fused_make(&kernel->desc);
    const tri_op_call conv = conv_call(&f, call);
    tri_op_call pool = *call;
    tri_kernel_forward(&f.conv, &conv);
    pool.input[0] = conv.output;
    tri_kernel_forward(&f.pool, &pool);
}

/* What went between them is formed again. */
static void fused_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const fused f = fused_make(&kernel->desc);
    const tri_op_call conv = conv_call(&f, call);
    tri_op_call pool = *call;
    tri_kernel_forward(&f.conv, &conv);
    pool.input[0] = conv.output;
    pool.dinput[0] = (float *)call->scratch + f.dbetween;
    tri_kernel_backward(&f.pool, &pool);
    tri_kernel_backward(&f.conv, &conv);
}

static bool fused_can(const tri_op_desc *desc)
{
    return desc->attr.pool;
}

const tri_kernel_ops tri_reference_conv_pool = {
    .op = TRI_OP_CONV,
    .name = "reference",
    .can = fused_can,
    .plan = fused_plan,
    .forward = fused_forward,
    .backward = fused_backward,
    .backward_input = true,
};
