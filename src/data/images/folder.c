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

static const char *const train_names[] = {"train", "training", NULL};
/* The part that training evaluates and chooses by comes first. */
static const char *const test_names[] = {"val", "valid", "validation", "dev", "test", "testing", NULL};

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
        return tri_fail(TRI_EFORMAT, "%s: want one sub-folder of images per class, found none", root);
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
        status = tri_fail(TRI_EFORMAT, "%s: want .jpg, .png or .webp files of this class, found none", path);
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
            status = tri_fail(TRI_EFORMAT, "%s: want a class that the training images have, found another", path);
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

/* Of each class the files that come first are the test's. Files are sorted. */
static tri_status split(tri_image_folder *folder, double test_part, bool test)
{
    const size_t classes = folder->classes.count;
    int64_t *left = tri_alloc_zero(classes, sizeof(*left));
    if (left == NULL)
        return TRI_ENOMEM;
    tri_image_file *files = folder->files.items;
    for (size_t i = 0; i < folder->files.count; i++)
        left[files[i].class]++;
    for (size_t c = 0; c < classes; c++) {
        const int64_t count = left[c], share = (int64_t)floor((double)count * test_part + 0.5);
        left[c] = share == 0 && count > 1 && test_part > 0 ? 1 : share;
    }
    size_t kept = 0;
    for (size_t i = 0; i < folder->files.count; i++) {
        const bool is_test = left[files[i].class] > 0;
        left[files[i].class] -= is_test;
        if (is_test == test)
            files[kept++] = files[i];
    }
    folder->files.count = kept;
    tri_free(left);
    return TRI_OK;
}

static tri_status open_part(const tri_data_config *config, bool test, tri_image_folder *folder)
{
    const char *train_part, *test_part;
    char *train = NULL, *other = NULL;
    TRI_TRY(part_find(config->path, train_names, &train_part, &train));
    tri_status status = part_find(config->path, test_names, &test_part, &other);
    /* Folders named test and so on are classes, unless there is one for training beside them. */
    const bool parted = train != NULL && other != NULL;
    folder->part = parted ? test ? test_part : train_part : train_part;
    folder->root = tri_strdup(parted && test ? other : train != NULL ? train : config->path);
    if (status == TRI_OK && folder->root == NULL)
        status = TRI_ENOMEM;
    if (status == TRI_OK)
        status = classes_list(folder, train != NULL ? train : config->path);
    for (size_t c = 0; c < folder->classes.count && status == TRI_OK; c++)
        status = class_list(folder, c, parted && test);
    if (status == TRI_OK && parted && test)
        status = strangers_check(folder);
    if (status == TRI_OK && folder->files.count > 0)
        qsort(folder->files.items, folder->files.count, sizeof(tri_image_file), compare_files);
    if (status == TRI_OK && !parted)
        status = split(folder, config->test_part, test);
    tri_free(train);
    tri_free(other);
    return status;
}

tri_status tri_image_folder_open(const tri_data_config *config, bool test, tri_image_folder *out)
{
    *out = (tri_image_folder){.files = {.each = sizeof(tri_image_file)}, .classes = {.each = sizeof(char *)}};
    tri_status status = open_part(config, test, out);
    if (status != TRI_OK)
        tri_image_folder_fini(out);
    return status;
}

void tri_image_folder_fini(tri_image_folder *folder)
{
    tri_free(folder->root);
    tri_vector_fini(&folder->classes);
    tri_vector_fini(&folder->files);
    tri_arena_fini(&folder->arena);
    *folder = (tri_image_folder){0};
}

char *tri_image_folder_path(const tri_image_folder *folder, const tri_image_file *file)
{
    return tri_format("%s/%s", folder->root, file->path);
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
