/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_load.c: reading a checkpoint: lengths and checksums first, then names and shapes, then, only if all of
 * that fits, the values. A load that fails has changed nothing.
 */
#include <inttypes.h>
#include <string.h>

#include "checkpoint/manifest.h"

static tri_status open_file(const char *path, const char *name, tri_safetensors **out)
{
    char *file = tri_format("%s/%s", path, name);
    if (file == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_safetensors_open(file, out);
    tri_free(file);
    return status;
}

/* Every slice is in the file with its shape, and nothing else is. */
static tri_status match_slices(const char *path, const char *name, const tri_safetensors *file,
                               const tri_checkpoint_slice *slices, int count)
{
    tri_map wanted = {0};
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        const tri_stored_tensor *tensor = tri_safetensors_find(file, slices[i].name);
        char want[96], have[96];
        if (tensor == NULL)
            status = tri_fail(TRI_EFORMAT, "%s/%s: '%s' is missing", path, name, slices[i].name);
        else if (tensor->dtype != TRI_F32 || !tri_shape_equal(tensor->shape, slices[i].shape))
            status = tri_fail(TRI_EFORMAT, "%s/%s: '%s': want f32 %s, got %s %s", path, name, slices[i].name,
                              tri_shape_print(slices[i].shape, want), tri_dtype_name(tensor->dtype),
                              tri_shape_print(tensor->shape, have));
        else
            status = tri_map_set(&wanted, slices[i].name, i);
    }
    for (int i = 0; i < tri_safetensors_count(file) && status == TRI_OK; i++) {
        int64_t index;
        if (!tri_map_find(&wanted, tri_safetensors_at(file, i)->name, &index))
            status = tri_fail(TRI_EFORMAT, "%s/%s: '%.100s' is in the file, but the run has no such tensor", path, name,
                              tri_safetensors_at(file, i)->name);
    }
    tri_map_fini(&wanted);
    return status;
}

static tri_status copy_slices(const tri_safetensors *file, const tri_checkpoint_slice *slices, int count)
{
    for (int i = 0; i < count; i++) {
        const tri_checkpoint_slice *slice = &slices[i];
        const tri_stored_tensor *tensor = tri_safetensors_find(file, slice->name);
        if (slice->pieces)
            TRI_TRY(slice->pieces->write(slice->pieces->arg, slice->at, tri_shape_count(slice->shape), tensor->bytes));
        else if (tensor->nbytes > 0)
            memcpy(slice->values, tensor->bytes, tensor->nbytes);
    }
    return TRI_OK;
}

tri_status tri_checkpoint_load(const char *path, tri_checkpoint_manifest *out, const tri_checkpoint_content *content)
{
    tri_manifest manifest;
    tri_safetensors *weights = NULL, *moments = NULL;
    bool with_state = content->state_count > 0;
    TRI_TRY(tri_checkpoint_verify(path));
    TRI_TRY(tri_manifest_load(path, &manifest));
    tri_status status = with_state && manifest.file_count < 2
                            ? tri_fail(TRI_ENOTFOUND, "%s: holds weights only, no %s", path, TRI_STATE_FILE)
                            : open_file(path, TRI_MODEL_FILE, &weights);
    if (status == TRI_OK)
        status = match_slices(path, TRI_MODEL_FILE, weights, content->model, content->model_count);
    if (status == TRI_OK && with_state)
        status = open_file(path, TRI_STATE_FILE, &moments);
    if (status == TRI_OK && with_state)
        status = match_slices(path, TRI_STATE_FILE, moments, content->state, content->state_count);
    if (status == TRI_OK)
        status = copy_slices(weights, content->model, content->model_count);
    if (status == TRI_OK && with_state)
        status = copy_slices(moments, content->state, content->state_count);
    if (status == TRI_OK)
        *out = manifest.run;
    tri_manifest_fini(&manifest);
    tri_safetensors_close(weights);
    tri_safetensors_close(moments);
    return status;
}
