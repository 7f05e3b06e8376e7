/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_restart.c: the job continues without a rank that has ended, and starts it again.
 *
 * One that a signal has killed is started again at once. One that ends with an exit code waits a moment first: if all
 * ranks end with the same error, no new process would do better, and that error ends the job. A start that fails is
 * tried again, later each time.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cluster/launch_impl.h"

#define FIRST_NS    TRI_NS_PER_S
#define LOGINS_MOST 6 /* tries in a row, of which the host takes none */
#define LONGEST_NS  (30 * TRI_NS_PER_S)
#define STABLE_NS   (10 * TRI_NS_PER_S) /* the delay of a rank that ran so long begins at FIRST_NS again */

#define SIGNAL_CODE 128 /* a rank that a signal asked to end adds its number */

static bool is_ending(const launch *job)
{
    return job->stopping || job->signal_passed;
}

static bool waits(const launch_rank *rank)
{
    return rank->lost.retry_ns > 0;
}

static bool has_restarts(const launch *job)
{
    return job->restarted < job->config->restarts;
}

bool tri_launch_has_others(const launch *job)
{
    for (int r = 0; r < job->world && !is_ending(job); r++)
        if (waits(&job->ranks[r]))
            return true;
    return job->alive > 0 || tri_launch_is_needed(job);
}

/* Later each time, unless the rank ran for a while. */
static void retry_plan(launch_lost *lost)
{
    int64_t now_ns = tri_now_ns();
    bool again = lost->delay_ns > 0 && (lost->unstarted || now_ns - lost->started_ns < STABLE_NS);

    lost->delay_ns = again ? 2 * lost->delay_ns : FIRST_NS;
    if (lost->delay_ns > LONGEST_NS)
        lost->delay_ns = LONGEST_NS;
    lost->retry_ns = now_ns + lost->delay_ns;
}

static void end_words(const launch *job, const launch_rank *rank, int signal, char words[LAUNCH_DEATH_NBYTES])
{
    if (signal)
        tri_launch_death_words(job, rank, signal, words);
    else
        snprintf(words, LAUNCH_DEATH_NBYTES, "ended with exit code %d", rank->lost.exit_code);
}

/* A descriptor, a process or the folder of the logs may be missing for a moment. */
static void start_failed(launch *job, launch_rank *rank)
{
    char why[TRI_ERROR_NBYTES];

    snprintf(why, sizeof why, "%s", tri_last_error());
    if (!rank->lost.unstarted)
        tri_launch_say(job, "trireme: cannot start rank %d again now: %s; it is tried again, the others continue\n",
                       rank->rank, why);
    rank->lost.unstarted = true;
    retry_plan(&rank->lost);
    if (job->start.journal)
        tri_launch_process_lost(job->start.journal, rank);
}

static void start_again(launch *job, launch_rank *rank)
{
    for (int i = 0; i < 2; i++)
        tri_launch_stream_close(&rank->streams[i]);
    rank->streams[1].error[0] = 0; /* a silent end is not the same as the error before it */
    if (job->log_folder)
        (void)tri_fs_make_folder(job->log_folder); /* somebody may have removed it */
    tri_status status = tri_launch_child_start(&job->start, rank);
    if (rank->pid <= 0 && status != TRI_OK) {
        start_failed(job, rank);
        return;
    }
    job->alive++;
    tri_launch_guard_add(&job->guard, rank->pid);
    if (rank->lost.unstarted && rank->words.dropped == 0)
        tri_launch_say(job, "trireme: rank %d is started again\n", rank->rank);
    rank->lost.unstarted = false;
    rank->lost.retry_ns = 0;
    rank->lost.started_ns = tri_now_ns();
}

static void restart(launch *job, launch_rank *rank, int signal)
{
    char words[LAUNCH_DEATH_NBYTES], text[24];

    job->restarted++;
    if (job->start.journal)
        tri_journal_put(job->start.journal, "restarted", text,
                        (size_t)snprintf(text, sizeof text, "%lld", (long long)job->restarted));
    end_words(job, rank, signal, words);
    tri_launch_say(job, "trireme: rank %d %s; started again (%lld of at most %lld)\n", rank->rank, words,
                   (long long)job->restarted, (long long)job->config->restarts);
    start_again(job, rank);
}

static void go_on_without(launch *job, launch_rank *rank, int signal)
{
    char words[LAUNCH_DEATH_NBYTES];

    rank->lost.retry_ns = 0;
    if (job->start.journal)
        tri_launch_process_forget(job->start.journal, rank);
    end_words(job, rank, signal, words);
    tri_launch_say(job, "trireme: worker %d %s; the others continue\n", rank->rank, words);
}

/* Does ssh say that the host closed the connection before a login? */
static bool is_dropped(const launch_rank *rank)
{
    static const char *const words[] = {"kex_exchange_identification: ", "Connection closed by ",
                                        "Connection reset by "};

    for (size_t i = 0; i < TRI_COUNT_OF(words); i++)
        if (strstr(tri_string_text(&rank->words.held), words[i]))
            return true;
    return false;
}

bool tri_launch_login_again(launch *job, launch_rank *rank)
{
    if (is_ending(job) || rank->words.dropped == LOGINS_MOST || !is_dropped(rank))
        return false;
    if (rank->words.dropped++ == 0)
        tri_launch_say(job,
                       "trireme: rank %d: host %s closed the connection before a login (MaxStartups of its sshd?); it "
                       "is made again\n",
                       rank->rank, rank->host->name);
    rank->starts--; /* the same start */
    rank->lost.unstarted = true;
    retry_plan(&rank->lost);
    rank->lost.retry_ns += rank->rank % 16 * (FIRST_NS / 16); /* not all of a host at once */
    if (job->start.journal)
        (void)tri_launch_process_note(job->start.journal, rank);
    return true;
}

/* A job without restarts that cannot lose a rank ends with it, and so does one whose rank was asked to end. Of
 * parameter servers' jobs a wrong configuration and a lost server are everybody's. */
static bool is_bearable(const launch *job, int exit_code)
{
    if (exit_code == 0 || (exit_code > SIGNAL_CODE && exit_code <= SIGNAL_CODE + SIGRTMAX))
        return false;
    if (job->config->elastic)
        return true;
    return has_restarts(job) && exit_code != TRI_LAUNCH_CONFIG_CODE && exit_code != TRI_LAUNCH_PEER_CODE;
}

bool tri_launch_loss_bear(launch *job, launch_rank *rank, const tri_launch_result *end)
{
    if (is_ending(job))
        return false;
    if (end->signal == 0) {
        if (!(rank->lost.unasked || is_bearable(job, end->exit_code)) || tri_launch_is_failed(job))
            return false;
        rank->lost.exit_code = end->exit_code;
        retry_plan(&rank->lost);
        if (job->start.journal)
            tri_launch_process_lost(job->start.journal, rank);
        return true;
    }
    rank->lost.unasked = false;
    if (has_restarts(job)) {
        restart(job, rank, end->signal);
        return true;
    }
    if (!job->config->elastic || !tri_launch_has_others(job))
        return false;
    go_on_without(job, rank, end->signal);
    return true;
}

/* Errors of one kind: numbers in them may be a rank's or a step's. */
static bool is_same_error(const char *one, const char *other)
{
    for (;; one++, other++) {
        one += strspn(one, "0123456789");
        other += strspn(other, "0123456789");
        if (*one != *other || *one == 0)
            return *one == *other;
    }
}

/* One of those that wait, if all of them ended with the same error and no worker is left; else NULL. The rank that
 * finds a wrong configuration ends with the code of that; another one that only hears of it with another code. */
static const launch_rank *shared_find(const launch *job)
{
    int workers = job->world - (int)job->config->servers;
    const launch_rank *shared = NULL;

    if (tri_launch_is_needed(job))
        return NULL;
    for (int r = 0; r < workers; r++) {
        const launch_rank *rank = &job->ranks[r];

        if (rank->pid > 0 || rank->far.begun || (waits(rank) && rank->lost.unstarted))
            return NULL;
        if (!waits(rank))
            continue;
        if (shared && !is_same_error(rank->streams[1].error, shared->streams[1].error))
            return NULL;
        if (!shared || rank->lost.exit_code == TRI_LAUNCH_CONFIG_CODE)
            shared = rank;
    }
    return shared;
}

/* A configuration stays wrong. Of another error the second time tells that it comes back. */
static bool is_final(launch *job, const launch_rank *shared)
{
    const char *error = shared->streams[1].error;
    bool again = job->shared[0] && is_same_error(job->shared, error);

    snprintf(job->shared, sizeof job->shared, "%s", error);
    return again || !error[0] || shared->lost.exit_code == TRI_LAUNCH_CONFIG_CODE || !has_restarts(job) ||
           !is_bearable(job, shared->lost.exit_code);
}

static void all_restart(launch *job)
{
    for (int r = 0; r < job->world && has_restarts(job); r++)
        if (waits(&job->ranks[r]))
            restart(job, &job->ranks[r], 0);
}

static bool waits_due(const launch_rank *rank, int64_t now_ns)
{
    return waits(rank) && now_ns >= rank->lost.retry_ns;
}

/* Somebody has asked all to end, or the others have made the last step: nobody is started any more. */
static void waiting_drop(launch *job)
{
    for (int r = 0; r < job->world; r++)
        job->ranks[r].lost.retry_ns = 0;
    if (job->alive == 0 && job->signal_passed && job->result->rank < 0 && job->result->exit_code == 0)
        job->result->exit_code = SIGNAL_CODE + tri_stop_signal();
}

tri_launch_result tri_launch_losses_check(launch *job)
{
    tri_launch_result cause = {.rank = -1};
    int64_t now_ns = tri_now_ns();
    bool any = false;

    for (int r = 0; r < job->world; r++)
        any = any || waits(&job->ranks[r]);
    if (!any)
        return cause;
    if (is_ending(job)) {
        waiting_drop(job);
        return cause;
    }
    if (job->alive == 0 && tri_launch_is_over(job)) {
        waiting_drop(job);
        return cause;
    }
    const launch_rank *shared = shared_find(job);
    if (shared && is_final(job, shared))
        return (tri_launch_result){.rank = shared->rank, .exit_code = shared->lost.exit_code};
    if (shared)
        all_restart(job);
    for (int r = 0; r < job->world && cause.rank < 0; r++) {
        launch_rank *rank = &job->ranks[r];
        bool bears = is_bearable(job, rank->lost.exit_code);

        if (!waits_due(rank, now_ns))
            continue;
        rank->lost.retry_ns = 0;
        if (rank->lost.unasked && tri_launch_is_dismissed(job, rank)) {
            if (job->start.journal)
                tri_launch_process_forget(job->start.journal, rank);
            continue;
        }
        if (rank->lost.unstarted)
            start_again(job, rank);
        else if (rank->lost.unasked) /* without its store it would not get far */
            retry_plan(&rank->lost);
        else if (bears && has_restarts(job))
            restart(job, rank, 0);
        else if (bears && job->config->elastic && tri_launch_has_others(job))
            go_on_without(job, rank, 0);
        else
            cause = (tri_launch_result){.rank = rank->rank, .exit_code = rank->lost.exit_code};
    }
    return cause;
}
