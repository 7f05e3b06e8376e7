/* SPDX-License-Identifier: Apache-2.0
 *
 * coding.c: keys and values as bytes.
 */
#include "ps/rpc/coding.h"

#include <math.h>
#include <string.h>

#include "net/bytes.h"
#include "tensor/narrow.h"

/* --- keys: a form, then seven zeros and keys as they are, or lengths (two in a byte, the lower half first) and
 * distances; or seven zeros and their hash --- */

enum { KEYS_PLAIN, KEYS_ASCENDING, KEYS_NAMED };

#define PLAIN_NBYTES PS_KEYS_HEAD_NBYTES /* before the keys, which are aligned then if the whole is */

size_t ps_keys_limit(int64_t count)
{
    return PLAIN_NBYTES + (size_t)count * sizeof(uint64_t);
}

/* Bytes of a number without its upper zeros. */
static unsigned length_of(uint64_t number)
{
    return number == 0 ? 0 : (unsigned)(71 - __builtin_clzll(number)) / 8;
}

/* What is between a key and the one before, both left out; of the first the key itself. */
static uint64_t distance(const uint64_t *keys, int64_t i)
{
    return i == 0 ? keys[0] : keys[i] - keys[i - 1] - 1;
}

/* Bytes of the ascending form, at most those of the plain one; 0: plain is not longer, or the only form. */
static size_t ascending_nbytes(const uint64_t *keys, int64_t count)
{
    size_t nbytes = 1 + ((size_t)count + 1) / 2;
    for (int64_t i = 0; i < count; i++) {
        if (i > 0 && keys[i] <= keys[i - 1])
            return 0;
        nbytes += length_of(distance(keys, i));
    }
    return nbytes < ps_keys_limit(count) ? nbytes : 0;
}

size_t ps_keys_head_write(unsigned char bytes[PS_KEYS_HEAD_NBYTES])
{
    memset(bytes, 0, PLAIN_NBYTES);
    bytes[0] = KEYS_PLAIN;
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? PLAIN_NBYTES : 0;
}

size_t ps_keys_write(const uint64_t *keys, int64_t count, bool plain, unsigned char *bytes)
{
    size_t nbytes = plain ? 0 : ascending_nbytes(keys, count);
    if (nbytes == 0) {
        (void)ps_keys_head_write(bytes);
        for (int64_t i = 0; i < count; i++)
            tri_bytes_write_u64(bytes + PLAIN_NBYTES + 8 * i, keys[i]);
        return ps_keys_limit(count);
    }
    bytes[0] = KEYS_ASCENDING;
    unsigned char *lengths = bytes + 1, *out = lengths + (count + 1) / 2;
    memset(lengths, 0, (size_t)(count + 1) / 2);
    for (int64_t i = 0; i < count; i++) {
        uint64_t number = distance(keys, i);
        unsigned length = length_of(number);
        lengths[i / 2] = (unsigned char)(lengths[i / 2] | length << (i % 2 ? 4 : 0));
        for (unsigned b = 0; b < length; b++)
            *out++ = (unsigned char)(number >> (8 * b));
    }
    return nbytes;
}

static tri_status fail_keys(int64_t count, size_t nbytes)
{
    return tri_fail(TRI_EFORMAT, "keys: want %lld, %zu bytes hold fewer", (long long)count, nbytes);
}

/* A number of `length` bytes, of which `left` can be read. */
static uint64_t number_read(const unsigned char *in, unsigned length, size_t left)
{
    uint64_t number = 0;
    if (left >= sizeof(number)) /* all eight, less those that are not its own */
        return length == 0 ? 0 : tri_bytes_read_u64(in) & (UINT64_MAX >> (64 - 8 * length));
    for (unsigned b = 0; b < length; b++)
        number |= (uint64_t)in[b] << (8 * b);
    return number;
}

static bool ascending_read(const unsigned char *lengths, size_t left, int64_t count, uint64_t *keys, size_t *used)
{
    size_t lengths_nbytes = ((size_t)count + 1) / 2;
    if (left < lengths_nbytes || (count % 2 && lengths[count / 2] >> 4))
        return false;
    const unsigned char *in = lengths + lengths_nbytes;
    uint64_t last = 0;
    left -= lengths_nbytes;
    for (int64_t i = 0; i < count; i++) {
        unsigned length = lengths[i / 2] >> (i % 2 ? 4 : 0) & 15;
        if (length > 8 || length > left)
            return false;
        uint64_t number = number_read(in, length, left);
        if (length_of(number) != length || (i > 0 && number >= UINT64_MAX - last))
            return false;
        last = i == 0 ? number : last + number + 1;
        keys[i] = last;
        in += length;
        left -= length;
    }
    *used = 1 + (size_t)(in - lengths);
    return true;
}

tri_status ps_keys_read(const void *bytes, size_t nbytes, int64_t count, uint64_t *keys, size_t *used)
{
    const unsigned char *in = bytes;
    if (count < 0 || nbytes < 1 || (uint64_t)count > 2 * (uint64_t)nbytes)
        return fail_keys(count, nbytes);
    if (in[0] == KEYS_ASCENDING)
        return ascending_read(in + 1, nbytes - 1, count, keys, used) ? TRI_OK : fail_keys(count, nbytes);
    if (in[0] != KEYS_PLAIN || nbytes < ps_keys_limit(count))
        return fail_keys(count, nbytes);
    for (unsigned i = 1; i < PLAIN_NBYTES; i++)
        if (in[i] != 0)
            return fail_keys(count, nbytes);
    for (int64_t i = 0; i < count; i++)
        keys[i] = tri_bytes_read_u64(in + PLAIN_NBYTES + 8 * i);
    *used = ps_keys_limit(count);
    return TRI_OK;
}

void ps_keys_name_write(const XXH128_hash_t *hash, unsigned char bytes[PS_KEYS_NAME_NBYTES])
{
    memset(bytes, 0, PLAIN_NBYTES);
    bytes[0] = KEYS_NAMED;
    tri_bytes_write_u64(bytes + PLAIN_NBYTES, hash->low64);
    tri_bytes_write_u64(bytes + PLAIN_NBYTES + 8, hash->high64);
}

bool ps_keys_name_read(const void *bytes, size_t nbytes, XXH128_hash_t *hash)
{
    const unsigned char *in = bytes;
    static const unsigned char named[PLAIN_NBYTES] = {KEYS_NAMED};
    if (nbytes < PS_KEYS_NAME_NBYTES || memcmp(in, named, PLAIN_NBYTES) != 0)
        return false;
    hash->low64 = tri_bytes_read_u64(in + PLAIN_NBYTES);
    hash->high64 = tri_bytes_read_u64(in + PLAIN_NBYTES + 8);
    return true;
}

const uint64_t *ps_keys_lie(const void *bytes, size_t nbytes, int64_t count)
{
    const unsigned char *in = bytes;
    static const unsigned char plain[PLAIN_NBYTES] = {KEYS_PLAIN};
    bool are = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && count >= 0 && (uint64_t)count <= nbytes &&
               nbytes >= ps_keys_limit(count) && (uintptr_t)in % _Alignof(uint64_t) == 0 &&
               memcmp(in, plain, PLAIN_NBYTES) == 0;
    return are ? (const uint64_t *)(const void *)(in + PLAIN_NBYTES) : NULL;
}

/* --- values --- */

static size_t f32_nbytes(int64_t count, int64_t block)
{
    (void)block;
    return (size_t)count * sizeof(float);
}

/* What is left of values that lose nothing: zeros. */
static void f32_write(const float *values, int64_t count, int64_t block, void *bytes, float *left)
{
    (void)block;
    memcpy(bytes, values, (size_t)count * sizeof(float));
    if (left)
        memset(left, 0, (size_t)count * sizeof(float));
}

static void f32_read(const void *bytes, int64_t count, int64_t block, float *values)
{
    (void)block;
    memcpy(values, bytes, (size_t)count * sizeof(float));
}

static size_t bf16_nbytes(int64_t count, int64_t block)
{
    (void)block;
    return (size_t)count * sizeof(uint16_t);
}

static void bf16_write(const float *values, int64_t count, int64_t block, void *bytes, float *left)
{
    (void)block;
    tri_bf16_encode(values, count, bytes);
    for (int64_t i = 0; left && i < count; i++) {
        float decoded;
        tri_bf16_decode((const char *)bytes + 2 * i, 1, &decoded);
        left[i] = isfinite(decoded) ? values[i] - decoded : 0;
    }
}

static void bf16_read(const void *bytes, int64_t count, int64_t block, float *values)
{
    (void)block;
    tri_bf16_decode(bytes, count, values);
}

const ps_wire ps_wires[PS_WIRE_COUNT] = {
    [PS_WIRE_F32] = {f32_nbytes, f32_write, f32_read},
    [PS_WIRE_BF16] = {bf16_nbytes, bf16_write, bf16_read},
    [PS_WIRE_INT8] = {tri_int8_nbytes, tri_int8_encode, tri_int8_decode},
};
