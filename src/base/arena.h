/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.h: memory that is freed all at once: built in pieces at build time, gone with its owner.
 */
#ifndef TRI_BASE_ARENA_H
#define TRI_BASE_ARENA_H

#include "base/memory.h"

typedef struct tri_arena {
    struct tri_arena_block *blocks; /* newest first */
} tri_arena;

/* A zeroed tri_arena is a valid empty one. */
/* Zeroed, 16-byte aligned; NULL when memory is out. */
void *tri_arena_alloc(tri_arena *arena, size_t count, size_t each);
char *tri_arena_strdup(tri_arena *arena, const char *text);
char *tri_arena_format(tri_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Frees everything; the arena is empty and usable again. */
void tri_arena_fini(tri_arena *arena);

#endif
