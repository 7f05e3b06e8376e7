/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.h: what the files of `trireme sim` share: the table of operations, one case, and what became of it.
 */
#ifndef TRI_CLI_SIM_H
#define TRI_CLI_SIM_H

#include "comm/comm.h"

/* What a block of a result must be: the sum over all contributors, or what one of them contributed. */
typedef struct sim_place {
    bool sums;
    int rank;  /* the contributor, unless it is a sum */
    int block; /* of the contribution */
} sim_place;

typedef struct sim_call {
    tri_group *group;
    void *in, *out;
    int64_t count; /* f32 of one block */
} sim_call;

/* One operation: a row. Buffers are blocks of `count` f32 each. */
typedef struct sim_op {
    const char *name;
    tri_comm_op op;
    bool by_rank;                    /* a block is the share of a rank of the bytes that the user names */
    bool min_pair;                   /* needs two ranks */
    double (*bus_factor)(int ranks); /* bus bandwidth = factor * bytes / time */
    int (*in_blocks)(int ranks);     /* of each rank */
    int (*out_blocks)(int ranks);    /* NULL: the result is in `in` */
    int (*contributors)(int ranks);  /* NULL: the ranks */
    tri_status (*run)(const sim_call *call);
    /* NULL: block b of a rank is what contributor `rank` has as block b. */
    void (*fill)(const sim_call *call, bool whole);
    /* Of block b of the result of a rank; false: it need not be anything. */
    bool (*expect)(int rank, int ranks, int block, sim_place *place);
} sim_op;

extern const sim_op sim_ops[]; /* name NULL at the end */

/* Contributions: elements [first, first + count) of what `rank` has, block by block. whole: small whole numbers, whose
 * sums are exact in any order; otherwise with long fractions, so that a wrong order shows. */
void sim_fill(float *out, int rank, int64_t first, int64_t count, bool whole);
/* The canonical sum over contributors [rank, rank + ranks). */
tri_status sim_sum(float *out, int rank, int ranks, int64_t first, int64_t count, bool whole);

typedef struct sim_case {
    const sim_op *op;
    int ranks;
    int64_t nbytes; /* as the user names it */
    const char *algorithm;
    const tri_fabric_config *fabric;
    const tri_net_config *net;
    int faulty_rank; /* the one whose links have net->faults */
    uint64_t seed;
} sim_case;

typedef struct sim_result {
    char cannot[160];     /* why the algorithm cannot run this; "": it did */
    double price_us;      /* what the selector thinks it costs */
    bool chosen;          /* by the selector, were it left alone */
    double time_us;       /* until the last rank has its result */
    tri_net_traffic most; /* of the busiest rank, each figure by itself */
    int64_t wrong;        /* elements */
} sim_result;

/* Elements of a block. */
int64_t sim_count(const sim_case *one);
/* Bytes of memory that the buffers of a case need. */
double sim_memory(const sim_case *one);
/* A simulation of its own. A failure is that of the first rank that failed. */
tri_status sim_run(const sim_case *one, sim_result *result);

/* sim_recovery.c: `trireme sim recovery`; argv[0] is that word. */
int sim_recovery(int argc, char **argv);

#endif
