/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: layers in parts (tri_model_split): each part is nodes of its own, whose values are the same whoever computes
 * them; what they give is added up by a balanced binary tree over all parts: nodes for those here, then over the ranks.
 * A model that is not cut has one part and none of this around it.
 *
 * Included by files of nn/ only.
 */
#ifndef TRI_NN_PARTS_H
#define TRI_NN_PARTS_H

#include "nn/build.h"

static inline int tri_model_parts(const tri_model *model)
{
    return model->split.parts > 1 ? model->split.parts : 1;
}

static inline int tri_model_ranks(const tri_model *model)
{
    return model->split.ranks > 1 ? model->split.ranks : 1;
}

/* Between the layers that are cut: attr.parts, ranks and rank of an op whose parameters' gradients are sums over
 * tokens. */
static inline void tri_tokens_attr(const tri_model *model, tri_op_attr *attr)
{
    if (!model->split.sequence)
        return;
    attr->parts = tri_model_parts(model) / tri_model_ranks(model);
    attr->ranks = tri_model_ranks(model);
    attr->rank = model->split.rank;
}

/* TRI_EINVAL unless parts and ranks are powers of two, the ranks divide the parts, and rank is one of them. */
tri_status tri_split_check(tri_model_split split);

/* What each part computes from x, joined. Every reader of x here is one of a tree too, so that its gradient is added up
 * like that. */
typedef struct tri_parts {
    tri_value (*add)(tri_model *model, const void *arg, tri_value x, int part);
    const void *arg;
    tri_op join; /* of two neighbours: TRI_OP_ADD or TRI_OP_VOCAB_JOIN */
} tri_parts;
/* Not yet joined with what other ranks have. */
tri_value tri_parts_add(tri_model *model, tri_value x, const tri_parts *parts);
/* The sum over all ranks; of the tokens here, where each has some. */
tri_value tri_parts_sum(tri_model *model, tri_value x);

/* Two linear layers with something between them that keeps the parts apart: the units of the first are cut (column
 * form), so are the inputs of the second (row form), whose bias is added once, to the sum. */
typedef struct tri_pair {
    tri_linear_options column, row; /* of the whole layers, with names */
    int groups, lead;               /* of the first one's units: tri_piece; 0: 1 */
    float row_deviation;            /* of the second one's weights; 0: as the model has it */
    tri_value (*between)(tri_model *model, const void *form, tri_value x, int parts); /* of one part; NULL: nothing */
    const void *form;
} tri_pair;
tri_value tri_pair_add(tri_model *model, tri_value x, const tri_pair *pair);

/* ops/: linear layers whose weight and bias are pieces; units are those of the piece. */
tri_value tri_linear_piece(tri_model *model, tri_value x, tri_linear_options options, tri_piece weight, tri_piece bias);

#endif
