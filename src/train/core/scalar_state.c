/* SPDX-License-Identifier: Apache-2.0
 *
 * scalar_state.c: what of a run's state is no array: a rank gives it to another one, or goes back to it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/core/features.h"
#include "train/core/step.h"

tri_job_rest tri_job_rest_of(const tri_job *job)
{
    const tri_job_test *test = &job->test;
    tri_job_rest rest = {.step = job->step,
                         .step_before = job->step_before,
                         .first_step = job->first_step,
                         .saved_step = job->saved_step,
                         .record = job->made,
                         .test = {test->loss, test->accuracy, test->perplexity, test->weight}};
    snprintf(rest.bits, sizeof(rest.bits), "%s", job->bits);
    tri_features_rest_put(job, &rest);
    return rest;
}

tri_status tri_job_rest_take(tri_job *job, const tri_job_rest *rest, bool had_state)
{
    tri_job_test *test = &job->test;
    if (rest->step < job->step)
        TRI_TRY(tri_features_files_rewind(job, rest->step));
    tri_features_rest_take(job, rest);
    job->step = rest->step;
    job->step_before = rest->step_before;
    if (strcmp(rest->bits, "reproducible") != 0)
        snprintf(job->bits, sizeof(job->bits), "%s", rest->bits);
    job->first_step = rest->first_step;
    job->saved_step = rest->saved_step;
    job->record = job->made = rest->record;
    test->loss = rest->test[0];
    test->accuracy = rest->test[1];
    test->perplexity = rest->test[2];
    test->mae = test->r2 = NAN; /* until the next evaluation */
    test->weight = rest->test[3];
    job->hashed_step = -1;
    return had_state && job->metrics ? tri_features_step_missed(job) : TRI_OK;
}
