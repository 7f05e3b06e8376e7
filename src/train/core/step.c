/* SPDX-License-Identifier: Apache-2.0
 *
 * step.c: one training step, the heart: batch, forward, backward, sum over all shards, move the weights.
 *
 * The same text serves one rank and many; what differs is behind `sync`. A step allocates nothing.
 */
#include <math.h>
#include <stdio.h>

#include "base/events.h"
#include "base/log.h"
#include "kernel/array.h"
#include "kernel/tile_threads.h"
#include "train/core/features.h"
#include "train/core/servers.h"
#include "train/core/step.h"

/* Time since *mark in seconds; *mark moves to now. */
static double lap(int64_t *mark_ns)
{
    int64_t now_ns = tri_now_ns(), passed_ns = now_ns - *mark_ns;
    *mark_ns = now_ns;
    return (double)passed_ns / 1e9;
}

/* The same of a part of a step that traces show. */
static double lap_of(const tri_job *job, const char *what, int64_t *mark_ns)
{
    int64_t start_ns = *mark_ns;
    double seconds = lap(mark_ns);
    tri_features_span(job, what, start_ns, *mark_ns);
    return seconds;
}

/* The sum of control data begins before that of the gradient: where the next step may begin before all of the gradient
 * is there (job->update.ahead), and where control data are columns of its tail (control.c). */
static bool control_is_early(const tri_job *job)
{
    return job->update.ahead || !tri_job_control_travels(job);
}

static void entry_ready(void *arg, int entry)
{
    tri_job *job = arg;
    if (entry == tri_params_tail(job->params) && control_is_early(job))
        tri_job_control_send(job);
    job->sync->ops->ready(job->sync, entry);
}

static tri_status entry_settle(tri_job *job, int entry)
{
    tri_sync_slice slice;
    int64_t mark_ns = tri_now_ns(), start_ns = mark_ns;
    TRI_TRY(job->sync->ops->wait(job->sync, entry, &slice));
    if (slice.count == 0)
        return TRI_OK;
    job->record.comm += lap(&mark_ns);
    tri_optim_step(job->optim, &job->update.scalars, job->params->values, job->sync->grads[0], slice.first,
                   slice.count);
    job->record.optimizer += lap(&mark_ns);
    job->throughput.settling_s += (double)(mark_ns - start_ns) / 1e9;
    return TRI_OK;
}

tri_status tri_job_entry_bring(void *arg, int entry, const float **values)
{
    tri_job *job = arg;
    *values = job->params->values + job->params->entries[entry].first;
    return entry_settle(job, entry);
}

tri_status tri_job_settle(tri_job *job)
{
    for (int entry = 0; job->update.ahead && entry < job->params->entry_count; entry++)
        TRI_TRY(entry_settle(job, entry));
    return job->sync && job->sync->ops->settle ? job->sync->ops->settle(job->sync) : TRI_OK;
}

/* Time that kernels have waited for the sync, or for sums over the batch, since it was asked last, which is no time of
 * theirs. */
static double waited(tri_job *job)
{
    int64_t before_ns = job->throughput.waited_ns;
    job->throughput.waited_ns = job->sync->waited_ns + job->shards.batch_sums.spent_ns;
    double seconds = (double)(job->throughput.waited_ns - before_ns) / 1e9;
    job->record.comm += seconds;
    return seconds;
}

tri_batch tri_job_batch(const tri_job *job, const tri_loader_batch *loaded, int64_t first, int64_t count)
{
    const tri_batch all = {.rows = loaded->rows,
                           .first_sample = loaded->first_sample,
                           .input = loaded->input,
                           .target = loaded->target,
                           .input_there = loaded->input_there,
                           .target_there = loaded->target_there};
    return tri_batch_part(&all, first, count, job->shards.input_nbytes, job->shards.target_nbytes);
}

/* Forward and backward over the shards [first, first + count) of this rank's batch; grads[p] gets the sum of parts[p]
 * (first counted from `first`). */
static tri_status run_shards(tri_job *job, const tri_loader_batch *loaded, int64_t first, int64_t count, int part_count,
                             const tri_tree_part *parts, float *const *grads, tri_graph_ready ready)
{
    const tri_batch batch = tri_job_batch(job, loaded, first, count);
    int64_t mark_ns = tri_now_ns();
    TRI_TRY(tri_graph_grads_set(job->model.graph, part_count, parts, grads));
    TRI_TRY(tri_graph_forward(job->model.graph, &batch, (uint64_t)job->step, true, NULL));
    TRI_TRY(tri_job_settle(job)); /* what no kernel reads */
    job->record.forward += lap_of(job, "forward", &mark_ns) - job->throughput.settling_s - waited(job);
    job->throughput.settling_s = 0;
    TRI_TRY(tri_graph_backward(job->model.graph, ready, job));
    job->record.backward += lap_of(job, "backward", &mark_ns) - waited(job);
    return TRI_OK;
}

/* The tree over one whole subtree that is too large to be computed at once: left half, right half, sum. */
static tri_status run_subtree(tri_job *job, const tri_loader_batch *loaded, int64_t first, int64_t count, int level,
                              float *grad)
{
    if (count <= job->shards.accumulation.at_once) {
        tri_tree_part whole = {0, count};
        return run_shards(job, loaded, first, count, 1, &whole, &grad, NULL);
    }
    float *right = job->shards.accumulation.scratch[level];
    TRI_TRY(run_subtree(job, loaded, first, count / 2, level + 1, grad));
    TRI_TRY(run_subtree(job, loaded, first + count / 2, count / 2, level + 1, right));
    int64_t mark_ns = tri_now_ns();
    tri_array_add(job->device, job->threads, grad, grad, right, tri_params_grad_count(job->params) + TRI_PARAMS_TAIL);
    job->record.backward += lap(&mark_ns);
    return TRI_OK;
}

/* All of this rank's shards through all stages, of which this rank has its own. */
static tri_status run_pipeline(tri_job *job, const tri_loader_batch *loaded)
{
    const tri_batch batch = tri_job_batch(job, loaded, 0, job->shards.count);
    int64_t mark_ns = tri_now_ns();
    TRI_TRY(tri_pipeline_train(job->model.pipeline, &batch, (uint64_t)job->step, job->sync->grads, entry_ready, job));
    double passed = lap_of(job, "pipeline", &mark_ns);
    tri_pipeline_times times = tri_pipeline_last_times(job->model.pipeline);
    job->record.forward += times.forward;
    job->record.backward += times.backward + times.adding;
    job->record.comm += passed - times.forward - times.backward - times.adding;
    return TRI_OK;
}

/* All of this rank's shards: at once, so that buckets leave during the backward pass; or piece by piece. */
static tri_status accumulate(tri_job *job, const tri_loader_batch *loaded)
{
    if (job->model.pipeline)
        return run_pipeline(job, loaded);
    float **grads = job->sync->grads;
    const tri_job_shards *own = &job->shards;
    if (own->accumulation.at_once == own->count)
        return run_shards(job, loaded, 0, own->count, own->part_count, own->parts, grads, entry_ready);
    for (int p = 0; p < own->part_count; p++)
        TRI_TRY(run_subtree(job, loaded, own->parts[p].first, own->parts[p].count, 0, grads[p]));
    for (int entry = tri_params_tail(job->params); entry >= 0; entry--)
        entry_ready(job, entry);
    return TRI_OK;
}

/* All ranks need it before anything moves. */
static bool judges_by_norm(const tri_job *job)
{
    return job->config.optim.clip_norm > 0 || tri_features_want_norm(job);
}

/* The norm of the mean gradient before it is clipped, where somebody wants to know it: the clipping and the loss scale,
 * in each step; a reader of the run's lines, now and then. The same on all ranks where they have to find it together.
 */
static bool norm_is_wanted(const tri_job *job)
{
    int64_t every = job->config.train.norm_every;
    if (job->sync->ops->squares) /* costs messages of its own */
        return job->config.optim.clip_norm > 0;
    bool read = job->output.metrics || job->output.console || job->mesh.model_group || !job->sync->whole;
    return judges_by_norm(job) || (read && every > 0 && job->step % every == 0);
}

/* Weights move by the mean gradient over all targets of the batch that count: one division, here, at the end. A batch
 * in which none counts has no loss and moves nothing by its gradient, which is zero. */
static void figures_find(tri_job *job)
{
    const float *tail = job->sync->tail;
    float weight = tail[TRI_TAIL_WEIGHT], scale = job->record.loss_scale > 0 ? (float)job->record.loss_scale : 1.0f;
    tri_job_control_read(job);
    job->record.loss = weight != 0 ? (double)tail[TRI_TAIL_LOSS] / (double)weight : NAN;
    job->record.known_loss = weight != 0 ? job->record.loss : job->record.known_loss;
    job->update.scalars =
        (tri_optim_scalars){.step = job->step,
                            .lr = job->record.lr,
                            .grad_scale = weight != 0 ? 1.0f / weight / scale : 0,
                            .buffer_scale = tail[TRI_TAIL_SHARDS] > 0 ? 1.0f / tail[TRI_TAIL_SHARDS] : 0};
}

/* What this rank moves: its pieces, or the slice whose sums have come. */
static void weights_step(tri_job *job, tri_sync_slice slice)
{
    const tri_sync *sync = job->sync;
    if (!sync->pieces)
        tri_optim_step(job->optim, &job->update.scalars, job->params->values, sync->grads[0], slice.first, slice.count);
    for (int i = 0; sync->pieces && i < sync->piece_count; i++) {
        const tri_sync_piece *piece = &sync->pieces[i];
        tri_optim_step_at(job->optim, &job->update.scalars, piece->values, piece->sums, piece->slice.first,
                          piece->slice.count);
    }
}

/* All that the step is a function of is known behind it. What ranks do together comes first: where they share layers
 * out, a bit that has flipped at one of them may let it alone see a loss that is NaN or Inf, or jumps. */
static tri_status step_judge(tri_job *job)
{
    double norm = NAN, limit = job->config.optim.clip_norm;
    figures_find(job);
    float scale = job->update.scalars.grad_scale;
    if (job->sync->ops->fold)
        job->sync->ops->fold(job->sync);
    else
        tri_params_fold(job->params, job->threads, job->sync->grads[0]);
    TRI_TRY(tri_job_hook_run(job));
    if (!job->update.ahead && norm_is_wanted(job))
        TRI_TRY(tri_job_gradient_norm(job, &norm));
    TRI_TRY(tri_features_judge(job, judges_by_norm(job) ? norm : 0));
    if (!job->update.ahead && tri_features_want_gradients(job))
        TRI_TRY(tri_features_gradients(job, scale));
    if (limit > 0 && norm > limit)
        job->update.scalars.grad_scale *= (float)(limit / norm);
    job->sync->grad_scale = job->update.scalars.grad_scale;
    job->record.grad_norm = norm;
    return TRI_OK;
}

/* Sums that do not count leave nothing behind, such as error feedback. */
static void sums_undo(tri_job *job)
{
    if (job->sync->ops->undo && tri_sums_may_be_undone(&job->config))
        job->sync->ops->undo(job->sync);
}

/* Where the next step may begin before all sums are there nothing is clipped, and norm and pictures come last. */
static tri_status move_weights(tri_job *job, tri_sync_slice slice)
{
    if (!job->record.skipped)
        weights_step(job, slice);
    else
        sums_undo(job);
    tri_features_moved(job);
    bool gradients = job->update.ahead && tri_features_want_gradients(job);
    if (gradients || (job->update.ahead && norm_is_wanted(job)))
        TRI_TRY(tri_job_settle(job));
    if (job->update.ahead && norm_is_wanted(job))
        TRI_TRY(tri_job_gradient_norm(job, &job->record.grad_norm));
    if (gradients)
        TRI_TRY(tri_features_gradients(job, job->update.scalars.grad_scale));
    return TRI_OK;
}

/* The sums over all ranks of the batch's gradients, or where the next step may begin before all are there, of the tail.
 */
static tri_status sums_make(tri_job *job, const tri_loader_batch *loaded, tri_sync_slice *slice)
{
    TRI_TRY(job->sync->ops->begin(job->sync));
    TRI_TRY(accumulate(job, loaded));
    int64_t mark_ns = tri_now_ns();
    TRI_TRY(job->update.ahead ? job->sync->ops->wait(job->sync, tri_params_tail(job->params), slice)
                              : job->sync->ops->finish(job->sync, slice));
    const int64_t computing_ns = job->sync->computing_ns; /* 0 where kernels end with their call */
    if (computing_ns > 0)
        tri_features_span(job, "backward", mark_ns, mark_ns + computing_ns);
    mark_ns += computing_ns;
    TRI_TRY(control_is_early(job) ? tri_job_control_wait(job) : tri_job_control_sum(job));
    TRI_TRY(tri_job_sums_meet(job));
    job->record.backward += (double)computing_ns / 1e9;
    job->record.comm += lap_of(job, "waiting", &mark_ns);
    return TRI_OK;
}

/* Sums of weights that were not the same on all replicas count for nothing: these are repaired, and the batch is
 * computed again. */
static tri_status sums_verify(tri_job *job, const tri_loader_batch *loaded, tri_sync_slice *slice)
{
    TRI_TRY(sums_make(job, loaded, slice));
    while (job->control.sum.weights[0] != 0 || job->control.sum.weights[1] != 0) {
        if (job->update.ahead)
            TRI_TRY(job->sync->ops->finish(job->sync, slice));
        TRI_TRY(tri_features_repair(job));
        sums_undo(job);
        TRI_TRY(sums_make(job, loaded, slice));
    }
    return TRI_OK;
}

/* A loss that is NaN or Inf may be that of a bit that has flipped: before it ends the run parts are compared with their
 * mirrors, by the calls of those that see nothing wrong. */
static tri_status doubt(tri_job *job, tri_status status, bool *same)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    if (status != TRI_ENUMERIC || !tri_features_compare(job))
        return status;
    TRI_TRY(tri_features_commit(job, same));
    job->progress.phase = TRI_STEP_OPEN;
    return *same ? tri_fail_copy(status, message) : TRI_OK;
}

/* Likewise where a part of the state and its mirror were not the same: what guards and the loss scale have judged by
 * then is judged again. */
static tri_status step_agree(tri_job *job, const tri_loader_batch *loaded, tri_sync_slice *slice)
{
    const tri_step_record begun = job->record;
    for (;;) {
        bool same = true;
        TRI_TRY(sums_verify(job, loaded, slice));
        int64_t mark_ns = tri_now_ns();
        tri_status status = step_judge(job);
        TRI_TRY(status == TRI_OK ? tri_features_commit(job, &same) : doubt(job, status, &same));
        job->record.optimizer += lap_of(job, "optimizer", &mark_ns);
        if (same)
            return TRI_OK;
        TRI_TRY(tri_features_make_same(job));
        sums_undo(job);
        TRI_TRY(tri_scalar_state_take(job, &job->elastic.before, false));
        job->record = begun;
    }
}

/* Samples of the batch of this step: the last one of an epoch may be short. */
static int64_t batch_samples(const tri_job *job)
{
    int64_t left = job->data.sampler.count - job->step % job->progress.steps_per_epoch * job->data.sampler.batch;
    return left < job->data.sampler.batch ? left : job->data.sampler.batch;
}

/* The next batch, or the part of one that this worker was dealt. */
static tri_status batch_take(tri_job *job, tri_loader_batch *loaded)
{
    tri_features_batch_wait(job, true);
    tri_status status = tri_job_deals(job) == 0
                            ? tri_loader_next(job->data.loader, loaded)
                            : tri_loader_part(job->data.loader, job->step, job->sync->part * job->shards.count,
                                              job->shards.count, loaded);
    tri_features_batch_wait(job, false);
    if (status == TRI_OK)
        tri_features_batch_taken(job, loaded);
    return status;
}

static int64_t step_after(const tri_job *job)
{
    return job->sync && job->sync->next_step >= 0 ? job->sync->next_step : job->step + 1;
}

/* Steps that others have made in the meantime are passed over. */
static void step_advance(tri_job *job)
{
    int64_t next = step_after(job);
    job->progress.step_before = job->step;
    job->progress.committed = job->record;
    if (next > job->step + 1 && tri_job_deals(job) == 0)
        tri_loader_seek(job->data.loader, next);
    job->step = next;
    job->progress.acted = false;
    job->progress.phase = TRI_STEP_OPEN;
}

/* Samples are those of all workers. */
static void count_step(tri_job *job, double seconds)
{
    tri_step_record *record = &job->record;
    const tri_job_throughput *rates = &job->throughput;
    int64_t samples = batch_samples(job) * (step_after(job) - job->step);
    record->other = seconds - record->data - record->forward - record->backward - record->comm - record->optimizer;
    record->samples_per_s = (double)samples / seconds;
    record->tokens_per_s = rates->sample_tokens > 0 ? record->samples_per_s * (double)rates->sample_tokens : NAN;
    record->mfu = rates->peak_flops > 0 ? record->samples_per_s * rates->sample_flops / rates->peak_flops : NAN;
    record->epoch = (double)step_after(job) / (double)job->progress.steps_per_epoch;
    uint64_t sent = tri_counter_now(TRI_COUNT_SENT_NBYTES);
    record->sent_bytes = (int64_t)(sent - job->throughput.sent_nbytes);
    job->throughput.sent_nbytes = sent;
    job->throughput.trained_s += seconds;
    job->throughput.trained_samples += (double)samples;
    tri_counter_add(TRI_COUNT_STEPS, 1);
    tri_counter_add(TRI_COUNT_SKIPPED, record->skipped);
    tri_counter_add(TRI_COUNT_SAMPLES, (uint64_t)samples);
}

static tri_status step_make(tri_job *job)
{
    int64_t start_ns = tri_now_ns(), mark_ns = start_ns;
    tri_loader_batch loaded;
    tri_sync_slice slice;
    job->progress.step_start_ns = start_ns;
    job->record = (tri_step_record){.step = job->step,
                                    .known_loss = job->record.known_loss,
                                    .lr = tri_schedule_rate(&job->config.optim, job->step,
                                                            job->config.train.epochs * job->progress.steps_per_epoch),
                                    .grad_norm = NAN};
    tri_log_step_set(job->step);
    TRI_TRY(tri_features_step_begin(job));
    TRI_TRY(batch_take(job, &loaded));
    job->record.data = lap_of(job, "data", &mark_ns);
    job->sync->step = job->step;
    TRI_TRY(step_agree(job, &loaded, &slice));
    TRI_TRY(tri_features_before_move(job));
    mark_ns = tri_now_ns();
    TRI_TRY(move_weights(job, slice));
    job->record.optimizer += lap_of(job, "optimizer", &mark_ns);
    if (job->elastic.on && tri_job_has_own_weights(job))
        job->progress.phase = TRI_STEP_MOVED; /* who is missing at the exchange takes no step back */
    if (job->sync->ops->publish)
        TRI_TRY(job->sync->ops->publish(job->sync));
    job->record.comm += lap_of(job, "publish", &mark_ns);
    tri_accumulation_step(job);
    tri_features_span(job, "step", start_ns, mark_ns);
    count_step(job, (double)(tri_now_ns() - start_ns) / 1e9);
    /* By steps that are alike: whole batches, as many shards at once as there will be. */
    if (job->config.train.threads == 0 && job->threads > 1 && !job->shards.accumulation.searching &&
        batch_samples(job) == job->data.sampler.batch)
        tri_tiles_tune(job->threads, job->record.forward + job->record.backward);
    step_advance(job);
    job->elastic.exchange_pending = false;
    return TRI_OK;
}

/* Loss scale and guards have judged a step that is not made: that, too, has not been. */
static void step_undo(tri_job *job)
{
    job->progress.committed = job->record;
    job->assignment.under_way = tri_scalar_state_of(job);
    (void)tri_scalar_state_take(job, &job->elastic.before, false); /* writes nothing */
}

tri_status tri_job_step_run(tri_job *job)
{
    if (!job->elastic.on)
        return step_make(job);
    job->elastic.before = tri_scalar_state_of(job);
    tri_status status = step_make(job);
    if (status != TRI_OK && job->progress.phase != TRI_STEP_MOVED)
        step_undo(job);
    return status;
}

tri_status tri_job_step_end(tri_job *job)
{
    count_step(job, (double)(tri_now_ns() - job->progress.step_start_ns) / 1e9);
    step_advance(job);
    return tri_features_step_done(job);
}
