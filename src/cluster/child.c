/* SPDX-License-Identifier: Apache-2.0
 *
 * child.c: fork and exec of one program. Everything that allocates happens before fork.
 */
#include "cluster/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/launch_parts.h"

#define OTHERS_MOST 2

extern char **environ;

static bool is_replaced(const char *entry, char *const *others)
{
    for (; *others; others++)
        if (strncmp(entry, *others, strcspn(*others, "=") + 1) == 0)
            return true;
    return false;
}

/* This process's environment with `others` (NULL at the end); the strings are borrowed, the list is the caller's. */
static char **environment_make(char *const *others)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **list = tri_alloc_zero(count + OTHERS_MOST + 1, sizeof(*list));
    for (size_t i = 0; list && i < count; i++)
        if (!is_replaced(environ[i], others))
            list[kept++] = environ[i];
    for (; list && *others; others++)
        list[kept++] = *others;
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
    char threads[40], cards[TRI_CHILD_CARDS_NBYTES + 24], *others[OTHERS_MOST + 1] = {NULL};
    int count = 0;
    *child = (tri_child){0};
    snprintf(threads, sizeof(threads), "OMP_NUM_THREADS=%d", setup->threads);
    snprintf(cards, sizeof(cards), "CUDA_VISIBLE_DEVICES=%s", setup->cards ? setup->cards : "");
    if (setup->threads > 0)
        others[count++] = threads;
    if (setup->cards)
        others[count++] = cards;
    int output = open(setup->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (output < 0)
        return tri_fail(TRI_EIO, "%s: cannot open: %s", setup->output, strerror(errno));
    char **environment = environment_make(others);
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

/* The number-th word of a list with commas; its length. */
static int word_find(const char *list, int number, const char **word)
{
    for (; number > 0 && *list; number--)
        list += strcspn(list, ",") + (list[strcspn(list, ",")] == ',');
    *word = list;
    return (int)strcspn(list, ",");
}

void tri_child_cards(int first, int count, char *text, size_t capacity)
{
    const char *seen = getenv("CUDA_VISIBLE_DEVICES"), *word;
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < count && used < capacity; i++) {
        const int card = (first + i) % count, length = seen ? word_find(seen, card, &word) : 0;
        const int added = seen ? snprintf(text + used, capacity - used, "%s%.*s", i > 0 ? "," : "", length, word)
                               : snprintf(text + used, capacity - used, "%s%d", i > 0 ? "," : "", card);
        used += (size_t)(added > 0 ? added : 0);
    }
}

tri_status tri_child_cores(int **cpus, int *count)
{
    return tri_affinity_read(cpus, count);
}
