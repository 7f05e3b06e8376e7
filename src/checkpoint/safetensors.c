/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.c: reading: 8 bytes of length, a JSON header, the bytes. Nothing in the header is believed unchecked.
 *
 * https://github.com/huggingface/safetensors#format; stricter than that in one point: unknown keys are refused.
 */
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fs.h"

struct tri_safetensors {
    tri_arena arena; /* names and texts */
    tri_fs_map map;  /* bytes NULL: borrowed */
    const char *origin;
    const unsigned char *data; /* what offsets count from */
    uint64_t data_nbytes;
    tri_stored_tensor *tensors; /* by offset */
    int count;
    tri_map names;         /* -> index in tensors */
    const char **metadata; /* pairs */
    size_t metadata_count;
};

static tri_status wrong(const tri_safetensors *file, const char *name, const char *what)
{
    return tri_fail(TRI_EFORMAT, "%s: tensor '%.100s': %s", file->origin, name, what);
}

static tri_status read_dtype(const tri_safetensors *file, const json_t *value, tri_stored_tensor *tensor)
{
    static const char *const names[] = {
#define STORED_NAME(id, name, nbytes, stored) [id] = stored,
        TRI_DTYPE_LIST(STORED_NAME)
#undef STORED_NAME
    };
    const char *text = json_string_value(value);
    if (text == NULL)
        return wrong(file, tensor->name, "want dtype as a text");
    for (int i = 0; i < TRI_DTYPE_COUNT; i++)
        if (strcmp(text, names[i]) == 0) {
            tensor->dtype = (tri_dtype)i;
            return TRI_OK;
        }
    if (strcmp(text, "BOOL") == 0) { /* masks of Hugging Face's models: a byte each */
        tensor->dtype = TRI_U8;
        return TRI_OK;
    }
    return tri_fail(TRI_EUNSUPPORTED, "%s: tensor '%.100s' has elements of type '%.20s', which is not supported",
                    file->origin, tensor->name, text);
}

static tri_status read_shape(const tri_safetensors *file, const json_t *value, tri_stored_tensor *tensor)
{
    if (!json_is_array(value))
        return wrong(file, tensor->name, "want shape as a list of numbers");
    size_t ndim = json_array_size(value);
    if (ndim > TRI_MAX_DIMS)
        return tri_fail(TRI_EUNSUPPORTED, "%s: tensor '%.100s' has %zu dimensions, want at most %d", file->origin,
                        tensor->name, ndim, TRI_MAX_DIMS);
    uint64_t nbytes = tri_dtype_nbytes(tensor->dtype);
    bool empty = false, overflow = false;
    for (size_t i = 0; i < ndim; i++) {
        const json_t *dim = json_array_get(value, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return wrong(file, tensor->name, "want shape as a list of numbers >= 0");
        tensor->shape.dim[i] = json_integer_value(dim);
        empty |= tensor->shape.dim[i] == 0;
        overflow |= __builtin_mul_overflow(nbytes, (uint64_t)tensor->shape.dim[i], &nbytes);
    }
    if (overflow || nbytes > INT64_MAX)
        return wrong(file, tensor->name, "its shape is larger than a machine can hold");
    tensor->shape.ndim = (int)ndim;
    tensor->nbytes = empty ? 0 : nbytes;
    return TRI_OK;
}

static tri_status read_tensor(const tri_safetensors *file, const json_t *entry, tri_stored_tensor *tensor)
{
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (dtype == NULL || shape == NULL || offsets == NULL || json_object_size(entry) != 3)
        return wrong(file, tensor->name, "want an object of dtype, shape and data_offsets");
    TRI_TRY(read_dtype(file, dtype, tensor));
    TRI_TRY(read_shape(file, shape, tensor));
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return wrong(file, tensor->name, "want data_offsets as two numbers");
    int64_t begin = json_integer_value(from), end = json_integer_value(to);
    if (begin < 0 || end < begin || (uint64_t)end > file->data_nbytes)
        return tri_fail(TRI_EFORMAT,
                        "%s: tensor '%.100s': data_offsets %" PRId64 " to %" PRId64 " are not within the %" PRIu64
                        " bytes of data",
                        file->origin, tensor->name, begin, end, file->data_nbytes);
    if ((uint64_t)(end - begin) != tensor->nbytes)
        return tri_fail(TRI_EFORMAT,
                        "%s: tensor '%.100s': its dtype and shape want %zu bytes, data_offsets give %" PRId64,
                        file->origin, tensor->name, tensor->nbytes, end - begin);
    tensor->bytes = file->data + begin;
    return TRI_OK;
}

static tri_status read_metadata(tri_safetensors *file, json_t *entry)
{
    if (!json_is_object(entry))
        return tri_fail(TRI_EFORMAT, "%s: want __metadata__ as an object of texts", file->origin);
    file->metadata = tri_arena_alloc(&file->arena, 2 * json_object_size(entry) + 1, sizeof(char *));
    if (file->metadata == NULL)
        return TRI_ENOMEM;
    const char *key;
    json_t *value;
    json_object_foreach(entry, key, value)
    {
        if (!json_is_string(value))
            return tri_fail(TRI_EFORMAT, "%s: want a text for '%.100s' of __metadata__", file->origin, key);
        const char *key_copy = tri_arena_strdup(&file->arena, key);
        const char *value_copy = tri_arena_strdup(&file->arena, json_string_value(value));
        if (key_copy == NULL || value_copy == NULL)
            return TRI_ENOMEM;
        file->metadata[file->metadata_count++] = key_copy;
        file->metadata[file->metadata_count++] = value_copy;
    }
    return TRI_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const tri_stored_tensor *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? -1 : 1;
    if (left->nbytes != right->nbytes)
        return left->nbytes < right->nbytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

static tri_status read_entries(tri_safetensors *file, json_t *header)
{
    size_t count = json_object_size(header);
    if (count > INT32_MAX)
        return tri_fail(TRI_EFORMAT, "%s: %zu tensors are too many", file->origin, count);
    file->tensors = tri_arena_alloc(&file->arena, count + 1, sizeof(*file->tensors));
    if (file->tensors == NULL)
        return TRI_ENOMEM;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TRI_TRY(read_metadata(file, entry));
            continue;
        }
        tri_stored_tensor *tensor = &file->tensors[file->count++];
        tensor->name = tri_arena_strdup(&file->arena, name);
        if (tensor->name == NULL)
            return TRI_ENOMEM;
        TRI_TRY(read_tensor(file, entry, tensor));
    }
    /* One tensor after the other, from the first byte to the last. */
    qsort(file->tensors, (size_t)file->count, sizeof(*file->tensors), compare_offsets);
    const unsigned char *at = file->data;
    for (int i = 0; i < file->count; i++) {
        const tri_stored_tensor *tensor = &file->tensors[i];
        if (tensor->bytes != at)
            return wrong(file, tensor->name,
                         (const unsigned char *)tensor->bytes < at ? "overlaps the one before it"
                                                                   : "there is a hole before its data");
        at += tensor->nbytes;
        TRI_TRY(tri_map_set(&file->names, tensor->name, i));
    }
    uint64_t used = (uint64_t)(at - file->data);
    if (used != file->data_nbytes)
        return tri_fail(TRI_EFORMAT, "%s: the tensors take %" PRIu64 " bytes of data, the file holds %" PRIu64,
                        file->origin, used, file->data_nbytes);
    return TRI_OK;
}

/* Files of weights that are often taken for safetensors, by their first bytes. */
static const struct {
    const char *start, *kind, *advice;
    size_t nbytes;
} other_kinds[] = {
    {"PK\3\4", "a zip archive, as torch.save writes it",
     "in Python: from safetensors.torch import save_file; save_file(torch.load(FILE, weights_only=True), NEW)", 4},
    {"\x80\2", "a pickle, as older versions of torch.save write it",
     "in Python: from safetensors.torch import save_file; save_file(torch.load(FILE, weights_only=True), NEW)", 2},
    {"\x89HDF", "HDF5, as Keras writes it", "convert it to safetensors, or to NumPy files", 4},
    {"GGUF", "GGUF", "take the model's safetensors", 4},
    {"\x93NUMPY", "a NumPy array", "write the arrays by safetensors.numpy.save_file", 6},
};

static tri_status check_kind(const tri_safetensors *file, const unsigned char *bytes, size_t nbytes)
{
    for (size_t i = 0; i < TRI_COUNT_OF(other_kinds); i++)
        if (nbytes >= other_kinds[i].nbytes && memcmp(bytes, other_kinds[i].start, other_kinds[i].nbytes) == 0)
            return tri_fail(TRI_EFORMAT, "%s: want a safetensors file, got %s (%s)", file->origin, other_kinds[i].kind,
                            other_kinds[i].advice);
    return TRI_OK;
}

static tri_status parse(tri_safetensors *file, const unsigned char *bytes, size_t nbytes)
{
    uint64_t length = 0;
    if (nbytes < 8)
        return tri_fail(TRI_EFORMAT, "%s: no safetensors file: want at least 8 bytes, got %zu", file->origin, nbytes);
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    if (nbytes < 9 || bytes[8] != '{') /* a header of 640 bytes begins as a pickle does */
        TRI_TRY(check_kind(file, bytes, nbytes));
    if (length > TRI_SAFETENSORS_HEADER_LIMIT && (nbytes < 9 || bytes[8] != '{'))
        return tri_fail(TRI_EFORMAT, "%s: want a safetensors file, got another kind of file", file->origin);
    if (length > TRI_SAFETENSORS_HEADER_LIMIT || length > nbytes - 8)
        return tri_fail(TRI_EFORMAT,
                        "%s: a header of %" PRIu64 " bytes does not fit: the file has %zu (limit %" PRIu64 ")",
                        file->origin, length, nbytes, TRI_SAFETENSORS_HEADER_LIMIT);
    if (length == 0 || bytes[8] != '{')
        return tri_fail(TRI_EFORMAT, "%s: no safetensors file: the header does not begin with '{'", file->origin);
    file->data = bytes + 8 + length;
    file->data_nbytes = nbytes - 8 - length;
    json_error_t error;
    json_t *header = json_loadb((const char *)bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (header == NULL)
        return tri_fail(TRI_EFORMAT, "%s: header, byte %d: %s", file->origin, error.position, error.text);
    tri_status status = read_entries(file, header);
    json_decref(header);
    return status;
}

tri_status tri_safetensors_parse(const void *bytes, size_t nbytes, const char *origin, tri_safetensors **out)
{
    *out = NULL;
    tri_safetensors *file = tri_alloc_zero(1, sizeof(*file));
    if (file == NULL)
        return TRI_ENOMEM;
    file->origin = tri_arena_strdup(&file->arena, origin);
    tri_status status = file->origin == NULL ? TRI_ENOMEM : parse(file, bytes, nbytes);
    if (status != TRI_OK) {
        tri_safetensors_close(file);
        return status;
    }
    *out = file;
    return TRI_OK;
}

tri_status tri_safetensors_open(const char *path, tri_safetensors **out)
{
    tri_fs_map map = {0};
    *out = NULL;
    TRI_TRY(tri_fs_map_open(path, &map));
    tri_status status = tri_safetensors_parse(map.bytes, map.nbytes, path, out);
    if (status != TRI_OK)
        tri_fs_map_close(&map);
    else
        (*out)->map = map;
    return status;
}

int tri_safetensors_count(const tri_safetensors *file)
{
    return file->count;
}

const tri_stored_tensor *tri_safetensors_at(const tri_safetensors *file, int index)
{
    TRI_ASSERT(index >= 0 && index < file->count);
    return &file->tensors[index];
}

const tri_stored_tensor *tri_safetensors_find(const tri_safetensors *file, const char *name)
{
    int64_t index;
    return tri_map_find(&file->names, name, &index) ? &file->tensors[index] : NULL;
}

uint64_t tri_safetensors_place(const tri_safetensors *file, const tri_stored_tensor *tensor)
{
    return (uint64_t)((const unsigned char *)tensor->bytes - (const unsigned char *)file->map.bytes);
}

const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i += 2)
        if (strcmp(file->metadata[i], key) == 0)
            return file->metadata[i + 1];
    return NULL;
}

void tri_safetensors_close(tri_safetensors *file)
{
    if (file == NULL)
        return;
    if (file->map.bytes != NULL)
        tri_fs_map_close(&file->map);
    tri_map_fini(&file->names);
    tri_arena_fini(&file->arena);
    tri_free(file);
}
