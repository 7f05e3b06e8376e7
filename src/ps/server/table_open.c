/* SPDX-License-Identifier: Apache-2.0
 *
 * table_open.c: dense tables that workers open: one of each text, of the present era, ready when all blocks have
 * values.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "ps/replication/replication.h"
#include "ps/server/dense.h"

tri_status tri_ps_table_make(tri_ps_server *server, const ps_client_connection *client, const char *text, size_t nbytes,
                             ps_table **out)
{
    uint64_t hash = XXH3_64bits(text, nbytes);
    for (int t = 0; t < server->table_count; t++)
        if (server->tables[t]->text_hash == hash) {
            *out = server->tables[t];
            return TRI_OK;
        }
    if (server->table_count == PS_TABLES_MAX)
        return tri_fail(TRI_ECONFIG, "there are %d tables already", PS_TABLES_MAX);
    ps_table *table = tri_alloc_zero(1, sizeof(*table));
    if (!table)
        return TRI_ENOMEM;
    tri_status status = tri_ps_spec_parse(text, nbytes, &table->spec);
    if (status == TRI_OK)
        status = tri_ps_era_check(server, &table->spec);
    if (status == TRI_OK && table->spec.era > server->era)
        tri_ps_era_begin(server, client, table->spec.era);
    if (status == TRI_OK)
        status = tri_string_append_bytes(&table->text, text, nbytes);
    for (int t = 0; t < server->table_count && status == TRI_OK; t++)
        if (strcmp(server->tables[t]->spec.name, table->spec.name) == 0)
            status = tri_fail(TRI_EMISMATCH,
                              "table '%s' is there already, with another description: workers of one job want the same "
                              "configuration",
                              table->spec.name);
    if (status == TRI_OK)
        status = tri_ps_table_init(server, table);
    if (status != TRI_OK) {
        tri_ps_table_destroy(table);
        return status;
    }
    table->text_hash = hash;
    table->restored = server->restored && !server->goes_back;
    table->number = server->table_count;
    server->tables[server->table_count++] = table;
    tri_log(TRI_LOG_INFO, "table '%s': %d of %d blocks, %s", table->spec.name, table->held, table->spec.cut_count,
            ps_consistency_word(table->spec.ps.consistency));
    *out = table;
    return TRI_OK;
}

void tri_ps_table_ready(const tri_ps_server *server, ps_table *table, const ps_head *head)
{
    if (table->ready)
        return;
    int64_t next_deal = table->next_deal;
    table->ready = true;
    table->tail_clock = head->clock;
    table->next_deal = tri_ps_push_number(table, head->clock);
    if (table->restored)
        tri_ps_table_restored(server, table, head, next_deal);
    for (int w = 0; w < table->spec.workers; w++) {
        table->clocks[w] = table->clocks[w] == INT64_MAX || server->left[w] ? INT64_MAX : head->clock;
        table->dealt[w] = -1;
    }
}
