/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c: starts or finds one rank, passes on what it writes and what the launcher sends it, and reports how it
 * ended.
 *
 * rank-N.place says who the rank is: "<id of the job> <start of the machine> <starts> <pid> <start time>". It is locked
 * while it is looked at and written, and the rank runs only once it is there: whatever happens to connections, one
 * start of a rank is made once. Lines for the launcher begin with TRI_FAR_MARK (launch_impl.h).
 */
#include "cluster/attend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "cluster/launch_impl.h"
#include "net/auth.h"

#define TICK_MS 200
#define PATH    1400

extern char **environ;

typedef struct place {
    char job[TRI_AUTH_JOB_NBYTES], boot[40];
    int starts, pid;
    uint64_t start_time;
} place;

typedef struct attendant {
    const tri_attend_setup *setup;
    launch_rank rank;
    launch_sink sink;
    char token[80], job[TRI_AUTH_JOB_NBYTES], boot[40];
    int place_fd, files_fd;
    tri_string heard; /* of standard input: not yet a line */
    bool is_child;
    bool gone; /* the launcher is */
} attendant;

/* --- places --- */

/* False: nobody has written it whole. */
static bool place_read(int fd, place *found)
{
    char text[200];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    return sscanf(text, "%32s %39s %d %d %" SCNu64, found->job, found->boot, &found->starts, &found->pid,
                  &found->start_time) == 5;
}

static bool place_lives(const attendant *here, const place *found)
{
    return strcmp(found->boot, here->boot) == 0 && found->start_time > 0 &&
           tri_launch_began(found->pid) == found->start_time && tri_launch_is_of_job(found->pid, found->job);
}

/* What is left here of a job whose launcher is gone would continue beside this one, in the same folder. */
static void others_end(const attendant *here)
{
    DIR *folder = opendir(here->setup->folder);

    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *dot = strrchr(entry->d_name, '.');
        char path[PATH + 256];
        tri_status status;
        place found;
        int fd;

        if (!dot || strcmp(dot, ".place") != 0)
            continue;
        snprintf(path, sizeof path, "%.1300s/%s", here->setup->folder, entry->d_name);
        status = tri_journal_file_open(path, O_RDONLY, 022, &fd);
        if (status == TRI_ECONFIG)
            tri_log(TRI_LOG_WARN, "not believed: %s", tri_last_error());
        if (status != TRI_OK)
            continue;
        if (place_read(fd, &found) && strcmp(found.job, here->job) != 0 && place_lives(here, &found)) {
            tri_log(TRI_LOG_WARN, "process %d is of an earlier job in %s, whose launcher was killed: it is ended",
                    found.pid, here->setup->folder);
            kill(-found.pid, SIGKILL);
        }
        close(fd);
    }
    if (folder)
        closedir(folder);
}

/* --- the rank --- */

static void threads_set(int local_world)
{
    char text[24];
    int *cpus, count;

    if (local_world <= 0 || getenv("OMP_NUM_THREADS") || tri_affinity_read(&cpus, &count) != TRI_OK)
        return;
    tri_free(cpus);
    snprintf(text, sizeof text, "%d", count > local_world ? count / local_world : 1);
    setenv("OMP_NUM_THREADS", text, 1);
}

/* Between fork and exec: it waits for this. */
static tri_status rank_keep(void *arg, const launch_rank *rank)
{
    attendant *here = arg;
    char text[200];
    int nbytes = snprintf(text, sizeof text, "%s %s %d %d %" PRIu64 "\n", here->job, here->boot, rank->starts,
                          (int)rank->pid, tri_launch_began(rank->pid));
    if (ftruncate(here->place_fd, 0) != 0 || pwrite(here->place_fd, text, (size_t)nbytes, 0) != nbytes)
        return tri_fail(TRI_EIO, "%s/rank-%d.place: cannot write: %s", here->setup->folder, rank->rank,
                        strerror(errno));
    return TRI_OK;
}

static tri_status rank_start(attendant *here)
{
    const launch_start start = {.argv = here->setup->argv,
                                .token = here->token,
                                .keep = rank_keep,
                                .keep_arg = here,
                                .log_folder = here->setup->folder,
                                .report_fd = -1};

    others_end(here);
    threads_set(here->setup->local_world);
    setenv("TRIREME_TOKEN", here->token, 1);
    here->is_child = true;
    return tri_launch_child_fork(&start, &here->rank, here->setup->argv, environ);
}

static tri_status rank_find(attendant *here, const place *found)
{
    launch_rank *rank = &here->rank;

    rank->pid = rank->group = found->pid;
    TRI_TRY(tri_launch_files_open(rank, false));
    rank->pidfd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
    /* Looked at after it is held: this number is nobody else's now. */
    rank->left = !place_lives(here, found);
    return TRI_OK;
}

/* Under the lock of its place. */
static tri_status rank_take(attendant *here)
{
    launch_rank *rank = &here->rank;
    place found = {0};
    bool ours = place_read(here->place_fd, &found) && strcmp(found.job, here->job) == 0;

    if (ours && found.starts > rank->starts)
        return tri_fail(TRI_ECANCELED, "rank %d was started again meanwhile", rank->rank);
    if (ours && found.starts == rank->starts)
        return rank_find(here, &found);
    if (here->setup->again)
        return rank_start(here);
    return rank_find(here, &(place){0}); /* nothing is known of it any more: it has ended somehow */
}

static tri_status rank_open(attendant *here)
{
    char path[PATH];

    TRI_TRY(tri_fs_make_folder(here->setup->folder));
    snprintf(path, sizeof path, "%.1300s/rank-%d.place", here->setup->folder, here->rank.rank);
    TRI_TRY(tri_journal_file_open(path, O_RDWR | O_CREAT, 022, &here->place_fd));
    if (flock(here->place_fd, LOCK_EX) != 0)
        return tri_fail(TRI_EIO, "%s: cannot lock: %s", path, strerror(errno));
    tri_status status = rank_take(here);
    flock(here->place_fd, LOCK_UN);
    return status;
}

/* Its exit code, or 128 + signal, once it has ended; -1: it runs. */
static int rank_code(attendant *here)
{
    launch_rank *rank = &here->rank;
    struct pollfd one = {.fd = rank->pidfd, .events = POLLIN};
    int how;

    if (here->is_child) {
        siginfo_t info = {0};

        if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return -1;
        kill(-rank->pid, SIGKILL); /* before it is reaped: its number is its own still */
        waitpid(rank->pid, &how, 0);
        return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    }
    if (!rank->left && (rank->pidfd >= 0 ? poll(&one, 1, 0) != 1 : kill(rank->pid, 0) == 0))
        return -1;
    how = tri_launch_exit_read(here->setup->folder, rank->rank, rank->starts);
    return how >= 0 ? how : 128 + SIGKILL;
}

/* --- what is said and heard --- */

/* A line of the rank, with how many bytes of its file it ends at. */
static tri_status line_say(launch_stream *stream, const char *line, size_t nbytes)
{
    attendant *here = stream->put_arg;

    TRI_TRY(tri_string_appendf(&here->sink.pending, TRI_FAR_MARK "%d %" PRId64 " ", stream == &here->rank.streams[1],
                               stream->at));
    TRI_TRY(tri_string_append_bytes(&here->sink.pending, line, nbytes));
    return tri_string_append(&here->sink.pending, "\n");
}

static void word_take(attendant *here, const char *word)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"KILL", SIGKILL}};

    for (size_t i = 0; i < TRI_COUNT_OF(signals); i++)
        if (strcmp(word, signals[i].name) == 0 && !here->rank.left)
            tri_launch_signal(here->rank.pid, signals[i].number);
}

/* Whole lines of standard input. Its end: the launcher is gone, and the rank continues without it. */
static void input_hear(attendant *here)
{
    char buffer[256], *end;
    ssize_t got = read(0, buffer, sizeof buffer);

    here->gone = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
    if (got <= 0 || tri_string_append_bytes(&here->heard, buffer, (size_t)got) != TRI_OK)
        return;
    while ((end = memchr(tri_string_text(&here->heard), '\n', here->heard.nbytes)) != NULL) {
        size_t nbytes = (size_t)(end - here->heard.text) + 1;
        *end = 0;
        word_take(here, here->heard.text);
        memmove(here->heard.text, here->heard.text + nbytes, here->heard.nbytes - nbytes + 1);
        here->heard.nbytes -= nbytes;
    }
}

static void turn_wait(attendant *here)
{
    char events[4096];
    struct pollfd polls[] = {{.fd = 0, .events = POLLIN},
                             {.fd = here->files_fd, .events = POLLIN},
                             {.fd = here->rank.pidfd, .events = POLLIN},
                             {.fd = here->sink.pending.nbytes > 0 ? 1 : -1, .events = POLLOUT}};

    if (poll(polls, TRI_COUNT_OF(polls), TICK_MS) <= 0)
        return;
    if (polls[0].revents)
        input_hear(here);
    while (here->files_fd >= 0 && read(here->files_fd, events, sizeof events) > 0) {
    }
}

/* The rest of what it wrote, and behind it how it ended. */
static tri_status end_say(attendant *here, int code)
{
    launch_rank *rank = &here->rank;
    bool said = false;

    if (rank->pidfd >= 0)
        close(rank->pidfd);
    rank->pidfd = -1;
    while (!here->gone && !here->sink.broken && !(said && here->sink.pending.nbytes == 0)) {
        for (int i = 0; i < 2; i++)
            TRI_TRY(tri_launch_stream_finish(&rank->streams[i]));
        if (!said && rank->streams[0].fd < 0 && rank->streams[1].fd < 0) {
            TRI_TRY(tri_string_appendf(&here->sink.pending, TRI_FAR_MARK "end %d\n", code));
            said = true;
        }
        tri_launch_sink_write(&here->sink);
        if (here->sink.pending.nbytes > 0)
            turn_wait(here);
    }
    return TRI_OK;
}

static tri_status stay(attendant *here)
{
    int code = -1;

    TRI_TRY(tri_string_append(&here->sink.pending, TRI_FAR_MARK "begun\n"));
    while (code < 0 && !here->gone) {
        code = rank_code(here);
        for (int i = 0; i < 2; i++)
            TRI_TRY(tri_launch_stream_read(&here->rank.streams[i]));
        tri_launch_sink_write(&here->sink);
        if (code < 0)
            turn_wait(here);
    }
    return here->gone ? TRI_OK : end_say(here, code);
}

/* The first line of standard input, byte by byte: what follows is not ours yet. */
static tri_status token_read(attendant *here)
{
    size_t nbytes = 0;
    char byte = 0;

    while (nbytes < sizeof here->token - 1 && read(0, &byte, 1) == 1 && byte != '\n')
        here->token[nbytes++] = byte;
    if (byte != '\n' || nbytes == 0)
        return tri_fail(TRI_ECONFIG, "attend: want the job's token as the first line of standard input, as a launcher "
                                     "of 'trireme train --hosts' says it, got none");
    return tri_auth_job_id(here->token, here->job);
}

static tri_status boot_read(attendant *here)
{
    char *text;
    size_t nbytes;

    TRI_TRY(tri_fs_read("/proc/sys/kernel/random/boot_id", 4096, &text, &nbytes));
    snprintf(here->boot, sizeof here->boot, "%.*s", (int)strcspn(text, " \n"), text);
    tri_free(text);
    return TRI_OK;
}

static tri_status paths_make(attendant *here)
{
    static const char *const names[] = {"out", "log"};

    for (int i = 0; i < 2; i++) {
        here->rank.paths[i] = tri_format("%s/rank-%d.%s", here->setup->folder, here->rank.rank, names[i]);
        if (!here->rank.paths[i])
            return TRI_ENOMEM;
    }
    here->files_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return TRI_OK;
}

tri_status tri_attend_run(const tri_attend_setup *setup)
{
    attendant here = {.setup = setup, .place_fd = -1, .files_fd = -1};
    launch_rank *rank = &here.rank;
    sigset_t pipes;

    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, NULL);
    *rank = (launch_rank){.rank = setup->rank, .starts = setup->starts, .pidfd = -1, .control = -1};
    tri_launch_sink_init(&here.sink, 1);
    for (int i = 0; i < 2; i++)
        rank->streams[i] = (launch_stream){
            .fd = -1, .rank = setup->rank, .sink = &here.sink, .at = setup->seen[i], .put = line_say, .put_arg = &here};
    tri_status status = token_read(&here);
    if (status == TRI_OK)
        status = boot_read(&here);
    if (status == TRI_OK)
        status = paths_make(&here);
    if (status == TRI_OK)
        status = rank_open(&here);
    for (int i = 0; i < 2 && here.files_fd >= 0 && rank->paths[i]; i++)
        inotify_add_watch(here.files_fd, rank->paths[i], IN_MODIFY);
    if (status == TRI_OK)
        status = stay(&here);
    int fds[] = {here.place_fd, here.files_fd, rank->pidfd};
    for (size_t i = 0; i < TRI_COUNT_OF(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int i = 0; i < 2; i++) {
        tri_launch_stream_close(&rank->streams[i]);
        tri_free(rank->paths[i]);
    }
    tri_string_fini(&here.sink.pending);
    tri_string_fini(&here.heard);
    return status;
}
