/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: `trireme launch`: any program on N ranks, here or on a list of hosts.
 */
#include "cluster/launch.h"

#include "base/ask.h"
#include "cli/command.h"

typedef struct launch_flags {
    const char *ranks, *servers, *hosts, *threads, *no_bind, *no_prefix, *grace_s, *log;
} launch_flags;

static launch_flags given;
static const tri_flag flags[] = {
    {"-n", "N", "number of processes (default: 1; with --hosts: as many as there are slots)", &given.ranks},
    {"--servers", "N", "start N parameter servers beside them: the last ranks (<trireme/ps.h>)", &given.servers},
    {"--hosts", "FILE",
     "start them by ssh: one '[user@]host [slots=N] [port=N]' per line; slurm: by srun on the nodes of this job",
     &given.hosts},
    {"--threads", "N", "threads of each rank (default: cores divided by local ranks)", &given.threads},
    {"--no-bind", NULL, "do not give each rank cores of its own", &given.no_bind},
    {"--no-prefix", NULL, "do not put '[rank] ' before each line of output", &given.no_prefix},
    {"--grace", "SECONDS", "time between SIGTERM and SIGKILL when the other processes have to stop", &given.grace_s},
    {"--log", "FOLDER", "also write rank-N.log there", &given.log},
};

static tri_status config_make(tri_launch_config *config)
{
    tri_options_defaults(&tri_launch_options, config);
    const struct {
        const char *field, *value;
    } values[] = {{"ranks", given.ranks},     {"servers", given.servers},
                  {"threads", given.threads}, {"bind", given.no_bind ? "false" : NULL},
                  {"grace_s", given.grace_s}, {"prefix", given.no_prefix ? "false" : NULL},
                  {"usr2_all", "true"}};
    for (size_t i = 0; i < TRI_COUNT_OF(values); i++)
        if (values[i].value)
            TRI_TRY(tri_options_set(&tri_launch_options, config, values[i].field, values[i].value));
    if (given.hosts) {
        TRI_TRY(tri_options_set(&tri_launch_options, config, "hosts", given.hosts));
        if (!given.ranks)
            TRI_TRY(tri_launch_hosts_share(given.hosts, config->servers, &config->ranks));
    }
    config->ranks += config->servers;
    return TRI_OK;
}

int cmd_launch(int argc, char **argv)
{
    int count;
    tri_status status = tri_flags_parse(tri_command_of(cmd_launch), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    tri_launch_config config;
    tri_launch_result result;
    if (status == TRI_OK)
        status = config_make(&config);
    if (status == TRI_OK && count == 0)
        status = tri_fail(TRI_ECONFIG, "want a program to start: trireme launch -n 2 -- PROGRAM [ARG ...]");
    if (status != TRI_OK)
        return tri_command_fail(status);
    tri_stop_catch();
    tri_ask_catch();
    argv[count] = NULL;
    status = tri_launch_run(&config, argv, given.log, false, &result);
    return status == TRI_OK ? result.exit_code : tri_command_fail(status);
}
