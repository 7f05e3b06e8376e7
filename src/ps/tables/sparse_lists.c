/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_lists.c: where the rows of a list of keys are, and lists that come again.
 *
 * A step pulls rows and then pushes to the same keys, and many programs go through the same batches again and again. So
 * a table remembers where the rows of its latest lists were: a list that comes again is known by the 128-bit hash of
 * its keys, and costs one pass over them instead of two misses of the cache a key. Rows never move, so a list holds
 * until some row goes. What is remembered is never more than a number for each row of the table.
 */
#include "ps/tables/sparse_impl.h"

#define BLOCK      64 /* keys whose rows are made together */
#define ROWS_LEAST (INT64_C(64) << 10)

/* --- lists --- */

static bool is_list(const sparse_list *list, const XXH128_hash_t *hash, int64_t count)
{
    return list->hash.low64 == hash->low64 && list->hash.high64 == hash->high64 && list->count == count;
}

static void list_drop(sparse_lists *lists, sparse_list *list)
{
    tri_free(list->rows);
    lists->rows -= list->count;
    lists->marks[list - lists->of] = 0;
    *list = (sparse_list){0};
}

void sparse_lists_drop(sparse_lists *lists)
{
    for (int i = 0; i < SPARSE_LISTS && lists->rows > 0; i++)
        if (lists->of[i].rows)
            list_drop(lists, &lists->of[i]);
    lists->next = lists->oldest = 0;
}

static const sparse_list *list_find(const sparse_lists *lists, const XXH128_hash_t *hash, int64_t count)
{
    for (int i = 0; i < SPARSE_LISTS; i++)
        if (lists->marks[i] == hash->low64 && lists->of[i].rows && is_list(&lists->of[i], hash, count))
            return &lists->of[i];
    return NULL;
}

/* Keeps what was found just now, in place of the oldest lists. It is no failure that there is no memory for it. */
static void list_keep(ps_sparse *table)
{
    sparse_lists *lists = &table->lists;
    const sparse_list *found = &table->found;
    int64_t most = table->count > ROWS_LEAST ? table->count : ROWS_LEAST;
    if (found->count > most)
        return;
    while (lists->of[lists->next].rows || lists->rows + found->count > most) {
        if (lists->of[lists->oldest].rows)
            list_drop(lists, &lists->of[lists->oldest]);
        lists->oldest = (lists->oldest + 1) % SPARSE_LISTS;
    }
    uint32_t *rows = tri_alloc((size_t)found->count * sizeof(*rows));
    if (!rows)
        return;
    memcpy(rows, found->rows, (size_t)found->count * sizeof(*rows));
    lists->of[lists->next] = *found;
    lists->of[lists->next].rows = rows;
    lists->marks[lists->next] = found->hash.low64;
    lists->rows += found->count;
    lists->next = (lists->next + 1) % SPARSE_LISTS;
}

/* --- keys --- */

static tri_status found_room(ps_sparse *table, int64_t count)
{
    if (count <= table->found_room)
        return TRI_OK;
    table->found.count = 0;
    uint32_t *rows = tri_realloc(table->found.rows, (size_t)count * sizeof(*rows));
    if (!rows)
        return TRI_ENOMEM;
    table->found.rows = rows;
    table->found_room = count;
    return TRI_OK;
}

/* All rows of the list that was looked up are there. */
static void found_whole(ps_sparse *table)
{
    sparse_list *found = &table->found;
    found->whole = true;
    found->is_run = true;
    for (int64_t i = 1; i < found->count && found->is_run; i++)
        found->is_run = found->rows[i] == found->rows[0] + (uint32_t)i;
    if (found->count >= PS_LIST_LEAST)
        list_keep(table);
}

static tri_status list_look(ps_sparse *table, const uint64_t *keys, int64_t count, const sparse_list **out)
{
    sparse_lists *lists = &table->lists;
    XXH128_hash_t hash = {0};
    if (lists->gone != table->gone)
        sparse_lists_drop(lists);
    lists->gone = table->gone;
    if (count >= PS_LIST_LEAST) {
        hash = XXH3_128bits(keys, (size_t)count * sizeof(*keys));
        const sparse_list *known = list_find(lists, &hash, count);
        bool fresh = table->found_gone == table->gone; /* rows that came since were looked up there */
        *out = known ? known : &table->found;
        if (known || (fresh && is_list(&table->found, &hash, count)))
            return TRI_OK;
    }
    TRI_TRY(found_room(table, count));
    table->found.whole = sparse_rows_find(table, keys, count, table->found.rows, &table->found.slots);
    table->found.hash = hash;
    table->found.count = count;
    table->found.is_run = false;
    table->found_gone = table->gone;
    if (table->found.whole)
        found_whole(table);
    *out = &table->found;
    return TRI_OK;
}

tri_status sparse_look(ps_sparse *table, ps_look look, const uint64_t *keys, int64_t count, const sparse_list **out)
{
    if (look == 0 || look != table->looks || table->lists.gone != table->gone || table->looked->count != count) {
        table->looks++;
        table->looked = NULL;
        TRI_TRY(list_look(table, keys, count, &table->looked));
    }
    *out = table->looked;
    return TRI_OK;
}

/* Makes the rows of some keys that have none. */
static tri_status block_make(ps_sparse *table, const uint64_t *keys, int64_t count, uint32_t *rows)
{
    uint64_t hashes[BLOCK];
    for (int64_t i = 0; i < count; i++) {
        hashes[i] = ps_key_hash(keys[i]);
        const sparse_index *index = &table->slots[ps_hash_slot(hashes[i])];
        __builtin_prefetch(sparse_home(index, sparse_tag(hashes[i])), 1);
    }
    for (int64_t i = 0; i < count; i++) {
        const sparse_place *place =
            rows[i] == SPARSE_NONE ? sparse_find(table, keys[i], hashes[i]) : NULL; /* of a key that came twice */
        if (place)
            rows[i] = place->row;
        else if (rows[i] == SPARSE_NONE)
            TRI_TRY(sparse_insert(table, keys[i], hashes[i], &rows[i]));
    }
    return TRI_OK;
}

tri_status sparse_resolve(ps_sparse *table, ps_look look, const uint64_t *keys, int64_t count, const sparse_list **out)
{
    TRI_TRY(sparse_look(table, look, keys, count, out));
    if (*out != &table->found || table->found.whole)
        return TRI_OK;
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t length = count - first < BLOCK ? count - first : BLOCK;
        TRI_TRY(block_make(table, keys + first, length, table->found.rows + first));
    }
    found_whole(table);
    return TRI_OK;
}

tri_status ps_sparse_slots(ps_sparse *table, const uint64_t *keys, int64_t count, ps_slots *out, ps_look *look)
{
    const sparse_list *list;
    TRI_TRY(sparse_look(table, 0, keys, count, &list));
    *out = list->slots;
    *look = table->looks;
    return TRI_OK;
}

bool ps_sparse_known(ps_sparse *table, const XXH128_hash_t *hash, int64_t count, ps_slots *out, ps_look *look)
{
    const sparse_list *list = table->lists.gone == table->gone ? list_find(&table->lists, hash, count) : NULL;
    if (!list)
        return false;
    table->looked = list;
    *out = list->slots;
    *look = ++table->looks;
    return true;
}

bool ps_sparse_is_kept(const ps_sparse *table, ps_look look)
{
    bool is_latest = look != 0 && look == table->looks && table->looked && table->lists.gone == table->gone;
    return is_latest && table->looked->count >= PS_LIST_LEAST &&
           list_find(&table->lists, &table->looked->hash, table->looked->count);
}
