/* SPDX-License-Identifier: Apache-2.0
 *
 * join.c: opening a comm where processes meet: by a cluster, by the environment this process was started in, or by a
 * table that another system keeps.
 *
 * The one place of comm/ that asks for the environment (cluster/ reads it): it is what tri_comm_join is for.
 */
#include <stdio.h>
#include <string.h>

#include "comm/engine.h"
#include "net/auth.h"

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
    if (net->encrypt && strcmp(config->engine, "mpi") == 0)
        return tri_fail(TRI_ECONFIG,
                        "comm.encrypt = on: want comm.engine = host, got mpi, whose library sends in clear");
    if (net->encrypt && strcmp(net->transport, "ucx") == 0)
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

static tri_status meeting_wait(const tri_meeting *meeting, const char *name, int64_t deadline_ns, const char **text)
{
    double left_s = (double)(deadline_ns - tri_now_ns()) / 1e9;
    *text = meeting->wait(meeting->arg, name, left_s > 0.001 ? left_s : 0.001);
    return *text ? TRI_OK : tri_fail(TRI_ETIMEOUT, "join: want '%s' from another rank in time, got nothing", name);
}

static tri_status meeting_token(const tri_meeting *meeting, int rank, int64_t deadline_ns,
                                char token[TRI_AUTH_HEX_NBYTES])
{
    const char *text;
    if (rank == 0) {
        tri_auth_token_make(token);
        return meeting->set(meeting->arg, "trireme.token", token);
    }
    TRI_TRY(meeting_wait(meeting, "trireme.token", deadline_ns, &text));
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
static tri_status meeting_gather(const tri_meeting *meeting, const char *own, int world, int64_t deadline_ns)
{
    tri_string all = {0};
    const char *text = own;
    char name[48];
    tri_status status = TRI_OK;
    for (int r = 0; r < world && status == TRI_OK; r++) {
        snprintf(name, sizeof(name), "trireme.address.%d", r);
        if (r > 0)
            status = meeting_wait(meeting, name, deadline_ns, &text);
        if (status == TRI_OK)
            status = tri_string_appendf(&all, "%s\n", text);
    }
    if (status == TRI_OK)
        status = meeting->set(meeting->arg, "trireme.addresses", tri_string_text(&all));
    tri_string_fini(&all);
    return status;
}

static tri_status meeting_exchange(const tri_meeting *meeting, const tri_net *net, char **texts, int64_t deadline_ns)
{
    int rank = tri_net_rank(net), world = tri_net_world(net);
    const char *all;
    char name[48];
    snprintf(name, sizeof(name), "trireme.address.%d", rank);
    if (rank == 0)
        TRI_TRY(meeting_gather(meeting, tri_net_address(net), world, deadline_ns));
    else
        TRI_TRY(meeting->set(meeting->arg, name, tri_net_address(net)));
    TRI_TRY(meeting_wait(meeting, "trireme.addresses", deadline_ns, &all));
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

/* Addresses begin with the host's id. */
static bool same_host(const char *a, const char *b)
{
    size_t nbytes = strcspn(a, ";") + 1;
    return strncmp(a, b, nbytes) == 0;
}

typedef struct meeting_settings {
    tri_comm_config config;
    tri_net_config net;
} meeting_settings;

static tri_status open_by(const tri_meeting *meeting, const meeting_settings *settings, tri_net *net, char **texts,
                          int64_t deadline_ns, tri_comm **out)
{
    int rank = tri_net_rank(net), local_rank = 0, local_count = 0;
    tri_status status = meeting_exchange(meeting, net, texts, deadline_ns);
    if (status == TRI_OK)
        status = tri_net_connect(net, (const char *const *)texts, deadline_ns);
    if (status != TRI_OK) {
        tri_net_close(net);
        return status;
    }
    for (int r = 0; r < tri_net_world(net); r++) {
        local_count += same_host(texts[rank], texts[r]);
        local_rank += r < rank && same_host(texts[rank], texts[r]);
    }
    tri_comm_place place = {local_rank, local_count, 0};
    TRI_TRY(tri_comm_create(net, place, &settings->config, &settings->net, out));
    return open_engine(*out, &settings->config, "another library");
}

tri_status tri_comm_join_by(const tri_meeting *meeting, int rank, int world, double timeout_s, tri_comm **out)
{
    TRI_TRY(check_limit(timeout_s));
    if (world < 1 || rank < 0 || rank >= world)
        return tri_fail(TRI_EINVAL, "join: want a rank below the number of ranks, got rank %d of %d", rank, world);
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(timeout_s * 1000));
    meeting_settings settings;
    TRI_TRY(tri_comm_settings_read(NULL, NULL, &settings.config, &settings.net));
    char token[65];
    tri_net *net = NULL;
    TRI_TRY(tri_cluster_token_check(tri_cluster_has_token(NULL, NULL), "another library", rank, world, &settings.net));
    TRI_TRY(encrypt_check(&settings.config, &settings.net));
    TRI_TRY(meeting_token(meeting, rank, deadline_ns, token));
    TRI_TRY(meeting_token_bind(token));
    TRI_TRY(tri_net_open(&settings.net, rank, world, token, NULL, &net));
    char **texts = tri_alloc_zero((size_t)world, sizeof(*texts));
    if (!texts) {
        tri_net_close(net);
        return TRI_ENOMEM;
    }
    tri_status status = open_by(meeting, &settings, net, texts, deadline_ns, out);
    free_texts(texts, world);
    return status;
}
