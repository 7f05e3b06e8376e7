/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_generic.c: the tiles of gemm.h in vectors of four, for any machine: 4 x 8, product and sum rounded apart.
 */
#include "kernel/cpu/gemm_generic.h"

#define GEMM_OPS         tri_gemm_generic
#define GEMM_NAME        "generic"
#define vec_fma(a, b, c) ((a) * (b) + (c))
#include "kernel/cpu/gemm.tmpl.h"
