/* SPDX-License-Identifier: Apache-2.0
 *
 * idx.c: the IDX files of MNIST and its kin, plain or gzip: images and labels in two files each for training and test.
 *
 * Head: 0 0 type ndim, then ndim dimensions of 4 bytes, big endian, then the elements. All of it is checked against the
 * length of the file before anything is believed. Elements are stored in this machine's byte order.
 */
#include <inttypes.h>
#include <string.h>

#include "data/formats.h"

typedef struct idx_file {
    tri_source source;
    tri_dtype dtype;
    tri_shape shape; /* [count, ...] */
    size_t head_nbytes;
} idx_file;

typedef struct idx_dataset {
    tri_dataset base;
    idx_file images, labels;
    size_t sample_nbytes;
} idx_dataset;

enum idx_what { IDX_TRAIN_IMAGES, IDX_TRAIN_LABELS, IDX_TEST_IMAGES, IDX_TEST_LABELS };
#define IDX_MAX_NAMES 5
static const char *const names_of[][IDX_MAX_NAMES] = {
    [IDX_TRAIN_IMAGES] = {"train-images-idx3-ubyte", "train-images.idx3-ubyte", NULL},
    [IDX_TRAIN_LABELS] = {"train-labels-idx1-ubyte", "train-labels.idx1-ubyte", NULL},
    [IDX_TEST_IMAGES] = {"t10k-images-idx3-ubyte", "test-images-idx3-ubyte", "t10k-images.idx3-ubyte", NULL},
    [IDX_TEST_LABELS] = {"t10k-labels-idx1-ubyte", "test-labels-idx1-ubyte", "t10k-labels.idx1-ubyte", NULL},
};

static tri_status find_file(const tri_data_config *config, enum idx_what what, char **path)
{
    char *slashed = tri_format("%s/", config->path);
    char *dashed = tri_format("%s-", config->path);
    tri_status status = TRI_ENOMEM;
    if (slashed != NULL && dashed != NULL) {
        const char *const in_folder[] = {slashed, NULL};
        const char *const by_start[] = {dashed, config->path, NULL};
        status = tri_data_find(tri_fs_is_folder(config->path) ? in_folder : by_start, names_of[what], path);
    }
    tri_free(slashed);
    tri_free(dashed);
    return status;
}

static bool idx_can(const tri_data_config *config)
{
    for (enum idx_what what = IDX_TRAIN_IMAGES; what <= IDX_TEST_IMAGES; what += 2) {
        char *path = NULL;
        tri_status status = find_file(config, what, &path);
        tri_free(path);
        if (status == TRI_OK)
            return true;
    }
    return false;
}

static tri_status type_of(const char *origin, unsigned char code, tri_dtype *dtype)
{
    switch (code) {
    case 0x08:
        *dtype = TRI_U8;
        return TRI_OK;
    case 0x09:
        *dtype = TRI_I8;
        return TRI_OK;
    case 0x0c:
        *dtype = TRI_I32;
        return TRI_OK;
    case 0x0d:
        *dtype = TRI_F32;
        return TRI_OK;
    case 0x0e:
        *dtype = TRI_F64;
        return TRI_OK;
    case 0x0b:
        return tri_fail(TRI_EUNSUPPORTED, "%s: elements of 16 bits (IDX type 0x0b) are not supported", origin);
    default:
        return tri_fail(TRI_EFORMAT, "%s: want an IDX element type (8, 9, 0xc, 0xd, 0xe), got 0x%x", origin, code);
    }
}

static tri_status read_head(idx_file *file, tri_stream *stream)
{
    const char *origin = file->source.origin;
    unsigned char head[4];
    TRI_TRY(tri_stream_read(stream, head, sizeof(head)));
    if (head[0] != 0 || head[1] != 0)
        return tri_fail(TRI_EFORMAT, "%s: no IDX file: want it to begin with 0 0, got %d %d", origin, head[0], head[1]);
    TRI_TRY(type_of(origin, head[2], &file->dtype));
    if (head[3] < 1 || head[3] > TRI_SAMPLE_MAX_DIMS + 1)
        return tri_fail(TRI_EFORMAT, "%s: want 1 to %d dimensions, got %d", origin, TRI_SAMPLE_MAX_DIMS + 1, head[3]);
    file->shape.ndim = head[3];
    for (int i = 0; i < file->shape.ndim; i++) {
        unsigned char dim[4];
        TRI_TRY(tri_stream_read(stream, dim, sizeof(dim)));
        file->shape.dim[i] = (int64_t)dim[0] << 24 | dim[1] << 16 | dim[2] << 8 | dim[3];
    }
    file->head_nbytes = 4 + 4 * (size_t)file->shape.ndim;
    return TRI_OK;
}

static tri_status check_file(idx_file *file)
{
    tri_stream stream;
    TRI_TRY(tri_stream_open(&stream, &file->source));
    tri_status status = read_head(file, &stream);
    tri_stream_close(&stream);
    TRI_TRY(status);
    uint64_t nbytes = 0;
    TRI_TRY(tri_data_nbytes(file->source.origin, file->shape, tri_dtype_nbytes(file->dtype), &nbytes));
    return tri_source_check_length(&file->source, nbytes + file->head_nbytes);
}

/* Big endian to this machine's order (little endian: the only one Trireme runs on). */
static void swap_elements(void *data, size_t each, size_t count)
{
    unsigned char *bytes = data;
    for (size_t i = 0; each > 1 && i < count; i++, bytes += each)
        for (size_t j = 0; j < each / 2; j++) {
            unsigned char byte = bytes[j];
            bytes[j] = bytes[each - 1 - j];
            bytes[each - 1 - j] = byte;
        }
}

static tri_status open_rows(tri_stream *stream, const idx_file *file)
{
    TRI_TRY(tri_stream_open(stream, &file->source));
    return tri_stream_skip(stream, file->head_nbytes);
}

/* The number of classes: one more than the greatest label. */
static tri_status count_classes(const idx_file *labels, int64_t *found)
{
    *found = 1;
    if (!tri_target_is_integer(labels->dtype))
        return TRI_OK;
    tri_stream stream = {0};
    size_t each = tri_dtype_nbytes(labels->dtype);
    tri_status status = open_rows(&stream, labels);
    for (int64_t i = 0, at = 0; i < labels->shape.dim[0] && status == TRI_OK; i++) {
        unsigned char raw[8];
        status = tri_stream_pick(&stream, each, &at, i, raw);
        if (status != TRI_OK)
            break;
        swap_elements(raw, each, 1);
        int64_t label = tri_target_integer(labels->dtype, raw);
        if (label >= *found)
            *found = label + 1;
    }
    tri_stream_close(&stream);
    return status;
}

static tri_status read_images(idx_dataset *idx, const int64_t *indices, int64_t count, unsigned char *samples)
{
    tri_stream stream = {0};
    tri_status status = open_rows(&stream, &idx->images);
    int64_t at = 0;
    for (int64_t i = 0; i < count && status == TRI_OK; i++)
        status =
            tri_stream_pick(&stream, idx->sample_nbytes, &at, indices[i], samples + (size_t)i * idx->sample_nbytes);
    if (status == TRI_OK && at == idx->images.shape.dim[0])
        status = tri_stream_finish(&stream);
    tri_stream_close(&stream);
    size_t each = tri_dtype_nbytes(idx->base.info.dtype);
    swap_elements(samples, each, (size_t)count * (idx->sample_nbytes / each));
    return status;
}

static tri_status read_labels(idx_dataset *idx, const int64_t *indices, int64_t count, unsigned char *targets)
{
    const idx_file *labels = &idx->labels;
    size_t each = tri_dtype_nbytes(labels->dtype);
    tri_stream stream = {0};
    tri_status status = open_rows(&stream, labels);
    int64_t at = 0;
    for (int64_t i = 0; i < count && status == TRI_OK; i++) {
        unsigned char raw[8];
        status = tri_stream_pick(&stream, each, &at, indices[i], raw);
        if (status != TRI_OK)
            break;
        swap_elements(raw, each, 1);
        status =
            tri_target_store(&idx->base.info, labels->source.origin, indices[i], labels->dtype, raw, targets + 4 * i);
    }
    tri_stream_close(&stream);
    return status;
}

static tri_status idx_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    idx_dataset *idx = tri_container_of(dataset, idx_dataset, base);
    TRI_TRY(read_images(idx, indices, count, samples));
    return read_labels(idx, indices, count, targets);
}

static void idx_close(tri_dataset *dataset)
{
    idx_dataset *idx = tri_container_of(dataset, idx_dataset, base);
    tri_source_fini(&idx->images.source);
    tri_source_fini(&idx->labels.source);
    tri_free(idx);
}

/* Images of [h, w] get one channel, so that they are H W C. */
static tri_shape sample_shape(tri_shape file)
{
    tri_shape sample = tri_shape_make(file.ndim - 1, file.dim + 1);
    if (sample.ndim == 2 || sample.ndim == 0)
        sample.dim[sample.ndim++] = 1;
    return sample;
}

/* `found`: classes found elsewhere (in the training labels), 0 = look here. */
static tri_status plan(idx_dataset *idx, const tri_data_config *config, int64_t found)
{
    TRI_TRY(check_file(&idx->images));
    TRI_TRY(check_file(&idx->labels));
    const idx_file *images = &idx->images, *labels = &idx->labels;
    tri_dataset_info *info = &idx->base.info;
    if (labels->shape.ndim != 1)
        return tri_fail(TRI_EFORMAT, "%s: want labels of one dimension, got %d", labels->source.origin,
                        labels->shape.ndim);
    if (labels->shape.dim[0] != images->shape.dim[0])
        return tri_fail(TRI_EFORMAT, "%s has %" PRId64 " samples, but %s has %" PRId64 " labels", images->source.origin,
                        images->shape.dim[0], labels->source.origin, labels->shape.dim[0]);
    info->count = images->shape.dim[0];
    info->sample = sample_shape(images->shape);
    info->dtype = images->dtype;
    idx->sample_nbytes = (size_t)tri_shape_count(info->sample) * tri_dtype_nbytes(info->dtype);
    if (config->classes == 0 && found == 0)
        TRI_TRY(count_classes(labels, &found));
    return tri_target_plan(info, config, labels->source.origin, labels->dtype, found);
}

static tri_status parse(const tri_data_config *config, tri_source *images, tri_source *labels, int64_t found,
                        tri_dataset **out)
{
    idx_dataset *idx = tri_alloc_zero(1, sizeof(*idx));
    if (idx == NULL) {
        tri_source_fini(images);
        tri_source_fini(labels);
        return TRI_ENOMEM;
    }
    idx->base.ops = &tri_dataset_idx;
    idx->images.source = *images;
    idx->labels.source = *labels;
    *images = *labels = (tri_source){0};
    tri_status status = plan(idx, config, found);
    if (status != TRI_OK) {
        idx_close(&idx->base);
        return status;
    }
    *out = &idx->base;
    return TRI_OK;
}

tri_status tri_idx_parse(const tri_data_config *config, tri_source *images, tri_source *labels, tri_dataset **out)
{
    return parse(config, images, labels, 0, out);
}

static tri_status open_source(const tri_data_config *config, enum idx_what what, tri_source *source)
{
    char *path = NULL;
    tri_status status = find_file(config, what, &path);
    if (status == TRI_OK)
        status = tri_source_open(source, path);
    tri_free(path);
    return status;
}

/* The test set has the classes of the training set, where that is there. */
static tri_status find_classes(const tri_data_config *config, int64_t *found)
{
    idx_file labels = {0};
    tri_status status = open_source(config, IDX_TRAIN_LABELS, &labels.source);
    if (status == TRI_ENOTFOUND)
        return TRI_OK;
    if (status == TRI_OK)
        status = check_file(&labels);
    if (status == TRI_OK)
        status = count_classes(&labels, found);
    tri_source_fini(&labels.source);
    return status;
}

static tri_status idx_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    const bool test = part == TRI_PART_TEST;
    int64_t found = 0;
    if (test && config->classes == 0)
        TRI_TRY(find_classes(config, &found));
    tri_source images = {0}, labels = {0};
    TRI_TRY(open_source(config, test ? IDX_TEST_IMAGES : IDX_TRAIN_IMAGES, &images));
    tri_status status = open_source(config, test ? IDX_TEST_LABELS : IDX_TRAIN_LABELS, &labels);
    if (status != TRI_OK) {
        tri_source_fini(&images);
        return status;
    }
    return parse(config, &images, &labels, found, out);
}

const tri_dataset_ops tri_dataset_idx = {
    .name = "idx",
    .does = "IDX files of MNIST and its kin: train-images-idx3-ubyte[.gz] and three more",
    .can = idx_can,
    .open = idx_open,
    .read = idx_read,
    .close = idx_close,
};
