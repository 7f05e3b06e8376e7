/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h: what the folder writes to bytes for another server or a file, and reads back without trusting them.
 *
 * Numbers are little endian, arrays of f32 are as they are in memory. A reader that meets the end gives zeros from then
 * on and remembers it: callers look once, at the end of a group of fields.
 */
#ifndef TRI_PS_PACK_H
#define TRI_PS_PACK_H

#include <string.h>

#include "base/containers.h"
#include "net/bytes.h"

static inline tri_status ps_put_u16(tri_string *out, uint16_t value)
{
    unsigned char bytes[2];
    tri_bytes_write_u16(bytes, value);
    return tri_string_append_bytes(out, bytes, sizeof(bytes));
}

static inline tri_status ps_put_u32(tri_string *out, uint32_t value)
{
    unsigned char bytes[4];
    tri_bytes_write_u32(bytes, value);
    return tri_string_append_bytes(out, bytes, sizeof(bytes));
}

static inline tri_status ps_put_u64(tri_string *out, uint64_t value)
{
    unsigned char bytes[8];
    tri_bytes_write_u64(bytes, value);
    return tri_string_append_bytes(out, bytes, sizeof(bytes));
}

typedef struct ps_reader {
    const unsigned char *at;
    size_t left;
    bool ended; /* more was asked for than there was */
} ps_reader;

static inline ps_reader ps_reader_make(const void *bytes, size_t nbytes)
{
    return (ps_reader){.at = bytes, .left = nbytes};
}

/* The next nbytes; NULL: fewer are left. */
static inline const unsigned char *ps_read(ps_reader *reader, size_t nbytes)
{
    if (reader->ended || reader->left < nbytes) {
        reader->ended = true;
        return NULL;
    }
    const unsigned char *at = reader->at;
    reader->at += nbytes;
    reader->left -= nbytes;
    return at;
}

static inline uint16_t ps_read_u16(ps_reader *reader)
{
    const unsigned char *at = ps_read(reader, 2);
    return at ? tri_bytes_read_u16(at) : 0;
}

static inline uint32_t ps_read_u32(ps_reader *reader)
{
    const unsigned char *at = ps_read(reader, 4);
    return at ? tri_bytes_read_u32(at) : 0;
}

static inline uint64_t ps_read_u64(ps_reader *reader)
{
    const unsigned char *at = ps_read(reader, 8);
    return at ? tri_bytes_read_u64(at) : 0;
}

#endif
