/* SPDX-License-Identifier: Apache-2.0
 *
 * 05_send_receive.c: a number goes round a ring of ranks; each adds one.
 */
#include "example.h"

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    int rank = tri_group_rank(world), ranks = tri_group_count(world);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;

    int64_t token = 0;
    if (ranks > 1) {
        if (rank == 0) {
            check(tri_send(world, &token, 1, TRI_I64, next, NULL));
            check(tri_receive(world, &token, 1, TRI_I64, previous, NULL));
        } else {
            check(tri_receive(world, &token, 1, TRI_I64, previous, NULL));
            token++;
            check(tri_send(world, &token, 1, TRI_I64, next, NULL));
        }
    }
    if (rank == 0)
        printf("the token came back as %lld\n", (long long)token);
    tri_comm_leave(comm);
    return 0;
}
