/* SPDX-License-Identifier: Apache-2.0
 *
 * token_graph.h: a causal model compiled to be walked token by token: what its attention has seen stays.
 *
 * A graph of the model's nodes as in training, but for kernels of kind "tokens": a shard is one token, weights of
 * products are packed once, and attention, positions and rope know where in its sequence a token is. The loss is
 * left out: the vocabulary is read for the last token of each span. The logits of a token
 * depend on the tokens before it alone: not on threads, nor on what else is walked, nor on how the text is cut.
 */
#ifndef TRI_NN_TOKEN_GRAPH_H
#define TRI_NN_TOKEN_GRAPH_H

#include "nn/model.h"

typedef struct tri_token_graph tri_token_graph;

typedef struct tri_token_graph_config {
    const tri_device *device; /* in whose memory weights, and what sequences keep, are; NULL: the host's. Outlives it */
    tri_dtype dtype;          /* of the packed weights: f32 or bf16 */
    int threads;
    int sequences;  /* walked side by side, at most */
    int64_t places; /* tokens of a sequence, at most */
} tri_token_graph_config;

/* Allocates everything, weights zero. The model may be destroyed afterwards. TRI_EUNSUPPORTED names what is no op of a
 * causal transformer; TRI_EINVAL: more places than the model has positions. */
tri_status tri_token_graph_compile(const tri_model *model, const tri_token_graph_config *config, tri_token_graph **out);
void tri_token_graph_destroy(tri_token_graph *graph);

/* Elements [first, first + count) of a parameter, by its name. */
typedef struct tri_weights_source {
    tri_status (*read)(void *arg, const char *name, int64_t first, int64_t count, float *out);
    void *arg;
} tri_weights_source;
/* Reads and packs all weights; may be called again. */
tri_status tri_token_graph_load(tri_token_graph *graph, const tri_weights_source *source);

/* Size of the vocabulary. */
int64_t tri_token_graph_words(const tri_token_graph *graph);

/* Tokens that continue a sequence: place of the first, 0: the sequence starts again. */
typedef struct tri_token_span {
    int sequence;
    int64_t place;
    int64_t count; /* at least 1 */
    const int32_t *tokens;
} tri_token_span;
/* Walks them; each sequence at most once. (*logits)[i * words] are those after the last token of span i, the
 * graph's, in memory of the host, until the next run. TRI_EINVAL: a token outside of the vocabulary, a place outside of
 * what was planned. */
tri_status tri_token_graph_run(tri_token_graph *graph, const tri_token_span *spans, int count, const float **logits);

#endif
