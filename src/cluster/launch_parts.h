/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_parts.h: the parts of a launcher that know no job: hosts, shells, the guard, output, the start of one rank;
 * for launch*.c, affinity.c, attend.c and tests.
 */
#ifndef TRI_CLUSTER_LAUNCH_PARTS_H
#define TRI_CLUSTER_LAUNCH_PARTS_H

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
/* A name or address of a host that resolves: its own, without the user, or what ssh's configuration has for it. */
tri_status tri_launch_host_name(const tri_launch_config *config, const launch_host *host, char name[256]);
/* This machine's address on the way to a host ("[v6]" in brackets), by a socket that sends nothing. */
tri_status tri_launch_address(const char *name, char address[64]);
/* A port nobody listens on now. */
tri_status tri_launch_free_port(int *port);
/* --- launch_shell.c --- */

/* Appends the text so that a POSIX shell reads it as one word. */
tri_status tri_launch_quote(tri_string *out, const char *text);

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

/* What a command over there tells the launcher begins so: "begun"; of an attendant also "0|1 <bytes> <line>" and
 * "end <code>". */
#define TRI_FAR_MARK "@trireme "

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

/* The end of a rank without which the others continue (launch_restart.c). */
typedef struct launch_lost {
    int64_t retry_ns;   /* when it is started again, or given up; 0: neither */
    int64_t delay_ns;   /* between its latest end and that */
    int64_t started_ns; /* the latest start */
    int exit_code;
    bool unstarted; /* its latest start failed */
    bool unasked;   /* the store did not say whether it was refused, or a member; it is asked again */
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
    int dropped;      /* connections in a row that the host has closed before a login */
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

/* launch_pipes.c: pipe2(); TRI_EIO says whose pipe it was to be, and how more files may be open where that was the
 * reason. */
tri_status tri_launch_pipe(int ends[2], int flags, const char *whose);
tri_status tri_launch_child_start(const launch_start *start, launch_rank *rank);
/* Files or pipes, fork, exec. */
tri_status tri_launch_child_fork(const launch_start *start, launch_rank *rank, char *const *argv,
                                 char *const *environment);
/* To its process group, or to itself while it has none yet. */
void tri_launch_signal(pid_t pid, int number);
/* launch_pipes.c: opens the files that a rank writes, from where they were read to. again: they are emptied first. */
tri_status tri_launch_files_open(launch_rank *rank, bool again);

#endif
