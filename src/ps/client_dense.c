/* SPDX-License-Identifier: Apache-2.0
 *
 * client_dense.c: a dense table as a worker sees it: gradients of blocks go out, values of blocks come in.
 */
#include <string.h>

#include "base/memory.h"
#include "ps/client_impl.h"
#include "ps/coding_dense.h"

/* What the next forward pass reads first goes first. */
static unsigned block_priority(int b)
{
    return (unsigned)(INT32_MAX - b);
}

static void lock(tri_ps_dense *dense)
{
    tri_mutex_lock(&dense->client->mutex);
}

static void unlock(tri_ps_dense *dense)
{
    tri_mutex_unlock(&dense->client->mutex);
}

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
        block->told = dense->coded ? tri_alloc(tri_ps_values_nbytes(spec, &spec->cuts[b])) : NULL;
        if (!block->bodies || (staged && !block->staged) || (dense->coded && !block->told))
            status = TRI_ENOMEM;
    }
    if (status == TRI_OK)
        tri_ps_dense_reown(dense);
    return status == TRI_OK ? dense->client->status : status;
}

/* The step to begin with: the earliest that some server has yet to take; -1: some have no values. */
static int64_t clock_of_all(const tri_ps_client *client)
{
    int64_t clock = INT64_MAX, tail = 0;
    for (int s = 0; s < client->setup.servers; s++) {
        const ps_link *link = &client->links[s];
        if (!ps_view_has(&client->view, s))
            continue;
        clock = link->clock < clock ? link->clock : clock;
        tail = (int64_t)link->extra > tail ? (int64_t)link->extra : tail;
    }
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
                            .consistency = tri_ps_consistency(&spec->ps),
                            .coded = tri_ps_is_coded(&spec->ps),
                            .values = values,
                            .tail_clock = -1,
                            .tail_known = -1,
                            .move_clock = -1,
                            .told_clock = -1,
                            .chosen_clock = -1,
                            .deal_asked = -1};
    tri_status status = blocks_init(dense);
    if (status == TRI_OK)
        status = tri_ps_spec_print(spec, &dense->text);
    lock(dense);
    ps_head head = {.kind = PS_OPEN, .flags = starts ? PS_FLAG_STARTS : 0, .nbytes = dense->text.nbytes};
    if (status == TRI_OK)
        status = tri_ps_ask_all(client, head, tri_string_text(&dense->text), "opening the table of weights");
    *clock = status == TRI_OK ? clock_of_all(client) : -1;
    client->dense = status == TRI_OK ? dense : NULL;
    unlock(dense);
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
    lock(dense);
    dense->client->dense = NULL;
    unlock(dense);
    for (int b = 0; dense->blocks && b < dense->spec->cut_count; b++) {
        dense_block *block = &dense->blocks[b];
        for (int p = 0; block->staged && p < TRI_TREE_MAX_PARTS; p++)
            tri_free(block->staged[p]);
        tri_free(block->staged);
        tri_free(block->bodies);
        tri_free(block->told);
    }
    tri_free(dense->blocks);
    tri_free(dense->squares);
    tri_free(dense->moving);
    tri_free(dense->told_tail);
    tri_free(dense->chosen);
    tri_string_fini(&dense->text);
    tri_free(dense);
}

/* A copy of what a block is given, which lives until the line has taken it: until READY is answered. */
static tri_status block_give(tri_ps_dense *dense, int b, int64_t clock, const float *const *state, int state_count,
                             float *body)
{
    const ps_cut *cut = &dense->spec->cuts[b];
    size_t count = (size_t)cut->count;
    memcpy(body, dense->values + cut->first, count * sizeof(float));
    for (int i = 0; i < state_count; i++) {
        if (state && state[i])
            memcpy(body + (size_t)(1 + i) * count, state[i] + cut->first, count * sizeof(float));
        else
            memset(body + (size_t)(1 + i) * count, 0, count * sizeof(float));
    }
    int server = dense->blocks[b].server;
    ps_head head = {.kind = PS_INIT,
                    .nbytes = (uint64_t)(1 + state_count) * count * sizeof(float),
                    .clock = clock,
                    .table = dense->client->links[server].table,
                    .block = (uint32_t)b};
    tri_ps_queue(dense->client, server, (unsigned)INT32_MAX, &head, body);
    return TRI_OK;
}

tri_status tri_ps_dense_give(tri_ps_dense *dense, int64_t clock, const float *const *state, int state_count)
{
    float *bodies = tri_alloc((size_t)dense->spec->params.count * (size_t)(1 + state_count) * sizeof(float));
    if (!bodies)
        return TRI_ENOMEM;
    lock(dense);
    tri_status status = TRI_OK;
    for (int b = 0; b < dense->spec->cut_count && status == TRI_OK; b++)
        status =
            block_give(dense, b, clock, state, state_count, bodies + dense->spec->cuts[b].first * (1 + state_count));
    if (status == TRI_OK)
        status = tri_ps_ask_all(dense->client, (ps_head){.kind = PS_READY, .clock = clock}, NULL,
                                "giving the first weights");
    for (int b = 0; b < dense->spec->cut_count; b++)
        dense->blocks[b].arrived = clock;
    unlock(dense);
    tri_ps_dense_round(dense);
    tri_free(bodies);
    return status;
}

/* --- out --- */

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

/* The body of a push: where the gradient lies, or with those of ties behind it, or coded. */
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
    lock(dense);
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
    unlock(dense);
}

static void tail_queue(tri_ps_dense *dense, int server)
{
    for (int p = 0; p < dense->part_count; p++) {
        ps_head head = {.kind = PS_TAIL,
                        .flags = p == 0 && !dense->told_tail ? PS_FLAG_PULL : 0,
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
    lock(dense);
    dense->tail_clock = clock;
    dense->part_count = part_count;
    for (int p = 0; p < part_count; p++) {
        dense->parts[p] = parts[p];
        memcpy(dense->tails[p], tails[p], sizeof(dense->tails[p]));
    }
    for (int s = 0; s < dense->client->setup.servers; s++)
        if (dense->moving[s])
            tail_queue(dense, s);
    unlock(dense);
}

static void plain_queue(tri_ps_dense *dense, int server, ps_kind kind, int64_t clock, double extra)
{
    ps_head head = {.kind = kind, .clock = clock, .table = dense->client->links[server].table, .extra = extra};
    tri_ps_queue(dense->client, server, kind == PS_CLOCK ? 0 : (unsigned)INT32_MAX, &head, NULL);
}

void tri_ps_dense_move(tri_ps_dense *dense, int64_t clock, float scale)
{
    lock(dense);
    dense->move_clock = clock;
    dense->move_scale = scale;
    for (int s = 0; s < dense->client->setup.servers; s++)
        if (dense->moving[s])
            plain_queue(dense, s, PS_MOVE, clock, (double)scale);
    unlock(dense);
}

/* To the server that chooses, behind all pushes to it. */
static void vote_queue(tri_ps_dense *dense)
{
    ps_head head = {.kind = PS_CLOCK,
                    .flags = PS_FLAG_PULL,
                    .clock = dense->told_clock,
                    .table = dense->client->links[dense->client->home].table};
    tri_ps_queue(dense->client, dense->client->home, 0, &head, NULL);
}

void tri_ps_dense_vote(tri_ps_dense *dense, int64_t clock)
{
    lock(dense);
    dense->told_clock = clock + 1;
    vote_queue(dense);
    unlock(dense);
}

/* What the one that chooses has said the others have to know. */
static void choice_queue(tri_ps_dense *dense, int server)
{
    ps_head head = {.kind = PS_MOVE,
                    .nbytes = (uint64_t)dense->spec->workers,
                    .clock = dense->chosen_clock,
                    .table = dense->client->links[server].table};
    tri_ps_queue(dense->client, server, (unsigned)INT32_MAX, &head, dense->chosen);
}

/* An answer to a vote, of the step that it was for or of a later one. */
static void choice_take(tri_ps_dense *dense, int server, const ps_head *head, const char *chosen)
{
    dense->next_clock = (int64_t)head->extra;
    bool mine = head->clock == dense->tail_clock && dense->next_clock > head->clock;
    dense->counted = mine && chosen[dense->client->setup.worker];
    if (!mine || dense->chosen_clock == head->clock)
        return;
    dense->chosen_clock = head->clock;
    memcpy(dense->chosen, chosen, (size_t)dense->spec->workers);
    for (int s = 0; s < dense->client->setup.servers; s++)
        if (dense->moving[s] && s != server)
            choice_queue(dense, s);
}

bool tri_ps_dense_counted(tri_ps_dense *dense, int64_t *next)
{
    lock(dense);
    bool counted = dense->counted;
    *next = dense->next_clock;
    unlock(dense);
    return counted;
}

static void deal_queue(tri_ps_dense *dense)
{
    ps_head head = {.kind = PS_CLOCK,
                    .flags = PS_FLAG_DEAL,
                    .clock = dense->deal_asked,
                    .table = dense->client->links[dense->client->home].table};
    tri_ps_queue(dense->client, dense->client->home, 0, &head, NULL);
}

void tri_ps_dense_clock(tri_ps_dense *dense, int64_t clock)
{
    lock(dense);
    dense->told_clock = clock;
    for (int s = 0; s < dense->client->setup.servers; s++)
        plain_queue(dense, s, PS_CLOCK, clock, 0);
    unlock(dense);
}

static void pull_queue(tri_ps_dense *dense, int b)
{
    const dense_block *block = &dense->blocks[b];
    ps_head head = {.kind = PS_PULL,
                    .flags = (uint16_t)((dense->of_all ? PS_FLAG_ALL : 0) | (dense->exact ? PS_FLAG_EXACT : 0)),
                    .clock = block->asked,
                    .table = dense->client->links[block->server].table,
                    .block = (uint32_t)b};
    tri_ps_queue(dense->client, block->server, 0, &head, NULL);
}

static void blocks_pull(tri_ps_dense *dense, int64_t clock, bool of_all, bool exact)
{
    lock(dense);
    dense->of_all = of_all;
    dense->exact = exact;
    for (int b = 0; b < dense->spec->cut_count; b++) {
        dense->blocks[b].asked = clock;
        pull_queue(dense, b);
    }
    unlock(dense);
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

void tri_ps_dense_round(tri_ps_dense *dense)
{
    for (int b = 0; dense->coded && b < dense->spec->cut_count; b++) {
        const ps_cut *cut = &dense->spec->cuts[b];
        tri_ps_values_write(dense->spec, cut, dense->values + cut->first, dense->blocks[b].told);
        tri_ps_values_read(dense->spec, cut, dense->blocks[b].told, dense->values + cut->first);
    }
}

static void state_queue(tri_ps_dense *dense, int b)
{
    int server = dense->blocks[b].server;
    ps_head head = {.kind = PS_PULL_STATE,
                    .table = dense->client->links[server].table,
                    .block = (uint32_t)b,
                    .extra = dense->state_index};
    tri_ps_queue(dense->client, server, 0, &head, NULL);
}

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

void tri_ps_dense_resend(tri_ps_dense *dense, int server)
{
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
        choice_queue(dense, server);
    if (dense->moving[server] && dense->move_clock >= 0)
        plain_queue(dense, server, PS_MOVE, dense->move_clock, (double)dense->move_scale);
    if (dense->told_clock >= 0 && dense->consistency != PS_BSP)
        plain_queue(dense, server, PS_CLOCK, dense->told_clock, 0);
    else if (dense->told_clock >= 0 && server == dense->client->home)
        vote_queue(dense);
    if (dense->deal_asked >= 0 && server == dense->client->home)
        deal_queue(dense);
    for (int b = 0; b < dense->spec->cut_count; b++)
        if (dense->blocks[b].server == server && dense->blocks[b].asked >= 0)
            pull_queue(dense, b);
    for (int b = 0; dense->state && b < dense->spec->cut_count; b++)
        if (dense->blocks[b].server == server && !dense->blocks[b].stated)
            state_queue(dense, b);
}

/* --- in --- */

/* A server that was slow, or answers twice, may say what is not awaited any more. */
static bool values_are_awaited(const tri_ps_dense *dense, int server, const ps_head *head)
{
    const dense_block *block = &dense->blocks[head->block];
    if (block->server != server || block->asked < 0)
        return false;
    if (dense->chosen && head->clock > block->asked) /* others have gone on without this worker */
        return true;
    return dense->consistency != PS_BSP || !block->moves || head->clock == block->asked;
}

/* Values come in ps.values' coding, to be read once they are whole. */
static bool is_coded(const tri_ps_dense *dense, const ps_head *head)
{
    return dense->coded && head->kind == PS_VALUES && !(head->flags & PS_FLAG_EXACT);
}

static size_t answer_nbytes(const tri_ps_dense *dense, const ps_head *head)
{
    const ps_spec *spec = dense->spec;
    if (head->kind == PS_TAIL)
        return sizeof(dense->tail_sums) + (dense->chosen ? (size_t)spec->workers : 0);
    const ps_cut *cut = &spec->cuts[head->block];
    if (is_coded(dense, head))
        return tri_ps_values_nbytes(spec, cut);
    return head->kind == PS_SQUARES ? (size_t)tri_ps_norm_blocks(spec, cut).count * sizeof(double)
                                    : (size_t)cut->count * sizeof(float);
}

void *tri_ps_dense_place(tri_ps_dense *dense, int server, const ps_head *head, bool *refused)
{
    const ps_spec *spec = dense->spec;
    if (head->kind != PS_VALUES && head->kind != PS_STATE && head->kind != PS_SQUARES && head->kind != PS_TAIL)
        return NULL;
    *refused = (head->kind != PS_TAIL && head->block >= (uint32_t)spec->cut_count) ||
               head->nbytes != answer_nbytes(dense, head);
    if (*refused)
        return NULL;
    if (head->kind == PS_STATE && dense->state)
        return dense->state + spec->cuts[head->block].first;
    if (head->kind != PS_VALUES || !values_are_awaited(dense, server, head))
        return NULL;
    dense->blocks[head->block].filling = server;
    return is_coded(dense, head) ? dense->blocks[head->block].told : dense->values + spec->cuts[head->block].first;
}

void tri_ps_dense_lost(tri_ps_dense *dense, int server)
{
    for (int b = 0; b < dense->spec->cut_count; b++)
        if (dense->blocks[b].filling == server)
            dense->blocks[b].filling = -1;
}

static void squares_take(tri_ps_dense *dense, dense_block *block, const ps_head *head, const void *body)
{
    tri_slice blocks = tri_ps_norm_blocks(dense->spec, &dense->spec->cuts[head->block]);
    if (block->pushed != head->clock || block->squared)
        return;
    memcpy(dense->squares + blocks.first, body, head->nbytes);
    block->squared = true;
}

/* With backup workers an answer is one to this step's vote if it says that a later step is next. */
static void tail_take(tri_ps_dense *dense, int server, const ps_head *head, const char *body)
{
    int64_t clock = dense->tail_clock;
    if ((dense->chosen ? (int64_t)head->extra <= clock : head->clock != clock) || dense->tail_known >= clock)
        return;
    memcpy(dense->tail_sums, body, sizeof(dense->tail_sums));
    if (dense->chosen)
        choice_take(dense, server, head, body + sizeof(dense->tail_sums));
    dense->tail_known = clock;
}

void tri_ps_dense_take(tri_ps_dense *dense, int server, const ps_head *head, const void *body)
{
    dense_block *block = &dense->blocks[head->block];
    switch (head->kind) {
    case PS_CLOCK:
        if (dense->deal_asked >= 0 && head->clock >= dense->deal_asked) {
            dense->dealt = head->clock;
            dense->deal_asked = -1;
        }
        break;
    case PS_TAIL:
        tail_take(dense, server, head, body);
        break;
    case PS_SQUARES:
        squares_take(dense, block, head, body);
        break;
    case PS_STATE:
        block->stated = true;
        break;
    default:
        if (block->filling != server) /* it was not awaited when it began to come */
            return;
        block->filling = -1;
        if (is_coded(dense, head)) {
            const ps_cut *cut = &dense->spec->cuts[head->block];
            tri_ps_values_read(dense->spec, cut, block->told, dense->values + cut->first);
        }
        block->arrived = head->clock;
        block->asked = -1;
        break;
    }
}

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
    lock(dense);
    tri_status status = tri_ps_await(dense->client, tail_is_known, &at, "the sums of the batch");
    memcpy(sums, dense->tail_sums, sizeof(dense->tail_sums));
    unlock(dense);
    return status;
}

tri_status tri_ps_dense_squares_wait(tri_ps_dense *dense, int64_t clock, double *blocks)
{
    wait at = {.dense = dense, .clock = clock};
    lock(dense);
    tri_status status = tri_ps_await(dense->client, all_squared, &at, "the gradient's norm");
    memcpy(blocks, dense->squares, (size_t)dense->spec->params.block_count * sizeof(double));
    unlock(dense);
    return status;
}

tri_status tri_ps_dense_wait(tri_ps_dense *dense, int b, int64_t clock)
{
    wait at = {.dense = dense, .block = b, .clock = clock};
    lock(dense);
    tri_status status = block_is_here(&at) && dense->client->status == TRI_OK
                            ? TRI_OK
                            : tri_ps_await(dense->client, block_is_here, &at, "weights");
    unlock(dense);
    return status;
}

static bool is_dealt(void *arg)
{
    return ((const wait *)arg)->dense->deal_asked < 0;
}

tri_status tri_ps_dense_deal(tri_ps_dense *dense, int64_t done, int64_t *part)
{
    wait at = {.dense = dense};
    lock(dense);
    dense->deal_asked = done;
    deal_queue(dense);
    tri_status status = tri_ps_await(dense->client, is_dealt, &at, "the next part of the batch");
    *part = dense->dealt;
    unlock(dense);
    return status;
}

tri_status tri_ps_dense_state(tri_ps_dense *dense, int index, float *out)
{
    wait at = {.dense = dense};
    lock(dense);
    dense->state = out;
    dense->state_index = index;
    for (int b = 0; b < dense->spec->cut_count; b++) {
        dense->blocks[b].stated = false;
        state_queue(dense, b);
    }
    tri_status status = tri_ps_await(dense->client, state_is_here, &at, "the optimizer's state");
    dense->state = NULL;
    unlock(dense);
    return status;
}
