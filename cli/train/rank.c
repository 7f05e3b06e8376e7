/* SPDX-License-Identifier: Apache-2.0
 *
 * rank.c: one process of a run: a rank of a job, or alone.
 */
#include <stdio.h>
#include <string.h>

#include <trireme/train.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "cli/command.h"
#include "cli/eval_follow.h"
#include "cli/train/report.h"
#include "cli/train/train.h"
#include "cli/train/worker_elastic.h"
#include "cli/train/worker_ps.h"

bool tri_train_is_started(void)
{
    tri_cluster_place place;
    return tri_cluster_detect(NULL, NULL, &place) == TRI_OK && place.world > 1;
}

/* A process that nobody started as a rank has nobody who keeps its output: it leaves the same log as a launched rank.
 */
static tri_status log_open_alone(const tri_train_words *words)
{
    tri_cluster_place place;
    char path[1300];
    if (tri_cluster_detect(NULL, NULL, &place) != TRI_OK || strcmp(place.started_by, "alone") != 0)
        return TRI_OK; /* a wrong environment is reported by tri_worker_join() */
    TRI_TRY(tri_train_folder_begin(words, NULL));
    snprintf(path, sizeof(path), "%s/log", words->folder);
    TRI_TRY_IN(tri_fs_make_folder(path), "while making the run folder");
    snprintf(path, sizeof(path), "%s/log/rank-0.log", words->folder);
    return tri_log_copy_open(path);
}

/* Servers that whoever started this process speaks of want a run that uses them. */
static tri_status check_servers(const tri_config *config)
{
    tri_cluster_place place;
    TRI_TRY(tri_cluster_detect(NULL, NULL, &place));
    if (place.servers > 0 && config->parallel.sync != TRI_SYNC_PS)
        return tri_fail(TRI_ECONFIG, "parallel.sync: the job has %d parameter servers (started by %s): want ps, got %s",
                        place.servers, place.started_by, tri_sync_kind_word(config->parallel.sync));
    return TRI_OK;
}

/* Whoever is its launcher by then may not be its parent. */
static void exit_tell(const void *arg, int code)
{
    const tri_train_words *words = arg;
    tri_cluster_place place;
    char logs[1300];
    if (!words->elastic || tri_train_alone_s(words) <= 0 || tri_cluster_detect(NULL, NULL, &place) != TRI_OK ||
        place.starts < 0)
        return;
    snprintf(logs, sizeof(logs), "%s/log", words->folder);
    if (tri_fs_is_folder(logs))
        tri_launch_exit_note(logs, place.rank, place.starts, code);
}

static tri_status train_elastic(const tri_train_words *words, const tri_config *config)
{
    int64_t least, most, wait_s = 60;
    TRI_TRY(tri_train_elastic_read(words, &least, &most));
    if (words->wait_s)
        TRI_TRY(tri_flag_int("--wait", words->wait_s, 0, 1000000, &wait_s));
    TRI_TRY_IN(tri_fs_make_folder(words->folder), "while making the run folder"); /* no launcher may have */
    return tri_train_elastic(&(tri_elastic_words){.config_path = words->config_path,
                                                  .overrides = words->overrides,
                                                  .folder = words->folder,
                                                  .resume = words->resume,
                                                  .or_begin = words->keep_on,
                                                  .config = config,
                                                  .least = (int)least,
                                                  .most = (int)most,
                                                  .wait_s = (double)wait_s,
                                                  .alone_s = tri_train_alone_s(words),
                                                  .grace_s = tri_train_grace_s(words),
                                                  .ends = exit_tell,
                                                  .ends_arg = words});
}

/* Rank 0 of a job that others have started: our launcher has looked itself. */
static tri_status folder_check(const tri_train_words *words)
{
    tri_cluster_place place;
    TRI_TRY(tri_cluster_detect(NULL, NULL, &place));
    bool own = place.world == 1 || strncmp(place.started_by, "trireme", 7) == 0;
    return own || place.rank != 0 ? TRI_OK : tri_train_folder_check(words);
}

/* One rank. */
static tri_status train_rank(const tri_train_words *words, const tri_config *config)
{
    tri_comm *comm = NULL;
    tri_job *job = NULL;
    TRI_TRY(log_open_alone(words));
    TRI_TRY(check_servers(config));
    if (words->elastic)
        return train_elastic(words, config);
    if (config->parallel.sync == TRI_SYNC_PS)
        return tri_train_ps(words->config_path, words->overrides, words->folder, words->resume, words->keep_on, config);
    tri_comm_config comm_config = config->comm;
    if (!comm_config.flight[0] && snprintf(comm_config.flight, sizeof(comm_config.flight), "%s/flight",
                                           words->folder) >= (int)sizeof(comm_config.flight))
        comm_config.flight[0] = 0; /* a run folder with so long a name keeps no records */
    char message[TRI_ERROR_NBYTES];
    tri_status refused = folder_check(words); /* before anything is opened there; the others hear of it */
    snprintf(message, sizeof(message), "%s", tri_last_error());
    TRI_TRY(tri_worker_join(&comm_config, &config->net, config->net.timeout_s, &comm));
    if (refused != TRI_OK) {
        tri_comm_abort(comm, refused, message);
        return tri_worker_leave(comm, tri_fail_copy(refused, message));
    }
    tri_group *world = tri_comm_world(comm);
    tri_job_setup setup = {.config = words->config_path,
                           .overrides = words->overrides,
                           .comm = comm,
                           .run_folder = words->folder,
                           .resume = words->resume,
                           .or_begin = words->keep_on,
                           .console = true};
    tri_status status = tri_stop_at_once_begin("before the first step");
    if (status == TRI_OK)
        status = tri_job_open(&setup, &job);
    tri_stop_at_once_end();
    if (status == TRI_OK && tri_group_rank(world) == 0)
        tri_log(TRI_LOG_INFO, "%d ranks, run folder %s", tri_group_count(world), words->folder);
    if (status == TRI_OK)
        status = tri_job_run(job);
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_job_close(job);
    return tri_worker_leave(comm, status == TRI_OK ? TRI_OK : tri_fail_copy(status, message));
}

int tri_train_here(const tri_train_words *words, const tri_config *config)
{
    tri_page_server *page = NULL;
    tri_train_report *report = NULL;
    tri_status status = TRI_OK;
    if (words->page && tri_train_is_started())
        status = tri_fail(TRI_ECONFIG, "--page requires a launcher of ours, or one process alone; of other runs "
                                       "'trireme page RUN' shows the same");
    else if (words->page)
        status = tri_train_page_serve(words, &config->monitor, &page);
    if (status == TRI_OK)
        status = tri_train_report_start(words->folder, config->monitor.report_every_s, &report);
    if (status == TRI_OK)
        status = train_rank(words, config);
    tri_train_report_end(report);
    tri_page_close(page);
    int code = status == TRI_OK ? 0 : tri_command_fail(status);
    tri_log_copy_close();
    fflush(stdout);
    exit_tell(words, code);
    return code;
}

static tri_status evaluate(const tri_train_words *words)
{
    if (!words->folder[0])
        return tri_fail(TRI_ECONFIG,
                        "TF_CONFIG: an evaluator follows the checkpoints of the run: want --out FOLDER (or "
                        "--resume RUN), the same as the chief's, on a file system that both see");
    tri_log_label_set("evaluator");
    return tri_eval_follow(words->folder, NULL, words->overrides, TRI_EVAL_PATIENCE_S);
}

int tri_train_evaluate(const tri_train_words *words)
{
    tri_status status = evaluate(words);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
