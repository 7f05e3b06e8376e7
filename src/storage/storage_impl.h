/* SPDX-License-Identifier: Apache-2.0
 *
 * storage_impl.h: a scheme of URLs as a row of functions.
 */
#ifndef TRI_STORAGE_STORAGE_IMPL_H
#define TRI_STORAGE_STORAGE_IMPL_H

#include "base/fs.h"
#include "storage/storage.h"

/* Of an upload. 10,000 parts are the most that S3 takes, 5 MiB the least of one. */
#define TRI_STORAGE_PART_NBYTES ((uint64_t)8 << 20)
#define TRI_STORAGE_MAX_PARTS   10000

typedef struct tri_storage_ops {
    const char *scheme;
    tri_status (*open)(tri_storage *storage);
    void (*close)(tri_storage *storage);
    tri_status (*stat)(tri_storage *storage, const char *name, tri_storage_entry *entry);
    tri_status (*list)(tri_storage *storage, tri_vector *entries); /* NULL: such servers have no lists */
    tri_status (*read)(tri_storage *storage, const tri_storage_entry *entry, uint64_t first, size_t nbytes, void *out);
    /* Of an entry that is_whole: all of it, to a file. NULL: there are none. */
    tri_status (*fetch)(tri_storage *storage, const tri_storage_entry *entry, tri_fs_file *file);
    tri_status (*put)(tri_storage *storage, const char *name, const void *bytes, size_t nbytes); /* NULL: read only */
    tri_status (*remove)(tri_storage *storage, const char *name);
    /* An object in parts, numbered from 1, by any number of threads. `mark` names the upload. parts_end() says
     * TRI_ENOTFOUND of an upload that is not there: an earlier try, whose answer was lost, may have completed it. */
    tri_status (*parts_begin)(tri_storage *storage, const char *name, tri_string *mark);
    tri_status (*part_put)(tri_storage *storage, const char *name, const char *mark, int number, uint64_t first,
                           const void *bytes, size_t nbytes, char etag[TRI_STORAGE_ETAG_NBYTES]);
    tri_status (*parts_end)(tri_storage *storage, const char *name, const char *mark,
                            char (*etags)[TRI_STORAGE_ETAG_NBYTES], int count);
    void (*parts_abort)(tri_storage *storage, const char *name, const char *mark);
} tri_storage_ops;

struct tri_storage {
    const tri_storage_ops *ops;
    char *url;      /* as it was given, without a / at its end */
    char *label;    /* the same for messages and logs: without a password, and without a query, which may be signed */
    char *place;    /* what is behind scheme:// */
    void *state;    /* of the row */
    char *endpoint; /* tells servers apart that have the same names; may be NULL */
};

extern const tri_storage_ops tri_storage_file, tri_storage_s3, tri_storage_http, tri_storage_https;

/* "<url>/<name>", or the URL where the name is empty (tri_free). */
char *tri_storage_name_url(const tri_storage *storage, const char *name);
/* Appends a copy. */
tri_status tri_storage_entry_add(tri_vector *entries, const char *name, uint64_t nbytes, const char *etag);
/* Whether a name can be that of a file below a folder. */
bool tri_storage_name_is_safe(const char *name);

#endif
