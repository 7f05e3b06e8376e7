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
                          bool ahead, const tri_fetch_source *source)
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
    if (!source)
        return TRI_OK;
    int64_t counts[TRI_FETCH_BUFFERS];
    fetch->source = *source;
    tri_units_largest(units, TRI_UNITS_READ, TRI_FETCH_BUFFERS, counts);
    return tri_pool_fill(&fetch->pool, source->device, counts);
}

/* --- gathers --- */

static tri_status comm_begin(tri_fetch *fetch, int u)
{
    const tri_unit *unit = &fetch->units->items[u];
    tri_blocks blocks = {unit->counts, unit->firsts};
    tri_group_name_next(fetch->group, unit->name);
    tri_status status = tri_all_gather_v(fetch->group, fetch->params->values + unit->at[fetch->rank],
                                         tri_fetch_values(fetch, u), &blocks, TRI_F32, &fetch->states[u].work);
    tri_group_name_next(fetch->group, "");
    return status;
}

static tri_status comm_await(tri_fetch *fetch, int u)
{
    tri_work *work = fetch->states[u].work;
    fetch->states[u].work = NULL;
    return tri_work_wait(work);
}

static tri_status gather_begin(tri_fetch *fetch, int u)
{
    TRI_TRY(fetch->source.begin ? fetch->source.begin(fetch->source.arg, u) : comm_begin(fetch, u));
    fetch->states[u].coming = true;
    return TRI_OK;
}

static tri_status gather_await(tri_fetch *fetch, int u)
{
    if (!fetch->states[u].coming)
        return TRI_OK;
    int64_t start_ns = tri_now_ns();
    fetch->states[u].coming = false;
    tri_status status = fetch->source.await ? fetch->source.await(fetch->source.arg, u) : comm_await(fetch, u);
    fetch->waited_ns += tri_now_ns() - start_ns;
    return status;
}

float *tri_fetch_values(const tri_fetch *fetch, int unit)
{
    return tri_pool_array(&fetch->pool, fetch->states[unit].buffer, 0);
}

void tri_fetch_fini(tri_fetch *fetch)
{
    for (int i = 0; i < fetch->here_count; i++)
        (void)gather_await(fetch, fetch->here[i]);
    tri_pool_fini(&fetch->pool);
    tri_vector_fini(&fetch->order[0]);
    tri_vector_fini(&fetch->order[1]);
    tri_free(fetch->states);
    tri_free(fetch->here);
}

/* --- units that are here --- */

/* The unit at here[i] is no longer here. */
static tri_status unit_leave(tri_fetch *fetch, int i)
{
    fetch_unit *state = &fetch->states[fetch->here[i]];
    tri_status status = gather_await(fetch, fetch->here[i]);
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

static int order_at(const tri_fetch *fetch, bool down, int place)
{
    const tri_vector *order = &fetch->order[down];
    return place < (int)order->count ? *(int *)tri_vector_at(order, (size_t)place) : -1;
}

/* Memory of a device has no room for it, and does not grow for what is needed later. */
static bool lacks_room(const tri_fetch *fetch, int u)
{
    return fetch->source.device && !tri_pool_has(&fetch->pool, fetch->units->items[u].count);
}

/* An op reads it, or the next ones do, for which no other makes room early. */
static bool has_to_stay(const tri_fetch *fetch, int u, bool early)
{
    bool stays = fetch->states[u].users > 0;
    for (int i = 1; i <= AHEAD && early && fetch->source.device && !stays; i++)
        stays = order_at(fetch, fetch->down, fetch->place + i) == u;
    return stays;
}

/* Begins to gather a unit, unless it is here. early: it is needed later, and may come then. */
static tri_status unit_fetch(tri_fetch *fetch, int u, bool early)
{
    fetch_unit *state = &fetch->states[u];
    if (state->buffer >= 0) {
        unit_touch(fetch, u);
        return TRI_OK;
    }
    for (int i = 0; i < fetch->here_count && (fetch->here_count >= TRI_FETCH_BUFFERS || lacks_room(fetch, u));) {
        if (has_to_stay(fetch, fetch->here[i], early))
            i++;
        else
            TRI_TRY(unit_leave(fetch, i));
    }
    if (early && lacks_room(fetch, u))
        return TRI_OK;
    TRI_TRY(tri_pool_take(&fetch->pool, fetch->units->items[u].count, &state->buffer));
    fetch->here[fetch->here_count++] = u;
    tri_status status = gather_begin(fetch, u);
    if (status != TRI_OK) { /* nobody takes it for being here */
        tri_pool_give(&fetch->pool, state->buffer);
        state->buffer = -1;
        fetch->here_count--;
    }
    return status;
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
    TRI_TRY(unit_fetch(fetch, u, false));
    TRI_TRY(use_note(fetch, u));
    state->users++;
    /* Up to the next unit that is not here: those before it are not to make room. */
    bool found = !fetch->ahead || !fetch->known[fetch->down];
    tri_status status = TRI_OK;
    for (int i = 1; i <= AHEAD && !found && status == TRI_OK; i++) {
        int next = order_at(fetch, fetch->down, fetch->place + i);
        if (next < 0)
            break;
        found = fetch->states[next].buffer < 0;
        status = unit_fetch(fetch, next, true);
    }
    if (status == TRI_OK)
        status = gather_await(fetch, u);
    state->users -= status != TRI_OK;
    TRI_TRY(status);
    *values = tri_fetch_values(fetch, u) + (fetch->params->entries[entry].first - fetch->units->items[u].first);
    return TRI_OK;
}

void tri_fetch_done(tri_fetch *fetch, int entry)
{
    const int u = fetch->units->of[entry];
    fetch->states[u].users--;
    if (fetch->source.left)
        fetch->source.left(fetch->source.arg, u);
}

tri_status tri_fetch_renew(tri_fetch *fetch)
{
    while (fetch->here_count > 0)
        TRI_TRY(unit_leave(fetch, fetch->here_count - 1));
    bool down = !fetch->known[0];                                     /* nothing but whole steps of a pipeline so far */
    if (!fetch->ahead || !fetch->known[down] || fetch->source.device) /* on a card nothing is under way between steps */
        return TRI_OK;
    int first = order_at(fetch, down, 0), second = order_at(fetch, down, 1);
    if (first >= 0)
        TRI_TRY(unit_fetch(fetch, first, false));
    return second >= 0 ? unit_fetch(fetch, second, false) : TRI_OK;
}
