/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab_part.c: some of the words of a vocabulary: what vocab_loss does, but the states of the rows go out, and the
 * logarithms of the sums over all words come back.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/vocab.h"

static int64_t part_rows(const tri_kernel *kernel, const tri_op_call *call)
{
    return tri_shape_count(kernel->desc.input[1]) * call->shards;
}

static void part_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_vocab_state *states = tri_vocab_up(kernel, call);
    tri_vocab_state *out = call->output;
    for (int64_t r = 0; r < part_rows(kernel, call); r++) {
        const bool counts = tri_vocab_row_counts(kernel, call, r, kernel->desc.attr.words);
        out[r] = counts ? states[r] : (tri_vocab_state){0};
    }
}

static void part_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_vocab_state *down = call->doutput;
    float *log_sums = call->saved;
    for (int64_t r = 0; r < part_rows(kernel, call); r++) {
        log_sums[r] = down[r].top;
    }
    tri_vocab_down(kernel, call);
}

const tri_kernel_ops tri_cpu_vocab_part = {
    .op = TRI_OP_VOCAB_PART,
    .name = "tiles",
    .can = tri_vocab_can,
    .half = true,
    .plan = tri_vocab_plan,
    .forward = part_forward,
    .backward = part_backward,
    .backward_input = true,
};
