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

#include "base/fs.h"
#include "cluster/launch_impl.h"

#define AT_ONCE   64
#define ENDING_MS 5

typedef struct asked {
    tri_host_answer *answer;
    pid_t pid; /* 0: it has ended */
    int fd;    /* both output streams; -1: closed */
    size_t nbytes;
} asked;

static tri_status ask_start(const tri_launch_config *config, const char *command, asked *one)
{
    launch_shell shell;
    char whose[300];
    int ends[2], input;

    tri_launch_shell(config, one->answer->name, one->answer->port, command, &shell);
    snprintf(whose, sizeof whose, "host %s", one->answer->name);
    TRI_TRY(tri_launch_pipe(ends, O_CLOEXEC, whose));
    one->pid = fork();
    if (one->pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        input = open("/dev/null", O_RDONLY);
        if (input >= 0 && dup2(input, 0) >= 0 && dup2(ends[1], 1) >= 0 && dup2(ends[1], 2) >= 0)
            execvp(shell.argv[0], shell.argv);
        dprintf(ends[1], "%s: cannot be started: %s\n", shell.argv[0], strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    one->fd = ends[0];
    if (one->pid > 0) {
        setpgid(one->pid, one->pid);
        return TRI_OK;
    }
    close(one->fd);
    return tri_fail(TRI_EIO, "host %s: cannot start %s: %s", one->answer->name, shell.argv[0], strerror(errno));
}

/* Keeps the beginning; false at the end of the output. */
static bool output_read(asked *one)
{
    char waste[512];
    size_t room = sizeof one->answer->text - 1 - one->nbytes;
    ssize_t got = read(one->fd, room > 0 ? one->answer->text + one->nbytes : waste, room > 0 ? room : sizeof waste);

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
    one->answer->exit_code = !answered ? -1 : WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    one->answer->text[strcspn(one->answer->text, "\r\n")] = 0;
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
        all[started] = (asked){.answer = &answers[started], .fd = -1};
        status = ask_start(config, command, &all[started]);
        started += status == TRI_OK;
    }
    answers_wait(all, started, tri_deadline_after_ms(status == TRI_OK ? limit_ms : 0));
    return status;
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
