/* SPDX-License-Identifier: Apache-2.0
 *
 * images.c: a folder of image files as a data set: each sample is decoded when a batch needs it, by the thread that
 * prepares the batch.
 *
 * Decoded samples are kept in memory where all of them fit data.cache_mib; pages of samples that this process never
 * reads take no memory. A sample is a pure function of its file and the options. Files whose header is wrong are found
 * in open; with data.broken=skip a file that breaks later is replaced by the next one of its class.
 */
#include "data/images/images.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/fs.h"
#include "base/log.h"
#include "data/augment.h"
#include "data/formats.h"
#include "data/shards.h"
#include "data/workers.h"

#define HEADS_LIMIT   100000 /* above, heads are read with the samples: opening a set of millions takes seconds then */
#define DIGEST_COUNT  INT64_C(64)
#define WARNING_LIMIT 20
#define BROKEN        "a broken image (data.broken=skip continues without; trireme data inspect names all of them)"

enum { CACHE_EMPTY, CACHE_FILLING, CACHE_FULL };

typedef struct images_dataset {
    tri_dataset base;
    tri_image_folder folder;
    tri_image_fit fit;
    tri_image_counts counts;
    tri_vector broken;     /* char *: "path: reason" of files that were left out */
    tri_arena arena;       /* of names that the model gave, of broken */
    int64_t *numbers;      /* [classes of the folder] what each is to the model */
    bool skips;            /* data.broken */
    char order[96];        /* "; shuffled in ...", where that is said */
    size_t cache_limit;    /* bytes */
    tri_mutex mutex;       /* guards the allocation of the cache, and `warned` */
    atomic_bool cached;    /* the two below are there, or will never be */
    unsigned char *pixels; /* [count] samples; NULL: no cache */
    atomic_uchar *states;  /* [count] */
    int warned;            /* files that broke while they were decoded */
} images_dataset;

static images_dataset *images_of(tri_dataset *dataset)
{
    return tri_container_of(dataset, images_dataset, base);
}

static const tri_image_file *file_at(const images_dataset *images, int64_t index)
{
    return tri_vector_at(&images->folder.files, (size_t)index);
}

static bool images_can(const tri_data_config *config)
{
    return tri_image_folder_is(config->path);
}

/* --- opening --- */

static tri_status broken_add(images_dataset *images, const char *text)
{
    char *copy = tri_arena_strdup(&images->arena, text);
    return copy != NULL && tri_vector_push(&images->broken, &copy) ? TRI_OK : TRI_ENOMEM;
}

/* Without data.image_size all images have the size of the first. */
static tri_status size_check(images_dataset *images, const char *path, const tri_image_head *head, char **first)
{
    tri_image_fit *fit = &images->fit;
    if (*first == NULL && (*first = tri_strdup(path)) == NULL)
        return TRI_ENOMEM;
    if (fit->height == 0) {
        fit->height = head->height;
        fit->width = head->width;
    }
    if (fit->height == head->height && fit->width == head->width)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG,
                    "data.image_size: images of several sizes need one that samples have (such as 224): %s is %" PRId64
                    " x %" PRId64 " and %s is %" PRId64 " x %" PRId64 " pixels",
                    *first, fit->width, fit->height, path, head->width, head->height);
}

static void head_count(tri_image_counts *counts, const tri_image_head *head)
{
    const bool first = counts->heads++ == 0;
    counts->jpeg += head->format == &tri_image_jpeg;
    counts->png += head->format == &tri_image_png;
    counts->webp += head->format == &tri_image_webp;
    if (first || head->height < counts->least_height)
        counts->least_height = head->height;
    if (first || head->width < counts->least_width)
        counts->least_width = head->width;
    if (head->height > counts->most_height)
        counts->most_height = head->height;
    if (head->width > counts->most_width)
        counts->most_width = head->width;
}

static tri_status head_read(images_dataset *images, const tri_image_file *file, bool sized, char **first, bool *good)
{
    tri_image_head head;
    tri_image_place place;
    TRI_TRY(tri_image_folder_place(&images->folder, file, &place));
    tri_status status = tri_image_head_read(&place, &head);
    *good = status == TRI_OK;
    if (status == TRI_OK) {
        head_count(&images->counts, &head);
        status = sized ? TRI_OK : size_check(images, tri_image_place_name(&place), &head, first);
    } else if (status == TRI_EFORMAT && images->skips) {
        status = broken_add(images, tri_last_error());
    } else if (status == TRI_EFORMAT) {
        status = tri_fail_context(status, BROKEN);
    }
    tri_free(place.path);
    return status;
}

/* Leaves broken files out, or says which is the first one. */
static tri_status heads_read(images_dataset *images)
{
    tri_vector *files = &images->folder.files;
    const bool sized = images->fit.height > 0;
    char *first = NULL;
    size_t kept = 0;
    tri_status status = TRI_OK;
    if (sized && files->count > HEADS_LIMIT)
        return TRI_OK;
    for (size_t i = 0; i < files->count && status == TRI_OK; i++) {
        bool good = false;
        const tri_image_file file = *(const tri_image_file *)tri_vector_at(files, i);
        status = head_read(images, &file, sized, &first, &good);
        if (good)
            *(tri_image_file *)tri_vector_at(files, kept++) = file;
    }
    files->count = kept;
    tri_free(first);
    return status;
}

static tri_status plan_classes(images_dataset *images, const tri_data_config *config)
{
    tri_dataset_info *info = &images->base.info;
    const int64_t found = (int64_t)images->folder.classes.count;
    if (config->classes < 0)
        return tri_fail(TRI_ECONFIG, "data.classes: -1 is for real targets, and the images of %s have classes",
                        config->path);
    TRI_TRY(tri_target_plan(info, config, config->path, TRI_I32, found));
    if (info->classes < found)
        return tri_fail(TRI_ECONFIG, "data.classes: %s has %" PRId64 " classes, want at least as many, got %" PRId64,
                        config->path, found, info->classes);
    images->numbers = tri_alloc((size_t)found * sizeof(int64_t));
    if (images->numbers == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < found; i++)
        images->numbers[i] = i;
    images->base.names = (tri_class_names){images->folder.classes.items, found};
    return TRI_OK;
}

static tri_status plan(images_dataset *images, const tri_data_config *config, tri_data_part part)
{
    tri_dataset_info *info = &images->base.info;
    TRI_TRY(tri_image_fit_read(config, &images->fit));
    TRI_TRY(images->base.ops == &tri_dataset_webdataset ? tri_image_tar_open(config, part, &images->folder)
                                                        : tri_image_folder_open(config, part, &images->folder));
    TRI_TRY(plan_classes(images, config));
    images->skips = config->broken == TRI_BROKEN_SKIP;
    images->cache_limit = (size_t)config->cache_mib << 20;
    for (size_t i = 0; i < images->folder.broken.count; i++)
        TRI_TRY(broken_add(images, *(const char **)tri_vector_at(&images->folder.broken, i)));
    const size_t listed = images->folder.files.count;
    TRI_TRY(heads_read(images));
    info->count = (int64_t)images->folder.files.count;
    if (info->count == 0 && listed > 0)
        return tri_fail(TRI_EFORMAT, "%s: all %zu images are broken; the first: %s", config->path, listed,
                        *(char **)tri_vector_at(&images->broken, 0));
    if (images->fit.height == 0) /* there is no image */
        images->fit.height = images->fit.width = 1;
    info->sample = tri_shape_make(3, (const int64_t[]){images->fit.height, images->fit.width, images->fit.channels});
    info->dtype = TRI_U8;
    info->decoders = tri_image_decoders();
    if (images->folder.tars > 0 && config->shuffle && config->shuffle_block > 1 && info->count > config->shuffle_buffer)
        snprintf(images->order, sizeof(images->order),
                 "; shuffled in blocks of %" PRId64 " and among %" PRId64 " samples of them", config->shuffle_block,
                 config->shuffle_buffer);
    return TRI_OK;
}

static void images_close(tri_dataset *dataset)
{
    images_dataset *images = images_of(dataset);
    tri_image_folder_fini(&images->folder);
    tri_vector_fini(&images->broken);
    tri_arena_fini(&images->arena);
    tri_free(images->numbers);
    tri_free(images->pixels);
    tri_free(images->states);
    tri_mutex_fini(&images->mutex);
    tri_free(images);
}

static tri_status open_as(const tri_dataset_ops *ops, const tri_data_config *config, tri_data_part part,
                          tri_dataset **out)
{
    images_dataset *images = tri_alloc_zero(1, sizeof(*images));
    if (images == NULL)
        return TRI_ENOMEM;
    images->base.ops = ops;
    images->broken.each = sizeof(char *);
    tri_mutex_init(&images->mutex);
    tri_status status = plan(images, config, part);
    if (status != TRI_OK) {
        images_close(&images->base);
        return status;
    }
    *out = &images->base;
    return TRI_OK;
}

static tri_status images_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    return open_as(&tri_dataset_images, config, part, out);
}

static tri_status webdataset_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    return open_as(&tri_dataset_webdataset, config, part, out);
}

static bool webdataset_can(const tri_data_config *config)
{
    return tri_shards_can(config->path, ".tar");
}

static tri_status images_rename(tri_dataset *dataset, const tri_class_names *names)
{
    images_dataset *images = images_of(dataset);
    tri_class_names own;
    for (size_t i = 0; i < images->folder.classes.count; i++) {
        const char *class = *(const char **)tri_vector_at(&images->folder.classes, i);
        int64_t number = 0;
        while (number < names->count && strcmp(names->texts[number], class) != 0)
            number++;
        if (number == names->count)
            return tri_fail(TRI_EFORMAT,
                            "%s: the class '%.40s' is none of the %" PRId64 " classes that the model was trained on",
                            images->folder.root, class, names->count);
        images->numbers[i] = number;
    }
    TRI_TRY(tri_class_names_copy(&images->arena, names, &own));
    dataset->names = own;
    if (dataset->info.classes < names->count)
        dataset->info.classes = names->count;
    return TRI_OK;
}

static tri_status images_classes(tri_dataset *dataset, int32_t *classes)
{
    const images_dataset *images = images_of(dataset);
    for (int64_t i = 0; i < dataset->info.count; i++)
        classes[i] = (int32_t)images->numbers[file_at(images, i)->class];
    return TRI_OK;
}

/* --- samples --- */

/* Decodes a file to a sample. augment NULL: as it is. */
static tri_status file_decode(const images_dataset *images, int64_t file, const tri_augment *augment, int64_t epoch,
                              int64_t index, uint8_t *sample)
{
    tri_image image;
    tri_image_window window;
    tri_image_place place;
    TRI_TRY(tri_image_folder_place(&images->folder, file_at(images, file), &place));
    tri_status status = tri_image_read(&place, images->fit.channels, &image);
    if (status == TRI_ENOTFOUND)
        status = tri_fail_context(status, "a file of the data set is gone");
    tri_free(place.path);
    TRI_TRY(status);
    if (augment != NULL)
        tri_augment_window(augment, epoch, index, image.height, image.width, &window);
    status = tri_image_fit_apply(&images->fit, &image, augment != NULL ? &window : NULL, sample);
    tri_free(image.pixels);
    return status;
}

static void broken_warn(images_dataset *images)
{
    tri_mutex_lock(&images->mutex);
    if (++images->warned <= WARNING_LIMIT)
        tri_log(TRI_LOG_WARN, "data.broken=skip: another image of the class stands in for %s%s", tri_last_error(),
                images->warned == WARNING_LIMIT ? " (further ones are not named)" : "");
    tri_mutex_unlock(&images->mutex);
}

static tri_status sample_decode(images_dataset *images, const tri_augment *augment, int64_t epoch, int64_t index,
                                uint8_t *sample)
{
    const int64_t count = (int64_t)images->folder.files.count, class = file_at(images, index)->class;
    tri_status status = file_decode(images, index, augment, epoch, index, sample);
    if (status != TRI_EFORMAT)
        return status;
    if (!images->skips)
        return tri_fail_context(status, BROKEN);
    broken_warn(images);
    for (int64_t i = 1; i < count; i++) {
        const int64_t other = (index + i) % count;
        if (file_at(images, other)->class != class)
            continue;
        status = file_decode(images, other, augment, epoch, index, sample);
        if (status != TRI_EFORMAT)
            return status;
    }
    return status;
}

static size_t sample_nbytes(const images_dataset *images)
{
    return (size_t)tri_shape_count(images->base.info.sample);
}

/* Once; without memory there is none. */
static void cache_open(images_dataset *images)
{
    const size_t count = images->folder.files.count, each = sample_nbytes(images);
    if (atomic_load_explicit(&images->cached, memory_order_acquire))
        return;
    tri_mutex_lock(&images->mutex);
    if (!atomic_load_explicit(&images->cached, memory_order_relaxed)) {
        if (count <= images->cache_limit / each) {
            images->states = tri_alloc_zero(count, sizeof(*images->states));
            images->pixels = images->states != NULL ? tri_alloc_bulk(count * each) : NULL;
        }
        atomic_store_explicit(&images->cached, true, memory_order_release);
    }
    tri_mutex_unlock(&images->mutex);
}

/* The sample without augmentation. */
static tri_status sample_plain(images_dataset *images, int64_t index, uint8_t *sample)
{
    const size_t each = sample_nbytes(images);
    cache_open(images);
    if (images->pixels == NULL)
        return sample_decode(images, NULL, 0, index, sample);
    atomic_uchar *state = &images->states[index];
    unsigned char *kept = images->pixels + (size_t)index * each, found = CACHE_EMPTY;
    if (atomic_load_explicit(state, memory_order_acquire) == CACHE_FULL) {
        memcpy(sample, kept, each);
        return TRI_OK;
    }
    TRI_TRY(sample_decode(images, NULL, 0, index, sample));
    if (!atomic_compare_exchange_strong(state, &found, CACHE_FILLING))
        return TRI_OK; /* another thread keeps it */
    memcpy(kept, sample, each);
    atomic_store_explicit(state, CACHE_FULL, memory_order_release);
    return TRI_OK;
}

static tri_status images_fetch(tri_dataset *dataset, const tri_augment *augment, int64_t epoch, int64_t index,
                               void *sample, void *target)
{
    images_dataset *images = images_of(dataset);
    if (target != NULL) {
        const int32_t class = (int32_t)images->numbers[file_at(images, index)->class];
        memcpy(target, &class, sizeof(class));
    }
    if (sample == NULL)
        return TRI_OK;
    if (augment != NULL && augment->least_area > 0)
        return sample_decode(images, augment, epoch, index, sample);
    return sample_plain(images, index, sample);
}

/* --- what tells it from others --- */

static tri_status file_hash(const images_dataset *images, const tri_image_file *file, uint64_t *hash)
{
    tri_image_place place;
    const int64_t number = images->numbers[file->class];
    TRI_TRY(tri_image_folder_place(&images->folder, file, &place));
    uint64_t nbytes = place.nbytes;
    tri_status status = nbytes > 0 ? TRI_OK : tri_fs_nbytes(place.path, &nbytes);
    tri_free(place.path);
    TRI_TRY(status);
    *hash = file->nbytes > 0 ? XXH3_64bits_withSeed(&file->hash, sizeof(file->hash), *hash)
                             : XXH3_64bits_withSeed(file->path, strlen(file->path), *hash);
    *hash = XXH3_64bits_withSeed(&nbytes, sizeof(nbytes), *hash);
    *hash = XXH3_64bits_withSeed(&number, sizeof(number), *hash);
    return TRI_OK;
}

/* Names, lengths and classes of all files, pixels of some. */
static tri_status images_identify(tri_dataset *dataset, uint64_t hashes[2])
{
    images_dataset *images = images_of(dataset);
    const int64_t count = dataset->info.count, looked = count < DIGEST_COUNT ? count : DIGEST_COUNT;
    const size_t each = sample_nbytes(images);
    uint8_t *sample = tri_alloc(each);
    tri_status status = sample != NULL ? TRI_OK : TRI_ENOMEM;
    hashes[0] = hashes[1] = 0;
    for (int64_t i = 0; i < count && status == TRI_OK; i++)
        status = file_hash(images, file_at(images, i), &hashes[1]);
    for (int64_t i = 0; i < looked && status == TRI_OK; i++) {
        const int64_t index = looked > 1 ? (int64_t)((__int128)i * (count - 1) / (looked - 1)) : 0;
        status = sample_plain(images, index, sample);
        if (status == TRI_OK)
            hashes[0] = XXH3_64bits_withSeed(sample, each, hashes[0]);
    }
    tri_free(sample);
    return status;
}

/* --- what is known of it --- */

bool tri_images_is(const tri_dataset *dataset)
{
    return dataset->ops == &tri_dataset_images || dataset->ops == &tri_dataset_webdataset;
}

const tri_image_counts *tri_images_counts(const tri_dataset *dataset)
{
    return &images_of((tri_dataset *)(uintptr_t)dataset)->counts;
}

const tri_image_folder *tri_images_folder(const tri_dataset *dataset)
{
    return &images_of((tri_dataset *)(uintptr_t)dataset)->folder;
}

const char *const *tri_images_broken(const tri_dataset *dataset, int64_t *count)
{
    const images_dataset *images = images_of((tri_dataset *)(uintptr_t)dataset);
    *count = (int64_t)images->broken.count;
    return images->broken.items;
}

/* " of 29 x 41 to 64 x 64 pixels" */
static tri_status sizes_print(const tri_image_counts *counts, tri_string *out)
{
    if (counts->heads == 0)
        return TRI_OK;
    TRI_TRY(tri_string_appendf(out, " of %" PRId64 " x %" PRId64, counts->least_width, counts->least_height));
    if (counts->least_width != counts->most_width || counts->least_height != counts->most_height)
        TRI_TRY(tri_string_appendf(out, " to %" PRId64 " x %" PRId64, counts->most_width, counts->most_height));
    return tri_string_append(out, " pixels");
}

static tri_status images_describe(const tri_dataset *dataset, tri_string *out)
{
    const images_dataset *images = images_of((tri_dataset *)(uintptr_t)dataset);
    const tri_image_fit *fit = &images->fit;
    TRI_TRY(tri_string_appendf(out, "%" PRId64 " images", dataset->info.count));
    TRI_TRY(sizes_print(&images->counts, out));
    TRI_TRY(tri_string_appendf(out, " in %" PRId64 " classes ", dataset->info.classes));
    if (images->folder.tars > 0)
        TRI_TRY(tri_string_appendf(out, "in %" PRId64 " tar files of %s", images->folder.tars, images->folder.root));
    else
        TRI_TRY(tri_string_appendf(out, "below %s", images->folder.root));
    TRI_TRY(tri_string_appendf(out, "; samples of %" PRId64 " x %" PRId64 " %s", fit->width, fit->height,
                               fit->channels == 3 ? "RGB" : "gray"));
    TRI_TRY(
        tri_string_append(out, fit->exact ? ", each side scaled by its own factor" : ", shorter side scaled, middle"));
    if (images->order[0] != 0)
        TRI_TRY(tri_string_append(out, images->order));
    if (images->broken.count > 0)
        TRI_TRY(tri_string_appendf(out, "; %zu broken files left out, the first: %s", images->broken.count,
                                   *(char **)tri_vector_at(&images->broken, 0)));
    return TRI_OK;
}

typedef struct check_state {
    images_dataset *images;
    char **reasons;    /* [count] NULL: the file is good */
    tri_status status; /* of what is no matter of a file; guarded by the data set's mutex */
} check_state;

static void file_check(void *arg, int64_t index)
{
    check_state *state = arg;
    tri_image image = {0};
    tri_image_place place;
    tri_status status = tri_image_folder_place(&state->images->folder, file_at(state->images, index), &place);
    if (status == TRI_OK)
        status = tri_image_read(&place, state->images->fit.channels, &image);
    if (status == TRI_EFORMAT && (state->reasons[index] = tri_strdup(tri_last_error())) == NULL)
        status = TRI_ENOMEM;
    tri_free(image.pixels);
    tri_free(place.path);
    if (status == TRI_OK || status == TRI_EFORMAT)
        return;
    tri_mutex_lock(&state->images->mutex);
    state->status = status;
    tri_mutex_unlock(&state->images->mutex);
}

tri_status tri_images_check(tri_dataset *dataset, int threads)
{
    images_dataset *images = images_of(dataset);
    const int64_t count = (int64_t)images->folder.files.count;
    tri_workers *workers = NULL;
    check_state state = {.images = images, .reasons = tri_alloc_zero((size_t)count + 1, sizeof(char *))};
    tri_status status = state.reasons != NULL ? tri_workers_open(threads - 1, &workers) : TRI_ENOMEM;
    if (status == TRI_OK) {
        tri_workers_run(workers, count, file_check, &state);
        status = state.status;
    }
    tri_workers_close(workers);
    for (int64_t i = 0; state.reasons != NULL && i < count; i++) {
        if (status == TRI_OK && state.reasons[i] != NULL)
            status = broken_add(images, state.reasons[i]);
        tri_free(state.reasons[i]);
    }
    tri_free(state.reasons);
    return status;
}

const tri_dataset_ops tri_dataset_images = {
    .name = "images",
    .does = "a folder with one sub-folder of JPEG, PNG or WebP images per class, also below train/ and val/ or test/",
    .can = images_can,
    .has = tri_image_folder_has,
    .splits = true,
    .open = images_open,
    .classes = images_classes,
    .fetch = images_fetch,
    .identify = images_identify,
    .describe = images_describe,
    .rename = images_rename,
    .close = images_close,
};

const tri_dataset_ops tri_dataset_webdataset = {
    .name = "webdataset",
    .does = "tar files of images and labels (WebDataset): a file, a folder, or a pattern such as train-{000..099}.tar",
    .can = webdataset_can,
    .has = tri_image_tar_has,
    .splits = true,
    .streams = true,
    .open = webdataset_open,
    .classes = images_classes,
    .fetch = images_fetch,
    .identify = images_identify,
    .describe = images_describe,
    .rename = images_rename,
    .close = images_close,
};
