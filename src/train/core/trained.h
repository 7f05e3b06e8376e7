/* SPDX-License-Identifier: Apache-2.0
 *
 * trained.h: a trained model from a run or a checkpoint, to be evaluated or asked.
 *
 * Configuration and shapes of the samples come from the run's folder (config.yaml, dataset.yaml), the weights from its
 * newest checkpoint or the one that is named.
 */
#ifndef TRI_TRAIN_TRAINED_H
#define TRI_TRAIN_TRAINED_H

#include "data/images/image.h"
#include "data/tables/table.h"
#include "tensor/reduce.h"
#include "train/core/job.h"

/* Where a path leads. */
typedef struct tri_trained {
    char checkpoint[1200]; /* its folder */
    char config[1200];     /* the run's config.yaml, or the file that was given */
    char info[1200];       /* the run's dataset.yaml; "": there is none */
} tri_trained;

/* path: a run, a checkpoint, or a folder of checkpoints (the newest whole one). config NULL: that of the run whose
 * folder the checkpoint is in. TRI_ENOTFOUND says what was looked for. */
tri_status tri_trained_find(const char *path, const char *config, tri_trained *out);

typedef struct tri_trained_setup {
    const tri_trained *trained;
    const char *const *overrides; /* as in tri_job_setup */
    tri_comm *comm;               /* borrowed; NULL: one rank */
    int64_t rows;                 /* of one run of the graph, which is then one shard; 0: as in training */
} tri_trained_setup;
/* A job with graph and weights, without a backward pass; collective over comm. */
tri_status tri_trained_open(const tri_trained_setup *setup, tri_job **out);

/* Answers of a model to samples that come one by one. */
typedef struct tri_predictor tri_predictor;
/* Takes over a job opened with rows > 0, also on failure. */
tri_status tri_predictor_open(tri_job *job, bool test, tri_predictor **out);
void tri_predictor_close(tri_predictor *predictor);
/* Row `row` (below the job's rows) of the next run: numbers as they are in the data, before they are normalised; or
 * sample `index` of the run's test (or training) set. TRI_EINVAL and so on leave the row empty. */
tri_status tri_predictor_put(tri_predictor *predictor, int64_t row, const double *numbers, int64_t count);
/* The same of a sample as it is stored. */
void tri_predictor_put_stored(tri_predictor *predictor, int64_t row, const void *stored);
/* What the columns of the samples mean; NULL: they are no rows of a table. */
const struct tri_table *tri_predictor_table(const tri_predictor *predictor);
/* The same of a row of a table: a text for each column of it, where it is, and the decimal mark. */
tri_status tri_predictor_put_fields(tri_predictor *predictor, int64_t row, const char *const *fields, char decimal,
                                    const struct tri_table_place *place);
/* How an image file becomes a sample of the model. TRI_ECONFIG: its samples are no images. */
tri_status tri_predictor_fit(const tri_predictor *predictor, tri_image_fit *fit);
tri_status tri_predictor_put_index(tri_predictor *predictor, int64_t row, int64_t index);
/* Rows 0 to rows - 1 were put, or are of no interest. */
tri_status tri_predictor_run(tri_predictor *predictor, int64_t rows);
/* Of a row of the last run: probabilities of the classes, or the numbers themselves where targets are real. */
const double *tri_predictor_answer(const tri_predictor *predictor, int64_t row);
int64_t tri_predictor_answer_count(const tri_predictor *predictor);
/* What a class is called, NULL: nothing but its number. */
const char *tri_predictor_name(const tri_predictor *predictor, int64_t class);
const tri_dataset_info *tri_predictor_info(const tri_predictor *predictor);

#endif
