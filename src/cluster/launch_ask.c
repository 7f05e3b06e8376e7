/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_ask.c: runs a short command on each host of a file by the remote shell, and says how each answered.
 *
 * Hosts are asked many at once, and none is waited for beyond the limit: what does not answer is killed and reported.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/launch_parts.h"

#define AT_ONCE   64
#define ENDING_MS 5

typedef struct asked {
    char *text; /* the beginning of what it wrote, with a 0 byte */
    size_t room, nbytes;
    bool is_quiet; /* what it writes to its error stream is dropped */
    int exit_code; /* as in tri_host_answer */
    pid_t pid;     /* 0: it has ended */
    int fd;        /* its output; -1: closed */
} asked;

static tri_status ask_start(const launch_shell *shell, const char *host, asked *one)
{
    char whose[300];
    int ends[2], nothing;

    snprintf(whose, sizeof whose, "host %s", host);
    TRI_TRY(tri_launch_pipe(ends, O_CLOEXEC, whose));
    one->pid = fork();
    if (one->pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        nothing = open("/dev/null", O_RDWR);
        if (nothing >= 0 && dup2(nothing, 0) >= 0 && dup2(ends[1], 1) >= 0 &&
            dup2(one->is_quiet ? nothing : ends[1], 2) >= 0)
            execvp(shell->argv[0], shell->argv);
        dprintf(ends[1], "%s: cannot be started: %s\n", shell->argv[0], strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    one->fd = ends[0];
    if (one->pid > 0) {
        setpgid(one->pid, one->pid);
        return TRI_OK;
    }
    close(one->fd);
    return tri_fail(TRI_EIO, "host %s: cannot start %s: %s", host, shell->argv[0], strerror(errno));
}

/* Keeps the beginning; false at the end of the output. */
static bool output_read(asked *one)
{
    char waste[512];
    size_t room = one->room - 1 - one->nbytes;
    ssize_t got = read(one->fd, room > 0 ? one->text + one->nbytes : waste, room > 0 ? room : sizeof waste);

    if (got > 0 && room > 0)
        one->nbytes += (size_t)got;
    return got > 0 || (got < 0 && errno == EINTR);
}

static void ask_end(asked *one, bool answered)
{
    int how = 0;

    if (one->fd >= 0)
        close(one->fd);
    one->fd = -1;
    if (!answered)
        kill(-one->pid, SIGKILL);
    while (waitpid(one->pid, &how, 0) < 0 && errno == EINTR) {
    }
    one->pid = 0;
    one->exit_code = !answered ? -1 : WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    one->text[one->nbytes] = 0;
}

/* Takes what has come, and the end of those that have ended; how many are left. */
static size_t answers_take(asked *all, const struct pollfd *polls, size_t count)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        siginfo_t info = {0};

        if (all[i].fd >= 0 && polls[i].revents && !output_read(&all[i])) {
            close(all[i].fd);
            all[i].fd = -1;
        }
        if (all[i].pid > 0 && all[i].fd < 0 &&
            waitid(P_PID, (id_t)all[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
            ask_end(&all[i], true);
        left += all[i].pid > 0;
    }
    return left;
}

static void answers_wait(asked *all, size_t count, int64_t until_ns)
{
    struct pollfd polls[AT_ONCE];
    size_t left = count;

    while (left > 0) {
        int64_t left_ns = until_ns - tri_now_ns();
        int turn_ms = (int)(left_ns / TRI_NS_PER_MS) + 1;

        for (size_t i = 0; i < count; i++) {
            polls[i] = (struct pollfd){.fd = all[i].fd, .events = POLLIN};
            if (all[i].pid > 0 && all[i].fd < 0)
                turn_ms = ENDING_MS; /* only its end is missing, which wakes nobody */
        }
        if (left_ns <= 0 || tri_stop_signal())
            break;
        if (poll(polls, (nfds_t)count, turn_ms) >= 0)
            left = answers_take(all, polls, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].pid > 0)
            ask_end(&all[i], false);
    }
}

static tri_status ask_some(const tri_launch_config *config, const char *command, int limit_ms, tri_host_answer *answers,
                           size_t count)
{
    asked all[AT_ONCE];
    size_t started = 0;
    tri_status status = TRI_OK;

    while (started < count && status == TRI_OK) {
        tri_host_answer *answer = &answers[started];
        launch_shell shell;

        all[started] = (asked){.text = answer->text, .room = sizeof answer->text, .fd = -1};
        tri_launch_shell(config, answer->name, answer->port, command, &shell);
        status = ask_start(&shell, answer->name, &all[started]);
        started += status == TRI_OK;
    }
    answers_wait(all, started, tri_deadline_after_ms(status == TRI_OK ? limit_ms : 0));
    for (size_t i = 0; i < started; i++) {
        answers[i].exit_code = all[i].exit_code;
        answers[i].text[strcspn(answers[i].text, "\r\n")] = 0;
    }
    return status;
}

int tri_launch_shell_ask(const launch_shell *shell, const char *host, int limit_ms, char *text, size_t nbytes)
{
    asked one = {.text = text, .room = nbytes, .is_quiet = true, .fd = -1};

    text[0] = 0;
    if (ask_start(shell, host, &one) != TRI_OK)
        return -1;
    answers_wait(&one, 1, tri_deadline_after_ms(limit_ms));
    return one.exit_code;
}

tri_status tri_launch_hosts_ask(const tri_launch_config *config, char *const *argv, int limit_ms, tri_vector *answers)
{
    tri_vector hosts = {.each = sizeof(launch_host)};
    tri_string command = {0};
    tri_status status = tri_launch_hosts_read(config, &hosts);

    for (size_t i = 0; status == TRI_OK && argv[i]; i++) {
        status = tri_string_append(&command, i > 0 ? " " : "exec ");
        if (status == TRI_OK)
            status = tri_launch_quote(&command, argv[i]);
    }
    for (size_t i = 0; status == TRI_OK && i < hosts.count; i++) {
        const launch_host *host = tri_vector_at(&hosts, i);
        tri_host_answer answer = {.slots = host->slots, .exit_code = -1};

        memcpy(answer.name, host->name, sizeof answer.name);
        memcpy(answer.port, host->port, sizeof answer.port);
        status = tri_vector_push(answers, &answer) ? TRI_OK : TRI_ENOMEM;
    }
    for (size_t i = 0; status == TRI_OK && i < hosts.count; i += AT_ONCE)
        status = ask_some(config, tri_string_text(&command), limit_ms, tri_vector_at(answers, i),
                          hosts.count - i < AT_ONCE ? hosts.count - i : AT_ONCE);
    tri_string_fini(&command);
    tri_vector_fini(&hosts);
    return status;
}
