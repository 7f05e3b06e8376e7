/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_watch.c: stays with the ranks in one poll loop, and stops all of them for the first that fails.
 *
 * The loop waits for output, for ends of ranks (pidfds) and for stop signals, which are blocked outside ppoll so that
 * none is missed. Nothing in it blocks: not the ranks' pipes, not this process's own output.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ask.h"
#include "cluster/launch_impl.h"
#include "cluster/members.h"

#define TICK_NS      (200 * TRI_NS_PER_MS)
#define CUT_NS       TRI_NS_PER_S /* for a remote side to die by itself before its connection is cut */
#define FLUSH_NS     (5 * TRI_NS_PER_S)
#define MARK_DEAD_NS (500 * TRI_NS_PER_MS)
#define ASK_NS       (300 * TRI_NS_PER_MS)

#define SHELL_CODE 255 /* of ssh itself */

/* --- signals to ranks ------------------------------------------------------------------------------------------- */

static void rank_signal(launch_rank *rank, int number, const char *name)
{
    if (rank->far.is) {
        tri_launch_far_signal(rank, name);
        return;
    }
    if (rank->pid == 0 || (rank->adopted && rank->left)) /* its number may be another process's */
        return;
    if (!rank->host)
        tri_launch_signal(rank->pid, number);
    else if (!rank->words.begun) /* a remote shell that is still connecting */
        kill(-rank->pid, number);
    else if (rank->control >= 0 && dprintf(rank->control, "%s\n", name) < 0)
        kill(-rank->pid, number); /* the connection is gone */
}

static void all_signal(launch *job, int number, const char *name)
{
    for (int r = 0; r < job->world; r++)
        rank_signal(&job->ranks[r], number, name);
}

/* Asks all to end, by the signal that this process got, since a program may know more than one way to end. To one of
 * those that come and go all but SIGINT say that it alone shall leave. */
static void all_end(launch *job, int number)
{
    static const struct {
        int number;
        const char *name;
    } rows[] = {{SIGINT, "INT"}, {SIGHUP, "HUP"}, {SIGUSR1, "USR1"}, {SIGTERM, "TERM"}};
    size_t i = 0;

    if (job->config->elastic)
        number = SIGINT;
    while (i < TRI_COUNT_OF(rows) - 1 && rows[i].number != number)
        i++;
    all_signal(job, rows[i].number, rows[i].name);
}

void tri_launch_stop_others(launch *job)
{
    if (job->stopping)
        return;
    job->stopping = true;
    if (!job->signal_passed) /* they are ending already; a second signal would end them in the midst of it */
        all_end(job, SIGTERM);
    job->kill_ns = tri_now_ns() + (int64_t)(job->config->grace_s * (double)TRI_NS_PER_S);
}

/* Ranks of ours that do not listen yet are asked later, and one is enough: it tells the others. Of other programs all
 * that listen get the signal. */
static void ask_pass(launch *job)
{
    int asked = tri_ask_take();
    bool here = false;

    if (asked > 0 && job->config->usr2_all) {
        for (int r = 0; r < job->world; r++)
            if (job->ranks[r].pid > 0 && !job->ranks[r].host)
                (void)tri_ask_send(job->ranks[r].pid, asked);
        return;
    }
    job->asked = asked > 0 ? asked : job->asked;
    for (int r = 0; job->asked > 0 && r < job->world; r++) {
        const launch_rank *rank = &job->ranks[r];
        here = here || (rank->pid > 0 && !rank->host);
        if (rank->pid > 0 && !rank->host && tri_ask_send(rank->pid, job->asked) == TRI_OK)
            job->asked = 0;
    }
    if (job->asked > 0 && !here) {
        tri_launch_say(job, "trireme: all ranks are on other hosts: a trace is asked for by 'trireme trace RUN'\n");
        job->asked = 0;
    }
}

static void signals_check(launch *job)
{
    int number = tri_stop_signal();

    ask_pass(job);
    if (number && !job->signal_passed) {
        job->signal_passed = true;
        tri_launch_say(job, "trireme: signal %d (%s) is passed on to all ranks\n", number, strsignal(number));
        all_end(job, number);
    }
}

/* Behind ends_check(): who has ended by itself was not killed here. */
static void grace_check(launch *job)
{
    int64_t now_ns = tri_now_ns();

    if (job->stopping && !job->killing && now_ns >= job->kill_ns) {
        job->killing = true;
        job->cut_ns = now_ns + CUT_NS;
        all_signal(job, SIGKILL, "KILL");
    }
    for (int r = 0; job->killing && now_ns >= job->cut_ns && r < job->world; r++) {
        if (job->ranks[r].far.is)
            tri_launch_far_leave(job, &job->ranks[r]);
        else if (job->ranks[r].pid > 0)
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
            const launch_rank *rank = &job->ranks[report[0] - job->first];
            const char *program = rank->host ? tri_launch_shell_name(job->config) : job->start.argv[0];

            tri_launch_fail(job, tri_fail(report[1] == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: cannot be started: %s",
                                          program, strerror(report[1])));
            tri_launch_stop_others(job);
        } else if (got == 0) {
            close(job->report_fd);
            job->report_fd = -1;
        } else if (errno != EINTR) {
            return;
        }
    }
}

/* An adopted rank is no child: its pidfd tells of its end, and the file it left of how. One without such a file was
 * killed, by whatever signal. */
static bool adopted_ended(const launch *job, const launch_rank *rank, siginfo_t *info)
{
    struct pollfd one = {.fd = rank->pidfd, .events = POLLIN};

    if (!rank->left && (rank->pidfd >= 0 ? poll(&one, 1, 0) != 1 : kill(rank->pid, 0) == 0))
        return false;
    int code = tri_launch_exit_read(job->log_folder, rank->rank, rank->starts - 1);
    info->si_pid = rank->pid;
    info->si_code = code >= 0 ? CLD_EXITED : CLD_KILLED;
    info->si_status = code >= 0 ? code : SIGKILL;
    return true;
}

/* Looked at first and reaped after: until then no new process can have its number. */
bool tri_launch_child_ended(launch_rank *rank, siginfo_t *info)
{
    info->si_pid = 0;
    if (waitid(P_PID, (id_t)rank->pid, info, WEXITED | WNOHANG | WNOWAIT) != 0 || info->si_pid == 0)
        return false;
    kill(-rank->pid, SIGKILL);
    return true;
}

/* Reaps it if it ended; its process group goes with it. False: it runs. */
static bool rank_reap(launch *job, launch_rank *rank, siginfo_t *info)
{
    if (rank->far.is
            ? !tri_launch_far_ended(job, rank, info)
            : rank->pid == 0 || !(rank->adopted ? adopted_ended(job, rank, info) : tri_launch_child_ended(rank, info)))
        return false;
    tri_launch_guard_remove(&job->guard, rank->pid);
    if (!rank->adopted && !rank->far.is)
        waitpid(rank->pid, NULL, 0);
    rank->pid = 0;
    job->alive--;
    if (job->start.journal)
        tri_launch_process_forget(job->start.journal, rank);
    if (rank->pidfd >= 0)
        close(rank->pidfd);
    if (rank->control >= 0)
        close(rank->control);
    rank->pidfd = rank->control = -1;
    for (int i = 0; i < 2; i++)
        tri_launch_fail(job, tri_launch_stream_finish(&rank->streams[i]));
    return true;
}

/* Which of two failures seen at once is the cause: a signal, then a configuration that cannot be, then another code of
 * the program's own, then "lost a peer". */
static int cause_weight(const tri_launch_result *result)
{
    if (result->signal)
        return 4;
    if (result->exit_code == TRI_LAUNCH_CONFIG_CODE)
        return 3;
    return result->exit_code == TRI_LAUNCH_PEER_CODE ? 1 : result->exit_code ? 2 : 0;
}

/* The others need not find out themselves. */
static void rank_mark_dead(launch *job, const launch_rank *rank)
{
    char id[TRI_MEMBER_NBYTES];

    snprintf(id, sizeof id, "%d.%d", rank->rank, rank->starts - 1);
    if (tri_members_mark_dead(job->store, id, tri_now_ns() + MARK_DEAD_NS) != TRI_OK)
        tri_launch_say(job, "trireme: cannot tell the others that rank %d has ended: %s\n", rank->rank,
                       tri_last_error());
}

/* A signal came to this worker alone while it was no member: it has nothing to save, and the run is not asked to end.
 * Of members SIGINT ends all. */
static bool was_stopped_early(const launch *job, launch_rank *rank, int code)
{
    char id[TRI_MEMBER_NBYTES];
    bool listed = true;

    if (code == 128 + SIGHUP || code == 128 + SIGUSR1)
        return true;
    if (code != 128 + SIGINT || !job->store)
        return false;
    snprintf(id, sizeof id, "%d.%d", rank->rank, rank->starts - 1);
    rank->lost.unasked = tri_members_is_listed(job->store, id, &listed, tri_now_ns() + ASK_NS) != TRI_OK;
    return !rank->lost.unasked && !listed;
}

/* Says so, and tells the others. */
static bool has_stopped_early(launch *job, launch_rank *rank, int code)
{
    if (!was_stopped_early(job, rank, code))
        return false;
    tri_launch_say(job,
                   "trireme: worker %d was stopped by a signal before it was a member (exit code %d) and is "
                   "not started again; the others continue\n",
                   rank->rank, code);
    rank_mark_dead(job, rank);
    return true;
}

/* One that was asked to leave, and could not within its grace, or had not begun, has said so and ended. Its place is
 * taken back by whoever asked, so it is not started again here. */
static bool has_left(launch *job, launch_rank *rank, const siginfo_t *info)
{
    int code = info->si_status;

    if (!job->config->elastic || info->si_code != CLD_EXITED || job->signal_passed || job->stopping ||
        !tri_launch_has_others(job))
        return false;
    if (code != TRI_LAUNCH_LEFT_CODE)
        return has_stopped_early(job, rank, code);
    tri_launch_say(job, "trireme: worker %d left before its step had ended (exit code %d); the others continue\n",
                   rank->rank, code);
    rank_mark_dead(job, rank);
    return true;
}

/* It does not fit the run: started again it would be refused again. */
static bool was_refused(launch *job, launch_rank *rank, int code)
{
    char key[TRI_MEMBER_NBYTES + 16], *why = NULL;
    size_t nbytes = 0;

    if (!job->config->elastic || !job->store || code != TRI_LAUNCH_CONFIG_CODE || job->stopping ||
        !tri_launch_has_others(job))
        return false;
    /* A claim is answered whether the key is there or not. */
    snprintf(key, sizeof key, "refused/%d.%d", rank->rank, rank->starts - 1);
    tri_status status = tri_store_claim(job->store, key, "", 0, &why, &nbytes, tri_now_ns() + ASK_NS);
    rank->lost.unasked = status != TRI_OK;
    if (status == TRI_OK && nbytes == 0) /* ours */
        (void)tri_store_remove(job->store, key, tri_now_ns() + ASK_NS);
    if (status == TRI_OK)
        tri_free(why);
    if (status != TRI_OK || nbytes == 0)
        return false;
    tri_launch_say(job, "trireme: worker %d does not fit the run and is not started again; the others continue\n",
                   rank->rank);
    return true;
}

bool tri_launch_is_dismissed(launch *job, launch_rank *rank)
{
    int code = rank->lost.exit_code;

    rank->lost.unasked = false;
    if (!tri_launch_has_others(job))
        return false;
    return code == TRI_LAUNCH_CONFIG_CODE ? was_refused(job, rank, code) : has_stopped_early(job, rank, code);
}

/* The remote shell's own end, before anything ran over there. */
static bool has_no_connection(const launch_rank *rank, const tri_launch_result *end)
{
    return rank->host && end->exit_code == SHELL_CODE && !rank->words.begun;
}

/* An end without a connection is this run's failure, not the program's: exit code 1. */
static void cause_tell(launch *job, tri_launch_result *cause)
{
    launch_rank *rank = &job->ranks[cause->rank - job->first];
    bool stops = job->alive > 0 && !job->signal_passed && !job->stopping;
    const char *others = stops ? "; stopping the others" : "";
    const char *shell = tri_launch_shell_name(job->config);

    if (cause->signal) {
        char words[LAUNCH_DEATH_NBYTES];
        tri_launch_death_words(job, rank, cause->signal, words);
        tri_launch_say(job, "trireme: rank %d %s%s\n", cause->rank, words, others);
    } else if (has_no_connection(rank, cause)) {
        const char *reason =
            tri_launch_words_reason(rank) ? rank->words.reason : "it ended with exit code 255, silently";

        tri_launch_say(job, "trireme: rank %d: no connection to host %s: %s ('%s %s%s%s true' says more)%s\n",
                       cause->rank, rank->host->name, reason, shell, rank->host->port[0] ? "-p " : "", rank->host->port,
                       rank->host->name, others);
        cause->exit_code = 1;
    } else {
        if (rank->host)
            tri_launch_fail(job, tri_launch_words_begun(rank));
        tri_launch_say(job, "trireme: rank %d ended with exit code %d%s\n", cause->rank, cause->exit_code, others);
    }
}

/* It ended as all_end() asked it to, whatever the signal was that this process got. */
static bool was_asked(const launch *job, const tri_launch_result *end)
{
    return job->config->elastic && job->signal_passed && end->exit_code == 128 + SIGINT;
}

/* A rank that lost a peer may end, and be seen, before that peer: the cause is the peer's death by a signal that was
 * not ours (elastic workers are ended by other signals, and start again), or a configuration that cannot be, whichever
 * was faster. Who was asked to stop keeps the code of that. */
static void cause_settle(launch *job, tri_launch_result *end)
{
    if (!job->stopping || job->signal_passed || job->result->rank < 0 || job->result->signal)
        return;
    if (!end->signal && end->exit_code == TRI_LAUNCH_CONFIG_CODE) {
        job->result->exit_code = TRI_LAUNCH_CONFIG_CODE;
    } else if (!job->config->elastic && end->signal && end->signal != SIGTERM && !job->killing &&
               job->result->exit_code == TRI_LAUNCH_PEER_CODE) {
        cause_tell(job, end);
        *job->result = *end;
    }
}

static void ends_check(launch *job)
{
    tri_launch_result cause = {.rank = -1};

    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];
        tri_launch_result end = {.rank = rank->rank};
        siginfo_t info;

        if ((rank->pidfd >= 0 && !job->polls[3 + 3 * r + 2].revents) || !rank_reap(job, rank, &info))
            continue;
        rank->lost.unasked = false;
        if (has_left(job, rank, &info))
            continue;
        if (info.si_code != CLD_EXITED)
            end.signal = info.si_status;
        else if (rank->host && info.si_status > 128 && info.si_status < 128 + 65 && !job->signal_passed)
            end.signal = info.si_status - 128; /* the shell over there reports signals like this */
        end.exit_code = end.signal ? 128 + end.signal : info.si_status;
        if (has_no_connection(rank, &end) && tri_launch_login_again(job, rank))
            continue;
        if (job->store && end.exit_code != 0) /* else it has reported it itself */
            rank_mark_dead(job, rank);
        if (was_refused(job, rank, end.exit_code))
            continue;
        if (!has_no_connection(rank, &end) && tri_launch_loss_bear(job, rank, &end))
            continue;
        if (end.signal && job->config->elastic && job->signal_passed && tri_launch_has_others(job)) {
            cause_tell(job, &end); /* the others save, and end as they were asked to */
            continue;
        }
        cause_settle(job, &end);
        if (cause_weight(&end) > cause_weight(&cause))
            cause = end;
    }
    report_read(job);
    if (cause.rank < 0)
        cause = tri_launch_losses_check(job);
    if (cause.rank < 0 || job->result->rank >= 0 || job->status != TRI_OK || job->stopping)
        return;
    cause_tell(job, &cause);
    *job->result = cause;
    if (was_asked(job, &cause))
        job->result->exit_code = 128 + tri_stop_signal();
    tri_launch_stop_others(job);
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

/* Once that lines are lost, and once that they no longer are. */
static void loss_tell(launch *job, launch_loss *loss, const char *what)
{
    if (loss->is && !loss->reported)
        tri_launch_say(job, "trireme: %s; the run continues, and lines without room are dropped\n", loss->why);
    else if (!loss->is && loss->reported)
        tri_launch_say(job, "trireme: %s again; %lld bytes of lines were dropped\n", what, (long long)loss->nbytes);
    if (!loss->is)
        loss->nbytes = 0;
    loss->reported = loss->is;
}

static void sinks_check(launch *job)
{
    for (int i = 0; i < 2; i++)
        tri_launch_sink_write(&job->sinks[i]);
    loss_tell(job, &job->sinks[0].loss, "standard output is written");
    loss_tell(job, &job->sinks[1].loss, "standard error is written");
    loss_tell(job, &job->log_loss, "logs of ranks are written");
    if (job->sinks[0].broken && !job->stopping) {
        /* Like a program that writes to a closed pipe itself: no words about it. */
        job->quiet = true;
        *job->result = (tri_launch_result){.exit_code = 128 + SIGPIPE, .rank = -1, .signal = SIGPIPE};
        tri_launch_stop_others(job);
    }
}

/* Takes on what ranks have written into files, and keeps how far all of it is out. */
static void files_read(launch *job)
{
    char events[4096];

    while (job->files_fd >= 0 && read(job->files_fd, events, sizeof events) > 0) {
    }
    for (int i = 0; i < 2 * job->world; i++)
        if (job->ranks[i / 2].streams[i % 2].follows)
            tri_launch_fail(job, tri_launch_stream_read(&job->ranks[i / 2].streams[i % 2]));
}

static void files_note(launch *job)
{
    if (job->sinks[0].pending.nbytes > 0 || job->sinks[1].pending.nbytes > 0)
        return;
    for (int r = 0; r < job->world; r++)
        tri_launch_seen_note(job->start.journal, &job->ranks[r]);
}

static void wait_turn(launch *job)
{
    struct pollfd *polls = job->polls;
    int64_t now_ns = tri_now_ns(), left_ns = TICK_NS;
    struct timespec limit;

    polls[0] = (struct pollfd){.fd = job->report_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        bool waits = job->sinks[i].pending.nbytes > 0 && !job->sinks[i].loss.is; /* a full disk polls as writable */

        polls[1 + i] = (struct pollfd){.fd = waits ? job->sinks[i].fd : -1, .events = POLLOUT};
    }
    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];

        for (int i = 0; i < 2; i++) {
            bool is_full = tri_launch_sink_is_full(rank->streams[i].sink);

            bool waits = !is_full && !rank->streams[i].follows;

            polls[3 + 3 * r + i] = (struct pollfd){.fd = waits ? rank->streams[i].fd : -1, .events = POLLIN};
        }
        polls[3 + 3 * r + 2] = (struct pollfd){.fd = rank->pidfd, .events = POLLIN};
        if (rank->pid > 0 && rank->pidfd < 0)
            left_ns = 5 * TRI_NS_PER_MS; /* an old kernel: look often */
    }
    polls[3 + 3 * job->world] = (struct pollfd){.fd = job->files_fd, .events = POLLIN};
    if (job->start.journal && job->files_fd < 0)
        left_ns = 5 * TRI_NS_PER_MS;
    if (job->stopping && !job->killing && job->kill_ns - now_ns < left_ns)
        left_ns = job->kill_ns > now_ns ? job->kill_ns - now_ns : 0;
    limit = (struct timespec){.tv_nsec = left_ns};
    if (ppoll(polls, (nfds_t)(4 + 3 * job->world), &limit, &job->mask_before) < 0) {
        for (int i = 0; i < 4 + 3 * job->world; i++)
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

void tri_launch_watch(launch *job)
{
    int64_t flush_ns = 0;

    tri_launch_death_begin(job);
    while (tri_launch_has_others(job)) {
        wait_turn(job);
        signals_check(job);
        tri_launch_far_check(job);
        for (int i = 0; i < 2 * job->world; i++) {
            if (job->polls[3 + 3 * (i / 2) + i % 2].revents)
                tri_launch_fail(job, tri_launch_stream_read(&job->ranks[i / 2].streams[i % 2]));
        }
        if (job->start.journal)
            files_read(job);
        ends_check(job);
        grace_check(job);
        tri_launch_death_look(job);
        if (job->status != TRI_OK)
            tri_launch_stop_others(job);
        sinks_check(job);
        if (job->start.journal)
            files_note(job);
    }
    orphans_end(job);
    /* The rest of the output, as long as somebody reads it. */
    for (int64_t pending = -1; pending != 0;) {
        int64_t before = pending;

        for (int i = 0; i < 2 * job->world; i++)
            tri_launch_fail(job, tri_launch_stream_read(&job->ranks[i / 2].streams[i % 2]));
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
