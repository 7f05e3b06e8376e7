/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_table.c: a table of rows on a server: made from a text, its slots, rows that go.
 */
#include "ps/server/kv.h"

#include "base/log.h"
#include "base/memory.h"
#include "ps/server/connection.h"

static tri_status merge_find(const ps_kv *kv, kv_table *table)
{
    static const struct {
        const char *name;
        ps_merge_fn fn;
    } own[] = {{"add", ps_merge_add}, {"assign", ps_merge_assign}, {"min", ps_merge_min}, {"max", ps_merge_max}};
    const char *name = table->spec.table.merge;
    if (table->spec.steps)
        return TRI_OK;
    for (size_t i = 0; i < TRI_COUNT_OF(own) && !table->merge; i++)
        if (strcmp(own[i].name, name) == 0)
            table->merge = own[i].fn;
    for (size_t i = 0; i < kv->merges.count && !table->merge; i++) {
        const kv_merge *merge = tri_vector_at(&kv->merges, i);
        if (strcmp(merge->name, name) == 0) {
            table->merge = merge->fn;
            table->merge_arg = merge->arg;
        }
    }
    return table->merge ? TRI_OK
                        : tri_fail(TRI_ECONFIG,
                                   "table '%s': merge: the server knows no '%s' (add, assign, min, max, "
                                   "optim, or what it was started with)",
                                   table->spec.name, name);
}

static tri_status slots_make(const ps_kv *kv, kv_table *table)
{
    size_t workers = (size_t)table->spec.workers;
    bool bsp = table->spec.table.consistency == PS_BSP;
    table->slots = tri_alloc_zero(PS_SLOTS, sizeof(kv_slot));
    table->last = tri_alloc_zero(PS_SLOTS * workers, sizeof(uint64_t));
    table->clocks = bsp ? NULL : tri_alloc_zero(PS_SLOTS * workers, sizeof(int64_t));
    if (!table->slots || !table->last || (!bsp && !table->clocks))
        return TRI_ENOMEM;
    for (int s = 0; s < PS_SLOTS; s++) {
        kv_slot *slot = &table->slots[s];
        slot->held = !ps_slots_has(&kv->unreported, s);
        slot->last = table->last + (size_t)s * workers;
        if (bsp) {
            TRI_TRY(ps_gather_init(&slot->gather, table->spec.table.shards, (int)table->spec.table.dim));
            continue;
        }
        slot->clocks = table->clocks + (size_t)s * workers;
        for (size_t w = 0; w < workers; w++)
            slot->clocks[w] = kv->left[w] ? INT64_MAX : 0;
    }
    return TRI_OK;
}

static tri_status table_fill_in(const ps_kv *kv, kv_table *table, const char *text, size_t nbytes)
{
    const ps_kv_spec *spec = &table->spec;
    if (spec->workers != kv->workers)
        return tri_fail(TRI_ECONFIG, "table '%s' is for %d workers, the server has %d", spec->name, spec->workers,
                        kv->workers);
    TRI_TRY(merge_find(kv, table));
    TRI_TRY(tri_string_append_bytes(&table->text, text, nbytes));
    ps_sparse_setup setup = {.name = spec->name,
                             .dim = (int)spec->table.dim,
                             .seed = (uint64_t)spec->table.seed,
                             .initial = spec->table.initial,
                             .scale = (float)spec->table.scale,
                             .optim = spec->steps ? &spec->optim : NULL};
    TRI_TRY(ps_sparse_create(&setup, &table->rows));
    return slots_make(kv, table);
}

tri_status tri_ps_kv_table_make(ps_kv *kv, const char *text, size_t nbytes, kv_table **out)
{
    uint64_t hash = XXH3_64bits(text, nbytes);
    for (int t = 0; t < kv->table_count; t++)
        if (kv->tables[t]->text_hash == hash) {
            *out = kv->tables[t];
            return TRI_OK;
        }
    if (kv->table_count == PS_TABLES_MAX)
        return tri_fail(TRI_ECONFIG, "there are %d tables of rows already", PS_TABLES_MAX);
    kv_table *table = tri_alloc_zero(1, sizeof(*table));
    if (!table)
        return TRI_ENOMEM;
    table->kv = kv;
    table->waits_end = &table->waits;
    table->text_hash = hash;
    table->number = kv->table_count;
    tri_status status = ps_kv_spec_parse(text, nbytes, &table->spec);
    table->id = ps_kv_table_id(table->spec.name);
    for (int t = 0; t < kv->table_count && status == TRI_OK; t++)
        if (kv->tables[t]->id == table->id)
            status = tri_fail(TRI_EMISMATCH,
                              "table '%s' is there already, with other options: all workers of a job want the same",
                              table->spec.name);
    if (status == TRI_OK)
        status = table_fill_in(kv, table, text, nbytes);
    if (status != TRI_OK) {
        tri_ps_kv_table_destroy(table);
        return status;
    }
    kv->tables[kv->table_count++] = table;
    tri_log(TRI_LOG_DEBUG, "table '%s': rows of %lld, %s, %s", table->spec.name, (long long)table->spec.table.dim,
            table->spec.table.merge, ps_consistency_word(table->spec.table.consistency));
    *out = table;
    return TRI_OK;
}

void tri_ps_kv_table_destroy(kv_table *table)
{
    if (!table)
        return;
    while (table->waits) {
        kv_wait *wait = table->waits;
        table->waits = wait->next;
        tri_free(wait->body);
        tri_free(wait);
    }
    for (int s = 0; table->slots && s < PS_SLOTS; s++) {
        ps_gather_fini(&table->slots[s].gather);
        tri_free(table->slots[s].before_keys);
        tri_free(table->slots[s].before_rows);
    }
    tri_free(table->slots);
    tri_free(table->last);
    tri_free(table->clocks);
    tri_free(table->order);
    tri_free(table->some_keys);
    tri_free(table->some_values);
    ps_sparse_destroy(table->rows);
    tri_string_fini(&table->text);
    tri_free(table);
}

/* Each slot has its share of the rows that are kept, so that who goes does not depend on the servers. */
tri_status tri_ps_kv_evict(kv_table *table, int slot)
{
    const ps_table_config *config = &table->spec.table;
    int64_t clock = table->slots[slot].clock, evicted;
    if (clock == INT64_MAX || clock % config->evict_every != 0 ||
        (config->evict_age == 0 && config->evict_fewer == 0 && config->evict_most == 0))
        return TRI_OK;
    TRI_TRY(tri_ps_kv_save_before(table, slot));
    ps_evict evict = {.before = config->evict_age > 0 && clock > config->evict_age ? clock - config->evict_age : 0,
                      .fewer = (uint32_t)config->evict_fewer,
                      .unless = clock - config->evict_every,
                      .most = (config->evict_most + PS_SLOTS - 1) / PS_SLOTS,
                      .first_slot = slot,
                      .end_slot = slot + 1};
    TRI_TRY(ps_sparse_evict(table->rows, &evict, &evicted));
    table->evicted += evicted;
    return TRI_OK;
}

tri_status tri_ps_kv_clock_find(kv_table *table, int slot)
{
    kv_slot *at = &table->slots[slot];
    int64_t least = INT64_MAX;
    for (int w = 0; w < table->spec.workers; w++)
        least = at->clocks[w] < least ? at->clocks[w] : least;
    while (at->clock < least) { /* each step that is over, so that what is due at one of them is not left out */
        at->clock = least == INT64_MAX ? INT64_MAX : at->clock + 1;
        table->moved = true;
        TRI_TRY(tri_ps_kv_evict(table, slot));
    }
    return TRI_OK;
}

kv_table *tri_ps_kv_table_of(const ps_kv *kv, const ps_head *head)
{
    for (int t = 0; t < kv->table_count; t++)
        if (kv->tables[t]->id == head->table)
            return kv->tables[t];
    return NULL;
}

tri_status tri_ps_kv_failed(ps_client_connection *client, const ps_head *head, tri_status status)
{
    ps_head answer = {
        .kind = PS_KV_FAILED, .request = head->request, .extra = (double)status, .nbytes = strlen(tri_last_error())};
    tri_ps_answer(client, &answer, tri_last_error(), false);
    return TRI_OK;
}

void tri_ps_kv_done(ps_client_connection *client, uint64_t request, uint32_t table, int64_t clock)
{
    ps_head answer = {.kind = PS_KV_DONE, .request = request, .table = table, .clock = clock};
    tri_ps_answer(client, &answer, NULL, false);
}
