/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_evict.c: which rows go, by age, by how rare they are, and by how many there may be.
 *
 * Who goes is a property of the rows, never of the order in which they are.
 */
#include "ps/tables/sparse_impl.h"

/* Rows in the order in which they go. */
typedef struct rank {
    uint32_t clock, touches;
    uint64_t key;
} rank;

static inline bool goes_before(const rank *a, const rank *b)
{
    if (a->clock != b->clock)
        return a->clock < b->clock;
    if (a->touches != b->touches)
        return a->touches < b->touches;
    return a->key < b->key;
}

static rank rank_of(const sparse_row *row)
{
    return (rank){row->clock, row->touches, row->key};
}

/* The count-th of these in their order, from 0 (quickselect; the pivot is in the middle). */
static rank select_rank(rank *ranks, int64_t low, int64_t high, int64_t count)
{
    while (high - low > 1) {
        rank pivot = ranks[low + (high - low) / 2];
        int64_t left = low, right = high - 1;
        while (left <= right) {
            while (goes_before(&ranks[left], &pivot))
                left++;
            while (goes_before(&pivot, &ranks[right]))
                right--;
            if (left <= right) {
                rank kept = ranks[left];
                ranks[left++] = ranks[right];
                ranks[right--] = kept;
            }
        }
        if (count <= right)
            high = right + 1;
        else if (count >= left)
            low = left;
        else
            return ranks[count];
    }
    return ranks[low];
}

static bool is_due(const void *arg, sparse_row *row)
{
    const ps_evict *evict = arg;
    bool old = row->clock < evict->before;
    bool rare = row->touches < evict->fewer && row->clock < evict->unless;
    if (evict->fewer > 0)
        row->touches = 0;
    return old || rare;
}

static bool is_last(const void *arg, sparse_row *row)
{
    rank own = rank_of(row);
    return !goes_before(arg, &own);
}

/* Whether is_due() would let it stay, for those who must not change it. */
static bool stays(const ps_evict *evict, const sparse_row *row)
{
    return !(row->clock < evict->before) && !(row->touches < evict->fewer && row->clock < evict->unless);
}

static int end_of(const ps_evict *evict)
{
    return evict->end_slot > 0 ? evict->end_slot : PS_SLOTS;
}

static int64_t rows_of(const ps_sparse *table, const ps_evict *evict)
{
    int64_t count = 0;
    for (int slot = evict->first_slot; slot < end_of(evict); slot++)
        count += table->slots[slot].count;
    return count;
}

/* All rows that stay; their counts as they will be. */
static tri_status ranks_list(const ps_sparse *table, const ps_evict *evict, rank **out, int64_t *count)
{
    rank *ranks = tri_alloc((size_t)(rows_of(table, evict) + 1) * sizeof(*ranks));
    if (!ranks)
        return TRI_ENOMEM;
    int64_t listed = 0;
    for (int slot = evict->first_slot; slot < end_of(evict); slot++) {
        const sparse_index *index = &table->slots[slot];
        int64_t places = sparse_place_count(index);
        for (int64_t i = 0; i < places; i++) {
            if (index->places[i].row == SPARSE_NONE)
                continue;
            const sparse_row *row = sparse_row_at(table, index->places[i].row);
            if (!stays(evict, row))
                continue;
            ranks[listed] = rank_of(row);
            ranks[listed++].touches = evict->fewer > 0 ? 0 : row->touches;
        }
    }
    *out = ranks;
    *count = listed;
    return TRI_OK;
}

tri_status ps_sparse_evict(ps_sparse *table, const ps_evict *evict, int64_t *evicted)
{
    int64_t before = table->count, left = 0;
    rank last = {0};
    bool full = evict->most > 0 && rows_of(table, evict) > evict->most;
    if (full) {
        rank *ranks;
        TRI_TRY(ranks_list(table, evict, &ranks, &left));
        full = left > evict->most;
        if (full)
            last = select_rank(ranks, 0, left, left - evict->most - 1);
        tri_free(ranks);
    }
    for (int slot = evict->first_slot; slot < end_of(evict); slot++) {
        if (evict->before > 0 || evict->fewer > 0)
            sparse_sweep(table, slot, is_due, evict);
        if (full)
            sparse_sweep(table, slot, is_last, &last);
    }
    *evicted = before - table->count;
    return TRI_OK;
}

static bool all(const void *arg, sparse_row *row)
{
    (void)arg, (void)row;
    return true;
}

void ps_sparse_drop(ps_sparse *table, int slot)
{
    sparse_sweep(table, slot, all, NULL);
    sparse_places_give(table, table->slots[slot].places, sparse_place_count(&table->slots[slot]));
    table->slots[slot] = (sparse_index){0};
}
