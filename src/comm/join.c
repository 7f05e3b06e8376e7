/* SPDX-License-Identifier: Apache-2.0
 *
 * join.c: opening a comm where processes meet: by a cluster, by the environment this process was started in, or by a
 * table that another system keeps.
 *
 * The one place of comm/ that asks for the environment (cluster/ reads it): it is what tri_comm_join is for.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/wait.h"
#include "comm/engine.h"
#include "net/auth.h"

#define SLICE_FIRST_NS (20 * TRI_NS_PER_MS) /* of a wait for another rank, between two looks at stop signals */
#define SLICE_LAST_NS  (500 * TRI_NS_PER_MS)

static void free_texts(char **texts, int count)
{
    for (int r = 0; texts && r < count; r++)
        tri_free(texts[r]);
    tri_free(texts);
}

static const char *exchange_name(const tri_cluster *cluster, char name[48])
{
    if (cluster->generation == 0)
        return "comm.address";
    snprintf(name, 48, "comm.address.%lld", (long long)cluster->generation);
    return name;
}

tri_status tri_comm_sweep(tri_cluster *cluster, int64_t deadline_ns)
{
    char name[48];
    return cluster->world == 1 ? TRI_OK
                               : tri_cluster_exchange_sweep(cluster, exchange_name(cluster, name), deadline_ns);
}

/* Addresses begin with the host's id. */
static bool same_host(const char *a, const char *b)
{
    size_t nbytes = strcspn(a, ";") + 1;
    return strncmp(a, b, nbytes) == 0;
}

/* This rank among the ranks of its host. */
static void local_count(char *const *addresses, int rank, int world, int *local_rank, int *local_world)
{
    *local_rank = *local_world = 0;
    for (int r = 0; r < world; r++) {
        *local_world += same_host(addresses[rank], addresses[r]);
        *local_rank += r < rank && same_host(addresses[rank], addresses[r]);
    }
}

/* Everybody's address by the cluster's store. One rank needs no store. */
static tri_status connect_cluster(tri_cluster *cluster, tri_net *net, int64_t deadline_ns)
{
    if (cluster->world == 1) {
        const char *own = tri_net_address(net);
        return tri_net_connect(net, &own, deadline_ns);
    }
    char **addresses = tri_alloc_zero((size_t)cluster->world, sizeof(*addresses)), name[48];
    if (!addresses)
        return TRI_ENOMEM;
    tri_status status =
        tri_cluster_exchange(cluster, exchange_name(cluster, name), tri_net_address(net), addresses, deadline_ns);
    if (status == TRI_OK && cluster->counts_local)
        local_count(addresses, cluster->rank, cluster->world, &cluster->local_rank, &cluster->local_world);
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
    return tri_comm_open_failed(comm, tri_fail_copy(status, message));
}

/* What others move for us is not encrypted: it must not pass for that. */
static tri_status encrypt_check(const tri_comm_config *config, const tri_net_config *net)
{
    if (net->encrypt && config->engine == TRI_ENGINE_MPI)
        return tri_fail(TRI_ECONFIG,
                        "comm.encrypt = on: want comm.engine = host, got mpi, whose library sends in clear");
    if (net->encrypt && net->transport == TRI_TRANSPORT_UCX)
        return tri_fail(TRI_ECONFIG,
                        "comm.encrypt = on: want comm.transport = auto or tcp, got ucx, which sends in clear");
    return TRI_OK;
}

tri_status tri_comm_open(tri_cluster *cluster, const tri_comm_config *config, const tri_net_config *net_config,
                         int64_t deadline_ns, tri_comm **out)
{
    tri_net *net = NULL;
    TRI_TRY(encrypt_check(config, net_config));
    TRI_TRY(tri_net_open(net_config, cluster->rank, cluster->world, cluster->token, net_config->hub, &net));
    tri_status status = connect_cluster(cluster, net, deadline_ns);
    if (status != TRI_OK) {
        tri_net_close(net);
        return status;
    }
    tri_comm_place place = {cluster->local_rank, cluster->local_world, cluster->generation};
    TRI_TRY(tri_comm_create(net, place, config, net_config, out));
    return open_engine(*out, config, cluster->started_by);
}

tri_status tri_comm_join_as(const tri_comm_config *config, const tri_net_config *net_config, double timeout_s,
                            tri_comm **out)
{
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(timeout_s * 1000));
    tri_cluster *cluster = tri_alloc_zero(1, sizeof(*cluster));
    if (!cluster)
        return TRI_ENOMEM;
    tri_status status = tri_cluster_join(NULL, NULL, net_config, deadline_ns, cluster);
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

void tri_join_interrupt_set(int (*interrupted)(void))
{
    tri_stop_ask_set(interrupted);
}

static tri_status check_limit(double timeout_s)
{
    if (!(timeout_s > 0 && timeout_s <= 1e6))
        return tri_fail(TRI_EINVAL, "join: want a time limit above 0 and at most 1e6 seconds, got %g", timeout_s);
    return TRI_OK;
}

tri_status tri_comm_join(double timeout_s, tri_comm **out)
{
    TRI_TRY(check_limit(timeout_s));
    tri_comm_config config;
    tri_net_config net_config;
    TRI_TRY(tri_comm_settings_read(NULL, NULL, &config, &net_config));
    return tri_comm_join_as(&config, &net_config, timeout_s, out);
}

/* --- a meeting: rank 0 sets "trireme.token" and, of all "trireme.address.<rank>", one text "trireme.addresses" ------
 */

/* A meeting where this process joins, and how long it has waited there. */
typedef struct join_meeting {
    const tri_meeting *is;
    tri_wait wait;
    int world;
    int64_t deadline_ns;
} join_meeting;

/* Waits for what a rank sets, in slices: between two the caller's meeting has given up without a failure when the whole
 * slice has passed. */
static tri_status meeting_wait(join_meeting *meeting, const char *name, int rank, const char **text)
{
    int64_t slice_ns = SLICE_FIRST_NS;
    for (;;) {
        TRI_TRY(tri_wait_check("waiting for the other ranks"));
        const int64_t before_ns = tri_now_ns(), left_ns = meeting->deadline_ns - before_ns;
        const int64_t turn_ns = left_ns < slice_ns ? (left_ns > TRI_NS_PER_MS ? left_ns : TRI_NS_PER_MS) : slice_ns;
        *text = meeting->is->wait(meeting->is->arg, name, (double)turn_ns / 1e9);
        if (*text)
            return TRI_OK;
        TRI_TRY(tri_wait_check("waiting for the other ranks"));
        if (left_ns <= turn_ns)
            return tri_fail(TRI_ETIMEOUT, "rank %d did not join within %lld s", rank,
                            tri_wait_limit_s(&meeting->wait, meeting->deadline_ns));
        if (tri_now_ns() - before_ns < turn_ns / 2)
            return tri_fail(TRI_EPEER, "join: cannot wait for '%s' of rank %d", name, rank);
        if (tri_wait_is_long(&meeting->wait))
            tri_log(TRI_LOG_WARN, "waiting for rank %d of %d", rank, meeting->world);
        slice_ns = slice_ns < SLICE_LAST_NS ? 2 * slice_ns : SLICE_LAST_NS;
    }
}

static tri_status meeting_token(join_meeting *meeting, int rank, char token[TRI_AUTH_HEX_NBYTES])
{
    const char *text;
    if (rank == 0) {
        tri_auth_token_make(token);
        return meeting->is->set(meeting->is->arg, "trireme.token", token);
    }
    TRI_TRY(meeting_wait(meeting, "trireme.token", 0, &text));
    if (strlen(text) != 64)
        return tri_fail(TRI_EFORMAT, "join: want a token of 64 digits, got %zu bytes", strlen(text));
    memcpy(token, text, 65);
    return TRI_OK;
}

/* With TRIREME_TOKEN in the environment, who can read the other library's table does not know this token yet. */
static tri_status meeting_token_bind(char token[TRI_AUTH_HEX_NBYTES])
{
    char secret[65];
    unsigned char digest[TRI_AUTH_NBYTES];
    if (!tri_cluster_has_token(NULL, NULL))
        return TRI_OK;
    TRI_TRY(tri_cluster_token(NULL, NULL, secret));
    TRI_TRY(tri_auth_prove(secret, token, strlen(token), digest));
    tri_auth_hex(digest, sizeof(digest), token);
    return TRI_OK;
}

/* Rank 0: one line per rank. */
static tri_status meeting_gather(join_meeting *meeting, const char *own)
{
    tri_string all = {0};
    const char *text = own;
    char name[48];
    tri_status status = TRI_OK;
    for (int r = 0; r < meeting->world && status == TRI_OK; r++) {
        snprintf(name, sizeof(name), "trireme.address.%d", r);
        if (r > 0)
            status = meeting_wait(meeting, name, r, &text);
        if (status == TRI_OK)
            status = tri_string_appendf(&all, "%s\n", text);
    }
    if (status == TRI_OK)
        status = meeting->is->set(meeting->is->arg, "trireme.addresses", tri_string_text(&all));
    tri_string_fini(&all);
    return status;
}

static tri_status meeting_exchange(join_meeting *meeting, const tri_net *net, char **texts)
{
    int rank = tri_net_rank(net), world = meeting->world;
    const char *all;
    char name[48];
    snprintf(name, sizeof(name), "trireme.address.%d", rank);
    if (rank == 0)
        TRI_TRY(meeting_gather(meeting, tri_net_address(net)));
    else
        TRI_TRY(meeting->is->set(meeting->is->arg, name, tri_net_address(net)));
    TRI_TRY(meeting_wait(meeting, "trireme.addresses", 0, &all));
    for (int r = 0; r < world; r++) {
        size_t nbytes = strcspn(all, "\n");
        if (all[nbytes] != '\n')
            return tri_fail(TRI_EFORMAT, "join: want the addresses of %d ranks, got %d", world, r);
        texts[r] = tri_strndup(all, nbytes);
        if (!texts[r])
            return TRI_ENOMEM;
        all += nbytes + 1;
    }
    return TRI_OK;
}

typedef struct meeting_settings {
    tri_comm_config config;
    tri_net_config net;
} meeting_settings;

static tri_status open_by(join_meeting *meeting, const meeting_settings *settings, tri_net *net, char **texts,
                          tri_comm **out)
{
    int local_rank, local_world;
    tri_status status = meeting_exchange(meeting, net, texts);
    if (status == TRI_OK)
        status = tri_net_connect(net, (const char *const *)texts, meeting->deadline_ns);
    if (status != TRI_OK) {
        tri_net_close(net);
        return status;
    }
    local_count(texts, tri_net_rank(net), tri_net_world(net), &local_rank, &local_world);
    tri_comm_place place = {local_rank, local_world, 0};
    TRI_TRY(tri_comm_create(net, place, &settings->config, &settings->net, out));
    return open_engine(*out, &settings->config, "another library");
}

tri_status tri_comm_join_by(const tri_meeting *meeting, int rank, int world, double timeout_s, tri_comm **out)
{
    TRI_TRY(check_limit(timeout_s));
    if (world < 1 || rank < 0 || rank >= world)
        return tri_fail(TRI_EINVAL, "join: want a rank below the number of ranks, got rank %d of %d", rank, world);
    join_meeting at = {
        .is = meeting, .world = world, .deadline_ns = tri_deadline_after_ms((int64_t)(timeout_s * 1000))};
    tri_wait_begin(&at.wait);
    meeting_settings settings;
    TRI_TRY(tri_comm_settings_read(NULL, NULL, &settings.config, &settings.net));
    char token[65];
    tri_net *net = NULL;
    /* A process that makes many groups is warned of a missing token once. */
    static atomic_bool has_warned;
    bool has_token = tri_cluster_has_token(NULL, NULL);
    bool speaks = rank == 0 && world > 1 && !has_token && !atomic_exchange(&has_warned, true);
    TRI_TRY(tri_cluster_token_check(has_token, "another library", speaks ? 0 : 1, world, &settings.net));
    TRI_TRY(encrypt_check(&settings.config, &settings.net));
    TRI_TRY(meeting_token(&at, rank, token));
    TRI_TRY(meeting_token_bind(token));
    TRI_TRY(tri_net_open(&settings.net, rank, world, token, NULL, &net));
    char **texts = tri_alloc_zero((size_t)world, sizeof(*texts));
    if (!texts) {
        tri_net_close(net);
        return TRI_ENOMEM;
    }
    tri_status status = open_by(&at, &settings, net, texts, out);
    free_texts(texts, world);
    return status;
}
