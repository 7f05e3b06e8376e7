/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_send.c: what a worker says to servers about a dense table, and says again to whoever has taken a block
 * over.
 */
#include <string.h>

#include "base/memory.h"
#include "ps/client/client_impl.h"
#include "ps/tables/coding_dense.h"

/* What the next forward pass reads first goes first. */
static unsigned block_priority(int b)
{
    return (unsigned)(INT32_MAX - b);
}

/* --- gradients --- */

typedef struct stage {
    const float *grads;
    float *to;
} stage;

static void stage_piece(void *arg, int64_t grad_first, int64_t offset, int64_t count)
{
    stage *at = arg;
    (void)offset;
    memcpy(at->to, at->grads + grad_first, (size_t)count * sizeof(float));
    at->to += count;
}

/* The body of a push: where the gradient is, or with those of ties behind it, or coded. */
static const void *body_of(tri_ps_dense *dense, int b, int p, const float *grads)
{
    const ps_cut *cut = &dense->spec->cuts[b];
    dense_block *block = &dense->blocks[b];
    if (!block->staged)
        return grads + cut->first;
    if (!block->staged[p])
        block->staged[p] = tri_alloc(tri_ps_gradients_nbytes(dense->spec, cut));
    if (!block->staged[p])
        return NULL;
    if (dense->coded) {
        tri_ps_gradients_write(dense->spec, cut, grads, block->staged[p]);
        return block->staged[p];
    }
    memcpy(block->staged[p], grads + cut->first, (size_t)cut->count * sizeof(float));
    stage at = {.grads = grads, .to = (float *)block->staged[p] + cut->count};
    tri_ps_ties_walk(dense->spec, cut, stage_piece, &at);
    return block->staged[p];
}

static void push_queue(tri_ps_dense *dense, int b)
{
    const dense_block *block = &dense->blocks[b];
    for (int p = 0; p < dense->part_count; p++) {
        ps_head head = {.kind = PS_PUSH,
                        .flags = dense->consistency == PS_BSP && p == 0 ? PS_FLAG_PULL : 0,
                        .nbytes = tri_ps_gradients_nbytes(dense->spec, &dense->spec->cuts[b]),
                        .clock = block->pushed,
                        .table = dense->client->links[block->server].table,
                        .block = (uint32_t)b,
                        .part = dense->parts[p],
                        .extra = dense->weight};
        tri_ps_queue(dense->client, block->server, block_priority(b), &head, block->bodies[p]);
    }
}

void tri_ps_dense_push(tri_ps_dense *dense, int b, int64_t clock, const tri_tree_part *parts, int part_count,
                       float *const *grads, double weight)
{
    dense_block *block = &dense->blocks[b];
    if (!block->moves)
        return;
    const void *bodies[TRI_TREE_MAX_PARTS];
    for (int p = 0; p < part_count; p++)
        bodies[p] = body_of(dense, b, p, grads[p]);
    ps_dense_lock(dense);
    dense->part_count = part_count;
    dense->weight = weight;
    dense->exact = false;
    for (int p = 0; p < part_count; p++) {
        dense->parts[p] = parts[p];
        block->bodies[p] = bodies[p];
        if (!bodies[p])
            tri_ps_client_fail(dense->client, TRI_ENOMEM);
    }
    block->pushed = clock;
    block->asked = dense->consistency == PS_BSP ? clock + 1 : -1;
    block->squared = false;
    push_queue(dense, b);
    ps_dense_unlock(dense);
}
/* --- the rest of a step --- */

static void tail_queue(tri_ps_dense *dense, int server)
{
    for (int p = 0; p < dense->part_count; p++) {
        ps_head head = {.kind = PS_TAIL,
                        .flags = p == 0 && !dense->reported_tail ? PS_FLAG_PULL : 0,
                        .nbytes = sizeof(dense->tails[p]),
                        .clock = dense->tail_clock,
                        .table = dense->client->links[server].table,
                        .part = dense->parts[p]};
        tri_ps_queue(dense->client, server, (unsigned)INT32_MAX, &head, dense->tails[p]);
    }
}

void tri_ps_dense_tail(tri_ps_dense *dense, int64_t clock, const tri_tree_part *parts, int part_count,
                       float *const *tails)
{
    ps_dense_lock(dense);
    dense->tail_clock = clock;
    dense->part_count = part_count;
    for (int p = 0; p < part_count; p++) {
        dense->parts[p] = parts[p];
        memcpy(dense->tails[p], tails[p], sizeof(dense->tails[p]));
    }
    for (int s = 0; s < dense->client->setup.servers; s++)
        if (dense->moving[s])
            tail_queue(dense, s);
    ps_dense_unlock(dense);
}

static void plain_queue(tri_ps_dense *dense, int server, ps_kind kind, int64_t clock, double extra)
{
    ps_head head = {.kind = kind, .clock = clock, .table = dense->client->links[server].table, .extra = extra};
    tri_ps_queue(dense->client, server, kind == PS_CLOCK ? 0 : (unsigned)INT32_MAX, &head, NULL);
}

void tri_ps_dense_move(tri_ps_dense *dense, int64_t clock, float scale)
{
    ps_dense_lock(dense);
    dense->move_clock = clock;
    dense->move_scale = scale;
    for (int s = 0; s < dense->client->setup.servers; s++)
        if (dense->moving[s])
            plain_queue(dense, s, PS_MOVE, clock, (double)scale);
    ps_dense_unlock(dense);
}

/* To the server that chooses, behind all pushes to it. */
static void vote_queue(tri_ps_dense *dense)
{
    ps_head head = {.kind = PS_CLOCK,
                    .flags = PS_FLAG_PULL,
                    .clock = dense->encoded_clock,
                    .table = dense->client->links[dense->client->home].table};
    tri_ps_queue(dense->client, dense->client->home, 0, &head, NULL);
}

void tri_ps_dense_vote(tri_ps_dense *dense, int64_t clock)
{
    ps_dense_lock(dense);
    dense->encoded_clock = clock + 1;
    vote_queue(dense);
    ps_dense_unlock(dense);
}

/* What the one that chooses has said the others have to know. */
void tri_ps_dense_choice_say(tri_ps_dense *dense, int server)
{
    ps_head head = {.kind = PS_MOVE,
                    .nbytes = (uint64_t)dense->spec->workers,
                    .clock = dense->chosen_clock,
                    .table = dense->client->links[server].table};
    tri_ps_queue(dense->client, server, (unsigned)INT32_MAX, &head, dense->chosen);
}

void tri_ps_dense_deal_say(tri_ps_dense *dense)
{
    ps_head head = {.kind = PS_CLOCK,
                    .flags = PS_FLAG_DEAL,
                    .clock = dense->deal_asked,
                    .table = dense->client->links[dense->client->home].table};
    tri_ps_queue(dense->client, dense->client->home, 0, &head, NULL);
}

void tri_ps_dense_clock(tri_ps_dense *dense, int64_t clock)
{
    ps_dense_lock(dense);
    dense->encoded_clock = clock;
    for (int s = 0; s < dense->client->setup.servers; s++)
        plain_queue(dense, s, PS_CLOCK, clock, 0);
    ps_dense_unlock(dense);
}

static void pull_queue(tri_ps_dense *dense, int b)
{
    const dense_block *block = &dense->blocks[b];
    ps_head head = {.kind = PS_PULL,
                    .flags = (uint16_t)((dense->of_all ? PS_FLAG_ALL : 0) | (dense->exact ? PS_FLAG_EXACT : 0)),
                    .clock = block->asked,
                    .table = dense->client->links[block->server].table,
                    .block = (uint32_t)b,
                    .extra = (double)dense->pull_number};
    tri_ps_queue(dense->client, block->server, 0, &head, NULL);
}

static void blocks_pull(tri_ps_dense *dense, int64_t clock, bool of_all, bool exact)
{
    ps_dense_lock(dense);
    dense->of_all = of_all;
    dense->exact = exact;
    dense->pull_number++;
    for (int b = 0; b < dense->spec->cut_count; b++) {
        dense->blocks[b].asked = clock;
        pull_queue(dense, b);
    }
    ps_dense_unlock(dense);
}

void tri_ps_dense_pull(tri_ps_dense *dense, int64_t clock, bool of_all)
{
    blocks_pull(dense, clock, of_all, false);
}

void tri_ps_dense_pull_exact(tri_ps_dense *dense, int64_t clock)
{
    if (dense->coded)
        blocks_pull(dense, clock, false, true);
}

void tri_ps_dense_state_say(tri_ps_dense *dense, int b)
{
    int server = dense->blocks[b].server;
    ps_head head = {.kind = PS_PULL_STATE,
                    .table = dense->client->links[server].table,
                    .block = (uint32_t)b,
                    .extra = dense->state_index};
    tri_ps_queue(dense->client, server, 0, &head, NULL);
}

/* --- to others, and again --- */

void tri_ps_dense_reown(tri_ps_dense *dense)
{
    tri_ps_client *client = dense->client;
    int *owners = tri_alloc((size_t)dense->spec->cut_count * sizeof(int)), first = client->view.servers[0];
    uint64_t changed = 0;
    bool any = false;
    tri_status status = owners ? tri_ps_owners(dense->spec, &client->view, owners) : TRI_ENOMEM;
    memset(dense->moving, 0, (size_t)client->setup.servers * sizeof(bool));
    for (int b = 0; b < dense->spec->cut_count && status == TRI_OK; b++) {
        dense_block *block = &dense->blocks[b];
        changed |= block->server != owners[b] ? UINT64_C(1) << owners[b] : 0;
        if (block->filling >= 0 && block->filling != owners[b]) /* what it is saying must not overtake the new one */
            client->links[block->filling].cut = true;
        block->server = owners[b];
        dense->moving[owners[b]] = dense->moving[owners[b]] || block->moves;
        any = any || block->moves;
    }
    if (!any) /* somebody has to tell the sums */
        dense->moving[first] = true;
    client->home = first;
    for (int b = dense->spec->cut_count - 1; b >= 0 && status == TRI_OK; b--)
        if (dense->blocks[b].moves)
            client->home = owners[b];
    for (int s = 0; s < client->setup.servers; s++)
        if (changed >> s & 1 && client->links[s].opened)
            tri_ps_dense_resend(dense, s);
    if (status != TRI_OK)
        tri_ps_client_fail(client, status);
    tri_free(owners);
}

void tri_ps_dense_block_give(tri_ps_dense *dense, int b)
{
    const ps_cut *cut = &dense->spec->cuts[b];
    const int server = dense->blocks[b].server;
    ps_head head = {.kind = PS_INIT,
                    .nbytes = (uint64_t)dense->given_arrays * (uint64_t)cut->count * sizeof(float),
                    .clock = dense->given_clock,
                    .table = dense->client->links[server].table,
                    .block = (uint32_t)b};
    tri_ps_queue(dense->client, server, (unsigned)INT32_MAX, &head, dense->given + cut->first * dense->given_arrays);
}

/* Blocks that are another server's now; then it is to say that it has them, also where it had said so before. */
static void given_resend(tri_ps_dense *dense, int server)
{
    for (int b = 0; b < dense->spec->cut_count; b++)
        if (dense->blocks[b].server == server)
            tri_ps_dense_block_give(dense, b);
    if (dense->client->asked)
        tri_ps_ask_server(dense->client, server);
}

void tri_ps_dense_resend(tri_ps_dense *dense, int server)
{
    if (dense->given)
        given_resend(dense, server);
    for (int b = 0; b < dense->spec->cut_count; b++) {
        const dense_block *block = &dense->blocks[b];
        if (block->server != server)
            continue;
        if (block->pushed >= 0 && (block->asked >= 0 || dense->consistency != PS_BSP))
            push_queue(dense, b);
    }
    if (dense->moving[server] && dense->consistency == PS_BSP && dense->tail_clock >= 0)
        tail_queue(dense, server);
    if (dense->moving[server] && dense->chosen_clock >= 0)
        tri_ps_dense_choice_say(dense, server);
    if (dense->moving[server] && dense->move_clock >= 0)
        plain_queue(dense, server, PS_MOVE, dense->move_clock, (double)dense->move_scale);
    if (dense->encoded_clock >= 0 && dense->consistency != PS_BSP)
        plain_queue(dense, server, PS_CLOCK, dense->encoded_clock, 0);
    else if (dense->encoded_clock >= 0 && server == dense->client->home)
        vote_queue(dense);
    if (dense->deal_asked >= 0 && server == dense->client->home)
        tri_ps_dense_deal_say(dense);
    for (int b = 0; b < dense->spec->cut_count; b++)
        if (dense->blocks[b].server == server && dense->blocks[b].asked >= 0)
            pull_queue(dense, b);
    for (int b = 0; dense->state && b < dense->spec->cut_count; b++)
        if (dense->blocks[b].server == server && !dense->blocks[b].stated)
            tri_ps_dense_state_say(dense, b);
}
