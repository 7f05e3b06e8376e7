/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_meet.c: where the ranks of a job meet: in a store that the launcher serves, in etcd, or, for those that join a
 * job that is there, in that job's.
 *
 * Keys: launch/processes, how many numbers of ranks were given out; launch/initial_members, how many make the first
 * generation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/launch_impl.h"
#include "cluster/store_impl.h"
#include "net/auth.h"

#define STORE_NS (10 * TRI_NS_PER_S) /* to reach a store */
#define BEAT_NS  TRI_NS_PER_S
#define ASK_NS   (TRI_NS_PER_S / 2)

/* One word of a journal and of a shell's line. */
static bool is_word(const char *token)
{
    for (; *token; token++)
        if ((unsigned char)*token <= ' ' || *token == 0x7f)
            return false;
    return true;
}

/* The user's own, so that those who join may be given it too; else a new one. */
static tri_status token_make(launch *job)
{
    const char *given = getenv("TRIREME_TOKEN");
    bool asked = job->config->listen[0] || job->config->join[0] || job->config->store[0];

    if (job->attached)
        return TRI_OK;
    if (job->config->join[0] && (!given || !given[0]))
        return tri_fail(TRI_ECONFIG, "--join: want the token of that job in the environment (TRIREME_TOKEN), got none");
    if (asked && given && given[0]) {
        if (!is_word(given))
            return tri_fail(TRI_ECONFIG, "TRIREME_TOKEN: want no blanks and no control characters, got some");
        return tri_cluster_token(NULL, NULL, job->token);
    }
    if (job->config->listen[0])
        return tri_fail(TRI_ECONFIG, "--listen: want a token that those who join know too, in the environment "
                                     "(TRIREME_TOKEN), got none");
    tri_auth_token_make(job->token);
    return TRI_OK;
}

/* Ranks of a killed launcher look for the store where it was: somebody else's short-lived socket may be there now. */
static tri_status store_serve(launch *job, const char *listen)
{
    int64_t until_ns = tri_now_ns() + STORE_NS;
    tri_status status;

    while ((status = tri_store_server_start_kept(listen, job->port, job->token, job->start.journal, &job->server)) ==
               TRI_EIO &&
           job->attached && tri_now_ns() < until_ns && !tri_stop_signal())
        tri_sleep_ns(20 * TRI_NS_PER_MS);
    if (status == TRI_OK)
        job->port = tri_store_server_port(job->server);
    return status;
}

/* "host[:port]" that others reach us by. */
static tri_status listen_read(launch *job, char host[256])
{
    char url[1100];
    tri_store_url parsed;
    const char *text = job->config->listen, *last = strrchr(text, ':');
    bool has_port = last && (!strchr(text, ']') || last > strchr(text, ']'));

    snprintf(url, sizeof url, "tcp://%.1000s%s", text, has_port ? "" : ":1");
    TRI_TRY_IN(tri_store_url_parse(url, &parsed), "--listen: want host[:port]");
    snprintf(host, 256, strchr(parsed.host, ':') ? "[%.250s]" : "%.255s", parsed.host);
    if (has_port && job->port == 0)
        job->port = parsed.first_port;
    return TRI_OK;
}

/* By each host's way to us. */
static tri_status own_store(launch *job)
{
    const char *listen = "127.0.0.1";
    char address[256] = "127.0.0.1", way[64], name[256];
    launch_host *hosts = job->hosts.items;

    for (size_t i = 0; i < job->hosts.count; i++) {
        snprintf(hosts[i].store_url, sizeof hosts[i].store_url, "127.0.0.1");
        if (hosts[i].is_local || hosts[i].count == 0)
            continue;
        TRI_TRY(tri_launch_host_name(job->config, &hosts[i], name));
        TRI_TRY(tri_launch_address(name, way));
        snprintf(address, sizeof address, "%s", way);
        snprintf(hosts[i].store_url, sizeof hosts[i].store_url, "%s", way);
        listen = way[0] == '[' || strcmp(listen, "::") == 0 ? "::" : "0.0.0.0";
    }
    if (job->config->listen[0]) {
        TRI_TRY(listen_read(job, address));
        listen = address[0] == '[' ? "::" : "0.0.0.0";
    }
    TRI_TRY(store_serve(job, listen));
    for (size_t i = 0; i < job->hosts.count; i++) {
        char host[64];

        snprintf(host, sizeof host, "%.63s", hosts[i].store_url);
        snprintf(hosts[i].store_url, sizeof hosts[i].store_url, "tcp://%s:%d", host, job->port);
    }
    snprintf(job->master, sizeof job->master, "%s", address);
    if (!job->config->listen[0])
        snprintf(address, sizeof address, "127.0.0.1");
    snprintf(job->store_url, sizeof job->store_url, "tcp://%s:%d", address, job->port);
    if (job->config->listen[0])
        tri_log(TRI_LOG_INFO, "others join by: --join %s:%d, with the same TRIREME_TOKEN", address, job->port);
    return TRI_OK;
}

/* A part of the store's url that no other job has; an attached launcher knows it. */
static tri_status etcd_store(launch *job, const char *url, bool own)
{
    const char *settings = strchr(url, '?');
    int nbytes = (int)(settings ? settings - url : (long)strlen(url));
    tri_store_url parsed;
    char id[TRI_AUTH_JOB_NBYTES];

    TRI_TRY(tri_store_url_parse(url, &parsed));
    TRI_TRY(tri_auth_job_id(job->token, id));
    if (!parsed.is_etcd)
        return tri_fail(TRI_ECONFIG, "--store: want etcd[s]://host:port[,host:port ...], got '%.200s'", url);
    while (nbytes > 0 && url[nbytes - 1] == '/')
        nbytes--;
    if (!job->attached && own)
        snprintf(job->store_url, sizeof job->store_url, "%.*s/trireme-%.16s%s", nbytes, url, id,
                 settings ? settings : "");
    else if (!job->attached)
        snprintf(job->store_url, sizeof job->store_url, "%s", url);
    if (own)
        tri_log(TRI_LOG_INFO, "the workers meet in %s", job->store_url);
    snprintf(job->master, sizeof job->master, "127.0.0.1");
    for (size_t i = 0; i < job->hosts.count; i++) {
        launch_host *host = tri_vector_at(&job->hosts, i);

        snprintf(host->store_url, sizeof host->store_url, "%s", job->store_url);
    }
    return TRI_OK;
}

static tri_status joined_store(launch *job)
{
    if (strncmp(job->config->join, "etcd", 4) == 0)
        return etcd_store(job, job->config->join, false);
    snprintf(job->store_url, sizeof job->store_url, "tcp://%.1000s", job->config->join);
    snprintf(job->master, sizeof job->master, "127.0.0.1");
    return TRI_OK;
}

/* Numbers of ranks are never used again: the ids of members are made of them. */
static tri_status numbers_take(launch *job)
{
    int64_t count, initial_members = job->world - job->config->spares, until_ns = tri_now_ns() + STORE_NS;

    if (job->attached)
        return TRI_OK;
    TRI_TRY(tri_store_add(job->store, "launch/processes", job->world, &count, until_ns));
    if (job->config->join[0])
        TRI_TRY(tri_store_add(job->store, "launch/initial_members", 0, &initial_members, until_ns));
    else
        TRI_TRY(tri_store_add(job->store, "launch/initial_members", initial_members, &initial_members, until_ns));
    if (initial_members < 1)
        return tri_fail(TRI_ECONFIG, "--join %s: want the store of an elastic job, got one without", job->config->join);
    job->first = (int)count - job->world;
    job->start.initial_members = (int)initial_members;
    return TRI_OK;
}

/* --- the beat --- */

static void beat_run(void *arg)
{
    launch *job = arg;
    char text[24];

    for (int64_t beat = tri_wall_ns() / BEAT_NS; !atomic_load(&job->ending); beat++) {
        int nbytes = snprintf(text, sizeof text, "%lld", (long long)beat);

        (void)tri_store_set(job->beat_store, job->beat, text, (size_t)nbytes, tri_now_ns() + ASK_NS);
        for (int i = 0; i < 10 && !atomic_load(&job->ending); i++)
            tri_sleep_ns(BEAT_NS / 10);
    }
}

static tri_status beat_start(launch *job)
{
    if (job->server || !job->config->journal[0])
        return TRI_OK;
    snprintf(job->beat, sizeof job->beat, TRI_STORE_BEAT "launcher/%d", job->first);
    TRI_TRY(tri_store_open(job->store_url, job->token, tri_now_ns() + STORE_NS, &job->beat_store));
    return tri_thread_start(&job->beat_thread, "beat", beat_run, job);
}

/* --- all of it --- */

tri_status tri_launch_meet(launch *job)
{
    const tri_launch_config *config = job->config;
    launch_host *hosts = job->hosts.items;

    TRI_TRY(token_make(job));
    TRI_TRY(config->join[0]    ? joined_store(job)
            : config->store[0] ? etcd_store(job, config->store, true)
                               : own_store(job));
    if (job->hosts.count > 0 && !hosts[0].is_local) {
        char name[256];

        TRI_TRY(tri_launch_host_name(config, &hosts[0], name));
        snprintf(job->master, sizeof job->master, "%s", name);
    }
    if (job->start.master_port == 0)
        TRI_TRY(tri_launch_free_port(&job->start.master_port));
    if (!config->elastic)
        return TRI_OK;
    TRI_TRY(tri_store_open(job->store_url, job->token, tri_now_ns() + STORE_NS, &job->store));
    TRI_TRY(numbers_take(job));
    return beat_start(job);
}

void tri_launch_beat_stop(launch *job)
{
    atomic_store(&job->ending, true);
    if (job->beat_thread)
        tri_thread_join(job->beat_thread);
    tri_store_close(job->beat_store);
    job->beat_thread = NULL;
    job->beat_store = NULL;
}

static bool store_has(const launch *job, const char *key)
{
    char *text;
    size_t nbytes;
    bool has = job->store && tri_store_wait(job->store, key, &text, &nbytes, tri_now_ns()) == TRI_OK;

    if (has)
        tri_free(text);
    return has;
}

bool tri_launch_is_over(const launch *job)
{
    return store_has(job, "gen/over");
}

bool tri_launch_is_failed(const launch *job)
{
    return store_has(job, "gen/failed");
}

bool tri_launch_is_needed(const launch *job)
{
    return job->server && job->config->listen[0] && !job->stopping && tri_store_server_connected(job->server) > 1 &&
           !tri_launch_is_over(job); /* one of them is our own */
}
