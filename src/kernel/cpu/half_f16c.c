/* SPDX-License-Identifier: Apache-2.0
 *
 * half_f16c.c: arrays of f16 to f32 and back in the instructions of F16C: the bits of tensor/half.h, eight at a time.
 * Compiled with -mavx2 -mf16c.
 */
#include <immintrin.h>

#include "kernel/half.h"
#include "tensor/half.h"

void tri_f16c_round(uint16_t *to, const float *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + i), half);
    }
    for (; i < count; i++) {
        to[i] = half_to_f16(from[i]);
    }
}

void tri_f16c_widen(float *to, const uint16_t *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
    }
    for (; i < count; i++) {
        to[i] = half_from_f16(from[i]);
    }
}
