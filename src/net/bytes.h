/* SPDX-License-Identifier: Apache-2.0
 *
 * bytes.h: whole numbers to and from little-endian bytes, wherever they are.
 */
#ifndef TRI_NET_BYTES_H
#define TRI_NET_BYTES_H

#include <stdint.h>

static inline void tri_bytes_write_u16(unsigned char *bytes, uint16_t value)
{
    bytes[0] = (unsigned char)value;
    bytes[1] = (unsigned char)(value >> 8);
}

static inline void tri_bytes_write_u32(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static inline void tri_bytes_write_u64(unsigned char *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static inline uint16_t tri_bytes_read_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t tri_bytes_read_u32(const unsigned char *bytes)
{
    uint32_t value = 0;

    for (int i = 3; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static inline uint64_t tri_bytes_read_u64(const unsigned char *bytes)
{
    return (uint64_t)tri_bytes_read_u32(bytes) | (uint64_t)tri_bytes_read_u32(bytes + 4) << 32;
}

#endif
