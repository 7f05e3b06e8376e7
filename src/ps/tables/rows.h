/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: rows by key, brought in order and added up. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_ROWS_H
#define TRI_PS_ROWS_H

#include <stdint.h>

#include "base/status.h"

/* A row somewhere: what else than the key is in it is the caller's. */
typedef struct ps_pair {
    uint64_t key;
    uint32_t part, at;
} ps_pair;

/* In order of keys; equal ones keep their order. spare: as long. */
void ps_pairs_sort(ps_pair *pairs, ps_pair *spare, int64_t count);

/* Rows of equal keys become one: their sum in the order in which they stand. The keys are in ascending order then.
 * to_keys and to_rows have room for all of them; *to_count is how many there are. count < 2^32. TRI_ENOMEM. */
tri_status ps_rows_merge(const uint64_t *keys, const float *rows, int64_t count, int dim, uint64_t *to_keys,
                         float *to_rows, int64_t *to_count);

#endif
