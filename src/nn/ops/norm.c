/* SPDX-License-Identifier: Apache-2.0
 *
 * norm.c: builds batch and layer normalization, parameters named as PyTorch's.
 */
#include "base/status.h"
#include "nn/parts.h"

tri_value tri_batch_norm(tri_model *model, tri_value x, tri_norm_options options)
{
    tri_build build = {
        .op = TRI_OP_BATCH_NORM,
        .attr = {.relu = options.relu,
                 .epsilon = options.epsilon,
                 .momentum = options.momentum,
                 .sync = model->sync_norm},
        .input_count = 1,
        .input = {x},
        .kind = "bn",
        .name = options.name,
        .param = {{"weight", TRI_INIT_ONE, false, false, {0}},
                  {"bias", TRI_INIT_ZERO, false, false, {0}},
                  {"running_mean", TRI_INIT_ZERO, false, true, {0}},
                  {"running_var", TRI_INIT_ONE, false, true, {0}}},
    };
    if (!(options.momentum >= 0 && options.momentum <= 1))
        return tri_model_fail(
            model, tri_fail(TRI_EINVAL, "batch_norm: want a momentum from 0 to 1, got %g", (double)options.momentum));
    return tri_model_add(model, &build);
}

tri_value tri_rms_norm(tri_model *model, tri_value x, tri_norm_options options)
{
    tri_build build = {
        .op = TRI_OP_RMS_NORM,
        .attr = {.epsilon = options.epsilon},
        .input_count = 1,
        .input = {x},
        .kind = "rms",
        .name = options.name,
        .param = {{"weight", TRI_INIT_ONE, false, false, {0}}},
    };
    tri_tokens_attr(model, &build.attr);
    return tri_model_add(model, &build);
}

tri_value tri_layer_norm(tri_model *model, tri_value x, tri_norm_options options)
{
    tri_build build = {
        .op = TRI_OP_LAYER_NORM,
        .attr = {.epsilon = options.epsilon},
        .input_count = 1,
        .input = {x},
        .kind = "ln",
        .name = options.name,
        .param = {{"weight", TRI_INIT_ONE, false, false, {0}}, {"bias", TRI_INIT_ZERO, false, false, {0}}},
    };
    tri_tokens_attr(model, &build.attr);
    return tri_model_add(model, &build);
}
