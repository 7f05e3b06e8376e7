/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse.c: pull and push in batches.
 *
 * A row is somewhere in memory, and so is its place in the index: a batch asks for both ahead, a block of keys at a
 * time, so that the machine fetches many lines at once.
 */
#include "ps/sparse_impl.h"

#include <math.h>

#include "base/rng.h"
#include "tensor/reduce.h"

#define BLOCK           64                /* keys that are looked up together */
#define AHEAD           12                /* rows */
#define SLAB_NBYTES     ((size_t)2 << 20) /* at least: huge pages, where the system has them */
#define SLAB_LEAST_BITS 4

/* --- merging --- */

void ps_merge_add(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    for (int i = 0; i < dim; i++)
        row[i] += pushed[i];
}

void ps_merge_assign(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    memcpy(row, pushed, (size_t)dim * sizeof(float));
}

void ps_merge_min(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    tri_reduce_find(TRI_REDUCE_MIN, TRI_F32)(row, row, pushed, dim);
}

void ps_merge_max(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    tri_reduce_find(TRI_REDUCE_MAX, TRI_F32)(row, row, pushed, dim);
}

/* --- making --- */

tri_status ps_sparse_create(const ps_sparse_setup *setup, ps_sparse **out)
{
    if (setup->dim < 1 || setup->dim > PS_MAX_DIM)
        return tri_fail(TRI_EINVAL, "table %s: want rows of 1 to %d values, got %d", setup->name, PS_MAX_DIM,
                        setup->dim);
    if (!isfinite(setup->scale))
        return tri_fail(TRI_EINVAL, "table %s: want a finite scale of the initial values", setup->name);
    ps_sparse *table = tri_alloc_zero(1, sizeof(*table));
    if (!table)
        return TRI_ENOMEM;
    table->name = tri_strdup(setup->name);
    tri_status status = table->name ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && setup->optim) {
        table->steps = true;
        status = tri_optim_rows_init(&table->rows, setup->optim);
    }
    if (status != TRI_OK) {
        ps_sparse_destroy(table);
        return status;
    }
    table->name_hash = XXH3_64bits(setup->name, strlen(setup->name));
    table->seed = setup->seed;
    table->dim = setup->dim;
    table->floats = setup->dim * (1 + (table->steps ? table->rows.states : 0));
    table->initial = setup->initial;
    table->scale = setup->scale;
    table->stride = (sizeof(sparse_row) + (size_t)table->floats * sizeof(float) + 15) / 16 * 16;
    table->slab_bits = SLAB_LEAST_BITS;
    while (table->stride << table->slab_bits < SLAB_NBYTES)
        table->slab_bits++;
    table->slabs.each = sizeof(char *);
    table->unused = SPARSE_NONE;
    *out = table;
    return TRI_OK;
}

void ps_sparse_destroy(ps_sparse *table)
{
    if (!table)
        return;
    for (int slot = 0; slot < PS_SLOTS; slot++)
        tri_free(table->slots[slot].places);
    for (size_t i = 0; i < table->slabs.count; i++)
        tri_free(*(char **)tri_vector_at(&table->slabs, i));
    tri_vector_fini(&table->slabs);
    tri_free(table->found);
    tri_free(table->name);
    tri_free(table);
}

void sparse_initial(const ps_sparse *table, uint64_t key, float *values)
{
    tri_rng rng = {table->seed, tri_rng_stream("row", table->name_hash, key)};
    switch (table->initial) {
    case PS_INITIAL_ZERO:
        memset(values, 0, (size_t)table->dim * sizeof(float));
        break;
    case PS_INITIAL_UNIFORM:
        tri_rng_fill_uniform(rng, 0, (uint64_t)table->dim, values);
        for (int i = 0; i < table->dim; i++)
            values[i] = table->scale * (2.0f * values[i] - 1.0f);
        break;
    case PS_INITIAL_NORMAL:
        for (int i = 0; i < table->dim; i++)
            values[i] = table->scale * tri_rng_normal(rng, (uint64_t)i);
        break;
    }
}

/* --- questions --- */

int ps_sparse_dim(const ps_sparse *table)
{
    return table->dim;
}

bool ps_sparse_steps(const ps_sparse *table)
{
    return table->steps;
}

int64_t ps_sparse_count(const ps_sparse *table)
{
    return table->count;
}

int64_t ps_sparse_slot_count(const ps_sparse *table, int slot)
{
    return table->slots[slot].count;
}

size_t ps_sparse_nbytes(const ps_sparse *table)
{
    size_t nbytes =
        sizeof(*table) + table->slabs.capacity * sizeof(char *) + (size_t)table->found_room * sizeof(*table->found);
    nbytes += table->slabs.count * (table->stride << table->slab_bits);
    for (int slot = 0; slot < PS_SLOTS; slot++)
        if (table->slots[slot].places)
            nbytes += (((size_t)1 << table->slots[slot].bits) + (size_t)table->slots[slot].tail) * sizeof(sparse_place);
    return nbytes;
}

/* --- batches --- */

void sparse_prefetch(const ps_sparse *table, uint32_t row)
{
    enum { MOST = 8 }; /* lines; the machine goes on by itself */
    const char *at = (const char *)sparse_row_at(table, row);
    size_t lines = table->stride / 64 + 1;
    for (size_t i = 0; i < lines && i < MOST; i++)
        __builtin_prefetch(at + 64 * i, 1);
}

/* Asks for all that a search for these keys will look at. */
static void block_prefetch(const ps_sparse *table, const uint64_t *keys, int64_t count, uint64_t *hashes)
{
    for (int64_t i = 0; i < count; i++) {
        hashes[i] = ps_key_hash(keys[i]);
        const sparse_index *index = &table->slots[ps_hash_slot(hashes[i])];
        __builtin_prefetch(sparse_home(index, sparse_tag(hashes[i])));
    }
    for (int64_t i = 0; i < count; i++) {
        const sparse_index *index = &table->slots[ps_hash_slot(hashes[i])];
        if (!index->places)
            continue;
        const sparse_place *place = sparse_tag_find(index, sparse_tag(hashes[i]));
        if (place->row != SPARSE_NONE && place->tag == sparse_tag(hashes[i]))
            sparse_prefetch(table, place->row);
    }
}

void ps_sparse_pull(const ps_sparse *table, const uint64_t *keys, int64_t count, float *rows)
{
    uint64_t hashes[BLOCK];
    size_t dim = (size_t)table->dim;
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t length = count - first < BLOCK ? count - first : BLOCK;
        block_prefetch(table, keys + first, length, hashes);
        for (int64_t i = 0; i < length; i++) {
            const sparse_place *place = sparse_find(table, keys[first + i], hashes[i]);
            float *out = rows + (size_t)(first + i) * dim;
            if (place)
                memcpy(out, sparse_floats(sparse_row_at(table, place->row)), dim * sizeof(float));
            else
                sparse_initial(table, keys[first + i], out);
        }
    }
}

tri_status sparse_resolve(ps_sparse *table, const uint64_t *keys, int64_t count)
{
    uint64_t hashes[BLOCK];
    if (count > table->found_room) {
        uint32_t *found = tri_realloc(table->found, (size_t)count * sizeof(*found));
        if (!found)
            return TRI_ENOMEM;
        table->found = found;
        table->found_room = count;
    }
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t length = count - first < BLOCK ? count - first : BLOCK;
        block_prefetch(table, keys + first, length, hashes);
        for (int64_t i = 0; i < length; i++) {
            const sparse_place *place = sparse_find(table, keys[first + i], hashes[i]);
            if (place)
                table->found[first + i] = place->row;
            else
                TRI_TRY(sparse_insert(table, keys[first + i], hashes[i], &table->found[first + i]));
        }
    }
    return TRI_OK;
}

static uint32_t clock_of(int64_t clock)
{
    TRI_ASSERT(clock >= 0);
    return clock < UINT32_MAX ? (uint32_t)clock : UINT32_MAX;
}

tri_status ps_sparse_push(ps_sparse *table, const ps_push *push, const uint64_t *keys, const float *rows, int64_t count)
{
    uint32_t clock = clock_of(push->clock);
    TRI_ASSERT(push->merge || (table->steps && push->figures));
    TRI_TRY(sparse_resolve(table, keys, count));
    if (!push->merge)
        tri_optim_rows_begin(&table->rows, push->figures);
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            sparse_prefetch(table, table->found[i + AHEAD]);
        sparse_row *row = sparse_row_at(table, table->found[i]);
        const float *pushed = rows + (size_t)i * (size_t)table->dim;
        float *values = sparse_floats(row);
        row->clock = row->clock > clock ? row->clock : clock;
        row->touches += row->touches < UINT32_MAX;
        if (push->merge)
            push->merge(push->arg, keys[i], values, pushed, table->dim);
        else {
            float *state[TRI_OPTIM_MAX_STATE] = {NULL};
            for (int s = 0; s < table->rows.states; s++)
                state[s] = values + (s + 1) * table->dim;
            tri_optim_rows_step(&table->rows, values, pushed, state, table->dim);
        }
    }
    return TRI_OK;
}

tri_status ps_sparse_touch(ps_sparse *table, int64_t clock, const uint64_t *keys, int64_t count)
{
    uint32_t now = clock_of(clock);
    TRI_TRY(sparse_resolve(table, keys, count));
    for (int64_t i = 0; i < count; i++) {
        sparse_row *row = sparse_row_at(table, table->found[i]);
        row->clock = row->clock > now ? row->clock : now;
    }
    return TRI_OK;
}
