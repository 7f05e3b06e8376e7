/* SPDX-License-Identifier: Apache-2.0
 *
 * nn.h: models as graphs of operations, built value by value.
 *
 *     tri_model *m;   tri_model_create("mlp", &m);
 *     tri_value x = tri_model_input(m, TRI_F32, tri_shape_make(1, (int64_t[]){784}));
 *     tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(0, NULL));
 *     x = tri_linear(m, x, (tri_linear_options){.units = 128, .relu = true});
 *     x = tri_linear(m, x, (tri_linear_options){.units = 10});
 *     tri_cross_entropy(m, x, y, 0.0f);
 *     status = tri_model_finish(m);        // the first failure of any call above
 *
 * Shapes are those of one sample: the batch dimension is added by whoever runs the model. A failed call returns -1, and
 * calls with -1 return -1: check once, at tri_model_finish().
 */
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include <trireme/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tri_model tri_model;
typedef int tri_value; /* number of a value of the model; -1: failed */

TRI_API tri_status tri_model_create(const char *name, tri_model **out);
TRI_API void tri_model_destroy(tri_model *model);
/* What comes from the data set: the sample, and what it should give. One of each. */
TRI_API tri_value tri_model_input(tri_model *model, tri_dtype dtype, tri_shape sample);
TRI_API tri_value tri_model_target(tri_model *model, tri_dtype dtype, tri_shape sample);
/* Prefix of the names of the parameters made from here on, such as "block1."; "" at first. Copied. */
TRI_API void tri_model_scope(tri_model *model, const char *prefix);
/* Weights of linear layers, embeddings and positions made from here on are normal with this deviation and biases 0; 0
 * is what holds at first: linear layers uniform by their inputs, embeddings and positions of deviation 1. */
TRI_API void tri_model_init_normal(tri_model *model, float deviation);
/* Batch norms made from here on take mean and variance of the whole batch, over all workers, as PyTorch's SyncBatchNorm
 * does; false, at first: of each shard of it. */
TRI_API void tri_model_sync_batch_norm(tri_model *model, bool sync);
/* What is made between the two is a block: its values are not kept for the backward pass but computed again there, bit
 * for bit. Less memory, one more forward pass. Blocks do not nest. */
TRI_API void tri_model_block_begin(tri_model *model);
TRI_API void tri_model_block_end(tri_model *model);
/* Checks that the model has an input and a loss; returns the first failure of the building calls. */
TRI_API tri_status tri_model_finish(tri_model *model);
/* Shape of one sample of a value. */
TRI_API tri_shape tri_model_shape(const tri_model *model, tri_value value);
/* Number of trainable elements. */
TRI_API int64_t tri_model_param_count(const tri_model *model);

typedef struct tri_linear_options {
    int64_t units;
    bool no_bias;
    bool relu;        /* fused */
    const char *name; /* of the layer: parameters are "<name>.weight", "<name>.bias"; NULL: "fc<N>" */
} tri_linear_options;
TRI_API tri_value tri_linear(tri_model *model, tri_value x, tri_linear_options options);

typedef struct tri_conv_options {
    int64_t channels;
    int kernel[2]; /* H, W; kernel[1] 0 = kernel[0] */
    int stride[2]; /* 0 = 1 */
    int pad[2];    /* both sides; pad[1] 0 and pad[0] set: the same */
    int dilation[2];
    int groups; /* 0 = 1 */
    bool no_bias;
    bool relu;
    const char *name; /* NULL: "conv<N>" */
} tri_conv_options;
TRI_API tri_value tri_conv(tri_model *model, tri_value x, tri_conv_options options);

typedef struct tri_pool_options {
    int kernel[2], stride[2], pad[2]; /* stride 0 = kernel */
} tri_pool_options;
TRI_API tri_value tri_max_pool(tri_model *model, tri_value x, tri_pool_options options);
TRI_API tri_value tri_avg_pool(tri_model *model, tri_value x, tri_pool_options options);
TRI_API tri_value tri_global_pool(tri_model *model, tri_value x);

typedef struct tri_norm_options {
    float epsilon;  /* 0 = 1e-5 */
    float momentum; /* batch norm; 0 = 0.1 */
    bool relu;      /* batch norm, fused */
    const char *name;
} tri_norm_options;
TRI_API tri_value tri_batch_norm(tri_model *model, tri_value x, tri_norm_options options);
TRI_API tri_value tri_layer_norm(tri_model *model, tri_value x, tri_norm_options options);
TRI_API tri_value tri_rms_norm(tri_model *model, tri_value x, tri_norm_options options);

TRI_API tri_value tri_relu(tri_model *model, tri_value x);
TRI_API tri_value tri_gelu(tri_model *model, tri_value x);     /* by tanh, as GPT-2 has it */
TRI_API tri_value tri_gelu_erf(tri_model *model, tri_value x); /* by the error function */
TRI_API tri_value tri_silu(tri_model *model, tri_value x);
TRI_API tri_value tri_tanh(tri_model *model, tri_value x);
TRI_API tri_value tri_sigmoid(tri_model *model, tri_value x);
TRI_API tri_value tri_softmax(tri_model *model, tri_value x);
TRI_API tri_value tri_dropout(tri_model *model, tri_value x, float rate);
TRI_API tri_value tri_embedding(tri_model *model, tri_value index, int64_t rows, int64_t width, const char *name);
TRI_API tri_value tri_add(tri_model *model, tri_value a, tri_value b);
TRI_API tri_value tri_mul(tri_model *model, tri_value a, tri_value b);
TRI_API tri_value tri_matmul(tri_model *model, tri_value a, tri_value b);
/* Along `axis` of one sample (0 = its first dimension). */
TRI_API tri_value tri_concat(tri_model *model, const tri_value *inputs, int count, int axis);
TRI_API tri_value tri_reshape(tri_model *model, tri_value x, tri_shape sample);
/* In the order of the sample's dimensions: H W C for images. PyTorch's is C H W: transpose by {2, 0, 1} before. */
TRI_API tri_value tri_flatten(tri_model *model, tri_value x);
/* axes: a permutation of the dimensions of one sample. */
TRI_API tri_value tri_transpose(tri_model *model, tri_value x, const int *axes);

/* Of transformers: x is a sequence [T, C]. */
/* x + w[t], the learned parameter w [count, C]; T is at most count. */
TRI_API tri_value tri_positions(tri_model *model, tri_value x, int64_t count, const char *name);
/* x [.., 2F], gate then up: silu(gate) up. */
TRI_API tri_value tri_swiglu(tri_model *model, tri_value x);

typedef struct tri_rope_options {
    int heads, kv_heads;     /* as in tri_attention_options */
    float theta;             /* base of the angles; 0 = 10000 */
    float factor, low, high; /* Llama 3's scaling: factor, low and high frequency factors; factor 0: none */
    int64_t context;         /* its original context */
} tri_rope_options;
/* Turns queries and keys of x [T, (heads + 2 kv_heads) D] by their place: element i with i + D / 2, as Hugging Face. */
TRI_API tri_value tri_rope(tri_model *model, tri_value x, tri_rope_options options);

typedef struct tri_attention_options {
    int heads;
    int kv_heads;  /* of keys and values; 0 = heads, which is a multiple of it */
    float dropout; /* of the weights of values, in training */
} tri_attention_options;
/* Causal attention of x [T, (heads + 2 kv_heads) D], queries, keys, values side by side: [T, heads D]. */
TRI_API tri_value tri_attention(tri_model *model, tri_value x, tri_attention_options options);

/* Losses end a model. They are sums over the batch, divided once by the global count. */
TRI_API tri_value tri_cross_entropy(tri_model *model, tri_value logits, tri_value target, float smoothing);

typedef struct tri_vocab_loss_options {
    int64_t words;
    float smoothing;
    bool forget;      /* logits are computed again in the backward pass instead of kept: less memory, the same bits */
    const char *name; /* NULL: "head<N>" */
    const char *tied; /* NULL: a weight of its own, "<name>.weight" [words, C]; else the whole name of the parameter of
                         that shape which is the weight, such as an embedding's "wte.weight" */
} tri_vocab_loss_options;
/* Cross entropy of a linear layer over x [.., C] to `words` logits, which are never in memory all at once when they are
 * many. Targets below 0 do not count. */
TRI_API tri_value tri_vocab_loss(tri_model *model, tri_value x, tri_value target, tri_vocab_loss_options options);
TRI_API tri_value tri_mse(tri_model *model, tri_value x, tri_value target);

#ifdef __cplusplus
}
#endif
#endif
