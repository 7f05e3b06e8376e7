/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch.c: which units are here, and which come next. All ranks run the same kernels in the same order, so they gather
 * the same units in the same order.
 */
#include "parallel/fetch.h"

#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"

/* Uses from the latest one on among which the next unit is looked for: with the latest they fill the pool. */
enum { AHEAD = 2 };

tri_status tri_fetch_init(tri_fetch *fetch, tri_group *group, const tri_params *params, const tri_units *units,
                          bool ahead)
{
    size_t count = (size_t)units->store_count + 1;
    *fetch = (tri_fetch){.group = group,
                         .params = params,
                         .units = units,
                         .rank = tri_group_rank(group),
                         .ahead = ahead,
                         .order = {{.each = sizeof(int)}, {.each = sizeof(int)}},
                         .place = -1};
    tri_pool_init(&fetch->pool, NULL, 1, TRI_FETCH_BUFFERS, NULL);
    fetch->states = tri_alloc_zero(count, sizeof(fetch_unit));
    fetch->here = tri_alloc_zero(count, sizeof(int));
    if (!fetch->states || !fetch->here)
        return TRI_ENOMEM;
    for (int u = 0; u < units->store_count; u++)
        fetch->states[u].buffer = -1;
    return TRI_OK;
}

void tri_fetch_fini(tri_fetch *fetch)
{
    for (int i = 0; i < fetch->here_count; i++)
        if (fetch->states[fetch->here[i]].work)
            (void)tri_work_wait(fetch->states[fetch->here[i]].work);
    tri_pool_fini(&fetch->pool);
    tri_vector_fini(&fetch->order[0]);
    tri_vector_fini(&fetch->order[1]);
    tri_free(fetch->states);
    tri_free(fetch->here);
}

static tri_status unit_await(tri_fetch *fetch, fetch_unit *state)
{
    if (!state->work)
        return TRI_OK;
    int64_t start_ns = tri_now_ns();
    tri_status status = tri_work_wait(state->work);
    state->work = NULL;
    fetch->waited_ns += tri_now_ns() - start_ns;
    return status;
}

/* The unit at here[i] is no longer here. */
static tri_status unit_leave(tri_fetch *fetch, int i)
{
    fetch_unit *state = &fetch->states[fetch->here[i]];
    tri_status status = unit_await(fetch, state);
    tri_pool_give(&fetch->pool, state->buffer);
    state->buffer = -1;
    fetch->here_count--;
    memmove(fetch->here + i, fetch->here + i + 1, (size_t)(fetch->here_count - i) * sizeof(int));
    return status;
}

/* The unit is the one that was used last. */
static void unit_touch(tri_fetch *fetch, int u)
{
    int i = 0;
    while (fetch->here[i] != u)
        i++;
    memmove(fetch->here + i, fetch->here + i + 1, (size_t)(fetch->here_count - 1 - i) * sizeof(int));
    fetch->here[fetch->here_count - 1] = u;
}

/* Begins to gather a unit, unless it is here. */
static tri_status unit_fetch(tri_fetch *fetch, int u)
{
    const tri_unit *unit = &fetch->units->items[u];
    fetch_unit *state = &fetch->states[u];
    if (state->buffer >= 0) {
        unit_touch(fetch, u);
        return TRI_OK;
    }
    for (int i = 0; i < fetch->here_count && fetch->here_count >= TRI_FETCH_BUFFERS;) {
        if (fetch->states[fetch->here[i]].users > 0)
            i++;
        else
            TRI_TRY(unit_leave(fetch, i));
    }
    TRI_TRY(tri_pool_take(&fetch->pool, unit->count, &state->buffer));
    fetch->here[fetch->here_count++] = u;
    tri_blocks blocks = {unit->counts, unit->firsts};
    tri_group_name_next(fetch->group, unit->name);
    tri_status status =
        tri_all_gather_v(fetch->group, fetch->params->values + unit->at[fetch->rank],
                         tri_pool_array(&fetch->pool, state->buffer, 0), &blocks, TRI_F32, &state->work);
    tri_group_name_next(fetch->group, "");
    return status;
}

static int order_at(const tri_fetch *fetch, bool down, int place)
{
    const tri_vector *order = &fetch->order[down];
    return place < (int)order->count ? *(int *)tri_vector_at(order, (size_t)place) : -1;
}

/* Finds the use of a unit in the order, or notes it. */
static tri_status use_note(tri_fetch *fetch, int u)
{
    if (fetch->place >= 0 && order_at(fetch, fetch->down, fetch->place) == u)
        return TRI_OK;
    fetch->place++;
    if (fetch->known[fetch->down] || tri_vector_push(&fetch->order[fetch->down], &u))
        return TRI_OK;
    return TRI_ENOMEM;
}

void tri_fetch_begin(tri_fetch *fetch, bool down)
{
    if (fetch->place >= 0)
        fetch->known[fetch->down] = true;
    fetch->down = down;
    fetch->place = -1;
}

tri_status tri_fetch_bring(tri_fetch *fetch, int entry, const float **values)
{
    int u = fetch->units->of[entry];
    fetch_unit *state = &fetch->states[u];
    TRI_TRY(unit_fetch(fetch, u));
    state->users++;
    TRI_TRY(use_note(fetch, u));
    /* Up to the next unit that is not here: those before it are not to make room. */
    bool found = !fetch->ahead || !fetch->known[fetch->down];
    for (int i = 1; i <= AHEAD && !found; i++) {
        int next = order_at(fetch, fetch->down, fetch->place + i);
        if (next < 0)
            break;
        found = fetch->states[next].buffer < 0;
        TRI_TRY(unit_fetch(fetch, next));
    }
    TRI_TRY(unit_await(fetch, state));
    *values = tri_pool_array(&fetch->pool, state->buffer, 0) +
              (fetch->params->entries[entry].first - fetch->units->items[u].first);
    return TRI_OK;
}

void tri_fetch_done(tri_fetch *fetch, int entry)
{
    fetch->states[fetch->units->of[entry]].users--;
}

tri_status tri_fetch_renew(tri_fetch *fetch)
{
    while (fetch->here_count > 0)
        TRI_TRY(unit_leave(fetch, fetch->here_count - 1));
    bool down = !fetch->known[0]; /* nothing but whole steps of a pipeline so far */
    if (!fetch->ahead || !fetch->known[down])
        return TRI_OK;
    int first = order_at(fetch, down, 0), second = order_at(fetch, down, 1);
    if (first >= 0)
        TRI_TRY(unit_fetch(fetch, first));
    return second >= 0 ? unit_fetch(fetch, second) : TRI_OK;
}
