/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: starts the ranks, stays with them in one poll loop, and stops all of them for the first that fails.
 *
 * The loop waits for output, for ends of ranks (pidfds) and for stop signals, which are blocked outside ppoll so that
 * none is missed. Nothing in it blocks: not the ranks' pipes, not this process's own output.
 */
#include "cluster/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "cluster/launch_impl.h"

#define TRI_OPTION_STRUCT tri_launch_config
static const tri_option launch_rows[] = {TRI_LAUNCH_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_launch_options =
    TRI_OPTION_TABLE("launch", tri_launch_config, launch_rows, "how processes are started");

#define TICK_NS  (200 * TRI_NS_PER_MS)
#define CUT_NS   TRI_NS_PER_S /* for a remote side to die by itself before its connection is cut */
#define FLUSH_NS (5 * TRI_NS_PER_S)

typedef struct launch {
    const tri_launch_config *config;
    launch_start start;
    launch_rank *ranks;
    int world, alive;
    tri_vector hosts;
    char token[65], store_url[320], master[256];
    tri_store_server *server;
    launch_guard guard;
    launch_sink sinks[2];
    int report_fd;
    int *cpus;
    struct pollfd *polls; /* report, two sinks, then per rank two streams and a pidfd */
    sigset_t mask_before;
    rlim_t files_before;
    int subreaper_before;
    bool is_blocked, stopping, killing, signal_passed, quiet;
    int64_t kill_ns, cut_ns;
    tri_launch_result *result;
    tri_status status; /* of the launcher itself; the first one stays */
    char message[TRI_ERROR_NBYTES];
} launch;

static void note(launch *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(launch *job, const char *format, ...)
{
    va_list args;

    if (job->quiet || job->sinks[1].broken)
        return;
    va_start(args, format);
    tri_string_appendv(&job->sinks[1].pending, format, args);
    va_end(args);
}

static void job_fail(launch *job, tri_status status)
{
    if (job->status != TRI_OK || status == TRI_OK)
        return;
    job->status = status;
    snprintf(job->message, sizeof job->message, "%s", tri_last_error());
}

/* --- signals to ranks ------------------------------------------------------------------------------------------- */

static void rank_signal(launch_rank *rank, int number, const char *name)
{
    if (rank->pid == 0)
        return;
    if (!rank->host)
        kill(-rank->pid, number);
    else if (rank->control >= 0 && dprintf(rank->control, "%s\n", name) < 0)
        kill(-rank->pid, number); /* the connection is gone */
}

static void all_signal(launch *job, int number, const char *name)
{
    for (int r = 0; r < job->world; r++)
        rank_signal(&job->ranks[r], number, name);
}

static void others_stop(launch *job)
{
    if (job->stopping)
        return;
    job->stopping = true;
    all_signal(job, SIGTERM, "TERM");
    job->kill_ns = tri_now_ns() + (int64_t)(job->config->grace_s * (double)TRI_NS_PER_S);
}

static void signals_check(launch *job)
{
    int64_t now_ns = tri_now_ns();
    int number = tri_stop_signal();

    if (number && !job->signal_passed) {
        job->signal_passed = true;
        note(job, "trireme: signal %d (%s) is passed on to all ranks\n", number, strsignal(number));
        all_signal(job, number, number == SIGINT ? "INT" : "TERM");
    }
    if (job->stopping && !job->killing && now_ns >= job->kill_ns) {
        job->killing = true;
        job->cut_ns = now_ns + CUT_NS;
        all_signal(job, SIGKILL, "KILL");
    }
    for (int r = 0; job->killing && now_ns >= job->cut_ns && r < job->world; r++) {
        if (job->ranks[r].pid > 0)
            kill(-job->ranks[r].pid, SIGKILL);
    }
}

/* --- ends of ranks ---------------------------------------------------------------------------------------------- */

/* Reads what a child that could not exec wrote. */
static void report_read(launch *job)
{
    int report[2];

    while (job->report_fd >= 0) {
        ssize_t got = read(job->report_fd, report, sizeof report);

        if (got == (ssize_t)sizeof report) {
            const launch_rank *rank = &job->ranks[report[0]];
            const char *program = rank->host ? job->config->ssh : job->start.argv[0];

            job_fail(job, tri_fail(report[1] == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: cannot be started: %s", program,
                                   strerror(report[1])));
            others_stop(job);
        } else if (got == 0) {
            close(job->report_fd);
            job->report_fd = -1;
        } else if (errno != EINTR) {
            return;
        }
    }
}

/* Reaps it if it ended; its process group goes with it. False: it runs. */
static bool rank_reap(launch *job, launch_rank *rank, siginfo_t *info)
{
    info->si_pid = 0;
    /* Looked at first and reaped after: until then no new process can have its number. */
    if (rank->pid == 0 || waitid(P_PID, (id_t)rank->pid, info, WEXITED | WNOHANG | WNOWAIT) != 0 || info->si_pid == 0)
        return false;
    kill(-rank->pid, SIGKILL);
    tri_launch_guard_remove(&job->guard, rank->pid);
    waitpid(rank->pid, NULL, 0);
    rank->pid = 0;
    job->alive--;
    if (rank->pidfd >= 0)
        close(rank->pidfd);
    if (rank->control >= 0)
        close(rank->control);
    rank->pidfd = rank->control = -1;
    for (int i = 0; i < 2; i++)
        job_fail(job, tri_launch_stream_read(&rank->streams[i]));
    return true;
}

/* Which of two failures seen at once is the cause: a signal, then the program's own code, then "lost a peer". */
static int cause_weight(const tri_launch_result *result)
{
    return result->signal ? 3 : result->exit_code == 3 ? 1 : result->exit_code ? 2 : 0;
}

static void ends_check(launch *job)
{
    tri_launch_result cause = {.rank = -1};

    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];
        tri_launch_result end = {.rank = r};
        siginfo_t info;

        if ((rank->pidfd >= 0 && !job->polls[3 + 3 * r + 2].revents) || !rank_reap(job, rank, &info))
            continue;
        if (info.si_code != CLD_EXITED)
            end.signal = info.si_status;
        else if (rank->host && info.si_status > 128 && info.si_status < 128 + 65)
            end.signal = info.si_status - 128; /* the shell over there reports signals like this */
        end.exit_code = end.signal ? 128 + end.signal : info.si_status;
        if (cause_weight(&end) > cause_weight(&cause))
            cause = end;
    }
    report_read(job);
    if (cause.rank < 0 || job->result->rank >= 0 || job->status != TRI_OK || job->stopping)
        return;
    *job->result = cause;
    if (cause.signal)
        note(job, "trireme: rank %d was killed by signal %d (%s)%s\n", cause.rank, cause.signal,
             strsignal(cause.signal), job->alive > 0 ? "; stopping the others" : "");
    else
        note(job, "trireme: rank %d ended with exit code %d%s%s\n", cause.rank, cause.exit_code,
             job->ranks[cause.rank].host && cause.exit_code == 255 ? " (the remote shell's when it has no connection)"
                                                                   : "",
             job->alive > 0 ? "; stopping the others" : "");
    others_stop(job);
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void sinks_check(launch *job)
{
    for (int i = 0; i < 2; i++)
        tri_launch_sink_write(&job->sinks[i]);
    if (job->sinks[0].broken && !job->stopping) {
        /* Like a program that writes to a closed pipe itself: no words about it. */
        job->quiet = true;
        *job->result = (tri_launch_result){.exit_code = 128 + SIGPIPE, .rank = -1, .signal = SIGPIPE};
        others_stop(job);
    }
}

static void wait_turn(launch *job)
{
    struct pollfd *polls = job->polls;
    int64_t now_ns = tri_now_ns(), left_ns = TICK_NS;
    struct timespec limit;

    polls[0] = (struct pollfd){.fd = job->report_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        polls[1 + i] =
            (struct pollfd){.fd = job->sinks[i].pending.nbytes > 0 ? job->sinks[i].fd : -1, .events = POLLOUT};
    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];

        for (int i = 0; i < 2; i++) {
            bool is_full = tri_launch_sink_is_full(rank->streams[i].sink);

            polls[3 + 3 * r + i] = (struct pollfd){.fd = is_full ? -1 : rank->streams[i].fd, .events = POLLIN};
        }
        polls[3 + 3 * r + 2] = (struct pollfd){.fd = rank->pidfd, .events = POLLIN};
        if (rank->pid > 0 && rank->pidfd < 0)
            left_ns = 5 * TRI_NS_PER_MS; /* an old kernel: look often */
    }
    if (job->stopping && !job->killing && job->kill_ns - now_ns < left_ns)
        left_ns = job->kill_ns > now_ns ? job->kill_ns - now_ns : 0;
    limit = (struct timespec){.tv_nsec = left_ns};
    if (ppoll(polls, (nfds_t)(3 + 3 * job->world), &limit, &job->mask_before) < 0) {
        for (int i = 0; i < 3 + 3 * job->world; i++)
            polls[i].revents = 0;
    }
}

/* Kills and reaps what ranks left behind; it may hold the pipes. */
static void orphans_end(launch *job)
{
    tri_launch_guard_stop(&job->guard);
    for (int round = 0; round < 200 && waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0; round++) {
        int left = tri_launch_kill_marked(job->token);

        for (int r = 0; r < job->world; r++) {
            pid_t pid = 0;

            while (job->ranks[r].group > 0 && (pid = waitpid(-job->ranks[r].group, NULL, WNOHANG)) > 0) {
            }
            left += pid == 0 && job->ranks[r].group > 0;
        }
        if (left == 0)
            break;
        tri_sleep_ns(TRI_NS_PER_MS);
    }
}

static void ranks_watch(launch *job)
{
    int64_t flush_ns = 0;

    while (job->alive > 0) {
        wait_turn(job);
        signals_check(job);
        for (int i = 0; i < 2 * job->world; i++) {
            if (job->polls[3 + 3 * (i / 2) + i % 2].revents)
                job_fail(job, tri_launch_stream_read(&job->ranks[i / 2].streams[i % 2]));
        }
        ends_check(job);
        if (job->status != TRI_OK)
            others_stop(job);
        sinks_check(job);
    }
    orphans_end(job);
    /* The rest of the output, as long as somebody reads it. */
    for (int64_t pending = -1; pending != 0;) {
        int64_t before = pending;

        for (int i = 0; i < 2 * job->world; i++)
            job_fail(job, tri_launch_stream_read(&job->ranks[i / 2].streams[i % 2]));
        sinks_check(job);
        pending = 0;
        for (int i = 0; i < 2; i++)
            pending += job->sinks[i].broken ? 0 : (int64_t)(job->sinks[i].pending.nbytes - job->sinks[i].at);
        if (pending != before)
            flush_ns = tri_now_ns() + FLUSH_NS;
        else if (pending > 0 && tri_now_ns() > flush_ns)
            break;
        if (pending > 0)
            wait_turn(job);
    }
}

/* --- before and after ------------------------------------------------------------------------------------------- */

/* Ranks to hosts, in the order of the file. */
static tri_status hosts_make(launch *job)
{
    char *text;
    size_t nbytes;
    int slots = 0, rank = 0;
    tri_status status;

    if (!job->config->hosts[0])
        return TRI_OK;
    TRI_TRY(tri_fs_read(job->config->hosts, 16u << 20, &text, &nbytes));
    status = tri_launch_hosts_parse(text, nbytes, job->config->hosts, &job->hosts);
    tri_free(text);
    TRI_TRY(status);
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

/* The store and where each host finds it; MASTER_ADDR and MASTER_PORT. */
static tri_status meeting_make(launch *job)
{
    const char *listen = "127.0.0.1";
    char address[64] = "127.0.0.1";
    unsigned char secret[32];
    launch_host *hosts = job->hosts.items;

    tri_entropy(secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(job->token + 2 * i, 3, "%02x", secret[i]);
    for (size_t i = 0; i < job->hosts.count; i++) {
        snprintf(hosts[i].store_url, sizeof hosts[i].store_url, "127.0.0.1");
        if (hosts[i].is_local || hosts[i].count == 0)
            continue;
        TRI_TRY(tri_launch_address(hosts[i].name, address));
        snprintf(hosts[i].store_url, sizeof hosts[i].store_url, "%s", address);
        listen = address[0] == '[' || strcmp(listen, "::") == 0 ? "::" : "0.0.0.0";
    }
    TRI_TRY(tri_store_server_start(listen, 0, job->token, &job->server));
    for (size_t i = 0; i < job->hosts.count; i++) {
        char host[64];

        snprintf(host, sizeof host, "%.63s", hosts[i].store_url);
        snprintf(hosts[i].store_url, sizeof hosts[i].store_url, "tcp://%s:%d", host,
                 tri_store_server_port(job->server));
    }
    snprintf(job->store_url, sizeof job->store_url, "tcp://127.0.0.1:%d", tri_store_server_port(job->server));
    if (job->hosts.count > 0 && !hosts[0].is_local)
        snprintf(job->master, sizeof job->master, "%s",
                 strchr(hosts[0].name, '@') ? strchr(hosts[0].name, '@') + 1 : hosts[0].name);
    else
        snprintf(job->master, sizeof job->master, "%s", address);
    return tri_launch_free_port(&job->start.master_port);
}

/* Cores and threads of local ranks; other hosts' cores are not ours to see. */
static tri_status cores_make(launch *job)
{
    int count, each;

    job->start.threads = getenv("OMP_NUM_THREADS") ? 0 : (int)job->config->threads;
    if (job->hosts.count > 0)
        return TRI_OK;
    TRI_TRY(tri_affinity_read(&job->cpus, &count));
    each = count / job->world;
    if (!getenv("OMP_NUM_THREADS") && job->config->threads == 0)
        job->start.threads = each > 1 ? each : 1;
    for (int r = 0; r < job->world && job->config->bind && each > 0; r++) {
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
        bool hides = quiet_others && !job->config->prefix && r > 0;

        while (job->hosts.count > 0 && r >= hosts[host].first_rank + hosts[host].count)
            host++;
        rank->rank = r;
        rank->host = job->hosts.count > 0 ? &hosts[host] : NULL;
        rank->local_rank = rank->host ? r - rank->host->first_rank : r;
        if (log_folder) {
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
                                               .log_path = rank->log_path};
        }
    }
    return TRI_OK;
}

/* Signals, descriptors, and being the parent of orphans: what is undone in process_restore. */
static void process_prepare(launch *job)
{
    rlim_t need = (rlim_t)job->world * 4 + 256;
    struct rlimit files;
    sigset_t blocked;

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", O_RDWR); /* so that no pipe of ours gets a number below 3 */
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &blocked, &job->mask_before);
    sigaddset(&job->mask_before, SIGPIPE); /* during ppoll too */
    tri_stop_catch();
    prctl(PR_GET_CHILD_SUBREAPER, &job->subreaper_before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < need) {
        job->files_before = job->start.files = files.rlim_cur;
        files.rlim_cur = files.rlim_max < need ? files.rlim_max : need;
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
    tri_status status = TRI_OK;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return tri_fail(TRI_EIO, "launch: no pipe: %s", strerror(errno));
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
    return status;
}

static void launch_fini(launch *job)
{
    launch_rank *ranks = job->ranks;

    tri_launch_guard_stop(&job->guard);
    for (int r = 0; ranks && r < job->world; r++) {
        for (int i = 0; i < 2; i++)
            tri_launch_stream_close(&ranks[r].streams[i]);
        if (ranks[r].control >= 0)
            close(ranks[r].control);
        tri_free(ranks[r].log_path);
    }
    if (job->report_fd >= 0)
        close(job->report_fd);
    tri_store_server_stop(job->server);
    for (int i = 0; i < 2; i++) {
        tri_string_fini(&job->sinks[i].pending);
        tri_map_fini(&job->sinks[i].said);
    }
    tri_vector_fini(&job->hosts);
    tri_free(job->cpus);
    tri_free(job->polls);
    tri_free(job->ranks);
}

tri_status tri_launch_run(const tri_launch_config *config, char *const *argv, const char *log_folder, bool quiet_others,
                          tri_launch_result *result)
{
    launch job = {.config = config,
                  .world = (int)config->ranks,
                  .hosts = {.each = sizeof(launch_host)},
                  .report_fd = -1,
                  .guard = {.fd = -1},
                  .result = result};
    sigset_t mask;
    tri_status status = TRI_OK;

    *result = (tri_launch_result){.rank = -1};
    if (!argv[0])
        return tri_fail(TRI_EINVAL, "launch: want a program, got none");
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int i = 0; i < 2; i++)
        tri_launch_sink_init(&job.sinks[i], 1 + i);
    job.start = (launch_start){.config = config,
                               .argv = argv,
                               .token = job.token,
                               .store_url = job.store_url,
                               .master = job.master,
                               .world = job.world,
                               .local_world = job.world};
    process_prepare(&job);
    job.ranks = tri_alloc_zero((size_t)job.world, sizeof *job.ranks);
    job.polls = tri_alloc_zero((size_t)(3 + 3 * job.world), sizeof *job.polls);
    status = job.ranks && job.polls ? hosts_make(&job) : TRI_ENOMEM;
    for (int r = 0; job.ranks && r < job.world; r++)
        job.ranks[r].pidfd = job.ranks[r].control = job.ranks[r].streams[0].fd = job.ranks[r].streams[1].fd = -1;
    if (status == TRI_OK)
        status = ranks_make(&job, log_folder, quiet_others);
    if (status == TRI_OK)
        status = cores_make(&job);
    if (status == TRI_OK)
        status = meeting_make(&job);
    if (status == TRI_OK)
        status = tri_launch_guard_start(&job.guard, job.world, job.token);
    if (status == TRI_OK)
        status = ranks_start(&job);
    job_fail(&job, status);
    if (job.alive > 0) {
        if (job.status != TRI_OK)
            others_stop(&job);
        ranks_watch(&job);
    }
    if (job.status == TRI_OK && result->rank < 0 && result->exit_code == 0 && tri_stop_signal() && !job.signal_passed)
        result->exit_code = 128 + tri_stop_signal(); /* before any rank ran */
    launch_fini(&job);
    process_restore(&job, &mask);
    if (job.status != TRI_OK)
        tri_fail_copy(job.status, job.message);
    return job.status;
}
