/* SPDX-License-Identifier: Apache-2.0
 *
 * bsp.c: synchronous steps: a block moves when the gradients of all leaves of the batch have come, and the tail
 * that says what they are divided by.
 *
 * The sum is the canonical one, so the weights have the bits of all-reduce, whoever sent what first. A push that comes
 * twice is known by its leaves; one of a step that is over needs nothing but its answer. The values of a step before
 * stay until the next, so that a worker who dies in the middle of a step, when some blocks have moved and others wait
 * for it, can be replaced by one that begins the step again.
 */
#include <string.h>

#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/tables/coding_dense.h"

static bool clips(const ps_table *table)
{
    return table->spec.optim.clip_norm > 0;
}

tri_status tri_ps_bsp_place(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head)
{
    size_t wanted = tri_ps_gradients_nbytes(&table->spec, &table->spec.cuts[head->block]);
    /* With backup workers somebody may come late by any number of steps. */
    if (head->clock > block->clock || (head->clock < block->clock - 1 && !tri_ps_chooses(table)))
        return tri_fail(TRI_EFORMAT, "step %lld of block %u, which is at step %lld", (long long)head->clock,
                        head->block, (long long)block->clock);
    if (head->nbytes != wanted)
        return tri_fail(TRI_EFORMAT, "gradients of block %u: want %zu bytes, got %llu", head->block, wanted,
                        (unsigned long long)head->nbytes);
    if (head->clock < block->clock || ps_sum_has(&block->sum, head->part) || tri_ps_is_left_out(table, client->number))
        return TRI_OK;
    TRI_TRY(ps_sum_room(&block->sum, head->part, &client->room));
    client->sum = &block->sum;
    client->part = head->part;
    return TRI_OK;
}

/* Squares of the sum of a step that is whole, so that workers find the norm of the whole gradient. They stay until the
 * next sum is, which needs every worker: one that has not heard them before the block moved can still ask. */
static void squares_answer(ps_client_connection *client, const ps_table *table, const ps_block *block, int64_t clock)
{
    uint32_t number = (uint32_t)(block - table->blocks);
    tri_slice blocks = tri_ps_norm_blocks(&table->spec, &table->spec.cuts[number]);
    ps_head head = {.kind = PS_SQUARES,
                    .nbytes = (uint64_t)blocks.count * sizeof(double),
                    .clock = clock,
                    .table = (uint32_t)table->number,
                    .block = number};
    tri_ps_answer(client, &head, table->squares + blocks.first, false);
}

static void squares_find(tri_ps_server *server, ps_table *table, ps_block *block)
{
    const ps_cut *cut = &table->spec.cuts[block - table->blocks];
    tri_clip_squares(&table->spec.params, ps_sum_root(&block->sum), cut->first, cut->count, table->squares, 1);
    for (int w = 0; w < table->spec.workers; w++)
        if (block->waits[w] && server->workers[w])
            squares_answer(server->workers[w], table, block, block->clock);
}

static void block_try(tri_ps_server *server, ps_table *table, ps_block *block)
{
    if (!block->moves || !ps_sum_is_whole(&block->sum) || !table->tail_whole || !table->scaled ||
        table->tail_clock != block->clock)
        return;
    float shards = table->tail_sum[TRI_TAIL_SHARDS];
    tri_optim_scalars figures = {.step = block->clock,
                                 .lr = tri_ps_rate(table, block->clock),
                                 .grad_scale = table->scale,
                                 .buffer_scale = shards > 0 ? 1.0f / shards : 0};
    size_t count = (size_t)table->spec.cuts[block - table->blocks].count;
    tri_ps_save_before(server, table, block);
    memcpy(block->previous, block->values, count * sizeof(float));
    tri_ps_block_move(table, block, ps_sum_root(&block->sum), &figures);
    ps_sum_reset(&block->sum);
    for (int w = 0; w < table->spec.workers; w++)
        if (block->waits[w] && server->workers[w])
            tri_ps_values_answer(server->workers[w], table, block, block->waits[w] & PS_FLAG_EXACT, false, 0);
    memset(block->waits, 0, (size_t)table->spec.workers);
}

static void blocks_try(tri_ps_server *server, ps_table *table)
{
    for (int b = 0; b < table->spec.cut_count; b++)
        if (table->blocks[b].held)
            block_try(server, table, &table->blocks[b]);
}

/* The client needs the values of the next clock; of a block that has moved it gets them at once. */
static void wants(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head)
{
    if (!(head->flags & PS_FLAG_PULL))
        return;
    if (head->clock < block->clock) {
        if (clips(table))
            squares_answer(client, table, block, head->clock);
        tri_ps_values_answer(client, table, block, 0, false, 0);
        return;
    }
    block->waits[client->number] = 1;
    if (clips(table) && ps_sum_is_whole(&block->sum))
        squares_answer(client, table, block, block->clock);
}

/* What is coded came to the beginning of its room: it is never longer than what it tells. */
static void room_decode(const ps_client_connection *client, const ps_table *table, const ps_block *block, size_t nbytes)
{
    if (!tri_ps_is_coded(&table->spec.ps))
        return;
    memcpy(table->scratch, client->room, nbytes);
    tri_ps_gradients_decode(table, block, table->scratch, client->room);
}

static void tail_answer(ps_client_connection *client, const ps_table *table, int64_t clock)
{
    ps_head head = {
        .kind = PS_TAIL, .nbytes = sizeof(table->tail_sum), .clock = clock, .table = (uint32_t)table->number};
    if (tri_ps_chooses(table))
        tri_ps_chosen_answer(client, table);
    else
        tri_ps_answer(client, &head, clock < table->tail_clock ? table->tail_before : table->tail_sum, false);
}

static void tail_waits_answer(tri_ps_server *server, ps_table *table, int64_t clock)
{
    for (int w = 0; w < table->spec.workers; w++)
        if (table->tail_waits[w] && server->workers[w])
            tail_answer(server->workers[w], table, clock);
    memset(table->tail_waits, 0, (size_t)table->spec.workers);
}

/* The tail of all leaves is here: workers learn the loss, and what gradients are multiplied with. */
static void tail_end(tri_ps_server *server, ps_table *table)
{
    memcpy(table->tail_sum, ps_sum_root(&table->tail), sizeof(table->tail_sum));
    table->tail_whole = true;
    float weight = table->tail_sum[TRI_TAIL_WEIGHT];
    if (!clips(table)) {
        table->scale = weight != 0 ? 1.0f / weight : 0;
        table->scaled = true;
    }
    tail_waits_answer(server, table, table->tail_clock);
    blocks_try(server, table);
}

/* All that counts is in the sum. */
static void block_is_whole(tri_ps_server *server, ps_table *table, ps_block *block)
{
    tri_ps_block_fold(table, block, ps_sum_root(&block->sum));
    if (clips(table))
        squares_find(server, table, block);
    block_try(server, table, block);
}

/* Has the sum become whole by what has just come? */
static bool has_become_whole(const ps_table *table, ps_sum *sum)
{
    return tri_ps_chooses(table) ? tri_ps_chosen_are_here(table, sum) : ps_sum_is_whole(sum);
}

tri_status tri_ps_bsp_push(tri_ps_server *server, ps_client_connection *client, ps_table *table, ps_block *block,
                           const ps_head *head)
{
    bool fresh = client->sum != NULL;
    if (fresh) {
        room_decode(client, table, block, head->nbytes);
        TRI_TRY(ps_sum_take(client->sum, client->part, client->room));
        client->sum = NULL;
    }
    bool whole = fresh && has_become_whole(table, &block->sum);
    if (whole && (head->flags & PS_FLAG_PULL))
        block->waits[client->number] = 1;
    if (whole)
        block_is_whole(server, table, block);
    else
        wants(client, table, block, head);
    return TRI_OK;
}

void tri_ps_bsp_chosen(tri_ps_server *server, ps_table *table)
{
    if (tri_ps_chosen_are_here(table, &table->tail))
        tail_end(server, table);
    for (int b = 0; b < table->spec.cut_count; b++) {
        ps_block *block = &table->blocks[b];
        if (block->held && block->moves && block->clock == table->tail_clock &&
            tri_ps_chosen_are_here(table, &block->sum))
            block_is_whole(server, table, block);
    }
}

void tri_ps_bsp_tail_copied(tri_ps_server *server, ps_table *table, int64_t before)
{
    if (table->tail_clock > before)
        tail_waits_answer(server, table, before);
    if (table->tail_whole)
        tail_waits_answer(server, table, table->tail_clock);
    if (!table->tail_whole && has_become_whole(table, &table->tail))
        tail_end(server, table);
    else
        blocks_try(server, table);
}

void tri_ps_bsp_copied(tri_ps_server *server, ps_table *table, ps_block *block)
{
    if (tri_ps_chooses(table) && tri_ps_chosen_are_here(table, &block->sum))
        block_is_whole(server, table, block);
    else
        block_try(server, table, block);
}

/* The first word of the next step: all blocks have taken the one before. */
static tri_status tail_turn(const tri_ps_server *server, ps_table *table, int64_t clock)
{
    if (tri_ps_table_clock(server, table, 0) < clock) /* none there is: this worker has the sum of the step before */
        return tri_fail(TRI_EFORMAT, "the tail of step %lld, before all blocks have taken step %lld", (long long)clock,
                        (long long)tri_ps_table_clock(server, table, 0));
    table->tail_clock = clock;
    memcpy(table->tail_before, table->tail_sum, sizeof(table->tail_sum));
    table->tail_whole = table->scaled = false;
    ps_sum_reset(&table->tail);
    return TRI_OK;
}

tri_status tri_ps_bsp_tail(tri_ps_server *server, ps_client_connection *client, ps_table *table, const ps_head *head,
                           const float *body)
{
    float *room;
    /* This server was lost and is back, and has not heard yet that the run goes back. */
    if (server->setup.store && head->nbytes == sizeof(table->tail_sum) && head->clock > table->tail_clock + 1)
        return tri_ps_era_fail();
    if (head->nbytes != sizeof(table->tail_sum) || head->clock > table->tail_clock + 1 ||
        (head->clock < table->tail_clock - 1 && !tri_ps_chooses(table)))
        return tri_fail(TRI_EFORMAT, "a tail of step %lld with %llu bytes, while step %lld is under way",
                        (long long)head->clock, (unsigned long long)head->nbytes, (long long)table->tail_clock);
    if (head->clock == table->tail_clock + 1)
        TRI_TRY(tail_turn(server, table, head->clock));
    if (table->tail_whole || head->clock < table->tail_clock) {
        if (head->flags & PS_FLAG_PULL)
            tail_answer(client, table, head->clock);
        return TRI_OK;
    }
    if (head->flags & PS_FLAG_PULL)
        table->tail_waits[client->number] = 1;
    if (ps_sum_has(&table->tail, head->part))
        return TRI_OK;
    TRI_TRY(ps_sum_room(&table->tail, head->part, &room));
    memcpy(room, body, sizeof(table->tail_sum));
    TRI_TRY(ps_sum_take(&table->tail, head->part, room));
    if (has_become_whole(table, &table->tail))
        tail_end(server, table);
    return TRI_OK;
}

tri_status tri_ps_bsp_move(tri_ps_server *server, ps_table *table, const ps_head *head)
{
    if (head->clock < table->tail_clock || table->scaled)
        return TRI_OK; /* another worker said the same before */
    if (head->clock > table->tail_clock || !table->tail_whole)
        return tri_fail(TRI_EFORMAT, "a move of step %lld, which is not complete", (long long)head->clock);
    table->scale = (float)head->extra;
    table->scaled = true;
    blocks_try(server, table);
    return TRI_OK;
}

tri_status tri_ps_bsp_pull(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head)
{
    if (!block->moves || head->clock == block->clock || (head->clock < block->clock && tri_ps_chooses(table))) {
        tri_ps_values_answer(client, table, block, head->flags, false, 0);
        return TRI_OK;
    }
    if (head->clock == block->clock - 1 && block->previous) {
        tri_ps_values_answer(client, table, block, head->flags, true, 0);
        return TRI_OK;
    }
    if (head->clock != block->clock + 1)
        return tri_fail(TRI_EFORMAT, "values of step %lld of block %u, which is at step %lld", (long long)head->clock,
                        head->block, (long long)block->clock);
    block->waits[client->number] = (uint8_t)(1 | (head->flags & PS_FLAG_EXACT));
    return TRI_OK;
}
