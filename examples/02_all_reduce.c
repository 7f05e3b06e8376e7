/* SPDX-License-Identifier: Apache-2.0
 *
 * 02_all_reduce.c: a sum over all ranks, on all ranks; and the largest of something.
 */
#include "example.h"

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    int rank = tri_group_rank(world);

    float values[4];
    for (int i = 0; i < 4; i++)
        values[i] = (float)(rank + i);
    check(tri_all_reduce(world, values, values, 4, TRI_F32, TRI_REDUCE_SUM, NULL));

    int32_t largest = rank * 10;
    check(tri_all_reduce(world, &largest, &largest, 1, TRI_I32, TRI_REDUCE_MAX, NULL));

    if (rank == 0)
        printf("sums %g %g %g %g, largest %d\n", values[0], values[1], values[2], values[3], largest);
    tri_comm_leave(comm);
    return 0;
}
