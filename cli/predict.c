/* SPDX-License-Identifier: Apache-2.0
 *
 * predict.c: `trireme predict`: samples or image files through a trained model, in batches, one JSON object a line in
 * their order.
 *
 * A batch is run when it is full, at the end, and when the next sample is not there yet: who writes one line and waits
 * gets an answer. What is wrong with a line is said in its place, and the exit code is 1 then.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/predict_input.h"
#include "data/images/images.h"
#include "train/core/trained.h"

#define TOP_DEFAULT  5
#define ROWS_DEFAULT 64
#define ROWS_LIMIT   65536

typedef struct predict_flags {
    const char *config, *format, *rows, *top, *train;
} predict_flags;

static predict_flags given;
static const tri_flag flags[] = {
    {"--config", "FILE", "configuration of the model (default: config.yaml of the checkpoint's run)", &given.config},
    {"--format", "NAME",
     "of FILE: json (lines {\"input\": [numbers]} or {\"index\": n} into the run's data), csv (a sample a line), npy; "
     "default: by its name, else json",
     &given.format},
    {"--batch", "N", "samples that are computed together (default 64)", &given.rows},
    {"--top", "K", "classes that are listed with their probabilities (default 5)", &given.top},
    {"--train", NULL, "index counts the training samples, not the test samples", &given.train},
};

typedef struct predict_place {
    int64_t line;
    const char *file; /* of an image; NULL: a line */
    char *error;      /* NULL: the row was put */
} predict_place;

typedef struct predict_run {
    tri_predictor *predictor;
    predict_input *input;  /* NULL: images */
    tri_vector images;     /* char *: paths */
    predict_place *places; /* [rows] of the batch */
    const char *path;      /* of the input */
    int64_t rows, filled, top, lines, wrong;
    tri_string text;
} predict_run;

/* --- answers --- */

/* The class with the greatest probability below (bound, after): each call gives the next; of equals the lower first. */
static int64_t next_best(const double *answer, int64_t count, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < count; i++) {
        bool after = last < 0 || answer[i] < answer[last] || (answer[i] == answer[last] && i > last);
        if (after && (best < 0 || answer[i] > answer[best]))
            best = i;
    }
    return best;
}

static void print_class(tri_json *json, const tri_predictor *predictor, const double *answer, int64_t class)
{
    const char *name = tri_predictor_name(predictor, class);
    tri_json_int(json, "class", class);
    if (name)
        tri_json_text(json, "name", name);
    tri_json_real(json, "probability", answer[class]);
}

static void print_classes(tri_json *json, const tri_predictor *predictor, const double *answer, int64_t top)
{
    int64_t count = tri_predictor_answer_count(predictor), class = next_best(answer, count, -1);
    print_class(json, predictor, answer, class);
    tri_json list = tri_json_array_in(json, "top");
    for (int64_t k = 0; k < top && class >= 0; k++, class = next_best(answer, count, class)) {
        tri_json one = tri_json_object_in(&list, NULL);
        print_class(&one, predictor, answer, class);
        tri_json_end(&one); /* a failure stays in the outer ones */
    }
    tri_json_end(&list);
}

static tri_status print_place(predict_run *run, int64_t row)
{
    const predict_place *place = &run->places[row];
    const double *answer = tri_predictor_answer(run->predictor, row);
    int64_t count = tri_predictor_answer_count(run->predictor);
    tri_string_clear(&run->text);
    tri_json json = tri_json_object(&run->text);
    if (place->file)
        tri_json_text(&json, "file", place->file);
    if (place->error) {
        if (!place->file)
            tri_json_int(&json, "line", place->line);
        tri_json_text(&json, "error", place->error);
    } else if (tri_predictor_info(run->predictor)->classes > 0) {
        print_classes(&json, run->predictor, answer, run->top);
    } else {
        tri_json list = tri_json_array_in(&json, "output");
        for (int64_t i = 0; i < count; i++)
            tri_json_real(&list, NULL, answer[i]);
        tri_json_end(&list);
    }
    TRI_TRY(tri_json_end(&json));
    puts(tri_string_text(&run->text));
    return TRI_OK;
}

static tri_status flush_batch(predict_run *run)
{
    int64_t filled = run->filled;
    run->filled = 0;
    tri_status status = filled > 0 ? tri_predictor_run(run->predictor, filled) : TRI_OK;
    for (int64_t row = 0; row < filled; row++) {
        if (status == TRI_OK)
            status = print_place(run, row);
        tri_free(run->places[row].error);
        run->places[row].error = NULL;
    }
    if (status == TRI_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = tri_fail(TRI_EIO, "standard output cannot be written");
    return status;
}

/* --- samples --- */

/* What only this sample suffers from. */
static bool is_own(tri_status status)
{
    return status == TRI_EFORMAT || status == TRI_EINVAL;
}

/* The next row of the batch, or what is wrong with its sample. */
static tri_status place_add(predict_run *run, tri_status status, int64_t line, const char *file)
{
    predict_place *place = &run->places[run->filled];
    if (status != TRI_OK && !is_own(status))
        return status;
    *place = (predict_place){.line = line, .file = file};
    if (status != TRI_OK) {
        run->wrong++;
        place->error = tri_strdup(tri_last_error());
        if (!place->error)
            return TRI_ENOMEM;
    }
    run->lines++;
    run->filled++;
    return TRI_OK;
}

static tri_status put_sample(predict_run *run, tri_status read, const predict_sample *sample)
{
    tri_status status = read;
    if (status == TRI_OK && sample->index >= 0)
        status = tri_predictor_put_index(run->predictor, run->filled, sample->index);
    else if (status == TRI_OK && sample->fields)
        status = tri_predictor_put_fields(run->predictor, run->filled, sample->fields, sample->decimal,
                                          &(tri_table_place){run->path, sample->line});
    else if (status == TRI_OK)
        status = tri_predictor_put(run->predictor, run->filled, sample->numbers, sample->count);
    return place_add(run, status, sample->line, NULL);
}

static tri_status put_image(predict_run *run, const tri_image_fit *fit, const char *path, uint8_t *sample)
{
    tri_image image;
    const tri_image_place place = {.path = (char *)(uintptr_t)path};
    tri_status status = tri_image_read(&place, fit->channels, &image);
    if (status == TRI_OK) {
        status = tri_image_fit_apply(fit, &image, NULL, sample);
        tri_free(image.pixels);
    }
    if (status == TRI_OK)
        tri_predictor_put_stored(run->predictor, run->filled, sample);
    return place_add(run, status, 0, path);
}

static tri_status run_images(predict_run *run)
{
    tri_image_fit fit;
    TRI_TRY(tri_predictor_fit(run->predictor, &fit));
    uint8_t *sample = tri_alloc((size_t)(fit.height * fit.width * fit.channels));
    tri_status status = sample ? TRI_OK : TRI_ENOMEM;
    for (size_t i = 0; i < run->images.count && status == TRI_OK; i++) {
        if (run->filled == run->rows)
            status = flush_batch(run);
        if (status == TRI_OK)
            status = put_image(run, &fit, *(char **)tri_vector_at(&run->images, i), sample);
    }
    tri_free(sample);
    return status;
}

static tri_status run_lines(predict_run *run)
{
    for (bool end = false; !end;) {
        predict_sample sample;
        if (run->filled == run->rows || (run->filled > 0 && predict_input_waits(run->input)))
            TRI_TRY(flush_batch(run));
        tri_status status = predict_input_next(run->input, &sample, &end);
        if (status != TRI_OK && !is_own(status))
            return status;
        if (!end)
            TRI_TRY(put_sample(run, status, &sample));
    }
    return TRI_OK;
}

static tri_status run_samples(predict_run *run)
{
    TRI_TRY(run->input ? run_lines(run) : run_images(run));
    TRI_TRY(flush_batch(run));
    if (run->wrong > 0)
        return tri_fail(TRI_EFORMAT, "%lld of %lld samples are wrong: their lines say why", (long long)run->wrong,
                        (long long)run->lines);
    return TRI_OK;
}

/* --- the command --- */

/* Images: a folder, or a file of that name or content. */
static bool is_images(const char *path)
{
    uint8_t first[16];
    size_t got;
    if (given.format || strcmp(path, "-") == 0)
        return false;
    return tri_fs_is_folder(path) || tri_image_format_named(path) ||
           (tri_fs_read_part(path, 0, first, sizeof(first), &got) == TRI_OK && tri_image_format_of(first, got));
}

static tri_status inputs_open(const char *const *files, int count, predict_run *run)
{
    const char *file = count > 0 ? files[0] : "-";
    if (!is_images(file))
        return count < 2 ? predict_input_open(file, given.format, &run->input)
                         : tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form section.key=value", files[1]);
    run->images.each = sizeof(char *);
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_images_list(files[i], &run->images));
    return TRI_OK;
}

static tri_status run_open(const char *path, const char *const *files, int file_count, const char *const *overrides,
                           predict_run *run)
{
    tri_trained trained;
    tri_job *job = NULL;
    run->rows = ROWS_DEFAULT;
    run->top = TOP_DEFAULT;
    if (given.rows)
        TRI_TRY(tri_flag_int("--batch", given.rows, 1, ROWS_LIMIT, &run->rows));
    if (given.top)
        TRI_TRY(tri_flag_int("--top", given.top, 0, INT32_MAX, &run->top));
    TRI_TRY(tri_trained_find(path, given.config, &trained));
    TRI_TRY(inputs_open(files, file_count, run));
    tri_trained_setup setup = {.trained = &trained, .overrides = overrides, .rows = run->rows};
    TRI_TRY(tri_trained_open(&setup, &job));
    TRI_TRY(tri_predictor_open(job, !given.train, &run->predictor));
    run->path = file_count > 0 ? files[0] : "-";
    if (run->input && tri_predictor_table(run->predictor))
        TRI_TRY(predict_input_table_set(run->input, tri_predictor_table(run->predictor)));
    run->places = tri_alloc_zero((size_t)run->rows, sizeof(*run->places));
    return run->places ? TRI_OK : TRI_ENOMEM;
}

static tri_status predict(int count, char **argv)
{
    if (count < 1 || strchr(argv[0], '='))
        return tri_fail(TRI_ECONFIG, "want a run or a checkpoint (trireme predict --help)");
    int first = 1;
    while (first < count && !strchr(argv[first], '='))
        first++;
    for (int i = first; i < count; i++)
        if (!strchr(argv[i], '='))
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form section.key=value", argv[i]);
    argv[count] = NULL;
    predict_run run = {0};
    const char *const *words = (const char *const *)argv;
    tri_status status = run_open(argv[0], words + 1, first - 1, words + first, &run);
    if (status == TRI_OK)
        status = run_samples(&run);
    for (int64_t row = 0; run.places && row < run.filled; row++)
        tri_free(run.places[row].error);
    for (size_t i = 0; i < run.images.count; i++)
        tri_free(*(char **)tri_vector_at(&run.images, i));
    tri_vector_fini(&run.images);
    tri_free(run.places);
    tri_string_fini(&run.text);
    tri_predictor_close(run.predictor);
    predict_input_close(run.input);
    return status;
}

int cmd_predict(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_predict), flags, TRI_COUNT_OF(flags), argc, argv, predict);
}
