/* SPDX-License-Identifier: Apache-2.0
 *
 * vgg.c: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015, table 1.
 *
 * Small images (64x64 and below) end in one linear layer with dropout before it, larger ones in the paper's 4096-4096.
 * A pool that the image is too small for is left out.
 */
#include "base/status.h"
#include "nn/models/models.h"

#define POOL 0

/* Columns A, B, D, E: channels of 3x3 convolutions, POOL between. -1 ends. */
static const int column_a[] = {64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL, -1};
static const int column_b[] = {64, 64, POOL, 128, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL, -1};
static const int column_d[] = {64,  64,  POOL, 128,  128, POOL, 256, 256,  256, POOL,
                               512, 512, 512,  POOL, 512, 512,  512, POOL, -1};
static const int column_e[] = {64,  64,  POOL, 128, 128,  POOL, 256, 256, 256, 256,  POOL,
                               512, 512, 512,  512, POOL, 512,  512, 512, 512, POOL, -1};

static const struct {
    int64_t depth;
    const int *column;
} forms[] = {{11, column_a}, {13, column_b}, {16, column_d}, {19, column_e}};

static tri_value features_add(tri_model *m, tri_value x, const int *column, bool norm)
{
    for (; *column >= 0; column++) {
        tri_shape shape = tri_model_shape(m, x);
        if (*column == POOL) {
            if (shape.dim[0] >= 2 && shape.dim[1] >= 2)
                x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
            continue;
        }
        x = tri_conv(
            m, x, (tri_conv_options){.channels = *column, .kernel = {3}, .pad = {1}, .no_bias = norm, .relu = !norm});
        if (norm)
            x = tri_batch_norm(m, x, (tri_norm_options){.relu = true});
    }
    return x;
}

tri_status tri_vgg_build(const tri_model_plan *plan, tri_value *logits)
{
    int64_t height, width, depth = 11;
    bool norm = true;
    tri_flatten_order order = TRI_FLATTEN_UNSTATED;
    TRI_TRY(tri_plan_image(plan, "vgg", &height, &width));
    bool large = height > 64 || width > 64;
    double rate = large ? 0.5 : 0;
    TRI_TRY(tri_field_int(plan->config, "depth", 1, 10000, &depth));
    TRI_TRY(tri_field_bool(plan->config, "batch_norm", &norm));
    TRI_TRY(tri_field_real(plan->config, "dropout", 0, 0.999, &rate));
    TRI_TRY(tri_field_order(plan->config, "flatten", &order));
    const int *column = NULL;
    for (size_t i = 0; i < TRI_COUNT_OF(forms); i++)
        if (forms[i].depth == depth)
            column = forms[i].column;
    char place[32];
    if (!column)
        return tri_fail(TRI_ECONFIG, "%sdepth: want 11, 13, 16 or 19, got %lld",
                        tri_field_place(tri_yaml_find(plan->config, "depth"), place), (long long)depth);
    tri_model *m = plan->model;
    m->conv_init = TRI_INIT_HE;
    tri_value x = tri_flatten_in_order(m, features_add(m, plan->x, column, norm), order);
    for (int i = 0; i < 2 && large; i++) {
        x = tri_linear(m, x, (tri_linear_options){.units = 4096, .relu = true});
        if (rate > 0)
            x = tri_dropout(m, x, (float)rate);
    }
    if (!large && rate > 0)
        x = tri_dropout(m, x, (float)rate);
    *logits = tri_linear(m, x, (tri_linear_options){.units = tri_plan_outputs(plan)});
    return TRI_OK;
}
