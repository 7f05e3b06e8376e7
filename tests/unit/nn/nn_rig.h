/* SPDX-License-Identifier: Apache-2.0
 *
 * nn_rig.h: small models with random data, run and compared: what the tests of nn/ share.
 */
#ifndef TRI_TESTS_NN_RIG_H
#define TRI_TESTS_NN_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "nn/build.h"
#include "nn/graph_impl.h"

#define RIG_SHARDS 8
#define RIG_ROWS   3

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK)                                                                                          \
            fail_msg("%s: %s", #call, tri_last_error());                                                               \
    } while (0)

typedef struct rig {
    tri_model *model;
    tri_params *params;
    tri_graph *graph;
    tri_batch batch;
    int32_t rows[RIG_SHARDS];
    int64_t first_sample[RIG_SHARDS];
    void *input, *target;
    float *grads[RIG_SHARDS];
} rig;

/* Random samples; targets are below `classes`, or real when it is 0. Shard 5 has one row less, shard 6 none. */
static inline void rig_fill_batch(rig *r, int64_t classes)
{
    const tri_value_spec *values = r->model->values.items;
    const tri_value_spec *input = &values[r->model->input], *target = &values[r->model->target];
    int64_t width = tri_shape_count(input->sample), outputs = tri_shape_count(target->sample);
    tri_rng rng = {11, 3};
    r->input = calloc((size_t)(RIG_SHARDS * RIG_ROWS * width), 4);
    r->target = calloc((size_t)(RIG_SHARDS * RIG_ROWS * outputs), 4);
    for (int s = 0; s < RIG_SHARDS; s++) {
        r->rows[s] = s == 6 ? 0 : s == 5 ? RIG_ROWS - 1 : RIG_ROWS;
        r->first_sample[s] = s * RIG_ROWS;
        for (int64_t i = s * RIG_ROWS * width; i < (s * RIG_ROWS + r->rows[s]) * width; i++) {
            if (input->dtype == TRI_I32)
                ((int32_t *)r->input)[i] = (int32_t)tri_rng_below(rng, (uint64_t)i, 5);
            else
                ((float *)r->input)[i] = tri_rng_normal(rng, (uint64_t)i);
        }
        for (int64_t i = s * RIG_ROWS * outputs; i < (s * RIG_ROWS + r->rows[s]) * outputs; i++) {
            if (classes > 0)
                ((int32_t *)r->target)[i] = (int32_t)tri_rng_below(rng, (uint64_t)i + 90000, (uint64_t)classes);
            else
                ((float *)r->target)[i] = tri_rng_normal(rng, (uint64_t)i + 90000);
        }
    }
    r->batch = (tri_batch){
        .shards = RIG_SHARDS, .rows = r->rows, .first_sample = r->first_sample, .input = r->input, .target = r->target};
}

static inline tri_graph_config rig_config(const char *kind, int threads)
{
    return (tri_graph_config){
        .kind = kind, .rows = RIG_ROWS, .shards = RIG_SHARDS, .threads = threads, .training = true, .seed = 5};
}

/* Takes the finished model. */
static inline void rig_open_as(rig *r, tri_model *model, int64_t classes, const char *kind, int threads, bool share,
                               tri_dtype precision)
{
    *r = (rig){.model = model};
    tri_graph_config config = rig_config(kind, threads);
    config.precision = precision;
    OK(tri_model_finish(model));
    OK(tri_params_create(model, tri_device_host(), 1, &r->params));
    OK(tri_graph_compile_as(model, r->params, &config, share, &r->graph));
    rig_fill_batch(r, classes);
    for (int p = 0; p < RIG_SHARDS; p++) {
        size_t count = (size_t)(tri_params_grad_count(r->params) + TRI_PARAMS_TAIL);
        r->grads[p] = calloc(count, sizeof(float));
        for (int e = 0; e < r->params->entry_count; e++) /* whatever is not written shows */
            for (int64_t i = 0; i < r->params->entries[e].count; i++)
                r->grads[p][r->params->entries[e].first + i] = NAN;
    }
}

static inline void rig_open(rig *r, tri_model *model, int64_t classes, const char *kind, int threads, bool share)
{
    rig_open_as(r, model, classes, kind, threads, share, TRI_F32);
}

static inline void rig_close(rig *r)
{
    for (int p = 0; p < RIG_SHARDS; p++)
        free(r->grads[p]);
    free(r->input);
    free(r->target);
    tri_graph_destroy(r->graph);
    tri_params_destroy(r->params);
    tri_model_destroy(r->model);
}

/* Forward and backward over all shards in the given parts; the loss's tail value of part 0 is returned. */
static inline float rig_run(rig *r, int part_count, const tri_tree_part *parts, uint64_t step)
{
    const float(*sums)[4];
    OK(tri_graph_grads_set(r->graph, part_count, parts, r->grads));
    OK(tri_graph_forward(r->graph, &r->batch, step, true, &sums));
    OK(tri_graph_backward(r->graph, NULL, NULL));
    return r->grads[0][tri_params_grad_count(r->params) + TRI_TAIL_LOSS];
}

static inline float rig_run_whole(rig *r, uint64_t step)
{
    tri_tree_part whole = {0, RIG_SHARDS};
    return rig_run(r, 1, &whole, step);
}

/* Sum of all samples' losses in double, forward only. */
static inline double rig_loss(rig *r, uint64_t step)
{
    const float(*sums)[4];
    double loss = 0;
    OK(tri_graph_forward(r->graph, &r->batch, step, true, &sums));
    for (int s = 0; s < RIG_SHARDS; s++)
        loss += (double)sums[s][0];
    return loss;
}

static inline size_t rig_grad_nbytes(const rig *r)
{
    return (size_t)(tri_params_grad_count(r->params) + TRI_PARAMS_TAIL) * sizeof(float);
}

/* --- the models --- */

typedef tri_model *(*rig_model_fn)(void);

static inline tri_model *rig_start(tri_dtype dtype, int ndim, const int64_t *dim, tri_value *x, tri_value *y)
{
    tri_model *m;
    OK(tri_model_create("test", &m));
    *x = tri_model_input(m, dtype, tri_shape_make(ndim, dim));
    *y = tri_model_target(m, TRI_I32, tri_shape_make(0, NULL));
    return m;
}

static inline tri_model *rig_mlp(void)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    x = tri_tanh(m, tri_linear(m, x, (tri_linear_options){.units = 11}));
    x = tri_relu(m, tri_linear(m, x, (tri_linear_options){.units = 6}));
    x = tri_linear(m, x, (tri_linear_options){.units = 5, .no_bias = true});
    tri_cross_entropy(m, x, y, 0.1f);
    return m;
}

static inline tri_model *rig_lenet(void)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 2, (int64_t[]){10, 10}, &x, &y);
    x = tri_conv(m, x, (tri_conv_options){.channels = 4, .kernel = {3}, .pad = {1}, .relu = true});
    x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
    x = tri_conv(m, x, (tri_conv_options){.channels = 6, .kernel = {3}});
    x = tri_avg_pool(m, tri_gelu(m, x), (tri_pool_options){.kernel = {3}, .stride = {2}, .pad = {1}});
    x = tri_linear(m, tri_flatten(m, x), (tri_linear_options){.units = 5});
    tri_cross_entropy(m, x, y, 0);
    return m;
}

/* Convolutions whose pools are fused where that is faster; `apart`: not, for what lies between, which changes nothing.
 */
static inline tri_model *rig_pooled_as(bool apart)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 3, (int64_t[]){8, 9, 16}, &x, &y);
    for (int i = 0; i < 2; i++) {
        x = tri_conv(m, x, (tri_conv_options){.channels = 16, .kernel = {3}, .pad = {1}, .relu = true});
        if (apart)
            x = tri_max_pool(m, x, (tri_pool_options){.kernel = {1}});
        x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
    }
    tri_cross_entropy(m, tri_linear(m, tri_flatten(m, x), (tri_linear_options){.units = 5}), y, 0);
    return m;
}

static inline tri_model *rig_pooled(void)
{
    return rig_pooled_as(false);
}

static inline tri_model *rig_resnet(void)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 3, (int64_t[]){6, 6, 3}, &x, &y);
    m->conv_init = TRI_INIT_HE;
    x = tri_batch_norm(m, tri_conv(m, x, (tri_conv_options){.channels = 4, .kernel = {3}, .pad = {1}, .no_bias = true}),
                       (tri_norm_options){.relu = true});
    for (int i = 0; i < 2; i++) {
        int channels = 4 << i;
        tri_value f =
            tri_conv(m, x, (tri_conv_options){.channels = channels, .kernel = {3}, .stride = {1 + i}, .pad = {1}});
        f = tri_relu(m, tri_batch_norm(m, f, (tri_norm_options){.momentum = 0.2f}));
        if (i)
            x = tri_conv(m, x, (tri_conv_options){.channels = channels, .kernel = {1}, .stride = {2}, .no_bias = true});
        x = tri_relu(m, tri_add(m, f, x));
    }
    x = tri_linear(m, tri_global_pool(m, x), (tri_linear_options){.units = 5});
    tri_cross_entropy(m, x, y, 0);
    return m;
}

static inline tri_model *rig_resnet_sync(void)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 3, (int64_t[]){4, 4, 3}, &x, &y);
    tri_model_sync_batch_norm(m, true);
    x = tri_batch_norm(m, tri_conv(m, x, (tri_conv_options){.channels = 4, .kernel = {3}, .pad = {1}, .no_bias = true}),
                       (tri_norm_options){.relu = true});
    tri_value f = tri_conv(m, x, (tri_conv_options){.channels = 4, .kernel = {3}, .pad = {1}});
    x = tri_relu(m, tri_add(m, tri_batch_norm(m, f, (tri_norm_options){0}), x));
    x = tri_linear(m, tri_global_pool(m, x), (tri_linear_options){.units = 5});
    tri_cross_entropy(m, x, y, 0);
    return m;
}

static inline tri_model *rig_dropout(void)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){9}, &x, &y);
    x = tri_linear(m, tri_dropout(m, x, 0.2f), (tri_linear_options){.units = 16});
    x = tri_dropout(m, tri_silu(m, x), 0.4f);
    x = tri_linear(m, x, (tri_linear_options){.units = 5});
    tri_cross_entropy(m, x, y, 0);
    return m;
}

/* Values with many readers, one read twice by the same op, transposes and reshapes between. */
static inline tri_model *rig_attention(void)
{
    tri_model *m;
    OK(tri_model_create("test", &m));
    tri_value x = tri_model_input(m, TRI_I32, tri_shape_make(1, (int64_t[]){4}));
    tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(1, (int64_t[]){4}));
    x = tri_layer_norm(m, tri_embedding(m, x, 5, 6, NULL), (tri_norm_options){0});
    tri_value q = tri_linear(m, x, (tri_linear_options){.units = 6}),
              k = tri_linear(m, x, (tri_linear_options){.units = 6});
    tri_value a = tri_softmax(m, tri_matmul(m, q, tri_transpose(m, k, (int[]){1, 0})));
    tri_value z = tri_add(m, tri_matmul(m, a, x), x);
    z = tri_mul(m, z, tri_sigmoid(m, z));
    z = tri_add(m, z, z);
    tri_value both = tri_concat(m, (tri_value[]){z, x, tri_relu(m, z)}, 3, 1);
    both =
        tri_reshape(m, tri_reshape(m, both, tri_shape_make(1, (int64_t[]){72})), tri_shape_make(2, (int64_t[]){4, 18}));
    tri_cross_entropy(m, tri_linear(m, both, (tri_linear_options){.units = 5}), y, 0);
    return m;
}

static inline tri_model *rig_regression(void)
{
    tri_model *m;
    OK(tri_model_create("test", &m));
    tri_value x = tri_model_input(m, TRI_F32, tri_shape_make(1, (int64_t[]){4}));
    tri_value y = tri_model_target(m, TRI_F32, tri_shape_make(1, (int64_t[]){2}));
    x = tri_tanh(m, tri_linear(m, x, (tri_linear_options){.units = 8}));
    tri_mse(m, tri_linear(m, x, (tri_linear_options){.units = 2}), y);
    return m;
}

/* Two layers of GPT-2, the embedding tied to the last layer; again: each layer is a block. */
static inline tri_model *rig_gpt_make(bool again)
{
    tri_model *m;
    OK(tri_model_create("test", &m));
    tri_value x = tri_model_input(m, TRI_I32, tri_shape_make(1, (int64_t[]){4}));
    tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(1, (int64_t[]){4}));
    tri_model_init_normal(m, 0.3f);
    x = tri_positions(m, tri_embedding(m, x, 7, 8, "wte"), 6, "wpe");
    for (int layer = 0; layer < 2; layer++) {
        tri_model_scope(m, layer ? "1." : "0.");
        if (again)
            tri_model_block_begin(m);
        tri_value f = tri_layer_norm(m, x, (tri_norm_options){0});
        f = tri_attention(m, tri_linear(m, f, (tri_linear_options){.units = 24}),
                          (tri_attention_options){.heads = 2, .dropout = 0.1f});
        x = tri_add(m, x, tri_dropout(m, tri_linear(m, f, (tri_linear_options){.units = 8}), 0.2f));
        f = tri_linear(m, tri_layer_norm(m, x, (tri_norm_options){0}), (tri_linear_options){.units = 20});
        f = tri_linear(m, layer ? tri_relu(m, f) : tri_gelu_erf(m, f), (tri_linear_options){.units = 8});
        x = tri_add(m, x, f);
        tri_model_block_end(m);
    }
    tri_model_scope(m, "");
    x = tri_layer_norm(m, x, (tri_norm_options){0});
    tri_vocab_loss(m, x, y, (tri_vocab_loss_options){.words = 7, .tied = "wte.weight"});
    return m;
}

static inline tri_model *rig_gpt(void)
{
    return rig_gpt_make(false);
}

static inline tri_model *rig_gpt_again(void)
{
    return rig_gpt_make(true);
}

static inline tri_model *rig_llama(void)
{
    tri_model *m;
    OK(tri_model_create("test", &m));
    tri_value x = tri_model_input(m, TRI_I32, tri_shape_make(1, (int64_t[]){4}));
    tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(1, (int64_t[]){4}));
    tri_model_init_normal(m, 0.3f);
    x = tri_embedding(m, x, 7, 8, "embed");
    tri_model_block_begin(m);
    tri_value f = tri_linear(m, tri_rms_norm(m, x, (tri_norm_options){0}), (tri_linear_options){.units = 16});
    f = tri_rope(m, f, (tri_rope_options){.heads = 2, .kv_heads = 1});
    f = tri_attention(m, f, (tri_attention_options){.heads = 2, .kv_heads = 1});
    x = tri_add(m, x, tri_linear(m, f, (tri_linear_options){.units = 8, .no_bias = true}));
    f = tri_linear(m, tri_rms_norm(m, x, (tri_norm_options){0}), (tri_linear_options){.units = 24});
    x = tri_add(m, x, tri_linear(m, tri_swiglu(m, f), (tri_linear_options){.units = 8}));
    tri_model_block_end(m);
    x = tri_rms_norm(m, x, (tri_norm_options){.name = "norm"});
    tri_vocab_loss(m, x, y, (tri_vocab_loss_options){.words = 7, .smoothing = 0.1f, .forget = true});
    return m;
}

static const struct {
    const char *name;
    rig_model_fn make;
    int64_t classes;
} rig_models[] = {{"mlp", rig_mlp, 5},
                  {"lenet", rig_lenet, 5},
                  {"pooled", rig_pooled, 5},
                  {"resnet", rig_resnet, 5},
                  {"dropout", rig_dropout, 5},
                  {"attention", rig_attention, 5},
                  {"regression", rig_regression, 0},
                  {"gpt", rig_gpt, 7},
                  {"gpt again", rig_gpt_again, 7},
                  {"llama", rig_llama, 7},
                  {"resnet in sync", rig_resnet_sync, 5}};
#define RIG_MODELS (sizeof(rig_models) / sizeof(rig_models[0]))
/* Those whose gradients are sums of those of smaller runs: all but the last, whose statistics are a run's. */
#define RIG_SPLIT_MODELS (RIG_MODELS - 1)

#endif
