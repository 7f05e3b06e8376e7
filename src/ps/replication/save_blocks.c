/* SPDX-License-Identifier: Apache-2.0
 *
 * save_blocks.c: a server's part of a checkpoint: a copy of each of its blocks as it is after the step that was asked
 * for, which a thread of its own writes while the blocks move on.
 *
 * With bsp a block is copied when it has taken all steps before that one, at the latest before it takes the next; the
 * leader asks before it pushes that one, so nobody waits. Where each push moves a block at once there is no such
 * moment: it is copied once the leader's own pushes are in, and what it has of the others' is noted.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"
#include "ps/replication/save.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"

/* Copied between two turns. */
#define COPY_NBYTES ((int64_t)4 << 20)

struct ps_save {
    const ps_table *table;
    tri_arena arena;
    ps_save_plan plan;
    tri_checkpoint_draft *drafts[TRI_CHECKPOINT_MAX_LEVELS];
    int64_t step;
    int writer, arrays; /* its number; weights and the optimizer's */
    float *copy;
    int64_t room;        /* elements of it */
    int64_t *at;         /* [cut_count] where a block's copy begins, -1: it is another server's */
    bool *copied;        /* [cut_count] */
    int left;            /* blocks that are not */
    int64_t least, most; /* steps of pushes that are in the copies */
    tri_thread *thread;  /* that writes */
    atomic_bool done;
};

static bool is_bsp(const ps_save *save)
{
    return save->table->consistency == PS_BSP;
}

/* --- writing --- */

/* What of one block belongs to a row, in all arrays. */
static tri_status row_put(const ps_save *save, tri_checkpoint_draft *draft, int b, const ps_save_row *row)
{
    const ps_cut *cut = &save->table->spec.cuts[b];
    int64_t first = row->at > cut->first ? row->at : cut->first;
    int64_t end = row->at + row->count < cut->first + cut->count ? row->at + row->count : cut->first + cut->count;
    for (int a = 0; first < end && a < save->arrays; a++)
        TRI_TRY(tri_checkpoint_draft_put(draft, a * save->plan.content.model_count + (int)row->tensor,
                                         row->place + first - row->at, end - first,
                                         save->copy + save->at[b] + a * cut->count + first - cut->first));
    return TRI_OK;
}

/* The first row that ends behind an element. */
static int64_t row_find(const ps_save_plan *plan, int64_t element)
{
    int64_t low = 0, high = plan->row_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (plan->rows[middle].at + plan->rows[middle].count > element)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static tri_status blocks_put(const ps_save *save, tri_checkpoint_draft *draft)
{
    const ps_spec *spec = &save->table->spec;
    for (int b = 0; b < spec->cut_count; b++) {
        const ps_cut *cut = &spec->cuts[b];
        for (int64_t r = row_find(&save->plan, cut->first);
             save->at[b] >= 0 && r < save->plan.row_count && save->plan.rows[r].at < cut->first + cut->count; r++)
            TRI_TRY(row_put(save, draft, b, &save->plan.rows[r]));
    }
    return tri_checkpoint_draft_sync(draft);
}

static void draft_end(ps_save *save, int number, tri_status status)
{
    tri_checkpoint_draft *draft = save->drafts[number];
    tri_string note = {0};
    if (status == TRI_OK && !is_bsp(save))
        status = ps_save_note_print(save->least, save->most, &note);
    if (note.nbytes > 0)
        tri_checkpoint_draft_note(draft, tri_string_text(&note));
    if (tri_checkpoint_draft_tell(draft, save->writer, status) != TRI_OK) {
        tri_log(TRI_LOG_WARN, "this server's part of the checkpoint of step %lld is not saved: %s",
                (long long)save->step, tri_last_error());
        (void)tri_checkpoint_draft_miss(draft, save->writer);
    }
    tri_string_fini(&note);
    tri_checkpoint_draft_close(draft);
    save->drafts[number] = NULL;
}

static void write_all(void *arg)
{
    ps_save *save = arg;
    for (int i = 0; i < save->plan.target_count; i++)
        draft_end(save, i, blocks_put(save, save->drafts[i]));
    atomic_store(&save->done, true);
}

/* --- the end of one --- */

/* The memory of copies stays for the next one. */
static void save_clear(ps_save *save)
{
    tri_thread_join(save->thread);
    save->thread = NULL;
    for (int i = 0; i < TRI_CHECKPOINT_MAX_LEVELS; i++) {
        tri_checkpoint_draft_close(save->drafts[i]);
        save->drafts[i] = NULL;
    }
    tri_arena_fini(&save->arena);
    save->plan = (ps_save_plan){0};
    save->table = NULL;
    save->left = 0;
}

void tri_ps_save_destroy(ps_save *save)
{
    if (!save)
        return;
    save_clear(save);
    tri_free(save->copy);
    tri_free(save);
}

/* Its copies would not be those of all blocks that the leader counts on. */
void tri_ps_save_fail(tri_ps_server *server, const char *why)
{
    ps_save *save = server->save;
    if (!save || save->left == 0)
        return;
    for (int i = 0; i < save->plan.target_count; i++)
        draft_end(save, i, tri_fail(TRI_EPEER, "server %d: %s", server->setup.number, why));
    save_clear(save);
}

void tri_ps_save_end(tri_ps_server *server)
{
    tri_ps_save_fail(server, "the run goes back to a checkpoint");
    if (server->save)
        save_clear(server->save);
}

/* --- copies --- */

/* Is this the moment whose values are wanted? */
static bool is_due(const ps_save *save, int b)
{
    const ps_block *block = &save->table->blocks[b];
    if (save->at[b] < 0 || save->copied[b])
        return false;
    if (!block->moves)
        return true;
    if (is_bsp(save))
        return block->clock >= save->step;
    return tri_ps_deals(&save->table->spec.ps, save->table->spec.workers) > 0 || block->pushed[0] >= save->step;
}

/* What a block has of pushes, in steps. */
static void pushes_note(ps_save *save, const ps_block *block)
{
    int64_t deals = tri_ps_deals(&save->table->spec.ps, save->table->spec.workers), each = deals > 0 ? deals : 1;
    for (int w = 0; block->moves && w < save->table->spec.workers; w++) {
        int64_t least = block->pushed[w] / each, most = (block->pushed[w] + each - 1) / each;
        save->least = least < save->least ? least : save->least;
        save->most = most > save->most ? most : save->most;
    }
}

static void block_copy(ps_save *save, int b)
{
    const ps_block *block = &save->table->blocks[b];
    int64_t count = save->table->spec.cuts[b].count;
    float *to = save->copy + save->at[b];
    memcpy(to, block->values, (size_t)count * sizeof(float));
    for (int a = 1; a < save->arrays; a++)
        memcpy(to + a * count, tri_optim_state(block->optim, a - 1), (size_t)count * sizeof(float));
    if (!is_bsp(save))
        pushes_note(save, block);
    save->copied[b] = true;
    save->left--;
}

void tri_ps_save_before(tri_ps_server *server, const ps_table *table, const ps_block *block)
{
    ps_save *save = server->save;
    int b = (int)(block - table->blocks);
    if (save && save->left > 0 && save->table == table && is_due(save, b))
        block_copy(save, b);
}

static bool any_is_due(const ps_save *save)
{
    for (int b = 0; b < save->table->spec.cut_count; b++)
        if (is_due(save, b))
            return true;
    return false;
}

bool tri_ps_save_is_busy(const tri_ps_server *server)
{
    return server->save && server->save->left > 0 && any_is_due(server->save);
}

void tri_ps_save_go_on(tri_ps_server *server)
{
    ps_save *save = server->save;
    int64_t nbytes = 0;
    if (!save || !save->table || save->thread)
        return;
    for (int b = 0; b < save->table->spec.cut_count && nbytes < COPY_NBYTES; b++)
        if (is_due(save, b)) {
            block_copy(save, b);
            nbytes += save->table->spec.cuts[b].count * save->arrays * (int64_t)sizeof(float);
        }
    if (save->left == 0 && tri_thread_start(&save->thread, "save", write_all, save) != TRI_OK) {
        save->thread = NULL;
        write_all(save);
        save_clear(save);
    }
}

/* --- a new one --- */

/* Its place among the writers, from 1 on. */
static int writer_of(const tri_ps_server *server)
{
    int place = 0;
    while (place < server->view.server_count && server->view.servers[place] != server->setup.number)
        place++;
    return place + 1;
}

static tri_status copies_plan(const tri_ps_server *server, ps_save *save)
{
    const ps_table *table = save->table;
    const ps_spec *spec = &table->spec;
    int64_t room = 0;
    save->at = tri_arena_alloc(&save->arena, (size_t)spec->cut_count + 1, sizeof(*save->at));
    save->copied = tri_arena_alloc(&save->arena, (size_t)spec->cut_count + 1, sizeof(*save->copied));
    if (!save->at || !save->copied)
        return TRI_ENOMEM;
    for (int b = 0; b < spec->cut_count; b++) {
        bool own = tri_ps_is_primary(server, table, b);
        save->at[b] = own ? room : -1;
        save->copied[b] = false;
        room += own ? spec->cuts[b].count * save->arrays : 0;
        save->left += own;
    }
    if (room > save->room) {
        tri_free(save->copy);
        save->copy = tri_alloc((size_t)room * sizeof(float));
        save->room = save->copy ? room : 0;
    }
    return save->copy || room == 0
               ? TRI_OK
               : tri_fail(TRI_ENOMEM, "no memory for the copy of its blocks (%lld bytes)", (long long)room * 4);
}

/* The step that its blocks have come to. */
static int64_t furthest(const tri_ps_server *server, const ps_table *table)
{
    int64_t clock = 0;
    for (int b = 0; table->consistency == PS_BSP && b < table->spec.cut_count; b++)
        if (tri_ps_is_primary(server, table, b) && table->blocks[b].moves && table->blocks[b].clock > clock)
            clock = table->blocks[b].clock;
    return clock;
}

static int arrays_of(const ps_table *table)
{
    for (int b = 0; b < table->spec.cut_count; b++)
        if (table->blocks[b].held) {
            int arrays = 1;
            while (arrays <= TRI_OPTIM_MAX_STATE && tri_optim_state_name(table->blocks[b].optim, arrays - 1))
                arrays++;
            return arrays;
        }
    return 0; /* nothing is here */
}

static tri_status save_begin(tri_ps_server *server, ps_table *table, const ps_head *head, const void *body)
{
    ps_save *save = server->save;
    if (save->thread && !atomic_load(&save->done))
        return tri_fail(TRI_EINVAL, "the checkpoint before is still being written");
    save_clear(save);
    if ((uint64_t)head->extra != server->view.version)
        return tri_fail(TRI_EPEER, "it knows view %llu", (unsigned long long)server->view.version);
    if (!table->ready)
        return tri_fail(TRI_EINVAL, "it has no values yet");
    save->table = table;
    save->step = head->clock;
    save->writer = writer_of(server);
    save->arrays = arrays_of(table);
    save->least = INT64_MAX;
    save->most = 0;
    atomic_store(&save->done, false);
    TRI_TRY(ps_save_plan_read(body, head->nbytes, table->spec.params.count, &save->arena, &save->plan));
    if (save->arrays > 0 && save->plan.content.state_count != (save->arrays - 1) * save->plan.content.model_count)
        return tri_fail(TRI_EFORMAT, "want %d arrays of each tensor", save->arrays);
    TRI_TRY(copies_plan(server, save));
    tri_ps_beat_excuse(server, (int64_t)(server->setup.net->timeout_s * 1e3));
    for (int i = 0; i < save->plan.target_count; i++) {
        const tri_checkpoint_draft_setup setup = {.place = {save->plan.targets[i].folder, 1, 0},
                                                  .step = save->step,
                                                  .content = save->plan.content,
                                                  .mark = save->plan.targets[i].mark};
        TRI_TRY(tri_checkpoint_draft_join(&setup, &save->drafts[i]));
    }
    return TRI_OK;
}

tri_status tri_ps_save_ask(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body)
{
    ps_table *table;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (!server->save)
        server->save = tri_alloc_zero(1, sizeof(*server->save));
    if (!server->save)
        return TRI_ENOMEM;
    ps_head answer = {.kind = PS_SAVE, .request = head->request, .table = head->table, .clock = -1};
    const char *why = "";
    int64_t clock = furthest(server, table);
    tri_status status = TRI_OK;
    if (clock > head->clock) {
        answer.clock = clock;
        status = tri_fail(TRI_EINVAL, "it is at step %lld already", (long long)clock);
    } else
        status = save_begin(server, table, head, body);
    if (status != TRI_OK) {
        if (!server->save->thread)
            save_clear(server->save);
        answer.extra = (double)status;
        why = tri_last_error();
        answer.nbytes = strlen(why);
    }
    tri_ps_answer(client, &answer, why, false);
    return TRI_OK;
}
