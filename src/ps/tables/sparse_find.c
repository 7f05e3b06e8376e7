/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_find.c: where the rows of many keys are.
 *
 * A key costs a line of the index and one of its row, both somewhere in memory. So three blocks of keys are under way
 * at once: of the first, rows are looked at; of the second, lines, and memory is asked for the rows that they name; of
 * the third, memory is asked for the lines.
 */
#include "ps/tables/sparse_impl.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define BLOCK 64 /* keys that are looked up together */
#define STAGE 3

_Static_assert(SPARSE_LINE == 8 && sizeof(sparse_place) == 8, "a line of the cache is 64 bytes");

/* Bit 2 i of the places of a line: it has this tag, or is free and the tag is 0. */
static inline unsigned line_match(const sparse_place *line, uint32_t tag)
{
#ifdef __SSE2__
    const __m128i *at = (const __m128i *)(const void *)line, wanted = _mm_set1_epi32((int)tag);
    __m128i a = _mm_cmpeq_epi32(_mm_load_si128(at), wanted), b = _mm_cmpeq_epi32(_mm_load_si128(at + 1), wanted);
    __m128i c = _mm_cmpeq_epi32(_mm_load_si128(at + 2), wanted), d = _mm_cmpeq_epi32(_mm_load_si128(at + 3), wanted);
    __m128i all = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
    return (unsigned)_mm_movemask_epi8(all) & 0x5555;
#else
    unsigned match = 0;
    for (unsigned i = 0; i < SPARSE_LINE; i++)
        match |= (unsigned)(line[i].tag == tag) << 2 * i;
    return match;
#endif
}

typedef struct search {
    uint64_t hash;
    const sparse_place *line; /* NULL: the index has none */
    uint32_t row;             /* the first one of its tag in that line, SPARSE_NONE: there is none */
    bool is_sure;             /* then there is none at all */
} search;

static void block_ask(const ps_sparse *table, const uint64_t *keys, int64_t count, search *searches,
                      uint8_t seen[PS_SLOTS])
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = ps_key_hash(keys[i]);
        searches[i].hash = hash;
        searches[i].line = sparse_home(&table->slots[ps_hash_slot(hash)], sparse_tag(hash));
        __builtin_prefetch(searches[i].line);
        seen[ps_hash_slot(hash)] = 1;
    }
}

static void block_match(const ps_sparse *table, int64_t count, search *searches)
{
    for (int64_t i = 0; i < count; i++) {
        search *at = &searches[i];
        unsigned match = at->line ? line_match(at->line, sparse_tag(at->hash)) : 0;
        at->row = match ? at->line[__builtin_ctz(match) / 2].row : SPARSE_NONE;
        at->is_sure = !at->line || (!match && at->line[SPARSE_LINE - 1].row == SPARSE_NONE);
        if (at->row != SPARSE_NONE)
            __builtin_prefetch(sparse_row_at(table, at->row), 1);
    }
}

/* Returns whether all are there. */
static bool block_check(const ps_sparse *table, const uint64_t *keys, int64_t count, const search *searches,
                        uint32_t *rows)
{
    bool whole = true;
    for (int64_t i = 0; i < count; i++) {
        rows[i] = searches[i].row;
        if (rows[i] != SPARSE_NONE && sparse_row_at(table, rows[i])->key == keys[i])
            continue;
        const sparse_place *place = searches[i].is_sure ? NULL : sparse_find(table, keys[i], searches[i].hash);
        rows[i] = place ? place->row : SPARSE_NONE;
        whole = whole && place;
    }
    return whole;
}

static int64_t block_length(int64_t count, int64_t first)
{
    int64_t left = count - first;
    return left < 0 ? 0 : left < BLOCK ? left : BLOCK;
}

bool sparse_rows_find(const ps_sparse *table, const uint64_t *keys, int64_t count, uint32_t *rows, ps_slots *slots)
{
    search searches[STAGE][BLOCK];
    uint8_t seen[PS_SLOTS] = {0};
    bool whole = true;
    for (int64_t b = 0; b * BLOCK < count + (STAGE - 1) * BLOCK; b++) {
        int64_t first = b * BLOCK, second = first - BLOCK, third = second - BLOCK;
        block_ask(table, keys + first, block_length(count, first), searches[b % STAGE], seen);
        if (second >= 0)
            block_match(table, block_length(count, second), searches[(b + 2) % STAGE]);
        if (third >= 0)
            whole =
                block_check(table, keys + third, block_length(count, third), searches[(b + 1) % STAGE], rows + third) &&
                whole;
    }
    *slots = (ps_slots){{0}};
    for (int slot = 0; slot < PS_SLOTS; slot++)
        if (seen[slot])
            ps_slots_add(slots, slot);
    return whole;
}
