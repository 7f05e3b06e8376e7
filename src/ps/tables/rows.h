/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: keys of rows, brought in order. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_ROWS_H
#define TRI_PS_ROWS_H

#include <stdint.h>

/* A row somewhere: what else than the key is in it is the caller's. */
typedef struct ps_pair {
    uint64_t key;
    uint32_t part, at;
} ps_pair;

/* In order of keys; equal ones keep their order. spare: as long. */
void ps_pairs_sort(ps_pair *pairs, ps_pair *spare, int64_t count);

#endif
