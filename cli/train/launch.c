/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: the parent of the workers: this program on N ranks with the same words, and what is served beside them.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/train/metrics.h"
#include "cli/train/train.h"
#include "net/host.h"

/* What --servers stands for in the configuration. */
#define SERVERS_WORD "parallel.sync=ps"
/* What the launcher serves, workers leave where it finds it. */
#define METRICS_WORD "monitor.metrics=" TRI_MONITOR_GATHERED

void tri_train_journal_path(const char *folder, bool joins, char path[1300])
{
    char host[TRI_HOST_ID_NBYTES];
    tri_host_id(host);
    snprintf(path, 1300, "%.1200s/launcher%s%s.journal", folder, joins ? "-" : "", joins ? host : "");
}

tri_status tri_train_page_serve(const tri_train_words *words, const tri_monitor_config *monitor, tri_page_server **out)
{
    const tri_page_place at = {.address = words->page,
                               .names = monitor->http_names,
                               .tls_cert = monitor->tls_cert,
                               .tls_key = monitor->tls_key};
    char url[256], *folders[] = {(char *)(uintptr_t)words->folder};
    TRI_TRY_IN(tri_fs_make_folder(words->folder), "while making the run folder");
    TRI_TRY_IN(tri_page_serve(&at, folders, 1, url, out), "--page");
    tri_log(TRI_LOG_INFO, "page of this run at %s", url);
    return TRI_OK;
}

int tri_train_launch(const tri_train_words *words, tri_worker_roles roles, const tri_monitor_config *monitor)
{
    const char *out = words->out ? words->out_given : words->resume ? words->resume_given : words->folder;
    char *argv[1024] = {NULL, "train", (char *)words->config_path, "--out", (char *)out};
    int count = 5;
    if (words->keep_on) {
        argv[count++] = "--continue";
    } else if (words->resume) {
        argv[count++] = "--resume";
        argv[count++] = (char *)words->resume_given;
    }
    if (words->elastic) {
        argv[count++] = "--elastic";
        argv[count++] = (char *)words->elastic;
    }
    if (words->wait_s) {
        argv[count++] = "--wait";
        argv[count++] = (char *)words->wait_s;
    }
    if (words->alone_s) {
        argv[count++] = "--alone";
        argv[count++] = (char *)words->alone_s;
    }
    if (words->grace_s) {
        argv[count++] = "--grace";
        argv[count++] = (char *)words->grace_s;
    }
    for (int i = 0; words->overrides[i]; i++) {
        if (count + 3 == (int)TRI_COUNT_OF(argv))
            return tri_command_fail(tri_fail(TRI_ECONFIG, "too many section.key=value words: want at most %d", i));
        argv[count++] = (char *)words->overrides[i];
    }
    char logs[1300], journal[1300];
    if (roles.servers > 0)
        argv[count++] = SERVERS_WORD;
    /* With Slurm a launcher that dies takes its steps along. */
    bool by_slurm = words->hosts && strcmp(words->hosts, "slurm") == 0;
    if (words->elastic && !by_slurm && tri_train_alone_s(words) > 0) {
        tri_train_journal_path(words->folder, words->join != NULL, journal);
        roles.journal = journal;
        roles.attach = words->attach != NULL;
    }
    if (monitor->metrics[0])
        argv[count++] = METRICS_WORD;
    snprintf(logs, sizeof(logs), "%s/log", words->folder);
    tri_status status = words->join ? TRI_OK : tri_train_folder_begin(words, roles.journal);
    if (status == TRI_OK)
        status = tri_fs_make_folder(logs);
    tri_launch_result result;
    tri_http *http = NULL;
    tri_page_server *page = NULL;
    if (status == TRI_OK && monitor->metrics[0] && strcmp(monitor->metrics, TRI_MONITOR_GATHERED) != 0)
        status = tri_train_metrics_serve(monitor, words->folder, &http);
    if (status == TRI_OK && words->page)
        status = tri_train_page_serve(words, monitor, &page);
    if (status == TRI_OK)
        status = tri_worker_launch(roles, words->hosts, argv, logs, &result);
    tri_page_close(page);
    tri_http_close(http);
    return status == TRI_OK ? result.exit_code : tri_command_fail(status);
}
