/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_body.h: the bodies of messages about rows: slots, keys, values (docs/formats/ps.md).
 *
 * A message says which slots it is about, whatever keys it has: a step's part that has no rows in a slot is a part of
 * that slot's sum too, and who applies a message need not know who serves what. Included by files of ps/ and their
 * tests only.
 */
#ifndef TRI_PS_KV_BODY_H
#define TRI_PS_KV_BODY_H

#include "base/containers.h"
#include "ps/key.h"
#include "ps/rpc/coding.h"

/* What a message about rows holds. */
typedef struct ps_rows_body {
    ps_slots slots;
    const uint64_t *keys; /* [count]; NULL: a message has their hash in their place: */
    XXH128_hash_t hash;
    const float *values; /* [count * dim], NULL: none */
    int64_t count;
    uint64_t look; /* what a table has found for these keys is known by, or 0 */
    bool is_part;  /* keys may be in slots that are not named (any more) */
} ps_rows_body;

#define PS_ROWS_MAX INT64_C(0x7fffffff) /* of one message */

/* Bytes that a body takes at most. */
size_t ps_rows_body_limit(int64_t count, int dim, int wire, bool has_values);
/* plain: keys as they are. to has room for ps_rows_body_limit(); returns how many are used. */
size_t ps_rows_body_write(const ps_rows_body *body, int dim, int wire, bool plain, unsigned char *to);
/* What is before keys that are sent from where they are. Returns its bytes; 0: they cannot be. */
#define PS_ROWS_HEAD_NBYTES (PS_SLOTS / 8 + PS_KEYS_HEAD_NBYTES)
size_t ps_rows_head_write(const ps_slots *slots, unsigned char to[PS_ROWS_HEAD_NBYTES]);

/* What is in place of slots and keys where these are known by their hash. */
#define PS_ROWS_NAME_NBYTES (PS_SLOTS / 8 + PS_KEYS_NAME_NBYTES)
void ps_rows_name_write(const ps_slots *slots, const XXH128_hash_t *hash, unsigned char to[PS_ROWS_NAME_NBYTES]);
/* The hash of a message that has no keys. False: it has. */
bool ps_rows_name_read(const void *bytes, size_t nbytes, XXH128_hash_t *hash);

/* Memory for what is read, kept from one to the next. */
typedef struct ps_rows_room {
    uint64_t *keys;
    float *values;
    size_t keys_nbytes, values_nbytes;
} ps_rows_room;
void ps_rows_room_fini(ps_rows_room *room);
/* The body of a stranger, whose keys may be in any slots; valid until the next one, or the bytes, are gone.
 * TRI_EFORMAT: it is none of `count` rows; TRI_ENOMEM. */
tri_status ps_rows_body_read(const void *bytes, size_t nbytes, int64_t count, int dim, int wire, bool has_values,
                             ps_rows_room *room, ps_rows_body *out);
/* The slots alone. TRI_EFORMAT. */
tri_status ps_rows_slots_read(const void *bytes, size_t nbytes, ps_slots *out);

#endif
