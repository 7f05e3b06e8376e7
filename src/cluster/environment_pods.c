/* SPDX-License-Identifier: Apache-2.0
 *
 * environment_pods.c: starters that start hosts, not ranks: Kubeflow Trainer's pods, and lists of hosts. A host is one
 * rank.
 */
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cluster/environment.h"

#define HOST_FILE_PORT 29400 /* as torchrun's */

/* Kubeflow Trainer's policy `torch` speaks to torchrun: nodes, not ranks. A pod is one rank here. */
bool tri_environment_trainjob_is_here(tri_cluster_lookup lookup, void *arg)
{
    return tri_environment_has(lookup, arg, "PET_NODE_RANK") || tri_environment_has(lookup, arg, "PET_NNODES");
}

tri_status tri_environment_trainjob_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    const char *address = lookup("PET_MASTER_ADDR", arg), *each = lookup("PET_NPROC_PER_NODE", arg);
    int port;

    TRI_TRY(tri_environment_pair(lookup, arg, "PET_NODE_RANK", "PET_NNODES", &place->rank, &place->world));
    place->local_world = 1;
    if (each && strcmp(each, "1") != 0)
        return tri_fail(TRI_ECONFIG,
                        "PET_NPROC_PER_NODE: want 1 (numProcPerNode: a pod is one rank and has threads), got '%.40s'",
                        each);
    if (place->world == 1 || tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    if (!address || !*address)
        return tri_fail(TRI_ECONFIG, "PET_MASTER_ADDR: want the host of rank 0 (PET_NNODES is %d), got %s",
                        place->world, address ? "an empty text" : "nothing");
    TRI_TRY(tri_environment_int(lookup, arg, "PET_MASTER_PORT", 1, 65535, &port));
    place->host_from = "PET_MASTER_ADDR";
    return tri_environment_meet(place, address, port, port);
}

/* The list that mpirun would be given, read by each host for itself: nobody has to reach anybody by ssh. */
bool tri_environment_host_file_is_here(tri_cluster_lookup lookup, void *arg)
{
    return tri_environment_has(lookup, arg, "TRIREME_HOSTFILE");
}

tri_status tri_environment_host_file_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    const char *path = lookup("TRIREME_HOSTFILE", arg), *name = lookup("TRIREME_HOST", arg);
    char own[256] = "", first[256] = "", *text;
    int port = HOST_FILE_PORT;
    size_t nbytes;

    gethostname(own, sizeof own - 1);
    TRI_TRY_IN(tri_fs_read(path, 16u << 20, &text, &nbytes), "TRIREME_HOSTFILE");
    tri_status status = tri_environment_host_file(text, name ? name : own, &place->rank, &place->world, first);
    tri_free(text);
    TRI_TRY_IN(status, "TRIREME_HOSTFILE: %s", path);
    place->local_world = 1;
    if (place->world == 1 || tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    if (tri_environment_has(lookup, arg, "TRIREME_PORT"))
        TRI_TRY(tri_environment_int(lookup, arg, "TRIREME_PORT", 1, 65535, &port));
    place->host_from = "TRIREME_HOSTFILE";
    return tri_environment_meet(place, first, port, port);
}
