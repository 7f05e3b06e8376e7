/* SPDX-License-Identifier: Apache-2.0
 *
 * faults.h: what the driver of faults (faults.c) and its ranks (faults_rank.c) share.
 */
#ifndef TRI_TESTS_FAULTS_H
#define TRI_TESTS_FAULTS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "comm/comm.h"

#define RANKS_MAX    16
#define TOKEN        "0123456789abcdef0123456789abcdef"
#define HOGS_MAX     64
#define HANG_NS      (10 * TRI_NS_PER_S)
#define COUNT_MAX    (INT64_C(4) << 20)
#define SAMPLES_MAX  100000
#define OTHERS_SHARE 0.1 /* of one core, that other programs may use in a quiet round */

typedef enum fault { FAULT_KILL, FAULT_STOP, FAULT_CUT, FAULT_LOSE, FAULT_COUNT } fault;

/* What a rank tells, in memory that all processes see. */
typedef struct report {
    atomic_int calls;         /* that ended well */
    atomic_int failed, loses; /* loses: this rank is to throw its data away from now on */
    int64_t failed_ns;
    tri_status status;
    int origin;
    bool wrong;
    char text[TRI_ERROR_NBYTES];
} report;

typedef struct driver {
    int64_t counts[FAULT_COUNT], ranks, seed, beat_ms, kib, calm_s, hogs;
    char transport[16];
    char hosts[32]; /* begins the names of namespaces that are there; "": own ones */
    char folder[64];
    uint64_t drawn;
    report *reports; /* [RANKS_MAX] */
    int bad, hung;
    double round_ms[RANKS_MAX]; /* of the round under way */
    int round_count;
    double ms[FAULT_COUNT][2][SAMPLES_MAX]; /* in all rounds, and in those that nobody disturbed */
    int samples[FAULT_COUNT][2];
} driver;

extern driver all;

/* Ends the process. may_lose: waits for its `loses`. */
void faults_rank_main(int rank, uint64_t round, bool in_group, bool may_lose) __attribute__((noreturn));
void faults_host_enter(pid_t driver_pid, int rank);
bool faults_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
