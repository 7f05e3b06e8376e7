/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_set.c: opens the file or the files, and holds index and files against each other.
 */
#include "checkpoint/tensor_set.h"

#include "base/fs.h"
#include "checkpoint/manifest.h"

#define INDEX_LIMIT_NBYTES ((uint64_t)64 << 20)

struct tri_tensor_set {
    char *origin;
    tri_safetensors **files;
    int file_count;
    const tri_stored_tensor **tensors; /* of all files */
    int count;
    tri_map names; /* -> index in tensors */
};

void tri_tensor_set_close(tri_tensor_set *set)
{
    if (set == NULL)
        return;
    for (int i = 0; set->files != NULL && i < set->file_count; i++)
        tri_safetensors_close(set->files[i]);
    tri_map_fini(&set->names);
    tri_free(set->files);
    tri_free(set->tensors);
    tri_free(set->origin);
    tri_free(set);
}

/* All tensors of all files in one list. */
static tri_status list_tensors(tri_tensor_set *set)
{
    size_t count = 0;
    for (int f = 0; f < set->file_count; f++)
        count += (size_t)tri_safetensors_count(set->files[f]);
    if (count > INT32_MAX)
        return tri_fail(TRI_EFORMAT, "%s: %zu tensors are too many", set->origin, count);
    set->tensors = tri_alloc_zero(count + 1, sizeof(*set->tensors));
    if (set->tensors == NULL)
        return TRI_ENOMEM;
    for (int f = 0; f < set->file_count; f++)
        for (int i = 0; i < tri_safetensors_count(set->files[f]); i++) {
            const tri_stored_tensor *tensor = tri_safetensors_at(set->files[f], i);
            TRI_TRY(tri_map_set(&set->names, tensor->name, set->count));
            set->tensors[set->count++] = tensor;
        }
    return TRI_OK;
}

static tri_status open_single(const char *file, tri_tensor_set *set)
{
    set->origin = tri_strdup(file);
    set->files = tri_alloc_zero(1, sizeof(*set->files));
    if (set->origin == NULL || set->files == NULL)
        return TRI_ENOMEM;
    set->file_count = 1;
    TRI_TRY(tri_safetensors_open(file, &set->files[0]));
    return list_tensors(set);
}

/* No file holds what the index gives to another, or does not know. */
static tri_status check_file(const tri_tensor_set *set, const tri_tensor_index *index, int number)
{
    const tri_safetensors *file = set->files[number];
    for (int i = 0; i < tri_safetensors_count(file); i++) {
        const char *name = tri_safetensors_at(file, i)->name;
        int64_t wanted;
        if (!tri_map_find(&index->tensors, name, &wanted))
            return tri_fail(TRI_EFORMAT, "%s: tensor '%.100s' of %s is not in the index", set->origin, name,
                            index->files[number]);
        if (wanted != number)
            return tri_fail(TRI_EFORMAT, "%s: tensor '%.100s' is in %s, the index says %s", set->origin, name,
                            index->files[number], index->files[wanted]);
    }
    return TRI_OK;
}

static tri_status open_files(const char *folder, const tri_tensor_index *index, tri_tensor_set *set)
{
    size_t found = 0;
    for (int f = 0; f < index->file_count; f++) {
        char *path = tri_format("%s/%s", folder, index->files[f]);
        if (path == NULL)
            return TRI_ENOMEM;
        tri_status status = tri_safetensors_open(path, &set->files[f]);
        tri_free(path);
        TRI_TRY_IN(status, "%s: file %d of %d", set->origin, f + 1, index->file_count);
        set->file_count = f + 1;
        TRI_TRY(check_file(set, index, f));
        found += (size_t)tri_safetensors_count(set->files[f]);
    }
    TRI_TRY(list_tensors(set));
    /* Each tensor of a file is the index's: fewer than it names means that some are nowhere. */
    if (found < index->tensors.count)
        return tri_fail(TRI_EFORMAT,
                        "%s: it names %zu tensors, its files hold %zu: a file is another than the index is of",
                        set->origin, index->tensors.count, found);
    return TRI_OK;
}

static tri_status open_indexed(const char *folder, const char *path, tri_tensor_set *set)
{
    char *text = NULL;
    size_t nbytes = 0;
    tri_tensor_index index = {0};
    set->origin = tri_strdup(path);
    if (set->origin == NULL)
        return TRI_ENOMEM;
    TRI_TRY(tri_fs_read(path, INDEX_LIMIT_NBYTES, &text, &nbytes));
    tri_status status = tri_tensor_index_parse(text, nbytes, path, &index);
    if (status == TRI_OK) {
        set->files = tri_alloc_zero((size_t)index.file_count, sizeof(*set->files));
        status = set->files == NULL ? TRI_ENOMEM : open_files(folder, &index, set);
    }
    tri_tensor_index_fini(&index);
    tri_free(text);
    return status;
}

static tri_status open_path(const char *path, tri_tensor_set *set)
{
    if (!tri_fs_is_folder(path))
        return open_single(path, set);
    char *single = tri_format("%s/%s", path, TRI_MODEL_FILE), *index = tri_format("%s/%s", path, TRI_INDEX_FILE);
    tri_status status = TRI_ENOMEM;
    if (single != NULL && index != NULL)
        status = tri_fs_exists(single)  ? open_single(single, set)
                 : tri_fs_exists(index) ? open_indexed(path, index, set)
                                        : tri_fail(TRI_ENOTFOUND, "%s: no weights: want %s or %s in it", path,
                                                   TRI_MODEL_FILE, TRI_INDEX_FILE);
    tri_free(single);
    tri_free(index);
    return status;
}

tri_status tri_tensor_set_open(const char *path, tri_tensor_set **out)
{
    *out = NULL;
    tri_tensor_set *set = tri_alloc_zero(1, sizeof(*set));
    if (set == NULL)
        return TRI_ENOMEM;
    tri_status status = open_path(path, set);
    if (status != TRI_OK) {
        tri_tensor_set_close(set);
        return status;
    }
    *out = set;
    return TRI_OK;
}

int tri_tensor_set_count(const tri_tensor_set *set)
{
    return set->count;
}

int tri_tensor_set_file_count(const tri_tensor_set *set)
{
    return set->file_count;
}

const tri_stored_tensor *tri_tensor_set_at(const tri_tensor_set *set, int index)
{
    TRI_ASSERT(index >= 0 && index < set->count);
    return set->tensors[index];
}

const tri_stored_tensor *tri_tensor_set_find(const tri_tensor_set *set, const char *name)
{
    int64_t index;
    return tri_map_find(&set->names, name, &index) ? set->tensors[index] : NULL;
}

const char *tri_tensor_set_metadata(const tri_tensor_set *set, const char *key)
{
    return tri_safetensors_metadata(set->files[0], key);
}

const char *tri_tensor_set_origin(const tri_tensor_set *set)
{
    return set->origin;
}
