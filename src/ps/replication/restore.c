/* SPDX-License-Identifier: Apache-2.0
 *
 * restore.c: a server that was lost where there are no backups, or with its backup, and is there again with
 * nothing.
 *
 * With bsp, or with backups, the run goes back to its newest checkpoint as a whole: a new *era* begins. The table of an
 * era is another one than that of the era before, which servers that have it drop; workers of the era before hear
 * that it is over, and begin again as if they were resumed. So nothing of two eras ever meets. Elsewhere the weights
 * have no step that is the same for all, and this server's blocks alone go back.
 */
#include <string.h>

#include "base/log.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/views.h"

#define LOOK_NS       TRI_NS_PER_S
#define LOOK_LIMIT_MS 200 /* the workers wait meanwhile */

/* A worker that left while this server was not there has recorded it in the store alone. */
static tri_status left_look(tri_ps_server *server, int64_t limit_ms)
{
    for (int w = 0; w < server->setup.workers; w++) {
        bool left = server->left[w];
        if (!left)
            TRI_TRY(tri_ps_views_has_left(server->setup.store, w, limit_ms, &left));
        if (!left || server->left[w])
            continue;
        server->left[w] = true;
        server->left_count++;
        for (int t = 0; t < server->table_count; t++)
            if (server->tables[t]->consistency != PS_BSP)
                TRI_TRY(tri_ps_ssp_left(server, server->tables[t], w));
    }
    return TRI_OK;
}

/* Had it left before this era? */
static bool had_left(const tri_ps_server *server, int worker)
{
    return server->left[worker] && !server->joined[worker];
}

/* A run that goes back needs all its workers. The leader leaves when everything is done: then it need not go back. */
static tri_status all_are_there(tri_ps_server *server)
{
    int before = 0;
    for (int w = 0; w < server->setup.workers; w++)
        before += had_left(server, w);
    if (had_left(server, 0))
        tri_ps_server_stop(server);
    if (before == 0 || had_left(server, 0) || tri_stop_signal())
        return TRI_OK;
    return tri_fail(TRI_EPEER,
                    "server %d was lost when %d of %d workers had ended: what it held is lost; --resume continues from "
                    "the newest checkpoint",
                    server->setup.number, before, server->setup.workers);
}

tri_status tri_ps_server_restore(tri_ps_server *server, bool all)
{
    int64_t era;
    server->restored = true;
    server->goes_back = all;
    TRI_TRY(left_look(server, TRI_PS_VIEWS_MS));
    if (all)
        TRI_TRY(all_are_there(server));
    if (all && had_left(server, 0))
        return TRI_OK;
    TRI_TRY(tri_ps_views_era(server->setup.store, 1, &era));
    server->era = all ? era : server->era;
    if (server->setup.replicas > 1)
        tri_log(TRI_LOG_WARN,
                "more servers are lost than hold each block (ps.replicas %d): all go back to the newest checkpoint",
                server->setup.replicas);
    else
        tri_log(TRI_LOG_WARN, "server %d is here again, without what it held: %s", server->setup.number,
                all ? "all go back to the newest checkpoint" : "that comes from the newest checkpoint");
    return TRI_OK;
}

tri_status tri_ps_restored_look(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    if (!server->restored || now_ns < server->look_ns)
        return TRI_OK;
    server->look_ns = now_ns + LOOK_NS;
    tri_status status = left_look(server, LOOK_LIMIT_MS);
    if (status == TRI_ETIMEOUT) /* the store's host is busy: it is asked again */
        return TRI_OK;
    TRI_TRY(status);
    return server->goes_back ? all_are_there(server) : TRI_OK;
}

/* Pushes of the steps that the checkpoint has something of do not count: some would count twice. */
void tri_ps_table_restored(const tri_ps_server *server, ps_table *table, const ps_head *head, int64_t next_deal)
{
    int64_t known = tri_ps_push_number(table, (int64_t)head->extra);
    for (int b = 0; b < table->spec.cut_count; b++)
        for (int w = 0; tri_ps_is_primary(server, table, b) && w < table->spec.workers; w++)
            if (table->blocks[b].pushed[w] < known)
                table->blocks[b].pushed[w] = known;
    table->next_deal = next_deal > table->next_deal ? next_deal : table->next_deal;
}

/* --- eras --- */

tri_status tri_ps_era_check(tri_ps_server *server, const ps_spec *spec)
{
    int64_t era = server->era;
    if (spec->era > era && server->setup.store) /* a client may say what it likes: the store knows */
        TRI_TRY(tri_ps_views_era(server->setup.store, 0, &era));
    if (spec->era > era)
        return tri_fail(TRI_EFORMAT, "it speaks of era %lld, which has not begun", (long long)spec->era);
    if (spec->era >= server->era)
        return TRI_OK;
    return tri_ps_era_fail();
}

/* Whoever is of the era before finds out when it is here again. */
void tri_ps_era_begin(tri_ps_server *server, const ps_client_connection *but, int64_t era)
{
    server->era = era;
    tri_ps_chain_drop(server);
    for (ps_client_connection *client = server->clients, *next; client; client = next) {
        next = client->next;
        if (client != but)
            tri_ps_connection_close(server, client);
    }
    tri_ps_save_end(server);
    for (int t = 0; t < server->table_count; t++)
        tri_ps_table_destroy(server->tables[t]);
    server->table_count = 0;
    memset(server->joined, 0, (size_t)server->setup.workers * sizeof(*server->joined));
}
