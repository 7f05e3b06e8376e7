/* SPDX-License-Identifier: Apache-2.0
 *
 * actions.c: what happens between steps, as a table: each row is due every so many steps, and at the end of the run.
 *
 * All ranks find the same rows due, since what they ask is the same everywhere. Rows run in their order: a checkpoint
 * is written after the evaluation of its step. None touches weights, state or random numbers of the training.
 */
#include <math.h>
#include <stdio.h>

#include "train/job.h"

tri_status tri_job_evaluate_and_tell(tri_job *job)
{
    TRI_TRY_IN(tri_job_evaluate(job), "while evaluating after step %lld", (long long)job->step);
    const tri_job_test *test = &job->test;
    if (isnan(test->loss))
        return TRI_OK;
    if (job->metrics)
        TRI_TRY(tri_metrics_write_test(job->metrics, job->step - 1, test->loss, test->accuracy, test->perplexity));
    char perplexity[48] = "";
    if (!isnan(test->perplexity))
        snprintf(perplexity, sizeof(perplexity), "  test perplexity %.4g", test->perplexity);
    if (job->console)
        tri_console_line(job->console,
                         "epoch %.4g  step %lld  loss %.4f  test loss %.4f  test accuracy %.4f%s  %.0f samples/s",
                         job->record.epoch, (long long)job->step, job->record.loss, test->loss, test->accuracy,
                         perplexity, job->trained_samples / job->trained_s);
    return tri_job_best_offer(job);
}

static int64_t evaluate_every(const tri_job *job)
{
    const tri_train_config *train = &job->config.train;
    return train->eval_every_steps > 0 ? train->eval_every_steps : train->eval_every * job->steps_per_epoch;
}

static int64_t save_every(const tri_job *job)
{
    return job->config.checkpoint.every_steps;
}

static int64_t sample_every(const tri_job *job)
{
    return job->config.train.sample_every;
}

typedef struct job_action {
    int64_t (*every)(const tri_job *job); /* steps; 0: only at the end */
    tri_status (*run)(tri_job *job);      /* collective */
} job_action;

static const job_action actions[] = {
    {save_every, tri_job_verify_now}, /* before others see them */
    {evaluate_every, tri_job_evaluate_and_tell},
    {sample_every, tri_job_sample},
    {save_every, tri_job_save},
};

static bool is_due(const tri_job *job, size_t action)
{
    int64_t every = actions[action].every(job);
    return job->step == job->steps || (every > 0 && job->step / every > job->step_before / every);
}

/* Ranks whose weights are apart meet for it, and stay together after the last step. */
tri_status tri_job_actions_run(tri_job *job)
{
    bool any = false;
    for (size_t i = 0; i < TRI_COUNT_OF(actions); i++)
        any = any || is_due(job, i);
    if (!any) {
        job->acted = true;
        return TRI_OK;
    }
    TRI_TRY(tri_job_meet(job));
    for (size_t i = 0; i < TRI_COUNT_OF(actions); i++)
        if (is_due(job, i))
            TRI_TRY(actions[i].run(job));
    if (job->step < job->steps)
        tri_job_part(job);
    if (job->elastic.on && job->world > 1) /* rank 0 has written what it had to */
        TRI_TRY(tri_barrier(job->group, NULL));
    job->acted = true;
    return TRI_OK;
}
