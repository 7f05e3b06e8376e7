/* SPDX-License-Identifier: Apache-2.0
 *
 * infer_parts.c: shapes of the ops of models in parts.
 */
#include "kernel/infer.h"

static tri_status infer_ranks(tri_op_desc *desc)
{
    const tri_op_attr *attr = &desc->attr;
    if (attr->ranks < 0 || attr->rank < 0 || attr->rank >= (attr->ranks > 1 ? attr->ranks : 1) ||
        (attr->ranks & (attr->ranks - 1)) != 0) {
        return tri_fail(TRI_EINVAL, "%s: want a power of two of ranks, and one of them, got rank %d of %d",
                        tri_op_name(desc->op), attr->rank, attr->ranks);
    }
    return TRI_OK;
}

/* x[B,T,C]; the ranks divide `tokens`. */
static tri_status infer_tokens(tri_op_desc *desc)
{
    const int64_t ranks = desc->attr.ranks > 1 ? desc->attr.ranks : 1;
    TRI_TRY(infer_ranks(desc));
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    desc->output = desc->input[0];
    if (desc->op == TRI_OP_GATHER_TOKENS) {
        desc->output.dim[1] *= ranks;
        return TRI_OK;
    }
    if (desc->input[0].dim[1] % ranks != 0) {
        return tri_fail(TRI_EINVAL, "spread_tokens: want tokens that the %lld ranks divide, got %lld", (long long)ranks,
                        (long long)desc->input[0].dim[1]);
    }
    desc->output.dim[1] /= ranks;
    return TRI_OK;
}

tri_status tri_infer_token_parts(tri_op_desc *desc)
{
    const int parts = desc->attr.parts;
    if (parts == 0) {
        return TRI_OK;
    }
    TRI_TRY(infer_ranks(desc));
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    if (parts < 0 || (parts & (parts - 1)) != 0 || desc->input[0].dim[1] % parts != 0) {
        return tri_fail(TRI_EINVAL,
                        "%s: want tokens in a power of two of parts that divides them, got %lld in %d parts",
                        tri_op_name(desc->op), (long long)desc->input[0].dim[1], parts);
    }
    return TRI_OK;
}

static tri_status infer_states(tri_op_desc *desc, int i)
{
    TRI_TRY(tri_infer_input(desc, i, 2, TRI_MAX_DIMS, TRI_F32));
    char text[96];
    if (tri_shape_last(&desc->input[i]) != TRI_VOCAB_STATE) {
        return tri_fail(TRI_EINVAL, "%s: input %d: want rows of %d elements, got %s", tri_op_name(desc->op), i,
                        TRI_VOCAB_STATE, tri_shape_print(desc->input[i], text));
    }
    return TRI_OK;
}

static tri_status infer_join(tri_op_desc *desc)
{
    char text[96], other[96];
    TRI_TRY(infer_states(desc, 0));
    TRI_TRY(infer_states(desc, 1));
    if (!tri_shape_equal(desc->input[0], desc->input[1])) {
        return tri_fail(TRI_EINVAL, "vocab_join: input 1: want %s, got %s", tri_shape_print(desc->input[0], text),
                        tri_shape_print(desc->input[1], other));
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

static tri_status infer_sums(tri_op_desc *desc)
{
    char text[96], other[96];
    TRI_TRY(infer_ranks(desc));
    TRI_TRY(infer_states(desc, 0));
    TRI_TRY(tri_infer_input(desc, 1, 1, TRI_MAX_DIMS - 1, TRI_I32));
    tri_shape want = desc->input[0];
    want.ndim--;
    if (!tri_shape_equal(want, desc->input[1])) {
        return tri_fail(TRI_EINVAL, "vocab_sums: targets: want %s, got %s", tri_shape_print(want, text),
                        tri_shape_print(desc->input[1], other));
    }
    desc->output = tri_shape_make(1, (int64_t[]){TRI_LOSS_COLUMNS});
    return TRI_OK;
}

tri_status tri_infer_parts(tri_op_desc *desc)
{
    if (desc->op == TRI_OP_VOCAB_JOIN) {
        return infer_join(desc);
    }
    if (desc->op == TRI_OP_VOCAB_SUMS) {
        return infer_sums(desc);
    }
    if (desc->op == TRI_OP_GATHER_TOKENS || desc->op == TRI_OP_SPREAD_TOKENS) {
        return infer_tokens(desc);
    }
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    desc->output = desc->input[0];
    if (desc->op == TRI_OP_BIAS) {
        TRI_TRY(tri_infer_token_parts(desc));
        return tri_infer_param(desc, tri_shape_make(1, (int64_t[]){tri_shape_last(&desc->input[0])}));
    }
    return infer_ranks(desc);
}
