/* SPDX-License-Identifier: Apache-2.0
 *
 * save_work.c: what one rank writes of a checkpoint: its elements, found from who holds what, to each place in turn.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/local_sgd.h"
#include "train/checkpointing/resume.h"
#include "train/checkpointing/save.h"

/* --- items --- */

/* What this rank gives of one array of the tensors, which begin at `first` among the slices. */
static int map_items(const tri_shard_map *map, const float *array, int first, save_item *items)
{
    int held, count = 0;
    const tri_extent *own = tri_shard_map_own(map, &held);
    for (int i = 0; i < held; i++)
        if (own[i].gives)
            items[count++] = (save_item){first + own[i].tensor, own[i], array + own[i].at};
    return count;
}

/* All of a tensor, which is a slice of its own. */
static save_item whole_item(const tri_checkpoint_content *content, int slice, const float *values)
{
    const tri_checkpoint_slice *of = &content->state[slice - content->model_count];
    tri_extent all = {.shape = of->shape, .high = tri_shape_count(of->shape)};
    return (save_item){slice, all, values};
}

/* Where each rank has weights of its own: its arrays, and on rank 0 what all have alike. */
static int apart_items(const save_work *work, save_item *items)
{
    const tri_local_state *apart = &work->slices.apart;
    const tri_job *job = apart->job;
    const tri_checkpoint_content *content = &work->slices.content;
    int entries = job->params->entry_count, count = 0;
    for (int a = 0; a < apart->own_count; a++)
        for (int e = 0; e < entries; e++) {
            int number = (job->rank * apart->own_count + a) * entries + e;
            items[count++] = whole_item(content, content->model_count + number, tri_local_state_values(apart, a, e));
        }
    int common = content->model_count + job->world * apart->own_count * entries;
    for (int c = 0; job->rank == 0 && c < apart->common_count; c++)
        for (int e = 0; e < entries; e++)
            items[count++] = whole_item(content, common + c * entries + e, job->sync->ops->state(job->sync, c, e));
    return count;
}

tri_status save_work_fill(tri_job *job, save_work *work)
{
    TRI_TRY(tri_job_slices_open_unread(job, true, &work->slices));
    const tri_job_arrays *arrays = &work->slices.arrays;
    int most = 0, held;
    for (int a = 0; a < arrays->count; a++) {
        (void)tri_shard_map_own(tri_job_shard_map(&job->placement, a), &held);
        most += held;
    }
    most += tri_job_has_own_weights(job) ? work->slices.content.state_count : 0;
    work->items = tri_alloc_zero((size_t)most + 1, sizeof(*work->items));
    if (!work->items)
        return TRI_ENOMEM;
    for (int a = 0; a < arrays->count; a++)
        work->item_count += map_items(tri_job_shard_map(&job->placement, a), arrays->views[a].host,
                                      a * job->model.tensors.count, work->items + work->item_count);
    if (tri_job_has_own_weights(job))
        work->item_count += apart_items(work, work->items + work->item_count);
    return TRI_OK;
}

static int64_t item_count(const save_item *item)
{
    return item->extent.high - item->extent.low;
}

int64_t save_work_count(const save_work *work)
{
    int64_t count = 0;
    for (int i = 0; i < work->item_count; i++)
        count += item_count(&work->items[i]);
    return count;
}

void save_work_read(const save_work *work)
{
    tri_job_arrays_read(&work->slices.arrays);
}

/* Where the device has what an item names by its place in a view; NULL: it is in the host's memory alone. */
static const void *item_there(const save_work *work, const save_item *item)
{
    const char *values = (const char *)item->values;
    for (int i = 0; i < work->slices.arrays.count; i++) {
        const tri_device_view *view = &work->slices.arrays.views[i];
        const char *host = view->host;
        if (values >= host && values < host + view->nbytes)
            return (const char *)view->memory + (values - host);
    }
    return NULL;
}

void save_work_copy(save_work *work, const tri_device *device, tri_device_event copied, float *copy)
{
    const bool queued = !tri_device_shares_host(device);
    if (queued) { /* behind the kernels so far */
        tri_device_event_record(device, copied, TRI_QUEUE_KERNELS);
        tri_device_event_order(device, copied, TRI_QUEUE_COPIES);
    }
    for (int i = 0; i < work->item_count; i++) {
        save_item *item = &work->items[i];
        const size_t nbytes = (size_t)item_count(item) * sizeof(float);
        const void *there = queued ? item_there(work, item) : NULL;
        if (there)
            tri_device_copy_out(device, copy, there, nbytes);
        else
            memcpy(copy, item->values, nbytes);
        item->values = copy;
        copy += item_count(item);
    }
    if (!queued)
        return;
    tri_device_event_record(device, copied, TRI_QUEUE_COPIES);
    tri_device_event_order(device, copied, TRI_QUEUE_KERNELS); /* which would write what is copied */
    work->device = device;
    work->copied = copied;
}

void save_work_fini(save_work *work)
{
    for (int i = 0; i < work->target_count; i++)
        tri_checkpoint_draft_close(work->targets[i].draft);
    save_work_release(work);
    work->target_count = 0;
}

void save_work_release(save_work *work)
{
    tri_job_slices_close(&work->slices);
    tri_free(work->items);
    work->items = NULL;
    work->item_count = 0;
}

/* --- writing --- */

void save_target_fail(save_target *target, tri_status status)
{
    if (target->status != TRI_OK)
        return;
    target->status = status;
    strncpy(target->message, tri_last_error(), sizeof(target->message) - 1);
}

/* Runs of elements that are neighbours both here and in the tensor. */
static tri_status item_put(tri_checkpoint_draft *draft, const save_item *item)
{
    const tri_extent *extent = &item->extent;
    for (int64_t at = extent->low, run; at < extent->high; at += run) {
        int64_t place = tri_piece_place(extent->shape, extent->piece, at, &run);
        run = run < extent->high - at ? run : extent->high - at;
        TRI_TRY(tri_checkpoint_draft_put(draft, item->slice, place, run, item->values + (at - extent->low)));
    }
    return TRI_OK;
}

static tri_status own_part(const save_work *work, tri_checkpoint_draft *draft)
{
    for (int i = 0; i < work->item_count; i++)
        TRI_TRY(item_put(draft, &work->items[i]));
    return tri_checkpoint_draft_sync(draft);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tri_status tensor_hash(tri_params_hasher *hasher, tri_fs_reader *reader, const tri_stored_tensor *tensor,
                              uint64_t place)
{
    tri_params_hasher_begin(hasher, tensor->name, tensor->shape);
    for (size_t done = 0, some; done < tensor->nbytes; done += some) {
        const void *bytes;
        TRI_TRY(tri_fs_reader_look(reader, place + done, tensor->nbytes - done, &bytes, &some));
        some -= some % sizeof(float);
        if (some == 0)
            return tri_fail(TRI_EIO, "%s: cut short by another program", tensor->name);
        tri_params_hasher_put(hasher, bytes, (int64_t)(some / sizeof(float)));
    }
    return TRI_OK;
}

static tri_status tensors_hash(const tri_safetensors *file, tri_fs_reader *reader, uint64_t *hash)
{
    const int count = tri_safetensors_count(file);
    const char **names = tri_alloc((size_t)count * sizeof(*names) + 1);
    if (!names)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        names[i] = tri_safetensors_at(file, i)->name;
    tri_params_hasher hasher;
    tri_params_hasher_init(&hasher);
    qsort(names, (size_t)count, sizeof(*names), by_name);
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        const tri_stored_tensor *tensor = tri_safetensors_find(file, names[i]);
        status = tensor_hash(&hasher, reader, tensor, tri_safetensors_place(file, tensor));
    }
    *hash = tri_params_hasher_end(&hasher);
    tri_free(names);
    return status;
}

/* The weights: line of the run at this step, from what all have written. */
static tri_status weights_hash(const char *path, uint64_t *hash)
{
    tri_safetensors *file = NULL;
    tri_fs_reader *reader = NULL;
    TRI_TRY(tri_safetensors_open(path, &file));
    tri_status status = tri_fs_reader_open(path, &reader);
    if (status == TRI_OK)
        status = tensors_hash(file, reader, hash);
    tri_fs_reader_close(reader);
    tri_safetensors_close(file);
    return status;
}

static tri_status complete(save_work *work, tri_checkpoint_draft *draft)
{
    if (work->writers > 1)
        TRI_TRY(tri_checkpoint_draft_gather(draft, work->writers, work->patience_ms));
    if (work->served)
        save_work_mixed(work, tri_checkpoint_draft_notes(draft));
    if (work->pieces == 0) /* else all ranks have found it */
        TRI_TRY(weights_hash(tri_checkpoint_draft_model(draft), &work->manifest.weights_hash));
    work->nbytes = tri_checkpoint_draft_nbytes(draft);
    if (work->ledger[0] && tri_fs_sync(work->ledger) != TRI_OK) /* the checkpoint is good without */
        tri_log(TRI_LOG_WARN, "entries of the ledger may be lost in a power cut: %s", tri_last_error());
    return tri_checkpoint_draft_commit(draft, &work->manifest);
}

/* The first rank hears of a failure where there is still a way to tell it. */
static void tell(const save_work *work, save_target *target)
{
    tri_status reported = TRI_EIO;
    for (int attempt = 0; attempt < 5 && reported != TRI_OK; attempt++) {
        if (attempt > 0)
            tri_sleep_ns(100 * TRI_NS_PER_MS);
        if (target->status != TRI_OK)
            tri_fail_copy(target->status, target->message);
        reported = tri_checkpoint_draft_tell(target->draft, work->rank, target->status);
    }
    if (reported == TRI_OK)
        return;
    save_target_fail(target, reported);
    (void)tri_checkpoint_draft_miss(target->draft,
                                    work->rank); /* else the first waits for as long as it has patience */
}

void save_work_run(save_work *work)
{
    if (work->device)
        tri_device_event_wait(work->device, work->copied);
    for (int i = 0; i < work->target_count; i++) {
        save_target *target = &work->targets[i];
        if (!target->draft)
            continue;
        tri_status status = target->status;
        if (status == TRI_OK)
            status = own_part(work, target->draft);
        if (status == TRI_OK && work->memory)
            status = work->look(work->memory);
        if (status == TRI_OK && work->rank == 0)
            status = complete(work, target->draft);
        if (status != TRI_OK)
            save_target_fail(target, status);
        if (work->rank != 0)
            tell(work, target);
        tri_checkpoint_draft_close(target->draft);
        target->draft = NULL;
    }
    work->took_ns = tri_now_ns() - work->start_ns;
}

/* A slice from all ranks; what the disk says is the target's, what the ranks say is returned. */
static tri_status slice_collect(save_target *target, int number, const tri_checkpoint_slice *slice)
{
    int64_t all = tri_shape_count(slice->shape);
    for (int64_t first = 0, count; first < all; first += count) {
        const float *values = slice->values;
        count = all - first;
        if (slice->pieces)
            TRI_TRY(slice->pieces->read(slice->pieces->arg, slice->at + first, &count, &values));
        tri_status status =
            target->status == TRI_OK ? tri_checkpoint_draft_put(target->draft, number, first, count, values) : TRI_OK;
        if (status != TRI_OK)
            save_target_fail(target, status);
    }
    return TRI_OK;
}

tri_status save_work_collect(save_work *work, save_target *target)
{
    const tri_checkpoint_content *content = &work->slices.content;
    for (int i = 0; i < content->model_count + content->state_count; i++)
        TRI_TRY(slice_collect(
            target, i, i < content->model_count ? &content->model[i] : &content->state[i - content->model_count]));
    tri_status status = target->status == TRI_OK ? tri_checkpoint_draft_sync(target->draft) : TRI_OK;
    if (status == TRI_OK && target->status == TRI_OK)
        status = complete(work, target->draft);
    if (status != TRI_OK)
        save_target_fail(target, status);
    work->took_ns = tri_now_ns() - work->start_ns;
    return TRI_OK;
}
