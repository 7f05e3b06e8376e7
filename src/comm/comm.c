/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c: one rank's place among the others: opening over linked transports, the check that all ranks agree, leaving.
 *
 * Ranks of one process meet through a hub; processes meet through a cluster's store (join.c).
 */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "comm/engine.h"
#include "comm/lane.h"
#include "comm/report.h"
#include "comm/shared.h"

#define TRI_OPTION_STRUCT tri_comm_config
static const tri_option rows[] = {TRI_COMM_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_comm_options = TRI_OPTION_TABLE("comm", tri_comm_config, rows, "collective operations");

#define WORLD_GROUP_ID 1
#define COUNTED_RANKS                                                                                                  \
    1024 /* more keep no count of bytes for each: a job of thousands in one simulation would need GiB */

/* What all ranks must have alike, for people to read. */
enum { ALIKE_NBYTES = 256 };

static void describe_alike(const tri_comm_config *config, char text[ALIKE_NBYTES])
{
    memset(text, 0, ALIKE_NBYTES);
    int length = snprintf(text, ALIKE_NBYTES, "trireme %s, comm.order = %s, comm.engine = %s, comm.algorithm = '",
                          TRI_VERSION, tri_sum_order_word(config->order), tri_engine_kind_word(config->engine));
    int room = ALIKE_NBYTES - length - 24;
    snprintf(text + length, (size_t)(ALIKE_NBYTES - length), "%.*s%s'", room, config->algorithm,
             strlen(config->algorithm) > (size_t)room ? "..." : "");
}

/* The digest covers the options in full. */
static uint64_t alike_digest(const tri_comm_config *config)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, TRI_VERSION, sizeof(TRI_VERSION));
    XXH3_64bits_update(state, &config->order, sizeof(config->order));
    XXH3_64bits_update(state, &config->engine, sizeof(config->engine));
    XXH3_64bits_update(state, config->algorithm, strlen(config->algorithm) + 1);
    uint64_t digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return digest;
}

/* Some rank differs, and all know: each says which. */
static tri_status report_unlike(tri_comm *comm, const tri_comm_config *config)
{
    char own[ALIKE_NBYTES];
    describe_alike(config, own);
    char(*all)[ALIKE_NBYTES] = tri_alloc_zero((size_t)comm->world, ALIKE_NBYTES);
    if (!all)
        return TRI_ENOMEM;
    tri_call call = {.group = comm->world_group,
                     .op = TRI_COMM_ALL_GATHER,
                     .dtype = TRI_U8,
                     .count = ALIKE_NBYTES,
                     .in = own,
                     .out = all,
                     .canonical = true,
                     .algorithm = &tri_all_gather_by_direct};
    tri_status status = tri_work_submit(&call, NULL);
    for (int r = 1; status == TRI_OK && r < comm->world; r++) {
        if (memcmp(all[0], all[r], ALIKE_NBYTES) != 0)
            status = tri_fail(TRI_ECONFIG, "ranks do not agree: rank 0 has %s; rank %d has %s", all[0], r, all[r]);
    }
    if (status == TRI_OK)
        status = tri_fail(TRI_ECONFIG, "ranks do not agree: comm.algorithm differs beyond its first %d bytes",
                          ALIKE_NBYTES / 2);
    tri_free(all);
    return status;
}

/* The smallest digest equals the largest: all are alike. By one fixed algorithm, as the rules may be what differs. */
static tri_status check_alike(tri_comm *comm, const tri_comm_config *config)
{
    uint64_t digest = alike_digest(config) >> 1;
    /* And how far the farthest are apart: all ranks must price alike. */
    int64_t extremes[3] = {(int64_t)digest, ~(int64_t)digest, -tri_net_round_trip_ns(comm->net) / 1000};
    tri_call call = {.group = comm->world_group,
                     .op = TRI_COMM_ALL_REDUCE,
                     .dtype = TRI_I64,
                     .reduce = TRI_REDUCE_MIN,
                     .count = 3,
                     .in = extremes,
                     .out = extremes,
                     .canonical = true,
                     .algorithm = &tri_all_reduce_by_tree};
    TRI_TRY(tri_work_submit(&call, NULL));
    comm->far_us = -extremes[2];
    comm->world_group->price = tri_price_of_group(comm->world_group);
    return extremes[0] == ~extremes[1] ? TRI_OK : report_unlike(comm, config);
}

tri_status tri_comm_open_failed(tri_comm *comm, tri_status status)
{
    char message[TRI_ERROR_NBYTES], from[24] = "";
    tri_status settled = tri_comm_settle(comm, status);
    if (settled != status && comm->local_count < comm->world) /* it may be the fault of one host */
        snprintf(from, sizeof(from), "rank %d: ", comm->origin);
    snprintf(message, sizeof(message), "%s%.*s", from, TRI_ERROR_NBYTES - (int)sizeof(from), tri_last_error());
    tri_comm_leave(comm);
    return tri_fail_copy(settled, message);
}

/* It was linked to all, and has lost some since: who asked for the comm may want to know whom. */
static void cut_tell(const tri_comm *comm, const tri_net_config *config)
{
    char where[TRI_NET_DESCRIBE_NBYTES];
    for (int r = 0; config->unmet && r < comm->world; r++)
        if (r != comm->rank && tri_comm_is_cut(comm, r, where, sizeof(where)))
            config->unmet(config->unmet_arg, r, where);
}

tri_status tri_comm_create(tri_net *net, tri_comm_place place, const tri_comm_config *config,
                           const tri_net_config *net_config, tri_comm **out)
{
    tri_comm *comm = tri_alloc_zero(1, sizeof(*comm));
    if (!comm) {
        tri_net_close(net);
        return TRI_ENOMEM;
    }
    comm->net = net;
    comm->rank = tri_net_rank(net);
    comm->world = tri_net_world(net);
    comm->sent_to = comm->world <= COUNTED_RANKS ? tri_alloc_zero((size_t)comm->world, sizeof(*comm->sent_to)) : NULL;
    comm->local_rank = place.local_rank;
    comm->local_count = place.local_count;
    comm->generation = (uint32_t)place.generation;
    comm->timeout_ms = (int64_t)(net_config->timeout_s * 1000);
    if (comm->timeout_ms < 1)
        comm->timeout_ms = 1;
    memcpy(comm->flight_folder, config->flight, sizeof(comm->flight_folder));
    comm->any_order = config->order == TRI_ORDER_ANY;
    comm->found_origin = -1;
    tri_mutex_init(&comm->mutex);
    tri_cond_init(&comm->ready);
    tri_cond_init(&comm->ended);
    tri_mutex_init(&comm->lane_mutex);
    if (tri_net_watch(net))
        tri_watch_waker_set(tri_net_watch(net), tri_lanes_wake, comm);
    comm->board = tri_board_create();
    tri_status status = comm->board ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_rules_parse(config->algorithm, comm->any_order, comm->rules, &comm->rule_count);
    if (status == TRI_OK)
        status = tri_group_create(comm, WORLD_GROUP_ID, NULL, comm->world, &comm->world_group);
    if (status == TRI_OK)
        status = tri_report_start(comm, config->report_s, &comm->report);
    if (status == TRI_OK)
        status = tri_work_thread_start(comm);
    if (status == TRI_OK)
        status = check_alike(comm, config);
    if (status == TRI_OK)
        status = tri_prices_measure(comm);
    if (status != TRI_OK) {
        cut_tell(comm, net_config);
        return tri_comm_open_failed(comm, status);
    }
    *out = comm;
    return TRI_OK;
}

tri_status tri_comm_open_hub(tri_hub *hub, int rank, int world, const tri_comm_config *config,
                             const tri_net_config *net_config, tri_comm **out)
{
    tri_net *net = NULL;
    if (world > 1 && config->engine != TRI_ENGINE_HOST)
        return tri_fail(TRI_ECONFIG, "comm.engine: want host where ranks are threads of one process, got %s",
                        tri_engine_kind_word(config->engine));
    TRI_TRY(tri_net_open(net_config, rank, world, "", hub, &net));
    /* The hub knows everybody: no addresses. */
    tri_status status = tri_net_connect(net, NULL, tri_deadline_after_ms((int64_t)(net_config->timeout_s * 1000)));
    if (status != TRI_OK) {
        tri_net_close(net);
        return status;
    }
    return tri_comm_create(net, (tri_comm_place){rank, world, 0}, config, net_config, out);
}

void tri_comm_leave(tri_comm *comm)
{
    if (!comm)
        return;
    tri_work_thread_stop(comm);
    tri_engine_close(comm);
    tri_report_stop(comm->report);
    tri_net_close(comm->net);
    tri_lanes_forget(comm);
    if (comm->cluster) {
        tri_cluster_leave(comm->cluster);
        tri_free(comm->cluster);
    }
    tri_shared_free_all(comm);
    tri_group_destroy(comm->world_group);
    tri_cond_fini(&comm->ended);
    tri_cond_fini(&comm->ready);
    tri_mutex_fini(&comm->mutex);
    tri_mutex_fini(&comm->lane_mutex);
    tri_board_destroy(comm->board);
    tri_free(comm->moves);
    tri_free(comm->sinks);
    tri_free(comm->sent_to);
    for (int i = 0; i < TRI_KEEP_COUNT; i++)
        tri_free(comm->kept[i]);
    tri_free(comm);
}

tri_group *tri_comm_world(tri_comm *comm)
{
    return comm->world_group;
}

uint64_t tri_comm_sent_to(const tri_comm *comm, int rank)
{
    return comm->sent_to ? atomic_load_explicit(&comm->sent_to[rank], memory_order_relaxed) : 0;
}

int tri_comm_local_rank(const tri_comm *comm)
{
    return comm->local_rank;
}

int tri_comm_local_count(const tri_comm *comm)
{
    return comm->local_count;
}

const char *tri_comm_transport(const tri_comm *comm, int peer)
{
    return tri_net_transport_name(comm->net, peer);
}

tri_link_load tri_comm_load(const tri_comm *comm, int peer)
{
    return tri_net_load(comm->net, peer);
}

tri_net_traffic tri_comm_traffic(const tri_comm *comm)
{
    return tri_net_traffic_now(comm->net);
}
