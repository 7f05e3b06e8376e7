/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.c: the arithmetic of a plan.
 */
#include "plan/cost.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "parallel/schedule.h"
#include "tensor/tree.h"

#define VALUE_NBYTES 4.0
#define POOL_UNITS   3 /* that a sharded worker holds whole at a time */
#define CARD_UNITS   4 /* on a card, the largest parameters of an op */

int64_t tri_plan_rows(const tri_plan_job *job)
{
    return (job->batch + job->shards - 1) / job->shards;
}

int64_t tri_plan_shards_of(const tri_plan_job *job, int data)
{
    int64_t most = 0;
    for (int r = 0; r < data; r++)
        if (tri_tree_count(job->shards, r, data) > most)
            most = tri_tree_count(job->shards, r, data);
    return most;
}

int64_t tri_plan_run_shards(const tri_plan_job *job, const tri_layout *layout)
{
    int64_t mine = tri_plan_shards_of(job, layout->data);
    int64_t at_once = layout->pipeline > 1 && job->shards_at_once == 0 ? 1 : job->shards_at_once;
    return at_once > 0 && at_once < mine ? at_once : mine;
}

const char *tri_layout_print(const tri_layout *layout, char text[96])
{
    int at = snprintf(text, 96, "data %d", layout->data);
    if (layout->tensor > 1)
        at += snprintf(text + at, 96 - (size_t)at, " x tensor %d", layout->tensor);
    if (layout->pipeline > 1)
        at += snprintf(text + at, 96 - (size_t)at, " x pipeline %d", layout->pipeline);
    if (layout->sync != TRI_SYNC_ALLREDUCE)
        at += snprintf(text + at, 96 - (size_t)at, ", %s", tri_sync_kind_word(layout->sync));
    if (layout->zero > 0)
        at += snprintf(text + at, 96 - (size_t)at, " over %d", layout->zero);
    if (layout->pipeline > 1)
        at += snprintf(text + at, 96 - (size_t)at, ", %s", tri_pipe_kind_word(layout->schedule));
    if (layout->chunks > 1)
        snprintf(text + at, 96 - (size_t)at, " of %d", layout->chunks);
    return text;
}

/* --- the parts of a step --- */

typedef struct sums {
    const tri_plan_job *job;
    const tri_plan_cluster *cluster;
    const tri_layout *layout;
    const tri_plan_chunk *chunks;
    tri_plan_edge data, tensor, pipeline;
    tri_plan_edge zero, replicas; /* who share a copy of the state; who have the same of each */
    double run_samples;           /* of one run of the worker that has most */
    double runs;
} sums;

/* Sums over tensor ranks in a run of a chunk. Those of bf16 are one of two ranks after the other. */
static double tensor_run_s(const sums *v, const tri_plan_chunk *chunk)
{
    if (chunk->sum_count == 0 || v->tensor.count == 1)
        return 0;
    double nbytes = chunk->sum_nbytes * v->run_samples / chunk->sum_count;
    if (!v->job->half)
        return chunk->sum_count * tri_plan_call_s(v->cluster, v->tensor, TRI_PLAN_OWN_SUM, nbytes);
    double seconds = 0;
    for (int stride = 1; stride < v->tensor.count; stride *= 2)
        seconds += tri_plan_call_s(v->cluster, (tri_plan_edge){2, stride}, TRI_PLAN_OWN_SUM, nbytes);
    return chunk->sum_count * seconds;
}

static double tensor_run_nbytes(const sums *v, const tri_plan_chunk *chunk)
{
    double all = chunk->sum_nbytes * v->run_samples;
    return tri_plan_call_nbytes(v->tensor, TRI_PLAN_OWN_SUM, all);
}

/* Gradients of runs are added to those before: two arrays are read and one written, where a norm reads one. */
static double adding_s(const sums *v, double values)
{
    return (v->runs - 1) * values * 3 * tri_plan_norm_s(v->cluster) * v->cluster->crowd;
}

static void cost_alone(const sums *v, tri_plan_cost *cost)
{
    const tri_plan_chunk *chunk = &v->chunks[0];
    cost->compute_s = v->runs * v->run_samples * (chunk->up_s + chunk->down_s) * v->cluster->crowd;
    cost->compute_s += adding_s(v, chunk->values);
    cost->tensor_s = v->runs * tensor_run_s(v, chunk);
    cost->wire += v->runs * tensor_run_nbytes(v, chunk);
}

/* The run of the schedule, in which a third of a chunk's sums belong to the forward pass. */
static tri_status schedule_play(const sums *v, tri_pipe_schedule *schedule, double *times, double *span)
{
    int count = v->layout->pipeline * v->layout->chunks;
    double across = 0, *forward = times, *backward = times + count, *late = times + 2 * count;
    for (int c = 0; c < count; c++) {
        const tri_plan_chunk *chunk = &v->chunks[c];
        double tensor = tensor_run_s(v, chunk);
        forward[c] = v->run_samples * chunk->up_s * v->cluster->crowd + tensor / 2;
        backward[c] = v->run_samples * chunk->down_s * v->cluster->crowd + tensor / 2;
        late[c] = v->run_samples * chunk->late_s * v->cluster->crowd;
        across = fmax(across, chunk->in_up_nbytes * v->run_samples);
    }
    tri_pipe_schedule_costs costs = {forward, backward, late,
                                     tri_plan_call_s(v->cluster, v->pipeline, TRI_PLAN_MESSAGE, across)};
    TRI_TRY(tri_pipe_schedule_make(v->layout->schedule, v->layout->pipeline, v->layout->chunks, (int)v->runs, true,
                                   schedule));
    TRI_TRY(tri_pipe_schedule_check(schedule));
    *span = tri_pipe_schedule_play(schedule, &costs, NULL);
    return TRI_OK;
}

/* Who does not share the state has all of it. */
static tri_sync_kind sync_of(const sums *v)
{
    return v->zero.count > 1 ? v->layout->sync : TRI_SYNC_ALLREDUCE;
}

/* With copies of weights, which are in memory of graphs too. */
static double activations_nbytes(const sums *v, const tri_plan_chunk *chunk, int slots)
{
    return (slots > 1 ? chunk->activations_shared + slots * chunk->activations_slot : chunk->activations) +
           (sync_of(v) == TRI_SYNC_ZERO3 ? 0 : chunk->rounded);
}

/* Room for what crosses the edges of a chunk (parallel/pipeline.c). */
static double crossing_nbytes(const sums *v, const tri_pipe_schedule *schedule, int c)
{
    const tri_plan_chunk *chunk = &v->chunks[c];
    int last = v->layout->pipeline * v->layout->chunks - 1;
    double slots = schedule->slots[c] > 2 ? schedule->slots[c] : 2;
    double nbytes = (schedule->buffers[0][c] + 1) * chunk->in_up_nbytes + 2 * chunk->in_down_nbytes;
    if (c < last)
        nbytes += slots * chunk[1].in_up_nbytes + (schedule->buffers[1][c] + 1) * chunk[1].in_down_nbytes;
    return nbytes * v->run_samples;
}

/* The stage that computes longest sets what is called computing; what is left of the run is the bubble. */
static void cost_stages(const sums *v, const tri_pipe_schedule *schedule, double span, tri_plan_cost *cost)
{
    int stages = v->layout->pipeline;
    double adding = 0;
    for (int s = 0; s < stages; s++) {
        double compute = 0, tensor = 0, wire = 0, activations = 0, values = 0;
        for (int c = s; c < stages * v->layout->chunks; c += stages) {
            const tri_plan_chunk *chunk = &v->chunks[c];
            compute += v->runs * v->run_samples * (chunk->up_s + chunk->down_s) * v->cluster->crowd;
            tensor += v->runs * tensor_run_s(v, chunk);
            wire += v->runs * (tensor_run_nbytes(v, chunk) + v->run_samples * chunk->in_down_nbytes);
            if (c + 1 < stages * v->layout->chunks)
                wire += v->runs * v->run_samples * v->chunks[c + 1].in_up_nbytes;
            values += chunk->values;
            activations += activations_nbytes(v, chunk, schedule->slots[c]) + crossing_nbytes(v, schedule, c);
        }
        cost->activations = fmax(cost->activations, activations);
        cost->wire = fmax(cost->wire, wire);
        adding = fmax(adding, adding_s(v, values));
        if (compute + tensor > cost->compute_s + cost->tensor_s) {
            cost->compute_s = compute;
            cost->tensor_s = tensor;
        }
    }
    cost->bubble_s = fmax(0, span - cost->compute_s - cost->tensor_s);
    cost->compute_s += adding;
}

static tri_status cost_pipeline(const sums *v, tri_plan_cost *cost)
{
    size_t count = (size_t)v->layout->pipeline * (size_t)v->layout->chunks;
    tri_pipe_schedule schedule = {0};
    double span = 0, *times = tri_alloc_zero(3 * count, sizeof(double));
    tri_status status = times ? schedule_play(v, &schedule, times, &span) : TRI_ENOMEM;
    if (status == TRI_OK)
        cost_stages(v, &schedule, span, cost);
    tri_pipe_schedule_fini(&schedule);
    tri_free(times);
    return status;
}

/* --- what the ranks that share the batch do once a step --- */

/* What is computed on cards. */
static bool sums_on_host(const sums *v)
{
    return v->cluster->cards && v->cluster->card_rate == 0;
}

/* As many calls as there are buckets; `part` of each travels. */
static double bucket_calls_s(const sums *v, tri_plan_edge edge, tri_plan_call call, double nbytes, double part)
{
    double count = fmax(1, ceil(nbytes / v->job->bucket_nbytes));
    return count * tri_plan_call_s(v->cluster, edge, call, part * nbytes / count);
}

/* What is left of calls that continue during `beside` seconds of computing, of which the last bucket sees nothing. */
static double exposed(const sums *v, tri_plan_edge edge, double seconds, double nbytes, double beside)
{
    if (!v->job->overlap || !tri_plan_call_hides(v->cluster, edge) || v->layout->pipeline > 1)
        return seconds;
    double last = seconds / fmax(1, ceil(nbytes / v->job->bucket_nbytes));
    return fmax(last, seconds - beside);
}

/* Inside each copy of the state to its owners, then among those who own the same. */
static void cost_scatter(const sums *v, double grads, double down, tri_plan_cost *cost)
{
    double share = 1.0 / v->zero.count;
    double seconds = bucket_calls_s(v, v->zero, TRI_PLAN_SCATTER, grads, 1) +
                     bucket_calls_s(v, v->replicas, TRI_PLAN_SUM, grads, share);
    cost->sum_s = exposed(v, v->data, seconds, grads, down);
    cost->wire += tri_plan_call_nbytes(v->zero, TRI_PLAN_SCATTER, grads) +
                  tri_plan_call_nbytes(v->replicas, TRI_PLAN_SUM, grads * share);
}

/* Gradients go from cards to their hosts, where they are summed, and back; so do weights that others have moved. */
static double copies_s(const sums *v, double nbytes)
{
    return sums_on_host(v) ? 2 * nbytes / v->cluster->copy_rate : 0;
}

static void cost_data(const sums *v, const tri_plan_chunk *most, tri_plan_cost *cost)
{
    const tri_plan_chunk *chunk = &v->chunks[0];
    double weights = VALUE_NBYTES * most->values, grads = VALUE_NBYTES * (most->values + most->tie_values);
    double up = v->runs * v->run_samples * chunk->up_s, down = v->runs * v->run_samples * chunk->down_s;
    tri_sync_kind sync = v->layout->sync;
    if (v->data.count == 1)
        return;
    if (sync == TRI_SYNC_ALLREDUCE) {
        double seconds = bucket_calls_s(v, v->data, TRI_PLAN_SUM, grads, 1);
        cost->sum_s = exposed(v, v->data, seconds, grads, down) + copies_s(v, grads);
        cost->wire += tri_plan_call_nbytes(v->data, TRI_PLAN_SUM, grads);
        return;
    }
    cost_scatter(v, grads, down, cost);
    double gather = bucket_calls_s(v, v->zero, TRI_PLAN_GATHER, weights, 1);
    cost->wire += (sync == TRI_SYNC_ZERO3 ? 2 * v->runs : 1) * tri_plan_call_nbytes(v->zero, TRI_PLAN_GATHER, weights);
    switch (sync) {
    case TRI_SYNC_ZERO3:
        cost->gather_s = v->runs * (exposed(v, v->zero, gather, weights, up / v->runs) +
                                    exposed(v, v->zero, gather, weights, down / v->runs));
        break;
    default:
        cost->gather_s = exposed(v, v->zero, gather, weights, up);
    }
    cost->sum_s += copies_s(v, grads);
    cost->gather_s += copies_s(v, weights);
}

/* Bytes of the rank that has most shards: one gradient for each of its parts, and for each level of a tree whose leaves
 * are computed one after the other. */
static double gradient_arrays(const sums *v)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int64_t shards = v->job->shards, most = 0, largest = 0;
    int part_count = 1, levels = 0;
    for (int r = 0; r < v->data.count; r++) {
        int64_t count = tri_tree_count(shards, r, v->data.count);
        int found = tri_tree_parts(shards, tri_tree_first(shards, r, v->data.count), count, parts);
        if (count < most || (count == most && found <= part_count))
            continue;
        most = count;
        part_count = found;
        largest = 0;
        for (int p = 0; p < found; p++)
            largest = parts[p].count > largest ? parts[p].count : largest;
    }
    for (int64_t count = tri_plan_run_shards(v->job, v->layout); count < largest; count *= 2)
        levels++;
    return part_count + levels;
}

/* The chunks of the stage that has most parameters. */
static tri_plan_chunk largest_stage(const sums *v)
{
    tri_plan_chunk most = {0};
    for (int s = 0; s < v->layout->pipeline; s++) {
        tri_plan_chunk here = {0};
        for (int c = s; c < v->layout->pipeline * v->layout->chunks; c += v->layout->pipeline) {
            here.values += v->chunks[c].values;
            here.tie_values += v->chunks[c].tie_values;
            here.largest = fmax(here.largest, v->chunks[c].largest);
        }
        if (here.values + here.tie_values > most.values + most.tie_values)
            most = here;
    }
    return most;
}

static void cost_memory(const sums *v, const tri_plan_chunk *most, tri_plan_cost *cost)
{
    double values = most->values, ranks = v->zero.count, arrays = gradient_arrays(v);
    double unit = fmin(values, fmax(most->largest, v->job->bucket_nbytes / VALUE_NBYTES));
    double pool = POOL_UNITS * VALUE_NBYTES * unit, all = VALUE_NBYTES * (values + most->tie_values);
    tri_sync_kind sync = sync_of(v);
    bool whole = sync < TRI_SYNC_ZERO2 || v->runs > 1;
    cost->weights = sync == TRI_SYNC_ZERO3 ? VALUE_NBYTES * values / ranks + pool : VALUE_NBYTES * values;
    cost->gradients = whole ? arrays * all : all / ranks + arrays * pool;
    if (v->data.count > 1 && sync == TRI_SYNC_ALLREDUCE)
        cost->gradients += v->job->compress_nbytes * values;
    cost->optimizer = v->job->states * VALUE_NBYTES * values / (sync == TRI_SYNC_ALLREDUCE ? 1 : ranks);
    if (sums_on_host(v)) { /* whole gradients there, and on the host what the strategy works on */
        cost->host = cost->gradients + (sync == TRI_SYNC_ALLREDUCE ? 0 : cost->weights);
        cost->gradients = arrays * all;
        if (sync == TRI_SYNC_ZERO3)
            cost->weights = VALUE_NBYTES * (values / ranks + CARD_UNITS * most->largest);
    }
    cost->memory = cost->weights + cost->gradients + cost->optimizer + cost->activations;
}

static void cost_totals(const sums *v, tri_plan_cost *cost)
{
    cost->step_s = cost->compute_s + cost->tensor_s + cost->bubble_s + cost->sum_s + cost->gather_s + cost->optimizer_s;
    cost->samples_per_s = (double)v->job->batch / cost->step_s;
    cost->tokens_per_s = cost->samples_per_s * (double)v->job->tokens;
    cost->epoch_s = cost->step_s * (double)v->job->steps;
    cost->epoch_price = cost->epoch_s / 3600 * tri_plan_price(v->cluster);
}

tri_status tri_plan_cost_find(const tri_plan_job *job, const tri_plan_cluster *cluster, const tri_layout *layout,
                              const tri_plan_chunk *chunks, tri_plan_cost *cost)
{
    int64_t shards = tri_plan_run_shards(job, layout), mine = tri_plan_shards_of(job, layout->data);
    double samples = (double)(mine * tri_plan_rows(job) < job->batch ? mine * tri_plan_rows(job) : job->batch);
    int zero = layout->zero > 0 ? layout->zero : layout->data;
    tri_plan_cluster by_hosts; /* NCCL has no part where the state is there several times (card_sums.c) */
    if (zero < layout->data && cluster->card_rate > 0) {
        by_hosts = *cluster;
        by_hosts.card_rate = 0;
        cluster = &by_hosts;
    }
    sums v = {.job = job,
              .cluster = cluster,
              .layout = layout,
              .chunks = chunks,
              .tensor = {layout->tensor, 1},
              .data = {layout->data, layout->tensor},
              .zero = {zero, layout->tensor},
              .replicas = {layout->data / zero, layout->tensor * zero},
              .pipeline = {layout->pipeline, layout->tensor * layout->data},
              .runs = ceil((double)mine / (double)shards)};
    v.run_samples = samples / v.runs;
    *cost = (tri_plan_cost){0};
    if (layout->pipeline > 1)
        TRI_TRY(cost_pipeline(&v, cost));
    else
        cost_alone(&v, cost);
    if (layout->pipeline == 1)
        cost->activations = activations_nbytes(&v, &chunks[0], 1);
    tri_plan_chunk most = largest_stage(&v);
    cost_data(&v, &most, cost);
    double owned = layout->sync == TRI_SYNC_ALLREDUCE ? most.values : most.values / zero;
    cost->optimizer_s =
        owned * (tri_plan_optim_s(cluster, job->states) + (job->clips ? tri_plan_norm_s(cluster) : 0)) * cluster->crowd;
    cost_memory(&v, &most, cost);
    cost_totals(&v, cost);
    return TRI_OK;
}
