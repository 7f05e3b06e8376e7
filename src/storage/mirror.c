/* SPDX-License-Identifier: Apache-2.0
 *
 * mirror.c: run folders and places of checkpoints at a URL: a local folder has the same files, and the file .storage,
 * which names the URL.
 *
 * A checkpoint at the URL is one when its manifest.json is there: uploaded last, removed first. So whatever request a
 * process dies at, each checkpoint that was there before and stays is whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "storage/cache.h"
#include "storage/pieces.h"
#include "storage/storage_impl.h"

#define MARK      ".storage"
#define MARK_MOST 2048
#define LEVELS    4 /* that a path may be below its mirror */
#define MANIFEST  "manifest.json"
#define FILE_MOST ((uint64_t)64 << 20) /* of a manifest */

/* --- where --- */

static tri_status mark_check(const char *folder, const char *url)
{
    char *path = tri_format("%s/" MARK, folder), *text = NULL, *line = tri_format("%s\n", url);
    tri_status status = path != NULL && line != NULL ? TRI_OK : TRI_ENOMEM;
    bool same = status == TRI_OK && tri_fs_exists(path) && tri_fs_read(path, MARK_MOST, &text, NULL) == TRI_OK &&
                strcmp(text, line) == 0;
    if (status == TRI_OK && !same)
        status = tri_fs_write_swap(path, line, strlen(line));
    tri_free(text);
    tri_free(line);
    tri_free(path);
    return status;
}

tri_status tri_mirror_folder(const char *place, char **folder)
{
    tri_storage *storage = NULL;
    *folder = NULL;
    if (!tri_path_is_url(place))
        return (*folder = tri_strdup(place)) != NULL ? TRI_OK : TRI_ENOMEM;
    TRI_TRY(tri_storage_open(place, &storage));
    const char *slash = strrchr(storage->place, '/');
    tri_status status =
        storage->ops->put == NULL || slash == NULL || !tri_storage_name_is_safe(slash + 1)
            ? tri_fail(TRI_ECONFIG, "%.300s: want s3://BUCKET/.../NAME, where files can be written", storage->label)
            : TRI_OK;
    char *root = tri_cache_folder("runs"), *name = tri_cache_name(storage, NULL, 0);
    char *path = slash != NULL && root != NULL && name != NULL ? tri_format("%s/%s%s", root, name, slash) : NULL;
    if (status == TRI_OK)
        status = path != NULL ? tri_fs_make_folder(path) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = mark_check(path, storage->url);
    if (status == TRI_OK) {
        *folder = path;
        path = NULL;
    }
    tri_free(path);
    tri_free(root);
    tri_free(name);
    tri_storage_close(storage);
    return status;
}

char *tri_mirror_url(const char *path)
{
    char *above = tri_strdup(path), *url = NULL;
    for (int level = 0; above != NULL && level <= LEVELS && url == NULL; level++) {
        char *mark = tri_format("%s/" MARK, above), *text = NULL;
        if (mark != NULL && tri_fs_exists(mark) && tri_fs_read(mark, MARK_MOST, &text, NULL) == TRI_OK) {
            text[strcspn(text, "\n")] = 0;
            url = tri_format("%s%s", text, path + strlen(above));
        }
        tri_free(mark);
        tri_free(text);
        char *slash = strrchr(above, '/');
        if (slash == NULL || slash == above)
            break;
        *slash = 0;
    }
    tri_free(above);
    return url;
}

tri_status tri_mirror_open(const char *path, tri_storage **out)
{
    char *url = tri_mirror_url(path);
    *out = NULL;
    tri_status status = url != NULL ? tri_storage_open(url, out) : TRI_OK;
    tri_free(url);
    return status;
}

/* --- checkpoints at a URL --- */

/* "step-N/rest": the step, and where rest begins; -1: another name. */
static int64_t step_of(const char *name, const char **rest)
{
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const size_t digits = strspn(name + 5, "0123456789");
    if (digits == 0 || digits > 18 || name[5 + digits] != '/')
        return -1;
    *rest = name + 6 + digits;
    return strtoll(name + 5, NULL, 10);
}

typedef struct steps {
    tri_vector entries; /* all below the URL */
    tri_vector whole;   /* int64_t: steps with a manifest, newest first */
} steps;

static int newest_first(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left > right ? -1 : left < right;
}

static void steps_fini(steps *found)
{
    tri_storage_entries_free(&found->entries);
    tri_vector_fini(&found->whole);
}

/* steps_fini() it whatever is returned. */
static tri_status steps_find(tri_storage *storage, steps *found)
{
    const char *rest = "";
    *found = (steps){.whole = {.each = sizeof(int64_t)}};
    TRI_TRY(tri_storage_list(storage, &found->entries));
    for (size_t i = 0; i < found->entries.count; i++) {
        const int64_t step = step_of(((tri_storage_entry *)tri_vector_at(&found->entries, i))->name, &rest);
        if (step >= 0 && strcmp(rest, MANIFEST) == 0 && tri_vector_push(&found->whole, &step) == NULL)
            return TRI_ENOMEM;
    }
    if (found->whole.count > 0)
        qsort(found->whole.items, found->whole.count, sizeof(int64_t), newest_first);
    return TRI_OK;
}

static bool is_whole(const steps *found, int64_t step)
{
    for (size_t i = 0; i < found->whole.count; i++)
        if (*(int64_t *)tri_vector_at(&found->whole, i) == step)
            return true;
    return false;
}

tri_status tri_mirror_has_run(const char *folder, bool *has)
{
    tri_storage *storage = NULL;
    tri_vector entries = {0};
    *has = false;
    tri_status status = tri_mirror_open(folder, &storage);
    if (storage != NULL)
        status = tri_storage_list(storage, &entries);
    for (size_t i = 0; i < entries.count && status == TRI_OK; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(&entries, i))->name, *at = strstr(name, "step-"), *rest;
        *has = *has || strcmp(name, "metrics.jsonl") == 0 ||
               (at != NULL && step_of(at, &rest) >= 0 && strcmp(rest, MANIFEST) == 0);
    }
    tri_storage_entries_free(&entries);
    tri_storage_close(storage);
    return status;
}

/* --- down --- */

/* The URL of a folder, opened, while no other process fetches what is there. */
static tri_status pull_begin(const char *folder, tri_storage **storage, int *fd)
{
    *fd = -1;
    TRI_TRY(tri_mirror_open(folder, storage));
    if (*storage == NULL)
        return TRI_OK;
    char *lock = tri_format("%s/.pull.lock", folder);
    tri_status status = lock != NULL ? tri_fs_make_folder(folder) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_cache_lock(lock, fd);
    tri_free(lock);
    return status;
}

static void pull_end(tri_storage *storage, int fd)
{
    tri_storage_close(storage);
    if (fd >= 0)
        close(fd);
}

/* Leaves the files that are to be fetched. */
static void files_choose(const char *folder, const char *name, bool missing, tri_vector *entries)
{
    size_t kept = 0;
    for (size_t i = 0; i < entries->count; i++) {
        tri_storage_entry *entry = tri_vector_at(entries, i);
        char *path = tri_format("%s/%s", folder, entry->name);
        bool wanted = name != NULL ? strcmp(entry->name, name) == 0 : strchr(entry->name, '/') == NULL;
        if (wanted && !(missing && path != NULL && tri_fs_exists(path)))
            *(tri_storage_entry *)tri_vector_at(entries, kept++) = *entry;
        else
            tri_free(entry->name);
        tri_free(path);
    }
    entries->count = kept;
}

/* Whoever reads them meanwhile has the old ones or the new ones. */
static tri_status files_fetch(tri_storage *storage, const char *folder, const tri_vector *entries)
{
    char *hidden = tri_format("%s/.pull.tmp", folder);
    tri_status status = hidden != NULL ? tri_fs_remove(hidden) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_storage_download(storage, entries->items, entries->count, hidden, "");
    for (size_t i = 0; i < entries->count && status == TRI_OK; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(entries, i))->name;
        char *from = tri_format("%s/%s", hidden, name), *to = tri_format("%s/%s", folder, name);
        status = from != NULL && to != NULL ? tri_fs_rename(from, to) : TRI_ENOMEM;
        tri_free(from);
        tri_free(to);
    }
    if (status == TRI_OK)
        status = tri_fs_remove(hidden);
    tri_free(hidden);
    return status;
}

tri_status tri_mirror_pull_files(const char *folder, const char *name, bool missing)
{
    tri_storage *storage = NULL;
    tri_vector entries = {.each = sizeof(tri_storage_entry)};
    int fd;
    tri_status status = pull_begin(folder, &storage, &fd);
    if (storage != NULL && status == TRI_OK)
        status = tri_storage_list(storage, &entries);
    if (status == TRI_OK)
        files_choose(folder, name, missing, &entries);
    if (status == TRI_OK && entries.count > 0)
        status = files_fetch(storage, folder, &entries);
    tri_storage_entries_free(&entries);
    pull_end(storage, fd);
    return status;
}

/* Whether the manifest that is here is the URL's. */
static tri_status is_same(tri_storage *storage, const char *path, const tri_storage_entry *manifest, bool *same)
{
    size_t nbytes = 0;
    char *text = NULL;
    char *there = manifest->nbytes < FILE_MOST ? tri_alloc((size_t)manifest->nbytes + 1) : NULL;
    tri_status status = there != NULL ? TRI_OK : TRI_ENOMEM;
    *same = false;
    if (status == TRI_OK && tri_fs_exists(path) && tri_fs_read(path, FILE_MOST, &text, &nbytes) == TRI_OK &&
        nbytes == manifest->nbytes) {
        status = tri_storage_read(storage, manifest, 0, nbytes, there);
        *same = status == TRI_OK && memcmp(text, there, nbytes) == 0;
    }
    tri_free(text);
    tri_free(there);
    return status;
}

/* Checkpoints that the URL does not have are of another run, or of a save that did not end. */
static tri_status others_remove(const char *folder, const steps *found)
{
    char **names = NULL;
    size_t count = 0;
    const char *rest = "";
    tri_status status = tri_fs_is_folder(folder) ? tri_fs_list(folder, &names, &count) : TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        char *name = tri_format("%s/", names[i]), *path = tri_format("%s/%s", folder, names[i]);
        const int64_t step = name != NULL ? step_of(name, &rest) : -1;
        if (step >= 0 && !is_whole(found, step)) {
            tri_log(TRI_LOG_INFO, "%s: removed: it is not at the URL", path);
            status = tri_fs_remove(path);
        }
        tri_free(name);
        tri_free(path);
    }
    tri_fs_list_free(names, count);
    return status;
}

/* Under a hidden name first: what a killed one leaves is no checkpoint. */
static tri_status step_fetch(tri_storage *storage, const char *folder, const tri_storage_entry *entries, size_t count,
                             size_t name_nbytes)
{
    char *hidden = tri_format("%s/.%.*s.pull.tmp", folder, (int)name_nbytes, entries[0].name);
    char *inside = hidden != NULL ? tri_format("%s/%.*s", hidden, (int)name_nbytes, entries[0].name) : NULL;
    char *path = tri_format("%s/%.*s", folder, (int)name_nbytes, entries[0].name);
    tri_status status = inside != NULL && path != NULL ? tri_fs_remove(hidden) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_storage_download(storage, entries, count, hidden, "");
    if (status == TRI_OK)
        status = tri_pieces_join(inside);
    if (status == TRI_OK)
        status = tri_fs_remove(path);
    if (status == TRI_OK)
        status = tri_fs_rename(inside, path);
    if (hidden != NULL && status == TRI_OK)
        status = tri_fs_remove(hidden);
    tri_free(hidden);
    tri_free(inside);
    tri_free(path);
    return status;
}

static tri_status newest_fetch(tri_storage *storage, const char *folder, const steps *found)
{
    const int64_t newest = *(int64_t *)tri_vector_at(&found->whole, 0);
    const char *rest = "";
    size_t first = 0, count = 0, name_nbytes = 0;
    const tri_storage_entry *manifest = NULL;
    bool same = false;
    for (size_t i = 0; i < found->entries.count; i++) { /* sorted: those of a step are neighbours */
        const tri_storage_entry *entry = tri_vector_at(&found->entries, i);
        if (step_of(entry->name, &rest) != newest)
            continue;
        first = count == 0 ? i : first;
        count++;
        name_nbytes = (size_t)(rest - entry->name) - 1;
        manifest = strcmp(rest, MANIFEST) == 0 ? entry : manifest;
    }
    char *path = tri_format("%s/%s", folder, manifest->name);
    tri_status status = path != NULL ? is_same(storage, path, manifest, &same) : TRI_ENOMEM;
    tri_free(path);
    TRI_TRY(status);
    return same ? TRI_OK : step_fetch(storage, folder, tri_vector_at(&found->entries, first), count, name_nbytes);
}

tri_status tri_mirror_pull_newest(const char *folder)
{
    tri_storage *storage = NULL;
    steps found = {0};
    int fd;
    tri_status status = pull_begin(folder, &storage, &fd);
    if (storage != NULL && status == TRI_OK) {
        status = steps_find(storage, &found);
        if (status == TRI_OK)
            status = others_remove(folder, &found);
        if (status == TRI_OK && found.whole.count > 0)
            status = tri_fs_make_folder(folder);
        if (status == TRI_OK && found.whole.count > 0)
            status = newest_fetch(storage, folder, &found);
    }
    steps_fini(&found);
    pull_end(storage, fd);
    return status;
}

/* --- up --- */

/* Of one process, or secret, or uploaded by the process that wrote it. */
static bool is_local(const char *name)
{
    return name[0] == '.' || tri_piece_is(name, NULL) || strcmp(name, "lock") == 0 ||
           strncmp(name, "launcher.", 9) == 0 || strstr(name, ".tmp") != NULL;
}

/* The files that are directly in a folder. */
static tri_status files_send(tri_storage *storage, const char *folder, const char *below, const char *but)
{
    char **names = NULL;
    size_t count = 0;
    tri_status status = tri_fs_list(folder, &names, &count);
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        char *path = tri_format("%s/%s", folder, names[i]), *name = tri_format("%s%s", below, names[i]);
        bool sends = path != NULL && name != NULL && !is_local(names[i]) && strcmp(names[i], but) != 0 &&
                     tri_fs_exists(path) && !tri_fs_is_folder(path);
        if (sends)
            status = tri_storage_upload(storage, name, path);
        tri_free(path);
        tri_free(name);
    }
    tri_fs_list_free(names, count);
    return status;
}

tri_status tri_mirror_push_files(const char *folder, const char *name)
{
    tri_storage *storage = NULL;
    tri_status status = tri_mirror_open(folder, &storage);
    if (storage != NULL && name != NULL) {
        char *path = tri_format("%s/%s", folder, name);
        status = path != NULL ? tri_storage_upload(storage, name, path) : TRI_ENOMEM;
        tri_free(path);
    } else if (storage != NULL) {
        char *logs = tri_format("%s/log", folder);
        status = files_send(storage, folder, "", "");
        if (status == TRI_OK && logs != NULL && tri_fs_is_folder(logs))
            status = files_send(storage, logs, "log/", "");
        tri_free(logs);
    }
    tri_storage_close(storage);
    return status;
}

tri_status tri_mirror_clear(const char *folder)
{
    tri_storage *storage = NULL;
    tri_vector entries = {.each = sizeof(tri_storage_entry)};
    tri_status status = tri_mirror_open(folder, &storage);
    if (storage != NULL)
        status = tri_storage_list(storage, &entries);
    for (size_t i = 0; i < entries.count && status == TRI_OK; i++)
        status = tri_storage_delete(storage, ((tri_storage_entry *)tri_vector_at(&entries, i))->name);
    tri_storage_entries_free(&entries);
    tri_storage_close(storage);
    return status;
}

/* The manifest goes first, then the rest. */
static tri_status step_remove(tri_storage *storage, const steps *found, int64_t step)
{
    const char *rest = "";
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < found->entries.count; i++) {
            const char *name = ((tri_storage_entry *)tri_vector_at(&found->entries, i))->name;
            if (step_of(name, &rest) == step && (strcmp(rest, MANIFEST) == 0) == (round == 0))
                TRI_TRY(tri_storage_delete(storage, name));
        }
    return TRI_OK;
}

/* A checkpoint that is being pushed. */
typedef struct push {
    tri_storage *storage;
    const char *checkpoints, *name; /* at the URL: name below checkpoints */
    const char *folder;             /* of its files */
    const char *mark;               /* of its pieces; "": there are none */
    bool same;                      /* as what is at the URL already */
} push;

/* Pieces that the list of the checkpoint does not name: the old list's stay where the checkpoint is the same. */
static bool is_stray(const push *one, const char *rest)
{
    return tri_piece_is(rest, NULL) && (strncmp(rest, TRI_PIECES_REPORT, strlen(TRI_PIECES_REPORT)) == 0 ||
                                        tri_piece_is(rest, one->mark) == one->same);
}

/* What does not stay, and what saves that were killed have left. */
static tri_status prune(const push *one, int64_t but, int64_t keep, int64_t keep_every)
{
    tri_storage *storage = one->storage;
    steps found;
    const char *rest = "";
    tri_status status = steps_find(storage, &found);
    for (size_t i = 0; i < found.whole.count && status == TRI_OK; i++) {
        const int64_t step = *(int64_t *)tri_vector_at(&found.whole, i);
        if ((int64_t)i >= keep && step != but && (keep_every <= 0 || step % keep_every != 0))
            status = step_remove(storage, &found, step);
    }
    for (size_t i = 0; i < found.entries.count && status == TRI_OK; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(&found.entries, i))->name;
        const int64_t step = step_of(name, &rest);
        if (step >= 0 && (!is_whole(&found, step) || (step == but && is_stray(one, rest))))
            status = tri_storage_delete(storage, name);
    }
    steps_fini(&found);
    return status;
}

/* The run's own files, where the folder of checkpoints is in one. */
static tri_status run_files_push(const char *checkpoints)
{
    char *run = tri_strdup(checkpoints), *slash = run != NULL ? strrchr(run, '/') : NULL;
    tri_storage *storage = NULL;
    tri_status status = run != NULL ? TRI_OK : TRI_ENOMEM;
    if (slash != NULL) {
        *slash = 0;
        status = tri_mirror_open(run, &storage);
    }
    if (storage != NULL)
        status = files_send(storage, run, "", "");
    tri_storage_close(storage);
    tri_free(run);
    return status;
}

/* Another save of this step is there, with other bytes: it is none from now on. */
static tri_status earlier_hide(push *one)
{
    tri_storage_entry entry;
    char *manifest = tri_format("%s/" MANIFEST, one->name), *path = tri_format("%s/" MANIFEST, one->folder);
    tri_status status =
        manifest != NULL && path != NULL ? tri_storage_stat(one->storage, manifest, &entry) : TRI_ENOMEM;
    bool is_there = status == TRI_OK;
    status = status == TRI_ENOTFOUND ? TRI_OK : status;
    if (is_there) {
        entry.name = manifest;
        status = is_same(one->storage, path, &entry, &one->same);
        if (status == TRI_OK && !one->same)
            status = tri_storage_delete(one->storage, manifest);
    }
    tri_free(manifest);
    tri_free(path);
    return status;
}

/* A checkpoint without pieces has no list of them: one of a save that was killed may name this manifest. */
static tri_status list_remove(const push *one)
{
    if (one->mark[0])
        return TRI_OK;
    char *list = tri_format("%s/" TRI_PIECES_LIST, one->name);
    tri_status status = list != NULL ? tri_storage_delete(one->storage, list) : TRI_ENOMEM;
    tri_free(list);
    return status;
}

static tri_status step_send(push *one)
{
    char *below = tri_format("%s/", one->name), *manifest = tri_format("%s/" MANIFEST, one->name);
    char *path = tri_format("%s/" MANIFEST, one->folder);
    tri_status status = below != NULL && manifest != NULL && path != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = earlier_hide(one);
    if (status == TRI_OK && !one->same)
        status = list_remove(one);
    if (status == TRI_OK && !one->same)
        status = files_send(one->storage, one->folder, below, MANIFEST);
    if (status == TRI_OK)
        status = run_files_push(one->checkpoints);
    if (status == TRI_OK && !one->same)
        status = tri_storage_upload(one->storage, manifest, path);
    tri_free(below);
    tri_free(manifest);
    tri_free(path);
    return status;
}

static tri_status push_run(const char *checkpoint, const char *folder, const char *mark, int64_t keep,
                           int64_t keep_every)
{
    const char *slash = strrchr(checkpoint, '/'), *rest;
    char *above = slash != NULL ? tri_strndup(checkpoint, (size_t)(slash - checkpoint)) : NULL;
    char *name = slash != NULL ? tri_format("%s/", slash + 1) : NULL;
    push one = {.checkpoints = above, .name = slash != NULL ? slash + 1 : "", .folder = folder, .mark = mark};
    tri_status status = above != NULL && name != NULL ? tri_mirror_open(above, &one.storage) : TRI_ENOMEM;
    if (one.storage != NULL)
        status = step_send(&one);
    if (one.storage != NULL && status == TRI_OK && prune(&one, step_of(name, &rest), keep, keep_every) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s: old checkpoints stay: %s", one.storage->label,
                tri_last_error()); /* saved all the same */
    tri_storage_close(one.storage);
    tri_free(above);
    tri_free(name);
    return status;
}

tri_status tri_mirror_push(const char *checkpoint, int64_t keep, int64_t keep_every)
{
    return push_run(checkpoint, checkpoint, "", keep, keep_every);
}

tri_status tri_mirror_push_pieces(const char *checkpoint, const char *folder, uint64_t mark, int64_t keep,
                                  int64_t keep_every)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, mark);
    return push_run(checkpoint, folder, text, keep, keep_every);
}
