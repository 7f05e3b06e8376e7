/* SPDX-License-Identifier: Apache-2.0
 *
 * token_graph_impl.h: what a token graph is made of. Included by token_*.c only.
 */
#ifndef TRI_NN_TOKEN_GRAPH_IMPL_H
#define TRI_NN_TOKEN_GRAPH_IMPL_H

#include "kernel/matrix.h"
#include "kernel/places.h"
#include "nn/graph_impl.h"
#include "nn/token_graph.h"

#define TRI_TOKEN_ROWS 256 /* tokens of one walk, at most */

/* A parameter: packed, where products or an embedding read it, else plain. */
typedef struct token_param {
    char *name;
    tri_shape shape;
    tri_matrix *matrix;
    float *values;
} token_param;

typedef struct token_op {
    tri_op op;
    tri_kernel kernel; /* of ops over rows and of rope: planned; of attention: the desc alone */
    int input[2], output;
    int param[TRI_OP_MAX_PARAMS];
    int64_t kept_first, kept_count; /* attention: within what a sequence keeps */
} token_op;

typedef struct token_value {
    int root; /* whose buffer it has; the walk's tokens and what stands for dropout's output have another's */
    int64_t width;
    int buffer; /* -1: none */
} token_value;

struct tri_token_graph {
    tri_token_graph_config config;
    int64_t words;
    token_param *params;
    int param_count;
    token_op *ops;
    int op_count;
    token_value *values;
    int value_count;
    int last, head; /* value that the vocabulary is read from; parameter of the vocabulary */
    graph_buffer *buffers;
    int buffer_count;
    char *memory;
    void *saved, *scratch;
    float *kept; /* [sequences][kept_each] */
    int64_t kept_each;
    float *ends;   /* [sequences][width of last] */
    float *logits; /* [sequences][words] */
    tri_place_span *spans;
    int32_t *tokens; /* of a walk */
    int32_t ones[TRI_TOKEN_ROWS];
    int64_t zeros[TRI_TOKEN_ROWS];
};

#endif
