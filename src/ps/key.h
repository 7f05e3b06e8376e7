/* SPDX-License-Identifier: Apache-2.0
 *
 * key.h: where a key of a table belongs: its hash, and of that the upper bits are the slot.
 */
#ifndef TRI_PS_KEY_H
#define TRI_PS_KEY_H

#include <stdbool.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Parts of every table that go from server to server as a whole. */
#define PS_SLOTS     128
#define PS_SLOT_BITS 7

/* A set of slots. */
typedef struct ps_slots {
    uint64_t bits[PS_SLOTS / 64];
} ps_slots;

/* Keys: shorter lists are not remembered by servers. */
#define PS_LIST_LEAST 128

static inline bool ps_slots_has(const ps_slots *slots, int slot)
{
    return slots->bits[slot / 64] >> (slot % 64) & 1;
}

static inline void ps_slots_add(ps_slots *slots, int slot)
{
    slots->bits[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static inline void ps_slots_remove(ps_slots *slots, int slot)
{
    slots->bits[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

/* xxh3 of the key's eight bytes, little endian: one to one. */
static inline uint64_t ps_key_hash(uint64_t key)
{
    return XXH3_64bits(&key, sizeof(key));
}

static inline int ps_hash_slot(uint64_t hash)
{
    return (int)(hash >> (64 - PS_SLOT_BITS));
}

static inline int ps_key_slot(uint64_t key)
{
    return ps_hash_slot(ps_key_hash(key));
}

/* The slots that keys are in. */
static inline ps_slots ps_keys_slots(const uint64_t *keys, int64_t count)
{
    ps_slots slots = {{0}};
    for (int64_t i = 0; i < count; i++)
        ps_slots_add(&slots, ps_key_slot(keys[i]));
    return slots;
}

#endif
