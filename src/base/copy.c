/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c: copies past the cache, for more than it holds: what is written is not read first.
 */
#include "base/cache.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#if defined(__x86_64__)
static void stream(char *to, const char *from, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(to + at), _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
    _mm_sfence();
}
#endif

void tri_copy_past(void *to, const void *from, size_t nbytes)
{
#if defined(__x86_64__)
    size_t before = (size_t)(-(uintptr_t)to & (TRI_LINE_NBYTES - 1));
    before = before < nbytes ? before : nbytes;
    size_t lines = (nbytes - before) & ~(TRI_LINE_NBYTES - 1), done = before + lines;
    memcpy(to, from, before);
    stream((char *)to + before, (const char *)from + before, lines);
    memcpy((char *)to + done, (const char *)from + done, nbytes - done);
#else
    memcpy(to, from, nbytes);
#endif
}
