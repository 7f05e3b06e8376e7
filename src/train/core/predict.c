/* SPDX-License-Identifier: Apache-2.0
 *
 * predict.c: rows of numbers, or samples by their index, through a trained model: what training's loader does to a
 * stored sample happens here too, one sample at a time.
 *
 * Samples asked for by index are read together, in ascending order, when the rows are run: readers of compressed files
 * go from front to back.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/normalize.h"
#include "train/core/build.h"
#include "train/core/trained.h"

typedef struct wanted_sample {
    int64_t index, row;
} wanted_sample;

struct tri_predictor {
    tri_job *job;
    tri_normalizer normalizer;
    bool test;
    tri_dataset *dataset; /* opened for the first index */
    size_t stored_nbytes, input_nbytes;
    unsigned char *stored;  /* [rows] samples as they are in the data */
    unsigned char *input;   /* [rows] samples as the model eats them */
    unsigned char *targets; /* [rows] of nobody's interest */
    int64_t *indices;       /* [rows] of the data set, ascending, each once */
    wanted_sample *wanted;  /* [rows] */
    int64_t wanted_count;
    double *answers; /* [rows][answer_count] */
    int64_t answer_count;
};

static tri_status check_model(tri_predictor *predictor)
{
    const tri_job *job = predictor->job;
    predictor->answer_count = (int64_t)(job->shards.target_nbytes / sizeof(float)) / job->shards.rows;
    if (job->data.info.classes == 0)
        return TRI_OK;
    if (predictor->answer_count != 1)
        return tri_fail(TRI_EUNSUPPORTED, "want a model with one class for a sample, this one has %lld",
                        (long long)predictor->answer_count);
    predictor->answer_count = job->data.info.classes;
    return TRI_OK;
}

static tri_status allocate(tri_predictor *predictor)
{
    const tri_job *job = predictor->job;
    const tri_dataset_info *info = &job->data.info;
    size_t rows = (size_t)job->shards.rows, sample = (size_t)tri_shape_count(info->sample);
    predictor->stored_nbytes = sample * tri_dtype_nbytes(info->dtype);
    predictor->input_nbytes = sample * tri_dtype_nbytes(predictor->normalizer.to);
    if (predictor->input_nbytes * rows != job->shards.input_nbytes)
        return tri_fail(TRI_ECONFIG, "the model reads %zu bytes a sample, the data give %zu",
                        job->shards.input_nbytes / rows, predictor->input_nbytes);
    size_t target = (size_t)tri_shape_count(info->target) * tri_dtype_nbytes(info->target_dtype);
    predictor->stored = tri_alloc_zero(rows, predictor->stored_nbytes);
    predictor->input = tri_alloc_zero(rows, predictor->input_nbytes);
    predictor->targets = tri_alloc_zero(1, rows * target + job->shards.target_nbytes);
    predictor->indices = tri_alloc_zero(rows, sizeof(*predictor->indices));
    predictor->wanted = tri_alloc_zero(rows, sizeof(*predictor->wanted));
    predictor->answers = tri_alloc_zero(rows * (size_t)predictor->answer_count, sizeof(*predictor->answers));
    bool whole = predictor->stored && predictor->input && predictor->targets && predictor->indices &&
                 predictor->wanted && predictor->answers;
    return whole ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_predictor_open(tri_job *job, bool test, tri_predictor **out)
{
    tri_predictor *predictor = tri_alloc_zero(1, sizeof(*predictor));
    if (!predictor) {
        tri_job_close(job);
        return TRI_ENOMEM;
    }
    predictor->job = job;
    predictor->test = test;
    tri_status status = check_model(predictor);
    if (status == TRI_OK)
        status = tri_normalizer_init(&predictor->normalizer, &job->data.info, &job->config.data);
    if (status == TRI_OK)
        status = allocate(predictor);
    if (status != TRI_OK) {
        tri_predictor_close(predictor);
        return status;
    }
    *out = predictor;
    return TRI_OK;
}

void tri_predictor_close(tri_predictor *predictor)
{
    if (!predictor)
        return;
    tri_dataset_close(predictor->dataset);
    tri_job_close(predictor->job);
    tri_free(predictor->stored);
    tri_free(predictor->input);
    tri_free(predictor->targets);
    tri_free(predictor->indices);
    tri_free(predictor->wanted);
    tri_free(predictor->answers);
    tri_free(predictor);
}

const tri_dataset_info *tri_predictor_info(const tri_predictor *predictor)
{
    return &predictor->job->data.info;
}

const char *tri_predictor_name(const tri_predictor *predictor, int64_t class)
{
    const tri_class_names *names = &predictor->job->data.names;
    return class < names->count ? names->texts[class] : NULL;
}

/* --- samples --- */

/* What an element of the data can hold. */
static void range_of(tri_dtype dtype, double *low, double *high, bool *whole)
{
    *whole = dtype == TRI_U8 || dtype == TRI_I8 || dtype == TRI_I32 || dtype == TRI_I64;
    *low = dtype == TRI_U8 ? 0 : dtype == TRI_I8 ? -128 : *whole ? (double)INT32_MIN : -3.4028234663852886e38;
    *high = dtype == TRI_U8 ? 255 : dtype == TRI_I8 ? 127 : *whole ? (double)INT32_MAX : 3.4028234663852886e38;
    if (dtype == TRI_F16)
        *high = -(*low = -65504);
}

static void take_stored(tri_predictor *predictor, int64_t row, const void *stored)
{
    tri_normalizer_apply(&predictor->normalizer, stored, predictor->input + (size_t)row * predictor->input_nbytes);
}

tri_status tri_predictor_put(tri_predictor *predictor, int64_t row, const double *numbers, int64_t count)
{
    const tri_dataset_info *info = &predictor->job->data.info;
    char text[96];
    double low, high;
    bool whole;
    if (count != tri_shape_count(info->sample))
        return tri_fail(TRI_EINVAL, "want %lld numbers, a sample of shape %s, got %lld",
                        (long long)tri_shape_count(info->sample), tri_shape_print(info->sample, text),
                        (long long)count);
    range_of(info->dtype, &low, &high, &whole);
    for (int64_t i = 0; i < count; i++)
        if (!(numbers[i] >= low && numbers[i] <= high) || (whole && numbers[i] != floor(numbers[i])))
            return tri_fail(TRI_EINVAL, "number %lld: want %s from %.9g to %.9g (the data are %s), got %.9g",
                            (long long)i, whole ? "a whole number" : "a number", low, high, tri_dtype_name(info->dtype),
                            numbers[i]);
    unsigned char *stored = predictor->stored + (size_t)row * predictor->stored_nbytes;
    TRI_TRY(tri_convert(stored, info->dtype, numbers, TRI_F64, count));
    take_stored(predictor, row, stored);
    return TRI_OK;
}

void tri_predictor_put_stored(tri_predictor *predictor, int64_t row, const void *stored)
{
    take_stored(predictor, row, stored);
}

const tri_table *tri_predictor_table(const tri_predictor *predictor)
{
    return predictor->job->data.table;
}

tri_status tri_predictor_put_fields(tri_predictor *predictor, int64_t row, const char *const *fields, char decimal,
                                    const tri_table_place *place)
{
    const tri_table *table = predictor->job->data.table;
    float *sample = (float *)(void *)(predictor->stored + (size_t)row * predictor->stored_nbytes);
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        if (!column->target && column->width > 0)
            TRI_TRY(tri_column_encode(table, column, place, fields[i], decimal, sample + column->first));
    }
    take_stored(predictor, row, sample);
    return TRI_OK;
}

tri_status tri_predictor_fit(const tri_predictor *predictor, tri_image_fit *fit)
{
    const tri_dataset_info *info = &predictor->job->data.info;
    char text[96];
    if (info->dtype != TRI_U8 || info->sample.ndim != 3 || (info->sample.dim[2] != 1 && info->sample.dim[2] != 3))
        return tri_fail(
            TRI_ECONFIG,
            "image files are for models of bytes [height, width, 1 or 3], the samples of this one are %s %s",
            tri_dtype_name(info->dtype), tri_shape_print(info->sample, text));
    TRI_TRY(tri_image_fit_read(&predictor->job->config.data, fit));
    fit->height = info->sample.dim[0];
    fit->width = info->sample.dim[1];
    fit->channels = (int)info->sample.dim[2];
    return TRI_OK;
}

static tri_status dataset_open(tri_predictor *predictor)
{
    const tri_dataset_info *info = &predictor->job->data.info;
    char wanted[96], found[96];
    tri_dataset *dataset = NULL;
    if (predictor->dataset)
        return TRI_OK;
    TRI_TRY_IN(tri_job_open_data(predictor->job, predictor->test, &dataset), "while opening the data of the run");
    if (!tri_shape_equal(dataset->info.sample, info->sample) || dataset->info.dtype != info->dtype ||
        tri_shape_count(dataset->info.target) != tri_shape_count(info->target)) {
        tri_status status = tri_fail(TRI_ECONFIG, "the model was trained on samples of %s %s, the data now have %s %s",
                                     tri_dtype_name(info->dtype), tri_shape_print(info->sample, wanted),
                                     tri_dtype_name(dataset->info.dtype), tri_shape_print(dataset->info.sample, found));
        tri_dataset_close(dataset);
        return status;
    }
    predictor->dataset = dataset;
    return TRI_OK;
}

tri_status tri_predictor_put_index(tri_predictor *predictor, int64_t row, int64_t index)
{
    TRI_TRY(dataset_open(predictor));
    if (index < 0 || index >= predictor->dataset->info.count)
        return tri_fail(TRI_EINVAL, "index: want 0 to %lld, got %lld", (long long)predictor->dataset->info.count - 1,
                        (long long)index);
    predictor->wanted[predictor->wanted_count++] = (wanted_sample){index, row};
    return TRI_OK;
}

static int compare_wanted(const void *a, const void *b)
{
    int64_t left = ((const wanted_sample *)a)->index, right = ((const wanted_sample *)b)->index;
    return (left > right) - (left < right);
}

static tri_status read_wanted(tri_predictor *predictor)
{
    int64_t count = 0, wanted = predictor->wanted_count;
    predictor->wanted_count = 0;
    if (wanted == 0)
        return TRI_OK;
    qsort(predictor->wanted, (size_t)wanted, sizeof(*predictor->wanted), compare_wanted);
    for (int64_t i = 0; i < wanted; i++)
        if (i == 0 || predictor->wanted[i].index != predictor->wanted[i - 1].index)
            predictor->indices[count++] = predictor->wanted[i].index;
    TRI_TRY_IN(tri_dataset_read(predictor->dataset, predictor->indices, count, predictor->stored, predictor->targets),
               "while reading the data of the run");
    for (int64_t i = 0, at = -1; i < wanted; i++) {
        at += i == 0 || predictor->wanted[i].index != predictor->wanted[i - 1].index;
        take_stored(predictor, predictor->wanted[i].row, predictor->stored + (size_t)at * predictor->stored_nbytes);
    }
    return TRI_OK;
}

/* --- answers --- */

static void softmax(const float *logits, int64_t count, double *out)
{
    double most = (double)logits[0], sum = 0;
    for (int64_t i = 1; i < count; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    for (int64_t i = 0; i < count; i++)
        sum += out[i] = exp((double)logits[i] - most);
    for (int64_t i = 0; i < count; i++)
        out[i] /= sum;
}

static void answers_fill(tri_predictor *predictor, const float *logits, int64_t rows)
{
    int64_t count = predictor->answer_count;
    for (int64_t r = 0; r < rows; r++) {
        double *answer = predictor->answers + r * count;
        if (predictor->job->data.info.classes > 0)
            softmax(logits + r * count, count, answer);
        for (int64_t i = 0; predictor->job->data.info.classes == 0 && i < count; i++)
            answer[i] = (double)logits[r * count + i];
        if (predictor->job->data.table && predictor->job->data.info.classes == 0)
            tri_table_targets_restore(predictor->job->data.table, answer);
    }
}

tri_status tri_predictor_run(tri_predictor *predictor, int64_t rows)
{
    tri_job *job = predictor->job;
    TRI_TRY(read_wanted(predictor));
    int32_t valid = (int32_t)rows;
    int64_t first = 0;
    const float(*sums)[4];
    tri_batch batch = {
        .shards = 1, .rows = &valid, .first_sample = &first, .input = predictor->input, .target = predictor->targets};
    memset(predictor->targets, 0, job->shards.target_nbytes);
    TRI_TRY(tri_graph_forward(job->model.graph, &batch, 0, false, &sums));
    tri_device_view view;
    void *logits = (void *)(uintptr_t)tri_graph_logits(job->model.graph);
    TRI_TRY(tri_device_view_open(&view, job->params->device, logits,
                                 (size_t)(rows * predictor->answer_count) * sizeof(float)));
    answers_fill(predictor, view.host, rows);
    tri_device_view_close(&view);
    return TRI_OK;
}

const double *tri_predictor_answer(const tri_predictor *predictor, int64_t row)
{
    return predictor->answers + row * predictor->answer_count;
}

int64_t tri_predictor_answer_count(const tri_predictor *predictor)
{
    return predictor->answer_count;
}
