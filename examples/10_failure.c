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
    int rank = tri_group_rank(world), last = tri_group_count(world) - 1;
    float value = 1;
    if (rank == last && rank > 0) {
        for (int r = 0; r < last; r++) /* all have joined: else some would learn the cause there */
            check(tri_receive(world, &value, 1, TRI_F32, r, NULL));
        tri_comm_abort(comm, TRI_EIO, "the disk of the last rank is full");
        tri_comm_leave(comm);
        return 0;
    }
    tri_status status = last > 0 ? tri_send(world, &value, 1, TRI_F32, last, NULL) : TRI_OK;
    if (status == TRI_OK)
        status = tri_all_reduce(world, &value, &value, 1, TRI_F32, TRI_REDUCE_SUM, NULL);
    printf("rank %d: %s: %s\n", rank, tri_status_name(status),
           status == TRI_OK ? "alone, nobody failed" : tri_last_error());
    tri_comm_leave(comm);
    return 0;
}
