/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: a radix sort of keys, byte by byte from the lowest; bytes that all keys share cost nothing.
 */
#include "ps/tables/rows.h"

#include <string.h>

#include "base/memory.h"

#define DIGITS 8
#define VALUES 256

void ps_pairs_sort(ps_pair *pairs, ps_pair *spare, int64_t count)
{
    int64_t counts[DIGITS][VALUES] = {{0}};
    ps_pair *from = pairs, *to = spare;
    for (int64_t i = 0; i < count; i++)
        for (int d = 0; d < DIGITS; d++)
            counts[d][pairs[i].key >> (8 * d) & 255]++;
    for (int d = 0; d < DIGITS && count > 1; d++) {
        int64_t next = 0;
        if (counts[d][pairs[0].key >> (8 * d) & 255] == count)
            continue;
        for (int v = 0; v < VALUES; v++) {
            int64_t here = counts[d][v];
            counts[d][v] = next;
            next += here;
        }
        for (int64_t i = 0; i < count; i++)
            to[counts[d][from[i].key >> (8 * d) & 255]++] = from[i];
        ps_pair *kept = from;
        from = to;
        to = kept;
    }
    if (from != pairs)
        memcpy(pairs, from, (size_t)count * sizeof(*pairs));
}

tri_status ps_rows_merge(const uint64_t *keys, const float *rows, int64_t count, int dim, uint64_t *to_keys,
                         float *to_rows, int64_t *to_count)
{
    TRI_ASSERT(count >= 0 && count <= UINT32_MAX);
    ps_pair *pairs = tri_alloc((size_t)(2 * count + 1) * sizeof(*pairs));
    if (!pairs)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < count; i++)
        pairs[i] = (ps_pair){.key = keys[i], .at = (uint32_t)i};
    ps_pairs_sort(pairs, pairs + count, count);
    int64_t made = 0;
    for (int64_t i = 0; i < count; i++) {
        const float *row = rows + (size_t)pairs[i].at * (size_t)dim;
        if (i > 0 && pairs[i].key == pairs[i - 1].key) {
            float *sum = to_rows + (size_t)(made - 1) * (size_t)dim;
            for (int e = 0; e < dim; e++)
                sum[e] += row[e];
            continue;
        }
        to_keys[made] = pairs[i].key;
        memcpy(to_rows + (size_t)made++ * (size_t)dim, row, (size_t)dim * sizeof(float));
    }
    tri_free(pairs);
    *to_count = made;
    return TRI_OK;
}
