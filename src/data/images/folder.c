/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.c: lists the files of each class, also those in folders below it; hidden names are left out.
 */
#include "data/images/folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fs.h"
#include "data/images/images.h"

#define DEPTH_LIMIT 16

static const char *const part_names[][5] = {[TRI_PART_TRAIN] = {"train", "training", NULL},
                                            [TRI_PART_TEST] = {"test", "testing", NULL},
                                            [TRI_PART_VALIDATION] = {"val", "valid", "validation", "dev", NULL}};
/* The part that training evaluates and chooses by comes first. */

typedef struct name_list {
    char **items;
    size_t count;
} name_list;

static tri_status names_read(const char *path, name_list *out)
{
    *out = (name_list){0};
    return tri_fs_list(path, &out->items, &out->count);
}

static void names_fini(name_list *list)
{
    tri_fs_list_free(list->items, list->count);
}

/* --- is it one? --- */

static bool has_image(const char *path, int depth)
{
    name_list names;
    bool found = false;
    if (depth > DEPTH_LIMIT || names_read(path, &names) != TRI_OK)
        return false;
    for (size_t i = 0; i < names.count && !found; i++)
        found = names.items[i][0] != '.' && tri_image_format_named(names.items[i]) != NULL;
    for (size_t i = 0; i < names.count && !found; i++) {
        char *inner = names.items[i][0] != '.' ? tri_format("%s/%s", path, names.items[i]) : NULL;
        found = inner != NULL && tri_fs_is_folder(inner) && has_image(inner, depth + 1);
        tri_free(inner);
    }
    names_fini(&names);
    return found;
}

bool tri_image_folder_is(const char *path)
{
    return tri_fs_is_folder(path) && has_image(path, 0);
}

/* --- parts --- */

/* path/NAME for the first of these names that is a folder with folders in it, and its name; NULL: none. */
static tri_status part_find(const char *path, const char *const *names, const char **name, char **out)
{
    *name = "";
    *out = NULL;
    for (int i = 0; names[i] != NULL; i++) {
        char *inner = tri_format("%s/%s", path, names[i]);
        if (inner == NULL)
            return TRI_ENOMEM;
        if (tri_fs_is_folder(inner)) {
            *name = names[i];
            *out = inner;
            return TRI_OK;
        }
        tri_free(inner);
    }
    return TRI_OK;
}

/* --- listing --- */

static tri_status file_add(tri_image_folder *folder, const char *path, int64_t class)
{
    tri_image_file file = {
        .path = tri_arena_strdup(&folder->arena, path), .class = class, .hash = XXH3_64bits(path, strlen(path))};
    return file.path != NULL && tri_vector_push(&folder->files, &file) ? TRI_OK : TRI_ENOMEM;
}

/* inner: path below the root. */
static tri_status files_list(tri_image_folder *folder, const char *inner, int64_t class, int depth)
{
    name_list names = {0};
    char *path = tri_format("%s/%s", folder->root, inner);
    tri_status status = path != NULL ? names_read(path, &names) : TRI_ENOMEM;
    tri_free(path);
    for (size_t i = 0; i < names.count && status == TRI_OK; i++) {
        if (names.items[i][0] == '.')
            continue;
        char *below = tri_format("%s/%s", inner, names.items[i]);
        char *whole = tri_format("%s/%s", folder->root, below != NULL ? below : "");
        if (below == NULL || whole == NULL)
            status = TRI_ENOMEM;
        else if (tri_fs_is_folder(whole))
            status = depth < DEPTH_LIMIT
                         ? files_list(folder, below, class, depth + 1)
                         : tri_fail(TRI_EFORMAT, "%s: folders within folders, more than %d", whole, DEPTH_LIMIT);
        else if (tri_image_format_named(below) != NULL)
            status = file_add(folder, below, class);
        else
            folder->other_files++;
        tri_free(below);
        tri_free(whole);
    }
    names_fini(&names);
    return status;
}

static tri_status classes_list(tri_image_folder *folder, const char *root)
{
    name_list names;
    tri_status status = names_read(root, &names);
    for (size_t i = 0; i < names.count && status == TRI_OK; i++) {
        char *path = tri_format("%s/%s", root, names.items[i]);
        const char *name = NULL;
        if (path == NULL)
            status = TRI_ENOMEM;
        else if (names.items[i][0] == '.' || !tri_fs_is_folder(path))
            folder->other_files += names.items[i][0] != '.';
        else if ((name = tri_arena_strdup(&folder->arena, names.items[i])) == NULL ||
                 !tri_vector_push(&folder->classes, &name))
            status = TRI_ENOMEM;
        tri_free(path);
    }
    names_fini(&names);
    if (status == TRI_OK && folder->classes.count == 0)
        return tri_fail(TRI_EFORMAT, "%s: want one sub-folder of images per class, got none", root);
    return status;
}

static const char *class_name(const tri_image_folder *folder, size_t class)
{
    return *(const char *const *)tri_vector_at(&folder->classes, class);
}

static tri_status class_list(tri_image_folder *folder, size_t class, bool may_lack)
{
    const size_t before = folder->files.count;
    char *path = tri_format("%s/%s", folder->root, class_name(folder, class));
    if (path == NULL)
        return TRI_ENOMEM;
    const bool is_there = tri_fs_is_folder(path);
    tri_status status = is_there ? files_list(folder, class_name(folder, class), (int64_t) class, 0) : TRI_OK;
    if (status == TRI_OK && !may_lack && folder->files.count == before)
        status = tri_fail(TRI_EFORMAT, "%s: want .jpg, .png or .webp files of this class, got none", path);
    tri_free(path);
    return status;
}

/* A folder of the test part that is no class of the training part. */
static tri_status strangers_check(const tri_image_folder *folder)
{
    name_list names;
    TRI_TRY(names_read(folder->root, &names));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < names.count && status == TRI_OK; i++) {
        bool known = names.items[i][0] == '.';
        for (size_t c = 0; c < folder->classes.count && !known; c++)
            known = strcmp(names.items[i], class_name(folder, c)) == 0;
        char *path = known ? NULL : tri_format("%s/%s", folder->root, names.items[i]);
        if (path != NULL && tri_fs_is_folder(path))
            status = tri_fail(TRI_EFORMAT, "%s: want a class that the training images have, got another", path);
        tri_free(path);
    }
    names_fini(&names);
    return status;
}

static int compare_files(const void *a, const void *b)
{
    const tri_image_file *left = a, *right = b;
    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return strcmp(left->path, right->path);
}

tri_status tri_image_folder_split(tri_image_folder *folder, const tri_parts *parts, tri_data_part part)
{
    const int64_t count = (int64_t)folder->files.count;
    int32_t *classes = tri_alloc_zero((size_t)count + 1, sizeof(*classes));
    uint64_t *keys = tri_alloc_zero((size_t)count + 1, sizeof(*keys));
    int64_t *chosen = NULL, chosen_count = 0;
    tri_image_file *files = folder->files.items;
    for (int64_t i = 0; i < count && classes != NULL && keys != NULL; i++) {
        classes[i] = (int32_t)files[i].class;
        keys[i] = files[i].hash;
    }
    tri_status status = classes != NULL && keys != NULL
                            ? tri_parts_choose(parts, part, count, classes, keys, &chosen, &chosen_count)
                            : TRI_ENOMEM;
    for (int64_t i = 0; i < chosen_count && status == TRI_OK; i++)
        files[i] = files[chosen[i]];
    if (status == TRI_OK)
        folder->files.count = (size_t)chosen_count;
    tri_free(classes);
    tri_free(keys);
    tri_free(chosen);
    return status;
}

/* Folders of the parts; folders named test and so on are classes, unless there is one for training beside them. */
typedef struct part_folders {
    const char *names[3];
    char *paths[3]; /* NULL: there is none */
} part_folders;

static void parts_fini(part_folders *found)
{
    for (int p = 0; p < 3; p++)
        tri_free(found->paths[p]);
}

static tri_status parts_find(const char *path, part_folders *found)
{
    *found = (part_folders){0};
    for (int p = 0; p < 3; p++)
        TRI_TRY(part_find(path, part_names[p], &found->names[p], &found->paths[p]));
    for (int p = 1; p < 3 && found->paths[TRI_PART_TRAIN] == NULL; p++) {
        tri_free(found->paths[p]);
        found->paths[p] = NULL;
    }
    return TRI_OK;
}

/* Which fractions are taken of the training folder: none for what has a folder, and none for the test where any part
 * has one. */
static tri_status fractions_read(const tri_data_config *config, const part_folders *found, tri_parts *parts)
{
    TRI_TRY(tri_parts_read(config, parts));
    if (found->paths[TRI_PART_TEST] != NULL || found->paths[TRI_PART_VALIDATION] != NULL)
        parts->test = 0;
    if (found->paths[TRI_PART_VALIDATION] != NULL)
        parts->validation = 0;
    return TRI_OK;
}

bool tri_image_folder_has(const tri_data_config *config, tri_data_part part)
{
    part_folders found;
    tri_parts parts = {0};
    const bool known = parts_find(config->path, &found) == TRI_OK && fractions_read(config, &found, &parts) == TRI_OK;
    const bool has = part == TRI_PART_TRAIN || found.paths[part] != NULL ||
                     (part == TRI_PART_TEST ? parts.test : parts.validation) > 0;
    parts_fini(&found);
    return known && has;
}

static tri_status open_part(const tri_data_config *config, tri_data_part part, const part_folders *found,
                            tri_image_folder *folder)
{
    const char *const train = found->paths[TRI_PART_TRAIN], *const classes = train != NULL ? train : config->path;
    const tri_data_part from = found->paths[part] != NULL ? part : TRI_PART_TRAIN;
    const bool own = part != TRI_PART_TRAIN && from == part;
    tri_parts parts;
    TRI_TRY(fractions_read(config, found, &parts));
    folder->part = found->names[from];
    folder->root = tri_strdup(own ? found->paths[part] : classes);
    tri_status status = folder->root != NULL ? classes_list(folder, classes) : TRI_ENOMEM;
    for (size_t c = 0; status == TRI_OK && c < folder->classes.count; c++)
        status = class_list(folder, c, own);
    if (status == TRI_OK && own)
        status = strangers_check(folder);
    if (status == TRI_OK && folder->files.count > 0)
        qsort(folder->files.items, folder->files.count, sizeof(tri_image_file), compare_files);
    return status == TRI_OK && !own ? tri_image_folder_split(folder, &parts, part) : status; /* they are sorted */
}

tri_status tri_image_folder_open(const tri_data_config *config, tri_data_part part, tri_image_folder *out)
{
    part_folders found;
    *out = (tri_image_folder){.files = {.each = sizeof(tri_image_file)}, .classes = {.each = sizeof(char *)}};
    tri_status status = parts_find(config->path, &found);
    if (status == TRI_OK)
        status = open_part(config, part, &found, out);
    parts_fini(&found);
    if (status != TRI_OK)
        tri_image_folder_fini(out);
    return status;
}

void tri_image_folder_fini(tri_image_folder *folder)
{
    tri_free(folder->root);
    tri_vector_fini(&folder->classes);
    tri_vector_fini(&folder->files);
    tri_vector_fini(&folder->broken);
    tri_arena_fini(&folder->arena);
    *folder = (tri_image_folder){0};
}

tri_status tri_image_folder_place(const tri_image_folder *folder, const tri_image_file *file, tri_image_place *out)
{
    *out = (tri_image_place){.path = file->nbytes > 0 ? tri_strdup(file->path)
                                                      : tri_format("%s/%s", folder->root, file->path),
                             .at = file->at,
                             .nbytes = file->nbytes};
    return out->path != NULL ? TRI_OK : TRI_ENOMEM;
}

static tri_status list_below(const char *path, int depth, tri_vector *paths)
{
    name_list names;
    tri_status status = names_read(path, &names);
    for (size_t i = 0; i < names.count && status == TRI_OK; i++) {
        char *inner = tri_format("%s/%s", path, names.items[i]);
        if (inner == NULL) {
            status = TRI_ENOMEM;
        } else if (names.items[i][0] == '.') {
            tri_free(inner);
        } else if (tri_fs_is_folder(inner)) {
            status = depth < DEPTH_LIMIT
                         ? list_below(inner, depth + 1, paths)
                         : tri_fail(TRI_EFORMAT, "%s: folders within folders, more than %d", inner, DEPTH_LIMIT);
            tri_free(inner);
        } else if (tri_image_format_named(inner) == NULL) {
            tri_free(inner);
        } else if (!tri_vector_push(paths, &inner)) {
            tri_free(inner);
            status = TRI_ENOMEM;
        }
    }
    names_fini(&names);
    return status;
}

tri_status tri_images_list(const char *path, tri_vector *paths)
{
    const size_t before = paths->count;
    if (tri_fs_is_folder(path)) {
        TRI_TRY(list_below(path, 0, paths));
        return paths->count > before ? TRI_OK : tri_fail(TRI_ENOTFOUND, "%s: no .jpg, .png or .webp file in it", path);
    }
    char *copy = tri_strdup(path);
    if (copy != NULL && tri_vector_push(paths, &copy))
        return TRI_OK;
    tri_free(copy);
    return TRI_ENOMEM;
}
