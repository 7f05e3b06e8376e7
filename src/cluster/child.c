/* SPDX-License-Identifier: Apache-2.0
 *
 * child.c: fork and exec of one program. Everything that allocates happens before fork.
 */
#include "cluster/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/launch_parts.h"

extern char **environ;

/* This process's environment with OMP_NUM_THREADS; the strings are borrowed, the list is the caller's. */
static char **environment_make(char *threads)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **list = tri_alloc_zero(count + 2, sizeof(*list));
    size_t kept = 0;
    for (size_t i = 0; list && i < count; i++)
        if (!threads || strncmp(environ[i], "OMP_NUM_THREADS=", 16) != 0)
            list[kept++] = environ[i];
    if (list && threads)
        list[kept] = threads;
    return list;
}

/* In the new process; does not return. */
static void child_run(const tri_child_setup *setup, char *const *environment, int output, pid_t parent)
{
    static const int defaults[] = {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t none;
    setpgid(0, 0); /* Ctrl-C is for the parent, which asks its children to stop */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(1);
    for (size_t i = 0; i < TRI_COUNT_OF(defaults); i++)
        signal(defaults[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setup->cpu_count > 0)
        tri_affinity_bind(setup->cpus, setup->cpu_count); /* refused: it runs where it may */
    int input = open("/dev/null", O_RDONLY);
    if (input >= 0 && dup2(input, 0) >= 0 && dup2(output, 1) >= 0 && dup2(output, 2) >= 0)
        execve(setup->program ? setup->program : "/proc/self/exe", setup->argv, environment);
    _exit(127);
}

tri_status tri_child_start(const tri_child_setup *setup, tri_child *child)
{
    char threads[40];
    *child = (tri_child){0};
    snprintf(threads, sizeof(threads), "OMP_NUM_THREADS=%d", setup->threads);
    int output = open(setup->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (output < 0)
        return tri_fail(TRI_EIO, "%s: cannot open: %s", setup->output, strerror(errno));
    char **environment = environment_make(setup->threads > 0 ? threads : NULL);
    pid_t parent = getpid(), pid = environment ? fork() : -1;
    if (pid == 0)
        child_run(setup, environment, output, parent);
    const int error = errno;
    close(output);
    tri_free(environment);
    if (!environment)
        return TRI_ENOMEM;
    if (pid < 0)
        return tri_fail(TRI_EIO, "cannot start a process: %s", strerror(error));
    child->pid = pid;
    return TRI_OK;
}

static int code_of(int state)
{
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

bool tri_child_has_ended(tri_child *child, int *exit_code)
{
    int state = 0;
    if (child->pid == 0 || waitpid(child->pid, &state, WNOHANG) == 0)
        return false;
    *exit_code = code_of(state);
    child->pid = 0;
    return true;
}

void tri_child_ask_to_stop(const tri_child *child)
{
    if (child->pid > 0)
        kill(child->pid, SIGTERM);
}

void tri_child_kill(tri_child *child)
{
    int state;
    if (child->pid == 0)
        return;
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, &state, 0) < 0 && errno == EINTR) {
    }
    child->pid = 0;
}

tri_status tri_child_cores(int **cpus, int *count)
{
    return tri_affinity_read(cpus, count);
}
