/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.c: what the readers share: targets as classes or real numbers, paths of files, lengths that cannot overflow.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/formats.h"
#include "tensor/reduce.h"

bool tri_target_is_integer(tri_dtype dtype)
{
    return dtype == TRI_U8 || dtype == TRI_I8 || dtype == TRI_I32 || dtype == TRI_I64;
}

int64_t tri_target_integer(tri_dtype dtype, const void *raw)
{
    int32_t word;
    int64_t wide;
    switch (dtype) {
    case TRI_U8:
        return *(const uint8_t *)raw;
    case TRI_I8:
        return *(const int8_t *)raw;
    case TRI_I32:
        memcpy(&word, raw, sizeof(word));
        return word;
    default:
        memcpy(&wide, raw, sizeof(wide));
        return wide;
    }
}

tri_status tri_target_plan(tri_dataset_info *info, const tri_data_config *config, const char *origin, tri_dtype dtype,
                           int64_t found)
{
    if (config->classes < 0) {
        info->target_dtype = TRI_F32;
        info->classes = 0;
        return TRI_OK;
    }
    if (!tri_target_is_integer(dtype))
        return tri_fail(TRI_ECONFIG,
                        "%s: targets are %s, which are no classes; for real targets set data.classes to -1", origin,
                        tri_dtype_name(dtype));
    info->target_dtype = TRI_I32;
    info->classes = config->classes > 0 ? config->classes : found;
    if (info->target.ndim != 0)
        return tri_fail(TRI_EFORMAT, "%s: want one class per sample, got several integers per sample", origin);
    if (info->classes < 1 || info->classes > TRI_CLASSES_LIMIT)
        return tri_fail(TRI_EFORMAT, "%s: want labels from 0 to %" PRId64 ", the greatest is %" PRId64, origin,
                        TRI_CLASSES_LIMIT - 1, info->classes - 1);
    return TRI_OK;
}

tri_status tri_target_store(const tri_dataset_info *info, const char *origin, int64_t index, tri_dtype dtype,
                            const void *raw, void *out)
{
    if (info->target_dtype == TRI_I32) {
        int64_t label = tri_target_integer(dtype, raw);
        if (label < 0 || label >= info->classes)
            return tri_fail(TRI_EFORMAT,
                            "%s: label %" PRId64 " of sample %" PRId64 " is none of the %" PRId64 " classes", origin,
                            label, index, info->classes);
        int32_t stored = (int32_t)label;
        memcpy(out, &stored, sizeof(stored));
        return TRI_OK;
    }
    int64_t count = tri_shape_count(info->target);
    TRI_TRY(tri_convert(out, TRI_F32, raw, dtype, count));
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(((const float *)out)[i]))
            return tri_fail(TRI_ENUMERIC, "%s: the target of sample %" PRId64 " is not a finite number", origin, index);
    return TRI_OK;
}

tri_status tri_data_nbytes(const char *origin, tri_shape shape, size_t each, uint64_t *nbytes)
{
    uint64_t product = each;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] < 1)
            return tri_fail(TRI_EFORMAT, "%s: dimension %d is %" PRId64 ": it holds no samples", origin, i,
                            shape.dim[i]);
    for (int i = 0; i < shape.ndim; i++)
        if (__builtin_mul_overflow(product, (uint64_t)shape.dim[i], &product) || product > UINT64_C(1) << 62)
            return tri_fail(TRI_EFORMAT, "%s: the dimensions in its head make more than 2^62 bytes", origin);
    *nbytes = product;
    return TRI_OK;
}

/* A file of a folder whose name has other capital letters; NULL: none. */
static tri_status find_in_capitals(const char *path, char **out)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    char *folder = slash != NULL ? tri_strndup(path, (size_t)(slash - path + 1)) : tri_strdup("./"), **names = NULL;
    size_t count = 0;
    *out = NULL;
    tri_status status = folder != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && tri_fs_is_folder(folder) && tri_fs_list(folder, &names, &count) != TRI_OK)
        count = 0; /* as if there were nothing */
    for (size_t i = 0; i < count && status == TRI_OK && *out == NULL; i++)
        if (strcasecmp(names[i], name) == 0) {
            *out = tri_format("%s%s", folder, names[i]);
            status = *out != NULL ? TRI_OK : TRI_ENOMEM;
        }
    if (names != NULL)
        tri_fs_list_free(names, count);
    tri_free(folder);
    return status;
}

static tri_status find_one(const char *start, const char *name, char **path, bool *found)
{
    static const char *const endings[] = {"", ".gz"};
    *found = false;
    for (size_t i = 0; i < TRI_COUNT_OF(endings); i++) {
        *path = tri_format("%s%s%s", start, name, endings[i]);
        if (*path == NULL)
            return TRI_ENOMEM;
        *found = tri_fs_exists(*path) && !tri_fs_is_folder(*path);
        if (*found)
            return TRI_OK;
        char *other = NULL;
        TRI_TRY(find_in_capitals(*path, &other));
        tri_free(*path);
        *path = other;
        *found = other != NULL && !tri_fs_is_folder(other);
        if (*found)
            return TRI_OK;
        tri_free(*path);
        *path = NULL;
    }
    return TRI_OK;
}

tri_status tri_data_find(const char *const *starts, const char *const *names, char **path)
{
    *path = NULL;
    for (size_t i = 0; starts[i] != NULL; i++)
        for (size_t j = 0; names[j] != NULL; j++) {
            bool found = false;
            TRI_TRY(find_one(starts[i], names[j], path, &found));
            if (found)
                return TRI_OK;
        }
    tri_string tried = {0};
    tri_status status = TRI_OK;
    for (size_t i = 0; starts[i] != NULL && status == TRI_OK; i++)
        for (size_t j = 0; names[j] != NULL && status == TRI_OK; j++)
            status = tri_string_appendf(&tried, "%s%s%s", tried.nbytes > 0 ? ", " : "", starts[i], names[j]);
    if (status == TRI_OK)
        status = tri_fail(TRI_ENOTFOUND, "no such file: looked for %s (plain or .gz)", tri_string_text(&tried));
    tri_string_fini(&tried);
    return status;
}
