/* SPDX-License-Identifier: Apache-2.0
 *
 * role.h: what a process of a job with parameter servers is: by its rank, the last ones are servers.
 */
#ifndef TRI_PS_ROLE_H
#define TRI_PS_ROLE_H

#include <trireme/ps.h>

#include "cluster/cluster.h"
#include "ps/client/client.h"

/* Workers of the job: ranks 0 to this - 1. */
static inline int tri_ps_workers(const tri_cluster *cluster)
{
    return cluster->world - cluster->servers;
}
static inline bool tri_ps_is_server(const tri_cluster *cluster)
{
    return cluster->rank >= tri_ps_workers(cluster);
}
/* Serves, as the server that this rank is, until all workers have said goodbye or a signal asks to stop. trains: its
 * workers train, and can give it values of a checkpoint when it was lost without a backup. */
tri_status tri_ps_serve(const tri_cluster *cluster, const tri_net_config *net, const tri_ps_config *ps, int threads,
                        bool trains, const tri_kv_merge_row *merges);
/* Reaches all servers, as the worker that this rank is; the cluster and both configurations outlive the client. */
tri_status tri_ps_join(const tri_cluster *cluster, const tri_net_config *net, const tri_ps_config *ps,
                       tri_ps_client **out);

#endif
