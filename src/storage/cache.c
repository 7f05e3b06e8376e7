/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.c: local copies of what URLs name.
 *
 * A copy is a folder named for the URL and all names, lengths and ETags below it: what has changed is another copy. It
 * is filled under an exclusive lock and used under a shared one, which this process keeps; only a copy that nobody uses
 * is removed, the least recently used first.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "base/runtime.h"
#include "storage/cache.h"
#include "storage/pieces.h"
#include "storage/storage_impl.h"

#define LOCK_LOOK_NS (50 * TRI_NS_PER_MS)
#define LOOKS        5 /* at a place that changes */
#define LOCK_TELL_NS (5 * TRI_NS_PER_S)
#define MARK         "complete" /* in a copy: its bytes and its URL; its time is that of the last use */

char *tri_cache_folder(const char *below)
{
    const tri_storage_config config = tri_storage_configured();
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (config.cache[0])
        return tri_format("%s/%s", config.cache, below);
    if (xdg != NULL && xdg[0] == '/')
        return tri_format("%s/trireme/%s", xdg, below);
    if (home != NULL && home[0] == '/')
        return tri_format("%s/.cache/trireme/%s", home, below);
    return tri_format("/var/tmp/trireme-%ld/%s", (long)getuid(), below);
}

char *tri_cache_name(const tri_storage *storage, const tri_storage_entry *entries, size_t count)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return NULL;
    XXH3_64bits_reset(state);
    const char *const texts[] = {storage->url, storage->endpoint ? storage->endpoint : ""};
    for (size_t i = 0; i < TRI_COUNT_OF(texts); i++)
        XXH3_64bits_update(state, texts[i], strlen(texts[i]) + 1);
    for (size_t i = 0; i < count; i++) {
        XXH3_64bits_update(state, entries[i].name, strlen(entries[i].name) + 1);
        XXH3_64bits_update(state, &entries[i].nbytes, sizeof(entries[i].nbytes));
        XXH3_64bits_update(state, entries[i].etag, strlen(entries[i].etag) + 1);
    }
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return tri_format("%016" PRIx64, hash);
}

/* --- one copy --- */

typedef struct copy {
    char *folder, *lock, *mark, *path; /* path: of what the URL names */
    int fd;
    uint64_t nbytes;
} copy;

static void copy_fini(copy *one)
{
    tri_free(one->folder);
    tri_free(one->lock);
    tri_free(one->mark);
    tri_free(one->path);
}

/* The last part of the URL's path, without a query, in which a signature may be. */
static char *last_part(const tri_storage *storage)
{
    const bool has_query = storage->ops != &tri_storage_s3; /* "?" is a letter of a key there */
    char *place = tri_strndup(storage->place, has_query ? strcspn(storage->place, "?") : strlen(storage->place));
    if (place == NULL)
        return NULL;
    const char *slash = strrchr(place, '/'), *name = slash != NULL ? slash + 1 : place;
    char *part = tri_strdup(tri_storage_name_is_safe(name) && strcmp(name, MARK) != 0 ? name : "data");
    tri_free(place);
    return part;
}

static tri_status copy_make(const tri_storage *storage, const tri_vector *entries, copy *one)
{
    char *root = tri_cache_folder("objects"), *name = tri_cache_name(storage, entries->items, entries->count);
    char *last = last_part(storage);
    *one = (copy){.fd = -1};
    bool good = root != NULL && name != NULL && last != NULL &&
                (one->folder = tri_format("%s/%s", root, name)) != NULL &&
                (one->lock = tri_format("%s.lock", one->folder)) != NULL &&
                (one->mark = tri_format("%s/" MARK, one->folder)) != NULL &&
                (one->path = tri_format("%s/%s", one->folder, last)) != NULL;
    for (size_t i = 0; i < entries->count; i++)
        one->nbytes += ((tri_storage_entry *)tri_vector_at(entries, i))->nbytes;
    tri_status status = good ? tri_fs_make_folder(root) : TRI_ENOMEM;
    tri_free(root);
    tri_free(name);
    tri_free(last);
    return status;
}

static tri_status lock_open(copy *one)
{
    one->fd = open(one->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return one->fd >= 0 ? TRI_OK
                        : tri_fail(TRI_EIO, "%s: cannot be opened (storage.cache says where copies go)", one->lock);
}

/* In place of the lock that is held; without it, none is held. */
static bool lock_try(const copy *one, int kind)
{
    if (flock(one->fd, kind | LOCK_NB) == 0)
        return true;
    (void)flock(one->fd, LOCK_UN);
    return false;
}

/* Whoever holds it may be fetching many files. */
static tri_status lock_wait(const copy *one, int kind)
{
    int64_t tell_ns = tri_now_ns() + LOCK_TELL_NS;
    while (flock(one->fd, kind | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return tri_fail(TRI_EIO, "%s: cannot be locked: %s (storage.cache says where copies go)", one->lock,
                            strerror(errno));
        if (tri_stop_signal() != 0)
            return tri_fail(TRI_ECANCELED, "stopped by a signal while another process filled %s", one->folder);
        if (tri_now_ns() > tell_ns) {
            tri_log(TRI_LOG_INFO, "another process is filling %s", one->folder);
            tell_ns = TRI_FOREVER;
        }
        tri_sleep_ns(LOCK_LOOK_NS);
    }
    return TRI_OK;
}

tri_status tri_cache_lock(const char *path, int *fd)
{
    copy one = {.folder = (char *)(uintptr_t)path, .lock = (char *)(uintptr_t)path, .fd = -1};
    *fd = -1;
    TRI_TRY(lock_open(&one));
    tri_status status = lock_wait(&one, LOCK_EX);
    if (status == TRI_OK)
        *fd = one.fd;
    else
        close(one.fd);
    return status;
}

/* --- room --- */

typedef struct old_copy {
    char *name;
    uint64_t nbytes; /* as its mark says */
    int64_t used_ns;
    bool is_whole; /* else its fetch has ended early, or is under way */
} old_copy;

static int by_use(const void *a, const void *b)
{
    const old_copy *left = a, *right = b;
    return left->used_ns < right->used_ns ? -1 : left->used_ns > right->used_ns;
}

static tri_status olds_find(const char *root, const char *but, tri_vector *olds, uint64_t *sum)
{
    char **names = NULL;
    size_t count = 0;
    TRI_TRY(tri_fs_list(root, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        old_copy old = {0};
        char *folder = tri_format("%s/%s", root, names[i]), *mark = tri_format("%s/%s/" MARK, root, names[i]);
        char *text = NULL;
        if (folder != NULL && mark != NULL && strcmp(names[i], but) != 0 && tri_fs_is_folder(folder)) {
            old.is_whole =
                tri_fs_read(mark, 4096, &text, NULL) == TRI_OK && tri_fs_changed(mark, &old.used_ns) == TRI_OK;
            old.nbytes = old.is_whole ? strtoull(text, NULL, 10) : 0;
            *sum += old.nbytes;
            if ((old.name = tri_strdup(names[i])) == NULL || tri_vector_push(olds, &old) == NULL)
                status = TRI_ENOMEM;
        }
        tri_free(folder);
        tri_free(mark);
        tri_free(text);
    }
    tri_fs_list_free(names, count);
    return status;
}

/* Removes a copy that nobody uses; its mark first, so that one of which a part is gone does not count as whole. */
static bool old_remove(const char *root, const old_copy *old)
{
    char *folder = tri_format("%s/%s", root, old->name);
    copy one = {.fd = -1,
                .folder = folder,
                .lock = folder != NULL ? tri_format("%s.lock", folder) : NULL,
                .mark = folder != NULL ? tri_format("%s/" MARK, folder) : NULL};
    bool gone = one.lock != NULL && one.mark != NULL && lock_open(&one) == TRI_OK &&
                flock(one.fd, LOCK_EX | LOCK_NB) == 0 && tri_fs_remove(one.mark) == TRI_OK &&
                tri_fs_remove(folder) == TRI_OK;
    if (gone)
        tri_log(TRI_LOG_DEBUG, "%s: removed, %" PRIu64 " bytes", folder, old->nbytes);
    if (one.fd >= 0)
        close(one.fd);
    copy_fini(&one);
    return gone;
}

/* Bytes that the disk has for others. */
static uint64_t disk_free(const char *folder)
{
    struct statvfs disk;
    return statvfs(folder, &disk) == 0 ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
}

static tri_status room_lacks(const tri_storage *storage, const copy *one, const char *what, uint64_t used, uint64_t got)
{
    return tri_fail(TRI_ECONFIG,
                    "%s: want room for %" PRIu64 " bytes of %.300s beside %" PRIu64 " that are in use, got %" PRIu64
                    " (data are copied before they are read: mount the bucket where no disk has room for them)",
                    what, one->nbytes, storage->label, used, got);
}

/* Least recently used copies go until there is room, both for all copies and on the disk. */
static tri_status room_make(const tri_storage *storage, const copy *one)
{
    const uint64_t limit = (uint64_t)tri_storage_configured().cache_bytes, most = limit > 0 ? limit : UINT64_MAX / 2;
    const bool is_new = !tri_fs_is_folder(one->folder); /* else a part of it may be there */
    char *root = tri_cache_folder("objects");
    tri_vector olds = {.each = sizeof(old_copy)};
    uint64_t sum = 0;
    tri_status status = root == NULL ? TRI_ENOMEM : TRI_OK;
    if (status == TRI_OK)
        status = olds_find(root, strrchr(one->folder, '/') + 1, &olds, &sum);
    if (olds.count > 0)
        qsort(olds.items, olds.count, sizeof(old_copy), by_use);
    /* For what cannot fit nothing goes. */
    const bool fits = one->nbytes <= most && (!is_new || one->nbytes <= disk_free(root) + sum);
    for (size_t i = 0; i < olds.count; i++) {
        old_copy *old = tri_vector_at(&olds, i);
        bool lacks = sum + one->nbytes > most || (is_new && disk_free(root) < one->nbytes);
        if ((!old->is_whole || (lacks && fits)) && old_remove(root, old))
            sum -= old->nbytes;
        tri_free(old->name);
    }
    if (status == TRI_OK && sum + one->nbytes > most)
        status = room_lacks(storage, one, "storage.cache_bytes", sum, most);
    else if (status == TRI_OK && is_new && disk_free(root) < one->nbytes)
        status = room_lacks(storage, one, "storage.cache: the disk is too small", sum, disk_free(root));
    tri_vector_fini(&olds);
    tri_free(root);
    return status;
}

/* --- filling --- */

static tri_status mark_write(const tri_storage *storage, const copy *one)
{
    char *text = tri_format("%" PRIu64 " %s\n", one->nbytes, storage->label);
    tri_status status = text != NULL ? tri_fs_write_swap(one->mark, text, strlen(text)) : TRI_ENOMEM;
    tri_free(text);
    return status;
}

/* `name`: of a file of the copy; of a list of pieces, these become files. */
static tri_status pieces_join(const copy *one, const char *name)
{
    const char *slash = strrchr(name, '/');
    if (strcmp(slash != NULL ? slash + 1 : name, TRI_PIECES_LIST) != 0)
        return TRI_OK;
    char *folder = tri_format("%s/%.*s", one->path, slash != NULL ? (int)(slash - name) : 0, name);
    tri_status status = folder != NULL ? tri_pieces_join(folder) : TRI_ENOMEM;
    tri_free(folder);
    return status;
}

static tri_status fill(tri_storage *storage, const tri_vector *entries, const copy *one)
{
    const int64_t begin_ns = tri_now_ns();
    const tri_storage_entry *first = entries->items;
    const bool is_one = entries->count == 1 && first->name[0] == 0;
    TRI_TRY(room_make(storage, one));
    TRI_TRY(tri_fs_make_folder(one->folder));
    tri_log(TRI_LOG_DEBUG, "%s: fetching %zu files, %" PRIu64 " bytes", storage->label, entries->count, one->nbytes);
    TRI_TRY(is_one ? tri_storage_download(storage, entries->items, 1, one->folder, strrchr(one->path, '/') + 1)
                   : tri_storage_download(storage, entries->items, entries->count, one->path, ""));
    for (size_t i = 0; !is_one && i < entries->count; i++)
        TRI_TRY(pieces_join(one, ((tri_storage_entry *)tri_vector_at(entries, i))->name));
    TRI_TRY(mark_write(storage, one));
    tri_log(TRI_LOG_INFO, "%s: %zu %s, %.1f MB in %.1f s, are in %s", storage->label, entries->count,
            entries->count == 1 ? "file" : "files", (double)one->nbytes / 1e6, (double)(tri_now_ns() - begin_ns) / 1e9,
            one->path);
    return TRI_OK;
}

/* The path of a copy of the entries (tri_free), which stays as long as this process. */
static tri_status entries_fetch(tri_storage *storage, const tri_vector *entries, char **path)
{
    copy one;
    tri_status status = copy_make(storage, entries, &one);
    if (status == TRI_OK)
        status = lock_open(&one);
    bool complete = false;
    while (status == TRI_OK && !complete) {
        if ((status = lock_wait(&one, LOCK_SH)) != TRI_OK || (complete = tri_fs_exists(one.mark)))
            break;
        /* Two that found nothing may both try to fill it. The one that gets the lock keeps a shared one for as long as
         * it lives, so the other must not wait for an exclusive one. */
        if (!lock_try(&one, LOCK_EX))
            tri_sleep_ns(LOCK_LOOK_NS);
        else if (!tri_fs_exists(one.mark))
            status = fill(storage, entries, &one);
    }
    if (status == TRI_OK)
        (void)mark_write(storage, &one); /* used now */
    *path = status == TRI_OK ? one.path : NULL;
    if (status == TRI_OK)
        one.path = NULL; /* fd stays open: the copy is in use until this process ends */
    else if (one.fd >= 0)
        close(one.fd);
    copy_fini(&one);
    return status;
}

/* --- places --- */

/* What a URL names: one object, or those below it. */
static tri_status find(tri_storage *storage, tri_vector *entries)
{
    tri_storage_entry entry;
    *entries = (tri_vector){.each = sizeof(entry)};
    tri_status status = tri_storage_stat(storage, "", &entry);
    if (status == TRI_OK)
        TRI_TRY(tri_storage_entry_add(entries, "", entry.nbytes, entry.etag));
    if (status == TRI_OK)
        ((tri_storage_entry *)tri_vector_at(entries, 0))->is_whole = entry.is_whole;
    if (status != TRI_ENOTFOUND || storage->ops->list == NULL)
        return status;
    TRI_TRY(tri_storage_list(storage, entries));
    return entries->count > 0
               ? TRI_OK
               : tri_fail(TRI_ENOTFOUND, "%.400s: there is no such object, and none below it", storage->label);
}

/* A run that continues replaces and removes objects between two requests: another look finds what is there then. */
static tri_status place_fetch(tri_storage *storage, void (*choose)(tri_vector *entries), char **path)
{
    for (int look = 1;; look++) {
        tri_vector entries;
        tri_status status = find(storage, &entries);
        const bool is_there = status == TRI_OK;
        if (is_there && choose != NULL)
            choose(&entries);
        if (is_there)
            status = entries_fetch(storage, &entries, path);
        tri_storage_entries_free(&entries);
        if (!is_there || look == LOOKS || (status != TRI_EMISMATCH && status != TRI_ENOTFOUND))
            return status;
    }
}

tri_status tri_cache_place(const char *place, void (*choose)(tri_vector *entries), char **path)
{
    tri_storage *storage = NULL;
    *path = NULL;
    if (!tri_path_is_url(place))
        return (*path = tri_strdup(place)) != NULL ? TRI_OK : TRI_ENOMEM;
    TRI_TRY(tri_storage_open(place, &storage));
    tri_status status;
    if (storage->ops == &tri_storage_file)
        status = (*path = tri_strdup(storage->place)) != NULL ? TRI_OK : TRI_ENOMEM;
    else
        status = place_fetch(storage, choose, path);
    tri_storage_close(storage);
    return status;
}

/* The step of a name such as "checkpoints/step-00000010/manifest.json", and where its folder's name ends; -1: none. */
static int64_t step_of(const char *name, size_t *folder_nbytes)
{
    const char *at = strncmp(name, "step-", 5) == 0 ? name : strstr(name, "/step-");
    if (at == NULL)
        return -1;
    at += (*at == '/') + 5;
    const size_t digits = strspn(at, "0123456789");
    if (digits == 0 || digits > 18 || at[digits] != '/')
        return -1;
    *folder_nbytes = (size_t)(at - name) + digits;
    return strtoll(at, NULL, 10);
}

/* Whether the folder of a checkpoint has its manifest, the last object that a save writes. */
static bool has_manifest(const tri_vector *entries, const char *folder, size_t nbytes)
{
    for (size_t i = 0; i < entries->count; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(entries, i))->name;
        if (strncmp(name, folder, nbytes) == 0 && strcmp(name + nbytes, "/manifest.json") == 0)
            return true;
    }
    return false;
}

/* Leaves out checkpoints without a manifest (a save that was killed), logs and, if `newest`, all checkpoints but the
 * newest and the best. */
static void choose_checkpoints(tri_vector *entries, bool newest)
{
    int64_t best = -1;
    size_t kept = 0, nbytes = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(entries, i))->name;
        const int64_t step = step_of(name, &nbytes);
        if (strncmp(name, "best/", 5) != 0 && step > best && strcmp(name + nbytes, "/manifest.json") == 0)
            best = step;
    }
    bool *out = tri_alloc_zero(entries->count + 1, sizeof(*out));
    for (size_t i = 0; i < entries->count && out != NULL; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(entries, i))->name;
        const int64_t step = step_of(name, &nbytes);
        out[i] = step >= 0 &&
                 (!has_manifest(entries, name, nbytes) || (newest && step != best && strncmp(name, "best/", 5) != 0));
        out[i] = out[i] || strncmp(name, "log/", 4) == 0;
    }
    for (size_t i = 0; i < entries->count && out != NULL; i++) {
        tri_storage_entry *entry = tri_vector_at(entries, i);
        if (out[i])
            tri_free(entry->name);
        else
            *(tri_storage_entry *)tri_vector_at(entries, kept++) = *entry;
    }
    entries->count = out != NULL ? kept : entries->count;
    tri_free(out);
}

static void choose_newest(tri_vector *entries)
{
    choose_checkpoints(entries, true);
}

static void choose_whole(tri_vector *entries)
{
    choose_checkpoints(entries, false);
}

/* What a place was found to be is so for as long as this process. */
typedef struct known_place {
    char *place, *path;
    void (*choose)(tri_vector *entries);
    struct known_place *next;
} known_place;

static pthread_mutex_t known_mutex = PTHREAD_MUTEX_INITIALIZER;
static known_place *known_places;

static char *known_find(const char *place, void (*choose)(tri_vector *entries))
{
    char *path = NULL;
    pthread_mutex_lock(&known_mutex);
    for (const known_place *known = known_places; known != NULL && path == NULL; known = known->next)
        if (known->choose == choose && strcmp(known->place, place) == 0)
            path = tri_strdup(known->path);
    pthread_mutex_unlock(&known_mutex);
    return path;
}

static void known_add(const char *place, void (*choose)(tri_vector *entries), const char *path)
{
    known_place *known = tri_alloc_zero(1, sizeof(*known));
    if (known == NULL)
        return;
    *known = (known_place){.place = tri_strdup(place), .path = tri_strdup(path), .choose = choose};
    pthread_mutex_lock(&known_mutex);
    known->next = known_places;
    if (known->place != NULL && known->path != NULL)
        known_places = known;
    pthread_mutex_unlock(&known_mutex);
}

static tri_status remembered(const char *place, void (*choose)(tri_vector *entries), char **path)
{
    *path = known_find(place, choose);
    if (*path != NULL)
        return TRI_OK;
    TRI_TRY(tri_cache_place(place, choose, path));
    if (tri_path_is_url(place))
        known_add(place, choose, *path);
    return TRI_OK;
}

tri_status tri_storage_local(const char *place, char **path)
{
    return remembered(place, NULL, path);
}

tri_status tri_storage_local_run(const char *place, bool newest, char **path)
{
    return remembered(place, newest ? choose_newest : choose_whole, path);
}
