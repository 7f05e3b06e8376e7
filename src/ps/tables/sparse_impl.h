/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_impl.h: what a sparse table is made of: slabs of rows, an index of each slot, and lists of keys that came.
 *
 * Rows are in slabs that never move, and have numbers. An index has a place for each row of its slot, in order of
 * hashes: linear probing from the line of the cache that the hash's upper bits say, where whoever has the smaller hash
 * comes first. So the same rows always are in the same order, whatever way they came in, a search ends at the first
 * greater hash, and a larger index is filled from front to back without a look at the rows. A line is full or ends with
 * free places: most searches need no other one.
 */
#ifndef TRI_PS_SPARSE_IMPL_H
#define TRI_PS_SPARSE_IMPL_H

#include "ps/tables/sparse.h"

/* Followed by the floats of the row. A row that nobody uses has the number of the next such row as key. */
typedef struct sparse_row {
    uint64_t key;
    uint32_t clock, touches;
} sparse_row;

#define SPARSE_NONE UINT32_MAX /* number of no row */

typedef struct sparse_place {
    uint32_t tag; /* the bits of the hash below those of the slot */
    uint32_t row;
} sparse_place;

#define SPARSE_LINE 8 /* places of a line of the cache */

typedef struct sparse_index {
    sparse_place *places; /* [2^bits + tail], whole lines: what finds no place before goes to the tail, whose last place
                             stays free */
    int bits;
    int64_t tail;
    int64_t count; /* rows */
} sparse_index;

static inline int64_t sparse_place_count(const sparse_index *index)
{
    return index->places ? (INT64_C(1) << index->bits) + index->tail : 0;
}

/* Memory that indexes share. */
typedef struct sparse_chunk {
    char *memory;
    size_t used;
    int lent; /* indexes */
} sparse_chunk;

/* Where the rows of a list of keys are, SPARSE_NONE: there is none. */
typedef struct sparse_list {
    XXH128_hash_t hash; /* of the keys */
    int64_t count;
    uint32_t *rows; /* [count]; NULL: no list */
    ps_slots slots; /* that the keys are in */
    bool whole;     /* all rows are there, */
    bool is_run;    /* and they are one behind the other: rows[i] is rows[0] + i */
} sparse_list;

/* Lists whose rows are all there, a ring from the oldest on. */
#define SPARSE_LISTS 1024
typedef struct sparse_lists {
    uint64_t marks[SPARSE_LISTS]; /* halves of their hashes, side by side for the search */
    sparse_list of[SPARSE_LISTS];
    int oldest, next;
    int64_t rows;  /* of all */
    uint64_t gone; /* of the table when they were made */
} sparse_lists;

struct ps_sparse {
    char *name;
    uint64_t name_hash, seed;
    int dim, floats; /* floats of a row: values and state */
    ps_initial initial;
    float scale;
    bool steps;          /* rows.ops is there */
    tri_optim_rows rows; /* the optimizer */
    size_t stride;       /* bytes of a row */
    int slab_bits;       /* of rows in a slab */
    tri_vector slabs;    /* of char * */
    uint32_t used;       /* rows that were ever given out */
    uint32_t unused;     /* the first row that nobody uses any more, SPARSE_NONE: there is none */
    tri_vector chunks;   /* of sparse_chunk */
    int64_t count;
    uint64_t gone;       /* rows that ever went */
    sparse_list found;   /* the latest list that was looked up; its rows have room for */
    int64_t found_room;  /* elements of found */
    uint64_t found_gone; /* `gone` then */
    sparse_lists lists;
    ps_look looks;             /* lists that were looked up */
    const sparse_list *looked; /* the latest */
    sparse_index slots[PS_SLOTS];
};

static inline sparse_row *sparse_row_at(const ps_sparse *table, uint32_t row)
{
    char *const *slabs = table->slabs.items;
    size_t within = row & ((UINT32_C(1) << table->slab_bits) - 1);
    return (sparse_row *)(void *)(slabs[row >> table->slab_bits] + within * table->stride);
}

static inline float *sparse_floats(sparse_row *row)
{
    return (float *)(void *)(row + 1);
}

static inline uint32_t sparse_tag(uint64_t hash)
{
    return (uint32_t)(hash >> (32 - PS_SLOT_BITS));
}

/* Where the search for a tag begins; NULL: the index has no places yet. */
static inline sparse_place *sparse_home(const sparse_index *index, uint32_t tag)
{
    return index->places ? index->places + ((uint64_t)tag >> (32 - index->bits) & ~(uint64_t)(SPARSE_LINE - 1)) : NULL;
}

/* The first place whose tag is at least this one, or that is free. */
static inline sparse_place *sparse_tag_find(const sparse_index *index, uint32_t tag)
{
    sparse_place *place = sparse_home(index, tag);
    while (place->row != SPARSE_NONE && place->tag < tag)
        place++;
    return place;
}

/* The place of a key's row, from the first one of its tag on; NULL: there is none. */
static inline sparse_place *sparse_find_from(const ps_sparse *table, sparse_place *place, uint64_t key, uint32_t tag)
{
    for (; place && place->row != SPARSE_NONE && place->tag == tag; place++)
        if (sparse_row_at(table, place->row)->key == key)
            return place;
    return NULL;
}

/* The place of a key's row; NULL: there is none. */
static inline sparse_place *sparse_find(const ps_sparse *table, uint64_t key, uint64_t hash)
{
    const sparse_index *index = &table->slots[ps_hash_slot(hash)];
    uint32_t tag = sparse_tag(hash);
    return sparse_find_from(table, index->places ? sparse_tag_find(index, tag) : NULL, key, tag);
}

/* A new row for a key that has none, with what rows begin with, of age 0. */
tri_status sparse_insert(ps_sparse *table, uint64_t key, uint64_t hash, uint32_t *out);
/* Takes the rows of a slot out that `goes` says; all others stay in order. */
typedef bool (*sparse_goes)(const void *arg, sparse_row *row);
void sparse_sweep(ps_sparse *table, int slot, sparse_goes goes, const void *arg);
/* What a row begins with. */
void sparse_initial(const ps_sparse *table, uint64_t key, float *values);
void sparse_prefetch(const ps_sparse *table, uint32_t row);

/* --- tables/sparse_memory.c --- */
/* For this many places, aligned to a cache line; NULL: there is no memory. */
sparse_place *sparse_places_take(ps_sparse *table, int64_t count);
void sparse_places_give(ps_sparse *table, sparse_place *places, int64_t count);

/* --- tables/sparse_find.c --- */
/* rows[count]: of these keys, SPARSE_NONE where there is none; and the slots that they are in. True: all are there. */
bool sparse_rows_find(const ps_sparse *table, const uint64_t *keys, int64_t count, uint32_t *rows, ps_slots *slots);

/* --- tables/sparse_lists.c --- */
/* Where the rows of a list are; valid until the next one is looked up, or the table changes. TRI_ENOMEM. */
tri_status sparse_look(ps_sparse *table, ps_look look, const uint64_t *keys, int64_t count, const sparse_list **out);
/* The same, and rows are made where there are none. */
tri_status sparse_resolve(ps_sparse *table, ps_look look, const uint64_t *keys, int64_t count, const sparse_list **out);
void sparse_lists_drop(sparse_lists *lists);

#endif
