/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h: what a built model consists of: nodes in the order they were made, which is a topological order.
 */
#ifndef TRI_NN_MODEL_H
#define TRI_NN_MODEL_H

#include <trireme/nn.h>

#include "base/arena.h"
#include "base/containers.h"
#include "base/yaml.h"
#include "kernel/kernel.h"
#include "nn/piece.h"

typedef enum tri_init { TRI_INIT_ZERO, TRI_INIT_ONE, TRI_INIT_FAN_IN, TRI_INIT_HE, TRI_INIT_NORMAL } tri_init;

/* One parameter or buffer, before it has memory. Names as PyTorch's: "conv1.weight" [D, C, kh, kw], "fc1.bias". */
typedef struct tri_param_spec {
    char *name;
    tri_shape shape;
    tri_piece piece; /* of the tensor of that name that this is */
    tri_init init;   /* FAN_IN: uniform +-1/sqrt(fan_in), as PyTorch's Linear and Conv2d; HE: normal sqrt(2/fan_out) */
    int64_t fan;     /* fan_in (FAN_IN) or fan_out (HE) */
    float deviation; /* NORMAL */
    bool decay;      /* weight decay applies (weights yes; bias, norms no only under optim.decay = weights) */
    bool buffer;     /* running statistics: not trained */
    float momentum;  /* buffer: weight of the newest figure */
    bool elsewhere;  /* of a part that another tensor rank has: no node here reads it, no store here holds it */
} tri_param_spec;

typedef struct tri_node {
    tri_op op;
    tri_op_attr attr;
    int input_count;
    tri_value input[TRI_OP_MAX_INPUTS];
    int param_count;
    int param[TRI_OP_MAX_PARAMS]; /* numbers in model->params */
    int tie;                      /* of parameter 0 in model->ties: another node made it; -1: none */
    int block;                    /* whose values are formed again in the backward pass, from 1; 0: none */
    tri_value output;
} tri_node;

typedef struct tri_value_spec {
    tri_dtype dtype;
    tri_shape sample; /* without the batch */
    int producer;     /* node, -1: input or target, or of a part that another rank has */
} tri_value_spec;

/* Tensor parallelism: layers of the model are cut into `parts`, a power of two, which fixes the arithmetic; `ranks`, a
 * power of two that divides them, share the parts out, each an equal run of them in order. Zeros are ones. All
 * parameters of the model are known to each rank, in the same order, its own are in its store; those that are not cut
 * (piece.parts 0) are in all stores, with the same values and gradients by construction. */
typedef struct tri_model_split {
    int parts, ranks, rank;
    bool sequence; /* between the layers that are cut, each rank has some tokens of each sample alone: norms, dropout
                      and sums of theirs. Gradients of parameters there are sums in `parts` parts of the tokens */
} tri_model_split;
#define TRI_SPLIT_MAX_PARTS 1024

struct tri_model {
    tri_arena arena;
    char *name;
    char *scope;
    tri_vector nodes;   /* tri_node */
    tri_vector values;  /* tri_value_spec */
    tri_vector params;  /* tri_param_spec */
    tri_vector ties;    /* int: numbers in params */
    tri_map counts;     /* scope and layer kind -> how many were named so far; "=" and a parameter's name -> taken */
    tri_init conv_init; /* of convolutions' weights from here on; FAN_IN at first */
    bool sync_norm;     /* of batch norms from here on: statistics of the whole batch */
    float deviation;    /* of normal weights from here on; 0 at first: the usual of each layer */
    tri_model_split split;
    bool elsewhere;                        /* nodes made now are of another rank: parameters and shapes alone */
    int part, part_count;                  /* what is made now is this part of part_count; 0, 0: whole */
    uint64_t attention;                    /* number of the attention with dropout that was made last */
    int block, block_count;                /* the block that nodes belong to, 0: none; blocks so far */
    tri_value input, target, logits, loss; /* -1: none; logits: what the loss judges */
    tri_shape unordered;                   /* image that is flattened in no stated order; ndim 0: there is none */
    tri_status status;
    char message[1024];
};

/* The order in which an image [H, W, C] is flattened; PyTorch's is C H W. Other samples are flattened as they are. */
typedef enum tri_flatten_order { TRI_FLATTEN_UNSTATED, TRI_FLATTEN_HWC, TRI_FLATTEN_CHW } tri_flatten_order;
tri_value tri_flatten_in_order(tri_model *model, tri_value x, tri_flatten_order order);

/* The most channels of a batch norm over the whole batch, 0: there is none. */
int64_t tri_model_sync_channels(const tri_model *model);

/* TRI_EINVAL unless the model has input, target and loss and each value is used; the sticky failure first. */
tri_status tri_model_check(const tri_model *model);

/* Ready models and the `layers:` list. `config` is the YAML node of `model:` (may hold name, layers, and the fields of
 * that model, such as hidden: [512, 256]); sample and classes come from the data set (classes 0: a real target, -n: n
 * real targets). Unknown names and fields are
 * TRI_ECONFIG with the nearest name. */
tri_status tri_model_build(const tri_yaml *config, tri_shape sample, int64_t classes, tri_model **out);
/* The same model cut into parts, or this rank's share of it. Models that cannot be cut so are refused with the
 * arithmetic (TRI_ECONFIG). */
tri_status tri_model_build_split(const tri_yaml *config, tri_model_split split, tri_shape sample, int64_t classes,
                                 tri_model **out);
/* Whether `config` is that of a model with batch norms, as far as its text says. */
bool tri_model_has_batch_norms(const tri_yaml *config);
/* One line a model, for --help. */
tri_status tri_models_help(tri_string *out);

#endif
