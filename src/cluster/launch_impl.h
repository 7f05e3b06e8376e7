/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_impl.h: what the files of the launcher share: ranks, hosts, output; for launch*.c, affinity.c and tests.
 */
#ifndef TRI_CLUSTER_LAUNCH_IMPL_H
#define TRI_CLUSTER_LAUNCH_IMPL_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "cluster/cluster.h"
#include "cluster/journal.h"
#include "cluster/launch.h"
#include "cluster/store.h"

/* --- affinity.c --- */

/* CPU numbers this process may run on; the caller's, tri_free. */
tri_status tri_affinity_read(int **cpus, int *count);
/* Async-signal-safe. Binds the calling process; false when the system refuses. */
bool tri_affinity_bind(const int *cpus, int count);

/* --- launch_hosts.c --- */

typedef struct launch_host {
    char name[256]; /* as ssh is given it: "[user@]host" */
    char port[8];   /* of its sshd; "": ssh decides */
    int slots;
    int first_rank, count; /* ranks on it */
    bool is_local;         /* its name says this machine */
    char store_url[1400];
} launch_host;

/* Lines "[user@]host [slots=N] [port=N]", # comments. Appends launch_host; TRI_ECONFIG: "<origin>:<line>: ...". */
tri_status tri_launch_hosts_parse(const char *text, size_t nbytes, const char *origin, tri_vector *hosts);
/* Appends the text so that a POSIX shell reads it as one word. */
tri_status tri_launch_quote(tri_string *out, const char *text);
/* A name or address of a host that resolves: its own, without the user, or what ssh's configuration has for it. */
tri_status tri_launch_host_name(const tri_launch_config *config, const launch_host *host, char name[256]);
/* This machine's address on the way to a host ("[v6]" in brackets), by a socket that sends nothing. */
tri_status tri_launch_address(const char *name, char address[64]);
/* A port nobody listens on now. */
tri_status tri_launch_free_port(int *port);
/* --- launch_shell.c --- */

/* What runs a command line on a host: an argv, and a word of it that lives here. */
typedef struct launch_shell {
    char *argv[14]; /* NULL at the end */
    char node[300];
} launch_shell;

/* By config->ssh, or by srun where config->hosts is "slurm". Borrows host, port ("": none) and command. */
void tri_launch_shell(const tri_launch_config *config, const char *host, const char *port, const char *command,
                      launch_shell *shell);
/* By `ssh -G`: the settings that ssh has for a host, a line each. */
void tri_launch_shell_settings(const tri_launch_config *config, const char *host, const char *port,
                               launch_shell *shell);
/* launch_ask.c: runs it on this machine, without input, and gives the beginning of its output. Returns its exit code;
 * -1: it cannot be started, or had not ended within the limit. */
int tri_launch_shell_ask(const launch_shell *shell, const char *host, int limit_ms, char *text, size_t nbytes);
const char *tri_launch_shell_name(const tri_launch_config *config);
/* The lines of the file config->hosts, or for its word "slurm" the nodes and tasks of this job. Appends launch_host. */
tri_status tri_launch_hosts_read(const tri_launch_config *config, tri_vector *hosts);
tri_status tri_launch_hosts_slurm(tri_cluster_lookup lookup, void *arg, tri_vector *hosts);

/* --- launch_hosts.c --- */

/* The command a remote shell is given: reads the token, then signal names, from its standard input; kills the rank when
 * that ends. settings: NULL-ended NAME=value. */
tri_status tri_launch_remote_command(char *const *settings, char *const *argv, const char *folder, int local_world,
                                     bool pick_threads, tri_string *out);

/* --- launch_guard.c: a process that outlives a killed launcher just long enough to clean up --- */

typedef struct launch_guard {
    pid_t pid;
    int fd;    /* write end; its end of file is the launcher's death */
    int *pids; /* the guard's own, made before it starts */
} launch_guard;
tri_status tri_launch_guard_start(launch_guard *guard, int world, const char *token);
void tri_launch_guard_add(const launch_guard *guard, pid_t group);
void tri_launch_guard_remove(const launch_guard *guard, pid_t group);
void tri_launch_guard_stop(launch_guard *guard);
/* Async-signal-safe. Kills every process (but this one) that was started with TRIREME_TOKEN=token; returns how many. */
int tri_launch_kill_marked(const char *token);

/* --- launch_output.c --- */

#define TRI_LAUNCH_LINE_NBYTES    (64u << 10)
#define TRI_LAUNCH_PENDING_NBYTES (1u << 20)

/* Lines that find no place, such as on a full disk: no reason to end a run. */
typedef struct launch_loss {
    bool is, reported;
    const char *path; /* of ranks' logs: the one that could not be written first */
    char why[TRI_ERROR_NBYTES];
    int64_t nbytes; /* dropped since then */
} launch_loss;

typedef struct launch_sink {
    int fd;
    bool is_file;
    bool broken; /* nobody will ever read it */
    launch_loss loss;
    tri_string pending;
    size_t at;    /* bytes of pending written */
    tri_map said; /* "error: ..." and "hint: ..." lines so far, where ranks' lines bear no prefix */
} launch_sink;

typedef struct launch_stream launch_stream;
struct launch_stream {
    int fd; /* read end, non-blocking; -1 closed */
    int rank;
    bool prefix;
    bool follows;         /* a file that the rank writes: its end is not the end of what it says */
    launch_sink *sink;    /* NULL: log only */
    const char *log_path; /* NULL: none */
    launch_loss *log_loss;
    tri_string line;   /* not yet whole */
    int64_t at, noted; /* bytes that were read, line among them; of a file: passed on, as the journal knows */
    char error[200];   /* the latest "error: ..." that came; of standard error */
    /* Takes a line that ends at byte `at`, instead of its being passed on; NULL: it is. */
    tri_status (*put)(launch_stream *stream, const char *line, size_t nbytes);
    void *put_arg;
};

void tri_launch_sink_init(launch_sink *sink, int fd);
/* Writes what the descriptor takes without blocking. Where it fails, the newest lines are kept for the next call. */
void tri_launch_sink_write(launch_sink *sink);
bool tri_launch_sink_is_full(const launch_sink *sink);
/* Reads what is there and passes whole lines on; at the end completes the last one and closes. */
tri_status tri_launch_stream_read(launch_stream *stream);
/* Passes a line on, as one of the stream's rank. */
tri_status tri_launch_line_pass(launch_stream *stream, const char *line, size_t nbytes);
/* The file it follows has all that it will have: reads it to its end. */
tri_status tri_launch_stream_finish(launch_stream *stream);
void tri_launch_stream_close(launch_stream *stream);

/* --- launch_child.c --- */

/* The end of a rank without which the others go on (launch_restart.c). */
typedef struct launch_lost {
    int64_t retry_ns;   /* when it is started again, or given up; 0: neither */
    int64_t delay_ns;   /* between its latest end and that */
    int64_t started_ns; /* the latest start */
    int exit_code;
    bool unstarted; /* its latest start failed */
    bool unasked;   /* the store could not be asked whether it was refused */
} launch_lost;

/* Of a rank on another host that outlives the connection to it (launch_far.c). */
typedef struct launch_far {
    bool is;
    struct launch *job;
    bool begun;           /* it was started over there, as far as this launcher knows */
    bool connected;       /* the attendant of this connection has spoken */
    bool reported;        /* that the connection is lost */
    bool given_up;        /* it was asked to end, and its host does not answer */
    int code;             /* how it ended, 128 + signal if by one; -1: not yet */
    int64_t seen[2];      /* bytes of its files that were passed on */
    int64_t again_ns;     /* when to connect again; 0: connected, or about to be */
    int64_t suspicion_ns; /* since when nothing could be sent to it; 0: it can */
} launch_far;

/* What its remote shell says itself (launch_words.c). */
typedef struct launch_words {
    bool begun;       /* the command over there has: what comes is its own */
    tri_string held;  /* until then */
    char reason[200]; /* why there was no connection; "": there was one */
} launch_words;

typedef struct launch_rank {
    int rank, local_rank;
    launch_host *host; /* NULL: here */
    launch_lost lost;
    launch_far far;      /* of one with a host */
    launch_words words;  /* of one with a host */
    pid_t pid;           /* 0: not started or reaped; of one with a host: the remote shell's */
    pid_t group;         /* what pid was */
    int pidfd;           /* -1: the system has none */
    int starts;          /* so far */
    bool adopted;        /* started by another launcher: not a child of this one */
    bool left;           /* of an adopted one: it had ended before it was taken on */
    uint64_t start_time; /* of an adopted one */
    int control;         /* of a remote rank: its standard input; else -1 */
    launch_stream streams[2];
    char *log_path;
    char *paths[2]; /* with a journal: the files it writes, its standard output and standard error; else NULL */
    int *cpus;      /* borrowed; NULL: not bound */
    int cpu_count;
} launch_rank;

typedef struct launch_start {
    const tri_launch_config *config;
    tri_journal *journal; /* NULL: what is started ends with this process */
    /* Notes a process that waits to run until it is noted, by its return; NULL: what is started here ends with this
     * process. */
    tri_status (*keep)(void *arg, const launch_rank *rank);
    void *keep_arg;
    const char *log_folder;
    char *const *argv;
    const char *token, *store_url; /* store_url: of local ranks */
    const char *master;
    int master_port, world, local_world;
    int initial_members; /* of an elastic job: who makes its first generation; world where 0 */
    const char *beat;    /* key in the store that this launcher changes each second; "": it serves the store itself */
    int threads;         /* of a local rank, 0: leave OMP_NUM_THREADS alone */
    int report_fd;       /* a child that cannot exec writes {rank, errno} */
    uint64_t files;      /* soft limit of descriptors to give back to children, 0: unchanged */
} launch_start;

/* pipe2(); TRI_EIO says whose pipe it was to be, and how more files may be open where that was the reason. */
tri_status tri_launch_pipe(int ends[2], int flags, const char *whose);
tri_status tri_launch_child_start(const launch_start *start, launch_rank *rank);
/* Files or pipes, fork, exec. */
tri_status tri_launch_child_fork(const launch_start *start, launch_rank *rank, char *const *argv,
                                 char *const *environment);
/* To its process group, or to itself while it has none yet. */
void tri_launch_signal(pid_t pid, int number);
/* Opens the files that a rank writes, from where they were read to. again: they are emptied first. */
tri_status tri_launch_files_open(launch_rank *rank, bool again);

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
    bool is_blocked, stopping, killing, signal_passed, quiet;
    int64_t restarted; /* processes, so far */
    char shared[200];  /* the error with which all ranks ended together before they were started again */
    int asked;         /* steps that a rank shall be asked to trace; 0: nobody wants that */
    int64_t kill_ns, cut_ns;
    struct {
        int64_t before, last, look_ns; /* counts at the look before the last one and then; -1: nobody says */
    } oom;
    tri_launch_result *result;
    tri_status status; /* of the launcher itself; the first one stays */
    char message[TRI_ERROR_NBYTES];
};

/* --- launch_meet.c --- */

/* Where the ranks meet: a store of our own, one in etcd, or that of the job that is joined; their numbers. */
tri_status tri_launch_meet(launch *job);
/* For ranks whose store is not ours: they hear by it that there is a launcher. */
tri_status tri_launch_beat_start(launch *job);
void tri_launch_beat_stop(launch *job);
/* All steps are done. */
bool tri_launch_is_over(const launch *job);
/* launch_watch.c: a worker that ended with this code was refused, which is said. Not known: rank->lost.unasked. */
bool tri_launch_was_refused(launch *job, launch_rank *rank, int code);
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

/* What a command over there tells the launcher begins so: "begun"; of an attendant also "0|1 <bytes> <line>" and
 * "end <code>". */
#define TRI_FAR_MARK "@trireme "

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
/* Starts again those whose time has come. Returns the end that ends the job; rank -1: none. */
tri_launch_result tri_launch_losses_check(launch *job);

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

/* A line of the launcher's own on standard error. */
void tri_launch_say(launch *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first failure of the launcher itself stays; TRI_OK is none. */
void tri_launch_fail(launch *job, tri_status status);
/* Whether the child of a rank has ended, which is looked at without reaping it; its process group goes with it. */
bool tri_launch_child_ended(launch_rank *rank, siginfo_t *info);
/* Asks all ranks to end, and has them killed after the grace. */
void tri_launch_stop_others(launch *job);
/* Until all ranks have ended and their output is out: passes output and signals on, stops the others for the first that
 * fails, ends what ranks left behind. */
void tri_launch_watch(launch *job);

#endif
