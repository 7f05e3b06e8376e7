/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_ps.c: one process of a job with parameter servers: the last ranks serve, the others train.
 */
#include "cli/train/worker_ps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/train.h>

#include "base/log.h"
#include "monitor/stand.h"
#include "ps/api/role.h"
#include "train/core/job.h"

typedef struct ps_words {
    const char *config_path;
    const char *const *overrides;
    const char *folder, *resume;
    bool or_begin;
    const tri_config *config;
} ps_words;

/* What the servers have seen, once all is over. */
static void stats_print(tri_ps_client *client)
{
    tri_string text = {0};
    if (tri_ps_client_stats(client, &text) == TRI_OK && text.nbytes > 0)
        fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
}

/* A run that has lost a server continues from its own newest checkpoint, or from where it began if that was one; else
 * it begins again. */
static tri_status job_open(const ps_words *words, const tri_cluster *cluster, tri_ps_client *client, tri_job **job)
{
    bool again = tri_ps_client_era(client) > 0, from_other = words->resume && strcmp(words->resume, words->folder) != 0;
    tri_job_setup setup = {.config = words->config_path,
                           .overrides = words->overrides,
                           .servers = client,
                           .run_folder = words->folder,
                           .resume = again ? words->folder : words->resume,
                           .or_begin = !again && words->or_begin,
                           .console = cluster->rank == 0};
    tri_status status = tri_job_open(&setup, job);
    if (!again || status != TRI_ENOTFOUND)
        return status;
    setup.resume = from_other ? words->resume : NULL;
    setup.or_begin = from_other && words->or_begin;
    return tri_job_open(&setup, job);
}

/* Is a server, with its backup, lost before the leader has saved the end, everybody goes back. */
static bool goes_back(const tri_ps_config *ps)
{
    return ps->replicas > 1 || ps->consistency == PS_BSP;
}

/* Of the leader, to people. */
static void back_tell(const tri_job *job, const char *folder, int64_t reached)
{
    if (job->step > 0)
        tri_log(TRI_LOG_WARN,
                "a parameter server was lost: the run goes back from step %" PRId64 " to step %" PRId64
                ", its newest checkpoint; the %" PRId64 " steps between are done again",
                reached, job->step, reached > job->step ? reached - job->step : 0);
    else
        tri_log(
            TRI_LOG_WARN,
            "a parameter server was lost with what it held, and there is no checkpoint in %s yet: the run starts "
            "again from step 0 (checkpoint.every_steps or every_s makes some, ps.replicas 2 has a copy of everything)",
            folder);
}

static tri_status work(const ps_words *words, const tri_cluster *cluster, tri_ps_client *client, int64_t *reached)
{
    tri_job *job = NULL;
    bool leads = cluster->rank == 0;
    tri_status status = job_open(words, cluster, client, &job);
    if (status == TRI_OK && leads && *reached >= 0)
        back_tell(job, words->folder, *reached);
    if (status == TRI_OK && leads)
        tri_log(TRI_LOG_INFO, "%d workers, %d parameter servers, run folder %s", tri_ps_workers(cluster),
                cluster->servers, words->folder);
    if (status == TRI_OK)
        status = tri_job_run(job);
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    *reached = job ? job->step : *reached;
    tri_job_close(job);
    if (status == TRI_ECANCELED)
        (void)(leads ? tri_ps_client_bye(client) : tri_ps_client_await_leader(client, false));
    if (status != TRI_OK)
        return tri_fail_copy(status, message);
    if (leads) {
        TRI_TRY(tri_ps_client_done(client));
        stats_print(client);
    } else if (goes_back(&words->config->ps))
        TRI_TRY(tri_ps_client_await_leader(client, true));
    return tri_ps_client_bye(client);
}

static tri_status worker_run(const ps_words *words, const tri_cluster *cluster)
{
    char message[TRI_ERROR_NBYTES];
    int64_t reached = -1;
    for (bool again = true; again;) {
        tri_ps_client *client;
        TRI_TRY(tri_ps_join(cluster, &words->config->net, &words->config->ps, &client));
        tri_status status = work(words, cluster, client, &reached);
        snprintf(message, sizeof(message), "%s", tri_last_error());
        again = status != TRI_OK && status != TRI_ECANCELED && tri_ps_client_is_past(client);
        tri_ps_client_close(client);
        if (status != TRI_OK && !again)
            return tri_fail_copy(status, message);
    }
    return TRI_OK;
}

static tri_status server_run(const ps_words *words, const tri_cluster *cluster)
{
    const tri_stand_place place = {.folder = words->folder,
                                   .rank = cluster->rank,
                                   .local_rank = cluster->local_rank,
                                   .serves = true,
                                   .resumes = words->resume != NULL};
    char message[TRI_ERROR_NBYTES];
    tri_stand *stand;
    TRI_TRY(tri_stand_open(&words->config->monitor, &place, &stand));
    tri_status status = tri_ps_serve(cluster, &words->config->net, &words->config->ps, 1, true, NULL);
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_stand_close(stand);
    return status == TRI_OK ? TRI_OK : tri_fail_copy(status, message);
}

static tri_status run_as(const ps_words *words, const tri_cluster *cluster)
{
    char label[TRI_LOG_LABEL_NBYTES];
    if (cluster->servers == 0)
        return tri_fail(TRI_ECONFIG, "parallel.sync ps: there are no parameter servers: want --servers N beside -n, or "
                                     "TRIREME_SERVERS in the environment of all ranks");
    bool serves = tri_ps_is_server(cluster);
    snprintf(label, sizeof(label), serves ? "server %d" : "worker %d",
             serves ? cluster->rank - tri_ps_workers(cluster) : cluster->rank);
    tri_log_label_set(label);
    return serves ? server_run(words, cluster) : worker_run(words, cluster);
}

tri_status tri_train_ps(const char *config_path, const char *const *overrides, const char *folder, const char *resume,
                        bool or_begin, const tri_config *config)
{
    const ps_words words = {config_path, overrides, folder, resume, or_begin, config};
    tri_cluster cluster;
    char message[TRI_ERROR_NBYTES];
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(config->net.timeout_s * 1e3));
    TRI_TRY_IN(tri_cluster_join(NULL, NULL, &config->net, deadline_ns, &cluster), "while joining the job");
    tri_status status = run_as(&words, &cluster);
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_cluster_leave(&cluster);
    return status == TRI_OK ? TRI_OK : tri_fail_copy(status, message);
}
