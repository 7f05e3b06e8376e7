/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.c: the tables of rows of a server: made and ended, slots that come and go.
 */
#include "ps/server/kv.h"

#include <stdio.h>

#include "base/memory.h"

tri_status tri_ps_kv_create(int workers, ps_kv **out)
{
    ps_kv *kv = tri_alloc_zero(1, sizeof(*kv));
    if (!kv)
        return TRI_ENOMEM;
    kv->workers = workers;
    kv->merges.each = sizeof(kv_merge);
    kv->stops = tri_alloc_zero((size_t)workers, sizeof(kv_stop));
    kv->left = tri_alloc_zero((size_t)workers, sizeof(bool));
    if (!kv->stops || !kv->left) {
        tri_ps_kv_destroy(kv);
        return TRI_ENOMEM;
    }
    *out = kv;
    return TRI_OK;
}

void tri_ps_kv_destroy(ps_kv *kv)
{
    if (!kv)
        return;
    tri_ps_kv_save_forget(kv, NULL);
    for (int t = 0; t < kv->table_count; t++)
        tri_ps_kv_table_destroy(kv->tables[t]);
    tri_vector_fini(&kv->merges);
    ps_rows_room_fini(&kv->room);
    tri_free(kv->stops);
    tri_free(kv->left);
    tri_free(kv);
}

tri_status tri_ps_server_merge_add(tri_ps_server *server, const char *name, tri_ps_merge fn, void *arg)
{
    ps_kv *kv = server->kv;
    static const char *const taken[] = {"add", "assign", "min", "max", "optim"};
    kv_merge merge = {.fn = fn, .arg = arg};
    bool known = false;
    for (size_t i = 0; i < TRI_COUNT_OF(taken); i++)
        known = known || strcmp(taken[i], name) == 0;
    for (size_t i = 0; i < kv->merges.count; i++)
        known = known || strcmp(((const kv_merge *)tri_vector_at(&kv->merges, i))->name, name) == 0;
    if (known || !fn || name[0] == '\0' || strlen(name) >= sizeof(merge.name))
        return tri_fail(TRI_EINVAL, "merge '%s': want a function, and a name of 1 to %d bytes that is not taken", name,
                        PS_NAME_NBYTES - 1);
    snprintf(merge.name, sizeof(merge.name), "%s", name);
    return tri_vector_push(&kv->merges, &merge) ? TRI_OK : TRI_ENOMEM;
}

/* --- answers --- */

/* --- open --- */

/* The server of these slots has nothing in this table. */
void tri_ps_kv_slots_begin(const tri_ps_server *server, kv_table *table, int from)
{
    for (int s = 0; s < PS_SLOTS; s++)
        table->slots[s].held = table->slots[s].held || server->view.slots[s] == from;
}

void tri_ps_kv_reported(tri_ps_server *server, int from)
{
    for (int s = 0; s < PS_SLOTS; s++)
        if (server->view.slots[s] == from)
            ps_slots_remove(&server->kv->unreported, s);
}

void tri_ps_kv_begin(tri_ps_server *server, int from)
{
    tri_ps_kv_reported(server, from);
    for (int t = 0; t < server->kv->table_count; t++)
        tri_ps_kv_slots_begin(server, server->kv->tables[t], from);
}

/* --- the rest --- */

void tri_ps_kv_forget(ps_kv *kv, const ps_client_connection *client)
{
    tri_ps_kv_save_forget(kv, client);
    tri_ps_kv_waits_forget(kv, client);
    for (int w = 0; w < kv->workers; w++)
        if (kv->stops[w].client == client)
            kv->stops[w].client = NULL;
}

static void slot_empty(kv_table *table, int number)
{
    kv_slot *slot = &table->slots[number];
    ps_sparse_drop(table->rows, number);
    slot->held = false;
    slot->clock = 0;
    slot->before_count = 0;
    memset(slot->last, 0, (size_t)table->spec.workers * sizeof(*slot->last));
    if (slot->clocks)
        memset(slot->clocks, 0, (size_t)table->spec.workers * sizeof(*slot->clocks));
    else
        ps_gather_reset(&slot->gather);
}

void tri_ps_kv_slot_drop(tri_ps_server *server, int slot)
{
    ps_slots_add(&server->kv->unreported, slot);
    for (int t = 0; t < server->kv->table_count; t++)
        slot_empty(server->kv->tables[t], slot);
}

bool tri_ps_kv_slot_lacks(const tri_ps_server *server, int slot)
{
    bool lacks = ps_slots_has(&server->kv->unreported, slot);
    for (int t = 0; t < server->kv->table_count; t++)
        lacks = lacks || !server->kv->tables[t]->slots[slot].held;
    return lacks;
}
