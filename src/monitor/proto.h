/* SPDX-License-Identifier: Apache-2.0
 *
 * proto.h: protocol buffers, written field by field into a string: the five kinds of a field, nothing generated.
 *
 *     size_t open = tri_proto_open(&message, 5);      // field 5 holds a message
 *     tri_proto_bytes(&message, 1, "loss", 4);
 *     tri_proto_close(&message, open);
 *
 * Numbers of fields are in the .proto files of whoever reads it. Reading walks over the fields of one message.
 */
#ifndef TRI_MONITOR_PROTO_H
#define TRI_MONITOR_PROTO_H

#include "base/containers.h"

/* A message under way; `status` is sticky. */
typedef struct tri_proto {
    tri_string out;
    tri_status status;
} tri_proto;

void tri_proto_int(tri_proto *proto, int field, int64_t value);
void tri_proto_float(tri_proto *proto, int field, float value);
void tri_proto_double(tri_proto *proto, int field, double value);
void tri_proto_bytes(tri_proto *proto, int field, const void *bytes, size_t nbytes);
void tri_proto_text(tri_proto *proto, int field, const char *text);
/* What is written until close is the message of that field; they nest. */
size_t tri_proto_open(tri_proto *proto, int field);
void tri_proto_close(tri_proto *proto, size_t open);

/* A field that was read: numbers in `number` (of 4 and 8 bytes as they are), texts and messages in bytes. */
typedef struct tri_proto_field {
    int field;
    uint64_t number;
    const unsigned char *bytes;
    size_t nbytes;
} tri_proto_field;
/* The next field of a message; false at its end, and *at is then its length, or where it is broken. */
bool tri_proto_next(const unsigned char *message, size_t nbytes, size_t *at, tri_proto_field *out);

#endif
