/* SPDX-License-Identifier: Apache-2.0
 *
 * find.c: the workers of a run on this machine, and how far they are.
 *
 * A worker is a process that was started as a rank (TRIREME_RANK) of `trireme train` in the run's folder. It is held by
 * a pidfd taken before it is looked at, so that a number that the system gives to another process is never struck.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/task.h"
#include "cli/chaos/chaos.h"
#include "cli/run_process.h"

#define LOOK_NS (20 * TRI_NS_PER_MS)

static bool lives(pid_t pid)
{
    tri_task task;
    return tri_task_look(pid, 0, &task) && !tri_task_has_ended(&task);
}

/* --- the job --- */

static bool is_known(const chaos_job *job, pid_t pid)
{
    const chaos_worker *workers = job->workers.items;
    for (size_t i = 0; i < job->workers.count; i++)
        if (workers[i].pid == pid)
            return true;
    return false;
}

static void worker_add(void *arg, pid_t pid)
{
    chaos_job *job = arg;
    char folder[TRI_RUN_FOLDER_NBYTES];
    if (is_known(job, pid))
        return;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    chaos_worker worker = {
        .pid = pid, .pidfd = pidfd, .rank = pidfd < 0 ? -1 : tri_proc_rank(pid), .since_ns = tri_now_ns()};
    bool ours = worker.rank >= 0 && tri_proc_folder(pid, folder) && strcmp(folder, job->folder) == 0;
    if ((!ours || !lives(pid) || !tri_vector_push(&job->workers, &worker)) && pidfd >= 0)
        close(pidfd);
}

static void worker_drop(chaos_worker *worker)
{
    tri_chaos_page_close(worker->page);
    close(worker->pidfd);
}

static int worker_order(const void *a, const void *b)
{
    const chaos_worker *left = a, *right = b;
    return left->rank != right->rank ? left->rank - right->rank : (int)(left->pid - right->pid);
}

void chaos_job_look(chaos_job *job)
{
    chaos_worker *workers = job->workers.items;
    size_t kept = 0;
    for (size_t i = 0; i < job->workers.count; i++) {
        if (chaos_worker_signal(&workers[i], 0) && lives(workers[i].pid))
            workers[kept++] = workers[i];
        else
            worker_drop(&workers[i]);
    }
    job->workers.count = kept;
    tri_pids_visit(worker_add, job);
    workers = job->workers.items;
    for (size_t i = 0; i < job->workers.count; i++)
        if (!workers[i].page)
            workers[i].page = tri_chaos_page_find(workers[i].pid);
    if (job->workers.count > 1)
        qsort(workers, job->workers.count, sizeof(*workers), worker_order);
    job->looked_ns = tri_now_ns();
}

bool chaos_worker_signal(const chaos_worker *worker, int number)
{
    return syscall(SYS_pidfd_send_signal, worker->pidfd, number, NULL, 0) == 0;
}

typedef struct child_search {
    pid_t parent;
    char *folder;
    bool found;
} child_search;

static void child_look(void *arg, pid_t pid)
{
    child_search *search = arg;
    tri_task task;
    if (!search->found && tri_task_look(pid, 0, &task) && !tri_task_has_ended(&task) && task.parent == search->parent &&
        tri_proc_rank(pid) >= 0)
        search->found = tri_proc_folder(pid, search->folder);
}

/* Of the process itself, if it is a rank, or of those that it has started. */
static tri_status folder_find(const char *what, chaos_job *job)
{
    char *end;
    errno = 0;
    long pid = strtol(what, &end, 10);
    if (end != what && !*end && !errno && pid > 0 && !tri_fs_is_folder(what)) {
        child_search search = {.parent = (pid_t)pid, .folder = job->folder};
        search.found = tri_proc_rank((pid_t)pid) >= 0 && tri_proc_folder((pid_t)pid, job->folder);
        if (!search.found)
            tri_pids_visit(child_look, &search);
        return search.found ? TRI_OK
                            : tri_fail(TRI_ENOTFOUND,
                                       "%s: want the id of a 'trireme train -n N', or of one of its workers, got %s",
                                       what, kill((pid_t)pid, 0) == 0 || errno == EPERM ? "another process" : "none");
    }
    char *real = realpath(what, NULL);
    if (!real || strlen(real) >= sizeof(job->folder) || !tri_fs_is_folder(real)) {
        free(real);
        return tri_fail(TRI_ENOTFOUND, "%s: want the folder of a run, or the id of a process, got %s", what,
                        real ? "a file" : "nothing");
    }
    memcpy(job->folder, real, strlen(real) + 1);
    free(real);
    return TRI_OK;
}

tri_status chaos_job_find(const char *what, chaos_job *job)
{
    *job = (chaos_job){.workers = {.each = sizeof(chaos_worker)}, .step = -1};
    TRI_TRY(folder_find(what, job));
    snprintf(job->log.path, sizeof(job->log.path), "%s/metrics.jsonl", job->folder);
    chaos_job_look(job);
    if (job->workers.count == 0)
        return tri_fail(TRI_ENOTFOUND,
                        "%s: no worker of this run is at work on this machine under this user; want one that "
                        "'trireme train -n N' has started",
                        job->folder);
    return TRI_OK;
}

static void log_line(void *arg, const tri_metrics_line *line)
{
    chaos_job *job = arg;
    int64_t step = tri_metrics_line_step(line) + 1;
    job->step = step > job->step ? step : job->step;
}

int64_t chaos_job_step(chaos_job *job)
{
    const chaos_worker *workers;
    bool pages = false;
    bool look = tri_now_ns() - job->looked_ns >= LOOK_NS;
    if (look)
        chaos_job_look(job);
    workers = job->workers.items;
    for (size_t i = 0; i < job->workers.count; i++) {
        int64_t step = workers[i].page ? atomic_load(&workers[i].page->step) : -1;
        pages = pages || workers[i].page;
        job->step = step > job->step ? step : job->step;
    }
    if (!pages && look && tri_metrics_read(&job->log, log_line, job) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s", tri_last_error());
    return job->step;
}

void chaos_job_close(chaos_job *job)
{
    chaos_worker *workers = job->workers.items;
    for (size_t i = 0; i < job->workers.count; i++)
        worker_drop(&workers[i]);
    tri_vector_fini(&job->workers);
}
