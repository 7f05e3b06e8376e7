/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_receive.c: what comes from servers about a dense table: where it shall be, and what it means.
 */
#include <string.h>

#include "ps/client/client_impl.h"
#include "ps/tables/coding_dense.h"

/* A server that was slow, or answers twice, may say what is not awaited any more: values of the pull before, or coded
 * ones where these were asked for as they are. */
static bool values_are_awaited(const tri_ps_dense *dense, int server, const ps_head *head)
{
    const dense_block *block = &dense->blocks[head->block];
    if (block->server != server || block->asked < 0)
        return false;
    if (dense->coded && dense->exact && !(head->flags & PS_FLAG_EXACT))
        return false;
    if (dense->consistency != PS_BSP)
        return head->extra == (double)dense->pull_number;
    if (dense->chosen && head->clock > block->asked) /* others have gone on without this worker */
        return true;
    return !block->moves || head->clock == block->asked;
}

/* An array of the optimizer that was asked for twice comes twice, perhaps when the next one is awaited. */
static bool state_is_awaited(const tri_ps_dense *dense, int server, const ps_head *head)
{
    const dense_block *block = &dense->blocks[head->block];
    return dense->state && block->server == server && !block->stated && head->extra == dense->state_index;
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
    if (!(head->kind == PS_STATE && state_is_awaited(dense, server, head)) &&
        !(head->kind == PS_VALUES && values_are_awaited(dense, server, head)))
        return NULL;
    dense->blocks[head->block].filling = server;
    if (head->kind == PS_STATE)
        return dense->state + spec->cuts[head->block].first;
    return is_coded(dense, head) ? dense->blocks[head->block].encoded : dense->values + spec->cuts[head->block].first;
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
            tri_ps_dense_choice_say(dense, s);
}

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
        if (block->filling != server)
            return;
        block->filling = -1;
        block->stated = true;
        break;
    default:
        if (block->filling != server) /* it was not awaited when it began to come */
            return;
        block->filling = -1;
        if (is_coded(dense, head)) {
            const ps_cut *cut = &dense->spec->cuts[head->block];
            tri_ps_values_read(dense->spec, cut, block->encoded, dense->values + cut->first);
        }
        block->arrived = head->clock;
        block->asked = -1;
        break;
    }
}
