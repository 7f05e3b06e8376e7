/* SPDX-License-Identifier: Apache-2.0
 *
 * 06_canonical_sum.c: the idea behind the same bits. Eight shards hold numbers whose sum depends on the order of the
 * additions; spread over 1, 2, 3 or 8 ranks, the canonical sum gives the same bits. Compare the output for any -n up
 * to 8.
 */
#include <string.h>

#include "example.h"

enum { SHARDS = 8 };

static float shard_value(int shard)
{
    return 1.0f / (float)(3 * shard + 1) * (shard % 2 ? 1e4f : 1.0f);
}

/* T(a,b) = T(a,m) + T(m,b). */
static float tree_sum(int first, int count)
{
    return count == 1 ? shard_value(first) : tree_sum(first, count / 2) + tree_sum(first + count / 2, count / 2);
}

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    int rank = tri_group_rank(world), ranks = tri_group_count(world);

    /* Our shards, cut into whole subtrees: the largest aligned power of two first. */
    int first = rank * SHARDS / ranks, end = (rank + 1) * SHARDS / ranks, part_count = 0;
    float sums[SHARDS];
    float *parts[SHARDS];
    while (first < end) {
        int count = 1;
        while (first % (2 * count) == 0 && first + 2 * count <= end)
            count *= 2;
        sums[part_count] = tree_sum(first, count);
        parts[part_count] = &sums[part_count];
        part_count++;
        first += count;
    }
    check(tri_all_reduce_tree(world, SHARDS, parts, part_count, 1, NULL));

    uint32_t bits;
    memcpy(&bits, parts[0], sizeof(bits));
    if (rank == 0)
        printf("sum %.9g, bits %08x\n", parts[0][0], bits);
    tri_comm_leave(comm);
    return parts[0][0] == tree_sum(0, SHARDS) ? 0 : 1;
}
