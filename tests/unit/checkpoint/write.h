/* SPDX-License-Identifier: Apache-2.0
 *
 * write.h: files and checkpoints as one writer makes them, for tests that read or damage them.
 */
#ifndef TRI_TEST_CHECKPOINT_WRITE_H
#define TRI_TEST_CHECKPOINT_WRITE_H

#include "base/status.h"
#include "checkpoint/draft.h"
#include "checkpoint/file_writer.h"

static inline tri_status safetensors_put(tri_file_writer *writer, const char *path, const tri_stored_tensor *tensors,
                                         int count, const char *const *metadata)
{
    TRI_TRY(tri_safetensors_put_header(writer, path, tensors, count, metadata));
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_file_writer_put(writer, tensors[i].bytes, tensors[i].nbytes));
    return TRI_OK;
}

/* metadata: pairs key, value, ..., NULL at the end; or NULL. */
static inline tri_status safetensors_write(const char *path, const tri_stored_tensor *tensors, int count,
                                           const char *const *metadata)
{
    tri_file_writer *writer;
    TRI_TRY(tri_file_writer_open(path, &writer));
    tri_status status = safetensors_put(writer, path, tensors, count, metadata);
    if (status == TRI_OK)
        return tri_file_writer_close(writer);
    tri_file_writer_abandon(writer);
    return status;
}

static inline tri_status slice_put(tri_checkpoint_draft *draft, int number, const tri_checkpoint_slice *slice)
{
    return tri_checkpoint_draft_put(draft, number, 0, tri_shape_count(slice->shape), slice->values);
}

static inline tri_status checkpoint_save(const tri_checkpoint_place *place, const tri_checkpoint_manifest *manifest,
                                         const tri_checkpoint_content *content)
{
    tri_checkpoint_draft *draft = NULL;
    const tri_checkpoint_draft_setup setup = {.place = *place, .step = manifest->step, .content = *content};
    tri_status status = tri_checkpoint_draft_create(&setup, &draft);
    for (int i = 0; i < content->model_count && status == TRI_OK; i++)
        status = slice_put(draft, i, &content->model[i]);
    for (int i = 0; i < content->state_count && status == TRI_OK; i++)
        status = slice_put(draft, content->model_count + i, &content->state[i]);
    if (status == TRI_OK)
        status = tri_checkpoint_draft_sync(draft);
    if (status == TRI_OK)
        status = tri_checkpoint_draft_commit(draft, manifest);
    tri_checkpoint_draft_close(draft);
    return status;
}

#endif
