/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_info.c: what the samples of a run are, as YAML: shapes, types, classes with their names, and the figures they
 * are normalised with.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "train/job.h"

#define FILE_NAME         "dataset.yaml"
#define FILE_LIMIT_NBYTES ((size_t)64 << 20)

#define DIM_LIMIT    (INT64_C(1) << 40)
#define MAX_CHANNELS 16

static tri_status dims_print(const char *key, tri_shape shape, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%s: [", key));
    for (int d = 0; d < shape.ndim; d++)
        TRI_TRY(tri_string_appendf(out, "%s%lld", d > 0 ? ", " : "", (long long)shape.dim[d]));
    return tri_string_append(out, "]\n");
}

/* Up to the last channel whose deviation is known. */
static tri_status figures_print(const char *key, const float *figures, const float *deviation, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%s: [", key));
    for (int c = 0; c < MAX_CHANNELS && deviation[c] > 0; c++) {
        TRI_TRY(tri_string_append(out, c > 0 ? ", " : ""));
        TRI_TRY(tri_string_append_real(out, (double)figures[c]));
    }
    return tri_string_append(out, "]\n");
}

static bool is_utf8(const char *text)
{
    for (size_t nbytes; *text; text += nbytes)
        if ((nbytes = tri_utf8_nbytes(text)) == 0)
            return false;
    return true;
}

/* As JSON writes them, which YAML reads. */
static tri_status names_print(const tri_class_names *names, tri_string *out)
{
    for (int64_t i = 0; i < names->count; i++)
        if (!is_utf8(names->texts[i])) {
            tri_log(
                TRI_LOG_WARN,
                "class %lld is no UTF-8: what the classes are called is not kept, and data that are evaluated later "
                "must have the same ones",
                (long long)i);
            return TRI_OK;
        }
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json list = tri_json_array_in(&json, "class_names");
    for (int64_t i = 0; i < names->count; i++)
        tri_json_text(&list, NULL, names->texts[i]);
    tri_json_end(&list);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK) /* without the object's braces, and a blank behind the key */
        status = tri_string_appendf(out, "class_names: %.*s\n", (int)(text.nbytes - strlen("{\"class_names\":}")),
                                    text.text + strlen("{\"class_names\":"));
    tri_string_fini(&text);
    return status;
}

static tri_status info_print(const tri_dataset_info *info, const tri_class_names *names, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "# What the samples of this run are; written by trireme train.\n"));
    TRI_TRY(dims_print("sample", info->sample, out));
    TRI_TRY(tri_string_appendf(out, "dtype: %s\n", tri_dtype_name(info->dtype)));
    TRI_TRY(dims_print("target", info->target, out));
    TRI_TRY(tri_string_appendf(out, "target_dtype: %s\nclasses: %lld\n", tri_dtype_name(info->target_dtype),
                               (long long)info->classes));
    TRI_TRY(figures_print("mean", info->mean, info->deviation, out));
    TRI_TRY(figures_print("deviation", info->deviation, info->deviation, out));
    return names->texts ? names_print(names, out) : TRI_OK;
}

tri_status tri_dataset_info_save(const tri_dataset_info *info, const tri_class_names *names, const char *path)
{
    tri_string text = {0};
    tri_status status = info_print(info, names, &text);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return status;
}

/* --- reading --- */

static tri_status list_find(const tri_yaml *root, const char *key, int most, const tri_yaml **out)
{
    *out = tri_yaml_find(root, key);
    if (!*out || (*out)->kind != TRI_YAML_LIST || tri_yaml_count(*out) > most)
        return tri_fail(TRI_EFORMAT, "%s: want a list of at most %d numbers", key, most);
    return TRI_OK;
}

static tri_status dims_read(const tri_yaml *root, const char *key, tri_shape *shape)
{
    const tri_yaml *list;
    int64_t dims[TRI_MAX_DIMS], all = 1;
    int ndim = 0;
    TRI_TRY(list_find(root, key, TRI_MAX_DIMS - 1, &list));
    for (const tri_yaml *node = list->child; node; node = node->next) {
        TRI_TRY(tri_yaml_int(node, key, 1, DIM_LIMIT, &dims[ndim]));
        if (__builtin_mul_overflow(all, dims[ndim++], &all) || all > DIM_LIMIT)
            return tri_fail(TRI_EFORMAT, "%s: want at most %lld elements", key, (long long)DIM_LIMIT);
    }
    *shape = tri_shape_make(ndim, dims);
    return TRI_OK;
}

static tri_status dtype_read(const tri_yaml *root, const char *key, tri_dtype *dtype)
{
    const tri_yaml *node = tri_yaml_find(root, key);
    for (int d = 0; node && node->text && tri_dtype_name((tri_dtype)d) && d < TRI_DTYPE_COUNT; d++)
        if (strcmp(tri_dtype_name((tri_dtype)d), node->text) == 0) {
            *dtype = (tri_dtype)d;
            return TRI_OK;
        }
    return tri_fail(TRI_EFORMAT, "%s: want a type of elements", key);
}

static tri_status figures_read(const tri_yaml *root, const char *key, double low, float *figures)
{
    const tri_yaml *list;
    int count = 0;
    TRI_TRY(list_find(root, key, MAX_CHANNELS, &list));
    for (const tri_yaml *node = list->child; node; node = node->next) {
        double value;
        TRI_TRY(tri_yaml_real(node, key, low, 1e30, &value));
        figures[count++] = (float)value;
    }
    return TRI_OK;
}

static tri_status info_read(const tri_yaml *root, tri_dataset_info *info)
{
    *info = (tri_dataset_info){0};
    TRI_TRY(dims_read(root, "sample", &info->sample));
    TRI_TRY(dtype_read(root, "dtype", &info->dtype));
    TRI_TRY(dims_read(root, "target", &info->target));
    TRI_TRY(dtype_read(root, "target_dtype", &info->target_dtype));
    TRI_TRY(tri_yaml_int(tri_yaml_find(root, "classes"), "classes", 0, INT32_MAX, &info->classes));
    TRI_TRY(figures_read(root, "mean", -1e30, info->mean));
    return figures_read(root, "deviation", 0, info->deviation);
}

/* An older file has none. */
static tri_status names_read(const tri_yaml *root, tri_arena *arena, tri_class_names *names)
{
    const tri_yaml *list = tri_yaml_find(root, "class_names");
    *names = (tri_class_names){0};
    if (!list)
        return TRI_OK;
    if (list->kind != TRI_YAML_LIST || !list->child)
        return tri_fail(TRI_EFORMAT, "class_names: want a list of texts");
    const char **texts = tri_arena_alloc(arena, (size_t)tri_yaml_count(list), sizeof(*texts));
    for (const tri_yaml *node = list->child; node && texts; node = node->next) {
        if (node->kind != TRI_YAML_SCALAR)
            return tri_fail(TRI_EFORMAT, "class_names: want a list of texts");
        if (!(texts[names->count++] = tri_arena_strdup(arena, node->text)))
            return TRI_ENOMEM;
    }
    names->texts = texts;
    return texts ? TRI_OK : TRI_ENOMEM;
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

tri_status tri_dataset_info_load(const char *path, tri_dataset_info *info, tri_arena *names_arena,
                                 tri_class_names *names)
{
    char *text;
    size_t nbytes;
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    TRI_TRY(tri_fs_read(path, FILE_LIMIT_NBYTES, &text, &nbytes));
    tri_status status = tri_yaml_parse(&arena, text, nbytes, path, &root);
    if (status == TRI_OK)
        status = info_read(root, info);
    if (status == TRI_OK)
        status = names_read(root, names_arena, names);
    tri_arena_fini(&arena);
    tri_free(text);
    if (status == TRI_ECONFIG) /* nobody's configuration: the file of a run */
        status = tri_fail_copy(TRI_EFORMAT, tri_last_error());
    TRI_TRY_IN(status, "%s", path);
    return TRI_OK;
}

bool tri_dataset_info_find(const char *path, char out[1200])
{
    size_t nbytes = strlen(path);
    while (nbytes > 1 && path[nbytes - 1] == '/')
        nbytes--;
    for (int up = 0; up < 3 && nbytes < 1000; up++) { /* RUN, RUN/checkpoints, RUN/checkpoints/step-N */
        snprintf(out, 1200, "%.*s%s/" FILE_NAME, (int)nbytes, path, (const char *const[]){"", "/..", "/../.."}[up]);
        if (tri_fs_exists(out))
            return true;
    }
    out[0] = 0;
    return false;
}
