/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.c: builds convolutions; a sample [H, W] is seen as [H, W, 1].
 */
#include "nn/build.h"

/* The second of a pair follows the first when it was left out. */
static void pair_fill(int out[2], const int in[2], int fallback)
{
    out[0] = in[0] != 0 ? in[0] : fallback;
    out[1] = in[1] != 0 ? in[1] : out[0];
}

tri_value tri_conv(tri_model *model, tri_value x, tri_conv_options options)
{
    const tri_value_spec *spec = tri_model_value(model, x);
    if (spec && spec->sample.ndim == 2) {
        tri_shape image = {.ndim = 3, .dim = {spec->sample.dim[0], spec->sample.dim[1], 1}};
        x = tri_reshape(model, x, image);
    }
    tri_build build = {
        .op = TRI_OP_CONV,
        .attr = {.groups = options.groups, .relu = options.relu, .bias = !options.no_bias, .units = options.channels},
        .input_count = 1,
        .input = {tri_model_image(model, TRI_OP_CONV, x)},
        .kind = "conv",
        .name = options.name,
        .param = {{"weight", model->conv_init, true, false, {0}}, {"bias", TRI_INIT_FAN_IN, false, false, {0}}},
    };
    pair_fill(build.attr.kernel, options.kernel, 0);
    pair_fill(build.attr.stride, options.stride, 1);
    pair_fill(build.attr.pad, options.pad, 0);
    pair_fill(build.attr.dilation, options.dilation, 1);
    return tri_model_add(model, &build);
}
