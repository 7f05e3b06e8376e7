/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c: file:///folder, as if it were a server: a mounted file system that is not there all the time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "storage/storage_impl.h"

static tri_status file_open(tri_storage *storage)
{
    return storage->place[0] == '/' ? TRI_OK
                                    : tri_fail(TRI_ECONFIG, "%.400s: want file:///PATH, from the root", storage->url);
}

static void file_close(tri_storage *storage)
{
    (void)storage;
}

static char *path_of(const tri_storage *storage, const char *name)
{
    return name[0] != 0 ? tri_format("%s/%s", storage->place, name) : tri_strdup(storage->place);
}

/* Length and time stand for the content. */
static tri_status describe(const char *path, uint64_t *nbytes, char etag[TRI_STORAGE_ETAG_NBYTES])
{
    int64_t wall_ns;
    TRI_TRY(tri_fs_nbytes(path, nbytes));
    TRI_TRY(tri_fs_changed(path, &wall_ns));
    snprintf(etag, TRI_STORAGE_ETAG_NBYTES, "%" PRIx64 "-%" PRIx64, *nbytes, (uint64_t)wall_ns);
    return TRI_OK;
}

static tri_status file_stat(tri_storage *storage, const char *name, tri_storage_entry *entry)
{
    char *path = path_of(storage, name);
    tri_status status = path == NULL ? TRI_ENOMEM : TRI_OK;
    if (status == TRI_OK && (!tri_fs_exists(path) || tri_fs_is_folder(path)))
        status = tri_fail(TRI_ENOTFOUND, "file://%s: no such file", path);
    if (status == TRI_OK)
        status = describe(path, &entry->nbytes, entry->etag);
    tri_free(path);
    return status;
}

static tri_status walk(const char *root, const char *below, tri_vector *entries)
{
    char **names = NULL, *folder = below[0] ? tri_format("%s/%s", root, below) : tri_strdup(root);
    size_t count = 0;
    tri_status status = folder == NULL ? TRI_ENOMEM : TRI_OK;
    if (status == TRI_OK && tri_fs_is_folder(folder))
        status = tri_fs_list(folder, &names, &count);
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        tri_storage_entry entry = {0};
        char *name = below[0] ? tri_format("%s/%s", below, names[i]) : tri_strdup(names[i]);
        char *path = name != NULL ? tri_format("%s/%s", root, name) : NULL;
        status = path == NULL ? TRI_ENOMEM : TRI_OK;
        if (status == TRI_OK && tri_fs_is_folder(path))
            status = walk(root, name, entries);
        else if (status == TRI_OK && !strstr(names[i], ".tmp-")) {
            status = describe(path, &entry.nbytes, entry.etag);
            if (status == TRI_OK)
                status = tri_storage_entry_add(entries, name, entry.nbytes, entry.etag);
        }
        tri_free(name);
        tri_free(path);
    }
    tri_fs_list_free(names, count);
    tri_free(folder);
    return status;
}

static tri_status file_list(tri_storage *storage, tri_vector *entries)
{
    return walk(storage->place, "", entries);
}

static tri_status file_read(tri_storage *storage, const tri_storage_entry *entry, uint64_t first, size_t nbytes,
                            void *out)
{
    char *path = path_of(storage, entry->name);
    size_t got = 0;
    tri_status status = path == NULL ? TRI_ENOMEM : tri_fs_read_part(path, first, out, nbytes, &got);
    if (status == TRI_OK && got < nbytes)
        status =
            tri_fail(TRI_EMISMATCH, "file://%s: want %zu bytes from %" PRIu64 " on, got %zu", path, nbytes, first, got);
    tri_free(path);
    return status;
}

/* The folder of a file. */
static tri_status folder_make(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = tri_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    tri_status status = folder == NULL ? TRI_ENOMEM : tri_fs_make_folder(folder);
    tri_free(folder);
    return status;
}

static tri_status file_put(tri_storage *storage, const char *name, const void *bytes, size_t nbytes)
{
    char *path = path_of(storage, name);
    tri_status status = path == NULL ? TRI_ENOMEM : folder_make(path);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, bytes, nbytes);
    tri_free(path);
    return status;
}

static tri_status file_remove(tri_storage *storage, const char *name)
{
    char *path = path_of(storage, name);
    tri_status status = path == NULL ? TRI_ENOMEM : tri_fs_remove(path);
    /* A folder without objects is none. */
    for (char *slash; status == TRI_OK && (slash = strrchr(path, '/')) != NULL;) {
        *slash = 0;
        if (strlen(path) <= strlen(storage->place) || rmdir(path) != 0)
            break;
    }
    tri_free(path);
    return status;
}

static tri_status file_parts_begin(tri_storage *storage, const char *name, tri_string *mark)
{
    char *path = path_of(storage, name);
    tri_fs_file *file = NULL;
    tri_status status = path == NULL ? TRI_ENOMEM : folder_make(path);
    if (status == TRI_OK)
        status = tri_string_appendf(mark, "%s.tmp-%ld", path, (long)getpid());
    if (status == TRI_OK)
        status = tri_fs_file_open(mark->text, true, &file);
    if (status == TRI_OK)
        status = tri_fs_file_close(file);
    tri_free(path);
    return status;
}

static tri_status file_part_put(tri_storage *storage, const char *name, const char *mark, int number, uint64_t first,
                                const void *bytes, size_t nbytes, char etag[TRI_STORAGE_ETAG_NBYTES])
{
    tri_fs_file *file = NULL;
    (void)storage, (void)name, (void)number;
    etag[0] = 0;
    TRI_TRY(tri_fs_file_open(mark, false, &file));
    tri_status status = tri_fs_file_write(file, bytes, nbytes, first);
    if (status == TRI_OK)
        status = tri_fs_file_sync(file);
    tri_status closed = tri_fs_file_close(file);
    return status == TRI_OK ? closed : status;
}

static tri_status file_parts_end(tri_storage *storage, const char *name, const char *mark,
                                 char (*etags)[TRI_STORAGE_ETAG_NBYTES], int count)
{
    (void)etags, (void)count;
    char *path = path_of(storage, name);
    tri_status status = path == NULL ? TRI_ENOMEM : tri_fs_rename(mark, path);
    tri_free(path);
    return status;
}

static void file_parts_abort(tri_storage *storage, const char *name, const char *mark)
{
    (void)storage, (void)name;
    (void)tri_fs_remove(mark);
}

const tri_storage_ops tri_storage_file = {.scheme = "file",
                                          .open = file_open,
                                          .close = file_close,
                                          .stat = file_stat,
                                          .list = file_list,
                                          .read = file_read,
                                          .put = file_put,
                                          .remove = file_remove,
                                          .parts_begin = file_parts_begin,
                                          .part_put = file_part_put,
                                          .parts_end = file_parts_end,
                                          .parts_abort = file_parts_abort};
