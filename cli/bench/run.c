/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c: the timed run of one case.
 *
 * A sample: every rank writes its inputs again, all meet in a barrier, the operation runs, all meet, every result is
 * checked. Only the operation is timed. Small operations are timed as a batch, back to back, each on data of its own:
 * one alone is shorter than the ranks' way out of the barrier. A sample's time is the slowest rank's.
 */
#include <stdlib.h>

#include "base/wait.h"
#include "cli/bench/bench.h"

#define BATCH_BELOW_NBYTES 16384 /* from here on one operation at a time */
#define BATCH_NBYTES       65536 /* of data in a batch: they stay in a near cache */
#define BATCH_MOST         128
#define LINE_NBYTES        64
#define PAGE_NBYTES        4096
#define SKEW_NBYTES        (5 * PAGE_NBYTES + 4 * LINE_NBYTES) /* buffers a power of two apart disturb each other */
#define SAMPLES_LEAST      5
#define SAMPLES_MOST       20000

typedef struct bench_run {
    const bench_case *c;
    bench_pattern pattern;
    int64_t batch;                /* operations in a sample */
    size_t in_step, out_step;     /* bytes from one operation's buffer to the next one's */
    void *in_memory, *out_memory; /* in_memory NULL: in place */
    char *in, *out;               /* of the first operation */
    int64_t turn;                 /* operations so far: what the next inputs are */
    int64_t wrong;
    bool ordinary;
} bench_run;

static size_t line_ceil(size_t nbytes)
{
    nbytes = (nbytes + LINE_NBYTES - 1) / LINE_NBYTES * LINE_NBYTES;
    return nbytes ? nbytes : LINE_NBYTES;
}

static tri_status memory_open(bench_run *run, size_t nbytes, void **out)
{
    if (!run->ordinary)
        return tri_group_alloc(run->c->group, nbytes, out);
    *out = aligned_alloc(PAGE_NBYTES, (nbytes + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES);
    return *out ? TRI_OK : tri_fail(TRI_ENOMEM, "out of memory: %zu bytes wanted", nbytes);
}

static void memory_close(bench_run *run, void *memory)
{
    if (run->ordinary)
        free(memory);
    else
        tri_group_free(run->c->group, memory);
}

/* Every rank asks for the same bytes: a group's memory needs that. */
static tri_status buffers_open(bench_run *run)
{
    const bench_case *c = run->c;
    size_t each = run->pattern.each, whole = line_ceil((size_t)c->count * each), batch = (size_t)run->batch;
    run->in_step = run->out_step = whole;
    TRI_TRY(memory_open(run, whole * batch + SKEW_NBYTES, &run->out_memory));
    run->out = run->out_memory;
    if (c->in_place) {
        int64_t ins = c->op->in_count(c), outs = c->op->out_count(c);
        size_t place = (size_t)bench_part_first(c, c->rank) * each;
        run->in = ins < outs && ins > 0 ? run->out + place : run->out;
        run->out = outs < ins && outs > 0 ? run->out + place : run->out;
        return TRI_OK;
    }
    run->out += SKEW_NBYTES;
    TRI_TRY(memory_open(run, whole * batch + SKEW_NBYTES, &run->in_memory));
    run->in = run->in_memory;
    return TRI_OK;
}

static tri_status run_sample(bench_run *run, double *us)
{
    const bench_case *c = run->c;
    int64_t turn = run->turn;
    for (int64_t i = 0; i < run->batch; i++)
        bench_pattern_write(c, &run->pattern, turn + i, run->in + (size_t)i * run->in_step);
    TRI_TRY(tri_barrier(c->group, NULL));
    int64_t start_ns = tri_now_ns();
    for (int64_t i = 0; i < run->batch; i++)
        TRI_TRY(c->op->run(c, run->in + (size_t)i * run->in_step, run->out + (size_t)i * run->out_step));
    *us = (double)(tri_now_ns() - start_ns) / (double)run->batch / c->op->turns / 1e3;
    TRI_TRY(tri_barrier(c->group, NULL)); /* checking takes cores and memory from those who are not through */
    for (int64_t i = 0; i < run->batch; i++)
        run->wrong += bench_pattern_wrong(c, &run->pattern, turn + i, run->out + (size_t)i * run->out_step);
    run->turn += run->batch;
    return tri_wait_check("measuring");
}

/* How many samples, as rank 0 sees it: the first runs also bring the memory in. */
static tri_status plan_samples(bench_run *run, const bench_config *config, int64_t *samples)
{
    double us;
    int64_t start_ns = 0;
    for (int i = 0; i < 3; i++) {
        start_ns = tri_now_ns();
        TRI_TRY(run_sample(run, &us));
    }
    double fit = config->seconds * TRI_NS_PER_S / (double)(tri_now_ns() - start_ns + 1);
    *samples = fit < SAMPLES_LEAST ? SAMPLES_LEAST : fit > SAMPLES_MOST ? SAMPLES_MOST : (int64_t)fit;
    if (config->iterations)
        *samples = config->iterations;
    return tri_broadcast(run->c->group, samples, 1, TRI_I64, 0, NULL);
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tri_status run_samples(bench_run *run, const bench_config *config, bench_result *result)
{
    int64_t samples;
    tri_group *group = run->c->group;
    TRI_TRY(plan_samples(run, config, &samples));
    double *us = tri_alloc((size_t)samples * sizeof(us[0]));
    if (!us)
        return TRI_ENOMEM;
    tri_status status = TRI_OK;
    for (int64_t s = 0; s < samples / 10 && status == TRI_OK; s++) /* the ranks have only just started */
        status = run_sample(run, &us[0]);
    for (int64_t s = 0; s < samples && status == TRI_OK; s++)
        status = run_sample(run, &us[s]);
    if (status == TRI_OK)
        status = tri_all_reduce(group, us, us, samples, TRI_F64, TRI_REDUCE_MAX, NULL);
    if (status == TRI_OK)
        status = tri_all_reduce(group, &run->wrong, &run->wrong, 1, TRI_I64, TRI_REDUCE_SUM, NULL);
    if (status == TRI_OK) {
        qsort(us, (size_t)samples, sizeof(us[0]), compare_times);
        result->median_us = us[samples / 2];
        result->p99_us = us[samples * 99 / 100];
        result->least_us = us[0];
        result->wrong = run->wrong;
    }
    tri_free(us);
    return status;
}

tri_status bench_measure(const bench_case *c, const bench_config *config, bench_result *result)
{
    bench_run run = {.c = c, .ordinary = config->ordinary};
    size_t whole = (size_t)c->count * tri_dtype_nbytes(c->dtype);
    bool batch = whole < BATCH_BELOW_NBYTES && !config->rewrite;
    run.batch = batch ? (int64_t)(BATCH_NBYTES / line_ceil(whole)) : 1;
    run.batch = run.batch > BATCH_MOST ? BATCH_MOST : run.batch;
    *result = (bench_result){.nbytes = (int64_t)whole};
    TRI_TRY(bench_pattern_init(c, &run.pattern));
    tri_group_scale_next(c->group, bench_scale(c->rank));
    tri_status status = buffers_open(&run);
    if (status == TRI_OK)
        status = run_samples(&run, config, result);
    if (status == TRI_OK) {
        result->algorithm = tri_comm_choice(c->group, c->op->op, result->nbytes, run.in);
        if (config->explain && !config->json)
            status = tri_comm_explain(c->group, c->op->op, result->nbytes, run.in, &result->prices);
    }
    memory_close(&run, run.in_memory);
    memory_close(&run, run.out_memory);
    bench_pattern_fini(&run.pattern);
    return status;
}
