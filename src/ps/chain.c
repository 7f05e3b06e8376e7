/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.c: the line to the backup, the answers that wait for it, and what happens when a neighbour dies.
 */
#include "ps/chain.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ps/client.h"
#include "ps/server_impl.h"
#include "ps/server_kv.h"
#include "ps/views.h"

/* Bytes of blocks under way to a new backup. */
#define COPY_AHEAD_NBYTES ((size_t)8 << 20)
/* To reach a neighbour: it is dialed again and again for so long, since a loaded host may be slow to answer. */
#define REACH_MS 400

/* --- answers that wait --- */

void tri_ps_chain_init(tri_ps_server *server)
{
    server->chain = (ps_chain){.backup = -1};
    server->chain.kept_end = &server->chain.kept;
}

bool tri_ps_chain_keep(tri_ps_server *server, ps_guest *guest, unsigned priority, const tri_letter *letter,
                       const void *body, bool lasting)
{
    ps_chain *chain = &server->chain;
    if (!chain->lost && (!chain->line || chain->sent == chain->acknowledged))
        return false;
    size_t nbytes = lasting ? 0 : (size_t)letter->nbytes;
    ps_kept *kept = tri_alloc(sizeof(*kept) + nbytes);
    if (!kept) { /* not to be sent: the backup does not have it */
        (void)tri_ps_concerns_all(server, tri_fail(TRI_ENOMEM, "no memory for an answer that waits for the backup"));
        return true;
    }
    *kept = (ps_kept){.guest = guest,
                      .after = chain->sent,
                      .priority = priority,
                      .letter = *letter,
                      .body = lasting ? body : kept + 1,
                      .lasting = lasting};
    if (nbytes > 0)
        memcpy(kept + 1, body, nbytes);
    *chain->kept_end = kept;
    chain->kept_end = &kept->next;
    return true;
}

void tri_ps_chain_forget(tri_ps_server *server, const ps_guest *guest)
{
    for (ps_kept *kept = server->chain.kept; kept; kept = kept->next)
        if (kept->guest == guest)
            kept->guest = NULL;
}

static void kept_release(ps_chain *chain, uint64_t acknowledged)
{
    while (chain->kept && chain->kept->after <= acknowledged) {
        ps_kept *kept = chain->kept;
        chain->kept = kept->next;
        if (!chain->kept)
            chain->kept_end = &chain->kept;
        if (kept->guest)
            tri_ps_answer_send(kept->guest, kept->priority, &kept->letter, kept->body, kept->lasting);
        tri_free(kept);
    }
}

void tri_ps_chain_acknowledged(tri_ps_server *server, uint64_t letters)
{
    server->chain.acknowledged = letters <= server->chain.sent ? letters : server->chain.sent;
    kept_release(&server->chain, server->chain.acknowledged);
}

void tri_ps_chain_alone(tri_ps_server *server)
{
    server->chain.lost = false;
    kept_release(&server->chain, UINT64_MAX);
}

void tri_ps_chain_drop(tri_ps_server *server)
{
    for (ps_kept *kept = server->chain.kept; kept; kept = kept->next)
        kept->guest = NULL;
    kept_release(&server->chain, UINT64_MAX);
    if (server->chain.line)
        tri_line_hang_up(server->chain.line);
    server->chain.line = NULL;
    server->chain.lost = false;
    server->chain.backup = -1;
}

void tri_ps_chain_fini(tri_ps_server *server)
{
    server->chain.line = NULL; /* the post is closed */
    tri_ps_chain_drop(server);
}

/* --- letters to the backup --- */

/* A backup that lacks a letter is none. */
static void chain_send(tri_ps_server *server, const tri_letter *letter, const void *body)
{
    (void)tri_ps_concerns_all(server, tri_post_send(server->chain.line, 0, letter, body, NULL, NULL));
    server->chain.sent++;
}

void tri_ps_chain_forward(tri_ps_server *server, int worker, const tri_letter *letter, const void *body)
{
    if (!server->chain.line)
        return;
    ps_head head = ps_head_read(letter);
    head.flags &= (uint16_t)~PS_FLAG_PULL; /* nobody over there waits */
    if (ps_kind_is_kv(head.kind))
        head.request = (uint64_t)worker;
    else
        head.table |= (uint32_t)worker << PS_TABLE_BITS;
    tri_letter copy = ps_head_write(&head);
    chain_send(server, &copy, body);
}

static void table_send(tri_ps_server *server, const ps_table *table)
{
    ps_head head = {.kind = PS_OPEN, .flags = PS_FLAG_STARTS, .nbytes = table->text.nbytes};
    tri_letter letter = ps_head_write(&head);
    tri_string state = {0};
    chain_send(server, &letter, tri_string_text(&table->text));
    if (!tri_ps_concerns_all(server, tri_ps_table_write(table, &state))) {
        head = (ps_head){.kind = PS_COPY_TABLE, .nbytes = state.nbytes, .table = (uint32_t)table->number};
        letter = ps_head_write(&head);
        chain_send(server, &letter, tri_string_text(&state));
    }
    tri_string_fini(&state);
}

static void block_send(tri_ps_server *server, const ps_table *table, int b)
{
    tri_string state = {0};
    if (!tri_ps_concerns_all(server, tri_ps_block_write(table, &table->blocks[b], &state))) {
        ps_head head = {
            .kind = PS_COPY, .nbytes = state.nbytes, .table = (uint32_t)table->number, .block = (uint32_t)b};
        tri_letter letter = ps_head_write(&head);
        chain_send(server, &letter, tri_string_text(&state));
    }
    tri_string_fini(&state);
}

/* The next slot of the tables of rows. */
static void slot_send(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    const kv_table *table = server->kv->tables[chain->copy_rows];
    int slot = chain->copy_slot++;
    tri_string state = {0};
    if (chain->copy_slot == PS_SLOTS) {
        chain->copy_slot = 0;
        chain->copy_rows++;
    }
    if (server->view.slots[slot] == server->setup.number &&
        !tri_ps_concerns_all(server, tri_ps_kv_slot_write(table, slot, true, &state))) {
        ps_head head = {.kind = PS_KV_COPY, .nbytes = state.nbytes, .table = table->id, .block = (uint32_t)slot};
        tri_letter letter = ps_head_write(&head);
        chain_send(server, &letter, tri_string_text(&state));
    }
    tri_string_fini(&state);
}

/* --- a new backup --- */

bool tri_ps_chain_is_busy(const tri_ps_server *server)
{
    return server->chain.line &&
           (server->chain.copy_table < server->table_count || server->chain.copy_rows < server->kv->table_count);
}

/* A table that was made when the backup was there already is told by a forwarded letter: only those before it. */
static void chain_begin(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    chain->lost = false;
    kept_release(chain, UINT64_MAX);
    chain->sent = chain->acknowledged = 0;
    chain->copy_table = chain->copy_block = chain->copy_rows = chain->copy_slot = 0;
    chain->shared = chain->whole = false;
    ps_head head = {.kind = PS_HELLO,
                    .flags = PS_FLAG_SERVER,
                    .request = PS_VERSION,
                    .clock = server->setup.number,
                    .extra = (double)server->view.version};
    tri_letter letter = ps_head_write(&head);
    chain_send(server, &letter, NULL);
    for (int t = 0; t < server->table_count; t++)
        table_send(server, server->tables[t]);
    for (int t = 0; t < server->kv->table_count; t++) {
        const tri_string *text = &server->kv->tables[t]->text;
        letter = ps_head_write(&(ps_head){.kind = PS_KV_OPEN, .flags = PS_FLAG_COPY, .nbytes = text->nbytes});
        chain_send(server, &letter, tri_string_text(text));
    }
}

tri_status tri_ps_chain_renew(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    int backup = server->setup.replicas > 1 ? ps_view_backup(&server->view, server->setup.number) : -1;
    if (backup == chain->backup && (chain->line || backup < 0))
        return TRI_OK;
    if (chain->line)
        tri_line_hang_up(chain->line);
    chain->line = NULL;
    chain->backup = backup;
    if (backup < 0) {
        chain->lost = false;
        kept_release(chain, UINT64_MAX);
        if (server->setup.replicas > 1)
            tri_log(TRI_LOG_WARN, "there is no other server: what is here has no backup");
        return TRI_OK;
    }
    tri_line *line;
    if (tri_ps_reach(server, backup, REACH_MS, &line) != TRI_OK)
        return tri_ps_chain_suspect(server, backup);
    tri_line_note_set(line, NULL);
    chain->line = line;
    chain_begin(server);
    return TRI_OK;
}

/* The backup has all, and fewer slots than this server: it takes some over. */
static tri_status slots_share(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    int own = ps_view_slots(&server->view, server->setup.number), other = ps_view_slots(&server->view, chain->backup);
    chain->shared = true;
    if (own - other < 2)
        return TRI_OK;
    ps_view *next = tri_alloc(sizeof(*next));
    if (!next)
        return TRI_ENOMEM;
    *next = server->view;
    ps_view_share(next, server->setup.number, chain->backup);
    tri_status status = tri_ps_views_claim(server->setup.store, next);
    if (status == TRI_OK)
        status = tri_ps_view_take(server, next);
    tri_free(next);
    return status;
}

tri_status tri_ps_chain_go_on(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    while (chain->line && chain->copy_table < server->table_count && tri_line_queued(chain->line) < COPY_AHEAD_NBYTES) {
        const ps_table *table = server->tables[chain->copy_table];
        int b = chain->copy_block++;
        if (b == table->spec.cut_count) {
            chain->copy_table++;
            chain->copy_block = 0;
        } else if (table->blocks[b].held && tri_ps_is_primary(server, table, b))
            block_send(server, table, b);
    }
    while (chain->line && chain->copy_rows < server->kv->table_count &&
           tri_line_queued(chain->line) < COPY_AHEAD_NBYTES)
        slot_send(server);
    if (!chain->line || tri_ps_chain_is_busy(server) || server->table_count + server->kv->table_count == 0)
        return TRI_OK;
    if (!chain->whole) {
        tri_letter letter = ps_head_write(&(ps_head){.kind = PS_WHOLE});
        chain->whole = true;
        chain_send(server, &letter, NULL);
    } else if (!chain->shared && chain->acknowledged == chain->sent)
        return slots_share(server);
    return TRI_OK;
}

/* --- neighbours that die --- */

void tri_ps_chain_lost(tri_ps_server *server)
{
    server->chain.line = NULL;
    server->chain.lost = true;
}

tri_status tri_ps_chain_look(tri_ps_server *server)
{
    if (!server->setup.store)
        return TRI_OK;
    ps_view *newest = tri_alloc(sizeof(*newest));
    if (!newest)
        return TRI_ENOMEM;
    *newest = server->view;
    tri_status status = tri_ps_views_look(server->setup.store, newest);
    if (status == TRI_OK && newest->version > server->view.version)
        status = tri_ps_view_take(server, newest);
    tri_free(newest);
    return status;
}

static tri_status view_without(tri_ps_server *server, int number)
{
    ps_view *next = tri_alloc(sizeof(*next));
    if (!next)
        return TRI_ENOMEM;
    tri_status status = TRI_OK;
    while (status == TRI_OK && ps_view_find(&server->view, number)) {
        status = ps_view_without(&server->view, number, next);
        if (status == TRI_OK)
            status = tri_ps_views_claim(server->setup.store, next);
        if (status == TRI_OK)
            status = tri_ps_view_take(server, next);
    }
    tri_free(next);
    return status;
}

tri_status tri_ps_chain_suspect(tri_ps_server *server, int number)
{
    tri_line *line;
    if (!server->setup.store || server->setup.replicas < 2)
        return TRI_OK;
    if (!ps_view_find(&server->view, number))
        return tri_ps_chain_renew(server);
    uint64_t version = server->view.version;
    TRI_TRY(tri_ps_chain_look(server));
    if (server->view.version > version) /* somebody else has noticed */
        return TRI_OK;
    if (tri_ps_reach(server, number, REACH_MS, &line) == TRI_OK) {
        tri_line_hang_up(line);
        return tri_ps_chain_renew(server);
    }
    tri_log(TRI_LOG_WARN, "server %d is gone: its backup goes on in its place", number);
    return view_without(server, number);
}
