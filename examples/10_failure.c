/* SPDX-License-Identifier: Apache-2.0
 *
 * 10_failure.c: when one rank gives up, all others learn why, at once. Run on 3 ranks: every rank prints the same
 * cause.
 */
#include "example.h"

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    int rank = tri_group_rank(world);
    if (rank == tri_group_count(world) - 1 && rank > 0) {
        tri_comm_abort(comm, TRI_EIO, "the disk of the last rank is full");
        tri_comm_leave(comm);
        return 0;
    }
    float value = 1;
    tri_status status = tri_all_reduce(world, &value, &value, 1, TRI_F32, TRI_REDUCE_SUM, NULL);
    printf("rank %d: %s: %s\n", rank, tri_status_name(status),
           status == TRI_OK ? "alone, nobody failed" : tri_last_error());
    tri_comm_leave(comm);
    return 0;
}
