/* SPDX-License-Identifier: Apache-2.0
 *
 * join.c: opening a comm where processes meet: by a cluster, or by the environment this process was started in.
 *
 * The one place of comm/ that asks for the environment (cluster/ reads it): it is what tri_comm_join is for.
 */
#include <stdio.h>

#include "comm/engine.h"

static void free_texts(char **texts, int count)
{
    for (int r = 0; texts && r < count; r++)
        tri_free(texts[r]);
    tri_free(texts);
}

/* Everybody's address by the cluster's store. One rank needs no store. */
static tri_status connect_cluster(tri_cluster *cluster, tri_net *net, int64_t deadline_ns)
{
    if (cluster->world == 1) {
        const char *own = tri_net_address(net);
        return tri_net_connect(net, &own, deadline_ns);
    }
    char **addresses = tri_alloc_zero((size_t)cluster->world, sizeof(*addresses));
    if (!addresses)
        return TRI_ENOMEM;
    tri_status status = tri_cluster_exchange(cluster, "comm.address", tri_net_address(net), addresses, deadline_ns);
    if (status == TRI_OK)
        status = tri_net_connect(net, (const char *const *)addresses, deadline_ns);
    free_texts(addresses, cluster->world);
    return status;
}

/* A rank that has not got its engine says why to all. */
static tri_status open_engine(tri_comm *comm, const tri_comm_config *config, const char *started_by)
{
    char message[TRI_ERROR_NBYTES];
    tri_status status = tri_engine_open(comm, config, started_by);
    if (status == TRI_OK)
        return TRI_OK;
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_comm_abort(comm, status, message);
    tri_comm_leave(comm);
    return tri_fail_copy(status, message);
}

tri_status tri_comm_open(tri_cluster *cluster, const tri_comm_config *config, const tri_net_config *net_config,
                         int64_t deadline_ns, tri_comm **out)
{
    tri_net *net = NULL;
    TRI_TRY(tri_net_open(net_config, cluster->rank, cluster->world, cluster->token, NULL, &net));
    tri_status status = connect_cluster(cluster, net, deadline_ns);
    if (status != TRI_OK) {
        tri_net_close(net);
        return status;
    }
    TRI_TRY(tri_comm_create(net, cluster->local_rank, cluster->local_world, config, net_config, out));
    return open_engine(*out, config, cluster->started_by);
}

tri_status tri_comm_join_as(const tri_comm_config *config, const tri_net_config *net_config, double timeout_s,
                            tri_comm **out)
{
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(timeout_s * 1000));
    tri_cluster *cluster = tri_alloc_zero(1, sizeof(*cluster));
    if (!cluster)
        return TRI_ENOMEM;
    tri_status status = tri_cluster_join(NULL, NULL, deadline_ns, cluster);
    if (status != TRI_OK) {
        tri_free(cluster);
        return status;
    }
    status = tri_comm_open(cluster, config, net_config, deadline_ns, out);
    if (status != TRI_OK) {
        tri_cluster_leave(cluster);
        tri_free(cluster);
        return status;
    }
    (*out)->cluster = cluster;
    return TRI_OK;
}

tri_status tri_comm_join(double timeout_s, tri_comm **out)
{
    if (!(timeout_s > 0 && timeout_s <= 1e6))
        return tri_fail(TRI_EINVAL, "join: want a time limit above 0 and at most 1e6 seconds, got %g", timeout_s);
    tri_comm_config config;
    tri_net_config net_config;
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net_config);
    return tri_comm_join_as(&config, &net_config, timeout_s, out);
}
