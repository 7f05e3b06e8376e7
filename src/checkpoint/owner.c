/* SPDX-License-Identifier: Apache-2.0
 *
 * owner.c: the checkpoints of a folder are of one run. What an earlier one has left where a run begins is set aside, so
 * that no step of it is taken for one of this run; a place that is another run's is refused.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/manifest.h"
#include "storage/storage.h"

#define MARK        ".run" /* in a further place: the run whose it is, by its path */
#define MARK_NBYTES 4096

/* The path or URL that a mark has, or would have (tri_free); NULL: none. */
static char *real_path(const char *run_folder)
{
    char *url = tri_mirror_url(run_folder);
    if (url)
        return url;
    char *found = realpath(run_folder, NULL), *path = tri_strdup(found ? found : run_folder);
    free(found);
    return path;
}

/* The path of the run whose a further place is (tri_free); NULL: nobody's. */
static char *owner_of(const char *folder)
{
    size_t nbytes;
    char *path = tri_format("%s/" MARK, folder), *text = NULL;
    if (path && tri_fs_read(path, MARK_NBYTES, &text, &nbytes) == TRI_OK)
        text[strcspn(text, "\n")] = '\0';
    tri_free(path);
    return text;
}

bool tri_checkpoint_is_others(const char *folder, const char *run_folder)
{
    char *owner = owner_of(folder), *mine = real_path(run_folder);
    bool is = owner && mine && strcmp(owner, mine) != 0;
    tri_free(owner);
    tri_free(mine);
    return is;
}

tri_status tri_checkpoint_own(const char *folder, const char *run_folder)
{
    TRI_TRY(tri_mirror_pull_files(folder, MARK, false));
    if (tri_checkpoint_is_others(folder, run_folder)) {
        char *owner = owner_of(folder);
        tri_status status = tri_fail(TRI_ECONFIG,
                                     "checkpoint.levels: %s is the place of another run, %s: want another place, or "
                                     "another name of the run folder (if that run was moved here: remove %s/" MARK ")",
                                     folder, owner ? owner : "", folder);
        tri_free(owner);
        return status;
    }
    char *mine = real_path(run_folder), *path = tri_format("%s/" MARK, folder), *text = tri_format("%s\n", mine);
    tri_status status = mine && path && text ? tri_fs_make_folder(folder) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text, strlen(text));
    if (status == TRI_OK)
        status = tri_mirror_push_files(folder, MARK);
    tri_free(mine);
    tri_free(path);
    tri_free(text);
    return status;
}

tri_status tri_checkpoint_set_aside(const char *folder)
{
    char *to = NULL;
    tri_vector list;
    bool has;
    TRI_TRY(tri_mirror_has_run(folder, &has));
    if (has) { /* objects cannot be renamed */
        char *url = tri_mirror_url(folder);
        tri_status refused = tri_fail(TRI_ECONFIG,
                                      "%s has checkpoints of an earlier run: want another place, or --resume with "
                                      "that run",
                                      url ? url : folder);
        tri_free(url);
        return refused;
    }
    if (tri_fs_exists(folder) && !tri_fs_is_folder(folder))
        return TRI_OK; /* each save will tell */
    tri_status status = tri_checkpoint_list(folder, &list);
    if (status != TRI_OK)
        return status == TRI_ENOTFOUND ? TRI_OK : status;
    int64_t newest = list.count > 0 ? ((tri_checkpoint_entry *)tri_vector_at(&list, 0))->step : -1;
    tri_checkpoint_list_free(&list);
    if (newest < 0)
        return TRI_OK;
    TRI_TRY_IN(tri_path_set_aside(folder, &to), "checkpoints of an earlier run cannot be moved aside");
    tri_log(TRI_LOG_WARN,
            "%s has checkpoints of an earlier run, up to step %" PRId64 ", and this one starts again: they are in %s "
            "now (--resume would have continued from them)",
            folder, newest, to);
    tri_free(to);
    return TRI_OK;
}
