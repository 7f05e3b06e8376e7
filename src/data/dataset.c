/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.c: the table of formats, the data sets known by name, and opening one of them.
 */
#include <inttypes.h>
#include <string.h>

#include "data/formats.h"
#include "text/tokenizer.h"

#define TRI_OPTION_STRUCT tri_data_config
static const tri_option rows[] = {TRI_DATA_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_data_options = TRI_OPTION_TABLE("data", tri_data_config, rows, "what is learned from");

/* Auto detection asks in this order. */
static const tri_dataset_ops *const formats[] = {&tri_dataset_tokens,   &tri_dataset_idx, &tri_dataset_cifar,
                                                 &tri_dataset_npy,      &tri_dataset_csv, &tri_dataset_images,
                                                 &tri_dataset_synthetic};

typedef struct known_dataset {
    const char *name;
    const char *format;
    const char *path;    /* where its package puts it, NULL: no files */
    const char *package; /* of Debian */
    float mean, deviation;
    int64_t classes;
} known_dataset;

static const known_dataset known_datasets[] = {
    {"fashion-mnist", "idx", "/usr/share/datasets/fashion-mnist", "dataset-fashion-mnist", 0.2860f, 0.3530f, 10},
    {"synthetic", "synthetic", NULL, NULL, 0, 0, 0},
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
    if (strcmp(config->format, "auto") == 0)
        strcpy(config->format, known->format);
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
    bool detect = strcmp(config->format, "auto") == 0;
    for (size_t i = 0; i < TRI_COUNT_OF(formats); i++)
        if (detect ? formats[i]->can(config) : strcmp(config->format, formats[i]->name) == 0) {
            *out = formats[i];
            return TRI_OK;
        }
    if (!detect)
        return tri_fail(TRI_ECONFIG,
                        "data.format: want auto, idx, cifar, npy, csv, tokens, images or synthetic, got '%s'",
                        config->format);
    return tri_fail(
        tri_fs_exists(config->path) ? TRI_EFORMAT : TRI_ENOTFOUND,
        "no data set at %s: looked for train-images-idx3-ubyte[.gz], data_batch_1.bin, train.bin, x_train.npy, "
        "x.npy, train.csv, or a .csv file, train-00000.tokens, a .txt or .bin file, sub-folders of images; data.format "
        "says which it is",
        config->path);
}

static tri_status check_info(const tri_dataset_info *info, const tri_data_config *config, bool test)
{
    if (info->count < 1)
        return tri_fail(TRI_ENOTFOUND, "%s: no %s samples (data.test_part is %g)", config->path,
                        test ? "test" : "training", config->test_part);
    if (info->sample.ndim > TRI_SAMPLE_MAX_DIMS || info->target.ndim > TRI_SAMPLE_MAX_DIMS)
        return tri_fail(TRI_EUNSUPPORTED, "%s: want samples and targets of at most %d dimensions", config->path,
                        TRI_SAMPLE_MAX_DIMS);
    return TRI_OK;
}

/* Image files are mostly normalized like this. */
static const float imagenet_mean[] = {0.485f, 0.456f, 0.406f}, imagenet_deviation[] = {0.229f, 0.224f, 0.225f};

static tri_status imagenet_fill(const tri_dataset_ops *ops, tri_dataset_info *info, const tri_data_config *config)
{
    const bool rgb = info->dtype == TRI_U8 && info->sample.ndim == 3 && info->sample.dim[2] == 3;
    const bool asked = strcmp(config->normalize, "imagenet") == 0;
    char text[96];
    if (asked && !rgb)
        return tri_fail(TRI_ECONFIG, "data.normalize: imagenet is for bytes [height, width, 3], the samples are %s %s",
                        tri_dtype_name(info->dtype), tri_shape_print(info->sample, text));
    if (!asked && !(rgb && ops == &tri_dataset_images && strcmp(config->normalize, "auto") == 0))
        return TRI_OK;
    memcpy(info->mean, imagenet_mean, sizeof(imagenet_mean));
    memcpy(info->deviation, imagenet_deviation, sizeof(imagenet_deviation));
    return TRI_OK;
}

tri_status tri_dataset_open(const tri_data_config *given, bool test, tri_dataset **out)
{
    tri_data_config config = *given;
    const known_dataset *known = NULL;
    *out = NULL;
    if (config.name[0] != 0) {
        TRI_TRY(find_known(config.name, &known));
        TRI_TRY(fill_known(&config, known));
    }
    if (config.path[0] == 0 && strcmp(config.format, tri_dataset_synthetic.name) != 0)
        return tri_fail(TRI_ECONFIG, "data.name or data.path must say what to learn from");
    const tri_dataset_ops *ops = NULL;
    TRI_TRY(find_format(&config, &ops));
    tri_dataset *dataset = NULL;
    TRI_TRY_IN(ops->open(&config, test, &dataset), "%s set", test ? "test" : "training");
    tri_dataset_info *info = &dataset->info;
    int64_t limit = test ? config.test_limit : config.limit;
    if (limit > 0 && limit < info->count)
        info->count = limit;
    if (known != NULL && known->deviation > 0) {
        info->mean[0] = known->mean;
        info->deviation[0] = known->deviation;
    }
    tri_status status = check_info(info, &config, test);
    if (status == TRI_OK)
        status = imagenet_fill(ops, info, &config);
    if (status != TRI_OK) {
        tri_dataset_close(dataset);
        return status;
    }
    *out = dataset;
    return TRI_OK;
}

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

static void kept_copy(const tri_dataset *dataset, const int64_t *places, int64_t count, unsigned char *samples,
                      unsigned char *targets)
{
    const size_t each = sample_nbytes(&dataset->info), target = target_nbytes(&dataset->info);
    for (int64_t i = 0; i < count; i++) {
        memcpy(samples + (size_t)i * each, dataset->kept + (size_t)places[i] * each, each);
        memcpy(targets + (size_t)i * target, dataset->kept_targets + (size_t)places[i] * target, target);
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
        places[i] = i;
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
    if (dataset->kept != NULL) {
        kept_copy(dataset, places, count, samples, targets);
        return TRI_OK;
    }
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
    if (dataset->stride <= 1)
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
    dataset->ops->close(dataset);
}

void tri_dataset_hold(tri_dataset *dataset)
{
    dataset->holders++;
}
