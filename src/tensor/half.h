/* SPDX-License-Identifier: Apache-2.0
 *
 * half.h: the conversions of one half-precision element, as bodies that loops can inline and vectorize.
 *
 * No branches, only selects, and no arithmetic on subnormal numbers (a caller may have switched them off). After
 * F. Giesen, "Float->half variants" (public domain).
 */
#ifndef TRI_TENSOR_HALF_H
#define TRI_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) float half_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline __attribute__((always_inline)) uint32_t half_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline __attribute__((always_inline)) float half_from_bf16(uint16_t bits)
{
    return half_float((uint32_t)bits << 16);
}

static inline __attribute__((always_inline)) uint16_t half_to_bf16(float value)
{
    uint32_t bits = half_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u; /* a NaN stays one, with its sign and upper payload */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline __attribute__((always_inline)) float half_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude + (224u << 23); /* inf and NaN: the exponent goes from 31 to 255 */
    uint32_t quiet = (magnitude & 0x007fffffu) ? 0x00400000u : 0u;
    /* 2^-14 times (1 + fraction), less 2^-14: exact, and normal in f32. */
    uint32_t subnormal = half_bits(half_float(magnitude + (113u << 23)) - half_float(113u << 23));
    uint32_t exponent = magnitude & (0x7c00u << 13);
    uint32_t result = exponent == (0x7c00u << 13) ? (special | quiet) : exponent == 0 ? subnormal : normal;
    return half_float(result | sign);
}

static inline __attribute__((always_inline)) uint16_t half_to_f16(float value)
{
    uint32_t bits = half_bits(value);
    uint32_t sign = (bits & 0x80000000u) >> 16;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    uint32_t special = magnitude > 0x7f800000u ? quiet : 0x7c00u;
    /* Adding 0.5 puts the last bit of a subnormal f16 at the last bit of the f32: the addition rounds. */
    uint32_t subnormal = half_bits(half_float(magnitude < (113u << 23) ? magnitude : 0u) + 0.5f) - half_bits(0.5f);
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t result = magnitude >= (143u << 23) ? special : magnitude < (113u << 23) ? subnormal : normal;
    return (uint16_t)(result | sign);
}

#endif
