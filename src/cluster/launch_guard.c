/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_guard.c: a small process that waits for the launcher's death and then kills what the launcher started.
 *
 * PR_SET_PDEATHSIG reaches the ranks only; what ranks started is found by their process groups, and what left those by
 * the job's token in its environment. Runs between fork and _exit: only system calls, memory made before.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/launch_parts.h"

typedef struct raw_entry {
    uint64_t inode;
    int64_t offset;
    unsigned short nbytes;
    unsigned char type;
    char name[];
} raw_entry;

/* Whether /proc/<name>/environ holds the needle. */
static bool is_marked(int proc, const char *name, const char *needle, size_t needle_nbytes)
{
    char path[48], buffer[8192];
    size_t kept = 0, name_nbytes = strlen(name);
    bool found = false;
    ssize_t got;
    int fd;

    if (name_nbytes > 20)
        return false;
    memcpy(path, name, name_nbytes);
    memcpy(path + name_nbytes, "/environ", 9);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (!found && (got = read(fd, buffer + kept, sizeof buffer - kept)) > 0) {
        size_t held = kept + (size_t)got;

        found = memmem(buffer, held, needle, needle_nbytes) != NULL;
        kept = held < needle_nbytes ? held : needle_nbytes;
        memmove(buffer, buffer + held - kept, kept);
    }
    close(fd);
    return found;
}

static pid_t pid_of(const char *name)
{
    long pid = 0;

    for (; *name; name++) {
        if (*name < '0' || *name > '9' || pid > (1 << 26))
            return 0;
        pid = pid * 10 + (*name - '0');
    }
    return (pid_t)pid;
}

int tri_launch_kill_marked(const char *token)
{
    _Alignas(raw_entry) char buffer[4096];
    char needle[96] = "TRIREME_TOKEN=";
    size_t needle_nbytes = strlen(needle);
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    long got;

    if (proc < 0)
        return 0;
    memcpy(needle + needle_nbytes, token, strlen(token));
    needle_nbytes += strlen(token);
    while ((got = syscall(SYS_getdents64, proc, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < got;) {
            const raw_entry *entry = (const raw_entry *)(void *)(buffer + at);
            pid_t pid = pid_of(entry->name);

            if (pid > 1 && pid != getpid() && is_marked(proc, entry->name, needle, needle_nbytes) &&
                kill(pid, SIGKILL) == 0)
                count++;
            at += entry->nbytes;
        }
    }
    close(proc);
    return count;
}

static void guard_body(int fd, int *pids, int world, const char *token)
{
    int count = 0, message;
    ssize_t got;

    while ((got = read(fd, &message, sizeof message)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof message || message == 0)
            return; /* the launcher ended well */
        if (message > 0 && count < world)
            pids[count++] = message;
        for (int i = 0; message < 0 && i < count; i++) {
            if (pids[i] == -message)
                pids[i] = pids[--count];
        }
    }
    for (int i = 0; i < count; i++)
        kill(-pids[i], SIGKILL);
    for (int round = 0; round < 10 && tri_launch_kill_marked(token) > 0; round++) {
    }
}

tri_status tri_launch_guard_start(launch_guard *guard, int world, const char *token)
{
    int ends[2], nothing;
    sigset_t all;

    *guard = (launch_guard){.fd = -1};
    guard->pids = tri_alloc_zero((size_t)world, sizeof *guard->pids);
    if (!guard->pids)
        return TRI_ENOMEM;
    TRI_TRY(tri_launch_pipe(ends, O_CLOEXEC, "launch"));
    guard->pid = fork();
    if (guard->pid == 0) {
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        setsid();
        prctl(PR_SET_NAME, "trireme-guard");
        nothing = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++)
            dup2(nothing, i);
        dup2(ends[0], 3); /* the one thing it holds open, so that nobody waits for an end of file of ours */
        syscall(SYS_close_range, 4, ~0u, 0);
        guard_body(3, guard->pids, world, token);
        _exit(0);
    }
    close(ends[0]);
    guard->fd = ends[1];
    if (guard->pid < 0) {
        guard->pid = 0;
        return tri_fail(TRI_EIO, "launch: cannot start a process: %s", strerror(errno));
    }
    return TRI_OK;
}

static void tell(const launch_guard *guard, int message)
{
    while (guard->fd >= 0 && write(guard->fd, &message, sizeof message) < 0 && errno == EINTR) {
    }
}

void tri_launch_guard_add(const launch_guard *guard, pid_t group)
{
    tell(guard, group);
}

void tri_launch_guard_remove(const launch_guard *guard, pid_t group)
{
    tell(guard, -group);
}

void tri_launch_guard_stop(launch_guard *guard)
{
    tell(guard, 0);
    if (guard->fd >= 0)
        close(guard->fd);
    while (guard->pid > 0 && waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    tri_free(guard->pids);
    *guard = (launch_guard){.fd = -1};
}
