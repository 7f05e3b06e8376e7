/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_index.c: rows come and go.
 */
#include "ps/tables/sparse_impl.h"

#define LEAST_BITS 4
#define LEAST_TAIL 32
#define AHEAD      16  /* places whose rows are asked for */
#define FAR        128 /* places from where a search begins */

/* --- rows --- */

static tri_status row_take(ps_sparse *table, uint32_t *out)
{
    if (table->unused != SPARSE_NONE) {
        *out = table->unused;
        table->unused = (uint32_t)sparse_row_at(table, *out)->key;
        return TRI_OK;
    }
    if (table->used == SPARSE_NONE)
        return tri_fail(TRI_ENOMEM, "table %s: want at most %u rows", table->name, SPARSE_NONE);
    if (table->used >> table->slab_bits == table->slabs.count) {
        char *slab = tri_alloc_bulk(table->stride << table->slab_bits);
        if (!slab || !tri_vector_push(&table->slabs, &slab)) {
            tri_free(slab);
            return TRI_ENOMEM;
        }
    }
    *out = table->used++;
    return TRI_OK;
}

static void row_give(ps_sparse *table, uint32_t row)
{
    sparse_row_at(table, row)->key = table->unused;
    table->unused = row;
    table->gone++;
}

/* --- places --- */

/* Fills an index of this many places with those of another, in their order. False: its tail is too short. */
static bool places_refill(sparse_index *to, const sparse_index *from)
{
    int64_t next = 0, from_count = sparse_place_count(from);
    int64_t to_count = sparse_place_count(to);
    for (int64_t i = 0; i < to_count; i++)
        to->places[i] = (sparse_place){0, SPARSE_NONE};
    for (int64_t i = 0; i < from_count; i++) {
        if (from->places[i].row == SPARSE_NONE)
            continue;
        int64_t home = sparse_home(to, from->places[i].tag) - to->places;
        next = next > home ? next : home;
        if (next + 1 >= to_count)
            return false;
        to->places[next++] = from->places[i];
    }
    return true;
}

/* Would more places help? Rows that come in order of their hashes crowd the first places of an index that is too small
 * for all of them; keys that were made to have hashes that are alike always do. */
static bool is_dense(const sparse_index *index)
{
    return index->count * 64 >= INT64_C(1) << index->bits && index->bits < 32;
}

static tri_status index_grow(ps_sparse *table, sparse_index *index)
{
    sparse_index grown = *index;
    if (!index->places) {
        grown.bits = LEAST_BITS;
        grown.tail = LEAST_TAIL;
    } else if (is_dense(index))
        grown.bits++;
    else
        grown.tail *= 2;
    for (;;) {
        int64_t count = (INT64_C(1) << grown.bits) + grown.tail;
        grown.places = sparse_places_take(table, count);
        if (!grown.places)
            return TRI_ENOMEM;
        if (places_refill(&grown, index))
            break;
        sparse_places_give(table, grown.places, count);
        grown.tail *= 2;
    }
    sparse_places_give(table, index->places, sparse_place_count(index));
    *index = grown;
    return TRI_OK;
}

/* A free place for a hash that has none, those behind it moved on; NULL: the index must grow. */
static sparse_place *place_make(const ps_sparse *table, sparse_index *index, uint64_t hash)
{
    uint32_t tag = sparse_tag(hash);
    if (!index->places || index->count * 4 >= (INT64_C(3) << index->bits))
        return NULL;
    sparse_place *place = sparse_tag_find(index, tag), *end = index->places + sparse_place_count(index);
    while (place->row != SPARSE_NONE && place->tag == tag && ps_key_hash(sparse_row_at(table, place->row)->key) < hash)
        place++;
    sparse_place *free_place = place;
    while (free_place->row != SPARSE_NONE)
        free_place++;
    if (free_place + 1 == end || (free_place - sparse_home(index, tag) > FAR && is_dense(index)))
        return NULL;
    memmove(place + 1, place, (size_t)(free_place - place) * sizeof(*place));
    return place;
}

tri_status sparse_insert(ps_sparse *table, uint64_t key, uint64_t hash, uint32_t *out)
{
    sparse_index *index = &table->slots[ps_hash_slot(hash)];
    uint32_t number;
    TRI_TRY(row_take(table, &number));
    sparse_place *place;
    while (!(place = place_make(table, index, hash))) {
        if (index_grow(table, index) != TRI_OK) {
            row_give(table, number);
            return TRI_ENOMEM;
        }
    }
    *place = (sparse_place){sparse_tag(hash), number};
    index->count++;
    table->count++;
    sparse_row *row = sparse_row_at(table, number);
    *row = (sparse_row){.key = key};
    float *floats = sparse_floats(row);
    sparse_initial(table, row->key, floats);
    for (int s = 0; table->steps && s < table->rows.states; s++)
        for (int i = 0; i < table->dim; i++)
            floats[(s + 1) * table->dim + i] = tri_optim_rows_initial(&table->rows, s);
    *out = number;
    return TRI_OK;
}

int64_t ps_sparse_erase(ps_sparse *table, const uint64_t *keys, int64_t count)
{
    int64_t erased = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = ps_key_hash(keys[i]);
        sparse_index *index = &table->slots[ps_hash_slot(hash)];
        sparse_place *place = sparse_find(table, keys[i], hash);
        if (!place)
            continue;
        row_give(table, place->row);
        /* Those behind it that are not where their search begins come one place nearer to it. */
        sparse_place *end = place + 1;
        while (end->row != SPARSE_NONE && sparse_home(index, end->tag) < end)
            end++;
        memmove(place, place + 1, (size_t)(end - place - 1) * sizeof(*place));
        end[-1] = (sparse_place){0, SPARSE_NONE};
        index->count--;
        table->count--;
        erased++;
    }
    return erased;
}

void sparse_sweep(ps_sparse *table, int slot, sparse_goes goes, const void *arg)
{
    sparse_index *index = &table->slots[slot];
    int64_t count = sparse_place_count(index), next = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count && index->places[i + AHEAD].row != SPARSE_NONE)
            __builtin_prefetch(sparse_row_at(table, index->places[i + AHEAD].row));
        sparse_place place = index->places[i];
        if (place.row == SPARSE_NONE)
            continue;
        index->places[i].row = SPARSE_NONE;
        if (goes(arg, sparse_row_at(table, place.row))) {
            row_give(table, place.row);
            index->count--;
            table->count--;
            continue;
        }
        int64_t home = sparse_home(index, place.tag) - index->places;
        next = next > home ? next : home;
        index->places[next++] = place;
    }
}

bool ps_sparse_next(const ps_sparse *table, int slot, ps_cursor *cursor, ps_row *out)
{
    const sparse_index *index = &table->slots[slot];
    if (index->count == 0)
        return false;
    TRI_DASSERT(!cursor->begun || ps_hash_slot(cursor->last) == slot);
    const sparse_place *end = index->places + sparse_place_count(index);
    for (const sparse_place *place = sparse_home(index, cursor->begun ? sparse_tag(cursor->last) : 0); place < end;
         place++) {
        if (place->row == SPARSE_NONE || (cursor->begun && place->tag < sparse_tag(cursor->last)))
            continue;
        sparse_row *row = sparse_row_at(table, place->row);
        uint64_t hash = ps_key_hash(row->key);
        if (cursor->begun && hash <= cursor->last)
            continue;
        if (end - place > AHEAD && place[AHEAD].row != SPARSE_NONE)
            sparse_prefetch(table, place[AHEAD].row);
        *cursor = (ps_cursor){true, hash};
        *out = (ps_row){row->key, row->clock, row->touches, sparse_floats(row)};
        return true;
    }
    return false;
}
