/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h: what the programs of bench/peers share: the measurement of `trireme bench` (cli/bench/run.c), for the calls
 * of somebody else.
 *
 * A sample: every rank writes its inputs anew, all meet, the operation runs (timed), all meet, every result is checked.
 * Below 16 KiB a batch of operations is timed, each on data of its own. A sample's time is the slowest rank's. Ranks
 * meet in a file of shared memory after the peer's own barrier, so that a slow barrier does not count. f32 sums.
 * Change here and in cli/bench together: both must do the same.
 */
#ifndef TRI_BENCH_PEERS_CORE_H
#define TRI_BENCH_PEERS_CORE_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CORE_OPS(X)                                                                                                    \
    X(ALL_REDUCE, "all_reduce")                                                                                        \
    X(REDUCE, "reduce")                                                                                                \
    X(BROADCAST, "broadcast")                                                                                          \
    X(ALL_GATHER, "all_gather")                                                                                        \
    X(REDUCE_SCATTER, "reduce_scatter")                                                                                \
    X(ALL_TO_ALL, "all_to_all")                                                                                        \
    X(GATHER, "gather")                                                                                                \
    X(SCATTER, "scatter")                                                                                              \
    X(BARRIER, "barrier")
enum core_op {
#define CORE_ENUM(id, name) CORE_##id,
    CORE_OPS(CORE_ENUM)
#undef CORE_ENUM
        CORE_OP_COUNT
};
static const char *const core_names[] = {
#define CORE_NAME(id, name) name,
    CORE_OPS(CORE_NAME)
#undef CORE_NAME
};

typedef struct core_case {
    int op; /* of core_op */
    int ranks, rank;
    size_t count, part;  /* elements of the whole data, and of one rank's part of it */
    int result_in_input; /* set by a call that leaves its result where the input was */
} core_case;

/* What a program brings. in == out for all_reduce, reduce and broadcast; rank 0 is the root. */
typedef struct core_peer {
    void (*call)(core_case *c, float *in, float *out);
    void (*fence)(void);                        /* the peer's barrier */
    float *(*memory)(size_t nbytes, int which); /* which: 0 inputs, 1 results */
    void (*release)(float *memory);
} core_peer;

#define CORE_PERIOD       1040
#define CORE_SAMPLES      20000
#define CORE_BATCH_BELOW  16384
#define CORE_BATCH_NBYTES 65536
#define CORE_BATCH_MOST   128
#define CORE_RANKS        64
#define CORE_SKEW         (5 * 4096 + 256)
#define CORE_LIMIT_S      60 /* for one meeting */

/* The file of BENCH_SYNC. Each rank counts its meetings in a line of its own. */
typedef struct core_sync {
    uint32_t met[CORE_RANKS][32];
    int64_t samples, wrong[CORE_RANKS];
    double us[CORE_RANKS][CORE_SAMPLES];
} core_sync;

static core_sync *core_shared;
static int core_rank, core_ranks, core_cores;
static int core_yields; /* 1: a peer with threads of its own must not lose its core to one that waits */

static void core_die(const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", core_rank, what, why);
    _exit(1);
}

static double core_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void core_meet(void)
{
    static uint32_t meeting;
    int yields = core_yields || core_ranks > core_cores;
    __atomic_store_n(&core_shared->met[core_rank][0], ++meeting, __ATOMIC_RELEASE);
    for (int r = 0; r < core_ranks; r++) {
        double start = 0;
        uint32_t spins = 0;
        while ((int32_t)(__atomic_load_n(&core_shared->met[r][0], __ATOMIC_ACQUIRE) - meeting) < 0) {
            if (yields)
                sched_yield();
            else
                __builtin_ia32_pause();
            if (++spins % (1u << 20) != 0)
                continue;
            start = start > 0 ? start : core_now();
            if (core_now() - start > CORE_LIMIT_S)
                core_die("meeting of ranks", "others did not come in time");
        }
    }
}

/* Before the peer starts its threads: rank r goes to the r-th core this process may use, where there are enough, and
 * will end with whoever started it. */
static void core_begin(void)
{
    static const char *const names[] = {"BENCH_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"};
    const char *rank = NULL, *ranks = getenv("BENCH_RANKS"), *pin = getenv("BENCH_PIN");
    cpu_set_t mine, one;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !rank; i++)
        rank = getenv(names[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sched_getaffinity(0, sizeof(mine), &mine);
    core_cores = CPU_COUNT(&mine);
    if (!rank || !ranks || atoi(ranks) > core_cores || (pin && strcmp(pin, "0") == 0))
        return;
    int left = atoi(rank);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && left-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
        }
}

static void core_open(int rank, int ranks)
{
    const char *path = getenv("BENCH_SYNC");
    core_rank = rank;
    core_ranks = ranks;
    if (!path || ranks > CORE_RANKS)
        core_die("BENCH_SYNC",
                 path ? "too many ranks" : "not set: these programs are started by bench/compare and bench/tcp");
    int fd = open(path, O_RDWR);
    void *memory = fd < 0 || ftruncate(fd, sizeof(core_sync)) != 0
                       ? MAP_FAILED
                       : mmap(NULL, sizeof(core_sync), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        core_die(path, strerror(errno));
    close(fd);
    core_shared = (core_sync *)memory;
}

static float core_input[2 * CORE_PERIOD], core_sum[2 * CORE_PERIOD];

static void core_numbers(int ranks)
{
    for (int i = 0; i < 2 * CORE_PERIOD; i++)
        core_input[i] = (float)(1 + ((uint32_t)(i % CORE_PERIOD + 1) * 2654435761u >> 13) % 97);
    for (int i = 0; i < 2 * CORE_PERIOD; i++) {
        core_sum[i] = 0;
        for (int r = 0; r < ranks; r++)
            core_sum[i] += core_input[(i + r * 131) % CORE_PERIOD];
    }
}

/* A period of the input of a rank (-1: of the sum) from element `first` on. */
static const float *core_period(int rank, size_t first, size_t turn)
{
    size_t at = (first + turn * 17) % CORE_PERIOD;
    return rank < 0 ? core_sum + at : core_input + (at + (size_t)rank * 131) % CORE_PERIOD;
}

static size_t core_in_count(const core_case *c)
{
    switch (c->op) {
    case CORE_BROADCAST:
    case CORE_SCATTER:
        return c->rank == 0 ? c->count : 0;
    case CORE_ALL_GATHER:
    case CORE_GATHER:
        return c->part;
    default:
        return c->count;
    }
}

static size_t core_out_count(const core_case *c)
{
    switch (c->op) {
    case CORE_REDUCE:
    case CORE_GATHER:
        return c->rank == 0 ? c->count : 0;
    case CORE_REDUCE_SCATTER:
    case CORE_SCATTER:
        return c->part;
    default:
        return c->count;
    }
}

static void core_write(const core_case *c, size_t turn, float *in)
{
    const float *period = core_period(c->rank, 0, turn);
    for (size_t count = core_in_count(c), at = 0; at < count; at += CORE_PERIOD)
        memcpy(in + at, period, (count - at < CORE_PERIOD ? count - at : CORE_PERIOD) * sizeof(float));
}

/* Where elements from `at` on come from: rank (-1: the sum), first; returns how many. */
static size_t core_source(const core_case *c, size_t at, int *rank, size_t *first)
{
    *rank = c->op == CORE_BROADCAST || c->op == CORE_SCATTER ? 0 : -1;
    *first = at;
    if (c->op == CORE_REDUCE_SCATTER || c->op == CORE_SCATTER) {
        *first = (size_t)c->rank * c->part + at;
        return c->part - at;
    }
    if (c->op != CORE_ALL_GATHER && c->op != CORE_GATHER && c->op != CORE_ALL_TO_ALL)
        return c->count - at;
    *rank = (int)(at / c->part);
    *first = at % c->part + (c->op == CORE_ALL_TO_ALL ? (size_t)c->rank * c->part : 0);
    return c->part - at % c->part;
}

static int64_t core_wrong(const core_case *c, size_t turn, const float *out)
{
    int64_t wrong = 0;
    for (size_t count = core_out_count(c), at = 0; at < count;) {
        int rank;
        size_t first, run = core_source(c, at, &rank, &first);
        const float *period = core_period(rank, first, turn);
        run = run < CORE_PERIOD ? run : CORE_PERIOD;
        if (memcmp(out + at, period, run * sizeof(float)) != 0)
            for (size_t i = 0; i < run; i++)
                wrong += out[at + i] != period[i];
        at += run;
    }
    return wrong;
}

static int core_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct core_run {
    core_case c;
    const core_peer *peer;
    size_t batch, step; /* step: elements from one operation's buffer to the next one's */
    size_t turn;
    float *in, *out;
} core_run;

static double core_sample(core_run *run)
{
    core_case *c = &run->c;
    for (size_t i = 0; i < run->batch; i++)
        core_write(c, run->turn + i, run->in + i * run->step);
    run->peer->fence();
    core_meet();
    double start = core_now();
    for (size_t i = 0; i < run->batch; i++)
        run->peer->call(c, run->in + i * run->step, run->out + i * run->step);
    double us = (core_now() - start) * 1e6 / (double)run->batch;
    run->peer->fence();
    core_meet();
    const float *result = c->result_in_input ? run->in : run->out;
    for (size_t i = 0; i < run->batch; i++)
        core_shared->wrong[c->rank] += core_wrong(c, run->turn + i, result + i * run->step);
    run->turn += run->batch;
    return us;
}

static void core_report(const core_case *c, int64_t samples)
{
    int64_t wrong = 0;
    double *us = core_shared->us[0];
    for (int r = 0; r < c->ranks; r++) {
        wrong += core_shared->wrong[r];
        for (int64_t s = 0; s < samples; s++)
            us[s] = core_shared->us[r][s] > us[s] ? core_shared->us[r][s] : us[s];
    }
    qsort(us, (size_t)samples, sizeof(us[0]), core_compare);
    printf("{\"op\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"time_us\":%.4f,\"p99_us\":%.4f,\"wrong\":%lld}\n",
           core_names[c->op], c->ranks, c->count * sizeof(float), us[samples / 2], us[samples * 99 / 100],
           (long long)wrong);
    fflush(stdout);
}

/* A value of rank 0 on all. */
static int64_t core_agree(int64_t value)
{
    core_meet();
    if (core_rank == 0)
        core_shared->samples = value;
    core_meet();
    return core_shared->samples;
}

static void core_measure(core_run *run, double seconds)
{
    int64_t samples = 0;
    for (int i = 0; i < 3; i++) {
        double start = core_now(), us = core_sample(run);
        /* Slow operations need no batch to be seen. */
        run->batch = (size_t)core_agree(us > 100 ? 1 : (int64_t)run->batch);
        double fit = seconds / (core_now() - start);
        samples = fit < 5 ? 5 : fit > CORE_SAMPLES ? CORE_SAMPLES : (int64_t)fit;
    }
    samples = core_agree(samples);
    for (int64_t s = 0; s < samples / 10; s++)
        core_sample(run);
    for (int64_t s = 0; s < samples; s++)
        core_shared->us[run->c.rank][s] = core_sample(run);
    run->peer->fence();
    core_meet();
    if (run->c.rank == 0)
        core_report(&run->c, samples);
    core_meet();
    core_shared->wrong[run->c.rank] = 0;
}

static void core_case_run(const core_peer *peer, int op, size_t nbytes, double seconds)
{
    core_run run;
    memset(&run, 0, sizeof(run));
    run.peer = peer;
    run.c.op = op;
    run.c.ranks = core_ranks;
    run.c.rank = core_rank;
    size_t ranks = (size_t)core_ranks, each = sizeof(float);
    run.c.part = nbytes / each / ranks ? nbytes / each / ranks : 1;
    run.c.count = op == CORE_BARRIER ? 0 : nbytes / each;
    if (op >= CORE_ALL_GATHER && op <= CORE_SCATTER)
        run.c.count = run.c.part * ranks;
    run.step = (run.c.count + 15) / 16 * 16;
    run.step = run.step ? run.step : 16;
    run.batch = run.c.count * each < CORE_BATCH_BELOW ? CORE_BATCH_NBYTES / (run.step * each) : 1;
    run.batch = run.batch > CORE_BATCH_MOST ? CORE_BATCH_MOST : run.batch;
    size_t whole = run.step * run.batch * each + CORE_SKEW;
    float *out = peer->memory(whole, 1), *in = op <= CORE_BROADCAST ? out : peer->memory(whole, 0);
    run.out = in == out ? out : out + CORE_SKEW / each;
    run.in = in;
    core_measure(&run, seconds);
    if (in != out)
        peer->release(in);
    peer->release(out);
}

/* OPS SIZES SECONDS, the lists with commas, sizes in bytes. */
static int core_main(int argc, char **argv, const core_peer *peer)
{
    if (argc != 4)
        core_die("arguments", "want OPS SIZES SECONDS");
    core_numbers(core_ranks);
    char *ops_at = NULL;
    for (char *op = strtok_r(argv[1], ",", &ops_at); op; op = strtok_r(NULL, ",", &ops_at)) {
        int id = 0;
        while (id < CORE_OP_COUNT && strcmp(core_names[id], op) != 0)
            id++;
        if (id == CORE_OP_COUNT)
            core_die(op, "there is no such operation");
        for (char *at = argv[2]; *at && !(id == CORE_BARRIER && at != argv[2]); at += *at == ',')
            core_case_run(peer, id, strtoull(at, &at, 10), atof(argv[3]));
    }
    return 0;
}

static inline float *core_malloc(size_t nbytes, int which)
{
    (void)which;
    void *memory = aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
    if (!memory)
        core_die("memory", "out of it");
    return (float *)memory;
}

static inline void core_free(float *memory)
{
    free(memory);
}

#endif
