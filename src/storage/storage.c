/* SPDX-License-Identifier: Apache-2.0
 *
 * storage.c: the table of schemes, and what is the same for all of them.
 */
#include "storage/storage.h"

#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/runtime.h"
#include "storage/storage_impl.h"

static const tri_storage_ops *const rows[] = {&tri_storage_s3, &tri_storage_http, &tri_storage_https,
                                              &tri_storage_file};

#define TRI_OPTION_STRUCT tri_storage_config
static const tri_option option_rows[] = {TRI_STORAGE_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_storage_options =
    TRI_OPTION_TABLE("storage", tri_storage_config, option_rows, "what URLs name (s3://, http://, https://)");
#undef TRI_OPTION_STRUCT

static pthread_mutex_t configured_mutex = PTHREAD_MUTEX_INITIALIZER;
static tri_storage_config configured;
static bool is_configured;

void tri_storage_configure(const tri_storage_config *config)
{
    pthread_mutex_lock(&configured_mutex);
    configured = *config;
    is_configured = true;
    pthread_mutex_unlock(&configured_mutex);
}

tri_storage_config tri_storage_configured(void)
{
    pthread_mutex_lock(&configured_mutex);
    if (!is_configured)
        tri_options_defaults(&tri_storage_options, &configured);
    is_configured = true;
    tri_storage_config config = configured;
    pthread_mutex_unlock(&configured_mutex);
    return config;
}

tri_status tri_storage_open(const char *url, tri_storage **out)
{
    const size_t length = strcspn(url, ":");
    const tri_storage_ops *ops = NULL;
    *out = NULL;
    TRI_TRY(tri_place_check(url));
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        if (strlen(rows[i]->scheme) == length && strncmp(rows[i]->scheme, url, length) == 0)
            ops = rows[i];
    if (ops == NULL)
        return tri_fail(TRI_ECONFIG, "%.*s://: want a URL", (int)length, url);
    tri_storage *storage = tri_alloc_zero(1, sizeof(*storage));
    if (storage == NULL)
        return TRI_ENOMEM;
    storage->ops = ops;
    storage->url = tri_strdup(url);
    storage->place = storage->url != NULL ? tri_strdup(url + length + strlen("://")) : NULL;
    tri_status status = storage->place != NULL ? TRI_OK : TRI_ENOMEM;
    for (size_t nbytes = status == TRI_OK ? strlen(storage->url) : 0;
         nbytes > length + 4 && storage->url[nbytes - 1] == '/'; nbytes--)
        storage->url[nbytes - 1] = storage->place[strlen(storage->place) - 1] = '\0';
    if (status == TRI_OK)
        status = (storage->label = tri_url_label(storage->url)) != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = ops->open(storage);
    if (status != TRI_OK) {
        tri_storage_close(storage);
        return status;
    }
    *out = storage;
    return TRI_OK;
}

void tri_storage_close(tri_storage *storage)
{
    if (storage == NULL)
        return;
    storage->ops->close(storage);
    tri_free(storage->url);
    tri_free(storage->label);
    tri_free(storage->place);
    tri_free(storage->endpoint);
    tri_free(storage);
}

char *tri_storage_name_url(const tri_storage *storage, const char *name)
{
    return name[0] != 0 ? tri_format("%s/%s", storage->url, name) : tri_strdup(storage->url);
}

static tri_status lacks(const tri_storage *storage, const char *what)
{
    return tri_fail(TRI_ECONFIG, "%.400s: %s:// %s: want s3:// or a local path", storage->label, storage->ops->scheme,
                    what);
}

tri_status tri_storage_stat(tri_storage *storage, const char *name, tri_storage_entry *entry)
{
    *entry = (tri_storage_entry){0};
    return storage->ops->stat(storage, name, entry);
}

tri_status tri_storage_entry_add(tri_vector *entries, const char *name, uint64_t nbytes, const char *etag)
{
    tri_storage_entry entry = {.name = tri_strdup(name), .nbytes = nbytes};
    if (strlen(etag) < sizeof(entry.etag))
        strcpy(entry.etag, etag);
    if (entry.name != NULL && tri_vector_push(entries, &entry) != NULL)
        return TRI_OK;
    tri_free(entry.name);
    return TRI_ENOMEM;
}

bool tri_storage_name_is_safe(const char *name)
{
    for (const char *part = name;; part++) {
        size_t length = strcspn(part, "/");
        if (length == 0 || length > 255 || (length == 1 && part[0] == '.') || (length == 2 && !strncmp(part, "..", 2)))
            return false;
        part += length;
        if (*part == 0)
            return true;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tri_storage_entry *)a)->name, ((const tri_storage_entry *)b)->name);
}

tri_status tri_storage_list(tri_storage *storage, tri_vector *entries)
{
    *entries = (tri_vector){.each = sizeof(tri_storage_entry)};
    if (storage->ops->list == NULL)
        return lacks(storage, "has no lists of files, so it names one file");
    TRI_TRY(storage->ops->list(storage, entries));
    for (size_t i = 0; i < entries->count; i++) {
        const char *name = ((tri_storage_entry *)tri_vector_at(entries, i))->name;
        if (!tri_storage_name_is_safe(name))
            return tri_fail(TRI_EFORMAT, "%.300s: '%.200s' cannot be the name of a file", storage->label, name);
    }
    if (entries->count > 0)
        qsort(entries->items, entries->count, sizeof(tri_storage_entry), by_name);
    return TRI_OK;
}

void tri_storage_entries_free(tri_vector *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        tri_free(((tri_storage_entry *)tri_vector_at(entries, i))->name);
    tri_vector_fini(entries);
}

tri_status tri_storage_read(tri_storage *storage, const tri_storage_entry *entry, uint64_t first, size_t nbytes,
                            void *out)
{
    TRI_ASSERT(first + nbytes <= entry->nbytes);
    return nbytes > 0 ? storage->ops->read(storage, entry, first, nbytes, out) : TRI_OK;
}

tri_status tri_storage_put(tri_storage *storage, const char *name, const void *bytes, size_t nbytes)
{
    return storage->ops->put != NULL ? storage->ops->put(storage, name, bytes, nbytes)
                                     : lacks(storage, "can only be read");
}

tri_status tri_storage_delete(tri_storage *storage, const char *name)
{
    return storage->ops->remove != NULL ? storage->ops->remove(storage, name) : lacks(storage, "can only be read");
}
