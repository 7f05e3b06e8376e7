/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_body.c: slots, keys, values: 16 bytes of slots, the keys' bytes, zeros up to the next multiple of 8, the values'.
 */
#include "ps/rpc/kv_body.h"

#include <string.h>

#include "net/bytes.h"

#define SLOTS_NBYTES (PS_SLOTS / 8)
#define ALIGN        8

static size_t align_up(size_t nbytes)
{
    return (nbytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t ps_rows_body_limit(int64_t count, int dim, int wire, bool has_values)
{
    return SLOTS_NBYTES + align_up(ps_keys_limit(count)) + (has_values ? ps_wires[wire].nbytes(count * dim, dim) : 0);
}

static void slots_write(const ps_slots *slots, unsigned char *to)
{
    for (int i = 0; i < PS_SLOTS / 64; i++)
        tri_bytes_write_u64(to + 8 * i, slots->bits[i]);
}

size_t ps_rows_head_write(const ps_slots *slots, unsigned char to[PS_ROWS_HEAD_NBYTES])
{
    slots_write(slots, to);
    return ps_keys_head_write(to + SLOTS_NBYTES) > 0 ? PS_ROWS_HEAD_NBYTES : 0;
}

void ps_rows_name_write(const ps_slots *slots, const XXH128_hash_t *hash, unsigned char to[PS_ROWS_NAME_NBYTES])
{
    slots_write(slots, to);
    ps_keys_name_write(hash, to + SLOTS_NBYTES);
}

bool ps_rows_name_read(const void *bytes, size_t nbytes, XXH128_hash_t *hash)
{
    return nbytes >= SLOTS_NBYTES &&
           ps_keys_name_read((const unsigned char *)bytes + SLOTS_NBYTES, nbytes - SLOTS_NBYTES, hash);
}

size_t ps_rows_body_write(const ps_rows_body *body, int dim, int wire, bool plain, unsigned char *to)
{
    slots_write(&body->slots, to);
    size_t used = ps_keys_write(body->keys, body->count, plain, to + SLOTS_NBYTES), end = align_up(used);
    memset(to + SLOTS_NBYTES + used, 0, end - used);
    if (!body->values)
        return SLOTS_NBYTES + end;
    ps_wires[wire].write(body->values, body->count * dim, dim, to + SLOTS_NBYTES + end, NULL);
    return SLOTS_NBYTES + end + ps_wires[wire].nbytes(body->count * dim, dim);
}

void ps_rows_room_fini(ps_rows_room *room)
{
    tri_free(room->keys);
    tri_free(room->values);
    *room = (ps_rows_room){0};
}

static tri_status room_grow(void **memory, size_t *nbytes, size_t wanted)
{
    if (*memory && wanted <= *nbytes)
        return TRI_OK;
    void *grown = tri_alloc(wanted + wanted / 2);
    if (!grown)
        return TRI_ENOMEM;
    tri_free(*memory);
    *memory = grown;
    *nbytes = wanted + wanted / 2;
    return TRI_OK;
}

tri_status ps_rows_slots_read(const void *bytes, size_t nbytes, ps_slots *out)
{
    if (nbytes < SLOTS_NBYTES)
        return tri_fail(TRI_EFORMAT, "rows: want %d bytes of slots, got %zu bytes", SLOTS_NBYTES, nbytes);
    for (int i = 0; i < PS_SLOTS / 64; i++)
        out->bits[i] = tri_bytes_read_u64((const unsigned char *)bytes + 8 * i);
    return TRI_OK;
}

static tri_status keys_read(const unsigned char *bytes, size_t nbytes, ps_rows_room *room, ps_rows_body *out,
                            size_t *end)
{
    size_t used = ps_keys_limit(out->count);
    void *keys = room->keys;
    if (ps_keys_name_read(bytes, nbytes, &out->hash)) {
        *end = PS_KEYS_NAME_NBYTES;
        return TRI_OK;
    }
    if (out->count < 0 || (uint64_t)out->count > 2 * (uint64_t)nbytes) /* no key takes less */
        return tri_fail(TRI_EFORMAT, "rows: %lld keys in %zu bytes", (long long)out->count, nbytes);
    out->keys = ps_keys_lie(bytes, nbytes, out->count);
    if (!out->keys) {
        tri_status status = room_grow(&keys, &room->keys_nbytes, ((size_t)out->count + 1) * sizeof(uint64_t));
        room->keys = keys;
        TRI_TRY(status);
        TRI_TRY(ps_keys_read(bytes, nbytes, out->count, room->keys, &used));
        out->keys = room->keys;
    }
    *end = align_up(used);
    return TRI_OK;
}

tri_status ps_rows_body_read(const void *bytes, size_t nbytes, int64_t count, int dim, int wire, bool has_values,
                             ps_rows_room *room, ps_rows_body *out)
{
    const unsigned char *at = (const unsigned char *)bytes + SLOTS_NBYTES;
    size_t end;
    *out = (ps_rows_body){.count = count};
    TRI_TRY(ps_rows_slots_read(bytes, nbytes, &out->slots));
    nbytes -= SLOTS_NBYTES;
    TRI_TRY(keys_read(at, nbytes, room, out, &end));
    size_t wanted = has_values ? ps_wires[wire].nbytes(count * dim, dim) : 0;
    if (nbytes < end || nbytes - end != wanted)
        return tri_fail(TRI_EFORMAT, "rows: want %zu bytes of keys and %zu of values, got %zu", end, wanted, nbytes);
    if (!has_values)
        return TRI_OK;
    if (wire == PS_WIRE_F32 && (uintptr_t)(at + end) % _Alignof(float) == 0) {
        out->values = (const float *)(const void *)(at + end);
        return TRI_OK;
    }
    void *values = room->values;
    tri_status status = room_grow(&values, &room->values_nbytes, (size_t)count * (size_t)dim * sizeof(float));
    room->values = values;
    TRI_TRY(status);
    ps_wires[wire].read(at + end, count * dim, dim, room->values);
    out->values = room->values;
    return TRI_OK;
}
