/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_ps.c: parameter servers: each block of the gradient goes to the server that has it, which moves the weights and
 * gives them back.
 *
 * With ps.consistency bsp the sum is the canonical one, at the server: the bits of all-reduce. A block leaves as soon
 * as the backward pass has completed it; its new weights may come while others are computed, since nothing reads them
 * again in that step, and the next forward pass waits for each where it needs it. With ssp and async a worker's own
 * gradient moves the weights by itself.
 */
#include "parallel/sync_ps.h"

#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "parallel/sync_impl.h"
#include "ps/client/client.h"

typedef struct sync_ps {
    tri_sync base;
    tri_group *group;
    const tri_params *params;
    ps_spec spec;
    tri_ps_dense *dense;
    ps_consistency consistency;
    int part_count;
    tri_tree_part parts[TRI_TREE_MAX_PARTS]; /* from leaf 0 of the batch */
    float **tails;                           /* [part_count] */
    int *missing;                            /* [cut_count] gradients that are not ready in this step */
    int *needs;                              /* [cut_count] of each step */
    int *first_cut, *last_cut;               /* [tri_params_tail()] blocks that a gradient is in */
    double weight;                           /* of this step's gradient, where it counts by itself */
    int64_t last_step;                       /* whose weights are those after all workers' */
    int64_t given_step;                      /* what the servers said at first */
    int64_t clock;                           /* of the weights that are here or on their way */
    bool coming;                             /* some may be on their way */
    bool late;                               /* with backup workers: others were chosen in this step */
    int64_t deals, dealt; /* with ps.schedule dynamic: parts of a batch, else 0; number of the one dealt */
} sync_ps;

static sync_ps *ps_of(tri_sync *sync)
{
    return tri_container_of(sync->inner ? sync->inner : sync, sync_ps, base);
}

static void ps_destroy(tri_sync *sync)
{
    sync_ps *ps = ps_of(sync);
    tri_ps_dense_close(ps->dense);
    tri_ps_spec_fini(&ps->spec);
    tri_sync_arrays_free(ps->group, ps->params, ps->part_count, NULL, ps->base.grads);
    tri_free(ps->tails);
    tri_free(ps->missing);
    tri_free(ps->needs);
    tri_free(ps->first_cut);
    tri_free(ps->last_cut);
    tri_free(ps);
}

/* --- which blocks a gradient is part of --- */

static void cuts_of_entry(const ps_spec *spec, const tri_param *entry, int *first, int *last)
{
    *first = *last = -1;
    for (int b = 0; b < spec->cut_count; b++)
        if (tri_param_within(entry, (tri_slice){spec->cuts[b].first, spec->cuts[b].count}).count > 0) {
            *first = *first < 0 ? b : *first;
            *last = b;
        }
}

static void cuts_count(sync_ps *ps)
{
    const tri_params *params = ps->params;
    for (int number = 0; number < tri_params_tail(params); number++) {
        int e = number < params->entry_count ? number : params->ties[number - params->entry_count].entry;
        cuts_of_entry(&ps->spec, &params->entries[e], &ps->first_cut[number], &ps->last_cut[number]);
        for (int b = ps->first_cut[number]; b >= 0 && b <= ps->last_cut[number]; b++)
            ps->needs[b]++;
    }
}

/* --- create --- */

static tri_status ps_open(sync_ps *ps, const tri_sync_setup *setup)
{
    const tri_sync_servers *servers = setup->servers;
    TRI_TRY(tri_ps_spec_of(setup->params, servers->config, servers->optim, setup->leaves, servers->workers,
                           servers->steps, &ps->spec));
    ps->spec.job = servers->job;
    if (servers->config->consistency == PS_BSP || servers->config->replicas > 1) /* else one server goes back */
        ps->spec.era = tri_ps_client_era(servers->client);
    ps->last_step = servers->last_step;
    ps->consistency = servers->config->consistency;
    ps->deals = tri_ps_deals(servers->config, servers->workers);
    ps->dealt = -1;
    int64_t first = tri_tree_first(setup->leaves, servers->worker, servers->workers);
    int64_t count = tri_tree_count(setup->leaves, servers->worker, servers->workers);
    if (ps->deals > 0) {
        first = 0;
        count = setup->leaves / ps->deals;
    }
    if (tri_ps_parts(servers->config, setup->leaves, first, count, ps->parts) != setup->part_count)
        return tri_fail(TRI_EINTERNAL, "a worker's shards make other subtrees than its sync");
    size_t numbers = (size_t)tri_params_tail(ps->params) + 1, cuts = (size_t)ps->spec.cut_count;
    ps->missing = tri_alloc_zero(cuts, sizeof(int));
    ps->needs = tri_alloc_zero(cuts, sizeof(int));
    ps->first_cut = tri_alloc_zero(numbers, sizeof(int));
    ps->last_cut = tri_alloc_zero(numbers, sizeof(int));
    ps->tails = tri_alloc_zero((size_t)ps->part_count, sizeof(float *));
    if (!ps->missing || !ps->needs || !ps->first_cut || !ps->last_cut || !ps->tails)
        return TRI_ENOMEM;
    TRI_TRY(tri_sync_arrays_alloc(ps->group, ps->params, ps->part_count, NULL, &ps->base.grads));
    for (int p = 0; p < ps->part_count; p++)
        ps->tails[p] = ps->base.grads[p] + tri_params_grad_count(ps->params);
    ps->base.tail = ps->tails[0];
    cuts_count(ps);
    return tri_ps_dense_open(servers->client, &ps->spec, servers->worker == 0, setup->params->values, &ps->given_step,
                             &ps->dense);
}

static tri_status ps_create(const tri_sync_setup *setup, tri_sync **out)
{
    if (!setup->servers)
        return tri_fail(TRI_ECONFIG, "parallel.sync ps: there are no parameter servers: want --servers N, or "
                                     "TRIREME_SERVERS in the environment of all ranks");
    sync_ps *ps = tri_alloc_zero(1, sizeof(*ps));
    if (!ps)
        return TRI_ENOMEM;
    ps->base.ops = &tri_sync_ps;
    ps->group = setup->group;
    ps->params = setup->params;
    ps->part_count = setup->part_count;
    tri_status status = ps_open(ps, setup);
    if (status != TRI_OK) {
        ps_destroy(&ps->base);
        return status;
    }
    *out = &ps->base;
    return TRI_OK;
}

/* --- a step --- */

static tri_status ps_begin(tri_sync *sync)
{
    sync_ps *ps = ps_of(sync);
    memcpy(ps->missing, ps->needs, (size_t)ps->spec.cut_count * sizeof(int));
    return TRI_OK;
}

/* This worker's parts become one, where nobody else's are added. */
static void parts_join(sync_ps *ps, int64_t first, int64_t count)
{
    float *into = ps->base.grads[0] + first;
    for (int p = 1; p < ps->part_count; p++)
        tri_vector_add(1, into, into, ps->base.grads[p] + first, count);
}

static void tie_join(void *arg, int64_t grad_first, int64_t offset, int64_t count)
{
    (void)offset;
    parts_join(arg, grad_first, count);
}

/* A worker's own gradient that is clipped leaves when its norm is known, the ties in it already. */
static bool is_held(const sync_ps *ps)
{
    return ps->consistency != PS_BSP && ps->spec.optim.clip_norm > 0;
}

static void block_push(sync_ps *ps, int b)
{
    const ps_cut *cut = &ps->spec.cuts[b];
    if (ps->consistency == PS_BSP) {
        tri_ps_dense_push(ps->dense, b, ps->base.step, ps->parts, ps->part_count, ps->base.grads, 0);
        return;
    }
    if (!is_held(ps)) {
        parts_join(ps, cut->first, cut->count);
        tri_ps_ties_walk(&ps->spec, cut, tie_join, ps);
    }
    tri_tree_part whole = {0, (int64_t)ps->tails[0][TRI_TAIL_SHARDS]};
    tri_ps_dense_push(ps->dense, b, ps->deals > 0 ? ps->dealt : ps->base.step, &whole, 1, ps->base.grads, ps->weight);
}

/* The tail comes first. */
static void tail_ready(sync_ps *ps)
{
    if (ps->consistency == PS_BSP) {
        tri_ps_dense_tail(ps->dense, ps->base.step, ps->parts, ps->part_count, ps->tails);
        return;
    }
    parts_join(ps, tri_params_grad_count(ps->params), TRI_PARAMS_TAIL);
    ps->weight = (double)ps->tails[0][TRI_TAIL_WEIGHT];
}

static void ps_ready(tri_sync *sync, int number)
{
    sync_ps *ps = ps_of(sync);
    if (number == tri_params_tail(ps->params)) {
        tail_ready(ps);
        return;
    }
    for (int b = ps->first_cut[number]; b >= 0 && b <= ps->last_cut[number]; b++)
        if (--ps->missing[b] == 0 && !is_held(ps))
            block_push(ps, b);
}

/* Who comes late may not have heard of a wish to stop. */
static tri_status choice_wait(sync_ps *ps)
{
    float stop = ps->tails[0][TRI_TAIL_STOP];
    tri_ps_dense_vote(ps->dense, ps->base.step);
    TRI_TRY(tri_ps_dense_tail_wait(ps->dense, ps->base.step, ps->tails[0]));
    ps->late = !tri_ps_dense_counted(ps->dense, &ps->base.next_step);
    if (ps->late && stop > 0)
        ps->tails[0][TRI_TAIL_STOP] = stop;
    if (ps->base.next_step <= ps->base.step)
        ps->base.next_step = ps->base.step + 1;
    return TRI_OK;
}

static tri_status ps_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_ps *ps = ps_of(sync);
    *slice = (tri_sync_slice){0, 0};
    if (ps->spec.ps.backup_workers > 0)
        return choice_wait(ps);
    if (ps->consistency == PS_BSP)
        return tri_ps_dense_tail_wait(ps->dense, sync->step, ps->tails[0]);
    return TRI_OK;
}

/* Servers add ties to their entries, but for a gradient that is held: then there is nothing left of ties. */
static void ps_fold(tri_sync *sync)
{
    sync_ps *ps = ps_of(sync);
    int64_t grads = tri_params_grad_count(ps->params), count = ps->params->count;
    if (!is_held(ps))
        return;
    parts_join(ps, 0, grads);
    tri_params_fold(ps->params, 1, sync->grads[0]);
    memset(sync->grads[0] + count, 0, (size_t)(grads - count) * sizeof(float));
}

/* Of the gradient that moves the weights: the batch's, or with ssp and async this worker's own. */
static tri_status ps_squares(tri_sync *sync, double *blocks)
{
    sync_ps *ps = ps_of(sync);
    if (ps->consistency == PS_BSP)
        return tri_ps_dense_squares_wait(ps->dense, sync->step, blocks);
    tri_clip_squares(ps->params, sync->grads[0], 0, ps->params->count, blocks, 1);
    return TRI_OK;
}

/* By what a push is divided, at the server: what the trainer multiplies the sum with, the clipping included. */
static void held_push(sync_ps *ps)
{
    ps->weight = ps->base.grad_scale > 0 ? 1 / (double)ps->base.grad_scale : 0;
    for (int b = 0; b < ps->spec.cut_count; b++)
        block_push(ps, b);
}

static tri_status ps_settle(tri_sync *sync)
{
    sync_ps *ps = ps_of(sync);
    for (int b = 0; ps->coming && b < ps->spec.cut_count; b++)
        TRI_TRY(tri_ps_dense_wait(ps->dense, b, ps->clock));
    ps->coming = false;
    return TRI_OK;
}

/* All pushes of this worker's part are queued: the next part, and weights for it. */
static tri_status deal(sync_ps *ps)
{
    TRI_TRY(tri_ps_dense_deal(ps->dense, ps->dealt + 1, &ps->dealt));
    int64_t step = ps->dealt / ps->deals;
    bool over = step >= ps->last_step;
    ps->clock = ps->base.next_step = over ? ps->last_step : step;
    ps->base.part = ps->dealt % ps->deals;
    ps->coming = true;
    tri_ps_dense_clock(ps->dense, ps->clock);
    tri_ps_dense_pull(ps->dense, ps->clock, over);
    return TRI_OK;
}

static tri_status ps_publish(tri_sync *sync)
{
    sync_ps *ps = ps_of(sync);
    ps->clock = sync->step + 1;
    ps->coming = true;
    if (is_held(ps))
        held_push(ps);
    if (ps->deals > 0)
        return deal(ps);
    if (ps->consistency != PS_BSP) {
        tri_ps_dense_clock(ps->dense, ps->clock);
        tri_ps_dense_pull(ps->dense, ps->clock, ps->clock == ps->last_step);
    } else if (ps->spec.optim.clip_norm > 0)
        tri_ps_dense_move(ps->dense, sync->step, sync->grad_scale);
    /* Who is late continues with the newest weights, once what was asked for has come: it must not come later. */
    if (!ps->late || ps->base.next_step == ps->clock)
        return TRI_OK;
    TRI_TRY(ps_settle(&ps->base));
    ps->clock = ps->base.next_step;
    ps->coming = true;
    tri_ps_dense_pull(ps->dense, ps->clock, false);
    return TRI_OK;
}

/* --- weights on their way --- */

static tri_status hook_bring(void *arg, int entry, const float **values)
{
    sync_ps *ps = arg;
    *values = ps->params->values + ps->params->entries[entry].first;
    if (!ps->coming)
        return TRI_OK;
    int64_t start_ns = tri_now_ns();
    for (int b = ps->first_cut[entry]; b <= ps->last_cut[entry]; b++)
        TRI_TRY(tri_ps_dense_wait(ps->dense, b, ps->clock));
    ps->base.waited_ns += tri_now_ns() - start_ns;
    return TRI_OK;
}

static void ps_hooks(tri_sync *sync, tri_graph_hooks *hooks)
{
    *hooks = (tri_graph_hooks){.arg = ps_of(sync), .bring = hook_bring};
}

/* --- the trainer's --- */

int64_t tri_sync_ps_step(const tri_sync *sync)
{
    return tri_container_of(sync->inner ? sync->inner : sync, const sync_ps, base)->given_step;
}

static tri_status state_view_open(tri_optim *optim, int index, tri_device_view *view)
{
    return tri_device_view_open(view, tri_optim_device(optim), tri_optim_state(optim, index),
                                (size_t)tri_optim_count(optim) * sizeof(float));
}

tri_status tri_sync_ps_give(tri_sync *sync, int64_t step, tri_optim *optim)
{
    sync_ps *ps = ps_of(sync);
    tri_device_view views[TRI_OPTIM_MAX_STATE] = {{0}};
    const float *state[TRI_OPTIM_MAX_STATE];
    tri_status status = TRI_OK;
    int count = 0;
    for (; status == TRI_OK && count < TRI_OPTIM_MAX_STATE && tri_optim_state_name(optim, count); count++) {
        status = state_view_open(optim, count, &views[count]);
        state[count] = views[count].host;
    }
    tri_sync_staged_read(sync);
    ps->clock = step;
    if (status == TRI_OK)
        status = tri_ps_dense_give(ps->dense, step, state, count);
    tri_sync_staged_write(sync); /* rounded, where values travel so */
    for (int i = 0; i < count; i++)
        tri_device_view_close(&views[i]);
    return status;
}

tri_status tri_sync_ps_refill(tri_sync *sync, int server, int64_t clock, int64_t known, const float *values,
                              const float *const *state, int state_count, int *blocks, int64_t *now)
{
    return tri_ps_dense_refill(ps_of(sync)->dense, server, clock, known, values, state, state_count, blocks, now);
}

tri_status tri_sync_ps_take(tri_sync *sync, int64_t step)
{
    sync_ps *ps = ps_of(sync);
    ps->clock = step;
    ps->coming = true;
    tri_ps_dense_pull(ps->dense, step, false);
    TRI_TRY(ps_settle(sync));
    tri_sync_staged_write(sync);
    return TRI_OK;
}

tri_status tri_sync_ps_deal(tri_sync *sync, int64_t *step)
{
    sync_ps *ps = ps_of(sync);
    if (ps->deals == 0)
        return TRI_OK;
    TRI_TRY(deal(ps));
    tri_sync_staged_hear(sync);
    *step = sync->next_step;
    return TRI_OK;
}

tri_status tri_sync_ps_meet(tri_sync *sync)
{
    sync_ps *ps = ps_of(sync);
    TRI_TRY(ps_settle(sync));
    if (!tri_ps_is_coded(&ps->spec.ps))
        return TRI_OK;
    ps->coming = true;
    tri_ps_dense_pull_exact(ps->dense, ps->clock);
    TRI_TRY(ps_settle(sync));
    tri_sync_staged_write(sync);
    return TRI_OK;
}

void tri_sync_ps_part(tri_sync *sync)
{
    tri_ps_dense_round(ps_of(sync)->dense);
    tri_sync_staged_write(sync);
}

tri_status tri_sync_ps_state(tri_sync *sync, tri_optim *optim)
{
    tri_status status = TRI_OK;
    for (int i = 0; status == TRI_OK && i < TRI_OPTIM_MAX_STATE && tri_optim_state_name(optim, i); i++) {
        tri_device_view view;
        status = state_view_open(optim, i, &view);
        if (status == TRI_OK)
            status = tri_ps_dense_state(ps_of(sync)->dense, i, view.host);
        if (status == TRI_OK)
            tri_device_view_write(&view);
        tri_device_view_close(&view);
    }
    return status;
}

const tri_sync_ops tri_sync_ps = {
    .name = "ps",
    .does = "parameter servers move the weights",
    .create = ps_create,
    .begin = ps_begin,
    .ready = ps_ready,
    .finish = ps_finish,
    .publish = ps_publish,
    .fold = ps_fold,
    .squares = ps_squares,
    .hooks = ps_hooks,
    .settle = ps_settle,
    .destroy = ps_destroy,
};
