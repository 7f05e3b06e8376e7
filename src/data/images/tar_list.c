/* SPDX-License-Identifier: Apache-2.0
 *
 * tar_list.c: the images of tar files as the files of a folder of classes (folder.h). Only their places are in memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/images/folder.h"
#include "data/shards.h"
#include "data/tables/table.h"
#include "data/tar/samples.h"

#define ENDING       ".tar"
#define CLASSES_MOST 100000

/* The option that names the label in a .json; "": none does. */
static tri_status field_read(const tri_data_config *config, tri_arena *arena, const char **out)
{
    tri_vector names = {.each = sizeof(char *)};
    tri_status status = tri_table_list_read(arena, config->target, "data.target", &names);
    *out = names.count > 0 ? *(const char **)tri_vector_at(&names, 0) : "";
    if (status == TRI_OK && names.count > 1)
        status = tri_fail(TRI_ECONFIG, "data.target: want one field of the .json that holds the label, got %zu",
                          names.count);
    tri_vector_fini(&names);
    return status;
}

/* --- classes --- */

static bool number_of(const char *label, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(label, &end, 10);
    return end != label && *end == 0 && errno == 0 && label[0] >= '0' && label[0] <= '9' && *number >= 0;
}

static tri_status numbers_name(tri_image_folder *folder, int64_t most)
{
    if (most >= CLASSES_MOST)
        return tri_fail(TRI_EFORMAT, "%s: the label %" PRId64 " is too large for a class: want at most %d",
                        folder->root, most, CLASSES_MOST - 1);
    for (int64_t i = 0; i <= most; i++) {
        const char *name = tri_arena_format(&folder->arena, "%" PRId64, i);
        if (name == NULL || tri_vector_push(&folder->classes, &name) == NULL)
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The classes of all labels; `found` holds each label once. */
static tri_status classes_make(tri_image_folder *folder, const tri_vector *found)
{
    int64_t most = -1, number;
    bool whole = found->count > 0;
    for (size_t i = 0; i < found->count && whole; i++) {
        whole = number_of(*(const char **)tri_vector_at(found, i), &number);
        most = number > most ? number : most;
    }
    if (whole)
        return numbers_name(folder, most);
    if (found->count > CLASSES_MOST)
        return tri_fail(TRI_EFORMAT, "%s: %zu different labels: want classes, at most %d", folder->root, found->count,
                        CLASSES_MOST);
    for (size_t i = 0; i < found->count; i++)
        if (tri_vector_push(&folder->classes, tri_vector_at(found, i)) == NULL)
            return TRI_ENOMEM;
    qsort(folder->classes.items, folder->classes.count, sizeof(char *), compare_texts);
    return TRI_OK;
}

/* --- samples --- */

typedef struct tar_listing {
    const tri_data_config *config;
    const char *field;
    tri_image_folder *folder;
    tri_map places;    /* label -> its place in `labels` */
    tri_vector labels; /* const char *: each once */
} tar_listing;

static tri_status label_place(tar_listing *listing, const char *label, int64_t *place)
{
    if (tri_map_find(&listing->places, label, place))
        return TRI_OK;
    const char *copy = tri_arena_strdup(&listing->folder->arena, label);
    *place = (int64_t)listing->labels.count;
    return copy != NULL && tri_vector_push(&listing->labels, &copy) != NULL
               ? tri_map_set(&listing->places, label, *place)
               : TRI_ENOMEM;
}

static tri_status sample_lacks(tar_listing *listing, const char *path, const tri_tar_sample *sample)
{
    const bool refuses = listing->config->broken == TRI_BROKEN_REFUSE;
    const char *lacks = sample->nbytes == 0      ? "image (.jpg, .jpeg, .png or .webp)"
                        : listing->field[0] == 0 ? "label (.cls, .json or .txt)"
                                                 : "label in a .json with the field of data.target";
    const char *text = tri_arena_format(&listing->folder->arena, "%s: byte %" PRIu64 ": the sample has no %s", path,
                                        sample->at, lacks);
    if (text == NULL)
        return TRI_ENOMEM;
    if (refuses)
        return tri_fail(TRI_EFORMAT, "%s (data.broken=skip continues without)", text);
    return tri_vector_push(&listing->folder->broken, &text) != NULL ? TRI_OK : TRI_ENOMEM;
}

/* The class of a file is the place of its label; classes_number() makes it that of the class. */
static tri_status shard_list(tar_listing *listing, const char *shard)
{
    tri_tar_samples samples;
    const char *path = tri_arena_strdup(&listing->folder->arena, shard);
    if (path == NULL)
        return TRI_ENOMEM;
    TRI_TRY(tri_tar_samples_load(path, listing->config->index, listing->field, &samples));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < samples.items.count && status == TRI_OK; i++) {
        const tri_tar_sample *sample = tri_vector_at(&samples.items, i);
        tri_image_file file = {.path = path, .hash = sample->hash, .at = sample->at, .nbytes = sample->nbytes};
        if (sample->nbytes == 0 || sample->label[0] == 0) {
            status = sample_lacks(listing, path, sample);
            continue;
        }
        status = label_place(listing, sample->label, &file.class);
        if (status == TRI_OK && tri_vector_push(&listing->folder->files, &file) == NULL)
            status = TRI_ENOMEM;
    }
    listing->folder->other_files += samples.others;
    tri_tar_samples_fini(&samples);
    return status;
}

static tri_status shards_list(tar_listing *listing, const tri_shards *shards)
{
    for (size_t i = 0; i < shards->paths.count; i++)
        TRI_TRY(shard_list(listing, *(char **)tri_vector_at(&shards->paths, i)));
    return TRI_OK;
}

/* From the places of labels to the numbers of classes; a label that is none was not trained on. */
static tri_status classes_number(tar_listing *listing, tri_image_folder *folder)
{
    int64_t *numbers = tri_alloc((listing->labels.count + 1) * sizeof(*numbers));
    tri_status status = numbers != NULL ? TRI_OK : TRI_ENOMEM;
    tri_map names = {0};
    for (size_t c = 0; c < folder->classes.count && status == TRI_OK; c++)
        status = tri_map_set(&names, *(const char **)tri_vector_at(&folder->classes, c), (int64_t)c);
    for (size_t i = 0; i < listing->labels.count && status == TRI_OK; i++) {
        const char *label = *(const char **)tri_vector_at(&listing->labels, i);
        int64_t whole;
        char text[24];
        if (tri_map_find(&names, label, &numbers[i]))
            continue;
        if (number_of(label, &whole)) { /* 07 is 7, where no class is called 07: where all are numbers */
            snprintf(text, sizeof(text), "%" PRId64, whole);
            if (tri_map_find(&names, text, &numbers[i]))
                continue;
        }
        status = tri_fail(TRI_EFORMAT,
                          "%s: the label '%.100s' is none of the %zu classes that the training samples "
                          "have",
                          folder->root, label, folder->classes.count);
    }
    tri_image_file *files = folder->files.items;
    for (size_t i = 0; i < folder->files.count && status == TRI_OK; i++)
        files[i].class = numbers[files[i].class];
    tri_map_fini(&names);
    tri_free(numbers);
    return status;
}

static void listing_fini(tar_listing *listing)
{
    tri_map_fini(&listing->places);
    tri_vector_fini(&listing->labels);
}

static void folder_init(tri_image_folder *folder)
{
    *folder = (tri_image_folder){.part = "",
                                 .files = {.each = sizeof(tri_image_file)},
                                 .classes = {.each = sizeof(char *)},
                                 .broken = {.each = sizeof(char *)}};
}

/* The classes of the training files, for a part that has files of its own. */
static tri_status training_classes(const tri_data_config *config, const char *field, tri_image_folder *out)
{
    tri_shards shards;
    tri_image_folder training;
    folder_init(&training);
    tar_listing listing = {config, field, &training, .labels = {.each = sizeof(char *)}};
    TRI_TRY(tri_shards_find(config->path, TRI_PART_TRAIN, ENDING, &shards));
    tri_status status = shards_list(&listing, &shards);
    training.root = out->root;
    if (status == TRI_OK)
        status = classes_make(&training, &listing.labels);
    for (size_t c = 0; c < training.classes.count && status == TRI_OK; c++) {
        const char *name = tri_arena_strdup(&out->arena, *(const char **)tri_vector_at(&training.classes, c));
        if (name == NULL || tri_vector_push(&out->classes, &name) == NULL)
            status = TRI_ENOMEM;
    }
    training.root = NULL;
    listing_fini(&listing);
    tri_shards_fini(&shards);
    tri_image_folder_fini(&training);
    return status;
}

static bool has_files(const tri_data_config *config, tri_data_part part)
{
    tri_shards shards;
    const bool has = tri_shards_find(config->path, part, ENDING, &shards) == TRI_OK && shards.own;
    tri_shards_fini(&shards);
    return has;
}

static tri_status fill(const tri_data_config *config, tri_data_part part, const tri_shards *shards,
                       tri_image_folder *folder)
{
    tar_listing listing = {config, "", folder, .labels = {.each = sizeof(char *)}};
    tri_parts parts;
    TRI_TRY(tri_parts_read(config, &parts));
    TRI_TRY(field_read(config, &folder->arena, &listing.field));
    folder->root = tri_strdup(config->path);
    folder->tars = (int64_t)shards->paths.count;
    tri_status status = folder->root != NULL ? shards_list(&listing, shards) : TRI_ENOMEM;
    if (status == TRI_OK && folder->files.count == 0)
        status = tri_fail(TRI_EFORMAT, "%s: no sample with an image and a label in %zu tar files", config->path,
                          shards->paths.count);
    if (status == TRI_OK)
        status = shards->own ? training_classes(config, listing.field, folder) : classes_make(folder, &listing.labels);
    if (status == TRI_OK)
        status = classes_number(&listing, folder);
    listing_fini(&listing);
    if (status != TRI_OK || shards->own)
        return status;
    if (has_files(config, TRI_PART_TEST))
        parts.test = 0;
    if (has_files(config, TRI_PART_VALIDATION))
        parts.validation = parts.test = 0;
    return tri_image_folder_split(folder, &parts, part);
}

bool tri_image_tar_has(const tri_data_config *config, tri_data_part part)
{
    tri_parts parts;
    if (part == TRI_PART_TRAIN || has_files(config, part))
        return true;
    if (tri_parts_read(config, &parts) != TRI_OK || has_files(config, TRI_PART_VALIDATION))
        return false;
    return part == TRI_PART_TEST ? parts.test > 0 : parts.validation > 0;
}

tri_status tri_image_tar_open(const tri_data_config *config, tri_data_part part, tri_image_folder *out)
{
    tri_shards shards;
    folder_init(out);
    TRI_TRY(tri_shards_find(config->path, part, ENDING, &shards));
    tri_status status = fill(config, part, &shards, out);
    tri_shards_fini(&shards);
    if (status != TRI_OK)
        tri_image_folder_fini(out);
    return status;
}
