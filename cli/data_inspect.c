/* SPDX-License-Identifier: Apache-2.0
 *
 * data_inspect.c: opens both parts of a data set as training does, counts their classes, and decodes every image.
 */
#include "cli/data_inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "data/images/images.h"
#include "data/tables/table.h"

#define CLASSES_LIMIT  100000
#define CLASSES_SHOWN  20
#define BROKEN_SHOWN   20
#define COUNTED_NBYTES ((int64_t)4 << 30) /* of samples: more are not read for the sake of a count */
#define READ_NBYTES    ((int64_t)4 << 20)
#define PLACEHOLDER    "32" /* data.image_size while the sizes of the files are looked at */

typedef struct inspect_part {
    tri_dataset *dataset; /* NULL: there is none */
    int64_t *counts;      /* [classes]; NULL: not counted */
    const char *const *broken;
    int64_t broken_count;
} inspect_part;

typedef struct inspect {
    tri_data_config config;
    inspect_part parts[3];
    bool sizes_differ; /* images without data.image_size */
    bool refuses;      /* data.broken */
} inspect;

/* --- opening --- */

static tri_status words_read(const char *const *words, int count, tri_data_config *config)
{
    tri_options_defaults(&tri_data_options, config);
    if (count == 0)
        return tri_fail(TRI_ECONFIG, "data inspect: want a file or a folder");
    if (strlen(words[0]) >= sizeof(config->path))
        return tri_fail(TRI_ECONFIG, "data inspect: a path of %zu characters", strlen(words[0]));
    strcpy(config->path, words[0]);
    for (int i = 1; i < count; i++) {
        char key[64];
        const char *value = strchr(words[i], '=');
        if (value == NULL || strncmp(words[i], "data.", 5) != 0 || value - words[i] - 5 >= (long)sizeof(key))
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form data.key=value", words[i]);
        snprintf(key, sizeof(key), "%.*s", (int)(value - words[i] - 5), words[i] + 5);
        TRI_TRY(tri_options_set(&tri_data_options, config, key, value + 1));
    }
    return TRI_OK;
}

static tri_status part_open(inspect *all, int part)
{
    tri_dataset *dataset = NULL;
    tri_status status = tri_dataset_open(&all->config, (tri_data_part)part, &dataset);
    if (part != TRI_PART_TRAIN && status == TRI_ENOTFOUND)
        return TRI_OK;
    all->parts[part].dataset = dataset;
    if (part == TRI_PART_TRAIN && dataset != NULL)
        all->config.table = dataset->table; /* the other parts have its columns */
    return status;
}

/* The size of all images, where they have one. */
static tri_status size_settle(inspect *all)
{
    const tri_image_counts *counts = tri_images_counts(all->parts[0].dataset);
    all->sizes_differ = counts->least_height != counts->most_height || counts->least_width != counts->most_width;
    if (all->sizes_differ)
        return TRI_OK;
    snprintf(all->config.image_size, sizeof(all->config.image_size), "%lldx%lld", (long long)counts->least_height,
             (long long)counts->least_width);
    tri_dataset_close(all->parts[0].dataset);
    all->parts[0].dataset = NULL;
    return part_open(all, 0);
}

static tri_status parts_open(inspect *all)
{
    const bool sized = all->config.image_size[0] != 0;
    all->refuses = all->config.broken == TRI_BROKEN_REFUSE;
    all->config.broken = TRI_BROKEN_SKIP;
    if (!sized)
        strcpy(all->config.image_size, PLACEHOLDER);
    TRI_TRY(part_open(all, 0));
    if (tri_images_is(all->parts[0].dataset) && !sized)
        TRI_TRY(size_settle(all));
    TRI_TRY(part_open(all, TRI_PART_TEST));
    return tri_dataset_has(&all->config, TRI_PART_VALIDATION) ? part_open(all, TRI_PART_VALIDATION) : TRI_OK;
}

/* --- looking --- */

static tri_status targets_count(inspect_part *part, int64_t rows, void *samples, int32_t *targets, int64_t *indices)
{
    tri_dataset *dataset = part->dataset;
    for (int64_t first = 0; first < dataset->info.count; first += rows) {
        const int64_t rest = dataset->info.count - first, count = rest < rows ? rest : rows;
        for (int64_t i = 0; i < count; i++)
            indices[i] = first + i;
        if (dataset->ops->fetch == NULL)
            TRI_TRY(tri_dataset_read(dataset, indices, count, samples, targets));
        for (int64_t i = 0; i < count; i++) {
            if (dataset->ops->fetch != NULL)
                TRI_TRY(dataset->ops->fetch(dataset, NULL, 0, first + i, NULL, &targets[i]));
            part->counts[targets[i]]++;
        }
    }
    return TRI_OK;
}

static tri_status classes_count(inspect_part *part)
{
    const tri_dataset_info *info = &part->dataset->info;
    const int64_t each = tri_shape_count(info->sample) * (int64_t)tri_dtype_nbytes(info->dtype);
    if (info->classes < 1 || info->classes > CLASSES_LIMIT || info->target.ndim > 0 ||
        (part->dataset->ops->fetch == NULL && info->count > COUNTED_NBYTES / each))
        return TRI_OK;
    if (part->dataset->ops->classes != NULL)
        return tri_dataset_count_classes(part->dataset, &part->counts);
    const int64_t rows = each < READ_NBYTES ? READ_NBYTES / each : 1;
    part->counts = tri_alloc_zero((size_t)info->classes, sizeof(int64_t));
    void *samples = tri_alloc_bulk((size_t)(rows * each)), *targets = tri_alloc((size_t)rows * sizeof(int32_t)),
         *indices = tri_alloc((size_t)rows * sizeof(int64_t));
    tri_status status = part->counts && samples && targets && indices ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = targets_count(part, rows, samples, targets, indices);
    tri_free(samples);
    tri_free(targets);
    tri_free(indices);
    return status;
}

static tri_status parts_look(inspect *all, int threads)
{
    for (int p = 0; p < 3; p++) {
        inspect_part *part = &all->parts[p];
        if (part->dataset == NULL)
            continue;
        TRI_TRY_IN(classes_count(part), "%s set", tri_data_part_name((tri_data_part)p));
        if (!tri_images_is(part->dataset))
            continue;
        TRI_TRY(tri_images_check(part->dataset, threads));
        part->broken = tri_images_broken(part->dataset, &part->broken_count);
    }
    tri_dataset *training = all->parts[0].dataset;
    if (all->sizes_differ && tri_images_is(training))
        return TRI_OK;
    /* Nobody measures samples of which some cannot be decoded. */
    return all->parts[0].broken_count == 0 ? tri_dataset_measure(training, &all->config) : TRI_OK;
}

static int64_t broken_count(const inspect *all)
{
    return all->parts[0].broken_count + all->parts[1].broken_count + all->parts[2].broken_count;
}

/* --- texts --- */

static int channels_known(const tri_dataset_info *info)
{
    int count = 0;
    while (count < 16 && info->deviation[count] > 0)
        count++;
    return count;
}

static void print_part(const char *name, const inspect_part *part)
{
    printf("%-11s %lld samples", name, part->dataset ? (long long)part->dataset->info.count : 0LL);
    if (part->dataset && tri_images_is(part->dataset)) {
        const tri_image_counts *counts = tri_images_counts(part->dataset);
        const tri_image_folder *folder = tri_images_folder(part->dataset);
        if (folder->tars > 0)
            printf(" in %lld tar files of %s", (long long)folder->tars, folder->root);
        else
            printf(" below %s", folder->root);
        printf(": %lld JPEG, %lld PNG, %lld WebP, %lld x %lld to %lld x %lld pixels", (long long)counts->jpeg,
               (long long)counts->png, (long long)counts->webp, (long long)counts->least_width,
               (long long)counts->least_height, (long long)counts->most_width, (long long)counts->most_height);
        if (folder->other_files > 0)
            printf("; %lld other files are not read", (long long)folder->other_files);
    }
    putchar('\n');
}

static void print_samples(const inspect *all)
{
    const tri_dataset *training = all->parts[0].dataset;
    const tri_dataset_info *info = &training->info;
    char text[96];
    printf("path        %s\nformat      %s\n", all->config.path, training->ops->name);
    for (int p = 0; p < 3; p++)
        if (p != TRI_PART_VALIDATION || all->parts[p].dataset)
            print_part(tri_data_part_name((tri_data_part)p), &all->parts[p]);
    if (all->sizes_differ)
        puts("sample      images of several sizes: data.image_size must say which one samples have, such as 224");
    else
        printf("sample      %s %s\n", tri_dtype_name(info->dtype), tri_shape_print(info->sample, text));
    if (info->classes > 0)
        printf("target      one of %lld classes\n", (long long)info->classes);
    else
        printf("target      %s %s\n", tri_dtype_name(info->target_dtype), tri_shape_print(info->target, text));
}

/* Every column: what it is, and what a value of it becomes. */
static void print_columns(const tri_table *table)
{
    printf("header      %s\n", table->header ? "yes" : "no");
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        printf("column      %s: %s%s", column->name[0] ? column->name : "(no name)", column->target ? "target, " : "",
               tri_column_kind_name(column->kind));
        if (tri_column_is_number(column->kind))
            printf(", mean %.4g, deviation %.4g", column->mean, column->deviation);
        if (column->kind == TRI_COLUMN_TEXT)
            printf(", %zu texts", column->texts.count);
        if (column->fills && tri_column_is_number(column->kind))
            printf(", missing values become %.4g", column->fill);
        putchar('\n');
    }
}

static int64_t count_of(const inspect_part *part, int64_t class)
{
    return part->counts ? part->counts[class] : 0;
}

static void print_classes(const inspect *all)
{
    const tri_dataset *training = all->parts[0].dataset;
    if (!all->parts[0].counts)
        return;
    const int64_t classes = training->info.classes;
    for (int64_t c = 0; c < classes && c < CLASSES_SHOWN; c++) {
        char number[24];
        snprintf(number, sizeof(number), "%lld", (long long)c);
        printf("class %-5s %s: %lld training, %lld test", number,
               c < training->names.count ? training->names.texts[c] : number, (long long)all->parts[0].counts[c],
               (long long)count_of(&all->parts[TRI_PART_TEST], c));
        if (all->parts[TRI_PART_VALIDATION].counts)
            printf(", %lld validation", (long long)all->parts[TRI_PART_VALIDATION].counts[c]);
        putchar('\n');
    }
    if (classes > CLASSES_SHOWN)
        printf("class ...   %lld more (--json lists all)\n", (long long)(classes - CLASSES_SHOWN));
}

static void print_rest(const inspect *all)
{
    const tri_dataset_info *info = &all->parts[0].dataset->info;
    const int channels = channels_known(info);
    for (int f = 0; f < 2 && channels > 0; f++) {
        printf("%-11s", f ? "deviation" : "mean");
        for (int c = 0; c < channels; c++)
            printf(" %.4g", (double)(f ? info->deviation : info->mean)[c]);
        putchar('\n');
    }
    if (info->decoders)
        printf("decoders    %s\n", info->decoders);
    if (!tri_images_is(all->parts[0].dataset))
        return;
    printf("broken      %lld%s\n", (long long)broken_count(all),
           broken_count(all) == 0 ? ""
           : all->refuses         ? ": training refuses them, data.broken=skip leaves them out"
                                  : ": training leaves them out");
    int64_t shown = 0;
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < all->parts[p].broken_count; i++)
            if (shown++ < BROKEN_SHOWN)
                printf("            %s\n", all->parts[p].broken[i]);
    if (shown > BROKEN_SHOWN)
        printf("            ... %lld more (--json lists all)\n", (long long)(shown - BROKEN_SHOWN));
}

/* --- JSON --- */

static void json_shape(tri_json *json, const char *key, tri_shape shape)
{
    tri_json list = tri_json_array_in(json, key);
    for (int d = 0; d < shape.ndim; d++)
        tri_json_int(&list, NULL, shape.dim[d]);
    tri_json_end(&list); /* a failure stays in the outer one */
}

static void json_part(tri_json *json, const char *name, const inspect_part *part)
{
    tri_json one = tri_json_object_in(json, name);
    const tri_dataset *dataset = part->dataset;
    tri_json_int(&one, "samples", dataset ? dataset->info.count : 0);
    if (dataset && tri_images_is(dataset)) {
        const tri_image_counts *counts = tri_images_counts(dataset);
        tri_json_text(&one, "folder", tri_images_folder(dataset)->root);
        tri_json_int(&one, "jpeg", counts->jpeg);
        tri_json_int(&one, "png", counts->png);
        tri_json_int(&one, "webp", counts->webp);
        json_shape(&one, "least_size", tri_shape_make(2, (const int64_t[]){counts->least_height, counts->least_width}));
        json_shape(&one, "greatest_size",
                   tri_shape_make(2, (const int64_t[]){counts->most_height, counts->most_width}));
        tri_json_int(&one, "other_files", tri_images_folder(dataset)->other_files);
        tri_json list = tri_json_array_in(&one, "broken");
        for (int64_t i = 0; i < part->broken_count; i++)
            tri_json_text(&list, NULL, part->broken[i]);
        tri_json_end(&list);
    }
    if (part->counts) {
        tri_json list = tri_json_array_in(&one, "class_counts");
        for (int64_t c = 0; c < dataset->info.classes; c++)
            tri_json_int(&list, NULL, part->counts[c]);
        tri_json_end(&list);
    }
    tri_json_end(&one);
}

static void json_floats(tri_json *json, const char *key, const float *values, int count)
{
    tri_json list = tri_json_array_in(json, key);
    for (int c = 0; c < count; c++)
        tri_json_real(&list, NULL, (double)values[c]);
    tri_json_end(&list);
}

static tri_status print_json(const inspect *all)
{
    const tri_dataset *training = all->parts[0].dataset;
    const tri_dataset_info *info = &training->info;
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "path", all->config.path);
    tri_json_text(&json, "format", training->ops->name);
    if (!all->sizes_differ)
        json_shape(&json, "sample", info->sample);
    tri_json_text(&json, "dtype", tri_dtype_name(info->dtype));
    json_shape(&json, "target", info->target);
    tri_json_int(&json, "classes", info->classes);
    tri_json names = tri_json_array_in(&json, "class_names");
    for (int64_t c = 0; c < training->names.count; c++)
        tri_json_text(&names, NULL, training->names.texts[c]);
    tri_json_end(&names);
    for (int p = 0; p < 3; p++)
        if (p != TRI_PART_VALIDATION || all->parts[p].dataset)
            json_part(&json, tri_data_part_name((tri_data_part)p), &all->parts[p]);
    json_floats(&json, "mean", info->mean, channels_known(info));
    json_floats(&json, "deviation", info->deviation, channels_known(info));
    if (info->decoders)
        tri_json_text(&json, "decoders", info->decoders);
    tri_status status = tri_json_end(&json);
    puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

tri_status data_inspect(const char *const *words, int count, int threads, bool as_json)
{
    inspect *all = tri_alloc_zero(1, sizeof(*all));
    tri_status status = all ? words_read(words, count, &all->config) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = parts_open(all);
    if (status == TRI_OK)
        status = parts_look(all, threads);
    if (status == TRI_OK && as_json)
        status = print_json(all);
    else if (status == TRI_OK) {
        print_samples(all);
        if (all->parts[0].dataset->table)
            print_columns(all->parts[0].dataset->table);
        print_classes(all);
        print_rest(all);
    }
    const int64_t broken = all ? broken_count(all) : 0;
    if (status == TRI_OK && broken > 0 && all->refuses)
        status = tri_fail(TRI_EFORMAT, "%s: files that cannot be decoded: %lld (data.broken=skip leaves them out)",
                          all->config.path, (long long)broken);
    for (int p = 0; all && p < 3; p++) {
        tri_free(all->parts[p].counts);
        tri_dataset_close(all->parts[p].dataset);
    }
    tri_free(all);
    return status;
}
