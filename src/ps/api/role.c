/* SPDX-License-Identifier: Apache-2.0
 *
 * role.c: servers and workers of one job find each other by the job's store: whoever comes first waits.
 */
#include "ps/api/role.h"

#include <stdlib.h>
#include <string.h>

#include "net/host.h"
#include "ps/server/server.h"
#include "ps/views.h"

static tri_status announce(const tri_cluster *cluster, int number, const char *address, int64_t deadline_ns)
{
    char key[TRI_PS_ADDRESS_KEY_NBYTES];
    tri_ps_address_key(number, key);
    return tri_store_set(cluster->store, key, address, strlen(address), deadline_ns);
}

/* A server that was started again has nothing of what it held: with a backup it becomes one, else what it held comes
 * from a checkpoint, or the run is over. */
static tri_status come_back(const tri_ps_config *ps, int number, bool trains, tri_ps_server *server)
{
    if (ps->replicas < 2 && trains)
        return tri_ps_server_restore(server, ps->consistency == PS_BSP);
    if (ps->replicas < 2)
        return tri_fail(TRI_EPEER,
                        "server %d was started again, but the rows that it held are lost: begin again with the newest "
                        "tri_kv_save(); with ps.replicas 2 another server would have them",
                        number);
    return tri_ps_server_return(server);
}

static uint64_t own_host(const tri_net_config *net)
{
    char id[TRI_HOST_ID_NBYTES];
    if (net->host[0])
        return XXH3_64bits(net->host, strlen(net->host));
    tri_host_id(id);
    return strtoull(id, NULL, 16);
}

/* Where servers have backups these are on other hosts: hosts[servers]; else *known is NULL. */
static tri_status hosts_find(const tri_cluster *cluster, const tri_net_config *net, const tri_ps_config *ps,
                             uint64_t hosts[PS_MAX_SERVERS], const uint64_t **known)
{
    *known = NULL;
    if (ps->replicas < 2 || cluster->servers > PS_MAX_SERVERS)
        return TRI_OK;
    *known = hosts;
    return tri_ps_views_hosts(cluster->store, cluster->servers, tri_deadline_after_ms((int64_t)(net->timeout_s * 1e3)),
                              hosts);
}

static tri_status merges_add(tri_ps_server *server, const tri_kv_merge_row *merges)
{
    for (; merges && merges->name; merges++)
        TRI_TRY(tri_ps_server_merge_add(server, merges->name, merges->merge, merges->arg));
    return TRI_OK;
}

tri_status tri_ps_serve(const tri_cluster *cluster, const tri_net_config *net, const tri_ps_config *ps, int threads,
                        bool trains, const tri_kv_merge_row *merges)
{
    int number = cluster->rank - tri_ps_workers(cluster);
    int64_t starts;
    uint64_t hosts[PS_MAX_SERVERS];
    tri_ps_server_setup setup = {.net = net,
                                 .token = cluster->token,
                                 .number = number,
                                 .servers = cluster->servers,
                                 .workers = tri_ps_workers(cluster),
                                 .threads = threads,
                                 .trains = trains,
                                 .replicas = (int)ps->replicas,
                                 .store = cluster->store};
    tri_ps_server *server;
    TRI_TRY(tri_ps_views_start(cluster->store, number, &starts));
    TRI_TRY(tri_ps_views_host_claim(cluster->store, number, own_host(net)));
    TRI_TRY(hosts_find(cluster, net, ps, hosts, &setup.hosts));
    TRI_TRY(tri_ps_server_open(&setup, &server));
    tri_status status = merges_add(server, merges);
    if (status == TRI_OK)
        status = announce(cluster, number, tri_ps_server_address(server),
                          tri_deadline_after_ms((int64_t)(net->timeout_s * 1e3)));
    if (status == TRI_OK && starts > 1)
        status = come_back(ps, number, trains, server);
    if (status == TRI_OK)
        status = tri_ps_server_run(server);
    tri_ps_server_close(server);
    return status;
}

tri_status tri_ps_join(const tri_cluster *cluster, const tri_net_config *net, const tri_ps_config *ps,
                       tri_ps_client **out)
{
    uint64_t hosts[PS_MAX_SERVERS];
    tri_ps_client_setup setup = {.net = net,
                                 .ps = ps,
                                 .token = cluster->token,
                                 .store = cluster->store,
                                 .worker = cluster->rank,
                                 .workers = tri_ps_workers(cluster),
                                 .servers = cluster->servers,
                                 .local_workers = cluster->local_world,
                                 .local_rank = cluster->local_rank};
    TRI_TRY(hosts_find(cluster, net, ps, hosts, &setup.hosts));
    return tri_ps_client_open(&setup, out);
}
