/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h: index arithmetic of the canonical sum: T(a,b) = T(a,m) + T(m,b), m the middle, over V leaves, V a power of
 * two.
 *
 * Pure functions, no I/O. A worker that owns the leaves [first, first + count) holds a handful of whole subtrees, its
 * *parts*; whoever has all parts of all workers can finish the tree. docs/bits.md.
 */
#ifndef TRI_TENSOR_TREE_H
#define TRI_TENSOR_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* One whole subtree: leaves [first, first + count), count a power of two, first a multiple of it. */
typedef struct tri_tree_part {
    int64_t first, count;
} tri_tree_part;

#define TRI_TREE_MAX_PARTS 64

/* Who has which leaves: a group that is the ranks first, first + 1, ... of `ranks` that share them out. */
typedef struct tri_tree_place {
    int64_t leaves;
    int first, ranks;
} tri_tree_place;

/* The leaves of rank `rank` of `world`: [rank V / world, (rank + 1) V / world). */
int64_t tri_tree_first(int64_t leaves, int rank, int world);
int64_t tri_tree_count(int64_t leaves, int rank, int world);
/* Cuts [first, first + count) into the fewest whole subtrees, in order; returns how many (<= 2 log2 leaves). */
int tri_tree_parts(int64_t leaves, int64_t first, int64_t count, tri_tree_part parts[TRI_TREE_MAX_PARTS]);

/* The order of additions that turns a row of parts (in leaf order, covering one whole subtree or all leaves) into their
 * root: step i does slot[into] = slot[into] + slot[from]. Returns the number of steps (part_count - 1); root in slot 0.
 */
typedef struct tri_tree_step {
    int into, from;
} tri_tree_step;
int tri_tree_plan(const tri_tree_part *parts, int part_count, tri_tree_step *steps);

/* The same for parts that leave gaps between them: what is not there is left out of its sum (absent + x = x). */
int tri_tree_plan_some(const tri_tree_part *parts, int part_count, tri_tree_step *steps);

/* The same for `count` single leaves that need not be a power of two (plain collectives over ranks): T(0, count) with
 * the middle m = first + the largest power of two below count. */
int tri_tree_plan_leaves(int count, tri_tree_step *steps);

#endif
