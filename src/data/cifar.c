/* SPDX-License-Identifier: Apache-2.0
 *
 * cifar.c: CIFAR-10 and CIFAR-100 in their binary version: records of one or two labels and a picture, in up to five
 * files.
 *
 * Pictures are three planes of 32 x 32; they are turned into H W C while reading. CIFAR-100: the fine label counts.
 */
#include <inttypes.h>
#include <string.h>

#include "data/formats.h"

#define SIDE              32
#define PLANE             (SIDE * SIDE)
#define CHANNELS          3
#define MAX_FILES         5
#define RECORD_MAX_NBYTES (2 + CHANNELS * PLANE)

typedef struct cifar_kind {
    size_t label_nbytes; /* the last byte of them is the label */
    int64_t classes;
    const char *folder; /* as the archive unpacks */
    const char *train[MAX_FILES + 1];
    const char *test[2];
    float mean[CHANNELS], deviation[CHANNELS];
} cifar_kind;

static const cifar_kind kinds[] = {
    {1,
     10,
     "cifar-10-batches-bin",
     {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", NULL},
     {"test_batch.bin", NULL},
     {0.4914f, 0.4822f, 0.4465f},
     {0.2470f, 0.2435f, 0.2616f}},
    {2,
     100,
     "cifar-100-binary",
     {"train.bin", NULL},
     {"test.bin", NULL},
     {0.5071f, 0.4865f, 0.4409f},
     {0.2673f, 0.2564f, 0.2762f}},
};

typedef struct cifar_file {
    tri_source source;
    int64_t first, count; /* samples */
} cifar_file;

typedef struct cifar_dataset {
    tri_dataset base;
    const cifar_kind *kind;
    size_t record_nbytes;
    cifar_file files[MAX_FILES];
    int file_count;
} cifar_dataset;

static tri_status is_there(const char *folder, const char *name, bool *there)
{
    char *path = tri_format("%s/%s", folder, name);
    if (path == NULL)
        return TRI_ENOMEM;
    *there = tri_fs_exists(path);
    tri_free(path);
    return TRI_OK;
}

/* Which kind is in the folder or in the archive's folder within it; *folder is tri_free()d. */
static tri_status find_kind(const tri_data_config *config, const cifar_kind **kind, char **folder)
{
    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++)
        for (int inside = 0; inside < 2; inside++) {
            *folder = inside ? tri_format("%s/%s", config->path, kinds[i].folder) : tri_strdup(config->path);
            if (*folder == NULL)
                return TRI_ENOMEM;
            bool there = false;
            tri_status status = is_there(*folder, kinds[i].train[0], &there);
            if (status == TRI_OK && !there)
                status = is_there(*folder, kinds[i].test[0], &there);
            *kind = &kinds[i];
            if (status == TRI_OK && there)
                return TRI_OK;
            tri_free(*folder);
            *folder = NULL;
            TRI_TRY(status);
        }
    return tri_fail(TRI_ENOTFOUND,
                    "no CIFAR files in %s: looked for data_batch_1.bin, test_batch.bin, train.bin, test.bin",
                    config->path);
}

static bool cifar_can(const tri_data_config *config)
{
    const cifar_kind *kind;
    char *folder = NULL;
    if (find_kind(config, &kind, &folder) != TRI_OK)
        return false;
    tri_free(folder);
    return true;
}

static tri_status read_record(cifar_dataset *cifar, int64_t index, const unsigned char *record, unsigned char *sample,
                              void *target)
{
    const unsigned char *planes = record + cifar->kind->label_nbytes;
    for (int i = 0; i < PLANE; i++)
        for (int c = 0; c < CHANNELS; c++)
            sample[CHANNELS * i + c] = planes[c * PLANE + i];
    return tri_target_store(&cifar->base.info, "CIFAR labels", index, TRI_U8, planes - 1, target);
}

static tri_status read_file(cifar_dataset *cifar, const cifar_file *file, const int64_t *indices, int64_t count,
                            unsigned char *samples, unsigned char *targets)
{
    unsigned char record[RECORD_MAX_NBYTES];
    tri_stream stream;
    TRI_TRY(tri_stream_open(&stream, &file->source));
    tri_status status = TRI_OK;
    int64_t at = 0;
    for (int64_t i = 0; i < count && status == TRI_OK; i++) {
        status = tri_stream_pick(&stream, cifar->record_nbytes, &at, indices[i] - file->first, record);
        if (status == TRI_OK)
            status = read_record(cifar, indices[i], record, samples + i * CHANNELS * PLANE, targets + 4 * i);
        if (status == TRI_EFORMAT)
            status = tri_fail_context(status, "in %s", file->source.origin);
    }
    tri_stream_close(&stream);
    return status;
}

static tri_status cifar_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    cifar_dataset *cifar = tri_container_of(dataset, cifar_dataset, base);
    int64_t done = 0;
    for (int f = 0; f < cifar->file_count; f++) {
        const cifar_file *file = &cifar->files[f];
        int64_t part = 0;
        while (done + part < count && indices[done + part] < file->first + file->count)
            part++;
        if (part > 0)
            TRI_TRY(read_file(cifar, file, indices + done, part, (unsigned char *)samples + done * CHANNELS * PLANE,
                              (unsigned char *)targets + 4 * done));
        done += part;
    }
    return TRI_OK;
}

static void cifar_close(tri_dataset *dataset)
{
    cifar_dataset *cifar = tri_container_of(dataset, cifar_dataset, base);
    for (int i = 0; i < MAX_FILES; i++)
        tri_source_fini(&cifar->files[i].source);
    tri_free(cifar);
}

static tri_status open_file(cifar_dataset *cifar, const char *folder, const char *name)
{
    cifar_file *file = &cifar->files[cifar->file_count++];
    char *path = tri_format("%s/%s", folder, name);
    if (path == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_fs_exists(path) ? tri_source_open(&file->source, path)
                                            : tri_fail(TRI_ENOTFOUND, "no such file: looked for %s", path);
    tri_free(path);
    TRI_TRY(status);
    file->source.plain = true;
    if (file->source.nbytes == 0 || file->source.nbytes % cifar->record_nbytes != 0)
        return tri_fail(TRI_EFORMAT, "%s: want a multiple of %zu bytes, got %zu", file->source.origin,
                        cifar->record_nbytes, file->source.nbytes);
    file->first = cifar->base.info.count;
    file->count = (int64_t)(file->source.nbytes / cifar->record_nbytes);
    cifar->base.info.count += file->count;
    return TRI_OK;
}

static tri_status open_files(cifar_dataset *cifar, const tri_data_config *config, bool test, const char *folder)
{
    const cifar_kind *kind = cifar->kind;
    tri_dataset_info *info = &cifar->base.info;
    cifar->record_nbytes = kind->label_nbytes + CHANNELS * PLANE;
    const char *const *names = test ? kind->test : kind->train;
    for (int i = 0; names[i] != NULL; i++)
        TRI_TRY(open_file(cifar, folder, names[i]));
    info->sample = tri_shape_make(3, (const int64_t[]){SIDE, SIDE, CHANNELS});
    info->dtype = TRI_U8;
    memcpy(info->mean, kind->mean, sizeof(kind->mean));
    memcpy(info->deviation, kind->deviation, sizeof(kind->deviation));
    return tri_target_plan(info, config, config->path, TRI_U8, kind->classes);
}

static tri_status cifar_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    const bool test = part == TRI_PART_TEST;
    char *folder = NULL;
    const cifar_kind *kind = NULL;
    TRI_TRY(find_kind(config, &kind, &folder));
    cifar_dataset *cifar = tri_alloc_zero(1, sizeof(*cifar));
    tri_status status = TRI_ENOMEM;
    if (cifar != NULL) {
        cifar->base.ops = &tri_dataset_cifar;
        cifar->kind = kind;
        status = open_files(cifar, config, test, folder);
        if (status == TRI_OK)
            *out = &cifar->base;
        else
            cifar_close(&cifar->base);
    }
    tri_free(folder);
    return status;
}

const tri_dataset_ops tri_dataset_cifar = {
    .name = "cifar",
    .does = "CIFAR-10 and CIFAR-100, binary version: data_batch_1.bin or train.bin and the others",
    .can = cifar_can,
    .open = cifar_open,
    .read = cifar_read,
    .close = cifar_close,
};
