/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_save.c: views to files, a piece of a tensor at a time; what is in memory does not grow with the model.
 */
#include "checkpoint/tensor_save.h"

#include <inttypes.h>
#include <math.h>

#include "base/fs.h"
#include "base/json.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_set.h"

#define PIECE_COUNT                                                                                                    \
    (INT64_C(1) << 18) /* elements that are converted at once: rows of a transposed matrix in wide strips */

typedef struct save_pass {
    const tri_tensor_save *options;
    const tri_tensor_view *views;
    tri_stored_tensor *tensors; /* what the headers say of each view */
    int *file_of;               /* view -> file */
    int count, file_count;
    uint64_t done, all; /* bytes */
    void *piece;        /* elements of a view as they are written */
} save_pass;

tri_dtype tri_tensor_save_dtype(const tri_tensor_save *options, const tri_tensor_view *view)
{
    return options->dtype == TRI_DTYPE_COUNT ? tri_tensor_view_dtype(view) : options->dtype;
}

static tri_status plan_files(save_pass *pass)
{
    uint64_t used = 0;
    pass->file_count = 1;
    for (int i = 0; i < pass->count; i++) {
        const tri_tensor_view *view = &pass->views[i];
        tri_dtype dtype = tri_tensor_save_dtype(pass->options, view);
        size_t nbytes = (size_t)tri_shape_count(view->shape) * tri_dtype_nbytes(dtype);
        pass->tensors[i] =
            (tri_stored_tensor){.name = view->name, .dtype = dtype, .shape = view->shape, .nbytes = nbytes};
        if (used > 0 && pass->options->shard_nbytes > 0 && used + nbytes > pass->options->shard_nbytes) {
            pass->file_count++;
            used = 0;
        }
        pass->file_of[i] = pass->file_count - 1;
        used += nbytes;
        pass->all += nbytes;
    }
    return pass->file_count <= 99999
               ? TRI_OK
               : tri_fail(TRI_EINVAL, "%d files are too many: want larger ones", pass->file_count);
}

static char *file_name(const save_pass *pass, int file)
{
    if (pass->file_count == 1)
        return tri_strdup(TRI_MODEL_FILE);
    return tri_format("model-%05d-of-%05d.safetensors", file + 1, pass->file_count);
}

static bool is_infinite(tri_dtype dtype, const void *elements, int64_t at)
{
    if (dtype == TRI_F16)
        return (((const uint16_t *)elements)[at] & 0x7fff) == 0x7c00;
    if (dtype == TRI_BF16)
        return (((const uint16_t *)elements)[at] & 0x7fff) == 0x7f80;
    return dtype == TRI_F32 ? isinf(((const float *)elements)[at]) : isinf(((const double *)elements)[at]);
}

/* A finite element that became infinite is an error: a value that was stored must not be lost in silence. */
static tri_status check_range(const tri_tensor_view *view, tri_dtype dtype, const void *piece, int64_t first,
                              int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double before;
        if (!is_infinite(dtype, piece, i))
            continue;
        tri_tensor_view_read_as(view, TRI_F64, first + i, 1, &before);
        if (isfinite(before))
            return tri_fail(TRI_EFORMAT, "tensor '%.100s': want values that %s holds, got %.9g at element %" PRId64,
                            view->name, tri_dtype_name(dtype), before, first + i);
    }
    return TRI_OK;
}

static tri_status put_view(save_pass *pass, int index, tri_file_writer *writer)
{
    const tri_tensor_view *view = &pass->views[index];
    tri_dtype dtype = pass->tensors[index].dtype;
    int64_t all = tri_shape_count(view->shape);
    size_t each = tri_dtype_nbytes(dtype);
    for (int64_t first = 0, count; first < all; first += count) {
        count = all - first < PIECE_COUNT ? all - first : PIECE_COUNT;
        tri_tensor_view_read_as(view, dtype, first, count, pass->piece);
        if (dtype != tri_tensor_view_dtype(view))
            TRI_TRY(check_range(view, dtype, pass->piece, first, count));
        TRI_TRY(tri_file_writer_put(writer, pass->piece, (size_t)count * each));
        pass->done += (size_t)count * each;
        if (pass->options->progress != NULL)
            pass->options->progress(pass->options->progress_arg, pass->done, pass->all);
    }
    return TRI_OK;
}

/* The views [first, end) as one file. */
static tri_status put_file(save_pass *pass, const char *path, int first, int end)
{
    tri_file_writer *writer;
    TRI_TRY(tri_file_writer_open(path, &writer));
    tri_status status =
        tri_safetensors_put_header(writer, path, pass->tensors + first, end - first, pass->options->metadata);
    for (int i = first; i < end && status == TRI_OK; i++)
        status = put_view(pass, i, writer);
    if (status == TRI_OK)
        return tri_file_writer_close(writer);
    tri_file_writer_abandon(writer);
    return status;
}

static tri_status print_index(const save_pass *pass, tri_string *text)
{
    tri_json json = tri_json_object(text);
    tri_json metadata = tri_json_object_in(&json, "metadata");
    tri_json_int(&metadata, "total_size", (int64_t)pass->all);
    TRI_TRY(tri_json_end(&metadata));
    tri_json map = tri_json_object_in(&json, "weight_map");
    for (int i = 0; i < pass->count; i++) {
        char *name = file_name(pass, pass->file_of[i]);
        if (name == NULL)
            return TRI_ENOMEM;
        tri_json_text(&map, pass->views[i].name, name);
        tri_free(name);
    }
    TRI_TRY(tri_json_end(&map));
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(text, "\n");
}

static tri_status write_index(const save_pass *pass, const char *folder)
{
    tri_string text = {0};
    char *path = tri_format("%s/%s", folder, TRI_INDEX_FILE);
    tri_status status = path == NULL ? TRI_ENOMEM : print_index(pass, &text);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text.text, text.nbytes);
    tri_string_fini(&text);
    tri_free(path);
    return status;
}

static tri_status write_files(save_pass *pass, const char *folder)
{
    TRI_TRY(plan_files(pass));
    for (int file = 0, first = 0, end; file < pass->file_count; file++, first = end) {
        for (end = first; end < pass->count && pass->file_of[end] == file; end++)
            ;
        char *name = file_name(pass, file), *path = name != NULL ? tri_format("%s/%s", folder, name) : NULL;
        tri_status status = path == NULL ? TRI_ENOMEM : put_file(pass, path, first, end);
        tri_free(path);
        tri_free(name);
        TRI_TRY(status);
    }
    return pass->file_count > 1 ? write_index(pass, folder) : TRI_OK;
}

tri_status tri_tensor_save_all(const char *folder, const tri_tensor_view *views, int count,
                               const tri_tensor_save *options, int *file_count)
{
    save_pass pass = {.options = options, .views = views, .count = count};
    pass.tensors = tri_alloc_zero((size_t)count + 1, sizeof(*pass.tensors));
    pass.file_of = tri_alloc_zero((size_t)count + 1, sizeof(*pass.file_of));
    pass.piece = tri_alloc((size_t)PIECE_COUNT * sizeof(double));
    tri_status status = TRI_ENOMEM;
    if (pass.tensors != NULL && pass.file_of != NULL && pass.piece != NULL)
        status = write_files(&pass, folder);
    if (file_count != NULL)
        *file_count = pass.file_count;
    tri_free(pass.tensors);
    tri_free(pass.file_of);
    tri_free(pass.piece);
    return status;
}
