/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer.c: files up and down, in pieces, by storage.connections threads with a connection each.
 *
 * The threads take piece after piece from one list; the first failure ends all.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "storage/sign.h"
#include "storage/storage_impl.h"

#define PIECE_NBYTES TRI_STORAGE_PART_NBYTES /* of a download */
#define PART         ".part-"                /* a file that is not whole */

typedef struct transfer_work {
    tri_mutex mutex;
    const char *url;
    uint64_t next, count; /* pieces */
    tri_status status;
    char message[TRI_ERROR_NBYTES];
    tri_status (*piece)(struct transfer_work *transfer, tri_storage *storage, uint64_t number, void *memory);
    size_t memory_nbytes; /* of each thread */
    /* An upload: */
    const char *name, *path, *mark;
    uint64_t nbytes, part_nbytes;
    char (*etags)[TRI_STORAGE_ETAG_NBYTES];
    const tri_storage_entry *uploaded; /* what is compared with the file */
    /* A download: */
    const tri_storage_entry *entries;
    const uint64_t *firsts; /* [entries + 1] number of its first piece */
    size_t entry_count;
    uint64_t *left; /* [entries] pieces */
    const char *folder, *alone;
} transfer_work;

static bool piece_take(transfer_work *transfer, uint64_t *number)
{
    tri_mutex_lock(&transfer->mutex);
    bool is = transfer->status == TRI_OK && transfer->next < transfer->count;
    *number = transfer->next;
    transfer->next += is;
    tri_mutex_unlock(&transfer->mutex);
    return is;
}

static void failed(transfer_work *transfer, tri_status status)
{
    tri_mutex_lock(&transfer->mutex);
    if (transfer->status == TRI_OK) {
        transfer->status = status;
        snprintf(transfer->message, sizeof(transfer->message), "%s", tri_last_error());
    }
    tri_mutex_unlock(&transfer->mutex);
}

static void work(void *arg)
{
    transfer_work *transfer = arg;
    tri_storage *storage = NULL;
    uint64_t number;
    void *memory = tri_alloc(transfer->memory_nbytes + 1);
    tri_status status = memory != NULL ? tri_storage_open(transfer->url, &storage) : TRI_ENOMEM;
    while (status == TRI_OK && piece_take(transfer, &number)) {
        if (transfer->entries != NULL && tri_stop_signal() != 0) /* an upload may be the last checkpoint */
            status = tri_fail(TRI_ECANCELED, "stopped by a signal while files were fetched");
        else
            status = transfer->piece(transfer, storage, number, memory);
    }
    if (status != TRI_OK)
        failed(transfer, status);
    tri_storage_close(storage);
    tri_free(memory);
}

static tri_status run(transfer_work *transfer)
{
    tri_thread *threads[64];
    int started = 0;
    const int64_t connections = tri_storage_configured().connections;
    tri_mutex_init(&transfer->mutex);
    while (started < connections - 1 && (uint64_t)started + 1 < transfer->count &&
           tri_thread_start(&threads[started], "storage", work, transfer) == TRI_OK)
        started++;
    work(transfer);
    for (int i = 0; i < started; i++)
        tri_thread_join(threads[i]);
    tri_mutex_fini(&transfer->mutex);
    return transfer->status == TRI_OK ? TRI_OK : tri_fail_copy(transfer->status, transfer->message);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- up --- */

static tri_status file_read(const char *path, uint64_t first, size_t nbytes, void *memory)
{
    size_t got;
    TRI_TRY(tri_fs_read_part(path, first, memory, nbytes, &got));
    return got == nbytes ? TRI_OK : tri_fail(TRI_EIO, "%s: cut short by another program while it was uploaded", path);
}

static tri_status part_send(transfer_work *transfer, tri_storage *storage, uint64_t number, void *memory)
{
    const uint64_t first = number * transfer->part_nbytes;
    const size_t nbytes = least(transfer->part_nbytes, transfer->nbytes - first);
    TRI_TRY(file_read(transfer->path, first, nbytes, memory));
    return storage->ops->part_put(storage, transfer->name, transfer->mark, (int)number + 1, first, memory, nbytes,
                                  transfer->etags[number]);
}

static tri_status piece_compare(transfer_work *transfer, tri_storage *storage, uint64_t number, void *memory)
{
    const uint64_t first = number * PIECE_NBYTES;
    const size_t nbytes = least(PIECE_NBYTES, transfer->nbytes - first);
    char *there = (char *)memory + PIECE_NBYTES;
    TRI_TRY(file_read(transfer->path, first, nbytes, memory));
    TRI_TRY(tri_storage_read(storage, transfer->uploaded, first, nbytes, there));
    return memcmp(memory, there, nbytes) == 0 ? TRI_OK : tri_fail(TRI_EMISMATCH, "another object");
}

/* Whether the object has the bytes of the file. */
static bool is_uploaded(tri_storage *storage, const char *name, const char *path, uint64_t nbytes)
{
    tri_storage_entry entry;
    if (tri_storage_stat(storage, name, &entry) != TRI_OK || entry.nbytes != nbytes)
        return false;
    entry.name = (char *)(uintptr_t)name;
    transfer_work comparison = {.url = storage->url,
                                .count = (nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES,
                                .piece = piece_compare,
                                .memory_nbytes = 2 * PIECE_NBYTES,
                                .path = path,
                                .nbytes = nbytes,
                                .uploaded = &entry};
    return run(&comparison) == TRI_OK;
}

static tri_status parts_send(tri_storage *storage, const char *name, const char *path, uint64_t nbytes)
{
    uint64_t each = TRI_STORAGE_PART_NBYTES;
    tri_string mark = {0};
    while (nbytes / each >= TRI_STORAGE_MAX_PARTS)
        each *= 2;
    transfer_work up = {.url = storage->url,
                        .count = (nbytes + each - 1) / each,
                        .piece = part_send,
                        .memory_nbytes = each,
                        .name = name,
                        .path = path,
                        .nbytes = nbytes,
                        .part_nbytes = each};
    up.etags = tri_alloc_zero((size_t)up.count, sizeof(*up.etags));
    tri_status status = up.etags != NULL ? storage->ops->parts_begin(storage, name, &mark) : TRI_ENOMEM;
    bool begun = status == TRI_OK;
    up.mark = tri_string_text(&mark);
    if (status == TRI_OK)
        status = run(&up);
    if (status == TRI_OK)
        status = storage->ops->parts_end(storage, name, up.mark, up.etags, (int)up.count);
    if (begun && status != TRI_OK) {
        char message[TRI_ERROR_NBYTES];
        snprintf(message, sizeof(message), "%s", tri_last_error());
        if (status == TRI_ENOTFOUND && is_uploaded(storage, name, path, nbytes))
            status = TRI_OK;
        else {
            storage->ops->parts_abort(storage, name, up.mark);
            status = tri_fail_copy(status, message);
        }
    }
    tri_string_fini(&mark);
    tri_free(up.etags);
    return status;
}

tri_status tri_storage_upload(tri_storage *storage, const char *name, const char *path)
{
    uint64_t nbytes;
    TRI_TRY(tri_fs_nbytes(path, &nbytes));
    if (nbytes > TRI_STORAGE_PART_NBYTES && storage->ops->parts_begin != NULL)
        return parts_send(storage, name, path, nbytes);
    void *memory = tri_alloc((size_t)nbytes + 1);
    tri_status status = memory != NULL ? file_read(path, 0, (size_t)nbytes, memory) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_storage_put(storage, name, memory, (size_t)nbytes);
    tri_free(memory);
    return status;
}

/* --- down --- */

/* Where an entry goes (tri_free). */
static char *target_of(const transfer_work *transfer, const tri_storage_entry *entry)
{
    return tri_format("%s/%s", transfer->folder, entry->name[0] ? entry->name : transfer->alone);
}

/* Where it is until it is whole: no name of another entry, whatever these are. */
static char *part_of(const transfer_work *transfer, const tri_storage_entry *entry)
{
    return tri_format("%s/" PART "%016" PRIx64, transfer->folder, XXH3_64bits(entry->name, strlen(entry->name)));
}

static bool is_md5(const char *etag)
{
    return strlen(etag) == 32 && strspn(etag, "0123456789abcdef") == 32;
}

/* The content's MD5 is compared with the ETag, where that is one: not of uploads in parts, nor of what a server
 * encrypts with keys of its own, which it says when asked. */
static tri_status content_check(tri_storage *storage, const tri_storage_entry *entry, const char *part, void *memory)
{
    char hex[33] = "";
    tri_storage_entry known;
    tri_md5 *md5 = is_md5(entry->etag) ? tri_md5_begin() : NULL;
    tri_status status = TRI_OK;
    for (uint64_t at = 0; md5 != NULL && at < entry->nbytes && status == TRI_OK;) {
        size_t got = 0;
        status = tri_fs_read_part(part, at, memory, PIECE_NBYTES, &got);
        if (status == TRI_OK && got == 0)
            status = tri_fail(TRI_EIO, "%s: cut short by another program", part);
        tri_md5_put(md5, memory, got);
        at += got;
    }
    tri_md5_end(md5, hex);
    TRI_TRY(status);
    if (md5 == NULL || strcmp(hex, entry->etag) == 0)
        return TRI_OK;
    TRI_TRY(tri_storage_stat(storage, entry->name, &known));
    return known.has_md5 ? tri_fail(TRI_EIO, "%.300s/%.200s: damaged on its way: want MD5 %s, got %s", storage->label,
                                    entry->name, entry->etag, hex)
                         : TRI_OK;
}

static tri_status folder_make(const char *path)
{
    char *folder = tri_strndup(path, (size_t)(strrchr(path, '/') - path));
    tri_status status = folder != NULL ? tri_fs_make_folder(folder) : TRI_ENOMEM;
    tri_free(folder);
    return status;
}

/* The last piece is there: the file gets its name. */
static tri_status entry_end(tri_storage *storage, const tri_storage_entry *entry, const char *part, const char *path,
                            void *memory)
{
    TRI_TRY(content_check(storage, entry, part, memory));
    TRI_TRY(folder_make(path));
    return tri_fs_rename(part, path);
}

static size_t entry_of(const transfer_work *transfer, uint64_t number)
{
    size_t low = 0, high = transfer->entry_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (transfer->firsts[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Opens the file that is not whole yet: made by whoever comes first. */
static tri_status part_open(transfer_work *transfer, const char *part, tri_fs_file **file)
{
    tri_mutex_lock(&transfer->mutex);
    tri_status status = tri_fs_exists(part) ? TRI_OK : folder_make(part);
    if (status == TRI_OK)
        status = tri_fs_file_open(part, !tri_fs_exists(part), file);
    tri_mutex_unlock(&transfer->mutex);
    return status;
}

static tri_status piece_fetch(transfer_work *transfer, tri_storage *storage, uint64_t number, void *memory)
{
    const size_t index = entry_of(transfer, number);
    const tri_storage_entry *entry = &transfer->entries[index];
    const uint64_t first = (number - transfer->firsts[index]) * PIECE_NBYTES;
    const size_t nbytes = least(PIECE_NBYTES, entry->nbytes - first);
    char *path = target_of(transfer, entry), *part = path != NULL ? part_of(transfer, entry) : NULL;
    tri_fs_file *file = NULL;
    tri_status status = part != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && !entry->is_whole)
        status = tri_storage_read(storage, entry, first, nbytes, memory);
    if (status == TRI_OK)
        status = part_open(transfer, part, &file);
    if (status == TRI_OK)
        status = entry->is_whole ? storage->ops->fetch(storage, entry, file)
                                 : tri_fs_file_write(file, memory, nbytes, first);
    tri_status closed = tri_fs_file_close(file);
    status = status == TRI_OK ? closed : status;
    tri_mutex_lock(&transfer->mutex);
    bool last = status == TRI_OK && --transfer->left[index] == 0;
    tri_mutex_unlock(&transfer->mutex);
    if (last)
        status = entry_end(storage, entry, part, path, memory);
    tri_free(path);
    tri_free(part);
    return status;
}

static uint64_t piece_count(const tri_storage_entry *entry)
{
    return entry->is_whole || entry->nbytes == 0 ? 1 : (entry->nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
}

/* Entries that are not there, and their pieces. */
static tri_status plan(transfer_work *down, const tri_storage_entry *entries, size_t count, tri_storage_entry *wanted,
                       uint64_t *firsts)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t nbytes = 0;
        char *path = target_of(down, &entries[i]), *part = path != NULL ? part_of(down, &entries[i]) : NULL;
        tri_status status = part != NULL ? tri_fs_remove(part) : TRI_ENOMEM;
        bool is_there = status == TRI_OK && tri_fs_exists(path) && tri_fs_nbytes(path, &nbytes) == TRI_OK &&
                        nbytes == entries[i].nbytes;
        tri_free(path);
        tri_free(part);
        TRI_TRY(status);
        if (is_there)
            continue;
        wanted[down->entry_count] = entries[i];
        down->left[down->entry_count] = piece_count(&entries[i]);
        firsts[down->entry_count] = down->count;
        down->count += piece_count(&entries[i]);
        down->entry_count++;
    }
    return TRI_OK;
}

tri_status tri_storage_download(tri_storage *storage, const tri_storage_entry *entries, size_t count,
                                const char *folder, const char *alone)
{
    tri_storage_entry *wanted = tri_alloc((count + 1) * sizeof(*wanted));
    uint64_t *firsts = tri_alloc((count + 1) * sizeof(*firsts)), *left = tri_alloc((count + 1) * sizeof(*left));
    transfer_work down = {.url = storage->url,
                          .piece = piece_fetch,
                          .memory_nbytes = PIECE_NBYTES,
                          .entries = wanted,
                          .firsts = firsts,
                          .left = left,
                          .folder = folder,
                          .alone = alone};
    tri_status status = wanted != NULL && firsts != NULL && left != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = plan(&down, entries, count, wanted, firsts);
    if (status == TRI_OK && down.count > 0)
        status = run(&down);
    tri_free(wanted);
    tri_free(firsts);
    tri_free(left);
    return status;
}
