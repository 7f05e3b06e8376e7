/* SPDX-License-Identifier: Apache-2.0
 *
 * coding.h: keys and values as they cross the wire (docs/formats/ps.md).
 *
 * Ascending keys are coded by their distances where bytes are expensive, two lengths of 0 to 8 bytes in one byte and
 * then the bytes: those of 1,024 clicks in 26 fields of 10 million keys take 1.5 bytes each instead of 8. Others, and
 * those that would be longer so, are as they are. Values are f32, bf16, or int8 with a scale for each block. Readers
 * believe nothing: they read what the caller expects, or fail. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_CODING_H
#define TRI_PS_CODING_H

#include "base/containers.h"
#include "ps/key.h"
#include "ps/ps.h"

/* Bytes that count keys take at most. */
size_t ps_keys_limit(int64_t count);
/* plain: as they are, whatever is shorter: where bytes cost less than time. bytes has room for ps_keys_limit(); returns
 * how many are used. */
size_t ps_keys_write(const uint64_t *keys, int64_t count, bool plain, unsigned char *bytes);
/* What is before keys that are as they are in this machine's memory. Returns its bytes; 0: not so on this machine.
 */
#define PS_KEYS_HEAD_NBYTES 8
size_t ps_keys_head_write(unsigned char bytes[PS_KEYS_HEAD_NBYTES]);
/* In their place, to who knows them by their hash: 24 bytes. False: these bytes are no hash. */
#define PS_KEYS_NAME_NBYTES 24
void ps_keys_name_write(const XXH128_hash_t *hash, unsigned char bytes[PS_KEYS_NAME_NBYTES]);
bool ps_keys_name_read(const void *bytes, size_t nbytes, XXH128_hash_t *hash);
/* Exactly `count` keys; *used is how many bytes they took. TRI_EFORMAT: these bytes hold fewer keys;
 * what is in keys then means nothing. */
tri_status ps_keys_read(const void *bytes, size_t nbytes, int64_t count, uint64_t *keys, size_t *used);
/* The same keys where they are, ps_keys_limit() bytes in all; NULL: they are not so that they can be used there. */
const uint64_t *ps_keys_lie(const void *bytes, size_t nbytes, int64_t count);

/* A row is one way to tell values. `block`: how many share a scale, where there is one (a row of a table, or 256). */
typedef struct ps_wire {
    size_t (*nbytes)(int64_t count, int64_t block);
    /* left: [count] what the bytes do not say, to be added to the next values (may be values); NULL: nobody asks. */
    void (*write)(const float *values, int64_t count, int64_t block, void *bytes, float *left);
    void (*read)(const void *bytes, int64_t count, int64_t block, float *values);
} ps_wire;

/* A row for each of ps_values. */
enum { PS_WIRE_COUNT = PS_WIRE_INT8 + 1 };
extern const ps_wire ps_wires[PS_WIRE_COUNT];

#endif
