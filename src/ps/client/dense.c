/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.c: a dense table as a worker sees it: opened, given its first values, waited for. What goes to servers
 * is in client/dense_send.c, what comes from them in client/dense_receive.c.
 */
#include <string.h>

#include "base/memory.h"
#include "ps/client/client_impl.h"
#include "ps/tables/coding_dense.h"

/* --- open --- */

static tri_status blocks_init(tri_ps_dense *dense)
{
    const ps_spec *spec = dense->spec;
    dense->blocks = tri_alloc_zero((size_t)spec->cut_count, sizeof(dense_block));
    dense->squares = tri_alloc_zero((size_t)spec->params.block_count + 1, sizeof(double));
    dense->moving = tri_alloc_zero((size_t)dense->client->setup.servers, sizeof(bool));
    tri_status status = dense->blocks && dense->squares && dense->moving ? TRI_OK : TRI_ENOMEM;
    if (spec->ps.backup_workers > 0 && status == TRI_OK) {
        dense->chosen = tri_alloc_zero((size_t)spec->workers, 1);
        status = dense->chosen ? TRI_OK : TRI_ENOMEM;
    }
    for (int b = 0; b < spec->cut_count && status == TRI_OK; b++) {
        dense_block *block = &dense->blocks[b];
        *block = (dense_block){.server = -1, .asked = -1, .arrived = -1, .pushed = -1, .filling = -1};
        block->moves = tri_ps_cut_moves(spec, &spec->cuts[b]);
        bool staged = dense->coded || spec->cuts[b].tied > 0;
        block->bodies = tri_alloc_zero(TRI_TREE_MAX_PARTS, sizeof(void *));
        block->staged = staged ? tri_alloc_zero(TRI_TREE_MAX_PARTS, sizeof(void *)) : NULL;
        block->encoded = dense->coded ? tri_alloc(tri_ps_values_nbytes(spec, &spec->cuts[b])) : NULL;
        if (!block->bodies || (staged && !block->staged) || (dense->coded && !block->encoded))
            status = TRI_ENOMEM;
    }
    if (status == TRI_OK)
        tri_ps_dense_reown(dense);
    return status == TRI_OK ? dense->client->status : status;
}

/* Notes which servers have lost their values (links[].empty). Then the step to begin with: the earliest that some
 * server has yet to take; -1: some have no values. */
static int64_t clock_of_all(tri_ps_client *client)
{
    int64_t clock = INT64_MAX, tail = 0;
    /* A server that has lost its values gets them if others have theirs; if all have lost them, all start from the
     * first values. */
    bool any = false;
    for (int s = 0; s < client->setup.servers; s++)
        any = any || (ps_view_has(&client->view, s) && client->links[s].clock >= 0);
    for (int s = 0; any && s < client->setup.servers; s++)
        client->links[s].empty = ps_view_has(&client->view, s) && client->links[s].clock == PS_CLOCK_LOST;
    for (int s = 0; s < client->setup.servers; s++) {
        const ps_link *link = &client->links[s];
        if (!ps_view_has(&client->view, s) || link->empty)
            continue;
        clock = link->clock < clock ? link->clock : clock;
        tail = (int64_t)link->extra > tail ? (int64_t)link->extra : tail;
    }
    if (clock < 0)
        return -1;
    return clock < INT64_MAX ? clock : tail; /* nothing moves */
}

tri_status tri_ps_dense_open(tri_ps_client *client, const ps_spec *spec, bool starts, float *values, int64_t *clock,
                             tri_ps_dense **out)
{
    tri_ps_dense *dense = tri_alloc_zero(1, sizeof(*dense));
    if (!dense)
        return TRI_ENOMEM;
    *dense = (tri_ps_dense){.client = client,
                            .spec = spec,
                            .consistency = spec->ps.consistency,
                            .coded = tri_ps_is_coded(&spec->ps),
                            .values = values,
                            .tail_clock = -1,
                            .tail_known = -1,
                            .move_clock = -1,
                            .encoded_clock = -1,
                            .chosen_clock = -1,
                            .deal_asked = -1};
    tri_status status = blocks_init(dense);
    if (status == TRI_OK)
        status = tri_ps_spec_print(spec, &dense->text);
    ps_dense_lock(dense);
    ps_head head = {.kind = PS_OPEN, .flags = starts ? PS_FLAG_STARTS : 0, .nbytes = dense->text.nbytes};
    if (status == TRI_OK)
        status = tri_ps_ask_all(client, head, tri_string_text(&dense->text), "opening the table of weights");
    *clock = status == TRI_OK ? clock_of_all(client) : -1;
    client->dense = status == TRI_OK ? dense : NULL;
    if (status == TRI_OK) /* views may have come while it was not there */
        tri_ps_dense_reown(dense);
    for (int s = 0; s < client->setup.servers; s++) /* one that was lost since its answer has not heard of the table */
        if (status == TRI_OK && ps_view_has(&client->view, s) && client->links[s].connection)
            client->links[s].cut = client->links[s].cut || !client->links[s].opened;
    ps_dense_unlock(dense);
    if (status != TRI_OK) {
        tri_ps_dense_close(dense);
        return status;
    }
    *out = dense;
    return TRI_OK;
}

void tri_ps_dense_close(tri_ps_dense *dense)
{
    if (!dense)
        return;
    ps_dense_lock(dense);
    dense->client->dense = NULL;
    ps_dense_unlock(dense);
    for (int b = 0; dense->blocks && b < dense->spec->cut_count; b++) {
        dense_block *block = &dense->blocks[b];
        for (int p = 0; block->staged && p < TRI_TREE_MAX_PARTS; p++)
            tri_free(block->staged[p]);
        tri_free(block->staged);
        tri_free(block->bodies);
        tri_free(block->encoded);
    }
    tri_free(dense->blocks);
    tri_free(dense->squares);
    tri_free(dense->moving);
    tri_free(dense->reported_tail);
    tri_free(dense->chosen);
    tri_string_fini(&dense->text);
    tri_free(dense);
}

/* Of block b in memory for all: copies of its values and states, which live until READY is answered behind them. */
static float *given_make(const ps_spec *spec, const float *values, const float *const *state, int state_count)
{
    const size_t arrays = (size_t)(1 + state_count);
    float *given = tri_alloc((size_t)spec->params.count * arrays * sizeof(float));
    for (int b = 0; given && b < spec->cut_count; b++) {
        const ps_cut *cut = &spec->cuts[b];
        const size_t count = (size_t)cut->count;
        float *body = given + (size_t)cut->first * arrays;
        memcpy(body, values + cut->first, count * sizeof(float));
        for (int i = 0; i < state_count; i++) {
            float *to = body + (size_t)(1 + i) * count;
            if (state && state[i])
                memcpy(to, state[i] + cut->first, count * sizeof(float));
            else
                memset(to, 0, count * sizeof(float));
        }
    }
    return given;
}

static void given_set(tri_ps_dense *dense, const float *given, int64_t clock, int state_count)
{
    dense->given = given;
    dense->given_clock = clock;
    dense->given_arrays = 1 + state_count;
}

tri_status tri_ps_dense_give(tri_ps_dense *dense, int64_t clock, const float *const *state, int state_count)
{
    float *given = given_make(dense->spec, dense->values, state, state_count);
    if (!given)
        return TRI_ENOMEM;
    /* First all are to have theirs, which their backups then have too: a server that nobody was waiting for would
     * continue in the place of one that had nothing yet, without its values. */
    ps_head head = {.kind = PS_READY, .flags = PS_FLAG_STARTS, .clock = clock};
    ps_dense_lock(dense);
    given_set(dense, given, clock, state_count);
    for (int b = 0; b < dense->spec->cut_count; b++)
        tri_ps_dense_block_give(dense, b);
    tri_status status = tri_ps_ask_all(dense->client, head, NULL, "giving the first weights");
    head.flags = 0;
    if (status == TRI_OK)
        status = tri_ps_ask_all(dense->client, head, NULL, "giving the first weights");
    given_set(dense, NULL, -1, 0);
    for (int b = 0; b < dense->spec->cut_count; b++)
        dense->blocks[b].arrived = clock;
    ps_dense_unlock(dense);
    tri_ps_dense_round(dense);
    tri_free(given);
    return status;
}

typedef struct refill {
    ps_link *link;
    int64_t lost_ns;
} refill;

/* Or it was lost again. */
static bool is_refilled(void *arg)
{
    const refill *at = arg;
    return at->link->refilled || !at->link->connection || at->link->lost_ns != at->lost_ns;
}

tri_status tri_ps_dense_refill(tri_ps_dense *dense, int server, int64_t clock, int64_t known, const float *values,
                               const float *const *state, int state_count, int *blocks, int64_t *now)
{
    float *given = given_make(dense->spec, values, state, state_count);
    if (!given)
        return TRI_ENOMEM;
    ps_dense_lock(dense);
    refill at = {&dense->client->links[server], dense->client->links[server].lost_ns};
    at.link->refilled = false;
    at.link->opened = true;
    *blocks = 0;
    *now = dense->encoded_clock > 0 ? dense->encoded_clock : clock;
    given_set(dense, given, clock, state_count);
    for (int b = 0; b < dense->spec->cut_count; b++)
        if (dense->blocks[b].server == server) {
            tri_ps_dense_block_give(dense, b);
            *blocks += dense->blocks[b].moves;
        }
    given_set(dense, NULL, -1, 0); /* a server that is lost meanwhile asks for it again */
    ps_head head = {
        .kind = PS_READY, .request = PS_AGAIN, .clock = *now, .extra = (double)known, .table = at.link->table};
    tri_ps_queue(dense->client, server, (unsigned)INT32_MAX, &head, NULL);
    tri_status status = tri_ps_await(dense->client, is_refilled, &at, "giving a server the values of a checkpoint");
    bool done = at.link->refilled;
    if (status == TRI_OK && done) {
        tri_ps_dense_resend(dense, server);
        if (dense->client->asked)
            tri_ps_ask_again(dense->client, server);
    }
    ps_dense_unlock(dense);
    if (status == TRI_OK && !done)
        status = tri_fail(TRI_EPEER, "parameter server %d was lost again", server);
    tri_free(given);
    return status;
}

void tri_ps_dense_round(tri_ps_dense *dense)
{
    for (int b = 0; dense->coded && b < dense->spec->cut_count; b++) {
        const ps_cut *cut = &dense->spec->cuts[b];
        tri_ps_values_write(dense->spec, cut, dense->values + cut->first, dense->blocks[b].encoded);
        tri_ps_values_read(dense->spec, cut, dense->blocks[b].encoded, dense->values + cut->first);
    }
}

/* --- what callers wait for --- */

typedef struct wait {
    tri_ps_dense *dense;
    int block;
    int64_t clock;
} wait;

static bool tail_is_known(void *arg)
{
    const wait *at = arg;
    return at->dense->tail_known >= at->clock;
}

static bool all_squared(void *arg)
{
    const wait *at = arg;
    for (int b = 0; b < at->dense->spec->cut_count; b++)
        if (at->dense->blocks[b].moves && !at->dense->blocks[b].squared)
            return false;
    return true;
}

static bool block_is_here(void *arg)
{
    const wait *at = arg;
    const dense_block *block = &at->dense->blocks[at->block];
    return block->asked < 0 && (at->dense->consistency != PS_BSP || !block->moves || block->arrived >= at->clock);
}

static bool state_is_here(void *arg)
{
    const tri_ps_dense *dense = ((const wait *)arg)->dense;
    for (int b = 0; b < dense->spec->cut_count; b++)
        if (!dense->blocks[b].stated)
            return false;
    return true;
}

tri_status tri_ps_dense_tail_wait(tri_ps_dense *dense, int64_t clock, float sums[TRI_PARAMS_TAIL])
{
    wait at = {.dense = dense, .clock = clock};
    ps_dense_lock(dense);
    tri_status status = tri_ps_await(dense->client, tail_is_known, &at, "the sums of the batch");
    memcpy(sums, dense->tail_sums, sizeof(dense->tail_sums));
    ps_dense_unlock(dense);
    return status;
}

tri_status tri_ps_dense_squares_wait(tri_ps_dense *dense, int64_t clock, double *blocks)
{
    wait at = {.dense = dense, .clock = clock};
    ps_dense_lock(dense);
    tri_status status = tri_ps_await(dense->client, all_squared, &at, "the gradient's norm");
    memcpy(blocks, dense->squares, (size_t)dense->spec->params.block_count * sizeof(double));
    ps_dense_unlock(dense);
    return status;
}

tri_status tri_ps_dense_wait(tri_ps_dense *dense, int b, int64_t clock)
{
    wait at = {.dense = dense, .block = b, .clock = clock};
    ps_dense_lock(dense);
    tri_status status = block_is_here(&at) && dense->client->status == TRI_OK
                            ? TRI_OK
                            : tri_ps_await(dense->client, block_is_here, &at, "weights");
    ps_dense_unlock(dense);
    return status;
}

bool tri_ps_dense_counted(tri_ps_dense *dense, int64_t *next)
{
    ps_dense_lock(dense);
    bool counted = dense->counted;
    *next = dense->next_clock;
    ps_dense_unlock(dense);
    return counted;
}
static bool is_dealt(void *arg)
{
    return ((const wait *)arg)->dense->deal_asked < 0;
}

tri_status tri_ps_dense_deal(tri_ps_dense *dense, int64_t done, int64_t *part)
{
    wait at = {.dense = dense};
    ps_dense_lock(dense);
    dense->deal_asked = done;
    tri_ps_dense_deal_say(dense);
    tri_status status = tri_ps_await(dense->client, is_dealt, &at, "the next part of the batch");
    *part = dense->dealt;
    ps_dense_unlock(dense);
    return status;
}

tri_status tri_ps_dense_state(tri_ps_dense *dense, int index, float *out)
{
    wait at = {.dense = dense};
    ps_dense_lock(dense);
    dense->state = out;
    dense->state_index = index;
    for (int b = 0; b < dense->spec->cut_count; b++) {
        dense->blocks[b].stated = false;
        tri_ps_dense_state_say(dense, b);
    }
    tri_status status = tri_ps_await(dense->client, state_is_here, &at, "the optimizer's state");
    dense->state = NULL;
    ps_dense_unlock(dense);
    return status;
}
