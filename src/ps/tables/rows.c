/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: a radix sort of keys, byte by byte from the lowest; bytes that all keys share cost nothing.
 */
#include "ps/tables/rows.h"

#include <string.h>

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
