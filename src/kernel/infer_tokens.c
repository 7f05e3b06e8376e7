/* SPDX-License-Identifier: Apache-2.0
 *
 * infer_tokens.c: shapes of the ops of transformers: x[B,T,C], heads side by side in a row: queries, keys, values.
 */
#include "kernel/infer.h"

tri_heads tri_heads_make(const tri_op_desc *desc)
{
    const tri_shape *x = &desc->input[0];
    tri_heads h = {.queries = desc->attr.heads,
                   .keys = desc->attr.kv_heads == 0 ? desc->attr.heads : desc->attr.kv_heads,
                   .samples = x->dim[0],
                   .length = x->dim[1],
                   .stride = x->dim[2]};
    h.group = h.queries / h.keys;
    h.width = h.stride / (h.queries + 2 * h.keys);
    return h;
}

static tri_status infer_heads(tri_op_desc *desc)
{
    const tri_op_attr *attr = &desc->attr;
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    const int64_t queries = attr->heads, keys = attr->kv_heads == 0 ? queries : attr->kv_heads;
    if (queries < 1 || keys < 1 || queries % keys != 0) {
        return tri_fail(TRI_EINVAL,
                        "%s: want heads that are a multiple of the heads of keys and values, got %lld of %lld",
                        tri_op_name(desc->op), (long long)queries, (long long)keys);
    }
    const int64_t heads = queries + 2 * keys, last = desc->input[0].dim[2];
    if (last % heads != 0) {
        return tri_fail(TRI_EINVAL,
                        "%s: want rows of %lld heads (queries, keys, values) of one width, got %lld elements",
                        tri_op_name(desc->op), (long long)heads, (long long)last);
    }
    desc->output = desc->input[0];
    if (desc->op == TRI_OP_ATTENTION && !(attr->rate >= 0 && attr->rate < 1)) {
        return tri_fail(TRI_EINVAL, "attention: want a dropout of 0 to below 1, got %g", (double)attr->rate);
    }
    if (desc->op == TRI_OP_ATTENTION) {
        desc->output.dim[2] = last / heads * queries;
        return TRI_OK;
    }
    if (last / heads % 2 != 0 || !(attr->theta > 0)) {
        return tri_fail(TRI_EINVAL, "rope: want heads of even width and a base above 0, got %lld and %g",
                        (long long)(last / heads), (double)attr->theta);
    }
    if (attr->rope_factor != 0 && !(attr->rope_factor >= 1 && attr->rope_high > attr->rope_low && attr->rope_low > 0 &&
                                    attr->rope_context >= 1)) {
        return tri_fail(
            TRI_EINVAL,
            "rope: want a factor of at least 1, 0 < low < high and a context of at least 1, got %g, %g, %g, %lld",
            (double)attr->rope_factor, (double)attr->rope_low, (double)attr->rope_high, (long long)attr->rope_context);
    }
    return TRI_OK;
}

static tri_status infer_swiglu(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    const int64_t last = tri_shape_last(&desc->input[0]);
    if (last % 2 != 0) {
        return tri_fail(TRI_EINVAL, "swiglu: want rows of two halves (gate, up), got %lld elements", (long long)last);
    }
    desc->output = desc->input[0];
    desc->output.dim[desc->output.ndim - 1] = last / 2;
    return TRI_OK;
}

static tri_status infer_positions(tri_op_desc *desc, int64_t units)
{
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units (positions)", units));
    const int64_t here = desc->input[0].dim[1], ranks = desc->attr.ranks > 1 ? desc->attr.ranks : 1;
    const int64_t needed = tri_int64_max(here * ranks, desc->attr.first + here);
    if (desc->attr.first < 0 || needed > units) {
        return tri_fail(TRI_EINVAL, "positions: want samples of at most %lld tokens, got %lld", (long long)units,
                        (long long)needed);
    }
    desc->output = desc->input[0];
    return tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, desc->input[0].dim[2]}));
}

static tri_status infer_vocab_loss(tri_op_desc *desc, int64_t units)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_input(desc, 1, 1, TRI_MAX_DIMS - 1, TRI_I32));
    TRI_TRY(tri_infer_units(desc, "units (words)", units));
    tri_shape want = desc->input[0];
    want.ndim--;
    char text[96], other[96];
    if (!tri_shape_equal(want, desc->input[1])) {
        return tri_fail(TRI_EINVAL, "%s: targets: want %s, got %s", tri_op_name(desc->op), tri_shape_print(want, text),
                        tri_shape_print(desc->input[1], other));
    }
    if (!(desc->attr.smoothing >= 0 && desc->attr.smoothing <= 1)) {
        return tri_fail(TRI_EINVAL, "%s: want smoothing from 0 to 1, got %g", tri_op_name(desc->op),
                        (double)desc->attr.smoothing);
    }
    if (desc->op == TRI_OP_VOCAB_PART) {
        if (desc->attr.first < 0 || units > desc->attr.words - desc->attr.first) {
            return tri_fail(TRI_EINVAL, "vocab_part: want %lld words from number %lld on to be within %lld",
                            (long long)units, (long long)desc->attr.first, (long long)desc->attr.words);
        }
        desc->output = desc->input[1];
        desc->output.dim[desc->output.ndim++] = TRI_VOCAB_STATE;
    } else {
        desc->output = tri_shape_make(1, (int64_t[]){TRI_LOSS_COLUMNS});
    }
    return tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, tri_shape_last(&desc->input[0])}));
}

tri_status tri_infer_tokens(tri_op_desc *desc, int64_t units)
{
    switch (desc->op) {
    case TRI_OP_SWIGLU:
        return infer_swiglu(desc);
    case TRI_OP_POSITIONS:
        return infer_positions(desc, units);
    case TRI_OP_VOCAB_LOSS:
    case TRI_OP_VOCAB_PART:
        return infer_vocab_loss(desc, units);
    default:
        return infer_heads(desc);
    }
}
