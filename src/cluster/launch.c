/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: prepares a job of ranks, starts them, has them watched (launch_watch.c), and undoes all of it.
 */
#include "cluster/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "cluster/launch_impl.h"

#define CLEAR_NS                                                                                                       \
    (5 * TRI_NS_PER_S) /* to tidy up behind us, while a store of several members may find itself a leader */

#define TRI_OPTION_STRUCT tri_launch_config
static const tri_option launch_rows[] = {TRI_LAUNCH_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_launch_options =
    TRI_OPTION_TABLE("launch", tri_launch_config, launch_rows, "how processes are started");

/* Ranks to hosts, in the order of the file. */
static tri_status hosts_make(launch *job)
{
    int slots = 0, rank = 0;

    if (!job->config->hosts[0])
        return TRI_OK;
    TRI_TRY(tri_launch_hosts_read(job->config, &job->hosts));
    for (size_t i = 0; i < job->hosts.count; i++) {
        launch_host *host = tri_vector_at(&job->hosts, i);
        int left = job->world - rank;

        slots += host->slots;
        host->first_rank = rank;
        host->count = left < host->slots ? left : host->slots;
        rank += host->count;
    }
    if (rank < job->world)
        return tri_fail(TRI_ECONFIG, "launch.ranks: want at most the %d slots of %s, got %d", slots, job->config->hosts,
                        job->world);
    return TRI_OK;
}

/* Cores and threads of local ranks; other hosts' cores are not ours to see. Parameter servers run where there is room:
 * they have work when workers wait for them. Spares have as many threads as those whose place they take, and no cores
 * of their own: these are free then. */
static tri_status cores_make(launch *job)
{
    int count, each, workers = job->world - (int)job->config->servers - (int)job->config->spares;

    job->start.threads = getenv("OMP_NUM_THREADS") ? 0 : (int)job->config->threads;
    if (job->hosts.count > 0)
        return TRI_OK;
    TRI_TRY(tri_affinity_read(&job->cpus, &count));
    each = count / workers;
    if (!getenv("OMP_NUM_THREADS") && job->config->threads == 0)
        job->start.threads = each > 1 ? each : 1;
    for (int r = 0; r < workers && job->config->bind && each > 0; r++) {
        job->ranks[r].cpus = job->cpus + r * each;
        job->ranks[r].cpu_count = each;
    }
    return TRI_OK;
}

static tri_status ranks_make(launch *job, const char *log_folder, bool quiet_others)
{
    launch_host *hosts = job->hosts.items;
    size_t host = 0;

    if (log_folder)
        TRI_TRY(tri_fs_make_folder(log_folder));
    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];
        bool hides = quiet_others && !job->config->elastic && !job->config->prefix && r > 0;

        while (job->hosts.count > 0 && r >= hosts[host].first_rank + hosts[host].count)
            host++;
        rank->rank = r;
        rank->host = job->hosts.count > 0 ? &hosts[host] : NULL;
        rank->local_rank = rank->host ? r - rank->host->first_rank : r;
        if (log_folder && !job->config->journal[0]) {
            rank->log_path = tri_format("%s/rank-%d.log", log_folder, r);
            if (!rank->log_path)
                return TRI_ENOMEM;
            TRI_TRY(tri_fs_remove(rank->log_path));
        }
        for (int i = 0; i < 2; i++) {
            rank->streams[i] = (launch_stream){.fd = -1,
                                               .rank = r,
                                               .prefix = job->config->prefix,
                                               .sink = hides && i == 0 ? NULL : &job->sinks[i],
                                               .log_path = rank->log_path,
                                               .log_loss = &job->log_loss};
        }
        if (rank->host)
            tri_launch_words_init(rank);
        if (rank->host && job->config->journal[0])
            tri_launch_far_init(job, rank);
    }
    return TRI_OK;
}

/* Signals, descriptors, and being the parent of orphans: what is undone in process_restore. */
static void process_prepare(launch *job)
{
    struct rlimit files;
    sigset_t blocked;

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", O_RDWR); /* so that no pipe of ours gets a number below 3 */
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &blocked, &job->mask_before);
    sigaddset(&job->mask_before, SIGPIPE); /* during ppoll too */
    tri_stop_catch();
    prctl(PR_GET_CHILD_SUBREAPER, &job->subreaper_before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        job->files_before = job->start.files = files.rlim_cur; /* ranks may hold programs that count on a low one */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void process_restore(launch *job, const sigset_t *mask)
{
    sigset_t pipes;
    struct rlimit files;

    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    while (!sigismember(mask, SIGPIPE) && sigtimedwait(&pipes, NULL, &(struct timespec){0}) > 0) {
    }
    prctl(PR_SET_CHILD_SUBREAPER, job->subreaper_before);
    if (job->files_before > 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = job->files_before;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}

static tri_status ranks_start(launch *job)
{
    int ends[2];
    struct rlimit files;
    rlim_t need = 3 * (rlim_t)job->world + 3; /* of fewer ppoll() takes no list of all ranks */
    tri_status status = TRI_OK;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < need)
        return tri_fail(TRI_EIO,
                        "launch: want at least %llu open files for %d ranks, the limit of this process is %llu: ulimit "
                        "-n %llu before it is started, as far as the administrator's limit goes",
                        (unsigned long long)need, job->world, (unsigned long long)files.rlim_cur,
                        4ULL * (unsigned long long)job->world + 256);
    TRI_TRY(tri_launch_pipe(ends, O_CLOEXEC | O_NONBLOCK, "launch"));
    job->report_fd = ends[0];
    job->start.report_fd = ends[1];
    for (int r = 0; r < job->world && status == TRI_OK && !tri_stop_signal(); r++) {
        status = tri_launch_child_start(&job->start, &job->ranks[r]);
        if (job->ranks[r].pid > 0) {
            job->alive++;
            tri_launch_guard_add(&job->guard, job->ranks[r].pid);
        }
    }
    close(ends[1]);
    job->start.report_fd = -1;
    return status;
}

/* A store that others keep, once training is over: nobody comes back for what it holds. */
static void store_clear(launch *job)
{
    if (!job->store || !job->config->store[0])
        return;
    job->store->patience_ns = CLEAR_NS;
    if (tri_launch_is_over(job) && tri_store_clear(job->store, tri_now_ns()) != TRI_OK)
        tri_log(TRI_LOG_WARN, "the keys of this job stay in %s: %s", job->config->store, tri_last_error());
}

static void launch_fini(launch *job)
{
    launch_rank *ranks = job->ranks;

    tri_launch_guard_stop(&job->guard);
    for (int r = 0; ranks && r < job->world; r++) {
        for (int i = 0; i < 2; i++) {
            tri_launch_stream_close(&ranks[r].streams[i]);
            tri_free(ranks[r].paths[i]);
        }
        tri_string_fini(&ranks[r].words.held);
        if (ranks[r].control >= 0)
            close(ranks[r].control);
        tri_free(ranks[r].log_path);
    }
    if (job->report_fd >= 0)
        close(job->report_fd);
    if (job->files_fd >= 0)
        close(job->files_fd);
    tri_launch_beat_stop(job);
    store_clear(job);
    tri_store_close(job->store);
    tri_store_server_stop(job->server);
    tri_journal_close(job->start.journal, job->begun);
    for (int i = 0; i < 2; i++) {
        tri_string_fini(&job->sinks[i].pending);
        tri_map_fini(&job->sinks[i].said);
    }
    tri_vector_fini(&job->hosts);
    tri_free(job->cpus);
    tri_free(job->polls);
    tri_free(job->ranks);
}

/* The store may be somebody else's, and not there: a stop signal ends the wait for it. */
static tri_status meet(launch *job)
{
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, &job->mask_before, &blocked);
    tri_status status = tri_launch_meet(job);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    return status;
}

/* The settings of ranks, and what cares for them besides this process. */
static tri_status job_open(launch *job)
{
    const tri_launch_config *config = job->config;

    if (config->journal[0])
        TRI_TRY(tri_launch_journal_open(job));
    TRI_TRY(cores_make(job));
    TRI_TRY(meet(job));
    /* Ranks get their numbers, and with a journal the files that they write. */
    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];

        rank->rank = rank->streams[0].rank = rank->streams[1].rank = job->first + r;
        if (!job->config->journal[0] || rank->far.is)
            continue;
        rank->paths[0] = tri_format("%s/rank-%d.out", job->log_folder, rank->rank);
        rank->paths[1] = tri_format("%s/rank-%d.log", job->log_folder, rank->rank);
        if (!rank->paths[0] || !rank->paths[1])
            return TRI_ENOMEM;
    }
    if (!config->journal[0])
        return tri_launch_guard_start(&job->guard, job->world, job->token);
    job->start.keep = tri_launch_process_note;
    job->start.keep_arg = job->start.journal;
    /* Where ranks write files: what they have written is there when one of the files has changed. */
    job->files_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (job->files_fd >= 0 && inotify_add_watch(job->files_fd, job->log_folder, IN_MODIFY) < 0) {
        close(job->files_fd);
        job->files_fd = -1; /* looked at often instead */
    }
    return tri_launch_journal_begin(job);
}

tri_status tri_launch_run(const tri_launch_config *config, char *const *argv, const char *log_folder, bool quiet_others,
                          tri_launch_result *result)
{
    launch job = {.config = config,
                  .world = (int)config->ranks,
                  .hosts = {.each = sizeof(launch_host)},
                  .report_fd = -1,
                  .files_fd = -1,
                  .log_folder = log_folder,
                  .guard = {.fd = -1},
                  .result = result};
    sigset_t mask;
    tri_status status = TRI_OK;

    *result = (tri_launch_result){.rank = -1};
    if (!argv[0])
        return tri_fail(TRI_EINVAL, "launch: want a program, got none");
    if (config->spares > 0 && (!config->elastic || config->join[0] || config->spares >= config->ranks))
        return tri_fail(TRI_EINVAL, "launch.spares: want an elastic job, which others begin, got %lld of %lld ranks",
                        (long long)config->spares, (long long)config->ranks);
    if (config->join[0] && !config->elastic)
        return tri_fail(TRI_EINVAL, "launch.join: want an elastic job");
    if (config->journal[0] && (!config->elastic || !log_folder))
        return tri_fail(TRI_EINVAL, "launch.journal: want an elastic job, and a folder for its output");
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int i = 0; i < 2; i++)
        tri_launch_sink_init(&job.sinks[i], 1 + i);
    job.start = (launch_start){.config = config,
                               .argv = argv,
                               .token = job.token,
                               .store_url = job.store_url,
                               .master = job.master,
                               .beat = job.beat,
                               .log_folder = log_folder,
                               .world = job.world,
                               .local_world = job.world};
    process_prepare(&job);
    job.ranks = tri_alloc_zero((size_t)job.world, sizeof *job.ranks);
    job.polls = tri_alloc_zero((size_t)(4 + 3 * job.world), sizeof *job.polls);
    status = job.ranks && job.polls ? hosts_make(&job) : TRI_ENOMEM;
    for (int r = 0; job.ranks && r < job.world; r++)
        job.ranks[r].pidfd = job.ranks[r].control = job.ranks[r].streams[0].fd = job.ranks[r].streams[1].fd = -1;
    if (status == TRI_OK)
        status = ranks_make(&job, log_folder, quiet_others);
    if (status == TRI_OK)
        status = job_open(&job);
    job.begun = status == TRI_OK;
    if (status == TRI_OK && job.attached)
        status = tri_launch_adopt(&job);
    else if (status == TRI_OK)
        status = ranks_start(&job);
    tri_launch_fail(&job, status);
    if (job.alive > 0) {
        if (job.status != TRI_OK)
            tri_launch_stop_others(&job);
        tri_launch_watch(&job);
    }
    if (job.status == TRI_OK && result->rank < 0 && result->exit_code == 0 && tri_stop_signal() && !job.signal_passed)
        result->exit_code = 128 + tri_stop_signal(); /* before any rank ran */
    launch_fini(&job);
    process_restore(&job, &mask);
    if (job.status != TRI_OK)
        tri_fail_copy(job.status, job.message);
    return job.status;
}
