/* SPDX-License-Identifier: Apache-2.0
 *
 * loader.c: one worker's samples in memory, and its shards of the coming batches prepared from them.
 *
 * All reading and checking is done in open (held.c), so that preparing computes only and cannot fail. (Tokens that stay
 * in their files, and images that are decoded when they are needed, are the exception: what is wrong with them is
 * reported with their batch.) Where a core is free for it, a thread fills a
 * ring of prefetch + 1 slots: one is the caller's, the others wait for it. Where none is, such a thread would only stop
 * the others in the middle of a product: there the crew prepares each batch when it is asked for. A batch is a pure
 * function of its step: nothing depends on who asks or where it began. A device whose kernels cannot read the host's
 * memory has a twin of each slot. Nothing is allocated after open.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment.h"
#include "data/data.h"
#include "data/held.h"
#include "data/images/image.h"
#include "data/normalize.h"
#include "data/twin.h"
#include "data/workers.h"
#include "tensor/label.h"

#define LINE_NBYTES  64 /* of the cache */
#define AHEAD_NBYTES 4096
#define AHEAD_ROWS   2
#define SLICE_MS     5  /* of a wait */
#define TILE_ROWS    16 /* samples that one thread prepares at a time */
#define FETCH_ROWS   4  /* those that are decoded: threads end a batch together, also where one has lost its core */

typedef struct loader_slot {
    tri_loader_batch batch;
    int32_t *rows;
    int64_t *first_sample;
    unsigned char *input, *target;
    tri_twin twin;
    uint64_t *marks;   /* [tiles] of the samples in each */
    int64_t *indices;  /* [shards * rows_max] of the samples; NULL: none are mixed */
    tri_status status; /* of the first sample that could not be drawn */
    char text[TRI_ERROR_NBYTES];
} loader_slot;

struct tri_loader {
    tri_loader_setup setup;
    tri_dataset *drawn; /* held; NULL: the samples are read at the start */
    tri_normalizer normalizer;
    tri_augment augment;
    float *black;          /* [channels] */
    float *unmoved;        /* one sample for each tile; NULL: pixels do not move */
    unsigned char *stored; /* one sample for each tile; NULL: none is changed or fetched */
    bool augments;
    size_t sample_nbytes, input_nbytes, target_nbytes; /* of one sample */
    tri_held own;                                      /* of this loader alone */
    tri_held *held;                                    /* samples of its parts: `own`, or what outlives it */
    int64_t *part_first;                               /* [shard_count + 1] of each part in held->places */
    loader_slot *slots;
    int64_t slot_count;
    bool ahead;               /* a thread prepares batches; else the crew does */
    const tri_device *device; /* that reads batches in its own memory, or NULL */
    loader_slot *lent;        /* the caller's, where there is a device */
    int64_t parts_taken;
    tri_thread *thread;
    tri_workers *workers; /* help the thread with samples that are fetched; NULL: they need no help */
    tri_mutex fault;      /* guards status and text of a slot that is prepared */
    tri_mutex mutex;      /* guards the three below */
    tri_cond moved;       /* one of them changed */
    int64_t made, taken;  /* batches */
    bool stop;
};

static void *alloc_array(int64_t count, size_t each)
{
    return tri_alloc_zero((size_t)count, each);
}

/* Samples are drawn or fetched where they are: none is held. */
static bool draws(const tri_loader *loader)
{
    return loader->drawn != NULL;
}

static bool fetches(const tri_loader *loader)
{
    return loader->drawn != NULL && loader->drawn->ops->fetch != NULL;
}

/* Nothing but rows is wanted. */
static bool skips_all(const tri_loader *loader)
{
    return loader->setup.skips_input && loader->setup.skips_target;
}

static int64_t tile_rows(const tri_loader *loader)
{
    return fetches(loader) ? FETCH_ROWS : TILE_ROWS;
}

/* Tiles of a shard, and of a batch. */
static int64_t shard_tiles(const tri_loader *loader)
{
    return (loader->setup.rows_max + tile_rows(loader) - 1) / tile_rows(loader);
}

static int64_t tile_count(const tri_loader *loader)
{
    return loader->setup.shard_count * shard_tiles(loader);
}

static tri_status check_setup(const tri_dataset *dataset, const tri_loader_setup *setup)
{
    const tri_sampler *sampler = &setup->sampler;
    if (sampler->count != dataset->info.count)
        return tri_fail(TRI_EINVAL, "loader: the sampler counts %" PRId64 " samples, the data set has %" PRId64,
                        sampler->count, dataset->info.count);
    if (sampler->batch < 1 || sampler->shards < 1)
        return tri_fail(TRI_EINVAL,
                        "loader: want at least 1 sample in a batch and 1 shard, got %" PRId64 " and %" PRId64,
                        sampler->batch, sampler->shards);
    if (setup->first_shard < 0 || setup->shard_count < 1 || setup->shard_count > sampler->shards - setup->first_shard)
        return tri_fail(TRI_EINVAL, "loader: shards %" PRId64 " and %" PRId64 " more are not within %" PRId64,
                        setup->first_shard, setup->shard_count - 1, sampler->shards);
    if (setup->first_step < 0 || setup->end_step < setup->first_step)
        return tri_fail(TRI_EINVAL, "loader: steps %" PRId64 " to %" PRId64 " are no range", setup->first_step,
                        setup->end_step);
    for (int64_t s = 0; s < setup->shard_count; s++)
        if (tri_sampler_rows(sampler, setup->first_shard + s) > setup->rows_max)
            return tri_fail(TRI_EINVAL, "loader: shard %" PRId64 " has %" PRId64 " rows, room is for %" PRId64,
                            setup->first_shard + s, tri_sampler_rows(sampler, setup->first_shard + s), setup->rows_max);
    return TRI_OK;
}

static bool is_augmented(const tri_data_config *config)
{
    return config->crop > 0 || config->flip || config->random_crop > 0 || config->brightness > 0 ||
           config->contrast > 0 || config->saturation > 0 || config->hue > 0 || config->erase > 0 ||
           config->mixup > 0 || config->cutmix > 0;
}

/* Augmentation that changes bytes, before they are normalized. */
static bool changes_bytes(const tri_augment *augment)
{
    return augment->least_area > 0 || augment->brightness > 0 || augment->contrast > 0 || augment->saturation > 0 ||
           augment->hue > 0;
}

/* Two images of a shard in one. */
static bool mixes(const tri_loader *loader)
{
    return loader->augments && (loader->augment.mixup > 0 || loader->augment.cutmix > 0);
}

static tri_status check_augment(const tri_loader *loader, const tri_dataset_info *info)
{
    char text[96];
    const bool images = info->sample.ndim == 3 && loader->normalizer.to == TRI_F32;
    if (!images)
        return tri_fail(
            TRI_ECONFIG,
            "data.crop, data.flip and other augmentation are for images [height, width, channels], the samples are "
            "%s %s",
            tri_dtype_name(info->dtype), tri_shape_print(info->sample, text));
    if (changes_bytes(&loader->augment) &&
        (info->dtype != TRI_U8 || (info->sample.dim[2] != 1 && info->sample.dim[2] != 3)))
        return tri_fail(
            TRI_ECONFIG,
            "data.random_crop, brightness, contrast, saturation and hue are for bytes with 1 or 3 channels, the "
            "samples are %s %s",
            tri_dtype_name(info->dtype), tri_shape_print(info->sample, text));
    if (mixes(loader) && (info->target.ndim > 0 || info->classes < 1 || info->classes > TRI_LABEL_CLASSES))
        return tri_fail(TRI_ECONFIG, "data.mixup and data.cutmix: want 1 to %d classes, got %" PRId64,
                        TRI_LABEL_CLASSES, info->classes);
    if (mixes(loader) && loader->setup.rows_max < 2)
        return tri_fail(TRI_ECONFIG, "data.mixup and data.cutmix mix images of one shard, and shards have one: want "
                                     "train.batch at least twice train.shards");
    return TRI_OK;
}

static tri_status plan_augment(tri_loader *loader, const tri_dataset_info *info, const tri_data_config *config)
{
    loader->augments = loader->setup.training && is_augmented(config);
    if (!loader->augments)
        return TRI_OK;
    loader->augment = (tri_augment){.seed = loader->setup.sampler.seed,
                                    .crop = config->crop,
                                    .flip = config->flip,
                                    .least_area = config->random_crop,
                                    .brightness = config->brightness,
                                    .contrast = config->contrast,
                                    .saturation = config->saturation,
                                    .hue = config->hue,
                                    .mixup = config->mixup,
                                    .cutmix = config->cutmix,
                                    .erase = config->erase};
    TRI_TRY(check_augment(loader, info));
    loader->augment.height = info->sample.dim[0];
    loader->augment.width = info->sample.dim[1];
    loader->augment.channels = info->sample.dim[2];
    if (config->crop == 0 && !config->flip)
        return TRI_OK;
    loader->black = alloc_array(info->sample.dim[2], sizeof(float));
    loader->unmoved = alloc_array(tile_count(loader) * loader->normalizer.count, sizeof(float));
    if (loader->black == NULL || loader->unmoved == NULL)
        return TRI_ENOMEM;
    tri_normalizer_black(&loader->normalizer, info->sample.dim[2], loader->black);
    return TRI_OK;
}

static tri_status plan_stored(tri_loader *loader)
{
    if (loader->setup.skips_input || (!fetches(loader) && !(loader->augments && changes_bytes(&loader->augment))))
        return TRI_OK;
    loader->stored = alloc_array(tile_count(loader), loader->sample_nbytes);
    return loader->stored != NULL ? TRI_OK : TRI_ENOMEM;
}

/* Of each part, where its samples begin among those of this worker. */
static tri_status plan_parts(tri_loader *loader)
{
    const tri_loader_setup *setup = &loader->setup;
    loader->part_first = alloc_array(setup->shard_count + 1, sizeof(int64_t));
    if (loader->part_first == NULL)
        return TRI_ENOMEM;
    for (int64_t s = 0; s < setup->shard_count; s++)
        loader->part_first[s + 1] =
            loader->part_first[s] + tri_sampler_part_count(&setup->sampler, setup->first_shard + s);
    return TRI_OK;
}

/* Tokens that are drawn are drawn together. */
static bool keeps_input(const tri_loader *loader)
{
    return !loader->setup.skips_input || (draws(loader) && !fetches(loader) && !skips_all(loader));
}

static bool keeps_target(const tri_loader *loader)
{
    return !loader->setup.skips_target || (draws(loader) && !fetches(loader) && !skips_all(loader));
}

/* --- twins of slots --- */

/* Which can copy from a slot: of the host alone, without twins. */
static const tri_device *copier_of(const tri_loader *loader)
{
    return loader->device ? loader->device : tri_device_host();
}

/* The caller has queued all that reads the slot it had. */
static void slot_return(tri_loader *loader)
{
    if (loader->lent)
        tri_twin_return(loader->device, &loader->lent->twin);
    loader->lent = NULL;
}

static void slot_lend(tri_loader *loader, loader_slot *slot)
{
    if (!loader->device)
        return;
    tri_twin_lend(loader->device, &slot->twin);
    loader->lent = slot;
}

static tri_status make_slots(tri_loader *loader, const tri_data_config *config)
{
    const tri_loader_setup *setup = &loader->setup;
    int64_t rows;
    size_t input;
    if (__builtin_mul_overflow(setup->shard_count, setup->rows_max, &rows) ||
        __builtin_mul_overflow((size_t)rows, loader->input_nbytes, &input) || setup->shard_count > INT32_MAX)
        return tri_fail(TRI_ENOMEM, "loader: a batch of %" PRId64 " shards of %" PRId64 " rows is more than fits",
                        setup->shard_count, setup->rows_max);
    const bool threads = fetches(loader) && config->threads > 0;
    int64_t ahead = config->prefetch >= 0 ? config->prefetch : setup->crew.free_cores > 0 || threads ? 2 : 0;
    loader->ahead = ahead > 0;
    loader->slot_count = loader->device && ahead == 0 ? 2 : ahead + 1; /* the device may still read the last batch */
    loader->slots = alloc_array(loader->slot_count, sizeof(*loader->slots));
    if (loader->slots == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < loader->slot_count; i++) {
        loader_slot *slot = &loader->slots[i];
        slot->rows = alloc_array(setup->shard_count, sizeof(*slot->rows));
        slot->first_sample = alloc_array(setup->shard_count, sizeof(*slot->first_sample));
        slot->marks = alloc_array(tile_count(loader), sizeof(*slot->marks));
        slot->input = keeps_input(loader) ? tri_device_host_alloc(copier_of(loader), input) : NULL;
        slot->target = keeps_target(loader)
                           ? tri_device_host_alloc(copier_of(loader), (size_t)rows * loader->target_nbytes)
                           : NULL;
        slot->indices = mixes(loader) ? alloc_array(rows, sizeof(*slot->indices)) : NULL;
        if (slot->rows == NULL || slot->first_sample == NULL || slot->marks == NULL ||
            (slot->indices == NULL && mixes(loader)) || (slot->input == NULL && keeps_input(loader)) ||
            (slot->target == NULL && keeps_target(loader)))
            return TRI_ENOMEM;
        slot->batch = (tri_loader_batch){.shards = (int)setup->shard_count,
                                         .rows = slot->rows,
                                         .first_sample = slot->first_sample,
                                         .input = setup->skips_input ? NULL : slot->input,
                                         .target = setup->skips_target ? NULL : slot->target};
        if (loader->device)
            TRI_TRY(
                tri_twin_make(loader->device, &slot->batch, input, (size_t)rows * loader->target_nbytes, &slot->twin));
    }
    return TRI_OK;
}

/* Where samples k to k + count - 1 are of those that shard s of this worker takes in the epoch. Entries of a table are
 * all asked for before the first is read. */
static void find_places(const tri_loader *loader, int64_t epoch, int64_t s, int64_t k, int64_t count, int64_t *places)
{
    const tri_held *held = loader->held;
    const int64_t *table = held->places + loader->part_first[s];
    tri_sampler_orders(&loader->setup.sampler, epoch, loader->setup.first_shard + s, k, count, places);
    for (int64_t i = 0; i < count; i++)
        __builtin_prefetch(table + places[i]);
    for (int64_t i = 0; i < count; i++) {
        places[i] = table[places[i]];
        __builtin_prefetch(held->indices + places[i]);
        if (held->targets != NULL)
            __builtin_prefetch(held->targets + (size_t)places[i] * loader->target_nbytes);
    }
}

/* Shuffled samples are far apart: their bytes are asked for some samples ahead. */
static void ask_for(const tri_loader *loader, int64_t place)
{
    const unsigned char *stored = loader->held->samples + (size_t)place * loader->sample_nbytes;
    for (size_t at = 0; at < loader->sample_nbytes && at < AHEAD_NBYTES; at += LINE_NBYTES)
        __builtin_prefetch(stored + at);
}

/* What is wrong with a sample is reported when its batch is asked for. */
static void fault_note(tri_loader *loader, loader_slot *slot, tri_status status)
{
    tri_mutex_lock(&loader->fault);
    if (slot->status == TRI_OK)
        snprintf(slot->text, sizeof(slot->text), "%s", tri_last_error());
    slot->status = status;
    tri_mutex_unlock(&loader->fault);
}

/* Of a tile. */
typedef struct tile_room {
    float *unmoved;
    unsigned char *stored;
} tile_room;

/* A sample as stored becomes what the model gets. `stored` may be that of the room, where its window is cut out. */
static tri_status row_finish(const tri_loader *loader, int64_t epoch, int64_t index, const unsigned char *stored,
                             const tile_room *room, unsigned char *input)
{
    const tri_augment *augment = &loader->augment;
    float *out = (float *)(void *)input;
    if (!loader->augments) {
        tri_normalizer_apply(&loader->normalizer, stored, input);
        return TRI_OK;
    }
    if (augment->least_area > 0 && stored != room->stored) {
        const tri_image image = {augment->height, augment->width, (int)augment->channels, (uint8_t *)(uintptr_t)stored};
        const tri_image_fit fit = {.height = augment->height, .width = augment->width, .channels = image.channels};
        tri_image_window window;
        tri_augment_window(augment, epoch, index, image.height, image.width, &window);
        TRI_TRY(tri_image_fit_apply(&fit, &image, &window, room->stored));
        stored = room->stored;
    } else if (changes_bytes(augment) && stored != room->stored) {
        stored = memcpy(room->stored, stored, loader->sample_nbytes);
    }
    if (changes_bytes(augment))
        tri_augment_colors(augment, epoch, index, room->stored);
    tri_normalizer_apply(&loader->normalizer, stored, room->unmoved != NULL ? room->unmoved : out);
    if (room->unmoved != NULL)
        tri_augment_apply(augment, tri_augment_draw(augment, epoch, index), room->unmoved, loader->black, out);
    if (augment->erase > 0)
        tri_augment_erase(augment, epoch, index, out);
    return TRI_OK;
}

static void prepare_row(tri_loader *loader, loader_slot *slot, int64_t place, const tile_room *room,
                        unsigned char *input, unsigned char *target)
{
    const tri_held *held = loader->held;
    if (target != NULL)
        memcpy(target, held->targets + (size_t)place * loader->target_nbytes, loader->target_nbytes);
    if (input == NULL)
        return;
    tri_status status = row_finish(loader, slot->batch.epoch, held->indices[place],
                                   held->samples + (size_t)place * loader->sample_nbytes, room, input);
    if (status != TRI_OK)
        fault_note(loader, slot, status);
}

static tri_status row_fetch(tri_loader *loader, int64_t epoch, int64_t index, const tile_room *room,
                            unsigned char *input, unsigned char *target)
{
    TRI_TRY(loader->drawn->ops->fetch(loader->drawn, loader->augments ? &loader->augment : NULL, epoch,
                                      tri_dataset_place(loader->drawn, index), input != NULL ? room->stored : NULL,
                                      target));
    return input != NULL ? row_finish(loader, epoch, index, room->stored, room, input) : TRI_OK;
}

/* The k-th sample that shard s takes in the epoch. Returns which it is. */
static int64_t draw_row(tri_loader *loader, loader_slot *slot, int64_t s, int64_t k, const tile_room *room,
                        unsigned char *input, unsigned char *target)
{
    const tri_sampler *sampler = &loader->setup.sampler;
    const int64_t shard = loader->setup.first_shard + s, epoch = slot->batch.epoch;
    const int64_t index = tri_sampler_part_index(sampler, shard, tri_sampler_order(sampler, epoch, shard, k));
    tri_status status = fetches(loader) ? row_fetch(loader, epoch, index, room, input, target)
                                        : loader->drawn->ops->draw(loader->drawn, sampler->seed, epoch,
                                                                   tri_dataset_place(loader->drawn, index),
                                                                   (int32_t *)(void *)input, (int32_t *)(void *)target);
    if (status != TRI_OK)
        fault_note(loader, slot, status);
    return index;
}

typedef struct prepare_arg {
    tri_loader *loader;
    loader_slot *slot;
    int64_t in_epoch;   /* step */
    int64_t first_tile; /* of those that are prepared */
} prepare_arg;

/* Of a sample of the batch; NULL: nobody needs it. */
static unsigned char *input_at(const prepare_arg *v, int64_t row)
{
    return v->slot->input ? v->slot->input + (size_t)row * v->loader->input_nbytes : NULL;
}

static unsigned char *target_at(const prepare_arg *v, int64_t row)
{
    return v->slot->target ? v->slot->target + (size_t)row * v->loader->target_nbytes : NULL;
}

/* Rows of one shard of the batch, padding with them. */
static void prepare_tile(void *arg, int64_t number)
{
    const prepare_arg *v = arg;
    int64_t tile = v->first_tile + number;
    tri_loader *loader = v->loader;
    const tri_loader_setup *setup = &loader->setup;
    const int64_t each = tile_rows(loader);
    int64_t s = tile / shard_tiles(loader), first = tile % shard_tiles(loader) * each, rows = v->slot->rows[s];
    int64_t last = first + each < setup->rows_max ? first + each : setup->rows_max;
    int64_t k = v->in_epoch * tri_sampler_rows(&setup->sampler, setup->first_shard + s);
    const tile_room room = {
        .unmoved = loader->unmoved != NULL ? loader->unmoved + tile * loader->normalizer.count : NULL,
        .stored = loader->stored != NULL ? loader->stored + (size_t)tile * loader->sample_nbytes : NULL};
    int64_t place = s * setup->rows_max;
    int64_t valid = rows < first ? first : rows < last ? rows : last, places[TILE_ROWS + AHEAD_ROWS] = {0};
    uint64_t marks = 0;
    for (int64_t i = first; draws(loader) && i < valid; i++) {
        const int64_t index =
            draw_row(loader, v->slot, s, k + i, &room, input_at(v, place + i), target_at(v, place + i));
        marks = tri_sampler_marks_add(marks, tri_sampler_mark(index));
        if (v->slot->indices != NULL)
            v->slot->indices[place + i] = index;
    }
    if (!draws(loader) && valid > first) /* not behind a short batch */
        find_places(loader, v->slot->batch.epoch, s, k + first, valid - first, places);
    for (int64_t i = first; !draws(loader) && i < valid; i++) {
        if (keeps_input(loader))
            ask_for(loader, places[i - first + AHEAD_ROWS]);
        prepare_row(loader, v->slot, places[i - first], &room, input_at(v, place + i), target_at(v, place + i));
        marks = tri_sampler_marks_add(marks, tri_sampler_mark(loader->held->indices[places[i - first]]));
        if (v->slot->indices != NULL)
            v->slot->indices[place + i] = loader->held->indices[places[i - first]];
    }
    v->slot->marks[tile] = marks;
    size_t padding = (size_t)(last - valid);
    if (keeps_input(loader))
        memset(input_at(v, place + valid), 0, padding * loader->input_nbytes);
    if (keeps_target(loader))
        memset(target_at(v, place + valid), 0, padding * loader->target_nbytes);
}

/* Row i of a shard with n rows is mixed with row n - 1 - i, by what each of them draws. */
static void mix_pair(const prepare_arg *v, int64_t one, int64_t other)
{
    const tri_augment *augment = &v->loader->augment;
    tri_augment_mix drawn[2];
    for (int i = 0; i < 2; i++)
        drawn[i] = tri_augment_mix_draw(augment, v->slot->batch.epoch, v->slot->indices[i ? other : one]);
    if (v->slot->input != NULL)
        tri_augment_mix_apply(augment, drawn, (float *)(void *)input_at(v, one), (float *)(void *)input_at(v, other));
    if (v->slot->target == NULL)
        return;
    int32_t *targets = (int32_t *)(void *)v->slot->target;
    const int32_t first = targets[one], second = targets[other];
    targets[one] = tri_label_mix(first, second, drawn[0].share);
    targets[other] = tri_label_mix(second, first, drawn[1].share);
}

static void mix_tile(void *arg, int64_t number)
{
    const prepare_arg *v = arg;
    const int64_t tile = v->first_tile + number, tiles = shard_tiles(v->loader), s = tile / tiles;
    const int64_t rows = v->slot->rows[s], place = s * v->loader->setup.rows_max, each = tile_rows(v->loader);
    for (int64_t i = tile % tiles * each; i < (tile % tiles + 1) * each && i < rows / 2; i++)
        mix_pair(v, place + i, place + rows - 1 - i);
}

static void tiles_run(tri_loader *loader, int64_t tiles, void (*body)(void *arg, int64_t tile), prepare_arg *arg)
{
    const tri_loader_crew *crew = &loader->setup.crew;
    if (!loader->ahead && crew->run != NULL) {
        crew->run(crew->threads, tiles, body, arg);
    } else if (loader->workers != NULL) {
        tri_workers_run(loader->workers, tiles, body, arg);
    } else {
        for (int64_t tile = 0; tile < tiles; tile++)
            body(arg, tile);
    }
}

/* Of the shards [first, first + count) of this worker. */
static void prepare_shards(tri_loader *loader, int64_t step, int64_t first_shard, int64_t count, loader_slot *slot)
{
    const tri_loader_setup *setup = &loader->setup;
    const tri_sampler *sampler = &setup->sampler;
    int64_t steps = tri_sampler_steps(sampler), in_epoch = step % steps;
    int64_t left = sampler->count - in_epoch * sampler->batch;
    int64_t batch = left < sampler->batch ? left : sampler->batch;
    slot->status = TRI_OK;
    slot->batch.marks = 0;
    slot->batch.step = step;
    slot->batch.epoch = step / steps;
    for (int64_t s = 0; s < setup->shard_count; s++) {
        int64_t shard = setup->first_shard + s, full = tri_sampler_rows(sampler, shard);
        int64_t rest = loader->part_first[s + 1] - loader->part_first[s] - in_epoch * full;
        slot->rows[s] = (int32_t)(rest < full ? rest : full);
        /* the short batch is cut as its samples are among the parts */
        int64_t before = (int64_t)((__int128)shard * sampler->batch / sampler->shards);
        slot->first_sample[s] = (int64_t)((__int128)batch * before / sampler->batch);
    }
    if (skips_all(loader))
        return;
    if (loader->device)
        tri_twin_await(loader->device, &slot->twin);
    prepare_arg arg = {loader, slot, in_epoch, first_shard * shard_tiles(loader)};
    int64_t tiles = count * shard_tiles(loader);
    tiles_run(loader, tiles, prepare_tile, &arg);
    if (mixes(loader))
        tiles_run(loader, tiles, mix_tile, &arg);
    for (int64_t tile = 0; tile < tiles; tile++)
        slot->batch.marks = tri_sampler_marks_add(slot->batch.marks, slot->marks[arg.first_tile + tile]);
    const size_t row = (size_t)(first_shard * setup->rows_max), rows = (size_t)(count * setup->rows_max);
    if (loader->device)
        tri_twin_fill(loader->device, &slot->twin, &slot->batch,
                      (tri_twin_part){row * loader->input_nbytes, rows * loader->input_nbytes},
                      (tri_twin_part){row * loader->target_nbytes, rows * loader->target_nbytes});
}

static void prepare_batch(tri_loader *loader, int64_t step, loader_slot *slot)
{
    prepare_shards(loader, step, 0, loader->setup.shard_count, slot);
}

static void thread_body(void *arg)
{
    tri_loader *loader = arg;
    int64_t total = loader->setup.end_step - loader->setup.first_step;
    tri_mutex_lock(&loader->mutex);
    while (!loader->stop && loader->made < total) {
        if (loader->made - loader->taken >= loader->slot_count - 1) {
            tri_cond_wait(&loader->moved, &loader->mutex, TRI_FOREVER);
            continue;
        }
        int64_t number = loader->made;
        tri_mutex_unlock(&loader->mutex);
        prepare_batch(loader, loader->setup.first_step + number, &loader->slots[number % loader->slot_count]);
        tri_mutex_lock(&loader->mutex);
        loader->made += loader->made == number; /* else it was sought further on */
        tri_cond_broadcast(&loader->moved);
    }
    tri_mutex_unlock(&loader->mutex);
}

/* Besides the thread that prepares batches. */
static int helper_count(const tri_loader *loader, const tri_data_config *config)
{
    const int64_t tiles = tile_count(loader);
    const int threads = config->threads > 0 ? (int)config->threads : loader->setup.crew.free_cores;
    return threads < 2 ? 0 : threads <= tiles ? threads - 1 : (int)tiles - 1;
}

static tri_status build(tri_loader *loader, tri_dataset *dataset, const tri_data_config *config)
{
    const tri_dataset_info *info = &dataset->info;
    if (dataset->ops->draw != NULL || dataset->ops->fetch != NULL) {
        tri_dataset_hold(dataset);
        loader->drawn = dataset;
    }
    TRI_TRY(tri_normalizer_init(&loader->normalizer, info, config));
    loader->sample_nbytes = (size_t)loader->normalizer.count * tri_dtype_nbytes(info->dtype);
    loader->input_nbytes = (size_t)loader->normalizer.count * tri_dtype_nbytes(loader->normalizer.to);
    loader->target_nbytes = (size_t)tri_shape_count(info->target) * tri_dtype_nbytes(info->target_dtype);
    TRI_TRY(plan_augment(loader, info, config));
    TRI_TRY(plan_stored(loader));
    TRI_TRY(plan_parts(loader));
    if (!draws(loader) && !skips_all(loader))
        TRI_TRY(tri_held_change(loader->held, dataset, &loader->normalizer, &loader->setup));
    TRI_TRY(make_slots(loader, config));
    if (fetches(loader) && loader->ahead)
        TRI_TRY(tri_workers_open(helper_count(loader, config), &loader->workers));
    return loader->ahead ? tri_thread_start(&loader->thread, TRI_LOADER_THREAD, thread_body, loader) : TRI_OK;
}

tri_status tri_loader_open(tri_dataset *dataset, const tri_data_config *config, const tri_loader_setup *setup,
                           tri_loader **out)
{
    *out = NULL;
    TRI_TRY(check_setup(dataset, setup));
    tri_loader *loader = tri_alloc_zero(1, sizeof(*loader));
    if (loader == NULL)
        return TRI_ENOMEM;
    loader->setup = *setup;
    loader->held = setup->held != NULL ? setup->held : &loader->own;
    loader->device = setup->device && !tri_device_shares_host(setup->device) ? setup->device : NULL;
    tri_mutex_init(&loader->fault);
    tri_mutex_init(&loader->mutex);
    tri_cond_init(&loader->moved);
    tri_status status = build(loader, dataset, config);
    if (status != TRI_OK) {
        tri_loader_close(loader);
        return status;
    }
    *out = loader;
    return TRI_OK;
}

/* For how long the caller waited and could have gone on. Slices are short: who wakes long after the end of one was
 * stopped, or had no core. */
static int64_t made_await(tri_loader *loader)
{
    int64_t waited_ns = 0;
    while (loader->made == loader->taken) {
        const int64_t from_ns = tri_now_ns(), due_ns = tri_deadline_after_ms(SLICE_MS);
        (void)tri_cond_wait(&loader->moved, &loader->mutex, due_ns);
        const int64_t now_ns = tri_now_ns();
        waited_ns += (now_ns < due_ns ? now_ns : due_ns) - from_ns;
    }
    return waited_ns;
}

tri_status tri_loader_next(tri_loader *loader, tri_loader_batch *batch)
{
    int64_t total = loader->setup.end_step - loader->setup.first_step;
    tri_mutex_lock(&loader->mutex);
    if (loader->taken == total) {
        tri_mutex_unlock(&loader->mutex);
        return tri_fail(TRI_ENOTFOUND, "loader: no batch after step %" PRId64, loader->setup.end_step - 1);
    }
    const int64_t cpu_ns = tri_thread_cpu_ns();
    slot_return(loader);
    if (!loader->ahead) {
        prepare_batch(loader, loader->setup.first_step + loader->made,
                      &loader->slots[loader->made % loader->slot_count]);
        loader->made++;
    }
    const int64_t prepared_ns = tri_thread_cpu_ns() - cpu_ns, waited_ns = made_await(loader);
    loader_slot *slot = &loader->slots[loader->taken % loader->slot_count];
    slot_lend(loader, slot);
    *batch = slot->batch;
    batch->waited_ns = waited_ns;
    batch->prepared_ns = prepared_ns;
    tri_status status = slot->status == TRI_OK ? TRI_OK : tri_fail_copy(slot->status, slot->text);
    loader->taken++;
    tri_cond_broadcast(&loader->moved);
    tri_mutex_unlock(&loader->mutex);
    return status;
}

void tri_loader_seek(tri_loader *loader, int64_t step)
{
    int64_t number = step - loader->setup.first_step;
    tri_mutex_lock(&loader->mutex);
    TRI_ASSERT(number >= loader->taken);
    slot_return(loader); /* its thread may fill that one next */
    loader->taken = number;
    if (loader->made < number)
        loader->made = number;
    tri_cond_broadcast(&loader->moved);
    tri_mutex_unlock(&loader->mutex);
}

tri_status tri_loader_part(tri_loader *loader, int64_t step, int64_t first, int64_t count, tri_loader_batch *batch)
{
    loader_slot *slot = &loader->slots[loader->parts_taken++ % loader->slot_count];
    TRI_ASSERT(!loader->ahead && first >= 0 && count >= 1 && first + count <= loader->setup.shard_count);
    const int64_t cpu_ns = tri_thread_cpu_ns();
    slot_return(loader);
    prepare_shards(loader, step, first, count, slot);
    slot_lend(loader, slot);
    *batch = slot->batch;
    batch->prepared_ns = tri_thread_cpu_ns() - cpu_ns;
    batch->shards = (int)count;
    batch->rows += first;
    batch->first_sample += first;
    int64_t row = first * loader->setup.rows_max;
    if (batch->input)
        batch->input = slot->input + (size_t)row * loader->input_nbytes;
    if (batch->target)
        batch->target = slot->target + (size_t)row * loader->target_nbytes;
    if (loader->device)
        tri_twin_shift(batch, (size_t)row * loader->input_nbytes, (size_t)row * loader->target_nbytes);
    return slot->status == TRI_OK ? TRI_OK : tri_fail_copy(slot->status, slot->text);
}

size_t tri_loader_nbytes(const tri_loader *loader)
{
    const tri_held *held = loader->held;
    return (size_t)held->count *
           ((held->samples ? held->sample_nbytes : 0) + (held->targets ? held->target_nbytes : 0));
}

void tri_loader_close(tri_loader *loader)
{
    if (loader == NULL)
        return;
    tri_mutex_lock(&loader->mutex);
    loader->stop = true;
    tri_cond_broadcast(&loader->moved);
    tri_mutex_unlock(&loader->mutex);
    tri_thread_join(loader->thread);
    tri_workers_close(loader->workers);
    for (int64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        tri_free(loader->slots[i].rows);
        tri_free(loader->slots[i].first_sample);
        tri_free(loader->slots[i].marks);
        tri_free(loader->slots[i].indices);
        tri_device_host_free(copier_of(loader), loader->slots[i].input);
        tri_device_host_free(copier_of(loader), loader->slots[i].target);
        if (loader->device)
            tri_twin_free(loader->device, &loader->slots[i].twin);
    }
    tri_dataset_close(loader->drawn);
    tri_free(loader->slots);
    tri_held_fini(&loader->own);
    tri_free(loader->part_first);
    tri_free(loader->black);
    tri_free(loader->unmoved);
    tri_free(loader->stored);
    tri_cond_fini(&loader->moved);
    tri_mutex_fini(&loader->mutex);
    tri_mutex_fini(&loader->fault);
    tri_free(loader);
}
