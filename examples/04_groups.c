/* SPDX-License-Identifier: Apache-2.0
 *
 * 04_groups.c: ranks in a grid: sums along rows and along columns, each group by itself.
 */
#include "example.h"

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    int rank = tri_group_rank(world);
    int row = rank / 2, column = rank % 2; /* two columns, as many rows as it takes */

    tri_group *row_group, *column_group;
    check(tri_group_split(world, row, column, &row_group));
    check(tri_group_split(world, column, row, &column_group));

    int32_t in_row = rank, in_column = rank;
    check(tri_all_reduce(row_group, &in_row, &in_row, 1, TRI_I32, TRI_REDUCE_SUM, NULL));
    check(tri_all_reduce(column_group, &in_column, &in_column, 1, TRI_I32, TRI_REDUCE_SUM, NULL));
    printf("rank %d: row %d sums to %d, column %d sums to %d\n", rank, row, in_row, column, in_column);

    tri_group_destroy(row_group);
    tri_group_destroy(column_group);
    tri_comm_leave(comm);
    return 0;
}
