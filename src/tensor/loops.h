/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h: how the elementwise loops of this folder are compiled: once per instruction set, and without fear of
 * aliasing.
 *
 * Each clone gives the same bits: every element is rounded on its own, and nothing is contracted (-ffp-contract=off).
 */
#ifndef TRI_TENSOR_LOOPS_H
#define TRI_TENSOR_LOOPS_H

#include "base/clones.h"

/* out may be a or b, but never overlaps them otherwise: no element depends on another. */
#ifdef __clang__
#define TRI_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define TRI_APART _Pragma("GCC ivdep")
#endif

#endif
