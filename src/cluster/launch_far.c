/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_far.c: ranks of other hosts that outlive the connection to them, and with it their launcher.
 *
 * Over there runs an attendant (attend.c) for as long as the connection does. What it says is the rank's output, line
 * by line with how far that is in the rank's files, and at last how the rank ended: a connection that ends without that
 * is made again, and continues where the journal says. Hosts that do not answer hold up nobody but the launcher's own
 * end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/launch_impl.h"

#define AGAIN_NS TRI_NS_PER_S
#define LEAVE_NS (10 * TRI_NS_PER_S) /* for a host that is out of reach, once all is to end */

static tri_status words_append(tri_string *out, char *const *words)
{
    for (; *words; words++) {
        TRI_TRY(tri_string_append(out, " "));
        TRI_TRY(tri_launch_quote(out, *words));
    }
    return TRI_OK;
}

tri_status tri_launch_far_command(const launch_start *start, const launch_rank *rank, char *const *settings,
                                  const char *folder, bool pick_threads, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "cd "));
    TRI_TRY(tri_launch_quote(out, folder));
    TRI_TRY(tri_string_append(out, " && exec "));
    TRI_TRY(tri_launch_quote(out, start->argv[0]));
    TRI_TRY(tri_string_append(out, " attend "));
    TRI_TRY(tri_launch_quote(out, start->log_folder));
    TRI_TRY(tri_string_appendf(out, " --rank %d --starts %d --seen %" PRId64 ",%" PRId64 "%s", rank->rank, rank->starts,
                               rank->far.seen[0], rank->far.seen[1], rank->far.begun ? "" : " --new"));
    if (pick_threads)
        TRI_TRY(tri_string_appendf(out, " --local %d", rank->host->count));
    TRI_TRY(tri_string_append(out, " -- env"));
    TRI_TRY(words_append(out, settings));
    return words_append(out, start->argv);
}

/* --- what an attendant says --- */

static void begun_take(launch *job, launch_rank *rank)
{
    launch_rank noted = *rank;

    if (rank->far.reported)
        tri_launch_say(job, "trireme: host %s is there again, and worker %d\n", rank->host->name, rank->rank);
    rank->far.connected = true;
    rank->far.reported = false;
    tri_launch_fail(job, tri_launch_words_begun(rank));
    if (rank->far.begun)
        return;
    rank->far.begun = noted.far.begun = true;
    noted.starts--; /* of this start */
    (void)tri_launch_process_note(job->start.journal, &noted);
}

/* What is not in such a form is the remote shell's own: passed on as it is. */
static tri_status line_hear(launch_stream *stream, const char *line, size_t nbytes)
{
    launch_rank *rank = stream->put_arg;
    const size_t mark = strlen(TRI_FAR_MARK);
    int which, code, head = 0;
    int64_t at;
    char words[48];

    if (nbytes < mark || memcmp(line, TRI_FAR_MARK, mark) != 0)
        return tri_launch_line_pass(stream, line, nbytes);
    snprintf(words, sizeof words, "%.*s", (int)(nbytes - mark < 40 ? nbytes - mark : 40), line + mark);
    if (strcmp(words, "begun") == 0) {
        begun_take(rank->far.job, rank);
    } else if (sscanf(words, "end %d", &code) == 1 && code >= 0 && code < 256) {
        rank->far.code = code;
    } else if (sscanf(words, "%d %" SCNd64 "%n", &which, &at, &head) == 2 && (which == 0 || which == 1) && head > 0 &&
               mark + (size_t)head < nbytes) {
        size_t skip = mark + (size_t)head + 1;

        rank->far.seen[which] = at;
        return tri_launch_line_pass(&rank->streams[which], line + skip, nbytes - skip);
    }
    return TRI_OK;
}

void tri_launch_far_init(launch *job, launch_rank *rank)
{
    rank->far = (launch_far){.is = true, .job = job, .code = -1};
    rank->streams[0].put = line_hear;
    rank->streams[0].put_arg = rank;
}

/* --- connections --- */

static void connection_close(launch *job, launch_rank *rank)
{
    int *fds[] = {&rank->pidfd, &rank->control};

    waitpid(rank->pid, NULL, 0);
    rank->pid = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    for (int i = 0; i < 2; i++) {
        tri_launch_fail(job, tri_launch_stream_finish(&rank->streams[i]));
        tri_launch_stream_close(&rank->streams[i]);
    }
    rank->far.connected = false;
}

static void lose(launch *job, launch_rank *rank)
{
    rank->far.again_ns = tri_now_ns() + AGAIN_NS;
    job->over = job->over || tri_launch_is_over(job);
    if (!rank->far.reported)
        tri_launch_say(job,
                       "trireme: the connection to host %s is lost: worker %d continues there, if it can; connecting "
                       "again\n",
                       rank->host->name, rank->rank);
    if (tri_launch_words_reason(rank))
        tri_launch_say(job, "trireme: host %s, worker %d: %s\n", rank->host->name, rank->rank, rank->words.reason);
    rank->far.reported = true;
}

bool tri_launch_far_ended(launch *job, launch_rank *rank, siginfo_t *info)
{
    launch_far *far = &rank->far;
    bool first = !far->begun && rank->starts == 1 && !job->attached;

    if (rank->pid > 0) {
        if (!tri_launch_child_ended(rank, info))
            return false;
        connection_close(job, rank);
        if (far->code < 0 && !first && !far->given_up)
            lose(job, rank);
    } else if (far->again_ns == 0) {
        return false;
    }
    if (far->code < 0 && !first && !far->given_up)
        return false;
    if (far->code >= 0 || far->given_up) {
        info->si_code = CLD_EXITED;
        info->si_status = far->code >= 0 ? far->code : job->over ? 0 : 3;
    }
    far->begun = far->reported = false;
    far->again_ns = far->suspicion_ns = 0;
    far->code = -1;
    return true;
}

static bool runs(const launch_rank *rank)
{
    return rank->pid > 0 || rank->far.again_ns > 0;
}

void tri_launch_far_leave(launch *job, launch_rank *rank)
{
    if (!runs(rank) || rank->far.given_up)
        return;
    rank->far.given_up = true;
    tri_launch_say(job,
                   "trireme: host %s does not answer: worker %d there, if it lives, finds that there is no launcher, "
                   "and ends\n",
                   rank->host->name, rank->rank);
    if (rank->pid > 0)
        kill(-rank->pid, SIGKILL);
}

static void connect_again(launch *job, launch_rank *rank)
{
    rank->starts--; /* the same start */
    rank->far.again_ns = 0;
    if (tri_launch_child_start(&job->start, rank) != TRI_OK && rank->pid == 0) {
        rank->far.again_ns = tri_now_ns() + AGAIN_NS; /* out of descriptors or processes, for a while */
        return;
    }
    if (rank->pid > 0 && (job->signal_passed || job->stopping))
        tri_launch_far_signal(rank, job->killing ? "KILL" : "INT");
}

void tri_launch_far_check(launch *job)
{
    int64_t now_ns = tri_now_ns();

    for (int r = 0; r < job->world; r++) {
        launch_rank *rank = &job->ranks[r];
        launch_far *far = &rank->far;

        if (!far->is || !runs(rank) || far->given_up)
            continue;
        if (far->connected || !(job->over || job->signal_passed || job->stopping))
            far->suspicion_ns = 0;
        else if (far->suspicion_ns == 0)
            far->suspicion_ns = now_ns;
        else if (now_ns - far->suspicion_ns > LEAVE_NS)
            tri_launch_far_leave(job, rank);
        if (rank->pid == 0 && now_ns >= far->again_ns && !far->given_up)
            connect_again(job, rank);
    }
}

void tri_launch_far_signal(launch_rank *rank, const char *name)
{
    if (rank->pid > 0 && rank->control >= 0)
        (void)dprintf(rank->control, "%s\n", name); /* a connection that is gone is made again, and tells it then */
}
