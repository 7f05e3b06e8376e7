/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: every allocation of the library, counted, and able to fail on purpose.
 *
 * All functions return NULL when memory is out and set tri_last_error() then (TRI_ENOMEM with the bytes wanted).
 * nbytes 0 gives a valid pointer. tri_free(NULL) does nothing.
 */
#ifndef TRI_BASE_MEMORY_H
#define TRI_BASE_MEMORY_H

#include <stdint.h>

#include "base/status.h"

void *tri_alloc(size_t nbytes);
/* count * each bytes of zeros; NULL when the product overflows. */
void *tri_alloc_zero(size_t count, size_t each);
/* The pages of a bulk block of 2 MiB and more move: no second copy is made. */
void *tri_realloc(void *old, size_t nbytes);
/* 64-byte aligned zeros for bulk data; from 2 MiB on on huge pages where the system has them. Free with tri_free. */
void *tri_alloc_bulk(size_t nbytes);
/* A wish: pages of writable memory are there on return, their content as it was, so that whoever writes them first does
 * not wait for the system. */
void tri_memory_touch(void *memory, size_t nbytes);
void tri_free(void *memory);
char *tri_strdup(const char *text);
char *tri_strndup(const char *text, size_t nbytes);
char *tri_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

typedef struct tri_memory_counts {
    uint64_t calls;       /* successful allocations so far */
    uint64_t live;        /* allocations not yet freed */
    uint64_t live_nbytes; /* bytes not yet freed */
    uint64_t peak_nbytes; /* highest live_nbytes */
} tri_memory_counts;

tri_memory_counts tri_memory_now(void);
/* Tests: the n-th allocation from now on fails (1 = the next), then all work again; 0 switches it off. */
void tri_memory_fail_at(uint64_t n);
/* Allocations that would make more than nbytes live fail, 0 (at first): none. For programs that can tell too much by
 * its size alone only when it is too late. */
void tri_memory_limit_set(uint64_t nbytes);

#endif
