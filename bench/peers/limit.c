/* SPDX-License-Identifier: Apache-2.0
 *
 * limit.c: what memory itself allows: the same operations written by hand, with no generality, for ranks on one host.
 *
 *   limit shared OPS SIZES SECONDS      every rank reaches all buffers; each writes its part of every result once
 *   limit stream OPS SIZES SECONDS      the same with stores that bypass the caches
 *   limit staged OPS SIZES SECONDS      private buffers: all that travels is copied into a shared slot and out of it
 *   limit taken OPS SIZES SECONDS       the same, and who has read a slot makes its lines his own
 *   limit line                          how long a cache line takes from core to core, ns
 *
 * It starts its BENCH_RANKS ranks itself, so that they have memory in common.
 */
#define _GNU_SOURCE
#include "core.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define STREAM_COUNT   16
#define STREAM(to, at) _mm512_stream_ps(to, _mm512_loadu_ps(at))
#elif defined(__AVX__)
#include <immintrin.h>
#define STREAM_COUNT   8
#define STREAM(to, at) _mm256_stream_ps(to, _mm256_loadu_ps(at))
#endif

/* A piece that has left the second cache is read faster than one that is still dirty there. */
#define SLOT_NBYTES (512u << 10)
#define SLOT_COUNT  (SLOT_NBYTES / sizeof(float))
#define BLOCK       1024 /* elements that are summed before they are written to every place */

static size_t region_nbytes; /* of one rank: inputs, results, slots */
static char *region;         /* of rank 0; the others' follow */
static int streams, takes;

static float *of_rank(const core_case *c, const float *mine, int rank)
{
    return (float *)(uintptr_t)((const char *)mine + ((ptrdiff_t)rank - c->rank) * (ptrdiff_t)region_nbytes);
}

static float *slot_of(int rank, unsigned bank)
{
    return (float *)(void *)(region + (size_t)(rank + 1) * region_nbytes - (2 - bank) * SLOT_NBYTES);
}

static void copy(float *to, const float *from, size_t count)
{
    size_t i = 0;
#ifdef STREAM
    if (streams && count > 4 * BLOCK && (uintptr_t)to % 64 == 0) {
        for (; i + STREAM_COUNT <= count; i += STREAM_COUNT)
            STREAM(to + i, from + i);
        _mm_sfence();
    }
#endif
    memcpy(to + i, from + i, (count - i) * sizeof(float));
}

static void add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* The sum of all ranks' elements [first, first + count) of `in`, to the same place in every buffer of `to`. */
static void sum_to(core_case *c, const float *in, size_t first, size_t count, float **to, int to_count)
{
    _Alignas(64) float sum[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t some = count - at < BLOCK ? count - at : BLOCK;
        memcpy(sum, of_rank(c, in, 0) + first + at, some * sizeof(float));
        for (int r = 1; r < c->ranks; r++)
            add(sum, of_rank(c, in, r) + first + at, some);
        for (int r = 0; r < to_count; r++)
            copy(to[r] + at, sum, some);
    }
}

/* Two ranks add and write both places in one pass. */
static void sum_pair(float *restrict a, float *restrict b, size_t count)
{
    size_t i = 0;
#if defined(__AVX512F__)
    if (streams && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0) {
        for (; i + 16 <= count; i += 16) {
            __m512 sum = _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i));
            _mm512_stream_ps(a + i, sum);
            _mm512_stream_ps(b + i, sum);
        }
        _mm_sfence();
    }
#endif
    for (; i < count; i++)
        a[i] = b[i] = a[i] + b[i];
}

/* The share of a rank of `count` elements, in whole cache lines; few elements are one rank's. */
static size_t share_first(const core_case *c, size_t count, int rank)
{
    if (count < 256 || rank == c->ranks)
        return rank == 0 ? 0 : count;
    return count / (size_t)c->ranks * (size_t)rank / 16 * 16;
}

static void shared_sum(core_case *c, float *in, float *out)
{
    size_t first = share_first(c, c->count, c->rank), count = share_first(c, c->count, c->rank + 1) - first;
    float *to[CORE_RANKS];
    int to_count = c->op == CORE_REDUCE ? 1 : c->ranks;
    for (int r = 0; r < to_count; r++)
        to[r] = of_rank(c, out, r) + first;
    if (c->ranks == 2 && c->op == CORE_ALL_REDUCE)
        sum_pair(to[0], to[1], count);
    else
        sum_to(c, in, first, count, to, to_count);
}

static void shared_call(core_case *c, float *in, float *out)
{
    size_t part = c->part, first = share_first(c, c->count, c->rank);
    size_t count = share_first(c, c->count, c->rank + 1) - first;
    core_meet();
    switch (c->op) {
    case CORE_ALL_REDUCE:
    case CORE_REDUCE:
        shared_sum(c, in, out);
        break;
    case CORE_BROADCAST: /* each copies its share to all */
        for (int r = 1; r < c->ranks; r++)
            copy(of_rank(c, out, r) + first, of_rank(c, in, 0) + first, count);
        break;
    case CORE_ALL_GATHER:
        for (int r = 0; r < c->ranks; r++)
            copy(out + (size_t)r * part, of_rank(c, in, r), part);
        break;
    case CORE_REDUCE_SCATTER:
        sum_to(c, in, (size_t)c->rank * part, part, &out, 1);
        break;
    case CORE_ALL_TO_ALL:
        for (int r = 0; r < c->ranks; r++)
            copy(out + (size_t)r * part, of_rank(c, in, r) + (size_t)c->rank * part, part);
        break;
    case CORE_GATHER:
        copy(of_rank(c, out, 0) + (size_t)c->rank * part, in, part);
        break;
    case CORE_SCATTER:
        copy(out, of_rank(c, in, 0) + (size_t)c->rank * part, part);
        break;
    default:
        return;
    }
    core_meet();
}

#include "staged.h"

static float *memory(size_t nbytes, int which)
{
    size_t room = (region_nbytes - 2 * SLOT_NBYTES) / 2;
    if (nbytes > room)
        core_die("memory", "a size is larger than was planned");
    return (float *)(void *)(region + (size_t)core_rank * region_nbytes + (which ? 0 : room));
}

static void release(float *at)
{
    (void)at;
}

static void fence(void)
{
    core_meet();
}

/* Memory that all ranks will have, for the largest of the sizes; ranks do not begin at the same place of a huge page.
 */
static void region_open(const char *sizes, int ranks)
{
    size_t most = 0;
    for (const char *at = sizes; *at; at += *at == ',') {
        char *end;
        size_t nbytes = strtoull(at, &end, 10);
        most = nbytes > most ? nbytes : most;
        if (end == at)
            core_die("sizes", "want whole numbers with commas");
        at = end;
    }
    region_nbytes = (2 * (most + (2u << 20)) + 2 * SLOT_NBYTES + (2u << 20) - 1) / (2u << 20) * (2u << 20) + 37 * 4096;
    region = mmap(NULL, region_nbytes * (size_t)ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        core_die("memory", strerror(errno));
    madvise(region, region_nbytes * (size_t)ranks, MADV_HUGEPAGE);
}

static void line_print(void)
{
    double least = 1e9;
    for (int round = 0; round < 9; round++) {
        double start = core_now();
        for (int i = 0; i < 2000; i++)
            core_meet();
        double ns = (core_now() - start) / 2000 * 1e9;
        least = ns < least ? ns : least;
    }
    if (core_rank == 0)
        printf("{\"meet_ns\":%.0f}\n", least);
}

/* Rank 0 starts the others; each is one from here on. */
static int ranks_start(int ranks)
{
    for (int r = 1; r < ranks; r++) {
        pid_t parent = getpid(), child = fork();
        if (child < 0)
            core_die("fork", strerror(errno));
        if (child == 0) {
            char text[16];
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            snprintf(text, sizeof(text), "%d", r);
            setenv("BENCH_RANK", text, 1);
            return r;
        }
    }
    setenv("BENCH_RANK", "0", 1);
    return 0;
}

int main(int argc, char **argv)
{
    const char *text = getenv("BENCH_RANKS"), *mode = argc > 1 ? argv[1] : "";
    int ranks = text ? atoi(text) : 0, line = strcmp(mode, "line") == 0;
    if (ranks < 1 || (!line && argc != 5))
        core_die("arguments", "want shared|stream|staged|taken OPS SIZES SECONDS, or line, and BENCH_RANKS");
    if (!line)
        region_open(argv[3], ranks);
    int rank = ranks_start(ranks), code = 0, failed;
    core_begin();
    core_open(rank, ranks);
    streams = strcmp(mode, "stream") == 0;
    takes = strcmp(mode, "taken") == 0;
    const core_peer peer = {takes || strcmp(mode, "staged") == 0 ? staged_call : shared_call, fence, memory, release};
    if (line)
        line_print();
    else
        code = core_main(argc - 1, argv + 1, &peer);
    while (rank == 0 && wait(&failed) > 0)
        code = code || failed;
    return code;
}
