/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: <trireme/ps.h>: tables of rows, and arrays, which are tables whose rows follow each other.
 *
 * With bsp a worker adds its own shards up before they go out: a part of the canonical sum is one message to each
 * server.
 */
#include "ps/api/table.h"

#include "base/memory.h"

/* Rows of an array, in values. */
#define ARRAY_LEAST_DIM 256
#define ARRAY_MOST_DIM  16384

/* --- open --- */

/* Values that lose bits on the way do so shard by shard, so that the same are lost for any number of workers. */
static int parts_cut(const tri_kv_table *table, int64_t first, int64_t count, tri_tree_part *parts)
{
    if (table->spec.table.values == PS_WIRE_F32)
        return tri_tree_parts(table->spec.table.shards, first, count, parts);
    for (int64_t i = 0; i < count; i++)
        parts[i] = (tri_tree_part){first + i, 1};
    return (int)count;
}

static tri_status parts_make(tri_kv_table *table)
{
    int64_t first, count;
    tri_kv_shards(table, &first, &count);
    tri_tree_part *parts = tri_alloc((size_t)(count + TRI_TREE_MAX_PARTS) * sizeof(*parts));
    if (!parts)
        return TRI_ENOMEM;
    int part_count = parts_cut(table, first, count, parts);
    table->parts = tri_alloc_zero((size_t)part_count + 1, sizeof(kv_part));
    tri_status status = table->parts ? TRI_OK : TRI_ENOMEM;
    for (; status == TRI_OK && table->part_count < part_count; table->part_count++) {
        kv_part *part = &table->parts[table->part_count];
        part->part = parts[table->part_count];
        status = ps_gather_init(&part->gather, part->part.count, (int)table->spec.table.dim);
    }
    tri_free(parts);
    return status;
}

void tri_kv_table_free(tri_kv_table *table)
{
    for (int p = 0; p < table->part_count; p++)
        ps_gather_fini(&table->parts[p].gather);
    tri_free(table->parts);
    tri_free(table);
}

tri_status tri_kv_table_ask(tri_kv_table *table)
{
    tri_string text = {0};
    tri_ps_client *client = table->kv->client;
    tri_kv_work *work = tri_ps_kv_work(client);
    if (!work)
        return TRI_ENOMEM;
    tri_status status = ps_kv_spec_print(&table->spec, &text);
    ps_head head = {.kind = PS_KV_OPEN, .nbytes = text.nbytes};
    if (status == TRI_OK)
        status = tri_ps_kv_ask(client, work, NULL, &head, tri_string_text(&text), false, "opening a table");
    tri_kv_work *asked = NULL;
    status = tri_ps_kv_end(work, status, "opening a table", &asked);
    if (status == TRI_OK)
        status = tri_ps_kv_opened(asked, &table->step);
    if (status == TRI_OK && !table->is_known)
        status = tri_ps_kv_open_note(client, &text);
    table->is_known = table->is_known || status == TRI_OK;
    tri_string_fini(&text);
    return status;
}

tri_status tri_kv_table_open(tri_kv *kv, const char *name, int dim, const char *options, tri_kv_table **out)
{
    tri_kv_table *table = tri_alloc_zero(1, sizeof(*table));
    if (!table)
        return TRI_ENOMEM;
    table->kv = kv;
    tri_status status = ps_kv_spec_make(name, dim, kv->client->setup.workers, options, &table->spec);
    table->id = ps_kv_table_id(table->spec.name);
    if (status == TRI_OK && table->spec.table.consistency == PS_BSP)
        status = parts_make(table);
    if (status == TRI_OK)
        status = tri_kv_table_ask(table);
    if (status != TRI_OK) {
        tri_kv_table_free(table);
        return status;
    }
    tri_kv_table **at = &kv->tables;
    while (*at)
        at = &(*at)->next;
    *at = table; /* in the order in which they were opened */
    *out = table;
    return TRI_OK;
}

void tri_kv_shards(const tri_kv_table *table, int64_t *first, int64_t *count)
{
    const tri_ps_client_setup *setup = &table->kv->client->setup;
    *first = tri_tree_first(table->spec.table.shards, setup->worker, setup->workers);
    *count = tri_tree_count(table->spec.table.shards, setup->worker, setup->workers);
}

int64_t tri_kv_step(const tri_kv_table *table)
{
    return table->step;
}

/* --- pull and push --- */

/* One batch, waited for or handed over. */
static tri_status batch_run(tri_kv_table *table, const kv_batch *batch, float *rows, const char *what,
                            tri_kv_work **work)
{
    tri_kv_work *made = tri_ps_kv_work(table->kv->client);
    if (!made)
        return TRI_ENOMEM;
    made->table = table;
    made->rows = rows;
    return tri_ps_kv_end(made, tri_ps_kv_split(table, batch, made), what, work);
}

/* Rows of equal keys of a push are one when they are merged. */
static bool adds(const tri_kv_table *table)
{
    return table->spec.steps || strcmp(table->spec.table.merge, "add") == 0;
}

tri_status tri_kv_pull(tri_kv_table *table, const uint64_t *keys, int64_t count, float *rows, tri_kv_work **work)
{
    kv_batch batch = {.kind = PS_KV_PULL, .keys = keys, .count = count, .lends = !work};
    return batch_run(table, &batch, rows, "pulling rows", work);
}

static tri_status part_send(tri_kv_table *table, kv_part *part)
{
    ps_gather *gather = &part->gather;
    TRI_TRY(ps_gather_finish(gather));
    kv_batch batch = {.kind = PS_KV_PUSH,
                      .part = part->part,
                      .keys = gather->keys,
                      .rows = gather->rows,
                      .count = gather->count,
                      .to_all = true};
    TRI_TRY(tri_ps_kv_split(table, &batch, NULL));
    part->is_out = true;
    ps_gather_reset(gather);
    return TRI_OK;
}

static tri_status shard_push(tri_kv_table *table, int64_t shard, const uint64_t *keys, const float *rows, int64_t count)
{
    for (int p = 0; p < table->part_count; p++) {
        kv_part *part = &table->parts[p];
        tri_tree_part leaf = {shard - part->part.first, 1};
        if (leaf.first < 0 || leaf.first >= part->part.count)
            continue;
        if (part->is_out || ps_gather_has(&part->gather, leaf))
            return tri_fail(TRI_EINVAL, "table '%s': shard %lld was pushed to in step %lld already", table->spec.name,
                            (long long)shard, (long long)table->step);
        TRI_TRY(ps_gather_take(&part->gather, leaf, keys, rows, count));
        return ps_gather_is_whole(&part->gather) ? part_send(table, part) : TRI_OK;
    }
    int64_t first, own;
    tri_kv_shards(table, &first, &own);
    return tri_fail(TRI_EINVAL, "table '%s' is bsp: want one of this worker's shards, %lld to %lld, got %lld",
                    table->spec.name, (long long)first, (long long)(first + own - 1), (long long)shard);
}

tri_status tri_kv_push(tri_kv_table *table, int64_t shard, const uint64_t *keys, const float *rows, int64_t count,
                       tri_kv_work **work)
{
    kv_batch batch = {
        .kind = PS_KV_PUSH, .keys = keys, .rows = rows, .count = count, .adds = adds(table), .lends = !work};
    if (table->spec.table.consistency != PS_BSP && shard != -1)
        return tri_fail(TRI_EINVAL, "table '%s' is %s: there are no shards: want -1, got %lld", table->spec.name,
                        ps_consistency_word(table->spec.table.consistency), (long long)shard);
    if (table->spec.table.consistency != PS_BSP)
        return batch_run(table, &batch, NULL, "pushing rows", work);
    if (count < 0 || count > PS_ROWS_MAX)
        return tri_fail(TRI_EINVAL, "table '%s': %lld rows", table->spec.name, (long long)count);
    tri_kv_work *made = tri_ps_kv_work(table->kv->client);
    if (!made)
        return TRI_ENOMEM;
    return tri_ps_kv_end(made, shard_push(table, shard, keys, rows, count), "pushing rows", work);
}

/* What arrives does not change what may have to be sent again. */
static bool are_apart(const tri_kv_table *table, const float *rows, const float *to, int64_t count)
{
    size_t values = (size_t)count * (size_t)table->spec.table.dim;
    return (uintptr_t)(rows + values) <= (uintptr_t)to || (uintptr_t)(to + values) <= (uintptr_t)rows;
}

tri_status tri_kv_push_pull(tri_kv_table *table, const uint64_t *keys, const float *rows, float *to, int64_t count,
                            tri_kv_work **work)
{
    kv_batch batch = {.kind = PS_KV_PUSH,
                      .flags = PS_FLAG_PULL,
                      .keys = keys,
                      .rows = rows,
                      .count = count,
                      .adds = adds(table),
                      .lends = !work && are_apart(table, rows, to, count)};
    if (table->spec.table.consistency == PS_BSP)
        return tri_fail(TRI_EINVAL, "table '%s' is bsp: what comes of a push is there after tri_kv_clock()",
                        table->spec.name);
    return batch_run(table, &batch, to, "pushing and pulling rows", work);
}

tri_status tri_kv_assign(tri_kv_table *table, const uint64_t *keys, const float *rows, int64_t count,
                         tri_kv_work **work)
{
    kv_batch batch = {
        .kind = PS_KV_PUSH, .flags = PS_FLAG_ASSIGN, .keys = keys, .rows = rows, .count = count, .lends = !work};
    return batch_run(table, &batch, NULL, "assigning rows", work);
}

tri_status tri_kv_table_clock(tri_kv_table *table)
{
    tri_ps_client *client = table->kv->client;
    for (int p = 0; p < table->part_count; p++) {
        if (table->parts[p].is_out)
            continue;
        ps_gather_drop(&table->parts[p].gather);
        TRI_TRY(part_send(table, &table->parts[p]));
    }
    for (int p = 0; p < table->part_count; p++)
        table->parts[p].is_out = false;
    if (table->spec.table.consistency != PS_BSP) {
        ps_head head = {.kind = PS_KV_CLOCK, .clock = table->step + 1};
        TRI_TRY(tri_ps_kv_ask(client, NULL, table, &head, NULL, true, "the end of a step"));
    }
    table->step++;
    return TRI_OK;
}

/* --- arrays --- */

/* Keys that are in slots 0, 1, 2, ... in turn, so that servers have the same number of rows to within one. */
static uint64_t array_key(int64_t row)
{
    uint64_t key = (uint64_t)row << 16;
    while (ps_key_slot(key) != (int)(row % PS_SLOTS))
        key++;
    return key;
}

static int array_dim(int64_t count)
{
    int64_t dim = (count + PS_SLOTS - 1) / PS_SLOTS;
    if (dim < ARRAY_LEAST_DIM)
        return (int)(count < ARRAY_LEAST_DIM ? count : ARRAY_LEAST_DIM);
    return (int)(dim < ARRAY_MOST_DIM ? dim : ARRAY_MOST_DIM);
}

tri_status tri_kv_array_open(tri_kv *kv, const char *name, int64_t count, const char *options, tri_kv_array **out)
{
    if (count < 1 || count > INT64_C(1) << 40)
        return tri_fail(TRI_EINVAL, "array '%s': want 1 to 2^40 values, got %lld", name, (long long)count);
    int64_t dim = array_dim(count), rows = (count + dim - 1) / dim;
    tri_kv_array *array = tri_alloc_zero(1, sizeof(*array));
    uint64_t *keys = tri_alloc((size_t)rows * sizeof(uint64_t));
    tri_status status = array && keys ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_kv_table_open(kv, name, (int)dim, options, &array->table);
    if (status != TRI_OK) {
        tri_free(array);
        tri_free(keys);
        return status;
    }
    for (int64_t i = 0; i < rows; i++)
        keys[i] = array_key(i);
    array->keys = keys;
    array->count = rows;
    array->table->total = count;
    array->next = kv->arrays;
    kv->arrays = array;
    *out = array;
    return TRI_OK;
}

tri_status tri_kv_array_pull(tri_kv_array *array, float *values, tri_kv_work **work)
{
    return tri_kv_pull(array->table, array->keys, array->count, values, work);
}

/* The sum of shards reads whole rows: the last one ends behind the caller's values. */
static tri_status array_shard_push(tri_kv_array *array, int64_t shard, const float *values, tri_kv_work **work)
{
    const tri_kv_table *table = array->table;
    size_t whole = (size_t)array->count * (size_t)table->spec.table.dim, count = (size_t)table->total;
    float *padded = tri_alloc(whole * sizeof(float));
    if (!padded)
        return TRI_ENOMEM;
    memcpy(padded, values, count * sizeof(float));
    memset(padded + count, 0, (whole - count) * sizeof(float));
    tri_status status = tri_kv_push(array->table, shard, array->keys, padded, array->count, work);
    tri_free(padded);
    return status;
}

tri_status tri_kv_array_push(tri_kv_array *array, int64_t shard, const float *values, tri_kv_work **work)
{
    const tri_kv_table *table = array->table;
    if (table->spec.table.consistency == PS_BSP && table->total % table->spec.table.dim != 0)
        return array_shard_push(array, shard, values, work);
    return tri_kv_push(array->table, shard, array->keys, values, array->count, work);
}

tri_status tri_kv_array_push_pull(tri_kv_array *array, const float *values, float *to, tri_kv_work **work)
{
    return tri_kv_push_pull(array->table, array->keys, values, to, array->count, work);
}

tri_status tri_kv_array_assign(tri_kv_array *array, const float *values, tri_kv_work **work)
{
    return tri_kv_assign(array->table, array->keys, values, array->count, work);
}

const tri_kv_table *tri_kv_array_table(const tri_kv_array *array)
{
    return array->table;
}
