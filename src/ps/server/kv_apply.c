/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_apply.c: how the slots of a table take a push in, exactly once each, and give rows.
 *
 * Pushes of a client have ascending numbers, and it says them in that order to whoever has a slot: so a slot that has
 * taken number n in from it has all before n. With bsp the parts of a step come together per slot, and its rows move
 * when the last one is here; ssp and async: at once.
 */
#include "base/memory.h"
#include "ps/server/kv.h"
#include "ps/tables/part.h"

static tri_optim_scalars figures_of(const kv_table *table, int64_t step)
{
    return (tri_optim_scalars){
        .step = step, .lr = tri_schedule_rate(&table->spec.optim, step, table->spec.table.steps), .grad_scale = 1};
}

static tri_status rows_merge(kv_table *table, int64_t clock, bool assigns, ps_look look, const uint64_t *keys,
                             const float *values, int64_t count)
{
    tri_optim_scalars figures = figures_of(table, clock);
    ps_push push = {.look = look,
                    .clock = clock,
                    .merge = assigns ? ps_merge_assign : table->merge,
                    .figures = table->spec.steps ? &figures : NULL,
                    .arg = table->merge_arg};
    table->pushed += (uint64_t)count;
    return ps_sparse_push(table->rows, &push, keys, values, count);
}

/* --- scratch --- */

static tri_status order_room(kv_table *table, int64_t count)
{
    if (table->order && count <= table->order_room)
        return TRI_OK;
    int64_t *order = tri_realloc(table->order, (size_t)(count + 1) * sizeof(*order));
    if (!order)
        return TRI_ENOMEM;
    table->order = order;
    table->order_room = count;
    return TRI_OK;
}

static tri_status some_room(kv_table *table, int64_t count)
{
    size_t dim = (size_t)table->spec.table.dim;
    if (table->some_keys && count <= table->some_room)
        return TRI_OK;
    tri_free(table->some_keys);
    tri_free(table->some_values);
    table->some_keys = tri_alloc((size_t)(count + 1) * sizeof(uint64_t));
    table->some_values = tri_alloc((size_t)(count + 1) * dim * sizeof(float));
    table->some_room = count;
    if (table->some_keys && table->some_values)
        return TRI_OK;
    tri_free(table->some_keys);
    tri_free(table->some_values);
    table->some_keys = NULL;
    table->some_values = NULL;
    return TRI_ENOMEM;
}

static void some_take(kv_table *table, int64_t to, const ps_rows_body *body, int64_t from)
{
    size_t dim = (size_t)table->spec.table.dim;
    table->some_keys[to] = body->keys[from];
    memcpy(table->some_values + (size_t)to * dim, body->values + (size_t)from * dim, dim * sizeof(float));
}

/* --- ssp, async --- */

static uint64_t number_of(const ps_head *head)
{
    return (uint64_t)head->extra;
}

static bool is_fresh(const kv_table *table, int slot, int worker, const ps_head *head)
{
    return table->slots[slot].last[worker] < number_of(head);
}

static tri_status push_now(kv_table *table, int worker, const ps_head *head, const ps_rows_body *body)
{
    bool assigns = head->flags & PS_FLAG_ASSIGN;
    int named = 0, fresh = 0;
    int64_t count = 0, others = 0;
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(&body->slots, s)) {
            named++;
            fresh += is_fresh(table, s, worker, head);
            TRI_TRY(tri_ps_kv_save_before(table, s));
        }
    for (int64_t i = 0; i < body->count && body->is_part; i++) /* a backup may have some of the slots alone */
        others += !ps_slots_has(&body->slots, ps_key_slot(body->keys[i]));
    table->twice += fresh < named;
    if (fresh == named && others == 0)
        return rows_merge(table, head->clock, assigns, body->look, body->keys, body->values, body->count);
    if (fresh == 0)
        return TRI_OK;
    TRI_TRY(some_room(table, body->count));
    for (int64_t i = 0; i < body->count; i++)
        if (ps_slots_has(&body->slots, ps_key_slot(body->keys[i])) &&
            is_fresh(table, ps_key_slot(body->keys[i]), worker, head))
            some_take(table, count++, body, i);
    return rows_merge(table, head->clock, assigns, 0, table->some_keys, table->some_values, count);
}

/* --- bsp --- */

/* Rows of a slot's step as they are before it. */
static tri_status before_keep(kv_table *table, kv_slot *slot)
{
    ps_gather *gather = &slot->gather;
    float *rows = tri_alloc((size_t)gather->count * (size_t)table->spec.table.dim * sizeof(float));
    if (!rows)
        return TRI_ENOMEM;
    if (ps_sparse_pull(table->rows, 0, gather->keys, gather->count, rows) != TRI_OK) {
        tri_free(rows);
        return TRI_ENOMEM;
    }
    tri_free(slot->before_keys);
    tri_free(slot->before_rows);
    slot->before_rows = rows;
    slot->before_count = gather->count;
    slot->before_keys = gather->keys;
    gather->keys = NULL;
    return TRI_OK;
}

static tri_status step_end(kv_table *table, int number)
{
    kv_slot *slot = &table->slots[number];
    TRI_TRY(ps_gather_finish(&slot->gather));
    TRI_TRY(tri_ps_kv_save_before(table, number));
    TRI_TRY(before_keep(table, slot));
    TRI_TRY(rows_merge(table, slot->clock, false, 0, slot->before_keys, slot->gather.rows, slot->before_count));
    ps_gather_reset(&slot->gather);
    slot->clock++;
    table->moved = true;
    return tri_ps_kv_evict(table, number);
}

/* Brings the rows of each slot together, in their order: slot s has [firsts[s], firsts[s + 1]). */
static tri_status rows_group(kv_table *table, const ps_rows_body *body, int64_t firsts[PS_SLOTS + 1])
{
    int64_t next[PS_SLOTS] = {0};
    TRI_TRY(order_room(table, body->count));
    TRI_TRY(some_room(table, body->count));
    for (int64_t i = 0; i < body->count; i++) {
        table->order[i] = ps_key_slot(body->keys[i]);
        next[table->order[i]]++;
    }
    firsts[0] = 0;
    for (int s = 0; s < PS_SLOTS; s++) {
        firsts[s + 1] = firsts[s] + next[s];
        next[s] = firsts[s];
    }
    for (int64_t i = 0; i < body->count; i++)
        some_take(table, next[table->order[i]]++, body, i);
    return TRI_OK;
}

static tri_status push_part(kv_table *table, const ps_head *head, const ps_rows_body *body)
{
    int64_t firsts[PS_SLOTS + 1];
    size_t dim = (size_t)table->spec.table.dim;
    bool twice = false;
    if (!ps_is_part(table->spec.table.shards, head->part))
        return tri_fail(TRI_EFORMAT, "table '%s': there is no part of %lld shards from %lld on", table->spec.name,
                        (long long)head->part.count, (long long)head->part.first);
    TRI_TRY(rows_group(table, body, firsts));
    for (int s = 0; s < PS_SLOTS; s++) {
        kv_slot *slot = &table->slots[s];
        if (!ps_slots_has(&body->slots, s))
            continue;
        if (slot->clock > head->clock || ps_gather_has(&slot->gather, head->part)) {
            twice = true;
            continue;
        }
        TRI_TRY(ps_gather_take(&slot->gather, head->part, table->some_keys + firsts[s],
                               table->some_values + (size_t)firsts[s] * dim, firsts[s + 1] - firsts[s]));
        if (ps_gather_is_whole(&slot->gather))
            TRI_TRY(step_end(table, s));
    }
    table->twice += twice;
    return TRI_OK;
}

tri_status tri_ps_kv_push(kv_table *table, int worker, const ps_head *head, const ps_rows_body *body)
{
    bool gathers = table->spec.table.consistency == PS_BSP && !(head->flags & PS_FLAG_ASSIGN);
    TRI_TRY(gathers ? push_part(table, head, body) : push_now(table, worker, head, body));
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(&body->slots, s) && is_fresh(table, s, worker, head))
            table->slots[s].last[worker] = number_of(head);
    return TRI_OK;
}

/* --- out --- */

static const float *before_find(const kv_slot *slot, uint64_t key, size_t dim)
{
    int64_t low = 0, high = slot->before_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (slot->before_keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < slot->before_count && slot->before_keys[low] == key ? slot->before_rows + (size_t)low * dim : NULL;
}

tri_status tri_ps_kv_pull(const kv_table *table, int64_t clock, const ps_rows_body *body, float *values)
{
    size_t dim = (size_t)table->spec.table.dim;
    bool is_behind = false;
    TRI_TRY(ps_sparse_pull(table->rows, body->look, body->keys, body->count, values));
    if (table->spec.table.consistency != PS_BSP)
        return TRI_OK;
    for (int s = 0; s < PS_SLOTS; s++)
        is_behind = is_behind || (ps_slots_has(&body->slots, s) && table->slots[s].clock > clock);
    for (int64_t i = 0; is_behind && i < body->count; i++) {
        const kv_slot *slot = &table->slots[ps_key_slot(body->keys[i])];
        const float *before = slot->clock > clock ? before_find(slot, body->keys[i], dim) : NULL;
        if (before)
            memcpy(values + (size_t)i * dim, before, dim * sizeof(float));
    }
    return TRI_OK;
}
