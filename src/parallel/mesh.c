/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh.c: sizes from the configuration, places from ranks, groups from both.
 */
#include "parallel/mesh.h"

#include <stdio.h>

#include "base/memory.h"
#include "comm/comm.h"

enum { EDGE_DATA, EDGE_TENSOR, EDGE_PIPELINE, EDGE_COUNT };
static const char *const edge_names[] = {"data", "tensor", "pipeline"};

/* The sizes as they were asked for: "data auto x tensor 2 x pipeline 1". */
static const char *wish_print(const int size[EDGE_COUNT], char text[96])
{
    int at = 0;
    for (int i = 0; i < EDGE_COUNT; i++)
        at += size[i] ? snprintf(text + at, 96 - (size_t)at, "%s%s %d", i ? " x " : "", edge_names[i], size[i])
                      : snprintf(text + at, 96 - (size_t)at, "%s%s auto", i ? " x " : "", edge_names[i]);
    return text;
}

/* Data ranks from `first` on that are on one host. */
static int run_of(const tri_mesh *mesh, const int *host, int first, int tensor, int stage)
{
    int end = first + 1, at = host[tri_mesh_rank(mesh, first, tensor, stage)];
    while (end < mesh->data && host[tri_mesh_rank(mesh, end, tensor, stage)] == at)
        end++;
    return end - first;
}

static tri_status zero_of_hosts(const int *host, tri_mesh *mesh)
{
    int each = run_of(mesh, host, 0, 0, 0);
    for (int stage = 0; stage < mesh->pipeline; stage++)
        for (int tensor = 0; tensor < mesh->tensor; tensor++)
            for (int first = 0, run; first < mesh->data; first += run) {
                run = run_of(mesh, host, first, tensor, stage);
                if (run != each)
                    return tri_fail(TRI_ECONFIG,
                                    "parallel.zero_ranks host: want as many data ranks on each host, one after the "
                                    "other: from rank 0 on there are %d, from rank %d on %d",
                                    each, tri_mesh_rank(mesh, first, tensor, stage), run);
            }
    if (each == 1)
        return tri_fail(TRI_ECONFIG,
                        "parallel.zero_ranks host: want several data ranks on a host, got %d hosts with one each "
                        "(parallel.zero_ranks=all spreads the state over hosts, parallel.sync=allreduce nowhere)",
                        mesh->data);
    mesh->zero = each;
    return TRI_OK;
}

tri_status tri_mesh_zero_find(const tri_parallel_config *config, const int *host, tri_mesh *mesh)
{
    int64_t each = config->zero_ranks;
    mesh->zero = mesh->data;
    if (each == TRI_ZERO_RANKS_ALL || tri_sync_spread(config, 2) == TRI_SPREAD_NOTHING)
        return TRI_OK;
    if (each == TRI_ZERO_RANKS_HOST)
        return host && mesh->data > 1 ? zero_of_hosts(host, mesh) : TRI_OK;
    if (each < 2 || mesh->data % each != 0)
        return tri_fail(TRI_ECONFIG, "parallel.zero_ranks: want 2 or more that divide the %d data ranks, got %lld",
                        mesh->data, (long long)each);
    mesh->zero = (int)each;
    return TRI_OK;
}

tri_status tri_mesh_shape(const tri_parallel_config *config, int ranks, tri_mesh *mesh)
{
    const int64_t wanted[EDGE_COUNT] = {config->data, config->tensor, config->pipeline};
    int size[EDGE_COUNT], open = -1;
    int64_t fixed = 1;
    char text[96];
    *mesh = (tri_mesh){0};
    for (int i = 0; i < EDGE_COUNT; i++) {
        size[i] = wanted[i] == TRI_OPTION_AUTO ? 0 : (int)wanted[i];
        if (size[i] == 0 && open >= 0)
            return tri_fail(TRI_ECONFIG, "parallel.%s and parallel.%s are both auto: give one of them a number",
                            edge_names[open], edge_names[i]);
        if (size[i] == 0)
            open = i;
        fixed *= size[i] ? size[i] : 1;
    }
    if (open >= 0 ? ranks % fixed != 0 : ranks != fixed)
        return tri_fail(TRI_ECONFIG, "parallel: %s needs %s%lld ranks, but %d take part", wish_print(size, text),
                        open >= 0 ? "a multiple of " : "", (long long)fixed, ranks);
    if (open >= 0)
        size[open] = (int)(ranks / fixed);
    mesh->data = size[EDGE_DATA];
    mesh->tensor = size[EDGE_TENSOR];
    mesh->pipeline = size[EDGE_PIPELINE];
    return tri_mesh_zero_find(config, NULL, mesh);
}

void tri_mesh_place(tri_mesh *mesh, int rank)
{
    mesh->tensor_rank = rank % mesh->tensor;
    mesh->data_rank = rank / mesh->tensor % mesh->data;
    mesh->stage = rank / mesh->tensor / mesh->data;
}

int tri_mesh_rank(const tri_mesh *mesh, int data_rank, int tensor_rank, int stage)
{
    return (stage * mesh->data + data_rank) * mesh->tensor + tensor_rank;
}

const char *tri_mesh_print(const tri_mesh *mesh, char text[64])
{
    int at = snprintf(text, 64, "data %d x tensor %d x pipeline %d", mesh->data, mesh->tensor, mesh->pipeline);
    if (mesh->zero < mesh->data)
        snprintf(text + at, 64 - (size_t)at, ", state over %d", mesh->zero);
    return text;
}

/* The ranks that differ from this one in the edges of `along` alone, as a group; NULL where that is this one alone. */
static tri_status group_open(const tri_mesh *mesh, tri_comm *comm, const bool along[EDGE_COUNT], const char *tag,
                             tri_group **out)
{
    int data = along[EDGE_DATA] ? mesh->data : 1, tensor = along[EDGE_TENSOR] ? mesh->tensor : 1;
    int pipeline = along[EDGE_PIPELINE] ? mesh->pipeline : 1, count = 0;
    if (data * tensor * pipeline == 1 && !along[EDGE_DATA])
        return TRI_OK;
    int *ranks = tri_alloc((size_t)(data * tensor * pipeline) * sizeof(int));
    if (!ranks)
        return TRI_ENOMEM;
    for (int p = 0; p < pipeline; p++)
        for (int d = 0; d < data; d++)
            for (int t = 0; t < tensor; t++)
                ranks[count++] =
                    tri_mesh_rank(mesh, along[EDGE_DATA] ? d : mesh->data_rank,
                                  along[EDGE_TENSOR] ? t : mesh->tensor_rank, along[EDGE_PIPELINE] ? p : mesh->stage);
    tri_status status = tri_group_create_of(comm, ranks, count, tag, out);
    tri_free(ranks);
    return status;
}

/* Ranks of the data group: from `first` on, `count` of them, `apart` apart. */
static tri_status data_part_open(const tri_mesh *mesh, tri_comm *comm, int first, int count, int apart, const char *tag,
                                 tri_group **out)
{
    int *ranks = tri_alloc((size_t)count * sizeof(int));
    if (!ranks)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        ranks[i] = tri_mesh_rank(mesh, first + i * apart, mesh->tensor_rank, mesh->stage);
    tri_status status = tri_group_create_of(comm, ranks, count, tag, out);
    tri_free(ranks);
    return status;
}

static tri_status hosts_find(const tri_parallel_config *config, const tri_group *world, tri_mesh *mesh)
{
    int count = tri_group_count(world), *host = tri_alloc((size_t)count * sizeof(int));
    if (!host)
        return TRI_ENOMEM;
    tri_status status = tri_group_hosts_first(world, host);
    if (status == TRI_OK)
        status = tri_mesh_zero_find(config, host, mesh);
    tri_free(host);
    return status;
}

static tri_status edges_open(tri_comm *comm, tri_mesh *mesh)
{
    if (mesh->tensor == 1 && mesh->pipeline == 1) {
        mesh->data_group = tri_comm_world(comm);
        return TRI_OK;
    }
    mesh->owned = true;
    TRI_TRY(group_open(mesh, comm, (bool[]){true, false, false}, "data", &mesh->data_group));
    TRI_TRY(group_open(mesh, comm, (bool[]){false, true, false}, "tensor", &mesh->tensor_group));
    TRI_TRY(group_open(mesh, comm, (bool[]){false, false, true}, "pipeline", &mesh->pipeline_group));
    return group_open(mesh, comm, (bool[]){false, true, true}, "model", &mesh->model_group);
}

tri_status tri_mesh_open(const tri_parallel_config *config, tri_comm *comm, tri_mesh *mesh)
{
    tri_group *world = tri_comm_world(comm);
    TRI_TRY(tri_mesh_shape(config, tri_group_count(world), mesh));
    tri_mesh_place(mesh, tri_group_rank(world));
    TRI_TRY(edges_open(comm, mesh));
    TRI_TRY(hosts_find(config, tri_comm_world(comm), mesh));
    mesh->zero_group = mesh->data_group;
    if (mesh->zero == mesh->data)
        return TRI_OK;
    mesh->zero_group = NULL;
    int place = mesh->data_rank % mesh->zero;
    TRI_TRY(data_part_open(mesh, comm, mesh->data_rank - place, mesh->zero, 1, "zero", &mesh->zero_group));
    return data_part_open(mesh, comm, place, mesh->data / mesh->zero, mesh->zero, "replicas", &mesh->replica_group);
}

void tri_mesh_close(tri_mesh *mesh)
{
    if (mesh->zero_group != mesh->data_group)
        tri_group_destroy(mesh->zero_group);
    tri_group_destroy(mesh->replica_group);
    if (mesh->owned) {
        tri_group_destroy(mesh->data_group);
        tri_group_destroy(mesh->tensor_group);
        tri_group_destroy(mesh->pipeline_group);
        tri_group_destroy(mesh->model_group);
    }
    *mesh = (tri_mesh){0};
}
