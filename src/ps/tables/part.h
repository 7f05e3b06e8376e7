/* SPDX-License-Identifier: Apache-2.0
 *
 * part.h: what can be a part of a sum.
 */
#ifndef TRI_PS_PART_H
#define TRI_PS_PART_H

#include <stdbool.h>

#include "tensor/tree.h"

/* A whole subtree of `leaves` leaves, a power of two? Any numbers may be asked for. */
static inline bool ps_is_part(int64_t leaves, tri_tree_part part)
{
    return part.count >= 1 && part.count <= leaves && (part.count & (part.count - 1)) == 0 && part.first >= 0 &&
           part.first % part.count == 0 && part.first <= leaves - part.count;
}

#endif
