/* SPDX-License-Identifier: Apache-2.0
 *
 * 01_ranks.c: every process finds its place among the others. Run it alone, or on three ranks:
 *
 *     trireme launch -n 3 -- build/examples/01_ranks
 */
#include "example.h"

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    tri_group *world = tri_comm_world(comm);
    printf("rank %d of %d, number %d of %d on this machine\n", tri_group_rank(world), tri_group_count(world),
           tri_comm_local_rank(comm), tri_comm_local_count(comm));
    tri_comm_leave(comm);
    return 0;
}
