/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trained.c: a trained model from its folder: what it answers one by one is what its evaluation adds up.
 */
#include "train/core/trained.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/memory.h"
#include "train/core/build.h"
#include "train/core/dataset_info.h"
#include "train/core/evaluate.h"

#define RUN_FOLDER  "trireme-test-trained-run"
#define DATA_FOLDER "trireme-test-trained-data"
#define PIXELS      12 /* 2 x 3 x 2 */
#define IMAGES      40

static const char plain_config[] = "model: {name: mlp, hidden: [16]}\n"
                                   "data: {name: synthetic, synthetic_count: 640, synthetic_width: 8, classes: 4}\n"
                                   "train: {batch: 64, epochs: 2, threads: 1}\n";
static const char image_config[] = "model: {name: mlp, hidden: [8]}\n"
                                   "data: {path: " DATA_FOLDER ", test: 0.5, split: contiguous, normalize: unit}\n"
                                   "train: {batch: 8, epochs: 40, threads: 1}\n";

static void train(const char *config)
{
    tri_job *job;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    if (tri_job_open(&(tri_job_setup){.config_text = config, .run_folder = RUN_FOLDER}, &job) != TRI_OK ||
        tri_job_run(job) != TRI_OK)
        fail_msg("%s", tri_last_error());
    tri_job_close(job);
}

static tri_job *open_rows(int64_t rows, const char *const *overrides)
{
    tri_trained trained;
    tri_job *job = NULL;
    if (tri_trained_find(RUN_FOLDER, NULL, &trained) != TRI_OK ||
        tri_trained_open(&(tri_trained_setup){.trained = &trained, .rows = rows, .overrides = overrides}, &job) !=
            TRI_OK)
        fail_msg("%s", tri_last_error());
    return job;
}

static tri_predictor *predictor_open(int64_t rows, const char *const *overrides)
{
    tri_predictor *predictor = NULL;
    if (tri_predictor_open(open_rows(rows, overrides), true, &predictor) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return predictor;
}

static void write_image_data(void)
{
    static const char head[] = "\x93NUMPY\x01\x00v\x00";
    char text[128 + IMAGES * PIXELS];
    assert_int_equal(tri_fs_make_folder(DATA_FOLDER), TRI_OK);
    memcpy(text, head, 10);
    snprintf(text + 10, sizeof(text) - 10, "%-117s\n",
             "{'descr': '|u1', 'fortran_order': False, 'shape': (40, 2, 3, 2), }");
    for (int i = 0; i < IMAGES * PIXELS; i++)
        text[128 + i] = (char)(i / PIXELS % 3 * 80 + i * 7 % 60);
    assert_int_equal(tri_fs_write_atomic(DATA_FOLDER "/x.npy", text, 128 + IMAGES * PIXELS), TRI_OK);
    snprintf(text + 10, sizeof(text) - 10, "%-117s\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (40,), }");
    for (int i = 0; i < IMAGES; i++)
        text[128 + i] = (char)(i % 3);
    assert_int_equal(tri_fs_write_atomic(DATA_FOLDER "/y.npy", text, 128 + IMAGES), TRI_OK);
}

/* Loss and accuracy from the answers to each test sample, asked in batches of 7, backwards. */
static void evaluation_is_the_mean_over_answers(void **state)
{
    (void)state;
    enum { COUNT = 80 };
    train(plain_config);
    tri_job *job = open_rows(0, NULL);
    assert_int_equal(job->step, 20);
    assert_int_equal(tri_job_open_evaluation(job, true), TRI_OK);
    assert_int_equal(tri_job_evaluate(job), TRI_OK);
    tri_dataset *dataset;
    int64_t indices[COUNT];
    float samples[COUNT][8];
    int32_t targets[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        indices[i] = i;
    assert_int_equal(tri_dataset_open(&job->config.data, true, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, COUNT);
    assert_int_equal(tri_dataset_read(dataset, indices, COUNT, samples, targets), TRI_OK);
    tri_dataset_close(dataset);
    tri_predictor *predictor = predictor_open(7, NULL);
    assert_int_equal(tri_predictor_answer_count(predictor), 4);
    double loss = 0, right = 0;
    for (int64_t first = 0; first < COUNT; first += 7) {
        int64_t rows = COUNT - first < 7 ? COUNT - first : 7;
        for (int64_t r = 0; r < rows; r++)
            assert_int_equal(tri_predictor_put_index(predictor, r, COUNT - 1 - first - r), TRI_OK);
        assert_int_equal(tri_predictor_run(predictor, rows), TRI_OK);
        for (int64_t r = 0; r < rows; r++) {
            const double *answer = tri_predictor_answer(predictor, r);
            int best = 0;
            double sum = 0;
            for (int c = 0; c < 4; c++) {
                best = answer[c] > answer[best] ? c : best;
                sum += answer[c];
            }
            int32_t target = targets[COUNT - 1 - first - r];
            assert_true(fabs(sum - 1) < 1e-9);
            loss -= log(answer[target]) / COUNT;
            right += (best == target) / (double)COUNT;
        }
    }
    assert_true(fabs(loss - job->test.loss) < 1e-5);
    assert_true(fabs(right - job->test.accuracy) < 1e-9);
    tri_predictor_close(predictor);
    tri_job_close(job);
}

static void numbers_are_normalised_as_stored_samples_are(void **state)
{
    (void)state;
    write_image_data();
    train(image_config);
    tri_predictor *predictor = predictor_open(4, NULL);
    double numbers[PIXELS], first[3];
    assert_int_equal(tri_predictor_put_index(predictor, 0, 5), TRI_OK); /* the 25th image: the last half is the test */
    assert_int_equal(tri_predictor_put_index(predictor, 1, 5), TRI_OK);
    for (int i = 0; i < PIXELS; i++)
        numbers[i] = (double)((20 + 5) % 3 * 80 + (25 * PIXELS + i) * 7 % 60);
    assert_int_equal(tri_predictor_put(predictor, 2, numbers, PIXELS), TRI_OK);
    assert_int_equal(tri_predictor_run(predictor, 3), TRI_OK);
    memcpy(first, tri_predictor_answer(predictor, 0), sizeof(first));
    assert_memory_equal(tri_predictor_answer(predictor, 1), first, sizeof(first));
    assert_memory_equal(tri_predictor_answer(predictor, 2), first, sizeof(first));
    assert_true(first[1] > 0.4); /* it has learned something */
    numbers[3] = 256;
    assert_int_equal(tri_predictor_put(predictor, 0, numbers, PIXELS), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "number 3: want a whole number from 0 to 255 (the data are u8), got 256"));
    numbers[3] = 0.5;
    assert_int_equal(tri_predictor_put(predictor, 0, numbers, PIXELS), TRI_EINVAL);
    numbers[3] = NAN;
    assert_int_equal(tri_predictor_put(predictor, 0, numbers, PIXELS), TRI_EINVAL);
    tri_predictor_close(predictor);
}

static void samples_need_not_be_there_but_for_their_index(void **state)
{
    (void)state;
    write_image_data();
    train(image_config);
    const double numbers[PIXELS] = {1};
    const char *const overrides[] = {"data.path=" DATA_FOLDER "-gone", NULL};
    tri_predictor *predictor = predictor_open(2, overrides);
    assert_int_equal(tri_predictor_put(predictor, 0, numbers, PIXELS), TRI_OK);
    assert_int_equal(tri_predictor_run(predictor, 1), TRI_OK);
    assert_int_equal(tri_predictor_put_index(predictor, 0, 1), TRI_ENOTFOUND);
    tri_predictor_close(predictor);
    assert_int_equal(tri_fs_remove(RUN_FOLDER "/dataset.yaml"), TRI_OK);
    predictor = predictor_open(2, NULL); /* the data say it too */
    assert_int_equal(tri_predictor_put(predictor, 0, numbers, PIXELS), TRI_OK);
    tri_predictor_close(predictor);
}

static void what_samples_are_is_written_and_read_back(void **state)
{
    (void)state;
    const char path[] = DATA_FOLDER "/dataset.yaml";
    tri_dataset_info read, info = {.sample = {.ndim = 3, .dim = {28, 28, 2}},
                                   .dtype = TRI_U8,
                                   .target_dtype = TRI_I32,
                                   .classes = 10,
                                   .mean = {0.286f, -0.1f},
                                   .deviation = {0.353f, 0.2f}};
    assert_int_equal(tri_fs_make_folder(DATA_FOLDER), TRI_OK);
    const char *const texts[] = {
        "ant",  "say \"bee\", \n: - [x]",  "\xc3\xbc\t#1", "", "null", "10", "it\xc2\x92s", "\xc2\x85",
        "\x7f", "\xef\xbb\xbf\xe2\x80\xa8"};
    const tri_class_names named = {texts, TRI_COUNT_OF(texts)}, none = {0};
    tri_class_names names;
    tri_arena arena = {0};
    assert_int_equal(tri_dataset_info_save(&info, &named, path), TRI_OK);
    assert_int_equal(tri_dataset_info_load(path, &read, &arena, &names), TRI_OK);
    assert_int_equal(names.count, named.count);
    for (int64_t i = 0; i < named.count; i++)
        assert_string_equal(names.texts[i], texts[i]);
    assert_int_equal(tri_dataset_info_save(&info, &none, path), TRI_OK);
    assert_int_equal(tri_dataset_info_load(path, &read, &arena, &names), TRI_OK);
    assert_null(names.texts);
    const char *const broken[] = {"a", "\xe9t\xe9"}; /* Latin-1: not kept, and said */
    assert_int_equal(tri_dataset_info_save(&info, &(tri_class_names){broken, 2}, path), TRI_OK);
    assert_int_equal(tri_dataset_info_load(path, &read, &arena, &names), TRI_OK);
    assert_null(names.texts);
    assert_true(tri_shape_equal(read.sample, info.sample) && read.target.ndim == 0);
    assert_true(read.dtype == TRI_U8 && read.target_dtype == TRI_I32 && read.classes == 10);
    assert_memory_equal(read.mean, info.mean, sizeof(info.mean));
    assert_memory_equal(read.deviation, info.deviation, sizeof(info.deviation));
    static const char *const wrong[] = {
        "",
        "sample: 3",
        "sample: [0]\n",
        "sample: [99999999999, 99999999999]\n",
        "sample: [1, 1, 1, 1, 1, 1, 1, 1, 1]\n",
        "sample: [1]\ndtype: u9\n",
        "sample: [1]\ndtype: u8\ntarget: []\ntarget_dtype: i32\nclasses: -1\nmean: []\ndeviation: []\n",
        "sample: [1]\ndtype: u8\ntarget: []\ntarget_dtype: i32\nclasses: 1\nmean: [x]\ndeviation: []\n",
        "sample: [1]\ndtype: u8\ntarget: []\ntarget_dtype: i32\nclasses: 1\nmean: []\n",
        "sample: [1]\ndtype: u8\ntarget: []\ntarget_dtype: i32\nclasses: 1\nmean: []\ndeviation: []\nclass_names: []\n",
        "sample: [1]\ndtype: u8\ntarget: []\ntarget_dtype: i32\nclasses: 1\nmean: []\ndeviation: []\nclass_names: x\n",
        "sample: [1]\ndtype: u8\ntarget: []\ntarget_dtype: i32\nclasses: 1\nmean: []\ndeviation: []\nclass_names: "
        "[[]]\n",
        "- [",
    };
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        assert_int_equal(tri_fs_write_atomic(path, wrong[i], strlen(wrong[i])), TRI_OK);
        if (tri_dataset_info_load(path, &read, &arena, &names) != TRI_EFORMAT)
            fail_msg("'%s' was taken", wrong[i]);
        assert_non_null(strstr(tri_last_error(), path));
    }
    tri_arena_fini(&arena);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    tri_trained trained;
    const double numbers[8] = {1};
    train(plain_config);
    assert_int_equal(tri_trained_find(RUN_FOLDER, NULL, &trained), TRI_OK);
    int failures = 0, good_in_a_row = 0;
    for (uint64_t n = 1; good_in_a_row < 20; n++) {
        tri_job *job = NULL;
        tri_predictor *predictor = NULL;
        tri_memory_fail_at(n);
        tri_status status = tri_trained_open(&(tri_trained_setup){.trained = &trained, .rows = 2}, &job);
        if (status == TRI_OK)
            status = tri_predictor_open(job, true, &predictor);
        if (status == TRI_OK)
            status = tri_predictor_put(predictor, 0, numbers, 8);
        if (status == TRI_OK)
            status = tri_predictor_put_index(predictor, 1, 3);
        if (status == TRI_OK)
            status = tri_predictor_run(predictor, 2);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        good_in_a_row = status == TRI_OK ? good_in_a_row + 1 : 0;
        failures += status != TRI_OK;
        tri_predictor_close(predictor);
        assert_true(n < 10000);
    }
    assert_true(failures > 50);
}

static int folders_remove(void **state)
{
    (void)state;
    return tri_fs_remove(RUN_FOLDER) == TRI_OK && tri_fs_remove(DATA_FOLDER) == TRI_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_is_the_mean_over_answers),
        cmocka_unit_test(numbers_are_normalised_as_stored_samples_are),
        cmocka_unit_test(samples_need_not_be_there_but_for_their_index),
        cmocka_unit_test(what_samples_are_is_written_and_read_back),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, folders_remove);
}
