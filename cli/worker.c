/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c: what train and bench share: the launch of workers, and being one.
 */
#include "cli/worker.h"

#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "cli/command.h"

tri_status tri_worker_launch(tri_worker_roles roles, const char *hosts, char **argv, const char *log_folder,
                             tri_launch_result *result)
{
    char self[TRI_FS_PROGRAM_NBYTES];
    TRI_TRY(tri_fs_program(self));
    argv[0] = self;
    tri_launch_config config;
    tri_options_defaults(&tri_launch_options, &config);
    config.ranks = roles.workers + roles.servers + roles.spares;
    config.spares = roles.spares;
    config.servers = roles.servers;
    config.restarts = roles.restarts;
    config.elastic = roles.elastic;
    config.prefix = false;
    config.attach = roles.attach;
    const struct {
        const char *field, *value;
    } texts[] = {{"hosts", hosts},       {"journal", roles.journal}, {"grace_s", roles.grace_s},
                 {"store", roles.store}, {"listen", roles.listen},   {"join", roles.join}};
    for (size_t i = 0; i < TRI_COUNT_OF(texts); i++)
        if (texts[i].value)
            TRI_TRY(tri_options_set(&tri_launch_options, &config, texts[i].field, texts[i].value));
    return tri_launch_run(&config, argv, log_folder, true, result);
}

tri_status tri_worker_join(const tri_comm_config *config, const tri_net_config *net, double timeout_s, tri_comm **out)
{
    char label[TRI_LOG_LABEL_NBYTES];
    tri_status status = tri_stop_at_once_begin("while the ranks connected"); /* MPI_Init heeds none by itself */
    if (status == TRI_OK)
        status = tri_comm_join_as(config, net, timeout_s, out);
    tri_stop_at_once_end();
    if (status == TRI_ETIMEOUT)
        tri_command_hint_set("start all ranks with the same number of ranks and the same address of rank 0; "
                             "comm.timeout_s is the limit");
    /* These say what is wrong by themselves, or what another rank found. */
    if (status == TRI_ECONFIG || status == TRI_ETIMEOUT || status == TRI_ECANCELED)
        return status;
    TRI_TRY_IN(status, "while joining the job");
    snprintf(label, sizeof(label), "rank %d", tri_group_rank(tri_comm_world(*out)));
    tri_log_label_set(label);
    return TRI_OK;
}

/* The message of a failure that came from another rank does not say which: its host may lack a file that ours has. */
static void hint_at_cause(tri_comm *comm)
{
    int origin;
    char hint[128];
    (void)tri_comm_cause(comm, &origin);
    if (origin < 0 || origin == tri_group_rank(tri_comm_world(comm)))
        return;
    snprintf(hint, sizeof(hint), "rank %d failed first: look at its output and its host", origin);
    tri_command_hint_set(hint);
}

tri_status tri_worker_leave(tri_comm *comm, tri_status status)
{
    tri_status settled = comm ? tri_comm_settle(comm, status) : status;
    /* What is wrong for all of one host's ranks is said by the first. */
    bool is_said = settled != status && !tri_group_is_between_hosts(tri_comm_world(comm));
    if (comm && status != TRI_OK && !is_said)
        hint_at_cause(comm);
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_comm_leave(comm);
    return settled == TRI_OK ? TRI_OK : tri_fail_copy(settled, message);
}
