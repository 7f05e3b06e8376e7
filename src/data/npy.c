/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.c: data sets in NumPy files: x_train, y_train, x_test, y_test (.npy), or x and y for all of them.
 *
 * The first dimension counts samples. Integer targets are classes; floating ones are real targets.
 */
#include "data/npy.h"

#include <inttypes.h>
#include <string.h>

#include "base/path.h"
#include "data/formats.h"

typedef struct npy_file {
    tri_source source;
    tri_npy_head head;
    size_t row_nbytes; /* of one sample */
} npy_file;

typedef struct npy_dataset {
    tri_dataset base;
    npy_file x, y;
} npy_dataset;

static tri_status check_file(npy_file *file)
{
    tri_stream stream;
    TRI_TRY(tri_stream_open(&stream, &file->source));
    tri_status status = tri_npy_head_read(&stream, &file->head);
    tri_stream_close(&stream);
    TRI_TRY(status);
    if (file->head.shape.ndim < 1)
        return tri_fail(TRI_EFORMAT, "%s: want an array of samples, got a single number", file->source.origin);
    uint64_t nbytes = 0;
    TRI_TRY(tri_data_nbytes(file->source.origin, file->head.shape, tri_dtype_nbytes(file->head.dtype), &nbytes));
    file->row_nbytes = (size_t)(nbytes / (uint64_t)file->head.shape.dim[0]);
    return tri_source_check_length(&file->source, nbytes + file->head.nbytes);
}

/* Shape of one row; rows of one number are [1] for samples and a scalar for targets. */
static tri_shape row_shape(tri_shape shape, bool target)
{
    tri_shape row = tri_shape_make(shape.ndim - 1, shape.dim + 1);
    if (target && row.ndim == 1 && row.dim[0] == 1)
        row = (tri_shape){0};
    if (!target && row.ndim == 0)
        row = tri_shape_make(1, (const int64_t[]){1});
    return row;
}

static tri_status open_rows(tri_stream *stream, const npy_file *file)
{
    TRI_TRY(tri_stream_open(stream, &file->source));
    return tri_stream_skip(stream, file->head.nbytes);
}

static tri_status count_classes(const npy_file *y, int64_t *found)
{
    *found = 1;
    if (!tri_target_is_integer(y->head.dtype) || row_shape(y->head.shape, true).ndim != 0)
        return TRI_OK;
    tri_stream stream = {0};
    tri_status status = open_rows(&stream, y);
    for (int64_t i = 0, at = 0; i < y->head.shape.dim[0] && status == TRI_OK; i++) {
        unsigned char raw[8];
        status = tri_stream_pick(&stream, y->row_nbytes, &at, i, raw);
        int64_t label = status == TRI_OK ? tri_target_integer(y->head.dtype, raw) : 0;
        if (label >= TRI_CLASSES_LIMIT)
            status =
                tri_fail(TRI_EFORMAT, "%s: label %" PRId64 " of sample %" PRId64 " is no class (below %" PRId64 ")",
                         y->source.origin, label, i, TRI_CLASSES_LIMIT);
        if (label >= *found)
            *found = label + 1;
    }
    tri_stream_close(&stream);
    return status;
}

static tri_status npy_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    npy_dataset *npy = tri_container_of(dataset, npy_dataset, base);
    size_t target_nbytes = (size_t)tri_shape_count(dataset->info.target) * 4;
    unsigned char *raw = tri_alloc(npy->y.row_nbytes);
    if (raw == NULL)
        return TRI_ENOMEM;
    tri_stream x = {0}, y = {0};
    tri_status status = open_rows(&x, &npy->x);
    if (status == TRI_OK)
        status = open_rows(&y, &npy->y);
    int64_t x_at = 0, y_at = 0;
    for (int64_t i = 0; i < count && status == TRI_OK; i++) {
        int64_t index = indices[i];
        status = tri_stream_pick(&x, npy->x.row_nbytes, &x_at, index,
                                 (unsigned char *)samples + (size_t)i * npy->x.row_nbytes);
        if (status == TRI_OK)
            status = tri_stream_pick(&y, npy->y.row_nbytes, &y_at, index, raw);
        if (status == TRI_OK)
            status = tri_target_store(&dataset->info, npy->y.source.origin, index, npy->y.head.dtype, raw,
                                      (unsigned char *)targets + (size_t)i * target_nbytes);
    }
    tri_stream_close(&x);
    tri_stream_close(&y);
    tri_free(raw);
    return status;
}

static void npy_close(tri_dataset *dataset)
{
    npy_dataset *npy = tri_container_of(dataset, npy_dataset, base);
    tri_source_fini(&npy->x.source);
    tri_source_fini(&npy->y.source);
    tri_free(npy);
}

static tri_status plan(npy_dataset *npy, const tri_data_config *config, int64_t found)
{
    TRI_TRY(check_file(&npy->x));
    TRI_TRY(check_file(&npy->y));
    tri_dataset_info *info = &npy->base.info;
    const npy_file *x = &npy->x, *y = &npy->y;
    if (x->head.shape.dim[0] != y->head.shape.dim[0])
        return tri_fail(TRI_EFORMAT, "%s has %" PRId64 " samples, but %s has %" PRId64, x->source.origin,
                        x->head.shape.dim[0], y->source.origin, y->head.shape.dim[0]);
    info->count = x->head.shape.dim[0];
    info->sample = row_shape(x->head.shape, false);
    info->dtype = x->head.dtype;
    info->target = row_shape(y->head.shape, true);
    tri_data_config with_kind = *config;
    if (config->classes == 0 && !tri_target_is_integer(y->head.dtype))
        with_kind.classes = -1;
    if (with_kind.classes == 0 && found == 0)
        TRI_TRY(count_classes(y, &found));
    return tri_target_plan(info, &with_kind, y->source.origin, y->head.dtype, found);
}

static tri_status parse(const tri_data_config *config, int64_t found, tri_source *x, tri_source *y, tri_dataset **out)
{
    npy_dataset *npy = tri_alloc_zero(1, sizeof(*npy));
    if (npy == NULL) {
        tri_source_fini(x);
        tri_source_fini(y);
        return TRI_ENOMEM;
    }
    npy->base.ops = &tri_dataset_npy;
    npy->x.source = *x;
    npy->y.source = *y;
    *x = *y = (tri_source){0};
    tri_status status = plan(npy, config, found);
    if (status != TRI_OK) {
        npy_close(&npy->base);
        return status;
    }
    *out = &npy->base;
    return TRI_OK;
}

tri_status tri_npy_parse(const tri_data_config *config, tri_source *x, tri_source *y, tri_dataset **out)
{
    return parse(config, 0, x, y, out);
}

static tri_status find_file(const tri_data_config *config, const char *name, char **path)
{
    char *start = tri_format("%s/", config->path);
    if (start == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_data_find((const char *const[]){start, NULL}, (const char *const[]){name, NULL}, path);
    tri_free(start);
    return status;
}

static bool is_archive(const tri_data_config *config)
{
    return tri_path_ends_in(config->path, ".npz");
}

/* An array of a .npz file. */
static tri_status open_array(const char *path, const char *name, tri_source *source)
{
    TRI_TRY(tri_source_open(source, path));
    tri_status status = tri_npz_narrow(source, name);
    if (status != TRI_OK)
        tri_source_fini(source);
    return status;
}

static tri_status open_source(const tri_data_config *config, const char *name, tri_source *source)
{
    char *path = NULL;
    if (is_archive(config))
        return open_array(config->path, name, source);
    tri_status status = find_file(config, name, &path);
    if (status == TRI_OK)
        status = tri_source_open(source, path);
    tri_free(path);
    return status;
}

static bool has_file(const tri_data_config *config, const char *name)
{
    tri_source source = {0};
    const bool has = open_source(config, name, &source) == TRI_OK;
    tri_source_fini(&source);
    return has;
}

static bool npy_can(const tri_data_config *config)
{
    if (is_archive(config))
        return tri_fs_exists(config->path);
    return has_file(config, "x_train.npy") || has_file(config, "x_test.npy") || has_file(config, "x.npy");
}

static tri_status find_classes(const tri_data_config *config, int64_t *found)
{
    npy_file y = {0};
    tri_status status = open_source(config, "y_train.npy", &y.source);
    if (status == TRI_ENOTFOUND)
        return TRI_OK;
    if (status == TRI_OK)
        status = check_file(&y);
    if (status == TRI_OK)
        status = count_classes(&y, found);
    tri_source_fini(&y.source);
    return status;
}

/* Files of a part: x_train.npy and y_train.npy, or x.npy and y.npy, which have all samples. */
static const char *const part_files[][2] = {[TRI_PART_TRAIN] = {"x_train.npy", "y_train.npy"},
                                            [TRI_PART_TEST] = {"x_test.npy", "y_test.npy"},
                                            [TRI_PART_VALIDATION] = {"x_val.npy", "y_val.npy"}};

static bool is_whole(const tri_data_config *config)
{
    return !has_file(config, "x_train.npy") && !has_file(config, "x_test.npy") && has_file(config, "x.npy");
}

static bool npy_has(const tri_data_config *config, tri_data_part part)
{
    return is_whole(config) ? part == TRI_PART_TRAIN
                            : part != TRI_PART_VALIDATION || has_file(config, part_files[part][0]);
}

static tri_status npy_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    const bool whole = is_whole(config);
    int64_t found = 0;
    if (part != TRI_PART_TRAIN && config->classes == 0)
        TRI_TRY(find_classes(config, &found));
    tri_source x = {0}, y = {0};
    TRI_TRY(open_source(config, whole ? "x.npy" : part_files[part][0], &x));
    tri_status status = open_source(config, whole ? "y.npy" : part_files[part][1], &y);
    if (status != TRI_OK) {
        tri_source_fini(&x);
        return status;
    }
    return parse(config, found, &x, &y, out);
}

static tri_status npy_classes(tri_dataset *dataset, int32_t *classes)
{
    const npy_file *y = &tri_container_of(dataset, npy_dataset, base)->y;
    tri_stream stream = {0};
    tri_status status = open_rows(&stream, y);
    for (int64_t i = 0, at = 0; i < y->head.shape.dim[0] && status == TRI_OK; i++) {
        unsigned char raw[8];
        status = tri_stream_pick(&stream, y->row_nbytes, &at, i, raw);
        const int64_t label = status == TRI_OK ? tri_target_integer(y->head.dtype, raw) : 0;
        classes[i] = label >= 0 && label < dataset->info.classes ? (int32_t)label : -1;
    }
    tri_stream_close(&stream);
    return status;
}

const tri_dataset_ops tri_dataset_npy = {
    .name = "npy",
    .does = "NumPy files: x_train.npy, y_train.npy, x_test.npy, y_test.npy, or x.npy and y.npy; or these in one .npz",
    .can = npy_can,
    .has = npy_has,
    .open = npy_open,
    .read = npy_read,
    .classes = npy_classes,
    .close = npy_close,
};
