/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c: a list of blocks, filled from the front; pieces are never freed alone.
 *
 * Blocks double from 4 KiB to 1 MiB; a piece larger than a quarter of the next block has a block of its own behind the
 * current one, so that the rest of the current one is not lost.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define ARENA_ALIGN        ((size_t)16)
#define ARENA_FIRST_NBYTES ((size_t)4096)
#define ARENA_BLOCK_NBYTES ((size_t)1 << 20)

typedef struct tri_arena_block {
    struct tri_arena_block *next;
    size_t used, capacity; /* bytes behind this header */
    size_t reserved;       /* keeps the data aligned */
} tri_arena_block;

_Static_assert(sizeof(tri_arena_block) % 16 == 0, "data behind the header is 16-byte aligned");

static tri_arena_block *block_create(size_t capacity)
{
    tri_arena_block *block = tri_alloc_zero(1, sizeof(tri_arena_block) + capacity);
    if (block)
        block->capacity = capacity;
    return block;
}

static void *block_take(tri_arena_block *block, size_t nbytes)
{
    void *memory = (char *)(block + 1) + block->used;
    block->used += nbytes;
    return memory;
}

void *tri_arena_alloc(tri_arena *arena, size_t count, size_t each)
{
    size_t nbytes;
    if (__builtin_mul_overflow(count, each, &nbytes) || nbytes > (size_t)PTRDIFF_MAX / 4) {
        tri_fail(TRI_ENOMEM, "arena: want %zu items of %zu bytes, more than any machine has", count, each);
        return NULL;
    }
    nbytes = nbytes ? (nbytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : ARENA_ALIGN;
    tri_arena_block *head = arena->blocks;
    if (head && head->capacity - head->used >= nbytes)
        return block_take(head, nbytes);

    size_t capacity = head ? head->capacity * 2 : ARENA_FIRST_NBYTES;
    if (capacity > ARENA_BLOCK_NBYTES)
        capacity = ARENA_BLOCK_NBYTES;
    bool alone = head && nbytes > capacity / 4;
    tri_arena_block *block = block_create(alone || nbytes > capacity ? nbytes : capacity);
    if (!block)
        return NULL;
    if (alone) {
        block->next = head->next;
        head->next = block;
    } else {
        block->next = head;
        arena->blocks = block;
    }
    return block_take(block, nbytes);
}

char *tri_arena_strdup(tri_arena *arena, const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = tri_arena_alloc(arena, nbytes, 1);
    if (copy)
        memcpy(copy, text, nbytes);
    return copy;
}

char *tri_arena_format(tri_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (written < 0) {
        tri_fail(TRI_EINVAL, "format \"%s\": want a text, got an error of vsnprintf", format);
        return NULL;
    }
    char *text = tri_arena_alloc(arena, (size_t)written + 1, 1);
    if (text) {
        va_start(args, format);
        vsnprintf(text, (size_t)written + 1, format, args);
        va_end(args);
    }
    return text;
}

void tri_arena_fini(tri_arena *arena)
{
    for (tri_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        tri_free(block);
    }
    arena->blocks = NULL;
}
