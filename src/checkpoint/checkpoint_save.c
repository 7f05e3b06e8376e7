/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_save.c: writing a checkpoint under a hidden name, then one rename; afterwards the oldest ones go.
 *
 * Hidden names: .step-N.tmp is being written, .step-N.old.tmp is one of the same step that makes room for the new one,
 * .step-N.gone.tmp is being removed. Whatever a crash leaves of them is cleared at the next save, which brings an old
 * one back if the new one never took its place. So at every moment each visible checkpoint is whole.
 */
#include <inttypes.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/manifest.h"

#define TRI_OPTION_STRUCT tri_checkpoint_config
static const tri_option rows[] = {TRI_CHECKPOINT_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_checkpoint_options =
    TRI_OPTION_TABLE("checkpoint", tri_checkpoint_config, rows, "when the run is saved");

#define OLD_ENDING ".old.tmp"

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), wanted = strlen(ending);
    return length >= wanted && strcmp(text + length - wanted, ending) == 0;
}

/* One name that a crashed save left: removed, or brought back. */
static tri_status clear_one(const char *folder, const char *name)
{
    char *path = tri_format("%s/%s", folder, name), *visible = NULL;
    tri_status status = path != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && ends_in(name, OLD_ENDING)) {
        visible = tri_format("%s/%.*s", folder, (int)(strlen(name) - 1 - strlen(OLD_ENDING)), name + 1);
        status = visible == NULL          ? TRI_ENOMEM
                 : tri_fs_exists(visible) ? tri_fs_remove(path)
                                          : tri_file_rename(path, visible);
    } else if (status == TRI_OK)
        status = tri_fs_remove(path);
    tri_free(path);
    tri_free(visible);
    return status;
}

static tri_status clear_debris(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++)
        if (strncmp(names[i], ".step-", 6) == 0 && ends_in(names[i], ".tmp"))
            status = clear_one(folder, names[i]);
    tri_fs_list_free(names, count);
    return status;
}

static tri_status put_slice(tri_file_writer *writer, const tri_checkpoint_slice *slice)
{
    int64_t left = tri_shape_count(slice->shape), at = slice->at, count;
    if (!slice->pieces)
        return tri_file_writer_put(writer, slice->values, (size_t)left * sizeof(float));
    for (; left > 0; left -= count, at += count) {
        const float *values;
        count = left;
        TRI_TRY(slice->pieces->read(slice->pieces->arg, at, &count, &values));
        TRI_TRY(tri_file_writer_put(writer, values, (size_t)count * sizeof(float)));
    }
    return TRI_OK;
}

static tri_status put_slices(tri_file_writer *writer, const char *path, const tri_checkpoint_slice *slices, int count)
{
    tri_stored_tensor *tensors = tri_alloc_zero((size_t)count, sizeof(*tensors));
    if (tensors == NULL)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        tensors[i] = (tri_stored_tensor){.name = slices[i].name,
                                         .dtype = TRI_F32,
                                         .shape = slices[i].shape,
                                         .nbytes = (size_t)tri_shape_count(slices[i].shape) * sizeof(float)};
    tri_status status =
        tri_safetensors_put_header(writer, path, tensors, count, (const char *const[]){"format", "pt", NULL});
    tri_free(tensors);
    for (int i = 0; i < count && status == TRI_OK; i++)
        status = put_slice(writer, &slices[i]);
    return status;
}

static tri_status write_slices(const char *folder, const char *name, const tri_checkpoint_slice *slices, int count,
                               tri_manifest *manifest)
{
    tri_manifest_file *file = &manifest->files[manifest->file_count++];
    tri_file_writer *writer = NULL;
    char *path = tri_format("%s/%s", folder, name);
    strcpy(file->name, name);
    tri_status status = path == NULL ? TRI_ENOMEM : tri_file_writer_open(path, &writer);
    if (status == TRI_OK)
        status = put_slices(writer, path, slices, count);
    if (status == TRI_OK)
        status = tri_file_writer_close(writer, &file->digest);
    else if (writer != NULL)
        tri_file_writer_abandon(writer);
    tri_free(path);
    return status;
}

static tri_status write_manifest(const char *folder, const tri_manifest *manifest)
{
    tri_string text = {0};
    char *path = tri_format("%s/%s", folder, TRI_MANIFEST_FILE);
    tri_status status = path == NULL ? TRI_ENOMEM : tri_manifest_print(manifest, &text);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text.text, text.nbytes);
    tri_string_fini(&text);
    tri_free(path);
    return status;
}

static tri_status write_folder(const char *folder, const tri_checkpoint_manifest *run,
                               const tri_checkpoint_slice *model, int model_count, const tri_checkpoint_slice *state,
                               int state_count)
{
    tri_manifest manifest = {.run = *run};
    TRI_TRY(tri_fs_make_folder(folder));
    TRI_TRY(write_slices(folder, TRI_MODEL_FILE, model, model_count, &manifest));
    if (state_count > 0)
        TRI_TRY(write_slices(folder, TRI_STATE_FILE, state, state_count, &manifest));
    TRI_TRY(write_manifest(folder, &manifest));
    return tri_fs_sync(folder);
}

/* Puts the folder in place; one of the same step that stands there steps aside first, and comes back on failure. */
static tri_status put_in_place(const char *temporary, const char *old, const char *visible)
{
    if (!tri_fs_exists(visible))
        return tri_file_rename(temporary, visible);
    TRI_TRY(tri_file_rename(visible, old));
    tri_status status = tri_file_rename(temporary, visible);
    if (status != TRI_OK && !tri_fs_exists(visible)) {
        char message[TRI_ERROR_NBYTES];
        strncpy(message, tri_last_error(), sizeof(message) - 1);
        message[sizeof(message) - 1] = 0;
        tri_fs_rename(old, visible); /* failing that, the next save does it */
        return tri_fail_copy(status, message);
    }
    return status == TRI_OK ? tri_fs_remove(old) : status;
}

/* Hides the folder first, so that nobody sees half of it. */
static tri_status remove_checkpoint(const char *folder, const char *name)
{
    char *path = tri_format("%s/%s", folder, name), *hidden = tri_format("%s/.%s.gone.tmp", folder, name);
    tri_status status = TRI_ENOMEM;
    if (path != NULL && hidden != NULL) {
        status = tri_fs_rename(path, hidden);
        if (status == TRI_OK)
            status = tri_fs_remove(hidden);
    }
    tri_free(path);
    tri_free(hidden);
    return status;
}

static bool has_manifest(const char *folder, const char *name)
{
    tri_manifest manifest;
    char *path = tri_format("%s/%s", folder, name);
    bool has = path != NULL && tri_manifest_load(path, &manifest) == TRI_OK;
    tri_free(path);
    return has;
}

/* Removes what is older than the `keep` newest with a manifest; `step` itself always stays. Others' folders are not
 * touched. */
static tri_status remove_oldest(const char *folder, int64_t step, int64_t keep)
{
    tri_vector list;
    TRI_TRY(tri_checkpoint_list(folder, &list));
    tri_status status = TRI_OK;
    int64_t kept = 0;
    for (size_t i = 0; i < list.count && status == TRI_OK; i++) {
        const tri_checkpoint_entry *entry = tri_vector_at(&list, i);
        if (!has_manifest(folder, entry->name))
            continue;
        if (++kept > keep && entry->step != step)
            status = remove_checkpoint(folder, entry->name);
    }
    tri_checkpoint_list_free(&list);
    return status;
}

static tri_status save(const char *folder, const char *temporary, const char *old, const char *visible,
                       const tri_checkpoint_manifest *manifest, const tri_checkpoint_slice *model, int model_count,
                       const tri_checkpoint_slice *state, int state_count)
{
    TRI_TRY(tri_fs_make_folder(folder));
    TRI_TRY(clear_debris(folder));
    tri_status status = write_folder(temporary, manifest, model, model_count, state, state_count);
    if (status == TRI_OK)
        status = put_in_place(temporary, old, visible);
    return status == TRI_OK ? TRI_OK : tri_file_discard(temporary, status);
}

tri_status tri_checkpoint_save(const char *folder, const tri_checkpoint_manifest *manifest,
                               const tri_checkpoint_slice *model, int model_count, const tri_checkpoint_slice *state,
                               int state_count, int64_t keep)
{
    if (manifest->step < 0 || keep < 1)
        return tri_fail(TRI_EINVAL, "checkpoint: want a step >= 0 and at least 1 to keep, got %" PRId64 " and %" PRId64,
                        manifest->step, keep);
    char *temporary = tri_format("%s/.step-%08" PRId64 ".tmp", folder, manifest->step);
    char *old = tri_format("%s/.step-%08" PRId64 OLD_ENDING, folder, manifest->step);
    char *visible = tri_format("%s/step-%08" PRId64, folder, manifest->step);
    tri_status status = TRI_ENOMEM;
    if (temporary != NULL && old != NULL && visible != NULL)
        status = save(folder, temporary, old, visible, manifest, model, model_count, state, state_count);
    tri_free(temporary);
    tri_free(old);
    tri_free(visible);
    if (status != TRI_OK)
        return tri_fail_context(status, "checkpoint of step %" PRId64 " not saved", manifest->step);
    if (remove_oldest(folder, manifest->step, keep) != TRI_OK) /* saved all the same */
        tri_log(TRI_LOG_DEBUG, "old checkpoints stay: %s", tri_last_error());
    return TRI_OK;
}
