/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_child.c: starts one rank: its environment, its pipes, its cores; here or through the remote shell.
 *
 * Everything that allocates happens before fork; between fork and exec there are system calls only. A rank is the
 * leader of a process group of its own and dies with the launcher.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"
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

/* The settings of this rank, without the token. */
static tri_status settings_make(const launch_start *start, const launch_rank *rank, tri_vector *settings)
{
    const char *url = rank->host ? rank->host->store_url : start->store_url;
    int local_world = rank->host ? rank->host->count : start->local_world;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"TRIREME_RANK", rank->rank},
        {"TRIREME_WORLD_SIZE", rank->rank < start->world ? start->world : rank->rank + 1},
        {"TRIREME_LOCAL_RANK", rank->local_rank},
        {"TRIREME_LOCAL_WORLD_SIZE", local_world},
        {"RANK", rank->rank},
        {"WORLD_SIZE", rank->rank < start->world ? start->world : rank->rank + 1},
        {"LOCAL_RANK", rank->local_rank},
        {"LOCAL_WORLD_SIZE", local_world},
        {"MASTER_PORT", start->master_port},
    };

    for (size_t i = 0; i < TRI_COUNT_OF(numbers); i++)
        TRI_TRY(text_push(settings, tri_format("%s=%d", numbers[i].name, numbers[i].value)));
    TRI_TRY(text_push(settings, tri_format("TRIREME_STORE=%s", url)));
    if (start->config->elastic)
        TRI_TRY(text_push(settings, tri_format("TRIREME_STARTS=%d", rank->starts)));
    if (start->initial_members > 0)
        TRI_TRY(text_push(settings, tri_format("TRIREME_INITIAL_MEMBERS=%d", start->initial_members)));
    if (start->beat[0])
        TRI_TRY(text_push(settings, tri_format("TRIREME_BEAT=%s", start->beat)));
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
        bool wanted = all || strncmp(*text, "TRIREME_", 8) == 0 || strncmp(*text, "OMP_NUM_THREADS=", 16) == 0 ||
                      strncmp(*text, "TRACEPARENT=", 12) == 0;

        if (wanted && !is_set_in(&head, *text) && (all || strncmp(*text, "TRIREME_TOKEN=", 14) != 0))
            TRI_TRY(text_push(settings, tri_strdup(*text)));
    }
    return TRI_OK;
}

typedef struct child_plan {
    char *const *argv;
    char *const *environment;
    int input, output[2];
    int go; /* with a journal: a byte comes once the process is there, its end of file if it never will; else -1 */
    pid_t launcher;
} child_plan;

/* With a journal: nobody would know of a process whose launcher dies now. */
static void go_wait(int fd)
{
    char byte;
    ssize_t got;

    while ((got = read(fd, &byte, 1)) < 0 && errno == EINTR) {
    }
    if (got != 1)
        _exit(1);
}

/* In the new process. Does not return. */
static void child_run(const launch_start *start, const launch_rank *rank, const child_plan *plan)
{
    static const int defaults[] = {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGQUIT, SIGUSR1, SIGUSR2};
    int report[2] = {rank->rank, 0};
    struct rlimit files;
    sigset_t none;

    if (plan->go >= 0) {
        setsid(); /* no terminal's and no connection's end is for it */
        go_wait(plan->go);
    } else {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != plan->launcher) /* it died before the line above */
            _exit(1);
    }
    for (size_t i = 0; i < TRI_COUNT_OF(defaults); i++)
        signal(defaults[i], SIG_DFL); /* SIGHUP stays ignored if it was (nohup), and is reset by exec otherwise */
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

/* Where the process reads and writes. */
typedef struct child_ends {
    int input[2], output[2], errors[2], go[2];
} child_ends;

static void ends_close(child_ends *ends)
{
    int *all[] = {&ends->input[0], &ends->output[1], &ends->errors[1], &ends->go[0]};

    for (size_t i = 0; i < TRI_COUNT_OF(all); i++) {
        if (*all[i] >= 0)
            close(*all[i]);
    }
}

static tri_status pipes_make(launch_rank *rank, child_ends *ends)
{
    char whose[32];

    snprintf(whose, sizeof whose, "launch: rank %d", rank->rank);
    TRI_TRY(tri_launch_pipe(ends->output, O_CLOEXEC, whose));
    rank->streams[0].fd = ends->output[0]; /* each at once: a start that fails here is tried again */
    TRI_TRY(tri_launch_pipe(ends->errors, O_CLOEXEC, whose));
    rank->streams[1].fd = ends->errors[0];
    return rank->host ? tri_launch_pipe(ends->input, O_CLOEXEC, whose) : TRI_OK;
}

static tri_status files_make(launch_rank *rank, child_ends *ends)
{
    int *writes[2] = {&ends->output[1], &ends->errors[1]};

    TRI_TRY(tri_launch_files_open(rank, rank->starts == 0));
    for (int i = 0; i < 2; i++) {
        *writes[i] = open(rank->paths[i], O_WRONLY | O_APPEND | O_CLOEXEC);
        if (*writes[i] < 0)
            return tri_fail(TRI_EIO, "%s: cannot open: %s", rank->paths[i], strerror(errno));
    }
    return tri_launch_pipe(ends->go, O_CLOEXEC, "launch");
}

static tri_status ends_make(const launch_start *start, launch_rank *rank, bool inherits, child_ends *ends)
{
    bool keeps = start->keep && !rank->host;

    if (keeps && start->log_folder)
        TRI_TRY(tri_launch_exit_forget(start->log_folder, rank->rank));
    TRI_TRY(keeps ? files_make(rank, ends) : pipes_make(rank, ends));
    if (rank->host)
        return write_token(ends->input[1], start->token);
    if (!inherits && (ends->input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        return tri_fail(TRI_EIO, "/dev/null: cannot open: %s", strerror(errno));
    return TRI_OK;
}

void tri_launch_signal(pid_t pid, int number)
{
    if (kill(-pid, number) != 0)
        kill(pid, number);
}

/* Notes the process, which waits for that. */
static tri_status child_keep(const launch_start *start, const launch_rank *rank, int go)
{
    tri_status status = start->keep(start->keep_arg, rank);

    while (status == TRI_OK && write(go, "", 1) < 0 && errno == EINTR) {
    }
    return status;
}

tri_status tri_launch_child_fork(const launch_start *start, launch_rank *rank, char *const *argv,
                                 char *const *environment)
{
    child_ends ends = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    bool inherits = !rank->host && !start->keep && rank->rank == 0 && !isatty(0);
    tri_status status = ends_make(start, rank, inherits, &ends);

    rank->control = ends.input[1];
    if (status == TRI_OK) {
        const child_plan plan = {.argv = argv,
                                 .environment = environment,
                                 .input = inherits ? -1 : ends.input[0],
                                 .output = {ends.output[1], ends.errors[1]},
                                 .go = ends.go[0],
                                 .launcher = getpid()};

        rank->adopted = false;
        rank->pid = fork();
        if (rank->pid == 0) {
            if (ends.go[1] >= 0)
                close(ends.go[1]); /* its own end would keep it waiting */
            if (rank->host)        /* a connection writes nothing here itself */
                tri_fs_hold_leave();
            child_run(start, rank, &plan);
        }
        if (rank->pid < 0) {
            rank->pid = 0;
            status = tri_fail(TRI_EIO, "launch: cannot start rank %d: %s", rank->rank, strerror(errno));
        }
    }
    ends_close(&ends);
    if (status == TRI_OK && ends.go[1] >= 0)
        status = child_keep(start, rank, ends.go[1]);
    if (ends.go[1] >= 0)
        close(ends.go[1]);
    if (status != TRI_OK)
        return status;
    rank->group = rank->pid;
    if (ends.go[1] < 0)
        setpgid(rank->pid, rank->pid); /* whoever comes first, it or we */
    rank->pidfd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
    for (int i = 0; i < 2; i++)
        fcntl(rank->streams[i].fd, F_SETFL, O_NONBLOCK);
    return TRI_OK;
}

/* The command for another host's shell, and what runs it. */
static tri_status remote_make(const launch_start *start, const launch_rank *rank, char *const *settings,
                              tri_string *command, launch_shell *shell)
{
    bool pick_threads = start->threads == 0 && !getenv("OMP_NUM_THREADS");
    char *folder = getcwd(NULL, 0);
    tri_status status;

    if (!folder)
        status = tri_fail(TRI_EIO, "launch: this process's folder has no name: %s", strerror(errno));
    else if (rank->far.is)
        status = tri_launch_far_command(start, rank, settings, folder, pick_threads, command);
    else
        status = tri_launch_remote_command(settings, start->argv, folder, rank->host->count, pick_threads, command);
    tri_launch_shell(start->config, rank->host->name, rank->host->port, tri_string_text(command), shell);
    free(folder);
    return status;
}

/* What a process that does not exist would have written to. */
static void start_undo(launch_rank *rank)
{
    if (rank->control >= 0)
        close(rank->control);
    rank->control = -1;
    for (int i = 0; i < 2; i++)
        tri_launch_stream_close(&rank->streams[i]);
}

tri_status tri_launch_child_start(const launch_start *start, launch_rank *rank)
{
    tri_vector settings = {.each = sizeof(char *)};
    tri_string command = {0};
    char *end = NULL, *const *argv = start->argv, *const *environment = environ;
    launch_shell shell;
    tri_status status = settings_make(start, rank, &settings);

    if (status == TRI_OK && !rank->host)
        status = text_push(&settings, tri_format("TRIREME_TOKEN=%s", start->token));
    if (status == TRI_OK)
        status = environment_add(&settings, !rank->host);
    if (status == TRI_OK && !tri_vector_push(&settings, &end))
        status = TRI_ENOMEM;
    if (status == TRI_OK && rank->host) {
        tri_launch_words_start(rank);
        status = remote_make(start, rank, settings.items, &command, &shell);
        argv = shell.argv;
    } else {
        environment = settings.items;
    }
    if (status == TRI_OK && rank->far.is)
        status = start->keep(start->keep_arg, rank);
    if (status == TRI_OK)
        status = tri_launch_child_fork(start, rank, argv, environment);
    tri_string_fini(&command);
    texts_free(&settings);
    rank->starts++;
    if (status != TRI_OK && rank->pid == 0)
        start_undo(rank);
    return status;
}
