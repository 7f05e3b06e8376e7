/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.c: the small models for images of digits and clothes: mlp, lenet, cnn.
 */
#include <stdio.h>

#include "base/status.h"
#include "nn/models/models.h"
#include "nn/parts.h"

#define MAX_HIDDEN 64

/* A list of widths, or one width; *count keeps the default when the field is absent. */
static tri_status widths_read(const tri_yaml *config, const char *name, int limit, int64_t *widths, int *count)
{
    const tri_yaml *field = tri_yaml_find(config, name);
    if (!field)
        return TRI_OK;
    if (field->kind != TRI_YAML_LIST) {
        *count = 1;
        return tri_yaml_int(field, name, 1, 1 << 20, &widths[0]);
    }
    char place[32];
    *count = tri_yaml_count(field);
    if (*count > limit)
        return tri_fail(TRI_ECONFIG, "%s%s: want at most %d layers, got %d", tri_field_place(field, place), name, limit,
                        *count);
    int at = 0;
    for (const tri_yaml *width = field->child; width; width = width->next)
        TRI_TRY(tri_yaml_int(width, name, 1, 1 << 20, &widths[at++]));
    return TRI_OK;
}

/* In the order of the field `flatten`. */
static tri_status flatten_add(const tri_model_plan *plan, tri_value x, tri_value *flat)
{
    tri_flatten_order order = TRI_FLATTEN_UNSTATED;
    TRI_TRY(tri_field_order(plan->config, "flatten", &order));
    *flat = tri_flatten_in_order(plan->model, x, order);
    return TRI_OK;
}

typedef struct mlp_form {
    int64_t widths[MAX_HIDDEN + 1]; /* of the hidden layers, and of the last one */
    int count;
    double rate;
} mlp_form;

static tri_value drop(tri_model *m, const void *form, tri_value x, int parts)
{
    double rate = ((const mlp_form *)form)->rate;
    (void)parts;
    return rate > 0 ? tri_dropout(m, x, (float)rate) : x;
}

/* Layer `at`, and the next one with it, cut the other way, where there is one. */
static tri_value mlp_pair_add(const tri_model_plan *plan, const mlp_form *form, int at, tri_value x)
{
    char names[2][24];
    tri_linear_options layer[2];
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof(names[i]), "fc%d", at + i + 1);
        layer[i] = (tri_linear_options){.name = names[i], .relu = at + i < form->count};
        layer[i].units = at + i <= form->count ? form->widths[at + i] : 0;
    }
    if (at == form->count)
        return tri_linear(plan->model, x, layer[0]);
    x = tri_pair_add(plan->model, x, &(tri_pair){.column = layer[0], .row = layer[1], .between = drop, .form = form});
    return at + 1 < form->count ? drop(plan->model, form, x, 1) : x;
}

tri_status tri_mlp_build(const tri_model_plan *plan, tri_value *logits)
{
    mlp_form form = {.widths = {512, 256}, .count = 2};
    TRI_TRY(widths_read(plan->config, "hidden", MAX_HIDDEN, form.widths, &form.count));
    TRI_TRY(tri_field_real(plan->config, "dropout", 0, 0.999, &form.rate));
    form.widths[form.count] = tri_plan_outputs(plan);
    tri_value x;
    TRI_TRY(flatten_add(plan, plan->x, &x));
    for (int at = 0; at <= form.count; at += 2) {
        if (at < form.count)
            TRI_TRY(tri_plan_cut(plan, "hidden", "widths (of every second layer, from the first on)", form.widths[at]));
        x = mlp_pair_add(plan, &form, at, x);
    }
    *logits = x;
    return TRI_OK;
}

/* LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998, with relu for tanh
 * and max pooling for the trained one; the first convolution is padded so that 28x28 images fit. */
tri_status tri_lenet_build(const tri_model_plan *plan, tri_value *logits)
{
    tri_model *m = plan->model;
    int64_t height, width;
    TRI_TRY(tri_plan_image(plan, "lenet", &height, &width));
    tri_value x = tri_conv(
        m, plan->x, (tri_conv_options){.channels = 6, .kernel = {5}, .pad = {height < 32 ? 2 : 0}, .relu = true});
    x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
    x = tri_conv(m, x, (tri_conv_options){.channels = 16, .kernel = {5}, .relu = true});
    x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
    TRI_TRY(flatten_add(plan, x, &x));
    x = tri_linear(m, x, (tri_linear_options){.units = 120, .relu = true});
    x = tri_linear(m, x, (tri_linear_options){.units = 84, .relu = true});
    *logits = tri_linear(m, x, (tri_linear_options){.units = tri_plan_outputs(plan)});
    return TRI_OK;
}

tri_status tri_cnn_build(const tri_model_plan *plan, tri_value *logits)
{
    tri_model *m = plan->model;
    int64_t height, width, channels[MAX_HIDDEN] = {32, 64}, hidden = 128;
    int count = 2;
    double rate = 0;
    TRI_TRY(tri_plan_image(plan, "cnn", &height, &width));
    TRI_TRY(widths_read(plan->config, "channels", MAX_HIDDEN, channels, &count));
    TRI_TRY(tri_field_int(plan->config, "hidden", 1, 1 << 20, &hidden));
    TRI_TRY(tri_field_real(plan->config, "dropout", 0, 0.999, &rate));
    tri_value x = plan->x;
    for (int i = 0; i < count; i++)
        x = tri_conv(m, x, (tri_conv_options){.channels = (int)channels[i], .kernel = {3}, .relu = true});
    x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
    if (rate > 0)
        x = tri_dropout(m, x, (float)rate);
    TRI_TRY(flatten_add(plan, x, &x));
    x = tri_linear(m, x, (tri_linear_options){.units = hidden, .relu = true});
    if (rate > 0)
        x = tri_dropout(m, x, (float)rate);
    *logits = tri_linear(m, x, (tri_linear_options){.units = tri_plan_outputs(plan)});
    return TRI_OK;
}
