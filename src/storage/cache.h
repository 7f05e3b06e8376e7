/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.h: local copies of objects, and which of a run's objects are copied.
 */
#ifndef TRI_STORAGE_CACHE_H
#define TRI_STORAGE_CACHE_H

#include "storage/storage.h"

/* A folder of the cache (tri_free). */
char *tri_cache_folder(const char *below);
/* The name of what has this URL and these entries (tri_free). */
char *tri_cache_name(const tri_storage *storage, const tri_storage_entry *entries, size_t count);
/* Waits until nobody else has the file locked; close the descriptor to let go of it. */
tri_status tri_cache_lock(const char *path, int *fd);
/* tri_storage_local() as things are now; `choose` (may be NULL) leaves entries out. */
tri_status tri_cache_place(const char *place, void (*choose)(tri_vector *entries), char **path);

#endif
