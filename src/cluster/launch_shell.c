/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_shell.c: which hosts there are, and what runs a command line on one: the lines of a file and ssh, or the nodes
 * of the Slurm job that this process runs in and srun.
 *
 * The word "slurm" in place of a file makes a launcher of a batch script: its ranks need no ssh, and where one of them
 * or its node dies it stays, so that the others can continue.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cluster/environment.h"
#include "cluster/launch_parts.h"

#define HOSTS_FILE_LIMIT (16u << 20)

static bool is_slurm(const tri_launch_config *config)
{
    return strcmp(config->hosts, "slurm") == 0;
}

tri_status tri_launch_hosts_slurm(tri_cluster_lookup lookup, void *arg, tri_vector *hosts)
{
    const char *list = lookup("SLURM_JOB_NODELIST", arg), *tasks = lookup("SLURM_TASKS_PER_NODE", arg);
    char own[256];
    int count;

    if (!list || !tasks)
        return tri_fail(TRI_ECONFIG, "hosts slurm: want %s, which a job of Slurm has, got nothing",
                        list ? "SLURM_TASKS_PER_NODE" : "SLURM_JOB_NODELIST");
    TRI_TRY_IN(tri_environment_node(list, 0, own, &count), "SLURM_JOB_NODELIST");
    for (int i = 0; i < count; i++) {
        launch_host host = {.slots = 1};
        int beyond;

        TRI_TRY_IN(tri_environment_node(list, i, host.name, &beyond), "SLURM_JOB_NODELIST");
        TRI_TRY(tri_environment_tasks(tasks, i, &host.slots));
        if (!tri_vector_push(hosts, &host))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

static const char *lookup_own(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

tri_status tri_launch_hosts_read(const tri_launch_config *config, tri_vector *hosts)
{
    char *text;
    size_t nbytes;
    tri_status status;

    if (is_slurm(config))
        return tri_launch_hosts_slurm(lookup_own, NULL, hosts);
    TRI_TRY_IN(tri_fs_read(config->hosts, HOSTS_FILE_LIMIT, &text, &nbytes), "while reading the list of hosts");
    status = tri_launch_hosts_parse(text, nbytes, config->hosts, hosts);
    tri_free(text);
    return status;
}

tri_status tri_launch_hosts_slots(const char *path, int64_t *slots)
{
    tri_vector hosts = {.each = sizeof(launch_host)};
    tri_launch_config config;
    tri_status status;

    *slots = 0;
    tri_options_defaults(&tri_launch_options, &config);
    TRI_TRY(tri_options_set(&tri_launch_options, &config, "hosts", path));
    status = tri_launch_hosts_read(&config, &hosts);
    for (size_t i = 0; i < hosts.count; i++)
        *slots += ((launch_host *)tri_vector_at(&hosts, i))->slots;
    tri_vector_fini(&hosts);
    return status;
}

tri_status tri_launch_hosts_share(const char *path, int64_t taken, int64_t *ranks)
{
    TRI_TRY(tri_launch_hosts_slots(path, ranks));
    if (*ranks <= taken)
        return tri_fail(TRI_ECONFIG, "%s: want a slot besides the %lld of servers and spares, got %lld slots", path,
                        (long long)taken, (long long)*ranks);
    *ranks -= taken;
    return TRI_OK;
}

static void shell_make(launch_shell *shell, const char *const *words)
{
    int count = 0;

    for (; *words; words++)
        shell->argv[count++] = (char *)(uintptr_t)*words;
    shell->argv[count] = NULL;
}

void tri_launch_shell(const tri_launch_config *config, const char *host, const char *port, const char *command,
                      launch_shell *shell)
{
    const char *at = port[0] ? "-p" : NULL;

    if (is_slurm(config)) {
        /* One step each: the end of one, or of its node, ends no other. The job's resources are shared by the steps. */
        snprintf(shell->node, sizeof shell->node, "--nodelist=%s", host);
        shell_make(shell, (const char *const[]){"srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none",
                                                shell->node, "sh", "-c", command, NULL});
    } else if (strcmp(config->ssh, "ssh") == 0) { /* a host that does not answer, or no longer, is to be seen soon */
        shell_make(shell, (const char *const[]){"ssh", "-oBatchMode=yes", "-oConnectTimeout=10",
                                                "-oServerAliveInterval=5", "-oServerAliveCountMax=3", at ? at : host,
                                                at ? port : command, at ? host : NULL, command, NULL});
    } else { /* the options are some that only ssh itself knows */
        shell_make(shell, (const char *const[]){config->ssh, at ? at : host, at ? port : command, at ? host : NULL,
                                                command, NULL});
    }
}

void tri_launch_shell_settings(const tri_launch_config *config, const char *host, const char *port, launch_shell *shell)
{
    const char *at = port[0] ? "-p" : NULL;

    shell_make(shell,
               (const char *const[]){config->ssh, "-G", at ? at : host, at ? port : NULL, at ? host : NULL, NULL});
}

const char *tri_launch_shell_name(const tri_launch_config *config)
{
    return is_slurm(config) ? "srun" : config->ssh;
}

tri_status tri_launch_quote(tri_string *out, const char *text)
{
    TRI_TRY(tri_string_append(out, "'"));
    for (const char *quote; (quote = strchr(text, '\'')) != NULL; text = quote + 1) {
        TRI_TRY(tri_string_append_bytes(out, text, (size_t)(quote - text)));
        TRI_TRY(tri_string_append(out, "'\\''"));
    }
    TRI_TRY(tri_string_append(out, text));
    return tri_string_append(out, "'");
}
