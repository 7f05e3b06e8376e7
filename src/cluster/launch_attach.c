/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_attach.c: a launcher that takes over the ranks of one that was killed, by the journal that both have.
 *
 * Keys: command (the words of the first launcher, each with a 0 byte), folder (it was started in), job (what ranks were
 * given: token, ports, counts), hosts, process/<rank> ("<starts> <pid> <start time>" of one that has not been seen to
 * end; on another host "<starts> <1: it was begun> 0"), seen/<rank>/<stream> (bytes of its output that were passed on),
 * restarted. A process is known again by its start time: numbers come twice.
 * Its exit code, which only a parent gets, it leaves itself, in log/rank-N.exit.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/task.h"
#include "cluster/launch_impl.h"
#include "net/auth.h"

#define KEY            48
#define COMMAND_NBYTES (1u << 20)
#define ENVIRON_NBYTES (8u << 20)
#define EXEC_LOOKS     10 /* until a child that was forked runs its program */
#define EXEC_NS        (10 * TRI_NS_PER_MS)

/* --- processes --- */

uint64_t tri_launch_began(pid_t pid)
{
    tri_task task;

    return tri_task_look(pid, 0, &task) && !tri_task_has_ended(&task) ? task.start_ticks : 0;
}

/* The token of a process's environment; false: it has none, or it may not be seen. */
static bool token_find(pid_t pid, char token[65])
{
    static const char name[] = "TRIREME_TOKEN=";
    char path[48], *text;
    size_t nbytes;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (tri_fs_read(path, ENVIRON_NBYTES, &text, &nbytes) != TRI_OK)
        return false;
    for (size_t at = 0; at < nbytes && !found; at += strlen(text + at) + 1) {
        found = strncmp(text + at, name, sizeof name - 1) == 0;
        if (found)
            snprintf(token, 65, "%s", text + at + sizeof name - 1);
    }
    tri_free(text);
    return found;
}

bool tri_launch_is_of_job(pid_t pid, const char *id)
{
    char token[65], own[TRI_AUTH_JOB_NBYTES];

    for (int i = 0; i < EXEC_LOOKS; i++) {
        if (i > 0)
            tri_sleep_ns(EXEC_NS);
        if (tri_launch_began(pid) == 0)
            return false;
        if (token_find(pid, token) && tri_auth_job_id(token, own) == TRI_OK && strcmp(own, id) == 0)
            return true;
    }
    return false;
}

tri_status tri_launch_process_note(void *journal, const launch_rank *rank)
{
    int pid = rank->far.is ? rank->far.begun : (int)rank->pid;
    char key[KEY], text[80];

    snprintf(key, sizeof key, "process/%d", rank->rank);
    int nbytes = snprintf(text, sizeof text, "%d %d %" PRIu64, rank->starts, pid,
                          rank->far.is ? 0 : tri_launch_began(rank->pid));
    tri_journal_put(journal, key, text, (size_t)nbytes);
    return TRI_OK;
}

void tri_launch_process_forget(tri_journal *journal, const launch_rank *rank)
{
    char key[KEY];

    snprintf(key, sizeof key, "process/%d", rank->rank);
    tri_journal_put(journal, key, NULL, 0);
}

void tri_launch_process_lost(tri_journal *journal, const launch_rank *rank)
{
    char key[KEY], text[80];

    snprintf(key, sizeof key, "process/%d", rank->rank);
    /* A start time that no process has. */
    int nbytes = snprintf(text, sizeof text, "%d %d 1", rank->starts - 1, (int)rank->group);
    tri_journal_put(journal, key, text, (size_t)nbytes);
}

void tri_launch_seen_note(tri_journal *journal, launch_rank *rank)
{
    char key[KEY], text[24];

    for (int i = 0; i < 2; i++) {
        launch_stream *stream = &rank->streams[i];

        int64_t whole = rank->far.is ? rank->far.seen[i] : stream->at - (int64_t)stream->line.nbytes;

        if (whole == stream->noted)
            continue;
        stream->noted = whole;
        snprintf(key, sizeof key, "seen/%d/%d", rank->rank, i);
        int nbytes = snprintf(text, sizeof text, "%" PRId64, whole);
        tri_journal_put(journal, key, text, (size_t)nbytes);
    }
}

/* --- exit codes --- */

static void exit_path(char path[1400], const char *log_folder, int rank)
{
    snprintf(path, 1400, "%.1300s/rank-%d.exit", log_folder, rank);
}

void tri_launch_exit_note(const char *log_folder, int rank, int starts, int exit_code)
{
    char path[1400], text[48];

    exit_path(path, log_folder, rank);
    int nbytes = snprintf(text, sizeof text, "%d %d\n", starts, exit_code);
    mode_t mask = umask(022); /* a file that others may write is not believed */
    tri_status status = tri_fs_write_swap(path, text, (size_t)nbytes);
    umask(mask);
    if (status != TRI_OK)
        tri_log(TRI_LOG_WARN,
                "a launcher that was not there from the beginning will not know how this process ended: %s",
                tri_last_error());
}

tri_status tri_launch_exit_forget(const char *log_folder, int rank)
{
    char path[1400];

    exit_path(path, log_folder, rank);
    return tri_fs_remove(path);
}

int tri_launch_exit_read(const char *log_folder, int rank, int starts)
{
    char path[1400], text[48];
    int fd, found, code;

    exit_path(path, log_folder, rank);
    tri_status status = tri_journal_file_open(path, O_RDONLY, 022, &fd);
    if (status == TRI_ECONFIG)
        tri_log(TRI_LOG_WARN, "how a process ended is not believed: %s", tri_last_error());
    if (status != TRI_OK)
        return -1;
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    bool good = sscanf(text, "%d %d", &found, &code) == 2 && found == starts && code >= 0 && code < 256;
    return good ? code : -1;
}

/* --- a journal that was left --- */

static launch_rank *rank_of(launch *job, const char *key, const char *prefix)
{
    size_t nbytes = strlen(prefix);
    int number;

    if (strncmp(key, prefix, nbytes) != 0 || sscanf(key + nbytes, "%d", &number) != 1)
        return NULL;
    return number >= job->first && number < job->first + job->world ? &job->ranks[number - job->first] : NULL;
}

static tri_status entry_take(void *arg, const char *key, const char *bytes, size_t nbytes)
{
    launch *job = arg;
    launch_rank *rank;
    const char *last = strrchr(key, '/');
    int pid;

    (void)nbytes;
    if (strcmp(key, "restarted") == 0) {
        job->restarted = strtoll(bytes, NULL, 10);
    } else if ((rank = rank_of(job, key, "process/")) != NULL) {
        if (sscanf(bytes, "%d %d %" SCNu64, &rank->starts, &pid, &rank->start_time) == 3) {
            rank->pid = rank->far.is ? 0 : pid;
            rank->far.begun = pid > 0;
        }
        rank->starts++; /* their number, with this one */
        rank->adopted = true;
    } else if ((rank = rank_of(job, key, "seen/")) != NULL && (last[1] == '0' || last[1] == '1')) {
        rank->streams[last[1] - '0'].at = rank->far.seen[last[1] - '0'] = strtoll(bytes, NULL, 10);
    }
    return TRI_OK;
}

/* "name slots ..." of all hosts; "": the ranks are here. */
static tri_status hosts_text(launch *job, tri_string *out)
{
    for (size_t i = 0; i < job->hosts.count; i++) {
        const launch_host *host = tri_vector_at(&job->hosts, i);
        TRI_TRY(tri_string_appendf(out, "%s%s%s%s %d", i > 0 ? ", " : "", host->name, host->port[0] ? " port=" : "",
                                   host->port, host->slots));
    }
    return TRI_OK;
}

static tri_status hosts_compare(launch *job, const char *bytes)
{
    tri_string now = {0};
    tri_status status = hosts_text(job, &now);

    if (status == TRI_OK && strcmp(tri_string_text(&now), bytes) != 0)
        status = tri_fail(TRI_ECONFIG,
                          "%s is of a job on other hosts, whose launcher was killed: want '%.200s', got '%.200s'",
                          job->config->journal, bytes[0] ? bytes : "no --hosts", tri_string_text(&now));
    tri_string_fini(&now);
    return status;
}

/* What is the same for all ranks: before theirs. */
static tri_status job_take(void *arg, const char *key, const char *bytes, size_t nbytes)
{
    launch *job = arg;
    int world;

    (void)nbytes;
    if (strcmp(key, "hosts") == 0)
        return hosts_compare(job, bytes);
    if (strcmp(key, "store") == 0)
        snprintf(job->store_url, sizeof job->store_url, "%s", bytes);
    if (strcmp(key, "job") == 0) {
        if (sscanf(bytes, "%64s %d %d %d %d %d", job->token, &job->port, &job->start.master_port, &world, &job->first,
                   &job->start.initial_members) != 6)
            return tri_fail(TRI_EFORMAT, "%s: want token, ports and numbers of processes of a job, got another text",
                            job->config->journal);
        if (world != job->world)
            return tri_fail(TRI_ECONFIG,
                            "%s is of a job of %d processes, whose launcher was killed: want -n %d, got %d",
                            job->config->journal, world, world, job->world);
        job->attached = true;
    }
    return TRI_OK;
}

/* A process with the number that was noted, which began then and has this job's token: not one that came later, nor one
 * that somebody else has written into the file. */
static bool lives(const launch_rank *rank, const char *id)
{
    return rank->start_time > 0 && tri_launch_began(rank->pid) == rank->start_time &&
           tri_launch_is_of_job(rank->pid, id);
}

/* Whether somebody lives, or all have said how they ended: else there is nothing to continue with. */
static bool is_worth_it(launch *job)
{
    bool any = false, reported = true;
    char id[TRI_AUTH_JOB_NBYTES];

    if (!job->attached || tri_auth_job_id(job->token, id) != TRI_OK)
        return false;
    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];

        rank->rank = job->first + r;
        if (!rank->adopted)
            continue;
        /* Those of other hosts are asked when they are taken on. */
        bool here = rank->far.is || lives(rank, id);
        any = any || here;
        reported = reported && (here || tri_launch_exit_read(job->log_folder, rank->rank, rank->starts - 1) >= 0);
    }
    return any || reported;
}

static tri_status begin_again(launch *job)
{
    if (job->config->attach)
        return tri_fail(TRI_ENOTFOUND, "%s: want a run whose launcher was killed and whose workers continue, got none",
                        job->config->journal);
    if (job->attached)
        tri_log(TRI_LOG_WARN, "a launcher of this run was killed, and none of its workers is left: it begins again");
    job->attached = false;
    job->port = job->start.master_port = job->first = job->start.initial_members = 0;
    job->store_url[0] = 0;
    job->restarted = 0;
    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];

        rank->pid = rank->starts = 0;
        rank->adopted = rank->far.begun = false;
        rank->far.seen[0] = rank->far.seen[1] = 0;
        rank->streams[0].at = rank->streams[1].at = 0;
    }
    return tri_journal_clear(job->start.journal);
}

tri_status tri_launch_journal_open(launch *job)
{
    if (job->config->attach && !tri_fs_exists(job->config->journal))
        return begin_again(job);
    TRI_TRY(tri_journal_open(job->config->journal, &job->start.journal));
    TRI_TRY(tri_journal_each(job->start.journal, job_take, job));
    TRI_TRY(tri_journal_each(job->start.journal, entry_take, job));
    return is_worth_it(job) ? TRI_OK : begin_again(job);
}

tri_status tri_launch_journal_begin(launch *job)
{
    char text[200], *command, *folder;
    size_t command_nbytes;
    tri_string hosts = {0};
    tri_journal *journal = job->start.journal;

    if (job->attached)
        return TRI_OK;
    TRI_TRY(tri_fs_read("/proc/self/cmdline", COMMAND_NBYTES, &command, &command_nbytes));
    tri_journal_put(journal, "command", command, command_nbytes);
    tri_free(command);
    folder = getcwd(NULL, 0);
    if (folder)
        tri_journal_put(journal, "folder", folder, strlen(folder));
    free(folder);
    TRI_TRY(hosts_text(job, &hosts));
    tri_journal_put(journal, "hosts", tri_string_text(&hosts), hosts.nbytes);
    tri_string_fini(&hosts);
    tri_journal_put(journal, "store", job->store_url, strlen(job->store_url));
    int nbytes = snprintf(text, sizeof text, "%s %d %d %d %d %d", job->token, job->port, job->start.master_port,
                          job->world, job->first, job->start.initial_members);
    tri_journal_put(journal, "job", text, (size_t)nbytes);
    return TRI_OK;
}

/* --- taking on --- */

static bool has_ended(int pidfd)
{
    struct pollfd one = {.fd = pidfd, .events = POLLIN};

    return poll(&one, 1, 0) == 1;
}

tri_status tri_launch_adopt(launch *job)
{
    char id[TRI_AUTH_JOB_NBYTES];
    int here = 0;

    TRI_TRY(tri_auth_job_id(job->token, id));

    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];

        if (!rank->adopted)
            continue;
        if (rank->far.is) { /* the next turn of the watch connects */
            rank->adopted = false;
            rank->far.again_ns = tri_now_ns();
            here++;
            job->alive++;
            continue;
        }
        TRI_TRY(tri_launch_files_open(rank, false));
        rank->group = rank->pid;
        rank->pidfd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
        /* Looked at after it is held: this number is nobody else's now. */
        rank->left = !lives(rank, id) || (rank->pidfd >= 0 && has_ended(rank->pidfd));
        if (rank->left && rank->pidfd >= 0) {
            close(rank->pidfd);
            rank->pidfd = -1;
        }
        here += !rank->left;
        job->alive++;
    }
    tri_log(TRI_LOG_INFO, "the launcher of this run was killed: this one takes over %d worker%s of it", here,
            here == 1 ? "" : "s");
    return TRI_OK;
}

/* --- the command --- */

typedef struct command {
    char *words, *folder;
    size_t nbytes;
} command;

static tri_status command_take(void *arg, const char *key, const char *bytes, size_t nbytes)
{
    command *found = arg;
    char *copy = NULL;

    if (strcmp(key, "command") != 0 && strcmp(key, "folder") != 0)
        return TRI_OK;
    copy = tri_alloc(nbytes + 1);
    if (!copy)
        return TRI_ENOMEM;
    memcpy(copy, bytes, nbytes + 1);
    if (key[0] == 'f') {
        found->folder = copy;
    } else {
        found->words = copy;
        found->nbytes = nbytes;
    }
    return TRI_OK;
}

tri_status tri_launch_command_read(const char *path, char ***words, int *count, char **folder)
{
    tri_journal *journal;
    command found = {0};

    if (!tri_fs_exists(path))
        return tri_fail(TRI_ENOTFOUND, "%s: want a run whose launcher was killed, got no journal of one", path);
    TRI_TRY(tri_journal_open(path, &journal));
    tri_status status = tri_journal_each(journal, command_take, &found);
    tri_journal_close(journal, false);
    *words = NULL;
    *count = 0;
    for (size_t at = 0; at < found.nbytes; at += strlen(found.words + at) + 1)
        ++*count;
    if (status == TRI_OK && (!found.words || !found.folder || *count == 0))
        status = tri_fail(TRI_ENOTFOUND,
                          "%s: want the journal of a launcher that was killed since this machine was "
                          "started, got none",
                          path);
    if (status == TRI_OK && !(*words = tri_alloc_zero((size_t)*count + 1, sizeof **words)))
        status = TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_free(found.words);
        tri_free(found.folder);
        return status;
    }
    size_t at = 0;
    for (int i = 0; i < *count; i++) {
        (*words)[i] = found.words + at;
        at += strlen(found.words + at) + 1;
    }
    *folder = found.folder;
    return TRI_OK;
}
