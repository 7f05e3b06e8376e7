/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_list.c: the checkpoints of a folder by the number in their names, and the newest one that is whole.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "checkpoint/manifest.h"

bool tri_checkpoint_name_step(const char *name, int64_t *step)
{
    static const char prefix[] = "step-";
    size_t start = sizeof(prefix) - 1;
    if (strncmp(name, prefix, start) != 0)
        return false;
    size_t digits = strspn(name + start, "0123456789");
    if (digits == 0 || digits > 18 || name[start + digits] != 0)
        return false;
    *step = strtoll(name + start, NULL, 10);
    return true;
}

int64_t tri_checkpoint_path_step(const char *path)
{
    const char *slash = strrchr(path, '/');
    int64_t step;
    return tri_checkpoint_name_step(slash ? slash + 1 : path, &step) ? step : -1;
}

static int compare_steps(const void *a, const void *b)
{
    const tri_checkpoint_entry *left = a, *right = b;
    if (left->step != right->step)
        return left->step > right->step ? -1 : 1;
    return strcmp(left->name, right->name);
}

tri_status tri_checkpoint_list(const char *folder, tri_vector *out)
{
    char **names = NULL;
    size_t count = 0;
    *out = (tri_vector){.each = sizeof(tri_checkpoint_entry)};
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        tri_checkpoint_entry entry = {0};
        if (!tri_checkpoint_name_step(names[i], &entry.step))
            continue;
        entry.name = tri_strdup(names[i]);
        if (entry.name == NULL || tri_vector_push(out, &entry) == NULL) {
            tri_free(entry.name);
            status = TRI_ENOMEM;
        }
    }
    tri_fs_list_free(names, count);
    if (status != TRI_OK)
        tri_checkpoint_list_free(out);
    else if (out->count > 0)
        qsort(out->items, out->count, sizeof(tri_checkpoint_entry), compare_steps);
    return status;
}

int64_t tri_checkpoint_last_step(const char *folder)
{
    tri_vector list;
    if (tri_checkpoint_list(folder, &list) != TRI_OK)
        return -1;
    int64_t step = list.count > 0 ? ((tri_checkpoint_entry *)tri_vector_at(&list, 0))->step : -1;
    tri_checkpoint_list_free(&list);
    return step;
}

void tri_checkpoint_list_free(tri_vector *list)
{
    for (size_t i = 0; i < list->count; i++)
        tri_free(((tri_checkpoint_entry *)tri_vector_at(list, i))->name);
    tri_vector_fini(list);
}

/* A checkpoint of one of several folders. */
typedef struct found_entry {
    const char *folder;
    tri_checkpoint_entry entry;
} found_entry;

static int compare_found(const void *a, const void *b)
{
    const found_entry *left = a, *right = b;
    return compare_steps(&left->entry, &right->entry);
}

/* Those of a folder, behind what is there; they take their names along. */
static tri_status found_add(const char *folder, tri_vector *all)
{
    tri_vector list;
    TRI_TRY(tri_checkpoint_list(folder, &list));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < list.count && status == TRI_OK; i++) {
        tri_checkpoint_entry *entry = tri_vector_at(&list, i);
        found_entry found = {folder, *entry};
        if (tri_vector_push(all, &found) == NULL)
            status = TRI_ENOMEM;
        else
            entry->name = NULL;
    }
    tri_checkpoint_list_free(&list);
    return status;
}

/* Looks at one; *path stays NULL when it is damaged, which is noted in `skipped`. */
static tri_status try_entry(const found_entry *found, char **path, tri_string *skipped)
{
    char *candidate = tri_format("%s/%s", found->folder, found->entry.name);
    if (candidate == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_checkpoint_verify(candidate);
    if (status == TRI_OK) {
        *path = candidate;
        return TRI_OK;
    }
    tri_free(candidate);
    if (!tri_checkpoint_is_damage(status))
        return tri_fail_context(status, "a checkpoint cannot be read now, and may be whole");
    if (skipped != NULL)
        return tri_string_appendf(skipped, "%s%s (%s)", skipped->nbytes > 0 ? "; " : "", found->entry.name,
                                  tri_last_error());
    return TRI_OK;
}

tri_status tri_checkpoint_newest_of(const char *const *folders, int count, char **path, tri_string *skipped)
{
    tri_vector all = {.each = sizeof(found_entry)};
    tri_status status = TRI_OK;
    *path = NULL;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        status = found_add(folders[i], &all);
        if (status == TRI_ENOTFOUND && count > 1)
            status = TRI_OK;
    }
    if (status == TRI_OK && all.count > 0)
        qsort(all.items, all.count, sizeof(found_entry), compare_found);
    for (size_t i = 0; i < all.count && *path == NULL && status == TRI_OK; i++)
        status = try_entry(tri_vector_at(&all, i), path, skipped);
    if (status == TRI_OK && *path == NULL)
        status = all.count > 0 ? tri_fail(TRI_ENOTFOUND, "%s: no whole checkpoint: %zu looked at, all damaged",
                                          folders[0], all.count)
                               : tri_fail(TRI_ENOTFOUND, "%s: no checkpoint there%s", folders[0],
                                          count > 1 ? ", nor in the further places (checkpoint.levels)" : "");
    for (size_t i = 0; i < all.count; i++)
        tri_free(((found_entry *)tri_vector_at(&all, i))->entry.name);
    tri_vector_fini(&all);
    return status;
}

tri_status tri_checkpoint_newest(const char *folder, char **path, tri_string *skipped)
{
    return tri_checkpoint_newest_of(&folder, 1, path, skipped);
}
