/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline_run.c: one step of one rank: the actions of its row, with messages posted in the order of all.
 *
 * A message is posted as soon as every one before it was: a send once its micro-batch is computed, a receive once there
 * is room. They travel while actions are computed. Which are posted when depends on the table alone, so ranks with the
 * same table queue the same things in the same order.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/runtime.h"
#include "base/status.h"
#include "kernel/array.h"
#include "parallel/pipeline_impl.h"

typedef struct pipe_run {
    tri_pipeline *p;
    const tri_batch *batch;
    uint64_t step;
    bool training;
    float *const *grads;
    tri_graph_ready ready; /* or NULL */
    void *arg;
    int next;                /* gradient that is ready next: from the tail down to 0 */
    const pipe_micro *micro; /* of the last action, while its gradients become complete */
} pipe_run;

static double seconds_since(int64_t start_ns)
{
    return (double)(tri_now_ns() - start_ns) / 1e9;
}

/* The same of a micro-batch in a chunk, which traces show. */
static double slot_seconds(const pipe_run *run, const pipe_chunk *chunk, int micro, const char *what, int64_t start_ns)
{
    const tri_pipeline *p = run->p;
    int64_t passed_ns = tri_now_ns() - start_ns;
    uint64_t stage = (uint64_t)((chunk - p->chunks) * p->ranks + p->rank);
    tri_event_write(&(tri_event){.start_ns = start_ns,
                                 .duration_ns = passed_ns,
                                 .what = what,
                                 .rank = p->named,
                                 .sequence = (uint32_t)run->step,
                                 .nbytes = stage * TRI_EVENT_MICROS + (uint64_t)micro});
    return (double)passed_ns / 1e9;
}

static pipe_chunk *chunk_of(const tri_pipeline *p, int number)
{
    return &p->chunks[number / p->ranks];
}

static pipe_buffer *item_of(const pipe_ring *ring, int micro)
{
    return &ring->items[micro % ring->count];
}

/* --- messages --- */

static tri_status message_wait(tri_pipeline *pipeline, int message)
{
    if (message < 0 || !pipeline->works[message])
        return TRI_OK;
    tri_work *work = pipeline->works[message];
    pipeline->works[message] = NULL;
    return tri_work_wait(work);
}

static void name_next(const tri_pipeline *p, const tri_pipe_message *m)
{
    char name[48];
    snprintf(name, sizeof(name), "%s of micro-batch %d for stage %d", m->backward ? "gradients" : "values", m->micro,
             m->chunk);
    tri_group_name_next(p->group, name);
}

static tri_status message_send(tri_pipeline *p, int index, const tri_pipe_message *m)
{
    const pipe_chunk *chunk = chunk_of(p, m->backward ? m->chunk + 1 : m->chunk - 1);
    const tri_span *span = tri_graph_span(chunk->graph);
    pipe_buffer *item = item_of(m->backward ? &chunk->din : &chunk->out, m->micro);
    size_t nbytes = m->backward
                        ? tri_crossings_nbytes(span->in, span->in_count, (int)p->micros[m->micro].count, true)
                        : tri_crossings_nbytes(span->out, span->out_count, (int)p->micros[m->micro].count, false);
    if (nbytes == 0)
        return TRI_OK;
    tri_device_view_read(&item->view);
    item->leaving = index;
    return tri_send(p->group, item->view.host, (int64_t)nbytes, TRI_U8, m->to, &p->works[index]);
}

static tri_status message_receive(tri_pipeline *p, int index, const tri_pipe_message *m)
{
    const pipe_chunk *chunk = chunk_of(p, m->chunk);
    const tri_span *span = tri_graph_span(chunk->graph);
    pipe_buffer *item = item_of(m->backward ? &chunk->dout : &chunk->in, m->micro);
    size_t nbytes = m->backward ? tri_crossings_nbytes(span->out, span->out_count, (int)p->micros[m->micro].count, true)
                                : tri_crossings_nbytes(span->in, span->in_count, (int)p->micros[m->micro].count, false);
    if (nbytes == 0)
        return TRI_OK;
    return tri_receive(p->group, item->view.host, (int64_t)nbytes, TRI_U8, m->from, &p->works[index]);
}

static bool can_post(const tri_pipeline *p, const tri_pipe_message *m)
{
    if (m->from == p->rank)
        return chunk_of(p, m->backward ? m->chunk + 1 : m->chunk - 1)->done[m->backward] > m->micro;
    const pipe_chunk *chunk = chunk_of(p, m->chunk);
    return m->micro < chunk->freed[m->backward] + (m->backward ? chunk->dout.count : chunk->in.count);
}

static tri_status messages_post(tri_pipeline *p)
{
    const tri_pipe_schedule *s = &p->table->schedule;
    for (; p->posted < s->message_count[p->rank]; p->posted++) {
        const tri_pipe_message *m = &s->messages[p->rank][p->posted];
        if (!can_post(p, m))
            break;
        name_next(p, m);
        TRI_TRY(m->from == p->rank ? message_send(p, p->posted, m) : message_receive(p, p->posted, m));
    }
    tri_group_name_next(p->group, "");
    return TRI_OK;
}

/* What was received is the device's. */
static void buffer_arrive(const pipe_buffer *item)
{
    if (item->view.memory)
        tri_device_view_write(&item->view);
}

/* What the buffer held has left. */
static tri_status buffer_take(tri_pipeline *p, pipe_buffer *item)
{
    int message = item->leaving;
    item->leaving = -1;
    return message_wait(p, message);
}

/* --- sums of micro-batches --- */

/* The array in which the sum of a part's leaves from the highest bit of `leaf` that it lacks grows: as many are kept as
 * `leaf` has bits. */
static float *sum_at(const pipe_run *run, const pipe_micro *micro, int depth)
{
    return depth == 0 ? run->grads[micro->part] : run->p->partial[depth - 1];
}

/* A leaf's gradients are in their place: adds them to the left halves that they complete. */
static void range_add(const pipe_run *run, const pipe_micro *micro, pipe_range range)
{
    int depth = __builtin_popcount((unsigned)micro->leaf);
    for (int rest = micro->leaf; (rest & 1) != 0; rest >>= 1, depth--) {
        float *left = sum_at(run, micro, depth - 1) + range.first;
        tri_array_add(run->p->params->device, run->p->threads, left, left, sum_at(run, micro, depth) + range.first,
                      range.count);
    }
}

static void leaf_add(const pipe_run *run, const pipe_chunk *chunk, const pipe_micro *micro)
{
    for (int i = 0; i < chunk->range_count; i++)
        range_add(run, micro, chunk->ranges[i]);
}

/* --- gradients that are ready --- */

static bool is_complete(const tri_pipeline *p, int number)
{
    int maker = p->makers[number];
    return maker < 0 || p->chunks[maker].done[1] == p->micro_count;
}

/* At most `most` gradients of complete chunks, in order; the tail is everybody's. */
static void gradients_release(pipe_run *run, int most)
{
    int tail = tri_params_tail(run->p->params);
    for (; run->ready && run->next >= 0 && most > 0 && is_complete(run->p, run->next); run->next--) {
        if (run->next < tail && run->p->makers[run->next] < 0)
            continue;
        run->ready(run->arg, run->next);
        most--;
    }
}

/* Between actions of chunks that continue: a share of what is left, for a message waits behind the sums that are queued
 * before it. On all who share the batch at the same places, or sums and messages could wait for one another in a
 * circle. */
static void some_release(pipe_run *run, int actions_left)
{
    if (run->p->overlap && run->p->even)
        gradients_release(run, (run->next + 1) / (actions_left + 1) + 1);
}

/* In the last action of the first rank, behind which there are no messages. */
static void last_ready(void *arg, int number)
{
    pipe_run *run = arg;
    const tri_params *params = run->p->params;
    int64_t first = tri_params_grad_first(params, number);
    range_add(run, run->micro, (pipe_range){first, tri_params_grad_first(params, number + 1) - first});
    run->ready(run->arg, number);
}

/* All others have been ready before. */
static tri_status last_backward_run(pipe_run *run, pipe_chunk *chunk, const pipe_micro *micro)
{
    int own = (int)(chunk - run->p->chunks), tail = tri_params_tail(run->p->params);
    for (; run->next >= 0; run->next--)
        if (run->next == tail || (run->p->makers[run->next] >= 0 && run->p->makers[run->next] != own))
            run->ready(run->arg, run->next);
    run->micro = micro;
    return tri_graph_backward(chunk->graph, last_ready, run);
}

/* --- actions --- */

static tri_batch micro_batch(const pipe_run *run, const pipe_chunk *chunk, const pipe_micro *micro)
{
    size_t input_nbytes, target_nbytes;
    tri_graph_batch_nbytes(chunk->graph, &input_nbytes, &target_nbytes);
    const tri_span *span = tri_graph_span(chunk->graph);
    tri_batch all = *run->batch;
    if (!span->has_input)
        all.input = all.input_there = NULL;
    if (!span->has_target)
        all.target = all.target_there = NULL;
    return tri_batch_part(&all, micro->first, micro->count, input_nbytes, target_nbytes);
}

static void chunk_enter(const pipe_chunk *chunk, int micro)
{
    tri_span_places places = {.in = item_of(&chunk->in, micro)->view.memory,
                              .out = item_of(&chunk->out, micro)->view.memory,
                              .dout = item_of(&chunk->dout, micro)->view.memory,
                              .din = item_of(&chunk->din, micro)->view.memory};
    tri_graph_slot_enter(chunk->graph, micro % chunk->slots, &places);
}

static tri_status forward_run(const pipe_run *run, pipe_chunk *chunk, int m)
{
    const pipe_micro *micro = &run->p->micros[m];
    const float(*sums)[4] = NULL; /* read in an evaluation */
    tri_batch batch = micro_batch(run, chunk, micro);
    TRI_TRY(buffer_take(run->p, item_of(&chunk->out, m)));
    int64_t start_ns = tri_now_ns();
    buffer_arrive(item_of(&chunk->in, m));
    chunk_enter(chunk, m);
    TRI_TRY(tri_graph_forward(chunk->graph, &batch, run->step, run->training, run->training ? NULL : &sums));
    if (sums)
        memcpy(run->p->sums + micro->first, sums, (size_t)micro->count * sizeof(*sums));
    run->p->times.forward += slot_seconds(run, chunk, m, TRI_EVENT_STAGE_UP, start_ns);
    chunk->done[0]++;
    chunk->freed[0] += !run->training;
    return TRI_OK;
}

/* What goes down leaves before gradients of parameters are computed: only the rank below waits. */
static tri_status halves_backward_run(const pipe_run *run, pipe_chunk *chunk, int m)
{
    tri_pipeline_times *times = &run->p->times;
    int64_t start_ns = tri_now_ns();
    TRI_TRY(tri_graph_backward_values(chunk->graph));
    times->backward += slot_seconds(run, chunk, m, TRI_EVENT_STAGE_DOWN, start_ns);
    chunk->done[1]++;
    TRI_TRY(messages_post(run->p));
    start_ns = tri_now_ns();
    TRI_TRY(tri_graph_backward_weights(chunk->graph));
    times->backward += slot_seconds(run, chunk, m, TRI_EVENT_STAGE_WEIGHTS, start_ns);
    return TRI_OK;
}

static tri_status whole_backward_run(pipe_run *run, pipe_chunk *chunk, int m)
{
    int64_t start_ns = tri_now_ns();
    TRI_TRY(last_backward_run(run, chunk, &run->p->micros[m]));
    run->p->times.backward += slot_seconds(run, chunk, m, TRI_EVENT_STAGE_DOWN, start_ns);
    chunk->done[1]++;
    return TRI_OK;
}

/* last: nothing comes behind it on this rank. */
static tri_status backward_run(pipe_run *run, pipe_chunk *chunk, int m, bool last)
{
    const pipe_micro *micro = &run->p->micros[m];
    tri_tree_part whole = {0, micro->count};
    float *grads = sum_at(run, micro, __builtin_popcount((unsigned)micro->leaf));
    TRI_TRY(buffer_take(run->p, item_of(&chunk->din, m)));
    buffer_arrive(item_of(&chunk->dout, m));
    chunk_enter(chunk, m);
    TRI_TRY(tri_graph_grads_set(chunk->graph, 1, &whole, &grads));
    bool early = last && run->ready && run->p->overlap && run->p->rank == 0 && run->p->ranks > 1;
    TRI_TRY(early ? whole_backward_run(run, chunk, m) : halves_backward_run(run, chunk, m));
    chunk->freed[0]++;
    chunk->freed[1]++;
    TRI_TRY(messages_post(run->p)); /* before what nobody waits for */
    int64_t start_ns = tri_now_ns();
    if (!early)
        leaf_add(run, chunk, micro);
    run->p->times.adding += seconds_since(start_ns);
    return TRI_OK;
}

static tri_status actions_run(pipe_run *run)
{
    tri_pipeline *p = run->p;
    const tri_pipe_schedule *s = &p->table->schedule;
    for (int i = 0; i < s->action_count; i++) {
        tri_pipe_action a = s->actions[p->rank][i];
        pipe_chunk *chunk = chunk_of(p, a.chunk);
        TRI_TRY(messages_post(p));
        TRI_TRY(message_wait(p, p->table->receives[i]));
        int left = s->action_count - 1 - i;
        TRI_TRY(a.backward ? backward_run(run, chunk, a.micro, left == 0) : forward_run(run, chunk, a.micro));
        if (left > 0)
            some_release(run, left);
    }
    TRI_TRY(messages_post(p));
    gradients_release(run, INT_MAX);
    return TRI_OK;
}

static tri_status messages_end(tri_pipeline *p)
{
    for (int c = 0; c < p->each; c++)
        for (int i = 0; i < 2; i++) {
            const pipe_ring *ring = i ? &p->chunks[c].din : &p->chunks[c].out;
            for (int b = 0; b < ring->count; b++)
                TRI_TRY(buffer_take(p, &ring->items[b]));
        }
    p->posted = 0;
    return TRI_OK;
}

static tri_status run_begin(const pipe_run *run, const pipe_table *table)
{
    tri_pipeline *p = run->p;
    if (table->schedule.ranks == 0)
        return tri_fail(TRI_EINVAL, "pipeline: made for evaluation only, cannot train");
    if (run->batch->shards != p->shards)
        return tri_fail(TRI_EINVAL, "pipeline: want a batch of %lld shards, got %d", (long long)p->shards,
                        run->batch->shards);
    if (p->hooks.begin)
        p->hooks.begin(p->hooks.arg, run->training);
    p->table = table;
    p->posted = 0;
    p->times = (tri_pipeline_times){0};
    for (int c = 0; c < p->each; c++)
        memset(p->chunks[c].done, 0, sizeof(p->chunks[c].done) + sizeof(p->chunks[c].freed));
    return TRI_OK;
}

/* --- the two runs --- */

static bool makes_loss(const tri_pipeline *p)
{
    return tri_graph_span(p->chunks[p->each - 1].graph)->has_loss;
}

tri_status tri_pipeline_train(tri_pipeline *pipeline, const tri_batch *batch, uint64_t step, float *const *grads,
                              tri_graph_ready ready, void *arg)
{
    pipe_run run = {.p = pipeline,
                    .batch = batch,
                    .step = step,
                    .training = true,
                    .grads = grads,
                    .ready = ready,
                    .arg = arg,
                    .next = tri_params_tail(pipeline->params)};
    int64_t start_ns = tri_now_ns();
    TRI_TRY(run_begin(&run, &pipeline->train));
    for (int part = 0; !makes_loss(pipeline) && part <= pipeline->micros[pipeline->micro_count - 1].part; part++)
        tri_device_fill(pipeline->params->device, grads[part] + tri_params_grad_count(pipeline->params), 0,
                        TRI_PARAMS_TAIL * sizeof(float));
    TRI_TRY(actions_run(&run));
    TRI_TRY(messages_end(pipeline));
    tri_pipeline_times *times = &pipeline->times;
    times->idle = seconds_since(start_ns) - times->forward - times->backward - times->adding;
    return TRI_OK;
}

tri_status tri_pipeline_evaluate(tri_pipeline *pipeline, const tri_batch *batch, uint64_t step, const float (**sums)[4])
{
    pipe_run run = {.p = pipeline, .batch = batch, .step = step};
    tri_pipeline_times of_step = pipeline->times;
    TRI_TRY(run_begin(&run, &pipeline->evaluate));
    TRI_TRY(actions_run(&run));
    TRI_TRY(messages_end(pipeline));
    pipeline->times = of_step;
    tri_group_name_next(pipeline->group, "sums of the last stage");
    tri_status status =
        tri_broadcast(pipeline->group, pipeline->sums, pipeline->shards * 4, TRI_F32, pipeline->ranks - 1, NULL);
    tri_group_name_next(pipeline->group, "");
    TRI_TRY(status);
    *sums = (const float(*)[4])pipeline->sums;
    return TRI_OK;
}

tri_pipeline_times tri_pipeline_last_times(const tri_pipeline *pipeline)
{
    return pipeline->times;
}
