/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab.h: what vocab_loss and vocab_part share: the same tiles of words on both ways.
 *
 * Included by cpu/vocab*.c only.
 */
#ifndef TRI_KERNEL_CPU_VOCAB_H
#define TRI_KERNEL_CPU_VOCAB_H

#include "kernel/row.h"

bool tri_vocab_can(const tri_op_desc *desc);
tri_status tri_vocab_plan(const tri_op_desc *desc, tri_kernel *kernel);
/* The states of all rows that count, in scratch. */
const tri_vocab_state *tri_vocab_up(const tri_kernel *kernel, const tri_op_call *call);
/* Saved begins with the logarithm of each row's sum over all words. */
void tri_vocab_down(const tri_kernel *kernel, const tri_op_call *call);

#endif
