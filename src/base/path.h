/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h: what a path may be, and names that are free.
 */
#ifndef TRI_BASE_PATH_H
#define TRI_BASE_PATH_H

#include <stdbool.h>

#include "base/status.h"

/* TRI_ECONFIG: the path begins with the scheme of a URL, such as s3://, and would become a folder of that name. */
tri_status tri_path_check(const char *path);
/* Whether it is a URL of a scheme that src/storage reads: s3, http, https, file. */
bool tri_path_is_url(const char *path);
/* TRI_ECONFIG: the path is a URL of another scheme. */
tri_status tri_place_check(const char *place);
/* A URL for messages: without user, password and the query, in which a signature may be (tri_free). */
char *tri_url_label(const char *url);
/* Whether a path has this ending, such as ".csv", in letters of either case. */
bool tri_path_ends_in(const char *path, const char *ending);
/* Renames it to the first of path.1, path.2, ... that is free: *to (tri_free). */
tri_status tri_path_set_aside(const char *path, char **to);

#endif
