/* SPDX-License-Identifier: Apache-2.0
 *
 * scalar_state.c: what of a run's state is no array: a rank gives it to another one, or goes back to it.
 */
#include <stdio.h>
#include <string.h>

#include "train/core/features.h"
#include "train/core/step.h"

tri_scalar_state tri_scalar_state_of(const tri_job *job)
{
    const tri_job_test *test = &job->test;
    tri_scalar_state scalars = {
        .step = job->step,
        .step_before = job->progress.step_before,
        .first_step = job->progress.first_step,
        .saved_step = job->progress.saved_step,
        .record = job->progress.committed,
        .test = {test->loss, test->accuracy, test->perplexity, test->weight, test->mae, test->r2}};
    snprintf(scalars.bits, sizeof(scalars.bits), "%s", job->identity.bits);
    tri_features_scalars_put(job, &scalars);
    return scalars;
}

tri_status tri_scalar_state_take(tri_job *job, const tri_scalar_state *scalars, bool had_state)
{
    tri_job_test *test = &job->test;
    if (scalars->step < job->step)
        TRI_TRY(tri_features_files_rewind(job, scalars->step));
    tri_features_scalars_take(job, scalars);
    job->step = scalars->step;
    job->progress.step_before = scalars->step_before;
    if (strcmp(scalars->bits, "reproducible") != 0)
        snprintf(job->identity.bits, sizeof(job->identity.bits), "%s", scalars->bits);
    job->progress.first_step = scalars->first_step;
    job->progress.saved_step = scalars->saved_step;
    job->record = job->progress.committed = scalars->record;
    test->loss = scalars->test[0];
    test->accuracy = scalars->test[1];
    test->perplexity = scalars->test[2];
    test->weight = scalars->test[3];
    test->mae = scalars->test[4];
    test->r2 = scalars->test[5];
    job->placement.hashed_step = -1;
    return had_state && job->output.metrics ? tri_features_step_missed(job) : TRI_OK;
}
