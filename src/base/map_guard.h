/* SPDX-License-Identifier: Apache-2.0
 *
 * map_guard.h: which files are mapped where, so that a program can say which one another program cut short.
 *
 * For fs.c, which maps them; what programs call is tri_fs_cut_catch() in fs.h.
 */
#ifndef TRI_BASE_MAP_GUARD_H
#define TRI_BASE_MAP_GUARD_H

#include <stddef.h>

/* Remembers a map, if there is room for it. */
void tri_map_guard_add(const char *path, const void *bytes, size_t nbytes);
void tri_map_guard_remove(const void *bytes);

#endif
