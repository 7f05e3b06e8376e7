/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: what is wrong with a machine or a cluster for distributed training, as findings.
 *
 * Three tables of checks. tri_machine_checks and tri_card_checks look at one machine: its files below a root (so that
 * tests give them another machine) and what a tri_probe tried. tri_job_checks look at what the ranks of a job reported
 * and measured. A check fills in one finding and never fails itself; what cannot be read is a finding too. Nothing here
 * changes the machine.
 */
#ifndef TRI_DOCTOR_DOCTOR_H
#define TRI_DOCTOR_DOCTOR_H

#include "comm/comm.h"
#include "device/cuda/nvml.h"
#include "net/host.h"
#include "net/probe.h"

/* From best to worst. NOTE: works, and could do better or will matter later; WARN: works badly, or not for every job;
 * FAIL: does not work. */
typedef enum tri_result {
    TRI_RESULT_OK,
    TRI_RESULT_NOTE,
    TRI_RESULT_WARN,
    TRI_RESULT_FAIL,
    TRI_RESULT_COUNT
} tri_result;
const char *tri_result_name(tri_result result);

typedef struct tri_finding {
    char check[40];
    char host[TRI_HOST_NAME_NBYTES]; /* where; "" for what is between hosts */
    tri_result result;
    char found[512], wanted[160];
    char fix[320]; /* a command, "" when there is none */
} tri_finding;

/* Appends one; NULL when memory is out. `check` may end in more than the row's name: "host node2". */
tri_finding *tri_finding_add(tri_vector *findings, const char *check, tri_result result);
/* Sets a field, cut to its room. */
#define TRI_FINDING_SET(field, ...) ((void)tri_finding_print((field), sizeof(field), __VA_ARGS__))
void tri_finding_print(char *field, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Makes the result worse if it was better. */
void tri_finding_worse(tri_finding *finding, tri_result result);
/* Findings as lines of text, to travel between processes, and back: what is not a finding is TRI_EFORMAT. */
tri_status tri_findings_write(const tri_vector *findings, tri_string *out);
tri_status tri_findings_read(const char *text, tri_vector *findings);

/* Takes the text up to the next tab or newline, and that one too; false when it is not `end`, or does not fit. */
bool tri_field_next(const char **text, char end, char *field, size_t capacity);

/* --- one machine --- */

typedef struct tri_machine {
    const char *root;    /* put before /proc, /sys and /etc: "" for this machine */
    int ranks;           /* that will run here, 0: not said */
    int world;           /* in all, 0: not said */
    bool many_hosts;     /* there are ranks elsewhere */
    bool is_rank;        /* this process is one of them, and its cores may be its own */
    const char *kernels; /* tri_kernel_arithmetic() */
    tri_probe probe;
    tri_vector interfaces;   /* tri_interface */
    tri_vector cards;        /* tri_card_health, as NVML knows them */
    char cards_refused[200]; /* why no run can use them; "": one can */
} tri_machine;

typedef struct tri_machine_check {
    const char *name, *looks_at;
    void (*look)(const tri_machine *machine, tri_finding *finding);
} tri_machine_check;
extern const tri_machine_check tri_machine_checks[]; /* name NULL at the end */
extern const tri_machine_check tri_card_checks[];    /* the same, of a machine that has NVIDIA cards */

/* Tries and reads what the checks need besides files. ranks, world: as above. */
tri_status tri_machine_open(int ranks, int world, bool many_hosts, tri_machine *machine);
void tri_machine_close(tri_machine *machine);
/* One finding a check, in order; cards without any have none. */
tri_status tri_machine_look(const tri_machine *machine, tri_vector *findings);

/* --- a job --- */

/* What a rank says about itself. */
typedef struct tri_rank_facts {
    bool known;
    char host_id[TRI_HOST_ID_NBYTES], host[TRI_HOST_NAME_NBYTES], version[32], kernels[96];
    char cpus[128];                         /* "0-3,8" that it may use */
    char chosen[16];                        /* the interface that other hosts try first; of one rank a host, else "" */
    int64_t mtu, mbits;                     /* of that one, -1: not known */
    char addresses[TRI_TCP_ADDRESS_NBYTES]; /* a listener of its own, as tri_tcp_listen() tells it */
} tri_rank_facts;

/* Two ranks, a < b. */
typedef struct tri_pair {
    int a, b;
    char transport[16];      /* "" when nothing was measured */
    double latency_us;       /* one way: half of a round trip, the first quartile */
    double bytes_per_second; /* one way at a time, the best */
    char problem[160];       /* "", or why one does not reach the other */
} tri_pair;

typedef struct tri_job_facts {
    int world;
    tri_rank_facts *ranks;         /* [world] */
    tri_vector pairs;              /* tri_pair */
    double *skew_s, *skew_error_s; /* [world] clock of the rank less that of rank 0; half of the shortest round trip */
    bool measured;
    char problem[512]; /* why the ranks were not linked, or not measured */
} tri_job_facts;

typedef struct tri_job_check {
    const char *name, *looks_at;
    void (*look)(const tri_job_facts *job, tri_finding *finding);
} tri_job_check;
extern const tri_job_check tri_job_checks[]; /* name NULL at the end */

tri_status tri_job_facts_init(tri_job_facts *job, int world);
void tri_job_facts_fini(tri_job_facts *job);
/* NULL when nothing is known of it. */
const tri_pair *tri_job_pair(const tri_job_facts *job, int a, int b);
/* One finding a check, in order. */
tri_status tri_job_look(const tri_job_facts *job, tri_vector *findings);
/* Latency and bandwidth of all pairs as a table for people: for 3 to 16 ranks that were measured, else nothing. */
tri_status tri_job_matrix(const tri_job_facts *job, tri_string *out);

/* Fills pairs (those whose `a` is this rank), and on rank 0 the skews. Collective. All pairs of up to 64 ranks, of more
 * those whose ranks are a power of two apart; up to 32 ranks one pair at a time. */
tri_status tri_job_measure(tri_comm *comm, tri_job_facts *job);

/* A rank of a job looks at its machine (one rank of a host does; none where the host is `checked`: an id of
 * tri_host_id(), or NULL) and at the others. Rank 0 has all findings and the matrix on return, others nothing. No wait
 * is longer than limit_s. What is wrong with the others is a finding; fails when this rank cannot meet them at all. */
tri_status tri_job_examine(tri_cluster *cluster, const char *kernels, const char *checked, double limit_s,
                           tri_vector *findings, tri_string *matrix);

#endif
