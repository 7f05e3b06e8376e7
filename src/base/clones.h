/* SPDX-License-Identifier: Apache-2.0
 *
 * clones.h: compiles a loop for several instruction sets, picked when the program is loaded.
 *
 * The same bits in each: elementwise loops without contraction (-ffp-contract=off). The mechanism (ifunc) and
 * sanitizers do not mix, and clang 14 has no target_clones: there a loop is compiled once.
 */
#ifndef TRI_BASE_CLONES_H
#define TRI_BASE_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define TRI_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRI_CLONES
#endif

#endif
