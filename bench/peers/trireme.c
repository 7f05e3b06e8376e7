/* SPDX-License-Identifier: Apache-2.0
 *
 * trireme.c: Trireme's operations, measured as core.h does: started by bench/tcp, whose ranks are hosts that meet
 * beside the network. (`trireme bench` has only the network itself to meet by, and of a far one the ranks come out one
 * after the other.)
 */
#define _GNU_SOURCE
#include "core.h"

#include <trireme/comm.h>

static tri_group *world;

static void check(tri_status status, const char *what)
{
    if (status != TRI_OK)
        core_die(what, tri_last_error());
}

static void call(core_case *c, float *in, float *out)
{
    int64_t count = (int64_t)c->count, part = (int64_t)c->part;
    tri_status status;
    switch (c->op) {
    case CORE_ALL_REDUCE:
        status = tri_all_reduce(world, in, out, count, TRI_F32, TRI_REDUCE_SUM, NULL);
        break;
    case CORE_REDUCE:
        status = tri_reduce(world, in, out, count, TRI_F32, TRI_REDUCE_SUM, 0, NULL);
        break;
    case CORE_BROADCAST:
        status = tri_broadcast(world, out, count, TRI_F32, 0, NULL);
        break;
    case CORE_ALL_GATHER:
        status = tri_all_gather(world, in, out, part, TRI_F32, NULL);
        break;
    case CORE_REDUCE_SCATTER:
        status = tri_reduce_scatter(world, in, out, part, TRI_F32, TRI_REDUCE_SUM, NULL);
        break;
    case CORE_ALL_TO_ALL:
        status = tri_all_to_all(world, in, out, part, TRI_F32, NULL);
        break;
    case CORE_GATHER:
        status = tri_gather(world, in, out, part, TRI_F32, 0, NULL);
        break;
    case CORE_SCATTER:
        status = tri_scatter(world, in, out, part, TRI_F32, 0, NULL);
        break;
    default:
        status = tri_barrier(world, NULL);
    }
    check(status, "an operation");
}

static void fence(void)
{
    check(tri_barrier(world, NULL), "tri_barrier");
}

static float *memory(size_t nbytes, int which)
{
    void *out = NULL;
    (void)which;
    check(tri_group_alloc(world, nbytes, &out), "tri_group_alloc");
    return (float *)out;
}

static void release(float *block)
{
    tri_group_free(world, block);
}

int main(int argc, char **argv)
{
    tri_comm *comm;
    core_begin();
    check(tri_comm_join(60, &comm), "tri_comm_join");
    world = tri_comm_world(comm);
    core_open(tri_group_rank(world), tri_group_count(world));
    static const core_peer peer = {call, fence, memory, release};
    int code = core_main(argc, argv, &peer);
    tri_comm_leave(comm);
    return code;
}
