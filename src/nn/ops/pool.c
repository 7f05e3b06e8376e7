/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: builds pools over windows and over the whole image.
 */
#include "nn/build.h"

static tri_value pool_add(tri_model *model, tri_op op, tri_value x, const tri_pool_options *options)
{
    tri_build build = {.op = op, .input_count = 1, .input = {tri_model_image(model, op, x)}};
    for (int i = 0; i < 2; i++) {
        build.attr.kernel[i] = options->kernel[i] != 0 ? options->kernel[i] : options->kernel[0];
        int stride = options->stride[i] != 0 ? options->stride[i] : options->stride[0];
        build.attr.stride[i] = stride != 0 ? stride : build.attr.kernel[i];
        build.attr.pad[i] = options->pad[i] != 0 ? options->pad[i] : options->pad[0];
    }
    return tri_model_add(model, &build);
}

tri_value tri_max_pool(tri_model *model, tri_value x, tri_pool_options options)
{
    return pool_add(model, TRI_OP_MAX_POOL, x, &options);
}

tri_value tri_avg_pool(tri_model *model, tri_value x, tri_pool_options options)
{
    return pool_add(model, TRI_OP_AVG_POOL, x, &options);
}

tri_value tri_global_pool(tri_model *model, tri_value x)
{
    tri_build build = {
        .op = TRI_OP_GLOBAL_POOL, .input_count = 1, .input = {tri_model_image(model, TRI_OP_GLOBAL_POOL, x)}};
    return tri_model_add(model, &build);
}
