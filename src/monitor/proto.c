/* SPDX-License-Identifier: Apache-2.0
 *
 * proto.c: the wire format of protocol buffers: a key (field and kind) as a varint, then the value.
 */
#include "monitor/proto.h"

#include <string.h>

enum { KIND_VARINT = 0, KIND_EIGHT = 1, KIND_BYTES = 2, KIND_FOUR = 5 };
#define VARINT_NBYTES 10

static size_t varint_print(uint64_t value, unsigned char text[VARINT_NBYTES])
{
    size_t used = 0;
    for (; value >= 0x80; value >>= 7)
        text[used++] = (unsigned char)(value | 0x80);
    text[used++] = (unsigned char)value;
    return used;
}

static void put(tri_proto *proto, const void *bytes, size_t nbytes)
{
    if (proto->status == TRI_OK)
        proto->status = tri_string_append_bytes(&proto->out, bytes, nbytes);
}

static void varint_put(tri_proto *proto, uint64_t value)
{
    unsigned char text[VARINT_NBYTES];
    put(proto, text, varint_print(value, text));
}

static void key_put(tri_proto *proto, int field, int kind)
{
    varint_put(proto, (uint64_t)field << 3 | (uint64_t)kind);
}

/* Least significant byte first. */
static void fixed_put(tri_proto *proto, uint64_t bits, size_t nbytes)
{
    unsigned char text[8];
    for (size_t i = 0; i < nbytes; i++)
        text[i] = (unsigned char)(bits >> (8 * i));
    put(proto, text, nbytes);
}

void tri_proto_int(tri_proto *proto, int field, int64_t value)
{
    key_put(proto, field, KIND_VARINT);
    varint_put(proto, (uint64_t)value);
}

void tri_proto_float(tri_proto *proto, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    key_put(proto, field, KIND_FOUR);
    fixed_put(proto, bits, sizeof(bits));
}

void tri_proto_double(tri_proto *proto, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    key_put(proto, field, KIND_EIGHT);
    fixed_put(proto, bits, sizeof(bits));
}

void tri_proto_bytes(tri_proto *proto, int field, const void *bytes, size_t nbytes)
{
    key_put(proto, field, KIND_BYTES);
    varint_put(proto, nbytes);
    put(proto, bytes, nbytes);
}

void tri_proto_text(tri_proto *proto, int field, const char *text)
{
    tri_proto_bytes(proto, field, text, strlen(text));
}

size_t tri_proto_open(tri_proto *proto, int field)
{
    key_put(proto, field, KIND_BYTES);
    return proto->out.nbytes;
}

/* The length goes in front of what was written: that moves up. */
void tri_proto_close(tri_proto *proto, size_t open)
{
    static const unsigned char room[VARINT_NBYTES];
    unsigned char text[VARINT_NBYTES];
    if (proto->status != TRI_OK)
        return;
    size_t nbytes = proto->out.nbytes - open, used = varint_print(nbytes, text);
    put(proto, room, used);
    if (proto->status != TRI_OK)
        return;
    memmove(proto->out.text + open + used, proto->out.text + open, nbytes);
    memcpy(proto->out.text + open, text, used);
}

/* --- reading --- */

static bool varint_read(const unsigned char *message, size_t nbytes, size_t *at, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *at < nbytes && shift < 64; shift += 7) {
        unsigned char byte = message[(*at)++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool fixed_read(const unsigned char *message, size_t nbytes, size_t *at, size_t width, uint64_t *value)
{
    *value = 0;
    if (nbytes - *at < width)
        return false;
    for (size_t i = 0; i < width; i++)
        *value |= (uint64_t)message[*at + i] << (8 * i);
    *at += width;
    return true;
}

bool tri_proto_next(const unsigned char *message, size_t nbytes, size_t *at, tri_proto_field *out)
{
    uint64_t key;
    size_t here = *at;
    if (here >= nbytes || !varint_read(message, nbytes, &here, &key) || key >> 3 > INT32_MAX)
        return false;
    *out = (tri_proto_field){.field = (int)(key >> 3)};
    bool good = false;
    switch (key & 7) {
    case KIND_VARINT:
        good = varint_read(message, nbytes, &here, &out->number);
        break;
    case KIND_EIGHT:
        good = fixed_read(message, nbytes, &here, 8, &out->number);
        break;
    case KIND_FOUR:
        good = fixed_read(message, nbytes, &here, 4, &out->number);
        break;
    case KIND_BYTES:
        good = varint_read(message, nbytes, &here, &out->number) && out->number <= nbytes - here;
        out->bytes = message + here;
        out->nbytes = (size_t)out->number;
        here += good ? out->nbytes : 0;
        break;
    default:
        break;
    }
    *at = good ? here : *at;
    return good;
}
