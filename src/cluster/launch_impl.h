/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_impl.h: one call of tri_launch_run(), as the files of the launcher share it; for launch*.c and tests.
 */
#ifndef TRI_CLUSTER_LAUNCH_IMPL_H
#define TRI_CLUSTER_LAUNCH_IMPL_H

#include "cluster/launch_parts.h"

/* One call of tri_launch_run(). */
typedef struct launch launch;
struct launch {
    const tri_launch_config *config;
    launch_start start;
    launch_rank *ranks;
    int world, alive;
    tri_vector hosts;
    char token[65], store_url[1400], master[256];
    tri_store_server *server;
    tri_store *store;   /* elastic: where ends of ranks are published */
    launch_guard guard; /* without a journal */
    launch_sink sinks[2];
    launch_loss log_loss;
    int report_fd;
    int *cpus;
    struct pollfd *polls; /* report, two sinks, then per rank two streams and a pidfd, then files_fd */
    const char *log_folder;
    bool attached; /* to ranks that another launcher started */
    bool begun;    /* the journal is of this job */
    bool over;     /* all steps are done, as was found when a connection was lost */
    int port;      /* of the store; 0: any */
    int first;     /* number of the first rank: others may have been started elsewhere */
    char beat[96]; /* start.beat */
    tri_store *beat_store;
    tri_thread *beat_thread;
    atomic_bool ending; /* no beat any more */
    int files_fd;       /* inotify: some file of a rank has grown; -1: none */
    sigset_t mask_before;
    rlim_t files_before;
    int subreaper_before;
    bool stopping, killing, signal_passed, quiet;
    int64_t restarted; /* processes, so far */
    char shared[200];  /* the error with which all ranks ended together before they were started again */
    int asked;         /* steps that a rank shall be asked to trace; 0: nobody needs that */
    int64_t kill_ns, cut_ns;
    struct {
        int64_t before, last, look_ns; /* counts at the look before the last one and then; -1: nobody says */
    } oom;
    tri_launch_result *result;
    tri_status status; /* of the launcher itself; the first one stays */
    char message[TRI_ERROR_NBYTES];
};

/* --- launch_meet.c --- */

/* Where the ranks meet: a store of our own, one in etcd, or that of the job that is joined; their numbers. Where the
 * store is not ours a beat begins, by which ranks hear that there is a launcher. */
tri_status tri_launch_meet(launch *job);
void tri_launch_beat_stop(launch *job);
/* All steps are done. */
bool tri_launch_is_over(const launch *job);
/* A worker has reported that the run cannot continue whoever takes part (tri_members_fail). */
bool tri_launch_is_failed(const launch *job);
/* Ranks of other launchers need our store. */
bool tri_launch_is_needed(const launch *job);

/* --- launch_attach.c: what a journal holds of a launcher --- */

/* Opens the journal. With ranks of a killed launcher in it: job->attached, and token, ports and ranks are as it had
 * them; else it begins again. */
tri_status tri_launch_journal_open(launch *job);
/* What a new launcher has to know, once there is a store. */
tri_status tri_launch_journal_begin(launch *job);
/* Takes on the ranks that live; whoever ended meanwhile is found by the first turn of the watch. */
tri_status tri_launch_adopt(launch *job);
/* A process was started, and is not there yet for others; it has ended. */
tri_status tri_launch_process_note(void *journal, const launch_rank *rank);
void tri_launch_process_forget(tri_journal *journal, const launch_rank *rank);
/* It has ended and waits to be started again: a new launcher finds it as one that ended while no launcher was there. */
void tri_launch_process_lost(tri_journal *journal, const launch_rank *rank);
/* How far the rank's output was passed on. */
void tri_launch_seen_note(tri_journal *journal, launch_rank *rank);
/* The exit code that the process of a rank's start has left; -1: none. */
int tri_launch_exit_read(const char *log_folder, int rank, int starts);
/* What a process of an earlier job has left there, before one of this job is started. */
tri_status tri_launch_exit_forget(const char *log_folder, int rank);
/* Whether a process was started with a token of this job (tri_auth_job_id): it has it in its environment. One that was
 * forked a moment ago has it soon, and is waited for. */
bool tri_launch_is_of_job(pid_t pid, const char *id);
/* When a process began, in ticks since the machine did; 0: there is none, or it has ended. */
uint64_t tri_launch_began(pid_t pid);

/* --- launch_words.c: what a remote shell says itself --- */

/* Its standard error is heard from now on. */
void tri_launch_words_init(launch_rank *rank);
/* Another connection is about to be made. */
void tri_launch_words_start(launch_rank *rank);
/* What was held is passed on: there is a connection. */
tri_status tri_launch_words_begun(launch_rank *rank);
/* The remote shell has ended: words.reason is why, if nothing had begun. Whether there is one that was not reported
 * yet. */
bool tri_launch_words_reason(launch_rank *rank);

/* --- launch_far.c: ranks of other hosts that outlive the connection to them --- */

/* The command line for the remote shell. settings: NULL-ended NAME=value. */
tri_status tri_launch_far_command(const launch_start *start, const launch_rank *rank, char *const *settings,
                                  const char *folder, bool pick_threads, tri_string *out);
/* Its output is an attendant's. */
void tri_launch_far_init(launch *job, launch_rank *rank);
/* The remote shell of a rank has ended: whether the rank has, and how. Else it is connected again, later. */
bool tri_launch_far_ended(launch *job, launch_rank *rank, siginfo_t *info);
/* Connects again to those whose time has come; gives up those that were to end and are out of reach. */
void tri_launch_far_check(launch *job);
/* It was to end and does not say that it has: it is named, and left to itself. */
void tri_launch_far_leave(launch *job, launch_rank *rank);
/* The connection is there, or was: tells it, or leaves that to the next one. */
void tri_launch_far_signal(launch_rank *rank, const char *name);

/* --- launch_restart.c: the job continues without a rank, and starts it again --- */

/* Exit codes of this program's ranks. */
#define TRI_LAUNCH_CONFIG_CODE 2
#define TRI_LAUNCH_PEER_CODE   3

/* Is a rank alive, or about to be, or does somebody elsewhere need the store of this launcher? */
bool tri_launch_has_others(const launch *job);
/* A rank has ended and is reaped. Returns true if the job continues, with or without a new process in its place. */
bool tri_launch_loss_bear(launch *job, launch_rank *rank, const tri_launch_result *end);
/* A remote shell has ended before anything ran over there. A host whose sshd has as many logins under way as it takes
 * closes more of them: returns true if this one is made again, later each time. */
bool tri_launch_login_again(launch *job, launch_rank *rank);
/* Starts again those whose time has come. Returns the end that ends the job; rank -1: none. */
tri_launch_result tri_launch_losses_check(launch *job);

/* --- launch_output.c --- */

/* A line of the launcher's own on standard error. */
void tri_launch_say(launch *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first failure of the launcher itself stays; TRI_OK is none. */
void tri_launch_fail(launch *job, tri_status status);

/* --- launch_death.c --- */

#define LAUNCH_DEATH_NBYTES 256

/* How often the kernel's out-of-memory killer has struck: in this process's control group where that is counted, else
 * on this machine; -1: nobody says. `root`: "", or where a test has its files. */
int64_t tri_launch_oom_count(const char *root);
/* When ranks have been started; and now and then, so that a strike of long ago explains no later death. */
void tri_launch_death_begin(launch *job);
void tri_launch_death_look(launch *job);
/* "was killed by ...", of a rank that a signal has killed. */
void tri_launch_death_words(const launch *job, const launch_rank *rank, int signal, char words[LAUNCH_DEATH_NBYTES]);

/* --- launch_watch.c --- */

/* Asks the store again about a worker of which it did not say (rank->lost.unasked) whether the run refused it or a
 * signal stopped it before it was a member: then it is not started again, which is said. */
bool tri_launch_is_dismissed(launch *job, launch_rank *rank);
/* Whether the child of a rank has ended, which is looked at without reaping it; its process group goes with it. */
bool tri_launch_child_ended(launch_rank *rank, siginfo_t *info);
/* Asks all ranks to end, and has them killed after the grace. */
void tri_launch_stop_others(launch *job);
/* Until all ranks have ended and their output is out: passes output and signals on, stops the others for the first that
 * fails, ends what ranks left behind. */
void tri_launch_watch(launch *job);

#endif
