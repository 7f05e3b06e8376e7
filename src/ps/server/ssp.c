/* SPDX-License-Identifier: Apache-2.0
 *
 * ssp.c: bounded-stale and asynchronous steps: each push moves its block at once; who is too far ahead of the
 * slowest worker waits for values (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel
 * parameter server"). With `async` nobody waits.
 *
 * Each worker's push of a step counts once for each block. Delay compensation: Zheng et al. 2017, "Asynchronous
 * stochastic gradient descent with delay compensation".
 */
#include <string.h>

#include "base/memory.h"
#include "ps/replication/replication.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"
#include "ps/tables/coding_dense.h"

/* Of a pull that has to wait: this, and the flags it came with. */
#define WAITS       UINT8_C(1)
#define WAITS_FLAGS (PS_FLAG_ALL | PS_FLAG_EXACT)

/* Steps that the slowest worker has finished, of those that are still there; INT64_MAX: all have left. */
static int64_t slowest(const ps_table *table)
{
    int64_t least = INT64_MAX;
    for (int w = 0; w < table->spec.workers; w++)
        least = table->clocks[w] < least ? table->clocks[w] : least;
    return least;
}

static bool may_go_on(const ps_table *table, int64_t clock, bool of_all)
{
    if (of_all)
        return slowest(table) >= clock;
    return table->consistency == PS_ASYNC || slowest(table) >= clock - table->spec.ps.staleness;
}

/* g + strength * scale * g * g * (now - seen), in the sum's own units: scale is what makes it a mean. */
static void compensate(float *sums, const float *now, const float *seen, float strength, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] += strength * sums[i] * sums[i] * (now[i] - seen[i]);
}

tri_status tri_ps_ssp_push(const ps_client_connection *client, const ps_table *table, ps_block *block,
                           const ps_head *head, float *body)
{
    const ps_cut *cut = &table->spec.cuts[head->block];
    size_t wanted = tri_ps_gradients_nbytes(&table->spec, cut);
    if (head->nbytes != wanted)
        return tri_fail(TRI_EFORMAT, "gradients of block %u: want %zu bytes, got %llu", head->block, wanted,
                        (unsigned long long)head->nbytes);
    if (head->clock < block->pushed[client->number])
        return TRI_OK; /* said again after an answer was lost */
    tri_ps_save_before(client->of, table, block);
    block->pushed[client->number] = head->clock + 1;
    if (table->scratch) {
        tri_ps_gradients_decode(table, block, body, table->scratch);
        body = table->scratch;
    }
    tri_ps_block_fold(table, block, body);
    int64_t deals = tri_ps_deals(&table->spec.ps, table->spec.workers);
    double rate = tri_ps_rate(table, deals > 0 ? head->clock / deals : head->clock);
    double pushes = (double)(deals > 0 ? deals : table->spec.workers); /* of a step */
    tri_optim_scalars figures = {.step = block->clock,
                                 .lr = table->spec.ps.scale_lr ? rate / pushes : rate,
                                 .grad_scale = head->extra > 0 ? (float)(1 / head->extra) : 0,
                                 .buffer_scale = head->part.count > 0 ? 1.0f / (float)head->part.count : 0};
    if (block->seen && block->seen[client->number])
        compensate(body, block->values, block->seen[client->number],
                   (float)table->spec.ps.delay_compensation * figures.grad_scale, cut->count);
    tri_ps_block_move(table, block, body, &figures);
    return TRI_OK;
}

/* A worker begins its next step: how far ahead is it? */
static void going_on_count(ps_table *table, int worker)
{
    int64_t clock = table->clocks[worker], most = (int64_t)TRI_COUNT_OF(table->ahead) - 1;
    if (clock == INT64_MAX || table->went_on[worker] >= clock)
        return;
    int64_t ahead = clock - slowest(table);
    table->went_on[worker] = clock;
    table->ahead[ahead < most ? ahead : most]++;
}

/* Values for a worker; what it sees is kept where its gradients will be compensated. */
static tri_status values_give(ps_client_connection *client, ps_table *table, ps_block *block, ps_pull pull)
{
    going_on_count(table, client->number);
    int64_t count = table->spec.cuts[block - table->blocks].count;
    if (block->seen && !block->seen[client->number]) {
        block->seen[client->number] = tri_alloc((size_t)count * sizeof(float));
        if (!block->seen[client->number])
            return TRI_ENOMEM;
    }
    if (block->seen)
        memcpy(block->seen[client->number], block->values, (size_t)count * sizeof(float));
    tri_ps_values_answer(client, table, block, pull.how & PS_FLAG_EXACT, false, pull.number);
    return TRI_OK;
}

static tri_status pulls_answer(ps_client_connection *client, ps_table *table, int worker)
{
    for (int b = 0; b < table->spec.cut_count; b++) {
        ps_pull *waits = &table->pulls[worker][b], pull = *waits;
        if (pull.how == 0 || !may_go_on(table, table->clocks[worker], (pull.how & PS_FLAG_ALL) != 0))
            continue;
        waits->how = 0;
        TRI_TRY(values_give(client, table, &table->blocks[b], pull));
    }
    return TRI_OK;
}

/* Who waited for the slowest and need not any more. */
static tri_status others_go_on(const tri_ps_server *server, ps_table *table)
{
    for (int w = 0; w < table->spec.workers; w++)
        if (table->pulls[w] && server->workers[w])
            TRI_TRY(pulls_answer(server->workers[w], table, w));
    return TRI_OK;
}

/* The next part of the batch for a worker that is done with all parts before number `clock`. One that asks again, or
 * was started again, gets what it has under way. */
static void deal_next(ps_client_connection *client, ps_table *table, const ps_head *head)
{
    int64_t *dealt = &table->dealt[client->number];
    if (*dealt < head->clock)
        *dealt = table->next_deal++;
    tri_ps_answer_plain(client, PS_CLOCK, head->request, (uint32_t)table->number, *dealt);
}

tri_status tri_ps_ssp_clock(const tri_ps_server *server, ps_client_connection *client, ps_table *table,
                            const ps_head *head)
{
    bool deals = tri_ps_deals(&table->spec.ps, table->spec.workers) > 0;
    int64_t *clock = &table->clocks[client->number];
    if (head->flags & PS_FLAG_DEAL) {
        if (table->restored && head->clock > table->next_deal)
            table->next_deal = head->clock;
        if (!deals || !table->ready || head->clock > table->next_deal)
            return tri_fail(TRI_EFORMAT, "it asks for part %lld, and %lld is the next one", (long long)head->clock,
                            (long long)table->next_deal);
        deal_next(client, table, head);
        return TRI_OK;
    }
    if (*clock == INT64_MAX || head->clock < *clock)
        return TRI_OK;
    if (head->clock > *clock + 1 && !deals && !table->restored)
        return tri_fail(TRI_EFORMAT, "step %lld is over, after step %lld", (long long)head->clock, (long long)*clock);
    *clock = head->clock;
    return others_go_on(server, table);
}

tri_status tri_ps_ssp_pull(ps_client_connection *client, ps_table *table, ps_block *block, const ps_head *head)
{
    bool of_all = head->flags & PS_FLAG_ALL;
    if (may_go_on(table, head->clock, of_all))
        return values_give(client, table, block, (ps_pull){(uint8_t)(head->flags & WAITS_FLAGS), head->extra});
    ps_pull **pulls = &table->pulls[client->number];
    if (!*pulls)
        *pulls = tri_alloc_zero((size_t)table->spec.cut_count, sizeof(**pulls));
    if (!*pulls)
        return TRI_ENOMEM;
    (*pulls)[head->block] = (ps_pull){(uint8_t)(WAITS | (head->flags & WAITS_FLAGS)), head->extra};
    return TRI_OK;
}

tri_status tri_ps_ssp_left(const tri_ps_server *server, ps_table *table, int worker)
{
    table->clocks[worker] = INT64_MAX;
    return others_go_on(server, table);
}

tri_status tri_ps_stats(const tri_ps_server *server, tri_string *out)
{
    for (int t = 0; t < server->table_count; t++) {
        const ps_table *table = server->tables[t];
        if (tri_ps_chooses(table))
            TRI_TRY(tri_ps_choices_print(table, out));
        if (table->consistency == PS_BSP)
            continue;
        TRI_TRY(tri_string_append(out, "steps ahead of the slowest worker:"));
        for (size_t i = 0; i < TRI_COUNT_OF(table->ahead); i++)
            if (table->ahead[i] > 0)
                TRI_TRY(tri_string_appendf(out, " %zu%s: %llu", i, i + 1 == TRI_COUNT_OF(table->ahead) ? "+" : "",
                                           (unsigned long long)table->ahead[i]));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    return TRI_OK;
}
