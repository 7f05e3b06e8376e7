/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h: `trireme bench`: one row per operation (table.c), what the flags ask for (config.c), data whose results are
 * known (data.c), the timed run (run.c), and how a result is printed (print.c).
 */
#ifndef TRI_CLI_BENCH_H
#define TRI_CLI_BENCH_H

#include "comm/comm.h"

struct bench_op;

/* What one line of results is about. */
typedef struct bench_case {
    const struct bench_op *op;
    const tri_comm *comm;
    tri_group *group;
    int ranks, rank;
    tri_dtype dtype;
    tri_reduce_op reduce;
    int64_t count; /* elements of the whole data, as users count it: over all ranks for gathers */
    int64_t unit;  /* an even operation's part of each rank; an uneven one's parts are 1, 2, 3 ... units */
    bool in_place;
    int64_t *counts; /* [ranks], for the uneven operations: blocks of this rank's buffer */
} bench_case;

/* Where a run of elements of a result comes from: elements [first, first + count) of the input of `rank`. */
typedef struct bench_source {
    int rank; /* BENCH_REDUCED: of all ranks' inputs combined */
    int64_t first, count;
} bench_source;
#define BENCH_REDUCED (-1)

typedef enum bench_place { BENCH_IN_PLACE = 1, BENCH_OUT_OF_PLACE = 2 } bench_place;

/* One operation. Lengths are in elements on this rank. In place, the shorter buffer is at the rank's place in the
 * longer one. */
typedef struct bench_op {
    const char *name;
    tri_comm_op op;
    unsigned places;     /* of bench_place, both or one */
    bench_place usually; /* without --in-place or --out-of-place */
    bool by_rank;        /* each rank has a part of the data */
    bool uneven;         /* parts of different lengths */
    bool reduces;
    double turns;                    /* how often the data travel in one run: a ping-pong has 2 */
    double (*bus_factor)(int ranks); /* bus bandwidth = factor * bytes / time, as nccl-tests defines it */
    int64_t (*in_count)(const bench_case *c);
    int64_t (*out_count)(const bench_case *c);
    tri_status (*run)(const bench_case *c, void *in, void *out);
    bench_source (*expect)(const bench_case *c, int64_t at); /* of the result's elements from `at` on */
} bench_op;
extern const bench_op bench_ops[]; /* name NULL at the end */

/* Sets count (at most `count`, but at least one element of each rank), unit and, on this rank, counts[]. */
void bench_case_size(bench_case *c, int64_t count);
/* Where the part of a rank begins in the whole data. */
int64_t bench_part_first(const bench_case *c, int rank);

/* The words of the command line; NULL: not given. */
typedef struct bench_flags {
    const char *ranks, *hosts, *sizes, *dtype, *transport, *reduce, *memory, *in_place, *out_of_place, *rewrite,
        *engine, *algorithm, *order, *iterations, *seconds, *explain, *json, *started_ns;
} bench_flags;

#define BENCH_LIST_MAX 256

typedef struct bench_config {
    const bench_op *ops[BENCH_LIST_MAX];
    int64_t sizes[BENCH_LIST_MAX]; /* bytes of the whole data */
    tri_dtype dtypes[TRI_DTYPE_COUNT];
    tri_reduce_op reduces[TRI_REDUCE_COUNT];
    int op_count, size_count, dtype_count, reduce_count;
    bool start;         /* `bench start` instead of operations */
    bench_place place;  /* 0: as usual for the operation */
    bool ordinary;      /* memory of the C library instead of the group's */
    bool rewrite;       /* one operation at a time at every size */
    int64_t iterations; /* timed parts of a line, 0 = as many as fit in `seconds` */
    double seconds;
    bool explain, json;
} bench_config;

/* Reads the flags; op_names: "all_reduce,barrier" or "start". Failures name the flag, the wanted and the found. */
tri_status bench_config_read(const bench_flags *flags, const char *op_names, bench_config *config);
/* "all_reduce broadcast ... start" appended to `out`. */
tri_status bench_names_append(tri_string *out);

/* What this rank multiplies its elements by in a premul_sum. */
double bench_scale(int rank);

/* Inputs that differ by rank, element and turn, and what any reduction of them is: small whole numbers, exact in every
 * type in any order. They repeat after BENCH_PERIOD elements, so that writing and checking are copies and comparisons
 * of blocks; a period of whole cache lines that no power of two is a multiple of shows data in wrong places. */
#define BENCH_PERIOD 1040

typedef struct bench_pattern {
    size_t each;    /* bytes of an element */
    char *input;    /* two periods, so that a period can begin anywhere */
    char *combined; /* of all ranks, likewise; NULL where the operation does not reduce */
} bench_pattern;

tri_status bench_pattern_init(const bench_case *c, bench_pattern *pattern);
void bench_pattern_fini(bench_pattern *pattern);
/* Writes the whole input of this rank for a turn. */
void bench_pattern_write(const bench_case *c, const bench_pattern *pattern, int64_t turn, void *in);
/* Elements of the result that are not what that turn gives. */
int64_t bench_pattern_wrong(const bench_case *c, const bench_pattern *pattern, int64_t turn, const void *out);

typedef struct bench_result {
    int64_t nbytes;                     /* of the whole data */
    double median_us, p99_us, least_us; /* of one operation, the slowest rank's */
    int64_t wrong;                      /* elements of all ranks in all timed operations */
    const char *algorithm;
    tri_string prices; /* of all algorithms, when asked for */
} bench_result;

/* Collective. The result's prices are the caller's to free, also after a failure. */
tri_status bench_measure(const bench_case *c, const bench_config *config, bench_result *result);

void bench_print_head(void);
tri_status bench_print_result(const bench_case *c, const bench_config *config, const bench_result *result);
tri_status bench_print_start(int ranks, double us, bool json);

#endif
