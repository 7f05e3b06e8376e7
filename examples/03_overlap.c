/* SPDX-License-Identifier: Apache-2.0
 *
 * 03_overlap.c: operations as handles: they run while the program computes. Training sends its gradients like this.
 */
#include "example.h"

enum { BUCKETS = 8, COUNT = 1 << 16 };

static float buckets[BUCKETS][COUNT];

/* Stands for the backward pass of one layer. */
static void compute(float *bucket, int rank, int layer)
{
    for (int i = 0; i < COUNT; i++)
        bucket[i] = (float)(rank + 1) * (float)(layer + 1);
}

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    int rank = tri_group_rank(world), ranks = tri_group_count(world);

    tri_work *works[BUCKETS];
    for (int layer = BUCKETS - 1; layer >= 0; layer--) {
        compute(buckets[layer], rank, layer);
        tri_group_name_next(world, "gradient"); /* what messages call it, should it be late */
        check(tri_all_reduce(world, buckets[layer], buckets[layer], COUNT, TRI_F32, TRI_REDUCE_SUM, &works[layer]));
    }
    for (int layer = 0; layer < BUCKETS; layer++) {
        check(tri_work_wait(works[layer])); /* frees the handle */
        float expected = (float)(ranks * (ranks + 1) / 2 * (layer + 1));
        if (buckets[layer][COUNT - 1] != expected)
            return fprintf(stderr, "layer %d: want %g, found %g\n", layer, expected, buckets[layer][COUNT - 1]), 1;
    }
    if (rank == 0)
        printf("%d sums of %d numbers arrived\n", BUCKETS, COUNT);
    tri_comm_leave(comm);
    return 0;
}
