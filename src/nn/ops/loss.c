/* SPDX-License-Identifier: Apache-2.0
 *
 * loss.c: builds the node that ends a model.
 */
#include "base/status.h"
#include "nn/parts.h"

static tri_value loss_add(tri_model *model, tri_value x, tri_value target, const tri_build *build)
{
    if (model->status != TRI_OK)
        return -1;
    if (target < 0 || target != model->target)
        return tri_model_fail(model, tri_fail(TRI_EINVAL, "%s: want the model's target as second value, got value %d",
                                              tri_op_name(build->op), target));
    tri_value loss = tri_model_add(model, build);
    if (loss < 0)
        return -1;
    model->logits = x;
    model->loss = loss;
    return loss;
}

tri_value tri_cross_entropy(tri_model *model, tri_value logits, tri_value target, float smoothing)
{
    tri_build build = {
        .op = TRI_OP_CROSS_ENTROPY, .attr = {.smoothing = smoothing}, .input_count = 2, .input = {logits, target}};
    return loss_add(model, logits, target, &build);
}

/* Some of the words. */
static tri_value words_part(tri_model *model, const void *arg, tri_value x, int part)
{
    const tri_vocab_loss_options *options = arg;
    int parts = tri_model_parts(model);
    tri_piece_range range = tri_piece_of_group(options->words, 1, part, parts);
    tri_build build = {
        .op = TRI_OP_VOCAB_PART,
        .attr = {.smoothing = options->smoothing,
                 .forget = options->forget,
                 .units = range.count,
                 .first = range.first,
                 .words = options->words},
        .input_count = 2,
        .input = {x, model->target},
        .kind = "head",
        .name = options->name,
        .tied = options->tied,
        .param = {{"weight", model->deviation > 0 ? TRI_INIT_NORMAL : TRI_INIT_FAN_IN, true, false,
                   (tri_piece){parts, part, 0, 1, options->words, 0}}},
    };
    return tri_model_add(model, &build);
}

static tri_value vocab_loss_parts(tri_model *model, tri_value x, tri_value target, tri_vocab_loss_options options)
{
    tri_value states = tri_parts_add(model, x, &(tri_parts){words_part, &options, TRI_OP_VOCAB_JOIN});
    tri_build build = {
        .op = TRI_OP_VOCAB_SUMS,
        .attr = {.smoothing = options.smoothing,
                 .words = options.words,
                 .ranks = model->split.ranks,
                 .rank = model->split.rank},
        .input_count = 2,
        .input = {states, target},
    };
    return loss_add(model, x, target, &build);
}

tri_value tri_vocab_loss(tri_model *model, tri_value x, tri_value target, tri_vocab_loss_options options)
{
    if (tri_model_parts(model) > 1)
        return vocab_loss_parts(model, x, target, options);
    tri_build build = {
        .op = TRI_OP_VOCAB_LOSS,
        .attr = {.smoothing = options.smoothing, .forget = options.forget, .units = options.words},
        .input_count = 2,
        .input = {x, target},
        .kind = "head",
        .name = options.name,
        .tied = options.tied,
        .param = {{"weight", model->deviation > 0 ? TRI_INIT_NORMAL : TRI_INIT_FAN_IN, true, false, {0}}},
    };
    return loss_add(model, x, target, &build);
}

tri_value tri_mse(tri_model *model, tri_value x, tri_value target)
{
    tri_build build = {.op = TRI_OP_MSE, .input_count = 2, .input = {x, target}};
    return loss_add(model, x, target, &build);
}
