/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.c: tables of a server and their blocks: made from a text, filled, moved, given.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "kernel/kernel.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/tables/coding_dense.h"

static void block_fini(ps_block *block, int workers)
{
    for (int w = 0; block->seen && w < workers; w++)
        tri_free(block->seen[w]);
    tri_free(block->seen);
    tri_free(block->values);
    tri_free(block->previous);
    tri_free(block->waits);
    tri_free(block->encoded);
    tri_free(block->pushed);
    tri_optim_destroy(block->optim);
    ps_sum_fini(&block->sum);
}

void tri_ps_table_destroy(ps_table *table)
{
    if (!table)
        return;
    for (int b = 0; table->blocks && b < table->spec.cut_count; b++)
        block_fini(&table->blocks[b], table->spec.workers);
    for (int w = 0; table->pulls && w < table->spec.workers; w++)
        tri_free(table->pulls[w]);
    tri_free(table->pulls);
    tri_free(table->blocks);
    tri_free(table->slots);
    tri_string_fini(&table->text);
    tri_free(table->tail_waits);
    tri_free(table->squares);
    tri_free(table->scratch);
    tri_free(table->clocks);
    tri_free(table->went_on);
    tri_free(table->left_out);
    tri_free(table->dealt);
    ps_sum_fini(&table->tail);
    tri_ps_spec_fini(&table->spec);
    tri_free(table);
}

void tri_ps_block_drop(ps_table *table, int number)
{
    ps_block *block = &table->blocks[number];
    table->held -= block->held;
    table->filled -= block->filled;
    block_fini(block, table->spec.workers);
    *block = (ps_block){0};
}

void tri_ps_block_filled(ps_table *table, ps_block *block, bool filled)
{
    table->filled += filled - block->filled;
    block->filled = filled;
}

bool tri_ps_is_primary(const tri_ps_server *server, const ps_table *table, int block)
{
    return server->view.slots[table->slots[block]] == server->setup.number;
}

tri_status tri_ps_block_hold(const tri_ps_server *server, ps_table *table, int number)
{
    ps_block *block = &table->blocks[number];
    if (block->held)
        return TRI_OK;
    table->held++;
    const ps_spec *spec = &table->spec;
    const ps_cut *cut = &spec->cuts[number];
    size_t count = (size_t)cut->count, workers = (size_t)spec->workers;
    bool bsp = table->consistency == PS_BSP, compensates = !bsp && spec->ps.delay_compensation > 0;
    block->held = true;
    block->moves = tri_ps_cut_moves(spec, cut);
    block->values = tri_alloc_zero(count, sizeof(float));
    block->waits = tri_alloc_zero(workers, 1);
    block->pushed = tri_alloc_zero(workers, sizeof(int64_t));
    block->previous = bsp && block->moves ? tri_alloc_zero(count, sizeof(float)) : NULL;
    block->seen = compensates ? tri_alloc_zero(workers, sizeof(float *)) : NULL;
    block->encoded = bsp && tri_ps_is_coded(&spec->ps) ? tri_alloc(tri_ps_values_nbytes(spec, cut)) : NULL;
    block->encoded_clock = -1;
    if (!block->values || !block->waits || !block->pushed || (bsp && block->moves && !block->previous) ||
        (compensates && !block->seen) || (bsp && tri_ps_is_coded(&spec->ps) && !block->encoded))
        return TRI_ENOMEM;
    TRI_TRY(tri_optim_create_part(&spec->optim, &spec->params, cut->first, cut->count, server->setup.threads,
                                  &block->optim));
    if (bsp)
        TRI_TRY(ps_sum_init(&block->sum, spec->leaves, cut->count + cut->tied));
    block->sum.apart = tri_ps_chooses(table);
    return TRI_OK;
}

static tri_status blocks_make(const tri_ps_server *server, ps_table *table)
{
    const ps_spec *spec = &table->spec;
    table->slots = tri_alloc((size_t)spec->cut_count);
    table->blocks = tri_alloc_zero((size_t)spec->cut_count, sizeof(ps_block));
    tri_status status = table->slots && table->blocks ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_ps_slots(spec, table->slots);
    for (int b = 0; b < spec->cut_count && status == TRI_OK; b++)
        if (tri_ps_is_primary(server, table, b))
            status = tri_ps_block_hold(server, table, b);
    return status;
}

/* The largest block, and its ties. */
static tri_status scratch_make(ps_table *table)
{
    size_t most = 0;
    for (int b = 0; b < table->spec.cut_count; b++) {
        size_t nbytes = tri_ps_cut_nbytes(&table->spec.cuts[b]);
        most = nbytes > most ? nbytes : most;
    }
    table->scratch = tri_alloc(most);
    return table->scratch ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_ps_table_init(const tri_ps_server *server, ps_table *table)
{
    const ps_spec *spec = &table->spec;
    size_t workers = (size_t)spec->workers;
    if (spec->workers != server->setup.workers)
        return tri_fail(TRI_ECONFIG, "table '%s' is for %d workers, this job has %d", spec->name, spec->workers,
                        server->setup.workers);
    table->consistency = spec->ps.consistency;
    table->tail_waits = tri_alloc_zero(workers, 1);
    table->clocks = tri_alloc_zero(workers, sizeof(int64_t));
    table->went_on = tri_alloc_zero(workers, sizeof(int64_t));
    table->pulls = tri_alloc_zero(workers, sizeof(ps_pull *));
    table->squares = tri_alloc_zero((size_t)spec->params.block_count + 1, sizeof(double));
    table->left_out = tri_alloc_zero(workers, sizeof(uint64_t));
    table->dealt = tri_alloc_zero(workers, sizeof(int64_t));
    if (!table->tail_waits || !table->clocks || !table->went_on || !table->pulls || !table->squares ||
        !table->left_out || !table->dealt)
        return TRI_ENOMEM;
    for (size_t w = 0; w < workers; w++)
        table->dealt[w] = -1;
    TRI_TRY(tri_ps_check(&spec->ps, spec->workers));
    TRI_TRY(ps_sum_init(&table->tail, spec->leaves, TRI_PARAMS_TAIL));
    table->tail.apart = tri_ps_chooses(table);
    if (tri_ps_is_coded(&spec->ps))
        TRI_TRY(scratch_make(table));
    return blocks_make(server, table);
}

tri_status tri_ps_block_find(tri_ps_server *server, const ps_head *head, ps_table **table, ps_block **block)
{
    if (head->table >= (uint32_t)server->table_count)
        return tri_fail(TRI_EFORMAT, "there is no table %u", head->table);
    *table = server->tables[head->table];
    if (!block)
        return TRI_OK;
    if (head->block >= (uint32_t)(*table)->spec.cut_count || !(*table)->blocks[head->block].held)
        return tri_fail(TRI_EFORMAT, "block %u of table '%s' is not here", head->block, (*table)->spec.name);
    *block = &(*table)->blocks[head->block];
    return TRI_OK;
}

static const ps_cut *cut_of(const ps_table *table, const ps_block *block)
{
    return &table->spec.cuts[block - table->blocks];
}

tri_status tri_ps_block_fill(ps_table *table, ps_block *block, const ps_head *head, const float *body)
{
    size_t count = (size_t)cut_of(table, block)->count;
    int states = 0;
    while (states < TRI_OPTIM_MAX_STATE && tri_optim_state_name(block->optim, states))
        states++;
    if (block->filled)
        return TRI_OK; /* somebody else has given the first values */
    if (head->nbytes != (size_t)(1 + states) * count * sizeof(float) || head->clock < 0)
        return tri_fail(TRI_EFORMAT, "first values of a block: want %zu bytes, got %llu",
                        (size_t)(1 + states) * count * sizeof(float), (unsigned long long)head->nbytes);
    memcpy(block->values, body, count * sizeof(float));
    if (block->previous)
        memcpy(block->previous, body, count * sizeof(float));
    for (int i = 0; i < states; i++)
        memcpy(tri_optim_state(block->optim, i), body + (size_t)(1 + i) * count, count * sizeof(float));
    block->clock = head->clock;
    for (int w = 0; w < table->spec.workers; w++)
        block->pushed[w] = tri_ps_push_number(table, head->clock);
    tri_ps_block_filled(table, block, true);
    return TRI_OK;
}

static tri_status block_is_empty(const ps_table *table, int number)
{
    return tri_fail(TRI_EFORMAT, "table '%s': block %d has no values", table->spec.name, number);
}

tri_status tri_ps_table_given(const tri_ps_server *server, const ps_table *table)
{
    for (int b = 0; b < table->spec.cut_count; b++)
        if (tri_ps_is_primary(server, table, b) && !table->blocks[b].filled)
            return block_is_empty(table, b);
    return TRI_OK;
}

tri_status tri_ps_block_serves(const ps_client_connection *client, const ps_table *table, const ps_block *block)
{
    return client->server >= 0 || block->filled ? TRI_OK : block_is_empty(table, (int)(block - table->blocks));
}

/* Steps that the whole of what is here has taken. */
int64_t tri_ps_table_clock(const tri_ps_server *server, const ps_table *table, int worker)
{
    int64_t clock = INT64_MAX; /* nothing here moves */
    if (table->consistency != PS_BSP)
        return table->clocks[worker] == INT64_MAX ? 0 : table->clocks[worker];
    for (int b = 0; b < table->spec.cut_count; b++)
        if (table->blocks[b].moves && tri_ps_is_primary(server, table, b) && table->blocks[b].clock < clock)
            clock = table->blocks[b].clock;
    return clock;
}

void tri_ps_values_answer(ps_client_connection *client, const ps_table *table, ps_block *block, uint16_t how,
                          bool previous, double number)
{
    const ps_cut *cut = cut_of(table, block);
    bool bsp = table->consistency == PS_BSP;
    bool coded = tri_ps_is_coded(&table->spec.ps) && !(how & PS_FLAG_EXACT), lasts = bsp && !tri_ps_chooses(table);
    const void *body = previous ? block->previous : block->values;
    ps_head head = {.kind = PS_VALUES,
                    .flags = coded ? 0 : PS_FLAG_EXACT,
                    .nbytes = coded ? tri_ps_values_nbytes(&table->spec, cut) : (size_t)cut->count * sizeof(float),
                    .clock = block->clock - (previous ? 1 : 0),
                    .table = (uint32_t)table->number,
                    .block = (uint32_t)(block - table->blocks),
                    .extra = number};
    if (coded && lasts && !previous) {
        if (block->encoded_clock != block->clock)
            tri_ps_values_write(&table->spec, cut, block->values, block->encoded);
        block->encoded_clock = block->clock;
        body = block->encoded;
    } else if (coded) {
        tri_ps_values_write(&table->spec, cut, body, table->scratch);
        body = table->scratch;
        lasts = false;
    }
    /* bsp: the next step needs a push of this very client, who has them then. */
    tri_ps_answer(client, &head, body, lasts);
}

void tri_ps_gradients_decode(const ps_table *table, const ps_block *block, const void *body, float *sums)
{
    tri_ps_gradients_read(&table->spec, cut_of(table, block), body, sums);
}

int64_t tri_ps_push_number(const ps_table *table, int64_t clock)
{
    int64_t deals = tri_ps_deals(&table->spec.ps, table->spec.workers);
    return deals > 0 ? clock * deals : clock;
}

double tri_ps_rate(const ps_table *table, int64_t step)
{
    return tri_schedule_rate(&table->spec.optim, step, table->spec.steps);
}

typedef struct fold {
    float *sums;
    const float *tied;
} fold;

static void fold_piece(void *arg, int64_t grad_first, int64_t offset, int64_t count)
{
    fold *at = arg;
    (void)grad_first;
    tri_vector_add(1, at->sums + offset, at->sums + offset, at->tied, count);
    at->tied += count;
}

void tri_ps_block_fold(const ps_table *table, const ps_block *block, float *sums)
{
    const ps_cut *cut = cut_of(table, block);
    fold at = {.sums = sums, .tied = sums + cut->count};
    tri_ps_ties_walk(&table->spec, cut, fold_piece, &at);
}

void tri_ps_block_move(const ps_table *table, ps_block *block, const float *sums, const tri_optim_scalars *figures)
{
    const ps_cut *cut = cut_of(table, block);
    tri_optim_step_at(block->optim, figures, block->values, sums, cut->first, cut->count);
    block->clock++;
}

tri_status tri_ps_era_fail(void)
{
    return tri_fail(TRI_EABORT, "a server was lost since: the run goes back to its newest checkpoint");
}
