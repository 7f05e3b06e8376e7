/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_child.c: starts one rank: its environment, its pipes, its cores; here or through the remote shell.
 *
 * Everything that allocates happens before fork; between fork and exec there are system calls only. A rank is the
 * leader of a process group of its own and dies with the launcher.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cluster/launch_impl.h"

extern char **environ;

static void texts_free(tri_vector *texts)
{
    char **list = texts->items;

    for (size_t i = 0; i < texts->count; i++)
        tri_free(list[i]);
    tri_vector_fini(texts);
}

/* Takes text (NULL: memory was out). */
static tri_status text_push(tri_vector *texts, char *text)
{
    if (text && tri_vector_push(texts, &text))
        return TRI_OK;
    tri_free(text);
    return TRI_ENOMEM;
}

/* What this rank is told, without the token. */
static tri_status settings_make(const launch_start *start, const launch_rank *rank, tri_vector *settings)
{
    const char *url = rank->host ? rank->host->store_url : start->store_url;
    int local_world = rank->host ? rank->host->count : start->local_world;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"TRIREME_RANK", rank->rank},
        {"TRIREME_WORLD_SIZE", start->world},
        {"TRIREME_LOCAL_RANK", rank->local_rank},
        {"TRIREME_LOCAL_WORLD_SIZE", local_world},
        {"RANK", rank->rank},
        {"WORLD_SIZE", start->world},
        {"LOCAL_RANK", rank->local_rank},
        {"LOCAL_WORLD_SIZE", local_world},
        {"MASTER_PORT", start->master_port},
    };

    for (size_t i = 0; i < TRI_COUNT_OF(numbers); i++)
        TRI_TRY(text_push(settings, tri_format("%s=%d", numbers[i].name, numbers[i].value)));
    TRI_TRY(text_push(settings, tri_format("TRIREME_STORE=%s", url)));
    if (start->config->elastic)
        TRI_TRY(text_push(settings, tri_format("TRIREME_STARTS=%d", rank->starts)));
    TRI_TRY(text_push(settings, tri_format("MASTER_ADDR=%s", start->master)));
    if (start->config->servers > 0)
        TRI_TRY(text_push(settings, tri_format("TRIREME_SERVERS=%d", (int)start->config->servers)));
    if (start->threads > 0)
        TRI_TRY(text_push(settings, tri_format("OMP_NUM_THREADS=%d", start->threads)));
    return TRI_OK;
}

/* Whether the list sets the name of "NAME=value". */
static bool is_set_in(const tri_vector *settings, const char *text)
{
    char *const *list = settings->items;
    size_t nbytes = strcspn(text, "=") + 1;

    for (size_t i = 0; i < settings->count; i++) {
        if (strncmp(list[i], text, nbytes) == 0)
            return true;
    }
    return false;
}

/* Adds what this process's environment holds: all of it, or for another host our own variables. */
static tri_status environment_add(tri_vector *settings, bool all)
{
    size_t own = settings->count;

    for (char **text = environ; *text; text++) {
        tri_vector head = {.items = settings->items, .count = own, .each = sizeof(char *)};
        bool wanted = all || strncmp(*text, "TRIREME_", 8) == 0 || strncmp(*text, "OMP_NUM_THREADS=", 16) == 0;

        if (wanted && !is_set_in(&head, *text) && (all || strncmp(*text, "TRIREME_TOKEN=", 14) != 0))
            TRI_TRY(text_push(settings, tri_strdup(*text)));
    }
    return TRI_OK;
}

typedef struct child_plan {
    char *const *argv;
    char *const *environment;
    int input, output[2];
    pid_t launcher;
} child_plan;

/* In the new process. Does not return. */
static void child_run(const launch_start *start, const launch_rank *rank, const child_plan *plan)
{
    static const int defaults[] = {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP, SIGQUIT};
    int report[2] = {rank->rank, 0};
    struct rlimit files;
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan->launcher) /* it died before the line above */
        _exit(1);
    for (size_t i = 0; i < TRI_COUNT_OF(defaults); i++)
        signal(defaults[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (start->files > 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = (rlim_t)start->files;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (rank->cpus)
        tri_affinity_bind(rank->cpus, rank->cpu_count); /* refused: it runs where it may */
    if ((plan->input < 0 || dup2(plan->input, 0) >= 0) && dup2(plan->output[0], 1) >= 0 &&
        dup2(plan->output[1], 2) >= 0)
        execvpe(plan->argv[0], plan->argv, plan->environment);
    report[1] = errno;
    while (write(start->report_fd, report, sizeof report) < 0 && errno == EINTR) {
    }
    _exit(127);
}

static tri_status write_token(int fd, const char *token)
{
    char line[80];
    int nbytes = snprintf(line, sizeof line, "%s\n", token);

    if (write(fd, line, (size_t)nbytes) != nbytes)
        return tri_fail(TRI_EIO, "launch: cannot write to a new pipe: %s", strerror(errno));
    return TRI_OK;
}

/* Pipes, fork. */
static tri_status child_fork(const launch_start *start, launch_rank *rank, child_plan *plan)
{
    int input[2] = {-1, -1}, output[2] = {-1, -1}, errors[2] = {-1, -1};
    tri_status status = TRI_OK;
    bool inherits = !rank->host && rank->rank == 0 && !isatty(0);

    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0 ||
        (rank->host && pipe2(input, O_CLOEXEC) != 0) ||
        (!rank->host && !inherits && (input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0))
        status = tri_fail(TRI_EIO, "launch: no pipes for rank %d: %s", rank->rank, strerror(errno));
    if (status == TRI_OK && rank->host)
        status = write_token(input[1], start->token);
    if (status == TRI_OK) {
        plan->input = inherits ? -1 : input[0];
        plan->output[0] = output[1];
        plan->output[1] = errors[1];
        plan->launcher = getpid();
        rank->pid = fork();
        if (rank->pid == 0)
            child_run(start, rank, plan);
        if (rank->pid < 0) {
            rank->pid = 0;
            status = tri_fail(TRI_EIO, "launch: cannot start rank %d: %s", rank->rank, strerror(errno));
        }
    }
    if (input[0] >= 0)
        close(input[0]);
    if (output[1] >= 0)
        close(output[1]);
    if (errors[1] >= 0)
        close(errors[1]);
    rank->control = input[1];
    rank->streams[0].fd = output[0];
    rank->streams[1].fd = errors[0];
    if (status != TRI_OK)
        return status;
    rank->group = rank->pid;
    setpgid(rank->pid, rank->pid); /* whoever comes first, it or we */
    rank->pidfd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
    for (int i = 0; i < 2; i++)
        fcntl(rank->streams[i].fd, F_SETFL, O_NONBLOCK);
    return TRI_OK;
}

tri_status tri_launch_child_start(const launch_start *start, launch_rank *rank)
{
    tri_vector settings = {.each = sizeof(char *)};
    tri_string command = {0};
    char *folder = NULL, *remote[4] = {0}, *end = NULL;
    child_plan plan = {.argv = start->argv};
    tri_status status = settings_make(start, rank, &settings);

    if (status == TRI_OK && !rank->host)
        status = text_push(&settings, tri_format("TRIREME_TOKEN=%s", start->token));
    if (status == TRI_OK)
        status = environment_add(&settings, !rank->host);
    if (status == TRI_OK && !tri_vector_push(&settings, &end))
        status = TRI_ENOMEM;
    plan.environment = settings.items;
    if (status == TRI_OK && rank->host) {
        folder = getcwd(NULL, 0);
        status = folder ? tri_launch_remote_command(settings.items, start->argv, folder, rank->host->count,
                                                    start->threads == 0 && !getenv("OMP_NUM_THREADS"), &command)
                        : tri_fail(TRI_EIO, "launch: this process's folder has no name: %s", strerror(errno));
        remote[0] = (char *)(uintptr_t)start->config->ssh;
        remote[1] = rank->host->name;
        remote[2] = command.text;
        plan.argv = remote;
        plan.environment = environ;
    }
    if (status == TRI_OK && rank->host && strcmp(start->config->ssh, "ssh") == 0) {
        /* The option that only ssh itself knows. */
        char *ssh[] = {remote[0], (char[]){"-oBatchMode=yes"}, remote[1], remote[2], NULL};

        plan.argv = ssh;
        status = child_fork(start, rank, &plan);
    } else if (status == TRI_OK) {
        status = child_fork(start, rank, &plan);
    }
    free(folder);
    tri_string_fini(&command);
    texts_free(&settings);
    rank->starts++;
    return status;
}
