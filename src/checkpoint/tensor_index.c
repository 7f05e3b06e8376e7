/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_index.c: the index of a model in several files: {"weight_map": {tensor: file, ...}}; other keys are for
 * others.
 *
 * A file's name must be a plain one: an index from elsewhere does not lead out of its folder.
 */
#include <jansson.h>
#include <string.h>

#include "checkpoint/tensor_set.h"

static bool is_plain_name(const char *name)
{
    return name[0] != 0 && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strlen(name) <= 255;
}

/* The number of a file, which is new or was named before. */
static tri_status file_number(tri_tensor_index *index, tri_map *files, const char *name, int64_t *number)
{
    if (tri_map_find(files, name, number))
        return TRI_OK;
    *number = index->file_count;
    index->files[index->file_count] = tri_arena_strdup(&index->arena, name);
    if (index->files[index->file_count++] == NULL)
        return TRI_ENOMEM;
    return tri_map_set(files, name, *number);
}

static tri_status read_map(json_t *map, const char *origin, tri_map *files, tri_tensor_index *index)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        int64_t number;
        const char *file = json_string_value(value);
        if (file == NULL || !is_plain_name(file))
            return tri_fail(TRI_EFORMAT,
                            "%s: tensor '%.100s': want the name of a file in the same folder, got %s%.100s%s", origin,
                            tensor, file != NULL ? "'" : "", file != NULL ? file : "no text", file != NULL ? "'" : "");
        TRI_TRY(file_number(index, files, file, &number));
        TRI_TRY(tri_map_set(&index->tensors, tensor, number));
    }
    return TRI_OK;
}

static tri_status read_object(json_t *object, const char *origin, tri_tensor_index *index)
{
    json_t *map = json_object_get(object, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return tri_fail(TRI_EFORMAT, "%s: want weight_map, an object of tensors and files", origin);
    index->files = tri_arena_alloc(&index->arena, json_object_size(map), sizeof(char *));
    if (index->files == NULL)
        return TRI_ENOMEM;
    tri_map files = {0};
    tri_status status = read_map(map, origin, &files, index);
    tri_map_fini(&files);
    return status;
}

tri_status tri_tensor_index_parse(const char *text, size_t nbytes, const char *origin, tri_tensor_index *index)
{
    json_error_t error;
    *index = (tri_tensor_index){0};
    json_t *object = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL)
        return tri_fail(TRI_EFORMAT, "%s:%d: %s", origin, error.line, error.text);
    tri_status status = read_object(object, origin, index);
    json_decref(object);
    return status;
}

void tri_tensor_index_fini(tri_tensor_index *index)
{
    tri_map_fini(&index->tensors);
    tri_arena_fini(&index->arena);
    *index = (tri_tensor_index){0};
}
