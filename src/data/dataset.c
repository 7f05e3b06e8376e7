/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.c: the table of formats, the data sets known by name, and opening one of them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "data/formats.h"
#include "data/shards.h"
#include "storage/storage.h"
#include "text/tokenizer.h"

#define TRI_OPTION_STRUCT tri_data_config
static const tri_option rows[] = {TRI_DATA_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_data_options = TRI_OPTION_TABLE("data", tri_data_config, rows, "training and test data");

#define READ_NBYTES ((size_t)64 << 20) /* of samples at once, where only their classes are wanted */

/* Auto detection asks in this order. */
static const struct {
    tri_data_format format;
    const tri_dataset_ops *ops;
} formats[] = {{TRI_DATA_TOKENS, &tri_dataset_tokens},
               {TRI_DATA_IDX, &tri_dataset_idx},
               {TRI_DATA_CIFAR, &tri_dataset_cifar},
               {TRI_DATA_NPY, &tri_dataset_npy},
               {TRI_DATA_CSV, &tri_dataset_csv},
               {TRI_DATA_IMAGES, &tri_dataset_images},
               {TRI_DATA_WEBDATASET, &tri_dataset_webdataset},
               {TRI_DATA_SYNTHETIC, &tri_dataset_synthetic}};

typedef struct known_dataset {
    const char *name;
    tri_data_format format;
    const char *path;    /* where its package puts it, NULL: no files */
    const char *package; /* of Debian */
    float mean, deviation;
    int64_t classes;
} known_dataset;

static const known_dataset known_datasets[] = {
    {"fashion-mnist", TRI_DATA_IDX, "/usr/share/datasets/fashion-mnist", "dataset-fashion-mnist", 0.2860f, 0.3530f, 10},
    {"synthetic", TRI_DATA_SYNTHETIC, NULL, NULL, 0, 0, 0},
};

static tri_status find_known(const char *name, const known_dataset **out)
{
    const char *names[TRI_COUNT_OF(known_datasets)];
    for (size_t i = 0; i < TRI_COUNT_OF(known_datasets); i++) {
        names[i] = known_datasets[i].name;
        if (strcmp(name, names[i]) == 0) {
            *out = &known_datasets[i];
            return TRI_OK;
        }
    }
    const char *nearest = tri_options_nearest(name, names, TRI_COUNT_OF(names));
    return tri_fail(TRI_ECONFIG, "data.name: want fashion-mnist or synthetic, got '%s'%s%s", name,
                    nearest != NULL ? "; nearest: " : "", nearest != NULL ? nearest : "");
}

/* Puts in what the name stands for, where the user left it open. */
static tri_status fill_known(tri_data_config *config, const known_dataset *known)
{
    if (config->format == TRI_DATA_AUTO)
        config->format = known->format;
    if (config->classes == 0)
        config->classes = known->classes;
    if (known->path == NULL || config->path[0] != 0)
        return TRI_OK;
    strcpy(config->path, known->path);
    if (!tri_fs_is_folder(known->path))
        return tri_fail(TRI_ENOTFOUND, "data set %s is not in %s: apt-get install %s", known->name, known->path,
                        known->package);
    return TRI_OK;
}

static tri_status find_format(const tri_data_config *config, const tri_dataset_ops **out)
{
    bool detect = config->format == TRI_DATA_AUTO;
    for (size_t i = 0; i < TRI_COUNT_OF(formats); i++)
        if (detect ? formats[i].ops->can(config) : config->format == formats[i].format) {
            *out = formats[i].ops;
            return TRI_OK;
        }
    TRI_TRY(tri_shards_check_compressed(config->path));
    return tri_fail(
        tri_fs_exists(config->path) ? TRI_EFORMAT : TRI_ENOTFOUND,
        "no data set at %s: looked for train-images-idx3-ubyte[.gz], data_batch_1.bin, train.bin, x_train.npy, "
        "x.npy, train.csv, or a .csv, .tsv or .npz file, train-00000.tokens, a .txt or .bin file, sub-folders of "
        "images, .tar or .jsonl files; data.format says which it is",
        config->path);
}

static tri_status check_info(const tri_dataset_info *info, const tri_data_config *config, tri_data_part part)
{
    if (info->count < 1)
        return tri_fail(TRI_ENOTFOUND, "%s: no %s samples (data.test is %s, data.validation is %s)", config->path,
                        tri_data_part_name(part), config->test, config->validation);
    if (info->sample.ndim > TRI_SAMPLE_MAX_DIMS || info->target.ndim > TRI_SAMPLE_MAX_DIMS)
        return tri_fail(TRI_EUNSUPPORTED, "%s: want samples and targets of at most %d dimensions", config->path,
                        TRI_SAMPLE_MAX_DIMS);
    return TRI_OK;
}

/* Image files are mostly normalized like this. */
static const float imagenet_mean[] = {0.485f, 0.456f, 0.406f}, imagenet_deviation[] = {0.229f, 0.224f, 0.225f};

static tri_status imagenet_fill(tri_dataset_info *info, const tri_data_config *config)
{
    const bool rgb = info->dtype == TRI_U8 && info->sample.ndim == 3 && info->sample.dim[2] == 3;
    const bool asked = config->normalize == TRI_NORMALIZE_IMAGENET;
    char text[96];
    if (asked && !rgb)
        return tri_fail(TRI_ECONFIG, "data.normalize: imagenet is for bytes [height, width, 3], the samples are %s %s",
                        tri_dtype_name(info->dtype), tri_shape_print(info->sample, text));
    if (!asked && !(rgb && info->decoders != NULL && config->normalize == TRI_NORMALIZE_AUTO))
        return TRI_OK;
    memcpy(info->mean, imagenet_mean, sizeof(imagenet_mean));
    memcpy(info->deviation, imagenet_deviation, sizeof(imagenet_deviation));
    return TRI_OK;
}

const char *tri_data_part_name(tri_data_part part)
{
    static const char *const names[] = {
        [TRI_PART_TRAIN] = "training", [TRI_PART_TEST] = "test", [TRI_PART_VALIDATION] = "validation"};
    return names[part];
}

/* data.test or data.validation. */
static const char *part_option(const tri_data_config *config, tri_data_part part)
{
    return part == TRI_PART_TEST ? config->test : part == TRI_PART_VALIDATION ? config->validation : "0";
}

static bool part_is_path(const tri_data_config *config, tri_data_part part)
{
    double fraction;
    return !tri_part_fraction(part_option(config, part), &fraction);
}

static bool part_has_files(const tri_dataset_ops *ops, const tri_data_config *config, tri_data_part part)
{
    return ops->has != NULL ? ops->has(config, part) : part != TRI_PART_VALIDATION;
}

static tri_status option_check(const char *key, const char *option)
{
    char *end;
    double fraction;
    (void)strtod(option, &end);
    if (option[0] != 0 && (*end != 0 || tri_part_fraction(option, &fraction)))
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "%s: want a fraction from 0 to 0.9, or a path, got '%s'", key, option);
}

/* What a URL names is read from a local copy. */
static tri_status place_settle(const char *key, char *place, size_t room)
{
    char *path = NULL;
    TRI_TRY_IN(tri_place_check(place), "%s", key);
    if (!tri_path_is_url(place))
        return TRI_OK;
    TRI_TRY_IN(tri_storage_local(place, &path), "%s", key);
    tri_status status = strlen(path) < room ? TRI_OK : tri_fail(TRI_ECONFIG, "%s: %s is too long a path", key, path);
    if (status == TRI_OK)
        strcpy(place, path);
    tri_free(path);
    return status;
}

/* Options with what data.name stands for, and the format. */
static tri_status config_settle(const tri_data_config *given, tri_data_config *config, const known_dataset **known,
                                const tri_dataset_ops **ops)
{
    *config = *given;
    *known = NULL;
    if (config->name[0] != 0) {
        TRI_TRY(find_known(config->name, known));
        TRI_TRY(fill_known(config, *known));
    }
    if (config->path[0] == 0 && config->format != TRI_DATA_SYNTHETIC)
        return tri_fail(TRI_ECONFIG, "data.name or data.path must say what to learn from");
    TRI_TRY(option_check("data.test", config->test));
    TRI_TRY(option_check("data.validation", config->validation));
    TRI_TRY(place_settle("data.path", config->path, sizeof(config->path)));
    TRI_TRY(place_settle("data.tokenizer", config->tokenizer, sizeof(config->tokenizer)));
    return find_format(config, ops);
}

bool tri_dataset_has(const tri_data_config *given, tri_data_part part)
{
    tri_data_config config;
    const known_dataset *known;
    const tri_dataset_ops *ops;
    double fraction = 0;
    if (part == TRI_PART_TRAIN)
        return true;
    if (config_settle(given, &config, &known, &ops) != TRI_OK)
        return false;
    if (!tri_part_fraction(part_option(&config, part), &fraction))
        return true;
    return part_has_files(ops, &config, part) || (fraction > 0 && !ops->splits);
}

/* --- parts --- */

/* Many samples a call: each may inflate a file from its beginning. */
static tri_status classes_read(tri_dataset *dataset, int32_t *classes)
{
    const tri_dataset_info *info = &dataset->info;
    const size_t each = (size_t)tri_shape_count(info->sample) * tri_dtype_nbytes(info->dtype);
    const int64_t fit = each < READ_NBYTES ? (int64_t)(READ_NBYTES / (each + 1)) : 1;
    const int64_t most = fit < info->count ? fit : info->count;
    void *samples = tri_alloc((size_t)most * each + 1);
    int64_t *indices = tri_alloc((size_t)most * sizeof(*indices) + 1);
    tri_status status = samples != NULL && indices != NULL ? TRI_OK : TRI_ENOMEM;
    for (int64_t first = 0; first < info->count && status == TRI_OK; first += most) {
        const int64_t count = most < info->count - first ? most : info->count - first;
        for (int64_t i = 0; i < count; i++)
            indices[i] = first + i;
        status = dataset->ops->read(dataset, indices, count, samples, &classes[first]);
    }
    tri_free(samples);
    tri_free(indices);
    return status;
}

/* Of all samples of the files; *classes NULL: targets are real. */
static tri_status classes_find(tri_dataset *dataset, int32_t **classes)
{
    const tri_dataset_info *info = &dataset->info;
    *classes = NULL;
    if (info->classes == 0 || info->target.ndim > 0)
        return TRI_OK;
    *classes = tri_alloc_zero((size_t)info->count + 1, sizeof(**classes));
    if (*classes == NULL)
        return TRI_ENOMEM;
    return dataset->ops->classes != NULL ? dataset->ops->classes(dataset, *classes) : classes_read(dataset, *classes);
}

/* Leaves the samples of a part, of those in files that have several. */
static tri_status part_choose(tri_dataset *dataset, const tri_data_config *config, tri_data_part part)
{
    tri_parts parts;
    int32_t *classes = NULL;
    TRI_TRY(tri_parts_read(config, &parts));
    if (part_has_files(dataset->ops, config, TRI_PART_TEST))
        parts.test = 0;
    if (part_has_files(dataset->ops, config, TRI_PART_VALIDATION))
        parts.validation = 0;
    if (part == TRI_PART_TRAIN && parts.test + parts.validation == 0)
        return TRI_OK;
    tri_status status = parts.contiguous ? TRI_OK : classes_find(dataset, &classes);
    if (status == TRI_OK)
        status =
            tri_parts_choose(&parts, part, dataset->info.count, classes, NULL, &dataset->chosen, &dataset->info.count);
    tri_free(classes);
    return status;
}

static tri_status learn(tri_dataset *dataset, const tri_data_config *config)
{
    int64_t *places = tri_alloc((size_t)dataset->info.count * sizeof(*places) + 1);
    if (places == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < dataset->info.count; i++)
        places[i] = tri_dataset_place(dataset, i);
    tri_status status = dataset->ops->learn(dataset, config, places, dataset->info.count);
    tri_free(places);
    return status;
}

/* What is done to every set that was opened, before anybody reads it. */
static tri_status opened_settle(tri_dataset *dataset, const tri_data_config *config, const known_dataset *known,
                                tri_data_part part)
{
    const bool own = part == TRI_PART_TRAIN || part_has_files(dataset->ops, config, part);
    tri_dataset_info *info = &dataset->info;
    dataset->source_count = info->count;
    if (!dataset->ops->splits && (part == TRI_PART_TRAIN || !own))
        TRI_TRY(part_choose(dataset, config, part));
    const int64_t limit = part == TRI_PART_TRAIN ? config->limit : config->test_limit;
    if (limit > 0 && limit < info->count)
        info->count = limit;
    if (known != NULL && known->deviation > 0) {
        info->mean[0] = known->mean;
        info->deviation[0] = known->deviation;
    }
    if (info->count > 0 && dataset->ops->learn != NULL && config->table == NULL)
        TRI_TRY(learn(dataset, config));
    TRI_TRY(check_info(info, config, part));
    return imagenet_fill(info, config);
}

static tri_status open_files(const tri_data_config *config, const known_dataset *known, const tri_dataset_ops *ops,
                             tri_data_part part, tri_dataset **out)
{
    tri_dataset *dataset = NULL;
    const tri_data_part from = ops->splits || part_has_files(ops, config, part) ? part : TRI_PART_TRAIN;
    TRI_TRY_IN(ops->open(config, from, &dataset), "%s set", tri_data_part_name(part));
    tri_status status = opened_settle(dataset, config, known, part);
    if (status != TRI_OK) {
        tri_dataset_close(dataset);
        return status;
    }
    *out = dataset;
    return TRI_OK;
}

/* All of the data at a path, as a part of others. */
static tri_status open_path(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    tri_data_config other = *config;
    const known_dataset *known;
    const tri_dataset_ops *ops;
    strcpy(other.path, part_option(config, part));
    other.name[0] = 0;
    strcpy(other.test, "0");
    strcpy(other.validation, "0");
    other.limit = config->test_limit;
    TRI_TRY(config_settle(&other, &other, &known, &ops));
    return open_files(&other, known, ops, TRI_PART_TRAIN, out);
}

/* As the training set has columns and classes, where nobody says what those are. */
static tri_status open_like_training(const tri_data_config *config, const known_dataset *known,
                                     const tri_dataset_ops *ops, tri_data_part part, tri_dataset **out)
{
    tri_dataset *training;
    tri_data_config like = *config;
    TRI_TRY(open_files(config, known, ops, TRI_PART_TRAIN, &training));
    like.table = training->table;
    tri_status status =
        part_is_path(config, part) ? open_path(&like, part, out) : open_files(&like, known, ops, part, out);
    if (status == TRI_OK)
        status = tri_dataset_rename(*out, &training->names);
    tri_dataset_close(training);
    if (status != TRI_OK && *out != NULL) {
        tri_dataset_close(*out);
        *out = NULL;
    }
    return status;
}

tri_status tri_dataset_open(const tri_data_config *given, tri_data_part part, tri_dataset **out)
{
    tri_data_config config;
    const known_dataset *known;
    const tri_dataset_ops *ops;
    *out = NULL;
    TRI_TRY(config_settle(given, &config, &known, &ops));
    const bool learns = ops->learn != NULL && config.table == NULL;
    if (part != TRI_PART_TRAIN && (learns || (part_is_path(&config, part) && ops->rename != NULL && !config.table)))
        return open_like_training(&config, known, ops, part, out);
    return part_is_path(&config, part) ? open_path(&config, part, out) : open_files(&config, known, ops, part, out);
}

tri_status tri_dataset_count_classes(tri_dataset *dataset, int64_t **counts)
{
    const tri_dataset_info *info = &dataset->info;
    int32_t *classes = NULL;
    *counts = NULL;
    if (info->classes < 1 || info->target.ndim > 0 || dataset->ops->classes == NULL)
        return TRI_OK;
    *counts = tri_alloc_zero((size_t)info->classes, sizeof(**counts));
    classes = tri_alloc_zero((size_t)dataset->source_count + 1, sizeof(*classes));
    tri_status status = *counts != NULL && classes != NULL ? dataset->ops->classes(dataset, classes) : TRI_ENOMEM;
    for (int64_t i = 0; i < info->count && status == TRI_OK; i++) {
        const int32_t class = classes[tri_dataset_place(dataset, i)];
        if (class >= 0 && class < info->classes)
            (*counts)[class]++;
    }
    tri_free(classes);
    if (status == TRI_OK)
        return TRI_OK;
    tri_free(*counts);
    *counts = NULL;
    return status;
}

/* --- reading --- */

static size_t sample_nbytes(const tri_dataset_info *info)
{
    return (size_t)tri_shape_count(info->sample) * tri_dtype_nbytes(info->dtype);
}

static size_t target_nbytes(const tri_dataset_info *info)
{
    return (size_t)tri_shape_count(info->target) * tri_dtype_nbytes(info->target_dtype);
}

static void kept_drop(tri_dataset *dataset)
{
    tri_free(dataset->kept);
    tri_free(dataset->kept_targets);
    dataset->kept = dataset->kept_targets = NULL;
}

/* Of what is kept, sample i is the i-th before the set was thinned. */
static void kept_copy(const tri_dataset *dataset, const int64_t *indices, int64_t count, unsigned char *samples,
                      unsigned char *targets)
{
    const int64_t stride = dataset->stride > 1 ? dataset->stride : 1;
    const size_t each = sample_nbytes(&dataset->info), target = target_nbytes(&dataset->info);
    for (int64_t i = 0; i < count; i++) {
        memcpy(samples + (size_t)i * each, dataset->kept + (size_t)(indices[i] * stride) * each, each);
        memcpy(targets + (size_t)i * target, dataset->kept_targets + (size_t)(indices[i] * stride) * target, target);
    }
}

void tri_dataset_keep(tri_dataset *dataset, size_t limit_nbytes)
{
    const int64_t count = dataset->info.count;
    const size_t each = sample_nbytes(&dataset->info), target = target_nbytes(&dataset->info);
    if (dataset->ops->draw != NULL || dataset->ops->fetch != NULL || dataset->kept != NULL || dataset->stride > 1 ||
        (size_t)count > limit_nbytes / (each + target + 1))
        return;
    int64_t *places = tri_alloc((size_t)count * sizeof(*places));
    dataset->kept = tri_alloc_bulk((size_t)count * each);
    dataset->kept_targets = tri_alloc_bulk((size_t)count * target);
    for (int64_t i = 0; i < count && places != NULL; i++)
        places[i] = tri_dataset_place(dataset, i);
    if (places == NULL || dataset->kept == NULL || dataset->kept_targets == NULL ||
        dataset->ops->read(dataset, places, count, dataset->kept, dataset->kept_targets) != TRI_OK)
        kept_drop(dataset);
    tri_free(places);
}

static tri_status fetch_at(tri_dataset *dataset, const int64_t *places, int64_t count, unsigned char *samples,
                           unsigned char *targets)
{
    const size_t each = sample_nbytes(&dataset->info), target = target_nbytes(&dataset->info);
    for (int64_t i = 0; i < count; i++)
        TRI_TRY(
            dataset->ops->fetch(dataset, NULL, 0, places[i], samples + (size_t)i * each, targets + (size_t)i * target));
    return TRI_OK;
}

/* The samples at these places of what the format has. */
static tri_status read_at(tri_dataset *dataset, const int64_t *places, int64_t count, void *samples, void *targets)
{
    if (dataset->ops->fetch != NULL)
        return fetch_at(dataset, places, count, samples, targets);
    if (dataset->ops->draw == NULL)
        return dataset->ops->read(dataset, places, count, samples, targets);
    const int64_t each = tri_shape_count(dataset->info.sample);
    for (int64_t i = 0; i < count; i++)
        TRI_TRY(
            dataset->ops->draw(dataset, 0, 0, places[i], (int32_t *)samples + i * each, (int32_t *)targets + i * each));
    return TRI_OK;
}

tri_status tri_dataset_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < (i > 0 ? indices[i - 1] + 1 : 0) || indices[i] >= dataset->info.count)
            return tri_fail(TRI_EINVAL, "want ascending samples below %" PRId64 ", got %" PRId64, dataset->info.count,
                            indices[i]);
    if (dataset->kept != NULL) {
        kept_copy(dataset, indices, count, samples, targets);
        return TRI_OK;
    }
    if (dataset->stride <= 1 && dataset->chosen == NULL)
        return read_at(dataset, indices, count, samples, targets);
    int64_t *places = tri_alloc((size_t)(count > 0 ? count : 1) * sizeof(*places));
    if (places == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < count; i++)
        places[i] = tri_dataset_place(dataset, indices[i]);
    tri_status status = read_at(dataset, places, count, samples, targets);
    tri_free(places);
    return status;
}

tri_status tri_dataset_rename(tri_dataset *dataset, const tri_class_names *names)
{
    if (names->texts == NULL)
        return TRI_OK;
    if (dataset->names.texts == NULL || dataset->ops->rename == NULL)
        return tri_fail(TRI_ECONFIG,
                        "the model's classes are texts such as '%.40s', the targets of the data are numbers: which "
                        "class a number is nobody knows",
                        names->texts[0]);
    return dataset->ops->rename(dataset, names);
}

tri_status tri_class_names_copy(tri_arena *arena, const tri_class_names *from, tri_class_names *out)
{
    const char **texts = from->texts ? tri_arena_alloc(arena, (size_t)from->count, sizeof(*texts)) : NULL;
    *out = (tri_class_names){0};
    if (!from->texts)
        return TRI_OK;
    for (int64_t i = 0; texts && i < from->count; i++)
        if (!(texts[i] = tri_arena_strdup(arena, from->texts[i])))
            return TRI_ENOMEM;
    *out = (tri_class_names){texts, from->count};
    return texts ? TRI_OK : TRI_ENOMEM;
}

void tri_dataset_thin(tri_dataset *dataset, int64_t count)
{
    if (count >= dataset->info.count)
        return;
    dataset->stride = dataset->info.count / count;
    dataset->info.count = count;
}

void tri_dataset_close(tri_dataset *dataset)
{
    if (dataset == NULL || dataset->holders-- > 0)
        return;
    tri_tokenizer_close(dataset->tokenizer);
    kept_drop(dataset);
    tri_free(dataset->chosen);
    dataset->ops->close(dataset);
}

void tri_dataset_hold(tri_dataset *dataset)
{
    dataset->holders++;
}
