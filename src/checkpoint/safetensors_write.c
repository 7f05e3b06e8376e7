/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors_write.c: writing: the header, padded with spaces to a multiple of 8 bytes, then the tensors one by one.
 *
 * Tensors are in the order given, without gaps; the caller puts wider types first if alignment matters.
 */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/file_writer.h"

static const char *stored_name(tri_dtype dtype)
{
    static const char *const names[] = {
#define STORED_NAME(id, name, nbytes, stored) [id] = stored,
        TRI_DTYPE_LIST(STORED_NAME)
#undef STORED_NAME
    };
    return names[dtype];
}

static tri_status check_tensors(const char *path, const tri_stored_tensor *tensors, int count)
{
    tri_map names = {0};
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        const tri_stored_tensor *tensor = &tensors[i];
        int64_t before;
        size_t wanted = (size_t)tri_shape_count(tensor->shape) * tri_dtype_nbytes(tensor->dtype);
        if (tensor->nbytes != wanted || tri_dtype_nbytes(tensor->dtype) == 0)
            status = tri_fail(TRI_EINVAL, "%s: tensor '%s': its dtype and shape want %zu bytes, got %zu", path,
                              tensor->name, wanted, tensor->nbytes);
        else if (strcmp(tensor->name, "__metadata__") == 0 || tri_map_find(&names, tensor->name, &before))
            status =
                tri_fail(TRI_EINVAL, "%s: two tensors are named '%s', or the name is reserved", path, tensor->name);
        else
            status = tri_map_set(&names, tensor->name, i);
    }
    tri_map_fini(&names);
    return status;
}

static tri_status print_tensor(tri_json *header, const tri_stored_tensor *tensor, uint64_t first)
{
    tri_json entry = tri_json_object_in(header, tensor->name);
    tri_json_text(&entry, "dtype", stored_name(tensor->dtype));
    tri_json shape = tri_json_array_in(&entry, "shape");
    for (int i = 0; i < tensor->shape.ndim; i++)
        tri_json_int(&shape, NULL, tensor->shape.dim[i]);
    TRI_TRY(tri_json_end(&shape));
    tri_json offsets = tri_json_array_in(&entry, "data_offsets");
    tri_json_int(&offsets, NULL, (int64_t)first);
    tri_json_int(&offsets, NULL, (int64_t)(first + tensor->nbytes));
    TRI_TRY(tri_json_end(&offsets));
    return tri_json_end(&entry);
}

static tri_status print_header(tri_string *text, const tri_stored_tensor *tensors, int count,
                               const char *const *metadata)
{
    tri_json header = tri_json_object(text);
    if (metadata != NULL) {
        tri_json pairs = tri_json_object_in(&header, "__metadata__");
        for (size_t i = 0; metadata[i] != NULL; i += 2)
            tri_json_text(&pairs, metadata[i], metadata[i + 1]);
        TRI_TRY(tri_json_end(&pairs));
    }
    uint64_t first = 0;
    for (int i = 0; i < count; i++) {
        TRI_TRY(print_tensor(&header, &tensors[i], first));
        first += tensors[i].nbytes;
    }
    TRI_TRY(tri_json_end(&header));
    while (text->nbytes % 8 != 0)
        TRI_TRY(tri_string_append(text, " "));
    if (text->nbytes > TRI_SAFETENSORS_HEADER_LIMIT)
        return tri_fail(TRI_EINVAL, "%d tensors need a header of %zu bytes, the format allows %" PRIu64, count,
                        text->nbytes, TRI_SAFETENSORS_HEADER_LIMIT);
    return TRI_OK;
}

tri_status tri_safetensors_print_header(const char *path, const tri_stored_tensor *tensors, int count,
                                        const char *const *metadata, tri_string *out)
{
    tri_string header = {0};
    char length[8];
    tri_status status = check_tensors(path, tensors, count);
    if (status == TRI_OK)
        status = print_header(&header, tensors, count, metadata);
    for (int i = 0; i < 8; i++)
        length[i] = (char)((uint64_t)header.nbytes >> (8 * i));
    if (status == TRI_OK)
        status = tri_string_append_bytes(out, length, sizeof(length));
    if (status == TRI_OK)
        status = tri_string_append_bytes(out, header.text, header.nbytes);
    tri_string_fini(&header);
    return status;
}

tri_status tri_safetensors_put_header(tri_file_writer *writer, const char *path, const tri_stored_tensor *tensors,
                                      int count, const char *const *metadata)
{
    tri_string header = {0};
    tri_status status = tri_safetensors_print_header(path, tensors, count, metadata, &header);
    if (status == TRI_OK)
        status = tri_file_writer_put(writer, header.text, header.nbytes);
    tri_string_fini(&header);
    return status;
}
