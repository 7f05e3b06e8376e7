/* SPDX-License-Identifier: Apache-2.0
 *
 * storage.h: objects below a URL: s3://bucket/prefix, http(s)://host/file (read only), file:///folder.
 *
 * One row of functions per scheme (storage_impl.h). A tri_storage is used by one thread at a time. What others may fix
 * is tried again with growing random pauses; what a person has to fix is one sentence with URL, HTTP status, code of
 * the server and a hint. Credentials are in no message.
 */
#ifndef TRI_STORAGE_STORAGE_H
#define TRI_STORAGE_STORAGE_H

#include "base/containers.h"
#include "base/options.h"

#define TRI_STORAGE_OPTIONS(X)                                                                                         \
    X(PATH, cache, "", 0, 0, NULL,                                                                                     \
      "folder for local copies of what URLs name; empty: trireme in XDG_CACHE_HOME or ~/.cache")                       \
    X(INT, cache_bytes, "50G", 0, 1e18, NULL,                                                                          \
      "bytes of local copies to keep, those used last; run folders do not count; 0: no limit")                         \
    X(INT, connections, "8", 1, 64, NULL, "requests to a server at the same time")                                     \
    X(REAL, timeout_s, "30", 1, 3600, NULL, "seconds without a byte after which a request is tried again")             \
    X(BOOL, sign, "true", 0, 0, NULL, "sign requests to s3://; false: anonymous, for public buckets")
typedef struct tri_storage_config {
    TRI_STORAGE_OPTIONS(TRI_OPTION_FIELD)
} tri_storage_config;
extern const tri_option_table tri_storage_options; /* section "storage" */
/* For this process from now on; before it, the defaults. */
void tri_storage_configure(const tri_storage_config *config);
tri_storage_config tri_storage_configured(void);

#define TRI_STORAGE_ETAG_NBYTES 136
typedef struct tri_storage_entry {
    char *name; /* below the URL that was opened; "": that object itself */
    uint64_t nbytes;
    char etag[TRI_STORAGE_ETAG_NBYTES]; /* changes with the content; "": the server does not say */
    bool is_whole;                      /* the server gives no ranges of it */
    bool has_md5;                       /* the ETag is the content's (tri_storage_stat() says so) */
} tri_storage_entry;

typedef struct tri_storage tri_storage;
/* Makes no request. TRI_ECONFIG: a URL that is wrong, or of an unknown scheme, or credentials are missing. */
tri_status tri_storage_open(const char *url, tri_storage **out);
void tri_storage_close(tri_storage *storage);
/* What is at the URL, or below it; entry->name is not set. TRI_ENOTFOUND: nothing. */
tri_status tri_storage_stat(tri_storage *storage, const char *name, tri_storage_entry *entry);
/* All objects below the URL, sorted by name: a vector of tri_storage_entry; tri_storage_entries_free() it whatever is
 * returned. Names that cannot be those of files (.., //) are TRI_EFORMAT. */
tri_status tri_storage_list(tri_storage *storage, tri_vector *entries);
void tri_storage_entries_free(tri_vector *entries);
/* Exactly these bytes, of the object that the entry describes: TRI_EMISMATCH when it has changed since. */
tri_status tri_storage_read(tri_storage *storage, const tri_storage_entry *entry, uint64_t first, size_t nbytes,
                            void *out);
/* All or nothing. */
tri_status tri_storage_put(tri_storage *storage, const char *name, const void *bytes, size_t nbytes);
/* Fine when absent. */
tri_status tri_storage_delete(tri_storage *storage, const char *name);

/* transfer.c: a file to an object, in parts side by side; all or nothing. */
tri_status tri_storage_upload(tri_storage *storage, const char *name, const char *path);
/* Entries to files below a folder, side by side, each whole or absent; what is there already is not fetched again. An
 * entry with the name "" goes to folder/alone. */
tri_status tri_storage_download(tri_storage *storage, const tri_storage_entry *entries, size_t count,
                                const char *folder, const char *alone);

/* cache.c: the path of a local copy of what a place names (tri_free); a path stays as it is. Of one content, and there
 * for as long as this process. Ranks of a host fetch it once. */
tri_status tri_storage_local(const char *place, char **path);
/* The same of a run's folder or a model's, of whose checkpoints only the newest comes, if `newest`. */
tri_status tri_storage_local_run(const char *place, bool newest, char **path);

/* mirror.c: a local folder for a run's folder, or a place of checkpoints, at a URL (tri_free): made, and empty at
 * first. What is written there reaches the URL by the calls below, which do nothing of folders that are no mirrors. A
 * path stays as it is. */
tri_status tri_mirror_folder(const char *place, char **folder);
/* The URL of a folder or file in a mirror; NULL: it is in none (tri_free). */
char *tri_mirror_url(const char *path);
/* Whether there is a run at the URL: metrics.jsonl, or a checkpoint. */
tri_status tri_mirror_has_run(const char *folder, bool *has);
/* The files of a run's folder, or this one of them, become those of the URL; `missing`: only those that are not there,
 * since other processes read the rest. */
tri_status tri_mirror_pull_files(const char *folder, const char *name, bool missing);
/* The newest checkpoint of a folder becomes that of the URL; those that the URL does not have go. */
tri_status tri_mirror_pull_newest(const char *folder);
/* Removes what is at the URL of a folder. */
tri_status tri_mirror_clear(const char *folder);
/* Uploads a checkpoint, behind the files of its run's folder; manifest.json last. Then removes checkpoints that do not
 * stay. */
tri_status tri_mirror_push(const char *checkpoint, int64_t keep, int64_t keep_every);
/* The URL of a folder or file in a mirror, opened; *out NULL: it is in none. */
tri_status tri_mirror_open(const char *path, tri_storage **out);
/* As tri_mirror_push() of a checkpoint whose files are in another folder, and whose pieces (pieces.h) of this mark are
 * at the URL already; other pieces there go. */
tri_status tri_mirror_push_pieces(const char *checkpoint, const char *folder, uint64_t mark, int64_t keep,
                                  int64_t keep_every);
/* Uploads the files of a run's folder, or this one of them; without a name also those of its log/. */
tri_status tri_mirror_push_files(const char *folder, const char *name);

#endif
