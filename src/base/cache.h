/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.h: handing memory from core to core at the speed of the wires between them.
 *
 * A line that one core writes and another only reads stays shared between both, and the writer's next store to it has
 * to call the copy back, one line after the other: measured, 33 ns a line, ten times what a line costs that moves as a
 * whole. So whoever writes what another core holds asks for the lines ahead, and whoever reads what another core will
 * write again takes the lines (a store into each) where that pays (docs/design/communication.md).
 */
#ifndef TRI_BASE_CACHE_H
#define TRI_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TRI_LINE_NBYTES ((size_t)64)
/* Distance of what different cores write: processors fetch lines in pairs and more, so neighbours are not apart. */
#define TRI_LINES_APART 256

/* Asks for a line to write to, if the processor knows how; any address is fine. */
static inline void tri_prefetch_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1, 3);
#endif
}

/* A moment's rest inside a loop that waits for another core. */
static inline void tri_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" : : : "memory");
#endif
}

/* memcpy to memory whose lines another core may hold. */
static inline void tri_copy_out(void *to, const void *from, size_t nbytes)
{
    enum { AHEAD = 2048 };
    char *out = to;
    const char *in = from;
    size_t asked = 0;
    for (size_t at = 0; at < nbytes; at += AHEAD) {
        size_t until = at + 2 * AHEAD < nbytes ? at + 2 * AHEAD : nbytes;
        for (; asked < until; asked += TRI_LINE_NBYTES)
            tri_prefetch_write(out + asked);
        memcpy(out + at, in + at, nbytes - at < AHEAD ? nbytes - at : AHEAD);
    }
}

/* memcpy past the cache: what is written is not read first, nor kept. For a piece of what no cache holds. */
void tri_copy_past(void *to, const void *from, size_t nbytes);
/* From here on that pays: measured, docs/design/communication.md. */
#define TRI_COPY_LARGE_NBYTES ((size_t)4 << 20)
/* memcpy, past the cache if that pays. */
static inline void tri_copy_large(void *to, const void *from, size_t nbytes)
{
    if (nbytes >= TRI_COPY_LARGE_NBYTES)
        tri_copy_past(to, from, nbytes);
    else
        memcpy(to, from, nbytes);
}

/* Measured: on AMD (Zen 4) what is handed over goes 2 to 7 times faster with it; on Intel (Sapphire Rapids), which
 * calls copies back while it continues, 1 to 35 % slower. */
static inline bool tri_taking_pays(void)
{
#if defined(__x86_64__)
    return !__builtin_cpu_is("intel");
#else
    return true;
#endif
}

/* Makes the whole lines inside [bytes, bytes + nbytes) this core's, by spoiling a byte of each. */
static inline void tri_spoil_lines(void *bytes, size_t nbytes)
{
    uintptr_t first = ((uintptr_t)bytes + TRI_LINE_NBYTES - 1) & ~(uintptr_t)(TRI_LINE_NBYTES - 1);
    uintptr_t end = ((uintptr_t)bytes + nbytes) & ~(uintptr_t)(TRI_LINE_NBYTES - 1);
    for (uintptr_t line = first; line < end; line += TRI_LINE_NBYTES)
        *(volatile char *)line = 0;
}

/* After reading memory whose content nobody needs any more. */
static inline void tri_take_lines(void *bytes, size_t nbytes)
{
    if (tri_taking_pays())
        tri_spoil_lines(bytes, nbytes);
}

#endif
