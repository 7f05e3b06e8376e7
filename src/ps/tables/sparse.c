/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse.c: pull and push in batches.
 *
 * A row is somewhere in memory: a batch first finds where all of its rows are (tables/sparse_lists.c), then asks for
 * each some rows ahead, so that the machine fetches many lines at once.
 */
#include "ps/tables/sparse_impl.h"

#include <math.h>

#include "base/rng.h"
#include "tensor/reduce.h"

#define AHEAD           12                 /* rows that are asked for before they are had */
#define SLAB_NBYTES     ((size_t)16 << 20) /* at least: huge pages, where the system has them */
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
    table->stride = (sizeof(sparse_row) + (size_t)table->floats * sizeof(float) + 7) / 8 * 8;
    table->slab_bits = SLAB_LEAST_BITS;
    while (table->stride << table->slab_bits < SLAB_NBYTES)
        table->slab_bits++;
    table->slabs.each = sizeof(char *);
    table->chunks.each = sizeof(sparse_chunk);
    table->unused = SPARSE_NONE;
    *out = table;
    return TRI_OK;
}

void ps_sparse_destroy(ps_sparse *table)
{
    if (!table)
        return;
    for (int slot = 0; slot < PS_SLOTS; slot++)
        sparse_places_give(table, table->slots[slot].places, sparse_place_count(&table->slots[slot]));
    for (size_t i = 0; i < table->slabs.count; i++)
        tri_free(*(char **)tri_vector_at(&table->slabs, i));
    tri_vector_fini(&table->slabs);
    tri_vector_fini(&table->chunks);
    tri_free(table->found.rows);
    sparse_lists_drop(&table->lists);
    tri_free(table->name);
    tri_free(table);
}

void sparse_initial(const ps_sparse *table, uint64_t key, float *values)
{
    if (table->initial == PS_INITIAL_ZERO) {
        memset(values, 0, (size_t)table->dim * sizeof(float));
        return;
    }
    tri_rng rng = {table->seed, tri_rng_stream("row", table->name_hash, key)};
    switch (table->initial) {
    case PS_INITIAL_ZERO:
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
    size_t listed = (size_t)(table->found_room + table->lists.rows);
    size_t nbytes = sizeof(*table) + table->slabs.capacity * sizeof(char *) + listed * sizeof(uint32_t);
    nbytes += table->used * table->stride; /* what of a slab was never written to is nobody's */
    for (int slot = 0; slot < PS_SLOTS; slot++)
        nbytes += (size_t)sparse_place_count(&table->slots[slot]) * sizeof(sparse_place);
    return nbytes;
}

/* --- batches --- */

void sparse_prefetch(const ps_sparse *table, uint32_t row)
{
    enum { MOST = 8 }; /* cache lines; the hardware prefetches the next ones */
    const char *at = (const char *)sparse_row_at(table, row);
    size_t lines = table->stride / 64 + 1;
    for (size_t i = 0; i < lines && i < MOST; i++)
        __builtin_prefetch(at + 64 * i, 1);
}

/* A walk along the rows of a list. Rows that came into being together, and come together again, are one behind the
 * other: the machine sees by itself what comes next. All others are asked for some rows ahead. */
typedef struct walk {
    const ps_sparse *table;
    const uint32_t *rows;
    int64_t count;
    bool is_run;
    char *next; /* of a run */
} walk;

static walk walk_make(const ps_sparse *table, const sparse_list *list)
{
    return (walk){.table = table, .rows = list->rows, .count = list->count, .is_run = list->whole && list->is_run};
}

/* The i-th one, after all before it; NULL: there is no such row. */
static inline __attribute__((always_inline)) sparse_row *walk_row(walk *at, int64_t i)
{
    const ps_sparse *table = at->table;
    uint32_t slab_mask = (UINT32_C(1) << table->slab_bits) - 1;
    if (at->is_run) {
        uint32_t number = at->rows[0] + (uint32_t)i;
        char *row = i == 0 || (number & slab_mask) == 0 ? (char *)sparse_row_at(table, number) : at->next;
        at->next = row + table->stride;
        return (sparse_row *)(void *)row;
    }
    if (i + AHEAD < at->count && at->rows[i + AHEAD] != SPARSE_NONE)
        sparse_prefetch(table, at->rows[i + AHEAD]);
    return at->rows[i] != SPARSE_NONE ? sparse_row_at(table, at->rows[i]) : NULL;
}

/* The bodies of pull and push for rows of one length: that is a constant where rows are so short that it matters. */
static inline __attribute__((always_inline)) void rows_pull(const ps_sparse *table, const sparse_list *list,
                                                            const uint64_t *keys, size_t dim, float *rows)
{
    walk at = walk_make(table, list);
    for (int64_t i = 0; i < at.count; i++) {
        float *out = rows + (size_t)i * dim;
        sparse_row *row = walk_row(&at, i);
        if (row)
            memcpy(out, sparse_floats(row), dim * sizeof(float));
        else
            sparse_initial(table, keys[i], out);
    }
}

tri_status ps_sparse_pull(ps_sparse *table, ps_look look, const uint64_t *keys, int64_t count, float *rows)
{
    const sparse_list *list;
    TRI_TRY(sparse_look(table, look, keys, count, &list));
    switch (table->dim) {
    case 1:
        rows_pull(table, list, keys, 1, rows);
        break;
    case 16:
        rows_pull(table, list, keys, 16, rows);
        break;
    default:
        rows_pull(table, list, keys, (size_t)table->dim, rows);
    }
    return TRI_OK;
}

static uint32_t clock_of(int64_t clock)
{
    TRI_ASSERT(clock >= 0);
    return clock < UINT32_MAX ? (uint32_t)clock : UINT32_MAX;
}

/* A row that is pushed to. */
static inline __attribute__((always_inline)) sparse_row *row_touch(walk *at, int64_t i, uint32_t clock)
{
    sparse_row *row = walk_row(at, i);
    row->clock = row->clock > clock ? row->clock : clock;
    row->touches += row->touches < UINT32_MAX;
    return row;
}

static inline __attribute__((always_inline)) void rows_add(walk *at, uint32_t clock, const float *rows, int dim)
{
    for (int64_t i = 0; i < at->count; i++)
        ps_merge_add(NULL, 0, sparse_floats(row_touch(at, i, clock)), rows + (size_t)i * (size_t)dim, dim);
}

static void rows_merge(walk *at, uint32_t clock, const ps_push *push, const float *rows)
{
    int dim = at->table->dim;
    for (int64_t i = 0; i < at->count; i++) {
        sparse_row *row = row_touch(at, i, clock);
        push->merge(push->arg, row->key, sparse_floats(row), rows + (size_t)i * (size_t)dim, dim);
    }
}

static void rows_step(ps_sparse *table, walk *at, uint32_t clock, const ps_push *push, const float *rows)
{
    tri_optim_rows_begin(&table->rows, push->figures);
    for (int64_t i = 0; i < at->count; i++) {
        float *values = sparse_floats(row_touch(at, i, clock));
        float *state[TRI_OPTIM_MAX_STATE] = {NULL};
        for (int s = 0; s < table->rows.states; s++)
            state[s] = values + (s + 1) * table->dim;
        tri_optim_rows_step(&table->rows, values, rows + (size_t)i * (size_t)table->dim, state, table->dim);
    }
}

tri_status ps_sparse_push(ps_sparse *table, const ps_push *push, const uint64_t *keys, const float *rows, int64_t count)
{
    uint32_t clock = clock_of(push->clock);
    const sparse_list *list;
    TRI_ASSERT(push->merge || (table->steps && push->figures));
    TRI_TRY(sparse_resolve(table, push->look, keys, count, &list));
    walk at = walk_make(table, list);
    if (!push->merge)
        rows_step(table, &at, clock, push, rows);
    else if (push->merge == ps_merge_add && table->dim == 1)
        rows_add(&at, clock, rows, 1);
    else if (push->merge == ps_merge_add)
        rows_add(&at, clock, rows, table->dim);
    else
        rows_merge(&at, clock, push, rows);
    return TRI_OK;
}

tri_status ps_sparse_touch(ps_sparse *table, int64_t clock, const uint64_t *keys, int64_t count)
{
    uint32_t now = clock_of(clock);
    const sparse_list *found;
    TRI_TRY(sparse_resolve(table, 0, keys, count, &found));
    for (int64_t i = 0; i < count; i++) {
        sparse_row *row = sparse_row_at(table, found->rows[i]);
        row->clock = row->clock > now ? row->clock : now;
    }
    return TRI_OK;
}
