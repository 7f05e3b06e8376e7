/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_save.c: which checkpoints stay, and what crashes leave of them.
 *
 * Hidden names: .step-N.tmp is being written, .step-N.old.tmp is one of the same step that makes room for the new one,
 * .step-N.gone.tmp is being removed. Whatever a crash leaves of them is cleared at the next save, which brings an old
 * one back if the new one never took its place. So at every moment each visible checkpoint is whole.
 */
#include <string.h>

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"

#define OLD_ENDING  ".old.tmp"
#define GONE_ENDING ".gone.tmp"

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

tri_status tri_checkpoint_clear(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    if (!tri_fs_is_folder(folder))
        return TRI_OK;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++)
        if (strncmp(names[i], ".step-", 6) == 0 && ends_in(names[i], ".tmp"))
            status = clear_one(folder, names[i]);
    tri_fs_list_free(names, count);
    return status;
}

/* What a removal that was killed has left: whoever writes here meanwhile has no use for it. */
static tri_status clear_gone(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++)
        if (strncmp(names[i], ".step-", 6) == 0 && ends_in(names[i], GONE_ENDING))
            status = clear_one(folder, names[i]);
    tri_fs_list_free(names, count);
    return status;
}

/* Hides the folder first, so that nobody sees half of it. */
static tri_status remove_checkpoint(const char *folder, const char *name)
{
    char *path = tri_format("%s/%s", folder, name), *hidden = tri_format("%s/.%s" GONE_ENDING, folder, name);
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
    if (has)
        tri_manifest_fini(&manifest);
    tri_free(path);
    return has;
}

tri_status tri_checkpoint_prune(const tri_checkpoint_place *place, int64_t but, int *removed)
{
    tri_vector list;
    TRI_TRY(clear_gone(place->folder));
    TRI_TRY(tri_checkpoint_list(place->folder, &list));
    tri_status status = TRI_OK;
    int64_t newer = 0;
    int gone = 0;
    for (size_t i = 0; i < list.count && status == TRI_OK; i++) {
        const tri_checkpoint_entry *entry = tri_vector_at(&list, i);
        if (!has_manifest(place->folder, entry->name) || newer++ < place->keep || entry->step == but ||
            (place->keep_every > 0 && entry->step % place->keep_every == 0))
            continue;
        status = remove_checkpoint(place->folder, entry->name);
        gone += status == TRI_OK;
    }
    tri_checkpoint_list_free(&list);
    if (removed != NULL)
        *removed = gone;
    return status;
}
