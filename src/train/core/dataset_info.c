/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_info.c: what the samples of a run are, as YAML: shapes, types, classes with their names, and the figures they
 * are normalised with.
 */
#include <string.h>

#include <xxhash.h>

#include "base/fs.h"
#include "base/log.h"
#include "data/tables/table.h"
#include "train/core/dataset_info.h"
#include "train/core/job.h"

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

static bool names_equal(const tri_class_names *a, const tri_class_names *b)
{
    bool equal = a->count == b->count;
    for (int64_t i = 0; equal && i < a->count; i++)
        equal = strcmp(a->texts[i], b->texts[i]) == 0;
    return equal;
}

/* Whether a text that was written is read as these names. */
static bool reads_as(const tri_string *text, const tri_class_names *names)
{
    tri_arena arena = {0};
    tri_class_names found;
    tri_yaml *root;
    bool does = tri_yaml_parse(&arena, text->text, text->nbytes, "dataset.yaml", &root) == TRI_OK &&
                names_read(root, &arena, &found) == TRI_OK && names_equal(&found, names);
    tri_arena_fini(&arena);
    return does;
}

static tri_status names_write(const tri_class_names *names, tri_arena *arena, tri_string *out)
{
    tri_yaml *nodes = tri_arena_alloc(arena, (size_t)names->count, sizeof(*nodes));
    tri_yaml list = {.kind = TRI_YAML_LIST, .child = nodes};
    for (int64_t i = 0; nodes && i < names->count; i++)
        nodes[i] = (tri_yaml){
            .kind = TRI_YAML_SCALAR, .text = names->texts[i], .next = i + 1 < names->count ? &nodes[i + 1] : NULL};
    TRI_TRY(nodes ? tri_string_append(out, "class_names: ") : TRI_ENOMEM);
    TRI_TRY(tri_yaml_print_flow(&list, out));
    return tri_string_append(out, "\n");
}

/* Texts of any bytes may be classes, and any number of them: not all of that is YAML. */
static tri_status names_print(const tri_class_names *names, tri_string *out)
{
    tri_arena arena = {0};
    tri_string text = {0};
    tri_status status = names_write(names, &arena, &text);
    if (status == TRI_OK && reads_as(&text, names))
        status = tri_string_append_bytes(out, text.text, text.nbytes);
    else if (status == TRI_OK)
        tri_log(TRI_LOG_WARN, "what the classes are called is not kept (want UTF-8, and less than 100,000): data that "
                              "are evaluated later must have the same ones");
    tri_string_fini(&text);
    tri_arena_fini(&arena);
    return status;
}

/* 0: there are none. */
static uint64_t class_names_hash(const tri_class_names *names)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < names->count; i++)
        hash = XXH3_64bits_withSeed(names->texts[i], strlen(names->texts[i]), hash);
    return hash;
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
    if (info->decoders)
        TRI_TRY(tri_string_appendf(out, "decoders: %s\n", info->decoders));
    if (info->table)
        TRI_TRY(tri_table_print(info->table, out));
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

static tri_status table_read(const tri_yaml *root, tri_dataset_info *info)
{
    const tri_yaml *node = tri_yaml_find(root, "table");
    tri_table *table = NULL;
    if (!node)
        return TRI_OK;
    TRI_TRY(tri_table_parse(node, &table));
    info->table = table;
    if (tri_shape_count(info->sample) == table->width && tri_shape_count(info->target) == table->targets &&
        info->classes >= table->classes)
        return TRI_OK;
    tri_status status =
        tri_fail(TRI_EFORMAT, "table: its columns make %lld numbers and %lld targets, not those of sample and target",
                 (long long)table->width, (long long)table->targets);
    tri_table_release(table);
    info->table = NULL;
    return status;
}

uint64_t tri_job_classes_hash(const tri_job *job)
{
    return class_names_hash(&job->data.names) ^ (job->data.table ? tri_table_hash(job->data.table) : 0);
}

void tri_job_table_set(tri_job *job, const struct tri_table *table)
{
    job->data.table = (tri_table *)(uintptr_t)table;
    job->config.data.table = job->data.table;
}

void tri_job_info_take(tri_job *job, const tri_dataset_info *info)
{
    if (info->table)
        tri_job_table_set(job, info->table);
    else if (info->dtype == TRI_F32 && !(info->deviation[0] > 0))
        job->config.data.normalize = TRI_NORMALIZE_NONE;
}

tri_status tri_dataset_info_parse(const char *text, size_t nbytes, const char *path, tri_dataset_info *info,
                                  tri_arena *names_arena, tri_class_names *names)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    tri_status status = tri_yaml_parse(&arena, text, nbytes, path, &root);
    if (status == TRI_OK)
        status = info_read(root, info);
    if (status == TRI_OK)
        status = names_read(root, names_arena, names);
    if (status == TRI_OK)
        status = table_read(root, info);
    tri_arena_fini(&arena);
    if (status == TRI_ECONFIG) /* nobody's configuration: the file of a run */
        status = tri_fail_copy(TRI_EFORMAT, tri_last_error());
    TRI_TRY_IN(status, "%s", path);
    return TRI_OK;
}

tri_status tri_dataset_info_load(const char *path, tri_dataset_info *info, tri_arena *names_arena,
                                 tri_class_names *names)
{
    char *text;
    size_t nbytes;
    TRI_TRY(tri_fs_read(path, TRI_DATASET_INFO_LIMIT, &text, &nbytes));
    tri_status status = tri_dataset_info_parse(text, nbytes, path, info, names_arena, names);
    tri_free(text);
    return status;
}
