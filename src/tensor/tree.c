/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c: index arithmetic of the canonical sum.
 *
 * Plans are written depth first, left before right: a step's two operands are complete when it comes, and the result
 * is in the slot of its leftmost part.
 */
#include "tensor/tree.h"

#include "base/status.h"

int64_t tri_tree_first(int64_t leaves, int rank, int world)
{
    return rank * leaves / world;
}

int64_t tri_tree_count(int64_t leaves, int rank, int world)
{
    return tri_tree_first(leaves, rank + 1, world) - tri_tree_first(leaves, rank, world);
}

int tri_tree_parts(int64_t leaves, int64_t first, int64_t count, tri_tree_part parts[TRI_TREE_MAX_PARTS])
{
    int part_count = 0;
    int64_t end = first + count;
    TRI_ASSERT(first >= 0 && count >= 0 && end <= leaves);
    while (first < end) {
        /* The largest subtree that begins here: as long as its place allows and no longer than what is left. */
        int64_t width = first == 0 ? leaves : first & -first;
        while (width > end - first)
            width /= 2;
        TRI_ASSERT(part_count < TRI_TREE_MAX_PARTS && width > 0);
        parts[part_count++] = (tri_tree_part){first, width};
        first += width;
    }
    return part_count;
}

/* The parts [low, high) cover exactly `count` leaves from parts[low].first on. */
static int plan_range(const tri_tree_part *parts, int low, int high, int64_t count, tri_tree_step *steps)
{
    if (high - low == 1)
        return 0;
    int64_t middle = parts[low].first + count / 2;
    int split = low + 1;
    while (split < high && parts[split].first < middle)
        split++;
    TRI_ASSERT(split < high && parts[split].first == middle);
    int made = plan_range(parts, low, split, count / 2, steps);
    made += plan_range(parts, split, high, count / 2, steps + made);
    steps[made] = (tri_tree_step){.into = low, .from = split};
    return made + 1;
}

int tri_tree_plan(const tri_tree_part *parts, int part_count, tri_tree_step *steps)
{
    if (part_count <= 1)
        return 0;
    int64_t count = parts[part_count - 1].first + parts[part_count - 1].count - parts[0].first;
    return plan_range(parts, 0, part_count, count, steps);
}

static int plan_some(const tri_tree_part *parts, int low, int high, tri_tree_step *steps)
{
    if (high - low <= 1)
        return 0;
    /* The smallest subtree that has all of them is cut at the highest bit in which its ends differ. */
    uint64_t last = (uint64_t)parts[high - 1].first, differ = (uint64_t)parts[low].first ^ last;
    TRI_ASSERT(differ != 0);
    int64_t middle = (int64_t)(last >> (63 - __builtin_clzll(differ)) << (63 - __builtin_clzll(differ)));
    int split = low + 1;
    while (parts[split].first < middle)
        split++;
    int made = plan_some(parts, low, split, steps);
    made += plan_some(parts, split, high, steps + made);
    steps[made] = (tri_tree_step){.into = low, .from = split};
    return made + 1;
}

int tri_tree_plan_some(const tri_tree_part *parts, int part_count, tri_tree_step *steps)
{
    return plan_some(parts, 0, part_count, steps);
}

static int plan_leaves(int first, int count, tri_tree_step *steps)
{
    if (count <= 1)
        return 0;
    int left = 1;
    while (left * 2 < count)
        left *= 2;
    int made = plan_leaves(first, left, steps);
    made += plan_leaves(first + left, count - left, steps + made);
    steps[made] = (tri_tree_step){.into = first, .from = first + left};
    return made + 1;
}

int tri_tree_plan_leaves(int count, tri_tree_step *steps)
{
    return plan_leaves(0, count, steps);
}
