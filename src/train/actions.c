/* SPDX-License-Identifier: Apache-2.0
 *
 * actions.c: what happens between steps, as a table: each row is due every so many steps or seconds, and at the end.
 *
 * All ranks find the same rows due, since what they ask is the same everywhere. Rows run in their order: a checkpoint
 * is written after the evaluation of its step. None touches weights, state or random numbers of the training.
 */
#include <math.h>
#include <stdio.h>

#include "train/job.h"

tri_status tri_job_evaluate_and_tell(tri_job *job)
{
    tri_status status = tri_job_evaluate(job);
    if (status == TRI_ECANCELED) { /* what is due after it is done, and the run stops */
        job->stop_wanted = true;
        return TRI_OK;
    }
    TRI_TRY_IN(status, "while evaluating after step %lld", (long long)job->step);
    const tri_job_test *test = &job->test;
    if (!test->loader)
        return TRI_OK;
    if (job->metrics)
        TRI_TRY(tri_metrics_write_test(job->metrics, job->step - 1, test->loss, test->accuracy, test->perplexity));
    char accuracy[48] = "", perplexity[48] = "";
    if (!isnan(test->accuracy)) /* of classes alone */
        snprintf(accuracy, sizeof(accuracy), "  test accuracy %.4f", test->accuracy);
    if (!isnan(test->perplexity))
        snprintf(perplexity, sizeof(perplexity), "  test perplexity %.4g", test->perplexity);
    if (job->console && job->trained_s > 0) /* a run that was over is told by its end */
        tri_console_line(job->console, "epoch %.4g  step %lld  loss %.4f  test loss %.4f%s%s  %.0f samples/s",
                         job->record.epoch, (long long)job->step, job->record.known_loss, test->loss, accuracy,
                         perplexity, job->trained_samples / job->trained_s);
    return tri_job_best_offer(job);
}

static int64_t evaluate_every(const tri_job *job)
{
    const tri_train_config *train = &job->config.train;
    return train->eval_every_steps > 0 ? train->eval_every_steps : train->eval_every * job->steps_per_epoch;
}

bool tri_job_is_due(const tri_job *job, int64_t every)
{
    return job->step == job->steps || (every > 0 && job->step / every > job->step_before / every);
}

static bool evaluate_is_due(const tri_job *job)
{
    return tri_job_is_due(job, evaluate_every(job));
}

static bool sample_is_due(const tri_job *job)
{
    return tri_job_is_due(job, job->config.train.sample_every);
}

/* Known to all ranks. */
static bool verify_is_due(const tri_job *job)
{
    return tri_job_is_due(job, job->config.checkpoint.every_steps) || tri_job_save_is_due(job);
}

typedef struct job_action {
    bool (*is_due)(const tri_job *job);
    tri_status (*run)(tri_job *job); /* collective */
} job_action;

static const job_action actions[] = {
    {verify_is_due, tri_job_mirrors_verify_now},  {verify_is_due, tri_job_verify_now}, /* before others see them */
    {evaluate_is_due, tri_job_evaluate_and_tell}, {sample_is_due, tri_job_sample},
    {tri_job_show_is_due, tri_job_show_write}, /* with what was evaluated */
    {tri_job_save_is_due, tri_job_save_due},
};

/* Ranks whose weights are apart meet for it, and stay together after the last step. */
tri_status tri_job_actions_run(tri_job *job)
{
    bool any = false;
    TRI_TRY(tri_job_save_look(job));
    for (size_t i = 0; i < TRI_COUNT_OF(actions); i++)
        any = any || actions[i].is_due(job);
    if (!any) {
        job->acted = true;
        return TRI_OK;
    }
    TRI_TRY(tri_job_meet(job));
    for (size_t i = 0; i < TRI_COUNT_OF(actions); i++)
        if (actions[i].is_due(job))
            TRI_TRY(actions[i].run(job));
    if (job->step < job->steps)
        tri_job_part(job);
    if (job->elastic.on && job->world > 1) /* rank 0 has written what it had to */
        TRI_TRY(tri_barrier(job->group, NULL));
    job->acted = true;
    return TRI_OK;
}
