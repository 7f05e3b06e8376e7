/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c: copies past the cache, for more than it holds: what is written is not read first.
 */
#include "base/cache.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* What is read is asked for so far ahead, into the second cache, which has more of it under way than the first:
 * measured, docs/design/communication.md. */
enum { STREAM_AHEAD = 4096 };

#define ASK_AHEAD(at) _mm_prefetch((at) + STREAM_AHEAD, _MM_HINT_T1)

__attribute__((target("avx512f"))) static void stream_lines(char *to, const char *from, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += sizeof(__m512i)) {
        ASK_AHEAD(from + at);
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512((const void *)(from + at)));
    }
    _mm_sfence();
}

static void stream_pieces(char *to, const char *from, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += sizeof(__m128i)) {
        if (at % TRI_LINE_NBYTES == 0)
            ASK_AHEAD(from + at);
        _mm_stream_si128((__m128i *)(void *)(to + at), _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
    }
    _mm_sfence();
}

static void stream(char *to, const char *from, size_t nbytes)
{
    (__builtin_cpu_supports("avx512f") ? stream_lines : stream_pieces)(to, from, nbytes);
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
