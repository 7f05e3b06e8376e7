/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: malloc with a header that knows how many bytes and which kind, so that all is counted and freed alike.
 *
 * The header is right before the block: 16 bytes for plain blocks, 64 for aligned ones, a page for mapped ones, whose
 * block starts on a huge page. Counters are relaxed atomics: each is exact, four of them are no snapshot.
 */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"

#define BULK_ALIGN   ((size_t)64)
#define HUGE_NBYTES  ((size_t)2 << 20)
#define PAGE_NBYTES  ((size_t)4096)
#define LIMIT_NBYTES ((size_t)PTRDIFF_MAX / 2)

typedef enum memory_kind { KIND_PLAIN = 0x7a11, KIND_ALIGNED, KIND_MAPPED } memory_kind;

typedef struct memory_header {
    size_t nbytes; /* as asked for */
    uint64_t kind; /* memory_kind; 0 once freed */
} memory_header;

_Static_assert(sizeof(memory_header) == 16, "the header keeps malloc's alignment");

static _Atomic uint64_t calls_count, live_count, live_nbytes, peak_nbytes, fail_countdown, limit_nbytes;

static memory_header *header_of(const void *memory)
{
    memory_header *header = (memory_header *)((uintptr_t)memory - sizeof(memory_header));
    TRI_ASSERT(header->kind >= KIND_PLAIN && header->kind <= KIND_MAPPED);
    return header;
}

/* True when this allocation would go beyond the limit, or is the one that a test wants to fail. */
static bool must_fail(size_t nbytes)
{
    uint64_t limit = atomic_load_explicit(&limit_nbytes, memory_order_relaxed);
    if (limit != 0 && atomic_load_explicit(&live_nbytes, memory_order_relaxed) + nbytes > limit)
        return true;
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0)
        if (atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return left == 1;
    return false;
}

static void count_more(size_t nbytes)
{
    uint64_t now = atomic_fetch_add_explicit(&live_nbytes, nbytes, memory_order_relaxed) + nbytes;
    uint64_t peak = atomic_load_explicit(&peak_nbytes, memory_order_relaxed);
    while (peak < now &&
           !atomic_compare_exchange_weak_explicit(&peak_nbytes, &peak, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

static void *fail_for(size_t nbytes)
{
    tri_fail(TRI_ENOMEM, "memory: want %zu bytes, got none", nbytes);
    return NULL;
}

/* The block behind a header that ends `offset` bytes into `base`, counted. */
static void *finish(void *base, size_t offset, size_t nbytes, memory_kind kind)
{
    char *memory = (char *)base + offset;
    memory_header *header = (memory_header *)(void *)(memory - sizeof(memory_header));
    header->nbytes = nbytes;
    header->kind = (uint64_t)kind;
    atomic_fetch_add_explicit(&calls_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    count_more(nbytes);
    return memory;
}

void *tri_alloc(size_t nbytes)
{
    void *base = nbytes > LIMIT_NBYTES || must_fail(nbytes) ? NULL : malloc(sizeof(memory_header) + nbytes);
    return base ? finish(base, sizeof(memory_header), nbytes, KIND_PLAIN) : fail_for(nbytes);
}

void *tri_alloc_zero(size_t count, size_t each)
{
    size_t nbytes;
    if (__builtin_mul_overflow(count, each, &nbytes)) {
        tri_fail(TRI_ENOMEM, "memory: want %zu items of %zu bytes, more than any machine has", count, each);
        return NULL;
    }
    void *base = nbytes > LIMIT_NBYTES || must_fail(nbytes) ? NULL : calloc(1, sizeof(memory_header) + nbytes);
    return base ? finish(base, sizeof(memory_header), nbytes, KIND_PLAIN) : fail_for(nbytes);
}

static size_t round_up(size_t nbytes, size_t unit)
{
    return (nbytes + unit - 1) / unit * unit;
}

/* A page with the header, then the block at a multiple of the huge page: what mmap gave too much goes back. */
static void *map_huge(size_t nbytes)
{
    size_t block = round_up(nbytes, PAGE_NBYTES);
    size_t whole = block + HUGE_NBYTES + PAGE_NBYTES;
    char *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    char *memory = base + (round_up((uintptr_t)base + PAGE_NBYTES, HUGE_NBYTES) - (uintptr_t)base);
    char *keep = memory - PAGE_NBYTES;
    char *end = memory + block;
    if (keep > base)
        munmap(base, (size_t)(keep - base));
    if (base + whole > end)
        munmap(end, (size_t)(base + whole - end));
    madvise(memory, block, MADV_HUGEPAGE); /* a wish: without it everything works, slower */
    return keep;
}

void *tri_alloc_bulk(size_t nbytes)
{
    if (nbytes > LIMIT_NBYTES || must_fail(nbytes))
        return fail_for(nbytes);
    if (nbytes >= HUGE_NBYTES) {
        void *base = map_huge(nbytes);
        return base ? finish(base, PAGE_NBYTES, nbytes, KIND_MAPPED) : fail_for(nbytes);
    }
    void *base = aligned_alloc(BULK_ALIGN, round_up(BULK_ALIGN + nbytes, BULK_ALIGN));
    if (!base)
        return fail_for(nbytes);
    memset(base, 0, BULK_ALIGN + nbytes);
    return finish(base, BULK_ALIGN, nbytes, KIND_ALIGNED);
}

void tri_memory_touch(void *memory, size_t nbytes)
{
    enum { POPULATE_WRITE = 23 }; /* of madvise, since Linux 5.14; headers of before do not name it */
    char *page = memory ? (char *)memory - (uintptr_t)memory % PAGE_NBYTES : NULL;
    if (memory)
        madvise(page, round_up((size_t)((char *)memory + nbytes - page), PAGE_NBYTES), POPULATE_WRITE);
}

/* The first `nbytes` of one block to another, so that never more than a piece of them is there twice: what was copied
 * goes. */
static void pages_copy(char *from, char *to, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += HUGE_NBYTES) {
        size_t piece = nbytes - at < HUGE_NBYTES ? nbytes - at : HUGE_NBYTES;
        memcpy(to + at, from + at, piece);
        madvise(from + at, round_up(piece, PAGE_NBYTES), MADV_DONTNEED);
    }
}

/* A mapped block of another length, without a second copy: its end goes, or its pages move to where there is room
 * behind them. Not counted so far. */
static char *map_again(char *memory, size_t before, size_t after)
{
    const size_t old_block = round_up(before, PAGE_NBYTES), block = round_up(after, PAGE_NBYTES);
    if (block <= old_block) {
        if (block < old_block)
            munmap(memory + block, old_block - block);
        return memory;
    }
    char *base = map_huge(after);
    if (!base)
        return NULL;
    char *grown = base + PAGE_NBYTES;
    /* a block that has moved before may be two mappings, which older kernels do not move at once */
    if (mremap(memory, old_block, old_block, MREMAP_MAYMOVE | MREMAP_FIXED, grown) == MAP_FAILED) {
        pages_copy(memory, grown, before);
        munmap(memory, old_block);
    }
    munmap(memory - PAGE_NBYTES, PAGE_NBYTES);
    return grown;
}

static void *mapped_resize(char *memory, size_t before, size_t nbytes)
{
    if (nbytes > LIMIT_NBYTES || (nbytes > before && must_fail(nbytes - before)))
        return fail_for(nbytes);
    char *resized = map_again(memory, before, nbytes);
    if (!resized)
        return fail_for(nbytes);
    memory_header *header = (memory_header *)(void *)(resized - sizeof(memory_header));
    *header = (memory_header){nbytes, KIND_MAPPED};
    atomic_fetch_add_explicit(&calls_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_nbytes, before, memory_order_relaxed);
    count_more(nbytes);
    return resized;
}

void *tri_realloc(void *old, size_t nbytes)
{
    if (!old)
        return tri_alloc(nbytes);
    memory_header *header = header_of(old);
    size_t before = header->nbytes;
    if (header->kind == KIND_MAPPED && nbytes >= HUGE_NBYTES)
        return mapped_resize(old, before, nbytes);
    if (header->kind != KIND_PLAIN) {
        void *memory = tri_alloc_bulk(nbytes);
        if (memory) {
            memcpy(memory, old, before < nbytes ? before : nbytes);
            tri_free(old);
        }
        return memory;
    }
    if (nbytes > LIMIT_NBYTES || must_fail(nbytes))
        return fail_for(nbytes);
    memory_header *moved = realloc(header, sizeof(memory_header) + nbytes);
    if (!moved)
        return fail_for(nbytes);
    moved->nbytes = nbytes;
    atomic_fetch_add_explicit(&calls_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_nbytes, before, memory_order_relaxed);
    count_more(nbytes);
    return moved + 1;
}

void tri_free(void *memory)
{
    if (!memory)
        return;
    memory_header *header = header_of(memory);
    uint64_t kind = header->kind;
    size_t nbytes = header->nbytes;
    header->kind = 0; /* a second free is caught by the assertion in most cases */
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_nbytes, nbytes, memory_order_relaxed);
    if (kind == KIND_PLAIN)
        free(header);
    else if (kind == KIND_ALIGNED)
        free((char *)memory - BULK_ALIGN);
    else
        munmap((char *)memory - PAGE_NBYTES, PAGE_NBYTES + round_up(nbytes, PAGE_NBYTES));
}

char *tri_strdup(const char *text)
{
    return tri_strndup(text, strlen(text));
}

char *tri_strndup(const char *text, size_t nbytes)
{
    size_t used = strnlen(text, nbytes);
    char *copy = tri_alloc(used + 1);
    if (copy) {
        memcpy(copy, text, used);
        copy[used] = '\0';
    }
    return copy;
}

char *tri_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (written < 0) {
        tri_fail(TRI_EINVAL, "format \"%s\": want a text, got an error of vsnprintf", format);
        return NULL;
    }
    char *text = tri_alloc((size_t)written + 1);
    if (text) {
        va_start(args, format);
        vsnprintf(text, (size_t)written + 1, format, args);
        va_end(args);
    }
    return text;
}

tri_memory_counts tri_memory_now(void)
{
    return (tri_memory_counts){
        .calls = atomic_load_explicit(&calls_count, memory_order_relaxed),
        .live = atomic_load_explicit(&live_count, memory_order_relaxed),
        .live_nbytes = atomic_load_explicit(&live_nbytes, memory_order_relaxed),
        .peak_nbytes = atomic_load_explicit(&peak_nbytes, memory_order_relaxed),
    };
}

void tri_memory_fail_at(uint64_t n)
{
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}

void tri_memory_limit_set(uint64_t nbytes)
{
    atomic_store_explicit(&limit_nbytes, nbytes, memory_order_relaxed);
}
