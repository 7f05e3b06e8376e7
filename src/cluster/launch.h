/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h: starts one program on N ranks, here or by ssh on a list of hosts, and stays with it to the end.
 *
 * Children get TRIREME_RANK, TRIREME_WORLD_SIZE, TRIREME_LOCAL_RANK, TRIREME_LOCAL_WORLD_SIZE, TRIREME_STORE,
 * TRIREME_TOKEN, and the names PyTorch programs read (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), cores of their own (affinity) and OMP_NUM_THREADS unless it is set. The first one that fails is the
 * cause: the others get SIGTERM, after a grace SIGKILL; nothing is left behind, also when the launcher itself is killed
 * (PR_SET_PDEATHSIG, subreaper, launch_guard.c). With a journal ranks outlive it instead; those on other hosts are
 * looked after there by `argv[0] attend` (attend.h).
 */
#ifndef TRI_CLUSTER_LAUNCH_H
#define TRI_CLUSTER_LAUNCH_H

#include "base/options.h"
#include "base/runtime.h"

#define TRI_LAUNCH_OPTIONS(X)                                                                                          \
    X(INT, ranks, "1", 1, 65536, NULL, "number of processes")                                                          \
    X(INT, servers, "0", 0, 65535, NULL, "the last N of them are parameter servers")                                   \
    X(INT, spares, "0", 0, 65535, NULL,                                                                                \
      "of an elastic job: the last N of them are on standby until others are missing")                                 \
    X(TEXT, hosts, "", 0, 0, NULL,                                                                                     \
      "file of lines '[user@]host [slots=N] [port=N]', by ssh; slurm: the nodes of this job, by srun; empty: this "    \
      "host")                                                                                                          \
    X(INT, restarts, "0", 0, 1e9, NULL, "times that killed or failed processes are restarted, together")               \
    X(BOOL, elastic, "false", 0, 0, NULL,                                                                              \
      "processes may join and leave: the others continue without those that were killed")                              \
    X(TEXT, store, "", 0, 0, NULL, "rendezvous store: etcd://host:port,...; empty: in the launcher")                   \
    X(TEXT, listen, "", 0, 0, NULL, "host[:port] at which launchers on other hosts reach that store; empty: none can") \
    X(TEXT, join, "", 0, 0, NULL, "host:port (or etcd://...) of an elastic job to join; TRIREME_TOKEN is its token")   \
    X(PATH, journal, "", 0, 0, NULL,                                                                                   \
      "of an elastic job: file from which a new launcher takes over the processes of one that was killed")             \
    X(BOOL, attach, "false", 0, 0, NULL, "take over such processes and start no new ones")                             \
    X(INT, threads, "0", 0, 4096, NULL, "threads of each rank; 0: cores divided by local ranks, at least 1")           \
    X(BOOL, bind, "true", 0, 0, NULL, "bind each local rank to cores of its own")                                      \
    X(BOOL, prefix, "true", 0, 0, NULL, "print '[rank] ' before each line of output")                                  \
    X(REAL, grace_s, "3", 0, 3600, NULL, "seconds between SIGTERM and SIGKILL of the other processes")                 \
    X(BOOL, usr2_all, "false", 0, 0, NULL,                                                                             \
      "pass SIGUSR2 on to every process of this host that catches it; else to the first one, which tells the others")  \
    X(NAME, ssh, "ssh", 0, 0, NULL, "program that starts a command on a host")
typedef struct tri_launch_config {
    TRI_LAUNCH_OPTIONS(TRI_OPTION_FIELD)
} tri_launch_config;
extern const tri_option_table tri_launch_options; /* section "launch" */

typedef struct tri_launch_result {
    int exit_code; /* of the first failure: the program's own, or 128 + signal; 0 when all ended well */
    int rank;      /* that failed first, -1 = none */
    int signal;    /* that killed it, 0 = none */
} tri_launch_result;

/* Runs argv (NULL at the end) and waits. Output of children goes to this process's stdout and stderr, line by line,
 * never mixed inside a line. Passes stop signals on (tri_stop_signal). log_folder: NULL, or a folder where rank
 * N's output also goes to rank-N.log. quiet_rank_output: with prefix false, ranks other than 0 write their stdout to
 * the log only. */
tri_status tri_launch_run(const tri_launch_config *config, char *const *argv, const char *log_folder, bool quiet_others,
                          tri_launch_result *result);

/* With which a worker of an elastic job ends that was asked to leave and has no time to do so well: 128 + SIGTERM. */
#define TRI_LAUNCH_LEFT_CODE 143

/* For a process that tri_launch_run() started with a journal, as its last act: a launcher that is not its parent learns
 * its exit code by this. */
void tri_launch_exit_note(const char *log_folder, int rank, int starts, int exit_code);

/* The words of the command that began the run of a journal (NULL at the end; tri_free() the first and the array), and
 * the folder it was started in. TRI_ENOTFOUND: there is none. */
tri_status tri_launch_command_read(const char *journal, char ***words, int *count, char **folder);

/* How a host answered a command. */
typedef struct tri_host_answer {
    char name[256];
    char port[8]; /* of its sshd; "": ssh decides */
    int slots;
    int exit_code;  /* of the command; 127, 255: of the remote shell; -1: nothing within the limit */
    char text[240]; /* the first line it wrote, to either stream */
} tri_host_answer;

/* Runs argv (NULL at the end) on each host of config->hosts by config->ssh, and waits for all at most limit_ms (for
 * each 64 of them). Appends one tri_host_answer a host, in the order of the file. */
tri_status tri_launch_hosts_ask(const tri_launch_config *config, char *const *argv, int limit_ms, tri_vector *answers);

/* Ranks that the hosts of a list may have together. */
tri_status tri_launch_hosts_slots(const char *path, int64_t *slots);
/* The same without those that are taken, for processes that nobody gave a number (-n); at least 1. */
tri_status tri_launch_hosts_share(const char *path, int64_t taken, int64_t *ranks);

#endif
