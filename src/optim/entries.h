/* SPDX-License-Identifier: Apache-2.0
 *
 * entries.h: finds the entries of the store that a slice meets.
 */
#ifndef TRI_OPTIM_ENTRIES_H
#define TRI_OPTIM_ENTRIES_H

#include "nn/params.h"

/* The first entry that ends after element `first`; entry_count when none does. */
static inline int optim_entry_after(const tri_params *params, int64_t first)
{
    int low = 0, high = params->entry_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (params->entries[middle].first + params->entries[middle].count > first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

#endif
