/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens_find.c: which files of tokens belong together: shards of ours, of llm.c (NAME_train_000001.bin) and nanoGPT's
 * train.bin and val.bin.
 */
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "data/tokens.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Where a word is in a name for the last time; NULL: nowhere. */
static const char *last_in(const char *name, const char *word)
{
    const char *last = NULL;
    for (const char *at = strstr(name, word); at != NULL; at = strstr(at + 1, word))
        last = at;
    return last;
}

/* Which set a file is of, by its name: pretrain_val_000000.bin is validation, retrieval_train_000001.bin is not. */
static bool is_named(const char *name, bool validation)
{
    if (tri_path_ends_in(name, TRI_TOKENS_ENDING))
        return strncmp(name, validation ? TRI_TOKENS_VALIDATION : TRI_TOKENS_TRAINING,
                       strlen(validation ? TRI_TOKENS_VALIDATION : TRI_TOKENS_TRAINING)) == 0;
    const char *train = last_in(name, "train"), *val = last_in(name, "val");
    const bool is_validation = val != NULL && (train == NULL || val > train);
    return tri_path_ends_in(name, ".bin") && (validation ? is_validation : train != NULL && !is_validation);
}

/* The number before a name's ending, and how long it is; 0: there is none. */
static int number_length(const char *name, long *number)
{
    const char *end = strrchr(name, '.');
    int length = 0;
    while (end != NULL && end - length > name && end[-length - 1] >= '0' && end[-length - 1] <= '9' && length < 9)
        length++;
    *number = length > 0 ? strtol(end - length, NULL, 10) : -1;
    return length;
}

/* Shards are numbered in a row: one that is not there was lost, and nobody would notice. */
static tri_status check_row(const char *folder, char *const *paths, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        long before, number;
        const char *left = base_name(paths[i - 1]), *right = base_name(paths[i]);
        const size_t length = (size_t)number_length(left, &before), other = (size_t)number_length(right, &number);
        const size_t start = (size_t)(strrchr(left, '.') != NULL ? strrchr(left, '.') - left : 0) - length;
        if (length == 0 || length != other || strlen(left) != strlen(right) || strncmp(left, right, start) != 0 ||
            strcmp(left + start + length, right + start + length) != 0 || number <= before + 1)
            continue;
        return tri_fail(TRI_EFORMAT, "%s: %.*s%0*ld%s is not there, but %s is", folder, (int)start, left, (int)length,
                        before + 1, left + start + length, right);
    }
    return TRI_OK;
}

static tri_status find_in_folder(const char *folder, bool validation, char ***paths, size_t *count)
{
    char **names;
    size_t name_count, kept = 0;
    TRI_TRY(tri_fs_list(folder, &names, &name_count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < name_count; i++) {
        char *path = status == TRI_OK && is_named(names[i], validation) ? tri_format("%s/%s", folder, names[i]) : NULL;
        if (path == NULL && status == TRI_OK && is_named(names[i], validation))
            status = TRI_ENOMEM;
        tri_free(names[i]);
        if (path != NULL)
            names[kept++] = path;
    }
    *paths = names;
    *count = kept;
    if (status == TRI_OK)
        return TRI_OK;
    tri_fs_list_free(names, kept);
    return status;
}

/* "x/train.bin" to "x/val.bin", "a_train_000001.bin" to "a_val_000000.bin" and so on: the first sibling that the name
 * leads to. */
static tri_status find_sibling(const char *path, char ***paths, size_t *count)
{
    const char *base = base_name(path), *train = last_in(base, "train");
    char **all;
    size_t all_count, kept = 0;
    if (train == NULL)
        return TRI_OK;
    char *folder = base > path ? tri_strndup(path, (size_t)(base - path)) : tri_strdup(".");
    if (folder == NULL)
        return TRI_ENOMEM;
    tri_status status = find_in_folder(folder, true, &all, &all_count);
    tri_free(folder);
    TRI_TRY(status);
    const size_t before = (size_t)(train - base);
    for (size_t i = 0; i < all_count; i++) {
        const char *name = base_name(all[i]);
        if (strncmp(name, base, before) == 0 && strncmp(name + before, "val", 3) == 0)
            all[kept++] = all[i];
        else
            tri_free(all[i]);
    }
    *paths = all;
    *count = kept;
    return TRI_OK;
}

tri_status tri_tokens_find(const char *path, bool validation, char ***paths, size_t *count)
{
    *paths = NULL;
    *count = 0;
    if (tri_fs_is_folder(path)) {
        TRI_TRY(find_in_folder(path, validation, paths, count));
        tri_status status = check_row(path, *paths, *count);
        if (status != TRI_OK) {
            tri_fs_list_free(*paths, *count);
            *paths = NULL;
            *count = 0;
        }
        return status;
    }
    if (validation)
        return find_sibling(path, paths, count);
    *paths = tri_alloc(sizeof(char *));
    if (*paths == NULL)
        return TRI_ENOMEM;
    **paths = tri_strdup(path);
    *count = **paths != NULL;
    if (*count == 1)
        return TRI_OK;
    tri_fs_list_free(*paths, 0);
    return TRI_ENOMEM;
}

bool tri_tokens_is_text(const char *path)
{
    return !tri_fs_is_folder(path) && !tri_path_ends_in(path, TRI_TOKENS_ENDING) && !tri_path_ends_in(path, ".bin");
}

static bool has_files(const char *folder, bool validation, const char *ending)
{
    char **paths;
    size_t count;
    bool found = false;
    if (find_in_folder(folder, validation, &paths, &count) != TRI_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        found = found || tri_path_ends_in(paths[i], ending);
    tri_fs_list_free(paths, count);
    return found;
}

bool tri_tokens_can(const char *path)
{
    if (tri_fs_is_folder(path)) /* CIFAR-100 has a train.bin too, but no validation */
        return has_files(path, false, TRI_TOKENS_ENDING) ||
               (has_files(path, false, ".bin") && has_files(path, true, ".bin"));
    return tri_fs_exists(path) && (tri_path_ends_in(path, TRI_TOKENS_ENDING) || tri_path_ends_in(path, ".bin") ||
                                   tri_path_ends_in(path, ".txt"));
}

tri_status tri_tokens_open_files(char *const *paths, size_t count, tri_token_files *out)
{
    *out = (tri_token_files){.items = tri_alloc_zero(count, sizeof(*out->items))};
    tri_status status = out->items != NULL ? TRI_OK : TRI_ENOMEM;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        tri_source source;
        status = tri_source_open(&source, paths[i]);
        if (status == TRI_OK)
            status = tri_token_file_parse(&source, tri_path_ends_in(paths[i], ".bin"), &out->items[i]);
        out->count += status == TRI_OK;
    }
    if (status != TRI_OK)
        tri_token_files_close(out);
    return status;
}

void tri_token_files_close(tri_token_files *files)
{
    for (int i = 0; i < files->count; i++)
        tri_token_file_close(&files->items[i]);
    tri_free(files->items);
    tri_free(files->owned);
    *files = (tri_token_files){0};
}
