/* SPDX-License-Identifier: Apache-2.0
 *
 * resnet.c: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016.
 *
 * Depth 20, 32, 44, 56: the form of section 4.2 for 32x32 images, with 1x1 convolutions where the shape changes (option
 * B). Depth 18, 34, 50: the form of table 1, bottlenecks from 50 on (their stride in the 3x3 convolution, as
 * torchvision has it).
 */
#include <stdio.h>

#include "base/status.h"
#include "nn/models/models.h"

typedef struct resnet_form {
    int64_t depth;
    int stages;
    int blocks[4]; /* of each stage */
    int width;     /* of the first stage; it doubles with each */
    bool bottleneck, large;
} resnet_form;

static const resnet_form forms[] = {
    {20, 3, {3, 3, 3}, 16, false, false},   {32, 3, {5, 5, 5}, 16, false, false},
    {44, 3, {7, 7, 7}, 16, false, false},   {56, 3, {9, 9, 9}, 16, false, false},
    {18, 4, {2, 2, 2, 2}, 64, false, true}, {34, 4, {3, 4, 6, 3}, 64, false, true},
    {50, 4, {3, 4, 6, 3}, 64, true, true},
};

/* Convolution without bias, then batch norm; the norm's name follows the convolution's. */
static tri_value conv_norm(tri_model *m, tri_value x, const char *name, const char *norm, int channels, int kernel,
                           int stride, bool relu)
{
    tri_conv_options options = {.channels = channels,
                                .kernel = {kernel},
                                .stride = {stride},
                                .pad = {kernel / 2},
                                .no_bias = true,
                                .name = name};
    x = tri_conv(m, x, options);
    return tri_batch_norm(m, x, (tri_norm_options){.relu = relu, .name = norm});
}

/* relu(x + f(x)); x goes through a 1x1 convolution where f changes the shape. */
static tri_value block_add(tri_model *m, tri_value x, const resnet_form *form, int width, int stride)
{
    int out = form->bottleneck ? 4 * width : width;
    tri_shape shape = tri_model_shape(m, x);
    tri_value y;
    if (form->bottleneck) {
        y = conv_norm(m, x, "conv1", "bn1", width, 1, 1, true);
        y = conv_norm(m, y, "conv2", "bn2", width, 3, stride, true);
        y = conv_norm(m, y, "conv3", "bn3", out, 1, 1, false);
    } else {
        y = conv_norm(m, x, "conv1", "bn1", width, 3, stride, true);
        y = conv_norm(m, y, "conv2", "bn2", out, 3, 1, false);
    }
    if (stride != 1 || shape.ndim != 3 || shape.dim[2] != out)
        x = conv_norm(m, x, "downsample.0", "downsample.1", out, 1, stride, false);
    return tri_relu(m, tri_add(m, y, x));
}

static tri_status form_find(const tri_yaml *config, const resnet_form **out)
{
    int64_t depth = 20;
    TRI_TRY(tri_field_int(config, "depth", 1, 10000, &depth));
    for (size_t i = 0; i < TRI_COUNT_OF(forms); i++)
        if (forms[i].depth == depth)
            *out = &forms[i];
    char place[32];
    return *out ? TRI_OK
                : tri_fail(TRI_ECONFIG,
                           "%sdepth: want 20, 32, 44, 56 (small images) or 18, 34, 50 (large ones), got %lld",
                           tri_field_place(tri_yaml_find(config, "depth"), place), (long long)depth);
}

tri_status tri_resnet_build(const tri_model_plan *plan, tri_value *logits)
{
    const resnet_form *form = NULL;
    int64_t height, image_width;
    TRI_TRY(tri_plan_image(plan, "resnet", &height, &image_width));
    TRI_TRY(form_find(plan->config, &form));
    tri_model *m = plan->model;
    m->conv_init = TRI_INIT_HE;
    tri_value x = conv_norm(m, plan->x, "conv1", "bn1", form->width, form->large ? 7 : 3, form->large ? 2 : 1, true);
    if (form->large)
        x = tri_max_pool(m, x, (tri_pool_options){.kernel = {3}, .stride = {2}, .pad = {1}});
    for (int stage = 0; stage < form->stages; stage++) {
        for (int block = 0; block < form->blocks[stage]; block++) {
            char scope[32];
            snprintf(scope, sizeof(scope), "layer%d.%d.", stage + 1, block);
            tri_model_scope(m, scope);
            x = block_add(m, x, form, form->width << stage, stage > 0 && block == 0 ? 2 : 1);
        }
    }
    tri_model_scope(m, "");
    x = tri_global_pool(m, x);
    *logits = tri_linear(m, x, (tri_linear_options){.units = tri_plan_outputs(plan), .name = "fc"});
    return TRI_OK;
}
