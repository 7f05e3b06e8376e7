/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.h: the instruction set of the kernels, own and oneDNN's: the best of the processor, or a lower one, so that
 * unlike processors give the same bits.
 */
#ifndef TRI_KERNEL_ISA_H
#define TRI_KERNEL_ISA_H

#include <stdbool.h>

#include "base/status.h"

/* Each has all before it. generic: what every processor of the architecture has. */
typedef enum tri_isa { TRI_ISA_GENERIC, TRI_ISA_AVX2, TRI_ISA_AVX512, TRI_ISA_AVX512_BF16, TRI_ISA_AMX } tri_isa;

/* "avx2". */
const char *tri_isa_name(tri_isa isa);
/* False: there is none of this name. */
bool tri_isa_find(const char *name, tri_isa *out);
/* The best of this processor. */
tri_isa tri_isa_best(void);
/* The one that kernels are chosen by: the best, or what was set. */
tri_isa tri_isa_now(void);
/* Sets it for the whole process, before the first kernel is planned. TRI_EUNSUPPORTED: the processor has less, or
 * oneDNN has computed with another one. */
tri_status tri_isa_set(tri_isa isa);

#endif
